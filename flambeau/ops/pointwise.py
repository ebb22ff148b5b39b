"""Operators of one operand that work element by element."""

from __future__ import annotations

from flambeau import prims
from flambeau.core.definition import op
from flambeau.core.samples import unary_samples
from flambeau.ir.node import Node


@op(
    "neg(Tensor self) -> Tensor",
    promote="default",
    aliases="negative",
    samples=unary_samples(),
    reference="numpy.negative",
)
def neg(self: Node) -> Node:
    """Minus each element. Dtypes: all but `bool`.

    Raises:
        RuntimeError: a `bool` tensor.

    Example:
        >>> torch.neg(torch.tensor([1.0, -2.0]))
        tensor([-1.,  2.])
    """
    if self.dtype == "bool":
        raise RuntimeError(
            "[neg] Negation, the `-` operator, on a bool tensor is not supported. If you are "
            "trying to invert a mask, use the `~` or `logical_not()` operator instead.\n"
            "hint: use ~mask"
        )
    return prims.neg(self)


@op("exp(Tensor self) -> Tensor", promote="float", samples=unary_samples(), reference="numpy.exp")
def exp(self: Node) -> Node:
    """e to the power of each element. Integers and bools compute in the default float dtype.

    Example:
        >>> torch.exp(torch.tensor([0.0, 1.0]))
        tensor([1.0000, 2.7183])
    """
    return prims.exp(self)
