"""What the launches of convolutions and their gradients have in common: the problem they solve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flambeau.compiler import targets
from flambeau.compiler.codegen.c.kernels.c_micro import CHUNK, Micro
from flambeau.compiler.codegen.c.kernels.c_template_convolution import SIZES
from flambeau.compiler.schedule.calls import FLOPS_PER_NANOSECOND, Reads, RoutineCall
from flambeau.ir.geometry import Shape
from flambeau.ir.kernel import Kernel
from flambeau.ir.node import ITEM_SIZE, Node
from flambeau.ir.size import Size, ceildiv, floordiv, maximum, minimum, mul, prod


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
    """What the three primitives have in common: x, y, the weight and how they are connected."""

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

    def sizes(self, tiles: dict[str, Size]) -> list[Size]:
        """The size arguments."""
        x, y, weight = self.x, self.y, self.weight
        given: dict[str, Size] = {
            "batch": x.lead[0], "groups": self.groups, "outer": self.outer, "inner": self.inner,
            "xs_batch": x.lead_strides[0], "xs_channel": x.lead_strides[1],
            "ys_batch": y.lead_strides[0], "ys_channel": y.lead_strides[1],
            "ws_outer": weight.lead_strides[0], "ws_inner": weight.lead_strides[1],
            "part": 0, "parts": 1,
        }  # fmt: skip
        for d in range(3):
            given |= {f"x{d}": x.space[d], f"y{d}": y.space[d], f"kernel{d}": weight.space[d]}
            given |= {f"xs{d}": x.strides[d], f"ys{d}": y.strides[d], f"ws{d}": weight.strides[d]}
            given |= {f"{name}{d}": values[d] for name, values in self.geometry.items()}
        given |= tiles
        return [given[name] for name in SIZES]


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


def template(dtype: str, parameters: tuple[tuple[str, str], ...], **settings: Any) -> Kernel:
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


def launch(value: Node, reads: Reads, problem: Problem) -> RoutineCall:
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


def micro_of(dtype: str) -> Micro:
    """The micro-kernels that compute in a dtype."""
    return Micro.of("f64" if dtype == "f64" else "f32", targets.current())


def cut(total: Size, most: Size, wanted: Size, least: int, unit: int) -> tuple[Size, Size]:
    """Elements per tile and tiles: at most `most` units, more tiles where fewer than `wanted`, but
    then at least `least` units each."""
    units = ceildiv(total, unit)
    tiles = maximum(ceildiv(units, most), minimum(wanted, ceildiv(units, least)))
    per_tile = ceildiv(units, maximum(tiles, 1))
    return mul(per_tile, unit), ceildiv(units, maximum(per_tile, 1))


def packing(
    value: Node, reads: Reads, problem: Problem, packed: tuple[str, Node], which: str
) -> RoutineCall:
    """A launch that packs the weight, the second operand, into temporary memory."""
    call = RoutineCall(f"{value.op}_{which}", packing=(0, 1))
    place = reads(value.inputs[1])
    offset = value.attribute("views")[1][1]
    call.add(place.memory, mul(offset + place.offset, ITEM_SIZE[problem.stored]))
    call.add(packed)
    parameters = ((problem.stored, "r"), (packed[1].dtype, "w"))
    gradient = value.op == "convolution_input"
    settings = {"pass": which, "stored": problem.stored}
    call.kernel = template(value.dtype, parameters, gradient=gradient, **settings)
    images = ("batch", "x0", "x1", "x2", "y0", "y1", "y2")
    strides = [f"{i}s{s}" for i in "xy" for s in ("_batch", "_channel", "0", "1", "2")]
    unused = dict.fromkeys((*images, *strides), 0)  # a copy serves all images
    tiles = dict.fromkeys(("columns", "rows", "column_tiles", "row_tiles"), 1)
    call.sizes = problem.sizes({**tiles, **unused})
    return call
