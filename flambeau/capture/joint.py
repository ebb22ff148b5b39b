"""Differentiation ahead of time: a region's forward and backward stream, split in two programs.

The native recorder ran the real engine over the tape of a region, so the stream holds the forward
calls and then those of its backward, in the engine's order: gradients have the bits of eager mode.
Here both become one Graph; `partition` chooses what the forward program returns besides its results
(what is expensive to compute again); the rest of the backward is a program of its own, an op.

Where many gradients meet at one edge that leaves the region, their sum is made here. It goes on
from what the edge has been given by others when backward comes to the region, a gradient that may
be absent, as in eager mode.

Run-time integers and numbers of a backward call are those of its forward call: the recorder says
which. A stream where that is not known is not handled (None): it runs op by op in backward.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from flambeau import _core, prims
from flambeau._core import OpRecord, RecordedBackward, RecordedStream
from flambeau.capture import stream
from flambeau.compiler import debug
from flambeau.derivation.memory_budget import Budget
from flambeau.driver.tracer import traced_until_settled
from flambeau.ir.lock import importing
from flambeau.ir.node import Graph, GraphOutput, Node
from flambeau.ir.plan import BackwardSpec, Source
from flambeau.runtime import config_modules, logs

if TYPE_CHECKING:
    from flambeau.driver.specify import Specification

_PLACEHOLDER = 1 << 30  # slots of the results' gradients until the backward Graph numbers its own
_NUMBERS = {0: "i64", 1: "f64", 2: "bool"}


_SETTINGS = "torch._functorch.config"
_BUDGET = (
    "activation_memory_budget", "activation_memory_budget_runtime_estimator",
    "activation_memory_budget_solver",
)  # fmt: skip


class NotHandledError(Exception):
    """This stream is differentiated call by call instead."""


class JointTrace(stream.StreamTrace):
    """A trace of forward calls that goes on with those of their backward."""

    def run(self) -> Self:
        """Replays the forward records, noting where each one's numbers begin."""
        self.first_number: list[int] = []
        return super().run()

    def _replay(self, record: OpRecord) -> None:
        self.first_number.append(len(self.scalars))
        super()._replay(record)

    def run_backward(self, records: Sequence[OpRecord]) -> None:
        """Replays backward records: they add no symbols, numbers or random draws."""
        with self:
            for record in records:
                self._replay_backward(record)

    def _replay_backward(self, record: OpRecord) -> None:
        forward, integers = record.forward, record.integers
        if record.generators or (integers and len(record.registers) != len(integers)):
            raise NotHandledError
        operands = self._operands(record)
        mapping, names = stream.geometry_of(record.plan.graph(), operands)
        sizes = [self._sizes[forward][register] for register in record.registers]
        mapping.update(zip(names, sizes if integers else (), strict=True))
        self._define_results(record, operands, self._numbers(record), mapping, ())

    def _numbers(self, record: OpRecord) -> list[Node]:
        """A backward's numbers: its forward's, or the constants that the engine always passes."""
        types, slots = record.number_types, record.forward_numbers
        if record.forward < 0:
            values = zip(record.numbers, types, strict=True)
            return [prims.full(value, (), _NUMBERS[kind]) for value, kind in values]
        if len(slots) != len(types):
            raise NotHandledError
        first = self.first_number[record.forward]
        numbers = [self.scalars[first + slot] for slot in slots]
        return [prims.cast(x, _NUMBERS[kind]) for x, kind in zip(numbers, types, strict=True)]


def compile_joint(recorded: RecordedStream, backward: RecordedBackward) -> Any:
    """Builds the Plan of a forward stream with its backward. Called by the native recorder.

    Args:
        recorded: forward and backward, records with their numbers' values.
        backward: which of it is the backward.

    Returns:
        A Plan with a backward; None where the stream is not handled.
    """
    if len(recorded.externals) != backward.externals + len(backward.seeds) + len(backward.held):
        return None  # backward reads a tensor that forward did not

    def specify(history: stream.History) -> Specification:
        return _programs(*_traced(recorded, backward, history), recorded, budget)

    budget = _budget(recorded.budget)
    limit = "" if budget.full else f" {tuple(budget)}"
    kind, externals, records = f"joint {backward}{limit}", backward.externals, backward.records
    try:
        return stream.plan_of_stream(kind, recorded, externals, records, specify)
    except NotHandledError:
        return None


class Gradients(NamedTuple):
    """Gradients that the traced backward is given, and those that it makes."""

    seeds: list[tuple[Node, Source]]
    results: list[tuple[Node, int]]  # with their edges
    edges: int  # how many of these there are


def _traced(
    recorded: RecordedStream, backward: RecordedBackward, history: stream.History
) -> tuple[JointTrace, Gradients]:
    count, externals, records = backward.records, recorded.externals, recorded.records
    inputs = stream.with_state(externals[: backward.externals], recorded.live)

    def trace(first: JointTrace | None) -> tuple[JointTrace, list[tuple[Node, Source]]]:
        trace = JointTrace(inputs, records[:count], history, first).run()
        seeds: list[tuple[Node, Source]] = []
        if not trace.complete:
            return trace, seeds
        for k, seed in enumerate(backward.seeds):
            x = _stand_in(trace, seed.value, externals[seed.slot].value, len(seeds))
            seeds.append((x, Source("grad", k)))
        trace.run_backward(records[count : backward.sums])
        for total in backward.held:
            x = _stand_in(trace, total.value, externals[total.slot].value, len(seeds))
            seeds.append((x, Source("held", total.gradient)))
        trace.run_backward(records[backward.sums :])
        return trace, seeds

    last, seeds = traced_until_settled(trace)
    results = [(last.values[value].node, edge) for value, edge in backward.gradients]
    return last, Gradients(seeds, results, backward.edges)


def _stand_in(trace: JointTrace, like: int, value: int, number: int) -> Node:
    """The node of a gradient that is given, as wide as value `like`: the node of `value`."""
    model = trace.values[like].node
    strides = prims.contiguous_strides(model.shape)
    node = prims.input_node(_PLACEHOLDER + number, model.dtype, model.shape, strides)
    trace.values[value] = stream.Value(node, strides)
    return node


def _programs(
    trace: JointTrace, gradients: Gradients, recorded: RecordedStream, budget: Budget
) -> Specification:
    with importing:
        from flambeau.derivation import derive as derivation
        from flambeau.driver.specify import signature_of, specification

    grads = [node for node, _ in gradients.results]
    targets = [edge for _, edge in gradients.results]
    if not grads:
        raise NotHandledError
    with trace:
        forward = stream.graph_of(trace, recorded.live)
        if logs.on("aot_joint_graph"):
            _log_joint(forward, grads, [x for x, _ in gradients.seeds])
        forward, origin = _with_saved(forward, {x for x, _ in gradients.seeds}, grads, budget)
        tensors = [(x, origin[x]) for x in derivation._read_first(grads, origin)]
        tensors += gradients.seeds
        backward, symbols, numbers = derivation._backward_graph(forward, grads, tensors)
        sources = [source for _, source in tensors]
        sources += [Source("register", forward.symbols.index(name)) for name in symbols]
        sources += [Source("scalar", slot) for slot in numbers]
        gradient = BackwardSpec(
            name=debug.BACKWARD,
            op=debug.BACKWARD,
            signature=signature_of(backward),
            targets=targets,
            edges=gradients.edges,
            arguments=sources,
            tuned=recorded.tuned,
        )
        return specification(forward, "list", forward.guards, gradient, backward)


def _log_joint(forward: Graph, grads: Sequence[Node], seeds: Sequence[Node]) -> None:
    """Logs forward and backward as one program; gradients of results are its last inputs."""
    with importing:
        from flambeau.ir.printer import print_graph

    results = [GraphOutput(x, prims.contiguous_strides(x.shape)) for x in grads]
    both = forward.with_outputs((*forward.outputs, *results))
    both.inputs = (*both.inputs, *seeds)
    logs.emit("aot_joint_graph", print_graph(both))


def _with_saved(
    forward: Graph, seeds: set[Node], grads: Sequence[Node], budget: Budget
) -> tuple[Graph, dict[Node, Source]]:
    """The forward Graph with the values to save as further results, and where backward finds what
    it reads."""
    with importing:
        from flambeau.derivation.partition import choose_saved, split, stored_operands

    overwritten = {o.target for o in forward.outputs if o.target is not None}
    free: dict[Node, Source] = {}
    for slot, x in enumerate(forward.inputs):
        if x is not None and slot not in overwritten:
            free[x] = Source("input", slot)
    for k, output in enumerate(forward.outputs):
        if output.target is None:
            free.setdefault(output.node, Source("output", k))
    stored = stored_operands(forward.nodes())
    saved = choose_saved(split(grads, seeds), free, budget, stored)
    visible = len(forward.outputs)
    outputs = tuple(GraphOutput(x, prims.contiguous_strides(x.shape)) for x in saved)
    sources = free | {x: Source("output", visible + k) for k, x in enumerate(saved)}
    return forward.with_outputs((*forward.outputs, *outputs)), sources


# ------------------------------------------------------------------------------- memory budget


def _budget(fraction: float) -> Budget:
    """The present settings of saved activations.

    Args:
        fraction: of the region; negative: it has none of its own.
    """
    budget = Budget(*(config_modules.value(_SETTINGS, name) for name in _BUDGET))
    return budget if fraction < 0 else budget._replace(fraction=fraction)


class _Forgetting:
    """Forgets known programs where a setting that decides about them changes.

    A program of the same calls with another budget is another one, but no key of a stream says so.
    """

    def __init__(self) -> None:
        self._before = self._present()

    @staticmethod
    def _present() -> list[object]:
        return [config_modules.value(_SETTINGS, name) for name in _BUDGET]

    def __call__(self) -> None:
        present = self._present()
        if present != self._before:
            self._before = present
            _core.stream_clear()


_forgetting = _Forgetting()
for _name in _BUDGET:
    config_modules.observe(_SETTINGS, _name, _forgetting)
