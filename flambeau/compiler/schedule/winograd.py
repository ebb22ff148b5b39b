"""Launches of convolutions by Winograd's algorithm: the weights are turned, then tiles computed.

The weights' factors depend on the weights alone and are made by a launch of their own, so that
all tiles share them. Where images are so small that there is only one column of tiles, a tile makes
its own.
"""

from __future__ import annotations

from flambeau.compiler.codegen.c.kernels.c_micro import CHUNK
from flambeau.compiler.codegen.c.kernels.c_winograd_text import BLOCK
from flambeau.compiler.schedule.calls import FLOPS_PER_NANOSECOND, Reads, RoutineCall
from flambeau.compiler.schedule.convolution_blocking import FEWEST, Blocking
from flambeau.compiler.schedule.convolution_problem import (
    Problem,
    cut,
    launch,
    micro_of,
    packing,
    problem_of,
    template,
)
from flambeau.ir.node import ITEM_SIZE, Node, node
from flambeau.ir.size import ceildiv, floordiv, maximum, minimum, mul, prod

PANELS = 4  # of a tile, at least, unless there are enough tiles
GRADIENT_ROWS = 84  # of a tile of a gradient of the weight, at most
GRADIENT_SLABS = 2
SHORTEST_PART = 512  # squares
_FACTORS = 16  # of a square and of the taps
_PAD = 32  # elements between factors, which else lay in one set of the cache


def places(value: Node, reads: Reads, chosen: Blocking) -> list[RoutineCall]:
    """A convolution, or the gradient of its input."""
    problem = problem_of(value, reads)
    micro, gradient = micro_of(value.dtype), value.op == "convolution_input"
    rows_of, depth = problem.outer, problem.inner
    space = problem.y.space
    if gradient:
        rows_of, depth, space = depth, rows_of, problem.x.space
    squares = prod((value.shape[0], ceildiv(space[1], 2), ceildiv(space[2], 2)))
    column_tiles = ceildiv(squares, micro.columns)
    wanted = ceildiv(chosen.tiles, maximum(column_tiles, 1))
    rows, row_tiles = cut(rows_of, chosen.factor_rows // micro.rows, wanted, PANELS, micro.rows)
    call = launch(value, reads, problem)
    shared = minimum(maximum(column_tiles, 1) - 1, 1)
    padded = mul(rows_of, depth) + mul(_PAD, ceildiv(depth, CHUNK))
    shape = (_FACTORS, mul(shared, padded))
    factors = ("temporary", node("s.factors", (), (("of", value),), micro.kind, shape))
    call.memory.insert(2, factors)
    call.offsets.insert(2, 0)
    read, written = (value.dtype, "r"), (value.dtype, "w")
    settings = {"pass": "winograd", "gradient": gradient}
    call.kernel = template(value.dtype, (read, read, (micro.kind, "r"), written), **settings)
    call.sizes = problem.sizes(
        {"columns": micro.columns, "rows": rows,
         "column_tiles": column_tiles, "row_tiles": row_tiles}
    )  # fmt: skip
    call.chunks = mul(column_tiles, row_tiles)
    elements = mul(_FACTORS, CHUNK * micro.columns + mul(rows, micro.columns) + 2 * _PAD)
    panel = _FACTORS * (CHUNK * micro.rows + _PAD) + (micro.rows + 1) * micro.columns
    call.scratch = mul(elements + panel, ITEM_SIZE[micro.kind])
    call.work = floordiv(call.work, 2)
    turned = packing(value, reads, problem, factors, "winograd_weights")
    turned.chunks = prod((shared, ceildiv(rows_of, micro.rows), ceildiv(depth, CHUNK)))
    turned.work = floordiv(prod((rows_of, depth, 2 * _FACTORS)), FLOPS_PER_NANOSECOND)
    return [turned, call]


def weight(value: Node, reads: Reads, problem: Problem) -> RoutineCall:
    """The gradient of the weight; where the sums are cut in parts, its last buffer has these."""
    micro = micro_of(value.dtype)
    space = problem.y.space
    depth = prod((problem.x.lead[0], ceildiv(space[1], 2), ceildiv(space[2], 2)))
    rows, row_tiles = cut(problem.outer, GRADIENT_ROWS // micro.rows, 1, 1, micro.rows)
    columns, column_tiles = cut(problem.inner, GRADIENT_SLABS, 1, 1, micro.columns)
    tiles = mul(row_tiles, column_tiles)
    parts = minimum(ceildiv(FEWEST, maximum(tiles, 1)), ceildiv(depth, SHORTEST_PART))
    parts = maximum(parts, 1)
    part = mul(ceildiv(ceildiv(depth, BLOCK), parts), BLOCK)
    call = launch(value, reads, problem)
    read, written = (value.dtype, "r"), (value.dtype, "w")
    settings = {"pass": "winograd_gradient", "gradient": False}
    call.kernel = template(value.dtype, (read, read, written, (micro.kind, "w")), **settings)
    shape = (mul(minimum(parts - 1, 1), parts), problem.outer, problem.inner, 9)
    sums = node("s.parts", (), (("of", value), ("what", "parts")), micro.kind, shape)
    call.add(("temporary", sums))
    call.sizes = problem.sizes(
        {"columns": columns, "rows": rows, "column_tiles": column_tiles, "row_tiles": row_tiles,
         "part": part, "parts": parts}
    )  # fmt: skip
    call.chunks = mul(tiles, parts)
    per_factor = mul(rows + micro.columns, BLOCK) + mul(rows, columns) + 3 * _PAD
    elements = mul(_FACTORS, per_factor + micro.lanes * (micro.lanes + 1)) + micro.lanes
    call.scratch = mul(elements, ITEM_SIZE[micro.kind])
    call.work = floordiv(call.work, 2)
    return call
