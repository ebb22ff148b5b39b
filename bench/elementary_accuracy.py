"""Table of the worst error and the time per element of every elementary function.

    python bench/elementary_accuracy.py [--patterns 4000000] [--dtype f32] [function ...]

Error in ulp against NumPy and SciPy in float64 (so for f64 it includes theirs), over random bit
patterns of all exponents, as many ordinary values and as many values near 1; time on values in
the first-level cache. The harness is that of ``tests/compiler/test_elementary.py``.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "compiler")]

import test_elementary as harness  # noqa: E402

from flambeau.compiler.codegen.c.math.records import FUNCTIONS  # noqa: E402


def nanoseconds(library, name: str, dtype: str, lanes: int) -> float:
    """Time per element over values in (0.1, 3): the slope between two lengths, best of many."""
    floating = np.float32 if dtype == "f32" else np.float64
    x = np.random.default_rng(0).uniform(0.1, 3, 1536).astype(floating)
    out = np.empty_like(x)
    function = getattr(library, f"run_{name}_{dtype}x{lanes}")
    pointers = [ctypes.c_void_p(x.ctypes.data)] * FUNCTIONS[name]
    pointers.append(ctypes.c_void_p(out.ctypes.data))
    best = {512: float("inf"), 1536: float("inf")}
    for _ in range(300):
        for length in best:
            count = ctypes.c_long(length)
            start = time.perf_counter()
            for _ in range(10):
                function(*pointers, count)
            best[length] = min(best[length], (time.perf_counter() - start) / 10)
    return (best[1536] - best[512]) / 1024 * 1e9


def worst_error(library, name: str, dtype: str, lanes: int, count: int) -> float:
    """Largest error in ulp, in blocks that keep memory small."""
    worst = 0.0
    for seed in range(max(1, count // 250_000)):
        x = harness.inputs(dtype, min(count, 250_000), seed)
        arrays = (x, np.random.default_rng(seed).permutation(x))[: FUNCTIONS[name]]
        result = harness.apply(library, name, dtype, lanes, *arrays)
        exact = harness.reference(name, *arrays)
        worst = max(worst, float(harness.ulp_errors(result, exact).max()))
    return worst


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--patterns", type=int, default=1_000_000)
    parser.add_argument("--dtype", choices=["f32", "f64"], default="f32")
    parser.add_argument("functions", nargs="*", default=list(FUNCTIONS))
    options = parser.parse_args()
    lanes = 16 if options.dtype == "f32" else 8
    with tempfile.TemporaryDirectory() as folder:
        for compiler in harness.compilers():
            names = tuple(options.functions)
            library = harness.build(Path(folder), compiler, options.dtype, names, (lanes,))
            print(f"{compiler[-1] if len(compiler) == 1 else 'zig'}, {options.dtype}x{lanes}")
            print(f"{'function':>10} {'worst ulp':>10} {'ns':>6}")
            for name in names:
                error = worst_error(library, name, options.dtype, lanes, options.patterns)
                duration = nanoseconds(library, name, options.dtype, lanes)
                print(f"{name:>10} {error:10.3f} {duration:6.2f}", flush=True)


if __name__ == "__main__":
    main()
