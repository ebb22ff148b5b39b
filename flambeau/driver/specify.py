"""From a call to the specification of its Plan: trace the definition, derive its backward.

What comes out is plain data beside the Graphs themselves, so that `driver/dispatch.py` can keep it
on disk for the next process. Loaded when a call is met that no earlier process kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from flambeau import _core, prims
from flambeau.derivation import derive as derivation
from flambeau.derivation.disjoint import join_parts
from flambeau.driver.calls import Call
from flambeau.driver.errors import (
    common_device,
    first_device,
    is_elsewhere,
    leading_device,
    user_error,
)
from flambeau.driver.faults import faults_of
from flambeau.driver.trace import Trace, traced
from flambeau.ir.dtypes import TITLES
from flambeau.ir.graph_grammar import symbols_of
from flambeau.ir.node import ITEM_SIZE, Graph, GraphOutput, Node, node, topological
from flambeau.ir.plan import BackwardSpec, ConstantsSpec, Output, PlanSpec
from flambeau.ir.size import Size, SizeExpr, mul
from flambeau.ir.size_program import Condition, Program
from flambeau.language import layout
from flambeau.language.definition import Dense, Overload, View, evaluate
from flambeau.language.promotion import CATEGORY, can_cast
from flambeau.prims.annotation import stops_gradient

# Stands for an output that does not exist in a class of calls (the gradient of an unused operand).
ABSENT = node("absent", (), (), "f32", ())
# Primitives whose result has elements of the first operand alone.
_CHOICES = frozenset({"broadcast", "compress", "permute", "reshape", "slice", "take"})


class Frozen(NamedTuple):
    """A program in two parts (`capture/freezing.py`).

    Attributes:
        graph: the part of every call; its inputs are those of the program, then the values.
        constants: the part that computes the values.
        spec: what that part reads.
    """

    graph: Graph
    constants: Graph
    spec: ConstantsSpec


@dataclass(frozen=True)
class Specification:
    """A traced call.

    Attributes:
        graph: the program, with the results that only its backward reads.
        backward: the program of the gradients, if any.
        spec: the Plan's description.
        registers: number of registers of the metadata program.
        constants: the program of the constants of a frozen program, if any.
    """

    graph: Graph
    backward: Graph | None
    spec: PlanSpec
    registers: int
    constants: Graph | None = None


def specify_call(overload: Overload, variant: str, call: Call) -> Specification:
    """Traces a call of an operator.

    Args:
        overload: the definition.
        variant: "functional" or "inplace" (the result overwrites the first argument).
        call: its description by the core.
    """
    aligned = overload.options.layout == "follow"
    placed = [n for n, a in enumerate(overload.schema.arguments) if a.kind == "device?"]

    def run(trace: Trace) -> Graph:
        try:
            results = evaluate(overload, trace.arguments)
        except (TypeError, ValueError, RuntimeError, IndexError) as error:
            clear = user_error(overload.name, error)
            if clear is error:
                raise
            raise clear from error
        return _graph(overload.name, trace, _outputs(overload, variant, trace, results))

    trace, graph = traced(call, aligned, run)
    options, chooses = overload.options, _chooses(graph)
    graph.notes["varying"] = options.varying
    with trace:
        device = _device(overload.name, call, placed, graph)
        specification = _specify(
            graph,
            trace,
            overload.returns(graph.visible),
            call,
            device or first_device(call),
            options.differentiable,
            device,
            options.saves_result,
            _unsaved_slots(overload, trace),
        )
    spec = specification.spec
    if spec.backward is not None and options.notes.get("differentiable once"):
        spec = spec._replace(backward=spec.backward._replace(once=True))
    if options.overlap_when is not None and not options.overlap_when(*trace.arguments):
        spec = spec._replace(copies_overlaps=True)
    spec = spec._replace(chooses=chooses)
    return specification if spec is specification.spec else replace(specification, spec=spec)


def _chooses(graph: Graph) -> bool:
    """Whether the one result has elements of the first tensor alone, unchanged."""
    if graph.visible != 1 or not graph.inputs:
        return False
    value = graph.outputs[0].node
    while not value.is_input:
        if value.op not in _CHOICES:
            return False
        value = value.inputs[0]
    return value is graph.inputs[0]


def specify_graph(graph: Graph, name: str, call: Call) -> Specification:
    """Replays a Graph on the tensors and sizes of a call, as one operator of this name."""
    tensors, integers = len(graph.inputs), graph.symbols

    def run(trace: Trace) -> Graph:
        values = dict(zip(integers, trace.arguments[tensors:], strict=False))
        numbers = trace.arguments[tensors + len(integers) :]
        results = derivation.replay(graph, trace.arguments[:tensors], numbers, values, whole=True)
        outputs = [_replayed_output(trace, r) for r in results]
        return _graph(name, trace, outputs)

    trace, replayed = traced(call, False, run)
    replayed.notes["varying"] = graph.notes.get("varying", False)
    first, place = first_device(call), leading_device(call)
    with trace:
        device = None if first is place else place
        return _specify(replayed, trace, "tuple", call, place, device=device)


def _device(name: str, call: tuple[Any, ...], placed: Sequence[int], graph: Graph) -> Any:
    """Where new outputs go; None: where the first tensor is."""
    for position in placed:
        if call[position] is not None:
            return call[position]
    return common_device(name, call, graph) if graph.inputs else _core.get_default_device()


def _outputs(
    overload: Overload, variant: str, trace: Trace, results: Sequence[Any]
) -> list[GraphOutput]:
    if variant == "inplace":
        return [_inplace_output(overload, trace, results[0], 0)]
    if any(argument.mutated for argument in overload.schema.arguments):
        return [
            _inplace_output(overload, trace, result, target.attribute("slot"))
            for result, target in zip(results, _mutated(overload, trace), strict=True)
            if target is not None
        ]
    return [GraphOutput(ABSENT) if r is None else _output(overload, trace, r) for r in results]


def _mutated(overload: Overload, trace: Trace) -> list[Node | None]:
    """Arguments declared `Tensor!`; such an op's results are their new values. None: not given."""
    pairs = zip(overload.schema.arguments, trace.arguments, strict=True)
    return [value for argument, value in pairs if argument.mutated]


def _unsaved_slots(overload: Overload, trace: Trace) -> frozenset[int]:
    """Tensor slots of arguments that backward does not read."""
    named = overload.options.unsaved
    pairs = zip(overload.schema.arguments, trace.arguments, strict=False) if named else ()
    values = [value for argument, value in pairs if argument.name in named]
    return frozenset(x.attribute("slot") for x in values if isinstance(x, Node) and x.is_input)


def _inplace_output(overload: Overload, trace: Trace, result: Any, slot: int) -> GraphOutput:
    """The result overwrites a slot: same shape, castable dtype, its own strides."""
    target = trace.inputs[slot]
    name = overload.name.rstrip("_") + "_"
    if not can_cast(result.dtype, target.dtype):
        raise RuntimeError(
            f"[{name}] result type {TITLES[result.dtype]} can't be cast to the desired output "
            f"type {TITLES[target.dtype]}\nhint: use the out-of-place {overload.name}"
        )
    if overload.options.out_rule == "exact" and result.dtype != target.dtype:
        raise RuntimeError(
            f"[{name}] the base given to {name} has dtype {TITLES[target.dtype]} but the "
            f"operation's result requires dtype {TITLES[result.dtype]}\n"
            f"hint: use the out-of-place {overload.name}"
        )
    fits = len(result.shape) == len(target.shape) and all(
        layout.same(a, b) for a, b in zip(result.shape, target.shape, strict=True)
    )
    if not fits:
        raise RuntimeError(
            f"[{name}] output with shape {_sizes(trace, target)} doesn't match the broadcast shape "
            f"{_sizes(trace, result)}\nhint: the left operand of an in-place op keeps its shape"
        )
    value = prims.cast(result, target.dtype)
    return GraphOutput(value, target.attribute("strides"), target=slot)


def _sizes(trace: Trace, value: Node) -> list[int]:
    return [trace.environment.hint(s) for s in value.shape]


def _output(overload: Overload, trace: Trace, result: Any) -> GraphOutput:
    if isinstance(result, View):
        slot = next(n for n in _ancestors(result.node) if n.is_input).attribute("slot")
        return GraphOutput(result.node, result.strides, alias=slot, offset=result.offset)
    if isinstance(result, Dense):
        value = result.node
        return GraphOutput(value, layout.dense_strides(value.shape, result.order))
    options = overload.options
    if options.view or options.returns_self:
        if result.is_input and options.returns_self:
            return GraphOutput(result, None, alias=result.attribute("slot"))
        view = layout.view_geometry(result, trace.offsets) if options.view else None
        if view is not None:
            slot, (_, strides, offset) = view
            return GraphOutput(result, strides, alias=slot, offset=offset)
    return GraphOutput(result, _strides(options.layout, trace, result))


def _strides(rule: str, trace: Trace, result: Node) -> tuple[Any, ...]:
    operands = [(n.shape, n.attribute("strides")) for n in trace.inputs]
    if rule == "follow":
        return layout.follow_strides(result.shape, operands)
    if rule == "first":
        return layout.follow_strides(result.shape, operands[:1])
    if rule == "image":
        return layout.image_strides(result, operands)
    if rule == "images":
        return layout.joined_strides(result, operands)
    if rule == "first image":
        return layout.joined_strides(result, operands[:1])
    return layout.contiguous_strides(result.shape)


def _ancestors(value: Node) -> list[Node]:
    seen, stack = [], [value]
    while stack:
        current = stack.pop()
        seen.append(current)
        stack.extend(current.inputs)
    return seen


def _graph(name: str, trace: Trace, outputs: Sequence[GraphOutput]) -> Graph:
    return Graph(
        symbols=tuple(trace.symbols),
        inputs=tuple(trace.inputs),
        scalars=tuple(trace.scalars),
        outputs=tuple(outputs),
        visible=len(outputs),
        guards=tuple(trace.environment.guards),
        generators=trace.generators,
        name=name,
    )


def _specify(
    graph: Graph,
    trace: Trace,
    returns: str,
    call: Call,
    place: Any,
    differentiable: bool = True,
    device: object = None,
    saves_result: bool = True,
    unsaved: frozenset[int] = frozenset(),
) -> Specification:
    """Describes the Plan of a traced graph, with its backward where a gradient is needed.

    Args:
        graph, trace: the program and the trace of its call.
        returns: how the results are given to the caller.
        call: the call, whose operands may be on other devices.
        place: the device it runs on, which decides who builds its kernels.
        differentiable: False for operators whose results never need a gradient.
        device: where new results go, if not to the first tensor's device.
        saves_result: whether backward may read the results.
        unsaved: tensor slots that backward does not read.
    """
    needs = tuple(
        needed and CATEGORY[n.dtype] >= 2
        for needed, n in zip(trace.requires_grad, trace.inputs, strict=True)
    )
    backward: BackwardSpec | None = None
    derived = None
    detached = _detached(graph, needs) if graph.visible > 1 and any(needs) else []
    if differentiable and any(needs) and any(_floating(o) for o in graph.outputs):
        derived = derivation.derive(graph, needs, saves_result=saves_result, unsaved=unsaved)
        if derived is not None:
            varying = graph.notes.get("varying", False)
            graph, backward = derived.forward, _backward_spec(derived, graph)
            graph.notes["varying"] = derived.backward.notes["varying"] = varying
    graph.notes["device"] = "cpu" if place is None else place.type
    return specification(
        graph,
        returns,
        trace.environment.guards,
        backward,
        None if derived is None else derived.backward,
        offsets=_offsets_read(graph, trace),
        detached=detached,
        device=device,
        place=str(place or "cpu") if is_elsewhere(call, place) else "",
        recorded=True,
    )


def specification(
    graph: Graph,
    returns: str,
    guards: Sequence[Condition],
    gradient: BackwardSpec | None = None,
    backward: Graph | None = None,
    *,
    offsets: Sequence[Size] = (),
    detached: Sequence[int] = (),
    device: object = None,
    place: str = "",
    recorded: bool = False,
    frozen: Frozen | None = None,
) -> Specification:
    """Describes the Plan of a program.

    Args:
        graph: the program, with the results that only its backward reads.
        returns: how the results are given to the caller.
        guards: what must hold of its symbols.
        gradient: how its backward is called.
        backward: the program of its gradients.
        offsets: storage offsets that it computes with.
        detached: the results without a gradient.
        device: where new results go, if not to the first tensor's device.
        place: where it runs, if not on the host alone.
        recorded: whether calls of it may be recorded, which judges their data beforehand.
        frozen: how the last of its tensors are computed from others, of a frozen program.
    """
    program = Program(graph.symbols)
    outputs = [output_spec(program, o) for o in graph.outputs]
    if device is not None:
        outputs = [o._replace(device=str(device)) if o.kind == "new" else o for o in outputs]
    registers = [program.register(condition) for condition in guards]
    registers += [program.register(offset + 1) for offset in offsets]
    computed = 0 if frozen is None else len(frozen.constants.outputs)
    checks, faults, bounds = faults_of(graph, program) if recorded else ([], False, [])
    spec = PlanSpec(
        name=graph.name,
        symbols=len(graph.symbols),
        tensors=len(graph.inputs) - computed,
        computed=computed,
        constants=None if frozen is None else frozen.spec,
        numbers=len(graph.scalars),
        generators=graph.generators,
        outputs=outputs,
        visible=graph.visible,
        program=program.packed(),
        guards=registers,
        detached=detached,
        mutated=[o.target for o in graph.outputs if o.target is not None] if recorded else [],
        returns=returns,
        backward=gradient,
        checks=checks,
        faults=faults,
        bounds=bounds,
        place=place,
    )
    constants = None if frozen is None else frozen.constants
    return Specification(graph, backward, spec, len(program), constants)


def _detached(graph: Graph, needs: tuple[bool, ...]) -> list[int]:
    """The results without a gradient: views of operands that need none, and what no floating-point
    value connects with an operand (a permutation as a matrix), or only behind `stop_gradient`."""
    visible = graph.outputs[: graph.visible]
    reached = {x for x in graph.inputs if x is not None and CATEGORY[x.dtype] >= 2}
    for value in topological(output.node for output in visible):
        if CATEGORY[value.dtype] < 2 or stops_gradient(value):
            continue
        if any(x in reached for x in value.inputs):
            reached.add(value)
    return [
        k
        for k, output in enumerate(visible)
        if (output.node not in reached if output.alias is None else not needs[output.alias])
    ]


def _offsets_read(graph: Graph, trace: Trace) -> list[Size]:
    """Storage offsets that kernels compute with (`as_strided` as a value, or its tangent).

    The core leaves offsets out of what it knows of a call unless guards or geometry need them.
    """
    names = {x.name: x for x in trace.offsets.values() if isinstance(x, SizeExpr)}
    computed = topological(o.node for o in graph.outputs if o.alias is None)
    read = {name for x in computed if not x.is_input for name in symbols_of(x) & names.keys()}
    return [names[name] for name in sorted(read)]


def _floating(output: GraphOutput) -> bool:
    return CATEGORY[output.node.dtype] >= 2


def output_spec(program: Program, output: GraphOutput) -> Output:
    """How the native core makes one result."""
    value = output.node
    if value is ABSENT:
        return Output("none")
    if output.target is not None:
        return Output("input", output.target)
    if output.alias is not None and output.strides is None:
        return Output("input", output.alias)
    assert output.strides is not None
    sizes = [program.register(s) for s in value.shape]
    strides = [program.register(s) for s in output.strides]
    if output.alias is not None:
        offset = program.register(output.offset)
        return Output("alias", output.alias, value.dtype, sizes, strides, offset)
    nbytes = program.register(mul(layout.numel(value.shape), ITEM_SIZE[value.dtype]))
    return Output("new", -1, value.dtype, sizes, strides, nbytes=nbytes)


def _backward_spec(derived: Any, graph: Graph) -> BackwardSpec:
    public = "".join(part.capitalize() for part in graph.name.split("_")) + "Backward"
    return BackwardSpec(
        name=public + "0",
        op=public,
        signature=signature_of(derived.backward),
        targets=list(derived.targets),
        edges=len(graph.inputs),
        arguments=derived.sources,
    )


def signature_of(graph: Graph) -> tuple[int, tuple[str, ...], int]:
    """Returns the signature of a graph that serves as an op: tensors, integers, numbers."""
    return len(graph.inputs), graph.symbols, len(graph.scalars)


def _replayed_output(trace: Trace, value: Node | None) -> GraphOutput:
    if value is None:
        return GraphOutput(ABSENT)
    value = join_parts(value)
    view = layout.view_geometry(value, trace.offsets)
    if view is not None:
        slot, (_, strides, offset) = view
        if value.is_input:
            return GraphOutput(value, None, alias=slot)
        return GraphOutput(value, strides, alias=slot, offset=offset)
    return GraphOutput(value, layout.gradient_strides(value))
