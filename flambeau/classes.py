"""`torch.classes`: classes that libraries in C++ register: none are."""

from __future__ import annotations

import sys
import types
from typing import Any, NoReturn

from flambeau.library.extensions import load_library, loaded_libraries

__all__ = ["load_library", "loaded_libraries"]


class _Namespace(types.ModuleType):
    """The classes of one namespace."""

    def __getattr__(self, name: str) -> NoReturn:
        namespace = self.__name__.rpartition(".")[2]
        raise RuntimeError(
            f"Tried to instantiate class '{namespace}.{name}', but it does not exist! Ensure that "
            "it is registered via torch::class_"
        )


def __getattr__(name: str) -> Any:
    """A namespace; its classes raise when they are read."""
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    namespace = _Namespace(f"torch.classes.{name}")
    setattr(sys.modules[__name__], name, namespace)
    return namespace
