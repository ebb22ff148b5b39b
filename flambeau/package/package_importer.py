"""`PackageImporter`: reads an archive."""

from __future__ import annotations

import builtins
import contextlib
import importlib
import io
import linecache
import os
import pickle
import sys
import types
import zipfile
from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau.package.file_structure_representation import Directory, create_directory
from flambeau.package.glob_group import GlobGroup, GlobPattern
from flambeau.package.importer import Importer
from flambeau.package.mangling import demangle, new_prefix

__all__ = ["PackageImporter"]


class PackageImporter(Importer):
    """Imports modules and loads objects of an archive; its modules stay apart from others.

    This runs the archive's code.

    Args:
        file_or_buffer: a path or a binary file.
        module_allowed: returns whether a module of the environment may be imported.

    Raises:
        ImportError: a module that is not allowed.
    """

    def __init__(
        self,
        file_or_buffer: Any,
        module_allowed: Callable[[str], bool] = lambda module_name: True,
    ) -> None:
        path = isinstance(file_or_buffer, (str, os.PathLike))
        self.filename = os.fspath(file_or_buffer) if path else "<binary>"
        self.zip_reader = zipfile.ZipFile(file_or_buffer)
        self._top = self.zip_reader.namelist()[0].split("/")[0]
        self._files = {name.split("/", 1)[1] for name in self.zip_reader.namelist()}
        self._prefix = new_prefix()
        self.modules: dict[str, types.ModuleType] = {}
        self._lists: dict[int, Any] = {}
        self.extern_modules = self._text(".data/extern_modules").split()
        for name in self.extern_modules:
            if not module_allowed(name):
                raise ImportError(
                    f"package '{self.filename}' needs the external module '{name}' but that module "
                    "has been disallowed\nhint: module_allowed decides"
                )
        self._builtins = {**vars(builtins), "__import__": self._import}

    def _bytes(self, path: str) -> bytes:
        return self.zip_reader.read(f"{self._top}/{path}")

    def _text(self, path: str) -> str:
        return self._bytes(path).decode("utf-8") if path in self._files else ""

    # ------------------------------------------------------------------ modules
    def id(self) -> str:
        """A prefix that distinguishes this importer's modules from another's."""
        return self._prefix

    def python_version(self) -> str | None:
        """The version of Python that wrote the archive."""
        return self._text(".data/python_version").strip() or None

    def import_module(self, name: str, package: str | None = None) -> Any:
        """A module of the archive, or one that the archive names as external.

        Raises:
            ModuleNotFoundError: neither.
        """
        if package is not None and name.startswith("."):
            name = importlib.util.resolve_name(name, package)
        if name in self.modules:
            return self.modules[name]
        source = self._place(name)
        if source is not None:
            return self._load(name, source)
        if self._has_below(name):
            return self._new_module(name, None, True)
        if self._is_external(name):
            return importlib.import_module(name)
        raise ModuleNotFoundError(
            f"No module named '{name}' in self-contained archive '{self.filename}'", name=name
        )

    def _is_external(self, name: str) -> bool:
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names or top in ("flambeau", "torch"):
            return True
        parts = name.split(".")
        return any(
            ".".join(parts[:count]) in self.extern_modules for count in range(1, len(parts) + 1)
        )

    def _place(self, name: str) -> str | None:
        path = name.replace(".", "/")
        candidates = (f"{path}.py", f"{path}/__init__.py")
        return next((each for each in candidates if each in self._files), None)

    def _has_below(self, name: str) -> bool:
        folder = name.replace(".", "/") + "/"
        return any(each.startswith(folder) and each.endswith(".py") for each in self._files)

    def _new_module(self, name: str, path: str | None, is_package: bool) -> types.ModuleType:
        parent, _, last = name.rpartition(".")
        above = self.import_module(parent) if parent else None
        if name in self.modules:  # the parent imported it
            return self.modules[name]
        module = types.ModuleType(f"{self._prefix}.{name}")
        module.__file__ = f"{self._prefix}/{path}" if path else None
        module.__package__ = f"{self._prefix}.{name if is_package else parent}".rstrip(".")
        if is_package:
            module.__path__ = [f"{self._prefix}/{name.replace('.', '/')}"]
        module.__dict__["__builtins__"] = self._builtins
        module.__dict__["__torch_package__"] = True
        module.__loader__ = self  # type: ignore[assignment]
        self.modules[name] = module
        if above is not None:
            setattr(above, last, module)
        return module

    def _load(self, name: str, path: str) -> types.ModuleType:
        module = self._new_module(name, path, path.endswith("/__init__.py"))
        if "__flambeau_loaded__" in vars(module):
            return module
        vars(module)["__flambeau_loaded__"] = True
        source = self._text(path)
        filename = f"{self._prefix}/{path}"
        linecache.lazycache(filename, vars(module))
        try:
            exec(compile(source, filename, "exec", dont_inherit=True), vars(module))
        except BaseException:
            self.modules.pop(name, None)
            raise
        return module

    def get_source(self, module_name: str) -> str:
        """The source of one of the archive's modules."""
        place = self._place(demangle(module_name))
        return self._text(place) if place else ""

    def _import(
        self,
        name: str,
        globals: Any = None,  # noqa: A002
        locals: Any = None,  # noqa: A002
        fromlist: Any = (),
        level: int = 0,
    ) -> Any:
        """`__import__` of the archive's code."""
        if level:
            package = demangle((globals or {}).get("__package__", ""))
            parts = package.split(".") if package else []
            name = ".".join([*parts[: len(parts) - level + 1], *([name] if name else [])])
        module = self.import_module(name)
        if not fromlist:
            return module if level else self.import_module(name.partition(".")[0])
        for each in fromlist:
            if each != "*" and not hasattr(module, each):
                with contextlib.suppress(ModuleNotFoundError):
                    self.import_module(f"{name}.{each}")
        return module

    # ------------------------------------------------------------------ objects and files
    def load_binary(self, package: str, resource: str) -> bytes:
        """Bytes of a file."""
        return self._bytes(f"{package.replace('.', '/')}/{resource}")

    def load_text(
        self, package: str, resource: str, encoding: str = "utf-8", errors: str = "strict"
    ) -> str:
        """The text of a file."""
        return self.load_binary(package, resource).decode(encoding, errors)

    def load_pickle(self, package: str, resource: str, map_location: Any = None) -> Any:
        """An object; its classes come from the archive where it has them.

        Args:
            package: of the file.
            resource: the file.
            map_location: of `torch.load`, for tensors.
        """
        return _Unpickler(self, self.load_binary(package, resource), map_location).load()

    def _tensor(self, number: int, place: int, map_location: Any) -> Any:
        if number not in self._lists:
            data = io.BytesIO(self._bytes(f".data/tensors/{number}.pt"))
            self._lists[number] = torch.load(data, map_location=map_location, weights_only=False)
        return self._lists[number][place]

    def file_structure(
        self, *, include: GlobPattern = "**", exclude: GlobPattern = ()
    ) -> Directory:
        """The archive's files as a tree."""
        return create_directory(
            self.filename,
            sorted(self._files),
            GlobGroup(include, separator="/"),
            GlobGroup(exclude, separator="/"),
        )


class _Unpickler(pickle._Unpickler):  # type: ignore[name-defined] # the one written in Python
    """Takes classes from the archive, and tensors from beside the pickle."""

    def __init__(self, importer: PackageImporter, data: bytes, map_location: Any) -> None:
        super().__init__(io.BytesIO(data))
        self._importer, self._map_location = importer, map_location
        importer._lists.clear()  # each load gives tensors of its own

    def find_class(self, module: str, name: str) -> Any:
        """A class or function by its name."""
        attribute: Any = self._importer.import_module(module)
        for part in name.split("."):
            attribute = getattr(attribute, part)
        return attribute

    def persistent_load(self, pid: Any) -> Any:
        """A tensor of the list beside the pickle.

        Raises:
            pickle.UnpicklingError: something else.
        """
        if not (isinstance(pid, tuple) and pid and pid[0] == "tensor"):
            raise pickle.UnpicklingError(
                f"[PackageImporter] {pid!r} is stored in another form\n"
                "hint: the archive was written by another framework"
            )
        return self._importer._tensor(pid[1], pid[2], self._map_location)
