"""From clusters in order to a schedule: launches, buffers, and how long memory lives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from flambeau.compiler.schedule.build import Builder, Call, InPlaceConflict, Memory, Place
from flambeau.compiler.schedule.candidates import DEFAULT, Choose, TunableCall
from flambeau.compiler.schedule.cluster import Cluster
from flambeau.compiler.schedule.convolution import convolution_calls
from flambeau.compiler.schedule.flops import count_flops
from flambeau.compiler.schedule.placement import Placement
from flambeau.compiler.schedule.prepare import Prepared, routine_of
from flambeau.compiler.schedule.product import product_calls
from flambeau.compiler.schedule.routines import RoutineCall, routine_calls
from flambeau.ir.geometry import count
from flambeau.ir.kernel import Kernel
from flambeau.ir.node import ITEM_SIZE, Graph, Node
from flambeau.ir.size import Size, mul

# How opaque values with an epilogue are launched.
TEMPLATES = {"matmul": product_calls, "convolution": convolution_calls}


@dataclass(frozen=True)
class Buffer:
    """Memory of a schedule.

    Attributes:
        kind: "input", "output", "temporary", "generator" or "error".
        where: slot, number, byte count (size expression), generator slot, or the kind and message
            of an exception.
        first: index of the first launch that touches it (temporaries).
        last: index of the last one.
    """

    kind: str
    where: Any
    first: int = 0
    last: int = 0


@dataclass
class Launch:
    """One step: a kernel or a native routine.

    Attributes:
        kernel: the kernel, or None.
        routine: name of the routine, or None.
        name: for people.
        buffers: numbers into `Schedule.buffers`.
        offsets: bytes to skip per buffer (size expressions).
        sizes: size arguments.
        scalars: ("argument", slot, as float) or ("constant", value, as float).
        chunks: number of chunks of a kernel.
        work: estimated nanoseconds.
        scratch: bytes per worker.
        group: launches of one group in a row are independent; -1: none.
        flops: floating-point operations, for profiles.
        elements: points of a kernel's loops, for profiles.
        traffic: see `build.Call`; empty: all of every buffer.
        access: of a routine: "r", "w" or "rw" per buffer; a kernel's parameters have theirs.
        packing: see `RoutineCall`; only of launches that pack an input.
        spare: see there.
    """

    kernel: Kernel | None
    routine: str | None
    name: str
    buffers: list[int]
    offsets: list[Size]
    sizes: list[Size]
    scalars: list[tuple[str, Any, bool]]
    chunks: Size = 0
    work: Size = 0
    scratch: Size = 0
    group: int = -1
    flops: Size = 0
    elements: Size = 0
    traffic: list[int] = field(default_factory=list)
    access: list[str] = field(default_factory=list)
    packing: tuple[int, int] | None = None
    spare: Size = 0

    def accesses(self) -> list[str]:
        """Whether each buffer is read ("r"), written ("w"), or both."""
        if self.kernel is None:
            return self.access
        return [access for _, access in self.kernel.parameters]


@dataclass
class Schedule:
    """The launches and buffers of a graph, before code is generated.

    Attributes:
        launches: in order.
        buffers: the memory that they use.
        written: slots of inputs that they write.
        origins: per launch the number of the cluster, or launch, that it was made from.
        memories: the values that buffers belong to; empty: they were dropped.
    """

    launches: list[Launch] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    written: tuple[int, ...] = ()
    origins: list[int] = field(default_factory=list)
    memories: list[Memory] = field(default_factory=list)

    def text(self) -> str:
        """The schedule for people: one block per launch, equal kernels printed once."""
        lines = [f"buffer {i}: {b.kind} {b.where}" for i, b in enumerate(self.buffers)]
        seen: dict[str, int] = {}
        for number, launch in enumerate(self.launches):
            what = launch.routine or "kernel"
            lines.append(
                f"launch {number}: {what} {launch.name} buffers {launch.buffers} sizes "
                f"{launch.sizes} chunks {launch.chunks} group {launch.group}"
            )
            if launch.kernel is not None:
                text = launch.kernel.text()
                if text in seen:
                    lines.append(f"  the kernel of launch {seen[text]}")
                else:
                    seen[text] = number
                    lines.extend("  " + line for line in text.splitlines())
        return "\n".join(lines) + "\n"


Emit = Callable[[Kernel], object]


def lower(
    graph: Graph,
    prepared: Prepared,
    clusters: Sequence[Cluster],
    choose: Choose | None = None,
    emit: Emit | None = None,
) -> Schedule:
    """Launches of clusters, in their order.

    Args:
        graph: the program.
        prepared: the graph, with destinations.
        clusters: in the order of their launches.
        choose: names the candidate of each tunable call.
        emit: called with each kernel as soon as it is built. A kernel may be of no use after all.

    Raises:
        InPlaceConflict: for all slots that need a copy which comes last.
    """
    return _Launcher(graph, prepared, clusters, choose).run(emit)


class _Launcher:
    def __init__(
        self,
        graph: Graph,
        prepared: Prepared,
        clusters: Sequence[Cluster],
        choose: Choose | None,
    ) -> None:
        self.graph = graph
        self.clusters = clusters
        self.choose = choose
        self.placement = Placement(prepared)
        self.result = Schedule(written=_written(prepared))
        self.needed = {s for c in clusters for s in c.sources}
        self._buffers: dict[Memory, int] = {}

    def run(self, emit: Emit | None) -> Schedule:
        """Builds the launches of every cluster."""
        steps: list[tuple[Cluster, Launch]] = []
        conflicts: list[int] = []
        for cluster in self.clusters:
            try:
                launches = self._launches(cluster)
            except InPlaceConflict as conflict:
                conflicts.extend(conflict.slots)
                continue
            steps.extend((cluster, launch) for launch in launches)
            if emit is not None:
                for launch in launches:
                    if launch.kernel is not None:
                        emit(launch.kernel)
        if conflicts:
            raise InPlaceConflict(conflicts)
        self.result.launches = [launch for _, launch in steps]
        self.result.origins = [cluster.number for cluster, _ in steps]
        self.result.memories = list(self._buffers)
        _group(steps)
        self.result.buffers = with_lifetimes(self.result.buffers, self.result.launches)
        return self.result

    def _buffer(self, memory: Memory) -> int:
        number = self._buffers.get(memory)
        if number is None:
            number = self._buffers[memory] = len(self.result.buffers)
            kind, where = memory
            if isinstance(where, Node) and kind == "temporary":
                self.result.buffers.append(
                    Buffer(kind, mul(count(where.shape), ITEM_SIZE[where.dtype]))
                )
            else:
                self.result.buffers.append(Buffer(kind, where))
        return number

    def _launches(self, cluster: Cluster) -> list[Launch]:
        place = self.placement.place
        if cluster.domain is None:
            values = list(cluster.members)
            calls = self._chosen(values[0], partial(routine_calls, values, place))
            count_flops(values[0], calls)
            launches = [self._routine(call) for call in calls]
            operands = {place(operand).memory for operand in values[0].inputs}
            _note_access(launches, calls, operands, {place(value).memory for value in values})
            return launches
        stores: dict[Node, list[Place]] = {}
        for value in cluster.members:
            places = self.placement.stores(value)
            if places:
                stores[value] = places
            elif value in self.needed:
                stores[value] = [place(value)]
        reads = {s: place(s) for s in cluster.sources}
        if cluster.product is not None:
            make = partial(TEMPLATES[cluster.product.op], cluster, stores, reads)
            calls = self._chosen(cluster.product, make)
            calls[-1].name = _name(self.graph, cluster)
            count_flops(cluster.product, calls)
            return [self._routine(call) for call in calls]
        varying = self.graph.notes.get("varying", False)
        built = Builder(cluster, stores, reads, varying).build()
        return [] if built is None else [self._kernel(built, cluster)]

    def _chosen(self, value: Node, make: Callable[[str], list[RoutineCall]]) -> list[RoutineCall]:
        """The launches of a call, as its candidate says."""
        if self.choose is None or not routine_of(value).tuned:
            return make(DEFAULT)
        return make(self.choose(TunableCall(self.graph, value, make)))

    def _routine(self, call: RoutineCall) -> Launch:
        buffers, packs = [self._buffer(m) for m in call.memory], call.packing
        return Launch(
            kernel=call.kernel,
            routine=call.name if call.kernel is None else None,
            name=call.name,
            buffers=buffers,
            offsets=call.offsets,
            sizes=call.sizes,
            scalars=call.scalars,
            chunks=call.chunks,
            work=call.work,
            scratch=call.scratch,
            flops=call.flops,
            packing=call.packing if packs and call.memory[packs[0]][0] == "input" else None,
            spare=call.spare,
        )

    def _kernel(self, call: Call, cluster: Cluster) -> Launch:
        buffers = [self._buffer(m) for m in call.memory]
        return Launch(
            kernel=call.kernel,
            routine=None,
            name=_name(self.graph, cluster),
            buffers=buffers,
            offsets=[0] * len(buffers),
            sizes=call.sizes,
            scalars=call.scalars,
            chunks=call.chunks,
            work=call.work,
            scratch=call.scratch,
            flops=call.flops,
            elements=call.elements,
            traffic=call.traffic,
        )


def _note_access(
    launches: Sequence[Launch],
    calls: Sequence[RoutineCall],
    operands: set[Memory],
    results: set[Memory],
) -> None:
    """Notes what routines read and write: operands are read, results are written, and other memory
    is written by the first of the launches that uses it."""
    read = set(operands)
    for launch, call in zip(launches, calls, strict=True):
        for memory in call.memory:
            access = "r" * (memory in read) + "w" * (memory in results or memory not in read)
            launch.access.append(access)
        read.update(call.memory)


def _written(prepared: Prepared) -> tuple[int, ...]:
    """Slots of inputs that some value is written to."""
    destinations = (d for listed in prepared.destinations.values() for d in listed)
    slots = {d.where for d in destinations if d.kind == "input"}
    return tuple(sorted(slot for slot in slots if isinstance(slot, int)))


def _name(graph: Graph, cluster: Cluster) -> str:
    ops = dict.fromkeys(v.op for v in cluster.members if not v.op.startswith("s."))
    several = f"{cluster.together} in one, " if cluster.together > 1 else ""
    return f"{graph.name}: {several}{' '.join(list(ops)[:4])}"


def _group(steps: list[tuple[Cluster, Launch]]) -> None:
    """Numbers runs of kernels none of which depends on another."""
    group: list[tuple[Cluster, Launch]] = []
    number = members = 0  # mask of the group's clusters
    for cluster, launch in [*steps, (None, None)]:
        mask = 0 if cluster is None else cluster.before
        routine = launch is not None and (launch.kernel is None or launch.kernel.form == "template")
        if cluster is None or routine or mask & members:
            if len(group) > 1:
                for _, member in group:
                    member.group = number
                number += 1
            group, members = [], 0
        if cluster is not None and launch is not None and not routine:
            group.append((cluster, launch))
            members |= cluster.numbers


def with_lifetimes(buffers: Sequence[Buffer], launches: Sequence[Launch]) -> list[Buffer]:
    """The buffers with the first and the last launch of each, whole groups at a time."""
    starts, ends = _group_bounds(launches)
    lives: dict[int, list[int]] = {}
    for number, launch in enumerate(launches):
        for buffer in launch.buffers:
            life = lives.setdefault(buffer, [starts[number], ends[number]])
            life[1] = max(life[1], ends[number])
    return [Buffer(b.kind, b.where, *lives.get(i, (0, 0))) for i, b in enumerate(buffers)]


def _group_bounds(launches: Sequence[Launch]) -> tuple[list[int], list[int]]:
    """Per launch the first and the last launch of its group."""
    starts: list[int] = []
    ends: list[int] = [0] * len(launches)
    for number, launch in enumerate(launches):
        same = number and launch.group >= 0 and launches[number - 1].group == launch.group
        starts.append(starts[-1] if same else number)
    for number in range(len(launches) - 1, -1, -1):
        following = number + 1 < len(launches) and starts[number + 1] == starts[number]
        ends[number] = ends[number + 1] if following else number
    return starts, ends
