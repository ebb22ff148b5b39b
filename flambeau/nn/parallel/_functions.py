"""Differentiable copies between devices: none without a device beside the CPU."""

from __future__ import annotations

from typing import Any

from flambeau.autograd.function import Function
from flambeau.nn.messages import problem

__all__ = ["Broadcast", "Gather", "ReduceAddCoalesced", "Scatter"]


class _Copy(Function):
    """Raises AssertionError for tensors of the CPU."""

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Raises: no copy between devices."""
        text = f"{cls.__name__} function not implemented for CPU tensors"
        raise AssertionError(problem(cls.__name__, text, "use the tensors as they are"))


class Broadcast(_Copy):
    """Copies of tensors on devices."""


class ReduceAddCoalesced(_Copy):
    """Sums of tensors of devices."""


class Gather(_Copy):
    """Tensors of devices, joined."""


class Scatter(_Copy):
    """Parts of a tensor on devices."""
