"""The pool that all compilers of a build run in, and the line that shows how far it is."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

QUIET = 10.0  # seconds between two lines where the output is not a terminal


class Jobs(ThreadPoolExecutor):
    """Runs a few jobs at a time, in the order in which they were submitted.

    Args:
        count: how many run at a time.
        name: of the work, for its progress line.
    """

    def __init__(self, count: int, name: str) -> None:
        super().__init__(count)
        self.name = name
        self._counting = threading.Lock()
        self._submitted = self._done = 0
        self._began = self._shown = time.monotonic()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        """Waits for all jobs; after an error, for those that run."""
        self.shutdown(cancel_futures=error is not None)
        if self._submitted:
            self._show(last=True)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        """Adds a job, which counts as a unit of the progress."""
        with self._counting:
            self._submitted += 1
        future = super().submit(fn, *args, **options)
        future.add_done_callback(self._finished)
        return future

    def _finished(self, future: Future[Any]) -> None:
        with self._counting:
            self._done += 1
            now = time.monotonic()
            if sys.stderr.isatty() or now - self._shown > QUIET:
                self._shown = now
                self._show()

    def _show(self, last: bool = False) -> None:
        seconds = time.monotonic() - self._began
        line = f"[build] {self.name}: {self._done} of {self._submitted} units, {seconds:.0f} s"
        terminal = sys.stderr.isatty()
        end = "\n" if last or not terminal else ""
        print(f"\r{line}" if terminal else line, end=end, file=sys.stderr, flush=True)
