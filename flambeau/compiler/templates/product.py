"""The interfaces of matrix products' kernels: "product" computes tiles of the result and their
epilogue, "product_pack" packs an operand for it. A body follows the interface of a "product".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, TypeVar

from flambeau.compiler.targets import Target
from flambeau.compiler.templates.interface import (
    Array,
    Buffer,
    Group,
    Interface,
    Settings,
    SizeArgument,
    Template,
)
from flambeau.compiler.templates.tile import Tile
from flambeau.ir import kernel as k
from flambeau.ir.size import (
    Size,
    at_least,
    maximum,
    mul,
    only_if,
    sub,
    symbol,
)

CHUNK = 128  # elements of K that are one chain of FMAs: canonical
SEGMENT = 2048  # elements of K whose chunks are one sum, which are added in turn: canonical
FEW = 16  # rows so few that contiguous columns of B are read in place, where the target can
FEW_LONG = 4  # rows so few that B is, whose rows are contiguous
THIN = 2  # rows so few that they read several packed slabs of B side by side
MOST = 4  # of such rows that share the reading of B
DIMENSIONS = 4  # of the batch of a prebuilt kernel: those of less are 1
PITCH = 16  # rows of a tile start in different sets of the cache

# The dtype of sums by that of results.
KINDS = {
    "f16": "f32", "bf16": "f32", "f32": "f32", "f64": "f64", "c64": "f32", "c128": "f64",
    "u8": "i32", "i8": "i32", "i16": "i32", "i32": "i32", "i64": "i64",
}  # fmt: skip
# How sums are chained, with the elements of K that are packed as one: along K ("plain"); of
# bfloat16 by pairs, the odd element first, in float32 ("swapped") or by the instruction for it
# ("dot"): the same bits; of bytes by fours ("quads").
GROUPS = {"plain": 1, "swapped": 1, "dot": 2, "quads": 4}
_UNITS = {"bf16": ("swapped", "dot"), "i8": ("plain", "quads"), "u8": ("plain", "quads")}
_INSTRUCTIONS = {"dot": ("dot_pairs", "f32", 16), "quads": ("dot_quads", "i32", 16)}


S = TypeVar("S", bound="_Settings")


@dataclass(frozen=True)
class _Settings(Settings):
    """Compile-time choices of both kernels.

    Attributes:
        kind: dtype of sums.
        unit: one of `GROUPS`.
        batch: number of batch dimensions.
    """

    kind: str
    unit: str
    batch: int

    @property
    def group(self) -> int:
        """Elements of K that are packed as one."""
        return GROUPS[self.unit]

    @property
    def packed(self) -> str:
        """Kind of a packed element."""
        return self.kind if self.group == 1 else "u32"

    def suits(self, target: Target) -> bool:
        """Products of groups are an instruction."""
        instruction = _INSTRUCTIONS.get(self.unit)
        return instruction is None or target.instruction(*instruction) is not None

    def strides(self, *members: str) -> list[SizeArgument]:
        """Per batch dimension its extent and its strides in operands."""
        group = Group("dimension", ("extent", *members))
        return [SizeArgument("batch", group, self.batch)] if self.batch else []


@dataclass(frozen=True)
class PackSettings(_Settings):
    """Compile-time choices of "product_pack".

    Attributes:
        stored: dtype of the operand.
        flipped: signed bytes are packed with 128 added.
    """

    stored: str
    flipped: bool

    @property
    def planes(self) -> int:
        """2 of complex numbers: real and imaginary parts are packed apart."""
        return 2 if self.stored[0] == "c" else 1


@dataclass(frozen=True)
class ProductSettings(_Settings):
    """Compile-time choices of "product".

    Attributes:
        a: dtype of the left operand.
        b: of the right one.
        result: of the product.
    """

    a: str
    b: str
    result: str

    @property
    def planes(self) -> int:
        """2 of complex numbers, else 1."""
        return 2 if self.result[0] == "c" else 1

    def tile(self, target: Target) -> Tile:
        """The tile of the micro-kernels."""
        return Tile.of(self.kind, target, self.planes)

    @property
    def reads_in_place(self) -> bool:
        """Whether memory holds what the micro-kernel takes."""
        return self.a == self.b == self.kind

    @property
    def takes_rows(self) -> bool:
        """Whether rows of A, as memory holds them, are what the micro-kernel takes."""
        pairs = self.unit == "dot" and self.a == "bf16"
        return self.planes == 1 and (self.a == self.kind or pairs or self.unit == "quads")

    @property
    def few_rows(self) -> bool:
        """Whether products with few rows have code of their own."""
        halves = self.a == self.b and self.a in ("f16", "bf16")
        return self.reads_in_place or self.unit == "quads" or (halves and self.unit != "swapped")

    @property
    def segments(self) -> bool:
        """Whether sums of segments are apart: integers are exact in any order."""
        return self.kind[0] == "f"


def pack(settings: PackSettings, target: Target) -> Interface:
    """Rows or columns, K, the strides along them, the width of a panel or slab, and whether the
    last one has it, too (slabs do)."""
    del target
    sizes = map(SizeArgument, ("extent", "depth", "step", "k_step", "unit", "padded"))
    return Interface(
        (*sizes, *settings.strides("step")),
        (Buffer("operand", settings.stored, "r"), Buffer("packed", settings.kind, "w")),
    )


def tiles(settings: ProductSettings, target: Target) -> Interface:
    """`height` and `width` are the extents of the result that is computed, `swapped` is 1 where
    operands are exchanged and this is the transposed product: strides are those of the exchanged
    ones. Panels of rows are shared out evenly among `row_tiles`, which have at most `tile_rows`.
    `packs_a` and `packs_b` are 1 where a launch before packed them for all tiles, `packs_b` is 2
    where it did unless `slabs` is null.

    The arrays: sums of a tile, of a segment of K, a slab of B; what a tile packs of A for a chunk
    of K, or what products with few rows need, or a row of a transposed tile."""
    columns, height = settings.tile(target).columns, symbol("tile_rows")
    planes, kind, packed = settings.planes, settings.kind, settings.packed
    pitch = mul(symbol("tile_columns"), planes) + PITCH
    sums: Size = mul(height, pitch)
    several = only_if(at_least(symbol("depth"), SEGMENT + 1), sums)
    segment = [Array("segment", kind, several)] if settings.segments else []
    few = MOST * SEGMENT + mul(2 * MOST, pitch) if settings.few_rows else height + PITCH
    panels = only_if(sub(1, symbol("packs_a")), mul(height, CHUNK * planes))
    names = (
        "depth", "height", "width", "swapped", "row_tiles", "column_tiles", "tile_rows",
        "tile_columns", "packs_a", "packs_b", "a_row", "a_k", "b_k", "b_column",
    )  # fmt: skip
    return Interface(
        (*map(SizeArgument, names), *settings.strides("a", "b")),
        (
            Buffer("a", settings.a, "r"),
            Buffer("b", settings.b, "r"),
            Buffer("slabs", kind, "r"),
            Buffer("panels", kind, "r"),
        ),
        (),
        (
            Array("tile", kind, sums),
            *segment,
            Array("slab", packed, CHUNK * columns * planes),
            Array("own", packed, maximum(panels, few)),
        ),
    )


def with_stores(kernel: k.Kernel) -> Iterator[k.Kernel]:
    """Kernels that store what a sample computes: the results themselves, and both them and what
    follows from them."""
    settings = ProductSettings.of(kernel)
    inner, stored = symbol("n2"), k.kept("result", settings.result)
    rows = [symbol(f"n{14 + 3 * d}") for d in range(settings.batch)] + [symbol("n1")]
    place: Size = symbol("r")
    stride: Size = inner
    for d in reversed(range(len(rows))):
        place = place + mul(symbol(f"p{d}"), stride)
        stride = mul(stride, rows[d])
    buffer, first = (settings.result, "w"), len(kernel.parameters)
    for values in ((stored,), (stored, stored)):
        stores = tuple((first + i, place, value) for i, value in enumerate(values))
        parameters = (*kernel.parameters, *[buffer] * len(values))
        body = (k.Pass(stores),)
        yield replace(kernel, parameters=parameters, rows=tuple(rows), inner=inner, body=body)


def stored(kernel: k.Kernel) -> k.Kernel:
    """The kernel whose results go to one buffer, the last one, their columns side by side. The last
    size arguments are the strides of batch dimensions and rows, and how many elements to skip."""
    settings = ProductSettings.of(kernel)
    first, axes = kernel.size_count, settings.batch + 1
    position = symbol("r") + symbol(f"n{first + axes}")
    for d in range(axes):
        position = position + mul(symbol(f"p{d}"), symbol(f"n{first + d}"))
    value = k.kept("result", settings.result)
    extents = [symbol(f"n{first - 3 * (settings.batch - d)}") for d in range(settings.batch)]
    return replace(
        kernel,
        parameters=(*kernel.parameters, (settings.result, "w")),
        size_count=first + axes + 1,
        rows=(*extents, symbol("n1")),
        inner=symbol("n2"),
        body=(k.Pass(((len(kernel.parameters), position, value),)),),
    )


def _general(settings: S) -> S:
    """Settings with at least as many batch dimensions as prebuilt kernels have."""
    return replace(settings, batch=max(settings.batch, DIMENSIONS))


def _samples() -> Iterator[ProductSettings]:
    """Every dtype and result, every way to chain sums, batches."""
    for dtype, kind in KINDS.items():
        wide = (kind,) if dtype in ("f16", "bf16", "i8") else ()
        for unit, result in product(_UNITS.get(dtype, ("plain",)), (dtype, *wide)):
            yield ProductSettings(kind, unit, len(dtype) - 2, dtype, dtype, result)
    for a, b in (("i8", "u8"), ("u8", "i8")):
        yield ProductSettings("i32", "quads", 0, a, b, "i32")
        yield ProductSettings("i32", "plain", 1, a, b, "i32")
    yield ProductSettings("i32", "plain", 0, "u8", "u8", "i32")


def _pack_samples() -> Iterator[PackSettings]:
    for dtype, kind in KINDS.items():
        for unit in _UNITS.get(dtype, ("plain",)):
            yield PackSettings(kind, unit, len(dtype) - 2, dtype, False)
    yield PackSettings("i32", "quads", 1, "i8", True)


TEMPLATES: dict[str, Template[Any]] = {
    "product": Template(
        "product", ProductSettings, tiles, _samples,
        body=with_stores, general=_general, stored=stored,
    ),
    "product_pack": Template(
        "product_pack", PackSettings, pack, _pack_samples, general=_general
    ),
}  # fmt: skip

__all__ = [
    "CHUNK", "DIMENSIONS", "FEW", "FEW_LONG", "GROUPS", "KINDS", "MOST", "PITCH", "SEGMENT",
    "TEMPLATES", "THIN", "PackSettings", "ProductSettings",
]  # fmt: skip
