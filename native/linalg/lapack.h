// LAPACK and BLAS of an installed OpenBLAS (the wheel scipy-openblas64), loaded on first use.
//
// The library computes with one thread, the caller's: results depend on the matrix alone. Integers
// have 64 bits, matrices are column-major, every argument is passed by address.
#pragma once
#include <complex>

#include "routines/routines_internal.h"

namespace fb {

enum class Lapack {
  kPotrf,
  kGetrf,
  kTrsm,
  kTrsv,
  kTrtri,
  kGeqrf,
  kOrgqr,
  kOrmqr,
  kSyevd,
  kGeev,
  kGesdd,
  kGels,
  kGelsy,
  kGelsd,
  kGelss,
  kSytrf,
  kHetrf,
  kSytrs,
  kHetrs,
  kGemm,
  kCount
};

using LapackFunction = void (*)();

template <typename T>
constexpr int kLapackLetter = -1;
template <>
inline constexpr int kLapackLetter<float> = 0;
template <>
inline constexpr int kLapackLetter<double> = 1;
template <>
inline constexpr int kLapackLetter<std::complex<float>> = 2;
template <>
inline constexpr int kLapackLetter<std::complex<double>> = 3;

// Whether the library is there; looks for it the first time. Takes the GIL for that.
bool lapack_ready();
LapackFunction lapack_function(Lapack which, int letter);

// Held while the library computes: a fork waits, so that a child finds no lock of it taken.
class LapackUse {
 public:
  LapackUse();
  ~LapackUse();
  LapackUse(const LapackUse&) = delete;
  LapackUse& operator=(const LapackUse&) = delete;
};

// Calls `which` for T. Behind the arguments are the lengths of those that are letters.
template <typename T, typename... Args>
void lapack(Lapack which, Args... args) {
  using Typed = void (*)(Args..., size_t, size_t, size_t, size_t);
  reinterpret_cast<Typed>(lapack_function(which, kLapackLetter<T>))(args..., 1, 1, 1, 1);
}

}  // namespace fb
