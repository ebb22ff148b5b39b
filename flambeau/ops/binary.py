"""Operators of two and three operands: arithmetic, powers, bits, logic."""

from __future__ import annotations

from typing import Any

from flambeau import prims
from flambeau.core.definition import op
from flambeau.core.samples import binary_samples
from flambeau.ir.node import Node
from flambeau.ops.broadcasting import apply


@op(
    "add(Tensor self, Tensor|Scalar other) -> Tensor",
    promote="default",
    runtime="other",
    samples=binary_samples(),
    reference="numpy.add",
)
def add(self: Node, other: Any) -> Node:
    """`self + alpha * other`, with broadcasting and type promotion.

    Shapes: any two that broadcast. Dtypes: all; `bool` adds as "or".

    Raises:
        RuntimeError: sizes do not broadcast, or a floating `alpha` meets integers.

    Example:
        >>> torch.add(torch.tensor([1.0, 2.0]), torch.tensor([10.0, 20.0]), alpha=0.5)
        tensor([ 6., 12.])
    """
    return apply("add", prims.bitwise_or if self.dtype == "bool" else prims.add, self, other)


@add.overload(
    "add.alpha(Tensor self, Tensor|Scalar other, *, Scalar alpha=1) -> Tensor",
    runtime="other alpha",
    participants="self other",
)
def _add_alpha(self: Node, other: Any, alpha: Any) -> Node:
    return add(self, _scaled("add", self, other, alpha))


def _scaled(name: str, self: Node, other: Any, alpha: Any) -> Any:
    """`alpha * other` in the dtype both operands were promoted to."""
    _check_alpha(name, self.dtype, alpha)
    if self.dtype == "bool":
        return apply(name, prims.bitwise_and, prims.cast(other, "bool"), alpha)
    return apply(name, prims.mul, _in(other, self.dtype), _in(alpha, self.dtype))


def _in(value: Any, dtype: str) -> Any:
    return prims.cast(value, dtype) if isinstance(value, Node) else prims.full(value, (), dtype)


def _check_alpha(name: str, dtype: str, alpha: Any) -> None:
    kind = alpha.dtype if isinstance(alpha, Node) else {bool: "bool", int: "i64"}.get(type(alpha))
    if kind == "bool" and dtype != "bool":
        raise RuntimeError(
            f"[{name}] Boolean alpha only supported for Boolean results.\nhint: pass a number"
        )
    if kind not in ("bool", "i64") and dtype not in ("f32", "f64", "c64", "c128"):
        raise RuntimeError(
            f"[{name}] For integral input tensors, argument alpha must not be a floating point "
            "number.\nhint: pass an integer alpha, or convert the operands to floats"
        )


_BOOL_SUB = (
    "[sub] Subtraction, the `-` operator, with {} is not supported. If you are trying to invert a "
    "mask, use the `~` or `logical_not()` operator instead.\nhint: use ~mask, or mask ^ other"
)


@op(
    "sub(Tensor self, Tensor|Scalar other) -> Tensor",
    promote="default",
    runtime="other",
    aliases="subtract",
    samples=binary_samples(),
    reference="numpy.subtract",
)
def sub(self: Node, other: Any) -> Node:
    """`self - alpha * other`, with broadcasting and type promotion.

    Shapes: any two that broadcast. Dtypes: all but `bool` with `bool`.

    Raises:
        RuntimeError: sizes do not broadcast, both are bool, or a floating `alpha` meets integers.

    Example:
        >>> torch.sub(torch.tensor([1.0, 2.0]), 1)
        tensor([0., 1.])
    """
    if self.dtype == "bool":
        raise RuntimeError(_BOOL_SUB.format("two bool tensors"))
    return apply("sub", prims.sub, self, other)


@sub.overload(
    "sub.alpha(Tensor self, Tensor|Scalar other, *, Scalar alpha=1) -> Tensor",
    runtime="other alpha",
    participants="self other",
)
def _sub_alpha(self: Node, other: Any, alpha: Any) -> Node:
    if self.dtype == "bool":
        raise RuntimeError(_BOOL_SUB.format("two bool tensors"))
    return sub(self, _scaled("sub", self, other, alpha))


@op(
    "rsub(Tensor self, Tensor|Scalar other) -> Tensor",
    where="torch",
    promote="default",
    runtime="other",
    samples=binary_samples(),
)
def rsub(self: Node, other: Any) -> Node:
    """`other - alpha * self`: subtraction with the operands exchanged.

    Example:
        >>> torch.rsub(torch.tensor([1.0, 2.0]), 1)
        tensor([ 0., -1.])
    """
    if self.dtype == "bool":
        raise RuntimeError(_BOOL_SUB.format("two bool tensors"))
    return apply("rsub", lambda a, b: prims.sub(b, a), self, other)


@rsub.overload(
    "rsub.alpha(Tensor self, Tensor|Scalar other, *, Scalar alpha=1) -> Tensor",
    runtime="other alpha",
    participants="self other",
)
def _rsub_alpha(self: Node, other: Any, alpha: Any) -> Node:
    return rsub(_scaled("rsub", self, self, alpha), other)


@op(
    "mul(Tensor self, Tensor|Scalar other) -> Tensor",
    promote="default",
    runtime="other",
    aliases="multiply",
    samples=binary_samples(),
    reference="numpy.multiply",
)
def mul(self: Node, other: Any) -> Node:
    """`self * other`, with broadcasting and type promotion; `bool` multiplies as "and".

    Example:
        >>> torch.mul(torch.tensor([1.0, 2.0]), 3)
        tensor([3., 6.])
    """
    return apply("mul", prims.bitwise_and if self.dtype == "bool" else prims.mul, self, other)


@op(
    "div(Tensor self, Tensor|Scalar other) -> Tensor",
    promote="float",
    runtime="other",
    aliases="divide",
    samples=binary_samples(low=0.5),
    reference="numpy.true_divide",
)
def div(self: Node, other: Any) -> Node:
    """`self / other`, optionally rounded ("trunc" towards zero, "floor" down).

    Without `rounding_mode` integers divide to the default float dtype; with it they stay integers.

    Raises:
        RuntimeError: sizes do not broadcast, or an unknown `rounding_mode`.

    Example:
        >>> torch.div(torch.tensor([7, -7]), 2, rounding_mode="floor")
        tensor([ 3, -4])
    """
    return apply("div", prims.div, self, other)
