"""Launches of convolutions and their gradients: tiles of the template "convolution".

How results are cut into tiles depends on sizes alone, so that it may be computed when a plan is
instantiated, and never changes a bit of a result, with one exception: the sums of a weight's
gradient are cut in `parts` where it has too few tiles to share among threads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from flambeau.compiler import targets
from flambeau.compiler.codegen.c_micro import CHUNK, Micro
from flambeau.compiler.codegen.c_template_convolution import SIZES
from flambeau.compiler.schedule.build import Place
from flambeau.compiler.schedule.calls import FLOPS_PER_NANOSECOND, Reads, RoutineCall
from flambeau.compiler.schedule.cluster import Cluster
from flambeau.compiler.schedule.epilogue import Epilogue, EpilogueBuilder
from flambeau.compiler.schedule.prepare import is_depthwise
from flambeau.compiler.schedule.views import Shape, contiguous
from flambeau.ir.kernel import Kernel
from flambeau.ir.node import ITEM_SIZE, Node, node
from flambeau.ir.size import Size, ceildiv, floordiv, maximum, minimum, mul, prod, symbol

SLABS = 8  # of a tile, at most: its windows fill a quarter of the second cache
ROWS = 512  # of a tile, at most
GRADIENT_ROWS = 252
BAND = 32  # rows of a channel that stay in the first cache
FEWEST = 4  # tiles worth having, for threads to share
PANELS = 4  # of a tile, at least, unless there are enough tiles
OWN_BUFFERS = 2  # the operands; then the result, or what the epilogue reads and writes
SHORTEST_PART = 2048  # of a gradient's sum


@dataclass(frozen=True)
class _Operand:
    """A tensor's sizes and strides, with three spatial dimensions."""

    lead: Shape
    space: Shape
    lead_strides: Shape
    strides: Shape

    @staticmethod
    def of(shape: Shape, strides: Shape) -> _Operand:
        missing = 5 - len(shape)
        return _Operand(
            shape[:2], (1,) * missing + shape[2:], strides[:2], (0,) * missing + strides[2:]
        )


@dataclass(frozen=True)
class _Problem:
    """What the three primitives have in common: x, y, the weight and how they are connected."""

    x: _Operand
    y: _Operand
    weight: _Operand
    geometry: dict[str, tuple[Size, ...]]
    groups: int
    dtype: str

    @property
    def outer(self) -> Size:
        """Channels of y per group."""
        return floordiv(self.y.lead[1], self.groups)

    @property
    def inner(self) -> Size:
        """Channels of x per group."""
        return self.weight.lead[1]

    @property
    def work(self) -> Size:
        """Multiply-adds."""
        of_window = mul(self.inner, prod(self.weight.space))
        return prod((*self.y.lead, *self.y.space, of_window))

    @property
    def has_channels_last(self) -> bool:
        """Whether the channels of an image lie along memory, and its rows do not."""
        return any(
            image.lead_strides[1] == 1 and image.strides[2] != 1 for image in (self.x, self.y)
        )

    @property
    def is_depthwise(self) -> bool:
        """Whether a group has one channel, and a window no more than one chunk of a sum."""
        window = prod(self.weight.space)
        return self.inner == 1 and self.groups > 1 and isinstance(window, int) and window <= CHUNK

    def sizes(self, tiles: dict[str, Size]) -> list[Size]:
        """The size arguments."""
        x, y, weight = self.x, self.y, self.weight
        given: dict[str, Size] = {
            "batch": x.lead[0], "groups": self.groups, "outer": self.outer, "inner": self.inner,
            "xs_batch": x.lead_strides[0], "xs_channel": x.lead_strides[1],
            "ys_batch": y.lead_strides[0], "ys_channel": y.lead_strides[1],
            "ws_outer": weight.lead_strides[0], "ws_inner": weight.lead_strides[1],
            "part": 0, "parts": 1, **tiles,
        }  # fmt: skip
        for d in range(3):
            given |= {f"x{d}": x.space[d], f"y{d}": y.space[d], f"kernel{d}": weight.space[d]}
            given |= {f"xs{d}": x.strides[d], f"ys{d}": y.strides[d], f"ws{d}": weight.strides[d]}
            given |= {f"{name}{d}": values[d] for name, values in self.geometry.items()}
        return [given[name] for name in SIZES]


def _problem(value: Node, reads: Reads) -> _Problem:
    """The problem of which `value` is a part."""
    views, shapes = value.attribute("views"), value.attribute("shapes")
    operands = [_Operand.of(s, v[0]) for s, v in zip(shapes, views, strict=True)]
    result = _Operand.of(value.shape, reads(value).strides)
    if value.op == "convolution":
        (x, weight), y = operands, result
    elif value.op == "convolution_input":
        (y, weight), x = operands, result
    else:
        (y, x), weight = operands, result
    missing = 5 - value.ndim
    geometry = {
        name: (ordinary,) * missing + value.attribute(name)
        for name, ordinary in (("stride", 1), ("dilation", 1), ("low", 0))
    }
    return _Problem(x, y, weight, geometry, value.attribute("groups"), value.dtype)


def _kernel(dtype: str, parameters: tuple[tuple[str, str], ...], **settings: Any) -> Kernel:
    """A kernel of the template."""
    return Kernel(
        form="template",
        parameters=parameters,
        size_count=len(SIZES),
        scalars=(),
        rows=(),
        inner=1,
        body=(),
        template="convolution",
        settings=tuple(sorted({"stored": dtype, "result": dtype, **settings}.items())),
    )


def _call(value: Node, reads: Reads, problem: _Problem) -> RoutineCall:
    """A launch with the operands and the result as its buffers."""
    call = RoutineCall(value.op)
    for operand, (_, offset) in zip(value.inputs, value.attribute("views"), strict=True):
        place = reads(operand)
        call.add(place.memory, mul(offset + place.offset, ITEM_SIZE[operand.dtype]))
    place = reads(value)
    call.add(place.memory, mul(place.offset, ITEM_SIZE[value.dtype]))
    call.work = floordiv(problem.work, FLOPS_PER_NANOSECOND)
    call.flops = mul(problem.work, 2)
    return call


def _micro(dtype: str) -> Micro:
    return Micro.of("f64" if dtype == "f64" else "f32", targets.current())


def _cut(total: Size, most: Size, wanted: Size, least: int, unit: int) -> tuple[Size, Size]:
    """Elements per tile and tiles: at most `most` units, more tiles where fewer than `wanted`, but
    then at least `least` units each."""
    units = ceildiv(total, unit)
    tiles = maximum(ceildiv(units, most), minimum(wanted, ceildiv(units, least)))
    per_tile = ceildiv(units, maximum(tiles, 1))
    return mul(per_tile, unit), ceildiv(units, maximum(per_tile, 1))


def places(values: list[Node], reads: Reads) -> RoutineCall:
    """A convolution, or the gradient of its input."""
    value = values[0]
    problem = _problem(value, reads)
    if problem.is_depthwise and (value.op == "convolution" or problem.outer == 1):
        return _depthwise(value, reads, problem)
    micro = _micro(value.dtype)
    gradient = value.op == "convolution_input"
    stride = problem.geometry["stride"] if gradient else (1, 1, 1)
    space = problem.x.space if gradient else problem.y.space
    columns_of = prod((value.shape[0], *map(ceildiv, space, stride)))
    rows_of = problem.inner if gradient else problem.outer
    many = ceildiv(ceildiv(columns_of, SLABS * micro.columns), 2) * 2
    columns, column_tiles = _cut(columns_of, SLABS, many, SLABS // 2, micro.columns)
    parts = mul(prod(stride), problem.groups)
    wanted = ceildiv(FEWEST, maximum(mul(column_tiles, parts), 1))
    rows, row_tiles = _cut(rows_of, ROWS // micro.rows, wanted, PANELS, micro.rows)
    call = _call(value, reads, problem)
    read, written = (value.dtype, "r"), (value.dtype, "w")
    settings = {"pass": "places", "gradient": gradient, "channels": problem.has_channels_last}
    call.kernel = _kernel(value.dtype, (read, read, written), **settings)
    call.sizes = problem.sizes(
        {"columns": columns, "rows": rows, "column_tiles": column_tiles, "row_tiles": row_tiles}
    )
    call.chunks = prod((parts, column_tiles, row_tiles))
    elements = mul(columns + 16, CHUNK) + mul(rows, columns) + micro.lanes
    call.scratch = mul(elements, ITEM_SIZE[micro.kind])
    return call


def _depthwise(value: Node, reads: Reads, problem: _Problem) -> RoutineCall:
    """Any of the three where groups have one channel: a chunk is a channel of the result."""
    micro = _micro(value.dtype)
    stride, dilation = problem.geometry["stride"], problem.geometry["dilation"]
    gradient, of_weight = value.op == "convolution_input", value.op == "convolution_weight"
    reach = [mul(k - 1, d) for k, d in zip(problem.weight.space, dilation, strict=True)]
    rows = BAND if gradient else maximum(floordiv(BAND, stride[1]), 4)
    height = mul(rows, 1 if gradient else stride[1]) + reach[1] + 1
    runs = 1 if gradient else stride[2]
    space = problem.x.space if gradient else problem.y.space
    width = ceildiv(space[2], stride[2] if gradient else 1) + reach[2] + 2 * micro.lanes
    call = _call(value, reads, problem)
    read, written = (value.dtype, "r"), (value.dtype, "w")
    which = "depthwise_weight" if of_weight else "depthwise"
    call.kernel = _kernel(value.dtype, (read, read, written), gradient=gradient, **{"pass": which})
    call.sizes = problem.sizes(
        {"columns": 1, "rows": rows, "column_tiles": 1, "row_tiles": 1, "part": 0, "parts": 1}
    )
    call.chunks = value.shape[0] if of_weight else prod(value.shape[:2])
    if gradient:
        call.chunks = mul(call.chunks, prod(stride))
    elements = prod((problem.weight.space[0], height, runs, width)) + 4 * micro.lanes
    call.scratch = mul(elements, ITEM_SIZE[micro.kind])
    call.work = floordiv(mul(problem.work, 2), FLOPS_PER_NANOSECOND)
    return call


def weight(values: list[Node], reads: Reads) -> list[RoutineCall]:
    """The gradient of a convolution's weight."""
    value = values[0]
    problem = _problem(value, reads)
    if problem.is_depthwise:
        return [_depthwise(value, reads, problem)]
    micro = _micro(value.dtype)
    columns_of = mul(problem.inner, prod(problem.weight.space))
    depth = prod((problem.x.lead[0], *problem.y.space))
    rows, row_tiles = _cut(problem.outer, GRADIENT_ROWS // micro.rows, 1, 1, micro.rows)
    wanted = ceildiv(FEWEST, maximum(mul(row_tiles, problem.groups), 1))
    columns, column_tiles = _cut(columns_of, SLABS, wanted, 4, micro.columns)
    tiles = prod((row_tiles, column_tiles, problem.groups))
    parts = minimum(ceildiv(FEWEST, maximum(tiles, 1)), ceildiv(depth, SHORTEST_PART))
    parts = maximum(parts, 1)
    part = mul(ceildiv(ceildiv(depth, CHUNK), parts), CHUNK)
    call = _call(value, reads, problem)
    read, written = (value.dtype, "r"), (value.dtype, "w")
    parameters = (read, read, written, (micro.kind, "w"))
    settings = {"pass": "weight", "gradient": True, "channels": problem.has_channels_last}
    call.kernel = _kernel(value.dtype, parameters, **settings)
    shape = (mul(minimum(parts - 1, 1), parts), problem.y.lead[1], columns_of)
    packed = (("of", value), ("what", "parts"))
    sums = ("temporary", node("s.parts", (), packed, micro.kind, shape))
    call.add(sums)
    sizes = {"columns": columns, "rows": rows, "column_tiles": column_tiles, "row_tiles": row_tiles}
    call.sizes = problem.sizes({**sizes, "part": part, "parts": parts})
    call.chunks = mul(tiles, parts)
    elements = mul(rows + 2 * micro.columns, CHUNK) + mul(rows, columns)
    call.scratch = mul(elements, ITEM_SIZE[micro.kind])
    return [call, _sum_of_parts(call, value, sums, columns_of)]


def _sum_of_parts(first: RoutineCall, value: Node, sums: Any, columns: Size) -> RoutineCall:
    """Adds the parts where there are several."""
    call = RoutineCall(value.op)
    call.add(sums)
    call.add(first.memory[2], first.offsets[2])
    parameters = ((_micro(value.dtype).kind, "r"), (value.dtype, "w"))
    call.kernel = _kernel(value.dtype, parameters, gradient=True, **{"pass": "parts"})
    call.sizes = first.sizes
    parts = first.sizes[SIZES.index("parts")]
    call.chunks = mul(minimum(parts - 1, 1), value.shape[0])
    call.work = prod((value.shape[0], columns, parts))
    call.scratch = mul(columns, 8)
    return call


def convolution_calls(
    cluster: Cluster, stores: dict[Node, list[Place]], reads: dict[Node, Place]
) -> list[RoutineCall]:
    """A convolution, and what becomes of its results: written as they are, or an epilogue."""
    value = cluster.product
    assert value is not None
    written = stores.get(value, [])
    if len(cluster.members) == 1 and len(written) == 1:
        return [places([value], lambda x: written[0] if x is value else reads[x])]
    builder = EpilogueBuilder(cluster, stores, reads, (OWN_BUFFERS, len(SIZES)))
    builder.check_operands([reads[operand].memory for operand in value.inputs])
    along_channels = not builder.runs_along(2) and builder.runs_along(1)
    turned = along_channels and not is_depthwise(value)
    epilogue = builder.finish((0, 2, 1) if turned else (0, 1, 2))
    dense = Place(("temporary", value), contiguous(value.shape))
    call = places([value], lambda x: dense if x is value else reads[x])
    return [_with_epilogue(call, epilogue, turned)]


def _with_epilogue(call: RoutineCall, epilogue: Epilogue, turned: bool) -> RoutineCall:
    """The launch with an epilogue instead of a result: (sample, channel, place) are p0, p1 and r,
    or p0, r and p1 where channels lie along memory (`turned`)."""
    kernel = call.kernel
    assert kernel is not None
    del call.memory[OWN_BUFFERS:], call.offsets[OWN_BUFFERS:]
    for buffer in epilogue.memory:
        call.add(buffer)
    call.sizes += epilogue.sizes
    call.scalars = list(epilogue.arguments)
    call.work = call.work + epilogue.work
    settings = dict(kernel.settings) | {"turned": turned}
    call.kernel = replace(
        kernel,
        parameters=(*kernel.parameters[:OWN_BUFFERS], *epilogue.parameters),
        size_count=len(call.sizes),
        scalars=epilogue.scalars,
        rows=(symbol("n0"), symbol("n2")),
        inner=symbol("n9"),
        body=epilogue.body,
        settings=tuple(sorted(settings.items())),
    )
    return call
