"""Launches of convolutions by Winograd's algorithm: weights are transformed, then tiles computed.

The weights' factors depend on the weights alone and are made by a launch of their own, so that
all tiles share them. Where images are so small that there is only one column of tiles, a tile makes
its own.
"""

from __future__ import annotations

from flambeau.compiler.schedule.build import Memory
from flambeau.compiler.schedule.calls import FLOPS_PER_NANOSECOND, Reads, RoutineCall
from flambeau.compiler.schedule.convolution_blocking import FEWEST, Blocking
from flambeau.compiler.schedule.convolution_problem import (
    Launch,
    Problem,
    Sizes,
    cut,
    kind_of,
    operands,
    packing,
    problem_of,
    set_work,
    tile_of,
)
from flambeau.compiler.templates.convolution import FACTORS, PAD, SQUARES
from flambeau.compiler.templates.product import CHUNK
from flambeau.ir.node import Node, node
from flambeau.ir.size import Size, ceildiv, floordiv, maximum, minimum, mul, prod

PANELS = 4  # of a tile, at least, unless there are enough tiles
GRADIENT_ROWS = 84  # of a tile of a gradient of the weight, at most
GRADIENT_SLABS = 2
SHORTEST_PART = 512  # squares


def places(value: Node, reads: Reads, chosen: Blocking) -> list[RoutineCall]:
    """A convolution, or the gradient of its input."""
    problem = problem_of(value, reads)
    tile, gradient = tile_of(value.dtype), value.op == "convolution_input"
    rows_of, depth = problem.outer, problem.inner
    space = problem.y.space
    if gradient:
        rows_of, depth, space = depth, rows_of, problem.x.space
    squares = prod((value.shape[0], ceildiv(space[1], 2), ceildiv(space[2], 2)))
    column_tiles = ceildiv(squares, tile.columns)
    tiles = ceildiv(chosen.tiles, maximum(column_tiles, 1))
    rows, row_tiles = cut(rows_of, chosen.factor_rows // tile.rows, tiles, PANELS, tile.rows)
    shared = minimum(maximum(column_tiles, 1) - 1, 1)
    padded = mul(rows_of, depth) + mul(PAD, ceildiv(depth, CHUNK))
    shape = (FACTORS, mul(shared, padded))
    kind = kind_of(value.dtype)
    factors = ("temporary", node("s.factors", (), (("of", value),), kind, shape))
    settings = problem.settings(gradient=gradient, channels=False)
    launch = Launch(value, "convolution_winograd", settings)
    launch.buffers = {**operands(value, reads, "image", "weight"), "factors": (factors, 0)}
    call = launch.bind(
        problem.sizes(
            columns=tile.columns, rows=rows, column_tiles=column_tiles, row_tiles=row_tiles
        )
    )
    call.chunks = mul(column_tiles, row_tiles)
    set_work(call, problem)
    call.work = floordiv(call.work, 2)
    weights = packing(value, reads, problem, "convolution_winograd_factors", factors)
    weights.chunks = prod((shared, ceildiv(rows_of, tile.rows), ceildiv(depth, CHUNK)))
    weights.work = floordiv(prod((rows_of, depth, 2 * FACTORS)), FLOPS_PER_NANOSECOND)
    return [weights, call]


def weight(
    value: Node, reads: Reads, problem: Problem
) -> tuple[RoutineCall, dict[str, tuple[Memory, Size]], Sizes]:
    """The gradient of the weight, its buffers and size arguments; `parts` has the sums where they
    are split in parts."""
    tile = tile_of(value.dtype)
    space = problem.y.space
    depth = prod((problem.x.lead[0], ceildiv(space[1], 2), ceildiv(space[2], 2)))
    rows, row_tiles = cut(problem.outer, GRADIENT_ROWS // tile.rows, 1, 1, tile.rows)
    columns, column_tiles = cut(problem.inner, GRADIENT_SLABS, 1, 1, tile.columns)
    tiles = mul(row_tiles, column_tiles)
    parts = minimum(ceildiv(FEWEST, maximum(tiles, 1)), ceildiv(depth, SHORTEST_PART))
    parts = maximum(parts, 1)
    part = mul(ceildiv(ceildiv(depth, SQUARES), parts), SQUARES)
    settings = problem.settings(gradient=False, channels=False)
    launch = Launch(value, "convolution_winograd_gradient", settings)
    shape = (mul(minimum(parts - 1, 1), parts), problem.outer, problem.inner, 9)
    attributes = (("of", value), ("what", "parts"))
    sums = ("temporary", node("s.parts", (), attributes, kind_of(value.dtype), shape))
    launch.buffers = {**operands(value, reads, "gradient", "image"), "parts": (sums, 0)}
    sizes = problem.sizes(
        columns=columns, rows=rows, column_tiles=column_tiles, row_tiles=row_tiles,
        part=part, parts=parts,
    )  # fmt: skip
    call = launch.bind(sizes)
    call.chunks = mul(tiles, parts)
    set_work(call, problem)
    call.work = floordiv(call.work, 2)
    return call, launch.buffers, sizes
