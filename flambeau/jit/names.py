"""How scripted code spells what its free names mean: `F.relu` is `torch.nn.functional.relu`.

Scripted code is stored with an archive, so each name in it must mean the same in another process:
a public name of the library, of `math`, a builtin, a constant, or a function that the archive has.
"""

from __future__ import annotations

import ast
import builtins
import math
import types
from typing import Any

from flambeau import _core
from flambeau.ir.lock import late
from flambeau.ir.modules import module_of

BUILTINS = frozenset(
    "abs all any bool chr complex dict divmod enumerate filter float getattr hasattr hex int "
    "isinstance iter len list map max min next oct ord pow print range repr reversed round set "
    "sorted str sum tuple type zip slice".split()
)
"""Builtin functions and types that scripted code may call."""

_SPACES = ("flambeau", "flambeau.nn.functional", "flambeau.nn.init", "flambeau.nn.utils.rnn")
_CONSTANTS = (int, float, bool, str, bytes, complex, type(None), type(Ellipsis))
_VALUES = (_core.dtype, _core.device, _core.layout, _core.memory_format)


def is_library(value: Any) -> bool:
    """Whether a function, class or module is ours: called as it is, not scripted."""
    if isinstance(value, types.ModuleType):
        name = value.__name__
        return name.partition(".")[0] in ("flambeau", "torch")
    return module_of(value).partition(".")[0] == "flambeau"


def is_constant(value: Any) -> bool:
    """Whether a value can be written into the code that uses it."""
    if isinstance(value, (tuple, list)) and not hasattr(value, "_fields"):
        return all(map(is_constant, value))
    return type(value) in _CONSTANTS or isinstance(value, _VALUES)


def constant(value: Any) -> ast.expr:
    """The expression of a constant."""
    if isinstance(value, (tuple, list)):
        elements = [constant(item) for item in value]
        kind = ast.Tuple if isinstance(value, tuple) else ast.List
        return kind(elements, ast.Load())
    if isinstance(value, float) and not math.isfinite(value):
        return expression(f"float('{value}')")
    if isinstance(value, _core.device):
        return expression(f"torch.device('{value}')")
    if isinstance(value, _VALUES):
        return expression(str(value))
    return ast.Constant(value)


def expression(text: str) -> ast.expr:
    """The syntax tree of an expression."""
    return ast.parse(text, mode="eval").body


def public_name(value: Any) -> str | None:
    """The name under which everyone can import a function or class of the library, or None."""
    if value is math or isinstance(value, types.BuiltinFunctionType) and value.__module__ == "math":
        return f"math.{value.__name__}"
    if isinstance(value, types.ModuleType):
        return _under_torch(value.__name__) if is_library(value) else None
    name = getattr(value, "__name__", None)
    if not isinstance(name, str):
        return None
    operator: str | None = late("flambeau.overrides").resolve_name(value)
    if operator is not None:
        return operator
    home = module_of(value)
    if home.partition(".")[0] != "flambeau":
        return None
    for space in _SPACES:
        if getattr(late(space), name, None) is value:
            return f"{_under_torch(space)}.{name}"
    return f"{_under_torch(home)}.{getattr(value, '__qualname__', name)}"


def _under_torch(name: str) -> str:
    return "torch" + name.removeprefix("flambeau").removeprefix("torch")


def is_builtin(value: Any) -> bool:
    """Whether a value is a builtin function, type or exception that scripted code may use."""
    name = getattr(value, "__name__", "")
    if getattr(builtins, name, None) is not value:
        return False
    return name in BUILTINS or (isinstance(value, type) and issubclass(value, BaseException))
