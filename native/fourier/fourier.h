// The loops of Fourier transforms, compiled for each level of vector units: all give the same bits,
// because a number goes through the same operations in every lane.
//
// Complex numbers are stored in two arrays, real and imaginary parts. A transform of `lanes`
// signals at once has element k of signal l at k * lanes + l.
#pragma once
#include <cstdint>

namespace fb {

constexpr int kLargestFactor = 31, kLargestUnrolled = 8;

// Where the numbers of signals lie, in real numbers: point k of signal l at k * point + l * signal.
struct FourierLayout {
  int64_t point, signal;
};

template <typename R>
struct FourierParts {
  R *re, *im;
};

template <typename R>
struct FourierLoops {
  using Parts = FourierParts<R>;
  // One pass of Stockham: p points m * stride apart become their transform, times the roots, and
  // lie `stride` apart. `first`: of stride 1, with the roots in vectors, p at most
  // kLargestUnrolled. Where p is larger, cosines and sines of 2 pi k / p precede the roots.
  void (*pass)(Parts x, Parts y, int64_t p, int64_t m, int64_t stride, const R* roots);
  void (*first)(Parts x, Parts y, int64_t p, int64_t m, const R* roots);
  // Complex numbers (`part` 1) into parts, or, with `part` = point / 2, pairs of real numbers.
  void (*load)(const R* x, FourierLayout at, int64_t part, int64_t n, int64_t lanes, Parts y);
  void (*store)(Parts x, R* y, FourierLayout at, int64_t part, int64_t n, int64_t lanes, R re,
                R im);
  // y[k] = E + T, y[n - k] = conjugate(E - T) for k = 1 ... n / 2, where E = half * (x[k] +
  // conjugate(x[n - k])), T = (re root.re + i im root.im) (x[k] - conjugate(x[n - k])).
  void (*fold)(Parts x, Parts y, int64_t n, int64_t lanes, const R* roots, R half, R re, R im);
  // y = x times the table (table.im == nullptr: none), n points.
  void (*multiply)(Parts x, Parts y, Parts table, int64_t n, int64_t lanes);
  // x[n - k] = conjugate(x[k]) for the upper half.
  void (*mirror)(Parts x, int64_t n, int64_t lanes);
};

template <typename R>
const FourierLoops<R>& fourier_loops_baseline();
template <typename R>
const FourierLoops<R>& fourier_loops_avx2();
template <typename R>
const FourierLoops<R>& fourier_loops_avx512();

}  // namespace fb
