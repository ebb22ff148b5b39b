"""`torch.utils.dlpack`: tensors exchanged with other libraries without a copy."""

from __future__ import annotations

from typing import Any

from flambeau import _core

__all__ = ["from_dlpack", "to_dlpack"]


def from_dlpack(ext_tensor: Any) -> Any:
    """A tensor over the memory of a DLPack capsule, or of an object with `__dlpack__`.

    Raises:
        RuntimeError: the memory is on a device, or of a dtype, that is not supported.

    Example:
        >>> from_dlpack(to_dlpack(torch.ones(2)))
        tensor([1., 1.])
    """
    return _core.from_dlpack(ext_tensor)


def to_dlpack(tensor: Any) -> Any:
    """A DLPack capsule over the tensor's memory; it can be consumed once."""
    return _core.to_dlpack(tensor)
