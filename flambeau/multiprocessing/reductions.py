"""`torch.multiprocessing.reductions`: how tensors and storages travel between processes.

A storage moves to shared memory when it is first sent, and travels as the descriptor or the path of
its file (`flambeau/runtime/shared.py`); a tensor as its storage with shape and strides.
"""

from __future__ import annotations

import os
import pickle
from multiprocessing import reduction
from typing import Any

from flambeau import _core
from flambeau.core.devices import has_data
from flambeau.ir.lock import importing, late
from flambeau.runtime.shared import leave_files_at_exit, share

__all__ = [
    "fd_id",
    "init_reductions",
    "rebuild_meta_tensor",
    "rebuild_storage_empty",
    "rebuild_storage_fd",
    "rebuild_storage_filename",
    "rebuild_tensor",
    "reduce_storage",
    "reduce_tensor",
]


def fd_id(fd: int) -> tuple[int, int]:
    """Returns a key that identifies an open file."""
    state = os.fstat(fd)
    return (state.st_ino, state.st_dev)


# ------------------------------------------------------------------------------ storages
def reduce_storage(storage: Any) -> Any:
    """How a storage is pickled for another process.

    Raises:
        RuntimeError: it has no memory, or is mapped from a file that others do not know.
    """
    untyped = getattr(storage, "_untyped_storage", storage)
    if not has_data(untyped):
        raise RuntimeError(
            "[multiprocessing] Cannot pickle meta storage; try pickling a meta tensor instead\n"
            "hint: send the tensor"
        )
    if untyped.nbytes() == 0:
        return rebuild_storage_empty, (type(storage),)
    place = _core._shared_file(share(untyped))
    if place is None:  # shared by other means: with forked processes only
        untyped = share(untyped.clone())
        place = _core._shared_file(untyped)
    assert place is not None
    descriptor, path = place
    if path:
        _core._add_shared_user(untyped)
        return rebuild_storage_filename, (type(storage), b"", path, untyped.nbytes())
    handle = reduction.DupFd(descriptor)
    return rebuild_storage_fd, (type(storage), handle, untyped.nbytes())


def rebuild_storage_fd(cls: Any, df: Any, size: int) -> Any:
    """A storage of class `cls` from the descriptor of its file."""
    return _mapped(df.detach(), size)


def rebuild_storage_filename(
    cls: Any, manager: Any, handle: str, size: int, dtype: Any = None
) -> Any:
    """A storage of class `cls` from the path of its file."""
    leave_files_at_exit()
    path = handle.decode() if isinstance(handle, bytes) else handle
    return _mapped(os.open(path, os.O_RDWR | os.O_CLOEXEC), size, path)


def _mapped(descriptor: int, size: int, path: str = "") -> Any:
    try:
        return _core._map_shared(descriptor, size, path)
    except BaseException:
        os.close(descriptor)
        raise


def rebuild_storage_empty(cls: Any) -> Any:
    """An empty storage."""
    return _core.UntypedStorage(0)


# ------------------------------------------------------------------------------ tensors
def reduce_tensor(tensor: Any) -> Any:
    """How a tensor is pickled for another process.

    Raises:
        RuntimeError: it was computed from others that require gradients.
    """
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError(
            "[multiprocessing] Cowardly refusing to serialize non-leaf tensor which requires_grad, "
            "since autograd does not support crossing process boundaries\n"
            "hint: send tensor.detach()"
        )
    return tensor.__reduce_ex__(pickle.HIGHEST_PROTOCOL)


def rebuild_tensor(cls: Any, storage: Any, metadata: Any) -> Any:
    """A tensor of class `cls` from a storage and (offset, size, stride, requires_grad)."""
    with importing:
        from flambeau.nn.parameter import Parameter

    offset, size, stride, requires_grad = metadata
    untyped = getattr(storage, "_untyped_storage", storage)
    dtype = getattr(storage, "dtype", _core.get_default_dtype())
    tensor = _core.tensor_from_storage(untyped, dtype, size, stride, offset)
    if cls is Parameter:
        return Parameter(tensor, requires_grad=requires_grad)
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
    tensor = _core.tensor_empty_strided(tensor_size, tensor_stride, dtype, "meta")
    return tensor.requires_grad_(requires_grad)


def _refuse(name: str) -> Any:
    def function(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            f"[{name}] needs a device beside the CPU\nhint: send the tensor's copy on the CPU"
        )

    function.__name__ = function.__qualname__ = name
    function.__doc__ = "Raises RuntimeError: there is no device beside the CPU."
    return function


for _name in ("rebuild_cuda_tensor", "rebuild_event", "reduce_event"):
    globals()[_name] = _refuse(_name)


def init_reductions() -> None:
    """Registers how tensors travel: done when `torch.multiprocessing` is imported."""
    reduction.ForkingPickler.register(_core.UntypedStorage, reduce_storage)
    reduction.ForkingPickler.register(_core.Tensor, reduce_tensor)


def __getattr__(name: str) -> Any:
    """PyTorch's other names of this module."""
    if not name.startswith("__"):
        older = late("flambeau.multiprocessing._older_reductions")
        if name in older.__all__:
            return getattr(older, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
