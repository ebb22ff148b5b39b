"""Equal layers are planned once: a deep program as one of few layers, whose launches are repeated.

Planning costs as much per layer as for the first, though the layers of a deep model differ in the
numbers of their tensors alone. `shortened` finds the layers of a graph (`repetition`) and returns
the same program with a few of them left, which is planned in its place; `repeated_launches` makes
the schedule of the former from that of the latter.

A layer is left out only if the ones beside it are equal in all that they compute and read. A value
of a layer has a `Role`, the same in each layer, and the layer's coordinate: forward, backward and
updates of parameters are runs of their own over the same coordinates. Programs whose planning
depends on measurements, or on passes of users, are not shortened.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

from flambeau.compiler.repetition import Repetition
from flambeau.compiler.schedule.fusion_roots import kind_of
from flambeau.ir.node import Graph, GraphOutput, Node, node

LEAST = 6  # layers that a program has at least to be searched for them
REMAINING = 4  # uniform layers that are left
TOGETHER = 2  # a multiple of so many layers is left out: kernels may join values of two
WORTH = 0.6  # of a program is left out at least: what is planned in vain if layers differ is less
SMALL = 300  # programs of fewer values are planned as they are
_NUMBERED = frozenset({"slot", "sequence"})  # attributes that number what layers have of their own


def constants_of(value: Node) -> tuple[tuple[str, Hashable], ...]:
    """The attributes of a value that equal layers have in common."""
    if value.is_input or value.is_scalar or kind_of(value) == "random":
        return tuple([pair for pair in value.attributes if pair[0] not in _NUMBERED])
    return value.attributes


class Interned:
    """Numbers of equal objects."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}

    def of(self, value: Hashable) -> int:
        """The number of an object and of all that equal it."""
        return self._numbers.setdefault(value, len(self._numbers))


class _Items:
    """A graph as a sequence: each value, and behind it the results that it is."""

    def __init__(self, graph: Graph) -> None:
        self.values: list[Node | int] = []  # nodes, and numbers of results
        self.tokens: list[int] = []
        self.reads: list[tuple[int, ...]] = []
        self.places: dict[Node | int, int] = {}
        self._interned = Interned()
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
        self.tokens.append(self._interned.of(token))
        self.reads.append(reads)

    def _add_node(self, value: Node) -> None:
        if value in self.places:
            return
        token = value.op, constants_of(value), value.dtype, value.shape, len(value.inputs)
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
    items = _Items(graph)
    if len(items.values) < SMALL:
        return None
    repetition = Repetition(items.tokens, items.reads, LEAST)
    removed = repetition.high - repetition.low - REMAINING
    removed -= removed % TOGETHER
    layer = sum(repetition.runs[number].period for number in repetition.directions)
    if removed <= 0 or removed * layer < WORTH * len(items.values):
        return None
    try:
        return Shortened(graph, items, repetition, removed)
    except NotEqualError:
        return None


class NotEqualError(Exception):
    """Layers are not as equal as they seem."""


class Role(NamedTuple):
    """The value of its layer that one is: the item of a run's period, or of no run (-1)."""

    run: int
    offset: int


class Shortened:
    """A program with a part of its layers.

    Attributes:
        graph: the program.
        first: the coordinate of the first layer that is left out.
        removed: how many are.
        results: per result of the program its number in the one with all layers.
    """

    def __init__(self, graph: Graph, items: _Items, repetition: Repetition, removed: int) -> None:
        self.first, self.removed = repetition.low + REMAINING // 2, removed
        self._items, self._repetition, self._whole = items, repetition, graph
        self._positions: dict[Node, int] = {}
        new: dict[Node, Node] = {}
        results: list[tuple[int, GraphOutput]] = []
        coordinates, values = repetition.coordinates(), items.values
        for position, value in enumerate(values):
            coordinate = coordinates[position]
            if coordinate is not None and self._is_removed(coordinate):
                continue
            reads = [values[x] for x in self._reads(position, coordinate, coordinates)]
            if isinstance(value, int):
                results.append((value, self._result(graph.outputs[value], reads, new)))
            else:
                new[value] = self._value(value, reads, new)
                self._positions.setdefault(new[value], position)
        results.sort(key=lambda pair: pair[0])
        self.results = [number for number, _ in results]
        self.graph = graph.with_outputs([output for _, output in results])
        self.graph.visible = sum(number < graph.visible for number in self.results)
        self.graph.notes = dict(graph.notes)

    def _is_removed(self, coordinate: int) -> bool:
        return self.first <= coordinate < self.first + self.removed

    def _reads(
        self, position: int, coordinate: int | None, coordinates: Sequence[int | None]
    ) -> list[int]:
        """The operands of an item in the short program, as items of the one with all layers."""
        reads = self._items.reads[position]
        if coordinate is not None and self._repetition.is_uniform(coordinate):
            late = coordinate >= self.first + self.removed
            return [x if coordinates[x] is None else self._moved(x, late) for x in reads]
        for read in reads:
            layer = coordinates[read]
            if layer is not None and self._is_removed(layer):
                raise NotEqualError
        return list(reads)

    def _moved(self, read: int, late: bool) -> int:
        """The item that a uniform one of the short program reads in place of another of a layer."""
        owner = self._repetition.locate(read)
        assert owner is not None
        coordinate = owner.coordinate - (self.removed if late else 0)
        coordinate += self.removed if coordinate >= self.first else 0
        moved = self._repetition.position(owner.run, owner.offset, coordinate)
        if moved is None:
            raise NotEqualError
        return moved

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

    # ------------------------------------------------------------------ values and layers

    def role(self, value: Node) -> tuple[Role, int | None] | None:
        """The role of a value of the short program, and its layer; None: it is no such value."""
        position = self._positions.get(value)
        return None if position is None else self._role(position)

    def role_of_result(self, number: int) -> tuple[Role, int | None]:
        """The role of a result of the short program, and its layer."""
        return self._role(self._items.places[self.results[number]])

    def _role(self, position: int) -> tuple[Role, int | None]:
        located = self._repetition.locate(position)
        if located is None:
            return Role(-1, position), None
        late = located.coordinate >= self.first + self.removed
        role = Role(located.run, located.offset)
        return role, located.coordinate - (self.removed if late else 0)

    def is_uniform(self, coordinate: int) -> bool:
        """Whether a layer of the short program computes all that its neighbours do."""
        late = coordinate >= self.first
        return self._repetition.is_uniform(coordinate + (self.removed if late else 0))

    def item(self, role: Role, coordinate: int | None) -> Node | int:
        """The value, or number of a result, with a role in a layer of the program with all.

        Raises:
            NotEqualError: there is none.
        """
        if coordinate is None:
            return self._items.values[role.offset]
        position = self._repetition.position(*role, coordinate)
        if position is None:
            raise NotEqualError
        return self._items.values[position]
