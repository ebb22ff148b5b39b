"""What threads share is usable in a forked child, whatever another thread was at."""

from __future__ import annotations

import os
import threading

import pytest

from flambeau.ir.lock import computed_once, fork_safe_lock


class _Slow:
    """A property whose first computation waits."""

    def __init__(self, begun: threading.Event, end: threading.Event) -> None:
        self.begun, self.end = begun, end
        self.computed = 0

    @computed_once
    def value(self) -> int:
        """Waits until somebody says end."""
        self.computed += 1
        self.begun.set()
        self.end.wait(60)
        return 7


def _status_of_child(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_property_in_a_child_of_a_fork_during_its_computation() -> None:
    begun, end = threading.Event(), threading.Event()
    slow = _Slow(begun, end)
    thread = threading.Thread(target=lambda: slow.value)
    thread.start()
    begun.wait(60)
    pid = os.fork()
    if pid == 0:
        ready = threading.Event()
        ready.set()
        os._exit(_Slow(threading.Event(), ready).value)
    end.set()
    thread.join()
    assert _status_of_child(pid) == 7
    assert slow.value == 7 and slow.computed == 1
    assert _Slow.value.__doc__ == "Waits until somebody says end."


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_lock_is_free_in_a_child() -> None:
    lock = fork_safe_lock(level=9)
    held, end = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            end.wait(0.05)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(60)
    pid = os.fork()  # waits until the thread gives the lock back
    if pid == 0:
        os._exit(0 if lock.acquire(blocking=False) else 1)
    thread.join()
    assert _status_of_child(pid) == 0
