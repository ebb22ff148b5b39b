"""Subscripts of arrays: NumPy's negative steps, which tensors do not have, are reversed copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau as torch

__all__ = ["read", "write"]

Value = Any  # an item of a subscript


def _positive(tensor: Value, items: Sequence[Value]) -> tuple[tuple[Value, ...], list[int]]:
    """A subscript without negative steps, and the dimensions of its result to reverse."""
    if not any(isinstance(x, slice) and x.step is not None and x.step < 0 for x in items):
        return tuple(items), []
    taken = sum(map(_dimensions, items))
    dim, out, changed, reverse = 0, 0, [], []
    for item in items:
        if item is Ellipsis:
            dim, out = dim + tensor.ndim - taken, out + tensor.ndim - taken
        elif isinstance(item, slice) and item.step is not None and item.step < 0:
            numbers = range(*item.indices(tensor.shape[dim]))
            item = slice(numbers[-1], numbers[0] + 1, -item.step) if numbers else slice(0, 0)
            reverse.append(out)
        changed.append(item)
        dim += _dimensions(item)
        out += 0 if isinstance(item, int) or item is Ellipsis else 1
    return tuple(changed), reverse


def _dimensions(item: Value) -> int:
    if item is None or item is Ellipsis:
        return 0
    return int(item.ndim) if isinstance(item, torch.Tensor) and item.dtype == torch.bool else 1


def read(tensor: Value, items: Sequence[Value]) -> Value:
    """The elements that a subscript shows."""
    items, reverse = _positive(tensor, items)
    result = tensor[items]
    return torch.flip(result, reverse) if reverse else result


def write(tensor: Value, items: Sequence[Value], value: Value) -> None:
    """Writes elements, in the type of the tensor."""
    items, reverse = _positive(tensor, items)
    value = value.to(tensor.dtype)
    if reverse:
        value = torch.flip(value.expand(tensor[items].shape), reverse)
    tensor[items] = value
