"""The operator library: one module per family, each operator written once.

Every module of this package is a family and is imported here, so a new family is a new file and
nothing else. Importing only records definitions; `core.install` makes them callable.
"""

from __future__ import annotations

import gc
from importlib import import_module

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
