"""Matrix products beside PyTorch, beside oneDNN, and beside the peak of the multiply-adds.

`python -m bench products`. Squares and skinny shapes in every dtype, the second operand as it comes
and as the weight of a linear layer lies in memory, on one thread and on two; at most ten minutes.
The note tells the speed, and the fraction of what `roofline_peaks` measured with as many threads
(float16 is computed in float32). oneDNN's products (`bench/requirements.txt`) are called through
its C interface, into memory that is there already; without the package their tables are left out.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

import flambeau
from bench import roofline_peaks
from bench.harness import Row, compare, publish

SMALL = (64, 128)
LARGE = (256, 512, 1024, 2048)
SKINNY = (
    (1, 1024, 1024), (2, 1024, 1024), (4, 1024, 1024), (8, 1024, 1024), (16, 1024, 1024),
    (1024, 1024, 1), (1024, 1024, 8), (1024, 8, 1024), (64, 4096, 64), (4096, 64, 64),
    (64, 64, 4096), (128, 768, 3072),
)  # fmt: skip
DTYPES = ("float32", "float64", "bfloat16", "float16", "int8")
SLOW = {"float16": 1 << 29}  # multiply-adds beyond which PyTorch takes seconds
PEAKS = {
    "float32": "f32", "float64": "f64", "bfloat16": "bf16", "float16": "f32", "int8": "i8",
}  # fmt: skip
LIMITS = {  # of squares from 256, of the others
    "float32": (0.95, 0.95), "float64": (0.8, 0.8), "bfloat16": (0.9, 0.45),
    "float16": (0.9, 0.45), "int8": (0.95, 0.3),
}  # fmt: skip
ONEDNN_LIMIT = 1.03  # of oneDNN's time: 0.97 of its speed
Shape = tuple[int, int, int]
Call = Callable[[], object]


def squares(sizes: Sequence[int]) -> list[Shape]:
    """Products of square matrices."""
    return [(size, size, size) for size in sizes]


def cases(shapes: Sequence[Shape], dtype: str) -> Iterator[tuple[str, Shape, bool]]:
    """Name, M, K and N, and whether the second operand lies as a weight does."""
    for m, k, n in shapes:
        if m * k * n > SLOW.get(dtype, m * k * n):
            continue
        name = f"{m}" if m == k == n else f"{m} x {k} x {n}"
        yield name, (m, k, n), False
        yield f"{name}, weight", (m, k, n), True


def operands(t: Any, shape: Shape, dtype: str, turned: bool) -> tuple[Any, Any]:
    """Two matrices; `turned`: the second one as the weight of a linear layer lies in memory."""
    m, k, n = shape
    t.manual_seed(0)
    second = (n, k) if turned else (k, n)
    if dtype == "int8":
        a, b = (t.randint(-128, 128, size).to(t.int8) for size in ((m, k), second))
    else:
        a, b = (t.randn(*size).to(getattr(t, dtype)) for size in ((m, k), second))
    return a, b.t() if turned else b


def product(t: Any, shape: Shape, dtype: str, turned: bool) -> Call:
    """A call of a framework's product."""
    function = t._int_mm if dtype == "int8" else t.mm
    return functools.partial(function, *operands(t, shape, dtype, turned))


def rows(
    shapes: Sequence[Shape], dtype: str, threads: int, peak: float,
    other: Callable[[Shape, bool], Call] | None = None,
) -> list[Row]:  # fmt: skip
    """One table, beside PyTorch or another library."""
    found = []
    for name, shape, turned in cases(shapes, dtype):
        ours = product(flambeau, shape, dtype, turned)
        theirs = other(shape, turned) if other else product(torch, shape, dtype, turned)
        row = compare(name, ours, theirs, blocks=5, seconds=0.01, threads=threads)
        m, k, n = shape
        speed = 2 * m * k * n / row.ours
        unit = "Gop/s" if dtype == "int8" else "GFLOP/s"
        row.note = f"{speed / 1e9:.1f} {unit}, {speed / peak:.0%} of peak"
        found.append(row)
    return found


# ------------------------------------------------------------------------------- oneDNN


@functools.cache
def onednn() -> ctypes.CDLL | None:
    """oneDNN's library, where the package of `bench/requirements.txt` puts it."""
    for name in ("libdnnl.so.3", "libdnnl.so"):
        path = Path(sys.prefix) / "lib" / name
        if path.exists():
            library = ctypes.CDLL(str(path))
            size, real, memory = ctypes.c_int64, ctypes.c_float, ctypes.c_void_p
            library.dnnl_sgemm.argtypes = [
                ctypes.c_char, ctypes.c_char, size, size, size, real, memory, size, memory, size,
                real, memory, size,
            ]  # fmt: skip
            library.dnnl_sgemm.restype = ctypes.c_int
            return library
    return None


def onednn_product(shape: Shape, turned: bool) -> Call:
    """A call of oneDNN's product; it uses as many threads as PyTorch, whose OpenMP it shares."""
    library = onednn()
    assert library is not None
    m, k, n = shape
    a, b = operands(torch, shape, "float32", turned)
    c = torch.empty(m, n)
    places = a.data_ptr(), b.data_ptr(), c.data_ptr()

    def call(kept: object = (a, b, c)) -> int:
        code: int = library.dnnl_sgemm(
            b"N", b"T" if turned else b"N", m, n, k, 1.0, places[0], k,
            places[1], k if turned else n, 0.0, places[2], n,
        )  # fmt: skip
        return code

    if call() != 0 or not torch.allclose(c, a @ b, rtol=1e-3, atol=1e-2):
        raise RuntimeError("[bench] oneDNN's product is wrong\nhint: check its version")
    return call


# ---------------------------------------------------------------------------------- all


def main() -> None:
    """Runs all tables on one and on two threads."""
    library = roofline_peaks.load()
    tables: list[tuple[str, list[Row], float | None]] = []
    before = flambeau.get_num_threads(), torch.get_num_threads()
    if onednn() is None:
        print("[bench] no oneDNN here: its tables are left out (bench/requirements.txt)")
    for threads in (1, 2):
        flambeau.set_num_threads(threads)
        torch.set_num_threads(threads)
        peaks = roofline_peaks.peaks(library, threads)
        large, others = squares(LARGE), [*squares(SMALL), *SKINNY]
        for dtype in DTYPES:
            peak = peaks.get(PEAKS[dtype], peaks["f32"])
            for title, shapes, limit in zip(
                ("squares from 256", "small and skinny"), (large, others), LIMITS[dtype]
            ):
                full = f"{dtype}, {title}, {threads} thread(s), peak {peak / 1e9:.0f} G/s"
                tables.append((full, rows(shapes, dtype, threads, peak), limit))
        if onednn() is not None:
            found = rows([*large, *others], "float32", threads, peaks["f32"], onednn_product)
            title = f"float32 beside oneDNN instead of PyTorch, {threads} thread(s)"
            tables.append((title, found, ONEDNN_LIMIT))
    flambeau.set_num_threads(before[0])
    torch.set_num_threads(before[1])
    publish("products", tables)


if __name__ == "__main__":
    main()
