"""Says that a call waits for the C compiler, when that takes long.

Silence for several seconds looks like a program that hangs. After `PATIENCE` one line on standard
error explains the wait (once in a process), and others say how much is done.
"""

from __future__ import annotations

import sys
import threading
import time

from flambeau.compiler import cache
from flambeau.ir.lock import fork_safe_lock

PATIENCE = 1.0  # seconds of silence
_explained = False
_counting = fork_safe_lock(level=3)


class Announcement:
    """The messages of a compilation of many kernels.

    Args:
        kernels: how many are compiled; may grow.
    """

    def __init__(self, kernels: int) -> None:
        self.kernels = kernels
        self.finished = 0
        self._timer: threading.Timer | None = None

    def begin(self) -> None:
        """From now on somebody waits."""
        if self._timer is None:
            self._began = self._said = time.monotonic()
            self._timer = threading.Timer(PATIENCE, lambda: _explain(self.kernels))
            self._timer.daemon = True
            self._timer.start()

    def end(self) -> None:
        """Nobody waits any more."""
        if self._timer is not None:
            self._timer.cancel()

    def count(self, kernels: int) -> None:
        """Notes that some kernels are finished."""
        with _counting:
            self.finished += kernels
            now = time.monotonic()
            done = self.finished == self.kernels
            if now - self._began >= PATIENCE and (done or now - self._said >= PATIENCE):
                self._said = now
                _explain(self.kernels)
                _say(f"compiled {self.finished} of {self.kernels} kernels")


def _explain(kernels: int) -> None:
    global _explained
    if not _explained:
        _explained = True
        _say(
            f"compiling {kernels} kernels: the first call compiles its kernels, "
            f"which are then kept in {cache.directory()}"
        )


def _say(text: str) -> None:
    print(f"[flambeau] {text}", file=sys.stderr, flush=True)
