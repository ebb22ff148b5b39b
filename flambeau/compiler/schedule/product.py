"""Launches of matrix products: a template whose epilogue is what became of its cluster.

How a product is cut is decided in `product_cut`. A product whose result is written along its rows'
dimension is computed as the product of the transposes: the bits are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flambeau.compiler import machine, targets
from flambeau.compiler.schedule import product_cut
from flambeau.compiler.schedule.build import Place
from flambeau.compiler.schedule.calls import RoutineCall
from flambeau.compiler.schedule.cluster import Cluster
from flambeau.compiler.schedule.epilogue import Epilogue, EpilogueBuilder
from flambeau.compiler.schedule.product_cut import (
    SMALL,
    Problem,
    at_least,
    candidates,
    choose,
    model,
    only_if,
)
from flambeau.ir.geometry import Shape, count
from flambeau.ir.kernel import Kernel, Setting
from flambeau.ir.node import ITEM_SIZE, Node, node
from flambeau.ir.size import (
    Size,
    add,
    ceildiv,
    floordiv,
    maximum,
    minimum,
    mul,
    prod,
    sub,
    symbol,
)
from flambeau.ir.template_product import (
    ARGUMENTS,
    CHUNK,
    GROUPS,
    MOST,
    PACK_ARGUMENTS,
    PITCH,
    SEGMENT,
    VECTORS,
)

WORK = {"f32": 64, "f64": 32, "i32": 32, "i64": 8}  # multiply-adds per nanosecond
OWN_BUFFERS = 4  # a, b, packed slabs of b, packed panels of a

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
    cluster: Cluster,
    stores: dict[Node, list[Place]],
    reads: dict[Node, Place],
    choice: str = "default",
) -> list[RoutineCall]:
    """The launches of a product and its epilogue, in order.

    Args:
        cluster: the product, and what is computed from its elements.
        stores: per stored member its places.
        reads: where the operands are.
        choice: one of `product_cut.CANDIDATES`.
    """
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
    return _Product(value, a, b, batch, (rows, columns), epilogue, choice).calls()


def _operands(value: Node, reads: dict[Node, Place]) -> tuple[Operand, Operand]:
    views = value.attribute("views")
    pair = []
    for number, (strides, offset) in enumerate(views):
        operand = value.inputs[number]
        place = reads[operand]
        row, column = strides[-2:]
        outer, k = (row, column) if number == 0 else (column, row)
        pair.append(Operand(place, offset + place.offset, operand.dtype, strides[:-2], outer, k))
    return pair[0], pair[1]


def _is_input(operand: Operand) -> bool:
    return operand.place.memory[0] == "input"


def _unit(a: Operand, b: Operand, result: str, target: targets.Target) -> str:
    """How the sums are chained."""
    if {a.dtype, b.dtype} <= {"i8", "u8"}:
        exact = result != "i32" or a.dtype == "i8" or b.dtype == "i8"
        return "quads" if exact and targets.offers(target, "dot_quads", "i32", 16) else "plain"
    if not a.dtype == b.dtype == "bf16":
        return "plain"
    return "dot" if targets.offers(target, "dot_pairs", "f32", 16) else "swapped"


class _Product:
    def __init__(
        self,
        value: Node,
        a: Operand,
        b: Operand,
        batch: Shape,
        extents: tuple[Size, Size],
        epilogue: Epilogue,
        choice: str,
    ) -> None:
        self.value, self.a, self.b, self.batch, self.epilogue = value, a, b, batch, epilogue
        self.kind = KINDS[value.dtype]
        target = targets.current()
        self.unit = _unit(a, b, value.dtype, target)
        self.planes = 2 if value.dtype[0] == "c" else 1
        heights = target.heights if self.planes == 1 else target.complex_heights
        self.block_rows = heights[0]
        self.block_columns = VECTORS * target.lanes(ITEM_SIZE[self.kind]) // self.planes
        self.depth: Size = value.attribute("depth")
        self._cut(*extents, choice)

    def _cut(self, rows: Size, columns: Size, choice: str) -> None:
        """The size arguments, and what follows from how the result is cut in tiles."""
        a, b = self.a, self.b
        self.batches = count(self.batch)
        problem = Problem(
            rows, columns, self.depth, self.batches, self.planes * ITEM_SIZE[self.kind],
            self.block_rows, self.block_columns, a.dtype == b.dtype and self.planes == 1,
            in_place=b.outer == 1 and a.dtype == b.dtype == self.kind,
        )  # fmt: skip
        blocking = candidates(model(problem, machine.current()))[choice]
        tiling = self.cut = product_cut.cut(problem, blocking)
        swapped = tiling.swapped
        a_row, a_k = choose(swapped, b.outer, a.outer), choose(swapped, b.k, a.k)
        b_column, b_k = choose(swapped, a.outer, b.outer), choose(swapped, a.k, b.k)
        self.sizes: list[Size] = [
            self.depth, tiling.height, tiling.width, swapped, tiling.row_tiles, tiling.column_tiles,
            tiling.tile_columns, tiling.packs_a, add(tiling.packs_b, mul(2, self._spare(b, a))),
            a_row, a_k, b_k, b_column,
        ]  # fmt: skip
        for d, extent in enumerate(self.batch):
            self.sizes += [extent, a.batch[d], b.batch[d]]

    def _spare(self, b: Operand, a: Operand) -> Size:
        """1 where slabs of B are read if there are any, but not made for this product alone: with
        few rows that costs more than it gains. Up to MOST rows read B as fast as it lies, unless
        its columns lie along memory and must be turned (of bytes that costs nothing)."""
        cut, flag = self.cut, only_if(sub(1, self.cut.packs_b), 1)
        turned = 0 if self.unit == "quads" else choose(cut.swapped, int(a.k == 1), int(b.k == 1))
        several = maximum(at_least(cut.height, MOST + 1), turned)
        flag = minimum(flag, several, at_least(cut.work, SMALL))
        stays = choose(cut.swapped, int(_is_input(a)), int(_is_input(b)))
        return minimum(flag, stays)

    def calls(self) -> list[RoutineCall]:
        """Returns the calls that pack ahead (none where chunks are 0), then the tiles."""
        packing, packed = [], []
        for panels, a, b in ((False, self.b, self.a), (True, self.a, self.b)):
            calls = self._pack_calls(panels, a, b)
            packing += calls
            packed.append(calls[0].memory[1] if calls else self.a.place.memory)
        return [*packing, self._tiles_call(packed)]

    def _settings(self, part: str, **extra: Setting) -> tuple[tuple[str, Setting], ...]:
        settings: dict[str, Setting] = {
            "batch": len(self.batch), "kind": self.kind, "part": part, "unit": self.unit, **extra,
        }  # fmt: skip
        return tuple(sorted(settings.items()))

    def _pack_calls(self, panels: bool, operand: Operand, other: Operand) -> list[RoutineCall]:
        """The launches that pack one side of the product, each from one operand: which one it is
        depends on whether the operands are exchanged."""
        cut, unit = self.cut, self.block_rows if panels else self.block_columns
        packs_it, units, extent = cut.packs_b, cut.slabs, cut.width
        if panels:
            packs_it, units, extent = cut.packs_a, cut.panels, cut.height
        groups = ceildiv(self.depth, GROUPS[self.unit])
        one = prod((self.batches, extent if panels else mul(units, unit), groups, self.planes))
        spared = 0 if panels else self._spare(operand, other)
        spare = only_if(spared, one)
        elements = only_if(packs_it, one)
        if elements == 0 and spare == 0:
            return []
        stands_for = (("of", self.value), ("panels", panels), ("with", self.epilogue.body))
        memory = ("temporary", node("s.packed", (), stands_for, self.kind, (elements,)))
        calls = []
        for source, flag in ((operand, sub(1, cut.swapped)), (other, cut.swapped)):
            if flag == 0:
                continue
            call = self._pack_call(source, memory, panels)
            sizes = [extent, self.depth, source.outer, source.k, unit, int(not panels)]
            call.sizes = sizes + call.sizes
            packs = minimum(flag, add(packs_it, minimum(spared, one)))
            call.chunks = mul(self.batches, only_if(packs, units))
            call.work = only_if(flag, floordiv(elements, 4))
            call.spare = mul(only_if(flag, spare), ITEM_SIZE[self.kind])
            calls.append(call)
        return calls

    @property
    def _flips(self) -> bool:
        """Whether panels are packed with 128 added: the instruction wants one unsigned operand."""
        signed = self.a.dtype == self.b.dtype == "i8"
        return self.unit == "quads" and signed and self.value.dtype == "i32"

    def _pack_call(self, source: Operand, memory: tuple[str, object], panels: bool) -> RoutineCall:
        """Only what decides about the packed bytes is told, so that they serve all products with
        this operand."""
        call = RoutineCall("matmul_pack", packing=(0, 1))
        for d, extent in enumerate(self.batch):
            call.sizes += [extent, source.batch[d]]
        call.add(source.place.memory, mul(source.offset, ITEM_SIZE[source.dtype]))
        call.add(memory)
        call.kernel = Kernel(
            form="template",
            template="product",
            parameters=((source.dtype, "r"), (self.kind, "w")),
            size_count=len(PACK_ARGUMENTS) + len(call.sizes),
            scalars=(),
            rows=(),
            inner=1,
            body=(),
            settings=self._settings(
                "pack", planes=self.planes, stored=source.dtype, flipped=panels and self._flips
            ),
        )
        return call

    def _tiles(self, packed: list[tuple[str, Any]]) -> RoutineCall:
        """The launch of the tiles: its buffers and sizes, its kernel."""
        call = RoutineCall("matmul_tiles", sizes=list(self.sizes))
        parameters = [(self.a.dtype, "r"), (self.b.dtype, "r")]
        for operand in (self.a, self.b):
            call.add(operand.place.memory, mul(operand.offset, ITEM_SIZE[operand.dtype]))
        for memory in packed:
            call.add(memory)
            parameters.append((self.kind if memory[0] == "temporary" else self.a.dtype, "r"))
        epilogue = self.epilogue
        batch_extents = [symbol(f"n{len(ARGUMENTS) + 3 * d}") for d in range(len(self.batch))]
        call.kernel = Kernel(
            form="template",
            template="product",
            parameters=(*parameters, *epilogue.parameters),
            size_count=len(self.sizes) + len(epilogue.sizes),
            scalars=epilogue.scalars,
            rows=(*batch_extents, symbol("n1")),
            inner=symbol("n2"),
            body=epilogue.body,
            settings=self._settings(
                "tiles", a=self.a.dtype, b=self.b.dtype, result=self.value.dtype
            ),
        )
        return call

    def _tiles_call(self, packed: list[tuple[str, Any]]) -> RoutineCall:
        call = self._tiles(packed)
        for buffer in self.epilogue.memory:
            call.add(buffer)
        call.sizes += self.epilogue.sizes
        call.scalars = list(self.epilogue.arguments)
        call.chunks = mul(self.batches, mul(self.cut.row_tiles, self.cut.column_tiles))
        work = floordiv(mul(self.cut.work, self.batches), WORK[self.kind])
        call.work = add(work, self.epilogue.work)
        pitch = add(self.cut.tile_columns, PITCH)
        own = only_if(sub(1, self.cut.packs_a), mul(self.cut.tile_rows, CHUNK))
        few = mul(MOST, add(SEGMENT, mul(2, pitch)))
        sums = mul(self.cut.tile_rows, pitch)
        segment = only_if(at_least(self.depth, SEGMENT + 1), sums)
        room = add(add(sums, segment), CHUNK * self.block_columns)
        numbers = mul(self.planes, add(room, maximum(own, few)))
        call.scratch = mul(ITEM_SIZE[self.kind], numbers)
        return call


__all__ = ["product_calls"]
