"""Derivation: from a Graph to its forward (with saved values) and its backward Graph.

`derive(graph, needs)` accumulates in reverse over the primitives' own derivative rules and
partitions the joint program. Call it under the environment the graph was traced in: rules may ask
it about sizes, which may add guards.

The calling convention of the backward Graph, which `Derived.sources` lists in the same order:

1. tensor slots: the saved values (`("input", slot)` of the forward call, or `("output", k)`, where
   k counts the outputs of `Derived.forward`), then the gradients `("grad", k)` of visible outputs
   and of saved values that depend on the wanted inputs: a backward that is differentiated again
   has gradients for those too, an ordinary one has not. A gradient may be absent (None). Of
   compiled functions there are also `("held", k)`, maybe absent: see `capture.joint`;
2. run-time integers, `("register", r)`: those of the forward Graph's symbols (r is the position in
   `graph.symbols`) that the backward Graph uses and that are not the plain size of a dimension of
   one of its tensors. Their names are `backward.symbols`;
3. run-time scalars, `("scalar", slot)` of the forward call, in `backward.scalars`.

The backward Graph is not run as it is: `replay` builds it again on the operands of a call,
and the result is an ordinary program that can be derived again. Its shapes are written in the
forward's symbols; `replay` finds their new values in the operands' shapes and in `symbol_values`.
Absent gradients vanish together with everything that only depends on them.

Its outputs are the gradients of the tensor slots `Derived.targets`, each in its input's dtype.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from flambeau import prims
from flambeau.derivation.partition import choose_saved, split
from flambeau.derivation.replay import replay
from flambeau.ir.graph_grammar import symbols_of
from flambeau.ir.node import Graph, GraphOutput, Node, node, topological
from flambeau.ir.plan import Source
from flambeau.ir.size import SizeExpr, free_symbols
from flambeau.prims.common import DIFFERENTIABLE, is_constant, show
from flambeau.prims.record import NOT_DIFFERENTIABLE, PRIMITIVES, record_of

Seed = tuple[int, Node, Node]  # number of the output, its node, its gradient
_PLACEHOLDER = 1 << 30  # slots of gradients until the backward Graph numbers its own

__all__ = ["Derived", "derive", "differentiate", "replay"]


@dataclass(frozen=True)
class Derived:
    """A differentiated graph; see the module for the calling convention."""

    forward: Graph
    backward: Graph
    sources: tuple[Source, ...]
    targets: tuple[int, ...]


def derive(
    graph: Graph,
    needs: Sequence[bool],
    grads_present: Sequence[bool] | None = None,
    saves_result: bool = True,
    unsaved: frozenset[int] = frozenset(),
) -> Derived | None:
    """Return forward and backward of a graph; None where no gradient flows.

    Args:
        graph: a program over primitives.
        needs: per tensor slot, whether its gradient is wanted.
        grads_present: per visible output, whether its gradient will be given; default: all.
        saves_result: whether the backward Graph may read visible outputs. Where not, they may be
            written in place before the backward.
        unsaved: tensor slots that the backward Graph does not read, for the same reason.
    """
    leaves = [x for x, need in zip(graph.inputs, needs) if need and x is not None]
    visible = [output.node for output in graph.outputs[: graph.visible]]
    active = find_active(visible, leaves)
    seeds: list[Seed] = []
    for k, value in enumerate(visible):
        if value in active and (grads_present is None or grads_present[k]):
            seed = prims.input_node(_PLACEHOLDER + k, value.dtype, value.shape, ())
            seeds.append((k, value, seed))
    gradients = accumulate([(value, seed) for _, value, seed in seeds], active)
    targets = [x for x in leaves if x in gradients]
    if not targets:
        return None
    grads = [prims.cast(gradients[x], x.dtype) for x in targets]
    return _assemble(graph, targets, grads, seeds, saves_result, unsaved)


def _with_saved(
    graph: Graph,
    targets: Sequence[Node],
    saved: Sequence[Node],
    seeds: list[Seed],
) -> tuple[Sequence[Node], list[Seed]] | None:
    """The gradients when saved values have gradients of their own, and their seeds.

    That is the case when the backward is differentiated again: what it read besides inputs and
    visible results is a function of the inputs, too. None where no saved value depends on them.
    """
    active = find_active([*(x for _, x, _ in seeds), *saved], targets)
    saved_seeds = [
        (k, x, prims.input_node(_PLACEHOLDER + k, x.dtype, x.shape, ()))
        for k, x in enumerate(saved, graph.visible)
        if x in active
    ]
    if not saved_seeds:
        return None
    everything = [*seeds, *saved_seeds]
    gradients = accumulate([(value, seed) for _, value, seed in everything], active)
    return [prims.cast(gradients[x], x.dtype) for x in targets], everything


def differentiate(
    outputs: Sequence[Node], grads: Sequence[Node], targets: Sequence[Node]
) -> list[Node | None]:
    """Return the gradients of `wanted` nodes, given those of the outputs; no partition."""
    active = find_active(outputs, targets)
    gradients = accumulate([p for p in zip(outputs, grads) if p[0] in active], active)
    return [gradients.get(x) for x in targets]


def differentiable_operands(current: Node) -> tuple[Node, ...]:
    """The operands that a node's derivative rule may give a gradient."""
    record = record_of(current)
    if record.derivative == NOT_DIFFERENTIABLE:
        return ()
    return current.inputs[1:] if record.kind == "annotation" else current.inputs


def find_active(outputs: Iterable[Node], targets: Iterable[Node]) -> set[Node]:
    """Return the nodes through which gradients flow from outputs to the wanted nodes."""
    active = {x for x in targets if x.dtype in DIFFERENTIABLE}
    for current in topological(outputs):
        if current.dtype in DIFFERENTIABLE and any(
            x in active for x in differentiable_operands(current)
        ):
            active.add(current)
    return active


def accumulate(seeds: Sequence[tuple[Node, Node]], active: set[Node]) -> dict[Node, Node]:
    """Reverse accumulation; gradients are added in the reverse order of their users."""
    gradients: dict[Node, Node] = {}
    for value, seed in seeds:
        _add(gradients, value, seed)
    for current in reversed(topological(value for value, _ in seeds)):
        grad = gradients.get(current)
        if grad is None or current not in active or not current.inputs:
            continue
        operands = current.inputs
        if is_constant(grad, 0):
            grads: Sequence[Node | None] = [prims.zeros_like(x) for x in operands]
        else:
            derivative = PRIMITIVES[current.op].derivative
            assert not isinstance(derivative, str)
            grads = derivative(grad, current, *operands)
        allowed = differentiable_operands(current)
        for operand, part in zip(operands, grads, strict=True):
            if part is not None and operand in active and operand in allowed:
                _check(current, operand, part)
                _add(gradients, operand, part)
    return gradients


def _add(gradients: dict[Node, Node], value: Node, part: Node) -> None:
    before = gradients.get(value)
    if before is None or is_constant(before, 0):
        gradients[value] = part
    elif not is_constant(part, 0):
        gradients[value] = prims.add(before, part)


def _check(current: Node, operand: Node, part: Node) -> None:
    if part.dtype != operand.dtype or part.ndim != operand.ndim:
        raise TypeError(
            f"[{current.op}] its derivative gave {part.dtype}{show(part.shape)} for an operand "
            f"{operand.dtype}{show(operand.shape)}\nhint: correct the derivative rule"
        )


def _assemble(
    graph: Graph,
    targets: Sequence[Node],
    grads: Sequence[Node],
    seeds: list[Seed],
    saves_result: bool,
    unsaved: frozenset[int],
) -> Derived:
    """Partition the joint program into the two Graphs."""
    overwritten = {o.target for o in graph.outputs if o.target is not None} | unsaved
    free: dict[Node, Source] = {}
    for slot, x in enumerate(graph.inputs):
        if x is not None and slot not in overwritten:
            free[x] = Source("input", slot)
    for k, output in enumerate(graph.outputs[: graph.visible if saves_result else 0]):
        free.setdefault(output.node, Source("output", k))
    saved = choose_saved(split(grads, {seed for _, _, seed in seeds}), free)
    saved, (grads, seeds) = _close_saved(graph, targets, saved, free, (grads, seeds), unsaved)
    saved_outputs = (GraphOutput(x, prims.contiguous_strides(x.shape)) for x in saved)
    forward = graph.with_outputs((*graph.outputs[: graph.visible], *saved_outputs))
    sources_of = free | {x: Source("output", graph.visible + k) for k, x in enumerate(saved)}
    values = _read_first(grads, sources_of)
    tensors = [(x, sources_of[x]) for x in values] + [
        (seed, Source("grad", k)) for k, _, seed in seeds
    ]
    backward, symbols, scalars = _backward_graph(graph, grads, tensors)
    sources = [source for _, source in tensors]
    sources += [Source("register", graph.symbols.index(name)) for name in symbols]
    sources += [Source("scalar", slot) for slot in scalars]
    slots = tuple(graph.inputs.index(x) for x in targets)
    return Derived(forward, backward, tuple(sources), slots)


def _close_saved(
    graph: Graph,
    targets: Sequence[Node],
    saved: list[Node],
    free: dict[Node, Source],
    first: tuple[Sequence[Node], list[Seed]],
    unsaved: frozenset[int],
) -> tuple[list[Node], tuple[Sequence[Node], list[Seed]]]:
    """The values to save such that their own gradients read nothing else, and the gradients.

    Values that are added have gradients as well, so the search repeats. The first round may add
    values computed from unsaved operands; later rounds add only the operands, so the search ends.
    """
    search = bool(unsaved)
    while (twice := _with_saved(graph, targets, saved, first[1])) is not None:
        cotangents = {seed for _, _, seed in twice[1]}
        available = {*free, *saved}
        if search:
            additional = choose_saved(split(twice[0], cotangents), available)
        else:
            additional = _irrecoverable(twice[0], available | cotangents)
        if not (additional or search):
            return saved, twice
        search = False
        saved = [*saved, *additional]
    return saved, first


def _irrecoverable(grads: Sequence[Node], available: set[Node]) -> list[Node]:
    """Returns the values that the gradients read and cannot recompute: draws and overwritten
    inputs.
    """
    reached = _until(grads, dict.fromkeys(available, Source("input", 0)))
    return [x for x in reached if _is_irrecoverable(x) and x not in available]


def _is_irrecoverable(value: Node) -> bool:
    return value.is_input or record_of(value).kind == "random"


def _read_first(grads: Sequence[Node], available: dict[Node, Source]) -> list[Node]:
    """The known values that the gradients read, not looking behind them."""
    used = [x for x in _until(grads, available) if x in available]
    rank = {"input": 0, "output": 1}
    return sorted(used, key=lambda x: (rank[available[x][0]], available[x][1]))


def _until(roots: Sequence[Node], stop: dict[Node, Source]) -> list[Node]:
    """All nodes that roots depend on, operands first, not looking behind `stop`."""
    done: dict[Node, None] = {}
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        current, expanded = stack.pop()
        if current in done:
            continue
        if expanded or current in stop:
            done[current] = None
            continue
        stack.append((current, True))
        stack.extend((x, False) for x in reversed(current.inputs) if x not in done)
    return list(done)


def _backward_graph(
    graph: Graph, grads: Sequence[Node], tensors: list[tuple[Node, Source]]
) -> tuple[Graph, list[str], list[int]]:
    """Rebuild the gradients on the backward Graph's own inputs and scalars."""
    values: dict[Node, Node] = {}
    inputs = []
    for slot, (x, _) in enumerate(tensors):
        strides = prims.contiguous_strides(x.shape)
        values[x] = prims.input_node(slot, x.dtype, x.shape, strides)
        inputs.append(values[x])
    order = _until(grads, dict.fromkeys(values, Source("input", 0)))
    scalars: list[Node] = []
    for current in order:
        if current.is_scalar:
            values[current] = prims.scalar_node(len(scalars), current.dtype)
            scalars.append(current)
        elif current not in values:
            operands = tuple(values[x] for x in current.inputs)
            if operands == current.inputs:
                values[current] = current
            else:
                values[current] = node(
                    current.op, operands, current.attributes, current.dtype, current.shape
                )
    alone = sum(source[0] == "grad" for _, source in tensors) == 1
    absent = ("held",) if alone else ("grad", "held")
    present = [x for x, (_, source) in zip(inputs, tensors) if source[0] not in absent]
    symbols = _integer_symbols(graph, [values[x] for x in order], inputs, present)
    backward = Graph(
        symbols=tuple(symbols),
        inputs=tuple(inputs),
        scalars=tuple(values[x] for x in scalars),
        outputs=tuple(GraphOutput(values[g], prims.contiguous_strides(g.shape)) for g in grads),
        visible=len(grads),
        name=f"{graph.name}_backward",
    )
    return backward, symbols, [x.attribute("slot") for x in scalars]


def _integer_symbols(
    graph: Graph, order: list[Node], inputs: list[Node], present: list[Node]
) -> list[str]:
    """Names of the symbols that replay cannot read off the sizes of the tensors sure to be there.

    One gradient of several may be absent, and what the engine holds for an edge.
    """
    bound = {
        extent.name
        for x in present
        for extent in x.shape
        if isinstance(extent, SizeExpr) and extent.kind == "symbol"
    }
    used: set[str] = set()
    for current in order:
        if not current.is_input:
            used |= symbols_of(current)
    for x in inputs:  # a size that is an expression is checked against the operand's
        for extent in x.shape:
            used |= free_symbols(extent)
    return [name for name in graph.symbols if name in used - bound]
