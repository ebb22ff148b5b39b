"""Streams and events of the CPU, on which work is done when a call returns; modules of devices."""

from __future__ import annotations

import time
from typing import Any

from flambeau import _core
from flambeau.ir.lock import late

__all__ = ["Event", "Stream", "get_device_module"]


def _check(device: Any, op: str) -> Any:
    device = _core.device("cpu" if device is None else device)
    if device.type != "cpu":
        raise RuntimeError(
            f"[{op}] no device of type {device.type!r}\nhint: this build computes on the CPU"
        )
    return device


class Stream:
    """The order of work on the CPU: everything is done when its call returns."""

    def __init__(self, device: Any = None, *, priority: int = 0, **options: Any) -> None:
        self.device = _check(device, "Stream")
        self.device_type, self.device_index, self.stream_id = 1, -1, 0

    def query(self) -> bool:
        """Whether all work is done: True."""
        return True

    def synchronize(self) -> None:
        """Returns: all work is done."""

    def wait_event(self, event: Any) -> None:
        """Returns: all work is done."""

    def wait_stream(self, stream: Any) -> None:
        """Returns: all work is done."""

    def record_event(self, event: Any = None) -> Any:
        """An event that has happened."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.device == self.device

    def __hash__(self) -> int:
        return hash((self.device_type, self.stream_id))

    def __repr__(self) -> str:
        return "torch.Stream device_type=cpu, device_index=-1, stream_id=0"


class Event:
    """A point in the order of work."""

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

    def record(self, stream: Any = None) -> None:
        """Notes the time."""
        self._time = time.perf_counter()

    def query(self) -> bool:
        """Whether it has happened: True."""
        return True

    def synchronize(self) -> None:
        """Returns: it has happened."""

    def wait(self, stream: Any = None) -> None:
        """Returns: it has happened."""

    def elapsed_time(self, other: Event) -> float:
        """Milliseconds from this event to another.

        Raises:
            RuntimeError: one of them was not recorded.
        """
        if self._time is None or other._time is None:
            raise RuntimeError("[Event] both events must be recorded\nhint: call record()")
        return 1e3 * (other._time - self._time)

    def __repr__(self) -> str:
        return "torch.Event device_type=cpu, device_index=-1, event_flag=0, event_id=0"


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
