"""NumPy's answers to `exact_calls`, written as loops over the places of a kernel.

Everything is a sum of products of whole numbers below 2 ** 53, so there is one right answer in
whatever order it is added up. Each function returns the value and how gradients go back through it:
a function from the gradient of the value to those of the operands.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = Any
Pullback = Callable[[Array], list[Array]]
Answer = tuple[Array, Pullback]


def _reduced(gradient: Array, shape: Sequence[int]) -> Array:
    """The gradient of what was broadcast to the gradient's shape."""
    lead = gradient.ndim - len(shape)
    gradient = gradient.sum(tuple(range(lead)))
    stretched = [d for d, size in enumerate(shape) if size == 1 and gradient.shape[d] != 1]
    return gradient.sum(tuple(stretched), keepdims=True)


def product(a: Array, b: Array) -> Answer:
    """`a @ b` of any ranks."""
    rows, columns = (a[None] if a.ndim == 1 else a), (b[:, None] if b.ndim == 1 else b)
    value = rows @ columns

    def pull(gradient: Array) -> list[Array]:
        g = gradient.reshape(value.shape)
        left = _reduced(g @ columns.conj().swapaxes(-1, -2), rows.shape)
        right = _reduced(rows.conj().swapaxes(-1, -2) @ g, columns.shape)
        return [left.reshape(a.shape), right.reshape(b.shape)]

    shape = value.shape
    shape = shape[:-2] + shape[-1:] if a.ndim == 1 else shape
    shape = shape[:-1] if b.ndim == 1 else shape
    return value.reshape(shape), pull


class Windows:
    """The geometry of a convolution, and the walk over its kernel.

    Args:
        image: sizes of the image's places.
        kernel: those of the kernel.
        stride, padding, dilation: a number per dimension.
    """

    def __init__(
        self,
        image: Sequence[int],
        kernel: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
    ) -> None:
        self.image, self.kernel, self.padding = image, kernel, padding
        self.stride, self.dilation = stride, dilation
        spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation)]
        self.places = [
            (n + 2 * p - s) // hop + 1 for n, p, s, hop in zip(image, padding, spans, stride)
        ]

    def padded(self, x: Array) -> Array:
        """The image with zeros around it."""
        sides = [(0, 0)] * (x.ndim - len(self.image)) + [(p, p) for p in self.padding]
        return np.pad(x, sides)

    def cropped(self, x: Array) -> Array:
        """The image without the zeros."""
        inside = [slice(p, p + n) for p, n in zip(self.padding, self.image)]
        return x[(..., *inside)]

    def steps(self) -> list[tuple[tuple[int, ...], tuple[Any, ...]]]:
        """Per place of the kernel, what of a padded image meets it."""
        return [
            (
                place,
                (
                    ...,
                    *[
                        slice(k * d, k * d + (n - 1) * s + 1, s)
                        for k, d, n, s in zip(place, self.dilation, self.places, self.stride)
                    ],
                ),
            )
            for place in itertools.product(*map(range, self.kernel))
        ]


def _grouped(x: Array, groups: int, axis: int) -> Array:
    """The channels at `axis` as (groups, channels of one), the dimensions behind them as one."""
    return x.reshape(*x.shape[:axis], groups, x.shape[axis] // groups, -1)


def convolution(x: Array, weight: Array, windows: Windows, groups: int) -> Answer:
    """The convolution of x `(N, C, *image)` with a weight `(O, C / groups, *kernel)`."""
    wide = windows.padded(x)
    parts = weight.reshape(groups, -1, *weight.shape[1:])
    value = np.zeros((len(x), groups, parts.shape[1], int(np.prod(windows.places))), x.dtype)
    for place, seen in windows.steps():
        image = _grouped(wide[seen], groups, 1)
        value += np.einsum("ngcp,goc->ngop", image, parts[(..., *place)])

    def pull(gradient: Array) -> list[Array]:
        g = _grouped(gradient, groups, 1)
        of_x, of_parts = np.zeros_like(wide), np.zeros_like(parts)
        for place, seen in windows.steps():
            back = np.einsum("ngop,goc->ngcp", g, parts[(..., *place)].conj())
            of_x[seen] += back.reshape(of_x[seen].shape)
            image = _grouped(wide[seen], groups, 1).conj()
            of_parts[(..., *place)] = np.einsum("ngcp,ngop->goc", image, g)
        return [windows.cropped(of_x), of_parts.reshape(weight.shape)]

    return value.reshape(len(x), -1, *windows.places), pull


def transposed_convolution(y: Array, weight: Array, windows: Windows, groups: int) -> Answer:
    """What `convolution_transpose` makes of y `(N, O, *places)` and a weight `(O, C / groups,
    *kernel)`: the gradient of the image of a convolution."""
    channels = weight.shape[1] * groups
    image = np.zeros((len(y), channels, *windows.image), y.dtype)
    _, forward = convolution(image, weight.conj(), windows, groups)
    value, _ = forward(y)

    def pull(gradient: Array) -> list[Array]:
        of_y, _ = convolution(gradient, weight.conj(), windows, groups)
        _, again = convolution(gradient.conj(), weight, windows, groups)
        return [of_y, again(y.conj())[1]]

    return value, pull
