"""`torch.profiler`: what a program spends its time and memory on, by operator, kernel and line.

`docs/perf.md` shows how to read its results.
"""

from __future__ import annotations

from flambeau.profiler.events import DeviceType
from flambeau.profiler.profiler import (
    ExecutionTraceObserver,
    ProfilerAction,
    ProfilerActivity,
    profile,
    schedule,
    supported_activities,
    tensorboard_trace_handler,
)
from flambeau.profiler.session import kineto_available, record_function
from flambeau.runtime import missing as _missing

__all__ = [
    "DeviceType",
    "ExecutionTraceObserver",
    "ProfilerAction",
    "ProfilerActivity",
    "kineto_available",
    "profile",
    "record_function",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
]

# Parts that are loaded on first access.
globals()["__getattr__"] = _missing.getter(__name__, submodules=("itt", "profiler"))
