"""`torch.multiprocessing.reductions`: how tensors and storages travel between processes.

A storage travels as the descriptor of an anonymous shared file; a tensor as its storage with shape
and strides.
"""

from __future__ import annotations

import os
from typing import Any

import flambeau as torch
from flambeau import multiprocessing as _parent

__all__ = [
    "fd_id",
    "init_reductions",
    "rebuild_meta_tensor",
    "rebuild_tensor",
    "reduce_storage",
    "reduce_tensor",
]

rebuild_storage_fd = _parent._rebuild_storage
reduce_storage = _parent._reduce_storage
reduce_tensor = _parent._reduce_tensor


def fd_id(fd: int) -> tuple[int, int]:
    """What tells one open file from another."""
    state = os.fstat(fd)
    return (state.st_ino, state.st_dev)


def rebuild_tensor(cls: Any, storage: Any, metadata: Any) -> Any:
    """A tensor of class `cls` from a storage and (offset, size, stride, requires_grad)."""
    offset, size, stride, requires_grad = metadata
    untyped = getattr(storage, "_untyped_storage", storage)
    dtype = getattr(storage, "dtype", torch.get_default_dtype())
    tensor = torch.empty(0, dtype=dtype).set_(untyped, offset, size, stride)
    if cls is torch.nn.Parameter:
        return torch.nn.Parameter(tensor, requires_grad=requires_grad)
    return tensor.requires_grad_(requires_grad)


def rebuild_meta_tensor(
    tensor_cls: Any,
    tensor_size: Any,
    tensor_stride: Any,
    tensor_offset: int,
    dtype: Any,
    storage_size_bytes: int,
    requires_grad: bool,
) -> Any:
    """A tensor without data, of device "meta"."""
    tensor = torch.empty_strided(tensor_size, tensor_stride, dtype=dtype, device="meta")
    return tensor.requires_grad_(requires_grad)


def _refuse(name: str) -> Any:
    def function(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            f"[{name}] needs a device beside the CPU, or memory under a file's name\n"
            "hint: storages travel as file descriptors"
        )

    function.__name__ = function.__qualname__ = name
    function.__doc__ = "Raises RuntimeError: storages travel as file descriptors."
    return function


for _name in (
    "rebuild_cuda_tensor", "rebuild_event", "rebuild_storage_filename", "reduce_event",
):  # fmt: skip
    globals()[_name] = _refuse(_name)


def rebuild_storage_empty(cls: Any) -> Any:
    """An empty storage."""
    return cls()


def init_reductions() -> None:
    """Registers how tensors travel: done when `torch.multiprocessing` is imported."""
