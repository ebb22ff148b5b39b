"""Value at an index: turns a graph node and an index into a kernel value.

Shape, index and creation primitives dissolve into index expressions; pointwise primitives become
kernel values of the same name. Lowering stops at fusion roots (see `fusion_roots`): there it leaves
an `s.ref` (`ir/schedule_grammar.py`), which `build` later resolves to a load, a reduction result or
an inlined value.
"""

from __future__ import annotations

from collections.abc import Collection

from flambeau.ir import kernel as k
from flambeau.ir.geometry import Index
from flambeau.ir.node import Node, node
from flambeau.ir.schedule_grammar import BASE, COPY, PART, ref
from flambeau.ir.size import Size, free_symbols, substitute, symbol
from flambeau.prims.record import Elements, Lower, record_of


class Lowering:
    """Values at indices over one set of axes, memoised.

    Args:
        roots: nodes to stop at.
    """

    def __init__(self, roots: Collection[Node]) -> None:
        self.roots = roots
        self._memo: dict[tuple[Node, Index, Node | None], Node] = {}
        self._data: dict[str, Node] = {}
        self._symbols: dict[tuple[Node, Size], Size] = {}

    def at(self, value: Node, index: Index, mask: Node | None = None) -> Node:
        """The value at an index; `mask` (bool) says where memory may be read."""
        key = (value, index, mask)
        element = self._memo.get(key)
        if element is None:
            if value in self.roots or value.is_input:
                element = self._ref(value, index, mask)
            else:
                element = self.expand(value, index, mask)
            self._memo[key] = element
        return element

    def expand(self, value: Node, index: Index, mask: Node | None = None) -> Node:
        """The value at an index in terms of the node's operands, fusion roots or not."""
        record = record_of(value)
        lower = record.lower or _OWN.get(value.op)
        if lower is not None:
            return lower(self, value, index, mask)
        at = self.at
        if record.reads is not None:
            [read] = record.reads(value, index)
            return at(value.inputs[read.operand], read.place, mask)
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
        """The symbol of an i64 value in [0, extent)."""
        if k.INDEX.matches(value) and not value.inputs:
            expression: Size = value.attribute("expression")
            return expression
        size = self._symbols.get((value, extent))
        if size is None:
            name = f"v{len(self._symbols)}"
            size = self._symbols[value, extent] = symbol(name, extent=extent)
            self._data[name] = value
        return size

    def constant(self, number: complex, dtype: str) -> Node:
        """A number as a value."""
        return k.const(number, dtype)

    def index_value(self, expression: Size, dtype: str = "i64") -> Node:
        """An index expression as a value."""
        if isinstance(expression, int):
            return k.const(expression, dtype)
        (renamed,), inputs = self.bind_data((expression,)) if self._data else ((expression,), ())
        index = k.index(renamed, inputs)
        return index if dtype == "i64" else node("cast", (index,), (("dtype", dtype),), dtype)


def _scalar(elements: Elements, value: Node, index: Index, mask: Node | None) -> Node:
    return k.scalar(value.attribute("slot"), value.dtype)


def _pass_on(elements: Elements, value: Node, index: Index, mask: Node | None) -> Node:
    return elements.at(value.inputs[0], index, mask)


# Leaves and the scheduler's own nodes, which have no record.
_OWN: dict[str, Lower] = {
    "scalar": _scalar,
    **{form.name: _pass_on for form in (COPY, PART, BASE)},
}
