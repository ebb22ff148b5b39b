"""Small compositions of primitives that op bodies and derivative rules are written with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flambeau.ir.environment import same_size
from flambeau.ir.node import OPERATORS, Node
from flambeau.ir.size import Size, SizeExpr, known_equal
from flambeau.prims import create, pointwise, reduce, shape
from flambeau.prims.common import ShapeMismatch, show
from flambeau.prims.create import Number


def broadcast_shapes(*shapes: tuple[Size, ...]) -> tuple[Size, ...]:
    """Return the common shape by NumPy's rule.

    Raises:
        ValueError: if the shapes do not broadcast together.
    """
    result = shapes[0]
    for other in shapes[1:]:
        if other != result:
            result = _broadcast_two(result, other)
    return result


def _broadcast_two(a: tuple[Size, ...], b: tuple[Size, ...]) -> tuple[Size, ...]:
    if len(a) < len(b):
        a, b = b, a
    result = list(a)
    for d, extent in enumerate(b, len(a) - len(b)):
        if result[d] is extent or known_equal(extent, 1) is True:
            continue
        if known_equal(result[d], 1) is True:
            result[d] = extent
        elif not same_size(result[d], extent):
            raise ShapeMismatch(
                f"[broadcast] shapes {show(a)} and {show(b)} differ in dimension {d}\n"
                "hint: sizes must be equal, or one of them 1",
                (result[d], extent, d),
            )
    return tuple(result)


def broadcast_to(x: Node, target: Sequence[Size]) -> Node:
    """Broadcast by NumPy's rule: trailing dimensions correspond, size 1 stretches."""
    target = tuple(target)
    if x.shape == target:
        return x
    return shape.broadcast(x, target, range(len(target) - x.ndim, len(target)))


def broadcast_all(*operands: Node) -> tuple[Node, ...]:
    """Broadcast the operands to their common shape."""
    common = broadcast_shapes(*(x.shape for x in operands))
    return tuple(broadcast_to(x, common) for x in operands)


def constant(value: Number | Size | Node, like: Node) -> Node:
    """A number, size or scalar node, cast and broadcast to the type of `like`."""
    if isinstance(value, SizeExpr):
        value = create.size(value)
    if isinstance(value, Node):
        return broadcast_to(pointwise.cast(value, like.dtype), like.shape)
    return create.full(value, like.shape, like.dtype)


def sum_to_shape(x: Node, target: Sequence[Size]) -> Node:
    """Sum away what broadcasting `target` to the shape of x had repeated."""
    target = tuple(target)
    extra = x.ndim - len(target)
    dims = list(range(extra))
    for d, extent in enumerate(target, extra):
        if known_equal(extent, 1) is True and known_equal(x.shape[d], 1) is not True:
            dims.append(d)
    return shape.reshape(reduce.reduce_dims("sum", x, dims), target)


def unsqueeze(x: Node, dimension: int) -> Node:
    """Insert a dimension of size 1; negative counts from the end of the result."""
    d = dimension + x.ndim + 1 if dimension < 0 else dimension
    return shape.reshape(x, (*x.shape[:d], 1, *x.shape[d:]))


def squeeze(x: Node, dimension: int) -> Node:
    """Drop a dimension of size 1."""
    d = dimension % x.ndim
    return shape.reshape(x, x.shape[:d] + x.shape[d + 1 :])


def transpose(x: Node, first: int, second: int) -> Node:
    """Swap two dimensions."""
    order = list(range(x.ndim))
    order[first], order[second] = order[second], order[first]
    return shape.permute(x, order)


def _operator(function: Callable[[Node, Node], Node]) -> Callable[[Any, Any], Any]:
    def apply(a: Any, b: Any) -> Any:
        if not isinstance(a, Node):
            a = _operand(a, b)
        elif not isinstance(b, Node):
            b = _operand(b, a)
        if a is NotImplemented or b is NotImplemented:
            return NotImplemented
        if a.shape != b.shape:
            a, b = broadcast_all(a, b)
        return function(a, b)

    return apply


def _operand(value: Any, like: Node) -> Any:
    if isinstance(value, (bool, int, float, complex, SizeExpr)):
        return constant(value, like)
    return NotImplemented


def install_operators() -> None:
    """Give nodes their Python operators; they broadcast but never promote dtypes."""
    names = "add sub mul div pow bitwise_and bitwise_or bitwise_xor lt le gt ge"
    for name in names.split():
        OPERATORS[name] = _operator(getattr(pointwise, name))
    for name in ("neg", "abs", "bitwise_not"):
        OPERATORS[name] = getattr(pointwise, name)
