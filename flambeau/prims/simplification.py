"""Simplifications of pointwise primitives: rules that their records name.

No rule may change a result's bits: `x + 0` turns -0.0 into 0.0 and stays, `x * 1` goes; casts to
half types round and always stay. Constants are never -0.0.
"""

from __future__ import annotations

from flambeau.ir.dtypes import CATEGORY
from flambeau.ir.node import Node, attributes, node

Number = bool | int | float | complex


def constant_of(value: Node) -> Number | None:
    """The number a value is everywhere; None if it is not one."""
    while value.op in ("broadcast", "reshape"):
        value = value.inputs[0]
    return value.attribute("value") if value.op == "full" else None


def full_like(number: Number, like: Node) -> Node:
    """A constant of a node's dtype and shape. Python takes 0, 0.0 and False for equal: a node with
    the one would be found for the others, and a graph's text would depend on which came first."""
    number = (bool, int, float, complex)[CATEGORY[like.dtype]](number)
    packed = attributes(value=number, shape=like.shape, dtype=like.dtype)
    return node("full", (), packed, like.dtype, like.shape)


def _is(value: Node, number: float) -> bool:
    constant = constant_of(value)
    return constant is not None and not isinstance(constant, bool) and constant == number


def _without(value: Node, neutral: int) -> Node | None:
    """The operand beside a neutral one."""
    a, b = value.inputs
    if _is(b, neutral):
        return a
    return b if _is(a, neutral) else None


def first_operand(value: Node) -> Node | None:
    """The first operand; the others serve its derivative."""
    return value.inputs[0]


def simpler_mul(value: Node) -> Node | None:
    """Factors of 1 go."""
    return None if value.dtype[0] == "c" else _without(value, 1)


def simpler_div(value: Node) -> Node | None:
    """Divisors of 1 go."""
    a, b = value.inputs
    return a if value.dtype[0] != "c" and _is(b, 1) else None


def simpler_add(value: Node) -> Node | None:
    """Zeros go, of integers: -0.0 + 0.0 is 0.0."""
    return None if value.dtype[0] in "fbc" else _without(value, 0)


def simpler_sub(value: Node) -> Node | None:
    """Zeros go: x - 0.0 is x, -0.0 included."""
    a, b = value.inputs
    return a if value.dtype[0] != "c" and _is(b, 0) else None


def inverse_of_itself(value: Node) -> Node | None:
    """Removes two applications of an operation that is its own inverse."""
    operand = value.inputs[0]
    return operand.inputs[0] if operand.op == value.op else None


def simpler_where(value: Node) -> Node | None:
    """A choice between equals, or by a constant."""
    condition, a, b = value.inputs
    if a is b:
        return a
    constant = constant_of(condition)
    if constant is None:
        return None
    return a if constant else b


def _connective(value: Node, deciding: bool) -> Node | None:
    """An "and" or "or": the constant that decides stays alone, the other one goes."""
    a, b = value.inputs
    if a is b:
        return a
    if value.dtype != "bool":
        return None
    for x, y in ((a, b), (b, a)):
        constant = constant_of(x)
        if constant is not None:
            return full_like(deciding, value) if constant == deciding else y
    return None


def simpler_and(value: Node) -> Node | None:
    """True goes, False stays alone."""
    return _connective(value, False)


def simpler_or(value: Node) -> Node | None:
    """False goes, True stays alone."""
    return _connective(value, True)


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


def simpler_cast(value: Node) -> Node | None:
    """Casts to the same dtype, and detours by a wider one, go."""
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
        return full_like(float(number), value)
    if value.dtype == "i64" and isinstance(number, (bool, int)):
        return full_like(int(number), value)
    return None
