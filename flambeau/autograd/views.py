"""Gradients through views whose base was written in place, and of broadcast values.

The native engine calls these when a view's history has to be expressed by geometry: the view is a
window (sizes, strides, offset) into the memory of its base. They use public operations only, so
they can be differentiated again.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from math import prod
from typing import Any

from flambeau import _core

Tensor = Any
Sizes = Sequence[int]


def _extent(sizes: Sizes, strides: Sizes) -> int:
    """Elements from the first to the last one, both included."""
    if 0 in sizes:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))


def _overlaps(sizes: Sizes, strides: Sizes) -> bool:
    """Whether two index tuples may address the same element (conservative)."""
    reach = 0
    for stride, size in sorted(zip(strides, sizes, strict=True)):
        if size <= 1:
            continue
        if stride <= reach:
            return True
        reach += (size - 1) * stride
    return False


def _base_strides(sizes: Sizes, strides: Sizes) -> tuple[int, ...]:
    """The base's strides; an expanded base has no memory of its own to write a gradient to."""
    if prod(sizes) > 1 and _overlaps(sizes, strides):
        raise NotImplementedError(
            "[backward] gradients through in-place writes to a view of an expanded tensor are not "
            "supported\nhint: clone() the expanded tensor before writing to it"
        )
    return tuple(strides)


def _window(memory: Tensor, sizes: Sizes, strides: Sizes, offset: int) -> Tensor:
    """A view of fresh memory, which may be that of every sample of a batch (`vmap`)."""
    if type(memory) is _core.Tensor:
        return _core.as_strided_view(memory, sizes, strides, offset)
    return memory.as_strided(tuple(sizes), tuple(strides), offset)


def clone_with_order(grad: Tensor, strides: Sizes | None) -> Tensor:
    """A copy of a gradient that is dense, its dimensions ordered as *strides* are.

    Args:
        strides: those of a leaf without gaps; None: row-major.
    """
    if strides is None:
        return grad.clone(memory_format=_core.contiguous_format)
    order = sorted(range(grad.ndim), key=lambda d: (-strides[d], d))
    inverse = sorted(range(grad.ndim), key=order.__getitem__)
    copy = grad.permute(order).clone(memory_format=_core.contiguous_format)
    return copy.permute(inverse)


def scatter_to_base(
    grad: Tensor,
    base_sizes: Sizes,
    base_strides: Sizes,
    view_sizes: Sizes,
    view_strides: Sizes,
    offset: int,
) -> Tensor:
    """The gradient of a base, given that of a strided view of it."""
    strides = _base_strides(base_sizes, base_strides)
    last = offset + _extent(view_sizes, view_strides)
    memory = grad.new_zeros((max(_extent(base_sizes, strides), last),))
    if _overlaps(view_sizes, view_strides):
        index = _positions(grad, view_sizes, view_strides, offset)
        memory = memory.index_add(0, index.reshape(-1), grad.reshape(-1))
    else:
        _window(memory, view_sizes, view_strides, offset).copy_(grad)
    return _window(memory, base_sizes, strides, 0)


def _positions(like: Tensor, sizes: Sizes, strides: Sizes, offset: int) -> Tensor:
    """Position in memory of each element of a strided view."""
    flambeau = import_module("flambeau")  # complete by now, unlike when this was loaded
    total = flambeau.full((), offset, dtype=flambeau.int64, device=like.device)
    for dim, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        steps = flambeau.arange(size, device=like.device) * stride
        total = total + steps.reshape([size] + [1] * (len(sizes) - dim - 1))
    return total.expand(tuple(sizes))


def open_window(
    grad: Tensor,
    base_sizes: Sizes,
    base_strides: Sizes,
    view_sizes: Sizes,
    view_strides: Sizes,
    offset: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """A copy of the base's gradient, the window of it that was written, a copy of that window."""
    strides = _base_strides(base_sizes, base_strides)
    last = offset + _extent(view_sizes, view_strides)
    memory = grad.new_zeros((max(_extent(base_sizes, strides), last),))
    _window(memory, base_sizes, strides, 0).copy_(grad)
    window = _window(memory, view_sizes, view_strides, offset)
    whole = _window(memory, base_sizes, strides, 0)
    return whole, window, window.clone()


def close_window(whole: Tensor, window: Tensor, inner: Tensor | None) -> Tensor:
    """Puts what flows to the overwritten value into the window; nothing when it was not read."""
    if inner is None:
        window.zero_()
    else:
        window.copy_(inner)
    return whole


def reduce_to(grad: Tensor, sizes: Sizes) -> Tensor:
    """Sums a gradient over the dimensions along which a value of these sizes was broadcast."""
    lead = grad.dim() - len(sizes)
    wanted = [1] * lead + list(sizes)
    dims = [d for d, size in enumerate(wanted) if size == 1 and grad.shape[d] != 1]
    return (grad.sum(dims, keepdim=True) if dims else grad).reshape(tuple(sizes))
