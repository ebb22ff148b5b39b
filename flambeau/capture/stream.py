"""From a recorded stream of op calls to one Graph and its Plan.

Every record names the Plan of its op's class, and that Plan holds the op's traced Graph; replaying
those graphs on the stream's values gives one Graph of primitives. Which sizes stay symbols: those
of external tensors that are no parameters. A run-time integer (`view(B, T, 4, 64)`) becomes the
size it equals where that is plausible, else a constant; what was seen to vary becomes a symbol of
its own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakValueDictionary

from flambeau._core import ExternalTensor, LiveValue, OpRecord, RecordedStream
from flambeau.compiler import debug, stored, tiers
from flambeau.driver import calls
from flambeau.driver.planner import Budget, Program, conditions, plan_of
from flambeau.driver.tracer import Tracer, traced_until_settled
from flambeau.ir.lock import importing, late, loaded
from flambeau.ir.node import Graph, GraphOutput, Node, topological
from flambeau.ir.size import Size, SizeExpr, estimate, prod, substitute, symbol
from flambeau.ir.size_program import Condition, Truth, eq
from flambeau.language.layout import contiguous_strides
from flambeau.prims.record import record_of
from flambeau.runtime import logs

if TYPE_CHECKING:
    from flambeau.driver.specify import Specification
    from flambeau.ir.plan import PlanSpec


@dataclass
class Value:
    """One value of the stream: its node and the geometry its tensor was promised."""

    node: Node
    strides: tuple[Size, ...]
    offset: Size = 0


class History(Budget):
    """The values that a stream's symbols had in earlier compilations of it (up to sizes)."""

    def __init__(self, hints: Sequence[list[int]] = ()) -> None:
        super().__init__()
        self.hints = list(hints)

    def varies(self, register: int, value: int) -> bool:
        """Whether this register had another value before."""
        return any(old[register] != value for old in self.hints if register < len(old))

    def agrees(self, register: int, size: SizeExpr, symbols: Sequence[str]) -> bool:
        """Whether this register always had the value of an expression over earlier ones."""
        for old in self.hints:
            values = dict(zip(symbols, old))
            if register < len(old) and estimate(size, values, -1) != old[register]:
                return False
        return True


@dataclass
class StreamReport:
    """Figures of one compiled stream, for `explain`.

    Attributes:
        externals: the tensors that it reads.
        records: the calls that were recorded, without those of a backward.
        numbers: the values of its symbols.
        plan: its Plan.
    """

    externals: Sequence[ExternalTensor]
    records: Sequence[OpRecord]
    numbers: list[int]
    plan: Any

    @property
    def graph(self) -> Graph:
        """The stream as one program."""
        graph: Graph = self.plan.graph()
        return graph

    @property
    def launches(self) -> int:
        """How many kernels and routines a run launches; 0 before the first."""
        return len(self.plan.launches)

    @property
    def baseline(self) -> bool:
        """Whether some of its kernels are not compiled."""
        return tiers.tier(self.plan) == "baseline"

    @property
    def different(self) -> set[int]:
        """Addresses of the kernels: equal layers share them."""
        launches = () if self.plan.execution is None else self.plan.execution.launches
        return {launch.kernel for launch in launches if launch.kernel is not None}


_MORE_RECORDS = 64  # of a trace that ends early, see `StreamTrace.run`
_MAX_HINTS = 64

# Each history lives as long as a Plan of its streams, or the compilation that makes the first one.
_histories: WeakValueDictionary[Any, History] = WeakValueDictionary()
_watchers: list[list[StreamReport]] = []
refusals: list[Callable[[], None]] = []  # called before a stream is compiled: they may raise


def forget() -> None:
    """Drops everything remembered between compilations."""
    _histories.clear()


@contextmanager
def watching() -> Iterator[list[StreamReport]]:
    """Inside, the reports of the streams that are compiled are gathered in a list."""
    reports: list[StreamReport] = []
    _watchers.append(reports)
    try:
        yield reports
    finally:
        _watchers[:] = [each for each in _watchers if each is not reports]


class StreamTrace(Tracer):
    """Replays the records of one stream."""

    def __init__(
        self,
        externals: Sequence[ExternalTensor],
        records: Sequence[OpRecord],
        history: History,
        first: StreamTrace | None = None,
        constants: Sequence[int] = (),
    ) -> None:
        """Begins a replay.

        Args:
            externals, records: of the stream.
            history: earlier values of its symbols.
            first: the trace before this one.
            constants: slots of externals whose sizes are constants, whatever they were before.
        """
        super().__init__(first)
        self.guards: list[Condition] = []
        self.values: dict[int, Value] = {}
        self.drawn: list[Node] = []  # results of records that draw random numbers
        self.complete = False
        self._first = first is None
        self._records = records
        self._history = history
        self._data_sizes: list[SizeExpr] = []
        self._parameter_sizes: set[int] = set()
        self._sizes: list[tuple[Size, ...]] = []  # per record: what its symbols stand for
        self._shared: dict[tuple[int, int, int], Size] = {}
        for slot, external in enumerate(externals):
            x = self._external(external, slot in constants)
            self.values[external.value] = Value(x, x.attribute("strides"), self._offset)

    def settled(self) -> bool:
        """Whether all records were replayed, and no size proved to be another one."""
        return self.complete and super().settled()

    # ------------------------------------------------------------------ symbols

    def require(self, condition: Truth) -> None:
        """Makes a condition a guard, in this trace alone: the next one may see it elsewhere."""
        if isinstance(condition, Condition):
            self.guards.append(condition)

    def _equal(self, value: int, size: Size) -> Size:
        """A register that has the value of a size."""
        name = self.register()
        self.environment.hints[name] = value
        self.require(eq(symbol(name), size))
        return size

    def _external(self, external: ExternalTensor, constant: bool) -> Node:
        tensor, fixed = external.tensor, external.parameter
        rank = len(tensor.sizes)
        if constant:
            self._parameter_sizes.update(tensor.sizes)
        shape = tuple(
            self.constant(size) if constant else self._external_size(size, fixed, (rank, d))
            for d, size in enumerate(tensor.sizes)
        )
        if tensor.strides == _numeric_strides(tensor.sizes):
            for _ in tensor.strides:
                self.register()
            steps = contiguous_strides(shape)
        else:
            steps = tuple(self._stride(stride, fixed) for stride in tensor.strides)
        self._offset = self.free(tensor.offset)
        return self.input(shape, steps, tensor.dtype)

    def _external_size(self, value: int, is_parameter: bool, place: tuple[int, int]) -> Size:
        """A size of an external tensor: a constant of parameters, else a symbol, shared with
        tensors of equal rank that have it at the same place (inputs and targets of one batch)."""
        varies = self._history.varies(len(self.symbols), value)
        if is_parameter and not varies:
            self._parameter_sizes.add(value)
            return self.constant(value)
        shared = self._shared.get((*place, value))
        if shared is not None:
            return self._equal(value, shared)
        created = self.symbol(value)
        if isinstance(created, SizeExpr):
            self._shared[*place, value] = created
        if isinstance(created, SizeExpr):
            self._data_sizes.append(created)
        return created

    def _stride(self, value: int, is_parameter: bool) -> Size:
        if value in (0, 1) or is_parameter:
            return self.constant(value)
        for size in self._stride_candidates():
            if self.environment.hint(size) == value:
                return self._equal(value, size)
        return self.free(value)

    def _stride_candidates(self) -> Iterator[Size]:
        last = self._data_sizes[-6:]
        for count in range(1, 4):
            for chosen in itertools.combinations(last, count):
                yield prod(chosen)

    # ------------------------------------------------------------------ run-time integers

    def _integers(self, values: Sequence[int], operands: Sequence[Value]) -> list[Size]:
        """Returns the sizes that one call's run-time integers denote, see `_meanings`."""
        shape = operands[0].node.shape if operands else ()
        first = len(self.symbols)
        reshape = bool(shape) and (-1 in values or math.prod(values) == self._hint(prod(shape)))
        meanings: list[list[Size]] = [
            [*self._meanings(first + place, value, place, shape, reshape), value]
            for place, value in enumerate(values)
        ]
        chosen: Sequence[Size] = [options[0] for options in meanings]
        if reshape and -1 not in values:
            chosen = next(_filling(meanings, prod(shape)), chosen)
        return [self._integer(value, size) for value, size in zip(values, chosen, strict=True)]

    def _integer(self, value: int, size: Size) -> Size:
        if value > 1 and isinstance(size, SizeExpr):
            return self._equal(value, size)
        if value > 1 and self._history.varies(len(self.symbols), value):
            return self.symbol(value)
        return self.constant(value)

    def _meanings(
        self, register: int, value: int, place: int, shape: Sequence[Size], reshape: bool
    ) -> list[SizeExpr]:
        """Symbolic sizes that the integer may stand for, the most plausible first.

        They have its value now and had it whenever the stream was compiled before. A number that
        is also the size of a parameter is taken for that in calls on data, and for a size of the
        data in calls that have none (`arange(T)`, `mask[:T]`).
        """
        if value <= 1:
            return []
        own = [*shape[place : place + 1], *shape]
        for start in range(len(shape)):
            own += [prod(shape[start:stop]) for stop in range(start + 2, len(shape) + 1)]
        symbolic = any(isinstance(s, SizeExpr) for s in shape)
        if symbolic and not reshape and value in self._parameter_sizes:
            candidates = own[:1]
        else:
            candidates = [*own, *self._data_sizes]
        return [
            s
            for s in dict.fromkeys(candidates)
            if isinstance(s, SizeExpr)
            and self._hint(s) == value
            and self._history.agrees(register, s, self.symbols)
        ]

    def _hint(self, size: Size) -> int:
        return self.environment.hint(size)

    # ------------------------------------------------------------------ replay

    def run(self) -> Self:
        """Replays the records, and returns itself.

        A first trace may end early, where sizes proved to be equal: the next one starts from
        them. A few records more say which others are.
        """
        equalities, end = self.environment.equalities, len(self._records)
        partial = self._first
        with self:
            for number, record in enumerate(self._records):
                if number == end:
                    return self
                self._replay(record)
                if partial and self.environment.equalities != equalities:
                    equalities = self.environment.equalities
                    if not super().settled():
                        partial, end = False, 2 * number + _MORE_RECORDS
        self.complete = True
        return self

    def _replay(self, record: OpRecord) -> None:
        operands = self._operands(record)
        mapping = self._mapping(record, operands)
        self._sizes.append(tuple(mapping.values()))
        # The core distinguishes integers and floats only; booleans have a dtype in the graph.
        dtypes = zip(record.plan.graph().scalars, record.number_types, strict=True)
        scalars = [self.scalar(number.dtype) for number, _ in dtypes]
        slots = range(self.generators, self.generators + record.generators)
        self.generators += record.generators
        results = self._define_results(record, operands, scalars, mapping, slots)
        if record.generators:
            self.drawn += [result for result in results if result is not None]

    def _operands(self, record: OpRecord) -> list[Value]:
        return [self.values[value] for value in record.operands if value >= 0]

    def _define_results(
        self,
        record: OpRecord,
        operands: Sequence[Value],
        scalars: Sequence[Node],
        mapping: dict[str, Size],
        generators: Sequence[int],
    ) -> Sequence[Node | None]:
        """Replays one call's graph; its results become values of the stream."""
        with importing:
            from flambeau.derivation.replay import replay

        graph: Graph = record.plan.graph()
        nodes = [value.node for value in operands]
        results = replay(graph, nodes, scalars, mapping, generators)
        for number, result, output in zip(record.results, results, graph.outputs, strict=True):
            if number >= 0 and result is not None:
                self._define(number, result, output, mapping, operands)
        return results

    def _define(
        self,
        number: int,
        result: Node,
        output: GraphOutput,
        mapping: dict[str, Size],
        present: Sequence[Value],
    ) -> None:
        if output.target is not None:
            base = present[output.target]
            self.values[number] = Value(result, base.strides, base.offset)
        elif output.strides is not None:
            strides = tuple(substitute(s, mapping) for s in output.strides)
            self.values[number] = Value(result, strides, substitute(output.offset, mapping))
        # an output that is an operand itself has that operand's number and value

    def _mapping(self, record: OpRecord, operands: Sequence[Value]) -> dict[str, Size]:
        """Binds the symbols of a call's graph."""
        forward, integers = record.forward, record.integers
        mapping, names = geometry_of(record.plan.graph(), operands)
        if forward >= 0 and len(record.registers) == len(integers):
            replacements = [self._sizes[forward][register] for register in record.registers]
            sizes = [self._integer(v, size) for v, size in zip(integers, replacements, strict=True)]
        else:
            sizes = self._integers(integers, operands)
        mapping.update(zip(names, sizes, strict=True))
        return mapping


def geometry_of(graph: Graph, operands: Sequence[Value]) -> tuple[dict[str, Size], Iterator[str]]:
    """Binds the symbols of a call's tensors; returns the symbols after them, too."""
    names = iter(graph.symbols)
    mapping: dict[str, Size] = {}
    for value in operands:
        for size in (*value.node.shape, *value.strides, value.offset):
            mapping[next(names)] = size
    return mapping, names


def _filling(meanings: Sequence[Sequence[Size]], total: Size) -> Iterator[list[Size]]:
    """Choices of one meaning each whose product is exactly `total`: the shapes of a reshape."""
    for chosen in itertools.islice(itertools.product(*meanings), 256):
        if prod(chosen) == total:
            yield list(chosen)


def _numeric_strides(sizes: Sequence[int]) -> tuple[int, ...]:
    return tuple(int(s) for s in contiguous_strides(sizes))  # type: ignore[arg-type]


def history_key(externals: Sequence[ExternalTensor], records: Sequence[OpRecord]) -> Any:
    """Returns the key that streams with one history share."""
    # A size of 1 is a constant, and what it meant elsewhere (a batch) is not seen here.
    tensors = [external.tensor for external in externals]
    classes = tuple((t.dtype, tuple(min(size, 2) for size in t.sizes)) for t in tensors)
    return classes, tuple((r.plan.name, r.operands, r.results) for r in records)


def history_of(key: Any) -> History:
    """Returns the history of a key, created on demand."""
    history = _histories.get(key)
    if history is None:
        history = _histories[key] = History()
    return history


def compile_stream(recorded: RecordedStream) -> Any:
    """Builds the Plan of a recorded stream. Called by the native recorder."""
    externals, records, live = recorded.externals, recorded.records, recorded.live
    slots: list[int] = []
    discards = recorded.frozen > 1
    if recorded.frozen:
        freezing = late("flambeau.capture.freezing")
        slots = freezing.constant_slots(externals, [value.slot for value in live])
        externals = [
            e._replace(source=None, parameter=e.parameter or slot in slots)
            for slot, e in enumerate(externals)
        ]
        recorded = recorded._replace(externals=externals)

    def specify(history: History) -> Specification:
        def once(first: StreamTrace | None) -> tuple[StreamTrace, None]:
            return StreamTrace(inputs, records, history, first, slots).run(), None

        inputs = with_state(externals, live)
        trace, _ = traced_until_settled(once)
        with importing:
            from flambeau.driver.specify import specification  # not needed for known streams

        with trace:
            graph = graph_of(trace, live)
            written = {value.slot for value in live}
            parameters = [slot for slot, external in enumerate(externals) if external.parameter]
            weights = [slot for slot in parameters if slot not in written]
            graph.notes["weights"] = weights  # of a program without a backward they stay
            if not slots:
                return specification(graph, "list", graph.guards)
            frozen = freezing.freeze(graph, slots, discards)
            return specification(frozen.graph, "list", graph.guards, frozen=frozen)

    return plan_of_stream(
        f"frozen {slots}{discards}" if slots else "stream",
        recorded,
        len(externals),
        len(records),
        specify,
    )


def plan_of_stream(
    kind: str,
    recorded: RecordedStream,
    externals: int,
    records: int,
    specify: Callable[[History], Specification],
) -> Any:
    """The Plan of a stream; those who watch get its report.

    Args:
        kind: distinguishes programs of one stream.
        recorded: the stream.
        externals: how many of its external tensors the user's calls read.
        records: how many of its records are the user's calls.
        specify: traces it, in the light of what was seen before.
    """
    for refuse in refusals:
        refuse()
    tensors, own = recorded.externals[:externals], recorded.records[:records]
    history = history_of((kind, history_key(tensors, own)))
    seen = History(history.hints)  # a trace of later on is to be the same
    name = None if seen.hints else stored_name(kind, recorded)

    def specify_anew(_: list[int]) -> Specification:
        if name is not None:
            save_programs(recorded.records)
        return specify(seen)

    numbers = numbers_of(tensors, own)
    plan = plan_of(
        Program(specify_anew, numbers, history, name, recorded.tuned, constants=_constants)
    )
    history.hints = [*history.hints, numbers][-_MAX_HINTS:]
    if logs.active() or loaded("flambeau._dynamo.config") is not None:
        late("flambeau.reports.region_logs").program(recorded, records, plan, numbers)
    for watcher in _watchers:
        watcher.append(StreamReport(tensors, own, numbers, plan))
    return plan


def _constants(spec: PlanSpec, graph: Callable[[], Graph]) -> object:
    """The constants of a frozen program."""
    return late("flambeau.capture.freezing").constants_of(spec, graph)


def numbers_of(externals: Sequence[ExternalTensor], records: Sequence[OpRecord]) -> list[int]:
    """The values of a stream's symbols, in the order of its registers."""
    numbers = calls.numbers_of(tuple(external.tensor for external in externals))
    return [*numbers, *(integer for record in records for integer in record.integers)]


def stored_name(kind: str, recorded: RecordedStream) -> stored.Name | None:
    """The name under which a stream's plan is stored; None where nothing may be."""
    if not stored.usable():
        return None
    numbers: dict[str, int] = {}
    wiring = []
    for plan, *wires in recorded.records:
        mark = fingerprint_of(plan)
        if mark is None:
            return None
        wiring.append((numbers.setdefault(mark, len(numbers)), wires))
    described = (list(numbers), wiring, recorded.externals, recorded.live)
    return stored.name_of(*conditions(recorded.tuned), kind, repr(described))


def save_programs(records: Sequence[OpRecord]) -> None:
    """Stores the plans of recorded ops, which are never compiled alone: that names the stream in
    the next process without a trace."""
    for record in records:
        if record.plan.origin is not None:
            record.plan.origin.save()


def fingerprint_of(plan: Any) -> str | None:
    """Digest of a plan's Graph, which need not be traced for it."""
    if plan.origin is None:
        return stored.fingerprint(plan.graph())
    mark: str | None = plan.origin.fingerprint()
    return mark


def with_state(
    externals: Sequence[ExternalTensor], live: Sequence[LiveValue]
) -> list[ExternalTensor]:
    """External tensors, of which those that the stream updates are as fixed as parameters."""
    written = {value.slot for value in live}
    return [
        e._replace(parameter=True) if slot in written else e for slot, e in enumerate(externals)
    ]


def graph_of(trace: StreamTrace, live: Sequence[LiveValue]) -> Graph:
    """The program that computes the live values."""
    outputs = []
    for number, slot in live:
        value = trace.values[number]
        if slot >= 0:
            target = trace.inputs[slot]
            outputs.append(GraphOutput(value.node, target.attribute("strides"), target=slot))
        else:
            outputs.append(GraphOutput(value.node, value.strides))
    unread = _unread(trace, [o.node for o in outputs])
    hidden = [GraphOutput(x, contiguous_strides(x.shape)) for x in unread]
    return Graph(
        symbols=tuple(trace.symbols),
        inputs=tuple(trace.inputs),
        scalars=tuple(trace.scalars),
        outputs=(*outputs, *hidden),
        visible=len(outputs),
        guards=(*trace.guards, *trace.environment.guards),
        generators=trace.generators,
        name=debug.FORWARD,
    )


def _unread(trace: StreamTrace, results: Sequence[Node]) -> list[Node]:
    """Draws that no result depends on: they advance their generator all the same."""
    if not trace.drawn:
        return []
    read = set(topological(results))
    return [x for x in topological(trace.drawn) if record_of(x).kind == "random" and x not in read]
