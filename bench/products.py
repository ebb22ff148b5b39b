"""Matrix products beside PyTorch, and beside the peak of this machine's multiply-adds.

`python -m bench products`. Squares, skinny shapes and layers, in every layout of the operands that
models use; the note tells the speed, and the fraction of what `roofline_peaks` measured with as
many threads (float16 is computed in float32).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

import flambeau
from bench import roofline_peaks
from bench.harness import Row, compare, publish

SQUARES = (64, 128, 256, 512, 1024, 2048)
SKINNY = (
    (1, 1024, 1024), (2, 1024, 1024), (4, 1024, 1024), (8, 1024, 1024), (16, 1024, 1024),
    (1024, 1024, 1), (1024, 1024, 8), (1024, 8, 1024), (64, 4096, 64), (4096, 64, 64),
    (64, 64, 4096), (128, 768, 3072),
)  # fmt: skip
DTYPES = ("float32", "float64", "bfloat16", "float16")
SLOW = {"float16": 512}  # PyTorch's takes seconds beyond
PEAKS = {"float32": "f32", "float64": "f64", "bfloat16": "bf16", "float16": "f32"}
LIMITS = {"float32": 0.95, "float64": 0.8, "bfloat16": 0.9, "float16": 0.9}


def shapes(dtype: str) -> Iterator[tuple[str, int, int, int]]:
    """Name, M, K and N."""
    for size in SQUARES:
        if size <= SLOW.get(dtype, size):
            yield f"{size}", size, size, size
    for m, k, n in SKINNY:
        yield f"{m} x {k} x {n}", m, k, n


def operands(t: Any, m: int, k: int, n: int, dtype: str, turned: bool) -> tuple[Any, Any]:
    """Two matrices; `turned`: the second one as the weight of a linear layer lies in memory."""
    t.manual_seed(0)
    a, b = t.randn(m, k), t.randn(n, k) if turned else t.randn(k, n)
    a, b = a.to(getattr(t, dtype)), b.to(getattr(t, dtype))
    return a, b.t() if turned else b


def rows(dtype: str, threads: int, peak: float) -> list[Row]:
    """One table."""
    found = []
    for name, m, k, n in shapes(dtype):
        for turned in (False, True):
            calls: list[Callable[[], object]] = []
            for t in (flambeau, torch):
                a, b = operands(t, m, k, n, dtype, turned)
                calls.append(functools.partial(t.mm, a, b))
            full = f"{name}{', weight' if turned else ''}"
            row = compare(full, *calls, blocks=5, seconds=0.01, threads=threads)
            speed = 2 * m * k * n / row.ours
            row.note = f"{speed / 1e9:.1f} GFLOP/s"
            row.note += f", {speed / peak:.0%} of peak"
            found.append(row)
    return found


def main() -> None:
    """Runs all tables on one and on two threads."""
    library = roofline_peaks.load()
    tables: list[tuple[str, list[Row], float | None]] = []
    before = flambeau.get_num_threads()
    for threads in (1, 2):
        flambeau.set_num_threads(threads)
        torch.set_num_threads(threads)
        peaks = roofline_peaks.peaks(library, threads)
        for dtype in DTYPES:
            peak = peaks.get(PEAKS[dtype], peaks["f32"])
            title = f"{dtype}, {threads} thread(s)"
            tables.append((title, rows(dtype, threads, peak), LIMITS[dtype]))
    flambeau.set_num_threads(before)
    publish("products", tables)


if __name__ == "__main__":
    main()
