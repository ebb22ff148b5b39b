// The loops of Fourier transforms for AVX-512.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "fourier/fourier.h"

#if defined(__x86_64__)
// From here on vectors are lowered for the target of the function that uses them.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512vl,avx512bw,avx2"))), \
                             apply_to = function)
#else
#pragma GCC target("avx512f,avx512dq,avx512vl,avx512bw,avx2")
#endif
#define FB_FOURIER_LEVEL avx512
#define FB_FOURIER_BYTES 64
#include "fourier/fourier_loops.h"

namespace fb {
template <typename R>
const FourierLoops<R>& fourier_loops_avx512() {
  return avx512::loops<R>();
}
template const FourierLoops<float>& fourier_loops_avx512();
template const FourierLoops<double>& fourier_loops_avx512();
}  // namespace fb
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
