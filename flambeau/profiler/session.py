"""`torch.autograd.profiler`: one profile from beginning to end, and named ranges.

The core records (`native/runtime/profile.cpp`); this module starts and stops it and turns what it
recorded into events. `flambeau.profiler` adds schedules and handlers.
"""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from flambeau import _core
from flambeau.ir.lock import loaded
from flambeau.profiler.events import (
    DeviceType,
    EventList,
    EventRecord,
    FunctionEvent,
    FunctionEventAvg,
    build_tree,
)
from flambeau.profiler.trace_file import Trace
from flambeau.runtime import collection, settings

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

Function = TypeVar("Function", bound=Callable[..., Any])
PACKAGE = str(Path(__file__).resolve().parents[1]) + "/"
SHAPES, STACKS, MEMORY = 2, 4, 8  # ProfileFlag of native/runtime/profile.h

_recording: set[profile] = set()  # profiles that record now


def enabled() -> bool:
    """Returns whether a profile records in this process."""
    return bool(_recording)


def kineto_available() -> bool:
    """Whether PyTorch's tracing library is there: no; traces are written without it."""
    return False


class record_function:  # noqa: N801 - PyTorch's name
    """Names a part of a program: a range in the profile that runs, if one does.

    Args:
        name: the range's name.
        args: no effect: shown nowhere.

    Example:
        >>> import flambeau
        >>> with flambeau.profiler.profile() as prof, record_function("twice"):
        ...     _ = flambeau.ones(3) * 2
        >>> [event.name for event in prof.events() if event.is_user_annotation]
        ['twice']

    It decorates functions as well; every call is then a range.
    """

    def __init__(self, name: str, args: str | None = None) -> None:
        """A range that begins with `with`."""
        if not isinstance(name, str):
            raise TypeError(
                f"[record_function] the name must be a str, not {type(name).__name__}\n"
                "hint: record_function('name')"
            )
        self.name = name
        self.args = args
        self._tokens: list[Any] = []

    def __enter__(self) -> record_function:
        debugging = loaded("flambeau.utils._debug_mode")
        mode = None if debugging is None else debugging.begin_range(self.name)
        self._tokens.append((_core.profile_enter(self.name), mode))
        return self

    def __exit__(self, *exception: object) -> None:
        token, mode = self._tokens.pop()
        _core.profile_exit(token)
        if mode is not None:
            mode.end_range()

    def __call__(self, function: Function) -> Function:
        """The function with a range around every call."""

        @functools.wraps(function)
        def ranged(*args: Any, **kwargs: Any) -> Any:
            with record_function(self.name):
                return function(*args, **kwargs)

        return ranged  # type: ignore[return-value]


def _hides(file: str) -> bool:
    """Whether lines of a file are the package's own, which only `FLAMBEAU_DEBUG` shows."""
    return file.startswith(PACKAGE) or file.startswith("<frozen")


class profile:  # noqa: N801 - PyTorch's name
    """Profiles the operators and kernels of a `with` block.

    Args:
        enabled: False: does nothing.
        use_cuda: must be False (no CUDA here).
        use_device: must be None or "cpu".
        record_shapes: record the shapes of operators' arguments.
        with_flops: count floating-point operations.
        profile_memory: record allocations.
        with_stack: record the source lines.
        with_modules: no effect: modules are part of the stack.
        use_kineto: no effect.
        use_cpu: must be True.
        experimental_config: no effect.
        acc_events: no effect: such a profile has one cycle.

    Example:
        >>> import flambeau
        >>> with profile(record_shapes=True) as prof:
        ...     _ = flambeau.ones(2, 3).exp()
        >>> [event.input_shapes for event in prof.function_events if event.name == "aten::exp"]
        [[[2, 3]]]
    """

    def __init__(
        self,
        enabled: bool = True,
        *,
        use_cuda: bool = False,
        use_device: str | None = None,
        record_shapes: bool = False,
        with_flops: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_modules: bool = False,
        use_kineto: bool = False,
        use_cpu: bool = True,
        experimental_config: object = None,
        acc_events: bool = False,
        custom_trace_id_callback: Callable[[], str] | None = None,
    ) -> None:
        """A profile that begins with `with`."""
        if use_cuda or use_device not in (None, "cpu"):
            device = "cuda" if use_cuda else use_device
            warnings.warn(f"[profiler] {device} is not available, disabling it", stacklevel=2)
        if not use_cpu:
            raise NotImplementedError(
                "[profiler] use_cpu=False: the CPU is the only device that can be profiled\n"
                "hint: leave use_cpu out"
            )
        self.enabled = enabled
        self.entered = False
        self.record_shapes = record_shapes
        self.with_flops = with_flops
        self.profile_memory = profile_memory
        self.with_stack = with_stack
        self.with_modules = with_modules
        self.metadata: dict[str, str] = {}
        self._events: EventList | None = None
        self._origin = 0

    # ------------------------------------------------------------------------- start and stop

    def __enter__(self) -> profile:
        if not self.enabled:
            return self
        if self.entered:
            raise RuntimeError(
                "[profiler] Profiler context manager is not reentrant\nhint: make a new profile"
            )
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.enabled:
            self.stop()

    def start(self) -> None:
        """Starts recording.

        Raises:
            RuntimeError: another profile of this process records.
        """
        flags = self.record_shapes * SHAPES | self.with_stack * STACKS
        _core.profile_start(flags | self.profile_memory * MEMORY)
        self.entered = True
        _recording.add(self)
        self._origin = time.perf_counter_ns()
        self._events = None

    def stop(self) -> None:
        """Stops recording and builds the events."""
        if not self.entered:
            return
        self.entered = False
        _recording.discard(self)
        with collection.paused():  # what is made here stays
            records, lost = _core.profile_stop()
            self._events = self._built([EventRecord(*record) for record in records])
        if lost:
            warnings.warn(
                f"[profiler] {lost} events are missing: a thread had too many\n"
                "hint: profile fewer steps, with schedule=",
                stacklevel=2,
            )

    def discard(self) -> None:
        """Stops recording and forgets what was recorded."""
        if self.entered:
            self.entered = False
            _recording.discard(self)
            _core.profile_stop()

    def _built(self, records: list[EventRecord]) -> EventList:
        debug = settings.get("DEBUG")
        hide = (lambda file: False) if debug else _hides
        tree = build_tree(records, self._origin, self.with_flops, hide)
        options = {
            "with_stack": self.with_stack,
            "profile_memory": self.profile_memory,
            "record_shapes": self.record_shapes,
            "with_flops": self.with_flops,
        }
        trace = Trace(tree.events, tree.pieces, tree.memory, self._origin, options, self.metadata)
        return EventList(
            tree.events,
            profile_memory=self.profile_memory,
            with_flops=self.with_flops,
            trace=trace,
        )

    # ------------------------------------------------------------------------- what was found

    @property
    def function_events(self) -> EventList:
        """The events.

        Raises:
            RuntimeError: the profile has not ended.
        """
        if self._events is None:
            raise RuntimeError(
                "[profiler] Profiler didn't finish running: there are no events yet\n"
                "hint: read them after the with block"
            )
        return self._events

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds of all events together; none is counted twice."""
        return self.function_events.self_cpu_time_total

    def key_averages(
        self,
        group_by_input_shape: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
    ) -> EventList:
        """Sums per name; see `EventList.key_averages`."""
        return self.function_events.key_averages(
            group_by_input_shape, group_by_stack_n, group_by_overload_name
        )

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_src_column_width: int = 75,
        max_name_column_width: int = 55,
        max_shapes_column_width: int = 80,
        header: str | None = None,
        top_level_events_only: bool = False,
    ) -> str:
        """The events as a table; see `EventList.table`."""
        return self.function_events.table(
            sort_by,
            row_limit,
            max_src_column_width,
            max_name_column_width,
            max_shapes_column_width,
            header,
            top_level_events_only,
        )

    def total_average(self) -> FunctionEventAvg:
        """All events as one average."""
        return self.function_events.total_average()

    def export_chrome_trace(self, path: str) -> None:
        """Writes the profile for chrome://tracing and ui.perfetto.dev."""
        self.function_events.export_chrome_trace(path)

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Writes source lines and their times for flame graphs.

        Raises:
            RuntimeError: the profile has no stacks.
        """
        if not self.with_stack:
            raise RuntimeError(
                "[profiler] export_stacks() requires with_stack=True\nhint: pass it to the profile"
            )
        self.function_events.export_stacks(path, metric)

    def toggle_collection_dynamic(self, enabled: bool, activities: object = None) -> None:
        """Stops recording for a while, or goes on.

        Args:
            enabled: whether to record from now on.
            activities: no effect: there is the CPU only.
        """
        if self.entered:
            _core.profile_pause(not enabled)

    def __repr__(self) -> str:
        return (
            repr(self._events)
            if self._events is not None
            else "<unfinished torch.autograd.profile>"
        )

    def __str__(self) -> str:
        return str(self._events) if self._events is not None else repr(self)


class _Absent:
    """A range emitter of another vendor's tool."""

    tool = ""

    def __init__(self, enabled: bool = True, record_shapes: bool = False) -> None:
        """Refuses: the tool's library is not linked."""
        raise NotImplementedError(
            f"[profiler] {type(self).__name__} needs {self.tool}, which this build does not have\n"
            "hint: use flambeau.profiler.profile and export_chrome_trace"
        )


class emit_nvtx(_Absent):  # noqa: N801 - PyTorch's name
    """Ranges for NVIDIA's tools: not available."""

    tool = "NVTX"


class emit_itt(_Absent):  # noqa: N801 - PyTorch's name
    """Ranges for Intel's tools: not available."""

    tool = "ITT"
