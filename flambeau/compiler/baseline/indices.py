"""Positions in memory as instructions of a block program: affine ones, and all others."""

from __future__ import annotations

from collections.abc import Sequence

from flambeau.compiler.baseline.emission import Emission, Place
from flambeau.compiler.baseline.program import ALONG_W, NONE, Numbers
from flambeau.ir import size as sizes
from flambeau.ir.node import Node
from flambeau.ir.size import Size, SizeExpr
from flambeau.ir.size_core import from_terms, terms_of
from flambeau.ir.size_program import Opcode

SHARED_OFFSET = 2  # flag of a load: one offset is that of all rows
_INTEGER = {
    "floordiv": Opcode.FLOORDIV,
    "mod": Opcode.MOD,
    "min": Opcode.MIN,
    "max": Opcode.MAX,
}


class Indices(Emission):
    """Emits positions."""

    def _strides(self, expression: Size) -> tuple[int, int, int] | None:
        """Numbers of an index's start and of its steps along s and w, if it is affine in them."""
        split = sizes.affine_in(expression, (self.axis, "r"))
        if split is None:
            return None
        factors, start = split
        if self.spans and self.axis in factors:  # its register holds the block's first row
            start = sizes.add(start, sizes.mul(factors[self.axis], sizes.symbol(self.axis)))
        along = (factors.get(self.axis, 0), factors.get("r", 0))
        return self._size(start), self._size(along[0]), self._size(along[1])

    def _row_strides(
        self, expression: Size, indices: Sequence[Node]
    ) -> tuple[tuple[int, int, int] | None, int, int]:
        """As `_strides`, where what depends on `indices` is an offset of whole rows: its register,
        and whether all rows share it."""
        if not indices:
            return self._strides(expression), -1, 0
        level = NONE
        for node in indices:
            level |= self.levels[node]
        names = [f"d{i}" for i in range(len(indices))]
        split = sizes.affine_in(expression, ("r", *names))
        if split is None or level & ALONG_W:
            return None, -1, 0
        factors, start = split
        along = sizes.mul(factors.get("r", 0), sizes.symbol("r"))
        strides = self._strides(sizes.add(start, along))
        if strides is None:
            return None, -1, 0
        offset = sizes.sub(sizes.sub(expression, start), along)
        constant = all(node in self.constant for node in indices)
        home = "before" if constant else self._home_of(level)
        register = self._position(offset, indices, level, home)
        return strides, register, SHARED_OFFSET if level == NONE else 0

    def _index(self, node: Node) -> Place:
        level, home = self.levels[node], self._home(node)
        expression = node.attribute("expression")
        register = self._position(expression, node.inputs, level, home)
        return Place(register, level, home)

    def _position(self, expression: Size, indices: Sequence[Node], level: int, home: str) -> int:
        """A register of positions; `indices` are d0, d1, .."""
        values = {f"d{i}": self._at(node, level, home) for i, node in enumerate(indices)}
        return self._integer(expression, values, level, home)

    def _integer(self, expression: Size, values: dict[str, int], level: int, home: str) -> int:
        """A register of an expression's values, computed once."""
        key = ("integer", expression, level, home, tuple(values.items()))
        place = self._find(key)
        if place is None:
            register = self._computed(expression, values, level, home)
            place = self._remember(key, Place(register, level, home))
        return place.register

    def _computed(self, expression: Size, values: dict[str, int], level: int, home: str) -> int:
        free = sizes.free_symbols(expression)
        strides = self._strides(expression) if free.isdisjoint(values) else None
        if strides is not None:
            numbers = Numbers(0, *strides, -1)
            return self._emit("index", level, home, 8, (), numbers, ["index"]).register
        assert isinstance(expression, SizeExpr)
        if expression.kind == "symbol":
            return values[expression.name]
        if expression.kind == "sum":
            return self._sum(expression, values, level, home)
        operands = [self._integer(o, values, level, home) for o in expression.operands]
        code = _INTEGER[expression.kind]
        return self._chain(code, operands, level, home)

    def _chain(self, code: int, operands: list[int], level: int, home: str) -> int:
        result = operands[0]
        for operand in operands[1:]:
            numbers = Numbers(int(code))
            result = self._emit("integer", level, home, 8, [result, operand], numbers).register
        return result

    def _sum(self, expression: SizeExpr, values: dict[str, int], level: int, home: str) -> int:
        """A sum of products: what does not vary in them is a factor, or the start."""
        varying = {*values, "r", self.axis}
        start: Size = 0
        parts: list[tuple[Size, list[SizeExpr]]] = []
        for monomial, number in terms_of(expression).items():
            inside = [a for a in monomial if not varying.isdisjoint(sizes.free_symbols(a))]
            factor = from_terms({tuple(a for a in monomial if a not in inside): number})
            if inside:
                parts.append((factor, inside))
            else:
                start = sizes.add(start, factor)
        axes = (sizes.symbol("r"), sizes.symbol(self.axis) if self.axis else None)
        affine = [(f, i) for f, i in parts if len(i) == 1 and i[0] in axes]
        for factor, (axis,) in affine:
            start = sizes.add(start, sizes.mul(factor, axis))
        strides, total = self._strides(start), -1
        assert strides is not None
        for factor, inside in parts:
            if (factor, inside) in affine:
                continue
            operands = [self._integer(atom, values, level, home) for atom in inside]
            product = self._chain(Opcode.MUL, operands, level, home)
            if total < 0:
                numbers = Numbers(0, *strides, self._size(factor))
                total = self._emit("index", level, home, 8, [product], numbers, ["index"]).register
            else:
                numbers = Numbers(0, self._size(factor))
                total = self._emit("add_index", level, home, 8, [total, product], numbers).register
        return total

    def _check_index(self, node: Node) -> Place:
        level, home = self.levels[node], self._home(node)
        operand = self._at(node.inputs[0], level, home)
        size = self._size(node.attribute("size"))
        if size < 0:
            size = self.expressions.setdefault(0, len(self.expressions))
        numbers = Numbers(
            node.attribute("parameter"), size, node.attribute("dimension", 0),
            int(bool(node.attribute("strict"))),
        )  # fmt: skip
        return self._emit("check", level, home, 8, [operand], numbers, ["check"])


__all__ = ["SHARED_OFFSET", "Indices"]
