"""The constants that the scheduler and the printers of template "product" share.

Size arguments of the tiles, in order (`height`, `width`: extents of the result, exchanged with
those of the operands where `swapped`, when the transposed product is computed):

    depth          K
    height, width  of the result that is computed
    swapped        1: the operands are exchanged, B^T A^T is computed; strides are told accordingly
    row_tiles, column_tiles, tile_columns   how the result is cut; rows are shared out evenly, in
                   panels
    packs_a, packs_b                        1: a launch before did it for all tiles; 2: so it is,
                   unless the pointer to what was packed is null
    a_row, a_k, b_k, b_column               strides

then per batch dimension its extent, its stride in a and its stride in b. Those of a launch that
packs an operand: its rows or columns, K, the strides along them, the width of a panel or slab and
whether the last one has it, too (slabs do); then per batch dimension its extent and its stride.
"""

from __future__ import annotations

ARGUMENTS = (
    "depth", "height", "width", "swapped", "row_tiles", "column_tiles", "tile_columns",
    "packs_a", "packs_b", "a_row", "a_k", "b_k", "b_column",
)  # fmt: skip
PACK_ARGUMENTS = ("extent", "depth", "step", "k_step", "unit", "padded")
VECTORS = 2  # of a row of the micro-kernel's block
CHUNK = 128  # elements of K that are one chain of FMAs: part of the semantics
SEGMENT = 2048  # elements of K whose chunks are added to one sum; such sums are added then
# How the sums of a product are chained, setting `unit`: along K ("plain"); of bfloat16 by pairs,
# the odd element first, in float32 ("swapped") or by the instruction for it ("dot"): the same bits;
# of bytes by fours ("quads").
UNITS = ("plain", "swapped", "dot", "quads")
GROUPS = {"plain": 1, "swapped": 1, "dot": 2, "quads": 4}  # elements of K that are packed as one
FEW = 16  # rows so few that contiguous columns of B are read in place, where the target can
FEW_LONG = 4  # rows so few that B is, whose rows lie along memory
MOST = 4  # of such rows that share the reading of B
PITCH = 16  # rows of a tile start in different sets of the cache

__all__ = [
    "ARGUMENTS", "CHUNK", "FEW", "FEW_LONG", "GROUPS", "MOST",
    "PACK_ARGUMENTS", "PITCH", "SEGMENT", "UNITS", "VECTORS",
]  # fmt: skip
