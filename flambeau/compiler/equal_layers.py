"""Equal layers are planned once: a deep program as one of few layers, whose launches are repeated.

Planning costs as much per layer as for the first, though the layers of a deep model differ in the
numbers of their tensors alone. `shortened` finds the layers of a graph (`repetition`) and returns
the same program with a few of them left, which is planned in its place. `Shortened.extended`
returns the schedule of the former: the launches of one layer are repeated for those that were left
out, each with the memory of its layer.

A layer is left out only if the ones beside it are equal in all that they compute and read. The
launches of a layer read and write what they do in the layers beside it, else `extended` returns
None, and the program is planned as a whole. Programs whose planning depends on measurements, or
on passes of users, are not shortened, nor those with several runs of layers (a backward, updates of
parameters): their runs need coordinates that agree to the layer, which `repetition` does not prove.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple

from flambeau.compiler.repetition import Anchor, Located, Repetition
from flambeau.compiler.schedule.fusion_roots import kind_of
from flambeau.compiler.schedule.launch import Buffer, Launch, Schedule, with_lifetimes
from flambeau.ir.node import Graph, GraphOutput, Node, node

LEAST = 6  # layers that a program has at least to be searched for them
REMAINING = 4  # uniform layers that are left
WORTH = 2  # layers that are left out at least
SMALL = 300  # programs of fewer values are planned as they are
_NUMBERED = frozenset({"slot", "sequence"})  # attributes that number what layers have of their own


class _Interned:
    """Numbers of equal objects."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}

    def __call__(self, value: Hashable) -> int:
        return self._numbers.setdefault(value, len(self._numbers))


class _Items:
    """A graph as a sequence: each value, and behind it the results that it is."""

    def __init__(self, graph: Graph) -> None:
        self.values: list[Node | int] = []  # nodes, and numbers of results
        self.tokens: list[int] = []
        self.reads: list[tuple[int, ...]] = []
        self.places: dict[Node | int, int] = {}
        self._interned = _Interned()
        self._graph = graph
        results: dict[Node, list[int]] = {}
        for number, output in enumerate(graph.outputs):
            results.setdefault(output.node, []).append(number)
        for value in graph.nodes():
            self._add_node(value)
            for number in results.get(value, ()):
                self._add_result(number)

    def _add(self, value: Node | int, token: Hashable, reads: tuple[int, ...]) -> None:
        self.places[value] = len(self.values)
        self.values.append(value)
        self.tokens.append(self._interned(token))
        self.reads.append(reads)

    def _add_node(self, value: Node) -> None:
        if value in self.places:
            return
        constants: tuple[Any, ...] = value.attributes
        if value.is_input or value.is_scalar or kind_of(value) == "random":
            constants = tuple([pair for pair in constants if pair[0] not in _NUMBERED])
        token = value.op, constants, value.dtype, value.shape, len(value.inputs)
        self._add(value, token, tuple([self.places[x] for x in value.inputs]))

    def _add_result(self, number: int) -> None:
        output = self._graph.outputs[number]
        reads = [self.places[output.node]]
        for slot in (output.target, output.alias):
            if slot is not None:
                memory = self._graph.inputs[slot]
                assert memory is not None
                self._add_node(memory)
                reads.append(self.places[memory])
        visible = number < self._graph.visible
        kinds = output.target is None, output.alias is None, output.strides, output.offset
        self._add(number, ("result", visible, *kinds), tuple(reads))


def shortened(graph: Graph) -> Shortened | None:
    """The program with a few of its equal layers; None: it has not many."""
    if len(graph.inputs) + len(graph.outputs) < LEAST:
        return None
    if sum(output.target is not None for output in graph.outputs) >= LEAST:
        return None  # a training step: its backward and updates are runs of their own
    items = _Items(graph)
    if len(items.values) < SMALL:
        return None
    repetition = Repetition(items.tokens, items.reads, LEAST)
    removed = repetition.high - repetition.low - REMAINING
    if removed < WORTH or len(repetition.directions) != 1:
        return None
    try:
        return Shortened(graph, items, repetition, removed)
    except _NotEqualError:
        return None


class _NotEqualError(Exception):
    """Layers are not as equal as they seem."""


class _Role(NamedTuple):
    """The input, result or number of its layer that an item is."""

    run: int
    offset: int


class Shortened:
    """A program with a part of its layers.

    Attributes:
        graph: the program.
        first: the coordinate of the first layer that is left out.
        removed: how many are.
    """

    def __init__(self, graph: Graph, items: _Items, repetition: Repetition, removed: int) -> None:
        self.first, self.removed = repetition.low + REMAINING // 2, removed
        self._items, self._repetition, self._whole = items, repetition, graph
        self._present: list[int | None] = []  # the result in the short program, per item
        new: dict[Node, Node] = {}
        results: list[tuple[int, GraphOutput]] = []
        for position, value in enumerate(items.values):
            located = repetition.locate(position)
            if located is not None and self._is_removed(located.coordinate):
                continue
            reads = [items.values[x] for x in self._reads(position, located)]
            if isinstance(value, int):
                results.append((value, self._result(graph.outputs[value], reads, new)))
            else:
                new[value] = self._value(value, reads, new)
        results.sort(key=lambda pair: pair[0])
        self.results = [number for number, _ in results]  # of the whole program, by short number
        self.graph = graph.with_outputs([output for _, output in results])
        self.graph.visible = sum(number < graph.visible for number in self.results)
        self.graph.notes = dict(graph.notes)

    def _is_removed(self, coordinate: int) -> bool:
        return self.first <= coordinate < self.first + self.removed

    def _reads(self, position: int, located: Located | None) -> Iterator[int]:
        """The operands of an item in the short program, as items of the whole one."""
        repetition, end = self._repetition, self.first + self.removed
        uniform = located is not None and repetition.is_uniform(located.coordinate)
        late = located is not None and located.coordinate >= end
        for read in self._items.reads[position]:
            owner = repetition.locate(read)
            if owner is not None and uniform:
                coordinate = owner.coordinate - (self.removed if late else 0)
                coordinate += self.removed if coordinate >= self.first else 0
                moved = repetition.position(owner.run, owner.offset, coordinate)
                if moved is None:
                    raise _NotEqualError
                yield moved
            elif owner is not None and self._is_removed(owner.coordinate):
                raise _NotEqualError
            else:
                yield read

    @staticmethod
    def _value(value: Node, reads: list[Any], new: dict[Node, Node]) -> Node:
        inputs = tuple([new[x] for x in reads])
        if inputs == value.inputs:
            return value
        return node(value.op, inputs, value.attributes, value.dtype, value.shape, value.source)

    @staticmethod
    def _result(output: GraphOutput, reads: list[Any], new: dict[Node, Node]) -> GraphOutput:
        value, *memory = reads
        output = output._replace(node=new[value])
        for field in ("target", "alias"):
            if getattr(output, field) is not None:
                output = output._replace(**{field: memory.pop(0).attribute("slot")})
        return output

    # ------------------------------------------------------------------ names of memory

    def anchor(self, position: int) -> Anchor | None:
        """The role of an item of the whole program in its layer, and that in the short one."""
        located = self._repetition.locate(position)
        if located is None:
            return None
        late = located.coordinate >= self.first + self.removed
        role = _Role(located.run, located.offset)
        return role, located.coordinate - (self.removed if late else 0)

    def item(self, role: _Role, coordinate: int) -> Node | int:
        """The input, number or result with a role in a layer of the whole program."""
        position = self._repetition.position(*role, coordinate)
        if position is None:
            raise _NotEqualError
        return self._items.values[position]

    def position(self, kind: str, where: Any) -> int | None:
        """The item that memory of the short program's schedule is, or a number."""
        graph = self._whole
        if kind == "input":
            value: Any = graph.inputs[where]
        elif kind == "argument":
            value = graph.scalars[where]
        elif kind == "output":
            value = self.results[where]
        else:
            return None
        return self._items.places.get(value)

    def extended(self, schedule: Schedule) -> Schedule | None:
        """The schedule of the whole program; None: it does not repeat itself."""
        try:
            return _Extension(self, schedule).run()
        except _NotEqualError:
            return None


class _Instance(NamedTuple):
    """An item of the short schedule in a layer of the whole one.

    Attributes:
        position: the item.
        shift: how many layers further than in the short one; None: it is in no layer.
    """

    position: int
    shift: int | None


class _Extension:
    """A schedule as a sequence: each launch behind the buffers and numbers that it is first to use.

    Items are pairs of a kind and what it is: a buffer's number, the slot of a run-time number
    ("argument"), or the number of a launch.
    """

    def __init__(self, short: Shortened, schedule: Schedule) -> None:
        self.short, self.schedule = short, schedule
        self.items: list[tuple[str, int]] = []
        self.tokens: list[int] = []
        self.reads: list[tuple[int, ...]] = []
        self.anchors: dict[int, Anchor] = {}
        self._places: dict[tuple[str, int], int] = {}
        self._interned = _Interned()
        for number in range(len(schedule.launches)):
            self._add_launch(number)
        self.repetition = Repetition(self.tokens, self.reads, LEAST // 2, self.anchors)
        self.instances: dict[_Instance, int] = {}
        self.buffers: list[Buffer] = []
        self.launches: list[Launch] = []
        self._groups = -1

    # ------------------------------------------------------------------ as a sequence

    def _place(self, kind: str, number: int) -> int:
        """The item of a buffer or a number, added on first sight."""
        key = kind, number
        if key in self._places:
            return self._places[key]
        name = kind
        where: Any = number
        if kind == "buffer":
            buffer = self.schedule.buffers[number]
            name, where = buffer.kind, buffer.where
        position = self._places[key] = len(self.items)
        item = self.short.position(name, where)
        anchor = None if item is None else self.short.anchor(item)
        if anchor is not None:
            self.anchors[position] = anchor
            where = anchor[0]
        self._add(key, (name, where), ())
        return position

    def _add(self, item: tuple[str, int], token: Hashable, reads: tuple[int, ...]) -> None:
        self.items.append(item)
        self.tokens.append(self._interned(token))
        self.reads.append(reads)

    def _add_launch(self, number: int) -> None:
        launch = self.schedule.launches[number]
        reads = [self._place("buffer", buffer) for buffer in launch.buffers]
        scalars: list[Hashable] = []
        for kind, value, as_float in launch.scalars:
            if kind == "argument":
                reads.append(self._place(kind, value))
            scalars.append((kind, "" if kind == "argument" else repr(value), as_float))
        kernel = None if launch.kernel is None else launch.kernel.text()
        token = (
            kernel, launch.routine, launch.name, tuple(launch.offsets), tuple(launch.sizes),
            tuple(scalars), launch.chunks, launch.work, launch.scratch, launch.flops,
            launch.elements, tuple(launch.traffic), tuple(launch.access), launch.packing,
            launch.spare, launch.group >= 0, self._continues(number),
        )  # fmt: skip
        self._add(("launch", number), token, tuple(reads))

    def _continues(self, number: int) -> bool:
        """Whether a launch is of the group of the one before."""
        launches = self.schedule.launches
        group = launches[number].group
        return bool(number and group >= 0 and launches[number - 1].group == group)

    # ------------------------------------------------------------------ repeated

    def run(self) -> Schedule:
        """The whole schedule.

        Raises:
            _NotEqualError: the launches of layers differ.
        """
        first, repetition = self.short.first, self.repetition
        uniform = repetition.is_uniform(first - 1) and repetition.is_uniform(first)
        if len(repetition.directions) != 1 or not uniform:
            raise _NotEqualError
        for instance in self._in_order():
            self._repeat(instance)
        launches, buffers = self.launches, self.buffers
        schedule = Schedule(
            launches, with_lifetimes(buffers, launches), _written(launches, buffers)
        )
        if self.schedule.written != _written(self.schedule.launches, self.schedule.buffers):
            raise _NotEqualError
        return schedule

    def _in_order(self) -> Iterator[_Instance]:
        """All items of the whole schedule, those of layers that are left out among them."""
        first, removed, repetition = self.short.first, self.short.removed, self.repetition
        for position in range(len(self.items)):
            located = repetition.locate(position)
            if located is None:
                yield _Instance(position, None)
                continue
            late = located.coordinate >= first
            if located.offset == 0:
                sign, _ = repetition.directions[located.run]
                if located.coordinate == (first if sign > 0 else first - 1):
                    yield from self._left_out(located.run, sign)
            yield _Instance(position, removed if late else 0)

    def _left_out(self, run: int, sign: int) -> Iterator[_Instance]:
        """The items of a run in layers that are left out, in its direction."""
        start = self.repetition.position(run, 0, self.short.first - 1)
        assert start is not None
        period = self.repetition.runs[run].period
        shifts = range(1, self.short.removed + 1)
        for shift in shifts if sign > 0 else reversed(shifts):
            yield from (_Instance(start + offset, shift) for offset in range(period))

    def _instance(self, run: int, offset: int, coordinate: int) -> _Instance:
        """The item of a run in a layer of the whole program."""
        first, removed = self.short.first, self.short.removed
        shift = max(0, min(coordinate - first + 1, removed))
        position = self.repetition.position(run, offset, coordinate - shift)
        if position is None:
            raise _NotEqualError
        return _Instance(position, shift)

    def _read(self, read: int, uniform: bool, shift: int) -> int:
        """The new number of what an item reads."""
        owner = self.repetition.locate(read)
        if owner is None:
            instance = _Instance(read, None)
        elif uniform:
            instance = self._instance(owner.run, owner.offset, owner.coordinate + shift)
        else:
            instance = _Instance(read, self._shift(owner.coordinate))
        number = self.instances.get(instance)
        if number is None:
            raise _NotEqualError
        return number

    def _check_apart(self, reads: Sequence[int]) -> None:
        """Refuses a launch beside the uniform part that computes values of layers in it.

        Raises:
            _NotEqualError: it reads or writes what is of a layer beside those that are left out, or
                of layers on both sides of them.
        """
        first = self.short.first
        layers = {self.anchors[x][1] for x in reads if x in self.anchors}
        layers |= {x.coordinate for x in map(self.repetition.locate, reads) if x is not None}
        late = {layer >= first for layer in layers}
        if not layers.isdisjoint((first - 1, first)) or len(late) > 1:
            raise _NotEqualError

    def _shift(self, coordinate: int) -> int:
        return self.short.removed if coordinate >= self.short.first else 0

    def _repeat(self, instance: _Instance) -> None:
        """Adds an item to the whole schedule."""
        located = self.repetition.locate(instance.position)
        uniform = located is not None and self.repetition.is_uniform(located.coordinate)
        kind, number = self.items[instance.position]
        shift = instance.shift or 0
        if kind == "launch":
            if not uniform:
                self._check_apart(self.reads[instance.position])
            reads = [self._read(x, uniform, shift) for x in self.reads[instance.position]]
            self.launches.append(self._launch(number, reads))
            return
        anchor = self.anchors.get(instance.position)
        if anchor is not None:
            role, coordinate = anchor
            assert isinstance(role, _Role)
            layer = coordinate + (shift if uniform else self._shift(coordinate))
            where: Any = self.short.item(role, layer)
            where = where if isinstance(where, int) else where.attribute("slot")
        elif kind == "argument":
            where = number
        else:
            buffer = self.schedule.buffers[number]
            where = self.short.results[buffer.where] if buffer.kind == "output" else buffer.where
        if kind == "argument":
            self.instances[instance] = where
        else:
            self.instances[instance] = len(self.buffers)
            self.buffers.append(Buffer(self.schedule.buffers[number].kind, where))

    def _launch(self, number: int, reads: list[int]) -> Launch:
        """A launch with other buffers and numbers."""
        model = self.schedule.launches[number]
        launch = copy.copy(model)
        count = len(model.buffers)
        launch.buffers, arguments = reads[:count], iter(reads[count:])
        launch.scalars = [
            (kind, next(arguments) if kind == "argument" else value, as_float)
            for kind, value, as_float in model.scalars
        ]
        if model.group >= 0 and not self._continues(number):
            self._groups += 1
        launch.group = self._groups if model.group >= 0 else -1
        return launch


def _written(launches: Sequence[Launch], buffers: Sequence[Buffer]) -> tuple[int, ...]:
    """Slots of inputs that launches write."""
    slots = {
        buffers[number].where
        for launch in launches
        for number, access in zip(launch.buffers, launch.accesses(), strict=True)
        if "w" in access and buffers[number].kind == "input"
    }
    return tuple(sorted(slots))
