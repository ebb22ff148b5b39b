"""The interfaces of the kernels of convolutions and their gradients.

"convolution" computes results, or gradients of the input, as tiles of an implicit product; "panels"
packs the weights for it. "weight" and "parts" compute gradients of the weight and add up the parts
of their sums. "depthwise" kernels are for groups of one channel, "winograd" kernels for 3 x 3 taps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from flambeau.compiler.targets import Target
from flambeau.compiler.templates.interface import (
    Array,
    Buffer,
    Interface,
    Settings,
    SizeArgument,
    Template,
)
from flambeau.compiler.templates.product import CHUNK
from flambeau.compiler.templates.tile import Tile
from flambeau.ir.size import Size, mul, symbol

CHAIN = 64  # elements of a sum over (channel, tap), or pairs of them, that are one chain: canonical
SQUARES_CHAIN = 32  # channels of a sum of Winograd's algorithm that are one chain: canonical
SQUARES = 64  # squares of a gradient of the weight that are one chain: canonical
FACTORS = 16  # numbers of a square of 4 x 4 elements
PAD = 32  # elements between factors, which else were in one set of the cache
PANEL = 16  # rows of a panel of weights, at most

# "x" is what windows are taken of, "y" what has a place per window; channels of a group: `outer` of
# y, `inner` of x. Axes are 0, 1, 2, the last one along rows. Strides are in elements.
SIZES = (
    *map(SizeArgument, ("batch", "groups", "outer", "inner")),
    *(SizeArgument(name, count=3) for name in ("x", "y", "kernel", "stride", "dilation", "low")),
    *map(SizeArgument, ("xs_batch", "xs_channel")), SizeArgument("xs", count=3),
    *map(SizeArgument, ("ys_batch", "ys_channel")), SizeArgument("ys", count=3),
    *map(SizeArgument, ("ws_outer", "ws_inner")), SizeArgument("ws", count=3),
    # tiles: of columns and rows, how many; elements of K of one part of a sum (of `places`: whether
    # weights are packed ahead), and how many parts there are
    *map(SizeArgument, ("columns", "rows", "column_tiles", "row_tiles", "part", "parts")),
)  # fmt: skip


@dataclass(frozen=True)
class ConvolutionSettings(Settings):
    """Compile-time choices of the kernels.

    Attributes:
        stored: dtype of the operands.
        result: of the results.
        gradient: the gradient of the input is computed.
        channels: the channels of an image are contiguous.
        fused: results go to an epilogue, not to memory.
        turned: where the channels of the epilogue's results are contiguous.
    """

    stored: str
    result: str
    gradient: bool = False
    channels: bool = False
    fused: bool = False
    turned: bool = False

    @property
    def kind(self) -> str:
        """The dtype of sums."""
        return "f64" if self.stored == "f64" else "f32"

    @property
    def pairwise(self) -> bool:
        """Whether products are those of pairs."""
        return self.stored == "bf16"

    def suits(self, target: Target) -> bool:
        """Products of pairs are an instruction."""
        return not self.pairwise or target.instruction("dot_pairs", "f32", 16) is not None

    @property
    def packed(self) -> str:
        """The dtype of packed elements, or of one as wide."""
        return "u32" if self.pairwise else self.kind

    def tile(self, target: Target) -> Tile:
        """The tile of the micro-kernels."""
        return Tile.of(self.kind, target)


def _interface(
    buffers: Iterable[tuple[str, str, str]], scratch: Iterable[tuple[str, str, Size]] = ()
) -> Interface:
    arrays = tuple(Array(*array) for array in scratch)
    return Interface(SIZES, tuple(Buffer(*buffer) for buffer in buffers), (), arrays)


def _results(settings: ConvolutionSettings) -> list[tuple[str, str, str]]:
    return [] if settings.fused else [("result", settings.result, "w")]


def _places(settings: ConvolutionSettings, target: Target) -> Interface:
    tile, rows, columns = settings.tile(target), symbol("rows"), symbol("columns")
    stored = settings.stored
    read = [("image", stored, "r"), ("weight", stored, "r"), ("panels", settings.kind, "r")]
    return _interface(
        [*read, *_results(settings)],
        [
            ("windows", settings.packed, mul(columns, CHUNK)),
            ("panel", settings.packed, PANEL * CHUNK),
            ("tile", settings.kind, mul(rows, columns) + tile.lanes),
        ],
    )


def _panels(settings: ConvolutionSettings, target: Target) -> Interface:
    return _interface([("weight", settings.stored, "r"), ("panels", settings.kind, "w")])


def _weight(settings: ConvolutionSettings, target: Target) -> Interface:
    stored, packed, columns = settings.stored, settings.packed, settings.tile(target).columns
    rows = symbol("rows")
    read = [("gradient", stored, "r"), ("image", stored, "r")]
    return _interface(
        [*read, ("result", settings.result, "w"), ("parts", settings.kind, "w")],
        [
            ("left", packed, mul(rows, CHUNK)),
            ("slab", packed, columns * CHUNK),
            ("line", stored, columns * CHUNK),
            ("tile", settings.kind, mul(rows, symbol("columns"))),
        ],
    )


def _parts(settings: ConvolutionSettings, target: Target) -> Interface:
    """Extent `row`: elements of a row of the weight."""
    buffers = [("parts", settings.kind, "r"), ("result", settings.result, "w")]
    return _interface(buffers, [("line", settings.kind, symbol("row"))])


def _depthwise(settings: ConvolutionSettings, target: Target) -> Interface:
    """Extent `band`: elements of a band of rows of a channel."""
    read = [("image", settings.stored, "r"), ("weight", settings.stored, "r")]
    return _interface([*read, *_results(settings)], [("band", settings.kind, symbol("band"))])


def _depthwise_weight(settings: ConvolutionSettings, target: Target) -> Interface:
    read = [("gradient", settings.stored, "r"), ("image", settings.stored, "r")]
    band = ("band", settings.kind, symbol("band"))
    return _interface([*read, ("result", settings.result, "w")], [band])


def _winograd(settings: ConvolutionSettings, target: Target) -> Interface:
    tile, kind, stored = settings.tile(target), settings.kind, settings.stored
    read = [("image", stored, "r"), ("weight", stored, "r"), ("factors", kind, "r")]
    return _interface(
        [*read, *_results(settings)],
        [
            ("factors", kind, FACTORS * (CHUNK * tile.columns + PAD)),
            ("tile", kind, mul(FACTORS, mul(symbol("rows"), tile.columns) + PAD)),
            ("block", kind, tile.rows * tile.columns),
            ("panel", kind, FACTORS * (CHUNK * tile.rows + PAD) + tile.columns),
        ],
    )


def _winograd_factors(settings: ConvolutionSettings, target: Target) -> Interface:
    return _interface([("weight", settings.stored, "r"), ("factors", settings.kind, "w")])


def _winograd_gradient(settings: ConvolutionSettings, target: Target) -> Interface:
    tile, kind, stored, rows = settings.tile(target), settings.kind, settings.stored, symbol("rows")
    read = [("gradient", stored, "r"), ("image", stored, "r")]
    return _interface(
        [*read, ("result", settings.result, "w"), ("parts", kind, "w")],
        [
            ("left", kind, mul(FACTORS, mul(rows, SQUARES) + PAD)),
            ("slab", kind, FACTORS * (SQUARES * tile.columns + PAD)),
            ("tile", kind, mul(FACTORS, mul(rows, symbol("columns")) + PAD)),
            ("block", kind, FACTORS * tile.lanes * (tile.lanes + 1) + tile.lanes),
        ],
    )


def _samples(
    dtypes: tuple[str, ...], gradient: bool, channels: bool
) -> Iterator[ConvolutionSettings]:
    """Every dtype, and every choice that the kernel has beside an epilogue."""
    for dtype in dtypes:
        settings = ConvolutionSettings(dtype, "f32" if dtype == "bf16" else dtype)
        yield settings
        if gradient:
            yield replace(settings, gradient=True)
        if channels:
            yield replace(settings, channels=True, gradient=gradient)


def _general(channels: bool, settings: ConvolutionSettings) -> ConvolutionSettings:
    """Settings without an epilogue. Kernels for contiguous channels take all other images, too."""
    return replace(settings, channels=channels, fused=False, turned=False)


_TEMPLATES = (
    ("convolution", _places, ("f32", "f64", "bf16"), (True, True)),
    ("convolution_panels", _panels, ("f32", "f64", "bf16"), (True, False)),
    ("convolution_weight", _weight, ("f32", "f64", "bf16"), (False, True)),
    ("convolution_parts", _parts, ("f32", "f64"), (False, False)),
    ("convolution_depthwise", _depthwise, ("f32", "f64"), (True, False)),
    ("convolution_depthwise_weight", _depthwise_weight, ("f32", "f64"), (False, False)),
    ("convolution_winograd", _winograd, ("f32",), (True, False)),
    ("convolution_winograd_factors", _winograd_factors, ("f32",), (True, False)),
    ("convolution_winograd_gradient", _winograd_gradient, ("f32",), (False, False)),
)
TEMPLATES: dict[str, Template[ConvolutionSettings]] = {
    name: Template(
        name, ConvolutionSettings, interface, partial(_samples, dtypes, *choices),
        general=partial(_general, choices[1]),
    )
    for name, interface, dtypes, choices in _TEMPLATES
}  # fmt: skip

__all__ = [
    "CHAIN", "FACTORS", "PAD", "SIZES", "SQUARES", "SQUARES_CHAIN", "TEMPLATES",
    "ConvolutionSettings",
]  # fmt: skip
