"""`import torch` means Flambeau: for programs written for PyTorch, unchanged.

`python -m flambeau script.py` runs such a program; `flambeau.compat.install()` does the same for
the process that calls it. A module has one object, whichever name it was imported by:
`sys.modules["torch.nn"] is sys.modules["flambeau.nn"]`. Classes and functions say that they are
PyTorch's (`torch.Tensor.__module__ == "torch"`), so that files which name them can be exchanged.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.metadata
import importlib.util
import sys
import types
from collections.abc import Iterator, Sequence
from importlib.abc import InspectLoader, Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import flambeau
from flambeau.torch_version import __version__ as _torch_version

__all__ = ["PATH", "install", "is_installed"]

PATH = str(Path(__file__).parent / "path")
"""A directory whose package `torch` installs the alias: for `sys.path` and PYTHONPATH."""

_OWN, _ALIAS = "flambeau", "torch"
_BESIDE = {  # packages that come with PyTorch
    "functorch": "flambeau._functorch.former",
    "functorch.compile": "flambeau._functorch.former.compile",
}


def _alias_of(name: str) -> str:
    """PyTorch's name of one of our modules."""
    return _ALIAS + name.removeprefix(_OWN)


def _is_own(name: object) -> bool:
    return isinstance(name, str) and (name == _OWN or name.startswith(f"{_OWN}."))


class _AliasLoader(InspectLoader):
    """Loads `torch.x` as the module object of `flambeau.x`."""

    def __init__(self, own: ModuleSpec) -> None:
        self._own = own

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        module = importlib.import_module(self._own.name)
        self._kept = module.__spec__  # importlib overwrites it before it calls exec_module
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        module.__spec__ = self._kept

    def _inner(self) -> InspectLoader:
        loader = self._own.loader
        if isinstance(loader, _OwnLoader):
            loader = loader._inner
        if not isinstance(loader, InspectLoader):
            raise ImportError(f"no source of {self._own.name}", name=self._own.name)
        return loader

    def is_package(self, fullname: str) -> bool:
        return self._own.submodule_search_locations is not None

    def get_code(self, fullname: str) -> types.CodeType | None:
        return self._inner().get_code(self._own.name)

    def get_source(self, fullname: str) -> str | None:
        return self._inner().get_source(self._own.name)


class _OwnLoader(Loader):
    """Loads one of our modules as its own loader does, then gives it PyTorch's names."""

    def __init__(self, inner: Loader) -> None:
        self._inner = inner

    def create_module(self, spec: ModuleSpec) -> types.ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._inner
        alias = _alias_of(module.__name__)
        sys.modules.setdefault(alias, module)  # for imports in a circle
        try:
            self._inner.exec_module(module)
        except BaseException:
            sys.modules.pop(alias, None)
            raise
        _rename(module)


class _Finder(MetaPathFinder):
    """Finds `torch.*` among our modules, and renames ours as they are loaded."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: Any = None
    ) -> ModuleSpec | None:
        if name.startswith(f"{_OWN}."):
            return self._find_own(name, path)
        if name not in (_ALIAS, *_BESIDE) and not name.startswith(f"{_ALIAS}."):
            return None
        try:
            own = importlib.util.find_spec(_BESIDE.get(name) or _OWN + name.removeprefix(_ALIAS))
        except ModuleNotFoundError:  # of a parent
            own = None
        if own is None:
            return None
        spec = ModuleSpec(
            name,
            _AliasLoader(own),
            origin=own.origin,
            is_package=own.submodule_search_locations is not None,
        )
        spec.submodule_search_locations = own.submodule_search_locations
        return spec

    def _find_own(self, name: str, path: Sequence[str] | None) -> ModuleSpec | None:
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _OwnLoader(spec.loader)
        return spec

    def find_distributions(
        self, context: importlib.metadata.DistributionFinder.Context | None = None
    ) -> Iterator[importlib.metadata.Distribution]:
        """The distribution "torch", for `importlib.metadata.version` and its like."""
        concerned = context is None or context.name is None or context.name.lower() == _ALIAS
        if concerned and not _has_distribution():
            yield _Distribution()


def _has_distribution() -> bool:
    """Whether `./go wheel --torch-alias` was installed, which says all this itself."""
    named = importlib.metadata.MetadataPathFinder.find_distributions(
        importlib.metadata.DistributionFinder.Context(name=_ALIAS)
    )
    return any("flambeau" in distribution.version for distribution in named)


class _Distribution(importlib.metadata.Distribution):
    """The metadata that programs read about the installed "torch"."""

    _TEXTS = {
        "METADATA": f"Metadata-Version: 2.1\nName: {_ALIAS}\nVersion: {_torch_version}\n"
        "Summary: Flambeau under PyTorch's name\n",
        "top_level.txt": f"{_ALIAS}\n",
    }

    def read_text(self, filename: str) -> str | None:
        return self._TEXTS.get(filename)

    def locate_file(self, path: Any) -> Any:
        return Path(PATH) / path


def _rename(module: types.ModuleType) -> None:
    """Registers a module under its second name; it and its definitions say that name.

    Native modules are not renamed: PyTorch has none of these names.
    """
    sys.modules.setdefault(_alias_of(module.__name__), module)
    module.__name__ = _alias_of(module.__name__)
    for value in tuple(vars(module).values()):
        function = getattr(value, "__wrapped__", value)  # of an operator's public function
        defined = getattr(function, "__module__", None)
        if not _is_own(defined) or not isinstance(function, (type, types.FunctionType)):
            continue
        try:
            function.__module__ = _alias_of(defined)
        except (AttributeError, TypeError):  # a type that cannot be changed
            continue


def is_installed() -> bool:
    """Whether `import torch` gives Flambeau in this process.

    Example:
        >>> import flambeau.compat
        >>> flambeau.compat.is_installed()
        False
    """
    return sys.modules.get(_ALIAS) is flambeau


def install() -> None:
    """Makes `import torch` and `import torch.x` give Flambeau's modules, in this process.

    Processes that it starts by `multiprocessing` do so as well. Calling it again changes nothing.

    Raises:
        RuntimeError: PyTorch itself is imported already.
    """
    if is_installed():
        return
    present = sys.modules.get(_ALIAS)
    if present is not None and not hasattr(present, "__flambeau__"):
        raise RuntimeError(
            f"[compat] cannot install the alias: PyTorch {getattr(present, '__version__', '')} is "
            "imported already\nhint: call flambeau.compat.install() before anything imports torch, "
            "or run the program by `python -m flambeau`"
        )
    sys.meta_path.insert(0, _Finder())
    if PATH not in sys.path:
        sys.path.insert(0, PATH)
    sys.modules[_ALIAS] = flambeau
    for name, module in tuple(sys.modules.items()):
        if _is_own(name) and isinstance(module, types.ModuleType):
            _rename(module)
