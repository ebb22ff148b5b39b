"""`torch.utils._contextlib`: context managers that decorate functions, under PyTorch's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.autograd.grad_mode import _decorate
from flambeau.ir.failure import failure
from flambeau.runtime import missing as _missing

__all__ = ["_DecoratorContextManager", "_NoParamDecoratorContextManager", "context_decorator"]


class _DecoratorContextManager:
    """A context manager whose instances decorate functions, generators and classes.

    Each call enters a clone of the instance; a generator is in it while its body runs.
    """

    def __call__(self, orig_func: Any) -> Any:
        """The function, called inside of the context."""
        return _decorate(self, orig_func)

    def __enter__(self) -> Any:
        raise failure(NotImplementedError, "_DecoratorContextManager", "no __enter__", "define it")

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> Any:
        raise failure(NotImplementedError, "_DecoratorContextManager", "no __exit__", "define it")

    def clone(self) -> Any:
        """A new instance for a call; classes with arguments define their own."""
        return type(self)()


class _NoParamDecoratorContextManager(_DecoratorContextManager):
    """The same, and the class itself may decorate."""

    def __new__(cls, orig_func: Any = None) -> Any:
        """An instance, or the decorated function."""
        return super().__new__(cls) if orig_func is None else cls()(orig_func)


class _Context:
    """A context that a function makes anew for every call."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    def clone(self) -> Any:
        """A new context."""
        return self._make()


def context_decorator(ctx: Any, func: Any) -> Any:
    """A function, called inside of a context manager or of what a function returns."""
    make = ctx if callable(ctx) and not hasattr(ctx, "__enter__") else lambda: ctx
    return _decorate(_Context(make), func)


globals()["__getattr__"] = _missing.getter(__name__)
