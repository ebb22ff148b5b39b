"""Warnings of operators: raised where a class of calls is traced, told of the user's line.

A call that warned is not kept on disk, so each process sees the warning once per class of calls.
"""

from __future__ import annotations

import os
import sys
import warnings

from flambeau.runtime.switches import is_warn_always_enabled

__all__ = ["count", "warn", "warn_once"]

_HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_told: set[str] = set()
_count = 0


def count() -> int:
    """How many warnings there were."""
    return _count


def _level() -> int:
    """The number of frames between `warn` and the first one outside of this package."""
    frame, level = sys._getframe(2), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HOME):
        frame, level = frame.f_back, level + 1
    return level


def warn(text: str, category: type[Warning] = UserWarning) -> None:
    """Warns at the user's line."""
    global _count
    _count += 1
    warnings.warn(text, category, stacklevel=_level())


def warn_once(text: str, category: type[Warning] = UserWarning) -> None:
    """Warns once per process, unless `set_warn_always` says otherwise."""
    global _count
    _count += 1  # also of a repetition: another process may see this call first
    if text in _told and not is_warn_always_enabled():
        return
    _told.add(text)
    warnings.warn(text, category, stacklevel=_level())
