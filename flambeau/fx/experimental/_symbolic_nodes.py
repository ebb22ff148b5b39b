"""Nodes of symbolic numbers in graphs of `make_fx`: each is made where a node first reads it."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau.fx.node import Node
from flambeau.fx.proxy import Proxy
from flambeau.ir.lock import late
from flambeau.ir.size import SizeExpr, sorted_terms
from flambeau.ir.size_program import Condition
from flambeau.runtime.symbolic import (
    Computed,
    Expression,
    SymBool,
    SymFloat,
    SymInt,
    SymNode,
    is_symbolic,
)
from flambeau.runtime.symbols import sym_max, sym_min

__all__ = ["SizeNodes"]

Value = Any  # a number, symbolic or not, or the node of one
_KINDS: dict[type, Value] = {int: SymInt, float: SymFloat, bool: SymBool}


class SizeNodes:
    """The nodes of symbolic numbers.

    Args:
        tracer: owns the graph.
        node_of: the node of a tensor, None where it has none.
    """

    def __init__(self, tracer: Value, node_of: Callable[[Value], Proxy | None]) -> None:
        self._tracer, self._node_of = tracer, node_of
        self._nodes: dict[Expression, Proxy] = {}
        self._computed: dict[int, tuple[SymNode, Proxy]] = {}
        self._sources: dict[Expression, Callable[[], Proxy]] = {}

    def tensor(self, tensor: Value, proxy: Proxy) -> None:
        """Notes where sizes of a tensor can be read."""
        geometry = getattr(tensor, "geometry", None)
        if geometry is None or _is_late(proxy.node):  # the forward reads no size of a gradient
            return
        aten = torch.ops.aten
        for overload, values in (
            (aten.sym_size.int, geometry.sizes),
            (aten.sym_stride.int, geometry.strides),
        ):
            for dim, expression in enumerate(values):
                self._source(geometry, expression, overload, (proxy, dim))
        self._source(geometry, geometry.offset, aten.sym_storage_offset.default, (proxy,))

    def _source(self, geometry: Value, value: Value, overload: Value, args: Value) -> None:
        if not isinstance(value, SizeExpr) or value in self._sources or value in self._nodes:
            return
        number = geometry.number(value)

        def make() -> Proxy:
            return self._node(overload, args, number)

        self._sources[value] = make

    def leaf(self, number: Value, proxy: Proxy) -> None:
        """Lets a number be that of a node: an input, or one that data decide."""
        proxy.node.meta["val"] = number
        self._nodes[number.node._expression] = proxy

    def proxy(self, number: Value) -> Proxy:
        """The node of a symbolic number."""
        computed = self._computed.get(id(number.node))
        if computed is not None:
            return computed[1]
        origin = number.node.origin
        if origin is None:
            return self._of_expression(number)
        function, operands = origin
        if any(isinstance(x, torch.Tensor) and self._node_of(x) is None for x in operands):
            return self._of_expression(number)  # of a tensor that represents another one
        proxy = self._node(function, tuple(map(self.argument, operands)), number)
        self._computed[id(number.node)] = (number.node, proxy)
        self._nodes.setdefault(number.node._expression, proxy)
        return proxy

    def _of_expression(self, number: Value) -> Proxy:
        for expression in (number.node._expression, number.node.expr):
            proxy = self._found(expression)
            if proxy is not None:
                return proxy
        proxy = self._built(number.node._expression, number)
        self._nodes[number.node._expression] = proxy
        return proxy

    def drop_unused(self) -> None:
        """Erases nodes of numbers that nothing reads."""
        for node in reversed(self._tracer.graph.nodes):
            if node.op == "call_function" and not node.users and is_symbolic(node.meta.get("val")):
                if getattr(node.target, "__name__", "") != "_local_scalar_dense.default":
                    self._tracer.graph.erase_node(node)

    def argument(self, value: Value) -> Value:
        """A value in which a symbolic number is its node."""
        if isinstance(value, torch.Tensor):
            return self._node_of(value)
        return self.proxy(value) if is_symbolic(value) else value

    def _found(self, expression: Expression) -> Proxy | None:
        source = self._sources.pop(expression, None)
        if source is not None and expression not in self._nodes:
            self._nodes[expression] = source()
        return self._nodes.get(expression)

    def _node(self, function: Value, args: tuple[Value, ...], number: Value) -> Proxy:
        name = str(function).removeprefix("aten.").replace(".", "_")
        if not hasattr(function, "overloadpacket"):
            name = function.__name__
        proxy = self._tracer.create_proxy("call_function", function, args, {}, name=name)
        proxy.node.meta["val"] = number
        if any(isinstance(x, Proxy) and _is_late(x.node) for x in args):
            proxy.node.meta["partitioner_tag"] = _partition().BACKWARD
        return proxy

    # ---- expressions that no line of Python computed
    def _built(self, expression: Expression, like: Value) -> Proxy:
        env = like.node.shape_env

        def number(value: Value) -> Value:
            if not isinstance(value, (SizeExpr, Condition, Computed)):
                return value
            kind = int if isinstance(value, SizeExpr) else bool
            return self.proxy(_KINDS[kind](SymNode(value, env, kind)))

        def call(function: Value, *operands: Value) -> Proxy:
            return self._node(function, operands, like)

        if isinstance(expression, Computed):
            return call(expression.function, *map(number, expression.operands))
        if isinstance(expression, Condition):
            return self._condition(expression, number, call)
        assert isinstance(expression, SizeExpr)
        definition = env._definitions.get(getattr(expression, "name", ""))
        if expression.kind == "symbol":
            if definition is None:
                raise RuntimeError(
                    f"[make_fx] no node has the size {expression}\nhint: return the tensor that "
                    "has it, or make it an input"
                )
            return self._built(definition, like)
        if expression.kind == "sum":
            return self._sum(expression, number, call)
        function = _ATOMS[expression.kind]
        result = number(expression.operands[0])
        for operand in expression.operands[1:]:
            result = call(function, result, number(operand))
        return result  # type: ignore[no-any-return]

    def _sum(self, expression: SizeExpr, number: Value, call: Value) -> Proxy:
        total: Value = None
        for monomial, factor in sorted_terms(expression):
            product: Value = None if factor == 1 and monomial else factor
            for atom in monomial:
                node = number(atom)
                product = node if product is None else call(operator.mul, product, node)
            total = product if total is None else call(operator.add, total, product)
        return total  # type: ignore[no-any-return]

    def _condition(self, condition: Condition, number: Value, call: Value) -> Proxy:
        if condition.conditions:
            function = operator.and_ if condition.operator == "and" else operator.or_
            result = number(condition.conditions[0])
            for part in condition.conditions[1:]:
                result = call(function, result, number(part))
            return result  # type: ignore[no-any-return]
        compare = _RELATIONS[condition.operator]
        return call(compare, number(condition.left), number(condition.right))  # type: ignore[no-any-return]


def _is_late(node: Node) -> bool:
    """Whether a node is a gradient, or is computed from one."""
    tag, partition = node.meta.get("partitioner_tag"), _partition()
    return bool(tag == partition.BACKWARD or partition._is_tangent(node))


def _partition() -> Value:
    return late("flambeau.fx.experimental._partition")  # which imports the recorder of graphs


_ATOMS = {
    "floordiv": operator.floordiv, "mod": operator.mod, "min": sym_min, "max": sym_max,
}  # fmt: skip
_RELATIONS = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le}
