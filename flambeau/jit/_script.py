"""`torch.jit._script`: names of scripting under PyTorch's private module."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from flambeau._C.native_names import ScriptDict, ScriptList
from flambeau.ir.failure import failure
from flambeau.jit import interface, script
from flambeau.jit.functions import ScriptWarning
from flambeau.jit.markers import Attribute
from flambeau.jit.modules import RecursiveScriptModule, ScriptModule, script_method
from flambeau.nn import Module

__all__ = [
    "Attribute", "ConstMap", "OrderedDictWrapper", "OrderedModuleDict", "RecursiveScriptClass",
    "RecursiveScriptModule", "ScriptMeta", "ScriptModule", "ScriptWarning",
    "call_prepare_scriptable_func", "call_prepare_scriptable_func_impl", "create_script_dict",
    "create_script_list", "interface", "method_template", "pad", "script", "script_method",
    "type_trace_db", "unpackage_script_module",
]  # fmt: skip

ScriptMeta = type(ScriptModule)
type_trace_db: dict[str, Any] = {}
"""Types of calls that were observed: none are."""


class ConstMap:
    """Constants of a program as attributes.

    Args:
        const_mapping: names and values.
    """

    def __init__(self, const_mapping: Mapping[str, Any]) -> None:
        self.const_mapping = const_mapping

    def __getattr__(self, attr: str) -> Any:
        if attr == "const_mapping" or attr not in self.const_mapping:
            raise AttributeError(attr)
        return self.const_mapping[attr]


class OrderedDictWrapper:
    """Pairs of names and values of an object, read as a dict is.

    Args:
        _c: an object with `items()`.
    """

    def __init__(self, _c: Any) -> None:
        self._c = _c

    def items(self) -> list[tuple[Any, Any]]:
        """Names and values."""
        return list(self._c.items())

    def keys(self) -> list[Any]:
        """The names."""
        return [name for name, _ in self.items()]

    def values(self) -> list[Any]:
        """The values."""
        return [value for _, value in self.items()]

    def __len__(self) -> int:
        return len(self.values())

    def __iter__(self) -> Iterator[Any]:
        return iter(self.keys())

    def __contains__(self, key: object) -> bool:
        return key in self.keys()

    def __getitem__(self, key: Any) -> Any:
        return dict(self.items())[key]


class OrderedModuleDict(OrderedDictWrapper):
    """Modules of a scripted module by name.

    Args:
        module: an object with `items()`.
        python_dict: modules by name.
    """

    def __init__(self, module: Any, python_dict: dict[str, Any]) -> None:
        super().__init__(module)
        self._python_modules = python_dict

    def items(self) -> list[tuple[Any, Any]]:
        """Names and modules."""
        return list(self._python_modules.items())


class RecursiveScriptClass:
    """An object of a scripted class; here objects of the Python class itself are.

    Raises:
        NotImplementedError: always.
    """

    def __init__(self, cpp_class: Any) -> None:
        problem = "objects of scripted classes are those of the Python class"
        raise failure(NotImplementedError, "RecursiveScriptClass", problem, "use the object itself")


def call_prepare_scriptable_func_impl(obj: Any, memo: dict[int, Any]) -> Any:
    """An object, or what its `__prepare_scriptable__` puts in its place; its parts likewise."""
    if not isinstance(obj, Module):
        return obj
    if id(obj) in memo:
        return memo[id(obj)]
    prepare = getattr(obj, "__prepare_scriptable__", None)
    obj = prepare() if callable(prepare) else obj
    memo[id(obj)] = obj
    for name, inner in list(obj.named_children()):
        replaced = call_prepare_scriptable_func_impl(inner, memo)
        if replaced is not inner:
            setattr(obj, name, replaced)
    return obj


def call_prepare_scriptable_func(obj: Any) -> Any:
    """An object, or what its `__prepare_scriptable__` puts in its place."""
    return call_prepare_scriptable_func_impl(obj, {})


def create_script_list(obj: Any, type_hint: Any = None) -> ScriptList:
    """A list that scripted code and Python share."""
    return ScriptList(obj)


def create_script_dict(obj: Any) -> ScriptDict:
    """A dict that scripted code and Python share."""
    return ScriptDict(obj)


def method_template(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """A method that scripted code defines; called as it is, it raises.

    Raises:
        NotImplementedError: always.
    """
    raise failure(NotImplementedError, "jit", "the method has no code", "script the module")


def pad(s: str, padding: int, offset: int = 0, char: str = " ") -> str:
    """A text with characters before it up to a width.

    Example:
        >>> from flambeau.jit._script import pad
        >>> pad("a", 3)
        'a  '
    """
    return s + char * max(padding - len(s) - offset, 0)


def unpackage_script_module(importer: Any, script_module_id: str) -> NoReturn:
    """Raises: packages hold no scripted modules here.

    Raises:
        NotImplementedError: always.
    """
    problem = "scripted modules in packages of torch.package are not read"
    raise failure(NotImplementedError, "jit", problem, "torch.jit.load")
