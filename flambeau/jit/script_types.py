"""TorchScript's types: from annotations and values, their spelling, and the check of a value.

A scripted function checks what crosses its border: an argument without an annotation is a Tensor,
lists and dictionaries are copied (scripted code cannot change the caller's), integers become floats
where floats are declared.
"""

from __future__ import annotations

import enum
import inspect
import types
import typing
from typing import Any

from flambeau import _core

Tensor = _core.Tensor
NoneType = type(None)
_SCALARS = {int: "int", float: "float", bool: "bool", str: "str", complex: "complex"}
_OPAQUE = {
    _core.device: "Device",
    _core.dtype: "int",
    _core.layout: "int",
    _core.memory_format: "int",
    _core.Generator: "Generator",
}


class Mismatch(Exception):
    """A value that does not have the declared type."""


def _union_arguments(kind: Any) -> tuple[Any, ...] | None:
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return typing.get_args(kind)
    return None


def optional_of(kind: Any) -> Any:
    """The type inside `Optional[...]`, or None for other types."""
    arguments = _union_arguments(kind)
    if arguments is None or NoneType not in arguments or len(arguments) != 2:
        return None
    return next(argument for argument in arguments if argument is not NoneType)


def spelling(kind: Any) -> str:
    """A type as TorchScript writes it: `Tensor`, `List[int]`, `Dict[str, Tensor]`."""
    if kind is None or kind is NoneType:
        return "NoneType"
    if inspect.isclass(kind) and issubclass(kind, Tensor):
        return "Tensor"
    inner = optional_of(kind)
    if inner is not None:
        return f"Optional[{spelling(inner)}]"
    if _union_arguments(kind) is not None:
        return f"Union[{', '.join(map(spelling, typing.get_args(kind)))}]"
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    names = {list: "List", dict: "Dict", tuple: "Tuple"}
    if origin in names:
        shown = ", ".join(spelling(argument) for argument in arguments if argument != ())
        return f"{names[origin]}[{shown or '()'}]"
    if kind in names:
        return names[kind]
    if kind is Any:
        return "Any"
    spellings = {**_SCALARS, **_OPAQUE}
    if kind in spellings:
        return spellings[kind]
    return qualified_name(kind)


def qualified_name(value: Any) -> str:
    """The name of a class or function in scripted code: `__torch__.package.Class`."""
    home = getattr(value, "__module__", None) or "__main__"
    qualified = getattr(value, "__qualname__", str(value)).replace("<locals>", "_locals")
    parts = [*home.split("."), *qualified.split(".")]
    return ".".join(["__torch__", *(identifier(part) for part in parts if part != "__main__")])


def identifier(name: str) -> str:
    """A name with underscores for what is no letter or digit."""
    return "".join(letter if letter.isalnum() else "_" for letter in name)


def infer(value: Any) -> Any:
    """The type of an attribute's value. Raises TypeError where TorchScript has none for it."""
    if value is None:
        return NoneType
    if isinstance(value, Tensor):
        return Tensor
    if isinstance(value, enum.Enum):
        return type(value)
    for scalar in (bool, int, float, complex, str):
        if isinstance(value, scalar):
            return scalar
    if isinstance(value, tuple(_OPAQUE)):
        return type(value)
    if isinstance(value, tuple):
        if hasattr(value, "_fields"):
            return type(value)
        return tuple[tuple(map(infer, value))] if value else tuple[()]  # type: ignore[misc]
    if isinstance(value, list):
        return list[_common(value)]  # type: ignore[misc]
    if isinstance(value, dict):
        keys, items = _common(list(value)), _common(list(value.values()))
        if keys not in (int, float, bool, str, complex, Tensor):
            raise TypeError(f"keys of type {spelling(keys)}")
        return dict[keys, items]  # type: ignore[valid-type]
    raise TypeError(f"Python type {type(value).__name__}")


def _common(values: list[Any]) -> Any:
    """The one type of a list's elements; Tensor for an empty list."""
    kinds: list[Any] = []
    for value in values:
        kind = infer(value)
        if kind not in kinds:
            kinds.append(kind)
    if not kinds:
        return Tensor
    others = [kind for kind in kinds if kind is not NoneType]
    if len(others) == 1:
        return others[0] if len(kinds) == 1 else typing.Optional[others[0]]  # noqa: UP045
    return typing.Union[tuple(kinds)]  # noqa: UP007


def convert(value: Any, kind: Any) -> Any:
    """A value as a scripted function receives it. Raises `Mismatch`."""
    if kind is Any or kind is inspect.Parameter.empty:
        return value
    if kind is None or kind is NoneType:
        return _require(value, value is None, kind)
    arguments = _union_arguments(kind)
    if arguments is not None:
        return _convert_union(value, arguments, kind)
    origin = typing.get_origin(kind) or kind
    if origin is list:
        return _convert_list(value, kind)
    if origin is dict:
        return _convert_dict(value, kind)
    if origin is tuple and typing.get_args(kind):
        return _convert_tuple(value, kind)
    if origin in _SCALARS:
        return _convert_scalar(value, origin)
    if not inspect.isclass(origin) or getattr(origin, "__torch_script_interface__", False):
        return value
    return _require(value, isinstance(value, origin), kind)


def _require(value: Any, holds: bool, kind: Any) -> Any:
    if not holds:
        raise Mismatch(spelling(kind))
    return value


def _convert_scalar(value: Any, kind: type) -> Any:
    if isinstance(value, Tensor) and kind is not str and value.numel() == 1:
        if value.requires_grad:
            raise Mismatch(spelling(kind))
        return kind(value)
    allowed: tuple[type, ...] = {float: (float, int), complex: (complex, float, int)}.get(
        kind, (kind, _core.dtype, _core.layout, _core.memory_format) if kind is int else (kind,)
    )
    _require(value, isinstance(value, allowed), kind)
    return kind(value) if kind in (float, complex) or isinstance(value, bool) else value


def _convert_union(value: Any, arguments: tuple[Any, ...], kind: Any) -> Any:
    for argument in arguments:
        try:
            return convert(value, argument)
        except Mismatch:
            continue
    raise Mismatch(spelling(kind))


def _convert_list(value: Any, kind: Any) -> list[Any]:
    (element,) = typing.get_args(kind) or (Any,)
    fits = isinstance(value, (list, tuple)) and not hasattr(value, "_fields")
    _require(value, fits, kind)
    return [convert(item, element) for item in value]


def _convert_dict(value: Any, kind: Any) -> dict[Any, Any]:
    key, element = typing.get_args(kind) or (Any, Any)
    _require(value, isinstance(value, dict), kind)
    return {convert(k, key): convert(item, element) for k, item in value.items()}


def _convert_tuple(value: Any, kind: Any) -> tuple[Any, ...]:
    elements = tuple(argument for argument in typing.get_args(kind) if argument != ())
    _require(value, isinstance(value, (tuple, list)), kind)
    if len(elements) == 2 and elements[1] is Ellipsis:
        elements = elements[:1] * len(value)
    _require(value, len(value) == len(elements), kind)
    return tuple(convert(item, element) for item, element in zip(value, elements, strict=True))


def matches(value: Any, kind: Any) -> bool:
    """Whether a value has a type exactly: no integer is a float here, no tuple a list."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return True
    if kind is None:
        return value is None
    if _union_arguments(kind) is not None:
        return any(matches(value, argument) for argument in arguments)
    if origin is list or (origin is None and kind is typing.List):  # noqa: UP006
        return isinstance(value, list) and all(matches(v, a) for v in value for a in arguments)
    if origin is dict and arguments:
        return isinstance(value, dict) and all(
            matches(k, arguments[0]) and matches(v, arguments[1]) for k, v in value.items()
        )
    if origin is tuple and arguments:
        return (
            isinstance(value, tuple)
            and len(value) == len(arguments)
            and all(map(matches, value, arguments))
        )
    if kind is int and isinstance(value, bool):
        return False
    return isinstance(value, origin or kind)
