// The loops of fourier.h, for the vector unit that the including file chose: it defines
// FB_FOURIER_LEVEL (baseline, avx2 or avx512) and FB_FOURIER_BYTES, the width of a vector.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "fourier/fourier.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#pragma GCC diagnostic ignored "-Wpsabi"
#define FB_INNER __attribute__((always_inline)) inline
#else
#define FB_INNER __attribute__((always_inline)) inline
#endif

namespace fb {
namespace FB_FOURIER_LEVEL {

template <typename R, int W>
struct VectorOf {
  typedef R type __attribute__((vector_size(W * sizeof(R))));
};
template <typename R>
struct VectorOf<R, 1> {
  using type = R;
};
template <typename R, int W>
using Vector = typename VectorOf<R, W>::type;
template <typename R>
constexpr int kWidest = FB_FOURIER_BYTES / int{sizeof(R)};

template <typename V, typename R>
FB_INNER V read(const R* p) {
  V v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
template <typename V, typename R>
FB_INNER void write(R* p, V v) {
  std::memcpy(p, &v, sizeof v);
}

template <typename V>
struct Complex {
  V re, im;
};
template <typename V>
FB_INNER Complex<V> operator+(Complex<V> a, Complex<V> b) {
  return {a.re + b.re, a.im + b.im};
}
template <typename V>
FB_INNER Complex<V> operator-(Complex<V> a, Complex<V> b) {
  return {a.re - b.re, a.im - b.im};
}
template <typename V>
FB_INNER Complex<V> product(Complex<V> a, V re, V im) {
  return {a.re * re - a.im * im, a.re * im + a.im * re};
}
template <typename V>
FB_INNER Complex<V> below(Complex<V> a) {  // times -i
  return {a.im, -a.re};
}

// ------------------------------------------------------------------------------------- shuffles

#ifdef __has_builtin
#if __has_builtin(__builtin_shufflevector)
#define FB_SHUFFLES_BY_NUMBER
#endif
#endif

// Elements by their numbers, those of a before those of b.
template <typename V, int... I>
FB_INNER V chosen(V a, V b) {
#ifdef FB_SHUFFLES_BY_NUMBER
  return __builtin_shufflevector(a, b, I...);
#else  // GCC 11 and before
  return __builtin_shuffle(a, b, decltype(a == b){I...});
#endif
}
template <typename V, int W, int... I>
FB_INNER V low_pairs(V a, V b, std::integer_sequence<int, I...>) {
  return chosen<V, (I / 2 + I % 2 * W)...>(a, b);
}
template <typename V, int W, int... I>
FB_INNER V high_pairs(V a, V b, std::integer_sequence<int, I...>) {
  return chosen<V, (W / 2 + I / 2 + I % 2 * W)...>(a, b);
}
template <typename V, int Odd, int... I>
FB_INNER V every_second(V a, V b, std::integer_sequence<int, I...>) {
  return chosen<V, (2 * I + Odd)...>(a, b);
}
template <typename V, int W, int... I>
FB_INNER V turned(V a, std::integer_sequence<int, I...>) {
  return chosen<V, (W - 1 - I)...>(a, a);
}
template <int W>
using Lanes = std::make_integer_sequence<int, W>;

template <typename R, int W>
FB_INNER Vector<R, W> reversed(Vector<R, W> a) {
  if constexpr (W == 1) {
    return a;
  } else {
    return turned<Vector<R, W>, W>(a, Lanes<W>());
  }
}
// The elements of P vectors in turns: the first of each, then the second of each, ...
template <typename R, int W, int P>
FB_INNER void interleave(Vector<R, W>* v) {
  using V = Vector<R, W>;
  if constexpr (W > 1) {
    for (int level = 1; level < P; level *= 2) {
      V next[P];
      for (int i = 0; i < P / 2; ++i) {
        next[2 * i] = low_pairs<V, W>(v[i], v[i + P / 2], Lanes<W>());
        next[2 * i + 1] = high_pairs<V, W>(v[i], v[i + P / 2], Lanes<W>());
      }
      for (int i = 0; i < P; ++i) v[i] = next[i];
    }
  }
}

// ----------------------------------------------------------------------------- small transforms

template <int P>
struct Circle;  // cosines and sines of 2 pi k / P
template <>
struct Circle<3> {
  static constexpr double cosine[] = {1, -0.5}, sine[] = {0, 0.8660254037844386468};
};
template <>
struct Circle<5> {
  static constexpr double cosine[] = {1, 0.3090169943749474241, -0.8090169943749474241},
                          sine[] = {0, 0.9510565162951535721, 0.5877852522924731292};
};
template <>
struct Circle<7> {
  static constexpr double cosine[] = {1, 0.6234898018587335305, -0.2225209339563144043,
                                      -0.9009688679024191262},
                          sine[] = {0, 0.7818314824680298087, 0.9749279121818236070,
                                    0.4338837391175581205};
};
template <typename V>
FB_INNER void transform4(Complex<V>& a, Complex<V>& b, Complex<V>& c, Complex<V>& d) {
  const Complex<V> sum = a + c, difference = a - c, other = b + d, turned = below(b - d);
  a = sum + other;
  b = difference + turned;
  c = sum - other;
  d = difference - turned;
}

template <typename R, int P, typename V>
FB_INNER void transform(Complex<V>* x) {
  if constexpr (P == 2) {
    const Complex<V> a = x[0] + x[1];
    x[1] = x[0] - x[1];
    x[0] = a;
  } else if constexpr (P == 4) {
    transform4(x[0], x[1], x[2], x[3]);
  } else if constexpr (P == 8) {
    constexpr R kRoot = R(0.7071067811865475244);
    transform4(x[0], x[2], x[4], x[6]);
    transform4(x[1], x[3], x[5], x[7]);
    const Complex<V> a = x[3], b = x[7];
    const Complex<V> odd[4] = {x[1],
                               {(a.re + a.im) * kRoot, (a.im - a.re) * kRoot},
                               below(x[5]),
                               {(b.im - b.re) * kRoot, -((b.re + b.im) * kRoot)}};
    const Complex<V> even[4] = {x[0], x[2], x[4], x[6]};
    for (int k = 0; k < 4; ++k) {
      x[k] = even[k] + odd[k];
      x[k + 4] = even[k] - odd[k];
    }
  } else {
    constexpr int kHalf = P / 2;
    Complex<V> sum[kHalf], difference[kHalf];
    const Complex<V> first = x[0];
    for (int k = 0; k < kHalf; ++k) {
      sum[k] = x[k + 1] + x[P - 1 - k];
      difference[k] = x[k + 1] - x[P - 1 - k];
      x[0] = x[0] + sum[k];
    }
    for (int r = 1; r <= kHalf; ++r) {
      Complex<V> a = first, b{};
      for (int k = 0; k < kHalf; ++k) {
        const int at = r * (k + 1) % P, place = at > kHalf ? P - at : at;
        const R c = R(Circle<P>::cosine[place]);
        const R s = R(at > kHalf ? -Circle<P>::sine[place] : Circle<P>::sine[place]);
        a = {a.re + sum[k].re * c, a.im + sum[k].im * c};
        const Complex<V> turn = {difference[k].im * s, difference[k].re * s};
        b = k ? Complex<V>{b.re + turn.re, b.im - turn.im} : Complex<V>{turn.re, -turn.im};
      }
      x[r] = a + b;
      x[P - r] = a - b;
    }
  }
}

// As `transform` for any odd P, with its cosines and sines of 2 pi k / P in `circle`.
template <typename R, typename V>
FB_INNER void transform_odd(Complex<V>* x, int p, const R* circle) {
  constexpr int kMostHalf = kLargestFactor / 2;
  const int half = p / 2;
  Complex<V> sum[kMostHalf], difference[kMostHalf];
  const Complex<V> first = x[0];
  for (int k = 0; k < half; ++k) {
    sum[k] = x[k + 1] + x[p - 1 - k];
    difference[k] = x[k + 1] - x[p - 1 - k];
    x[0] = x[0] + sum[k];
  }
  for (int r = 1; r <= half; ++r) {
    Complex<V> a = first, b{};
    for (int k = 0, at = r; k < half; ++k) {
      const R c = circle[at], s = circle[p + at];
      a = {a.re + sum[k].re * c, a.im + sum[k].im * c};
      b = {b.re + difference[k].im * s, b.im - difference[k].re * s};
      at += r;
      if (at >= p) at -= p;
    }
    x[r] = a + b;
    x[p - r] = a - b;
  }
}

// --------------------------------------------------------------------------------------- passes

template <typename V, typename R>
FB_INNER V same(R x) {
  return V{} + x;
}

template <typename R, int P, int W>
void pass_of(FourierParts<R> x, FourierParts<R> y, int64_t m, int64_t stride, const R* roots) {
  using V = Vector<R, W>;
  for (int64_t j = 0; j < m; ++j) {
    const int64_t from = stride * j, to = stride * P * j;
    V re[P], im[P];
    for (int r = 1; r < P; ++r) {
      re[r] = same<V>(roots[0]);
      im[r] = same<V>(roots[1]);
      roots += 2;
    }
    for (int64_t next = 0; next < stride; next += W) {
      const int64_t q = std::min(next, stride - W);  // the last ones overlap: same numbers again
      Complex<V> v[P];
      for (int k = 0; k < P; ++k) {
        v[k] = {read<V>(x.re + from + q + stride * m * k),
                read<V>(x.im + from + q + stride * m * k)};
      }
      transform<R, P>(v);
      for (int r = 0; r < P; ++r) {
        if (r && m > 1) v[r] = product(v[r], re[r], im[r]);
        write(y.re + to + q + stride * r, v[r].re);
        write(y.im + to + q + stride * r, v[r].im);
      }
    }
  }
}

template <typename R, int P, int W>
void first_of(FourierParts<R> x, FourierParts<R> y, int64_t m, const R* roots) {
  using V = Vector<R, W>;
  for (int64_t next = 0; next < m; next += W) {
    const int64_t j = std::min(next, m - W);
    Complex<V> v[P];
    for (int k = 0; k < P; ++k) v[k] = {read<V>(x.re + j + m * k), read<V>(x.im + j + m * k)};
    transform<R, P>(v);
    V re[P], im[P];
    for (int r = 0; r < P; ++r) {
      const R* at = roots + 2 * (r - 1) * m + j;
      if (r && m > 1) v[r] = product(v[r], read<V>(at), read<V>(at + m));
      re[r] = v[r].re;
      im[r] = v[r].im;
    }
    if constexpr (W == 1 || (P & (P - 1)) == 0) {
      interleave<R, W, P>(re);
      interleave<R, W, P>(im);
      for (int r = 0; r < P; ++r) {
        write(y.re + j * P + r * W, re[r]);
        write(y.im + j * P + r * W, im[r]);
      }
    } else {
      for (int l = 0; l < W; ++l) {
        for (int r = 0; r < P; ++r) {
          y.re[(j + l) * P + r] = re[r][l];
          y.im[(j + l) * P + r] = im[r][l];
        }
      }
    }
  }
}

// Calls body.template run<W>() with the widest vector that holds at most `count` numbers.
template <typename R, int W, typename Body>
FB_INNER void widest(int64_t count, const Body& body) {
  if (W == 1 || count >= W) return body(std::integral_constant<int, W>());
  if constexpr (W > 2 && W * sizeof(R) > 16) {
    widest<R, W / 2>(count, body);
  } else {
    body(std::integral_constant<int, 1>());
  }
}

template <typename R, int W>
void odd_pass_of(FourierParts<R> x, FourierParts<R> y, int p, int64_t m, int64_t stride,
                 const R* roots) {
  using V = Vector<R, W>;
  const R* circle = roots;
  roots += 2 * p;
  for (int64_t j = 0; j < m; ++j, roots += 2 * (p - 1)) {
    const int64_t from = stride * j, to = stride * p * j;
    for (int64_t next = 0; next < stride; next += W) {
      const int64_t q = std::min(next, stride - W);
      Complex<V> v[kLargestFactor];
      for (int k = 0; k < p; ++k) {
        v[k] = {read<V>(x.re + from + q + stride * m * k),
                read<V>(x.im + from + q + stride * m * k)};
      }
      transform_odd(v, p, circle);
      for (int r = 0; r < p; ++r) {
        if (r && m > 1) {
          v[r] = product(v[r], same<V>(roots[2 * r - 2]), same<V>(roots[2 * r - 1]));
        }
        write(y.re + to + q + stride * r, v[r].re);
        write(y.im + to + q + stride * r, v[r].im);
      }
    }
  }
}

template <typename R, int P>
void pass_with(FourierParts<R> x, FourierParts<R> y, int64_t m, int64_t stride, const R* roots) {
  widest<R, kWidest<R>>(stride, [&](auto w) { pass_of<R, P, w()>(x, y, m, stride, roots); });
}
template <typename R, int P>
void first_with(FourierParts<R> x, FourierParts<R> y, int64_t m, const R* roots) {
  widest<R, kWidest<R>>(m, [&](auto w) { first_of<R, P, w()>(x, y, m, roots); });
}

template <typename R>
void pass(FourierParts<R> x, FourierParts<R> y, int64_t p, int64_t m, int64_t stride,
          const R* roots) {
  switch (p) {
    case 2:
      return pass_with<R, 2>(x, y, m, stride, roots);
    case 3:
      return pass_with<R, 3>(x, y, m, stride, roots);
    case 4:
      return pass_with<R, 4>(x, y, m, stride, roots);
    case 5:
      return pass_with<R, 5>(x, y, m, stride, roots);
    case 7:
      return pass_with<R, 7>(x, y, m, stride, roots);
    case 8:
      return pass_with<R, 8>(x, y, m, stride, roots);
  }
  widest<R, kWidest<R>>(
      stride, [&](auto w) { odd_pass_of<R, w()>(x, y, static_cast<int>(p), m, stride, roots); });
}
template <typename R>
void first(FourierParts<R> x, FourierParts<R> y, int64_t p, int64_t m, const R* roots) {
  switch (p) {
    case 2:
      return first_with<R, 2>(x, y, m, roots);
    case 3:
      return first_with<R, 3>(x, y, m, roots);
    case 4:
      return first_with<R, 4>(x, y, m, roots);
    case 5:
      return first_with<R, 5>(x, y, m, roots);
    case 7:
      return first_with<R, 7>(x, y, m, roots);
    case 8:
      return first_with<R, 8>(x, y, m, roots);
  }
}

// ------------------------------------------------------------------------------ in and out of it

template <typename R, int W>
void split_of(const R* x, int64_t n, R* re, R* im) {
  using V = Vector<R, W>;
  for (int64_t next = 0; next < n; next += W) {
    const int64_t k = std::min(next, n - W);
    const V a = read<V>(x + 2 * k), b = read<V>(x + 2 * k + W);
    if constexpr (W == 1) {
      write(re + k, a);
      write(im + k, b);
    } else {
      write(re + k, every_second<V, 0>(a, b, Lanes<W>()));
      write(im + k, every_second<V, 1>(a, b, Lanes<W>()));
    }
  }
}

template <typename R, int W>
void join_of(const R* re, const R* im, int64_t n, R* y, R by_re, R by_im) {
  using V = Vector<R, W>;
  for (int64_t next = 0; next < n; next += W) {
    const int64_t k = std::min(next, n - W);
    V both[2] = {read<V>(re + k) * by_re, read<V>(im + k) * by_im};
    interleave<R, W, 2>(both);
    write(y + 2 * k, both[0]);
    write(y + 2 * k + W, both[1]);
  }
}

template <typename R>
void load(const R* x, FourierLayout at, int64_t part, int64_t n, int64_t lanes, FourierParts<R> y) {
  constexpr int kBlock = 8;
  if (part == 1 && lanes == 1 && at.point == 2) {
    widest<R, kWidest<R>>(n, [&](auto w) { split_of<R, w()>(x, n, y.re, y.im); });
  } else if (part == 1 && lanes > 1 && at.signal == 2) {
    widest<R, kWidest<R>>(lanes, [&](auto w) {
      for (int64_t k = 0; k < n; ++k) {
        split_of<R, w()>(x + k * at.point, lanes, y.re + k * lanes, y.im + k * lanes);
      }
    });
  } else if (part == 0 && (lanes == 1 || at.signal == 1)) {
    for (int64_t k = 0; k < n; ++k) {
      for (int64_t l = 0; l < lanes; ++l) y.re[k * lanes + l] = x[k * at.point + l * at.signal];
    }
    std::fill_n(y.im, n * lanes, R(0));
  } else if (at.signal == 1) {
    for (int64_t k = 0; k < n; ++k) {
      for (int64_t l = 0; l < lanes; ++l) y.re[k * lanes + l] = x[k * at.point + l];
      for (int64_t l = 0; l < lanes; ++l) y.im[k * lanes + l] = x[k * at.point + l + part];
    }
  } else {
    for (int64_t begin = 0; begin < n; begin += kBlock) {
      const int64_t end = std::min(n, begin + kBlock);
      for (int64_t l = 0; l < lanes; ++l) {
        const R* from = x + l * at.signal;
        for (int64_t k = begin; k < end; ++k) {
          y.re[k * lanes + l] = from[k * at.point];
          y.im[k * lanes + l] = part ? from[k * at.point + part] : R(0);
        }
      }
    }
  }
}

template <typename R>
void store(FourierParts<R> x, R* y, FourierLayout at, int64_t part, int64_t n, int64_t lanes,
           R by_re, R by_im) {
  constexpr int kBlock = 8;
  if (part == 1 && lanes == 1 && at.point == 2) {
    widest<R, kWidest<R>>(n, [&](auto w) { join_of<R, w()>(x.re, x.im, n, y, by_re, by_im); });
  } else if (part == 1 && lanes > 1 && at.signal == 2) {
    widest<R, kWidest<R>>(lanes, [&](auto w) {
      for (int64_t k = 0; k < n; ++k) {
        join_of<R, w()>(x.re + k * lanes, x.im + k * lanes, lanes, y + k * at.point, by_re, by_im);
      }
    });
  } else if (at.signal == 1) {
    for (int64_t k = 0; k < n; ++k) {
      for (int64_t l = 0; l < lanes; ++l) y[k * at.point + l] = x.re[k * lanes + l] * by_re;
      if (!part) continue;
      R* other = y + k * at.point + part;
      for (int64_t l = 0; l < lanes; ++l) other[l] = x.im[k * lanes + l] * by_im;
    }
  } else {
    for (int64_t begin = 0; begin < n; begin += kBlock) {
      const int64_t end = std::min(n, begin + kBlock);
      for (int64_t l = 0; l < lanes; ++l) {
        R* to = y + l * at.signal;
        for (int64_t k = begin; k < end; ++k) {
          to[k * at.point] = x.re[k * lanes + l] * by_re;
          if (part) to[k * at.point + part] = x.im[k * lanes + l] * by_im;
        }
      }
    }
  }
}

template <typename R, typename V>
FB_INNER void fold_one(Complex<V>& a, Complex<V>& b, V root_re, V root_im, R half) {
  const Complex<V> even = {(a.re + b.re) * half, (a.im - b.im) * half};
  const Complex<V> odd = product(Complex<V>{a.re - b.re, a.im + b.im}, root_re, root_im);
  a = even + odd;
  b = {even.re - odd.re, odd.im - even.im};
}

template <typename R, int W>
void fold_of(FourierParts<R> x, FourierParts<R> y, int64_t n, const R* roots, R half, R re, R im) {
  using V = Vector<R, W>;
  const int64_t end = n / 2;  // k = 1 ... end
  for (int64_t next = 1; next <= end; next += W) {
    const int64_t k = std::min(next, end + 1 - W), other = n - k - W + 1;
    Complex<V> a = {read<V>(x.re + k), read<V>(x.im + k)};
    Complex<V> b = {reversed<R, W>(read<V>(x.re + other)), reversed<R, W>(read<V>(x.im + other))};
    fold_one(a, b, V(read<V>(roots + k) * re), V(read<V>(roots + end + 1 + k) * im), half);
    write(y.re + k, a.re);
    write(y.im + k, a.im);
    write(y.re + other, reversed<R, W>(b.re));
    write(y.im + other, reversed<R, W>(b.im));
  }
}

template <typename R>
void fold(FourierParts<R> x, FourierParts<R> y, int64_t n, int64_t lanes, const R* roots, R half,
          R re, R im) {
  if (lanes == 1) {
    return widest<R, kWidest<R>>(n / 2,
                                 [&](auto w) { fold_of<R, w()>(x, y, n, roots, half, re, im); });
  }
  for (int64_t k = 1; k <= n / 2; ++k) {
    const R root_re = roots[k] * re, root_im = roots[n / 2 + 1 + k] * im;
    for (int64_t l = 0; l < lanes; ++l) {
      const int64_t i = k * lanes + l, j = (n - k) * lanes + l;
      Complex<R> a = {x.re[i], x.im[i]}, b = {x.re[j], x.im[j]};
      fold_one(a, b, root_re, root_im, half);
      y.re[i] = a.re;
      y.im[i] = a.im;
      y.re[j] = b.re;
      y.im[j] = b.im;
    }
  }
}

template <typename R>
void multiply(FourierParts<R> x, FourierParts<R> y, FourierParts<R> table, int64_t n,
              int64_t lanes) {
  for (int64_t k = 0; k < n; ++k) {
    const R re = table.re[k], im = table.im[k];
    for (int64_t i = k * lanes; i < (k + 1) * lanes; ++i) {
      const Complex<R> v = product(Complex<R>{x.re[i], x.im[i]}, re, im);
      y.re[i] = v.re;
      y.im[i] = v.im;
    }
  }
}
template <typename R>
void multiply_row(const R* __restrict x_re, const R* __restrict x_im, R* __restrict y_re,
                  R* __restrict y_im, const R* __restrict re, const R* __restrict im, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    y_re[i] = x_re[i] * re[i] - x_im[i] * im[i];
    y_im[i] = x_re[i] * im[i] + x_im[i] * re[i];
  }
}
template <typename R>
void multiply_all(FourierParts<R> x, FourierParts<R> y, FourierParts<R> table, int64_t n,
                  int64_t lanes) {
  if (lanes == 1) return multiply_row(x.re, x.im, y.re, y.im, table.re, table.im, n);
  multiply(x, y, table, n, lanes);
}

template <typename R>
void mirror(FourierParts<R> x, int64_t n, int64_t lanes) {
  const int64_t count = (n - 1) / 2;
  R *re = x.re + (n - count) * lanes, *im = x.im + (n - count) * lanes;
  if (lanes == 1) {
    return widest<R, kWidest<R>>(count, [&](auto w) {
      using V = Vector<R, w()>;
      for (int64_t next = 0; next < count; next += w()) {
        const int64_t k = std::min<int64_t>(next, count - w()), from = count - k - w() + 1;
        write(re + k, reversed<R, w()>(read<V>(x.re + from)));
        write(im + k, V(-reversed<R, w()>(read<V>(x.im + from))));
      }
    });
  }
  for (int64_t k = 0; k < count; ++k) {
    std::memcpy(re + k * lanes, x.re + (count - k) * lanes, lanes * sizeof(R));
    const R* from = x.im + (count - k) * lanes;
    for (int64_t l = 0; l < lanes; ++l) im[k * lanes + l] = -from[l];
  }
}

template <typename R>
const FourierLoops<R>& loops() {
  static constexpr FourierLoops<R> kLoops = {pass<R>, first<R>,        load<R>,  store<R>,
                                             fold<R>, multiply_all<R>, mirror<R>};
  return kLoops;
}

}  // namespace FB_FOURIER_LEVEL
}  // namespace fb
