"""From the schedule of a few equal layers to that of all: the launches of one layer, repeated.

A launch of the short program (`equal_layers.Shortened`) is described by what it runs, by the roles
of the memory that it reads and writes and of the values that it computes, and by the layer of each
from its first one on. Launches of the same description in the layers on both sides of the gap are
repeated in it, with the memory of each layer; where kernels join values of pairs of layers, pairs
are repeated (`STEPS`). That they compute the right values follows from two conditions, and where
one does not hold the program is planned with all of its layers:

* The values that a repeated launch computes, those that never reach memory among them, are of
  uniform layers: each reads what its neighbours in the same role read. A launch that is not
  repeated has all of its values on one side of the gap.
* All memory that a layer has in the short program is there for each layer, and it is read and
  written by the same launches in the same order (`_check_uses`).
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Hashable, Sequence
from typing import NamedTuple

from flambeau.compiler.equal_layers import (
    Interned,
    NotEqualError,
    Role,
    Shortened,
    constants_of,
)
from flambeau.compiler.schedule.cluster import Cluster
from flambeau.compiler.schedule.fusion_roots import kind_of
from flambeau.compiler.schedule.launch import Buffer, Launch, Schedule, with_lifetimes
from flambeau.compiler.schedule.prepare import Prepared
from flambeau.ir.node import Node

SHARED = frozenset({"error", "generator"})  # kinds of memory that launches of all layers write


STEPS = (1, 2)  # layers that are repeated together


class Identity(NamedTuple):
    """A value or piece of memory: its role by number, and its layer; None: of no layer."""

    role: int
    layer: int | None

    def moved(self, layers: int) -> Identity:
        """The one in its role some layers further."""
        return self if self.layer is None else Identity(self.role, self.layer + layers)


class _Use(NamedTuple):
    """An operand of a launch.

    Attributes:
        token: of the launch.
        operand: its number.
        access: "r", "w" or "rw".
    """

    token: int
    operand: int
    access: str


class _Described(NamedTuple):
    """A launch of the short schedule.

    Attributes:
        token: the number of all launches that differ in their layer alone.
        layer: the first one of what it reads, computes and writes; None: it is of no layer.
        last: the last one.
        memory: of its buffers, then of its run-time numbers.
        uniform: whether all values that it computes are of uniform layers.
    """

    token: int
    layer: int | None
    last: int | None
    memory: tuple[Identity, ...]
    uniform: bool


class _Placed(NamedTuple):
    """A launch of the long schedule.

    Attributes:
        position: where it comes, in launches of the short one.
        model: number of that one's launch.
        shift: how many layers further it is.
        copy: 0, or which repetition it is.
    """

    position: int
    model: int
    shift: int
    copy: int


class _Run(NamedTuple):
    """Launches that are repeated together.

    Attributes:
        start: position of the first one before the gap.
        end: the position behind the last one beyond it.
        period: how many positions a repetition takes.
        ascending: whether the layers follow each other in their order.
    """

    start: int
    end: int
    period: int
    ascending: bool


class _Values:
    """Roles of the values of a schedule, those that preparing it added among them."""

    def __init__(self, short: Shortened, prepared: Prepared) -> None:
        self.short = short
        self.number = Interned()
        self._origins = prepared.origins
        self._identities: dict[Node, Identity] = {}

    def identity(self, value: Node) -> Identity:
        """The identity of a value; of one that preparing added, by what it is computed from."""
        identity = self._identities.get(value)
        if identity is None:
            listed = self.short.role(self.origin(value))
            identity = self._derived(value) if listed is None else self._of(*listed)
            self._identities[value] = identity
        return identity

    def origin(self, value: Node) -> Node:
        """The value of the program that one was prepared from."""
        return self._origins.get(value, value)

    def of_result(self, number: int) -> Identity:
        """The identity of a result's memory."""
        return self._of(*self.short.role_of_result(number))

    def _of(self, role: Role, layer: int | None) -> Identity:
        return Identity(self.number.of(role), layer)

    def _derived(self, value: Node) -> Identity:
        operands = [self.identity(x) for x in self._operands(value)]
        layer = min((x.layer for x in operands if x.layer is not None), default=None)
        return Identity(self.number.of(self._description(value, operands, layer)), layer)

    @staticmethod
    def _operands(value: Node) -> list[Node]:
        """The values that one is computed from, or stands for."""
        return [*value.inputs, *(x for _, x in value.attributes if isinstance(x, Node))]

    @staticmethod
    def _description(
        value: Node, operands: Sequence[Identity], layer: int | None
    ) -> tuple[Hashable, ...]:
        constants = tuple([p for p in constants_of(value) if not isinstance(p[1], Node)])
        relative = tuple([_relative(x, layer) for x in operands])
        return value.op, constants, value.dtype, value.shape, relative

    def computed(self, value: Node, layer: int | None) -> Hashable:
        """A value that a launch computes, for comparison with those of launches of other layers.

        Args:
            value: the value.
            layer: what its layers are counted from.
        """
        own = _relative(self.identity(value), layer)
        if value.is_input or value.is_scalar:
            return own
        operands = [self.identity(x) for x in self._operands(value)]
        return own, self._description(value, operands, layer)

    def is_uniform(self, value: Node) -> bool:
        """Whether a value of a layer is computed as in the layers around."""
        layer = self.identity(value).layer
        return layer is None or self.short.is_uniform(layer)


def _relative(identity: Identity, layer: int | None) -> tuple[int, int | None]:
    """A role, and the distance from a layer."""
    if identity.layer is None or layer is None:
        return identity.role, None
    return identity.role, identity.layer - layer


class Extension:
    """The schedule of a program with all layers.

    Args:
        short: the program with few of them.
        prepared: its values as they were scheduled.
        clusters: all of them.
        schedule: their launches.

    Attributes:
        schedule: the schedule.

    Raises:
        NotEqualError: the launches of the layers differ.
    """

    def __init__(
        self,
        short: Shortened,
        prepared: Prepared,
        clusters: Collection[Cluster],
        schedule: Schedule,
    ) -> None:
        self._short, self._values, self._model = short, _Values(short, prepared), schedule
        computed = {cluster.number: _computed(cluster) for cluster in clusters}
        self._computed = [computed[number] for number in schedule.origins]
        self._memory = [self._identity(number) for number in range(len(schedule.buffers))]
        kinds = [buffer.kind for buffer in schedule.buffers]
        self._shared = {x for x, kind in zip(self._memory, kinds, strict=True) if kind in SHARED}
        self._numbers = Interned()
        self._described = [self._describe(*pair) for pair in enumerate(schedule.launches)]
        self._by_token: dict[int, dict[int | None, int]] = {}
        for position, launch in enumerate(self._described):
            if self._by_token.setdefault(launch.token, {}).setdefault(launch.layer, position) != (
                position
            ):
                raise NotEqualError
        self._arrange()
        self._check_draws()
        self._new: dict[Identity, int] = {}
        self._buffers: list[Buffer] = []
        self._maps: list[dict[int, int]] = []
        launches = [self._launch(placed) for placed in self._placed]
        self._group(launches)
        self.schedule = self._finished(launches, self._buffers)

    def of(self, schedule: Schedule) -> Schedule:
        """Another schedule of the few layers, made from the launches of this one, for all layers.

        Raises:
            NotEqualError: launches of several origins share memory that this one has not.
        """
        parts: list[list[Launch]] = [[] for _ in self._described]
        owners: dict[int, int] = {}
        for origin, launch in zip(schedule.origins, schedule.launches, strict=True):
            parts[origin].append(launch)
            added = [buffer for buffer in launch.buffers if buffer >= len(self._memory)]
            if any(owners.setdefault(buffer, origin) != origin for buffer in added):
                raise NotEqualError
        launches: list[Launch] = []
        buffers = list(self._buffers)
        for placed, own, numbers in zip(
            self._placed, self.schedule.launches, self._maps, strict=True
        ):
            numbers = dict(numbers)
            for model in parts[placed.model]:
                launch = copy.copy(model)
                for buffer in model.buffers:
                    if buffer not in numbers:
                        numbers[buffer] = len(buffers)
                        buffers.append(schedule.buffers[buffer])
                launch.buffers = [numbers[buffer] for buffer in model.buffers]
                launch.scalars = own.scalars[: len(model.scalars)]
                launch.group = own.group if len(parts[placed.model]) == 1 else -1
                launches.append(launch)
        return self._finished(launches, buffers)

    def _finished(self, launches: list[Launch], buffers: list[Buffer]) -> Schedule:
        written = {
            buffers[number].where
            for launch in launches
            for number, access in zip(launch.buffers, launch.accesses(), strict=True)
            if "w" in access and buffers[number].kind == "input"
        }
        return Schedule(launches, with_lifetimes(buffers, launches), tuple(sorted(written)))

    # ------------------------------------------------------------------ descriptions

    def _identity(self, number: int) -> Identity:
        """The identity of a buffer."""
        kind, where = self._model.memories[number]
        if kind == "temporary":
            assert isinstance(where, Node)
            identity = self._values.identity(where)
        elif kind == "input":
            assert isinstance(where, int)
            value = self._short.graph.inputs[where]
            assert value is not None
            identity = self._values.identity(value)
        elif kind == "output":
            assert isinstance(where, int)
            identity = self._values.of_result(where)
        else:
            return Identity(self._values.number.of((kind, where)), None)
        return Identity(self._values.number.of((kind, identity.role)), identity.layer)

    def _describe(self, position: int, launch: Launch) -> _Described:
        memory = [self._memory[buffer] for buffer in launch.buffers]
        scalars: list[Hashable] = []
        for kind, value, as_float in launch.scalars:
            if kind == "argument":
                memory.append(self._values.identity(self._short.graph.scalars[value]))
            scalars.append((kind, "" if kind == "argument" else repr(value), as_float))
        computed = self._computed[position]
        layers = [x.layer for x in memory if x.layer is not None]
        layers += [x for x in (self._values.identity(v).layer for v in computed) if x is not None]
        layer, last = min(layers, default=None), max(layers, default=None)
        token = (
            None if launch.kernel is None else launch.kernel.text(), launch.routine, launch.name,
            tuple(launch.offsets), tuple(launch.sizes), tuple(scalars), launch.chunks, launch.work,
            launch.scratch, launch.flops, launch.elements, tuple(launch.traffic),
            tuple(launch.access), launch.packing, launch.spare,
            tuple([_relative(x, layer) for x in memory]),
            frozenset([self._values.computed(v, layer) for v in computed]),
        )  # fmt: skip
        uniform = all(self._values.is_uniform(v) for v in computed)
        return _Described(self._numbers.of(token), layer, last, tuple(memory), uniform)

    # ------------------------------------------------------------------ positions

    def _arrange(self) -> None:
        """Finds the launches that are repeated, and the place of each.

        Raises:
            NotEqualError: they are not equal with any number of layers that are repeated together.
        """
        for step in STEPS:
            self._step = step
            try:
                self._repeated = self._repetitions()
                self._runs = self._joined()
                self._placed = self._all_placed()
                self._check_uses()
            except NotEqualError:
                if step == STEPS[-1]:
                    raise
            else:
                return

    def _repetitions(self) -> dict[int, int]:
        """The launches of the last layers before the gap, each with its equal beyond it."""
        first, step = self._short.first, self._step
        repeated = {}
        for positions in self._by_token.values():
            for layer in range(first - step, first):
                before, behind = positions.get(layer), positions.get(layer + step)
                if before is not None and behind is not None:
                    repeated[before] = behind
        if not all(self._described[x].uniform for pair in repeated.items() for x in pair):
            raise NotEqualError
        models = {(self._described[x].token, self._residue(x)) for x in repeated}
        for number, launch in enumerate(self._described):
            crosses = launch.layer is not None and launch.layer < first <= (launch.last or 0)
            is_repeated = (launch.token, self._residue(number)) in models
            if crosses and not (is_repeated and launch.uniform):
                raise NotEqualError
        return repeated

    def _residue(self, number: int) -> int:
        """The place of a launch's layer among those that are repeated together."""
        return (self._described[number].layer or 0) % self._step

    def _joined(self) -> list[_Run]:
        """The repeated launches, those whose positions overlap as one run.

        Raises:
            NotEqualError: some repeat at other distances, or in the other direction.
        """
        runs: list[_Run] = []
        for one, other in sorted(self._repeated.items(), key=min):
            run = _Run(min(one, other), max(one, other) + 1, abs(other - one), one < other)
            if not runs or run.start >= runs[-1].end:
                runs.append(run)
                continue
            last = runs[-1]
            if (run.period, run.ascending) != (last.period, last.ascending):
                raise NotEqualError
            runs[-1] = last._replace(end=max(last.end, run.end))
        return runs

    def _all_placed(self) -> list[_Placed]:
        """All launches of the long schedule, in order."""
        first, removed, step = self._short.first, self._short.removed, self._step
        turns, placed = removed // step, []
        earlier = {min(pair): min(pair) == pair[0] for pair in self._repeated.items()}
        for number, launch in enumerate(self._described):
            late = launch.layer is not None and launch.layer >= first
            position = number + sum(
                turns * run.period for run in self._runs if self._is_behind(number, run)
            )
            placed.append(_Placed(position, number, removed if late else 0, 0))
            if number not in earlier:
                continue
            run = next(r for r in reversed(self._runs) if r.start <= number)
            for turn in range(1, turns + 1):
                shift = turn * step if earlier[number] else removed - turn * step
                placed.append(_Placed(position + turn * run.period, number, shift, turn))
        placed.sort()
        return placed

    def _is_behind(self, number: int, run: _Run) -> bool:
        """Whether a launch comes after the repetitions of a run."""
        if not run.start <= number < run.end:
            return number >= run.end
        launch = self._described[number]
        if launch.layer is not None:
            return (launch.layer >= self._short.first) == run.ascending
        return number >= run.start + run.period

    # ------------------------------------------------------------------ proofs

    def _uses(self, order: Sequence[tuple[int, int]]) -> dict[Identity, list[_Use]]:
        """The launches that use each piece of memory, in order.

        Args:
            order: numbers of launches of the short schedule, and how many layers further they are.
        """
        uses: dict[Identity, list[_Use]] = {}
        for number, shift in order:
            launch = self._described[number]
            accesses = self._model.launches[number].accesses()
            for operand, (memory, access) in enumerate(zip(launch.memory, accesses)):
                use = _Use(launch.token, operand, access)
                uses.setdefault(memory.moved(shift), []).append(use)
        return uses

    def _check_uses(self) -> None:
        """Compares the uses of all memory with those of the short schedule.

        Raises:
            NotEqualError: they differ.
        """
        planned = self._uses([(number, 0) for number in range(len(self._described))])
        uses = self._uses([(x.model, x.shift) for x in self._placed])
        expected = {other: planned[x] for x in planned for other in self._layers_of(x)}
        if uses.keys() != expected.keys():
            raise NotEqualError
        for memory, own in uses.items():
            if memory in self._shared:
                continue
            if memory.layer is None:
                self._check_common(expected[memory], own)
            elif expected[memory] != own:
                raise NotEqualError

    def _layers_of(self, memory: Identity) -> list[Identity]:
        """The memory of all layers that memory of the short schedule stands for."""
        first, removed, step = self._short.first, self._short.removed, self._step
        if memory.layer is None:
            return [memory]
        if memory.layer >= first:
            return [memory.moved(removed)]
        if memory.layer < first - step:
            return [memory]
        return [memory.moved(turn) for turn in range(0, removed + 1, step)]

    def _check_common(self, planned: Sequence[_Use], uses: Sequence[_Use]) -> None:
        """Memory of no layer is written at the same time, seen from each launch that reads it.

        Raises:
            NotEqualError: it is not, or launches of layers write it.
        """
        kinds = {x.access for x in uses}
        if kinds == {"r"}:
            return
        repeated = {self._described[number].token for number in self._repeated}
        if any("w" in x.access and x.token in repeated for x in uses):
            raise NotEqualError
        if _writes(planned) != _writes(uses):
            raise NotEqualError

    def _check_draws(self) -> None:
        """Draws of random numbers have the order of the program.

        Raises:
            NotEqualError: they have not.
        """
        earlier = -1
        for placed in self._placed:
            draws = [x for x in self._computed[placed.model] if kind_of(x) == "random"]
            for draw in draws:
                layer = self._values.identity(draw).moved(placed.shift).layer
                value = self._item(self._values.origin(draw), layer)
                assert isinstance(value, Node)
                number = int(value.attribute("sequence"))
                if number < earlier:
                    raise NotEqualError
                earlier = number

    # ------------------------------------------------------------------ launches

    def _number(self, old: int, memory: Identity) -> int:
        """The buffer of the long schedule with an identity, added on first sight."""
        number = self._new.get(memory)
        if number is None:
            number = self._new[memory] = len(self._buffers)
            model = self._model.buffers[old]
            where = model.where
            if model.kind == "input":
                value = self._item(self._short.graph.inputs[where], memory.layer)
                assert isinstance(value, Node)
                where = value.attribute("slot")
            elif model.kind == "output":
                where = self._short.item(self._short.role_of_result(where)[0], memory.layer)
            self._buffers.append(Buffer(model.kind, where))
        return number

    def _item(self, value: Node | None, layer: int | None) -> Node | int:
        """The value in the role of one of the short program, in a layer."""
        listed = None if value is None else self._short.role(value)
        if listed is None:
            raise NotEqualError
        return self._short.item(listed[0], layer)

    def _launch(self, placed: _Placed) -> Launch:
        """A launch with the memory and the numbers of its layer."""
        described, model = self._described[placed.model], self._model.launches[placed.model]
        launch = copy.copy(model)
        memory = [x.moved(placed.shift) for x in described.memory]
        count = len(model.buffers)
        launch.buffers = [self._number(*pair) for pair in zip(model.buffers, memory)]
        self._maps.append(dict(zip(model.buffers, launch.buffers)))
        numbers = iter(memory[count:])
        launch.scalars = [
            (kind, self._slot(value, next(numbers)) if kind == "argument" else value, as_float)
            for kind, value, as_float in model.scalars
        ]
        return launch

    def _slot(self, slot: int, memory: Identity) -> int:
        value = self._item(self._short.graph.scalars[slot], memory.layer)
        assert isinstance(value, Node)
        number: int = value.attribute("slot")
        return number

    def _group(self, launches: Sequence[Launch]) -> None:
        """Numbers the groups: launches that are of one in the short schedule, and follow each other
        here as they do there."""
        number = -1
        previous: _Placed | None = None
        for placed, launch in zip(self._placed, launches, strict=True):
            model = self._model.launches[placed.model]
            if model.group >= 0:
                joins = (
                    previous is not None
                    and (previous.model + 1, previous.copy) == (placed.model, placed.copy)
                    and self._model.launches[previous.model].group == model.group
                )
                number += 0 if joins else 1
                launch.group = number
            previous = placed


def _computed(cluster: Cluster) -> list[Node]:
    """The values that a cluster computes, those that never reach memory among them."""
    stack, seen = list(cluster.members), set(cluster.members)
    while stack:
        for operand in stack.pop().inputs:
            if operand not in seen and operand not in cluster.sources:
                seen.add(operand)
                stack.append(operand)
    return list(seen)


def _writes(uses: Sequence[_Use]) -> list[tuple[_Use, frozenset[_Use], frozenset[_Use]]]:
    """Each use that writes, with those before and behind it."""
    return [
        (use, frozenset(uses[:number]), frozenset(uses[number + 1 :]))
        for number, use in enumerate(uses)
        if "w" in use.access
    ]
