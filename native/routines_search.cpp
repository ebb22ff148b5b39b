// Binary search in sorted rows.
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

#define FB_MAKE(Name, function)    \
  struct Name {                    \
    template <typename T>          \
    static RoutineFunction get() { \
      return function<T>;          \
    }                              \
  }
FB_MAKE(SearchSorted, searchsorted);
#undef FB_MAKE

}  // namespace

void add_search_routines(RoutineList* list) { add_for_real<SearchSorted>(list, "searchsorted_"); }

}  // namespace fb
