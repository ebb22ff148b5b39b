// Matrix products of integers (they wrap) and of bool (or of ands). Order does not matter here, so
// rows of the result are independent and each is a sum of rows of B.
#include <type_traits>

#include "routines_internal.h"

namespace fb {
namespace {

template <typename T>
struct Operands {
  const T *a, *b;
  T* c;
  int64_t n, k;
  int64_t a_step, b_row, b_column, c_step;
};

// One row of the result. `sum` has room for n numbers.
template <typename T, bool kBool>
void row(const Operands<T>& x, std::make_unsigned_t<T>* sum) {
  using U = std::make_unsigned_t<T>;
  std::memset(sum, 0, static_cast<size_t>(x.n) * sizeof(U));
  for (int64_t k = 0; k < x.k; ++k) {
    const U factor = static_cast<U>(x.a[k * x.a_step]);
    if (factor == 0) continue;
    const T* b = x.b + k * x.b_row;
    for (int64_t j = 0; j < x.n; ++j) {
      const U value = static_cast<U>(b[j * x.b_column]);
      if constexpr (kBool)
        sum[j] |= value != 0;
      else
        sum[j] = static_cast<U>(sum[j] + static_cast<U>(1u * factor * value));
    }
  }
  for (int64_t j = 0; j < x.n; ++j) x.c[j * x.c_step] = static_cast<T>(sum[j]);
}

template <typename T, bool kBool = false>
const char* matmul(const RoutineContext& context) {
  const int64_t* n = context.n;
  const int64_t batch = n[0], rows = n[1], columns = n[2], depth = n[3];
  const int64_t *a = n + 4, *b = n + 7, *c = n + 10;
  if (batch <= 0 || rows <= 0 || columns <= 0) return nullptr;
  const int64_t row_work = std::max<int64_t>(columns * depth, 1);
  std::atomic<bool> fine{true};
  parallel(batch * rows, std::max<int64_t>(1, 40000 / row_work), [&](int64_t begin, int64_t end) {
    auto* sum = static_cast<std::make_unsigned_t<T>*>(
        worker_scratch(0, columns * static_cast<int64_t>(sizeof(T))));
    if (!sum) {
      fine = false;
      return;
    }
    for (int64_t r = begin; r < end; ++r) {
      const int64_t p = r / rows, i = r % rows;
      const Operands<T> x{pointer<T>(context, 0) + p * a[0] + i * a[1],
                          pointer<T>(context, 1) + p * b[0],
                          pointer<T>(context, 2) + p * c[0] + i * c[1],
                          columns,
                          depth,
                          a[2],
                          b[1],
                          b[2],
                          c[2]};
      row<T, kBool>(x, sum);
    }
  });
  return fine ? nullptr : kOutOfMemory;
}

}  // namespace

void add_integer_routines(RoutineList* list) {
  list->push_back({"matmul_bool", matmul<uint8_t, true>});
  list->push_back({"matmul_u8", matmul<uint8_t>});
  list->push_back({"matmul_i8", matmul<int8_t>});
  list->push_back({"matmul_i16", matmul<int16_t>});
  list->push_back({"matmul_i32", matmul<int32_t>});
  list->push_back({"matmul_i64", matmul<int64_t>});
}

}  // namespace fb
