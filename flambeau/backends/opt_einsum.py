"""`torch.backends.opt_einsum`: a package that orders einsum's contractions, not used here.

Programs enable it where the package is installed; then the switches can be set. They never change
what `einsum` computes, which contracts its operands from left to right.
"""

from __future__ import annotations

import importlib.util
from typing import Any

from flambeau.backends.switches import install
from flambeau.ir.lock import late

__all__ = ["flags", "get_opt_einsum", "is_available", "set_flags"]


def is_available() -> bool:
    """Tell whether the package is installed."""
    return importlib.util.find_spec("opt_einsum") is not None


set_flags, flags = install(
    __name__, enabled=is_available(), strategy="auto" if is_available() else None
)


def get_opt_einsum() -> Any:
    """The package, or None."""
    return late("opt_einsum") if is_available() else None
