"""The problem that the launches of a convolution and of its gradients solve."""

from __future__ import annotations

from dataclasses import dataclass

from flambeau.compiler import targets
from flambeau.compiler.schedule.build import Memory
from flambeau.compiler.schedule.calls import FLOPS_PER_NANOSECOND, Reads, RoutineCall
from flambeau.compiler.templates import TEMPLATES
from flambeau.compiler.templates.convolution import ConvolutionSettings
from flambeau.compiler.templates.product import CHUNK
from flambeau.compiler.templates.tile import Tile
from flambeau.ir.geometry import Shape
from flambeau.ir.node import ITEM_SIZE, Node
from flambeau.ir.size import Size, ceildiv, floordiv, maximum, minimum, mul, prod

Sizes = dict[str, Size | Shape]


@dataclass(frozen=True)
class Operand:
    """A tensor's sizes and strides, with three spatial dimensions."""

    lead: Shape
    space: Shape
    lead_strides: Shape
    strides: Shape

    @staticmethod
    def of(shape: Shape, strides: Shape) -> Operand:
        """An operand; spatial dimensions that it has not got have one element."""
        missing = 5 - len(shape)
        return Operand(
            shape[:2], (1,) * missing + shape[2:], strides[:2], (0,) * missing + strides[2:]
        )


@dataclass(frozen=True)
class Problem:
    """The problem of the three primitives: x, y, the weight and their connection."""

    x: Operand
    y: Operand
    weight: Operand
    geometry: dict[str, tuple[Size, ...]]
    groups: int
    dtype: str
    stored: str

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

    def settings(self, *, gradient: bool, channels: bool) -> ConvolutionSettings:
        """The settings of a kernel; `channels`: whether it depends on where channels are."""
        channels_last = channels and self.has_channels_last
        return ConvolutionSettings(self.stored, self.dtype, gradient, channels_last)

    def sizes(self, **tiles: Size) -> Sizes:
        """The size arguments, by name: those of tiles are 1 by default."""
        x, y, weight = self.x, self.y, self.weight
        return {
            "batch": x.lead[0], "groups": self.groups, "outer": self.outer, "inner": self.inner,
            "x": x.space, "y": y.space, "kernel": weight.space, **self.geometry,
            "xs_batch": x.lead_strides[0], "xs_channel": x.lead_strides[1], "xs": x.strides,
            "ys_batch": y.lead_strides[0], "ys_channel": y.lead_strides[1], "ys": y.strides,
            "ws_outer": weight.lead_strides[0], "ws_inner": weight.lead_strides[1],
            "ws": weight.strides, "columns": 1, "rows": 1, "column_tiles": 1, "row_tiles": 1,
            "part": 0, "parts": 1, **tiles,
        }  # fmt: skip


def problem_of(value: Node, reads: Reads) -> Problem:
    """The problem of which `value` is a part."""
    views, shapes = value.attribute("views"), value.attribute("shapes")
    operands = [Operand.of(s, v[0]) for s, v in zip(shapes, views, strict=True)]
    result = Operand.of(value.shape, reads(value).strides)
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
    return Problem(
        x, y, weight, geometry, value.attribute("groups"), value.dtype, value.inputs[0].dtype
    )


class Launch:
    """A launch of a kernel, described step by step.

    Args:
        value: the node that is computed.
        template: the kernel's.
        settings: of the template.
    """

    def __init__(self, value: Node, template: str, settings: ConvolutionSettings) -> None:
        self.call = RoutineCall(value.op)
        self.template, self.settings = template, settings
        self.interface = TEMPLATES[template].interface(settings, targets.current())
        self.buffers: dict[str, tuple[Memory, Size]] = {}

    def bind(self, sizes: Sizes, **extents: Size) -> RoutineCall:
        """The launch, with its kernel, buffers, size arguments and scratch."""
        self.call.bind(self.interface, sizes, self.buffers, extents)
        self.call.kernel = self.interface.kernel(self.template, self.settings)
        return self.call


def operands(value: Node, reads: Reads, first: str, second: str) -> dict[str, tuple[Memory, Size]]:
    """Memory and offset of the operands, by these names, and of the result."""
    buffers = {}
    for name, operand, (_, offset) in zip(
        (first, second), value.inputs, value.attribute("views"), strict=True
    ):
        place = reads(operand)
        start = mul(offset + place.offset, ITEM_SIZE[operand.dtype])
        buffers[name] = place.memory, start
    place = reads(value)
    buffers["result"] = place.memory, mul(place.offset, ITEM_SIZE[value.dtype])
    return buffers


def tile_of(dtype: str) -> Tile:
    """The tile of the micro-kernels that compute in a dtype."""
    return Tile.of(kind_of(dtype), targets.current())


def slab_row(dtype: str) -> int:
    """Bytes of a row of a slab of windows."""
    return tile_of(dtype).columns * ITEM_SIZE[kind_of(dtype)]


def set_work(call: RoutineCall, problem: Problem) -> None:
    """Sets the cost of the products."""
    call.work = floordiv(problem.work, FLOPS_PER_NANOSECOND)
    call.flops = mul(problem.work, 2)


def kind_of(dtype: str) -> str:
    """The dtype of sums."""
    return "f64" if dtype == "f64" else "f32"


def cut(total: Size, most: Size, desired: Size, least: int, unit: int) -> tuple[Size, Size]:
    """Elements per tile and tiles: at most `most` units, more tiles where fewer than `wanted`, but
    then at least `least` units each."""
    units = ceildiv(total, unit)
    tiles = maximum(ceildiv(units, most), minimum(desired, ceildiv(units, least)))
    per_tile = ceildiv(units, maximum(tiles, 1))
    return mul(per_tile, unit), ceildiv(units, maximum(per_tile, 1))


def packing(
    value: Node, reads: Reads, problem: Problem, template: str, packed: tuple[str, Node]
) -> RoutineCall:
    """A launch that packs the weight, the second operand, into temporary memory: its buffer that
    is not `weight`."""
    settings = problem.settings(gradient=value.op == "convolution_input", channels=False)
    launch = Launch(value, template, settings)
    call = launch.call
    call.name, call.packing = f"{value.op}_{template.rpartition('_')[2]}", (0, 1)
    launch.buffers["weight"] = operands(value, reads, "image", "weight")["weight"]
    launch.buffers[launch.interface.buffers[1].name] = packed, 0
    images = ("batch", "xs_batch", "xs_channel", "ys_batch", "ys_channel")
    spaces = ("x", "xs", "y", "ys")  # a copy serves all images
    unused: Sizes = {**dict.fromkeys(images, 0), **dict.fromkeys(spaces, (0, 0, 0))}
    return launch.bind({**problem.sizes(), **unused})
