// The routines of linear algebra as LAPACK computes them; arguments as `routines.py` tabulates
// them.
#pragma once
#include <algorithm>
#include <initializer_list>

#include "linalg/lapack.h"
#include "linalg/linear.h"

namespace fb {

// Whether matrices of size n are left to LAPACK: below `least` own code is faster.
inline bool by_lapack(int64_t n, int64_t least) { return n >= least && lapack_ready(); }

// The size for float, double, and complex numbers. Measured alone, so that a matrix is computed by
// one code whatever its batch.
template <typename T>
constexpr int64_t by_type(int64_t single, int64_t twice, int64_t complex) {
  if (!std::is_arithmetic_v<T>) return complex;
  return sizeof(T) == sizeof(float) ? single : twice;
}

template <typename T>
const char* lapack_lu(const RoutineContext& c);
template <typename T>
const char* lapack_solve(const RoutineContext& c);
template <typename T>
const char* lapack_triangular_solve(const RoutineContext& c);
template <typename T>
const char* lapack_cholesky(const RoutineContext& c);
template <typename T>
const char* lapack_qr(const RoutineContext& c);
template <typename T>
const char* lapack_geqrf(const RoutineContext& c);
template <typename T>
const char* lapack_reflect(const RoutineContext& c);
template <typename T>
const char* lapack_eigh(const RoutineContext& c, bool vectors);
template <typename T>
const char* lapack_eig(const RoutineContext& c, bool vectors);
template <typename T>
const char* lapack_svd(const RoutineContext& c, bool vectors);
template <typename T>
const char* lapack_least_squares(const RoutineContext& c, const std::vector<int64_t>& matrices);

// Solves the least squares problems whose matrices are of full rank beyond doubt, and appends the
// numbers of the others.
template <typename T>
const char* solve_full_rank(const RoutineContext& c, std::vector<int64_t>* others);

enum Driver : int64_t { kGels, kGelsy, kGelsd, kGelss };
constexpr const char* kLeastSquares = "torch.linalg.lstsq";

// The first matrix of a batch that failed, and how. Several threads report to one.
class Failures {
 public:
  void report(int64_t matrix, int64_t code) {
    const int64_t packed = (matrix << 20) | (code + kOffset);
    int64_t before = first_.load();
    while (packed < before && !first_.compare_exchange_weak(before, packed)) {
    }
  }
  void no_memory() { memory_ = false; }
  bool none() const { return first_.load() == INT64_MAX; }
  // Null, or an error's text that is valid until this thread's next one. `unmet` is the meaning of
  // a code; kNotFinite has a text of its own.
  const char* text(const RoutineContext& c, const char* name, int64_t batch,
                   const char* unmet) const;

  static constexpr int64_t kNotFinite = -1000;

 private:
  static constexpr int64_t kOffset = 4096;
  std::atomic<int64_t> first_{INT64_MAX};
  std::atomic<bool> memory_{true};
};

constexpr const char* kEigenvaluesUnmet =
    "The algorithm failed to converge because the input matrix is ill-conditioned or has too many "
    "repeated eigenvalues";
constexpr const char* kNoEigenvectors =
    "[linalg.eig] torch.linalg.eig: input tensor should not contain infs or NaNs.\n"
    "hint: torch.linalg.eigvals returns NaN for it";
constexpr const char* kSingularValuesUnmet =
    "The algorithm failed to converge because the input matrix is ill-conditioned or has too many "
    "repeated singular values";
constexpr const char* kRankUnmet =
    "The least squares solution could not be computed because the input matrix does not have full "
    "rank";

enum class Contents { kFinite, kInfinite, kNan };

// The worst of a matrix's elements: finite, infinite or NaN.
template <typename T>
Contents contents_of(const T* x, int64_t count) {
  using R = RealOf<T>;
  const R* parts = reinterpret_cast<const R*>(x);
  count *= int64_t{sizeof(T) / sizeof(R)};
  R zeros = 0;
  for (int64_t i = 0; i < count; ++i) zeros += parts[i] * 0;
  if (zeros == 0) return Contents::kFinite;
  for (int64_t i = 0; i < count; ++i) {
    if (parts[i] != parts[i]) return Contents::kNan;
  }
  return Contents::kInfinite;
}

// The same of a Hermitian matrix's lower triangle; an infinity beside the diagonal counts as NaN:
// the iteration cannot continue from either.
template <typename T>
Contents contents_of_triangle(const T* a, int64_t n) {
  Contents worst = Contents::kFinite;
  for (int64_t i = 0; i < n; ++i) {
    if (contents_of(a + i * n, i) != Contents::kFinite) return Contents::kNan;
    worst = std::max(worst, contents_of(a + i * n + i, 1));
  }
  return worst;
}

template <typename T>
constexpr RealOf<T> kNanOf = std::numeric_limits<RealOf<T>>::quiet_NaN();

// ---- what calls of LAPACK share

using Int = int64_t;

constexpr int64_t kTile = 8;

// to [columns, rows] = from [rows, columns] transposed.
template <typename T>
struct Transpose {
  static FB_INLINE void run(const T* from, int64_t rows, int64_t columns, T* to) {
    for (int64_t j = 0; j < columns; j += kTile) {
      const int64_t width = std::min(kTile, columns - j);
      for (int64_t i = 0; i < rows; i += kTile) {
        const int64_t height = std::min(kTile, rows - i);
        if (height == kTile && width == kTile) {
          T tile[kTile][kTile];
          for (int64_t a = 0; a < kTile; ++a) {
            for (int64_t b = 0; b < kTile; ++b) tile[b][a] = from[(i + a) * columns + j + b];
          }
          for (int64_t b = 0; b < kTile; ++b) {
            for (int64_t a = 0; a < kTile; ++a) to[(j + b) * rows + i + a] = tile[b][a];
          }
          continue;
        }
        for (int64_t a = 0; a < height; ++a) {
          for (int64_t b = 0; b < width; ++b) {
            to[(j + b) * rows + i + a] = from[(i + a) * columns + j + b];
          }
        }
      }
    }
  }
};

template <typename T>
void transpose(const T* from, int64_t rows, int64_t columns, T* to) {
  run_variant<Transpose<T>>(from, rows, columns, to);
}

// Several arrays in one block, each aligned to a cache line.
class Room {
 public:
  explicit Room(std::initializer_list<int64_t> sizes) : block_(total(sizes)) {
    char* at = block_.as<char>();
    at += -reinterpret_cast<intptr_t>(at) & 63;
    for (const int64_t size : sizes) {
      parts_.push_back(at);
      at += rounded(size);
    }
  }
  bool ok() const { return block_.ok(); }
  template <typename T>
  T* part(size_t i) const {
    return reinterpret_cast<T*>(parts_[i]);
  }

 private:
  static int64_t rounded(int64_t size) { return (size + 63) / 64 * 64 + 64; }
  static int64_t total(std::initializer_list<int64_t> sizes) {
    int64_t sum = 64;
    for (const int64_t size : sizes) sum += rounded(size);
    return sum;
  }
  Block block_;
  std::vector<char*> parts_;
};

template <typename T>
constexpr int64_t bytes(int64_t count) {
  return count * int64_t{sizeof(T)};
}

// Calls body(room, b) for each matrix; `work` is about its number of multiplications.
template <typename Body>
void over_matrices(int64_t batch, int64_t work, std::initializer_list<int64_t> sizes,
                   Failures* failures, const Body& body) {
  parallel(batch, grain_of(work), [&](int64_t begin, int64_t end) {
    const Room room(sizes);
    if (!room.ok()) return failures->no_memory();
    for (int64_t b = begin; b < end; ++b) {
      const LapackUse use;
      body(room, b);
    }
  });
}

template <typename T>
Int size_from(T asked) {
  return static_cast<Int>(real_part(asked)) + 64;
}

constexpr Int kQuery = -1;  // queries the length of the workspace

}  // namespace fb
