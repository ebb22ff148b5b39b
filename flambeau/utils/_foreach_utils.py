"""`torch.utils._foreach_utils`: which devices have operators of lists of tensors."""

from __future__ import annotations

from typing import Any

__all__: list[str] = []


def _get_foreach_kernels_supported_devices() -> list[str]:
    return ["cpu", "cuda", "xpu", "mps"]


def _get_fused_kernels_supported_devices() -> list[str]:
    return ["cpu", "mps", "cuda", "xpu"]


def _has_foreach_support(tensors: list[Any], device: Any) -> bool:
    return device.type in {"cpu", *_get_foreach_kernels_supported_devices()} and all(
        tensor is None or hasattr(tensor, "device") for tensor in tensors
    )


def _device_has_foreach_support(device: Any) -> bool:
    return device.type in {"cpu", *_get_foreach_kernels_supported_devices()}


def _group_tensors_by_device_and_dtype(
    tensorlistlist: list[list[Any]], with_indices: bool = False
) -> dict[Any, Any]:
    """Lists of tensors, divided by device and dtype of the first list's tensors."""
    groups: dict[Any, Any] = {}
    for position, tensor in enumerate(tensorlistlist[0]):
        key = (tensor.device, tensor.dtype)
        lists, indices = groups.setdefault(key, ([[] for _ in tensorlistlist], []))
        for target, source in zip(lists, tensorlistlist, strict=True):
            if source:
                target.append(source[position])
        if with_indices:
            indices.append(position)
    return groups
