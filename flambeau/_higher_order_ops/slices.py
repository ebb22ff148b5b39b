"""Checks of tensors that functions slice along an axis."""

from __future__ import annotations

from collections.abc import Sequence

import flambeau as torch
from flambeau._higher_order_ops.flat import Value
from flambeau.ir.failure import failure
from flambeau.utils._pytree import tree_flatten

__all__ = ["dimension", "leaves_of"]


def leaves_of(name: str, xs: Value) -> tuple[list[Value], Value]:
    """The tensors in a container, and its structure.

    Args:
        name: the operator's, for errors.
        xs: the container.

    Raises:
        RuntimeError: there are none, or leaves of another type.
    """
    leaves, spec = tree_flatten(xs)
    if not leaves:
        problem = "Expected at least 1 xs leaf"
        raise failure(RuntimeError, name, problem, "a tensor, or a container of some")
    if not all(isinstance(leaf, torch.Tensor) for leaf in leaves):
        problem = f"xs can only consist of tensors. Got xs {leaves}."
        raise failure(RuntimeError, name, problem, "torch.as_tensor")
    return leaves, spec


def dimension(leaves: Sequence[Value], dim: int) -> int:
    """An axis counted from the front.

    Args:
        leaves: tensors that have it.
        dim: the axis, negative from the end of the first tensor.

    Raises:
        IndexError: a tensor has no such axis.
    """
    for leaf in leaves:
        if not -leaf.dim() <= dim < leaf.dim():
            raise IndexError(
                "Dimension out of range (expected to be in range of "
                f"[{-leaf.dim()}, {leaf.dim() - 1}], but got {dim})"
            )
    return int(dim % leaves[0].dim())
