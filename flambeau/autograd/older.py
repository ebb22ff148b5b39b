"""Names of `torch.autograd` that few programs use."""

from __future__ import annotations

from flambeau.autograd.function import NestedIOFunction
from flambeau.autograd.grad_mode import enforce_grad_layout_policy
from flambeau.ir.lock import loaded

__all__ = ["NestedIOFunction", "enforce_grad_layout_policy"]


def profiler_enabled() -> bool:
    """Returns whether a profile records."""
    session = loaded("flambeau.profiler.session")
    return session is not None and session.enabled()
