"""Gradient modes: whether operations are recorded for backward.

The guards themselves are native (entering one costs nanoseconds); here is only what they do as
decorators: functions, generators, coroutines and classes.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator
from typing import Any

from flambeau._core import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)

__all__ = [
    "enable_grad",
    "enforce_grad_layout_policy",
    "inference_mode",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "no_grad",
    "set_grad_enabled",
    "set_multithreading_enabled",
]


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


def _decorate(guard: Any, function: Any) -> Any:
    """Applies `@guard` to a function or a class."""
    if inspect.isclass(function):
        setattr(function, "__init__", _decorate(guard, function.__init__))  # noqa: B010
        return function
    if inspect.isgeneratorfunction(function):
        return _decorate_generator(guard, function)
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def awaiting(*args: Any, **kwargs: Any) -> Any:
            with guard.clone():
                return await function(*args, **kwargs)

        return awaiting

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with guard.clone():
            return function(*args, **kwargs)

    return wrapped


def _decorate_generator(guard: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """The mode holds while the generator's body runs, not while it is suspended."""

    @functools.wraps(function)
    def generator(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        with guard.clone():
            body = function(*args, **kwargs)
        step: Callable[[], Any] = functools.partial(next, body)
        while True:
            try:
                with guard.clone():
                    value = step()
            except StopIteration as stop:
                return stop.value
            try:
                sent = yield value
            except GeneratorExit:
                with guard.clone():
                    body.close()
                raise
            except BaseException as error:  # noqa: BLE001 - the body decides what it means
                step = functools.partial(body.throw, error)
            else:
                step = functools.partial(body.send, sent)

    return generator


class set_multithreading_enabled:  # noqa: N801 - PyTorch's name
    """Accepted for compatibility: backward runs on the calling thread.

    Args:
        mode: ignored; kernels use `set_num_threads` threads either way.
    """

    def __init__(self, mode: bool) -> None:
        self.mode = mode

    def __enter__(self) -> None:
        """Nothing to change."""

    def __exit__(self, *exception: object) -> None:
        """Nothing to restore."""
