"""Modules of accelerators that this build has not: they answer, and say no.

`torch.cuda`, `torch.xpu`, `torch.mps`, `torch.mtia` and `torch.accelerator` exist so that programs
which ask "is there one?" get an answer. Questions are answered as PyTorch answers them without the
device: none available, a count of 0, no memory in use. Work that needs the device raises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn


class Absent:
    """Makes the functions of one absent accelerator's module.

    Attributes:
        module: the module's name below `torch`.
        error: the type that PyTorch raises without the device.
        reason: its text.
    """

    def __init__(self, module: str, error: type[Exception], reason: str) -> None:
        self.module = module
        self.error = error
        self.reason = reason

    def refuse(self, name: str) -> NoReturn:
        """Raises what a call of the function `name` raises."""
        raise self.error(
            f"[{self.module}.{name}] {self.reason}\n"
            f"hint: this build computes on the CPU; check "
            f"torch.{self.module.split('.')[0]}.is_available() first"
        )

    def refusals(self, names: str) -> dict[str, Callable[..., Any]]:
        """Functions that raise, by name; `names` separates them by blanks."""
        return {name: self._refusal(name) for name in names.split()}

    def answers(self, **values: Any) -> dict[str, Callable[..., Any]]:
        """Functions by name that return a constant (a new copy of a list or dict) at each call."""
        return {name: self._answer(name, value) for name, value in values.items()}

    def types(self, names: str) -> dict[str, type]:
        """Classes, by name, that nothing is an instance of; making one raises."""
        return {name: self._type(name) for name in names.split()}

    def _refusal(self, name: str) -> Callable[..., Any]:
        def function(*args: Any, **kwargs: Any) -> NoReturn:
            self.refuse(name)

        return self._named(function, name, f"Raises {self.error.__name__}: {self.reason}.")

    def _answer(self, name: str, value: Any) -> Callable[..., Any]:
        def function(*args: Any, **kwargs: Any) -> Any:
            return value.copy() if isinstance(value, (list, dict)) else value

        return self._named(function, name, f"Returns {value!r}: there is no such device.")

    def _named(self, function: Callable[..., Any], name: str, text: str) -> Callable[..., Any]:
        function.__name__ = function.__qualname__ = name
        function.__module__ = f"flambeau.{self.module}"
        function.__doc__ = text
        return function

    def _type(self, name: str) -> type:
        def refuse(cls: type, *args: Any, **kwargs: Any) -> NoReturn:
            self.refuse(name)

        text = f"The type that PyTorch has; making one raises {self.error.__name__}."
        return type(name, (), {"__new__": refuse, "__doc__": text, "__module__": refuse.__module__})


class NoDevice:
    """A `with` block that would make a device or stream current; None and -1 stand for no change.

    Args:
        index: what would become current.
    """

    _absent: Absent
    _name: str

    def __init__(self, index: Any = None) -> None:
        self.index = index

    def __enter__(self) -> None:
        if self.index not in (None, -1):
            self._absent.refuse(self._name)

    def __exit__(self, *exception: object) -> None:
        """Nothing was changed."""


def context(absent: Absent, name: str) -> type[NoDevice]:
    """The context manager `name` of an absent accelerator's module."""
    return type(name, (NoDevice,), {"_absent": absent, "_name": name, "__doc__": NoDevice.__doc__})
