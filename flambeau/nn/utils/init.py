"""Modules made without drawing their weights."""

from __future__ import annotations

import inspect
from typing import Any

from flambeau.nn.messages import problem
from flambeau.nn.modules.module import Module

__all__ = ["skip_init"]


def skip_init(module_cls: type[Module], *args: Any, **kwargs: Any) -> Any:
    """An instance of `module_cls` whose parameters are uninitialised.

    Raises:
        RuntimeError: not a module class, or one without a `device` argument.
    """
    if not issubclass(module_cls, Module):
        text = f"Expected a Module; got {module_cls}"
        raise RuntimeError(problem("skip_init", text, "pass a subclass of nn.Module"))
    if "device" not in inspect.signature(module_cls).parameters:
        text = "Module must support a 'device' arg to skip initialization"
        raise RuntimeError(problem("skip_init", text, "add device=None to __init__"))
    device = kwargs.pop("device", "cpu")
    kwargs["device"] = "meta"
    return module_cls(*args, **kwargs).to_empty(device=device)
