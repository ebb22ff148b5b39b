// Eigenvalues and singular values of batches of small and middle matrices.
//
// Hermitian matrices: Householder's tridiagonal form, then the implicit QL iteration (Golub & Van
// Loan 8.3); general ones: the Hessenberg form and the shifted QR iteration in complex arithmetic
// (7.4, 7.5), vectors by back substitution; singular values: Householder's bidiagonal form and the
// implicit QR iteration (5.4, 8.6.2). One thread computes a matrix.
#include <algorithm>
#include <limits>
#include <numeric>

#include "linalg/routines_lapack.h"

namespace fb {
namespace {

// Sizes from which LAPACK is used, of vectors and of values alone, as in routines_linear.cpp.
template <typename T, bool kVectors>
struct Least {
  static constexpr int64_t kHermitian = kVectors ? by_type<T>(160, 96, 48) : 16;
  static constexpr int64_t kGeneral = by_type<T>(8, 8, kVectors ? 64 : 40);
  static constexpr int64_t kSingular = kVectors ? by_type<T>(192, 96, 48) : 16;
};

template <typename R>
constexpr R kEpsilon = std::numeric_limits<R>::epsilon();

template <typename T>
RealOf<T> greatest_part(T x) {
  return std::max(std::abs(std::real(x)), std::abs(std::imag(x)));
}

// A power of two by which the elements become of usual size, so that no square overflows or
// vanishes; 1 for most matrices.
template <typename T>
RealOf<T> usual_scale(const T* a, int64_t count) {
  using R = RealOf<T>;
  R largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, greatest_part(a[i]));
  const R high = std::sqrt(std::numeric_limits<R>::max()) * kEpsilon<R>;
  if (largest == 0 || (largest < high && largest > 1 / high)) return 1;
  const int most = std::numeric_limits<R>::max_exponent - 1;
  return std::ldexp(R(1), std::min(-std::ilogb(largest), most));
}

// ---- Hermitian eigenvalues

// A := H^H A H with H = I - tau v v^H and A [size, size] Hermitian, so that A v is a sum of rows.
template <typename T>
struct ReflectBoth {
  static FB_INLINE void run(T* a, int64_t size, int64_t n, const T* v, T* w, T tau) {
    for (int64_t i = 0; i < size; ++i) w[i] = T(0);
    for (int64_t j = 0; j < size; ++j) {
      const T x = v[j];
      for (int64_t i = 0; i < size; ++i) w[i] += times(conjugate(a[j * n + i]), x);
    }
    T inner = T(0);
    for (int64_t i = 0; i < size; ++i) {
      w[i] = times(tau, w[i]);
      inner += times(conjugate(v[i]), w[i]);
    }
    const T half = times(conjugate(tau), inner) * RealOf<T>(0.5);
    for (int64_t i = 0; i < size; ++i) w[i] -= times(half, v[i]);
    for (int64_t i = 0; i < size; ++i) {
      const T x = w[i], y = v[i];
      for (int64_t j = 0; j < size; ++j) {
        a[i * n + j] -= times(x, conjugate(v[j])) + times(y, conjugate(w[j]));
      }
    }
  }
};

// a (lower triangle only) becomes the unitary Q with Q^H A Q tridiagonal: diagonal d, below it e.
template <typename T>
void to_tridiagonal(T* a, int64_t n, RealOf<T>* d, RealOf<T>* e, T* work) {
  for (int64_t i = 0; i < n; ++i) {
    a[i * n + i] = T(real_part(a[i * n + i]));
    for (int64_t j = i + 1; j < n; ++j) a[i * n + j] = conjugate(a[j * n + i]);
  }
  T *taus = work, *w = work + n, *v = w + n;
  for (int64_t k = 0; k + 1 < n; ++k) {
    const int64_t size = n - k - 1;
    T* head = a + (k + 1) * n + k;
    const T tau = taus[k] = reflect_column(head, head + n, size - 1, n);
    e[k] = real_part(*head);
    if (tau == T(0)) continue;
    for (int64_t i = 0; i < size; ++i) v[i] = i ? head[i * n] : T(1);
    run_variant<ReflectBoth<T>>(a + (k + 1) * n + k + 1, size, n, v, w, tau);
  }
  for (int64_t i = 0; i < n; ++i) d[i] = real_part(a[i * n + i]);
  // Q = H1 H2 ...: the reflections lie below the first subdiagonal.
  T* q = w;
  std::fill_n(q, n * n, T(0));
  for (int64_t i = 0; i < n; ++i) q[i * n + i] = T(1);
  for (int64_t k = n - 2; k >= 0; --k) {
    T* corner = q + (k + 1) * n + k + 1;
    reflect_rows(corner, n - k - 1, n - k - 1, n, a + (k + 1) * n + k, n, taus[k]);
  }
  std::copy_n(q, n * n, a);
}

template <typename T>
struct TurnRows {
  static FB_INLINE void run(T* __restrict a, T* __restrict b, int64_t n, RealOf<T> c, RealOf<T> s) {
    for (int64_t k = 0; k < n; ++k) {
      const T old = b[k];
      b[k] = a[k] * s + old * c;
      a[k] = a[k] * c - old * s;
    }
  }
};

// The eigenvalues of a tridiagonal matrix; the same rotations are applied to q's rows.
template <typename T>
bool iterate_ql(RealOf<T>* d, RealOf<T>* e, T* q, int64_t n) {
  using R = RealOf<T>;
  R norm = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (i + 1 == n) e[i] = 0;
    norm = std::max(norm, std::abs(d[i]) + std::abs(e[i]));
  }
  for (int64_t l = 0; l < n; ++l) {
    for (int count = 0;; ++count) {
      // Between eigenvalues that are 0 nothing stays small beside its neighbours: in the end what
      // is small beside the matrix will do.
      const R least = kEpsilon<R> * (count < 20 ? kEpsilon<R> * norm : norm);
      int64_t m = l;
      for (; m + 1 < n; ++m) {
        const R near = kEpsilon<R> * (std::abs(d[m]) + std::abs(d[m + 1]));
        if (std::abs(e[m]) <= std::max(least, near)) break;
      }
      if (m == l) break;
      if (count == 60) return false;
      R g = (d[l + 1] - d[l]) / (2 * e[l]);
      R r = std::hypot(g, R(1));
      g = d[m] - d[l] + e[l] / (g + std::copysign(r, g));
      R s = 1, c = 1, p = 0;
      int64_t i = m - 1;
      for (; i >= l; --i) {
        R f = s * e[i];
        const R b = c * e[i];
        e[i + 1] = r = std::hypot(f, g);
        if (r == 0) {
          d[i + 1] -= p;
          e[m] = 0;
          break;
        }
        s = f / r;
        c = g / r;
        g = d[i + 1] - p;
        r = (d[i] - g) * s + 2 * c * b;
        p = s * r;
        d[i + 1] = g + p;
        g = c * r - b;
        run_variant<TurnRows<T>>(q + i * n, q + (i + 1) * n, n, c, s);
      }
      if (r == 0 && i >= l) continue;
      d[l] -= p;
      e[l] = g;
      e[m] = 0;
    }
  }
  return true;
}

// Eigenvalues d, in no order, and as rows of q the vectors of a matrix of finite elements.
template <typename T>
bool hermitian(const T* from, int64_t n, T* q, RealOf<T>* d, RealOf<T>* e, T* work) {
  for (int64_t i = 0; i < n; ++i) {  // the other triangle may hold anything
    for (int64_t j = 0; j < n; ++j) q[i * n + j] = j <= i ? from[i * n + j] : T(0);
  }
  const RealOf<T> scale = usual_scale(q, n * n);
  for (int64_t i = 0; i < n * n; ++i) q[i] *= scale;
  to_tridiagonal(q, n, d, e, work);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = i + 1; j < n; ++j) std::swap(q[i * n + j], q[j * n + i]);
  }
  const bool fine = iterate_ql(d, e, q, n);
  for (int64_t i = 0; i < n; ++i) d[i] /= scale;
  return fine;
}

template <typename T, bool kVectors>
const char* eigh(const RoutineContext& c) {
  using R = RealOf<T>;
  const int64_t batch = c.n[0], n = c.n[1];
  if (by_lapack(n, Least<T, kVectors>::kHermitian)) return lapack_eigh<T>(c, kVectors);
  Failures failures;
  parallel(batch, grain_of(4 * n * n * n), [&](int64_t begin, int64_t end) {
    Block memory((n * n + 3 * n) * int64_t{sizeof(T)}), reals(2 * n * int64_t{sizeof(R)});
    Block matrix(n * n * int64_t{sizeof(T)}), order(n * int64_t{sizeof(int64_t)});
    if (!memory.ok() || !reals.ok() || !matrix.ok() || !order.ok()) return failures.no_memory();
    T* q = matrix.as<T>();
    R *d = reals.as<R>(), *e = d + n;
    int64_t* place = order.as<int64_t>();
    for (int64_t b = begin; b < end; ++b) {
      const T* from = pointer<T>(c, 0) + b * n * n;
      const Contents contents = contents_of_triangle(from, n);
      if (contents == Contents::kFinite) {
        if (!hermitian(from, n, q, d, e, memory.as<T>())) failures.report(b, n - 1);
      } else {
        if (contents == Contents::kNan && n > 2) failures.report(b, n - 2 + kVectors);
        std::fill_n(d, n, kNanOf<T>);
        std::fill_n(q, n * n, T(kNanOf<T>));
      }
      std::iota(place, place + n, int64_t{0});
      std::stable_sort(place, place + n, [&](int64_t x, int64_t y) { return d[x] < d[y]; });
      R* values = pointer<R>(c, 1) + b * n;
      for (int64_t j = 0; j < n; ++j) values[j] = d[place[j]];
      if (!kVectors) continue;
      T* vectors = pointer<T>(c, 2) + b * n * n;
      for (int64_t j = 0; j < n; ++j) {
        for (int64_t i = 0; i < n; ++i) vectors[i * n + j] = q[place[j] * n + i];
      }
    }
  });
  return failures.text(c, "linalg.eigh", batch, kEigenvaluesUnmet);
}

// ---- general eigenvalues

template <typename C>
void to_hessenberg(C* h, C* z, int64_t n, C* work) {
  std::fill_n(z, n * n, C(0));
  for (int64_t i = 0; i < n; ++i) z[i * n + i] = C(1);
  for (int64_t k = 0; k + 2 < n; ++k) {
    C* head = h + (k + 1) * n + k;
    const int64_t size = n - k - 1;
    const C tau = reflect_column(head, head + n, size - 1, n);
    for (int64_t i = 0; i < size; ++i) work[i] = i ? head[i * n] : C(1);
    for (int64_t i = 1; i < size; ++i) head[i * n] = C(0);
    reflect_rows(h + (k + 1) * n + k + 1, size, size, n, work, 1, conjugate(tau));
    for (C* matrix : {h, z}) {  // from the right: M := M (I - tau v v^H)
      for (int64_t r = 0; r < n; ++r) {
        C* row = matrix + r * n + k + 1;
        C sum = C(0);
        for (int64_t i = 0; i < size; ++i) sum += times(row[i], work[i]);
        sum = times(tau, sum);
        for (int64_t i = 0; i < size; ++i) row[i] -= times(sum, conjugate(work[i]));
      }
    }
  }
}

// The shift: the eigenvalue of the trailing 2 x 2 block nearest to its last element.
template <typename C>
C shift_of(const C* h, int64_t n, int64_t last, int count) {
  const C d = h[last * n + last];
  if (count % 10 == 9) return d + C(size1(h[last * n + last - 1]));
  const C a = h[(last - 1) * n + last - 1], b = h[(last - 1) * n + last];
  const C product = times(b, h[last * n + last - 1]);
  const C half = (a - d) / RealOf<C>(2);
  const C root = std::sqrt(times(half, half) + product);
  const C sum = half + (real_part(times(conjugate(half), root)) < 0 ? -root : root);
  return sum == C(0) ? d - root : d - product / sum;
}

// Rotates rows (i, i+1) of h from column `from`, columns of h down to row `to`, columns of z.
template <typename C>
void rotate(C* h, C* z, int64_t n, int64_t i, int64_t from, int64_t to, RealOf<C> c, C s) {
  C *upper = h + i * n, *lower = upper + n;
  for (int64_t j = from; j < n; ++j) {
    const C x = upper[j], y = lower[j];
    upper[j] = x * c + times(s, y);
    lower[j] = y * c - times(conjugate(s), x);
  }
  for (C* matrix : {h, z}) {
    const int64_t rows = matrix == h ? std::min(to + 1, n) : n;
    for (int64_t k = 0; k < rows; ++k) {
      C *left = matrix + k * n + i, *right = left + 1;
      const C x = *left, y = *right;
      *left = x * c + times(conjugate(s), y);
      *right = y * c - times(s, x);
    }
  }
}

// The Schur form of a Hessenberg matrix: h upper triangular, z its unitary basis.
template <typename C>
bool iterate_qr(C* h, C* z, int64_t n) {
  using R = RealOf<C>;
  int count = 0;
  for (int64_t last = n - 1; last > 0;) {
    int64_t first = last;
    for (; first > 0; --first) {
      C* below = h + first * n + first - 1;
      const R scale = size1(h[(first - 1) * n + first - 1]) + size1(h[first * n + first]);
      const R least = std::numeric_limits<R>::min() / kEpsilon<R>;
      if (size1(*below) <= std::max(least, kEpsilon<R> * scale)) {
        *below = C(0);
        break;
      }
    }
    if (first == last) {
      --last;
      count = 0;
      continue;
    }
    if (++count > 300) return false;
    const C shift = shift_of(h, n, last, count);
    C x = h[first * n + first] - shift, y = h[(first + 1) * n + first];
    for (int64_t i = first; i < last; ++i) {
      const R norm = std::hypot(std::abs(x), std::abs(y));
      if (norm > 0) {
        const R size = std::abs(x);
        const R c = size / norm;
        const C phase = size > 0 ? x / size : C(1);
        const C s = times(phase, conjugate(y)) / norm;
        rotate(h, z, n, i, std::max(first, i - 1), std::min(i + 2, last), c, s);
      }
      if (i + 1 < last) {
        x = h[(i + 1) * n + i];
        y = h[(i + 2) * n + i];
      }
    }
  }
  return true;
}

// Eigenvectors of the triangular h by back substitution, in the basis z, of norm 1.
template <typename C>
void triangular_vectors(const C* h, const C* z, int64_t n, C* x, C* out) {
  using R = RealOf<C>;
  R scale = 0;
  for (int64_t i = 0; i < n * n; ++i) scale = std::max(scale, size1(h[i]));
  const R least = std::max(kEpsilon<R> * scale, std::numeric_limits<R>::min());
  for (int64_t k = 0; k < n; ++k) {
    const C value = h[k * n + k];
    x[k] = C(1);
    for (int64_t i = k - 1; i >= 0; --i) {
      C sum = C(0);
      for (int64_t j = i + 1; j <= k; ++j) sum += times(h[i * n + j], x[j]);
      C gap = value - h[i * n + i];
      if (size1(gap) < least) gap = C(least);
      x[i] = sum / gap;
      const R size = size1(x[i]);
      if (size > R(1e10)) {
        for (int64_t j = i; j <= k; ++j) x[j] /= size;
      }
    }
    R norm = 0;
    for (int64_t i = 0; i < n; ++i) {
      C sum = C(0);
      for (int64_t j = 0; j <= k; ++j) sum += times(z[i * n + j], x[j]);
      out[i * n + k] = sum;
      norm += square(sum);
    }
    norm = std::sqrt(norm);
    for (int64_t i = 0; i < n; ++i) out[i * n + k] /= norm;
  }
}

template <typename T, typename C, bool kVectors>
const char* eig(const RoutineContext& c) {
  const int64_t batch = c.n[0], n = c.n[1];
  if (by_lapack(n, Least<T, kVectors>::kGeneral)) return lapack_eig<T>(c, kVectors);
  std::atomic<bool> finite{true};
  Failures failures;
  parallel(batch, grain_of(10 * n * n * n), [&](int64_t begin, int64_t end) {
    Block memory((2 * n * n + n) * int64_t{sizeof(C)});
    if (!memory.ok()) return failures.no_memory();
    C *h = memory.as<C>(), *z = h + n * n, *work = z + n * n;
    for (int64_t b = begin; b < end; ++b) {
      const T* a = pointer<T>(c, 0) + b * n * n;
      C* values = pointer<C>(c, 1) + b * n;
      if (contents_of(a, n * n) != Contents::kFinite) {
        std::fill_n(values, n, C(kNanOf<T>, kNanOf<T>));
        finite = false;
        continue;
      }
      const RealOf<T> scale = usual_scale(a, n * n);
      for (int64_t i = 0; i < n * n; ++i) h[i] = C(a[i] * scale);
      to_hessenberg(h, z, n, work);
      if (!iterate_qr(h, z, n)) failures.report(b, n);
      for (int64_t i = 0; i < n; ++i) values[i] = h[i * n + i] / scale;
      if (kVectors) triangular_vectors(h, z, n, work, pointer<C>(c, 2) + b * n * n);
    }
  });
  if (kVectors && !finite) return kNoEigenvectors;
  return failures.text(c, "linalg.eig", batch, kEigenvaluesUnmet);
}

// ---- singular values

// The rows of a [m, n] become row (I - factor v v^H), v = (1, v[1], ...).
template <typename T>
struct ReflectEachRow {
  static FB_INLINE void run(T* a, int64_t m, int64_t n, int64_t row, const T* v, T factor) {
    for (int64_t i = 0; i < m; ++i) {
      T* x = a + i * row;
      T sum = T(0);
      int64_t j = 0;
      if constexpr (std::is_arithmetic_v<T>) {  // in lanes that are added in a fixed order
        typedef T V __attribute__((vector_size(64)));
        constexpr int64_t kLanes = 64 / sizeof(T);
        V lanes = {};
        for (; j + kLanes <= n; j += kLanes) {
          V p, q;
          std::memcpy(&p, x + j, sizeof p);
          std::memcpy(&q, v + j, sizeof q);
          lanes += p * q;
        }
        for (int64_t k = 0; k < kLanes; ++k) sum += lanes[k];
      }
      for (; j < n; ++j) sum += times(x[j], v[j]);
      sum = times(factor, sum);
      for (j = 0; j < n; ++j) x[j] -= times(sum, conjugate(v[j]));
    }
  }
};

// A bidiagonal matrix on its way to a diagonal one, and the vectors that are rotated with it.
template <typename T>
struct Bidiagonal {
  using R = RealOf<T>;
  R *d, *e;  // e[k] is right of d[k]
  T *u, *v;  // rows: the vectors
  int64_t m, n;

  void turn_left(int64_t i, int64_t j, R c, R s) {
    run_variant<TurnRows<T>>(u + i * m, u + j * m, m, c, -s);
  }
  void turn_right(int64_t i, int64_t j, R c, R s) {
    run_variant<TurnRows<T>>(v + i * n, v + j * n, n, c, -s);
  }

  // d[i] is 0: rotations of rows take away what is right of it.
  void clear_row(int64_t i, int64_t last) {
    R f = e[i];
    e[i] = 0;
    for (int64_t j = i + 1; j <= last && f != 0; ++j) {
      const R r = std::hypot(d[j], f), c = d[j] / r, s = f / r;
      d[j] = r;
      turn_left(j, i, c, s);
      if (j == last) break;
      f = -s * e[j];
      e[j] *= c;
    }
  }

  // d[last] is 0: rotations of columns take away what is above it.
  void clear_column(int64_t first, int64_t last) {
    R f = e[last - 1];
    e[last - 1] = 0;
    for (int64_t j = last - 1; j >= first && f != 0; --j) {
      const R r = std::hypot(d[j], f), c = d[j] / r, s = f / r;
      d[j] = r;
      turn_right(j, last, c, s);
      if (j == first) break;
      f = -s * e[j - 1];
      e[j - 1] *= c;
    }
  }

  // A step of the QR iteration on B^T B with the shift of its last block, without forming it.
  void step(int64_t first, int64_t last) {
    const R above = last - 1 > first ? e[last - 2] : R(0);
    const R t11 = d[last - 1] * d[last - 1] + above * above, t12 = d[last - 1] * e[last - 1];
    const R t22 = d[last] * d[last] + e[last - 1] * e[last - 1];
    const R half = (t11 - t22) / 2, root = std::copysign(std::hypot(half, t12), half);
    const R shift = half + root == 0 ? t22 : t22 - t12 * (t12 / (half + root));
    R y = d[first] * d[first] - shift, z = d[first] * e[first];
    for (int64_t k = first; k < last; ++k) {
      R r = std::hypot(y, z), c = r == 0 ? R(1) : y / r, s = r == 0 ? R(0) : z / r;
      if (k > first) e[k - 1] = r;
      y = c * d[k] + s * e[k];
      e[k] = c * e[k] - s * d[k];
      z = s * d[k + 1];
      d[k + 1] *= c;
      turn_right(k, k + 1, c, s);
      r = std::hypot(y, z), c = r == 0 ? R(1) : y / r, s = r == 0 ? R(0) : z / r;
      d[k] = r;
      y = c * e[k] + s * d[k + 1];
      d[k + 1] = c * d[k + 1] - s * e[k];
      e[k] = y;
      turn_left(k, k + 1, c, s);
      if (k + 1 == last) break;
      z = s * e[k + 1];
      e[k + 1] *= c;
    }
  }

  bool iterate() {
    R norm = 0;
    for (int64_t k = 0; k < n; ++k) {
      norm = std::max(norm, std::abs(d[k]) + (k + 1 < n ? std::abs(e[k]) : R(0)));
    }
    const R least = std::max(kEpsilon<R> * norm, std::numeric_limits<R>::min());
    int64_t budget = 60 * n;
    for (int64_t last = n - 1; last > 0;) {
      int64_t first = last;
      for (; first > 0; --first) {
        R& f = e[first - 1];
        if (std::abs(f) <= kEpsilon<R> * (std::abs(d[first - 1]) + std::abs(d[first])) ||
            std::abs(f) <= std::numeric_limits<R>::min()) {
          f = 0;
          break;
        }
      }
      if (first == last) {
        --last;
        continue;
      }
      if (--budget < 0) return false;
      if (std::abs(d[last]) <= least) {
        d[last] = 0;
        clear_column(first, last);
        continue;
      }
      int64_t zero = first;
      while (zero < last && std::abs(d[zero]) > least) ++zero;
      if (zero < last) {
        d[zero] = 0;
        clear_row(zero, last);
      } else {
        step(first, last);
      }
    }
    return true;
  }
};

// a [m, n], m >= n, becomes bidiagonal (Golub & Van Loan 5.4.2): d, right of it e; u and v are the
// vectors of both sides, as rows. The reflections of columns stay below the diagonal, those of rows
// right of it.
template <typename T>
void to_bidiagonal(T* a, int64_t m, int64_t n, RealOf<T>* d, RealOf<T>* e, T* taus, T* u,
                   int64_t want, T* v) {
  T* of_rows = taus + n;
  for (int64_t k = 0; k < n; ++k) {
    T* head = a + k * n + k;
    taus[k] = reflect_column(head, head + n, m - k - 1, n);
    d[k] = real_part(*head);
    reflect_rows(head + 1, m - k, n - k - 1, n, head, n, conjugate(taus[k]));
    if (k + 1 == n) break;
    T* right = head + 1;
    for (int64_t j = 0; j < n - k - 1; ++j) right[j] = conjugate(right[j]);
    of_rows[k] = reflect_column(right, right + 1, n - k - 2, 1);
    e[k] = real_part(*right);
    *right = T(1);
    if (of_rows[k] == T(0)) continue;
    run_variant<ReflectEachRow<T>>(right + n, m - k - 1, n - k - 1, n, right, of_rows[k]);
  }
  T* q = u;
  form_q(a, m, n, taus, n, q, want);
  std::fill_n(v, n * n, T(0));
  for (int64_t i = 0; i < n; ++i) v[i * n + i] = T(1);
  for (int64_t k = n - 2; k >= 0; --k) {
    T* corner = v + (k + 1) * n + k + 1;
    reflect_rows(corner, n - k - 1, n - k - 1, n, a + k * n + k + 1, 1, of_rows[k]);
  }
}

// The work of one matrix: [n, m] the input and then the vectors in order, and what is around.
template <typename T>
struct SingularWork {
  T *matrix, *taus, *q, *u, *v, *right;
  RealOf<T>*d, *e;
  int64_t* place;
};

template <typename T>
void transpose(const T* from, int64_t rows, int64_t columns, T* to) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) to[j * rows + i] = from[i * columns + j];
  }
}

// a [m, n] with m >= n: rows of u [want, m] and v [n, n] are the singular vectors, s descending.
template <typename T>
bool singular(const T* a, int64_t m, int64_t n, bool adjointed, const SingularWork<T>& w,
              RealOf<T>* s, int64_t want) {
  using R = RealOf<T>;
  if (contents_of(a, m * n) != Contents::kFinite) {
    std::fill_n(s, n, kNanOf<T>);
    std::fill_n(w.u, want * m, T(kNanOf<T>));
    std::fill_n(w.v, n * n, T(kNanOf<T>));
    return true;
  }
  R largest = 0;
  for (int64_t i = 0; i < m * n; ++i) largest = std::max(largest, greatest_part(a[i]));
  const R scale = largest > 0 ? largest : R(1);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      w.matrix[i * n + j] = (adjointed ? conjugate(a[j * m + i]) : a[i * n + j]) / scale;
    }
  }
  to_bidiagonal(w.matrix, m, n, w.d, w.e, w.taus, w.q, want, w.right);
  transpose(w.q, m, want, w.u);
  transpose(w.right, n, n, w.v);
  const bool fine = Bidiagonal<T>{w.d, w.e, w.u, w.v, m, n}.iterate();
  std::iota(w.place, w.place + n, int64_t{0});
  std::stable_sort(w.place, w.place + n,
                   [&](int64_t x, int64_t y) { return std::abs(w.d[x]) > std::abs(w.d[y]); });
  std::copy_n(w.u, n * m, w.q);
  std::copy_n(w.v, n * n, w.right);
  for (int64_t j = 0; j < n; ++j) {
    const int64_t from = w.place[j];
    s[j] = std::abs(w.d[from]) * scale;
    std::copy_n(w.q + from * m, m, w.u + j * m);
    const R sign = std::signbit(w.d[from]) ? R(-1) : R(1);
    for (int64_t i = 0; i < n; ++i) w.v[j * n + i] = w.right[from * n + i] * sign;
  }
  return fine;
}

// Memory for the decompositions of a thread: matrices of m >= n, `want` left vectors.
template <typename T>
class SingularMemory {
 public:
  SingularMemory(int64_t m, int64_t n, int64_t want)
      : memory_((n * m + 2 * n + 2 * want * m + 2 * n * n) * int64_t{sizeof(T)}),
        order_(n * int64_t{sizeof(int64_t)}),
        reals_(3 * n * int64_t{sizeof(RealOf<T>)}) {
    T *matrix = memory_.template as<T>(), *taus = matrix + n * m, *q = taus + 2 * n;
    T *u = q + want * m, *v = u + want * m, *right = v + n * n;
    RealOf<T>* d = reals_.template as<RealOf<T>>();
    work = {matrix, taus, q, u, v, right, d, d + n, order_.template as<int64_t>()};
    values = d + 2 * n;
  }
  bool ok() const { return memory_.ok() && order_.ok() && reals_.ok(); }
  SingularWork<T> work;
  RealOf<T>* values;

 private:
  Block memory_, order_, reals_;
};

// Computes one matrix and reports what went wrong.
template <typename T>
void singular_or_report(const T* a, int64_t m, int64_t n, bool wide, const SingularWork<T>& work,
                        RealOf<T>* s, int64_t want, int64_t b, Failures* failures) {
  if (contents_of(a, m * n) == Contents::kNan) failures->report(b, Failures::kNotFinite);
  if (!singular(a, m, n, wide, work, s, want)) failures->report(b, n);
}

template <typename T, bool kVectors>
const char* svd(const RoutineContext& c) {
  using R = RealOf<T>;
  const int64_t batch = c.n[0], rows = c.n[1], columns = c.n[2];
  if (by_lapack(std::min(rows, columns), Least<T, kVectors>::kSingular)) {
    return lapack_svd<T>(c, kVectors);
  }
  const bool full = kVectors && c.n[3] != 0, wide = rows < columns;
  const int64_t m = std::max(rows, columns), n = std::min(rows, columns), want = full ? m : n;
  Failures failures;
  parallel(batch, grain_of(10 * m * n * n), [&](int64_t begin, int64_t end) {
    const SingularMemory<T> memory(m, n, want);
    if (!memory.ok()) return failures.no_memory();
    for (int64_t b = begin; b < end; ++b) {
      const T* a = pointer<T>(c, 0) + b * m * n;
      R* s = pointer<R>(c, kVectors ? 2 : 1) + b * n;
      singular_or_report(a, m, n, wide, memory.work, s, want, b, &failures);
      if (!kVectors) continue;
      // A = U S V^H; of the adjoint: A = V S U^H.
      const T *u = memory.work.u, *v = memory.work.v;
      const T *left = wide ? v : u, *right = wide ? u : v;
      const int64_t width = wide ? n : want, height = wide ? want : n;
      T* out_u = pointer<T>(c, 1) + b * rows * width;
      T* out_v = pointer<T>(c, 3) + b * height * columns;
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < width; ++j) out_u[i * width + j] = left[j * rows + i];
      }
      for (int64_t i = 0; i < height * columns; ++i) out_v[i] = conjugate(right[i]);
    }
  });
  return failures.text(c, "linalg.svd", batch, kSingularValuesUnmet);
}

// ---- least squares

// x [columns of A, right sides] = V S^+ U^H b, with singular values up to `limit` counted as 0.
template <typename T>
int64_t shortest_solution(const SingularMemory<T>& memory, const RoutineContext& c, int64_t b,
                          RealOf<T> limit) {
  const int64_t m = c.n[1], n = c.n[2], columns = c.n[3], least = std::min(m, n);
  const bool wide = m < n;
  const T *u = wide ? memory.work.v : memory.work.u, *v = wide ? memory.work.u : memory.work.v;
  const T* right = pointer<T>(c, 1) + b * m * columns;
  T *x = pointer<T>(c, 2) + b * n * columns, *sums = memory.work.q;
  std::fill_n(x, n * columns, T(0));
  int64_t rank = 0;
  for (int64_t k = 0; k < least && memory.values[k] > limit; ++k, ++rank) {
    for (int64_t j = 0; j < columns; ++j) {
      T sum = T(0);
      for (int64_t i = 0; i < m; ++i) {
        sum += times(conjugate(u[k * m + i]), right[i * columns + j]);
      }
      sums[0] = sum / memory.values[k];
      for (int64_t i = 0; i < n; ++i) x[i * columns + j] += times(v[k * n + i], sums[0]);
    }
  }
  return rank;
}

// By singular values for every driver, which only defines the threshold of 0.
template <typename T>
const char* by_singular_values(const RoutineContext& c, const std::vector<int64_t>& matrices) {
  using R = RealOf<T>;
  const int64_t rows = c.n[1], columns = c.n[2];
  const int64_t m = std::max(rows, columns), n = std::min(rows, columns);
  const bool full_rank = c.n[4] == kGels;
  Failures failures;
  parallel(std::ssize(matrices), grain_of(10 * m * n * n), [&](int64_t begin, int64_t end) {
    const SingularMemory<T> memory(m, n, n);
    if (!memory.ok()) return failures.no_memory();
    for (int64_t index = begin; index < end; ++index) {
      const int64_t b = matrices[index];
      const T* a = pointer<T>(c, 0) + b * m * n;
      singular_or_report(a, m, n, rows < columns, memory.work, memory.values, n, b, &failures);
      const R greatest = n ? memory.values[0] : R(0);
      const R limit = full_rank ? R(0) : static_cast<R>(c.s[0].d) * greatest;
      const int64_t rank = shortest_solution(memory, c, b, limit);
      if (full_rank && greatest > 0 && rank < n) failures.report(b, rank + 1);
      pointer<int64_t>(c, 3)[b] = rank;
      std::copy_n(memory.values, n, pointer<R>(c, 4) + b * n);
    }
  });
  return failures.text(c, kLeastSquares, c.n[0], kRankUnmet);
}

// Most matrices are of full rank and solved without a rule of rank.
template <typename T>
const char* least_squares(const RoutineContext& c) {
  std::vector<int64_t> matrices;
  if (const char* error = solve_full_rank<T>(c, &matrices)) return error;
  if (matrices.empty()) return nullptr;
  const bool library = by_lapack(std::min(c.n[1], c.n[2]), 1) && c.n[3];
  return library ? lapack_least_squares<T>(c, matrices) : by_singular_values<T>(c, matrices);
}

template <typename T>
FB_ONCE void add_routines(RoutineList* list, const std::string& dtype) {
  using C = std::complex<RealOf<T>>;
  list->push_back({"eigh_" + dtype, eigh<T, true>});
  list->push_back({"eigvalsh_" + dtype, eigh<T, false>});
  list->push_back({"eig_" + dtype, eig<T, C, true>});
  list->push_back({"eigvals_" + dtype, eig<T, C, false>});
  list->push_back({"svd_" + dtype, svd<T, true>});
  list->push_back({"svdvals_" + dtype, svd<T, false>});
  list->push_back({"least_squares_" + dtype, least_squares<T>});
}

FB_ONCE void add_eigen_routines(RoutineList* list) {
  add_routines<float>(list, "f32");
  add_routines<double>(list, "f64");
  add_routines<std::complex<float>>(list, "c64");
  add_routines<std::complex<double>>(list, "c128");
}

const RoutineRegistration registration{add_eigen_routines};

}  // namespace

}  // namespace fb
