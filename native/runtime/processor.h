// The vector instructions of this machine, queried from the processor itself: the compilers'
// __builtin_cpu_supports needs a run-time library that not every linker can put in a shared object.
#pragma once

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace fb {

// 0: baseline. 1: AVX2 and FMA. 2: also AVX-512 F, DQ, BW, VL. Registers must be saved by the
// system.
inline int detect_vector_level() {
#if defined(__x86_64__)
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
  const bool fma = c >> 12 & 1, saves_registers = c >> 27 & 1;
  if (!fma || !saves_registers) return 0;
  unsigned low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low & 0x6) != 0x6) return 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b >> 5 & 1)) return 0;
  const bool avx512 = (b >> 16 & 1) && (b >> 17 & 1) && (b >> 30 & 1) && (b >> 31 & 1);
  return avx512 && (low & 0xe6) == 0xe6 ? 2 : 1;
#else
  return 0;
#endif
}

inline int vector_level() {
  static const int level = detect_vector_level();
  return level;
}

}  // namespace fb
