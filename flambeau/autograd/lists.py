"""Backward of long lists of tensors by public operators, so that it can be differentiated again.

The native engine calls these where it does not copy the gradients itself (`native/call/lists.cpp`):
under `create_graph`, in recorded regions, and for gradients of other types.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

Tensor = Any
Sizes = Sequence[int]


def split_gradient(
    grad: Tensor, lengths: Sizes, sources: Sequence[tuple[Any, Sizes]], dim: int
) -> list[Tensor]:
    """The parts of a joined tensor's gradient.

    Args:
        lengths: of the parts along `dim`.
        sources: dtype and sizes of each joined tensor.
    """
    parts = grad.split(list(lengths), dim)
    return [
        part.reshape(tuple(sizes)).to(dtype)
        for part, (dtype, sizes) in zip(parts, sources, strict=True)
    ]


def join_gradients(
    grads: Sequence[Tensor | None], sizes: Sizes, lengths: Sizes | None, dim: int
) -> Tensor:
    """The gradient of a tensor that was taken apart along `dim`; absent parts are zero.

    Args:
        sizes: of the whole tensor.
        lengths: of the parts; None: each is one index, and lacks the dimension.
    """
    model = next(g for g in grads if g is not None)
    before, after = tuple(sizes[:dim]), tuple(sizes[dim + 1 :])
    parts = []
    for number, grad in enumerate(grads):
        if grad is None:
            middle = () if lengths is None else (lengths[number],)
            grad = model.new_zeros((*before, *middle, *after))
        parts.append(grad)
    torch = import_module("flambeau")
    return torch.stack(parts, dim) if lengths is None else torch.cat(parts, dim)
