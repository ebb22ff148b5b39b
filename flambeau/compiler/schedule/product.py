"""Launches of matrix products: a template with the pointwise values of its cluster as epilogue.

`product_cut` chooses the tiling. A product whose result is contiguous along its rows' dimension is
computed as the product of the transposes: the bits are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain

from flambeau.compiler import machine, targets
from flambeau.compiler.schedule import product_cut
from flambeau.compiler.schedule.build import Memory, Place
from flambeau.compiler.schedule.calls import RoutineCall
from flambeau.compiler.schedule.cluster import Cluster
from flambeau.compiler.schedule.epilogue import Epilogue, EpilogueBuilder
from flambeau.compiler.schedule.product_cut import (
    TINY,
    Problem,
    candidates,
    model,
)
from flambeau.compiler.templates import TEMPLATES
from flambeau.compiler.templates.product import KINDS, MOST, PackSettings, ProductSettings
from flambeau.ir.geometry import Shape, count
from flambeau.ir.node import ITEM_SIZE, Node, node
from flambeau.ir.size import (
    Size,
    add,
    at_least,
    ceildiv,
    choose,
    floordiv,
    maximum,
    minimum,
    mul,
    only_if,
    prod,
    sub,
    symbol,
)

WORK = {"f32": 64, "f64": 32, "i32": 32, "i64": 8}  # multiply-adds per nanosecond
# Size arguments that a `Cut` has.
_OF_TILES = (
    "height", "width", "swapped", "row_tiles", "column_tiles", "tile_rows", "tile_columns",
    "packs_a",
)  # fmt: skip


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
        stores: per stored member the buffers and indices that it is written to.
        reads: where the operands are.
        choice: one of `product_cut.CANDIDATES`.
    """
    value = cluster.product
    assert value is not None
    batch: Shape = value.attribute("batch")
    dimensions = len(batch)
    a, b = _operands(value, reads)
    target = targets.current()
    unit = _unit(a, b, value.dtype, target)
    settings = ProductSettings(KINDS[value.dtype], unit, dimensions, a.dtype, b.dtype, value.dtype)
    interface = TEMPLATES["product"].interface(settings, target)
    own = len(interface.buffers), interface.size_count
    builder = EpilogueBuilder(cluster, stores, reads, own)
    builder.check_operands([a.place.memory, b.place.memory])
    rows, columns = value.shape[-2:]
    order = tuple(range(dimensions + 2))
    if (
        value.dtype[0] != "c"
        and not builder.runs_along(order[-1])
        and builder.runs_along(order[-2])
    ):
        a, b, rows, columns = b, a, columns, rows
        settings = replace(settings, a=a.dtype, b=b.dtype)
        order = (*order[:-2], order[-1], order[-2])
    epilogue = builder.finish(order)
    return _Product(value, a, b, settings, (rows, columns), epilogue, choice).calls()


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
        settings: ProductSettings,
        extents: tuple[Size, Size],
        epilogue: Epilogue,
        choice: str,
    ) -> None:
        self.value, self.a, self.b, self.epilogue = value, a, b, epilogue
        self.settings, self.batch = settings, value.attribute("batch")
        self.kind, self.planes = settings.kind, settings.planes
        self.block_rows, self.block_columns, _ = settings.tile(targets.current())
        self.depth: Size = value.attribute("depth")
        self._cut(*extents, choice)

    def _cut(self, rows: Size, columns: Size, choice: str) -> None:
        """The size arguments, which follow from the tiling of the result."""
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
        self.sizes: dict[str, Size | Shape] = {
            "depth": self.depth,
            **{name: getattr(tiling, name) for name in _OF_TILES},
            "packs_b": add(tiling.packs_b, mul(2, self._spare(b, a))),
            **{"a_row": a_row, "a_k": a_k, "b_k": b_k, "b_column": b_column},
            **self._dimensions(a, b),
        }

    def _dimensions(self, *operands: Operand) -> dict[str, Shape]:
        """Per batch dimension its extent and its strides in operands."""
        strides = zip(self.batch, *(operand.batch for operand in operands), strict=True)
        return {"batch": tuple(chain.from_iterable(strides))} if self.batch else {}

    def _spare(self, b: Operand, a: Operand) -> Size:
        """1 where packed slabs of B are read if they exist but not packed for this product alone:
        with few rows packing costs more than it saves. Up to MOST rows read unpacked B as fast,
        unless it is contiguous along K and must be transposed (which is free for bytes)."""
        cut, flag = self.cut, only_if(sub(1, self.cut.packs_b), 1)
        turned = (
            0
            if self.settings.unit == "quads"
            else choose(cut.swapped, int(a.k == 1), int(b.k == 1))
        )
        several = maximum(at_least(cut.height, MOST + 1), turned)
        flag = minimum(flag, several, at_least(cut.work, TINY))
        stays = choose(cut.swapped, int(_is_input(a)), int(_is_input(b)))
        return minimum(flag, stays)

    def calls(self) -> list[RoutineCall]:
        """Returns the calls that pack ahead (none where chunks are 0), then the tiles."""
        packing, packed = [], []
        for panels, a, b in ((False, self.b, self.a), (True, self.a, self.b)):
            calls = self._pack_calls(panels, a, b)
            packing += calls
            packed.append(calls[0].memory[1] if calls else self.a.place.memory)
        return [*packing, self._tiles_call(*packed)]

    def _pack_calls(self, panels: bool, operand: Operand, other: Operand) -> list[RoutineCall]:
        """The launches that pack one side of the product, each from one operand: which one it is
        depends on whether the operands are exchanged."""
        cut, unit = self.cut, self.block_rows if panels else self.block_columns
        packs_it, units, extent = cut.packs_b, cut.slabs, cut.width
        if panels:
            packs_it, units, extent = cut.packs_a, cut.panels, cut.height
        groups = ceildiv(self.depth, self.settings.group)
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
            sizes = {"extent": extent, "depth": self.depth, "unit": unit, "padded": int(not panels)}
            call = self._pack_call(source, memory, sizes)
            packs = minimum(flag, add(packs_it, minimum(spared, one, proves=False)), proves=False)
            call.chunks = mul(self.batches, only_if(packs, units))
            call.work = only_if(flag, floordiv(elements, 4))
            call.spare = mul(only_if(flag, spare), ITEM_SIZE[self.kind])
            calls.append(call)
        return calls

    def _pack_call(self, source: Operand, memory: Memory, sizes: Mapping[str, Size]) -> RoutineCall:
        """The key has only what determines the packed bytes, so that all products with this operand
        share them. Signed panels of signed products get 128 added: the instruction takes one
        unsigned operand."""
        settings = self.settings
        signed = settings.unit == "quads" and settings.a == settings.b == "i8"
        flips = signed and settings.result == "i32" and not sizes["padded"]
        packing = PackSettings(self.kind, settings.unit, len(self.batch), source.dtype, flips)
        interface = TEMPLATES["product_pack"].interface(packing, targets.current())
        call = RoutineCall("matmul_pack", packing=(0, 1))
        offset = mul(source.offset, ITEM_SIZE[source.dtype])
        call.bind(
            interface,
            {**sizes, "step": source.outer, "k_step": source.k, **self._dimensions(source)},
            {"operand": (source.place.memory, offset), "packed": (memory, 0)},
        )
        call.kernel = interface.kernel("product_pack", packing)
        return call

    def _tiles_call(self, slabs: Memory, panels: Memory) -> RoutineCall:
        """The launch of the tiles."""
        call, epilogue = RoutineCall("matmul_tiles"), self.epilogue
        interface = TEMPLATES["product"].interface(self.settings, targets.current())
        operands = {
            name: (operand.place.memory, mul(operand.offset, ITEM_SIZE[operand.dtype]))
            for name, operand in (("a", self.a), ("b", self.b))
        }
        call.bind(interface, self.sizes, {**operands, "slabs": (slabs, 0), "panels": (panels, 0)})
        first = interface.size_count - 3 * len(self.batch)
        extents = [symbol(f"n{first + 3 * d}") for d in range(len(self.batch))]
        for buffer in epilogue.memory:
            call.add(buffer)
        call.sizes += epilogue.sizes
        call.scalars = list(epilogue.arguments)
        kernel = interface.kernel("product", self.settings)
        call.kernel = replace(
            kernel,
            parameters=(*kernel.parameters, *epilogue.parameters),
            size_count=len(call.sizes),
            scalars=epilogue.scalars,
            rows=(*extents, symbol("n1")),
            inner=symbol("n2"),
            body=epilogue.body,
        )
        call.chunks = mul(self.batches, mul(self.cut.row_tiles, self.cut.column_tiles))
        work = floordiv(mul(self.cut.work, self.batches), WORK[self.kind])
        call.work = add(work, epilogue.work)
        return call
