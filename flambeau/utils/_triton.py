"""`torch.utils._triton`: whether Triton is there. Kernels are compiled without it: it is not."""

from __future__ import annotations

__all__ = ["has_triton", "has_triton_package", "has_triton_tma", "has_triton_tma_device"]


def has_triton_package() -> bool:
    """Returns False: kernels are compiled without Triton."""
    return False


def has_triton() -> bool:
    """Returns False: there is no GPU that Triton would compile for."""
    return False


def has_triton_tma() -> bool:
    """Returns False: there is no GPU with this unit."""
    return False


def has_triton_tma_device() -> bool:
    """Returns False: there is no GPU with this unit."""
    return False
