"""The module that `torch.compile(module)` returns: same attributes, compiled call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau.nn as nn
from flambeau.ir.lock import importing

# Attributes of the wrapper itself; every other one is read and written on the wrapped module.
_OWN = frozenset({"_orig_mod", "_call"})


class OptimizedModule(nn.Module):
    """Wraps a module so that calling it runs compiled.

    Attributes are those of the wrapped module. Hooks registered here run around the compiled call;
    hooks of the wrapped module run inside it.

    Attributes:
        _orig_mod: the wrapped module; its parameters are this module's.

    Example:
        >>> model = torch.nn.Linear(2, 2)
        >>> compiled = torch.compile(model)
        >>> compiled.scale = 3
        >>> model.scale
        3
    """

    def __init__(self, module: nn.Module, call: Callable[..., Any]) -> None:
        super().__init__()
        self.__dict__["_call"] = call
        self._modules["_orig_mod"] = module
        for name in self.__dict__.keys() & {"training"}:
            del self.__dict__[name]  # the wrapped module's, see `__getattr__`

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the wrapped module, compiled."""
        return self._call(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        modules = self.__dict__.get("_modules", {})
        if "_orig_mod" not in modules:
            raise AttributeError(f"[OptimizedModule] {name!r} is not set before __init__ ran")
        if name == "_orig_mod":
            return modules["_orig_mod"]
        return getattr(modules["_orig_mod"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        wrapped = self.__dict__.get("_modules", {}).get("_orig_mod")
        if wrapped is None or name in _OWN:
            super().__setattr__(name, value)
        else:
            setattr(wrapped, name, value)

    def __delattr__(self, name: str) -> None:
        if name in _OWN:
            super().__delattr__(name)
        else:
            delattr(self._orig_mod, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._orig_mod)})

    def __reduce__(self) -> Any:
        with importing:
            from flambeau.capture.regions import compile as compile_module

        return compile_module, (self._orig_mod,)
