// Symmetric and Hermitian matrices that need not be positive: A = L D L^T with D composed of blocks
// of one and two rows (Bunch & Kaufman 1977; Golub & Van Loan, Matrix Computations, 4th ed., 4.4).
//
// The lower triangle is read and overwritten. Pivots are LAPACK's, from 1: row k was swapped with
// row p where pivots[k] is p; where pivots[k] = pivots[k + 1] = -p a block of two rows begins at k
// and its second row was swapped with row p.
#include <algorithm>

#include "linalg/routines_lapack.h"

namespace fb {
namespace {

constexpr int64_t kColumns = 64;  // that are updated together

// Rows of the lower triangle of a [rows, width], minus x times `left` and, where there is one, the
// number after x times `right`, x being a column to the left of a.
template <typename T>
struct SubtractColumns {
  static FB_INLINE void run(T* a, int64_t rows, int64_t n, int64_t width, const T* x, const T* left,
                            const T* right) {
    using R = RealOf<T>;
    if constexpr (std::is_arithmetic_v<T>) {
      for (int64_t i = 0; i < rows; ++i) {
        T* row = a + i * n;
        const T one = -x[i * n], two = right ? -x[i * n + 1] : T(0);
        const int64_t count = std::min(width, i + 1);
        for (int64_t j = 0; j < count; ++j) row[j] = std::fma(one, left[j], row[j]);
        if (!right) continue;
        for (int64_t j = 0; j < count; ++j) row[j] = std::fma(two, right[j], row[j]);
      }
    } else {
      for (const T* other : {left, right}) {
        if (!other) break;
        R turned[2 * kColumns];
        turn(other, width, turned);
        const R* straight = reinterpret_cast<const R*>(other);
        for (int64_t i = 0; i < rows; ++i) {
          R* row = reinterpret_cast<R*>(a + i * n);
          const T factor = -x[i * n + (other == right)];
          const R re = factor.real(), im = factor.imag();
          const int64_t count = 2 * std::min(width, i + 1);
          for (int64_t j = 0; j < count; ++j) {
            row[j] = std::fma(re, straight[j], std::fma(im, turned[j], row[j]));
          }
        }
      }
    }
  }
};

template <typename T>
struct Symmetric {  // one matrix [n, n], row by row
  T* a;
  int64_t n;
  bool hermitian;

  T& at(int64_t i, int64_t j) const { return a[i * n + j]; }
  T mirrored(T x) const { return hermitian ? conjugate(x) : x; }
  void keep_real(int64_t i) const {
    if (hermitian) at(i, i) = T(real_part(at(i, i)));
  }

  // Swaps rows and columns p and q > p of what columns from p on hold.
  void swap(int64_t p, int64_t q) const {
    for (int64_t i = q + 1; i < n; ++i) std::swap(at(i, p), at(i, q));
    for (int64_t j = p + 1; j < q; ++j) {
      const T below = mirrored(at(j, p));
      at(j, p) = mirrored(at(q, j));
      at(q, j) = below;
    }
    at(q, p) = mirrored(at(q, p));
    std::swap(at(p, p), at(q, q));
  }

  void eliminate_one(int64_t k) const {
    const T inverse = divide(T(1), at(k, k));
    T factors[kColumns];
    for (int64_t first = k + 1; first < n; first += kColumns) {
      const int64_t end = std::min(n, first + kColumns);
      for (int64_t j = first; j < end; ++j) {
        factors[j - first] = times(inverse, mirrored(at(j, k)));
      }
      run_variant<SubtractColumns<T>>(&at(first, first), n - first, n, end - first, &at(first, k),
                                      &factors[0], static_cast<const T*>(nullptr));
    }
    for (int64_t j = k + 1; j < n; ++j) keep_real(j);
    for (int64_t i = k + 1; i < n; ++i) at(i, k) = times(at(i, k), inverse);
  }

  void eliminate_two(int64_t k) const {
    // The block's inverse, scaled by its element off the diagonal.
    const T off = at(k + 1, k);
    const T upper = divide(at(k, k), mirrored(off)), second = divide(at(k + 1, k + 1), off);
    const T scale = divide(T(1), times(upper, second) - T(1));
    T lefts[kColumns], rights[kColumns];
    for (int64_t first = k + 2; first < n; first += kColumns) {
      const int64_t end = std::min(n, first + kColumns);
      for (int64_t j = first; j < end; ++j) {
        const T x = divide(at(j, k), mirrored(off)), y = divide(at(j, k + 1), off);
        // [x', y'] = [A(j, k), A(j, k+1)] times the block's inverse
        const T left = times(scale, times(second, x) - divide(at(j, k + 1), mirrored(off)));
        const T right = times(scale, times(upper, y) - divide(at(j, k), off));
        lefts[j - first] = mirrored(left);
        rights[j - first] = mirrored(right);
      }
      run_variant<SubtractColumns<T>>(&at(first, first), n - first, n, end - first, &at(first, k),
                                      &lefts[0], &rights[0]);
      for (int64_t j = first; j < end; ++j) {
        keep_real(j);
        at(j, k) = mirrored(lefts[j - first]);
        at(j, k + 1) = mirrored(rights[j - first]);
      }
    }
  }
};

struct Pivot {
  int64_t row, width;
};

// The row to swap in, and whether it is the second of a block of two. Below a pivot whose column
// has no other element (NaN does not count) there is nothing to swap in.
template <typename T>
Pivot choose_pivot(const Symmetric<T>& m, int64_t k) {
  const auto threshold = static_cast<RealOf<T>>((1 + std::sqrt(17.0)) / 8);
  const RealOf<T> own = size1(m.at(k, k));
  int64_t best = k;
  RealOf<T> column = 0;
  for (int64_t i = k + 1; i < m.n; ++i) {
    if (size1(m.at(i, k)) > column) {
      column = size1(m.at(i, k));
      best = i;
    }
  }
  if (column == 0 || own >= threshold * column) return {k, 1};
  RealOf<T> row = 0;
  for (int64_t j = k; j < best; ++j) row = std::max(row, size1(m.at(best, j)));
  for (int64_t i = best + 1; i < m.n; ++i) row = std::max(row, size1(m.at(i, best)));
  if (own >= threshold * column * (column / row)) return {k, 1};
  return {best, size1(m.at(best, best)) >= threshold * row ? 1 : 2};
}

template <typename T>
int32_t factor_symmetric(const Symmetric<T>& m, int32_t* pivots) {
  int32_t info = 0;
  for (int64_t k = 0; k < m.n;) {
    m.keep_real(k);
    const Pivot chosen = choose_pivot(m, k);
    const int64_t place = k + chosen.width - 1;
    if (chosen.row != place) {
      m.swap(place, chosen.row);
      if (chosen.width == 2) std::swap(m.at(place, k), m.at(chosen.row, k));
    }
    m.keep_real(k);
    m.keep_real(place);
    const auto number = static_cast<int32_t>(chosen.row + 1);
    pivots[k] = pivots[place] = chosen.width == 2 ? -number : number;
    if (chosen.width == 2) {
      m.eliminate_two(k);
    } else if (size1(m.at(k, k)) > 0) {
      m.eliminate_one(k);
    } else if (!info) {
      info = static_cast<int32_t>(k + 1);
    }
    k += chosen.width;
  }
  return info;
}

// Sizes from which LAPACK is used, as in routines_linear.cpp.
constexpr int64_t kLeastFactor = 112, kLeastSolve = 48;

// Complex matrices may be Hermitian; of real numbers LAPACK knows symmetric ones alone.
template <typename T>
Lapack kind_of(bool hermitian, Lapack symmetric, Lapack otherwise) {
  return hermitian && !std::is_arithmetic_v<T> ? otherwise : symmetric;
}

template <typename T>
const char* lapack_ldl(const RoutineContext& c) {
  const Int batch = c.n[0], n = c.n[1];
  const Lapack which = kind_of<T>(c.n[2] != 0, Lapack::kSytrf, Lapack::kHetrf);
  const char lower = 'L';
  T asked{};
  Int info = 0, none = 0;
  lapack<T>(which, &lower, &n, &asked, &n, &none, &asked, &kQuery, &info);
  const Int length = size_from(asked);
  Failures failures;
  over_matrices(batch, n * n * n, {bytes<T>(n * n), bytes<Int>(n), bytes<T>(length)}, &failures,
                [&](const Room& room, int64_t b) {
                  T* a = room.part<T>(0);
                  Int *places = room.part<Int>(1), status = 0;
                  transpose(pointer<T>(c, 0) + b * n * n, n, n, a);
                  lapack<T>(which, &lower, &n, a, &n, places, room.part<T>(2), &length, &status);
                  for (Int k = 0; k < n && status == 0; ++k) {  // LAPACK overlooks NaN
                    if (places[k] > 0 && !(size1(a[k * n + k]) > 0)) status = k + 1;
                  }
                  transpose(a, n, n, pointer<T>(c, 1) + b * n * n);
                  std::copy_n(places, n, pointer<int32_t>(c, 2) + b * n);
                  pointer<int32_t>(c, 3)[b] = static_cast<int32_t>(status);
                });
  return failures.text(c, "ldl", batch, "");
}

template <typename T>
const char* lapack_ldl_solve(const RoutineContext& c) {
  const Int batch = c.n[0], n = c.n[1], columns = c.n[3];
  const Lapack which = kind_of<T>(c.n[4] != 0, Lapack::kSytrs, Lapack::kHetrs);
  const char lower = 'L';
  Failures failures;
  over_matrices(batch, n * n * columns, {bytes<T>(n * n), bytes<Int>(n), bytes<T>(n * columns)},
                &failures, [&](const Room& room, int64_t b) {
                  T *a = room.part<T>(0), *x = room.part<T>(2);
                  Int *places = room.part<Int>(1), status = 0;
                  transpose(pointer<T>(c, 0) + b * n * n, n, n, a);
                  std::copy_n(pointer<int32_t>(c, 1) + b * n, n, places);
                  transpose(pointer<T>(c, 2) + b * n * columns, n, columns, x);
                  lapack<T>(which, &lower, &n, &columns, a, &n, places, x, &n, &status);
                  transpose(x, columns, n, pointer<T>(c, 3) + b * n * columns);
                });
  return failures.text(c, "ldl_solve", batch, "");
}

template <typename T>
const char* ldl(const RoutineContext& c) {
  const int64_t batch = c.n[0], n = c.n[1];
  if (by_lapack(n, kLeastFactor)) return lapack_ldl<T>(c);
  const bool hermitian = c.n[2] != 0;
  parallel(batch, grain_of(n * n * n), [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      T* a = pointer<T>(c, 1) + b * n * n;
      std::copy_n(pointer<T>(c, 0) + b * n * n, n * n, a);
      int32_t* pivots = pointer<int32_t>(c, 2) + b * n;
      pointer<int32_t>(c, 3)[b] = factor_symmetric(Symmetric<T>{a, n, hermitian}, pivots);
    }
  });
  return nullptr;
}

// Rows of x [n, columns], at first those of the right side, become the solution's.
template <typename T>
void substitute_symmetric(const Symmetric<T>& m, const int32_t* pivots, T* x, int64_t columns) {
  const auto row = [&](int64_t i) { return x + i * columns; };
  const auto exchange = [&](int64_t i, int64_t j) {
    if (i != j) std::swap_ranges(row(i), row(i) + columns, row(j));
  };
  for (int64_t k = 0; k < m.n;) {
    const int64_t width = pivots[k] > 0 ? 1 : 2;
    exchange(k + width - 1, std::abs(pivots[k]) - 1);
    for (int64_t i = k + width; i < m.n; ++i) {
      for (int64_t w = 0; w < width; ++w) {
        subtract_scaled(row(i), row(k + w), m.at(i, k + w), columns);
      }
    }
    for (int64_t j = 0; j < columns; ++j) {
      if (width == 1) {
        row(k)[j] = divide(row(k)[j], m.at(k, k));
        continue;
      }
      const T off = m.at(k + 1, k), other = m.mirrored(off);
      const T first = divide(m.at(k, k), other), second = divide(m.at(k + 1, k + 1), off);
      const T scale = times(first, second) - T(1);
      const T up = divide(row(k)[j], other), down = divide(row(k + 1)[j], off);
      row(k)[j] = divide(times(second, up) - down, scale);
      row(k + 1)[j] = divide(times(first, down) - up, scale);
    }
    k += width;
  }
  for (int64_t k = m.n - 1; k >= 0;) {
    const int64_t width = pivots[k] > 0 ? 1 : 2;
    for (int64_t w = 0; w < width; ++w) {
      for (int64_t i = k + 1; i < m.n; ++i) {
        subtract_scaled(row(k - w), row(i), m.mirrored(m.at(i, k - w)), columns);
      }
    }
    exchange(k, std::abs(pivots[k]) - 1);
    k -= width;
  }
}

template <typename T>
const char* ldl_solve(const RoutineContext& c) {
  const int64_t batch = c.n[0], n = c.n[1], columns = c.n[3];
  const bool hermitian = c.n[4] != 0;
  for (int64_t b = 0; b < batch; ++b) {  // pivots come from the caller
    const int32_t* pivots = pointer<int32_t>(c, 1) + b * n;
    for (int64_t k = 0; k < n; ++k) {
      const bool pair = pivots[k] < 0;
      if (pivots[k] == 0 || std::abs(int64_t{pivots[k]}) > n) return "ldl_solve: a pivot is no row";
      if (pair && (k + 1 == n || pivots[k + 1] != pivots[k])) {
        return "ldl_solve: a block of two rows is cut";
      }
      k += pair;
    }
  }
  if (by_lapack(n, kLeastSolve) && columns) return lapack_ldl_solve<T>(c);
  parallel(batch, grain_of(n * n * columns), [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      T* x = pointer<T>(c, 3) + b * n * columns;
      std::copy_n(pointer<T>(c, 2) + b * n * columns, n * columns, x);
      const Symmetric<T> matrix{pointer<T>(c, 0) + b * n * n, n, hermitian};
      substitute_symmetric(matrix, pointer<int32_t>(c, 1) + b * n, x, columns);
    }
  });
  return nullptr;
}

template <typename T>
FB_ONCE void add_routines(RoutineList* list, const std::string& dtype) {
  list->push_back({"ldl_" + dtype, ldl<T>});
  list->push_back({"ldl_solve_" + dtype, ldl_solve<T>});
}

FB_ONCE void add_indefinite_routines(RoutineList* list) {
  add_routines<float>(list, "f32");
  add_routines<double>(list, "f64");
  add_routines<std::complex<float>>(list, "c64");
  add_routines<std::complex<double>>(list, "c128");
}

const RoutineRegistration registration{add_indefinite_routines};

}  // namespace

}  // namespace fb
