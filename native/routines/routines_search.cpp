// Binary search in sorted rows; elements that a mask selects.
#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "routines/routines_keys.h"

namespace fb {
namespace {

template <typename T>
const char* searchsorted(const RoutineContext& c) {
  using Key = typename KeyOf<T>::Key;
  const int64_t rows = c.n[0], length = c.n[1], count = c.n[2];
  const bool right = c.n[3] != 0;
  const int64_t row_step = c.n[4];
  const T* values = pointer<T>(c, 1);
  int64_t* out = pointer<int64_t>(c, 2);
  parallel(rows * count, 1024, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) {
      const T* sorted = pointer<T>(c, 0) + at / count * row_step;
      const Key key = KeyOf<T>::key(values[at]);
      int64_t low = 0, high = length;
      while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        const Key here = KeyOf<T>::key(sorted[middle]);
        if (right ? here <= key : here < key) {
          low = middle + 1;
        } else {
          high = middle;
        }
      }
      out[at] = low;
    }
  });
  return nullptr;
}

constexpr int64_t kMaskBlock = 1 << 16;  // elements of a mask that are counted, then written

// How many of the bytes are not 0.
int64_t count_true(const uint8_t* mask, int64_t length) {
  constexpr uint64_t kLow = 0x7f7f7f7f7f7f7f7f;
  int64_t total = 0, at = 0;
  for (; at + 8 <= length; at += 8) {
    uint64_t word;
    std::memcpy(&word, mask + at, 8);
    total += __builtin_popcountll((((word & kLow) + kLow) | word) & ~kLow);
  }
  for (; at < length; ++at) total += mask[at] != 0;
  return total;
}

// Calls found(number, position) for every true element with a number below count; the number
// counts true elements from the start of the mask. Returns how many there are.
template <typename Found>
int64_t each_true(const uint8_t* mask, int64_t length, int64_t count, const Found& found) {
  const int64_t blocks = (length + kMaskBlock - 1) / kMaskBlock;
  std::vector<int64_t> first(static_cast<size_t>(blocks) + 1, 0);
  const auto end_of = [&](int64_t block) { return std::min(length, (block + 1) * kMaskBlock); };
  parallel(blocks, 4, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t start = block * kMaskBlock;
      first[static_cast<size_t>(block) + 1] = count_true(mask + start, end_of(block) - start);
    }
  });
  for (size_t block = 1; block < first.size(); ++block) first[block] += first[block - 1];
  parallel(blocks, 4, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      int64_t number = first[static_cast<size_t>(block)];
      const int64_t last = std::min(count, first[static_cast<size_t>(block) + 1]);
      int64_t at = block * kMaskBlock;
      for (const int64_t stop = end_of(block); number < last && at < stop;) {
        uint64_t word = 1;
        if (at + 8 <= stop) std::memcpy(&word, mask + at, 8);
        if (!word) {
          at += 8;
          continue;
        }
        if (mask[at]) found(number++, at);
        ++at;
      }
    }
  });
  return first.back();
}

// mask, out(i64) / rows, length, count, ndim, sizes[ndim]
const char* true_indices(const RoutineContext& c) {
  const int64_t rows = c.n[0], length = c.n[1], count = c.n[2], ndim = c.n[3];
  const int64_t* sizes = c.n + 4;
  for (int64_t row = 0; row < rows; ++row) {
    int64_t* out = pointer<int64_t>(c, 1) + row * ndim * count;
    const auto write = [&](int64_t number, int64_t at) {
      for (int64_t d = ndim - 1; d > 0; --d) {
        out[d * count + number] = at % sizes[d];
        at /= sizes[d];
      }
      out[number] = at;
    };
    const uint8_t* mask = pointer<uint8_t>(c, 0) + row * length;
    const int64_t found = std::min(count, each_true(mask, length, count, write));
    for (int64_t d = 0; d < ndim; ++d) {
      std::fill(out + d * count + found, out + (d + 1) * count, -1);
    }
  }
  return nullptr;
}

// x, mask, out / length, count, bytes of an entry
const char* compress(const RoutineContext& c) {
  const int64_t length = c.n[0], count = c.n[1];
  const size_t bytes = static_cast<size_t>(c.n[2]);
  const char* x = pointer<char>(c, 0);
  char* out = pointer<char>(c, 2);
  const auto copy = [&](auto width) {
    const size_t step = width.value ? width.value : bytes;
    const auto write = [&](int64_t number, int64_t at) {
      std::memcpy(out + static_cast<size_t>(number) * step, x + static_cast<size_t>(at) * step,
                  step);
    };
    return each_true(pointer<uint8_t>(c, 1), length, count, write);
  };
  int64_t found = 0;
  if (bytes == 4) {
    found = copy(std::integral_constant<size_t, 4>());
  } else if (bytes == 8) {
    found = copy(std::integral_constant<size_t, 8>());
  } else {
    found = copy(std::integral_constant<size_t, 0>());
  }
  if (found < count) {
    std::memset(out + static_cast<size_t>(found) * bytes, 0,
                static_cast<size_t>(count - found) * bytes);
  }
  return nullptr;
}

#define FB_MAKE(Name, function)    \
  struct Name {                    \
    template <typename T>          \
    static RoutineFunction get() { \
      return function<T>;          \
    }                              \
  }
FB_MAKE(SearchSorted, searchsorted);
#undef FB_MAKE

FB_ONCE void add_search_routines(RoutineList* list) {
  add_for_real<SearchSorted>(list, "searchsorted_");
  list->push_back({"true_indices", true_indices});
  list->push_back({"compress", compress});
}

const RoutineRegistration registration{add_search_routines};

}  // namespace

}  // namespace fb
