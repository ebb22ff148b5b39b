"""The modules of a package, by their files, and the names that they have.

`module_names` is like `pkgutil.iter_modules`, for packages that lie in plain folders: that one
loads `inspect` to tell modules by their names, a tenth of the time that `import flambeau` may take.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any


def module_names(folders: Iterable[str]) -> tuple[str, ...]:
    """Names of the modules and packages in a package's folders (its `__path__`), sorted."""
    names = set()
    for folder in folders:
        for file in os.scandir(folder):
            stem, _, ending = file.name.partition(".")
            if ending.endswith(("py", "pyc", "so", "pyd")) or _is_package(file):
                names.add(stem)
    return tuple(sorted(names - {"__init__"}))


def _is_package(file: os.DirEntry[str]) -> bool:
    return file.name.isidentifier() and os.path.exists(os.path.join(file.path, "__init__.py"))


def module_of(value: Any) -> str:
    """Our name of the module that defines a class or function.

    Under the alias (`flambeau.compat`) they say PyTorch's: "torch.nn" for "flambeau.nn".
    """
    name = str(getattr(value, "__module__", None) or "")
    public = name == "torch" or name.startswith("torch.")
    return "flambeau" + name.removeprefix("torch") if public else name
