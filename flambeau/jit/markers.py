"""Marks that a program puts on its functions for `torch.jit`: what to script and what to leave.

They change nothing for eager code. `script` reads them: an ignored function stays Python, an
unused one raises when scripted code calls it, an exported method is scripted beside `forward`.
"""

from __future__ import annotations

import functools
import threading
import typing
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from flambeau.jit.script_types import matches

_Function = TypeVar("_Function", bound=Callable[..., Any])

enabled = [True]  # whether scripting and tracing do anything: `torch.jit._state`
EXPORT = "export"
IGNORE = "ignore"
UNUSED = "unused"
COPY_TO_SCRIPT = "copy_to_script_wrapper"
_MARK = "_torchscript_modifier"

Final = typing.Final
"""Annotation of an attribute that never changes: `size: torch.jit.Final[int]`."""


def mark_of(function: Any) -> str | None:
    """The mark of a function or property, or None."""
    if isinstance(function, property):
        function = function.fget
    return getattr(function, _MARK, None)


def _marked(function: Any, mark: str) -> Any:
    target = function.fget if isinstance(function, property) else function
    setattr(getattr(target, "__func__", target), _MARK, mark)
    return function


def export(function: _Function) -> _Function:
    """Marks a method that is scripted although `forward` does not call it.

    Example:
        >>> class Scale(torch.nn.Module):
        ...     def forward(self, x):
        ...         return 2 * x
        ...     @torch.jit.export
        ...     def inverse(self, x):
        ...         return x / 2
        >>> torch.jit.script(Scale()).inverse(torch.ones(1))
        tensor([0.5000])
    """
    _marked(function, EXPORT)
    return function


def ignore(drop: Any = False, **arguments: bool) -> Any:
    """Marks a function that scripted code calls as Python; such code cannot be saved.

    Args:
        drop: with True, like `unused`: the call is replaced by an exception.

    Example:
        >>> @torch.jit.ignore
        ... def debug(x):
        ...     print(x.shape)
    """
    if callable(drop):  # used without arguments
        return _marked(drop, IGNORE)
    if not isinstance(drop, bool):
        raise RuntimeError(
            f"Argument to @torch.jit.ignore must be a bool or a function but got {drop}"
        )
    if "drop_on_export" in arguments:
        warnings.warn(
            "ignore(drop_on_export=True) has been deprecated: use torch.jit.unused instead",
            category=FutureWarning,
            stacklevel=2,
        )
        drop = arguments["drop_on_export"]
    return functools.partial(_marked, mark=UNUSED if drop else IGNORE)


def unused(function: _Function) -> _Function:
    """Marks a function that scripted code may name but not run: a call raises.

    Example:
        >>> @torch.jit.unused
        ... def training_only(x):
        ...     return x
    """
    _marked(function, UNUSED)
    return function


def _drop(function: _Function) -> _Function:
    _marked(function, UNUSED)
    return function


def copy_to_script_wrapper(function: _Function) -> _Function:
    """Marks a method that scripted modules have as Python has it."""
    _marked(function, COPY_TO_SCRIPT)
    return function


def is_scripting() -> bool:
    """False in Python; scripted code sees True.

    Example:
        >>> torch.jit.is_scripting()
        False
    """
    return False


class _Tracing(threading.local):
    """The recorder of this thread's trace."""

    recorder: Any = None


_tracing = _Tracing()


def is_tracing() -> bool:
    """Whether `torch.jit.trace` runs this function to record it.

    Example:
        >>> torch.jit.is_tracing()
        False
    """
    return _tracing.recorder is not None


def current_recorder() -> Any:
    """The recorder of this thread's trace, or None."""
    return _tracing.recorder


@contextmanager
def tracing(recorder: Any) -> Iterator[None]:
    """A block whose operators `recorder` records; with None, no trace sees the block."""
    before, _tracing.recorder = _tracing.recorder, recorder
    try:
        yield
    finally:
        _tracing.recorder = before


def annotate(the_type: Any, the_value: Any) -> Any:
    """Returns `the_value`; in scripted code it gives an expression a type.

    Example:
        >>> torch.jit.annotate(list[int], [])
        []
    """
    return the_value


class Attribute(typing.NamedTuple):
    """An attribute of a `ScriptModule` with its type, where the value does not show it."""

    value: Any
    type: Any


def isinstance_of(obj: Any, target_type: Any) -> bool:
    """Whether a value has a type, containers looked into; public as `torch.jit.isinstance`.

    Example:
        >>> torch.jit.isinstance([1, 2], list[int]), torch.jit.isinstance([1, "a"], list[int])
        (True, False)
    """
    targets = target_type if isinstance(target_type, tuple) else (target_type,)
    return any(matches(obj, target) for target in targets)


def interface(cls: type) -> type:
    """Marks a class whose methods' signatures are what its users rely on.

    Scripted code calls the methods of the object it has, so an interface needs no code of its own.
    """
    if not isinstance(cls, type):
        raise RuntimeError("interface must be applied to a class")
    cls.__torch_script_interface__ = True  # type: ignore[attr-defined]
    return cls


_overloads: dict[str, list[Callable[..., Any]]] = {}


def _overload(function: _Function) -> _Function:
    """Declares one signature of a function whose body follows; calls choose by their values."""
    name = f"{function.__module__}.{function.__qualname__}"
    _overloads.setdefault(name, []).append(function)
    return function


_overload_method = _overload


def boolean_dispatch(
    arg_name: str,
    arg_index: int,
    default: bool,
    if_true: Callable[..., Any],
    if_false: Callable[..., Any],
    module_name: str | None,
    func_name: str | None,
) -> Callable[..., Any]:
    """A function that calls one of two, by the value of a boolean argument."""

    def dispatch(*args: Any, **kwargs: Any) -> Any:
        chosen = default
        if arg_name in kwargs:
            chosen = kwargs[arg_name]
        elif arg_index < len(args):
            chosen = args[arg_index]
        return (if_true if chosen else if_false)(*args, **kwargs)

    dispatch.__doc__ = if_true.__doc__ or if_false.__doc__
    dispatch.__name__ = func_name or dispatch.__name__
    dispatch.__module__ = module_name or dispatch.__module__
    return dispatch


def _unwrap_optional(value: Any) -> Any:
    """The value, which must not be None."""
    if value is None:
        raise AssertionError("Unwrapping null optional")
    return value
