// Sorting along rows: sort, argsort, topk, kthvalue, mode, and the order of whole rows.
//
// Long rows take a radix sort over (key, position) pairs, short ones a comparison sort; both are
// stable, so the result is one well-defined permutation whatever the length.
#include <algorithm>

#include "routines_keys.h"

namespace fb {
namespace {

constexpr int64_t kRadixLength = 512;
constexpr int kDigitBits = 8;
constexpr int kDigits = 1 << kDigitBits;
constexpr int64_t kRowWork = 4096;  // elements worth handing to another thread

template <typename Key>
struct Pair {
  Key key;
  int64_t position;
};

template <typename Key>
bool before(const Pair<Key>& a, const Pair<Key>& b) {
  return a.key != b.key ? a.key < b.key : a.position < b.position;
}

// Least significant digit first. Sorted pairs end in `pairs`.
template <typename Key>
void radix_sort(Pair<Key>* pairs, Pair<Key>* other, int64_t n) {
  constexpr int passes = static_cast<int>(sizeof(Key));
  std::vector<int64_t> counts(static_cast<size_t>(passes) * kDigits);
  for (int64_t i = 0; i < n; ++i) {
    for (int p = 0; p < passes; ++p) {
      ++counts[p * kDigits + (pairs[i].key >> (p * kDigitBits) & (kDigits - 1))];
    }
  }
  Pair<Key>*from = pairs, *to = other;
  for (int p = 0; p < passes; ++p) {
    int64_t* count = counts.data() + p * kDigits;
    const int first = static_cast<int>(from[0].key >> (p * kDigitBits) & (kDigits - 1));
    if (count[first] == n) continue;  // all alike in this digit
    int64_t sum = 0;
    for (int d = 0; d < kDigits; ++d) {
      const int64_t here = count[d];
      count[d] = sum;
      sum += here;
    }
    for (int64_t i = 0; i < n; ++i) {
      to[count[from[i].key >> (p * kDigitBits) & (kDigits - 1)]++] = from[i];
    }
    std::swap(from, to);
  }
  if (from != pairs) std::copy(from, from + n, pairs);
}

template <typename Key>
void sort_pairs(Pair<Key>* pairs, Pair<Key>* other, int64_t n) {
  if (n >= kRadixLength)
    radix_sort(pairs, other, n);
  else
    std::sort(pairs, pairs + n, before<Key>);
}

template <typename T>
void make_pairs(const T* row, int64_t n, bool descending, Pair<typename KeyOf<T>::Key>* out) {
  using Key = typename KeyOf<T>::Key;
  for (int64_t i = 0; i < n; ++i) {
    const Key key = KeyOf<T>::key(row[i]);
    out[i] = {descending ? static_cast<Key>(~key) : key, i};
  }
}

// Calls body(row number, pairs of that row, spare pairs) for every row, in parallel.
template <typename T, typename Body>
const char* for_rows(const T* x, int64_t rows, int64_t n, bool descending, const Body& body) {
  using P = Pair<typename KeyOf<T>::Key>;
  if (rows <= 0 || n <= 0) return nullptr;
  std::atomic<bool> fine{true};
  parallel(rows, std::max<int64_t>(1, kRowWork / n), [&](int64_t begin, int64_t end) {
    P* pairs = static_cast<P*>(worker_scratch(0, 2 * n * static_cast<int64_t>(sizeof(P))));
    if (!pairs) {
      fine = false;
      return;
    }
    for (int64_t r = begin; r < end; ++r) {
      make_pairs(x + r * n, n, descending, pairs);
      body(r, pairs, pairs + n);
    }
  });
  return fine ? nullptr : kOutOfMemory;
}

template <typename T>
const char* sort(const RoutineContext& c) {
  const T* x = pointer<T>(c, 0);
  T* values = pointer<T>(c, 1);
  int64_t* indices = pointer<int64_t>(c, 2);
  const int64_t n = c.n[1];
  return for_rows(x, c.n[0], n, c.n[2] != 0, [&](int64_t r, auto* pairs, auto* spare) {
    sort_pairs(pairs, spare, n);
    for (int64_t i = 0; i < n; ++i) {
      values[r * n + i] = x[r * n + pairs[i].position];
      indices[r * n + i] = pairs[i].position;
    }
  });
}

template <typename T>
const char* argsort(const RoutineContext& c) {
  int64_t* indices = pointer<int64_t>(c, 1);
  const int64_t n = c.n[1];
  return for_rows(pointer<T>(c, 0), c.n[0], n, c.n[2] != 0,
                  [&](int64_t r, auto* pairs, auto* spare) {
                    sort_pairs(pairs, spare, n);
                    for (int64_t i = 0; i < n; ++i) indices[r * n + i] = pairs[i].position;
                  });
}

template <typename T>
const char* topk(const RoutineContext& c) {
  const T* x = pointer<T>(c, 0);
  T* values = pointer<T>(c, 1);
  int64_t* indices = pointer<int64_t>(c, 2);
  const int64_t n = c.n[1], k = c.n[2];
  if (k > n) return "index: k is larger than the dimension";
  return for_rows(x, c.n[0], n, c.n[3] != 0, [&](int64_t r, auto* pairs, auto* spare) {
    using Key = decltype(pairs->key);
    if (k > n / 8)
      sort_pairs(pairs, spare, n);
    else
      std::partial_sort(pairs, pairs + k, pairs + n, before<Key>);
    for (int64_t i = 0; i < k; ++i) {
      values[r * k + i] = x[r * n + pairs[i].position];
      indices[r * k + i] = pairs[i].position;
    }
  });
}

template <typename T>
const char* kthvalue(const RoutineContext& c) {
  const T* x = pointer<T>(c, 0);
  T* values = pointer<T>(c, 1);
  int64_t* indices = pointer<int64_t>(c, 2);
  const int64_t n = c.n[1], k = c.n[2];
  if (c.n[0] > 0 && (k < 1 || k > n)) return "index: selected number k out of range";
  return for_rows(x, c.n[0], n, false, [&](int64_t r, auto* pairs, auto*) {
    using Key = decltype(pairs->key);
    std::nth_element(pairs, pairs + k - 1, pairs + n, before<Key>);
    indices[r] = pairs[k - 1].position;
    values[r] = x[r * n + indices[r]];
  });
}

template <typename T>
const char* mode(const RoutineContext& c) {
  const T* x = pointer<T>(c, 0);
  T* values = pointer<T>(c, 1);
  int64_t* indices = pointer<int64_t>(c, 2);
  const int64_t n = c.n[1];
  return for_rows(x, c.n[0], n, false, [&](int64_t r, auto* pairs, auto* spare) {
    sort_pairs(pairs, spare, n);
    int64_t best = 0, longest = 0;
    for (int64_t begin = 0; begin < n;) {
      int64_t end = begin + 1;
      while (end < n && pairs[end].key == pairs[begin].key) ++end;
      if (end - begin > longest) {
        longest = end - begin;
        best = end - 1;
      }
      begin = end;
    }
    indices[r] = pairs[best].position;
    values[r] = x[r * n + indices[r]];
  });
}

template <typename T>
const char* sort_rows(const RoutineContext& c) {
  const T* x = pointer<T>(c, 0);
  int64_t* order = pointer<int64_t>(c, 1);
  const int64_t rows = c.n[0], n = c.n[1];
  for (int64_t r = 0; r < rows; ++r) order[r] = r;
  std::stable_sort(order, order + rows, [&](int64_t a, int64_t b) {
    for (int64_t i = 0; i < n; ++i) {
      const auto left = KeyOf<T>::key(x[a * n + i]), right = KeyOf<T>::key(x[b * n + i]);
      if (left != right) return left < right;
    }
    return false;
  });
  return nullptr;
}

#define FB_MAKE(Name, function)    \
  struct Name {                    \
    template <typename T>          \
    static RoutineFunction get() { \
      return function<T>;          \
    }                              \
  }
FB_MAKE(Sort, sort);
FB_MAKE(Argsort, argsort);
FB_MAKE(Topk, topk);
FB_MAKE(Kthvalue, kthvalue);
FB_MAKE(Mode, mode);
FB_MAKE(SortRows, sort_rows);
#undef FB_MAKE

}  // namespace

void add_sort_routines(RoutineList* list) {
  add_for_real<Sort>(list, "sort_");
  add_for_real<Argsort>(list, "argsort_");
  add_for_real<Topk>(list, "topk_");
  add_for_real<Kthvalue>(list, "kthvalue_");
  add_for_real<Mode>(list, "mode_");
  add_for_real<SortRows>(list, "sort_rows_");
}

}  // namespace fb
