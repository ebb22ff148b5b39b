"""`torch.multiprocessing`: the standard module, whose queues and pipes send tensors.

A tensor that is sent to another process moves to shared memory, with all tensors over its storage:
no bytes go through the pipe, and both processes see each other's writes. Forked processes have
copies of what was not sent to them or moved by `tensor.share_memory_()`.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing import *  # noqa: F403 - this module is the standard one, extended

from flambeau.multiprocessing.reductions import init_reductions
from flambeau.multiprocessing.spawn import (
    ProcessContext,
    ProcessExitedException,
    ProcessRaisedException,
    SpawnContext,
    spawn,
    start_processes,
)
from flambeau.runtime import missing as _missing
from flambeau.runtime import shared

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


def get_all_sharing_strategies() -> set[str]:
    """Ways to share memory: by descriptors of anonymous files, or by files with a path."""
    return set(shared.STRATEGIES)


def get_sharing_strategy() -> str:
    """The way in use."""
    return shared.get_strategy()


def set_sharing_strategy(new_strategy: str) -> None:
    """Sets how storages are shared from now on.

    Raises:
        ValueError: no such strategy.
    """
    if new_strategy not in shared.STRATEGIES:
        raise ValueError(
            f"[multiprocessing] unknown sharing strategy {new_strategy!r}\n"
            f"hint: one of {sorted(shared.STRATEGIES)}"
        )
    shared.set_strategy(new_strategy)


init_reductions()

# Parts that are loaded on first access.
globals()["__getattr__"] = _missing.getter(
    __name__, submodules=("pool", "queue", "reductions", "spawn")
)
