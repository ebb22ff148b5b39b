"""`torch.monitor`: events and statistics that handlers receive."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

from flambeau.ir.lock import fork_safe_lock

__all__ = [
    "Aggregation",
    "Event",
    "EventHandlerHandle",
    "STAT_EVENT",
    "Stat",
    "TensorboardEventHandler",
    "data_value_t",
    "log_event",
    "register_event_handler",
    "unregister_event_handler",
]

STAT_EVENT = "torch.monitor.Stat"
data_value_t = str | float | int | bool
_changing = fork_safe_lock(level=3)


class Aggregation(Enum):
    """The aggregations of a statistic over a window of values."""

    VALUE = 1
    MEAN = 2
    COUNT = 3
    SUM = 4
    MAX = 5
    MIN = 6


class Event:
    """Something that happened.

    Args:
        name: of its kind.
        timestamp: when.
        data: names to numbers and texts.
    """

    def __init__(
        self, name: str, timestamp: datetime.datetime, data: dict[str, data_value_t]
    ) -> None:
        self.name, self.timestamp, self.data = name, timestamp, dict(data)


class EventHandlerHandle:
    """A registered handler."""

    def __init__(self, callback: Callable[[Event], None]) -> None:
        self._callback = callback


_handlers: list[EventHandlerHandle] = []


def register_event_handler(callback: Callable[[Event], None]) -> EventHandlerHandle:
    """Calls `callback(event)` for every event from now on."""
    handle = EventHandlerHandle(callback)
    _handlers.append(handle)
    return handle


def unregister_event_handler(handler: EventHandlerHandle) -> None:
    """Ends the calls of a handler."""
    if handler in _handlers:
        _handlers.remove(handler)


def log_event(event: Event) -> None:
    """Passes an event to all handlers."""
    for handle in tuple(_handlers):
        handle._callback(event)


class Stat:
    """A statistic of values in windows of time, logged as an event at the end of each.

    Args:
        name: of the statistic.
        aggregations: which statistics are computed.
        window_size: how long a window lasts.
        max_samples: values that end a window early.

    Example:
        >>> import datetime
        >>> window = datetime.timedelta(hours=1)
        >>> stat = Stat("loss", [Aggregation.MAX], window, max_samples=2)
        >>> stat.add(1.0)
        >>> stat.add(3.0)
        >>> stat.get()
        {<Aggregation.MAX: 5>: 3.0}
    """

    def __init__(
        self,
        name: str,
        aggregations: Sequence[Aggregation],
        window_size: datetime.timedelta,
        max_samples: int = 2**63 - 1,
    ) -> None:
        self.name = name
        self._aggregations = tuple(aggregations)
        self._window, self._limit = window_size.total_seconds(), max_samples
        self._values: list[float] = []
        self._window_id = self._now()
        self._last: dict[Aggregation, float] = dict.fromkeys(self._aggregations, 0.0)

    def _now(self) -> int:
        return int(time.time() / self._window)

    @property
    def count(self) -> int:
        """Values in the present window."""
        return len(self._values)

    def add(self, v: float) -> None:
        """Adds a value."""
        with _changing:
            event = self._closed() if self._now() != self._window_id else None
            self._values.append(float(v))
            second = self._closed() if len(self._values) >= self._limit else None
        for each in (event, second):
            if each is not None:
                log_event(each)

    def get(self) -> dict[Aggregation, float]:
        """The statistics of the last window that ended."""
        with _changing:
            event = self._closed() if self._now() != self._window_id else None
        if event is not None:
            log_event(event)
        return dict(self._last)

    def _closed(self) -> Event | None:
        """Ends the window; the event to log."""
        values, self._values, self._window_id = self._values, [], self._now()
        if not values:
            return None
        every = {
            Aggregation.VALUE: values[-1],
            Aggregation.MEAN: sum(values) / len(values),
            Aggregation.COUNT: float(len(values)),
            Aggregation.SUM: sum(values),
            Aggregation.MAX: max(values),
            Aggregation.MIN: min(values),
        }
        self._last = {kind: every[kind] for kind in self._aggregations}
        data: Any = {f"{self.name}.{kind.name.lower()}": v for kind, v in self._last.items()}
        return Event(STAT_EVENT, datetime.datetime.now(), data)


class TensorboardEventHandler:
    """Writes the numbers of statistics to TensorBoard.

    Args:
        writer: a `torch.utils.tensorboard.SummaryWriter`.
    """

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def __call__(self, event: Event) -> None:
        """Writes one event's numbers; others are passed over."""
        if event.name == STAT_EVENT:
            for name, value in event.data.items():
                self._writer.add_scalar(name, value, walltime=event.timestamp.timestamp())
