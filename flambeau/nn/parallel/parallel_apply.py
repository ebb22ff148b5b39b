"""Several modules at the same time, each on its device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau as torch
from flambeau.nn.messages import problem

__all__ = ["get_a_var", "parallel_apply"]


def get_a_var(obj: Any) -> Any:
    """The first tensor in nested containers, or None."""
    if isinstance(obj, torch.Tensor):
        return obj
    parts = obj.items() if isinstance(obj, dict) else obj
    if isinstance(obj, (list, tuple, dict)):
        return next((t for part in parts if (t := get_a_var(part)) is not None), None)
    return None


def parallel_apply(
    modules: Sequence[Any],
    inputs: Sequence[Any],
    kwargs_tup: Sequence[dict[str, Any]] | None = None,
    devices: Sequence[Any] | None = None,
) -> list[Any]:
    """Results of modules on their inputs, each on its device.

    Raises:
        AssertionError: other numbers of inputs than of modules.
        RuntimeError: there is no device beside the CPU.
    """
    if len(modules) != len(inputs):
        text = f"The number of modules {len(modules)} is not equal to the number of inputs "
        raise AssertionError(problem("parallel_apply", text + str(len(inputs)), "one for each"))
    text = "Cannot access accelerator device when none is available."
    raise RuntimeError(problem("parallel_apply", text, "call the modules one after the other"))
