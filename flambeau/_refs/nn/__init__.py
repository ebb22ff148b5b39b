"""`torch._refs.nn`: references of functions of layers, in `functional`."""

from __future__ import annotations

from flambeau._refs.nn import functional

__all__ = ["functional"]
