// Arithmetic that the linear algebra shares for real and complex numbers, and reflections.
#pragma once
#include <algorithm>
#include <atomic>
#include <cmath>
#include <complex>
#include <limits>

#include "routines/routines_internal.h"
#include "routines/variants.h"  // first: its pragmas must hold for all that is inlined

namespace fb {

template <typename T>
struct RealType {
  using type = T;
};
template <typename T>
struct RealType<std::complex<T>> {
  using type = T;
};
template <typename T>
using RealOf = typename RealType<T>::type;

template <typename T>
T conjugate(T x) {
  return x;
}
template <typename T>
std::complex<T> conjugate(std::complex<T> x) {
  return {x.real(), -x.imag()};
}
template <typename T>
RealOf<T> real_part(T x) {
  return std::real(x);
}
template <typename T>
RealOf<T> imaginary_part(T x) {
  return std::imag(x);
}
// |Re x| + |Im x|: what LAPACK compares pivots by.
template <typename T>
RealOf<T> size1(T x) {
  return std::abs(std::real(x)) + std::abs(std::imag(x));
}
template <typename T>
RealOf<T> square(T x) {
  const RealOf<T> re = std::real(x), im = std::imag(x);
  return re * re + im * im;
}
// Products without C's detour for infinities.
template <typename T>
FB_INLINE T times(T a, T b) {
  return a * b;
}
template <typename T>
FB_INLINE std::complex<T> times(std::complex<T> a, std::complex<T> b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}
template <typename T>
FB_INLINE T divide(T a, T b) {
  return a / b;
}
// In double precision, where no square of a float overflows or vanishes; C's rules for infinities
// and zeros where that is no number.
FB_INLINE std::complex<float> divide(std::complex<float> a, std::complex<float> b) {
  const double x = a.real(), y = a.imag(), u = b.real(), v = b.imag();
  const double scale = 1 / (u * u + v * v);
  const std::complex<float> value(static_cast<float>((x * u + y * v) * scale),
                                  static_cast<float>((y * u - x * v) * scale));
  if (value.real() == value.real() && value.imag() == value.imag()) return value;
  return a / b;
}

template <typename T>
FB_INLINE void subtract_scaled(T* row, const T* other, T factor, int64_t count) {
  for (int64_t i = 0; i < count; ++i) row[i] -= times(factor, other[i]);
}

// i times numbers: factor times a number is then a sum of two products of real numbers, which needs
// no shuffles.
constexpr int64_t kTurned = 64;

template <typename T>
FB_INLINE void turn(const std::complex<T>* x, int64_t count, T* turned) {
  for (int64_t j = 0; j < count; ++j) {
    turned[2 * j] = -x[j].imag();
    turned[2 * j + 1] = x[j].real();
  }
}

// Rows i of a, each `stride` apart, minus factors[i * apart] (or its conjugate) times `other`; with
// one rounding for a product and its difference, as LAPACK's kernels have it.
template <typename T>
FB_INLINE void subtract_outer(T* a, int64_t rows, int64_t stride, const T* factors, int64_t apart,
                              bool conjugated, const T* other, int64_t count) {
  if constexpr (std::is_arithmetic_v<T>) {
    for (int64_t i = 0; i < rows; ++i) {
      const T factor = factors[i * apart];
      T* row = a + i * stride;
      for (int64_t j = 0; j < count; ++j) row[j] = std::fma(-factor, other[j], row[j]);
    }
  } else {
    using R = RealOf<T>;
    R turned[2 * kTurned];
    for (int64_t first = 0; first < count; first += kTurned) {
      const int64_t width = std::min(kTurned, count - first);
      turn(other + first, width, turned);
      const R* straight = reinterpret_cast<const R*>(other + first);
      for (int64_t i = 0; i < rows; ++i) {
        const T factor = factors[i * apart];
        const R re = -factor.real(), im = conjugated ? factor.imag() : -factor.imag();
        R* row = reinterpret_cast<R*>(a + i * stride + first);
        for (int64_t j = 0; j < 2 * width; ++j) {
          row[j] = std::fma(re, straight[j], std::fma(im, turned[j], row[j]));
        }
      }
    }
  }
}

// How many matrices of so much work each are worth a thread.
inline int64_t grain_of(int64_t work) { return work > 32768 ? 1 : 32768 / (work + 1) + 1; }

// The reflection I - tau v v^H, v[0] = 1, that maps a column to beta e1 with beta real; v[1..]
// overwrites the column behind its head, beta the head. Scaled, so that no square overflows.
template <typename T>
T reflect_column(T* head, T* rest, int64_t count, int64_t stride) {
  using R = RealOf<T>;
  R largest = size1(*head);
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, size1(rest[i * stride]));
  R below = 0;
  if (largest != 0) {  // or NaN
    for (int64_t i = 0; i < count; ++i) below += square(rest[i * stride] / largest);
  }
  const T alpha = *head;
  if (below == 0 && imaginary_part(alpha) == 0) return T(0);
  if (largest < std::numeric_limits<R>::min() / std::numeric_limits<R>::epsilon()) {
    // Divisions by these would overflow, and bits are lost: scales by `largest`.
    for (int64_t i = 0; i < count; ++i) rest[i * stride] /= largest;
    *head /= largest;
    const T tau = reflect_column(head, rest, count, stride);
    *head *= largest;
    return tau;
  }
  const R norm = largest * std::sqrt(below + square(alpha / largest));
  const R beta = real_part(alpha) >= 0 ? -norm : norm;
  const T scale = divide(T(1), alpha - beta);
  for (int64_t i = 0; i < count; ++i) rest[i * stride] = times(rest[i * stride], scale);
  *head = beta;
  return (T(beta) - alpha) / beta;
}

constexpr int64_t kReflected = 128;  // columns that `reflect_rows` handles together

template <typename T>
struct ReflectColumns {
  static FB_INLINE void run(T* a, int64_t m, int64_t n, int64_t row, const T* v, int64_t stride,
                            T factor) {
    T sums[kReflected];
    for (int64_t j = 0; j < n; ++j) sums[j] = a[j];
    int64_t i = 1;
    for (; i + 4 <= m; i += 4) {  // four rows at a time: fewer loads, and smaller rounding errors
      const T x0 = conjugate(v[i * stride]), x1 = conjugate(v[(i + 1) * stride]);
      const T x2 = conjugate(v[(i + 2) * stride]), x3 = conjugate(v[(i + 3) * stride]);
      const T *a0 = a + i * row, *a1 = a0 + row, *a2 = a1 + row, *a3 = a2 + row;
      for (int64_t j = 0; j < n; ++j) {
        sums[j] += (times(x0, a0[j]) + times(x1, a1[j])) + (times(x2, a2[j]) + times(x3, a3[j]));
      }
    }
    for (; i < m; ++i) {
      const T x = conjugate(v[i * stride]);
      for (int64_t j = 0; j < n; ++j) sums[j] += times(x, a[i * row + j]);
    }
    for (int64_t j = 0; j < n; ++j) {
      sums[j] = times(factor, sums[j]);
      a[j] -= sums[j];
    }
    for (i = 1; i < m; ++i) {
      const T x = v[i * stride];
      for (int64_t j = 0; j < n; ++j) a[i * row + j] -= times(x, sums[j]);
    }
  }
};

// rows [m, n] of `a` become (I - factor v v^H) a, with v = (1, v[stride], ...).
template <typename T>
void reflect_rows(T* a, int64_t m, int64_t n, int64_t row, const T* v, int64_t stride, T factor) {
  if (factor == T(0)) return;
  for (int64_t j = 0; j < n; j += kReflected) {
    run_variant<ReflectColumns<T>>(a + j, m, std::min(kReflected, n - j), row, v, stride, factor);
  }
}

template <typename T>
void factor_qr(T* a, int64_t m, int64_t n, T* taus) {
  for (int64_t k = 0; k < std::min(m, n); ++k) {
    T* head = a + k * n + k;
    taus[k] = reflect_column(head, head + n, m - k - 1, n);
    reflect_rows(head + 1, m - k, n - k - 1, n, head, n, conjugate(taus[k]));
  }
}

// The first `columns` columns of the product of `count` reflections packed below a's diagonal.
template <typename T>
void form_q(const T* a, int64_t m, int64_t n, const T* taus, int64_t count, T* q, int64_t columns) {
  std::fill_n(q, m * columns, T(0));
  for (int64_t i = 0; i < std::min(m, columns); ++i) q[i * columns + i] = T(1);
  for (int64_t k = count - 1; k >= 0; --k) {
    reflect_rows(q + k * columns + k, m - k, columns - k, columns, a + k * n + k, n, taus[k]);
  }
}

}  // namespace fb
