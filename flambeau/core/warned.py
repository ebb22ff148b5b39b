"""Warnings of operators: raised while a class of calls is traced, reported at the user's line.

The plan of a call that warned is not stored on disk, so each process warns once per class of calls.
A definition may run a second time before its call is known; `held` defers the warnings of a run
until it is known whether that run counts.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Iterator
from contextvars import ContextVar

from flambeau.runtime.switches import is_warn_always_enabled

_HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_told: set[str] = set()
_count = 0


Told = list[tuple[str, type[Warning], bool]]
# The warnings of the run that goes on in this thread, if it is one that may be dropped.
_run: ContextVar[Told | None] = ContextVar("flambeau_warnings", default=None)


def count() -> int:
    """How many warnings there were."""
    return _count


def _level() -> int:
    """The number of frames between `warn` and the first one outside of this package."""
    frame, level = sys._getframe(2), 2
    inside = (_HOME, contextlib.__file__)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(inside):
        frame, level = frame.f_back, level + 1
    return level


def _tell(text: str, category: type[Warning], once: bool) -> None:
    told = _run.get()
    if told is not None:
        told.append((text, category, once))
    elif not once or text not in _told or is_warn_always_enabled():
        if once:
            _told.add(text)
        warnings.warn(text, category, stacklevel=_level())


@contextlib.contextmanager
def held() -> Iterator[Told]:
    """Defers the warnings of a run; those left in the list at its end are emitted then."""
    told: Told = []
    token = _run.set(told)
    try:
        yield told
    finally:
        _run.reset(token)
        for text, category, once in told:
            _tell(text, category, once)


def warn(text: str, category: type[Warning] = UserWarning) -> None:
    """Warns at the user's line."""
    global _count
    _count += 1
    _tell(text, category, once=False)


def warn_once(text: str, category: type[Warning] = UserWarning) -> None:
    """Warns once per process, unless `set_warn_always` says otherwise."""
    global _count
    _count += 1  # also of a repetition: another process may see this call first
    _tell(text, category, once=True)
