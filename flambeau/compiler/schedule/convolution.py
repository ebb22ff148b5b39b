"""Launches of convolutions and their gradients: tiles of the template "convolution".

The tiling depends on sizes alone, so that it can be computed when a plan is instantiated. It never
changes a bit of a result, with one exception: the sums of a weight's gradient are split in `parts`
if it has too few tiles to share among threads. `convolution_blocking` lists the candidates among
which `choice` selects.
"""

from __future__ import annotations

from dataclasses import replace

from flambeau.compiler.schedule import winograd
from flambeau.compiler.schedule.build import Memory, Place
from flambeau.compiler.schedule.calls import FLOPS_PER_NANOSECOND, Reads, RoutineCall
from flambeau.compiler.schedule.cluster import Cluster
from flambeau.compiler.schedule.convolution_blocking import FEWEST, SUMMED, Blocking, blocking
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
    slab_row,
    tile_of,
)
from flambeau.compiler.schedule.epilogue import Epilogue, EpilogueBuilder
from flambeau.compiler.templates.convolution import ConvolutionSettings
from flambeau.compiler.templates.product import CHUNK
from flambeau.compiler.templates.tile import Tile
from flambeau.ir.geometry import contiguous
from flambeau.ir.node import Node, node
from flambeau.ir.size import Size, ceildiv, floordiv, maximum, minimum, mul, prod, symbol
from flambeau.prims.convolution import is_depthwise

PANELS = 4  # of a tile, at least, unless there are enough tiles
SHORTEST_PART = 2048  # of a gradient's sum


def places(values: list[Node], reads: Reads, choice: str = "default") -> list[RoutineCall]:
    """A convolution, or the gradient of its input; its last launch writes the result."""
    value = values[0]
    problem, tile = problem_of(value, reads), tile_of(value.dtype)
    chosen = blocking(value.op, slab_row(value.dtype), choice)
    if value.attribute("method") == "winograd":
        return winograd.places(value, reads, chosen)
    if problem.is_depthwise and (value.op == "convolution" or problem.outer == 1):
        return [_depthwise(value, reads, problem, chosen)]
    gradient = value.op == "convolution_input"
    stride = problem.geometry["stride"] if gradient else (1, 1, 1)
    space = problem.x.space if gradient else problem.y.space
    columns_of = prod((value.shape[0], *map(ceildiv, space, stride)))
    rows_of = problem.inner if gradient else problem.outer
    slabs = chosen.slabs
    many = ceildiv(ceildiv(columns_of, slabs * tile.columns), 2) * 2
    columns, column_tiles = cut(columns_of, slabs, many, slabs // 2, tile.columns)
    parts = mul(prod(stride), problem.groups)
    tiles = ceildiv(chosen.tiles, maximum(mul(column_tiles, parts), 1))
    rows, row_tiles = cut(rows_of, chosen.rows // tile.rows, tiles, PANELS, tile.rows)
    pairs = problem.stored == "bf16"  # their windows pass through the panel's memory
    shared = 1 if pairs else minimum(mul(maximum(column_tiles, 1), prod(stride)) - 1, 1)
    shape = (shared, *value.inputs[1].shape)
    kind = kind_of(value.dtype)
    packed = ("temporary", node("s.panels", (), (("of", value),), kind, shape))
    launch = Launch(value, "convolution", problem.settings(gradient=gradient, channels=True))
    launch.buffers = {**operands(value, reads, "image", "weight"), "panels": (packed, 0)}
    call = launch.bind(
        problem.sizes(
            columns=columns, rows=rows, column_tiles=column_tiles, row_tiles=row_tiles, part=shared
        )
    )
    call.chunks = prod((parts, column_tiles, row_tiles))
    set_work(call, problem)
    panels = packing(value, reads, problem, "convolution_panels", packed)
    panels.chunks = prod((shared, problem.groups, ceildiv(rows_of, tile.rows)))
    panels.work = floordiv(prod((shared, *value.inputs[1].shape)), FLOPS_PER_NANOSECOND // 8)
    return [panels, call]


def _depthwise(value: Node, reads: Reads, problem: Problem, chosen: Blocking) -> RoutineCall:
    """Any of the three where groups have one channel: a chunk is a channel of the result."""
    tile = tile_of(value.dtype)
    stride, dilation = problem.geometry["stride"], problem.geometry["dilation"]
    gradient, of_weight = value.op == "convolution_input", value.op == "convolution_weight"
    reach = [mul(k - 1, d) for k, d in zip(problem.weight.space, dilation, strict=True)]
    rows = chosen.band if gradient else maximum(floordiv(chosen.band, stride[1]), 4)
    height = mul(rows, 1 if gradient else stride[1]) + reach[1] + 1
    runs = 1 if gradient else stride[2]
    space = problem.x.space if gradient else problem.y.space
    width = ceildiv(space[2], stride[2] if gradient else 1) + reach[2] + 2 * tile.lanes
    template = "convolution_depthwise_weight" if of_weight else "convolution_depthwise"
    launch = Launch(value, template, problem.settings(gradient=gradient, channels=False))
    names = ("gradient", "image") if of_weight else ("image", "weight")
    launch.buffers = operands(value, reads, *names)
    band = prod((problem.weight.space[0], height, runs, width)) + 4 * tile.lanes
    call = launch.bind(problem.sizes(rows=rows), band=band)
    call.chunks = value.shape[0] if of_weight else prod(value.shape[:2])
    if gradient:
        call.chunks = mul(call.chunks, prod(stride))
    set_work(call, problem)
    call.work = floordiv(mul(problem.work, 2), FLOPS_PER_NANOSECOND)
    return call


def _weight_tiles(problem: Problem, tile: Tile, chosen: Blocking) -> tuple[dict[str, Size], Size]:
    """Size arguments that tell the tiles of a weight's gradient, and how many tiles these are."""
    rows, row_tiles = cut(problem.outer, chosen.rows // tile.rows, 1, 1, tile.rows)
    tiles = ceildiv(chosen.tiles, maximum(mul(row_tiles, problem.groups), 1))
    columns_of = mul(problem.inner, prod(problem.weight.space))
    # Parts of the sums are enough for a few threads: every further tile turns the gradient again.
    least = chosen.slabs if chosen.tiles <= FEWEST else 4
    columns, column_tiles = cut(columns_of, chosen.slabs, tiles, least, tile.columns)
    sizes = {"columns": columns, "rows": rows, "column_tiles": column_tiles, "row_tiles": row_tiles}
    return sizes, prod((row_tiles, column_tiles, problem.groups))


def weight(values: list[Node], reads: Reads, choice: str = "default") -> list[RoutineCall]:
    """The gradient of a convolution's weight."""
    value = values[0]
    problem = problem_of(value, reads)
    if problem.is_depthwise:
        return [_depthwise(value, reads, problem, SUMMED)]  # its sums go band by band
    tile = tile_of(value.dtype)
    columns_of = mul(problem.inner, prod(problem.weight.space))
    if value.attribute("method") == "winograd":
        call, buffers, sizes = winograd.weight(value, reads, problem)
        return [call, _sum_of_parts(value, problem, buffers, sizes, columns_of)]
    depth = prod((problem.x.lead[0], *problem.y.space))
    _, tiles = _weight_tiles(problem, tile, SUMMED)
    parts = minimum(ceildiv(FEWEST, maximum(tiles, 1)), ceildiv(depth, SHORTEST_PART))
    parts = maximum(parts, 1)
    part = mul(ceildiv(ceildiv(depth, CHUNK), parts), CHUNK)
    chosen = blocking(value.op, slab_row(value.dtype), choice)
    tile_sizes, tiles = _weight_tiles(problem, tile, chosen)
    launch = Launch(value, "convolution_weight", problem.settings(gradient=False, channels=True))
    shape = (mul(minimum(parts - 1, 1), parts), problem.y.lead[1], columns_of)
    attributes = (("of", value), ("what", "parts"))
    sums = ("temporary", node("s.parts", (), attributes, kind_of(value.dtype), shape))
    launch.buffers = {**operands(value, reads, "gradient", "image"), "parts": (sums, 0)}
    sizes = problem.sizes(**tile_sizes, part=part, parts=parts)
    call = launch.bind(sizes)
    call.chunks = mul(tiles, parts)
    set_work(call, problem)
    return [call, _sum_of_parts(value, problem, launch.buffers, sizes, columns_of)]


def _sum_of_parts(
    value: Node,
    problem: Problem,
    buffers: dict[str, tuple[Memory, Size]],
    sizes: Sizes,
    columns: Size,
) -> RoutineCall:
    """Adds the parts where there are several."""
    stored = kind_of(value.dtype)
    launch = Launch(value, "convolution_parts", ConvolutionSettings(stored, value.dtype))
    launch.buffers = {name: buffers[name] for name in ("parts", "result")}
    call = launch.bind(sizes, row=columns)
    parts = sizes["parts"]
    assert not isinstance(parts, tuple)
    call.chunks = mul(minimum(parts - 1, 1), value.shape[0])
    call.work = prod((value.shape[0], columns, parts))
    return call


def convolution_calls(
    cluster: Cluster,
    stores: dict[Node, list[Place]],
    reads: dict[Node, Place],
    choice: str = "default",
) -> list[RoutineCall]:
    """A convolution, and what becomes of its results: written as they are, or an epilogue."""
    value = cluster.product
    assert value is not None
    written = stores.get(value, [])
    if len(cluster.members) == 1 and len(written) == 1:
        return places([value], lambda x: written[0] if x is value else reads[x], choice)
    dense = Place(("temporary", value), contiguous(value.shape))
    *before, last = places([value], lambda x: dense if x is value else reads[x], choice)
    own = len(last.memory) - 1  # all but the result
    builder = EpilogueBuilder(cluster, stores, reads, (own, len(last.sizes)))
    builder.check_operands([reads[operand].memory for operand in value.inputs])
    along_channels = not builder.runs_along(2) and builder.runs_along(1)
    turned = along_channels and not is_depthwise(value)
    epilogue = builder.finish((0, 2, 1) if turned else (0, 1, 2))
    return [*before, _with_epilogue(last, epilogue, turned, own)]


def _with_epilogue(call: RoutineCall, epilogue: Epilogue, turned: bool, own: int) -> RoutineCall:
    """The launch with an epilogue instead of a result: (sample, channel, place) are p0, p1 and r,
    or p0, r and p1 where channels lie along memory (`turned`)."""
    kernel = call.kernel
    assert kernel is not None
    del call.memory[own:], call.offsets[own:]
    for buffer in epilogue.memory:
        call.add(buffer)
    call.sizes += epilogue.sizes
    call.scalars = list(epilogue.arguments)
    call.work = call.work + epilogue.work
    settings = replace(ConvolutionSettings.of(kernel), fused=True, turned=turned)
    call.kernel = replace(
        kernel,
        parameters=(*kernel.parameters[:own], *epilogue.parameters),
        size_count=len(call.sizes),
        scalars=epilogue.scalars,
        rows=(symbol("n0"), symbol("n2")),
        inner=symbol("n9"),
        body=epilogue.body,
        settings=settings.pairs(),
    )
    return call
