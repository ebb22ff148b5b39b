"""Masks of masked operators: of an input, and of the result that follows from it."""

from __future__ import annotations

from typing import Any

from flambeau.core.install import namespace
from flambeau.masked.tensor import MaskedTensor

Tensor = Any

_REDUCTIONS = frozenset(
    "sum prod amax amin argmax argmin mean median logsumexp norm var std".split()
)
_SAME_SHAPE = frozenset("cumsum cumprod softmax log_softmax softmin normalize".split())


def _input_mask(input: Any, *args: Any, **kwargs: Any) -> Tensor:
    """The mask of an operator's input as a bool tensor of the input's shape.

    Args:
        input: a tensor, or a masked tensor, whose mask is combined with the given one.
        **kwargs: the operator's; `mask` broadcasts to the input.

    Raises:
        ValueError: there is no mask.
        IndexError: the mask has more dimensions than the input.
    """
    mask = kwargs.get("mask")
    own = input.get_mask() if isinstance(input, MaskedTensor) else None
    if mask is None and own is None:
        raise ValueError("[masked] _input_mask requires explicit mask\nhint: mask=tensor")
    if mask is None:
        return own
    if mask.ndim > input.ndim:
        raise IndexError(
            "[masked] _input_mask expected broadcastable mask (got mask dimensionality higher than "
            "of the input)\nhint: a mask broadcasts to the input"
        )
    expanded = mask.expand(input.shape).bool()
    return expanded if own is None else expanded & own


def _output_mask(op: Any, input: Any, *args: Any, **kwargs: Any) -> Tensor:
    """The mask of a masked operator's result: False where nothing was left to compute it from.

    Args:
        op: a function of `torch.masked`.
        input, args, kwargs: its arguments, `mask` among them.

    Raises:
        ValueError: no function of `torch.masked`, or no mask.
    """
    name = getattr(op, "__name__", "")
    supported = namespace("masked").get(name) is op and name in _REDUCTIONS | _SAME_SHAPE
    if not supported:
        raise ValueError(
            f"[masked] _output_mask expected masked operation (got {name or op})\n"
            "hint: a reduction or normalisation of torch.masked"
        )
    mask = _input_mask(input, *args, **kwargs)
    if name in _SAME_SHAPE:
        return mask
    position = 1 if name == "norm" else 0
    dim = kwargs.get("dim", args[position] if len(args) > position else None)
    keepdim = kwargs.get("keepdim", False)
    dims = (dim,) if isinstance(dim, int) else tuple(dim or range(mask.ndim))
    for d in sorted((d % max(mask.ndim, 1) for d in dims), reverse=True):
        mask = mask.any(d, keepdim=keepdim) if mask.ndim else mask
    return mask
