"""The operator library: one module per family, each operator written once.

Every module of this package is a family and is imported here, so a new family is a new file and
nothing else. Importing only records definitions; `core.install` makes them callable.
"""

from __future__ import annotations

import gc
from importlib import import_module
from typing import Any

from flambeau.ir.lock import late
from flambeau.ir.modules import module_names

FAMILIES: tuple[str, ...] = module_names(__path__)

_collecting = gc.isenabled()
gc.disable()  # thousands of objects that live as long as the process: nothing to find among them
try:
    for _family in FAMILIES:
        import_module(f"{__name__}.{_family}")
finally:
    if _collecting:
        gc.enable()


def __getattr__(name: str) -> Any:
    """The operators of a namespace, as of `torch.ops.mylib`: there may be none yet.

    `prims`, `higher_order` and namespaces of libraries that are not installed are empty, and an
    operator that is read from them raises AttributeError, as in PyTorch.
    """
    if name.startswith("__") or name == "":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in ("load_library", "loaded_libraries"):
        return getattr(late("flambeau.library.extensions"), name)
    return late("flambeau.library.operators").open_namespace(name)
