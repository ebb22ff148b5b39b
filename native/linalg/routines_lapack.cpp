// Linear algebra by LAPACK: each matrix of a batch is one call by one thread.
//
// Matrices are copied to aligned memory of their own, column by column where that is needed, so
// that a result depends on the matrix alone, not on its place in a batch.
#include "linalg/routines_lapack.h"

#include <algorithm>

namespace fb {
namespace {

template <typename T>
Int lu_in_columns(const T* from, Int m, Int n, T* a, Int* pivots) {
  transpose(from, m, n, a);
  Int info = 0;
  lapack<T>(Lapack::kGetrf, &m, &n, a, &m, pivots, &info);
  return info;
}

// The largest triangle that one call solves. A call subtracts few products at a time and rounds
// each time; the halves of larger triangles are joined by one product, whose terms are summed
// first.
constexpr Int kTriangle = 32;

// x [n, columns], whose rows are those of the right side, becomes op(T)^-1 x. As LAPACK sees
// memory: x^T op(T)^-T, with the transposed triangle. `upper` and `operation` are of that triangle.
template <typename T>
struct SolveRows {
  char upper, operation, unit;
  Int row, columns;  // `row`: of the triangle

  void run(const T* a, T* x, Int n) const {
    const T one(1), minus(-1);
    const char side = 'R', plain = 'N';
    if (n <= kTriangle) {
      lapack<T>(Lapack::kTrsm, &side, &upper, &operation, &unit, &columns, &n, &one, a, &row, x,
                &columns);
      return;
    }
    const bool is_upper = upper == 'U', first_half = is_upper == (operation == 'N');
    const Int half = n / 2, rest = n - half;
    const T *diagonal[] = {a, a + half * row + half}, *between = a + (is_upper ? half * row : half);
    T* parts[] = {x, x + half * columns};
    const Int sizes[] = {half, rest};
    const int from = first_half ? 0 : 1, to = 1 - from;
    run(diagonal[from], parts[from], sizes[from]);
    lapack<T>(Lapack::kGemm, &plain, &operation, &columns, &sizes[to], &sizes[from], &minus,
              parts[from], &columns, between, &row, &one, parts[to], &columns);
    run(diagonal[to], parts[to], sizes[to]);
  }
};

template <typename T>
void solve_rows(char upper, char operation, char unit, const T* a, T* x, Int n, Int columns) {
  SolveRows<T>{upper, operation, unit, n, columns}.run(a, x, n);
}

}  // namespace

const char* Failures::text(const RoutineContext& c, const char* name, int64_t batch,
                           const char* unmet) const {
  if (!memory_) return kOutOfMemory;
  if (none()) return nullptr;
  thread_local char buffer[400];
  char where[48] = "", code[48] = "";
  const int64_t matrix = first_.load() >> 20, number = (first_.load() & 0xfffff) - kOffset;
  if (batch > 1) {
    std::snprintf(where, sizeof where, "(Batch element %lld): ", static_cast<long long>(matrix));
  }
  if (number == kNotFinite) {
    unmet = "The algorithm failed to converge because the input matrix contained non-finite values";
  } else {
    std::snprintf(code, sizeof code, " (error code: %lld)", static_cast<long long>(number));
  }
  std::snprintf(buffer, sizeof buffer, "[%s] %s: %s%s%s.\nhint: see its elements", name, name,
                where, unmet, code);
  return c.fail(ErrorKind::LinearAlgebra, buffer);
}

template <typename T>
const char* lapack_lu(const RoutineContext& c) {
  const Int batch = c.n[0], m = c.n[1], n = c.n[2], least = std::min(m, n);
  Failures failures;
  over_matrices(batch, m * n * least, {bytes<T>(m * n), bytes<Int>(least)}, &failures,
                [&](const Room& room, int64_t b) {
                  T* a = room.part<T>(0);
                  Int* found = room.part<Int>(1);
                  const Int info = lu_in_columns(pointer<T>(c, 0) + b * m * n, m, n, a, found);
                  transpose(a, n, m, pointer<T>(c, 1) + b * m * n);
                  int32_t* pivots = pointer<int32_t>(c, 2) + b * least;
                  std::copy_n(found, least, pivots);
                  int64_t* order = pointer<int64_t>(c, 3) + b * m;
                  for (Int i = 0; i < m; ++i) order[i] = i;
                  for (Int k = 0; k < least; ++k) std::swap(order[k], order[pivots[k] - 1]);
                  pointer<int32_t>(c, 4)[b] = static_cast<int32_t>(info);
                });
  return failures.text(c, "lu", batch, "");
}

template <typename T>
const char* lapack_solve(const RoutineContext& c) {
  const Int batch = c.n[0], n = c.n[1], columns = c.n[2];
  Failures failures;
  over_matrices(batch, n * n * (n + columns), {bytes<T>(n * n), bytes<Int>(n)}, &failures,
                [&](const Room& room, int64_t b) {
                  T* a = room.part<T>(0);
                  Int* pivots = room.part<Int>(1);
                  lu_in_columns(pointer<T>(c, 0) + b * n * n, n, n, a, pivots);
                  T* x = pointer<T>(c, 2) + b * n * columns;
                  std::copy_n(pointer<T>(c, 1) + b * n * columns, n * columns, x);
                  for (Int k = 0; k < n; ++k) {
                    if (pivots[k] == k + 1) continue;
                    T* row = x + k * columns;
                    std::swap_ranges(row, row + columns, x + (pivots[k] - 1) * columns);
                  }
                  solve_rows('L', 'T', 'U', a, x, n, columns);
                  solve_rows('U', 'T', 'N', a, x, n, columns);
                });
  return failures.text(c, "solve", batch, "");
}

template <typename T>
const char* lapack_triangular_solve(const RoutineContext& c) {
  const Int batch = c.n[0], n = c.n[1], columns = c.n[2];
  const char upper = c.n[3] ? 'L' : 'U', unit = c.n[5] ? 'U' : 'N';
  const char operation = c.n[4] ? 'C' : 'N';
  Failures failures;
  over_matrices(batch, n * n * columns, {}, &failures, [&](const Room&, int64_t b) {
    T* x = pointer<T>(c, 2) + b * n * columns;
    std::copy_n(pointer<T>(c, 1) + b * n * columns, n * columns, x);
    solve_rows(upper, operation, unit, pointer<T>(c, 0) + b * n * n, x, n, columns);
  });
  return failures.text(c, "triangular_solve", batch, "");
}

// Row by row the lower triangle of A is the upper one of its transpose, whose factor is L^T.
template <typename T>
const char* lapack_cholesky(const RoutineContext& c) {
  const Int batch = c.n[0], n = c.n[1];
  Failures failures;
  over_matrices(batch, n * n * n, {bytes<T>(n * n)}, &failures, [&](const Room& room, int64_t b) {
    T* a = room.part<T>(0);
    const T* from = pointer<T>(c, 0) + b * n * n;
    for (Int i = 0; i < n; ++i) {
      std::copy_n(from + i * n, i + 1, a + i * n);
      a[i * n + i] = T(real_part(a[i * n + i]));
    }
    Int info = 0;
    const char upper = 'U';
    lapack<T>(Lapack::kPotrf, &upper, &n, a, &n, &info);
    for (Int i = 0; i < n && !info; ++i) {
      if (!(real_part(a[i * n + i]) > 0)) info = i + 1;  // NaN is not noticed by all versions
    }
    T* to = pointer<T>(c, 1) + b * n * n;
    for (Int i = 0; i < n; ++i) {
      std::copy_n(a + i * n, i + 1, to + i * n);
      std::fill_n(to + i * n + i + 1, n - i - 1, T(0));
    }
    pointer<int32_t>(c, 2)[b] = static_cast<int32_t>(info);
  });
  return failures.text(c, "cholesky", batch, "");
}

// ---- reflections

template <typename T>
const char* lapack_qr(const RoutineContext& c) {
  const Int batch = c.n[0], m = c.n[1], n = c.n[2], least = std::min(m, n);
  const Int inner = c.n[3] ? m : least, width = std::max(inner, n);
  T asked[2] = {};
  Int info = 0;
  lapack<T>(Lapack::kGeqrf, &m, &n, asked, &m, asked, asked, &kQuery, &info);
  lapack<T>(Lapack::kOrgqr, &m, &inner, &least, asked, &m, asked, asked + 1, &kQuery, &info);
  const Int length = std::max(size_from(asked[0]), size_from(asked[1]));
  Failures failures;
  over_matrices(batch, m * n * least, {bytes<T>(m * width), bytes<T>(least), bytes<T>(length)},
                &failures, [&](const Room& room, int64_t b) {
                  T *a = room.part<T>(0), *taus = room.part<T>(1), *work = room.part<T>(2);
                  Int status = 0;
                  transpose(pointer<T>(c, 0) + b * m * n, m, n, a);
                  lapack<T>(Lapack::kGeqrf, &m, &n, a, &m, taus, work, &length, &status);
                  T* r = pointer<T>(c, 2) + b * inner * n;
                  for (Int i = 0; i < inner; ++i) {
                    for (Int j = 0; j < n; ++j) r[i * n + j] = j < i ? T(0) : a[j * m + i];
                  }
                  lapack<T>(Lapack::kOrgqr, &m, &inner, &least, a, &m, taus, work, &length,
                            &status);
                  transpose(a, inner, m, pointer<T>(c, 1) + b * m * inner);
                });
  return failures.text(c, "qr", batch, "");
}

template <typename T>
const char* lapack_geqrf(const RoutineContext& c) {
  const Int batch = c.n[0], m = c.n[1], n = c.n[2], least = std::min(m, n);
  T asked{};
  Int info = 0;
  lapack<T>(Lapack::kGeqrf, &m, &n, &asked, &m, &asked, &asked, &kQuery, &info);
  const Int length = size_from(asked);
  Failures failures;
  over_matrices(batch, m * n * least, {bytes<T>(m * n), bytes<T>(least), bytes<T>(length)},
                &failures, [&](const Room& room, int64_t b) {
                  T *a = room.part<T>(0), *taus = room.part<T>(1);
                  Int status = 0;
                  transpose(pointer<T>(c, 0) + b * m * n, m, n, a);
                  lapack<T>(Lapack::kGeqrf, &m, &n, a, &m, taus, room.part<T>(2), &length, &status);
                  transpose(a, n, m, pointer<T>(c, 1) + b * m * n);
                  std::copy_n(taus, least, pointer<T>(c, 2) + b * least);
                });
  return failures.text(c, "geqrf", batch, "");
}

// x [m, columns] times the product Q of `count` reflections, or its adjoint, from the left.
template <typename T>
const char* lapack_reflect(const RoutineContext& c) {
  const Int batch = c.n[0], m = c.n[1], n = c.n[2], count = c.n[3], columns = c.n[4];
  const char side = 'L', operation = !c.n[5] ? 'N' : std::is_arithmetic_v<T> ? 'T' : 'C';
  T asked{};
  Int info = 0;
  lapack<T>(Lapack::kOrmqr, &side, &operation, &m, &columns, &count, &asked, &m, &asked, &asked, &m,
            &asked, &kQuery, &info);
  const Int length = size_from(asked);
  Failures failures;
  over_matrices(batch, m * count * columns,
                {bytes<T>(m * n), bytes<T>(count), bytes<T>(m * columns), bytes<T>(length)},
                &failures, [&](const Room& room, int64_t b) {
                  T *a = room.part<T>(0), *taus = room.part<T>(1), *x = room.part<T>(2);
                  Int status = 0;
                  transpose(pointer<T>(c, 0) + b * m * n, m, n, a);
                  std::copy_n(pointer<T>(c, 1) + b * count, count, taus);
                  transpose(pointer<T>(c, 2) + b * m * columns, m, columns, x);
                  lapack<T>(Lapack::kOrmqr, &side, &operation, &m, &columns, &count, a, &m, taus, x,
                            &m, room.part<T>(3), &length, &status);
                  transpose(x, columns, m, pointer<T>(c, 3) + b * m * columns);
                });
  return failures.text(c, "ormqr", batch, "");
}

// ---- the four types

#define FB_INSTANTIATE(T)                                                 \
  template const char* lapack_lu<T>(const RoutineContext&);               \
  template const char* lapack_solve<T>(const RoutineContext&);            \
  template const char* lapack_triangular_solve<T>(const RoutineContext&); \
  template const char* lapack_cholesky<T>(const RoutineContext&);         \
  template const char* lapack_qr<T>(const RoutineContext&);               \
  template const char* lapack_geqrf<T>(const RoutineContext&);            \
  template const char* lapack_reflect<T>(const RoutineContext&);
FB_INSTANTIATE(float)
FB_INSTANTIATE(double)
FB_INSTANTIATE(std::complex<float>)
FB_INSTANTIATE(std::complex<double>)

}  // namespace fb
