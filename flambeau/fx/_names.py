"""Names in a graph and in its generated code: unique, legal, the same as PyTorch's."""

from __future__ import annotations

import builtins
import keyword
import math
import re
from typing import Any, NamedTuple

import flambeau as torch
from flambeau.fx import _function_names, _pytree
from flambeau.utils import _pytree as pytree


class _CustomBuiltin(NamedTuple):
    """A name that generated code may use without a definition of its own."""

    import_str: str
    obj: object


_custom_builtins: dict[str, _CustomBuiltin] = {}


def _register_custom_builtin(name: str, import_str: str, obj: object) -> None:
    """Makes a name known to all generated code.

    Args:
        name: the name.
        import_str: the statement that defines it.
        obj: its value.
    """
    _custom_builtins[name] = _CustomBuiltin(import_str, obj)


_register_custom_builtin("inf", "from math import inf", math.inf)
_register_custom_builtin("nan", "from math import nan", math.nan)
_register_custom_builtin("NoneType", "NoneType = type(None)", type(None))
_register_custom_builtin("torch", "import torch", torch)
_register_custom_builtin("device", "from torch import device", torch.device)
_register_custom_builtin("fx_pytree", "import torch.fx._pytree as fx_pytree", _pytree)
_register_custom_builtin("pytree", "import torch.utils._pytree as pytree", pytree)

_illegal_names: dict[str, Any] = {
    **{word: object() for word in keyword.kwlist},
    **vars(builtins),
    **{name: builtin.obj for name, builtin in _custom_builtins.items()},
}

_FORBIDDEN = re.compile("[^0-9a-zA-Z_]+")
_NUMBERED = re.compile(r"(.+)_(\d+)$")
_WORD_BOUNDARY = re.compile("(?<=[a-z])([A-Z])")


def _snake_case(s: str) -> str:
    """`LayerNorm` -> `layer_norm`, `HTTPServer` -> `httpserver`."""
    return _WORD_BOUNDARY.sub(r"_\1", s).lower()


def _is_magic(x: str) -> bool:
    """Whether a name is like `__add__`."""
    return x.startswith("__") and x.endswith("__")


def _is_from_torch(obj: object) -> bool:
    """Whether an object can be written as an attribute of `torch`."""
    if _function_names.public_name(obj) is not None:
        return not _function_names.is_only_method(obj)
    module = getattr(obj, "__module__", None)
    if module is not None:
        base = module.partition(".")[0]
        dynamo = _function_names.upstream(module).startswith("torch._dynamo")
        return base in ("torch", "flambeau") and not dynamo
    name = getattr(obj, "__name__", None)
    if name is not None and name != "torch":
        for home in (torch, torch.nn.functional):
            if getattr(home, name, None) is obj:
                return True
    return False


class _Namespace:
    """Names in use, and the objects that they name."""

    def __init__(self) -> None:
        self._obj_to_name: dict[Any, str] = {}
        self._used_names: set[str] = set()
        self._base_count: dict[str, int] = {}

    def create_name(self, candidate: str, obj: object | None) -> str:
        """A new name.

        Args:
            candidate: the preferred name.
            obj: the object to name, whose name is then fixed; None: no object.
        """
        if obj is not None and obj in self._obj_to_name:
            return self._obj_to_name[obj]
        candidate = _FORBIDDEN.sub("_", candidate) or "_unnamed"
        if candidate[0].isdigit():
            candidate = f"_{candidate}"
        numbered = _NUMBERED.match(candidate)
        base, number = (candidate, None) if numbered is None else numbered.groups()
        count = self._base_count.get(base, 0) if number is None else int(number)
        while candidate in self._used_names or self._is_illegal(candidate, obj):
            count += 1
            candidate = f"{base}_{count}"
        self._used_names.add(candidate)
        self._base_count[base] = count
        if obj is not None:
            self._obj_to_name[obj] = candidate
        return candidate

    def associate_name_with_obj(self, name: str, obj: object) -> None:
        """Assigns an existing name to an object."""
        self._obj_to_name.setdefault(obj, name)

    def _is_illegal(self, name: str, obj: object) -> bool:
        if name not in _illegal_names:
            return False
        return _illegal_names[name] is not obj

    def _rename_object(self, obj: object, name: str) -> None:
        """Gives an object that has a name another one."""
        self._obj_to_name[obj] = name
        self._used_names.add(name)
