"""`spawn`: runs a function in several processes and brings their errors back."""

from __future__ import annotations

import multiprocessing
import signal
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import wait
from typing import Any

__all__ = [
    "ProcessContext",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SpawnContext",
    "spawn",
    "start_processes",
]


class ProcessException(Exception):
    """A process of `spawn` did not end well.

    Attributes:
        error_index: its number.
        error_pid: its process id.
    """

    def __init__(self, message: str, error_index: int, error_pid: int | None) -> None:
        super().__init__(message)
        self.msg, self.error_index, self.pid = message, error_index, error_pid
        self.error_pid = error_pid


class ProcessRaisedException(ProcessException):
    """The function raised; the message holds its traceback."""


class ProcessExitedException(ProcessException):
    """The process was killed or called exit.

    Attributes:
        exit_code: negative for a signal.
        signal_name: of that signal.
    """

    def __init__(
        self,
        message: str,
        error_index: int,
        error_pid: int | None,
        exit_code: int,
        signal_name: str | None = None,
    ) -> None:
        super().__init__(message, error_index, error_pid)
        self.exit_code, self.signal_name = exit_code, signal_name


def _run(function: Callable[..., Any], number: int, args: tuple[Any, ...], errors: Any) -> None:
    try:
        function(number, *args)
    except KeyboardInterrupt:
        pass  # the parent got it as well
    except Exception:
        errors.send(traceback.format_exc())
        raise SystemExit(1) from None


class ProcessContext:
    """The running processes of `spawn(..., join=False)`."""

    def __init__(self, processes: list[Any], errors: list[Any]) -> None:
        self.processes, self._errors = processes, errors
        self._running = {process.sentinel: i for i, process in enumerate(processes)}

    def pids(self) -> list[int | None]:
        """Process ids."""
        return [process.pid for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Waits for a process to end; True when all have ended.

        When one fails the others are terminated.

        Raises:
            ProcessRaisedException: a function raised.
            ProcessExitedException: a process was killed or exited with a code.
        """
        if not self._running:
            return True
        ready = wait(list(self._running), timeout)
        failed = None
        for sentinel in ready:
            number = self._running.pop(sentinel)  # type: ignore[call-overload]
            self.processes[number].join()
            if self.processes[number].exitcode != 0:
                failed = number
                break
        if failed is None:
            return not self._running
        self._end_all(grace_period)
        self._raise(failed)
        return False

    def _end_all(self, grace_period: float | None) -> None:
        if grace_period is not None:
            limit = time.monotonic() + grace_period
            for process in self.processes:
                process.join(max(0.0, limit - time.monotonic()))
        for process in self.processes:
            if process.is_alive():
                process.terminate()
        for process in self.processes:
            process.join(30)
            if process.is_alive():
                process.kill()
                process.join()

    def _raise(self, number: int) -> None:
        process = self.processes[number]
        if self._errors[number].poll():
            text = self._errors[number].recv()
            raise ProcessRaisedException(
                f"\n\n-- Process {number} terminated with the following error:\n{text}",
                number,
                process.pid,
            )
        code = process.exitcode
        if code < 0:
            name = signal.Signals(-code).name
            message = f"process {number} terminated with signal {name}"
            raise ProcessExitedException(message, number, process.pid, code, name)
        message = f"process {number} terminated with exit code {code}"
        raise ProcessExitedException(message, number, process.pid, code)


SpawnContext = ProcessContext


def start_processes(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Runs `fn(number, *args)` in `nprocs` processes.

    Returns:
        The running processes, or None after they ended when `join`.

    Raises:
        ProcessRaisedException, ProcessExitedException: see `ProcessContext.join`.
    """
    context: Any = multiprocessing.get_context(start_method)
    processes, errors = [], []
    for number in range(nprocs):
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_run, args=(fn, number, args, sender), daemon=daemon)
        process.start()
        sender.close()
        processes.append(process)
        errors.append(receiver)
    running = ProcessContext(processes, errors)
    if not join:
        return running
    while not running.join():
        pass
    return None


def spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """`start_processes` with fresh interpreters.

    Example:
        >>> torch.multiprocessing.spawn(work, args=(10,), nprocs=2)  # work(0, 10), work(1, 10)
    """
    return start_processes(fn, args, nprocs, join, daemon, start_method)
