"""Arguments without their tensors, which a node of the graph stores separately."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau import _core


class _Place:
    def __repr__(self) -> str:
        return "<a tensor>"


TENSOR = _Place()  # replaces a tensor


def without_tensors(values: Any) -> Any:
    """A value, or lists of lists of them, with `TENSOR` in the place of each tensor."""
    if isinstance(values, _core.Tensor):
        return TENSOR
    if isinstance(values, (list, tuple)):
        items = [without_tensors(x) for x in values]
        return items if any(a is not b for a, b in zip(items, values, strict=True)) else values
    return values


def with_tensors(values: Any, tensors: Iterator[Any]) -> Any:
    """Puts tensors, or other values, back where `without_tensors` removed tensors."""
    if values is TENSOR:
        return next(tensors)
    if isinstance(values, list):
        return [with_tensors(x, tensors) for x in values]
    return values
