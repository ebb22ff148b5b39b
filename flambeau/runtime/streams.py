"""Streams and events of devices: on the CPU work is done when a call returns; their modules."""

from __future__ import annotations

import time
from typing import Any

from flambeau import _core
from flambeau.ir.lock import late

__all__ = ["Event", "Stream", "current_stream", "get_device_module", "synchronize"]

ALL_STREAMS = -1


def _check(device: Any, op: str) -> Any:
    """A device that computes, with the index of the current one."""
    device = _core.device("cpu" if device is None else device)
    if _core.device_memory(device) == "own":
        return device if device.index is not None else _core.device(device.type, 0)
    if _core.device_memory(device) != "host":
        raise RuntimeError(
            f"[{op}] no device of type {device.type!r}\nhint: this build computes on the CPU"
        )
    return device


class Stream:
    """The order of work on a device; on the CPU everything is done when its call returns.

    Args:
        device: where; None: on the CPU.
        priority: accepted for PyTorch's sake.
        stream_id: an existing stream; None makes a new one.

    A `with` block makes it the current stream of this thread and device.
    """

    def __init__(
        self, device: Any = None, *, priority: int = 0, stream_id: int | None = None, **options: Any
    ) -> None:
        self.device = _check(device, "Stream")
        self._immediate = _core.device_memory(self.device) == "host"
        self.device_type, self.device_index, self.stream_id = 1, -1, 0
        self._owned = not self._immediate and stream_id is None
        self._before: list[int] = []
        if not self._immediate:
            self.device_type, self.device_index = 20, self.device.index
            self.stream_id = _core.stream_new(self.device) if stream_id is None else stream_id

    def query(self) -> bool:
        """Whether all work is done."""
        return self._immediate or bool(_core.stream_idle(self.device, self.stream_id))

    def synchronize(self) -> None:
        """Waits until all work is done.

        Raises:
            RuntimeError: work of the stream failed.
        """
        if not self._immediate:
            _core.stream_synchronize(self.device, self.stream_id)

    def wait_event(self, event: Any) -> None:
        """Lets later work wait for an event."""
        event.wait(self)

    def wait_stream(self, stream: Any) -> None:
        """Lets later work wait for what another stream has been given."""
        self.wait_event(stream.record_event())

    def record_event(self, event: Any = None) -> Any:
        """An event that happens when the work given so far is done."""
        event = Event(self.device) if event is None else event
        event.record(self)
        return event

    def __enter__(self) -> Stream:
        if not self._immediate:
            self._before.append(_core.stream_current(self.device))
            _core.stream_set_current(self.device, self.stream_id)
        return self

    def __exit__(self, *exception: object) -> None:
        if not self._immediate:
            _core.stream_set_current(self.device, self._before.pop())

    def __del__(self) -> None:
        if getattr(self, "_owned", False):
            _core.stream_delete(self.device, self.stream_id)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Stream)
            and other.device == self.device
            and other.stream_id == self.stream_id
        )

    def __hash__(self) -> int:
        return hash((self.device_type, self.stream_id))

    def __repr__(self) -> str:
        return (
            f"torch.Stream device_type={self.device.type}, device_index={self.device_index}, "
            f"stream_id={self.stream_id}"
        )


class Event:
    """A point in the order of work.

    Args:
        device: where; None: on the CPU.
    """

    def __init__(
        self,
        device: Any = None,
        *,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
    ) -> None:
        self.device = _check(device, "Event")
        self._time: float | None = None
        self._native = (
            None if _core.device_memory(self.device) == "host" else _core.event_new(self.device)
        )

    def record(self, stream: Any = None) -> None:
        """Puts the event behind the work that a stream has been given; None: the current one."""
        self._time = time.perf_counter()
        if self._native is not None:
            stream = current_stream(self.device) if stream is None else stream
            _core.event_record(self._native, stream.device, stream.stream_id)

    def query(self) -> bool:
        """Whether it has happened."""
        return self._native is None or bool(_core.event_done(self._native))

    def synchronize(self) -> None:
        """Waits until it has happened."""
        if self._native is not None:
            _core.event_synchronize(self._native)

    def wait(self, stream: Any = None) -> None:
        """Lets later work of a stream wait for the event; None: of the current stream."""
        if self._native is not None:
            stream = current_stream(self.device) if stream is None else stream
            _core.event_wait(self._native, stream.device, stream.stream_id)

    def elapsed_time(self, other: Event) -> float:
        """Milliseconds from this event to another.

        Raises:
            RuntimeError: one of them was not recorded, or has not happened.
        """
        if self._time is None or other._time is None:
            raise RuntimeError("[Event] both events must be recorded\nhint: call record()")
        if self._native is None or other._native is None:
            return 1e3 * (other._time - self._time)
        if not self.query() or not other.query():
            raise RuntimeError("[Event] both events must be done\nhint: call synchronize()")
        return float(_core.event_milliseconds(self._native, other._native))

    def __repr__(self) -> str:
        index = -1 if self._native is None else self.device.index
        return (
            f"torch.Event device_type={self.device.type}, device_index={index}, event_flag=0, "
            "event_id=0"
        )


def current_stream(device: Any = None) -> Stream:
    """The stream of this thread's work on a device; None: on the CPU."""
    place = _check(device, "current_stream")
    return Stream(place, stream_id=_core.stream_current(place))


def synchronize(device: Any = None) -> None:
    """Waits until all streams of a device have done their work; None: of the CPU.

    Raises:
        RuntimeError: work of one of them failed.
    """
    place = _check(device, "synchronize")
    if _core.device_memory(place) == "own":
        _core.stream_synchronize(place, ALL_STREAMS)


def get_device_module(device: Any = None) -> Any:
    """The module of a device: `torch.cpu`, `torch.cuda` ...

    Raises:
        RuntimeError: no such type of devices.

    Example:
        >>> torch.get_device_module("cpu").__name__.split(".")[-1]
        'cpu'
    """
    kind = "cpu" if device is None else _core.device(device).type
    if kind not in ("cpu", "cuda", "xpu", "mps", "mtia"):
        raise RuntimeError(
            f"Device '{kind}' does not have a corresponding module registered as 'torch.{kind}'."
        )
    return late(f"flambeau.{kind}")
