"""`torch.backends.nnpack`: a library of convolutions, which this build does not use."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

__all__ = ["flags", "is_available", "set_flags"]

_enabled = True


def set_flags(_enabled: bool) -> tuple[bool]:  # noqa: PT028
    """Stores whether the library may be used; returns the switch before."""
    before = globals()["_enabled"]
    globals()["_enabled"] = _enabled
    return (before,)


@contextlib.contextmanager
def flags(enabled: bool = False) -> Iterator[None]:
    """A `with` block with another switch."""
    before = set_flags(enabled)
    try:
        yield
    finally:
        set_flags(*before)


def is_available() -> bool:
    """False: convolutions are kernels of our own."""
    return False
