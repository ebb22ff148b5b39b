// Least squares: matrices of full rank by a QR decomposition, the others by LAPACK's drivers.
//
// A driver's rank test (column pivoting, condition estimates) costs more than the solution. A
// matrix whose condition number is far below the driver's threshold passes it, and then the
// solution is unique, however it is computed (Golub & Van Loan, Matrix Computations, 4th
// ed., 5.3.2).
#include "linalg/routines_lapack.h"

namespace fb {
namespace {

template <typename T>
constexpr bool kIsReal = std::is_arithmetic_v<T>;

// Sizes from which LAPACK decomposes, as in routines_linear.cpp.
template <typename T>
constexpr int64_t kLeastBlocked = by_type<T>(160, 128, 96);

// ---- matrices of full rank

// x [n, width] = R^-1 x for R's upper triangle in rows of `row` elements. The first n columns of x
// are those of a unit matrix.
template <typename T>
struct SolveUpper {
  static FB_INLINE void run(const T* r, int64_t row, int64_t n, T* x, int64_t width) {
    for (int64_t i = n - 1; i >= 0; --i) {
      T* to = x + i * width;
      for (int64_t j = i + 1; j < n; ++j) {
        const T factor = r[i * row + j];
        const T* from = x + j * width;
        for (int64_t k = j; k < width; ++k) to[k] -= times(factor, from[k]);
      }
      const RealOf<T> pivot = real_part(r[i * row + i]);
      for (int64_t k = i; k < width; ++k) to[k] /= pivot;
    }
  }
};

template <typename T>
double square_norm(const T* upper, int64_t row, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = i; j < n; ++j) {
      const std::complex<double> x = upper[i * row + j];
      sum += x.real() * x.real() + x.imag() * x.imag();
    }
  }
  return sum;
}

template <typename T>
struct FullRank {
  Int m, n, columns;
  double limit;  // of the inverse condition; at most it, a matrix may not be of full rank

  int64_t width() const { return n + columns; }

  // By bounds of the squared norms of the matrix and its inverse. False for NaN.
  bool holds(double matrix, double inverse) const {
    return std::sqrt(matrix) * std::sqrt(inverse) * limit < 0.25;
  }

  // [A B], row by row, becomes [R Q^H B]; x [n, width] becomes [R^-1 solution].
  bool solve(const T* a, const T* b, T* both, T* x) const {
    const int64_t row = width();
    for (int64_t i = 0; i < m; ++i) {
      std::copy_n(a + i * n, n, both + i * row);
      std::copy_n(b + i * columns, columns, both + i * row + n);
    }
    for (int64_t k = 0; k < n; ++k) {
      T* head = both + k * row + k;
      const T tau = reflect_column(head, head + row, m - k - 1, row);
      reflect_rows(head + 1, m - k, row - k - 1, row, head, row, conjugate(tau));
    }
    for (int64_t i = 0; i < n; ++i) {
      std::fill_n(x + i * row, n, T(0));
      x[i * row + i] = T(1);
      std::copy_n(both + i * row + n, columns, x + i * row + n);
    }
    run_variant<SolveUpper<T>>(both, row, n, x, row);
    return holds(square_norm(both, row, n), square_norm(x, row, n));
  }
};

// The same by LAPACK, column by column: `a` [m, n], `x` [m, columns] and the inverse of R.
template <typename T>
struct BlockedFullRank : FullRank<T> {
  Int length = 0;

  explicit BlockedFullRank(const FullRank<T>& problem) : FullRank<T>(problem) {
    T asked[2] = {};
    call(asked, asked, asked, asked, asked + 1, kQuery);
    length = std::max(size_from(asked[0]), size_from(asked[1]));
  }

  // `reflected`: the workspace of the second call, the same as `work` where this is no query.
  void call(T* a, T* taus, T* x, T* work, T* reflected, Int room) const {
    const char left = 'L', adjointed = kIsReal<T> ? 'T' : 'C';
    Int info = 0;
    lapack<T>(Lapack::kGeqrf, &this->m, &this->n, a, &this->m, taus, work, &room, &info);
    lapack<T>(Lapack::kOrmqr, &left, &adjointed, &this->m, &this->columns, &this->n, a, &this->m,
              taus, x, &this->m, reflected, &room, &info);
  }

  bool solve(T* a, T* taus, T* x, T* work, T* inverse, double* sums) const {
    const Int m = this->m, n = this->n;
    call(a, taus, x, work, work, length);
    // Column by column the triangle is the lower one of what is read row by row.
    for (Int j = 0; j < n; ++j) {
      std::copy_n(a + j * m, j + 1, inverse + j * n);
      std::fill_n(inverse + j * n + j + 1, n - j - 1, T(0));
    }
    const double norm = norm_bound(inverse, sums);
    const char left = 'L', upper = 'U', plain = 'N';
    const T one(1);
    lapack<T>(Lapack::kTrsm, &left, &upper, &plain, &plain, &n, &this->columns, &one, a, &m, x, &m);
    Int info = 0;
    lapack<T>(Lapack::kTrtri, &upper, &plain, &n, inverse, &n, &info);
    return info == 0 && this->holds(norm, norm_bound(inverse, sums));
  }

  // A bound of a triangle's squared 2-norm: its squared Frobenius norm, or the product of its
  // largest sums of a row and of a column, which is smaller for large matrices of small condition.
  // `sums` [n]: what the rows sum up to.
  double norm_bound(const T* x, double* sums) const {
    double squares = 0, columns = 0;
    std::fill_n(sums, this->n, 0.0);
    for (Int j = 0; j < this->n; ++j) {
      double column = 0;
      for (Int i = 0; i <= j; ++i) {
        const double size = std::abs(x[j * this->n + i]);
        squares += size * size;
        column += size;
        sums[i] += size;
      }
      columns = std::max(columns, column);
    }
    const double product = columns * *std::max_element(sums, sums + this->n);
    return product < squares ? product : squares;  // squares where one is NaN
  }
};

// A flag per matrix of a batch that is solved; threads write to elements of their own.
using Solved = std::vector<uint8_t>;

template <typename T>
void solve_rows(const RoutineContext& c, const FullRank<T>& problem, Solved* solved,
                Failures* failures) {
  const Int m = problem.m, n = problem.n, columns = problem.columns, width = problem.width();
  parallel(c.n[0], grain_of(2 * m * n * width), [&](int64_t begin, int64_t end) {
    const Room room({bytes<T>(m * width), bytes<T>(n * width)});
    if (!room.ok()) return failures->no_memory();
    T *both = room.part<T>(0), *x = room.part<T>(1);
    for (int64_t b = begin; b < end; ++b) {
      const T *a = pointer<T>(c, 0) + b * m * n, *right = pointer<T>(c, 1) + b * m * columns;
      if (!problem.solve(a, right, both, x)) continue;
      T* out = pointer<T>(c, 2) + b * n * columns;
      for (Int i = 0; i < n; ++i) std::copy_n(x + i * width + n, columns, out + i * columns);
      (*solved)[b] = contents_of(out, n * columns) == Contents::kFinite;
    }
  });
}

template <typename T>
void solve_columns(const RoutineContext& c, const BlockedFullRank<T>& problem, Solved* solved,
                   Failures* failures) {
  const Int m = problem.m, n = problem.n, columns = problem.columns;
  over_matrices(c.n[0], 2 * m * n * n,
                {bytes<T>(m * n), bytes<T>(n), bytes<T>(m * columns), bytes<T>(problem.length),
                 bytes<T>(n * n), bytes<double>(n)},
                failures, [&](const Room& room, int64_t b) {
                  T *a = room.part<T>(0), *x = room.part<T>(2);
                  const T* matrix = pointer<T>(c, 0) + b * m * n;
                  if (contents_of(matrix, m * n) != Contents::kFinite) return;
                  transpose(matrix, m, n, a);
                  transpose(pointer<T>(c, 1) + b * m * columns, m, columns, x);
                  if (!problem.solve(a, room.part<T>(1), x, room.part<T>(3), room.part<T>(4),
                                     room.part<double>(5))) {
                    return;
                  }
                  T* out = pointer<T>(c, 2) + b * n * columns;
                  for (Int i = 0; i < n; ++i) {
                    for (Int j = 0; j < columns; ++j) out[i * columns + j] = x[j * m + i];
                  }
                  (*solved)[b] = contents_of(out, n * columns) == Contents::kFinite;
                });
}

// ---- by LAPACK's drivers

template <typename T>
struct LeastSquares {
  Int m, n, columns, rows;  // `rows`: of the right side, max(m, n)
  Driver driver;
  RealOf<T> limit;

  Int call(T* a, T* b, RealOf<T>* values, Int* rank, T* work, Int length, RealOf<T>* reals,
           Int* integers) const {
    Int info = 0;
    const char plain = 'N';
    const auto with = [&](Lapack which, auto*... rest) {
      lapack<T>(which, &m, &n, &columns, a, &m, b, &rows, rest..., &info);
    };
    if (driver == kGels) {
      lapack<T>(Lapack::kGels, &plain, &m, &n, &columns, a, &m, b, &rows, work, &length, &info);
    } else if (driver == kGelsy) {
      if constexpr (kIsReal<T>) {
        with(Lapack::kGelsy, integers, &limit, rank, work, &length);
      } else {
        with(Lapack::kGelsy, integers, &limit, rank, work, &length, reals);
      }
    } else if (driver == kGelsd) {
      if constexpr (kIsReal<T>) {
        with(Lapack::kGelsd, values, &limit, rank, work, &length, integers);
      } else {
        with(Lapack::kGelsd, values, &limit, rank, work, &length, reals, integers);
      }
    } else {
      if constexpr (kIsReal<T>) {
        with(Lapack::kGelss, values, &limit, rank, work, &length);
      } else {
        with(Lapack::kGelss, values, &limit, rank, work, &length, reals);
      }
    }
    return info;
  }
};

}  // namespace

template <typename T>
const char* lapack_least_squares(const RoutineContext& c, const std::vector<int64_t>& matrices) {
  using R = RealOf<T>;
  const Int m = c.n[1], n = c.n[2], columns = c.n[3], least = std::min(m, n);
  const LeastSquares<T> problem{m,
                                n,
                                columns,
                                std::max({m, n, Int{1}}),
                                static_cast<Driver>(c.n[4]),
                                static_cast<R>(c.s[0].d)};
  T asked{}, nothing{};
  R nil{}, real_length{};
  Int rank = 0, integers = 0;
  problem.call(&nothing, &nothing, &nil, &rank, &asked, kQuery, &real_length, &integers);
  const Int length = size_from(asked), reals = size_from(real_length) + 2 * n + 5 * least;
  Failures failures;
  over_matrices(std::ssize(matrices), 2 * m * n * least,
                {bytes<T>(m * n), bytes<T>(problem.rows * columns), bytes<R>(least),
                 bytes<T>(length), bytes<R>(reals), bytes<Int>(std::max(integers, n) + 64)},
                &failures, [&](const Room& room, int64_t index) {
                  const int64_t b = matrices[index];
                  T *a = room.part<T>(0), *x = room.part<T>(1);
                  R* values = room.part<R>(2);
                  Int* places = room.part<Int>(5);
                  Int found = 0;
                  std::fill_n(values, least, R(0));
                  std::fill_n(places, n, Int{0});
                  const T *matrix = pointer<T>(c, 0) + b * m * n,
                          *right = pointer<T>(c, 1) + b * m * columns;
                  const Contents contents = contents_of(matrix, m * n);
                  if (contents == Contents::kFinite) {
                    transpose(matrix, m, n, a);
                    for (Int j = 0; j < columns; ++j) {
                      for (Int i = 0; i < m; ++i) x[j * problem.rows + i] = right[i * columns + j];
                      std::fill_n(x + j * problem.rows + m, problem.rows - m, T(0));
                    }
                    const Int info = problem.call(a, x, values, &found, room.part<T>(3), length,
                                                  room.part<R>(4), places);
                    if (info) failures.report(b, info);
                  } else {
                    if (contents == Contents::kNan) failures.report(b, Failures::kNotFinite);
                    std::fill_n(x, problem.rows * columns, T(kNanOf<T>));
                    std::fill_n(values, least, kNanOf<T>);
                  }
                  T* out = pointer<T>(c, 2) + b * n * columns;
                  for (Int i = 0; i < n; ++i) {
                    for (Int j = 0; j < columns; ++j) {
                      out[i * columns + j] = x[j * problem.rows + i];
                    }
                  }
                  pointer<int64_t>(c, 3)[b] = found;
                  std::copy_n(values, least, pointer<R>(c, 4) + b * least);
                });
  return failures.text(c, kLeastSquares, c.n[0], kRankUnmet);
}

template <typename T>
const char* solve_full_rank(const RoutineContext& c, std::vector<int64_t>* others) {
  using R = RealOf<T>;
  const Int batch = c.n[0], m = c.n[1], n = c.n[2], columns = c.n[3];
  Solved solved(static_cast<size_t>(batch), 0);
  Failures failures;
  if ((c.n[4] == kGels || c.n[4] == kGelsy) && m >= n && n && columns) {
    const double least = std::numeric_limits<R>::epsilon();
    const double limit = c.n[4] == kGels ? least : std::max(c.s[0].d, least);
    const FullRank<T> problem{m, n, columns, limit};
    if (by_lapack(n, kLeastBlocked<T>)) {
      solve_columns(c, BlockedFullRank<T>(problem), &solved, &failures);
    } else {
      solve_rows(c, problem, &solved, &failures);
    }
  }
  for (int64_t b = 0; b < batch; ++b) {
    if (!solved[b]) {
      others->push_back(b);
      continue;
    }
    pointer<int64_t>(c, 3)[b] = n;
    std::fill_n(pointer<R>(c, 4) + b * n, n, R(0));
  }
  return failures.text(c, kLeastSquares, batch, kRankUnmet);
}

#define FB_INSTANTIATE(T)                                                                \
  template const char* solve_full_rank<T>(const RoutineContext&, std::vector<int64_t>*); \
  template const char* lapack_least_squares<T>(const RoutineContext&, const std::vector<int64_t>&);
FB_INSTANTIATE(float)
FB_INSTANTIATE(double)
FB_INSTANTIATE(std::complex<float>)
FB_INSTANTIATE(std::complex<double>)

}  // namespace fb
