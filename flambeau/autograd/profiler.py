"""`torch.autograd.profiler`: PyTorch's older home of profiles, which are in `flambeau.profiler`."""

from __future__ import annotations

from flambeau.profiler.events import DeviceType, EventList, FunctionEvent, FunctionEventAvg
from flambeau.profiler.session import (
    emit_itt,
    emit_nvtx,
    kineto_available,
    profile,
    record_function,
)

__all__ = [
    "DeviceType",
    "EventList",
    "FunctionEvent",
    "FunctionEventAvg",
    "emit_itt",
    "emit_nvtx",
    "kineto_available",
    "profile",
    "record_function",
]
