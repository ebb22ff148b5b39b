"""Rewrites a graph into the form that is clustered: routines see memory, long sums see blocks.

* Operands of routines become the values that own memory; how a routine looks at that memory
  (strides, offset) moves to its attribute `views`. Transposed or sliced operands cost no copy.
* A scatter overwrites a copy of its base, `s.base`, made in the memory of its result.
* A concatenation of more than two, or one that is a result, becomes `s.cat` of `s.part`s, each
  written where it belongs.
* A full reduction is split in blocks (`s.blocks`) that threads can share; its bits do not change.
* Sorting happens along the last dimension.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from flambeau.compiler import targets
from flambeau.ir import schedule_grammar as grammar
from flambeau.ir.geometry import Shape, contiguous, count, reshape_strides
from flambeau.ir.kernel import REDUCE_BLOCK
from flambeau.ir.node import Graph, Node, attributes, node, topological
from flambeau.ir.schedule_grammar import BASE, CAT
from flambeau.ir.size import Size, mul
from flambeau.prims.convolution import is_depthwise
from flambeau.prims.pointwise import is_negation
from flambeau.prims.random import EACH
from flambeau.prims.record import Addressing, Routine, record_of
from flambeau.prims.shape import is_permute

OPAQUE_KINDS = frozenset({"scatter", "random", "routine"})
SINGLE_LAUNCH = 2 * REDUCE_BLOCK  # static extents up to this are reduced in one launch
SEARCH_LIMIT = 100  # values looked at to see what becomes of a sum


@dataclass(frozen=True)
class Destination:
    """Memory that a value is written to.

    Attributes:
        kind: "output" (number), "input" (slot, in place) or "value" (memory of a node).
        where: number, slot or node.
        strides: element strides for the dimensions of the written node.
        offset: elements to skip.
    """

    kind: str
    where: int | Node
    strides: Shape
    offset: Size = 0


@dataclass
class Prepared:
    """A graph ready for clustering.

    Attributes:
        destinations: what is written where.
        origins: of values that took the place of others, the first of these.
    """

    destinations: dict[Node, list[Destination]] = field(default_factory=dict)
    origins: dict[Node, Node] = field(default_factory=dict)

    def text(self) -> str:
        """Every value, and what is written where."""
        lines, numbers = grammar.numbered(topological(self.destinations))
        for value, destinations in self.destinations.items():
            for d in destinations:
                where = f"%{numbers[d.where]}" if isinstance(d.where, Node) else str(d.where)
                place = f"{d.kind} {where} strides {d.strides} offset {d.offset}"
                lines.append(f"%{numbers[value]} to {place}")
        return "\n".join(lines) + "\n"

    def read_strides(self, value: Node) -> Shape:
        """Strides of the memory that readers of a fusion root read."""
        if value.is_input:
            strides: Shape = value.attribute("strides")
            return strides
        targets = self.destinations.get(value)
        return targets[0].strides if targets else contiguous(value.shape)


def is_opaque(value: Node) -> bool:
    """Whether a native routine computes the value. Indices are checked where they are used."""
    return record_of(value).kind in OPAQUE_KINDS


def routine_of(value: Node) -> Routine:
    """Returns the routine that computes an opaque value."""
    routine = record_of(value).routine
    assert routine is not None, value.op
    return routine


def number_of(value: Node) -> Node | None:
    """The `full`, negated `full` or `scalar` that a scalar operand is; None if it is computed."""
    value = _source(value)
    if value.is_scalar or record_of(value).constant:
        return value
    return value if is_negation(value) and record_of(value.inputs[0]).constant else None


def _source(value: Node) -> Node:
    """The value whose elements a value has, rearranged or in another dtype."""
    while record_of(value).same_elements:
        value = value.inputs[0]
    return value


def copy_of(value: Node, alone: bool = False, strides: Shape | None = None) -> Node:
    """A copy of `value` in memory of its own (`alone`: never fused): dense memory, or that of a
    result with these strides, which no routine takes for dense."""
    if strides is not None and same_strides(value.shape, strides, contiguous(value.shape)):
        strides = None
    return grammar.copy(value, alone, strides)


def pushed(value: Node, strides: Shape) -> tuple[Node, Shape]:
    """Moves an output below permutations and reshapes: the same memory, seen as their operand."""
    while True:
        record = record_of(value)
        if record.unview is None or (value.inputs[0].is_input and record.kind != "annotation"):
            return value, strides
        below = record.unview(value, strides)
        if below is None:
            return value, strides
        value, strides = value.inputs[0], below


def same_strides(shape: Shape, a: Shape, b: Shape) -> bool:
    """Whether two stride tuples address a tensor alike; extents 1 do not count."""
    return all(x == y or extent == 1 for extent, x, y in zip(shape, a, b))


def prepare(graph: Graph, indirect: Collection[int] = ()) -> Prepared:
    """Rewrites the graph; slots in `indirect` are written by a copy that comes last."""
    stores: list[tuple[Node, Destination]] = []
    for number, output in enumerate(graph.outputs):
        if output.alias is not None or (output.strides is None and output.target is None):
            continue
        strides, slot = output.strides, output.target
        if strides is None:
            assert slot is not None
            target = graph.inputs[slot]
            assert target is not None
            strides = target.attribute("strides")
        value, strides = pushed(output.node, strides)
        if slot is None:
            stores.append((value, Destination("output", number, strides)))
        elif not value.is_input or value.attribute("slot") != slot:
            stores.append((value, Destination("input", slot, strides)))
    return _Rewriting(stores, indirect).run()


class _Rewriting:
    def __init__(self, stores: list[tuple[Node, Destination]], indirect: Collection[int]) -> None:
        self.prepared = Prepared()
        self.indirect = indirect
        self.wanted = stores
        self.new: dict[Node, Node] = {}
        self.by_node: dict[Node, list[Destination]] = {}
        for value, destination in stores:
            self.by_node.setdefault(value, []).append(destination)
        self.users: dict[Node, list[Node]] = {}

    def run(self) -> Prepared:
        """Rewrites all nodes, operands first, then lists the destinations of the new ones."""
        nodes = topological(self.by_node)
        for value in nodes:
            for operand in value.inputs:
                self.users.setdefault(operand, []).append(value)
        for value in nodes:
            self.new[value] = fresh = self._rewrite(value)
            if fresh is not value:
                self.prepared.origins.setdefault(fresh, value)
            targets = self.by_node.get(value)
            if targets:
                self._place(fresh, targets)
        self._place_parts()
        return self.prepared

    def _place(self, value: Node, targets: list[Destination]) -> None:
        """Records destinations, by way of a copy where the value cannot be written there."""
        table = self.prepared.destinations
        only_one = CAT.matches(value) or (is_opaque(value) and not routine_of(value).several)
        for destination in targets:
            source = value
            if destination.kind == "input" and destination.where in self.indirect:
                source = copy_of(value, alone=True)
            elif value.is_input or (only_one and value in table):
                source = copy_of(value, strides=destination.strides)
            elif is_opaque(value) and not _writes(value, destination):
                source = copy_of(value, strides=destination.strides)
            table.setdefault(source, []).append(destination)

    def _place_parts(self) -> None:
        """Where parts of concatenations and bases of scatters go: memory of their owners."""
        table = self.prepared.destinations
        for value in topological(table):
            if CAT.matches(value):
                strides = self.prepared.read_strides(value)
                start: Size = 0
                d = value.attribute("dimension")
                for part in value.inputs:
                    place = Destination("value", value, strides, start * strides[d])
                    table[part] = [place]
                    start = start + part.shape[d]
            elif value.inputs and BASE.matches(value.inputs[0]):
                strides = self.prepared.read_strides(value)
                table[value.inputs[0]] = [Destination("value", value, strides)]

    # ----------------------------------------------------------------------------- rewriting

    def _rewrite(self, value: Node) -> Node:
        if not value.inputs:
            return value
        new = self.new
        inputs = tuple([new[i] for i in value.inputs])
        record = record_of(value)
        if record.kind in OPAQUE_KINDS:
            return self._routine(value, inputs)
        if record.kind == "reduce":
            return self._reduction(value, inputs[0])
        if record.concatenates and self._is_written(value):
            return grammar.concatenation(value, inputs)
        if is_permute(value) and is_opaque(value.inputs[0]):
            turned = self._turned_product(value)
            if turned is not None:
                return turned
        if inputs == value.inputs:
            return value
        return node(value.op, inputs, value.attributes, value.dtype, value.shape, value.source)

    def _turned_product(self, value: Node) -> Node | None:
        """The permutation of a product that is only used so, as the product of the transposes
        (same bits): its memory then has the order in which it is read."""
        product, order = value.inputs[0], value.attribute("order")
        if not routine_of(product).matrices:
            return None
        rows, columns = product.ndim - 2, product.ndim - 1
        alone = len(self.users[product]) == 1 and product not in self.by_node
        if not alone or order.index(rows) < order.index(columns) or value.dtype[0] == "c":
            return None
        swap = (*range(rows), columns, rows)
        a, b = (_permuted(self.new[x], swap) for x in product.inputs)
        shape = tuple(product.shape[d] for d in swap)
        turned = self._routine(node("matmul", (b, a), (), value.dtype, shape), (b, a))
        return _permuted(turned, tuple(swap[d] for d in order))

    def _routine(self, value: Node, inputs: tuple[Node, ...]) -> Node:
        kind, routine = record_of(value).kind, routine_of(value)
        if routine.last_axis:
            return self._along_last(value, inputs[0])
        if kind == "random" and value.attribute("distribution") not in EACH:
            return self._draw(value, inputs)
        if routine.narrow:
            value, inputs = _of_pairs(value, inputs)
        others = inputs
        base: tuple[Node, ...] = ()
        if kind == "scatter":
            base, others = (grammar.base(value, inputs[0]),), inputs[1:]
        addressing = routine.operands(value)
        if base and addressing == "strided":
            others = (others[0], _spread(others[1]))
        seen = [self._operand(x, addressing) for x in others]
        batch: Shape = ()
        if routine.matrices:
            seen, batch = self._matrices(others, seen)
        views = tuple((strides, offset) for _, strides, offset in seen)
        operands = (*base, *(f[0] for f in seen))
        extra: list[tuple[str, Any]] = [("views", views)]
        if routine.matrices:
            extra.append(("depth", inputs[0].shape[-1]))
            extra.append(("batch", batch))
        elif base:  # the shape of the index operands
            extra.append(("places", value.inputs[1].shape))
        else:
            extra.append(("shapes", tuple(x.shape for x in value.inputs)))
        packed = tuple(sorted((*value.attributes, *extra)))
        return node(value.op, operands, packed, value.dtype, value.shape)

    def _is_written(self, value: Node) -> bool:
        """Whether a concatenation gets memory: parts are then written one by one. Two operands that
        only feed further arithmetic are selected from on the fly."""
        if len(value.inputs) > 2 or value in self.by_node:
            return True
        return any(is_opaque(user) for user in self.users.get(value, ()))

    def _draw(self, value: Node, inputs: tuple[Node, ...]) -> Node:
        """A draw with numbers for parameters; a computed probability is spread over the result."""
        is_bernoulli = value.attribute("distribution") == "bernoulli"
        if not is_bernoulli or number_of(inputs[0]) is not None:
            return node(value.op, inputs, value.attributes, value.dtype, value.shape)
        packed = attributes(shape=value.shape, dimensions=())
        spread = node("broadcast", inputs, packed, inputs[0].dtype, value.shape)
        constants = dict(value.attributes) | {"distribution": "bernoulli_each"}
        draw = node("random", (spread,), attributes(**constants), value.dtype, value.shape)
        return self._routine(draw, (spread,))

    def _along_last(self, value: Node, operand: Node) -> Node:
        """A routine along one axis, as one along the last."""
        axis, last = value.attribute("axis"), operand.ndim - 1
        order = tuple(d for d in range(operand.ndim) if d != axis) + (axis,)
        if axis != last:
            shape = tuple(operand.shape[d] for d in order)
            operand = node("permute", (operand,), (("order", order),), operand.dtype, shape)
        base, strides, offset = self._operand(operand, "dense")
        constants = dict(value.attributes) | {"axis": last, "shapes": (operand.shape,)}
        constants["views"] = ((strides, offset),)
        result = node(value.op, (base,), attributes(**constants), value.dtype, operand.shape)
        if axis == last:
            return result
        inverse = tuple(order.index(d) for d in range(len(order)))
        return node("permute", (result,), (("order", inverse),), value.dtype, value.shape)

    def _operand(self, value: Node, addressing: Addressing) -> tuple[Node, Shape, Size]:
        base, strides, offset = self._geometry(value)
        if _is_addressed(addressing, value.shape, strides):
            return base, strides, offset
        # Memory of its own, dense. A value that is a fusion root for another reason is copied.
        if base is value:
            value = copy_of(value)
        return value, contiguous(value.shape), 0

    def _geometry(self, value: Node) -> tuple[Node, Shape, Size]:
        """The value that owns the memory, and the strides and offset that see `value` in it."""
        view = record_of(value).view
        if view is None or value in self.prepared.destinations:
            return value, self.prepared.read_strides(value), 0
        base, strides, offset = self._geometry(value.inputs[0])
        seen = view(value, strides, offset, reshape_strides)
        return (value, contiguous(value.shape), 0) if seen is None else (base, *seen)

    def _matrices(
        self, operands: tuple[Node, ...], seen: list[tuple[Node, Shape, Size]]
    ) -> tuple[list[tuple[Node, Shape, Size]], Shape]:
        """Operands of a product with as few batch dimensions as both their strides allow, and the
        extents of these."""
        shape = operands[0].shape[:-2]
        dims = [d for d, extent in enumerate(shape) if extent != 1]
        groups: list[list[int]] = []
        for d in dims:
            before = groups[-1][-1] if groups else None
            if before is not None and all(
                strides[before] == mul(strides[d], shape[d]) for _, strides, _ in seen
            ):
                groups[-1].append(d)
            else:
                groups.append([d])
        batch = tuple(count(tuple(shape[d] for d in group)) for group in groups)
        views = []
        for operand, (base, strides, offset) in zip(operands, seen):
            matrix = _without_ones(operand.shape[-2:], strides[-2:])
            views.append((base, (*(strides[group[-1]] for group in groups), *matrix), offset))
        return views, batch

    def _reduction(self, value: Node, operand: Node) -> Node:
        axis = value.attribute("axis")
        extent = operand.shape[axis]
        static = isinstance(extent, int) and extent <= SINGLE_LAUNCH
        if static or count(value.shape) != 1 or self._spreads_again(value):
            return node(value.op, (operand,), value.attributes, value.dtype, value.shape)
        if record_of(value).positions is None:
            first = grammar.blocks(operand, axis, value.op, value.dtype)
            return node(value.op, (first,), value.attributes, value.dtype, value.shape)
        best = grammar.blocks(operand, axis, value.op[3:], operand.dtype)
        place = grammar.blocks(operand, axis, value.op, "i64")
        block = node(value.op, (best,), value.attributes, "i64", value.shape)
        shape = best.shape
        unit = shape[:axis] + (1,) + shape[axis + 1 :]
        chosen = node("reshape", (block,), attributes(shape=unit), "i64", unit)
        inner = node("gather", (place, chosen), attributes(axis=axis), "i64", unit)
        inner = node("reshape", (inner,), attributes(shape=value.shape), "i64", value.shape)
        step = attributes(value=REDUCE_BLOCK, shape=value.shape, dtype="i64")
        start = node(
            "mul", (block, node("full", (), step, "i64", value.shape)), (), "i64", block.shape
        )
        return node("add", (start, inner), (), "i64", value.shape)

    def _spreads_again(self, value: Node) -> bool:
        """Whether the reduced value is soon used at every element again, for a result that is
        written (softmax, norms): then one kernel with a resident row is faster than two launches.
        This does not hold for a value that only another sum reads (variance), or that depends on
        other reductions first (the norm of many gradients)."""
        elements = count(value.inputs[0].shape)
        stack, seen = [value], {value}
        while stack and len(seen) < SEARCH_LIMIT:
            current = stack.pop()
            full = count(current.shape) == elements
            if full and current in self.by_node:
                return True
            for user in self.users.get(current, ()):
                if user in seen:
                    continue
                seen.add(user)
                extent = count(user.shape)
                if extent == elements:
                    stack.append(user)
                elif full and extent != 1:
                    return True
                elif extent == 1 and (
                    full or all(i is current or _is_simple(i) for i in user.inputs)
                ):
                    stack.append(user)
        return bool(stack)


def _of_pairs(value: Node, inputs: tuple[Node, ...]) -> tuple[Node, tuple[Node, ...]]:
    """A convolution of bfloat16 numbers that were cast to float32 reads the numbers themselves,
    where an instruction adds products of pairs of them. That decides about bits: operands' dtypes
    and the processor, nothing else."""
    bare = [_uncast(x) for x in inputs]
    suits = value.dtype == "f32" and not is_depthwise(value)
    if not suits or None in bare or not _pairs_are_native():
        return value, inputs
    operands = tuple(x for x in bare if x is not None)
    constants = attributes(**(dict(value.attributes) | {"method": "plain"}))
    return node(value.op, operands, constants, value.dtype, value.shape), operands


def _pairs_are_native() -> bool:
    return targets.offers(targets.current(), "dot_pairs", "f32", 16)


def _uncast(value: Node) -> Node | None:
    """The bfloat16 numbers, seen alike, of which a value is the cast; None: it is none."""
    if record_of(value).converts:
        return value.inputs[0] if value.inputs[0].dtype == "bf16" else None
    inner = _uncast(value.inputs[0]) if record_of(value).view is not None else None
    if inner is None:
        return None
    return node(value.op, (inner,), value.attributes, "bf16", value.shape)


def _spread(value: Node) -> Node:
    """A constant tensor as one element, read everywhere."""
    if not record_of(value).constant or value.ndim == 0:
        return value
    one = node("full", (), attributes(**dict(value.attributes) | {"shape": ()}), value.dtype, ())
    packed = attributes(shape=value.shape, dimensions=())
    return node("broadcast", (one,), packed, value.dtype, value.shape)


def _permuted(value: Node, order: tuple[int, ...]) -> Node:
    """`value` with its dimensions in another order, permutations merged."""
    if is_permute(value):
        inner = value.attribute("order")
        value, order = value.inputs[0], tuple(inner[d] for d in order)
    if order == tuple(range(len(order))):
        return value
    shape = tuple(value.shape[d] for d in order)
    return node("permute", (value,), (("order", order),), value.dtype, shape)


def _is_simple(value: Node) -> bool:
    """Whether a value needs no computation to speak of."""
    value = _source(value)
    return _is_simple(value.inputs[0]) if is_negation(value) else not value.inputs


def _without_ones(shape: Shape, strides: Shape) -> Shape:
    return tuple([0 if extent == 1 else stride for extent, stride in zip(shape, strides)])


def _is_addressed(addressing: Addressing, shape: Shape, strides: Shape) -> bool:
    """Whether a routine that addresses memory so can address this."""
    if addressing == "strided" or (addressing == "rows" and strides[-1] == 1):
        return True
    return same_strides(shape, strides, contiguous(shape))


def _writes(value: Node, destination: Destination) -> bool:
    """Whether the routine of an opaque node can write to this memory."""
    return _is_addressed(routine_of(value).result(value), value.shape, destination.strides)
