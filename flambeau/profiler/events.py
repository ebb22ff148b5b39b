"""The events of a profile: their tree, their averages, and the table of those.

The native core hands over one record per event, with the event it happened inside of; here they
become a tree. Times are in microseconds, as PyTorch reports them; memory is in bytes.
"""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from flambeau.profiler import event_table, trace_file

__all__ = [
    "DeviceType",
    "EventKind",
    "EventList",
    "EventRecord",
    "FunctionEvent",
    "FunctionEventAvg",
    "Interval",
]

STEP = re.compile(r"^(ProfilerStep)#\d+$")
Frames = list[tuple[Any, int]]


class DeviceType(enum.IntEnum):
    """Where an event ran. Only the CPU is there to be profiled."""

    CPU = 0
    CUDA = 1


class EventKind(enum.IntEnum):
    """The kinds of events; the numbers are those of `native/runtime/profile.h`."""

    OP = 0
    RECORDED = 1
    RANGE = 2
    BACKWARD = 3
    REGION = 4
    TRACE = 5
    COMPILE = 6
    LAUNCH = 7
    PIECE = 8
    MEMORY = 9


KINDS = tuple(EventKind)
SCOPES = {EventKind.BACKWARD: 1, EventKind.RANGE: 7}


class EventRecord(NamedTuple):
    """One event as the native core hands it over; times in nanoseconds."""

    parent: int
    kind: int
    name: str
    log: int
    thread: int
    start: int
    end: int
    bytes: int
    flops: int
    work: int
    busy: int
    threads: int
    group: int
    memory: int
    total: int
    sequence: int
    arguments: list[Any] | None
    frames: Frames | None


@dataclass(frozen=True)
class Interval:
    """A span of time in microseconds since the profile's start."""

    start: float
    end: float

    def elapsed_us(self) -> float:
        """Its length."""
        return self.end - self.start


class _Times:
    """Derived times and their texts, of events and of averages; devices took none."""

    count: int
    cpu_time_total: float
    self_cpu_time_total: float
    device_time_total = 0.0
    self_device_time_total = 0.0
    device_memory_usage = 0
    self_device_memory_usage = 0
    bytes: int
    flops: int

    @property
    def cpu_time(self) -> float:
        """Microseconds per call."""
        return self.cpu_time_total / self.count if self.count else 0.0

    @property
    def device_time(self) -> float:
        """Microseconds per call on a device: none is there."""
        return 0.0

    cuda_time = device_time

    @property
    def cpu_time_str(self) -> str:
        """`cpu_time` as text."""
        return event_table.duration(self.cpu_time)

    @property
    def cpu_time_total_str(self) -> str:
        """`cpu_time_total` as text."""
        return event_table.duration(self.cpu_time_total)

    @property
    def self_cpu_time_total_str(self) -> str:
        """`self_cpu_time_total` as text."""
        return event_table.duration(self.self_cpu_time_total)

    @property
    def device_time_str(self) -> str:
        """`device_time` as text."""
        return event_table.duration(self.device_time)

    @property
    def device_time_total_str(self) -> str:
        """`device_time_total` as text."""
        return event_table.duration(self.device_time_total)

    @property
    def self_device_time_total_str(self) -> str:
        """`self_device_time_total` as text."""
        return event_table.duration(self.self_device_time_total)

    @property
    def bandwidth(self) -> float:
        """Bytes moved per second of wall time."""
        return self.bytes / self.cpu_time_total * 1e6 if self.cpu_time_total else 0.0

    @property
    def flop_rate(self) -> float:
        """Floating-point operations per second of wall time."""
        return self.flops / self.cpu_time_total * 1e6 if self.cpu_time_total else 0.0


class FunctionEvent(_Times):
    """One call of an operator, a named range, a launch of a kernel, ...

    Attributes:
        id: number within the profile, in the order of starts.
        name: "aten::add" for operators, the given name for ranges, "kernel::..." and "routine::..."
            for launches.
        trace_name: the same, but with the number of a step of a schedule.
        kind: which of them it is (`EventKind`).
        time_range: when it ran, in microseconds since the profile's start.
        thread: number of the thread it ran in, from 1.
        cpu_parent: the event it happened inside of, or None.
        cpu_children: the events directly inside of it.
        input_shapes: per argument of an operator its shape, `[]` for what is no tensor
            (`record_shapes=True`).
        input_dtypes: per argument the name of its dtype, "" for what is no tensor.
        stack: the user's source lines that led here, innermost first (`with_stack=True`). A
            backward's are those of its forward call.
        flops: floating-point operations of the launches inside (`with_flops=True`).
        bytes: bytes that the launches inside read and wrote.
        busy_time: microseconds of processor time that the launches inside took in all threads.
        threads: the largest number of threads that took part in a launch.
        cpu_memory_usage: bytes taken minus bytes given back meanwhile (`profile_memory=True`).
        sequence_nr: number that a forward call and its backward have in common; -1: none.
    """

    count = 1
    is_async = False
    is_remote = False
    is_legacy = False
    node_id = -1
    device_type = DeviceType.CPU
    device_index = 0
    use_device: str | None = None
    overload_name = ""
    is_python_function = False

    def __init__(self, record: EventRecord, number: int, origin: int, name: str) -> None:
        """An event that is in no tree yet; `origin` is the profile's start in nanoseconds."""
        self.record = record
        self.id = self.external_id = number
        self.name = self.trace_name = name
        self.kind = KINDS[record.kind]
        if self.kind is EventKind.RANGE:
            self.name = STEP.sub(r"\1*", name)  # steps are one group
        self.time_range = Interval((record.start - origin) / 1000, (record.end - origin) / 1000)
        self.thread = self.fwd_thread = record.log + 1
        self.cpu_parent: FunctionEvent | None = None
        self.cpu_children: list[FunctionEvent] = []
        self.stack: list[str] = []
        self.flops = record.flops
        self.bytes = record.bytes if self.kind == EventKind.LAUNCH else 0
        self.busy_time = record.busy / 1000
        self.threads = record.threads
        self.cpu_memory_usage = record.bytes if self.kind == EventKind.MEMORY else record.memory
        self.sequence_nr = record.sequence

    @property
    def key(self) -> str:
        """The name that averages group by."""
        return self.name

    @property
    def input_shapes(self) -> list[Any]:
        """Per argument its shape."""
        return [_described(a)[0] for a in self.record.arguments or ()]

    @property
    def input_dtypes(self) -> list[Any]:
        """Per argument the name of its dtype."""
        return [_described(a)[1] for a in self.record.arguments or ()]

    @property
    def estimated_time(self) -> float:
        """Microseconds that the scheduler thought a launch would take; 0 for what is no launch."""
        return self.record.work / 1000 if self.kind is EventKind.LAUNCH else 0.0

    @property
    def kernels(self) -> list[Any]:
        """Kernels on devices: none."""
        return []

    @property
    def concrete_inputs(self) -> list[Any]:
        """Values of arguments that are no tensors: not recorded."""
        return []

    @property
    def kwinputs(self) -> dict[str, Any]:
        """Arguments passed by name: recorded by position instead."""
        return {}

    @property
    def scope(self) -> int:
        """1: backward, 7: `record_function`, 0: all others."""
        return SCOPES.get(self.kind, 0)

    @property
    def is_user_annotation(self) -> bool:
        """Whether `record_function` made it."""
        return self.kind == EventKind.RANGE

    @property
    def cpu_time_total(self) -> float:  # type: ignore[override]
        """Wall time in microseconds, children included."""
        return self.time_range.elapsed_us()

    @property
    def self_cpu_time_total(self) -> float:  # type: ignore[override]
        """Wall time in microseconds outside of children."""
        inside = sum(child.cpu_time_total for child in self.cpu_children)
        return max(0.0, self.cpu_time_total - inside)

    @property
    def self_cpu_memory_usage(self) -> int:
        """`cpu_memory_usage` outside of children."""
        return self.cpu_memory_usage - sum(child.cpu_memory_usage for child in self.cpu_children)

    def __repr__(self) -> str:
        parent = None if self.cpu_parent is None else self.cpu_parent.id
        return (
            f"<FunctionEvent id={self.id} name={self.name} cpu_time={self.cpu_time_str} "
            f"thread={self.thread} cpu_parent={parent} "
            f"cpu_children={[child.id for child in self.cpu_children]} "
            f"input_shapes={self.input_shapes} cpu_memory_usage={self.cpu_memory_usage}>"
        )


def _described(argument: Any) -> tuple[Any, Any]:
    """(shape, dtype) of an argument; lists of tensors give lists."""
    if argument is None:
        return [], ""
    if isinstance(argument, list):
        pairs = [_described(a) for a in argument]
        return [shape for shape, _ in pairs], [dtype for _, dtype in pairs]
    dtype, sizes = argument
    return list(sizes), dtype


class FunctionEventAvg(_Times):
    """The sums over all events of one group; `count` says how many they are."""

    def __init__(self) -> None:
        """An empty group."""
        self.key = ""
        self.count = 0
        self.cpu_time_total = 0.0
        self.self_cpu_time_total = 0.0
        self.cpu_memory_usage = 0
        self.self_cpu_memory_usage = 0
        self.flops = 0
        self.bytes = 0
        self.busy_time = 0.0
        self.threads = 0
        self.input_shapes: Any = ""
        self.stack: list[str] = []
        self.overload_name = ""
        self.node_id = -1
        self.scope = 0
        self.use_device: str | None = None
        self.device_type = DeviceType.CPU
        self.is_async = self.is_remote = self.is_legacy = False
        self.is_user_annotation = False
        self.cpu_children: list[FunctionEvent] = []
        self.cpu_parent: FunctionEvent | None = None

    def add(self, other: FunctionEvent | FunctionEventAvg) -> FunctionEventAvg:
        """Adds an event, or another average."""
        if not self.count:
            self.key = other.key
            self.input_shapes, self.stack = other.input_shapes, other.stack
            self.scope, self.is_user_annotation = other.scope, other.is_user_annotation
        self.count += other.count
        self.cpu_time_total += other.cpu_time_total
        self.self_cpu_time_total += other.self_cpu_time_total
        self.cpu_memory_usage += other.cpu_memory_usage
        self.self_cpu_memory_usage += other.self_cpu_memory_usage
        self.flops += other.flops
        self.bytes += other.bytes
        self.busy_time += other.busy_time
        self.threads = max(self.threads, other.threads)
        return self

    __iadd__ = add

    def __repr__(self) -> str:
        return (
            f"<FunctionEventAvg key={self.key} count={self.count} "
            f"self_cpu_time={self.self_cpu_time_total_str} cpu_time={self.cpu_time_str} "
            f"input_shapes={self.input_shapes} cpu_memory_usage={self.cpu_memory_usage}>"
        )


class EventList(list[Any]):
    """Events of a profile, or averages of them (`key_averages`), in the order of their starts."""

    def __init__(
        self,
        events: Iterable[FunctionEvent | FunctionEventAvg] = (),
        *,
        use_device: str | None = None,
        profile_memory: bool = False,
        with_flops: bool = False,
        trace: trace_file.Trace | None = None,
    ) -> None:
        """A list; the options say which columns `table` has."""
        super().__init__(events)
        self._use_device = use_device
        self._profile_memory = profile_memory
        self._with_flops = with_flops
        self._trace = trace
        self._is_average = False

    def __str__(self) -> str:
        return self.table()

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds of all events together; none is counted twice."""
        return float(sum(event.self_cpu_time_total for event in self))

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_src_column_width: int = 75,
        max_name_column_width: int = 55,
        max_shapes_column_width: int = 80,
        header: str | None = None,
        top_level_events_only: bool = False,
        time_unit: str | None = None,
    ) -> str:
        """The events as a table for people.

        Args:
            sort_by: attribute to sort by, the largest first: `cpu_time`, `cpu_time_total`,
                `self_cpu_time_total`, `cpu_memory_usage`, `self_cpu_memory_usage`, `count`,
                `flops`, `bytes`, ...; default: the order of the list.
            row_limit: how many rows; -1: all.
            max_src_column_width: columns of a source line at most.
            max_name_column_width: columns of a name at most.
            max_shapes_column_width: columns of the shapes at most.
            header: a line above the table.
            top_level_events_only: leave out what happened inside of other events.
            time_unit: "s", "ms" or "us" for all times; default: what fits each.

        Raises:
            AttributeError: events have no attribute `sort_by`.
        """
        rows = list(self)
        if top_level_events_only:
            rows = [row for row in rows if getattr(row, "cpu_parent", None) is None]
        if sort_by is not None:
            rows = event_table.sorted_rows(rows, sort_by)
        return event_table.table(
            rows if row_limit < 0 else rows[:row_limit],
            total=self.self_cpu_time_total,
            memory=self._profile_memory,
            shapes=any(row.input_shapes for row in rows),
            most_flops=max((row.flops for row in rows), default=0) if self._with_flops else None,
            widths=(max_name_column_width, max_shapes_column_width, max_src_column_width),
            header=header,
            unit=time_unit,
        )

    def key_averages(
        self,
        group_by_input_shapes: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
    ) -> EventList:
        """Sums per name.

        Args:
            group_by_input_shapes: events of other shapes are another group.
            group_by_stack_n: events whose innermost `n` source lines differ are other groups.
            group_by_overload_name: no effect: operators have one name here.
        """
        del group_by_overload_name
        groups: dict[tuple[Any, ...], FunctionEventAvg] = {}
        for event in self:
            lines = tuple(event.stack[:group_by_stack_n]) if group_by_stack_n > 0 else ()
            shapes = str(event.input_shapes) if group_by_input_shapes else ""
            groups.setdefault((event.key, shapes, lines), FunctionEventAvg()).add(event)
        for (_, _, lines), average in groups.items():
            average.stack = list(lines)
            if not group_by_input_shapes:
                average.input_shapes = ""
        return self._averages(groups.values())

    def source_averages(self, lines: int = 1) -> EventList:
        """Sums per source line of the user, over everything that the line caused.

        Args:
            lines: how many lines of the stack, from the innermost outwards, make a group.

        Returns:
            Averages whose key is the line; only self times are added, so that the total is the
            time of all lines together. Needs `with_stack=True`.
        """
        groups: dict[tuple[str, ...], FunctionEventAvg] = {}
        for event in self:
            key = tuple(event.stack[:lines])
            average = groups.setdefault(key, FunctionEventAvg())
            average.count += _is_call(event)
            average.cpu_time_total += event.self_cpu_time_total
            average.self_cpu_time_total += event.self_cpu_time_total
            average.self_cpu_memory_usage += event.self_cpu_memory_usage
            average.cpu_memory_usage += event.self_cpu_memory_usage
            if event.kind == EventKind.LAUNCH:
                average.flops += event.flops
                average.bytes += event.bytes
                average.busy_time += event.busy_time
                average.threads = max(average.threads, event.threads)
        for key, average in groups.items():
            average.key = key[0] if key else "(no source line)"
            average.stack = list(key[1:])
        return self._averages(groups.values())

    def total_average(self) -> FunctionEventAvg:
        """All events as one average."""
        total = FunctionEventAvg()
        for event in self:
            total.add(event)
        total.key = "Total"
        return total

    def _averages(self, groups: Iterable[FunctionEventAvg]) -> EventList:
        averages = EventList(
            groups,
            use_device=self._use_device,
            profile_memory=self._profile_memory,
            with_flops=self._with_flops,
        )
        averages._is_average = True
        return averages

    def export_chrome_trace(self, path: str) -> None:
        """Writes the profile for chrome://tracing and ui.perfetto.dev.

        Args:
            path: where to; a name that ends in ".gz" is compressed. The file appears whole.

        Raises:
            RuntimeError: this is a list of averages.
        """
        if self._trace is None:
            raise RuntimeError(
                "[profiler] averages have no trace\nhint: call export_chrome_trace of the profile"
            )
        self._trace.write(path)

    def supported_export_stacks_metrics(self) -> list[str]:
        """The metrics by which `export_stacks` can weigh."""
        return ["self_cpu_time_total"]

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Writes source lines and their times in the form that flame graph tools read.

        Args:
            path: where to.
            metric: one of `supported_export_stacks_metrics()`.

        Raises:
            ValueError: another metric.
        """
        if metric not in self.supported_export_stacks_metrics():
            raise ValueError(
                f"[profiler] metric should be one of: {self.supported_export_stacks_metrics()}, "
                f"got {metric!r}\nhint: self_cpu_time_total"
            )
        weights: dict[str, float] = {}
        for event in self:
            if event.stack:
                text = ";".join(
                    line.replace(" ", "_").replace(";", ":") for line in event.stack[::-1]
                )
                weights[text] = weights.get(text, 0.0) + event.self_cpu_time_total
        lines = [f"{text} {round(weight)}\n" for text, weight in weights.items() if weight >= 0.5]
        trace_file.write_whole(path, lines)


# --------------------------------------------------------------------------------- from records


@dataclass
class Tree:
    """Events in a tree, and what is only shown in a trace."""

    events: list[FunctionEvent]
    pieces: list[EventRecord]
    memory: list[EventRecord]


def build_tree(
    records: list[EventRecord], origin: int, flops: bool, hide: Callable[[str], bool]
) -> Tree:
    """Events from records.

    Args:
        records: as `_core.profile_stop` gives them: parents are numbers of records.
        origin: nanoseconds at the profile's start.
        flops: whether events tell how many operations they are.
        hide: whether a source file's lines are of no interest.
    """
    order = sorted(range(len(records)), key=lambda i: (records[i].start, -records[i].end, i))
    events_by_record: dict[int, FunctionEvent] = {}
    for i in order:
        record = records[i]
        if record.kind == EventKind.PIECE or (
            record.kind == EventKind.MEMORY and record.parent >= 0
        ):
            continue
        events_by_record[i] = FunctionEvent(
            record, len(events_by_record), origin, _name(record.kind, record.name)
        )
        if not flops:
            events_by_record[i].flops = 0
    for i, event in events_by_record.items():
        parent = events_by_record.get(records[i].parent)
        if parent is not None and event.kind != EventKind.MEMORY:
            event.cpu_parent = parent
            parent.cpu_children.append(event)
    events = list(events_by_record.values())
    _sum_launches(events)
    _find_stacks(events, hide)
    pieces = [r for r in records if r.kind == EventKind.PIECE]
    return Tree(events, pieces, [r for r in records if r.kind == EventKind.MEMORY])


@functools.lru_cache(maxsize=4096)
def _name(kind: int, name: str) -> str:
    """Returns the name of an event as users see it."""
    match kind:
        case EventKind.OP:
            return f"aten::{_snake(name)}"
        case EventKind.RECORDED:
            return f"recorded::{name}"
        case EventKind.REGION:
            return f"compiled::{name}"
        case EventKind.TRACE:
            return f"trace::{name}"
        case EventKind.COMPILE:
            return f"compile::{name}"
        case EventKind.LAUNCH:
            program, colon, ops = name.partition(": ")
            return f"kernel::{program}[{ops}]" if colon else f"routine::{name}"
        case EventKind.BACKWARD if name == "AccumulateGrad":
            return "torch::autograd::AccumulateGrad"
    return name


def _snake(name: str) -> str:
    """Returns the name of a derived operator: "MatmulBackward" is `matmul_backward`."""
    return re.sub("(?<!^)(?=[A-Z])", "_", name).lower() if name[:1].isupper() else name


def _is_call(event: FunctionEvent) -> bool:
    """Whether the user's line called this itself: no operator is around it."""
    called = (EventKind.OP, EventKind.RECORDED, EventKind.BACKWARD, EventKind.REGION)
    return event.kind in called and all(above.kind not in called for above in _ancestors(event))


def _ancestors(event: FunctionEvent) -> Iterator[FunctionEvent]:
    while event.cpu_parent is not None:
        event = event.cpu_parent
        yield event


def _sum_launches(events: list[FunctionEvent]) -> None:
    """Adds the work of launches to the events around them."""
    for event in events:
        if event.kind != EventKind.LAUNCH:
            continue
        for above in _ancestors(event):
            above.bytes += event.bytes
            above.flops += event.flops
            above.busy_time += event.busy_time
            above.threads = max(above.threads, event.threads)


def _find_stacks(events: list[FunctionEvent], hide: Callable[[str], bool]) -> None:
    """Source lines: of the event, of its forward call, or of what it happened inside of."""
    forward: dict[int, FunctionEvent] = {}
    for event in events:
        frames = event.record.frames or ()
        event.stack = [
            f"{code.co_filename}({line}): {code.co_name}"
            for code, line in frames
            if not hide(code.co_filename)
        ]
        if event.sequence_nr >= 0 and event.kind in (EventKind.OP, EventKind.RECORDED):
            forward[event.sequence_nr] = event
    for event in events:  # parents come first
        origin = forward.get(event.sequence_nr) if event.kind == EventKind.BACKWARD else None
        if origin is not None:
            event.fwd_thread = origin.thread
            event.stack = origin.stack or event.stack
        parent = event.cpu_parent
        inherits = parent is not None and (not event.record.frames or _inside_backward(parent))
        if inherits and parent is not None and origin is None:
            event.stack = parent.stack


def _inside_backward(event: FunctionEvent) -> bool:
    """Whether an event belongs to a node of the tape that a forward call made."""
    return any(
        e.kind == EventKind.BACKWARD and e.sequence_nr >= 0 for e in (event, *_ancestors(event))
    )
