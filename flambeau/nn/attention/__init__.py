"""Which implementation scaled dot-product attention uses.

There is one implementation, compiled for each shape, so a choice is accepted and changes nothing.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from flambeau.nn.messages import problem
from flambeau.runtime import missing as _missing

__all__ = ["SDPBackend", "sdpa_kernel"]


class SDPBackend(enum.IntEnum):
    """PyTorch's implementations."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@contextmanager
def sdpa_kernel(backends: Any, set_priority: bool = False) -> Iterator[None]:
    """Accepts a choice of implementations for the time of a `with` block.

    Raises:
        AssertionError: neither an `SDPBackend` nor a list of them.
    """
    chosen = [backends] if isinstance(backends, SDPBackend) else backends
    if not isinstance(chosen, (list, tuple)):
        text = "Backend must be an instance of SDPBackend or a list of SDPBackend instances"
        raise AssertionError(problem("sdpa_kernel", text, "SDPBackend.MATH"))
    yield


# A name of PyTorch that is not here yet is told from a misspelt one.
globals()["__getattr__"] = _missing.getter(__name__)
