"""From a traced graph to a plan: stages, scheduling, code generation, cache.

Also PyTorch's `torch.compiler` namespace; those names live in `flambeau.capture` and are looked up
on first use, so that nothing here imports what stands above it.
"""

from importlib import import_module
from typing import Any

from flambeau.ir.lock import late

_PUBLIC = {
    "compile": "flambeau.capture.regions",
    "disable": "flambeau.capture.regions",
    "explain": "flambeau.capture.regions",
    "is_compiling": "flambeau.capture.regions",
    "reset": "flambeau.capture.regions",
    "stages": "flambeau.capture.stages",
}


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(late(_PUBLIC[name]), name)
    if name == "cache":  # in no cycle of imports; `from flambeau.compiler import cache` asks here
        return import_module("flambeau.compiler.cache")
    from flambeau.runtime import missing

    missing.refuse(__name__, name)
