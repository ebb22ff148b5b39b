// Searching and counting: searchsorted, unique, nonzero, masked selection, bincount and histc.
#include <algorithm>
#include <cmath>

#include "routines_keys.h"

namespace fb {
namespace {

template <typename T>
const char* searchsorted(const RoutineContext& c) {
  using Key = typename KeyOf<T>::Key;
  const int64_t rows = c.n[0], length = c.n[1], count = c.n[2];
  const bool right = c.n[3] != 0;
  const int64_t row_step = c.n[4];
  const int64_t* sorter = c.n[5] ? pointer<int64_t>(c, 3) : nullptr;
  const T* values = pointer<T>(c, 1);
  int64_t* out = pointer<int64_t>(c, 2);
  parallel(rows * count, 1024, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) {
      const int64_t base = at / count * row_step;
      const T* sorted = pointer<T>(c, 0) + base;
      const Key key = KeyOf<T>::key(values[at]);
      int64_t low = 0, high = length;
      while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        const Key here = KeyOf<T>::key(sorted[sorter ? sorter[base + middle] : middle]);
        if (right ? here <= key : here < key)
          low = middle + 1;
        else
          high = middle;
      }
      out[at] = low;
    }
  });
  return nullptr;
}

// Runs of equal neighbours, as values and inverse of `unique`.
template <typename T>
const char* unique(const RoutineContext& c) {
  const bool has_order = c.n[1] != 0;
  const T* sorted = pointer<T>(c, 0);
  const int64_t* order = has_order ? pointer<int64_t>(c, 1) : nullptr;
  const int next = has_order ? 2 : 1;
  T* values = pointer<T>(c, next);
  int64_t *inverse = pointer<int64_t>(c, next + 1), *counts = pointer<int64_t>(c, next + 2);
  int64_t total = 0;
  for (int64_t i = 0; i < c.n[0]; ++i) {
    if (i == 0 || !same_value(sorted[i], sorted[i - 1])) {
      values[total] = sorted[i];
      counts[total++] = 0;
    }
    ++counts[total - 1];
    inverse[order ? order[i] : i] = total - 1;
  }
  *pointer<int64_t>(c, next + 3) = total;
  return nullptr;
}

template <typename T>
const char* unique_rows(const RoutineContext& c) {
  const int64_t rows = c.n[0], length = c.n[1];
  const bool has_order = c.n[2] != 0;
  const T* x = pointer<T>(c, 0);
  const int64_t* order = has_order ? pointer<int64_t>(c, 1) : nullptr;
  const int next = has_order ? 2 : 1;
  int64_t *first = pointer<int64_t>(c, next), *inverse = pointer<int64_t>(c, next + 1);
  int64_t* counts = pointer<int64_t>(c, next + 2);
  int64_t total = 0, previous = -1;
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t r = order ? order[i] : i;
    bool same = previous >= 0;
    for (int64_t k = 0; same && k < length; ++k) {
      same = same_value(x[previous * length + k], x[r * length + k]);
    }
    if (!same) {
      first[total] = r;
      counts[total++] = 0;
    }
    ++counts[total - 1];
    inverse[r] = total - 1;
    previous = r;
  }
  *pointer<int64_t>(c, next + 3) = total;
  return nullptr;
}

// An element is nonzero unless all its bits but a floating sign bit are 0.
template <typename T>
bool nonzero(T x) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
    return (x.bits & 0x7fff) != 0;
  } else {
    return x != T(0);
  }
}

struct Complex64 {
  float re, im;
  explicit Complex64(int = 0) : re(0), im(0) {}
  bool operator!=(const Complex64& o) const { return re != o.re || im != o.im; }
};
struct Complex128 {
  double re, im;
  explicit Complex128(int = 0) : re(0), im(0) {}
  bool operator!=(const Complex128& o) const { return re != o.re || im != o.im; }
};

template <typename T>
const char* nonzero_count(const RoutineContext& c) {
  const T* x = pointer<T>(c, 0);
  std::atomic<int64_t> total{0};
  parallel(c.n[0], 1 << 16, [&](int64_t begin, int64_t end) {
    int64_t count = 0;
    for (int64_t i = begin; i < end; ++i) count += nonzero(x[i]);
    total += count;
  });
  *pointer<int64_t>(c, 1) = total;
  return nullptr;
}

template <typename T>
const char* nonzero_fill(const RoutineContext& c) {
  const T* x = pointer<T>(c, 0);
  int64_t* out = pointer<int64_t>(c, 1);
  const int64_t ndim = c.n[0];
  const int64_t* sizes = c.n + 1;
  int64_t numel = 1;
  for (int64_t d = 0; d < ndim; ++d) numel *= sizes[d];
  for (int64_t i = 0; i < numel; ++i) {
    if (!nonzero(x[i])) continue;
    int64_t rest = i;
    for (int64_t d = ndim - 1; d >= 0; --d) {
      out[d] = rest % sizes[d];
      rest /= sizes[d];
    }
    out += ndim;
  }
  return nullptr;
}

template <typename T>
const char* masked_select(const RoutineContext& c) {
  const T* x = pointer<T>(c, 0);
  const uint8_t* mask = pointer<uint8_t>(c, 1);
  T* out = pointer<T>(c, 2);
  for (int64_t i = 0; i < c.n[0]; ++i) {
    if (mask[i]) *out++ = x[i];
  }
  return nullptr;
}

template <typename T>
const char* masked_scatter(const RoutineContext& c) {
  T* out = pointer<T>(c, 0);
  const uint8_t* mask = pointer<uint8_t>(c, 1);
  const T* source = pointer<T>(c, 2);
  int64_t* error = pointer<int64_t>(c, 3);
  int64_t wanted = 0;
  for (int64_t i = 0; i < c.n[0]; ++i) wanted += mask[i] != 0;
  if (wanted > c.n[1]) {
    error[1] = wanted;
    error[2] = c.n[1];
    error[0] = 1;
    return nullptr;
  }
  for (int64_t i = 0; i < c.n[0]; ++i) {
    if (mask[i]) out[i] = *source++;
  }
  return nullptr;
}

const char* bincount(const RoutineContext& c) {
  const int64_t* x = pointer<int64_t>(c, 0);
  int64_t* out = pointer<int64_t>(c, 1);
  std::fill(out, out + c.n[1], int64_t{0});
  for (int64_t i = 0; i < c.n[0]; ++i) {
    if (x[i] < 0 || x[i] >= c.n[1]) return "index: bincount needs values in [0, bins)";
    ++out[x[i]];
  }
  return nullptr;
}

template <typename T>
const char* weighted_bincount(const RoutineContext& c) {
  const int64_t* x = pointer<int64_t>(c, 0);
  const T* weights = pointer<T>(c, 1);
  T* out = pointer<T>(c, 2);
  std::fill(out, out + c.n[1], T(0));
  for (int64_t i = 0; i < c.n[0]; ++i) {
    if (x[i] < 0 || x[i] >= c.n[1]) return "index: bincount needs values in [0, bins)";
    out[x[i]] += weights[i];
  }
  return nullptr;
}

// Elements outside [low, high] and NaN are not counted; high itself belongs to the last bin.
template <typename T>
const char* histc(const RoutineContext& c) {
  const T* x = pointer<T>(c, 0);
  T* out = pointer<T>(c, 1);
  const int64_t bins = c.n[1];
  const T low = static_cast<T>(c.s[0].d), high = static_cast<T>(c.s[1].d);
  std::fill(out, out + bins, T(0));
  for (int64_t i = 0; i < c.n[0]; ++i) {
    if (!(x[i] >= low && x[i] <= high)) continue;
    const int64_t at = static_cast<int64_t>((x[i] - low) / (high - low) * static_cast<T>(bins));
    out[std::min(at, bins - 1)] += T(1);
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
FB_MAKE(Unique, unique);
FB_MAKE(UniqueRows, unique_rows);
FB_MAKE(NonzeroCount, nonzero_count);
FB_MAKE(NonzeroFill, nonzero_fill);
FB_MAKE(MaskedSelect, masked_select);
FB_MAKE(MaskedScatter, masked_scatter);
#undef FB_MAKE

template <typename Make>
void add_for_all(RoutineList* list, const std::string& prefix) {
  add_for_real<Make>(list, prefix);
  list->push_back({prefix + "c64", Make::template get<Complex64>()});
  list->push_back({prefix + "c128", Make::template get<Complex128>()});
}

}  // namespace

void add_search_routines(RoutineList* list) {
  add_for_real<SearchSorted>(list, "searchsorted_");
  add_for_real<Unique>(list, "unique_");
  add_for_real<UniqueRows>(list, "unique_rows_");
  add_for_all<NonzeroCount>(list, "nonzero_count_");
  add_for_all<NonzeroFill>(list, "nonzero_fill_");
  list->push_back({"masked_count", nonzero_count<uint8_t>});
  add_for_all<MaskedSelect>(list, "masked_select_");
  add_for_all<MaskedScatter>(list, "masked_scatter_");
  list->push_back({"bincount", bincount});
  list->push_back({"bincount_f32", weighted_bincount<float>});
  list->push_back({"bincount_f64", weighted_bincount<double>});
  list->push_back({"histc_f32", histc<float>});
  list->push_back({"histc_f64", histc<double>});
}

}  // namespace fb
