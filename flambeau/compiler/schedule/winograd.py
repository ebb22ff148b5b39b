"""Launches of convolutions by Winograd's algorithm: the weights are turned, then tiles computed.

The weights' factors depend on the weights alone and are made by a launch of their own, so that
all tiles share them. Where images are so small that there is only one column of tiles, a tile makes
its own.
"""

from __future__ import annotations

from flambeau.compiler.codegen.c_micro import CHUNK
from flambeau.compiler.schedule.calls import FLOPS_PER_NANOSECOND, Reads, RoutineCall
from flambeau.compiler.schedule.convolution_problem import (
    Problem,
    cut,
    launch,
    micro_of,
    problem_of,
    template,
)
from flambeau.ir.node import ITEM_SIZE, Node, node
from flambeau.ir.size import Size, ceildiv, floordiv, maximum, minimum, mul, prod

ROWS = 224  # of a tile, at most: its sums and the image's factors fill the second cache
FEWEST = 4  # tiles worth having, for threads to share
PANELS = 4  # of a tile, at least, unless there are enough tiles
_FACTORS = 16  # of a square and of the taps
_PAD = 32  # elements between factors, which else lay in one set of the cache


def places(value: Node, reads: Reads) -> list[RoutineCall]:
    """A convolution, or the gradient of its input."""
    problem = problem_of(value, reads)
    micro, gradient = micro_of(value.dtype), value.op == "convolution_input"
    rows_of, depth = problem.outer, problem.inner
    space = problem.y.space
    if gradient:
        rows_of, depth, space = depth, rows_of, problem.x.space
    squares = prod((value.shape[0], ceildiv(space[1], 2), ceildiv(space[2], 2)))
    column_tiles = ceildiv(squares, micro.columns)
    wanted = ceildiv(FEWEST, maximum(column_tiles, 1))
    rows, row_tiles = cut(rows_of, ROWS // micro.rows, wanted, PANELS, micro.rows)
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
    turned = _turned(value, reads, problem, factors, (rows_of, depth))
    turned.chunks = mul(shared, turned.chunks)
    return [turned, call]


def _turned(
    value: Node,
    reads: Reads,
    problem: Problem,
    factors: tuple[str, Node],
    extent: tuple[Size, Size],
) -> RoutineCall:
    """The launch that turns the weights into their factors."""
    micro = micro_of(value.dtype)
    call = RoutineCall(f"{value.op}_factors")
    place = reads(value.inputs[1])
    offset = value.attribute("views")[1][1]
    call.add(place.memory, mul(offset + place.offset, ITEM_SIZE[value.dtype]))
    call.add(factors)
    parameters = ((value.dtype, "r"), (micro.kind, "w"))
    gradient = value.op == "convolution_input"
    call.kernel = template(
        value.dtype, parameters, gradient=gradient, **{"pass": "winograd_weights"}
    )
    call.sizes = problem.sizes({"columns": 1, "rows": 1, "column_tiles": 1, "row_tiles": 1})
    rows, depth = extent
    call.chunks = mul(ceildiv(rows, micro.rows), ceildiv(depth, CHUNK))
    call.work = floordiv(prod((rows, depth, 2 * _FACTORS)), FLOPS_PER_NANOSECOND)
    return call
