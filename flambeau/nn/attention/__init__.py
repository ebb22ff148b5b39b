"""Which implementation scaled dot-product attention uses.

There is one implementation, compiled for each shape. A choice decides which calls are refused, as
PyTorch refuses them on the CPU; it changes no result.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import flambeau as torch
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


class _Choice(torch.overrides.TorchFunctionMode):
    """Refuses calls of attention that no chosen implementation of PyTorch takes."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """The call; RuntimeError for attention that the chosen implementations do not take."""
        kwargs = kwargs or {}
        if func is torch.nn.functional.scaled_dot_product_attention:
            check_viable(*args, **kwargs)
        return func(*args, **kwargs)


def check_viable(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    *_: Any,
    **__: Any,
) -> None:
    """Refuses a call that no chosen implementation takes; PyTorch's CPU has MATH and FLASH.

    Raises:
        RuntimeError: neither is chosen, or the second one cannot take the call.
    """
    if SDPBackend.MATH in _chosen:
        return
    if SDPBackend.FLASH_ATTENTION not in _chosen:
        text = "No viable backend for scaled_dot_product_attention was found"
        names = [getattr(backend, "name", backend) for backend in _chosen]
        hint = "SDPBackend.MATH or SDPBackend.FLASH_ATTENTION is there on the CPU"
        raise RuntimeError(problem("sdpa_kernel", f"{text} among {names}", hint))
    masked = attn_mask is not None and attn_mask.requires_grad
    if dropout_p or masked or any(x.ndim != 4 for x in (query, key, value)):
        text = "No available kernel: FLASH_ATTENTION takes four dimensions, no dropout and no "
        text += "mask that requires a gradient"
        raise RuntimeError(problem("sdpa_kernel", text, "add SDPBackend.MATH"))


_chosen: list[Any] = [
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
    SDPBackend.CUDNN_ATTENTION,
]


def _cur_sdpa_kernel_backends(with_priority: bool = False) -> list[Any]:
    """The implementations that may be used now."""
    return list(_chosen)


@contextmanager
def sdpa_kernel(backends: Any, set_priority: bool = False) -> Iterator[dict[Any, Any]]:
    """Chooses implementations for the time of a `with` block: calls that none takes raise.

    What computes is the same for all of them, so the choice and its order change no bit.

    Raises:
        AssertionError: neither an `SDPBackend` nor a list of them.
    """
    global _chosen
    chosen = [backends] if isinstance(backends, SDPBackend) else backends
    if not isinstance(chosen, (list, tuple)):
        text = "Backend must be an instance of SDPBackend or a list of SDPBackend instances"
        raise AssertionError(problem("sdpa_kernel", text, "SDPBackend.MATH"))
    before, _chosen = _chosen, list(chosen)
    try:
        with _Choice():
            yield {}
    finally:
        _chosen = before


# A name of PyTorch that is not here yet is told from a misspelt one.
globals()["__getattr__"] = _missing.getter(__name__)
