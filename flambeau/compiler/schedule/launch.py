"""The whole schedule: launches in order, who depends on whom, how long memory lives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from flambeau.compiler.schedule.build import Builder, Call, InPlaceConflict, Memory, Place
from flambeau.compiler.schedule.candidates import CANDIDATES, DEFAULT, Choose, Heavy
from flambeau.compiler.schedule.cluster import Cluster, Clustering
from flambeau.compiler.schedule.convolution import convolution_calls
from flambeau.compiler.schedule.flops import count_flops
from flambeau.compiler.schedule.heavy import analyse
from flambeau.compiler.schedule.order import in_order
from flambeau.compiler.schedule.prepare import Destination, Prepared, copy_of, prepare
from flambeau.compiler.schedule.product import product_calls
from flambeau.compiler.schedule.routines import RoutineCall, routine_calls
from flambeau.ir.geometry import contiguous, count
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
        where: slot, number, byte count (size expression), generator slot or message.
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
        traffic: see `build.Call`; empty: every buffer is read or written once.
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
    packing: tuple[int, int] | None = None
    spare: Size = 0


@dataclass
class Schedule:
    """What a graph compiles to, before code is generated.

    Attributes:
        launches: in order.
        buffers: the memory that they use.
        written: slots of inputs that they write.
    """

    launches: list[Launch] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    written: tuple[int, ...] = ()

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


def schedule(
    graph: Graph, choose: Choose | None = None, emit: Callable[[Kernel], object] | None = None
) -> Schedule:
    """Schedules a (simplified) graph.

    Args:
        graph: the program.
        choose: names the candidate of each heavy call.
        emit: called with each kernel as soon as it is built. A kernel may be of no use after all.
    """
    indirect: set[int] = set()
    while True:
        scheduler = _Scheduler(graph, indirect, choose, emit)
        found = scheduler.run()
        if not scheduler.conflicts:
            return found
        if indirect.issuperset(scheduler.conflicts):
            raise next(iter(scheduler.conflicts.values()))
        indirect.update(scheduler.conflicts)


class _Scheduler:
    def __init__(
        self,
        graph: Graph,
        indirect: set[int],
        choose: Choose | None,
        emit: Callable[[Kernel], object] | None,
    ) -> None:
        self.graph = graph
        self.choose = choose
        self.emit = emit
        self.prepared: Prepared = prepare(graph, indirect)
        self.analysis = analyse(self.prepared)
        self.result = Schedule(written=self._written())
        self._places: dict[Node, Place] = {}
        self._buffers: dict[tuple[str, Any], int] = {}
        self.conflicts: dict[int, InPlaceConflict] = {}  # by slot

    def run(self) -> Schedule:
        """Clusters, orders, builds; the result is of no use where there are conflicts."""
        clustering = Clustering(self.analysis)
        clusters = clustering.run()
        self._order_in_place(clusters)
        if self.conflicts and self._write_late(clustering):
            clusters = [c for c in clustering.clusters if c.members]
            self.conflicts.clear()
            self._order_in_place(clusters)
        if self.conflicts:
            return self.result
        needed = {s for c in clusters for s in c.sources}
        steps: list[tuple[Cluster, Launch]] = []
        for cluster in in_order(clusters, self.prepared.destinations, needed):
            try:
                launches = self._launches(cluster, needed)
            except InPlaceConflict as conflict:
                self.conflicts.setdefault(conflict.slot, conflict)
                continue
            steps.extend((cluster, launch) for launch in launches)
            if self.emit is not None:
                for launch in launches:
                    if launch.kernel is not None:
                        self.emit(launch.kernel)
        self.result.launches = [launch for _, launch in steps]
        _group(steps)
        self._finish_lives()
        return self.result

    # ----------------------------------------------------------------------------- memory

    def _written(self) -> tuple[int, ...]:
        """Slots of inputs that some value is written to."""
        everything = (d for found in self.prepared.destinations.values() for d in found)
        slots = {d.where for d in everything if d.kind == "input"}
        return tuple(sorted(slot for slot in slots if isinstance(slot, int)))

    def place(self, value: Node) -> Place:
        """Where readers find a heavy value."""
        found = self._places.get(value)
        if found is None:
            found = self._places[value] = self._find_place(value)
        return found

    def _find_place(self, value: Node) -> Place:
        if value.is_input:
            return Place(("input", value.attribute("slot")), value.attribute("strides"))
        found = self.prepared.destinations.get(value)
        if found:
            return self._destination(found[0])
        if value.inputs and value.inputs[0].op == "s.base":
            return Place(("temporary", value), contiguous(value.shape))
        return Place(("temporary", value), contiguous(value.shape))

    def _destination(self, destination: Destination) -> Place:
        strides, offset = destination.strides, destination.offset
        if isinstance(destination.where, Node):
            owner = self.place(destination.where)
            return Place(owner.memory, strides, owner.offset + offset)
        return Place((destination.kind, destination.where), strides, offset)

    def _buffer(self, memory: tuple[str, Any]) -> int:
        found = self._buffers.get(memory)
        if found is None:
            found = self._buffers[memory] = len(self.result.buffers)
            kind, where = memory
            if kind == "temporary":
                where = mul(count(where.shape), ITEM_SIZE[where.dtype])
            self.result.buffers.append(Buffer(kind, where))
        return found

    # ----------------------------------------------------------------------------- launches

    def _launches(self, cluster: Cluster, needed: set[Node]) -> list[Launch]:
        if cluster.domain is None:
            values = list(cluster.members)
            calls = self._chosen(values[0], partial(routine_calls, values, self.place))
            count_flops(values[0], calls)
            return [self._routine(call) for call in calls]
        stores: dict[Node, list[Place]] = {}
        for value in cluster.members:
            destinations = self.prepared.destinations.get(value)
            if destinations:
                stores[value] = [self._destination(d) for d in destinations]
            elif value in needed:
                stores[value] = [self.place(value)]
        reads = {s: self.place(s) for s in cluster.sources}
        if cluster.product is not None:
            make = partial(TEMPLATES[cluster.product.op], cluster, stores, reads)
            calls = self._chosen(cluster.product, make)
            calls[-1].name = _name(self.graph, cluster)
            count_flops(cluster.product, calls)
            return [self._routine(call) for call in calls]
        varying = self.graph.notes.get("varying", False)
        made = Builder(cluster, stores, reads, varying).build()
        return [] if made is None else [self._kernel(made, cluster)]

    def _chosen(self, value: Node, make: Callable[[str], list[RoutineCall]]) -> list[RoutineCall]:
        """The launches of a call, as its candidate says."""
        if self.choose is None or value.op not in CANDIDATES:
            return make(DEFAULT)
        return make(self.choose(Heavy(self.graph, value, make)))

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

    # ----------------------------------------------------------------------------- order

    def _order_in_place(self, clusters: list[Cluster]) -> None:
        """Whoever reads a slot runs before it is overwritten."""
        slots: dict[Memory, list[Cluster]] = {}
        for cluster in clusters:
            for value in cluster.members:
                for destination in self.prepared.destinations.get(value, ()):
                    place = self._destination(destination)
                    if place.memory[0] == "input":
                        slots.setdefault(place.memory, []).append(cluster)
        if not slots:
            return
        readers: dict[Memory, list[Cluster]] = {}
        for cluster in clusters:
            for source in cluster.sources:
                if source.is_input:
                    readers.setdefault(self.place(source).memory, []).append(cluster)
        for memory, writers in slots.items():
            if not _readers_first(readers.get(memory, []), writers):
                assert isinstance(memory[1], int)
                self.conflicts[memory[1]] = InPlaceConflict(memory[1])

    def _write_late(self, clustering: Clustering) -> bool:
        """Gives the slots in conflict a copy that comes last, as `prepare` does for slots known to
        be `indirect`; False where clusters depend on how memory is then addressed."""
        prepared = self.prepared
        moved: list[tuple[Node, Destination, list[Destination]]] = []
        for value, destinations in prepared.destinations.items():
            late = [d for d in destinations if d.kind == "input" and d.where in self.conflicts]
            others = [d for d in destinations if d not in late]
            strides = others[0].strides if others else contiguous(value.shape)
            again = len(late) > 1 or value.op == "s.copy"
            if late and (again or strides != prepared.read_strides(value)):
                return False
            moved.extend((value, d, others) for d in late)
        for value, destination, others in moved:
            if others:
                prepared.destinations[value] = others
            else:
                del prepared.destinations[value]
            copy = copy_of(value, alone=True)
            prepared.destinations[copy] = [destination]
            clustering.add_root(copy)
        self._places.clear()
        return True

    def _finish_lives(self) -> None:
        """First and last launch of each temporary, whole groups at a time."""
        launches = self.result.launches
        starts, ends = _group_bounds(launches)
        lives: dict[int, list[int]] = {}
        for number, launch in enumerate(launches):
            for buffer in launch.buffers:
                life = lives.setdefault(buffer, [starts[number], ends[number]])
                life[1] = max(life[1], ends[number])
        self.result.buffers = [
            Buffer(b.kind, b.where, *lives.get(i, (0, 0)))
            for i, b in enumerate(self.result.buffers)
        ]


def _name(graph: Graph, cluster: Cluster) -> str:
    ops = dict.fromkeys(v.op for v in cluster.members if not v.op.startswith("s."))
    return f"{graph.name}: {' '.join(list(ops)[:4])}"


def _readers_first(readers: list[Cluster], writers: list[Cluster]) -> bool:
    """Orders readers of a slot before its writers; False where that cannot be."""
    pairs: list[tuple[Cluster, Cluster]] = []
    for writer in writers:
        for reader in readers:
            if reader is writer:
                # A routine reads and writes in an order of its own; a template raises itself.
                if writer.domain is None:
                    return False
            elif reader in writers and reader.follows(writer):
                continue
            elif reader.follows(writer):
                return False
            else:
                pairs.append((reader, writer))
    for reader, writer in pairs:
        if reader.follows(writer):
            return False
        writer.follow((reader,))
    return True


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
            members |= cluster.bits


def _group_bounds(launches: list[Launch]) -> tuple[list[int], list[int]]:
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
