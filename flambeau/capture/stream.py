"""From a recorded stream of op calls to one Graph and its Plan.

Every record names the Plan of its op's class, and that Plan holds the op's traced Graph; replaying
those graphs on the stream's values gives one Graph of primitives. Which sizes stay symbols: those
of external tensors that are no parameters. A run-time integer (`view(B, T, 4, 64)`) becomes the
size it equals where that is plausible, else a constant; what was seen to vary becomes a symbol of
its own.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from flambeau._core import ExternalTensor, LiveValue, OpRecord, RecordedStream
from flambeau.compiler import debug, stored
from flambeau.driver.dispatch import compile_and_keep, native_plan
from flambeau.ir.environment import pop_environment, push_environment
from flambeau.ir.lock import importing
from flambeau.ir.node import (
    ITEM_SIZE,
    Graph,
    GraphOutput,
    Node,
    attributes,
    node,
    topological,
)
from flambeau.ir.plan import BackwardSpec, Execution, PlanSpec
from flambeau.ir.size import Size, SizeExpr, estimate, mul, prod, substitute, symbol
from flambeau.ir.size_program import Condition, Program, ShapeEnvironment, eq
from flambeau.language.layout import contiguous_strides
from flambeau.prims.record import record_of
from flambeau.runtime import collection


@dataclass
class Value:
    """One value of the stream: its node and the geometry its tensor was promised."""

    node: Node
    strides: tuple[Size, ...]
    offset: Size = 0


@dataclass
class History:
    """The values that a stream's symbols had in earlier compilations of it (up to sizes)."""

    hints: list[list[int]] = field(default_factory=list)

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
        records: ops recorded.
        trace: makes the stream's graph.
        bytes_moved: see the function.
        launches: of kernels and routines.
        different: addresses of the kernels: equal layers share them.
    """

    records: int
    trace: Callable[[], Graph]
    bytes_moved: int
    launches: int = 0
    different: frozenset[int] = frozenset()

    @property
    def graph(self) -> Graph:
        """The stream as one program."""
        return self.trace()

    def note(self, execution: Execution) -> None:
        """Takes the figures of what the stream was compiled to."""
        self.launches = len(execution.launches)
        kernels = (launch.kernel for launch in execution.launches)
        self.different = frozenset(kernel for kernel in kernels if kernel is not None)


# Each trace may find sizes that must be equal; the next one starts from them.
MAX_TRACES = 4
_MORE_RECORDS = 64  # of a trace that ends early, see `StreamTrace.run`

MAX_HISTORIES = 4096  # the core knows no more streams either
_MAX_HINTS = 64

_histories: OrderedDict[Any, History] = OrderedDict()  # oldest use first
_watchers: list[list[StreamReport]] = []


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


def _tell(report: StreamReport) -> None:
    for watcher in _watchers:
        watcher.append(report)


class StreamTrace:
    """Replays the records of one stream."""

    def __init__(
        self,
        externals: Sequence[ExternalTensor],
        records: Sequence[OpRecord],
        history: History,
        first: StreamTrace | None = None,
    ) -> None:
        self.environment = first.environment if first else ShapeEnvironment()
        self.guards: list[Condition] = []
        self.symbols: list[str] = []
        self.hints: list[int] = []
        self.values: dict[int, Value] = {}
        self.inputs: list[Node] = []
        self.scalars: list[Node] = []
        self.generators = 0
        self.drawn: list[Node] = []  # results of records that draw random numbers
        self._records = records
        self._history = history
        self._data_sizes: list[SizeExpr] = []
        self._handed: list[SizeExpr] = []  # symbols, as the trace used them
        self._parameter_sizes: set[int] = set()
        self._sizes: list[tuple[Size, ...]] = []  # per record: what its symbols stand for
        self._shared: dict[tuple[int, int, int], Size] = {}
        for slot, external in enumerate(externals):
            x = self._external(slot, external)
            self.inputs.append(x)
            self.values[external.value] = Value(x, x.attribute("strides"), self._offset)

    # ------------------------------------------------------------------ symbols

    def _register(self, value: int) -> str:
        name = f"s{len(self.symbols)}"
        self.symbols.append(name)
        self.hints.append(value)
        return name

    def _symbol(self, value: int) -> Size:
        """A register that stays symbolic (0 and 1 excepted: the records' classes tell them)."""
        name = self._register(value)
        if value in (0, 1):
            self.environment.hints[name] = value
            return value
        if name in self.environment.hints:  # a trace before this one, which may have ended early
            return self._handed_out(self.environment.resolve(symbol(name, minimum=2)))
        return self._handed_out(self.environment.create_symbol(value, name, specialise=True))

    def _constant(self, value: int) -> int:
        """A register that must keep its value."""
        name = self._register(value)
        self.environment.hints[name] = value
        guard = eq(symbol(name, minimum=min(value, 0)), value)
        if isinstance(guard, Condition):
            self.guards.append(guard)
        return value

    def _free(self, value: int) -> Size:
        """A register without any knowledge (offsets, strides of strided tensors)."""
        name = self._register(value)
        if name in self.environment.hints:
            return self._handed_out(self.environment.resolve(symbol(name)))
        return self._handed_out(self.environment.create_symbol(value, name))

    def _handed_out(self, size: Size) -> Size:
        if isinstance(size, SizeExpr):
            self._handed.append(size)
        return size

    def _external(self, slot: int, external: ExternalTensor) -> Node:
        tensor, fixed = external.tensor, external.parameter
        rank = len(tensor.sizes)
        shape = tuple(
            self._external_size(size, fixed, (rank, d)) for d, size in enumerate(tensor.sizes)
        )
        if tensor.strides == _numeric_strides(tensor.sizes):
            for stride in tensor.strides:
                self._register(stride)
            steps = contiguous_strides(shape)
        else:
            steps = tuple(self._stride(stride, fixed) for stride in tensor.strides)
        self._offset = self._free(tensor.offset)
        return node("input", (), attributes(slot=slot, strides=steps), tensor.dtype, shape)

    def _external_size(self, value: int, is_parameter: bool, place: tuple[int, int]) -> Size:
        """A size of an external tensor: a constant of parameters, else a symbol, shared with
        tensors of equal rank that have it at the same place (inputs and targets of one batch)."""
        varies = self._history.varies(len(self.symbols), value)
        if is_parameter and not varies:
            self._parameter_sizes.add(value)
            return self._constant(value)
        shared = self._shared.get((*place, value))
        if shared is not None:
            name = self._register(value)
            self.environment.hints[name] = value
            self._add_guard(eq(symbol(name), shared))
            return shared
        created = self._symbol(value)
        if isinstance(created, SizeExpr):
            self._shared[*place, value] = created
        if isinstance(created, SizeExpr):
            self._data_sizes.append(created)
        return created

    def _stride(self, value: int, is_parameter: bool) -> Size:
        if value in (0, 1) or is_parameter:
            return self._constant(value)
        for size in self._stride_candidates():
            if self.environment.hint(size) == value:
                name = self._register(value)
                self.environment.hints[name] = value
                self._add_guard(eq(symbol(name), size))
                return size
        return self._free(value)

    def _stride_candidates(self) -> Iterator[Size]:
        last = self._data_sizes[-6:]
        for count in range(1, 4):
            for chosen in itertools.combinations(last, count):
                yield prod(chosen)

    def _add_guard(self, guard: Condition | bool) -> None:
        if isinstance(guard, Condition):
            self.guards.append(guard)

    # ------------------------------------------------------------------ run-time integers

    def _integers(self, values: Sequence[int], operands: Sequence[Value]) -> list[Size]:
        """Returns the sizes that one call's run-time integers denote, see `_meanings`."""
        shape = operands[0].node.shape if operands else ()
        first = len(self.symbols)
        reshape = bool(shape) and (-1 in values or math.prod(values) == self._hint(prod(shape)))
        meanings = [
            [*self._meanings(first + place, value, place, shape, reshape), value]
            for place, value in enumerate(values)
        ]
        chosen: Sequence[Size] = [options[0] for options in meanings]
        if reshape and -1 not in values:
            chosen = next(_filling(meanings, prod(shape)), chosen)
        return [self._integer(value, size) for value, size in zip(values, chosen, strict=True)]

    def _integer(self, value: int, size: Size) -> Size:
        if value > 1 and isinstance(size, SizeExpr):
            name = self._register(value)
            self.environment.hints[name] = value
            self._add_guard(eq(symbol(name), size))
            return size
        if value > 1 and self._history.varies(len(self.symbols), value):
            return self._symbol(value)
        return self._constant(value)

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

    def run(self, partial: bool = False) -> bool:
        """Replays every record; returns whether the trace is complete.

        Args:
            partial: whether it may end early, where sizes turned out to be equal: the next trace
                starts from them. A few records more say which others are.
        """
        equalities, end = self.environment.equalities, len(self._records)
        push_environment(self.environment)
        try:
            for number, record in enumerate(self._records):
                if number == end:
                    return False
                self._replay(record)
                if partial and self.environment.equalities != equalities:
                    equalities = self.environment.equalities
                    if not self.settled():
                        partial, end = False, 2 * number + _MORE_RECORDS
        finally:
            pop_environment()
        return True

    def _replay(self, record: OpRecord) -> None:
        operands = self._operands(record)
        mapping = self._mapping(record, operands)
        self._sizes.append(tuple(mapping.values()))
        # The core tells integers from floats alone; truth values have a dtype in the call's graph.
        dtypes = zip(record.plan.graph().scalars, record.number_types, strict=True)
        scalars = [self._scalar(number.dtype) for number, _ in dtypes]
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
        # an output that is an operand itself keeps that operand's number and value

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

    def _scalar(self, dtype: str) -> Node:
        leaf = node("scalar", (), attributes(slot=len(self.scalars)), dtype, ())
        self.scalars.append(leaf)
        return leaf

    def settled(self) -> bool:
        """Whether all symbols still stand for what they did when they were handed out."""
        return all(self.environment.resolve(size) == size for size in self._handed)


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
        if len(_histories) > MAX_HISTORIES:
            _histories.popitem(last=False)
    _histories.move_to_end(key)
    del history.hints[:-_MAX_HINTS]
    return history


def compile_stream(recorded: RecordedStream) -> Any:
    """Builds the Plan of a recorded stream. Called by the native recorder."""
    externals, records, live, tuned = recorded
    history = history_of(history_key(externals, records))
    name = None if history.hints else stored_name("stream", recorded)

    def trace_graph(history: History) -> Traced:
        with collection.paused():
            trace = _traced(externals, records, live, history)
        push_environment(trace.environment)
        try:
            traced = Traced(trace, graph_of(trace, live))
        finally:
            pop_environment()
        written = {value.slot for value in live}
        weights = [slot for slot, e in enumerate(externals) if e.parameter and slot not in written]
        traced.graph.notes["weights"] = weights  # of a program without a backward they stay
        return traced

    return plan_of(records, len(records), name, history, trace_graph, tuned)


class Traced(NamedTuple):
    """A stream as a program.

    Attributes:
        trace: of its records.
        graph: the program.
        gradient: how its backward is called.
        backward: the program of its gradients.
    """

    trace: StreamTrace
    graph: Graph
    gradient: BackwardSpec | None = None
    backward: Graph | None = None


def plan_of(
    records: Sequence[OpRecord],
    count: int,
    name: str | None,
    history: History,
    trace: Callable[[History], Traced],
    tuned: bool,
) -> Any:
    """The Plan of a stream, and its report.

    Args:
        records: of the stream.
        count: how many of them are the user's calls.
        name: under which the plan is kept; None: it is not.
        history: what was seen before.
        trace: makes the program.
        tuned: whether tunable calls are measured.
    """
    plans = [] if name is None else stored.load(name)
    if plans:
        plan = plans[-1]
        again = functools.cache(lambda: trace(History()))  # when it was kept nothing had been seen
        history.hints.append(plan.hints)
        report = StreamReport(count, lambda: again().graph, plan.bytes_moved)
        _tell(report)
        debug.show(debug.PLANS, f"stream: {count} ops, a finished plan of an earlier run")
        return _known_plan(plan, report, again, tuned)
    traced = trace(history)
    symbols, numbers = traced.trace.symbols, traced.trace.hints
    history.hints.append(numbers)
    moved = bytes_moved(traced.graph, dict(zip(symbols, numbers, strict=True)))
    report = StreamReport(count, lambda: traced.graph, moved)
    _tell(report)
    if name is not None:
        keep_programs(records)
    return _plan(traced, report, name, tuned)


def stored_name(kind: str, recorded: RecordedStream) -> str | None:
    """The name under which a stream's plan is kept; None where nothing may be."""
    if not stored.usable():
        return None
    if recorded.tuned:
        with importing:
            from flambeau.driver.autotune import conditions

        kind = f"{conditions()} {kind}"
    numbers: dict[str, int] = {}
    wiring = []
    for plan, *wires in recorded.records:
        mark = fingerprint_of(plan)
        if mark is None:
            return None
        wiring.append((numbers.setdefault(mark, len(numbers)), wires))
    described = (list(numbers), wiring, recorded.externals, recorded.live)
    return stored.name_of(kind, repr(described))


def keep_programs(records: Sequence[OpRecord]) -> None:
    """Keeps the plans of recorded ops, which are never compiled alone: that names the stream in
    the next process without a trace."""
    for record in records:
        if record.plan.origin is not None:
            record.plan.origin.keep()


def fingerprint_of(plan: Any) -> str | None:
    """Digest of a plan's Graph, which need not be traced for it."""
    if plan.origin is None:
        return stored.fingerprint(plan.graph())
    mark: str | None = plan.origin.fingerprint()
    return mark


def _traced(
    externals: Sequence[ExternalTensor],
    records: Sequence[OpRecord],
    live: Sequence[LiveValue],
    history: History,
) -> StreamTrace:
    externals = with_state(externals, live)
    trace: StreamTrace | None = None
    for number in range(MAX_TRACES + 1):
        trace = StreamTrace(externals, records, history, trace)
        if trace.run(partial=number == 0) and trace.settled():
            break
    assert trace is not None
    return trace


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
        name="stream",
    )


def _unread(trace: StreamTrace, results: Sequence[Node]) -> list[Node]:
    """Draws that no result depends on: they advance their generator all the same."""
    if not trace.drawn:
        return []
    read = set(topological(results))
    return [x for x in topological(trace.drawn) if record_of(x).kind == "random" and x not in read]


def _specification(traced: Traced, tuned: bool) -> tuple[int, PlanSpec]:
    """How many registers the Plan's program has, and what `_core.Plan` is made of."""
    with importing:
        from flambeau.driver.specify import output_spec  # not needed for streams that are known

    graph = traced.graph
    push_environment(traced.trace.environment)
    try:
        program = Program(graph.symbols)
        outputs = [output_spec(program, o) for o in graph.outputs]
        guards = [program.register(g) for g in graph.guards]
    finally:
        pop_environment()
    spec = PlanSpec(
        name="stream",
        symbols=len(graph.symbols),
        tensors=len(graph.inputs),
        numbers=len(graph.scalars),
        generators=graph.generators,
        outputs=outputs,
        visible=graph.visible,
        program=program.packed(),
        guards=guards,
        returns="list",
        backward=None if traced.gradient is None else traced.gradient._replace(tuned=tuned),
    )
    return len(program), spec


def _plan(traced: Traced, report: StreamReport, name: str | None, tuned: bool) -> Any:
    """The Plan of a traced stream; compiled, it is kept under `name`."""
    graph = traced.graph
    registers, spec = _specification(traced, tuned)

    def keep(portable: Execution, kernels: Sequence[tuple[Any, ...]]) -> None:
        marked = stored.marked(spec, traced.backward)
        if marked is not None:
            hints, moved = traced.trace.hints, report.bytes_moved
            plan = stored.StoredPlan(hints, marked, registers, "", portable, kernels, moved)
            stored.save(str(name), plan)

    def compile_plan() -> Execution:
        numbers = traced.trace.hints if tuned else None
        execution = compile_and_keep(graph, registers, None if name is None else keep, numbers)
        report.note(execution)
        return execution

    def backward() -> Graph:
        assert traced.backward is not None
        return traced.backward

    return native_plan(spec, backward, graph=graph, compile=compile_plan)


def _known_plan(
    plan: stored.StoredPlan, report: StreamReport, again: Callable[[], Traced], tuned: bool
) -> Any:
    """The Plan of a stream that an earlier process compiled."""

    def compile_plan() -> Execution:
        execution = stored.execution_of(plan) if stored.usable() else None
        if execution is None:  # kernels were evicted, or somebody wants to see the stages
            numbers = plan.hints if tuned else None
            execution = compile_and_keep(report.graph, plan.registers, None, numbers)
        report.note(execution)
        return execution

    def backward() -> Graph:
        graph, gradient = again().backward, plan.spec.backward
        assert graph is not None and gradient is not None
        return stored.checked(graph, gradient.fingerprint, "stream")

    return native_plan(plan.spec, backward, compile=compile_plan)


def bytes_moved(graph: Graph, hints: dict[str, int]) -> int:
    """Bytes that the graph's inputs and outputs occupy: what a perfect fusion would move."""
    total = 0
    for value in (*graph.inputs, *(o.node for o in graph.outputs)):
        if value is None:
            continue
        size = mul(prod(value.shape), ITEM_SIZE[value.dtype])
        total += estimate(size, hints, 0)
    return total
