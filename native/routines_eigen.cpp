// Eigenvalues and singular values of batches of small and middle matrices.
//
// Hermitian matrices: Householder's tridiagonal form, then the implicit QL iteration (Golub & Van
// Loan 8.3); general ones: the Hessenberg form and the shifted QR iteration in complex arithmetic
// (7.4, 7.5), vectors by back substitution; singular values: one-sided Jacobi rotations (8.6.3),
// which find small ones to full relative accuracy. One thread computes a matrix.
#include <algorithm>
#include <limits>
#include <numeric>

#include "linear.h"

namespace fb {
namespace {

constexpr const char* kNoConvergence =
    "the algorithm failed to converge\nhint: does the matrix hold inf or nan?";

template <typename R>
constexpr R kEpsilon = std::numeric_limits<R>::epsilon();

// ---- Hermitian eigenvalues

// a (lower triangle given) becomes the unitary Q with Q^H A Q tridiagonal: diagonal d, below it e.
template <typename T>
void to_tridiagonal(T* a, int64_t n, RealOf<T>* d, RealOf<T>* e, T* work) {
  using R = RealOf<T>;
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
    // A := H^H A H with H = I - tau v v^H.
    T* part = a + (k + 1) * n + k + 1;
    for (int64_t i = 0; i < size; ++i) v[i] = i ? head[i * n] : T(1);
    T inner = T(0);
    for (int64_t i = 0; i < size; ++i) {
      T sum = T(0);
      for (int64_t j = 0; j < size; ++j) sum += times(part[i * n + j], v[j]);
      w[i] = times(tau, sum);
      inner += times(conjugate(v[i]), w[i]);
    }
    const T half = times(conjugate(tau), inner) * R(0.5);
    for (int64_t i = 0; i < size; ++i) w[i] -= times(half, v[i]);
    for (int64_t i = 0; i < size; ++i) {
      for (int64_t j = 0; j < size; ++j) {
        part[i * n + j] -= times(w[i], conjugate(v[j])) + times(v[i], conjugate(w[j]));
      }
    }
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

// The eigenvalues of a tridiagonal matrix; q's columns are turned along.
template <typename T>
bool iterate_ql(RealOf<T>* d, RealOf<T>* e, T* q, int64_t n) {
  using R = RealOf<T>;
  if (n) e[n - 1] = 0;
  for (int64_t l = 0; l < n; ++l) {
    for (int count = 0;; ++count) {
      int64_t m = l;
      for (; m + 1 < n; ++m) {
        if (std::abs(e[m]) <= kEpsilon<R> * (std::abs(d[m]) + std::abs(d[m + 1]))) break;
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
        for (int64_t k = 0; k < n; ++k) {
          T *left = q + k * n + i, *right = left + 1;
          const T old = *right;
          *right = *left * s + old * c;
          *left = *left * c - old * s;
        }
      }
      if (r == 0 && i >= l) continue;
      d[l] -= p;
      e[l] = g;
      e[m] = 0;
    }
  }
  return true;
}

template <typename T>
const char* eigh(const RoutineContext& c) {
  using R = RealOf<T>;
  const int64_t batch = c.n[0], n = c.n[1];
  std::atomic<const char*> error{nullptr};
  parallel(batch, grain_of(4 * n * n * n), [&](int64_t begin, int64_t end) {
    Block memory((n * n + 3 * n) * int64_t{sizeof(T)}), reals(2 * n * int64_t{sizeof(R)});
    Block matrix(n * n * int64_t{sizeof(T)}), order(n * int64_t{sizeof(int64_t)});
    if (!memory.ok() || !reals.ok() || !matrix.ok() || !order.ok()) {
      error = kOutOfMemory;
      return;
    }
    T* q = matrix.as<T>();
    R *d = reals.as<R>(), *e = d + n;
    int64_t* place = order.as<int64_t>();
    for (int64_t b = begin; b < end; ++b) {
      std::copy_n(pointer<T>(c, 0) + b * n * n, n * n, q);
      to_tridiagonal(q, n, d, e, memory.as<T>());
      if (!iterate_ql(d, e, q, n)) error = kNoConvergence;
      std::iota(place, place + n, int64_t{0});
      std::stable_sort(place, place + n, [&](int64_t x, int64_t y) { return d[x] < d[y]; });
      R* values = pointer<R>(c, 1) + b * n;
      T* vectors = pointer<T>(c, 2) + b * n * n;
      for (int64_t j = 0; j < n; ++j) {
        values[j] = d[place[j]];
        for (int64_t i = 0; i < n; ++i) vectors[i * n + j] = q[i * n + place[j]];
      }
    }
  });
  return error;
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

template <typename T, typename C>
const char* eig(const RoutineContext& c) {
  const int64_t batch = c.n[0], n = c.n[1];
  std::atomic<const char*> error{nullptr};
  parallel(batch, grain_of(10 * n * n * n), [&](int64_t begin, int64_t end) {
    Block memory((2 * n * n + n) * int64_t{sizeof(C)});
    if (!memory.ok()) {
      error = kOutOfMemory;
      return;
    }
    C *h = memory.as<C>(), *z = h + n * n, *work = z + n * n;
    for (int64_t b = begin; b < end; ++b) {
      const T* a = pointer<T>(c, 0) + b * n * n;
      for (int64_t i = 0; i < n * n; ++i) h[i] = C(a[i]);
      to_hessenberg(h, z, n, work);
      if (!iterate_qr(h, z, n)) error = kNoConvergence;
      C* values = pointer<C>(c, 1) + b * n;
      for (int64_t i = 0; i < n; ++i) values[i] = h[i * n + i];
      triangular_vectors(h, z, n, work, pointer<C>(c, 2) + b * n * n);
    }
  });
  return error;
}

// ---- singular values

// Makes the columns of u [rows: n vectors of length m] orthogonal; v takes part in the rotations.
template <typename T>
bool orthogonalise(T* u, T* v, int64_t m, int64_t n) {
  using R = RealOf<T>;
  for (int sweep = 0; sweep < 60; ++sweep) {
    bool turned = false;
    for (int64_t p = 0; p < n; ++p) {
      for (int64_t q = p + 1; q < n; ++q) {
        T *x = u + p * m, *y = u + q * m;
        R alpha = 0, beta = 0;
        T gamma = T(0);
        for (int64_t i = 0; i < m; ++i) {
          alpha += square(x[i]);
          beta += square(y[i]);
          gamma += times(conjugate(x[i]), y[i]);
        }
        const R size = std::abs(gamma);
        if (!(size > kEpsilon<R> * std::sqrt(alpha) * std::sqrt(beta)) || size == 0) continue;
        turned = true;
        const R zeta = (beta - alpha) / (2 * size);
        const R t = std::copysign(R(1), zeta) / (std::abs(zeta) + std::hypot(R(1), zeta));
        const R cosine = 1 / std::hypot(R(1), t), sine = cosine * t;
        const T phase = gamma / size;
        const auto turn = [&](T* a, T* b, int64_t count) {
          for (int64_t i = 0; i < count; ++i) {
            const T left = a[i], right = times(conjugate(phase), b[i]);
            a[i] = left * cosine - right * sine;
            b[i] = left * sine + right * cosine;
          }
        };
        turn(x, y, m);
        turn(v + p * n, v + q * n, n);
      }
    }
    if (!turned) return true;
  }
  return false;
}

// Completes `have` orthonormal rows of length m to `want` by unit vectors made orthogonal.
template <typename T>
void complete_basis(T* rows, int64_t m, int64_t have, int64_t want) {
  using R = RealOf<T>;
  for (int64_t k = have; k < want; ++k) {
    T* row = rows + k * m;
    for (int64_t unit = 0; unit < m; ++unit) {
      std::fill_n(row, m, T(0));
      row[unit] = T(1);
      R norm = 0;
      for (int pass = 0; pass < 2; ++pass) {
        for (int64_t j = 0; j < k; ++j) {
          const T* other = rows + j * m;
          T sum = T(0);
          for (int64_t i = 0; i < m; ++i) sum += times(conjugate(other[i]), row[i]);
          subtract_scaled(row, other, sum, m);
        }
        norm = 0;
        for (int64_t i = 0; i < m; ++i) norm += square(row[i]);
        norm = std::sqrt(norm);
        if (pass == 0 && norm < R(0.5) / std::sqrt(static_cast<R>(m))) break;
        for (int64_t i = 0; i < m; ++i) row[i] /= norm;
      }
      if (norm > R(0.9)) break;
    }
  }
}

// a [m, n] with m >= n: rows of u [m or n, m] and v [n, n] are the singular vectors, s descending.
template <typename T>
bool singular(const T* a, int64_t m, int64_t n, bool adjointed, T* work, T* u, RealOf<T>* s, T* v,
              int64_t want, int64_t* place) {
  using R = RealOf<T>;
  T *columns = work, *right = work + n * m;
  R largest = 0;
  for (int64_t i = 0; i < m * n; ++i) largest = std::max(largest, size1(a[i]));
  const R scale = largest > 0 && std::isfinite(largest) ? largest : R(1);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < m; ++i) {
      columns[j * m + i] = (adjointed ? conjugate(a[j * m + i]) : a[i * n + j]) / scale;
    }
  }
  std::fill_n(right, n * n, T(0));
  for (int64_t j = 0; j < n; ++j) right[j * n + j] = T(1);
  const bool fine = orthogonalise(columns, right, m, n);
  R* norms = reinterpret_cast<R*>(right + n * n);
  for (int64_t j = 0; j < n; ++j) {
    R sum = 0;
    for (int64_t i = 0; i < m; ++i) sum += square(columns[j * m + i]);
    norms[j] = std::sqrt(sum);
  }
  std::iota(place, place + n, int64_t{0});
  std::stable_sort(place, place + n, [&](int64_t x, int64_t y) { return norms[x] > norms[y]; });
  int64_t rank = 0;
  for (int64_t j = 0; j < n; ++j) {
    const R norm = norms[place[j]];
    s[j] = norm * scale;
    std::copy_n(right + place[j] * n, n, v + j * n);
    if (!(norm > std::numeric_limits<R>::min())) continue;
    rank = j + 1;
    for (int64_t i = 0; i < m; ++i) u[j * m + i] = columns[place[j] * m + i] / norm;
  }
  complete_basis(u, m, rank, want);
  return fine;
}

template <typename T>
const char* svd(const RoutineContext& c) {
  using R = RealOf<T>;
  const int64_t batch = c.n[0], rows = c.n[1], columns = c.n[2];
  const bool full = c.n[3] != 0, wide = rows < columns;
  const int64_t m = std::max(rows, columns), n = std::min(rows, columns), want = full ? m : n;
  std::atomic<const char*> error{nullptr};
  parallel(batch, grain_of(10 * m * n * n), [&](int64_t begin, int64_t end) {
    Block memory((n * m + n * n + n + want * m + n * n) * int64_t{sizeof(T)});
    Block order(n * int64_t{sizeof(int64_t)});
    if (!memory.ok() || !order.ok()) {
      error = kOutOfMemory;
      return;
    }
    T *work = memory.as<T>(), *u = work + n * m + n * n + n, *v = u + want * m;
    for (int64_t b = begin; b < end; ++b) {
      const T* a = pointer<T>(c, 0) + b * m * n;
      R* s = pointer<R>(c, 2) + b * n;
      if (!singular(a, m, n, wide, work, u, s, v, want, order.as<int64_t>())) {
        error = kNoConvergence;
      }
      // A = U S V^H; of the adjoint: A = V S U^H.
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
  return error;
}

template <typename T>
void add_routines(RoutineList* list, const std::string& dtype) {
  using C = std::complex<RealOf<T>>;
  list->push_back({"eigh_" + dtype, eigh<T>});
  list->push_back({"eig_" + dtype, eig<T, C>});
  list->push_back({"svd_" + dtype, svd<T>});
}

}  // namespace

void add_eigen_routines(RoutineList* list) {
  add_routines<float>(list, "f32");
  add_routines<double>(list, "f64");
  add_routines<std::complex<float>>(list, "c64");
  add_routines<std::complex<double>>(list, "c128");
}

}  // namespace fb
