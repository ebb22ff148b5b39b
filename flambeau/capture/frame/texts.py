"""Texts of values: str, repr, format."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flambeau.capture.frame import plain
from flambeau.capture.frame.evidence import Unexplained

if TYPE_CHECKING:
    from flambeau.capture.frame.machine import Machine


def text(machine: Machine, value: object, convert: Callable[[Any], str] = str) -> str:
    """str(value), repr(value) or ascii(value)"""
    if plain.shows(value):
        machine.touch(value)
        return convert(value)
    kind = machine.typed(value)
    if kind in (list, tuple, dict):
        return _container_text(machine, value, kind, convert)
    if isinstance(value, BaseException):
        return _error_text(machine, value, kind, convert)
    for name in ("__str__", "__repr__") if convert is str else ("__repr__",):
        function = machine.evidence.attribute(kind, name)
        if isinstance(function, types.FunctionType):
            shown = machine.call(function, (value,), {})
            if type(shown) is str and convert is not ascii:
                return shown
        if name == "__repr__" or function is not object.__str__:
            break
    raise Unexplained(f"it shows a {kind.__name__}")


def _error_text(
    machine: Machine, error: BaseException, kind: type, convert: Callable[[Any], str]
) -> str:
    name = "__str__" if convert is str else "__repr__"
    shown = machine.evidence.attribute(kind, name)
    if isinstance(shown, types.FunctionType):
        return str(machine.call(shown, (error,), {}))
    if not machine.is_fresh(error) or not plain.shows(error.args):
        raise Unexplained(f"it shows a {kind.__name__}")
    machine.touch(error.args)
    machine.evidence.title(kind)
    return convert(error)


def formatted(machine: Machine, value: object, spec: str) -> str:
    """format(value, spec)"""
    kind = type(value)
    if kind in plain.ATOMS:
        return str(machine.native(format, value, spec))
    function = machine.evidence.attribute(kind, "__format__")
    if isinstance(function, types.FunctionType):
        machine.typed(value)
        return str(machine.call(function, (value, spec), {}))
    if spec or kind in plain.TENSORS or function is not object.__format__:
        raise Unexplained(f"it formats a {kind.__name__}")
    return text(machine, value)


def _container_text(machine: Machine, value: Any, kind: type, convert: Callable[[Any], str]) -> str:
    """The text of a list, tuple or dict with objects, none of which holds it."""
    if convert is ascii:
        raise Unexplained(f"it shows a {kind.__name__}")
    machine.iterate(value)
    if kind is dict:
        shown = [f"{text(machine, k, repr)}: {text(machine, v, repr)}" for k, v in value.items()]
        return "{" + ", ".join(shown) + "}"
    shown = [text(machine, item, repr) for item in value]
    if kind is list:
        return "[" + ", ".join(shown) + "]"
    return "(" + ", ".join(shown) + (",)" if len(shown) == 1 else ")")
