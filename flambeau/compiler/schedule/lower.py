"""Value at an index: turns a graph node and an index into a kernel value.

Shape, index and creation primitives dissolve into index expressions; pointwise primitives become
kernel values of the same name. Lowering stops at *heavy* nodes (see `heavy`): there it leaves an
`s.ref`, which `build` later resolves to a load, a reduction result or an inlined value.

`s.ref` has attributes `index` (tuple of sizes; data-dependent parts are d0, d1, ..) and `target`;
its inputs are the values of d0, d1, .. and, where masked, the mask last.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from flambeau.compiler.schedule.views import Index, reshape_index
from flambeau.ir import kernel as k
from flambeau.ir.node import Node, node
from flambeau.ir.size import Size, free_symbols, substitute, symbol
from flambeau.prims.record import PRIMITIVES

Handler = Callable[["Lowering", Node, Index, Node | None], Node]

_PASS_ON = ("s.copy", "s.part", "s.base", "with_derivative")


def ref(target: Node, index: Index, inputs: tuple[Node, ...], mask: Node | None) -> Node:
    """A reference to element `index` of a heavy node."""
    packed: tuple[tuple[str, Any], ...] = (("index", index), ("target", target))
    if mask is not None:
        packed = (("index", index), ("masked", True), ("target", target))
        inputs = (*inputs, mask)
    return node("s.ref", inputs, packed, target.dtype)


class Lowering:
    """Values at indices over one set of axes, memoised.

    Args:
        heavy: nodes to stop at.
    """

    def __init__(self, heavy: Collection[Node]) -> None:
        self.heavy = heavy
        self._memo: dict[tuple[Node, Index, Node | None], Node] = {}
        self._data: dict[str, Node] = {}
        self._symbols: dict[tuple[Node, Size], Size] = {}

    def at(self, value: Node, index: Index, mask: Node | None = None) -> Node:
        """The value at an index; `mask` (bool) says where memory may be read."""
        key = (value, index, mask)
        found = self._memo.get(key)
        if found is None:
            if value in self.heavy or value.op == "input":
                found = self._ref(value, index, mask)
            else:
                found = self.expand(value, index, mask)
            self._memo[key] = found
        return found

    def expand(self, value: Node, index: Index, mask: Node | None = None) -> Node:
        """The value at an index in terms of the node's operands, heavy or not."""
        handler = HANDLERS.get(value.op)
        if handler is None and callable(PRIMITIVES[value.op].spelling):
            handler = _by_record
        if handler is not None:
            return handler(self, value, index, mask)
        at = self.at
        operands = tuple([at(i, index, mask) for i in value.inputs])
        return node(value.op, operands, value.attributes, value.dtype)

    def _ref(self, value: Node, index: Index, mask: Node | None) -> Node:
        if not self._data:
            return ref(value, index, (), mask)
        renamed, inputs = self.bind_data(index)
        return ref(value, renamed, inputs, mask)

    def bind_data(self, index: Index) -> tuple[Index, tuple[Node, ...]]:
        """Renames data-dependent symbols to d0, d1, .. and returns their values."""
        names: dict[str, Size] = {}
        inputs: list[Node] = []
        for part in index:
            for name in sorted(free_symbols(part)):
                if name in self._data and name not in names:
                    names[name] = symbol(f"d{len(names)}")
                    inputs.append(self._data[name])
        if not names:
            return index, ()
        return tuple(substitute(part, names) for part in index), tuple(inputs)

    def data(self, value: Node, extent: Size) -> Size:
        """The symbol that stands for an i64 value in [0, extent)."""
        if value.op == "k.index" and not value.inputs:
            expression: Size = value.attribute("expression")
            return expression
        found = self._symbols.get((value, extent))
        if found is None:
            name = f"v{len(self._symbols)}"
            found = self._symbols[value, extent] = symbol(name, extent=extent)
            self._data[name] = value
        return found

    def index_value(self, expression: Size, dtype: str = "i64") -> Node:
        """An index expression as a value."""
        if isinstance(expression, int):
            return k.const(expression, dtype)
        (renamed,), inputs = self.bind_data((expression,)) if self._data else ((expression,), ())
        found = k.index(renamed, inputs)
        return found if dtype == "i64" else node("cast", (found,), (("dtype", dtype),), dtype)


# ------------------------------------------------------------------------------- create


def _full(lowering: Lowering, value: Node, index: Index, mask: Node | None) -> Node:
    return k.const(value.attribute("value"), value.dtype)


def _iota(lowering: Lowering, value: Node, index: Index, mask: Node | None) -> Node:
    return lowering.index_value(index[value.attribute("dimension")], value.dtype)


def _size(lowering: Lowering, value: Node, index: Index, mask: Node | None) -> Node:
    return lowering.index_value(value.attribute("value"))


def _scalar(lowering: Lowering, value: Node, index: Index, mask: Node | None) -> Node:
    return k.scalar(value.attribute("slot"), value.dtype)


# ------------------------------------------------------------------------------- shape


def _pass_on(lowering: Lowering, value: Node, index: Index, mask: Node | None) -> Node:
    return lowering.at(value.inputs[0], index, mask)


def _broadcast(lowering: Lowering, value: Node, index: Index, mask: Node | None) -> Node:
    operand = value.inputs[0]
    source = tuple(
        [
            0 if extent == 1 else index[dimension]
            for extent, dimension in zip(operand.shape, value.attribute("dimensions"))
        ]
    )
    return lowering.at(operand, source, mask)


def _reshape(lowering: Lowering, value: Node, index: Index, mask: Node | None) -> Node:
    operand = value.inputs[0]
    return lowering.at(operand, reshape_index(index, value.shape, operand.shape), mask)


def _permute(lowering: Lowering, value: Node, index: Index, mask: Node | None) -> Node:
    source: list[Size] = [0] * len(index)
    for position, dimension in zip(index, value.attribute("order")):
        source[dimension] = position
    return lowering.at(value.inputs[0], tuple(source), mask)


def _slice(lowering: Lowering, value: Node, index: Index, mask: Node | None) -> Node:
    d = value.attribute("dimension")
    moved = index[d] * value.attribute("step") + value.attribute("start")
    return lowering.at(value.inputs[0], (*index[:d], moved, *index[d + 1 :]), mask)


def _flip(lowering: Lowering, value: Node, index: Index, mask: Node | None) -> Node:
    flipped = value.attribute("dimensions")
    source = tuple([value.shape[d] - 1 - p if d in flipped else p for d, p in enumerate(index)])
    return lowering.at(value.inputs[0], source, mask)


def _both(a: Node | None, b: Node | None) -> Node | None:
    if a is None or b is None:
        return b if a is None else a
    return a if a is b else node("bitwise_and", (a, b), (), "bool")


def _pad(lowering: Lowering, value: Node, index: Index, mask: Node | None) -> Node:
    operand, fill = value.inputs
    inside: Node | None = None
    source: list[Size] = []
    lows, highs = value.attribute("low"), value.attribute("high")
    for position, extent, low, high in zip(index, operand.shape, lows, highs):
        moved = position - low
        source.append(moved)
        if not (isinstance(low, int) and low <= 0):
            test = (lowering.index_value(moved), k.const(0, "i64"))
            inside = _both(inside, node("ge", test, (), "bool"))
        if not (isinstance(high, int) and high <= 0):
            test = (lowering.index_value(moved), lowering.index_value(extent))
            inside = _both(inside, node("lt", test, (), "bool"))
    if inside is None:
        return lowering.at(operand, tuple(source), mask)
    found = lowering.at(operand, tuple(source), _both(mask, inside))
    outside = lowering.at(fill, (), mask)
    return node("where", (inside, found, outside), (), value.dtype)


def _cat(lowering: Lowering, value: Node, index: Index, mask: Node | None) -> Node:
    d = value.attribute("dimension")
    position = index[d]
    start: Size = 0
    starts = [start := start + operand.shape[d] for operand in value.inputs]  # ends, in fact
    found: Node | None = None
    for number in range(len(value.inputs) - 1, -1, -1):
        low = starts[number - 1] if number else 0
        source = (*index[:d], position - low, *index[d + 1 :])
        here = lowering.index_value(position)
        before: Node | None = None
        after: Node | None = None
        if number + 1 < len(value.inputs):
            before = node("lt", (here, lowering.index_value(starts[number])), (), "bool")
        if number:
            after = node("ge", (here, lowering.index_value(low)), (), "bool")
        part = lowering.at(value.inputs[number], source, _both(mask, _both(before, after)))
        if found is None:
            found = part
        else:
            assert before is not None
            found = node("where", (before, part, found), (), value.dtype)
    assert found is not None
    return found


def _windows(lowering: Lowering, value: Node, index: Index, mask: Node | None) -> Node:
    d = value.attribute("dimension")
    place = index[d] * value.attribute("step") + index[-1] * value.attribute("dilation")
    return lowering.at(value.inputs[0], (*index[:d], place, *index[d + 1 : -1]), mask)


def _by_record(lowering: Lowering, value: Node, index: Index, mask: Node | None) -> Node:
    """Other shape primitives, by the index map in their record."""
    reads = PRIMITIVES[value.op].spelling(value, index)
    if len(reads) != 1 or reads[0].bounded:
        raise NotImplementedError(
            f"[{value.op}] its index map has several sources\nhint: write it with pad or cat"
        )
    return lowering.at(value.inputs[reads[0].operand], reads[0].index, mask)


# ------------------------------------------------------------------------------- index


def _gather(lowering: Lowering, value: Node, index: Index, mask: Node | None) -> Node:
    operand, positions = value.inputs
    axis = value.attribute("axis")
    chosen = lowering.data(lowering.at(positions, index, mask), operand.shape[axis])
    return lowering.at(operand, (*index[:axis], chosen, *index[axis + 1 :]), mask)


def _take(lowering: Lowering, value: Node, index: Index, mask: Node | None) -> Node:
    operand, positions = value.inputs
    axis = value.attribute("axis")
    end = axis + positions.ndim
    chosen = lowering.data(lowering.at(positions, index[axis:end], mask), operand.shape[axis])
    return lowering.at(operand, (*index[:axis], chosen, *index[end:]), mask)


def _index_nd(lowering: Lowering, value: Node, index: Index, mask: Node | None) -> Node:
    operand, *positions = value.inputs
    dimensions = value.attribute("dims")
    first = dimensions[0]
    end = first + positions[0].ndim
    inner = index[first:end]
    chosen = [
        lowering.data(lowering.at(p, inner, mask), operand.shape[d])
        for p, d in zip(positions, dimensions)
    ]
    return lowering.at(operand, (*index[:first], *chosen, *index[end:]), mask)


def _check_index(lowering: Lowering, value: Node, index: Index, mask: Node | None) -> Node:
    found = lowering.at(value.inputs[0], index, mask)
    if found.dtype != "i64":
        found = node("cast", (found,), (("dtype", "i64"),), "i64")
    return node("s.check", (found,), value.attributes, "i64")


HANDLERS: dict[str, Handler] = {
    "full": _full,
    "iota": _iota,
    "size": _size,
    "scalar": _scalar,
    "broadcast": _broadcast,
    "reshape": _reshape,
    "permute": _permute,
    "slice": _slice,
    "flip": _flip,
    "pad": _pad,
    "cat": _cat,
    "windows": _windows,
    "gather": _gather,
    "take": _take,
    "index_nd": _index_nd,
    "check_index": _check_index,
    **dict.fromkeys(_PASS_ON, _pass_on),
}
