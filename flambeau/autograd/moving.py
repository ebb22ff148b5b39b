"""Copies between devices, with gradients that go back."""

from __future__ import annotations

from typing import Any

from flambeau import _core
from flambeau.autograd.function import Function

__all__ = ["moved"]


class _ToCopy(Function):
    @staticmethod
    def forward(ctx: Any, x: Any, device: Any) -> Any:
        ctx.device = x.device
        return _moved(x, device)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient.to(ctx.device), None


def _moved(x: Any, device: Any) -> Any:
    dense = x.resolve_conj().resolve_neg()
    return _core.tensor_to_device(dense if dense.is_contiguous() else dense.clone(), device)


def moved(x: Any, device: Any) -> Any:
    """A copy of a tensor on another device with memory, of the same strides if they are dense."""
    if _core.is_grad_enabled() and x.requires_grad:
        return _ToCopy.apply(x, device)
    return _moved(x, device)
