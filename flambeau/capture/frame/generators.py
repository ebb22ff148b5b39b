"""Generators whose code is interpreted, and tracebacks, of which nothing is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau.capture.frame.evidence import Raised, Unexplained

if TYPE_CHECKING:
    from flambeau.capture.frame.machine import Machine

GENERATOR_METHODS = frozenset({"send", "throw", "close", "__next__", "__iter__"})


class Opaque:
    """A placeholder for a value that differs between calls: code may pass it on, not read it."""


class Trace(Opaque):
    """A placeholder for a traceback."""


class Generator:
    """A generator whose code is interpreted.

    Attributes:
        ended: whether it has no more values.
    """

    def __init__(self, machine: Machine, frame: Any) -> None:
        self._machine, self._frame = machine, frame
        self.ended = False

    def __iter__(self) -> Generator:
        return self

    def __next__(self) -> Any:
        try:
            return self.advance(None)
        except Raised as raised:
            if not isinstance(raised.error, StopIteration):
                raise
            result = raised.error.value
        raise StopIteration(result)  # here, so that none of both errors holds the other

    @property
    def guarded(self) -> bool:
        """Whether dropping it now would run code of it."""
        return not self.ended and bool(self._frame.guarded)

    def advance(self, value: object, error: BaseException | None = None) -> Any:
        """Its next value; `value` is sent to it, or `error` raised where it waits."""
        if self.ended:
            raise Raised(StopIteration() if error is None else error)
        if error is not None and self._frame.at > 0 and self._frame.delegates:
            raise Unexplained("it throws through `yield from`")
        if value is not None and self._frame.at == 0:
            text = "can't send non-None value to a just-started generator"
            raise Raised(TypeError(text))
        self.ended = True  # unless it yields; a generator that calls itself finds its end
        try:
            yields, result = self._machine.run(self._frame.resume, value, error)
        except Raised as raised:
            if isinstance(raised.error, StopIteration):
                raise Unexplained("a generator raises StopIteration") from None
            raise
        if not yields:
            raise Raised(StopIteration() if result is None else StopIteration(result))
        self.ended = False
        return result

    def close(self) -> None:
        """Ends it."""
        if self.ended or not self.guarded:
            self.ended = True
            return
        try:
            self.advance(None, self._machine.fresh(GeneratorExit()))
        except Raised as raised:
            if isinstance(raised.error, (StopIteration, GeneratorExit)):
                return
            raise
        raise Raised(RuntimeError("generator ignored GeneratorExit"))

    def send(self, value: object) -> None:
        """The name of a method of generators; the machine calls `advance`."""

    def throw(self, error: object) -> None:
        """The name of a method of generators; the machine calls `advance`."""
