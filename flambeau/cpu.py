"""`torch.cpu`: the CPU under the names that accelerators' modules have. Work is never pending."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

__all__ = [
    "Event", "Stream", "StreamContext", "current_device", "current_stream", "device_count",
    "is_available", "is_initialized", "set_device", "stream", "synchronize",
]  # fmt: skip


class Stream:
    """Stands where accelerators have queues of work; has no effect.

    Args:
        priority: has no effect.
    """

    def __init__(self, priority: int = -1) -> None:
        """Nothing is kept."""

    def wait_stream(self, stream: Any) -> None:
        """Nothing is pending."""

    def record_event(self) -> None:
        """Nothing is pending."""

    def wait_event(self, event: Any) -> None:
        """Nothing is pending."""


class Event:
    """Stands where accelerators have points in a queue of work; always reached."""

    def query(self) -> bool:
        """True."""
        return True

    def record(self, stream: Any = None) -> None:
        """Nothing is pending."""

    def synchronize(self) -> None:
        """Nothing is pending."""

    def wait(self, stream: Any = None) -> None:
        """Nothing is pending."""


_default = Stream()
_current = _default


class StreamContext(AbstractContextManager[None]):
    """Makes a stream the current one for a `with` block.

    Args:
        stream: the stream, or None for no change.
    """

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream
        self._before = _default

    def __enter__(self) -> None:
        """The stream becomes the current one."""
        global _current
        self._before = _current
        _current = self.stream or _current

    def __exit__(self, *exception: object) -> None:
        """The stream before is the current one again."""
        global _current
        _current = self._before


def stream(stream: Stream) -> StreamContext:
    """`StreamContext` of a stream."""
    return StreamContext(stream)


def current_stream(device: Any = None) -> Stream:
    """The current stream."""
    return _current


def current_device() -> str:
    """The name of the only device.

    Example:
        >>> torch.cpu.current_device()
        'cpu'
    """
    return "cpu"


def set_device(device: Any) -> None:
    """Has no effect: there is one device."""


def device_count() -> int:
    """1."""
    return 1


def is_available() -> bool:
    """True."""
    return True


def is_initialized() -> bool:
    """True."""
    return True


def synchronize(device: Any = None) -> None:
    """Returns at once: calls wait for their results."""
