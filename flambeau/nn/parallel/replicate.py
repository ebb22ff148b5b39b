"""Copies of a module on several devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau.nn.messages import problem

__all__ = ["replicate"]


def replicate(network: Any, devices: Sequence[Any], detach: bool = False) -> list[Any]:
    """Copies of a module, one per device, whose gradients add up in the module.

    Raises:
        ValueError: a device is the CPU.
        AssertionError: the parameters are on the CPU: there is no other device.
    """
    for device in devices:
        if str(device).startswith("cpu"):
            text = f"Expected a non cpu device, but got: {device}"
            raise ValueError(problem("replicate", text, "use copy.deepcopy"))
    text = "Broadcast function not implemented for CPU tensors"
    raise AssertionError(problem("replicate", text, "use copy.deepcopy"))
