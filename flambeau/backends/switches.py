"""Switches of libraries that PyTorch may call: stored and checked, without effect on results here.

PyTorch's switches are attributes of modules (`torch.backends.cudnn.benchmark = True`). Products are
of their operands' precision and every operator gives the same bits each time, so that what these
switches permit is never used and what they demand already holds.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any


class Switches:
    """An object whose attributes are switches.

    Args:
        name: below `torch`, for messages.
        defaults: the switches and their first values, which fix their types (bool, int, str).

    Raises:
        AttributeError: a switch that is not among them is read or set.
        RuntimeError: a bool is set to something else.

    Example:
        >>> torch.backends.cuda.matmul.allow_tf32 = True
        >>> torch.backends.cuda.matmul.allow_tf32
        True
        >>> torch.backends.cuda.matmul.allow_tf32 = False
    """

    def __init__(self, name: str, **defaults: Any) -> None:
        self.__dict__.update(_name=name, _values=dict(defaults))

    def __getattr__(self, name: str) -> Any:
        if name in self._values:
            return self._values[name]
        raise AttributeError(f"[{self._name}] Unknown attribute {name}\nhint: {self._hint()}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._values:
            raise AttributeError(f"[{self._name}] Unknown attribute {name}\nhint: {self._hint()}")
        _check(f"{self._name}.{name}", self._values[name], value)
        self._values[name] = value

    def _hint(self) -> str:
        return f"one of {', '.join(self._values)}"


def _check(name: str, present: Any, value: Any) -> None:
    if isinstance(present, bool) and not isinstance(value, bool):
        raise RuntimeError(
            f"[{name}] expects a bool, but got {type(value).__name__}\nhint: True or False"
        )


class SwitchModule(types.ModuleType):
    """A module some of whose attributes are switches: `_switches` names them."""

    def __getattr__(self, name: str) -> Any:
        switches = self.__dict__.get("_switches", {})
        if name in switches:
            return switches[name]
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        switches = self.__dict__.get("_switches", {})
        if name in switches:
            _check(f"{self.__name__.removeprefix('flambeau.')}.{name}", switches[name], value)
            check: Callable[[Any], None] | None = self.__dict__.get(f"_check_{name}")
            if check is not None:
                check(value)
            switches[name] = value
        else:
            super().__setattr__(name, value)


def install(module: str, **defaults: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Makes switches of a module that is being imported.

    Returns:
        PyTorch's `set_flags` (sets some, returns the values before) and `flags` (a `with` block
        that sets some and restores them).
    """
    target = sys.modules[module]
    target.__dict__["_switches"] = dict(defaults)
    target.__class__ = SwitchModule

    def set_flags(**values: Any) -> tuple[Any, ...]:
        """Sets switches by name (with or without a leading underscore); None leaves one alone.

        Returns:
            The values of all switches before.
        """
        before = tuple(getattr(target, name) for name in defaults)
        for name, value in values.items():
            if value is not None:
                setattr(target, name.removeprefix("_"), value)
        return before

    @contextlib.contextmanager
    def flags(**values: Any) -> Iterator[None]:
        """Sets switches for the time of a `with` block."""
        before = set_flags(**values)
        try:
            yield
        finally:
            target.__dict__["_switches"].update(zip(defaults, before))

    return set_flags, flags


class ContextProp:
    """An attribute that is read and set by functions.

    Args:
        getter, setter: the functions.
    """

    def __init__(self, getter: Callable[[], Any], setter: Callable[[Any], Any]) -> None:
        self.getter, self.setter = getter, setter

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return self.getter()

    def __set__(self, owner: Any, value: Any) -> None:
        self.setter(value)


class PropModule(types.ModuleType):
    """A module in front of another one: its own attributes first, then the other's.

    Args:
        m: the other module.
        name: the new one's.
    """

    def __init__(self, m: types.ModuleType, name: str) -> None:
        super().__init__(name)
        self.m = m

    def __getattr__(self, attr: str) -> Any:
        return getattr(self.m, attr)


class GenericModule(PropModule):
    """A module with a switch of the precision of float32."""

    fp32_precision = "none"


class Verbose:
    """A `with` block in which a library that is not used would print its calls.

    Args:
        level: what it would print.
    """

    def __init__(self, level: int) -> None:
        self.level = level

    def __enter__(self) -> Verbose:
        return self

    def __exit__(self, *exception: object) -> None:
        pass
