"""Profiles of long programs: recorded step by step, by a schedule, and handed to a handler."""

from __future__ import annotations

import enum
import json
import os
import socket
import time
import uuid
import warnings
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

from flambeau.profiler import session as one_profile
from flambeau.profiler.events import EventList

Schedule = Callable[[int], "ProfilerAction"]
Handler = Callable[["profile"], Any]


class ProfilerActivity(enum.Enum):
    """The activities that can be profiled: the CPU."""

    CPU = 0
    XPU = 1
    MTIA = 2
    CUDA = 3
    HPU = 4
    PrivateUse1 = 5


class ProfilerAction(enum.Enum):
    """The actions of a profile in a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def supported_activities() -> set[ProfilerActivity]:
    """The activities that can be profiled here."""
    return {ProfilerActivity.CPU}


def schedule(
    *,
    wait: int,
    warmup: int,
    active: int,
    repeat: int = 0,
    skip_first: int = 0,
    skip_first_wait: int = 0,
) -> Schedule:
    """A schedule that repeats: wait, warm up, record.

    Args:
        wait: steps of a cycle in which nothing happens.
        warmup: steps that are recorded and discarded.
        active: steps that are recorded; after the last one the handler is called.
        repeat: how many cycles; 0: until the end.
        skip_first: steps before the first cycle.
        skip_first_wait: not 0: the first cycle does not wait.

    Returns:
        A function from the number of a step to a `ProfilerAction`.

    Example:
        >>> plan = schedule(wait=1, warmup=1, active=2)
        >>> [plan(step).name for step in range(5)]
        ['NONE', 'WARMUP', 'RECORD', 'RECORD_AND_SAVE', 'NONE']
    """
    _check_schedule(active, wait=wait, warmup=warmup, repeat=repeat, skip_first=skip_first)
    if warmup == 0:
        warnings.warn(
            "[profiler] Profiler won't be using warmup, this can skew profiler results\n"
            "hint: warmup=1",
            stacklevel=2,
        )

    def action(step: int) -> ProfilerAction:
        if step < 0:
            raise AssertionError(f"[profiler] step {step} is negative\nhint: steps count from 0")
        if step < skip_first:
            return ProfilerAction.NONE
        step += (wait if skip_first_wait else 0) - skip_first
        cycle, place = divmod(step, wait + warmup + active)
        if place < wait or (repeat > 0 and cycle >= repeat):
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        last = place == wait + warmup + active - 1
        return ProfilerAction.RECORD_AND_SAVE if last else ProfilerAction.RECORD

    return action


def _check_schedule(active: int, **others: int) -> None:
    if active > 0 and min(others.values()) >= 0:
        return
    values = ", ".join(f"{name}={value}" for name, value in others.items())
    raise AssertionError(
        "[profiler] Invalid profiler schedule arguments: only active must be positive, the others "
        f"not negative: got active={active}, {values}\nhint: schedule(wait=1, warmup=1, active=3)"
    )


def _always(_: int) -> ProfilerAction:
    """The schedule of a profile without one."""
    return ProfilerAction.RECORD


def tensorboard_trace_handler(
    dir_name: str,
    worker_name: str | None = None,
    use_gzip: bool = False,
    use_python_export: bool = False,
) -> Handler:
    """A handler for `on_trace_ready` that writes one trace file per cycle into a directory.

    Args:
        dir_name: the directory; it is made if need be.
        worker_name: beginning of the files' names; default: host and process.
        use_gzip: compress them.
        use_python_export: no effect: traces are always written by Python.

    Raises:
        RuntimeError: (the handler) the directory cannot be made.
    """

    def handle(prof: profile) -> None:
        try:
            os.makedirs(dir_name, exist_ok=True)
        except OSError as error:
            raise RuntimeError(
                f"[profiler] Can't create directory: {dir_name}\nhint: {error.strerror}"
            ) from error
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        name = f"{worker}.{time.time_ns()}.pt.trace.json"
        prof.export_chrome_trace(os.path.join(dir_name, name + ".gz" * use_gzip))

    return handle


class profile:  # noqa: N801 - PyTorch's name
    """Profiles a `with` block: operators, compiled regions, backward, and the kernels they launch.

    Args:
        activities: what to profile; default: all that is there, the CPU.
        schedule: what to do in which step (`schedule(...)`); default: record from begin to end.
        on_trace_ready: called with the profile whenever a recording is complete.
        record_shapes: record the shapes of operators' arguments.
        profile_memory: record allocations and the operators that make them.
        with_stack: record the source lines.
        with_flops: count floating-point operations.
        with_modules: no effect: modules are part of the stack.
        experimental_config: no effect.
        execution_trace_observer: must be None.
        acc_events: accumulate the events of all cycles; default: those of the last.
        use_cuda: the old form of `activities`.
        custom_trace_id_callback: gives the number of a cycle's trace.
        post_processing_timeout_s: no effect: nothing runs long after the end.

    Example:
        >>> import flambeau
        >>> from flambeau.profiler import ProfilerActivity, profile
        >>> x = flambeau.ones(64, 64)
        >>> with profile(activities=[ProfilerActivity.CPU], with_flops=True) as prof:
        ...     _ = x @ x
        >>> [event.flops for event in prof.key_averages() if event.key == "aten::matmul"]
        [524288]
    """

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Schedule | None = None,
        on_trace_ready: Handler | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: object = None,
        execution_trace_observer: object = None,
        acc_events: bool = False,
        use_cuda: bool | None = None,
        custom_trace_id_callback: Callable[[], str] | None = None,
        post_processing_timeout_s: float | None = None,
    ) -> None:
        """A profile that begins with `with` or `start()`."""
        self.activities = _usable(activities, use_cuda)
        if execution_trace_observer is not None:
            ExecutionTraceObserver()
        self.schedule = schedule or _always
        self.record_steps = schedule is not None
        self.on_trace_ready = on_trace_ready
        self.record_shapes = record_shapes
        self.profile_memory = profile_memory
        self.with_stack = with_stack
        self.with_flops = with_flops
        self.with_modules = with_modules
        self.acc_events = acc_events
        self.custom_trace_id_callback = custom_trace_id_callback
        self.step_num = 0
        self.current_action = self.schedule(0)
        self.step_rec_fn: one_profile.record_function | None = None
        self.profiler: one_profile.profile | None = None  # the last finished recording
        self._recording: one_profile.profile | None = None
        self._kept: list[Any] = []
        self._preset: dict[str, str] = {}
        self._trace_id = ""

    # ------------------------------------------------------------------------- steps

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Begins with step 0."""
        self._move(None, self.current_action)
        self._begin_step()

    def stop(self) -> None:
        """Ends; what is being recorded goes to the handler."""
        self._end_step()
        self._move(self.current_action, None)

    def step(self) -> None:
        """Says that the next step of the program begins."""
        self._end_step()
        before = self.current_action
        self.step_num += 1
        self.current_action = self.schedule(self.step_num)
        self._move(before, self.current_action)
        self._begin_step()

    def set_custom_trace_id_callback(self, callback: Callable[[], str]) -> None:
        """Sets who gives the number of a cycle's trace."""
        self.custom_trace_id_callback = callback

    def get_trace_id(self) -> str | None:
        """The number of the last recording, or None before the first."""
        return self._trace_id or None

    def _begin_step(self) -> None:
        if self.record_steps:
            self.step_rec_fn = one_profile.record_function(f"ProfilerStep#{self.step_num}")
            self.step_rec_fn.__enter__()

    def _end_step(self) -> None:
        if self.step_rec_fn is not None:
            self.step_rec_fn.__exit__(None, None, None)
            self.step_rec_fn = None

    def _move(self, before: ProfilerAction | None, after: ProfilerAction | None) -> None:
        """From one step's action to the next one's; None: before the first, after the last."""
        action = ProfilerAction
        recording = before in (action.RECORD, action.RECORD_AND_SAVE)
        going_on = after in (action.RECORD, action.RECORD_AND_SAVE)
        if before == action.RECORD_AND_SAVE or (recording and after is None):
            self.stop_trace()
            if self.on_trace_ready is not None:
                self.on_trace_ready(self)
            recording = False
        elif recording and not going_on:
            warnings.warn(
                f"[profiler] Incorrect schedule: RECORD followed by {after and after.name}\n"
                "hint: the last recorded step is RECORD_AND_SAVE",
                stacklevel=3,
            )
            self.stop_trace()
        elif before == action.WARMUP and not going_on and after != action.WARMUP:
            if after is not None:
                warnings.warn(
                    "[profiler] Incorrect schedule: WARMUP followed by NONE\n"
                    "hint: a warm-up is followed by RECORD",
                    stacklevel=3,
                )
            self._discard()
        if after == action.WARMUP and before != action.WARMUP:
            self.prepare_trace()
        if going_on and not recording:
            self.start_trace()

    # ------------------------------------------------------------------------- one recording

    def prepare_trace(self) -> None:
        """Begins a recording that is discarded: the first events cost more than later ones."""
        self._discard()
        self._recording = one_profile.profile(
            record_shapes=self.record_shapes,
            with_flops=self.with_flops,
            profile_memory=self.profile_memory,
            with_stack=self.with_stack,
            with_modules=self.with_modules,
        )
        self._recording.start()

    def start_trace(self) -> None:
        """Begins the recording that the profile shows."""
        if self._recording is None:
            self.prepare_trace()
        assert self._recording is not None
        self._recording.discard()
        self._recording.metadata = dict(self._preset)
        callback = self.custom_trace_id_callback
        self._trace_id = callback() if callback else uuid.uuid4().hex.upper()
        self._recording.metadata["trace_id"] = json.dumps(self._trace_id)
        self._recording.start()

    def stop_trace(self) -> None:
        """Ends a recording."""
        if self._recording is None:
            return
        self.profiler, self._recording = self._recording, None
        self.profiler.stop()
        if self.acc_events:
            self._kept += self.profiler.function_events

    def _discard(self) -> None:
        if self._recording is not None:
            self._recording.discard()
            self._recording = None

    def toggle_collection_dynamic(
        self, enable: bool, activities: Iterable[ProfilerActivity] = ()
    ) -> None:
        """Stops recording for a while, or goes on.

        Args:
            enable: whether to record from now on.
            activities: no effect: there is the CPU only.
        """
        if self._recording is not None:
            self._recording.toggle_collection_dynamic(enable, activities)

    # ------------------------------------------------------------------------- what was found

    def _finished(self) -> one_profile.profile:
        if self.profiler is None:
            raise AssertionError(
                "[profiler] Profiler must be initialized before results are read: nothing was "
                "recorded\nhint: read them after the with block; did the schedule reach RECORD?"
            )
        return self.profiler

    def events(self) -> EventList:
        """The events of the last recording (of all with `acc_events`), in the order of starts."""
        last = self._finished().function_events
        if not self.acc_events:
            return last
        return EventList(
            self._kept,
            profile_memory=self.profile_memory,
            with_flops=self.with_flops,
            trace=last._trace,
        )

    def key_averages(
        self,
        group_by_input_shape: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
    ) -> EventList:
        """Sums of the events per name.

        Args:
            group_by_input_shape: events of other shapes are another group (`record_shapes=True`).
            group_by_stack_n: events whose innermost `n` source lines differ are other groups
                (`with_stack=True`).
            group_by_overload_name: no effect: operators have one name here.
        """
        return self.events().key_averages(
            group_by_input_shape, group_by_stack_n, group_by_overload_name
        )

    def export_chrome_trace(self, path: str, use_python_export: bool = False) -> None:
        """Writes the last recording for chrome://tracing and ui.perfetto.dev.

        Args:
            path: where to; a name that ends in ".gz" is compressed. The file appears whole.
            use_python_export: no effect: traces are always written by Python.
        """
        self._finished().export_chrome_trace(path)

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Writes source lines and their times for flame graphs (`with_stack=True`)."""
        self._finished().export_stacks(path, metric)

    def export_memory_timeline(self, path: str, device: str | None = None) -> None:
        """Not available; a chrome trace shows the allocated bytes as a curve."""
        raise NotImplementedError(
            "[profiler] export_memory_timeline is not supported\n"
            "hint: profile_memory=True and export_chrome_trace show allocated bytes as a curve"
        )

    def add_metadata(self, key: str, value: str) -> None:
        """Adds a text to the trace file of the recording that runs or has just ended."""
        self.add_metadata_json(key, json.dumps(value))

    def add_metadata_json(self, key: str, value: str) -> None:
        """Adds a value, written as JSON, to the trace file."""
        (self._recording or self._finished()).metadata[key] = value

    def preset_metadata_json(self, key: str, value: str) -> None:
        """Adds a value, written as JSON, to the trace files of all recordings to come."""
        self._preset[key] = value


def _usable(
    activities: Iterable[ProfilerActivity] | None, use_cuda: bool | None
) -> set[ProfilerActivity]:
    """The requested activities that are supported; warns about the others."""
    asked = set(activities) if activities is not None else supported_activities()
    if use_cuda:
        asked.add(ProfilerActivity.CUDA)
    if not asked:
        raise AssertionError(
            "[profiler] No valid profiler activities found\nhint: activities=[ProfilerActivity.CPU]"
        )
    for activity in asked - supported_activities():
        name = getattr(activity, "name", activity)
        warnings.warn(
            f"[profiler] {name} is not available, disabling {name} profiling\n"
            "hint: activities=[ProfilerActivity.CPU]",
            stacklevel=3,
        )
    return asked & supported_activities()


class ExecutionTraceObserver:
    """Recordings of the operators' arguments for replay: not available."""

    def __init__(self) -> None:
        """Refuses."""
        raise NotImplementedError(
            "[profiler] ExecutionTraceObserver is not supported\n"
            "hint: profile(record_shapes=True) and export_chrome_trace tell the calls and shapes"
        )
