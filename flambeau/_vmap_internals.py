"""`torch._vmap_internals`: the older private names of `vmap`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.func import vmap
from flambeau.runtime import missing as _missing

__all__ = ["_vmap", "vmap"]


def _vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    allow_none_pass_through: bool = False,
) -> Callable[..., Any]:
    """`vmap` for functions that may return None for a result, as gradients are."""
    return vmap(func, in_dims, out_dims)


globals()["__getattr__"] = _missing.getter(__name__)
