"""Inputs divided among devices, and results joined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau.nn.messages import problem

__all__ = ["gather", "scatter", "scatter_kwargs"]


def is_namedtuple(obj: Any) -> bool:
    """Whether an object is a named tuple."""
    return isinstance(obj, tuple) and hasattr(obj, "_asdict") and hasattr(obj, "_fields")


def scatter(inputs: Any, target_gpus: Sequence[Any], dim: int = 0) -> Any:
    """Tensors in any nesting, divided among devices.

    Raises:
        ValueError: a device is the CPU.
        RuntimeError: there is no other device.
    """
    for device in target_gpus:
        if str(device).startswith("cpu"):
            text = f"Expected a non cpu device, but got: {device}"
            raise ValueError(problem("scatter", text, "use torch.chunk"))
    text = "no device to scatter to: this build computes on the CPU"
    raise RuntimeError(problem("scatter", text, "use torch.chunk"))


def scatter_kwargs(
    inputs: Any, kwargs: Any, target_gpus: Sequence[Any], dim: int = 0
) -> tuple[Any, Any]:
    """Positional and keyword arguments, divided alike; raises as `scatter` does."""
    return scatter(inputs, target_gpus, dim), scatter(kwargs or {}, target_gpus, dim)


def gather(outputs: Any, target_device: Any, dim: int = 0) -> Any:
    """Tensors in any nesting from several devices, joined on one.

    Raises:
        AssertionError: they are on the CPU.
    """
    text = "Gather function not implemented for CPU tensors"
    raise AssertionError(problem("gather", text, "use torch.cat"))
