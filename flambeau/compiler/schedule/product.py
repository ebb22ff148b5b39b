"""Launches of matrix products: a template whose epilogue is what became of its cluster.

How a product is cut is decided in `product_cut`. A product whose result is written along its rows'
dimension is computed as the product of the transposes: the bits are the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from flambeau.compiler import machine, targets
from flambeau.compiler.schedule.build import Place
from flambeau.compiler.schedule.calls import RoutineCall
from flambeau.compiler.schedule.cluster import Cluster
from flambeau.compiler.schedule.epilogue import Epilogue, EpilogueBuilder
from flambeau.compiler.schedule.product_cut import Problem, choose, cut, model, only_if
from flambeau.compiler.schedule.views import Shape, count
from flambeau.ir.kernel import Kernel, Setting
from flambeau.ir.node import ITEM_SIZE, Node, node
from flambeau.ir.size import Size, add, ceildiv, floordiv, maximum, mul, prod, sub, symbol
from flambeau.ir.template_product import (
    ARGUMENTS,
    CHUNK,
    COMPLEX_HEIGHTS,
    FEW,
    GROUPS,
    HEIGHTS,
    PITCH,
    VECTORS,
)

WORK = {"f32": 64, "f64": 32, "i32": 32, "i64": 8}  # multiply-adds per nanosecond
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


def _unit(a: Operand, b: Operand, result: str, target: targets.Target) -> str:
    """How the sums are chained."""
    if {a.dtype, b.dtype} <= {"i8", "u8"} and target.name == "avx512":
        exact = result != "i32" or a.dtype == "i8" or b.dtype == "i8"
        return "quads" if exact and targets.has("avx512_vnni") else "plain"
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
        self.unit = _unit(a, b, value.dtype, target)
        self.planes = 2 if value.dtype[0] == "c" else 1
        heights = HEIGHTS if self.planes == 1 else COMPLEX_HEIGHTS
        self.block_rows = heights[target.name][0]
        self.block_columns = VECTORS * target.lanes(ITEM_SIZE[self.kind]) // self.planes
        self.depth: Size = value.attribute("depth")
        self._cut(*extents)

    def _cut(self, rows: Size, columns: Size) -> None:
        """The size arguments, and what follows from how the result is cut in tiles."""
        a, b = self.a, self.b
        self.batches = count(self.batch)
        problem = Problem(
            rows, columns, self.depth, self.batches, self.planes * ITEM_SIZE[self.kind],
            self.block_rows, self.block_columns, a.dtype == b.dtype and self.planes == 1,
        )  # fmt: skip
        made = self.cut = cut(problem, model(problem, machine.current()))
        swapped = made.swapped
        a_row, a_k = choose(swapped, b.outer, a.outer), choose(swapped, b.k, a.k)
        b_column, b_k = choose(swapped, a.outer, b.outer), choose(swapped, a.k, b.k)
        self.sizes: list[Size] = [
            self.depth, made.height, made.width, swapped, made.row_tiles, made.column_tiles,
            made.tile_columns, made.packs_a, made.packs_b, a_row, a_k, b_k, b_column,
        ]  # fmt: skip
        for d, extent in enumerate(self.batch):
            self.sizes += [extent, a.batch[d], b.batch[d]]

    def calls(self) -> list[RoutineCall]:
        """What is packed ahead (nothing where chunks are 0), then the tiles."""
        found = []
        per_batch = add(
            mul(only_if(self.cut.packs_b, self.cut.slabs), self.block_columns),
            only_if(self.cut.packs_a, self.cut.height),
        )
        groups = ceildiv(self.depth, GROUPS[self.unit])
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
        units = add(
            only_if(self.cut.packs_b, self.cut.slabs), only_if(self.cut.packs_a, self.cut.panels)
        )
        call.chunks = mul(self.batches, units)
        call.work = floordiv(elements, 4)
        return call

    def _tiles_call(self, memory: tuple[str, object]) -> RoutineCall:
        call = self._call("tiles", memory, "r")
        for buffer in self.epilogue.memory:
            call.add(buffer)
        call.sizes += self.epilogue.sizes
        call.scalars = list(self.epilogue.arguments)
        call.chunks = mul(self.batches, mul(self.cut.row_tiles, self.cut.column_tiles))
        work = floordiv(mul(self.cut.work, self.batches), WORK[self.kind])
        call.work = add(work, self.epilogue.work)
        pitch = add(self.cut.tile_columns, PITCH)
        own = only_if(sub(1, self.cut.packs_a), mul(self.cut.tile_rows, CHUNK))
        few = mul(FEW, add(CHUNK, pitch))
        room = add(mul(self.cut.tile_rows, pitch), CHUNK * self.block_columns)
        numbers = mul(self.planes, add(room, maximum(own, few)))
        call.scratch = mul(ITEM_SIZE[self.kind], numbers)
        return call


__all__ = ["product_calls"]
