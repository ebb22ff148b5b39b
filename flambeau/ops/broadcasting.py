"""Operands of pointwise operators: numbers become nodes, shapes become one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flambeau import prims
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.ir.size import Size, SizeExpr
from flambeau.language import layout
from flambeau.language.definition import given_dtype
from flambeau.language.promotion import CATEGORY, HALF, default_dtype, number_dtype
from flambeau.ops.common import is_one, number_shown
from flambeau.prims.record import record_of

Value = Any  # a Node or a Python number


def broadcast_sizes(name: str, *shapes: tuple[Size, ...]) -> tuple[Size, ...]:
    """The common shape of several operands.

    Raises:
        RuntimeError: two sizes differ and neither is 1.
    """
    result = shapes[0]
    for other in shapes[1:]:
        if other != result:
            result = _two_shapes(name, result, other)
    return result


def _two_shapes(name: str, a: tuple[Size, ...], b: tuple[Size, ...]) -> tuple[Size, ...]:
    ndim = max(len(a), len(b))
    left = (1,) * (ndim - len(a)) + a
    right = (1,) * (ndim - len(b)) + b
    result: list[Size] = []
    for dim, (x, y) in enumerate(zip(left, right, strict=True)):
        if is_one(x) or is_one(y):
            result.append(y if is_one(x) else x)
        elif layout.same(x, y):
            result.append(x)
        else:
            raise RuntimeError(
                f"[{name}] The size of tensor a ({number_shown(x)}) must match the size of tensor "
                f"b ({number_shown(y)}) at non-singleton dimension {dim}\n"
                "hint: sizes are compared from the last dimension; 1 stretches"
            )
    return tuple(result)


def as_node(value: Value, dtype: str) -> Node:
    """A node of this dtype: a cast node, or a Python number as a zero-dimensional one."""
    if isinstance(value, Node):
        return prims.cast(value, dtype)
    if isinstance(value, SizeExpr):
        return prims.cast(prims.size(value), dtype)
    return prims.full(value, (), dtype)


def dtype_of(values: Sequence[Value]) -> str:
    """The dtype operands compute in: that of the first node, else of the first number."""
    for value in values:
        if isinstance(value, Node) and not value.is_scalar:
            return value.dtype
    first = values[0]
    if isinstance(first, Node):
        return default_dtype() if first.dtype == "f64" else first.dtype
    return number_dtype(type(first))


def together(name: str, *values: Value) -> tuple[Node, ...]:
    """The operands as nodes of one dtype and one shape."""
    dtype = dtype_of(values)
    nodes = [as_node(value, dtype) for value in values]
    shape = broadcast_sizes(name, *(x.shape for x in nodes))
    return tuple(prims.broadcast_to(x, shape) for x in nodes)


def rounded(x: Node, dtype: str) -> Node:
    """x as a half type would hold it; x itself for other dtypes.

    For operators of which PyTorch rounds every step, where that shows in the result.
    """
    return prims.cast(prims.cast(x, dtype), x.dtype) if dtype in HALF else x


def check_any_tensor(name: str, *values: Value) -> None:
    """Refuses a call of numbers alone.

    Raises:
        TypeError: no operand is a tensor.
    """
    nodes = [value for value in values if isinstance(value, Node)]
    sources = [
        x.inputs[0] if record_of(x).converts else x for x in nodes
    ]  # a number is promoted, too
    if all(x.is_scalar for x in sources):
        problem = "received an invalid combination of arguments: numbers only"
        raise failure(TypeError, name, problem, "one of the operands is a Tensor")


def apply(name: str, function: Callable[..., Node], *values: Value) -> Node:
    """A strict primitive on operands that broadcast."""
    return function(*together(name, *values))


def insist(value: Node, wrong: Node, name: str, message: str, error: str = "runtime") -> Node:
    """`value`; the call raises where `wrong` holds, for one element or for the whole.

    `error` is the kind of exception, see `prims.check_index`. A zero carries the check into the
    value: what nobody reads is not checked.
    """
    fault = prims.check_index(prims.cast(wrong, "i64"), 1, name, message, error=error)
    return value + prims.cast(fault, value.dtype)


def check_one_dtype(name: str, **operands: Node) -> None:
    """Refuses operands of different dtypes, for operators that do not promote.

    Raises:
        RuntimeError: the dtypes, as the caller gave them, differ.
    """
    dtypes = [given_dtype(x) for x in operands.values()]
    if len(set(dtypes)) > 1:
        names = " and ".join(operands)
        listed = " and ".join(dtypes)
        problem = f"expected {names} to have the same dtype, but got {listed}"
        raise failure(RuntimeError, name, problem, "convert one of them")


def is_float(x: Node) -> bool:
    """Whether the elements are real floating-point numbers."""
    return CATEGORY[x.dtype] == 2


def is_complex(x: Node) -> bool:
    """Whether the elements are complex numbers."""
    return CATEGORY[x.dtype] == 3


def check_float(name: str, x: Node) -> None:
    """Refuses integers and truth values.

    Raises:
        RuntimeError: the operand is neither a floating-point nor a complex tensor.
    """
    if CATEGORY[x.dtype] < 2:
        problem = f"{name}: Expected a floating point or complex tensor as input. Got {x.dtype}"
        raise failure(RuntimeError, name, problem, "convert to float first")


def averaged(total: Node, count: Node | int) -> Node:
    """total / count; of integers rounded towards zero, as PyTorch does here."""
    number = count if isinstance(count, Node) else prims.full_like(count, total)
    if CATEGORY[total.dtype] >= 2:
        return total / number
    quotient = prims.floor_div(prims.abs(total), prims.abs(number))
    return prims.where(prims.lt(total * number, prims.zeros_like(total)), -quotient, quotient)


def unsupported(name: str, x: Node | str, advice: str) -> NotImplementedError:
    """The error of an operator that a dtype has no meaning for."""
    dtype = x if isinstance(x, str) else x.dtype
    return NotImplementedError(f"[{name}] not implemented for {dtype}\nhint: {advice}")


def participant(value: Value) -> tuple[str, str]:
    """Returns a value's contribution to type promotion: its dtype and its class."""
    if not isinstance(value, Node):
        return number_dtype(type(value)), "number"
    if value.is_scalar:
        return default_dtype() if value.dtype == "f64" else value.dtype, "number"
    return value.dtype, "tensor" if value.shape else "zero_dim"


# Piecewise constant functions: PyTorch gives zeros, not "no gradient".
prims.register_rule("flat", lambda g, y, *xs: [prims.zeros_like(x) for x in xs])
