"""Queries of worker processes about themselves, under PyTorch's private module name."""

from __future__ import annotations

from typing import Any

from flambeau.runtime import missing as _missing
from flambeau.utils.data.worker import WorkerInfo, get_worker_info
from flambeau.utils.data.worker import generate_state as _generate_state

__all__ = ["WorkerInfo", "_generate_state", "get_worker_info"]


def __getattr__(name: str) -> Any:
    """`_worker_info`, PyTorch's variable of the process; None in the main process."""
    if name == "_worker_info":
        return get_worker_info()
    _missing.refuse(__name__, name)
