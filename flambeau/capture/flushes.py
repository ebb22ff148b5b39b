"""Flushes: the points where a recorded stream has to run, who observes them, what refuses them."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flambeau import _core
from flambeau.capture import breaks
from flambeau.capture.breaks import END
from flambeau.capture.errors import GraphBreakError
from flambeau.capture.recording import is_compiling
from flambeau.compiler import debug
from flambeau.ir.failure import failure
from flambeau.ir.lock import late
from flambeau.runtime import logs

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


@dataclass(frozen=True)
class Flush:
    """One point where the recorded stream had to run.

    Attributes:
        reason: what needed a value ("item", "print", ...; `end of region` for the last one).
        line: the user's "file:line".
        records: op calls that were in the stream.
        known: whether the stream had been compiled before.
    """

    reason: str
    line: str
    records: int
    known: bool


class _Watch(threading.local):
    """Per thread: the listeners of flushes; how many calls of uncompiled functions are running."""

    def __init__(self) -> None:
        self.listeners: list[Callable[[Flush], None]] = []
        self.uncompiled = 0


_watch = _Watch()
_counters: list[Callable[[Flush], None]] = []  # of all threads, for ever
_active: list[_Listening] = []  # of all threads


def count_flushes(listener: Callable[[Flush], None]) -> None:
    """Calls `listener` at every flush of every thread from now on.

    Calls that run without their Python have none.
    """
    _counters.append(listener)
    observe()


def observe() -> None:
    """Has the core call `on_flush` if anything observes flushes."""
    watched = bool(_active) or debug.level() > 0
    observed = watched or bool(_counters) or logs.active()
    _core.set_flush_observer(on_flush if observed else None, watched)


def on_flush(reason: str, records: int, seen: int) -> None:
    """Reports a flush to all that observe it.

    Args:
        reason, records, seen: as in `Flush`.
    """
    shown = debug.level() > 0 and not (seen and reason == END)
    logged = logs.active()
    if not _watch.listeners and not _counters and not shown and not logged:
        return
    event = Flush(reason, logs.user_line(), records, bool(seen))
    if logged:
        _log(event)
    if shown:
        state = "known" if seen else "new"
        debug.show(debug.PLANS, f"{event.line}: {reason} after {records} ops ({state})")
    for listener in (*_counters, *_watch.listeners):
        listener(event)


def _log(event: Flush) -> None:
    if event.reason != END:
        state = "known" if event.known else "new"
        logs.note("dynamo", f"{event.line}: {event.reason} after {event.records} ops ({state})")
    problem = breaks.refused(event.reason, _PACKAGE)
    late("flambeau.reports.region_logs").flush(event, problem)


class _Listening:
    """Adds a listener for the duration of a `with` block."""

    def __init__(self, listener: Callable[[Flush], None]) -> None:
        self._listener = listener

    def __enter__(self) -> None:
        _active.append(self)
        _watch.listeners.append(self._listener)
        observe()

    def __exit__(self, *exception: object) -> None:
        _watch.listeners.remove(self._listener)
        _active.remove(self)
        observe()


def listening(listener: Callable[[Flush], None]) -> _Listening:
    """A `with` block in which `listener` gets every flush of the thread."""
    return _Listening(listener)


def _require(setting: str, event: Flush) -> None:
    problem = breaks.refused(event.reason, _PACKAGE)
    if problem is not None:
        raise _broken(setting, event.line, *problem)


def _broken(setting: str, line: str, problem: str, hint: str) -> GraphBreakError:
    return failure(GraphBreakError, "compile", f"{setting}, but {line} {problem}", hint)


_FULL, _HERE = "fullgraph=True", "error_on_graph_break(True)"
_refuse = functools.partial(_require, _FULL)
_refuse_here = functools.partial(_require, _HERE)


def refusing(refuses: bool) -> Any:
    """A `with` block in which a graph break raises, or, False, no longer does.

    Inside of a function compiled with `fullgraph=True` one raises in any case.

    Args:
        refuses: whether it raises.
    """
    if not refuses:
        return _Permitting()
    if _watch.uncompiled and not is_compiling():
        return _Recorded()
    return _Listening(_refuse_here)


def uncompiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of `torch.compile(backend="eager")`: blocks that refuse breaks are recorded."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        _watch.uncompiled += 1
        try:
            if _refuse_here in _watch.listeners and not is_compiling():
                with late("flambeau._dynamo.custom_backend").recorded_block():
                    return function(*args, **kwargs)
            return function(*args, **kwargs)
        finally:
            _watch.uncompiled -= 1

    return call


class _Recorded(_Listening):
    """A block of an uncompiled function in which a graph break raises: it is recorded for that."""

    def __init__(self) -> None:
        super().__init__(_refuse_here)

    def __enter__(self) -> None:
        super().__enter__()
        self._block = late("flambeau._dynamo.custom_backend").recorded_block()
        self._block.__enter__()

    def __exit__(self, *exception: object) -> None:
        try:
            self._block.__exit__(*exception)
        finally:
            super().__exit__(*exception)


def full_graph() -> Any:
    """The `with` block of a call of a function compiled with `fullgraph=True`."""
    return _Listening(_refuse)


def require_no_break(problem: str, hint: str) -> None:
    """Raises where a graph break is refused.

    Args:
        problem: what the user's line does.
        hint: what to do instead.

    Raises:
        GraphBreakError: in `refusing(True)`, or in a function compiled with `fullgraph=True`.
    """
    for listener, setting in ((_refuse, _FULL), (_refuse_here, _HERE)):
        if listener in _watch.listeners and is_compiling():
            raise _broken(setting, logs.user_line(), problem, hint)


class _Permitting:
    """Takes `_refuse_here` out of the listeners for the duration of a `with` block."""

    def __enter__(self) -> None:
        self._before = list(_watch.listeners)
        _watch.listeners[:] = [each for each in self._before if each is not _refuse_here]

    def __exit__(self, *exception: object) -> None:
        _watch.listeners[:] = self._before


logs.when_changed(observe)
