"""`torch.utils.dlpack`: tensors exchanged with other libraries without a copy."""

from __future__ import annotations

import enum
from typing import Any

from flambeau import _core

__all__ = ["DLDeviceType", "from_dlpack", "to_dlpack"]


class DLDeviceType(enum.IntEnum):
    """DLPack's numbers of devices."""

    kDLCPU = 1
    kDLCUDA = 2
    kDLCUDAHost = 3
    kDLOpenCL = 4
    kDLVulkan = 7
    kDLMetal = 8
    kDLVPI = 9
    kDLROCM = 10
    kDLROCMHost = 11
    kDLExtDev = 12
    kDLCUDAManaged = 13
    kDLOneAPI = 14
    kDLWebGPU = 15
    kDLHexagon = 16
    kDLMAIA = 17


def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Any:
    """A tensor over the memory of a DLPack capsule, or of an object with `__dlpack__`.

    Args:
        ext_tensor: capsule or object.
        device: where the result is; None: where the memory is.
        copy: whether it has memory of its own; None: only where it moves.

    Raises:
        RuntimeError: the memory is on a device, or of a dtype, that is not supported.

    Example:
        >>> from_dlpack(to_dlpack(torch.ones(2)))
        tensor([1., 1.])
    """
    tensor = _core.from_dlpack(ext_tensor)
    if device is not None:
        tensor = tensor.to(device)
    return tensor.clone() if copy else tensor


def to_dlpack(tensor: Any) -> Any:
    """A DLPack capsule over the tensor's memory; it can be consumed once."""
    return _core.to_dlpack(tensor)
