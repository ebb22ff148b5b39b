"""Modules of settings under PyTorch's names: `torch._dynamo.config`, `torch._inductor.config` ...

`compiler_settings.txt` lists PyTorch 2.13's settings and defaults. Programs read, set and patch
them; a setting whose reader is this compiler changes what it does, the others are stored only, for
they choose among ways of compiling that differ in PyTorch's compiler alone.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import functools
import importlib
import os
import sys
import types
from collections.abc import Callable
from typing import Any

_TABLE = os.path.join(os.path.dirname(__file__), "compiler_settings.txt")


class Alias(str):
    """The full name of the setting that another name aliases."""


@functools.cache
def defaults() -> dict[str, dict[str, Any]]:
    """PyTorch's modules of settings to names and defaults; an `Alias` for second names."""
    modules: dict[str, dict[str, Any]] = {}
    with open(_TABLE, encoding="utf-8") as file:
        for line in file:
            if not line.startswith(" "):
                values = modules[line.strip()] = {}
                continue
            name, equals, text = line.strip().partition(" = ")
            if equals:
                values[name] = set() if text == "set()" else ast.literal_eval(text)
            else:
                name, _, target = name.partition(" -> ")
                values[name] = Alias(target)
    return modules


class Patch(contextlib.ContextDecorator):
    """A `with` block, or a decorator, in which settings have other values."""

    def __init__(self, module: ConfigModule, values: dict[str, Any]) -> None:
        self._module, self._values = module, values
        self._before: list[dict[str, Any]] = []

    def __enter__(self) -> None:
        self._before.append({name: self._module._read(name) for name in self._values})
        try:
            for name, value in self._values.items():
                self._module._write(name, value)
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *exception: object) -> None:
        for name, value in self._before.pop().items():
            self._module._write(name, value)


class _Section:
    """The settings of a module whose names begin with a common part (`config.triton`)."""

    def __init__(self, module: ConfigModule, prefix: str) -> None:
        self.__dict__.update(_module=module, _prefix=prefix)

    def __getattr__(self, name: str) -> Any:
        return self._module._read(f"{self._prefix}.{name}")

    def __setattr__(self, name: str, value: Any) -> None:
        self._module._write(f"{self._prefix}.{name}", value)


class ConfigModule(types.ModuleType):
    """A module whose attributes are settings."""

    _settings: dict[str, Any]
    _first: dict[str, Any]

    def _upstream(self) -> str:
        return "torch" + self.__name__.removeprefix("flambeau").removeprefix("torch")

    def _unknown(self, name: str) -> AttributeError:
        return AttributeError(f"{self._upstream()}.{name} does not exist", name=name)

    def _read(self, name: str) -> Any:
        if name not in self._settings:
            raise self._unknown(name)
        value = self._settings[name]
        if isinstance(value, Alias):
            module, _, target = value.rpartition(".")
            return _module(module)._read(target)
        return value

    def _write(self, name: str, value: Any) -> None:
        if name not in self._settings:
            raise self._unknown(name)
        present = self._settings[name]
        if isinstance(present, Alias):
            module, _, target = present.rpartition(".")
            _module(module)._write(target, value)
        else:
            self._settings[name] = value
            try:
                for observer in _observers.get((self._upstream(), name), ()):
                    observer()
            except BaseException:
                self._settings[name] = present
                raise

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_settings":
            raise AttributeError(name)
        if name not in self._settings:
            if any(other.startswith(f"{name}.") for other in self._settings):
                return _Section(self, name)
            raise self._unknown(name)
        return self._read(name)

    def __setattr__(self, name: str, value: Any) -> None:
        own = name.startswith("__") or name in self.__dict__
        if own or isinstance(value, types.ModuleType):  # a submodule that is being imported
            super().__setattr__(name, value)
        else:
            self._write(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *self._settings})

    def patch(self, arg1: Any = None, arg2: Any = None, **kwargs: Any) -> Patch:
        """Settings that have other values in a `with` block or a function.

        Args:
            arg1: a setting's name, or a dict of names and values.
            arg2: the value, where `arg1` is a name.
            kwargs: names and values, instead of both.

        Example:
            >>> with torch._dynamo.config.patch(verbose=True):
            ...     torch._dynamo.config.verbose
            True
        """
        if isinstance(arg1, dict):
            values = dict(arg1)
        elif arg1 is not None:
            values = {arg1: arg2}
        else:
            values = kwargs
        if not isinstance(values, dict) or (arg1 is not None and kwargs):
            raise AssertionError("[patch] a dict, or a name and a value, or keywords\nhint: a=1")
        return Patch(self, values)

    def get_config_copy(self) -> dict[str, Any]:
        """Names and values, in containers of their own."""
        return {name: copy.deepcopy(self._read(name)) for name in self._settings}

    def shallow_copy_dict(self) -> dict[str, Any]:
        """Names and values."""
        return {name: self._read(name) for name in self._settings}

    to_dict = shallow_copy_dict

    def save_config(self) -> dict[str, Any]:
        """Returns the bytes that `load_config` restores."""
        return self.get_config_copy()

    def load_config(self, maybe_pickled_config: Any) -> None:
        """Restores what `save_config` returned."""
        for name, value in maybe_pickled_config.items():
            self._write(name, value)

    def get_type(self, config_name: str) -> type:
        """The type of a setting's default."""
        return type(self._first[config_name])


def _module(upstream: str) -> ConfigModule:
    module = importlib.import_module("flambeau" + upstream.removeprefix("torch"))
    assert isinstance(module, ConfigModule)
    return module


def install(module: str, **settings: Any) -> None:
    """Makes a module that is being imported one of settings.

    Args:
        module: its `__name__`.
        more: settings whose defaults depend on the process.
    """
    target = sys.modules[module]
    values = {**copy.deepcopy(defaults()["torch" + module.removeprefix("flambeau")]), **settings}
    target.__dict__.update(_settings=values, _first=dict(values))
    target.__class__ = ConfigModule


_observers: dict[tuple[str, str], list[Callable[[], None]]] = {}


def observe(upstream: str, name: str, observer: Callable[[], None]) -> None:
    """Calls a function after each assignment of a setting, which is undone if it raises.

    Args:
        upstream: "torch._inductor.config" say.
        name: the setting.
        observer: the function.
    """
    _observers.setdefault((upstream, name), []).append(observer)


def value(upstream: str, name: str) -> Any:
    """A setting's value; its default where nothing imported the module: an import costs.

    Args:
        upstream: "torch._dynamo.config" say.
        name: the setting.
    """
    module = sys.modules.get("flambeau" + upstream.removeprefix("torch"))
    if isinstance(module, ConfigModule):
        return module._read(name)
    return defaults()[upstream][name]
