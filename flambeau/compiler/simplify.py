"""Rewrites a graph into a smaller one with the same bits.

One pass, operands first. Equal nodes are one node already (hash-consing), unreachable ones are not
visited. No rule may change a result's bits: `x + 0` turns -0.0 into 0.0 and stays, `x * 1` goes;
casts to half types round and always stay.
"""

from __future__ import annotations

from collections.abc import Callable

from flambeau.ir.node import Graph, Node, attributes, node, topological
from flambeau.ir.size import Size
from flambeau.prims.record import PRIMITIVES

Rule = Callable[[Node], Node | None]


def simplify(graph: Graph) -> Graph:
    """The graph with all rules applied; inputs, outputs' places and guards stay as they are."""
    new: dict[Node, Node] = {}
    for value in topological(o.node for o in graph.outputs):
        inputs = value.inputs
        if inputs:
            inputs = tuple([new[i] for i in inputs])
        if inputs != value.inputs:
            made = node(value.op, inputs, value.attributes, value.dtype, value.shape, value.source)
        else:
            made = value
        made = _nothing(made)
        rule = RULES.get(made.op)
        while rule is not None:
            better = rule(made)
            if better is None or better is made:
                break
            made = better
            rule = RULES.get(made.op)
        new[value] = made
    outputs = tuple(
        o if new[o.node] is o.node else o._replace(node=new[o.node]) for o in graph.outputs
    )
    return graph if outputs == graph.outputs else graph.with_outputs(outputs)


# ------------------------------------------------------------------------------- nothing

_OF_NOTHING = {"sum": 0, "prod": 1, "any": False, "all": True, "xor": 0}
_EMPTY_KINDS = frozenset({"pointwise", "shape", "index", "reduce", "scan", "routine"})


def _nothing(value: Node) -> Node:
    """What has no elements, or is a sum over none, as a constant: no kernel then has a loop that
    never runs, outside of which it would read memory that is not there."""
    record = PRIMITIVES.get(value.op)
    if record is None or record.kind not in _EMPTY_KINDS:
        return value
    if _is_empty(value):
        return _full(False if value.dtype == "bool" else 0, value)
    if value.op in _OF_NOTHING and _is_empty(value.inputs[0]):
        return _full(_OF_NOTHING[value.op], value)
    return value


def _is_empty(value: Node) -> bool:
    return 0 in value.shape


# ------------------------------------------------------------------------------- constants


def _constant(value: Node) -> bool | int | float | complex | None:
    """The number a value is everywhere; None if it is not one."""
    while value.op in ("broadcast", "reshape"):
        value = value.inputs[0]
    return value.attribute("value") if value.op == "full" else None


def _full(number: bool | int | float | complex, like: Node) -> Node:
    packed = attributes(value=number, shape=like.shape, dtype=like.dtype)
    return node("full", (), packed, like.dtype, like.shape)


def _is(value: Node, number: float) -> bool:
    found = _constant(value)
    return found is not None and not isinstance(found, bool) and found == number


def _remove(value: Node) -> Node | None:
    return value.inputs[0]


def _mul(value: Node) -> Node | None:
    a, b = value.inputs
    if value.dtype[0] == "c":
        return None
    if _is(b, 1):
        return a
    return b if _is(a, 1) else None


def _div(value: Node) -> Node | None:
    a, b = value.inputs
    return a if value.dtype[0] != "c" and _is(b, 1) else None


def _add(value: Node) -> Node | None:
    if value.dtype[0] in "fbc":  # -0.0 + 0.0 is 0.0
        return None
    a, b = value.inputs
    if _is(b, 0):
        return a
    return b if _is(a, 0) else None


def _sub(value: Node) -> Node | None:
    a, b = value.inputs  # x - 0.0 is x, -0.0 included; constants are never -0.0
    return a if value.dtype[0] != "c" and _is(b, 0) else None


def _neg(value: Node) -> Node | None:
    operand = value.inputs[0]
    return operand.inputs[0] if operand.op == "neg" else None


def _where(value: Node) -> Node | None:
    condition, a, b = value.inputs
    if a is b:
        return a
    found = _constant(condition)
    if found is None:
        return None
    return a if found else b


def _and(value: Node) -> Node | None:
    a, b = value.inputs
    if a is b:
        return a
    if value.dtype != "bool":
        return None
    for x, y in ((a, b), (b, a)):
        found = _constant(x)
        if found is not None:
            return y if found else _full(False, value)
    return None


def _or(value: Node) -> Node | None:
    a, b = value.inputs
    if a is b:
        return a
    if value.dtype != "bool":
        return None
    for x, y in ((a, b), (b, a)):
        found = _constant(x)
        if found is not None:
            return _full(True, value) if found else y
    return None


def _not(value: Node) -> Node | None:
    operand = value.inputs[0]
    return operand.inputs[0] if operand.op == "bitwise_not" else None


# Casts that lose nothing: every value of the first is a value of the second.
_WIDER: dict[str, frozenset[str]] = {
    "bool": frozenset("u8 i8 i16 i32 i64 f16 bf16 f32 f64".split()),
    "u8": frozenset("i16 i32 i64 f16 bf16 f32 f64".split()),
    "i8": frozenset("i16 i32 i64 f16 bf16 f32 f64".split()),
    "i16": frozenset("i32 i64 f32 f64".split()),
    "i32": frozenset("i64 f64".split()),
    "f16": frozenset("f32 f64".split()),
    "bf16": frozenset("f32 f64".split()),
    "f32": frozenset("f64".split()),
}


def _cast(value: Node) -> Node | None:
    operand = value.inputs[0]
    if operand.dtype == value.dtype:
        return operand
    if operand.op == "cast":
        source = operand.inputs[0]
        if operand.dtype in _WIDER.get(source.dtype, ()):
            if source.dtype == value.dtype:
                return source
            if operand.dtype[0] in "fb" and value.dtype[0] in "iu":
                return None  # out of range, integers wrap and floats saturate
            # Widening in steps is widening at once; narrowing after a widening is one rounding.
            return node("cast", (source,), value.attributes, value.dtype, value.shape)
    if operand.op == "full" and not operand.shape:
        return _cast_constant(operand, value)
    return None


def _cast_constant(operand: Node, value: Node) -> Node | None:
    number = operand.attribute("value")
    if value.dtype == "f64" and isinstance(number, (bool, int)) and abs(number) < 1 << 53:
        return _full(float(number), value)
    if value.dtype == "i64" and isinstance(number, (bool, int)):
        return _full(int(number), value)
    return None


# ------------------------------------------------------------------------------- views


def _reshape(value: Node) -> Node | None:
    operand = value.inputs[0]
    if operand.shape == value.shape:
        return operand
    if operand.op == "reshape":
        return node(
            "reshape", operand.inputs, value.attributes, value.dtype, value.shape, value.source
        )
    return _full_shape(operand, value)


def _full_shape(operand: Node, value: Node) -> Node | None:
    return _full(operand.attribute("value"), value) if operand.op == "full" else None


def _permute(value: Node) -> Node | None:
    operand, order = value.inputs[0], value.attribute("order")
    if order == tuple(range(len(order))):
        return operand
    if operand.op == "permute":
        inner = operand.attribute("order")
        packed = attributes(order=tuple(inner[d] for d in order))
        return node("permute", operand.inputs, packed, value.dtype, value.shape, value.source)
    return _full_shape(operand, value)


def _broadcast(value: Node) -> Node | None:
    operand, dimensions = value.inputs[0], value.attribute("dimensions")
    if operand.shape == value.shape and dimensions == tuple(range(value.ndim)):
        return operand
    if operand.op == "broadcast":
        inner = operand.attribute("dimensions")
        packed = attributes(dimensions=tuple(dimensions[d] for d in inner), shape=value.shape)
        return node("broadcast", operand.inputs, packed, value.dtype, value.shape, value.source)
    return _full_shape(operand, value)


def _slice(value: Node) -> Node | None:
    operand = value.inputs[0]
    start, step = value.attribute("start"), value.attribute("step")
    if start == 0 and step == 1 and operand.shape == value.shape:
        return operand
    dimension = value.attribute("dimension")
    if operand.op == "slice" and operand.attribute("dimension") == dimension:
        inner: Size = operand.attribute("step")
        packed = attributes(
            dimension=dimension,
            start=operand.attribute("start") + start * inner,
            step=step * inner,
            length=value.attribute("length"),
        )
        return node("slice", operand.inputs, packed, value.dtype, value.shape, value.source)
    return _full_shape(operand, value)


def _flip(value: Node) -> Node | None:
    operand, flipped = value.inputs[0], value.attribute("dimensions")
    if operand.op == "flip":
        left = set(flipped) ^ set(operand.attribute("dimensions"))
        if not left:
            return operand.inputs[0]
        packed = attributes(dimensions=tuple(sorted(left)))
        return node("flip", operand.inputs, packed, value.dtype, value.shape, value.source)
    return _full_shape(operand, value)


RULES: dict[str, Rule] = {
    "with_derivative": _remove,
    "mul": _mul,
    "div": _div,
    "add": _add,
    "sub": _sub,
    "neg": _neg,
    "where": _where,
    "bitwise_and": _and,
    "bitwise_or": _or,
    "bitwise_not": _not,
    "cast": _cast,
    "reshape": _reshape,
    "permute": _permute,
    "broadcast": _broadcast,
    "slice": _slice,
    "flip": _flip,
}
