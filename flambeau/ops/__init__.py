"""The operator library: one module per family, each operator written once.

Families lie in folders by role. Every module below this package is imported here, so a new family
is a new file and nothing else. Importing only records definitions; `core.install` makes them
callable.
"""

from __future__ import annotations

import gc
import os
from importlib import import_module
from typing import Any

from flambeau.ir.lock import late
from flambeau.ir.modules import module_names


def _families() -> tuple[str, ...]:
    """Modules of this package and of its folders, dotted, in the order in which they load."""
    names: list[str] = []
    for name in module_names(__path__):
        folder = f"{__path__[0]}/{name}"
        below = module_names([folder]) if os.path.isdir(folder) else ()
        names += [f"{name}.{each}" for each in below] or [name]
    return tuple(names)


FAMILIES: tuple[str, ...] = _families()

_collecting = gc.isenabled()
gc.disable()  # thousands of objects that live as long as the process: none is garbage
try:
    for _family in FAMILIES:
        import_module(f"{__name__}.{_family}")
finally:
    if _collecting:
        gc.freeze()
        gc.enable()


def __getattr__(name: str) -> Any:
    """The operators of a namespace, as of `torch.ops.mylib`: there may be none yet.

    `prims` has the primitives, `higher_order` the operators that take functions
    (`flambeau/_higher_order_ops`). Namespaces of libraries that are not installed are empty, and an
    operator that is read from them raises AttributeError, as in PyTorch.
    """
    if name.startswith("__") or name == "":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in ("load_library", "loaded_libraries"):
        return getattr(late("flambeau.library.extensions"), name)
    if name == "prims":
        globals()[name] = late("flambeau.decompositions.primitive_operators").namespace
    return late("flambeau.library.operators").open_namespace(name)
