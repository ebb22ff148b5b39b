"""`PackageExporter`: writes an archive."""

from __future__ import annotations

import io
import linecache
import os
import pickle
import pickletools
import platform
import sys
import types
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import flambeau as torch
from flambeau.autograd.graph import RemovableHandle
from flambeau.package import mangling
from flambeau.package.find_file_dependencies import find_files_source_depends_on
from flambeau.package.glob_group import GlobGroup, GlobPattern
from flambeau.package.importer import Importer, OrderedImporter, sys_importer

__all__ = ["EmptyMatchError", "PackageExporter", "PackagingError", "PackagingErrorReason"]

Hook = Callable[["PackageExporter", str], None]
_OURS = ("flambeau", "torch")
_MOCK = '''"""A module that stands for one which is not in the archive."""


class _Missing:
    def __init__(self, name):
        self._name = name

    def __getattr__(self, name):
        return _Missing(f"{self._name}.{name}")

    def __call__(self, *args, **kwargs):
        raise NotImplementedError(f"{self._name} was mocked out during packaging")

    def __repr__(self):
        return f"<mocked {self._name}>"


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return _Missing(f"{__name__}.{name}")
'''


class PackagingErrorReason(Enum):
    """Why a module cannot be written."""

    IS_EXTENSION_MODULE = "Module is a C extension module. Only Python modules can be packaged."
    NO_DUNDER_FILE = "Module had no __file__ defined."
    SOURCE_FILE_NOT_FOUND = "Module source file could not be found."
    DEPENDENCY_RESOLUTION_FAILED = "Dependency resolution failed."
    NO_ACTION = "Module did not match against any action pattern. Extern, mock, or intern it."
    DENIED = "Module was denied by a pattern."

    def __str__(self) -> str:
        return self.value


class EmptyMatchError(Exception):
    """A pattern with `allow_empty=False` matched no module."""


class PackagingError(Exception):
    """Modules that objects depend on cannot be written; the message lists them with reasons."""

    def __init__(self, broken: dict[PackagingErrorReason, list[str]], debug: bool = False) -> None:
        self.broken = broken
        lines = [""]
        for reason, names in broken.items():
            lines.append(f"* {reason}")
            lines += [f"    {name}" for name in names]
        lines.append("hint: call intern(), extern() or mock() with patterns of their names")
        super().__init__("\n".join(lines))


class _Rule:
    def __init__(self, action: str, group: GlobGroup, allow_empty: bool) -> None:
        self.action, self.group, self.allow_empty, self.matched = action, group, allow_empty, False


class PackageExporter:
    """Writes modules' sources, pickled objects and files into one archive.

    Every module that something in it depends on needs a rule: `intern` writes its source, `extern`
    imports it where the archive is read, `mock` puts a module in its place that raises when it is
    used, `deny` refuses. The standard library and this package are imported.

    Args:
        f: a path or a binary file.
        importer: where modules come from; several are tried in order.
        debug: accepted.

    Example:
        >>> import io
        >>> buffer = io.BytesIO()
        >>> with torch.package.PackageExporter(buffer) as exporter:
        ...     exporter.save_pickle("model", "model.pkl", torch.ones(2))
        >>> _ = buffer.seek(0)
        >>> torch.package.PackageImporter(buffer).load_pickle("model", "model.pkl")
        tensor([1., 1.])
    """

    def __init__(
        self,
        f: Any,
        importer: Importer | Sequence[Importer] = sys_importer,
        debug: bool = False,
    ) -> None:
        self._debug = debug
        path = isinstance(f, (str, os.PathLike))
        self._name = Path(f).stem if path else "archive"
        self.zip_file = zipfile.ZipFile(f, "w")
        self.importer = importer if isinstance(importer, Importer) else OrderedImporter(*importer)
        self._rules: list[_Rule] = []
        self._status: dict[str, str] = {}  # module -> what was done with it
        self._broken: dict[PackagingErrorReason, list[str]] = {}
        self._dependants: dict[str, list[str]] = {}
        self._hooks: dict[str, OrderedDict[int, Hook]] = {
            action: OrderedDict() for action in ("intern", "extern", "mock")
        }
        self._unique, self._pickles = 0, 0

    # ------------------------------------------------------------------ rules
    def _add_rule(
        self, action: str, include: GlobPattern, exclude: GlobPattern, allow_empty: bool
    ) -> None:
        self._rules.append(_Rule(action, GlobGroup(include, exclude=exclude), allow_empty))

    def intern(
        self, include: GlobPattern, *, exclude: GlobPattern = (), allow_empty: bool = True
    ) -> None:
        """Modules whose source is written."""
        self._add_rule("intern", include, exclude, allow_empty)

    def extern(
        self, include: GlobPattern, *, exclude: GlobPattern = (), allow_empty: bool = True
    ) -> None:
        """Modules that are imported where the archive is read."""
        self._add_rule("extern", include, exclude, allow_empty)

    def mock(
        self, include: GlobPattern, *, exclude: GlobPattern = (), allow_empty: bool = True
    ) -> None:
        """Modules in whose place one is written that raises when it is used."""
        self._add_rule("mock", include, exclude, allow_empty)

    def deny(self, include: GlobPattern, *, exclude: GlobPattern = ()) -> None:
        """Modules that nothing may depend on."""
        self._add_rule("deny", include, exclude, True)

    def _add_hook(self, action: str, hook: Hook) -> Any:
        handle = RemovableHandle(self._hooks[action])
        self._hooks[action][handle.id] = hook
        return handle

    def register_intern_hook(self, hook: Hook) -> Any:
        """Calls `hook(exporter, module_name)` for each module that is written."""
        return self._add_hook("intern", hook)

    def register_extern_hook(self, hook: Hook) -> Any:
        """Calls `hook(exporter, module_name)` for each module that is imported elsewhere."""
        return self._add_hook("extern", hook)

    def register_mock_hook(self, hook: Hook) -> Any:
        """Calls `hook(exporter, module_name)` for each module that is mocked."""
        return self._add_hook("mock", hook)

    # ------------------------------------------------------------------ modules
    def add_dependency(self, module_name: str, dependencies: bool = True) -> None:
        """Writes, notes or refuses a module by the first rule that matches its name."""
        if module_name in self._status or module_name == "__main__":
            return
        top = module_name.partition(".")[0]
        if top in sys.stdlib_module_names or top in _OURS or top == "builtins":
            self._status[module_name] = "extern"
            return
        rule = next((rule for rule in self._rules if rule.group.matches(module_name)), None)
        if rule is None:
            self._fail(PackagingErrorReason.NO_ACTION, module_name)
            return
        rule.matched = True
        self._status[module_name] = rule.action
        if rule.action == "deny":
            self._fail(PackagingErrorReason.DENIED, module_name)
            return
        for hook in self._hooks[rule.action].values():
            hook(self, module_name)
        if rule.action == "mock":
            self._write(_path_of(module_name, False), _MOCK)
        elif rule.action == "intern":
            self._intern(module_name, dependencies)

    def _fail(self, reason: PackagingErrorReason, module_name: str) -> None:
        self._status.setdefault(module_name, "broken")
        names = self._broken.setdefault(reason, [])
        if module_name not in names:
            names.append(module_name)

    def _intern(self, module_name: str, dependencies: bool) -> None:
        try:
            module = self.importer.import_module(module_name)
        except ImportError:
            self._fail(PackagingErrorReason.DEPENDENCY_RESOLUTION_FAILED, module_name)
            return
        source = self._source_of(module)
        if source is None:
            path = getattr(module, "__file__", None)
            reason = PackagingErrorReason.SOURCE_FILE_NOT_FOUND
            if path is None:
                reason = PackagingErrorReason.NO_DUNDER_FILE
            elif not path.endswith(".py"):
                reason = PackagingErrorReason.IS_EXTENSION_MODULE
            self._fail(reason, module_name)
            return
        parent = module_name.rpartition(".")[0]
        if parent:
            self.add_dependency(parent)
        self._store_source(module_name, source, hasattr(module, "__path__"), dependencies)

    def _source_of(self, module: types.ModuleType) -> str | None:
        path = getattr(module, "__file__", None)
        if path is None or not path.endswith(".py"):
            return None
        loader = getattr(module, "__loader__", None)
        get_source = getattr(loader, "get_source", None)
        text = get_source(module.__name__) if get_source else None
        if text is not None:
            return str(text)
        return "".join(linecache.getlines(path, module.__dict__)) or None

    def _store_source(
        self, module_name: str, source: str, is_package: bool, dependencies: bool
    ) -> None:
        self._status[module_name] = "intern"
        self._write(_path_of(module_name, is_package), source)
        if not dependencies:
            return
        package = module_name if is_package else module_name.rpartition(".")[0]
        for target, name in find_files_source_depends_on(source, package):
            submodule = f"{target}.{name}"
            if name is not None and self._is_module(submodule):
                target = submodule
            self._dependants.setdefault(target, []).append(module_name)
            self.add_dependency(target)

    def _is_module(self, name: str) -> bool:
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names or top in _OURS:
            return False
        try:
            return isinstance(self.importer.import_module(name), types.ModuleType)
        except Exception:
            return False

    def save_module(self, module_name: str, dependencies: bool = True) -> None:
        """Writes the source of a module of the environment.

        Raises:
            TypeError: no name.
        """
        if not isinstance(module_name, str):
            raise TypeError(
                "save_module() expects a string input, did you perhaps mean to pass `__name__`?"
            )
        self._intern(module_name, dependencies)

    def save_source_string(
        self, module_name: str, src: str, is_package: bool = False, dependencies: bool = True
    ) -> None:
        """Writes a module from its source text."""
        self._store_source(module_name, src, is_package, dependencies)

    def save_source_file(
        self, module_name: str, file_or_directory: str, dependencies: bool = True
    ) -> None:
        """Writes a module from its file, or a package from its folder."""
        path = Path(file_or_directory)
        if not path.is_dir():
            self._store_source(
                module_name, path.read_text("utf-8"), path.name == "__init__.py", dependencies
            )
            return
        for file in sorted(path.rglob("*.py")):
            parts = file.relative_to(path).with_suffix("").parts
            is_package = parts[-1] == "__init__"
            name = ".".join([module_name, *(parts[:-1] if is_package else parts)])
            self._store_source(name, file.read_text("utf-8"), is_package, dependencies)

    # ------------------------------------------------------------------ objects and files
    def save_pickle(
        self,
        package: str,
        resource: str,
        obj: Any,
        dependencies: bool = True,
        pickle_protocol: int = 3,
    ) -> None:
        """Writes an object; the modules of its classes are dependencies."""
        buffer, tensors = io.BytesIO(), []  # type: ignore[var-annotated]
        pickler = _Pickler(buffer, pickle_protocol, self.importer, tensors, self._pickles)
        pickler.dump(obj)
        data = buffer.getvalue()
        if tensors:
            stored = io.BytesIO()
            torch.save(tensors, stored)
            self._write(f".data/tensors/{self._pickles}.pt", stored.getvalue())
            self._pickles += 1
        if dependencies:
            for module_name in sorted(_modules_of(data)):
                self._dependants.setdefault(module_name, []).append(f"{package}/{resource}")
                self.add_dependency(module_name)
        self.save_binary(package, resource, data)

    def save_text(self, package: str, resource: str, text: str) -> None:
        """Writes a text."""
        self.save_binary(package, resource, text.encode("utf-8"))

    def save_binary(self, package: str, resource: str, binary: bytes) -> None:
        """Writes bytes."""
        self._write(f"{package.replace('.', '/')}/{resource}", binary)

    def _write(self, path: str, content: str | bytes) -> None:
        name = f"{self._name}/{path}"
        if name in self.zip_file.namelist():
            return
        self.zip_file.writestr(name, content)

    # ------------------------------------------------------------------ what was done
    def get_unique_id(self) -> str:
        """A name that this archive has not given yet."""
        self._unique += 1
        return str(self._unique - 1)

    def _with_status(self, status: str) -> list[str]:
        return [name for name, each in self._status.items() if each == status]

    def interned_modules(self) -> list[str]:
        """Modules whose source was written."""
        return self._with_status("intern")

    def externed_modules(self) -> list[str]:
        """Modules that are imported where the archive is read."""
        return self._with_status("extern")

    def mocked_modules(self) -> list[str]:
        """Modules that were mocked."""
        return self._with_status("mock")

    def denied_modules(self) -> list[str]:
        """Modules that were refused."""
        return self._with_status("deny")

    def get_rdeps(self, module_name: str) -> list[str]:
        """Returns the modules that depend on a module.

        Raises:
            ValueError: the module was not seen.
        """
        if module_name not in self._dependants and module_name not in self._status:
            raise ValueError(f"Module with name {module_name} not found in dependency graph.")
        return list(dict.fromkeys(self._dependants.get(module_name, [])))

    def dependency_graph_string(self) -> str:
        """The dependencies in the language of Graphviz."""
        edges = [
            f'"{source}" -> "{target}";'
            for target, sources in self._dependants.items()
            for source in dict.fromkeys(sources)
        ]
        return "digraph G {\nrankdir = LR;\nnode [shape=box];\n" + "\n".join(edges) + "\n}\n"

    def close(self) -> None:
        """Completes the archive.

        Raises:
            PackagingError: modules without a rule, refused ones, or ones without source.
            EmptyMatchError: a pattern with `allow_empty=False` matched nothing.
        """
        if self._broken:
            self.zip_file.close()
            raise PackagingError(self._broken, self._debug)
        for rule in self._rules:
            if not rule.allow_empty and not rule.matched:
                self.zip_file.close()
                raise EmptyMatchError(
                    f"Exporter did not match any modules to {rule.group}, which was marked as "
                    "allow_empty=False"
                )
        self._write(".data/extern_modules", "\n".join(self.externed_modules()) + "\n")
        self._write(".data/python_version", platform.python_version())
        self._write(".data/version", "6\n")
        self.zip_file.close()

    def __enter__(self) -> PackageExporter:
        return self

    def __exit__(self, kind: Any, *exception: object) -> None:
        if kind is not None:
            self.zip_file.close()
            return
        self.close()


def _path_of(module_name: str, is_package: bool) -> str:
    path = module_name.replace(".", "/")
    return f"{path}/__init__.py" if is_package else f"{path}.py"


class _Pickler(pickle._Pickler):  # type: ignore[name-defined] # the one written in Python
    """Stores tensors beside the pickle, and classes of archives by the names they have there."""

    dispatch = pickle._Pickler.dispatch.copy()  # type: ignore[attr-defined]

    def __init__(
        self, file: Any, protocol: int, importer: Importer, tensors: list[Any], number: int
    ) -> None:
        super().__init__(file, protocol)
        self._importer, self._tensors, self._number = importer, tensors, number

    def persistent_id(self, obj: Any) -> Any:
        """Returns the identity of a tensor: the list and the position in it."""
        if not isinstance(obj, torch.Tensor):
            return None
        place = next((i for i, each in enumerate(self._tensors) if each is obj), None)
        if place is None:
            place = len(self._tensors)
            self._tensors.append(obj)
        return ("tensor", self._number, place)

    def save_global(self, obj: Any, name: str | None = None) -> None:
        """A class or function by its name."""
        module = getattr(obj, "__module__", None)
        if module is None or not mangling.is_mangled(module):
            super().save_global(obj, name)
            return
        module_name, qualified = self._importer.get_name(obj, name)
        self.write(pickle.GLOBAL + f"{module_name}\n{qualified}\n".encode())
        self.memoize(obj)

    dispatch[types.FunctionType] = save_global


def _modules_of(data: bytes) -> set[str]:
    """Modules whose classes or functions a pickle names."""
    modules, texts = set(), []  # type: ignore[var-annotated]
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name in ("GLOBAL", "INST"):
            modules.add(argument.split(" ")[0])
        elif opcode.name == "STACK_GLOBAL":
            modules.add(texts[-2])
        elif isinstance(argument, str):
            texts.append(argument)
    return modules
