"""Where modules come from: the environment, an archive, or several of them in order."""

from __future__ import annotations

import importlib
import pickle
import sys
import types
from abc import ABC, abstractmethod
from typing import Any

from flambeau.package import mangling

__all__ = ["Importer", "ObjMismatchError", "ObjNotFoundError", "OrderedImporter"]


class ObjNotFoundError(Exception):
    """An importer has no such object."""


class ObjMismatchError(Exception):
    """An importer has another object of that name."""


class Importer(ABC):
    """Finds modules by name, and the names of objects."""

    @abstractmethod
    def import_module(self, module_name: str) -> Any:
        """A module.

        Raises:
            ModuleNotFoundError: it is not there.
        """

    def get_name(self, obj: Any, name: str | None = None) -> tuple[str, str]:
        """Module name and qualified name under which `import_module` finds an object.

        Raises:
            ObjNotFoundError: there is nothing under its name.
            ObjMismatchError: there is something else.
        """
        if name is None:
            name = getattr(obj, "__qualname__", None) or obj.__name__
        module_name = mangling.demangle(self.whichmodule(obj, name))
        try:
            attribute: Any = self.import_module(module_name)
            for part in name.split("."):
                attribute = getattr(attribute, part)
        except (ImportError, KeyError, AttributeError):
            raise ObjNotFoundError(
                f"{obj} was not found as {module_name}.{name}\nhint: objects are found by name"
            ) from None
        if attribute is not obj:
            raise ObjMismatchError(
                f"The object provided is not the same as the object found by the importer: "
                f"{module_name}.{name} is {attribute}, not {obj}\n"
                "hint: pass the importer that the object comes from to PackageExporter"
            )
        return module_name, name

    def whichmodule(self, obj: Any, name: str) -> str:
        """The name of the module that an object says it is from."""
        module_name = getattr(obj, "__module__", None)
        if module_name is not None:
            return str(module_name)
        for candidate, module in list(sys.modules.items()):
            if candidate not in ("__main__", "__mp_main__") and getattr(module, name, None) is obj:
                return candidate
        return "__main__"


class _SysImporter(Importer):
    """Modules of the environment."""

    def import_module(self, module_name: str) -> Any:
        """`importlib.import_module`."""
        return importlib.import_module(module_name)

    def whichmodule(self, obj: Any, name: str) -> str:
        """As pickle finds it."""
        return str(pickle.whichmodule(obj, name))  # type: ignore[attr-defined]


sys_importer = _SysImporter()


class OrderedImporter(Importer):
    """The first importer that has a module."""

    def __init__(self, *args: Importer) -> None:
        self._importers = list(args)

    def import_module(self, module_name: str) -> Any:
        """The module of the first importer that has it."""
        failure: ModuleNotFoundError | None = None
        for importer in self._importers:
            if not hasattr(importer, "import_module"):
                raise TypeError(f"{importer} is not an importer")
            try:
                module = importer.import_module(module_name)
            except ModuleNotFoundError as error:
                failure = error
            else:
                if isinstance(module, types.ModuleType):
                    return module
        raise failure or ModuleNotFoundError(module_name)

    def whichmodule(self, obj: Any, name: str) -> str:
        """The first importer's answer that is not `__main__`."""
        for importer in self._importers:
            module_name = importer.whichmodule(obj, name)
            if module_name != "__main__":
                return module_name
        return "__main__"
