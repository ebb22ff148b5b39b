"""Products with few rows: as fast as B can be read, as it lies, without packing.

`few_rows(micro, stored, target)` defines, K standing for the kind of sums, P for that of packed
elements (`Micro.packed`), T for what memory holds,

    void fb_kernel_few(long long rows, long long columns, long long depth, const Tx1 *a,
                       long long a_row, long long a_k, const Tx1 *b, long long b_k,
                       long long b_column, const Px1 *slabs, long long slab, Kx1 *sum,
                       long long pitch, Px1 *scratch)

    sum[i * pitch + j] = the canonical sum over k of a[i * a_row + k * a_k] * b[k * b_k + j *
    b_column], for b_column == 1 or b_k == 1. `scratch` has room for MOST * (SEGMENT + 2 * pitch)
    elements; rows of `sum` have room for whole vectors. Where `slabs` is not null it is B packed, a
    slab every `slab` elements, for at most `THIN` rows; then `sum` has room for whole slabs.

The rows of A are copied, group by group along K, a segment at a time. Rows of B that lie along
memory are read whole and in order, several at a time, and added to the sums in the nearest cache.
Where columns lie along memory, as many of them as a vector has lanes are read side by side to their
ends, in blocks that are turned in registers.
"""

from __future__ import annotations

import functools

from flambeau.compiler.codegen.c.kernels.c_micro import CHUNK, Micro, listed, transposition
from flambeau.compiler.codegen.c.printer.c_types import MEMORY_KIND
from flambeau.compiler.codegen.c.template import Value, render
from flambeau.compiler.targets import Target
from flambeau.compiler.templates.product import MOST, SEGMENT, THIN
from flambeau.compiler.templates.tile import VECTORS

SIDE_BY_SIDE = 4  # slabs, of one row


@functools.cache
def few_rows(micro: Micro, stored: str, target: Target) -> str:
    """C text of `fb_kernel_few` and its parts."""
    lanes, memory, pairs = micro.lanes, MEMORY_KIND[stored], micro.group == 2
    decoder = f"fb_from{stored}_u16x" if stored in ("f16", "bf16") and not pairs else ""
    heights, vector = target.gemv_heights, f"{memory}x{lanes}"
    shared, square = heights[0], "f32x16" if pairs else f"{micro.packed}x{lanes}"
    orders = [[16 * q + i // 2 + 32 * (i % 2) for i in range(32)] for q in (0, 1)]
    names: dict[str, Value] = {
        "T": f"{memory}x1",
        "T_vector": vector,
        "M": square,
        "M_stored": square if pairs else vector,
        "pairs": pairs,
        "decode": f"{decoder}{lanes}" if decoder else "",
        "decode_one": f"{decoder}1" if decoder else "",
        "step_columns": lanes * micro.group,
        "CHUNK": CHUNK,
        "SEGMENT": SEGMENT,
        "MOST": MOST,
        "halves": [(q, listed(order)) for q, order in enumerate(orders)],
        "row_heights": [_row_loops(height, micro) for height in heights],
        "column_heights": [(height, range(height)) for height in (shared, 1)],
        "slab_heights": [_slab_loops(height, micro) for height in range(THIN, 0, -1)],
        "side": THIN,
        "shared": shared,
        "taller": heights[:-1],
        "fours": [(q, *range(4 * q, 4 * q + 4)) for q in range(lanes // 4)],
        **transposition(lanes, "f32" if pairs else micro.kind),
    }
    return render("product/few_rows", names, micro.names)


def _row_loops(height: int, micro: Micro) -> Value:
    """The loops of the function for so many rows of A: rows, sums, and spans of rows of B."""
    sums = [(i, q, q * micro.lanes) for i in range(height) for q in range(micro.group)]
    several = 8 if height == 1 else 4
    spans = [
        (count, limit, int(count > 1), [(s, s * micro.group) for s in range(count)])
        for count, limit in ((several, "full"), (1, "groups"))
    ]
    return height, range(height), sums, spans


def _slab_loops(height: int, micro: Micro) -> Value:
    """The loops of the function for so many rows of A: rows, and spans of slabs side by side."""
    spans = []
    for count in (SIDE_BY_SIDE // height, 1):
        vectors = range(count * VECTORS)
        loads = [(q, q // VECTORS, q % VECTORS * micro.lanes) for q in vectors]
        spans.append((count, loads, [(i, q) for i in range(height) for q in vectors]))
    return height, range(height), spans


__all__ = ["few_rows"]
