// Eigenvalues and singular values by LAPACK; see routines_lapack.cpp.
#include "linalg/routines_lapack.h"

namespace fb {
namespace {

template <typename T>
constexpr bool kIsReal = std::is_arithmetic_v<T>;

// ---- Hermitian eigenvalues

template <typename T>
struct HermitianSizes {
  Int work, reals, integers;
};

template <typename T>
Int call_syevd(char job, Int n, T* a, RealOf<T>* values, T* work, Int length, RealOf<T>* reals,
               Int real_length, Int* integers, Int integer_length) {
  const char lower = 'L';
  Int info = 0;
  if constexpr (kIsReal<T>) {
    lapack<T>(Lapack::kSyevd, &job, &lower, &n, a, &n, values, work, &length, integers,
              &integer_length, &info);
  } else {
    lapack<T>(Lapack::kSyevd, &job, &lower, &n, a, &n, values, work, &length, reals, &real_length,
              integers, &integer_length, &info);
  }
  return info;
}

template <typename T>
HermitianSizes<T> sizes_of_syevd(char job, Int n) {
  T work{}, a{};
  RealOf<T> reals{}, values{};
  Int integers = 0;
  call_syevd<T>(job, n, &a, &values, &work, kQuery, &reals, kQuery, &integers, kQuery);
  return {size_from(work), size_from(reals), integers + 64};
}

// ---- general eigenvalues

template <typename T>
Int call_geev(char job, Int n, T* a, RealOf<T>* values, T* vectors, T* work, Int length,
              RealOf<T>* reals) {
  const char no = 'N';
  const Int one = 1;
  Int info = 0;
  if constexpr (kIsReal<T>) {
    lapack<T>(Lapack::kGeev, &no, &job, &n, a, &n, values, values + n, static_cast<T*>(nullptr),
              &one, vectors, &n, work, &length, &info);
  } else {
    lapack<T>(Lapack::kGeev, &no, &job, &n, a, &n, reinterpret_cast<T*>(values),
              static_cast<T*>(nullptr), &one, vectors, &n, work, &length, reals, &info);
  }
  return info;
}

// Eigenvalues as LAPACK gives them: of real matrices real and imaginary parts apart.
template <typename T, typename C>
void copy_values(const RealOf<T>* values, Int n, C* out) {
  if constexpr (kIsReal<T>) {
    for (Int i = 0; i < n; ++i) out[i] = C(values[i], values[n + i]);
  } else {
    std::copy_n(reinterpret_cast<const C*>(values), n, out);
  }
}

// Vectors column by column; of real matrices pairs of columns are the parts of conjugate vectors.
template <typename T, typename C>
void copy_vectors(const RealOf<T>* values, const T* vectors, Int n, C* out) {
  if constexpr (!kIsReal<T>) {
    transpose(vectors, n, n, out);
    return;
  }
  for (Int j = 0; j < n; ++j) {
    const T* x = vectors + j * n;
    if (values[n + j] == 0) {
      for (Int i = 0; i < n; ++i) out[i * n + j] = C(std::real(x[i]));
    } else if (values[n + j] > 0 && j + 1 < n) {
      for (Int i = 0; i < n; ++i) {
        const C value(std::real(x[i]), std::real(x[n + i]));
        out[i * n + j] = value;
        out[i * n + j + 1] = std::conj(value);
      }
      ++j;
    }
  }
}

// ---- singular values

template <typename T>
Int call_gesdd(char job, Int m, Int n, T* a, RealOf<T>* s, T* u, Int u_rows, T* vt, Int vt_rows,
               T* work, Int length, RealOf<T>* reals, Int* integers) {
  Int info = 0;
  if constexpr (kIsReal<T>) {
    lapack<T>(Lapack::kGesdd, &job, &m, &n, a, &m, s, u, &u_rows, vt, &vt_rows, work, &length,
              integers, &info);
  } else {
    lapack<T>(Lapack::kGesdd, &job, &m, &n, a, &m, s, u, &u_rows, vt, &vt_rows, work, &length,
              reals, integers, &info);
  }
  return info;
}

}  // namespace

template <typename T>
const char* lapack_eigh(const RoutineContext& c, bool vectors) {
  using R = RealOf<T>;
  const Int batch = c.n[0], n = c.n[1];
  const char job = vectors ? 'V' : 'N';
  const HermitianSizes<T> sizes = sizes_of_syevd<T>(job, n);
  Failures failures;
  over_matrices(batch, 4 * n * n * n,
                {bytes<T>(n * n), bytes<R>(n), bytes<T>(sizes.work), bytes<R>(sizes.reals),
                 bytes<Int>(sizes.integers)},
                &failures, [&](const Room& room, int64_t b) {
                  const T* from = pointer<T>(c, 0) + b * n * n;
                  T* a = room.part<T>(0);
                  R* values = room.part<R>(1);
                  const Contents contents = contents_of_triangle(from, n);
                  if (contents == Contents::kFinite) {
                    transpose(from, n, n, a);
                    const Int info = call_syevd<T>(job, n, a, values, room.part<T>(2), sizes.work,
                                                   room.part<R>(3), sizes.reals, room.part<Int>(4),
                                                   sizes.integers);
                    if (info) failures.report(b, info);
                  } else {
                    if (contents == Contents::kNan && n > 2) failures.report(b, n - 2 + vectors);
                    std::fill_n(values, n, kNanOf<T>);
                    std::fill_n(a, n * n, T(kNanOf<T>));
                  }
                  std::copy_n(values, n, pointer<R>(c, 1) + b * n);
                  if (vectors) transpose(a, n, n, pointer<T>(c, 2) + b * n * n);
                });
  return failures.text(c, "linalg.eigh", batch, kEigenvaluesUnmet);
}

template <typename T>
const char* lapack_eig(const RoutineContext& c, bool vectors) {
  using R = RealOf<T>;
  using C = std::complex<R>;
  const Int batch = c.n[0], n = c.n[1];
  const char job = vectors ? 'V' : 'N';
  T asked{}, nothing{};
  R reals[2] = {};
  call_geev<T>(job, n, &nothing, reals, &nothing, &asked, kQuery, reals);
  const Int length = size_from(asked);
  std::atomic<bool> finite{true};
  Failures failures;
  over_matrices(batch, 10 * n * n * n,
                {bytes<T>(n * n), bytes<R>(2 * n), bytes<T>(vectors ? n * n : 1), bytes<T>(length),
                 bytes<R>(2 * n)},
                &failures, [&](const Room& room, int64_t b) {
                  const T* from = pointer<T>(c, 0) + b * n * n;
                  C* out = pointer<C>(c, 1) + b * n;
                  if (contents_of(from, n * n) != Contents::kFinite) {
                    std::fill_n(out, n, C(kNanOf<T>, kNanOf<T>));
                    finite = false;
                    return;
                  }
                  T* a = room.part<T>(0);
                  R* values = room.part<R>(1);
                  transpose(from, n, n, a);
                  const Int info = call_geev<T>(job, n, a, values, room.part<T>(2), room.part<T>(3),
                                                length, room.part<R>(4));
                  if (info) failures.report(b, info);
                  copy_values<T>(values, n, out);
                  if (!vectors) return;
                  copy_vectors<T>(values, room.part<T>(2), n, pointer<C>(c, 2) + b * n * n);
                });
  if (vectors && !finite) return kNoEigenvectors;
  return failures.text(c, "linalg.eig", batch, kEigenvaluesUnmet);
}

// Row by row A is the transpose of what LAPACK sees, U S V^H its own decomposition: A is
// conj(V) S U^T, whose layout in memory is that of the result.
template <typename T>
const char* lapack_svd(const RoutineContext& c, bool vectors) {
  using R = RealOf<T>;
  const Int batch = c.n[0], rows = c.n[1], columns = c.n[2], least = std::min(rows, columns);
  const Int most = std::max(rows, columns);
  const bool full = vectors && c.n[3];
  const Int width = full ? rows : least, height = full ? columns : least;
  const char job = !vectors ? 'N' : full ? 'A' : 'S';
  T asked{}, nothing{};
  R nil{};
  Int none = 0;
  call_gesdd<T>(job, columns, rows, &nothing, &nil, &nothing, columns, &nothing, width, &asked,
                kQuery, &nil, &none);
  const Int length = size_from(asked);
  const Int reals =
      std::max(5 * least * least + 7 * least, 2 * most * least + 2 * least * least + least);
  Failures failures;
  over_matrices(batch, 10 * most * least * least,
                {bytes<T>(rows * columns), bytes<R>(least),
                 bytes<T>(vectors ? columns * height : 1), bytes<T>(vectors ? width * rows : 1),
                 bytes<T>(length), bytes<R>(kIsReal<T> ? 1 : reals), bytes<Int>(8 * least)},
                &failures, [&](const Room& room, int64_t b) {
                  const T* from = pointer<T>(c, 0) + b * rows * columns;
                  R* s = room.part<R>(1);
                  T *right = room.part<T>(2), *left = room.part<T>(3);
                  const Contents contents = contents_of(from, rows * columns);
                  if (contents == Contents::kFinite) {
                    T* a = room.part<T>(0);
                    std::copy_n(from, rows * columns, a);
                    const Int info =
                        call_gesdd<T>(job, columns, rows, a, s, right, columns, left, width,
                                      room.part<T>(4), length, room.part<R>(5), room.part<Int>(6));
                    if (info) failures.report(b, info);
                  } else {
                    if (contents == Contents::kNan) failures.report(b, Failures::kNotFinite);
                    std::fill_n(s, least, kNanOf<T>);
                    if (vectors) std::fill_n(right, columns * height, T(kNanOf<T>));
                    if (vectors) std::fill_n(left, width * rows, T(kNanOf<T>));
                  }
                  std::copy_n(s, least, pointer<R>(c, vectors ? 2 : 1) + b * least);
                  if (!vectors) return;
                  std::copy_n(left, rows * width, pointer<T>(c, 1) + b * rows * width);
                  std::copy_n(right, height * columns, pointer<T>(c, 3) + b * height * columns);
                });
  return failures.text(c, "linalg.svd", batch, kSingularValuesUnmet);
}

#define FB_INSTANTIATE(T)                                           \
  template const char* lapack_eigh<T>(const RoutineContext&, bool); \
  template const char* lapack_eig<T>(const RoutineContext&, bool);  \
  template const char* lapack_svd<T>(const RoutineContext&, bool);
FB_INSTANTIATE(float)
FB_INSTANTIATE(double)
FB_INSTANTIATE(std::complex<float>)
FB_INSTANTIATE(std::complex<double>)

}  // namespace fb
