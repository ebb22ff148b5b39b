"""`torch.multiprocessing`: the standard module, whose queues and pipes send tensors.

A tensor sent to another process is copied once into an anonymous shared file, which the receiver
maps: no bytes go through the pipe. To let processes write to the same tensor, call
`tensor.share_memory_()` and pass it to processes that are forked afterwards.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import pickle
from multiprocessing import *  # noqa: F403 - this module is the standard one, extended
from multiprocessing import reduction
from typing import Any

from flambeau import _core
from flambeau.multiprocessing.spawn import (
    ProcessContext,
    ProcessExitedException,
    ProcessRaisedException,
    SpawnContext,
    spawn,
    start_processes,
)
from flambeau.runtime import missing as _missing

__all__ = [
    *multiprocessing.__all__,
    "ProcessContext",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SpawnContext",
    "get_all_sharing_strategies",
    "get_sharing_strategy",
    "set_sharing_strategy",
    "spawn",
    "start_processes",
]

_STRATEGIES = frozenset({"file_descriptor"})


def get_all_sharing_strategies() -> set[str]:
    """Ways to share memory: descriptors of anonymous files."""
    return set(_STRATEGIES)


def get_sharing_strategy() -> str:
    """The way in use."""
    return "file_descriptor"


def set_sharing_strategy(new_strategy: str) -> None:
    """Accepts the one strategy there is.

    Raises:
        ValueError: another one.
    """
    if new_strategy not in _STRATEGIES:
        raise ValueError(
            f"[multiprocessing] unknown sharing strategy {new_strategy!r}\n"
            "hint: 'file_descriptor' is the only one"
        )


def _rebuild_storage(descriptor: Any, length: int) -> Any:
    """A storage from the descriptor of its file, in the process that received it."""
    handle = descriptor.detach()
    try:
        mapped = mmap.mmap(handle, length)
    finally:
        os.close(handle)
    return _core.storage_from_buffer(memoryview(mapped), shared=True)


def _reduce_storage(storage: Any) -> Any:
    """How a storage is pickled for another process: as a file's descriptor and length."""
    if not storage.nbytes() or not hasattr(os, "memfd_create"):
        return storage.__reduce__()
    handle = os.memfd_create("flambeau", os.MFD_CLOEXEC)
    try:
        view, done = storage._view().cast("B"), 0
        while done < len(view):
            done += os.pwrite(handle, view[done : done + 2**30], done)
        return _rebuild_storage, (reduction.DupFd(handle), storage.nbytes())
    finally:
        os.close(handle)


def _reduce_tensor(tensor: Any) -> Any:
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


reduction.ForkingPickler.register(_core.UntypedStorage, _reduce_storage)
reduction.ForkingPickler.register(_core.Tensor, _reduce_tensor)

# Parts that are loaded when a program asks for them.
globals()["__getattr__"] = _missing.getter(
    __name__, submodules=("pool", "queue", "reductions", "spawn")
)
