// Discrete Fourier transforms of rows of any length.
//
// A length whose prime factors are small is transformed by Stockham's self-sorting passes, one per
// factor (Van Loan, Computational Frameworks for the Fast Fourier Transform, 1.7); any other by
// Bluestein's convolution with a chirp (4.2.3), in double precision. Roots of unity are computed
// in double precision. A row is computed by one thread, so results do not depend on their number.
#include <algorithm>
#include <cmath>

#include "linear.h"

namespace fb {
namespace {

constexpr int64_t kLargestFactor = 13;
constexpr int kMostFactors = 64;

struct Factors {
  int64_t value[kMostFactors];
  int count = 0;
  int64_t rest = 1;  // 1 where only small factors were found
};

Factors factors_of(int64_t n) {
  Factors found;
  for (int64_t p : {4, 2, 3, 5, 7, 11, 13}) {
    while (n % p == 0 && n > 1) {
      found.value[found.count++] = p;
      n /= p;
    }
  }
  found.rest = n;
  return found;
}

// exp(direction * 2 pi i k / n), exact at the quarters.
template <typename R>
std::complex<R> root(int64_t k, int64_t n, int direction) {
  k %= n;
  if (4 * k % n == 0) {
    static constexpr double kCosine[] = {1, 0, -1, 0}, kSine[] = {0, 1, 0, -1};
    const int64_t quarter = 4 * k / n;
    return {R(kCosine[quarter]), R(direction * kSine[quarter])};
  }
  const double angle = 2 * 3.14159265358979323846 * static_cast<double>(k) / static_cast<double>(n);
  return {static_cast<R>(std::cos(angle)), static_cast<R>(direction * std::sin(angle))};
}

template <typename R>
void fill_roots(std::complex<R>* roots, int64_t n, int direction) {
  for (int64_t k = 0; k < n; ++k) roots[k] = root<R>(k, n, direction);
}

// One pass: columns of `p` numbers m apart become their transforms, times the twiddle factors.
template <typename R>
void pass(const std::complex<R>* x, std::complex<R>* y, int64_t n, int64_t p, int64_t stride,
          const std::complex<R>* roots) {
  using C = std::complex<R>;
  const int64_t m = n / (stride * p), step = n / p;
  C small[kLargestFactor][kLargestFactor];
  for (int64_t r = 0; r < p; ++r) {
    for (int64_t k = 0; k < p; ++k) small[r][k] = roots[k * r % p * step];
  }
  const C quarter = p == 4 ? small[1][1] : C(0);
  for (int64_t j = 0; j < m; ++j) {
    const C *from = x + stride * j, *two = from + stride * m, *three = two + stride * m;
    C* to = y + stride * p * j;
    if (p == 2) {
      const C w = roots[j * stride];
      for (int64_t q = 0; q < stride; ++q) {
        const C a = from[q], b = two[q];
        to[q] = a + b;
        to[q + stride] = times(w, a - b);
      }
      continue;
    }
    if (p == 4) {
      const C *four = three + stride * m, w1 = roots[j * stride], w2 = roots[2 * j * stride];
      const C w3 = roots[3 * j * stride];
      for (int64_t q = 0; q < stride; ++q) {
        const C a = from[q] + three[q], b = from[q] - three[q];
        const C c = two[q] + four[q], d = times(quarter, two[q] - four[q]);
        to[q] = a + c;
        to[q + stride] = times(w1, b + d);
        to[q + 2 * stride] = times(w2, a - c);
        to[q + 3 * stride] = times(w3, b - d);
      }
      continue;
    }
    for (int64_t r = 0; r < p; ++r) {
      const C w = roots[j * r * stride];
      for (int64_t q = 0; q < stride; ++q) {
        C sum = from[q];
        for (int64_t k = 1; k < p; ++k) sum += times(small[r][k], from[q + stride * m * k]);
        to[q + stride * r] = times(w, sum);
      }
    }
  }
}

// The transform of one row; `spare` has its size, the result is in `out`.
template <typename R>
void transform(const std::complex<R>* x, std::complex<R>* out, std::complex<R>* spare, int64_t n,
               const Factors& factors, const std::complex<R>* roots) {
  if (factors.count == 0) {
    std::copy_n(x, n, out);
    return;
  }
  int64_t stride = 1;
  const std::complex<R>* from = x;
  for (int i = 0; i < factors.count; ++i) {
    std::complex<R>* to = (factors.count - i) % 2 ? out : spare;
    pass(from, to, n, factors.value[i], stride, roots);
    stride *= factors.value[i];
    from = to;
  }
}

template <typename R>
const char* direct(const RoutineContext& c, const Factors& factors) {
  using C = std::complex<R>;
  const int64_t rows = c.n[0], n = c.n[1];
  Block table(n * int64_t{sizeof(C)});
  if (!table.ok()) return kOutOfMemory;
  fill_roots(table.as<C>(), n, c.n[2] ? 1 : -1);
  std::atomic<bool> fine{true};
  parallel(rows, grain_of(8 * n), [&](int64_t begin, int64_t end) {
    Block spare(n * int64_t{sizeof(C)});
    if (!spare.ok()) {
      fine = false;
      return;
    }
    for (int64_t r = begin; r < end; ++r) {
      transform(pointer<C>(c, 0) + r * n, pointer<C>(c, 1) + r * n, spare.as<C>(), n, factors,
                table.as<C>());
    }
  });
  return fine ? nullptr : kOutOfMemory;
}

// Bluestein: jk = (j^2 + k^2 - (j - k)^2) / 2 makes the transform a convolution with a chirp.
template <typename R>
const char* by_chirp(const RoutineContext& c) {
  using D = std::complex<double>;
  const int64_t rows = c.n[0], n = c.n[1];
  const int direction = c.n[2] ? 1 : -1;
  int64_t size = 1;
  while (size < 2 * n - 1) size *= 2;
  const Factors factors = factors_of(size);
  Block memory((n + 3 * size) * int64_t{sizeof(D)});
  if (!memory.ok()) return kOutOfMemory;
  D *chirp = memory.as<D>(), *roots = chirp + n, *kernel = roots + size, *first = kernel + size;
  fill_roots(roots, size, -1);
  for (int64_t k = 0, square = 0; k < n; square = (square + 2 * k + 1) % (2 * n), ++k) {
    chirp[k] = root<double>(square, 2 * n, direction);
  }
  {
    Block spare(size * int64_t{sizeof(D)});
    if (!spare.ok()) return kOutOfMemory;
    std::fill_n(first, size, D(0));
    for (int64_t k = 0; k < n; ++k) first[k] = first[k ? size - k : 0] = conjugate(chirp[k]);
    transform(first, kernel, spare.as<D>(), size, factors, roots);
  }
  std::atomic<bool> fine{true};
  parallel(rows, grain_of(32 * size), [&](int64_t begin, int64_t end) {
    Block work(3 * size * int64_t{sizeof(D)});
    if (!work.ok()) {
      fine = false;
      return;
    }
    D *a = work.as<D>(), *b = a + size, *spare = b + size;
    for (int64_t r = begin; r < end; ++r) {
      const auto* x = pointer<std::complex<R>>(c, 0) + r * n;
      auto* out = pointer<std::complex<R>>(c, 1) + r * n;
      std::fill_n(a, size, D(0));
      for (int64_t k = 0; k < n; ++k) a[k] = times(D(x[k]), chirp[k]);
      transform(a, b, spare, size, factors, roots);
      // The inverse transform of the product, as the conjugate of that of its conjugate.
      for (int64_t k = 0; k < size; ++k) b[k] = conjugate(times(b[k], kernel[k]));
      transform(b, a, spare, size, factors, roots);
      for (int64_t k = 0; k < n; ++k) {
        const D value = times(conjugate(a[k]), chirp[k]) / static_cast<double>(size);
        out[k] = {static_cast<R>(value.real()), static_cast<R>(value.imag())};
      }
    }
  });
  return fine ? nullptr : kOutOfMemory;
}

template <typename R>
const char* fft(const RoutineContext& c) {
  const Factors factors = factors_of(c.n[1]);
  return factors.rest == 1 ? direct<R>(c, factors) : by_chirp<R>(c);
}

}  // namespace

void add_fourier_routines(RoutineList* list) {
  list->push_back({"fft_c64", fft<float>});
  list->push_back({"fft_c128", fft<double>});
}

}  // namespace fb
