"""`torch.multiprocessing.pool`: a pool of processes that send tensors through shared memory."""

from __future__ import annotations

import gc
import multiprocessing.pool
from typing import Any

import flambeau.multiprocessing  # noqa: F401 - registers how tensors are sent

__all__ = ["Pool", "clean_worker"]


def clean_worker(*args: Any, **kwargs: Any) -> None:
    """A worker process: collects what cycles hold when it ends."""
    multiprocessing.pool.worker(*args, **kwargs)  # type: ignore[attr-defined]
    gc.collect()


class Pool(multiprocessing.pool.Pool):
    """A pool of processes, see `multiprocessing.Pool`."""
