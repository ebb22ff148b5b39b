"""Differentiation ahead of time: a region's forward and backward stream, cut into two programs.

The native recorder ran the real engine over the tape of a region, so the stream holds the forward
calls and then those of its backward, in the engine's order: gradients have the bits of eager mode.
Here both become one Graph; `partition` chooses what the forward program returns besides its results
(what is dear to compute again); the rest of the backward is a program of its own, wrapped as an op.

Where many gradients meet at one edge that leaves the region, their sum is made here. It goes on
from what the edge has been given by others when backward comes to the region, a gradient that may
be absent, as in eager mode.

Run-time integers and numbers of a backward call are those of its forward call: the recorder says
which. A stream where that is not known is not handled (None): it runs op by op in backward.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from flambeau import prims
from flambeau.capture import stream
from flambeau.ir.environment import pop_environment, push_environment
from flambeau.ir.lock import importing
from flambeau.ir.node import Graph, GraphOutput, Node
from flambeau.ir.size import Size

NAME = "CompiledFunctionBackward"
_PLACEHOLDER = 1 << 30  # slots of the results' gradients until the backward Graph numbers its own
_NUMBERS = {0: "i64", 1: "f64", 2: "bool"}


class NotHandledError(Exception):
    """This stream is differentiated call by call instead."""


class Backward(NamedTuple):
    """What the native recorder appended to a forward stream."""

    forward_records: int  # how many records are the forward's; the rest is its backward
    forward_externals: int  # likewise; the rest stand for gradients that are given
    seeds: Sequence[tuple[int, int]]  # (value of the result, external slot) of each result's
    # (value, number of the edge along which it goes) of the gradients that leave the region.
    # Several with one edge are added outside, in this order.
    grads: Sequence[tuple[int, int]]
    sums: int  # from this record on there are sums that go on from what their edge holds
    # (value of the first summand, external slot of what the edge holds, which of `grads`) of these
    held: Sequence[tuple[int, int, int]]


class JointTrace(stream.StreamTrace):
    """A trace of forward calls that goes on with those of their backward."""

    def run(self, externals: Sequence[stream.External], partial: bool = False) -> bool:
        """Replays the forward records, noting where each one's numbers begin."""
        self.first_number: list[int] = []
        return super().run(externals, partial)

    def _replay(self, record: Any, externals: Any) -> None:
        self.first_number.append(len(self.scalars))
        super()._replay(record[:8], externals)

    def run_backward(self, records: Sequence[Any]) -> None:
        """Replays backward records: they add no symbols, numbers or random draws."""
        push_environment(self.environment)
        try:
            for record in records:
                self._replay_backward(record)
        finally:
            pop_environment()

    def _replay_backward(self, record: Any) -> None:
        with importing:
            from flambeau.autograd.replay import replay

        plan, operands, results, integers, kinds, generators, forward, registers = record[:8]
        if generators or (integers and (forward < 0 or len(registers) != len(integers))):
            raise NotHandledError
        graph: Graph = plan.graph
        present = [self.values[v] for v in operands if v >= 0]
        names = iter(graph.symbols)
        mapping: dict[str, Size] = {}
        for value in present:
            for size in (*value.node.shape, *value.strides, value.offset):
                mapping[next(names)] = size
        known = [self._sizes[forward][r] for r in registers] if integers else []
        mapping.update(zip(names, known, strict=True))
        scalars = self._numbers(kinds, forward, *record[8:])
        out = replay(graph, [v.node for v in present], scalars, mapping, ())
        for number, result, output in zip(results, out, graph.outputs, strict=True):
            if number >= 0 and result is not None:
                self._define(number, result, output, mapping, present)

    def _numbers(
        self, kinds: Sequence[int], forward: int, places: Sequence[int], values: Sequence[Any]
    ) -> list[Node]:
        """A backward's numbers: its forward's, or the constants that the engine always passes."""
        if forward < 0:
            return [prims.full(v, (), _NUMBERS[k]) for v, k in zip(values, kinds, strict=True)]
        if len(places) != len(kinds):
            raise NotHandledError
        first = self.first_number[forward]
        found = [self.scalars[first + place] for place in places]
        return [prims.cast(x, _NUMBERS[k]) for x, k in zip(found, kinds, strict=True)]


def compile_joint(
    recorded: tuple[Sequence[Any], Sequence[Any], Sequence[stream.Live], bool], *appended: Any
) -> Any:
    """Builds the Plan of a forward stream with its backward. Called by the native recorder.

    Args:
        recorded: externals, records, live values and `tuned` as for `stream.compile_stream`, each
            record with two more entries: which of its forward's numbers its own are, and their
            values.
        appended: the fields of `Backward`.

    Returns:
        A Plan with a backward; None where the stream is not handled.
    """
    externals, records, live, tuned = recorded
    backward = Backward(*appended)
    given = len(backward.seeds) + len(backward.held)
    if len(externals) != backward.forward_externals + given:
        return None  # backward reads a tensor that forward did not
    count = backward.forward_records
    key = stream.history_key(externals[: backward.forward_externals], records[:count])
    history = stream.history_of(("joint", key))
    name = None if history.hints else stream.stored_name(f"joint {appended}", *recorded)

    def trace_programs(history: stream.History) -> stream.Traced:
        return _programs(*_traced(recorded[:3], backward, history), live)

    try:
        return stream.plan_of(records, count, name, history, trace_programs, tuned)
    except NotHandledError:
        return None


Source = tuple[str, int]


class Gradients(NamedTuple):
    """Gradients that the traced backward is given, and those that it makes."""

    given: list[tuple[Node, Source]]
    found: list[tuple[Node, int]]  # with their edges


def _traced(
    recorded: tuple[Sequence[Any], Sequence[Any], Sequence[stream.Live]],
    backward: Backward,
    history: stream.History,
) -> tuple[JointTrace, Gradients]:
    externals, records, live = recorded
    written = {slot for _, slot in live if slot >= 0}
    known = [
        (*e[:4], e[4] or slot in written, e[5])
        for slot, e in enumerate(externals[: backward.forward_externals])
    ]
    count = backward.forward_records
    trace: JointTrace | None = None
    for number in range(stream.MAX_TRACES + 1):
        trace = JointTrace(known, records[:count], history, trace)
        for slot, external in enumerate(known):
            trace.bind_external(external[5], slot)
        if not trace.run(known, partial=number == 0):
            continue
        given: list[tuple[Node, Source]] = []
        for k, (value, slot) in enumerate(backward.seeds):
            given.append((_stand_in(trace, value, externals[slot][5], len(given)), ("grad", k)))
        trace.run_backward(records[count : backward.sums])
        for value, slot, k in backward.held:
            given.append((_stand_in(trace, value, externals[slot][5], len(given)), ("held", k)))
        trace.run_backward(records[backward.sums :])
        if trace.settled():
            break
    assert trace is not None
    found = [(trace.values[value].node, edge) for value, edge in backward.grads]
    return trace, Gradients(given, found)


def _stand_in(trace: JointTrace, like: int, value: int, number: int) -> Node:
    """The node of a gradient that is given, as wide as value `like`: the node of `value`."""
    model = trace.values[like].node
    strides = prims.contiguous_strides(model.shape)
    node = prims.input_node(_PLACEHOLDER + number, model.dtype, model.shape, strides)
    trace.values[value] = stream.Value(node, strides)
    return node


def _programs(
    trace: JointTrace, gradients: Gradients, live: Sequence[stream.Live]
) -> stream.Traced:
    with importing:
        from flambeau.autograd import derive as derivation
        from flambeau.driver.specify import signature_of

    push_environment(trace.environment)
    try:
        grads = [node for node, _ in gradients.found]
        targets = [edge for _, edge in gradients.found]
        if not grads:
            raise NotHandledError
        forward = stream.graph_of(trace, live)
        forward, known = _with_saved(forward, {x for x, _ in gradients.given}, grads)
        tensors = [(x, known[x]) for x in derivation._read_first(grads, known)]
        tensors += gradients.given
        backward, symbols, numbers = derivation._backward_graph(forward, grads, tensors)
    finally:
        pop_environment()
    sources = [source for _, source in tensors]
    sources += [("register", forward.symbols.index(name)) for name in symbols]
    sources += [("scalar", slot) for slot in numbers]
    gradient = {
        "op": NAME,
        "signature": signature_of(backward),
        "name": NAME,
        "targets": targets,
        "arguments": sources,
    }
    return stream.Traced(trace, forward, gradient, backward)


def _with_saved(
    forward: Graph, given: set[Node], grads: Sequence[Node]
) -> tuple[Graph, dict[Node, Source]]:
    """The forward Graph with the values to save as further results, and where backward finds what
    it reads."""
    with importing:
        from flambeau.autograd.partition import choose_saved, split

    overwritten = {o.target for o in forward.outputs if o.target is not None}
    free: dict[Node, Source] = {}
    for slot, x in enumerate(forward.inputs):
        if x is not None and slot not in overwritten:
            free[x] = ("input", slot)
    for k, output in enumerate(forward.outputs):
        if output.target is None:
            free.setdefault(output.node, ("output", k))
    saved = choose_saved(split(grads, given), free)
    visible = len(forward.outputs)
    more = tuple(GraphOutput(x, prims.contiguous_strides(x.shape)) for x in saved)
    known = free | {x: ("output", visible + k) for k, x in enumerate(saved)}
    return forward.with_outputs((*forward.outputs, *more)), known
