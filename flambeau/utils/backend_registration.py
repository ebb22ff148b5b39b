"""`torch.utils.backend_registration`: names of devices that other packages add."""

from __future__ import annotations

from typing import Any

__all__ = ["generate_methods_for_privateuse1_backend", "rename_privateuse1_backend"]

_HINT = "\nhint: this build computes on the CPU; devices of other packages cannot be added"


def rename_privateuse1_backend(backend_name: str) -> None:
    """Names a device that another package adds; raises NotImplementedError."""
    raise NotImplementedError(
        f"[rename_privateuse1_backend] no device of another package: {backend_name!r}{_HINT}"
    )


def generate_methods_for_privateuse1_backend(
    for_tensor: bool = True,
    for_module: bool = True,
    for_packed_sequence: bool = True,
    for_storage: bool = False,
    unsupported_dtype: Any = None,
) -> None:
    """Adds methods for such a device; raises NotImplementedError."""
    raise NotImplementedError(
        f"[generate_methods_for_privateuse1_backend] no device of another package{_HINT}"
    )
