"""Tensors that exchange what they are."""

from __future__ import annotations

import weakref
from typing import Any

from flambeau.autograd import no_grad
from flambeau.ir.failure import failure

__all__ = ["swap_tensors"]


def _check(tensor: Any) -> None:
    if weakref.getweakrefs(tensor):
        problem = "Cannot swap t1 because it has weakref associated with it"
        raise failure(RuntimeError, "swap_tensors", problem, "drop the weak references first")
    if not tensor.is_leaf:
        problem = "a tensor that was computed from others that require gradients cannot be swapped"
        raise failure(RuntimeError, "swap_tensors", problem, "swap its detach()")


def swap_tensors(t1: Any, t2: Any) -> None:
    """Exchanges data, gradient, class and attributes of two tensors; both stay the same objects.

    Raises:
        RuntimeError: a tensor has weak references, or was computed from others.

    Example:
        >>> a, b = torch.ones(1), torch.zeros(2)
        >>> swap_tensors(a, b)
        >>> a
        tensor([0., 0.])
    """
    _check(t1)
    _check(t2)
    if t1 is t2:
        return
    with no_grad():
        first, second = (t1.detach(), t2.detach())
        states = [(t.requires_grad, t.grad, dict(t.__dict__), type(t)) for t in (t2, t1)]
        for tensor in (t1, t2):
            tensor.grad = None
            tensor.requires_grad_(False)
        t1.data, t2.data = second, first
        for tensor, (requires_grad, grad, attributes, kind) in zip((t1, t2), states, strict=True):
            tensor.__class__ = kind
            tensor.__dict__.clear()
            tensor.__dict__.update(attributes)
            tensor.requires_grad_(requires_grad)
            tensor.grad = grad
