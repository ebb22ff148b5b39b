"""`torch.profiler.itt`: marks for Intel's VTune, which this build has not."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NoReturn

__all__ = ["is_available", "mark", "range", "range_pop", "range_push"]


def _refuse() -> NoReturn:
    raise RuntimeError(
        "ITT functions not installed. Are you sure you have a ITT build?\n"
        "hint: use torch.profiler.record_function"
    )


def is_available() -> bool:
    """Whether marks can be made: no."""
    return False


def range_push(msg: str) -> NoReturn:
    """Begins a named range; raises RuntimeError."""
    _refuse()


def range_pop() -> NoReturn:
    """Ends a range; raises RuntimeError."""
    _refuse()


def mark(msg: str) -> NoReturn:
    """Marks a moment; raises RuntimeError."""
    _refuse()


@contextlib.contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:  # noqa: A001 - PyTorch's name
    """A block that is a named range; raises RuntimeError."""
    range_push(msg.format(*args, **kwargs))
    yield
