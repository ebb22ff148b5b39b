"""What this machine can do at most: multiply-adds per second, bytes per second of each memory.

The loops are C, compiled by the package's own tool chain for the package's own target, so that the
ceilings are those of the instructions that kernels may use. Products of bfloat16 and of 8-bit
integers are measured where the processor has instructions for them, used by kernels or not.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import flambeau as torch
from flambeau.compiler import targets, toolchain

LEVELS = ("L1", "L2", "L3", "DRAM")
# Bytes moved per byte of the first buffer, and buffers. (A copy also loads, unasked, the lines that
# it overwrites; an update does not.)
PATTERNS = {"read": (1, 1), "write": (1, 1), "copy": (2, 2), "update": (2, 1)}
SECONDS = 0.004  # per measurement: short, so that some of them are undisturbed
REPEATS = 25
Kernel = Callable[[int], None]

_FMA = """
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif
#if defined(__aarch64__)
#define CLASS "w"
#elif defined(__AVX512F__)
#define CLASS "v"
#elif defined(__x86_64__)
#define CLASS "x"
#else
#define CLASS "m"
#endif
#define EACH(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7) M(8) M(9) M(10) M(11)
#define START(i) __typeof__(a) x##i = a; __asm__ volatile("" : "+" CLASS(x##i));
#define STEP(i) x##i = STEP_OF(x##i, a, a);
#define KEEP(i) __asm__ volatile("" : : CLASS(x##i));
#define PLAIN
#define PEAK(name, type, value, attributes) \\
  attributes void name(long repeats) { \\
    type a = value; /* x * a + a: converges to 1 */ \\
    EACH(START) \\
    for (long r = 0; r < repeats; ++r) { EACH(STEP) } \\
    EACH(KEEP) \\
  }
#define STEP_OF(x, a, b) FMA_F32(x, a, b)
#if defined(__AVX512F__)
#define FMA_F32 _mm512_fmadd_ps
#define FMA_F64 _mm512_fmadd_pd
PEAK(peak_f32, __m512, _mm512_set1_ps(.5f), PLAIN)
#elif defined(__FMA__)
#define FMA_F32 _mm256_fmadd_ps
#define FMA_F64 _mm256_fmadd_pd
PEAK(peak_f32, __m256, _mm256_set1_ps(.5f), PLAIN)
#elif defined(__aarch64__)
#define FMA_F32(x, a, b) vfmaq_f32(b, x, a)
#define FMA_F64(x, a, b) vfmaq_f64(b, x, a)
PEAK(peak_f32, float32x4_t, vdupq_n_f32(.5f), PLAIN)
#else
typedef float generic_f32 __attribute__((vector_size(16)));
typedef double generic_f64 __attribute__((vector_size(16)));
#define FMA_F32(x, a, b) (x * a + b)
#define FMA_F64(x, a, b) (x * a + b)
PEAK(peak_f32, generic_f32, (generic_f32){} + .5f, PLAIN)
#endif
#undef STEP_OF
#define STEP_OF(x, a, b) FMA_F64(x, a, b)
#if defined(__AVX512F__)
PEAK(peak_f64, __m512d, _mm512_set1_pd(.5), PLAIN)
#elif defined(__FMA__)
PEAK(peak_f64, __m256d, _mm256_set1_pd(.5), PLAIN)
#elif defined(__aarch64__)
PEAK(peak_f64, float64x2_t, vdupq_n_f64(.5), PLAIN)
#else
PEAK(peak_f64, generic_f64, (generic_f64){} + .5, PLAIN)
#endif
"""

_DOT = """
#undef STEP_OF
#define STEP_OF(x, a, b) _mm512_dpbf16_ps(x, (__m512bh)a, (__m512bh)b)
#if defined(HAS_BF16)
PEAK(peak_bf16, __m512, _mm512_castsi512_ps(_mm512_set1_epi16(0x3F00)),
     __attribute__((target("avx512f,avx512bf16"))))
#endif
#undef STEP_OF
#define STEP_OF(x, a, b) _mm512_dpbusd_epi32(x, a, b)
#if defined(HAS_VNNI)
PEAK(peak_i8, __m512i, _mm512_set1_epi8(1), __attribute__((target("avx512f,avx512vnni"))))
#endif
"""

_MEMORY = """
typedef long long wide __attribute__((vector_size(64), aligned(64), may_alias));
#define HERE __asm__ volatile("" ::: "memory")
void memory_read(const wide *p, wide *q, long n, long repeats) {
  wide a = {0}, b = {0}, c = {0}, d = {0};
  for (long r = 0; r < repeats; ++r) {
    for (long i = 0; i < n; i += 4) {
      a += p[i], b += p[i + 1], c += p[i + 2], d += p[i + 3];
    }
    HERE;
  }
  q[0] = a + b + c + d;
}
void memory_write(wide *p, wide *q, long n, long repeats) {
  const wide v = q[0];
  for (long r = 0; r < repeats; ++r) {
    for (long i = 0; i < n; i += 4) {
      p[i] = v, p[i + 1] = v, p[i + 2] = v, p[i + 3] = v;
      HERE;
    }
  }
}
void memory_update(wide *p, wide *q, long n, long repeats) {
  const wide v = q[0];
  for (long r = 0; r < repeats; ++r) {
    for (long i = 0; i < n; i += 4) {
      p[i] += v, p[i + 1] += v, p[i + 2] += v, p[i + 3] += v;
      HERE;
    }
  }
}
void memory_copy(const wide *p, wide *q, long n, long repeats) {
  for (long r = 0; r < repeats; ++r) {
    for (long i = 0; i < n; i += 4) {
      q[i] = p[i], q[i + 1] = p[i + 1], q[i + 2] = p[i + 2], q[i + 3] = p[i + 3];
      HERE;
    }
  }
}
"""

CHAINS = 12  # independent accumulators of PEAK: enough to hide the latency of an FMA
LINE = 64


def vector_lanes() -> int:
    """Single-precision numbers per vector of the target."""
    return targets.current().vector_bytes // 4


def load() -> ctypes.CDLL:
    """The loops, compiled."""
    flags = targets._processor_flags()
    wide = targets.current().name == "avx512"
    defines = ["#define HAS_BF16 1\n"] * (wide and "avx512_bf16" in flags)
    defines += ["#define HAS_VNNI 1\n"] * (wide and "avx512_vnni" in flags)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "peaks.so"
        source = "".join(defines) + _FMA + _DOT + _MEMORY
        toolchain.find().compile(source, targets.current(), path)
        return ctypes.CDLL(str(path))


def best_rate(calls: list[Kernel], work: float) -> float:
    """Work per second, best of several measurements; one thread per call.

    Args:
        calls: each takes a number of repeats; all run at the same time.
        work: of one repeat of one call.
    """
    repeats = 1
    while True:  # until one measurement takes long enough to be measured
        spent = min(_together(calls[:1], repeats) for _ in range(3))
        if spent > SECONDS / 2:
            break
        repeats = max(repeats + 1, min(repeats * 8, int(repeats * SECONDS / max(spent, 1e-7))))
    shortest = min(_together(calls, repeats) for _ in range(REPEATS))
    return work * repeats * len(calls) / shortest


def _together(calls: list[Kernel], repeats: int) -> float:
    """Seconds from the first start to the last end. Each thread has a processor of its own: left to
    the system, two that have just been started may share one, and would measure one's rate."""
    if len(calls) == 1:
        start = time.perf_counter()
        calls[0](repeats)
        return time.perf_counter() - start
    barrier = threading.Barrier(len(calls))
    times: list[tuple[float, float]] = []

    pinned = hasattr(os, "sched_setaffinity")
    cores = sorted(os.sched_getaffinity(0)) if pinned else []

    def run(number: int, call: Kernel) -> None:
        if pinned:  # this thread alone, and it ends soon
            os.sched_setaffinity(0, {cores[number % len(cores)]})
        barrier.wait()
        start = time.perf_counter()
        call(repeats)
        times.append((start, time.perf_counter()))

    threads = [threading.Thread(target=run, args=each) for each in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return max(end for _, end in times) - min(start for start, _ in times)


def peaks(library: ctypes.CDLL, threads: int) -> dict[str, float]:
    """Operations per second by dtype; a multiply-add is two."""
    lanes = vector_lanes()
    operations = {"f32": 2 * lanes, "f64": lanes, "bf16": 64, "i8": 128}
    found = {}
    for dtype, count in operations.items():
        function = getattr(library, f"peak_{dtype}", None)
        if function is not None:
            function.argtypes = [ctypes.c_long]
            function.restype = None
            found[dtype] = best_rate([function] * threads, CHAINS * count)
    return found


def cache_sizes() -> dict[str, int]:
    """Bytes of the data caches, as the system tells them; usual ones where it does not."""
    sizes = {"L1": 32 << 10, "L2": 1 << 20, "L3": 16 << 20}
    for entry in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            level, kind, text = ((entry / n).read_text().strip() for n in ("level", "type", "size"))
        except OSError:
            continue
        if kind != "Instruction" and f"L{level}" in sizes:
            factor = {"K": 1 << 10, "M": 1 << 20}.get(text[-1], 1)
            sizes[f"L{level}"] = int(text.rstrip("KM")) * factor
    return sizes


def working_set(level: str, threads: int) -> int:
    """Bytes per thread that lie in a level and not in the one before, in whole steps."""
    sizes = cache_sizes()
    nbytes = {
        "L1": sizes["L1"] // 2,
        "L2": sizes["L2"] // 2,
        "L3": max(sizes["L3"] // 4, 2 * sizes["L2"] * threads) // threads,
        "DRAM": max(4 * sizes["L3"], 128 << 20) // threads,
    }[level]
    return nbytes // (4 * LINE) * (4 * LINE)


def bandwidths(library: ctypes.CDLL, threads: int) -> dict[str, dict[str, float]]:
    """Bytes per second by level and pattern; the two buffers of a copy share the working set."""
    found: dict[str, dict[str, float]] = {}
    for level in LEVELS:
        total = working_set(level, threads)
        # Tensors' memory: aligned, touched, and in pages of the size that tensors get.
        buffers = [torch.zeros(total + LINE, dtype=torch.uint8) for _ in range(threads)]
        found[level] = {}
        for pattern, (moved, count) in PATTERNS.items():
            nbytes = total // count // (4 * LINE) * (4 * LINE)
            calls = [_memory_call(library, pattern, buffer, nbytes) for buffer in buffers]
            found[level][pattern] = best_rate(calls, nbytes * moved)
    return found


def _memory_call(library: ctypes.CDLL, pattern: str, buffer: torch.Tensor, nbytes: int) -> Kernel:
    function = getattr(library, f"memory_{pattern}")
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_long]
    function.restype = None
    first = buffer.data_ptr()
    # The second place: a copy's target, or a line beside a reader's or writer's buffer.
    second = first + nbytes
    return lambda repeats: function(first, second, nbytes // LINE, repeats)
