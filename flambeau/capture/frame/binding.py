"""The arguments of an interpreted call, in the order of the function's local variables."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from flambeau.capture.frame.evidence import MISSING, Raised

if TYPE_CHECKING:
    from flambeau.capture.frame.machine import Machine

_GAP = getattr(functools, "Placeholder", object())  # of a `partial`, from CPython 3.14 on


def bind(
    machine: Machine, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[Any]:
    """The values of a function's parameters, in the order of its local variables."""
    code = function.__code__
    count, named = code.co_argcount, code.co_kwonlyargcount
    names = code.co_varnames
    values: list[Any] = list(args[:count])
    if len(args) > count and not code.co_flags & 0x04:
        raise _wrong(f"{function.__name__}() got too many arguments")
    free = dict(kwargs)
    defaults = function.__defaults__ or ()
    for i in range(len(values), count):
        position = i - (count - len(defaults))
        default = defaults[position] if position >= 0 else MISSING
        values.append(_value(function, names[i], i >= code.co_posonlyargcount, free, default))
    for name in names[: min(len(args), count)]:
        if name in free and name not in names[: code.co_posonlyargcount]:
            raise _wrong(f"{function.__name__}() got several values of {name}")
    only = function.__kwdefaults__ or {}
    for name in names[count : count + named]:
        values.append(_value(function, name, True, free, only.get(name, MISSING)))
    if code.co_flags & 0x04:
        values.append(tuple(args[count:]))
    if code.co_flags & 0x08:
        values.append(machine.fresh(free))
    elif free:
        raise _wrong(f"{function.__name__}() got unexpected keyword arguments")
    return values


def _value(function: Any, name: str, by_name: bool, named: dict[str, Any], default: object) -> Any:
    if by_name and name in named:
        return named.pop(name)
    if default is MISSING:
        raise _wrong(f"{function.__name__}() lacks {name}")
    return default


def joined(bound: tuple[object, ...], args: tuple[object, ...]) -> tuple[object, ...]:
    """The positional arguments of a `functools.partial`, of which the call's fill gaps first."""
    remaining = iter(args)
    values = [next(remaining, _GAP) if value is _GAP else value for value in bound]
    if any(value is _GAP for value in values):
        raise _wrong("a partial function got too few arguments")
    return (*values, *remaining)


def _wrong(text: str) -> Raised:
    """An error whose text is not Python's."""
    return Raised(TypeError(text), exact=False)
