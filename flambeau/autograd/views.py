"""Gradients through views whose base was written in place, and of broadcast values.

The native engine calls these when a view's history has to be expressed by geometry: the view is a
window (sizes, strides, offset) into the memory of its base. They use public operations only, so
they can be differentiated again.

Views may have another form than their base: real and imaginary parts of complex numbers, complex
numbers made of real ones, conjugates, negatives. Gradients of complex numbers are pairs of real
gradients, so the memory of a gradient is viewed as the memory of its value is.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from math import prod
from typing import Any, NamedTuple

from flambeau import _core

Tensor = Any
Sizes = Sequence[int]
CONJUGATE, NEGATIVE, COMPLEX = 1, 2, 4  # what a view's elements are made of


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


class _Elements(NamedTuple):
    """Where a tensor's elements lie, and what they are made of.

    Attributes:
        offset: of the first one, in elements of the storage.
        form: 1: conjugates, 2: negatives of what memory holds; 4: complex numbers.
    """

    sizes: Sizes
    strides: Sizes
    offset: int
    form: int

    def within(self, start: int) -> _Elements:
        """The same, counted from the real number at *start*."""
        return self._replace(offset=(self.offset * self.width - start) // self.width)

    @property
    def width(self) -> int:
        """Real numbers per element."""
        return 2 if self.form & COMPLEX else 1

    @property
    def end(self) -> int:
        """The element after the last one."""
        return self.offset + _extent(self.sizes, self.strides)


def _geometry(base: tuple[Any, ...], view: tuple[Any, ...]) -> tuple[_Elements, _Elements, int]:
    """A base and its view in fresh memory, and how many of the view's elements that takes."""
    base_elements, part = _Elements(*base), _Elements(*view)
    base_elements = base_elements._replace(
        strides=_base_strides(base_elements.sizes, base_elements.strides)
    )
    start = base_elements.offset * base_elements.width
    start -= start % max(base_elements.width, part.width)  # complex views begin at an even number
    base_elements, part = base_elements.within(start), part.within(start)
    numbers = max(base_elements.end * base_elements.width, part.end * part.width)
    return base_elements, part, -(-numbers // max(base_elements.width, part.width))


def _memory(grad: Tensor, count: int, of: _Elements, other: _Elements) -> Tensor:
    """Zeros, as elements of the gradient's dtype; the count is in the wider ones of the two."""
    return grad.new_zeros((count * max(of.width, other.width) // of.width,))


def _elements(memory: Tensor, elements: _Elements) -> Tensor:
    """The memory as a row of such elements: real or complex ones."""
    if memory.is_complex() == bool(elements.form & COMPLEX):
        return memory
    flambeau = import_module("flambeau")  # complete by now, unlike when this was loaded
    if memory.is_complex():
        return flambeau.view_as_real(memory).reshape(-1)
    return flambeau.view_as_complex(memory.reshape(-1, 2))


def _placed(memory: Tensor, elements: _Elements) -> Tensor:
    """The window of the memory where elements lie, as memory holds them."""
    row = _elements(memory, elements)
    return _window(row, elements.sizes, elements.strides, elements.offset)


def _held(x: Tensor, form: int) -> Tensor:
    """Returns the memory behind values, or the values in memory."""
    if form & CONJUGATE and x.is_complex():
        x = x.conj_physical()
    return -x if form & NEGATIVE else x


def scatter_to_base(grad: Tensor, *geometry: Any) -> Tensor:
    """The gradient of a base, given that of a strided view of it.

    Args:
        geometry: sizes, strides, offset and form (`_Elements`) of the base, then of the view.
    """
    base, view, count = _geometry(geometry[:4], geometry[4:])
    memory, grad = _memory(grad, count, view, base), _held(grad, view.form)
    if _overlaps(view.sizes, view.strides):
        index = _positions(grad, view.sizes, view.strides, view.offset)
        memory = memory.index_add(0, index.reshape(-1), grad.reshape(-1))
    else:
        _placed(memory, view).copy_(grad)
    return _held(_placed(memory, base), base.form)


def _positions(like: Tensor, sizes: Sizes, strides: Sizes, offset: int) -> Tensor:
    """Position in memory of each element of a strided view."""
    flambeau = import_module("flambeau")
    total = flambeau.full((), offset, dtype=flambeau.int64, device=like.device)
    for dim, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        steps = flambeau.arange(size, device=like.device) * stride
        total = total + steps.reshape([size] + [1] * (len(sizes) - dim - 1))
    return total.expand(tuple(sizes))


def open_window(grad: Tensor, *geometry: Any) -> tuple[Tensor, Any, Tensor]:
    """A copy of the base's gradient, the window of it that was written, a copy of that window.

    Args:
        geometry: as for `scatter_to_base`.
    """
    base, view, count = _geometry(geometry[:4], geometry[4:])
    memory = _memory(grad, count, base, view)
    _placed(memory, base).copy_(_held(grad, base.form))
    window = _placed(memory, view)
    opened = (window, base.form, view.form)
    return _placed(memory, base), opened, _held(window.clone(), view.form)


def close_window(overwritten: Tensor, opened: Any, inner: Tensor | None) -> Tensor:
    """Puts what flows to the overwritten value into the window; nothing when it was not read."""
    window, base_form, view_form = opened
    if inner is None:
        window.zero_()
    else:
        window.copy_(_held(inner, view_form))
    return _held(overwritten, base_form)


def reduce_to(grad: Tensor, sizes: Sizes) -> Tensor:
    """Sums a gradient over the dimensions along which a value of these sizes was broadcast."""
    lead = grad.dim() - len(sizes)
    extents = [1] * lead + list(sizes)
    dims = [d for d, size in enumerate(extents) if size == 1 and grad.shape[d] != 1]
    return (grad.sum(dims, keepdim=True) if dims else grad).reshape(tuple(sizes))
