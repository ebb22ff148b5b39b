"""`torch.distributed.elastic.multiprocessing.errors`: `record` for entry points of programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.runtime import missing as _missing

__all__ = ["ChildFailedError", "ErrorHandler", "ProcessFailure", "record"]


class ChildFailedError(Exception):
    """A process of a group failed; never raised without a launcher."""


class ErrorHandler:
    """Writes an error for the launcher; there is none."""


class ProcessFailure:
    """The report of a failed process; nothing creates one without a launcher."""


def record(fn: Callable[..., Any], error_handler: Any = None) -> Callable[..., Any]:
    """The function itself: no launcher waits for its errors.

    Args:
        fn: the entry point of a program.
        error_handler: unused.
    """
    return fn


globals()["__getattr__"] = _missing.getter(__name__)
