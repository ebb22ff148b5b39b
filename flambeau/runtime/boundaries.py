"""Points that a recorded graph must not span: changes of state that no operator call shows.

A recorder (`flambeau/_dynamo/recorder.py`) delays operators. Code that changes how later operators
run (autocast, saved-tensor hooks, seeds, transformations) reports it here first, so that delayed
operators run in the state in which they were called.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

PRINTING = "the text of a tensor"  # the reason of a flush


class _Local(threading.local):
    recorder: Any = None


local = _Local()


def crossing(reason: str) -> None:
    """Runs the delayed operators of this thread, if there are any.

    Args:
        reason: names the change of state, for reports.
    """
    if local.recorder is not None:
        local.recorder.interrupt(reason)


def outside(reason: str, function: Callable[[], Any]) -> Any:
    """Calls a function whose operators must not be delayed, and returns its result.

    Args:
        reason: names the function, for reports.
        function: the function.
    """
    recorder = local.recorder
    if recorder is None:
        return function()
    recorder.interrupt(reason)
    with recorder.suspended():
        return function()


def immediate(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator: the function's operators are not delayed.

    Args:
        function: the function; reports show its name.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if local.recorder is None:
            return function(*args, **kwargs)
        return outside(function.__qualname__, lambda: function(*args, **kwargs))

    return call
