"""Names of `torch.autograd` that few programs use."""

from __future__ import annotations

from typing import Any

from flambeau.autograd.function import NestedIOFunction
from flambeau.ir.lock import loaded

__all__ = ["NestedIOFunction", "enforce_grad_layout_policy"]


class enforce_grad_layout_policy:  # noqa: N801 - a context manager
    """A block in which gradients must have their parameter's layout, or may have another.

    Gradients have the strides of their parameters wherever these are dense, so the block changes
    nothing.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception: object) -> None:
        pass

    def __call__(self, fn: Any) -> Any:
        """The function itself."""
        return fn


def profiler_enabled() -> bool:
    """Whether a profiler is recording."""
    profiler = loaded("flambeau.autograd.profiler")
    active = getattr(profiler, "_active", None)
    return bool(active)
