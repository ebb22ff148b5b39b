"""Names of `torch.autograd` that few programs use."""

from __future__ import annotations

from flambeau.autograd.function import NestedIOFunction
from flambeau.autograd.grad_mode import enforce_grad_layout_policy
from flambeau.ir.lock import loaded

__all__ = ["NestedIOFunction", "enforce_grad_layout_policy"]


def profiler_enabled() -> bool:
    """Whether a profiler is recording."""
    profiler = loaded("flambeau.autograd.profiler")
    active = getattr(profiler, "_active", None)
    return bool(active)
