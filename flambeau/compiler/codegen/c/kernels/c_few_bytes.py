"""Products of bytes with few rows: B is read once, as it lies.

`few_bytes(a, b, result)` defines `fb_kernel_few` as `c_few_rows` does, of sums in int32. The
right operand is the unsigned one of VPDPBUSD, unless only the left one can be: then 128 is added to
signed bytes where more than the lowest byte of the result counts, and 128 times the sum of the left
row is subtracted. `scratch` has room for MOST * (SEGMENT + 2 * pitch) elements.

Columns that lie along memory are multiplied along K, and added up across lanes at the end. Of rows
that lie along memory four are interleaved at a time; sums stay in that order until the end.
"""

from __future__ import annotations

from flambeau.compiler.codegen.c.kernels.c_micro import listed
from flambeau.compiler.codegen.c.template import Value, render
from flambeau.compiler.templates.product import MOST, SEGMENT

HEIGHTS = (4, 2, 1)
DEEP = 4 * SEGMENT  # bytes of a row of A that are copied at a time
GROUPS = 4  # of four rows of B that are added to sums at a time


def few_bytes(a: str, b: str, result: str) -> str:
    """C text of `fb_kernel_few` for operands of bytes."""
    unsigned_left = a == "u8" and b == "i8"
    names: dict[str, Value] = {
        "A": a,
        "B": b,
        "unsigned_left": unsigned_left,
        "flipped": result == "i32" and not unsigned_left and b == "i8",
        "DEEP": DEEP,
        "COPIED": MOST * SEGMENT,
        "together": 4 * GROUPS,
        "four": range(4),
        "heights": [(height, [(i, i * DEEP) for i in range(height)]) for height in HEIGHTS],
        "interleaved": _interleaved(),
    }
    return render("product/few_bytes", names, _added())


def _added() -> dict[str, Value]:
    """The orders that put lanes of two vectors of sums side by side: of neighbours, then of sums
    of two lanes."""
    low, high = ([4 * p + i for p in range(4) for i in part] for part in ((0, 1), (2, 3)))
    pairs = [[4 * p + i + 16 * t for p in range(4) for t in (0, 1) for i in part]
             for part in ((0, 1), (2, 3))]  # fmt: skip
    return {
        "low_lanes": listed(i + 16 * t for i in low for t in (0, 1)),
        "high_lanes": listed(i + 16 * t for i in high for t in (0, 1)),
        "low_pairs": listed(pairs[0]),
        "high_pairs": listed(pairs[1]),
    }


def _interleaved() -> list[Value]:
    """Four rows of 64 bytes become four vectors of groups, inside of parts of 128 bits."""
    shuffles: list[Value] = []
    for place in (0, 1):
        for name, high in (("l", 0), ("h", 8)):
            order = [16 * p + high + i // 2 + 64 * (i % 2) for p in range(4) for i in range(16)]
            rows = f"r{2 * place}", f"r{2 * place + 1}"
            shuffles.append((f"{name}{place}", "fb_kernel_bytes", *rows, listed(order)))
    for number, (name, high) in enumerate((("l", 0), ("l", 4), ("h", 0), ("h", 4))):
        order = [8 * p + high + i // 2 + 32 * (i % 2) for p in range(4) for i in range(8)]
        operands = f"{name}0", f"{name}1"
        shuffles.append((f"q{number}", "fb_kernel_twos", *operands, listed(order)))
    return shuffles


__all__ = ["few_bytes"]
