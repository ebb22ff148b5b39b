// Linear algebra: factorisations and solutions of batches of small and middle matrices.
//
// Each matrix of a batch is one piece of work and is computed by one thread, always in the same
// order: results do not depend on the number of threads or on the batch. Algorithms: Golub & Van
// Loan, Matrix Computations, 4th ed. (partial pivoting 3.4, Householder 5.1, Cholesky 4.2).
// Signs follow LAPACK: the diagonal of R is real and of the sign opposite to the column's head.
#include <algorithm>

#include "linalg/routines_lapack.h"

namespace fb {
namespace {

// Sizes from which LAPACK is used: below, copies and calls cost more than its kernels win.
template <typename T>
struct Least {
  static constexpr int64_t kLu = by_type<T>(80, 40, 72), kTriangular = 12, kCholesky = 12;
  static constexpr int64_t kQr = by_type<T>(192, 160, 192), kReflections = 64;
};

constexpr int64_t kShort = 224;  // bytes of a row
constexpr int64_t kTiny = 8;     // rows of matrices for which vectors do not pay

// As `subtract_outer`, for tiny matrices without vectors and fused operations.
template <bool kVectors, typename T>
FB_INLINE void subtract_rows(T* a, int64_t rows, int64_t stride, const T* factors, int64_t apart,
                             bool conjugated, const T* other, int64_t count) {
  if constexpr (kVectors) {
    subtract_outer(a, rows, stride, factors, apart, conjugated, other, count);
  } else {
    for (int64_t i = 0; i < rows; ++i) {
      const T factor = factors[i * apart];
      subtract_scaled(a + i * stride, other, conjugated ? conjugate(factor) : factor, count);
    }
  }
}

// ---- LU with partial pivoting

template <typename T, bool kVectors>
struct FactorLu {
  static FB_INLINE int32_t run(T* a, int64_t m, int64_t n, int32_t* pivots) {
    int32_t info = 0;
    for (int64_t k = 0; k < std::min(m, n); ++k) {
      int64_t best = k;
      for (int64_t i = k + 1; i < m; ++i) {
        if (size1(a[i * n + k]) > size1(a[best * n + k])) best = i;
      }
      pivots[k] = static_cast<int32_t>(best + 1);
      if (a[best * n + k] == T(0)) {
        if (!info) info = static_cast<int32_t>(k + 1);
        continue;
      }
      if (best != k) std::swap_ranges(a + k * n, a + (k + 1) * n, a + best * n);
      T *pivot = a + k * n + k, *below = pivot + n;
      if constexpr (kVectors) {
        for (int64_t i = 0; i < m - k - 1; ++i) below[i * n] = divide(below[i * n], *pivot);
        subtract_outer(below + 1, m - k - 1, n, below, n, false, pivot + 1, n - k - 1);
      } else {
        for (int64_t i = k + 1; i < m; ++i, below += n) {
          *below = divide(*below, *pivot);
          subtract_scaled(below + 1, pivot + 1, *below, n - k - 1);
        }
      }
    }
    return info;
  }
};

template <typename T>
int32_t factor_lu(T* a, int64_t m, int64_t n, int32_t* pivots) {
  if (m < kTiny && n < kTiny) return FactorLu<T, false>::run(a, m, n, pivots);
  if (n * int64_t{sizeof(T)} < kShort) return run_narrow<FactorLu<T, true>>(a, m, n, pivots);
  return run_variant<FactorLu<T, true>>(a, m, n, pivots);
}

template <typename T>
const char* lu(const RoutineContext& c) {
  if (by_lapack(std::min(c.n[1], c.n[2]), Least<T>::kLu)) return lapack_lu<T>(c);
  const int64_t batch = c.n[0], m = c.n[1], n = c.n[2], least = std::min(m, n);
  parallel(batch, grain_of(m * n * least), [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      T* a = pointer<T>(c, 1) + b * m * n;
      std::copy_n(pointer<T>(c, 0) + b * m * n, m * n, a);
      int32_t* pivots = pointer<int32_t>(c, 2) + b * least;
      int64_t* order = pointer<int64_t>(c, 3) + b * m;
      pointer<int32_t>(c, 4)[b] = factor_lu(a, m, n, pivots);
      for (int64_t i = 0; i < m; ++i) order[i] = i;
      for (int64_t k = 0; k < least; ++k) std::swap(order[k], order[pivots[k] - 1]);
    }
  });
  return nullptr;
}

// ---- triangular systems

struct Triangle {
  bool upper, adjointed, unit;
};

// Rows of b [n, columns] become those of the solution.
template <typename T, bool kVectors>
struct Substitute {
  static FB_INLINE void run(const T* a, T* b, int64_t n, int64_t columns, Triangle kind) {
    const bool forward = kind.upper == kind.adjointed;
    for (int64_t step = 0; step < n; ++step) {
      const int64_t i = forward ? step : n - 1 - step;
      T* row = b + i * columns;
      if (!kind.unit) {
        const T pivot = kind.adjointed ? conjugate(a[i * n + i]) : a[i * n + i];
        for (int64_t k = 0; k < columns; ++k) row[k] = divide(row[k], pivot);
      }
      const int64_t first = forward ? i + 1 : 0, apart = kind.adjointed ? 1 : n;
      const T* factors = kind.adjointed ? a + i * n + first : a + first * n + i;
      subtract_rows<kVectors>(b + first * columns, n - 1 - step, columns, factors, apart,
                              kind.adjointed, row, columns);
    }
  }
};

template <typename T>
void substitute(const T* a, T* b, int64_t n, int64_t columns, Triangle kind) {
  if (n < kTiny) {
    Substitute<T, false>::run(a, b, n, columns, kind);
  } else if (columns * int64_t{sizeof(T)} < kShort) {
    run_narrow<Substitute<T, true>>(a, b, n, columns, kind);
  } else {
    run_variant<Substitute<T, true>>(a, b, n, columns, kind);
  }
}

template <typename T>
const char* triangular_solve(const RoutineContext& c) {
  if (by_lapack(c.n[1], Least<T>::kTriangular) && c.n[2]) return lapack_triangular_solve<T>(c);
  const int64_t batch = c.n[0], n = c.n[1], columns = c.n[2];
  const Triangle kind{c.n[3] != 0, c.n[4] != 0, c.n[5] != 0};
  parallel(batch, grain_of(n * n * columns), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      T* out = pointer<T>(c, 2) + i * n * columns;
      std::copy_n(pointer<T>(c, 1) + i * n * columns, n * columns, out);
      substitute(pointer<T>(c, 0) + i * n * n, out, n, columns, kind);
    }
  });
  return nullptr;
}

template <typename T>
const char* solve(const RoutineContext& c) {
  if (by_lapack(c.n[1], Least<T>::kLu) && c.n[2]) return lapack_solve<T>(c);
  const int64_t batch = c.n[0], n = c.n[1], columns = c.n[2];
  std::atomic<bool> fine{true};
  parallel(batch, grain_of(n * n * (n + columns)), [&](int64_t begin, int64_t end) {
    Block matrix(n * n * int64_t{sizeof(T)}), places(n * int64_t{sizeof(int32_t)});
    if (!matrix.ok() || !places.ok()) {
      fine = false;
      return;
    }
    T* a = matrix.as<T>();
    int32_t* pivots = places.as<int32_t>();
    for (int64_t b = begin; b < end; ++b) {
      std::copy_n(pointer<T>(c, 0) + b * n * n, n * n, a);
      T* out = pointer<T>(c, 2) + b * n * columns;
      std::copy_n(pointer<T>(c, 1) + b * n * columns, n * columns, out);
      factor_lu(a, n, n, pivots);
      for (int64_t k = 0; k < n; ++k) {
        T* row = out + k * columns;
        if (pivots[k] != k + 1) {
          std::swap_ranges(row, row + columns, out + (pivots[k] - 1) * columns);
        }
      }
      substitute(a, out, n, columns, {false, false, true});
      substitute(a, out, n, columns, {true, false, false});
    }
  });
  return fine ? nullptr : kOutOfMemory;
}

// ---- Cholesky

template <typename T>
int32_t factor_cholesky(T* a, int64_t n) {
  for (int64_t j = 0; j < n; ++j) {
    T* row = a + j * n;
    for (int64_t k = 0; k < j; ++k) {
      T sum = row[k];
      const T* other = a + k * n;
      for (int64_t i = 0; i < k; ++i) sum -= times(row[i], conjugate(other[i]));
      row[k] = sum / real_part(other[k]);
    }
    RealOf<T> left = real_part(row[j]);
    for (int64_t i = 0; i < j; ++i) left -= square(row[i]);
    if (!(left > 0)) return static_cast<int32_t>(j + 1);
    row[j] = std::sqrt(left);
  }
  return 0;
}

template <typename T>
const char* cholesky(const RoutineContext& c) {
  if (by_lapack(c.n[1], Least<T>::kCholesky)) return lapack_cholesky<T>(c);
  const int64_t batch = c.n[0], n = c.n[1];
  parallel(batch, grain_of(n * n * n), [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      T* a = pointer<T>(c, 1) + b * n * n;
      std::copy_n(pointer<T>(c, 0) + b * n * n, n * n, a);
      pointer<int32_t>(c, 2)[b] = factor_cholesky(a, n);
      for (int64_t i = 0; i < n; ++i) std::fill(a + i * n + i + 1, a + (i + 1) * n, T(0));
    }
  });
  return nullptr;
}

// ---- QR by Householder reflections

template <typename T>
const char* qr(const RoutineContext& c) {
  if (by_lapack(std::min(c.n[1], c.n[2]), Least<T>::kQr)) return lapack_qr<T>(c);
  const int64_t batch = c.n[0], m = c.n[1], n = c.n[2], least = std::min(m, n);
  const int64_t inner = c.n[3] ? m : least;
  std::atomic<bool> fine{true};
  parallel(batch, grain_of(m * n * least), [&](int64_t begin, int64_t end) {
    Block work((m * n + least) * int64_t{sizeof(T)});
    if (!work.ok()) {
      fine = false;
      return;
    }
    T *a = work.as<T>(), *taus = a + m * n;
    for (int64_t b = begin; b < end; ++b) {
      std::copy_n(pointer<T>(c, 0) + b * m * n, m * n, a);
      factor_qr(a, m, n, taus);
      T* q = pointer<T>(c, 1) + b * m * inner;
      T* r = pointer<T>(c, 2) + b * inner * n;
      form_q(a, m, n, taus, least, q, inner);
      for (int64_t i = 0; i < inner; ++i) {
        for (int64_t j = 0; j < n; ++j) r[i * n + j] = j < i ? T(0) : a[i * n + j];
      }
    }
  });
  return fine ? nullptr : kOutOfMemory;
}

// The packed factor and the reflections' scales, as LAPACK's geqrf gives them.
template <typename T>
const char* geqrf(const RoutineContext& c) {
  if (by_lapack(std::min(c.n[1], c.n[2]), Least<T>::kQr)) return lapack_geqrf<T>(c);
  const int64_t batch = c.n[0], m = c.n[1], n = c.n[2], least = std::min(m, n);
  parallel(batch, grain_of(m * n * least), [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      T* a = pointer<T>(c, 1) + b * m * n;
      std::copy_n(pointer<T>(c, 0) + b * m * n, m * n, a);
      factor_qr(a, m, n, pointer<T>(c, 2) + b * least);
    }
  });
  return nullptr;
}

// Q x, or Q^H x, for the product Q of reflections as `geqrf` packs them.
template <typename T>
const char* reflect(const RoutineContext& c) {
  const int64_t batch = c.n[0], m = c.n[1], n = c.n[2], count = c.n[3], columns = c.n[4];
  if (by_lapack(count, Least<T>::kReflections) && columns) return lapack_reflect<T>(c);
  const bool adjointed = c.n[5] != 0;
  parallel(batch, grain_of(m * count * columns), [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const T* a = pointer<T>(c, 0) + b * m * n;
      const T* taus = pointer<T>(c, 1) + b * count;
      T* x = pointer<T>(c, 3) + b * m * columns;
      std::copy_n(pointer<T>(c, 2) + b * m * columns, m * columns, x);
      for (int64_t step = 0; step < count; ++step) {
        const int64_t k = adjointed ? step : count - 1 - step;
        const T tau = adjointed ? conjugate(taus[k]) : taus[k];
        reflect_rows(x + k * columns, m - k, columns, columns, a + k * n + k, n, tau);
      }
    }
  });
  return nullptr;
}

// The product of each row; bits depend on the row alone.
template <typename T>
const char* complex_product(const RoutineContext& c) {
  const int64_t rows = c.n[0], count = c.n[1];
  parallel(rows, grain_of(4 * count), [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const T* x = pointer<T>(c, 0) + b * count;
      T product(1);
      for (int64_t i = 0; i < count; ++i) product = i ? times(product, x[i]) : x[i];
      pointer<T>(c, 1)[b] = product;
    }
  });
  return nullptr;
}

// The order of rows that LAPACK's interchanges (from 1) amount to; others leave rows alone.
const char* pivot_order(const RoutineContext& c) {
  const int64_t batch = c.n[0], count = c.n[1], rows = c.n[2];
  for (int64_t b = 0; b < batch; ++b) {
    const int32_t* pivots = pointer<int32_t>(c, 0) + b * count;
    int64_t* order = pointer<int64_t>(c, 1) + b * rows;
    for (int64_t i = 0; i < rows; ++i) order[i] = i;
    for (int64_t k = 0; k < std::min(count, rows); ++k) {
      const int64_t other = pivots[k] - 1;
      if (other >= 0 && other < rows) std::swap(order[k], order[other]);
    }
  }
  return nullptr;
}

template <typename T>
FB_ONCE void add_routines(RoutineList* list, const std::string& dtype) {
  list->push_back({"lu_" + dtype, lu<T>});
  list->push_back({"solve_" + dtype, solve<T>});
  list->push_back({"triangular_solve_" + dtype, triangular_solve<T>});
  list->push_back({"cholesky_" + dtype, cholesky<T>});
  list->push_back({"qr_" + dtype, qr<T>});
  list->push_back({"geqrf_" + dtype, geqrf<T>});
  list->push_back({"reflect_" + dtype, reflect<T>});
}

FB_ONCE void add_linear_routines(RoutineList* list) {
  list->push_back({"pivot_order_i32", pivot_order});
  list->push_back({"complex_product_c64", complex_product<std::complex<float>>});
  list->push_back({"complex_product_c128", complex_product<std::complex<double>>});
  add_routines<float>(list, "f32");
  add_routines<double>(list, "f64");
  add_routines<std::complex<float>>(list, "c64");
  add_routines<std::complex<double>>(list, "c128");
}

const RoutineRegistration registration{add_linear_routines};

}  // namespace

}  // namespace fb
