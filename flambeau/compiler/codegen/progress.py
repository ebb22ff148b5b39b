"""Says that a call waits for the C compiler, when that takes long.

Silence for several seconds looks like a program that hangs. After `PATIENCE` one line on standard
error explains the wait (once in a process), and each finished part of the work adds a line.
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
    """A `with` block around a compilation of many kernels.

    Args:
        kernels: how many are compiled.
    """

    def __init__(self, kernels: int) -> None:
        self.kernels = kernels
        self.finished = 0

    def __enter__(self) -> Announcement:
        self._began = time.monotonic()
        self._timer = threading.Timer(PATIENCE, _explain, (self.kernels,))
        self._timer.daemon = True
        self._timer.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._timer.cancel()

    def count(self, kernels: int) -> None:
        """Notes that some kernels are finished."""
        with _counting:
            self.finished += kernels
            if time.monotonic() - self._began >= PATIENCE:
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
