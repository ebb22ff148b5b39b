"""`torch.autograd.profiler_util`: events of a profile under PyTorch's older module name."""

from __future__ import annotations

from flambeau.profiler.events import (
    DeviceType,
    EventKind,
    EventList,
    EventRecord,
    FunctionEvent,
    FunctionEventAvg,
    Interval,
)

__all__ = [
    "DeviceType",
    "EventKind",
    "EventList",
    "EventRecord",
    "FunctionEvent",
    "FunctionEventAvg",
    "Interval",
]
