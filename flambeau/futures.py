"""`torch.futures`: results that another thread sets later."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from flambeau.ir.lock import fork_safe_lock

__all__ = ["Future", "collect_all", "wait_all"]

Result = TypeVar("Result")
_completing = fork_safe_lock(level=3)  # held for assignments only, never while a callback runs


class Future(Generic[Result]):
    """A result, or an exception, that is set once.

    Args:
        devices: of the results; the CPU needs none.

    Raises:
        ValueError: a device.

    Example:
        >>> future = torch.futures.Future()
        >>> doubled = future.then(lambda f: 2 * f.wait())
        >>> future.set_result(4)
        >>> doubled.wait()
        8
    """

    def __init__(self, *, devices: Any = None) -> None:
        if devices:
            raise ValueError(
                f"[Future] Expected devices to have indices, got {', '.join(map(str, devices))}\n"
                "hint: drop devices: results are on the CPU"
            )
        self._done = False
        self._result: Any = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Any], None]] = []
        self._waiting: list[queue.SimpleQueue[None]] = []

    def done(self) -> bool:
        """Whether the result, or an exception, is set."""
        return self._done

    def wait(self) -> Result:
        """Waits for the result; raises the exception."""
        with _completing:
            if not self._done:
                signal: queue.SimpleQueue[None] | None = queue.SimpleQueue()
                self._waiting.append(signal)  # type: ignore[arg-type]
            else:
                signal = None
        if signal is not None:
            signal.get()
        return self.value()

    def value(self) -> Result:
        """The result; raises the exception.

        Raises:
            RuntimeError: nothing is set yet.
        """
        if not self._done:
            raise RuntimeError("[Future] the result is not set yet\nhint: use wait()")
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[no-any-return]

    def set_result(self, result: Result) -> None:
        """Sets the result, wakes who waits and calls the callbacks.

        Raises:
            RuntimeError: it is set already.
        """
        self._complete(result, None)

    def set_exception(self, result: BaseException) -> None:
        """Sets an exception, which `wait` raises.

        Raises:
            AssertionError: no exception.
        """
        if not isinstance(result, BaseException):
            raise AssertionError(f"{result} is of type {type(result)}, not an Exception.")
        self._complete(None, result)

    def _complete(self, result: Any, error: BaseException | None) -> None:
        with _completing:
            if self._done:
                raise RuntimeError(
                    "Attempting to mark a completed Future as complete again. Note that a Future "
                    "can only be marked completed once."
                )
            self._result, self._error, self._done = result, error, True
            waiting, callbacks = self._waiting, self._callbacks
            self._waiting, self._callbacks = [], []
        for signal in waiting:
            signal.put(None)
        for callback in callbacks:
            callback(self)

    def _when_done(self, callback: Callable[[Any], None]) -> None:
        with _completing:
            now = self._done
            if not now:
                self._callbacks.append(callback)
        if now:
            callback(self)

    def add_done_callback(self, callback: Callable[[Future[Result]], None]) -> None:
        """Calls `callback(self)` when the result is set, or now; its exceptions are reported."""

        def reported(future: Any) -> None:
            try:
                callback(future)
            except Exception as error:
                import logging

                text = "Got the following error when running the callback: %s: %s"
                logging.getLogger(__name__).error(text, type(error).__name__, error)

        self._when_done(reported)

    def then(self, callback: Callable[[Future[Result]], Any]) -> Future[Any]:
        """A future of `callback(self)`, which is called when the result is set, or now."""
        following: Future[Any] = Future()

        def run(future: Any) -> None:
            try:
                result = callback(future)
            except Exception as error:
                following.set_exception(
                    RuntimeError(
                        "Got the following error when running the callback: "
                        f"{type(error).__name__}: {error}"
                    ).with_traceback(error.__traceback__)
                )
            else:
                following.set_result(result)

        self._when_done(run)
        return following


def collect_all(futures: list[Future[Any]]) -> Future[list[Future[Any]]]:
    """A future of the list of futures, which is set when all of them are."""
    result: Future[list[Future[Any]]] = Future()
    remaining = [len(futures)]
    if not futures:
        result.set_result([])

    def count(future: Any) -> None:
        with _completing:
            remaining[0] -= 1
            last = remaining[0] == 0
        if not last:
            return
        failed = [each._error for each in futures if each._error is not None]
        if failed:
            result.set_exception(failed[0])
        else:
            result.set_result(list(futures))

    for future in futures:
        future._when_done(count)
    return result


def wait_all(futures: list[Future[Any]]) -> list[Any]:
    """The results of all futures; raises the exception of one that failed."""
    return [future.wait() for future in collect_all(futures).wait()]
