"""`torch.cuda.amp.common`: whether mixed precision can work on a GPU."""

from __future__ import annotations

__all__ = ["amp_definitely_not_available"]


def amp_definitely_not_available() -> bool:
    """True: there is no CUDA in this build."""
    return True
