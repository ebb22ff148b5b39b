"""Says that a call waits for the C compiler, when that takes long.

Silence for several seconds looks like a program that hangs. After `PATIENCE` standard error says
how much is done: in one line that is written again and again on a terminal, else in a line every
`INTERVAL`. Compilations that nobody waits for are silent: those of the worker process.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable

from flambeau.compiler import cache
from flambeau.ir.lock import fork_safe_lock

PATIENCE = 1.0  # seconds of silence
INTERVAL = 3.0  # between two lines
REDRAW = 0.25  # between two versions of the line of a terminal
_LOOK = 0.05  # between two looks whether the wait is over
_explained = False
_showing = fork_safe_lock(level=3)
_shown: tuple[int, Progress] | None = None  # the process, and the one that has its line


class _Wait:
    """A wait of somebody: a flag, which needs no lock that a fork could leave taken."""

    def __init__(self) -> None:
        self.over = False

    def goes_on(self, seconds: float) -> bool:
        """Sleeps so long, or until the wait is over; returns whether it is not."""
        until = time.monotonic() + seconds
        while not self.over and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, _LOOK))
        return not self.over


class Progress:
    """The messages of one wait. One that begins within another one that is shown is silent.

    Args:
        text: how much is done, "12 of 40 kernels" say.
    """

    def __init__(self, text: Callable[[], str]) -> None:
        self._text = text
        self._wait: _Wait | None = None
        self._width = 0  # of the line of a terminal
        self._began = 0.0

    def begin(self) -> None:
        """From now on somebody waits."""
        if self._wait is not None:
            return
        self._wait, self._began = _Wait(), time.monotonic()
        with contextlib.suppress(RuntimeError):  # no thread can be started: then without messages
            threading.Thread(target=self._run, args=(self._wait,), daemon=True).start()

    def end(self) -> None:
        """Nobody waits any more."""
        global _shown
        if self._wait is None or self._wait.over:
            return
        self._wait.over = True
        with _showing:
            if _shown == (os.getpid(), self):
                self._write(last=True)
                _shown = None

    def __enter__(self) -> Progress:
        self.begin()
        return self

    def __exit__(self, *exception: object) -> None:
        self.end()

    def explain(self) -> None:
        """Writes a line of its own in front of the first message."""

    def _run(self, wait: _Wait) -> None:
        global _shown
        delay = PATIENCE
        while wait.goes_on(delay):
            with _showing:
                if _shown is None or _shown[0] != os.getpid():  # of the parent of a fork
                    _shown = os.getpid(), self
                    self.explain()
                if _shown[1] is not self or wait.over:
                    continue
                delay = REDRAW if self._write() else INTERVAL

    def _write(self, last: bool = False) -> bool:
        """Writes the present message; returns whether to a terminal."""
        seconds = int(time.monotonic() - self._began)
        text = f"[compile] {self._text()}, {seconds} s"
        terminal = _is_terminal()
        blank = " " * (self._width - len(text))
        self._width = len(text)
        _say(f"\r{text}{blank}" + "\n" * last if terminal else f"{text}\n")
        return terminal


class Announcement(Progress):
    """The messages of a compilation of many kernels.

    Args:
        kernels: how many are compiled; may grow.
    """

    def __init__(self, kernels: int) -> None:
        super().__init__(lambda: f"{self.finished} of {self.kernels} kernels")
        self.kernels = kernels
        self.finished = 0

    def count(self, kernels: int) -> None:
        """Notes that some kernels are finished."""
        with _showing:
            self.finished += kernels

    def explain(self) -> None:
        """Says once in a process why there is something to wait for."""
        global _explained
        if not _explained:
            _explained = True
            _say(
                f"[compile] the first call compiles its kernels, which are then stored in "
                f"{cache.directory()}\n"
            )


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def _say(text: str) -> None:
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):  # it is closed
            sys.stderr.write(text)
            sys.stderr.flush()
