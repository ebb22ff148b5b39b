// Loops compiled for several vector units, one of which is chosen when the program runs. All give
// the same bits: fused operations are written out, and nothing else may be contracted.
#pragma once
#include "runtime/processor.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define FB_VARIANTS 1
#endif
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")  // at -O2 most loops stay scalar: 7 times slower
#endif
#if defined(__GNUC__)
#define FB_INLINE __attribute__((always_inline)) inline
#else
#define FB_INLINE inline
#endif

namespace fb {

#ifdef FB_VARIANTS
inline const int kMachineLevel = vector_level();

// Body::run(arguments...) compiled for each level; the body must be FB_INLINE throughout.
#if defined(__clang__)  // which ignores an attribute with a name unknown to it
#define FB_AVX512 "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma"
#else
#define FB_AVX512 "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,prefer-vector-width=512"
#endif
template <class Body, class... Args>
[[gnu::target(FB_AVX512)]] auto run_avx512(Args... args) {
  return Body::run(args...);
}
template <class Body, class... Args>
[[gnu::target("avx2,fma")]] auto run_avx2(Args... args) {
  return Body::run(args...);
}
template <class Body, class... Args>
auto run_variant(Args... args) {
  if (kMachineLevel == 2) return run_avx512<Body, Args...>(args...);
  if (kMachineLevel == 1) return run_avx2<Body, Args...>(args...);
  return Body::run(args...);
}
// For short loops, of which wide vectors leave most to the remainder.
template <class Body, class... Args>
auto run_narrow(Args... args) {
  if (kMachineLevel >= 1) return run_avx2<Body, Args...>(args...);
  return Body::run(args...);
}
#else
template <class Body, class... Args>
auto run_narrow(Args... args) {
  return Body::run(args...);
}
template <class Body, class... Args>
auto run_variant(Args... args) {
  return Body::run(args...);
}
#endif

}  // namespace fb
