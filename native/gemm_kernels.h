// The innermost loops of the matrix product, compiled once per instruction set: this file is
// included several times by routines_gemm.cpp, each time with
//   FB_ISA      namespace of this copy
//   FB_TARGET   function attribute that switches the instruction set on
//   FB_LEVEL    0 portable, 1 AVX2 and FMA, 2 AVX-512
// Every element of the result is one chain of FMAs in increasing k, whatever the vector width or
// the tile: all copies give the same bits.

namespace fb::FB_ISA {

#if FB_LEVEL == 2
template <typename T>
struct Vector;
template <>
struct Vector<float> {
  using V = __m512;
  static constexpr int lanes = 16;
  FB_TARGET static V zero() { return _mm512_setzero_ps(); }
  FB_TARGET static V load(const float* p) { return _mm512_loadu_ps(p); }
  FB_TARGET static void store(float* p, V v) { _mm512_storeu_ps(p, v); }
  FB_TARGET static V all(float x) { return _mm512_set1_ps(x); }
  FB_TARGET static V add(V a, V b) { return _mm512_add_ps(a, b); }
  FB_TARGET static V fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
  FB_TARGET static V fnma(V a, V b, V c) { return _mm512_fnmadd_ps(a, b, c); }
};
template <>
struct Vector<double> {
  using V = __m512d;
  static constexpr int lanes = 8;
  FB_TARGET static V zero() { return _mm512_setzero_pd(); }
  FB_TARGET static V load(const double* p) { return _mm512_loadu_pd(p); }
  FB_TARGET static void store(double* p, V v) { _mm512_storeu_pd(p, v); }
  FB_TARGET static V all(double x) { return _mm512_set1_pd(x); }
  FB_TARGET static V add(V a, V b) { return _mm512_add_pd(a, b); }
  FB_TARGET static V fma(V a, V b, V c) { return _mm512_fmadd_pd(a, b, c); }
  FB_TARGET static V fnma(V a, V b, V c) { return _mm512_fnmadd_pd(a, b, c); }
};
constexpr int kRows = 14, kComplexRows = 6;
#elif FB_LEVEL == 1
template <typename T>
struct Vector;
template <>
struct Vector<float> {
  using V = __m256;
  static constexpr int lanes = 8;
  FB_TARGET static V zero() { return _mm256_setzero_ps(); }
  FB_TARGET static V load(const float* p) { return _mm256_loadu_ps(p); }
  FB_TARGET static void store(float* p, V v) { _mm256_storeu_ps(p, v); }
  FB_TARGET static V all(float x) { return _mm256_set1_ps(x); }
  FB_TARGET static V add(V a, V b) { return _mm256_add_ps(a, b); }
  FB_TARGET static V fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
  FB_TARGET static V fnma(V a, V b, V c) { return _mm256_fnmadd_ps(a, b, c); }
};
template <>
struct Vector<double> {
  using V = __m256d;
  static constexpr int lanes = 4;
  FB_TARGET static V zero() { return _mm256_setzero_pd(); }
  FB_TARGET static V load(const double* p) { return _mm256_loadu_pd(p); }
  FB_TARGET static void store(double* p, V v) { _mm256_storeu_pd(p, v); }
  FB_TARGET static V all(double x) { return _mm256_set1_pd(x); }
  FB_TARGET static V add(V a, V b) { return _mm256_add_pd(a, b); }
  FB_TARGET static V fma(V a, V b, V c) { return _mm256_fmadd_pd(a, b, c); }
  FB_TARGET static V fnma(V a, V b, V c) { return _mm256_fnmadd_pd(a, b, c); }
};
constexpr int kRows = 6, kComplexRows = 4;
#else
// One "vector" of four numbers; compilers turn the loops into what the machine has.
template <typename T>
struct Vector {
  struct V {
    T x[4];
  };
  static constexpr int lanes = 4;
  static V zero() { return {}; }
  static V load(const T* p) { return {{p[0], p[1], p[2], p[3]}}; }
  static void store(T* p, V v) {
    for (int i = 0; i < 4; ++i) p[i] = v.x[i];
  }
  static V all(T x) { return {{x, x, x, x}}; }
  static V add(V a, V b) {
    for (int i = 0; i < 4; ++i) a.x[i] += b.x[i];
    return a;
  }
  static V fma(V a, V b, V c) {
    for (int i = 0; i < 4; ++i) c.x[i] = std::fma(a.x[i], b.x[i], c.x[i]);
    return c;
  }
  static V fnma(V a, V b, V c) {
    for (int i = 0; i < 4; ++i) c.x[i] = std::fma(-a.x[i], b.x[i], c.x[i]);
    return c;
  }
};
constexpr int kRows = 4, kComplexRows = 2;
#endif

constexpr int64_t kPrefetch = 12;  // rows of b

// c[rows][2 vectors] (+)= sum over k of a[k][rows] * b[k][2 vectors].
template <typename T, int kHeight>
FB_TARGET void micro(int64_t depth, const T* a, const T* b, int64_t b_step, T* c, int64_t c_step,
                     bool accumulate) {
  using X = Vector<T>;
  typename X::V sum[kHeight][2];
#pragma GCC unroll 16
  for (int i = 0; i < kHeight; ++i) sum[i][0] = sum[i][1] = X::zero();
  for (int64_t k = 0; k < depth; ++k) {
    const typename X::V left = X::load(b), right = X::load(b + X::lanes);
    // Rows of an unpacked b lie a page apart: no hardware prefetcher follows them.
    __builtin_prefetch(b + kPrefetch * b_step);
    __builtin_prefetch(b + kPrefetch * b_step + X::lanes);
#pragma GCC unroll 16
    for (int i = 0; i < kHeight; ++i) {
      const typename X::V x = X::all(a[i]);
      sum[i][0] = X::fma(x, left, sum[i][0]);
      sum[i][1] = X::fma(x, right, sum[i][1]);
    }
    a += kHeight;
    b += b_step;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kHeight; ++i) {
    if (accumulate) {
      sum[i][0] = X::add(X::load(c), sum[i][0]);
      sum[i][1] = X::add(X::load(c + X::lanes), sum[i][1]);
    }
    X::store(c, sum[i][0]);
    X::store(c + X::lanes, sum[i][1]);
    c += c_step;
  }
}

// sum[columns] = one row of a times b, in memory: a product with few rows is as fast as b can be
// read, and whole rows of it read fastest. Four steps of the chain per pass over `sum`.
// a_step: from one k of the row to the next; columns: a multiple of the vector's lanes.
template <typename T>
FB_TARGET void row_sums(int64_t depth, const T* a, int64_t a_step, const T* b, int64_t b_step,
                        T* sum, int64_t columns) {
  using X = Vector<T>;
  for (int64_t j = 0; j < columns; j += X::lanes) X::store(sum + j, X::zero());
  int64_t k = 0;
  for (; k + 4 <= depth; k += 4) {
    const typename X::V x0 = X::all(a[0]), x1 = X::all(a[a_step]);
    const typename X::V x2 = X::all(a[2 * a_step]), x3 = X::all(a[3 * a_step]);
    const T *b0 = b, *b1 = b + b_step, *b2 = b + 2 * b_step, *b3 = b + 3 * b_step;
    for (int64_t j = 0; j < columns; j += X::lanes) {
      typename X::V s = X::fma(x0, X::load(b0 + j), X::load(sum + j));
      s = X::fma(x1, X::load(b1 + j), s);
      s = X::fma(x2, X::load(b2 + j), s);
      X::store(sum + j, X::fma(x3, X::load(b3 + j), s));
    }
    a += 4 * a_step;
    b += 4 * b_step;
  }
  for (; k < depth; ++k) {
    const typename X::V x = X::all(*a);
    for (int64_t j = 0; j < columns; j += X::lanes) {
      X::store(sum + j, X::fma(x, X::load(b + j), X::load(sum + j)));
    }
    a += a_step;
    b += b_step;
  }
}

// Complex numbers with real and imaginary parts apart: a row of b is `lanes` real parts, then as
// many imaginary ones; a row of a is kHeight real parts, then imaginary ones; c like b.
// re = fma(-ai, bi, fma(ar, br, re)), im = fma(ai, br, fma(ar, bi, im)).
template <typename T, int kHeight>
FB_TARGET void micro_complex(int64_t depth, const T* a, const T* b, int64_t b_step, T* c,
                             int64_t c_step, bool accumulate) {
  using X = Vector<T>;
  typename X::V real[kHeight], imaginary[kHeight];
#pragma GCC unroll 16
  for (int i = 0; i < kHeight; ++i) real[i] = imaginary[i] = X::zero();
  for (int64_t k = 0; k < depth; ++k) {
    const typename X::V br = X::load(b), bi = X::load(b + X::lanes);
#pragma GCC unroll 16
    for (int i = 0; i < kHeight; ++i) {
      const typename X::V ar = X::all(a[i]), ai = X::all(a[kHeight + i]);
      real[i] = X::fnma(ai, bi, X::fma(ar, br, real[i]));
      imaginary[i] = X::fma(ai, br, X::fma(ar, bi, imaginary[i]));
    }
    a += 2 * kHeight;
    b += b_step;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kHeight; ++i) {
    if (accumulate) {
      real[i] = X::add(X::load(c), real[i]);
      imaginary[i] = X::add(X::load(c + X::lanes), imaginary[i]);
    }
    X::store(c, real[i]);
    X::store(c + X::lanes, imaginary[i]);
    c += c_step;
  }
}

template <typename T, int... kHeights>
GemmKernels<T> make_kernels(std::integer_sequence<int, kHeights...>) {
  GemmKernels<T> kernels{kRows, 2 * Vector<T>::lanes, {}, row_sums<T>};
  ((kernels.micro[kHeights + 1] = micro<T, kHeights + 1>), ...);
  return kernels;
}

template <typename T, int... kHeights>
GemmKernels<T> make_complex_kernels(std::integer_sequence<int, kHeights...>) {
  GemmKernels<T> kernels{kComplexRows, Vector<T>::lanes, {}, nullptr};
  ((kernels.micro[kHeights + 1] = micro_complex<T, kHeights + 1>), ...);
  return kernels;
}

template <typename T>
GemmKernels<T> kernels(bool complex) {
  return complex ? make_complex_kernels<T>(std::make_integer_sequence<int, kComplexRows>())
                 : make_kernels<T>(std::make_integer_sequence<int, kRows>());
}

#if FB_LEVEL > 0
// A square block of `kTranspose` vectors, transposed in registers.
#if FB_LEVEL == 2
constexpr int kTranspose = 16;  // a whole cache line of every column: strides of 4 KB conflict
using Block = __m512[16];
__attribute__((always_inline)) FB_TARGET inline void transpose(Block r) {
  __m512 t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {  // r[i + m]: lane L holds k = 4 L + m of four columns
    r[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
    r[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xee);
    r[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    r[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
#pragma GCC unroll 4
  for (int m = 0; m < 4; ++m) {
    t[m] = _mm512_shuffle_f32x4(r[m], r[4 + m], 0x88);
    t[4 + m] = _mm512_shuffle_f32x4(r[m], r[4 + m], 0xdd);
    t[8 + m] = _mm512_shuffle_f32x4(r[8 + m], r[12 + m], 0x88);
    t[12 + m] = _mm512_shuffle_f32x4(r[8 + m], r[12 + m], 0xdd);
  }
#pragma GCC unroll 4
  for (int m = 0; m < 4; ++m) {
    r[m] = _mm512_shuffle_f32x4(t[m], t[8 + m], 0x88);
    r[4 + m] = _mm512_shuffle_f32x4(t[4 + m], t[12 + m], 0x88);
    r[8 + m] = _mm512_shuffle_f32x4(t[m], t[8 + m], 0xdd);
    r[12 + m] = _mm512_shuffle_f32x4(t[4 + m], t[12 + m], 0xdd);
  }
}
#else
constexpr int kTranspose = 8;
using Block = __m256[8];
__attribute__((always_inline)) FB_TARGET inline void transpose(Block r) {
  __m256 t[8];
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
    r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
    t[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) r[i] = t[i];
}
#endif

// Reads one block of columns (each along memory), `in` at k, and turns it.
__attribute__((always_inline)) FB_TARGET inline void load_turned(const float* in, int64_t stride,
                                                                 Block r) {
#pragma GCC unroll 16
  for (int i = 0; i < kTranspose; ++i) {
    r[i] = Vector<float>::load(in + i * stride);
    __builtin_prefetch(in + i * stride + 4 * kTranspose);
  }
  transpose(r);
}

// out[k * step + j] = in[j * stride + k]
FB_TARGET inline void transpose_block(const float* in, int64_t stride, float* out, int64_t step) {
  Block r;
  load_turned(in, stride, r);
#pragma GCC unroll 16
  for (int i = 0; i < kTranspose; ++i) Vector<float>::store(out + i * step, r[i]);
}

// out[k * kHeight + i] = in[i * stride + k]. Returns how many k are done.
template <int kHeight>
FB_TARGET int64_t transpose_panel(const float* in, int64_t stride, int64_t depth, float* out) {
  const int64_t whole = depth / kTranspose * kTranspose;
  for (int64_t k = 0; k < whole; k += kTranspose) {
    Block r;
#pragma GCC unroll 16
    for (int i = 0; i < kTranspose; ++i) {
      r[i] = i < kHeight ? Vector<float>::load(in + i * stride + k) : Vector<float>::zero();
    }
    transpose(r);
    // Each store overwrites what the one before put beyond its own numbers.
#pragma GCC unroll 16
    for (int i = 0; i < kTranspose - 1; ++i) Vector<float>::store(out + i * kHeight, r[i]);
    float last[kTranspose];
    Vector<float>::store(last, r[kTranspose - 1]);
    std::memcpy(out + (kTranspose - 1) * kHeight, last, sizeof(float) * kHeight);
    out += kTranspose * kHeight;
  }
  return whole;
}

// Products of few rows with kTranspose columns that lie along memory, turned on the way.
// sum[rows][kTranspose]; depth: a multiple of kTranspose.
template <int kHeight>
FB_TARGET void column_sums(int64_t depth, const float* a, const float* b, int64_t stride,
                           float* sum) {
  using X = Vector<float>;
  X::V total[kHeight];
#pragma GCC unroll 4
  for (int h = 0; h < kHeight; ++h) total[h] = X::zero();
  for (int64_t k = 0; k < depth; k += kTranspose) {
    Block r;
    load_turned(b + k, stride, r);
#pragma GCC unroll 16
    for (int i = 0; i < kTranspose; ++i) {
#pragma GCC unroll 4
      for (int h = 0; h < kHeight; ++h) total[h] = X::fma(X::all(a[h]), r[i], total[h]);
      a += kHeight;
    }
  }
#pragma GCC unroll 4
  for (int h = 0; h < kHeight; ++h) X::store(sum + h * kTranspose, total[h]);
}
#endif

}  // namespace fb::FB_ISA
