"""`torch.backends`: which libraries operators may call, and how. This build calls none of them."""

from __future__ import annotations

from typing import Any

from flambeau.ir.lock import late
from flambeau.runtime import missing

__all__ = [
    "cpu", "cuda", "cudnn", "cusparselt", "disable_global_flags", "flags_frozen", "miopen", "mkl",
    "mkldnn", "mps", "nnpack", "openmp", "opt_einsum", "quantized",
]  # fmt: skip
fp32_precision = "none"
_frozen = False


def disable_global_flags() -> None:
    """Notes that switches should not be set any more; they stay settable here."""
    global _frozen
    _frozen = True


def flags_frozen() -> bool:
    """Whether `disable_global_flags` was called."""
    return _frozen


def __getattr__(name: str) -> Any:
    if name in __all__:
        return late(f"flambeau.backends.{name}")
    missing.refuse(__name__, name)
