"""Switches among the implementations of scaled dot-product attention.

There is one implementation, compiled for each shape. A choice decides which calls are refused, as
PyTorch refuses them on the CPU; it changes no result.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from flambeau.backends import attention
from flambeau.nn.attention.implementations import (
    activate_flash_attention_impl,
    current_flash_attention_impl,
    list_flash_attention_impls,
    register_flash_attention_impl,
    restore_flash_attention_impl,
)
from flambeau.nn.messages import problem
from flambeau.runtime import missing as _missing

__all__ = [
    "SDPBackend", "WARN_FOR_UNFUSED_KERNELS", "activate_flash_attention_impl",
    "current_flash_attention_impl", "list_flash_attention_impls", "register_flash_attention_impl",
    "restore_flash_attention_impl", "sdpa_kernel",
]  # fmt: skip

WARN_FOR_UNFUSED_KERNELS = False


class SDPBackend(enum.IntEnum):
    """PyTorch's implementations."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


_UNORDERED = (3, 1, 2, 0, 4)  # as PyTorch lists them where no order is asked for


def _cur_sdpa_kernel_backends(with_priority: bool = False) -> list[SDPBackend]:
    """The implementations that may be used now."""
    order = attention.switches.priority if with_priority else _UNORDERED
    allowed = (n for n in order if getattr(attention.switches, attention.KINDS[n]))
    return [SDPBackend(n) for n in allowed]


@contextmanager
def sdpa_kernel(backends: Any, set_priority: bool = False) -> Iterator[dict[Any, Any]]:
    """Chooses implementations for the time of a `with` block: calls that none takes raise.

    Sets the switches of `torch.backends.cuda` (`enable_math_sdp` and its kind), of all threads.
    What computes is the same for all of them, so the choice and its order change no bit.

    Raises:
        AssertionError: neither an `SDPBackend` nor a list of them.

    Example:
        >>> from flambeau.nn.attention import SDPBackend, sdpa_kernel
        >>> with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        ...     torch.backends.cuda.math_sdp_enabled()
        False
    """
    chosen = [backends] if isinstance(backends, SDPBackend) else backends
    if not isinstance(chosen, list):
        text = "Backend must be an instance of SDPBackend or a list of SDPBackend instances"
        text = f"{text}, got {type(chosen).__name__}"
        raise AssertionError(problem("sdpa_kernel", text, "SDPBackend.MATH"))
    numbers = [int(x) for x in chosen if isinstance(x, SDPBackend) and x >= 0]
    values: dict[str, Any] = {kind: n in numbers for n, kind in enumerate(attention.KINDS)}
    if set_priority:
        values["priority"] = tuple(dict.fromkeys([*numbers, *attention.switches.priority]))
    with attention.switched(**values):
        yield {}


# Distinguishes names of PyTorch that are missing here from misspelt ones.
globals()["__getattr__"] = _missing.getter(
    __name__, {}, ("bias", "flex_attention", "implementations", "varlen")
)
