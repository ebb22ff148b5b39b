"""Operators element by element: they are applied to the values.

Dense operands are broadcast as if a sample's rows were a dimension; what differs from sample to
sample is repeated for each of its rows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau.autograd.composite import mapped
from flambeau.autograd.composition import operands
from flambeau.core.tensors import Tensor
from flambeau.nested import padded
from flambeau.nested.tensor import JaggedTensor, NestedTensor, refuse

nested_operands = functools.partial(operands, NestedTensor)  # the nested tensors of arguments


def call(op: Callable[..., Any], name: str, args: Any, kwargs: dict[str, Any]) -> Tensor:
    """An operator element by element, of which an operand is jagged.

    Raises:
        RuntimeError: operands do not have the same offsets, or cannot be broadcast.
    """
    pattern = nested_operands((*args, *kwargs.values()))[0]
    if name.endswith("_") and not isinstance(args[0], NestedTensor):
        refuse(name, "a dense tensor cannot take a nested result", "use the operator without _")

    def inner(x: Any) -> Any:
        if isinstance(x, NestedTensor):
            return _aligned(name, pattern, x)
        if isinstance(x, torch.Tensor) and x.dim():
            return broadcast(name, pattern, x)
        return x

    result = op(*map(inner, args), **{k: inner(v) for k, v in kwargs.items()})
    if name.endswith("_") and not name.startswith("__"):
        return args[0]
    return wrapped(pattern, result)


def wrapped(pattern: Tensor, result: Any) -> Tensor:
    """Values (or several) as nested tensors like a pattern."""
    return mapped(lambda x: pattern if x is pattern._kept else pattern._like(x), result)


def _aligned(name: str, pattern: Tensor, x: Tensor) -> Any:
    """The values of a nested operand, which has the offsets of the first."""
    same = (
        isinstance(x, JaggedTensor)
        and x._ragged is pattern._ragged
        and x.dim() - x._ragged_idx == pattern.dim() - pattern._ragged_idx
    )
    if not same:
        unfit(name, pattern, x)
    return x._kept


def unfit(name: str, pattern: Tensor, x: Any) -> None:
    """Raises for operands that do not fit each other."""
    shapes = " and ".join(_shape_text(t) for t in (pattern, x))
    refuse(
        name,
        f"cannot call binary pointwise function {name} with inputs of shapes {shapes}",
        "nested operands share offsets (nested_tensor_from_jagged(values, x.offsets())); dense "
        "ones are broadcast where their size is 1 in the ragged dimension",
    )


def _shape_text(x: Any) -> str:
    return "a strided nested tensor" if isinstance(x, NestedTensor) and not isinstance(
        x, JaggedTensor) else f"{tuple(x.shape)}"  # fmt: skip


def broadcast(name: str, pattern: Tensor, x: Any) -> Any:
    """A dense operand as one that is broadcast against the values."""
    r, ndim = pattern._ragged_idx, pattern.dim()
    if x.dim() > ndim:
        unfit(name, pattern, x)
    if x.dim() < ndim - r:
        return x
    full = x.reshape((1,) * (ndim - x.dim()) + tuple(x.shape))
    batch, rows = full.shape[0], full.shape[r]
    ragged = pattern._ragged
    if batch not in (1, ragged.batch) or rows not in (1, ragged.longest):
        unfit(name, pattern, x)
    count = pattern._kept.shape[r - 1]
    if rows != 1:
        dense = full if batch == ragged.batch else full.expand(ragged.batch, *full.shape[1:])
        return padded.to_values(dense, ragged, r, count)
    if batch == 1:
        return full.squeeze(0)
    spread = full.squeeze(r).index_select(0, ragged.owners(count))
    return spread if r == 1 else spread.movedim(0, r - 1)
