"""Work that only later processes profit from: it waits until the program has a moment.

The first call of an operator should pay for nothing but its plan; what of it goes to the disk is
worked out by a thread when no plan was made for a while, or at the end of the process. A process
that is killed before loses no more than the time to plan again. A forked child leaves the work to
its parent.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import os
import time
from collections.abc import Callable

from flambeau.ir.lock import fork_safe_lock

LIMIT = 512  # jobs that wait; who adds another one does the oldest
QUIET = 0.1  # seconds without a new job before the thread begins
PAUSE = 0.001  # seconds between two jobs, in which other threads have the interpreter

_doing = fork_safe_lock(level=0)  # held while a job is done: whoever needs its file waits
_jobs: list[tuple[str, Callable[[], None]]] = []  # the file that it writes, the work
_added = 0
_serving = False


def add(key: str, run: Callable[[], None]) -> None:
    """Has `run`, which writes the file `key`, called soon, in another thread. Nobody waits for it
    who could handle its errors: they are dropped."""
    global _added, _serving
    _jobs.append((key, run))
    _added += 1
    if len(_jobs) > LIMIT:
        _do_oldest()
    if not _serving:
        try:
            _serving = True
            _thread.start_new_thread(_serve, ())
        except RuntimeError:  # no thread can be started: the process's end does it
            _serving = False


def finish(key: str | None = None) -> None:
    """Does what waits, or at least what waits to be written to one file, now."""
    while _jobs and (key is None or any(job[0] == key for job in list(_jobs))):
        _do_oldest()


def forget() -> None:
    """Drops what waits."""
    with _doing:
        _jobs.clear()


def _do_oldest() -> None:
    with _doing:
        if not _jobs:
            return
        with contextlib.suppress(Exception):
            _jobs[0][1]()
        del _jobs[0]  # only now: its file is there, or nobody need wait for it


def _serve() -> None:
    """The thread: ends when nothing waits."""
    global _serving
    while True:
        while _jobs:
            before = _added
            time.sleep(QUIET)
            while _jobs and before == _added:
                _do_oldest()
                time.sleep(PAUSE)
        _serving = False
        if not _jobs or _serving:
            return
        _serving = True  # a job came that found this thread running


def _forked() -> None:
    """In a child: its parent does what waits, and no thread runs here."""
    global _serving
    _jobs.clear()
    _serving = False


os.register_at_fork(after_in_child=_forked)
atexit.register(finish)
