"""Pickles of TorchScript archives: objects of the archive's own classes, and lists with a type."""

from __future__ import annotations

from typing import Any

from flambeau.serialization.unpickler import Unpickler, malformed

__all__ = ["ScriptedObject", "ScriptedUnpickler"]


class ScriptedObject:
    """An object of a class that an archive's code defines: its name and attributes.

    Attributes:
        qualified_name: `__torch__.package.Class`.
    """

    qualified_name = ""


def _list_of(values: Any, *kinds: type) -> list[Any]:
    if not isinstance(values, (list, tuple)) or not all(isinstance(v, kinds) for v in values):
        raise malformed("a list has elements of another type")
    return list(values)


def _ints(values: Any) -> list[Any]:
    return _list_of(values, int)


def _floats(values: Any) -> list[Any]:
    return _list_of(values, float, int)


def _bools(values: Any) -> list[Any]:
    return _list_of(values, bool)


def _tensors(values: Any) -> list[Any]:
    return _list_of(values, object)


def _tagged(value: Any, type_name: Any) -> Any:
    """The value; its type is in the code, too."""
    return value


_BUILDERS = {
    "build_intlist": _ints,
    "build_doublelist": _floats,
    "build_boollist": _bools,
    "build_tensorlist": _tensors,
    "restore_type_tag": _tagged,
}


class ScriptedUnpickler(Unpickler):
    """Builds `ScriptedObject`s for the classes of an archive; the rest as for weights alone."""

    def find(self, module: str, name: str) -> Any:
        """Resolves a name of the pickle, if it is allowed."""
        key = (module, name)
        if key not in self.globals:
            if module == "__torch__" or module.startswith("__torch__."):
                space = {"qualified_name": f"{module}.{name}"}
                self.globals[key] = type("ScriptedObject", (ScriptedObject,), space)
                self.instances.add(id(self.globals[key]))
            elif module == "torch.jit._pickle" and name in _BUILDERS:
                self.globals[key] = _BUILDERS[name]
                self.calls[id(_BUILDERS[name])] = _BUILDERS[name]
            else:
                return super().find(module, name)
        return self.globals[key]

    def _build(self, target: Any, state: Any) -> None:
        if not isinstance(target, ScriptedObject):
            super()._build(target, state)
        elif not isinstance(state, dict) or any(type(name) is not str for name in state):
            raise malformed("attributes have no names")
        else:
            target.__dict__["attributes"] = state
