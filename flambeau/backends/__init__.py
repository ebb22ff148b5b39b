"""`torch.backends`: which libraries operators may call, and how. This build calls none of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from flambeau.ir.lock import late
from flambeau.runtime import missing

__all__ = [
    "cpu", "cuda", "cudnn", "cusparselt", "disable_global_flags", "flags_frozen", "kleidiai",
    "mha", "miopen", "mkl", "mkldnn", "mps", "nnpack", "openmp", "opt_einsum", "python_native",
    "quantized", "xnnpack",
]  # fmt: skip
fp32_precision = "none"
_frozen = False
_SWITCHES = ("ContextProp", "GenericModule", "PropModule")


def set_flags(_fp32_precision: str = "none") -> tuple[str, ...]:
    """Stores the precision of float32 that all libraries may use; returns the one before."""
    global fp32_precision
    before = fp32_precision
    fp32_precision = _fp32_precision
    return (before,)


@contextlib.contextmanager
def flags(fp32_precision: str = "none") -> Iterator[None]:
    """A `with` block with another precision of float32."""
    before = set_flags(fp32_precision)
    try:
        yield
    finally:
        set_flags(*before)


def disable_global_flags() -> None:
    """Notes that switches should not be set any more; they stay settable here."""
    global _frozen
    _frozen = True


def flags_frozen() -> bool:
    """Whether `disable_global_flags` was called."""
    return _frozen


@contextlib.contextmanager
def __allow_nonbracketed_mutation() -> Iterator[None]:  # noqa: N807 - PyTorch's name
    """A `with` block in which switches may be set; they may be set anywhere here."""
    yield


def __getattr__(name: str) -> Any:
    if name in _SWITCHES:
        return getattr(late("flambeau.backends.switches"), name)
    if name in __all__:
        return late(f"flambeau.backends.{name}")
    missing.refuse(__name__, name)
