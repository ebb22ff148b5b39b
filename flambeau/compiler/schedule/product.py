"""Launches of matrix products: a template whose epilogue is what became of its cluster.

How a product is cut is decided here, by size expressions: the same kernel serves all sizes. Small
products are one launch that packs as it goes; of larger ones, operands that several tiles share are
packed first. A product whose result is written along its rows' dimension, or that has few columns,
is computed as the product of the transposes: the bits are the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from flambeau.compiler import targets
from flambeau.compiler.schedule.build import Place
from flambeau.compiler.schedule.calls import RoutineCall
from flambeau.compiler.schedule.cluster import Cluster
from flambeau.compiler.schedule.epilogue import Epilogue, EpilogueBuilder
from flambeau.compiler.schedule.views import Shape, count
from flambeau.ir.kernel import Kernel, Setting
from flambeau.ir.node import ITEM_SIZE, Node, node
from flambeau.ir.size import Size, add, ceildiv, floordiv, maximum, minimum, mul, prod, sub, symbol
from flambeau.ir.template_product import (
    ARGUMENTS,
    CHUNK,
    COMPLEX_HEIGHTS,
    FEW,
    HEIGHTS,
    PITCH,
    VECTORS,
)

SMALL = 1 << 20  # multiply-adds: below, packing ahead and sharing costs more than it saves
PANELS = 10  # of a tile at most: what one tile packs of A stays in the second-level cache
TILE_COLUMNS = 256
FEW_COLUMNS = 1024  # of a tile with few rows, at most
LEAST_COLUMNS = 512  # and at least: memory is read in long runs
TILES = 8  # at least, of a large product
NARROW = 24  # columns: below, tall products are computed transposed
WORK = {"f32": 64, "f64": 32, "i32": 32, "i64": 8}  # multiply-adds per nanosecond
ENDLESS = 1 << 40  # more than any extent
OWN_BUFFERS = 3  # a, b, packed

KINDS = {
    "f16": "f32", "bf16": "f32", "f32": "f32", "f64": "f64", "c64": "f32", "c128": "f64",
    "bool": "i32", "u8": "i32", "i8": "i32", "i16": "i32", "i32": "i32", "i64": "i64",
}  # fmt: skip


@dataclass(frozen=True)
class Operand:
    """An operand as the kernel sees it.

    Attributes:
        place: its memory.
        offset: elements to skip.
        dtype: of its elements.
        batch: strides of the batch dimensions.
        outer: stride along the result's rows or columns.
        k: stride along K.
    """

    place: Place
    offset: Size
    dtype: str
    batch: Shape
    outer: Size
    k: Size


def product_calls(
    cluster: Cluster, stores: dict[Node, list[Place]], reads: dict[Node, Place]
) -> list[RoutineCall]:
    """The launches of a product and its epilogue, in order."""
    value = cluster.product
    assert value is not None
    batch: Shape = value.attribute("batch")
    dimensions = len(batch)
    builder = EpilogueBuilder(
        cluster, stores, reads, (OWN_BUFFERS, len(ARGUMENTS) + 3 * dimensions)
    )
    a, b = _operands(value, reads)
    builder.check_operands([a.place.memory, b.place.memory])
    rows, columns = value.shape[-2:]
    order = tuple(range(dimensions + 2))
    if (
        value.dtype[0] != "c"
        and not builder.runs_along(order[-1])
        and builder.runs_along(order[-2])
    ):
        a, b, rows, columns = b, a, columns, rows
        order = (*order[:-2], order[-1], order[-2])
    epilogue = builder.finish(order)
    return _Product(value, a, b, batch, (rows, columns), epilogue).calls()


def _operands(value: Node, reads: dict[Node, Place]) -> tuple[Operand, Operand]:
    views = value.attribute("views")
    found = []
    for number, (strides, offset) in enumerate(views):
        operand = value.inputs[number]
        place = reads[operand]
        row, column = strides[-2:]
        outer, k = (row, column) if number == 0 else (column, row)
        found.append(Operand(place, offset + place.offset, operand.dtype, strides[:-2], outer, k))
    return found[0], found[1]


# Conditions are sizes that are 0 or 1. They are combined by minima and maxima, which stay one atom:
# products of sums of them would be multiplied out.


def _at_least(size: Size, limit: Size) -> Size:
    """1 where size >= limit, else 0; the limit is positive."""
    return minimum(1, floordiv(size, limit))


def _only_if(flag: Size, size: Size) -> Size:
    """The size where the flag is set, else 0."""
    return minimum(size, mul(flag, ENDLESS))


def _choose(flag: Size, if_set: Size, otherwise: Size) -> Size:
    if isinstance(flag, int):
        return if_set if flag else otherwise
    return add(otherwise, mul(flag, sub(if_set, otherwise)))


def _unit(a: Operand, b: Operand, target: targets.Target) -> str:
    """How the sums are chained."""
    if not a.dtype == b.dtype == "bf16":
        return "plain"
    return "dot" if target.name == "avx512" and targets.has("avx512_bf16") else "swapped"


class _Product:
    def __init__(
        self,
        value: Node,
        a: Operand,
        b: Operand,
        batch: Shape,
        extents: tuple[Size, Size],
        epilogue: Epilogue,
    ) -> None:
        self.value, self.a, self.b, self.batch, self.epilogue = value, a, b, batch, epilogue
        self.kind = KINDS[value.dtype]
        target = targets.current()
        self.unit = _unit(a, b, target)
        self.planes = 2 if value.dtype[0] == "c" else 1
        heights = HEIGHTS if self.planes == 1 else COMPLEX_HEIGHTS
        self.block_rows = heights[target.name][0]
        self.block_columns = VECTORS * target.lanes(ITEM_SIZE[self.kind]) // self.planes
        self.depth: Size = value.attribute("depth")
        self._cut(*extents)

    def _cut(self, rows: Size, columns: Size) -> None:
        """How the result is cut in tiles, and what is packed ahead."""
        a, b = self.a, self.b
        swapped: Size = 0
        if a.dtype == b.dtype and self.planes == 1:
            narrow = sub(1, _at_least(columns, NARROW))
            swapped = minimum(narrow, _at_least(rows, maximum(1, mul(4, columns))))
        height, width = rows, columns
        if swapped != 0:  # then there are more rows than columns
            apart = mul(sub(1, swapped), ENDLESS)
            height, width = minimum(rows, add(columns, apart)), maximum(columns, sub(rows, apart))
        work = prod((height, width, self.depth))
        large = _at_least(work, SMALL)
        several = _at_least(height, 2 * self.block_rows + 1)
        few = sub(1, _at_least(height, FEW + 1))
        eighth = mul(self.block_columns, ceildiv(width, TILES * self.block_columns))
        shallow = _choose(
            few,
            maximum(LEAST_COLUMNS, minimum(FEW_COLUMNS, eighth)),
            maximum(2 * self.block_columns, minimum(TILE_COLUMNS, eighth)),
        )
        tile_columns = _choose(several, TILE_COLUMNS, shallow)
        column_tiles = ceildiv(width, tile_columns)
        self.panels = ceildiv(height, self.block_rows)
        self.slabs = ceildiv(width, self.block_columns)
        self.batches = count(self.batch)
        wanted = ceildiv(TILES, maximum(1, mul(column_tiles, self.batches)))
        row_tiles = maximum(
            1,
            ceildiv(self.panels, PANELS),
            _only_if(minimum(large, several), minimum(self.panels, wanted)),
        )
        self.tile_rows = mul(self.block_rows, ceildiv(self.panels, row_tiles))
        self.tile_columns, self.tiles = tile_columns, mul(row_tiles, column_tiles)
        self.packs_b = minimum(large, several)
        self.packs_a = minimum(large, sub(1, few), _at_least(width, tile_columns + 1))
        self.height, self.width, self.swapped, self.work = height, width, swapped, work
        a_row, a_k = _choose(swapped, b.outer, a.outer), _choose(swapped, b.k, a.k)
        b_column, b_k = _choose(swapped, a.outer, b.outer), _choose(swapped, a.k, b.k)
        self.sizes: list[Size] = [
            self.depth, height, width, swapped, row_tiles, column_tiles, tile_columns,
            self.packs_a, self.packs_b, a_row, a_k, b_k, b_column,
        ]  # fmt: skip
        for d, extent in enumerate(self.batch):
            self.sizes += [extent, a.batch[d], b.batch[d]]

    def calls(self) -> list[RoutineCall]:
        """What is packed ahead (nothing where chunks are 0), then the tiles."""
        found = []
        per_batch = add(
            mul(_only_if(self.packs_b, self.slabs), self.block_columns),
            _only_if(self.packs_a, self.height),
        )
        groups = ceildiv(self.depth, 2) if self.unit == "dot" else self.depth
        elements = prod((self.batches, per_batch, groups, self.planes))
        memory = self.a.place.memory
        if elements != 0:
            stands_for = (("of", self.value), ("with", self.epilogue.body))
            packed = node("s.packed", (), stands_for, self.kind, (elements,))
            memory = ("temporary", packed)
            found.append(self._pack_call(memory, elements))
        return [*found, self._tiles_call(memory)]

    def _call(self, part: str, memory: tuple[str, object], access: str) -> RoutineCall:
        """A launch with the template's own buffers and sizes."""
        call = RoutineCall(f"matmul_{part}", sizes=list(self.sizes))
        for operand in (self.a, self.b):
            call.add(operand.place.memory, mul(operand.offset, ITEM_SIZE[operand.dtype]))
        call.add(memory)
        kept = self.epilogue if part == "tiles" else None
        batch_extents = [symbol(f"n{len(ARGUMENTS) + 3 * d}") for d in range(len(self.batch))]
        settings: dict[str, Setting] = {
            "a": self.a.dtype, "b": self.b.dtype, "batch": len(self.batch), "kind": self.kind,
            "part": part, "result": self.value.dtype, "unit": self.unit,
        }  # fmt: skip
        packed = (self.kind, access) if memory[0] == "temporary" else (self.a.dtype, "r")
        call.kernel = Kernel(
            form="template",
            template="product",
            parameters=(
                (self.a.dtype, "r"), (self.b.dtype, "r"), packed,
                *(kept.parameters if kept else ()),
            ),
            size_count=len(self.sizes) + (len(kept.sizes) if kept else 0),
            scalars=kept.scalars if kept else (),
            rows=(*batch_extents, symbol("n1")),
            inner=symbol("n2"),
            body=kept.body if kept else (),
            settings=tuple(sorted(settings.items())),
        )  # fmt: skip
        return call

    def _pack_call(self, memory: tuple[str, object], elements: Size) -> RoutineCall:
        call = self._call("pack", memory, "w")
        units = add(_only_if(self.packs_b, self.slabs), _only_if(self.packs_a, self.panels))
        call.chunks = mul(self.batches, units)
        call.work = floordiv(elements, 4)
        return call

    def _tiles_call(self, memory: tuple[str, object]) -> RoutineCall:
        call = self._call("tiles", memory, "r")
        for buffer in self.epilogue.memory:
            call.add(buffer)
        call.sizes += self.epilogue.sizes
        call.scalars = list(self.epilogue.arguments)
        call.chunks = mul(self.batches, self.tiles)
        work = floordiv(mul(self.work, self.batches), WORK[self.kind])
        call.work = add(work, self.epilogue.work)
        pitch = add(self.tile_columns, PITCH)
        own = _only_if(sub(1, self.packs_a), mul(self.tile_rows, CHUNK))
        few = mul(FEW, add(CHUNK, pitch))
        room = add(mul(self.tile_rows, pitch), CHUNK * self.block_columns)
        numbers = mul(self.planes, add(room, maximum(own, few)))
        call.scratch = mul(ITEM_SIZE[self.kind], numbers)
        return call


__all__ = ["product_calls"]
