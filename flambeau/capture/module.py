"""The module that `torch.compile(module)` returns: same parameters, compiled call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau import nn


class OptimizedModule(nn.Module):
    """Wraps a module so that calling it runs compiled.

    Attributes:
        _orig_mod: the wrapped module; its parameters are this module's.
    """

    def __init__(self, module: nn.Module, call: Callable[..., Any]) -> None:
        super().__init__()
        self._orig_mod = module
        object.__setattr__(self, "_call", call)
        self.training = module.training

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the wrapped module, compiled."""
        return self._call(*args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The compiled call of the wrapped module, its hooks included."""
        return self._call(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "_orig_mod":
            return self._modules["_orig_mod"]
        return getattr(self._modules["_orig_mod"], name)

    def train(self, mode: bool = True) -> OptimizedModule:
        """Sets training mode on the wrapped module too."""
        super().train(mode)
        return self

    def __reduce__(self) -> Any:
        from flambeau.capture.regions import compile as compile_module

        return compile_module, (self._orig_mod,)
