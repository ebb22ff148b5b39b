"""Operators derived from operators: over a batch of samples, and with tangents beside values.

Both are ordinary native ops. The program of a call is that of the op they come from, traced for one
sample (for the values), replayed under a rule (`batching`, `forward`); from there on it is derived,
scheduled, cached and recorded as any other. So they can be transformed again, to any depth.

    batched op    arguments of the op, then the slots of the batched tensors, whose first dimension
                  is the batch, then randomness, then the number of samples if none is batched
                  results: two for each of the op's: over the batch, or (None, value) if the value
                  is the same for every sample
    gradient op   arguments of the op, then the slots whose gradients are wanted, then those of the
                  op's results (or None)
                  results: the wanted gradients; nothing but the arguments is looked at, so values
                  that a backward would have saved are computed again
    forward op    arguments of the op, then the tangents of its tensors, slot by slot (or None)
                  results: those of the op, then their tangents (or None)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flambeau import _core, prims
from flambeau._core import IntegerArgument, TensorArgument
from flambeau.derivation.batching import batch, expand
from flambeau.derivation.derive import differentiate
from flambeau.derivation.forward import push_forward
from flambeau.derivation.replay import replay
from flambeau.driver.calls import Call, entries
from flambeau.driver.errors import first_device
from flambeau.driver.planner import Source
from flambeau.driver.specify import ABSENT, Specification, _graph, _replayed_output, _specify
from flambeau.driver.trace import Trace, traced
from flambeau.ir.environment import hint, less
from flambeau.ir.node import ITEM_SIZE, Graph, GraphOutput, Node, attributes, node, topological
from flambeau.ir.size import Size, floordiv, mul, substitute
from flambeau.ir.size_program import substitute_condition
from flambeau.language import layout
from flambeau.language.schema import ArgumentSpec

_BATCHED = (
    ArgumentSpec("batched", "int[]", ((),)),
    ArgumentSpec("randomness", "str", ("error",)),
    ArgumentSpec("extent", "SymInt", (0,)),
)
_TANGENTS = (ArgumentSpec("tangents", "Tensor?[]", ((),)),)
_GRADIENTS = (
    ArgumentSpec("wanted", "int[]", ((),)),
    ArgumentSpec("gradients", "Tensor?[]", ((),)),
)


class Program:
    """One overload of an op, as transformations see it.

    Attributes:
        op: the native op.
        number: of the overload.
        arguments: as the native core got them.
        build: what gives its Plans; or, if `host`, its implementation.
        host: it runs in Python on real tensors.
        mutates: it writes its first argument (or others).
    """

    def __init__(self, op: Any, number: int) -> None:
        self.op = op
        self.number = number
        arguments, build, *flags = op.overloads[number]
        self.arguments: tuple[ArgumentSpec, ...] = arguments
        self.build = build
        self.flags: tuple[str, ...] = flags[0] if flags else ()
        self.host = "python" in self.flags
        self.mutates = any(a.mutated for a in arguments)
        self.tensors = [i for i, a in enumerate(arguments) if a.kind.startswith("Tensor")]
        self.random = any(a.kind.startswith("generator") for a in arguments)
        self._batched: Any = None
        self._forward: Any = None
        self._gradient: Any = None

    @property
    def source(self) -> Source:
        """Returns the source that traces the program's calls.

        Raises:
            NotImplementedError: the op is none of this package's.
        """
        source = getattr(self.build, "__self__", None)
        if not isinstance(source, Source):
            raise NotImplementedError(
                f"[{self.op.__name__}] has no program that could be transformed\n"
                "hint: define it with flambeau.language.definition.op"
            )
        return source

    @property
    def batched(self) -> Any:
        """The op over batches."""
        if self._batched is None:
            self._batched = self._derived("vmap", _BATCHED, specify_batched, keep=True)
        return self._batched

    @property
    def forward(self) -> Any:
        """The op with tangents."""
        if self._forward is None:
            self._forward = self._derived("jvp", _TANGENTS, specify_forward, keep=False)
        return self._forward

    @property
    def gradient(self) -> Any:
        """The op's gradients as an op."""
        if self._gradient is None:
            self._gradient = self._derived("vjp", _GRADIENTS, specify_gradient, keep=False)
            self._gradient.__name__ += "_backward"
        return self._gradient

    def _derived(
        self,
        name: str,
        extra: tuple[ArgumentSpec, ...],
        specify: Callable[[Source, int, Call], Specification],
        keep: bool,
    ) -> Any:
        source, count = self.source, len(self.arguments)
        # All by position; only a batched op writes what the op writes. Numbers fit as in the op.
        own = [a._replace(keyword_only=False, mutated=a.mutated and keep) for a in self.arguments]

        def identity() -> str | None:
            return None if source.identity is None else f"{name} {source.identity}"

        derived = Source(lambda call: specify(source, count, call), identity)
        # Conjugate bits are handed on, and windows stay inside their storage.
        flags = tuple(flag for flag in self.flags if flag in ("view", "storage"))
        return _core.Op(self.op.__name__, [((*own, *extra), derived.build, flags)])

    def results(self, values: Sequence[Any]) -> Any:
        """Results as the op gives them, from one value each."""
        source = self.source
        if source.overload is None:
            return tuple(values)
        kind = source.overload.returns(len(values))
        if kind == "single":
            return values[0]
        if kind == "nothing":
            return None
        if kind == "named":
            assert source.structure is not None
            return source.structure()(tuple(values))
        return list(values) if kind == "list" else tuple(values)


def program_of(op: Any, number: int) -> Program:
    """The transformable view of an overload, remembered by its op."""
    programs: dict[int, Program] = op.__dict__.setdefault("_programs", {})
    program = programs.get(number)
    if program is None:
        program = programs[number] = Program(op, number)
    return program


# ------------------------------------------------------------------------------------ traces


def _traced(source: Source, call: Call, single: Call, run: Callable[..., Any]) -> Specification:
    """Traces a transformed call.

    Args:
        source: of the op that is transformed.
        call: the transformed one.
        single: the call whose program is taken.
        run: (trace, program) -> outputs.
    """
    specification = source.specify(single)
    graph = specification.graph
    visible = Graph(
        graph.symbols, graph.inputs, graph.scalars, graph.outputs[: graph.visible], graph.visible,
        graph.guards, graph.generators, graph.name,
    )  # fmt: skip

    def go(trace: Trace) -> Graph:
        return _graph(graph.name, trace, run(trace, visible))

    trace, result = traced(call, False, go)
    overload = source.overload
    differentiable = overload is None or overload.options.differentiable
    placed = [o.device for o in specification.spec.outputs if o.device is not None]
    device = _core.device(placed[0]) if placed else None
    with trace:
        place = device or first_device(call)
        return _specify(result, trace, "tuple", call, place, differentiable, device)


def _sizes(trace: Trace, graph: Graph, call: Call, inputs: Sequence[Node]) -> dict[str, Size]:
    """Binds a program's symbols to sizes; its guards become guards of the trace.

    Args:
        trace: of the transformed call.
        graph: the program of the call it comes from.
        call: the part of the transformed call that the op itself would get.
        inputs: the operands of the program.
    """
    values: list[Size] = []
    for x in inputs:
        values += [*x.shape, *x.attribute("strides"), trace.offsets[x.attribute("slot")]]
    for entry, value in zip(call, trace.arguments, strict=False):
        if any(True for _ in entries([entry], IntegerArgument)):
            values += value if isinstance(value, (list, tuple)) else [value]
    sizes = dict(zip(graph.symbols, values, strict=True))
    for guard in graph.guards:
        trace.environment.truth(substitute_condition(guard, sizes))
    return sizes


def _replayed(trace: Trace, graph: Graph, inputs: Sequence[Node], sizes: dict[str, Size]) -> Any:
    """The program's results on these operands; absent ones are None."""
    results = replay(graph, inputs, trace.scalars, sizes)
    return [None if x is ABSENT else x for x in results]


def _check_windows(results: Sequence[Node | None]) -> None:
    """Raises where a window leaves its sample, which is no part of a storage."""
    for value in topological([x for x in results if x is not None]):
        if value.op == "as_strided":
            _check_window(value)


def _check_window(value: Node) -> None:
    shape, strides = value.shape, value.attribute("strides")
    first, count = value.attribute("offset"), layout.numel(value.inputs[0].shape)
    if any(less(size, 1) for size in shape):
        return
    last = first + sum((size - 1) * step for size, step in zip(shape, strides, strict=True))
    if any(less(n, 0) for n in (first, *strides)) or less(count, last + 1):
        raise RuntimeError(
            f"[as_strided] setStorage: sizes {[hint(n) for n in shape]}, strides "
            f"{[hint(n) for n in strides]} are out of bounds for a tensor of {hint(count)} "
            "elements\nhint: lower the strides or the offset"
        )


def specify_batched(source: Source, count: int, call: Call) -> Specification:
    """Traces a call of a batched op.

    Args:
        source: of the op over one sample.
        count: number of that op's arguments.
        call: see the module.
    """
    slots, randomness = set(call[count]), call[count + 1]
    single = _single_call(call[:count], slots)

    def run(trace: Trace, graph: Graph) -> list[GraphOutput]:
        extent = _extent(trace, slots, trace.arguments[count + 2])
        samples: dict[Node, Node] = {}
        inputs = []
        for slot, x in enumerate(trace.inputs):
            if slot not in slots:
                inputs.append(x)
                continue
            packed = attributes(slot=slot, strides=x.attribute("strides")[1:])
            sample = node("input", (), packed, x.dtype, x.shape[1:])
            inputs.append(sample)
            samples[sample] = x
        sizes = _sizes(trace, graph, call[:count], inputs)
        singles = _replayed(trace, graph, inputs, sizes)
        _check_windows(singles)
        values = batch(singles, samples, extent, randomness)
        outputs: list[GraphOutput] = []
        keeps = source.overload is None
        for value, output in zip(values, graph.outputs, strict=True):
            outputs += _batched_output(trace, value, output, sizes, slots, extent, keeps)
        return outputs

    return _traced(source, call, single, run)


def _single_call(call: Call, slots: set[int]) -> Call:
    """The call of the op on one sample."""
    numbers = iter(range(1 << 30))

    def one(entry: Any) -> Any:
        if isinstance(entry, list):
            return [one(item) for item in entry]
        if type(entry) is not TensorArgument:
            return entry
        sizes, strides, order = entry.sizes, entry.strides, entry.layout
        if next(numbers) in slots:
            sizes, strides = sizes[1:], strides[1:]
            if not sizes:
                order = "contiguous"
            elif order != "contiguous":
                order = "strided"
        return entry._replace(sizes=sizes, strides=strides, requires_grad=False, layout=order)

    return tuple([one(entry) for entry in call])


def _extent(trace: Trace, slots: set[int], default: Size) -> Size:
    sizes = [trace.inputs[slot].shape[0] for slot in sorted(slots)]
    for other in sizes[1:]:
        layout.same(sizes[0], other)
    return sizes[0] if sizes else default


def _batched_output(
    trace: Trace,
    value: tuple[Node, bool] | None,
    output: GraphOutput,
    sizes: dict[str, Size],
    slots: set[int],
    extent: Size,
    keeps: bool,
) -> tuple[GraphOutput, GraphOutput]:
    """A result over the batch, or the same for every sample; the other one is absent."""
    absent = GraphOutput(ABSENT)
    if value is None:
        return absent, absent
    node, flag = value
    if output.target is not None:
        return _written(trace, node, flag, output.target, slots, extent), absent
    if output.alias is not None and (output.alias in slots or not flag):
        return _viewed(trace, node, output, sizes, slots, absent)
    strides = tuple(substitute(s, sizes) for s in output.strides or ())
    if not flag and keeps:
        return absent, GraphOutput(node, strides)
    if not flag:
        node = expand(node, extent)
    outer = layout.contiguous_strides(node.shape)[:1]
    return GraphOutput(node, (*outer, *strides)), absent


def _viewed(
    trace: Trace,
    node: Node,
    output: GraphOutput,
    sizes: dict[str, Size],
    slots: set[int],
    absent: GraphOutput,
) -> tuple[GraphOutput, GraphOutput]:
    """A result that is an operand, or a view of one."""
    slot = output.alias
    assert slot is not None
    if output.strides is None:
        view = GraphOutput(node, None, alias=slot)
    else:
        steps = tuple(substitute(s, sizes) for s in output.strides)
        if slot in slots:
            outer = trace.inputs[slot].attribute("strides")[0]
            steps = (_restrided(outer, trace.inputs[slot].dtype, node.dtype), *steps)
        view = GraphOutput(node, steps, alias=slot, offset=substitute(output.offset, sizes))
    return (view, absent) if slot in slots else (absent, view)


def _restrided(stride: Size, before: str, after: str) -> Size:
    """A stride in elements of another dtype: of views as real, complex, or other numbers."""
    if ITEM_SIZE[before] == ITEM_SIZE[after]:
        return stride
    return floordiv(mul(stride, ITEM_SIZE[before]), ITEM_SIZE[after])


def _written(
    trace: Trace, node: Node, flag: bool, slot: int, slots: set[int], extent: Size
) -> GraphOutput:
    """A result that overwrites an operand."""
    if slot in slots:
        node = node if flag else expand(node, extent)
    elif flag:
        raise RuntimeError(
            "vmap: inplace arithmetic(self, *extra_args) is not possible because there exists a "
            "Tensor `other` in extra_args that has more elements than `self`. This happened due to "
            "`other` being vmapped over but `self` not being vmapped over in a vmap.\n"
            "hint: use the out-of-place operator, or make `self` with new_zeros of a batched tensor"
        )
    return GraphOutput(node, trace.inputs[slot].attribute("strides"), target=slot)


def specify_forward(source: Source, count: int, call: Call) -> Specification:
    """Traces a call of a forward op.

    Args:
        source: of the op.
        count: number of its arguments.
        call: see the module.
    """
    single = _single_call(call[:count], set())
    tensors = sum(1 for _ in entries(call[:count], TensorArgument))

    def run(trace: Trace, graph: Graph) -> list[GraphOutput]:
        inputs, remaining = trace.inputs[:tensors], iter(trace.inputs[tensors:])
        moving = [None if entry is None else next(remaining) for entry in call[count]]
        sizes = _sizes(trace, graph, call[:count], inputs)
        values = _replayed(trace, graph, inputs, sizes)
        pairs = zip(inputs, moving, strict=False)
        tangents = push_forward(values, {x: t for x, t in pairs if t is not None})
        outputs = [
            _kept(trace, value, output, sizes)
            for value, output in zip(values, graph.outputs, strict=True)
        ]
        return outputs + [
            _moved(trace, t, output) for t, output in zip(tangents, outputs, strict=True)
        ]

    return _traced(source, call, single, run)


def _moved(trace: Trace, tangent: Node | None, value: GraphOutput) -> GraphOutput:
    """A tangent: a view where its value is one, so that writes reach the tangent of the base."""
    if tangent is not None and value.alias is None:
        assert value.strides is not None
        return GraphOutput(tangent, value.strides)
    return _replayed_output(trace, tangent)


def _kept(
    trace: Trace, value: Node | None, output: GraphOutput, sizes: dict[str, Size]
) -> GraphOutput:
    """A result as the op gives it; what it writes becomes a result of its own."""
    if value is None:
        return GraphOutput(ABSENT)
    if output.target is not None:
        return GraphOutput(value, layout.contiguous_strides(value.shape))
    if output.strides is None:
        return GraphOutput(value, None, alias=output.alias)
    strides = tuple(substitute(s, sizes) for s in output.strides)
    return GraphOutput(value, strides, alias=output.alias, offset=substitute(output.offset, sizes))


def specify_gradient(source: Source, count: int, call: Call) -> Specification:
    """Traces a call of a gradient op.

    Args:
        source: of the op.
        count: number of its arguments.
        call: see the module.
    """
    single = _single_call(call[:count], set())
    tensors = sum(1 for _ in entries(call[:count], TensorArgument))

    def run(trace: Trace, graph: Graph) -> list[GraphOutput]:
        inputs, remaining = trace.inputs[:tensors], iter(trace.inputs[tensors:])
        cotangents = [None if entry is None else next(remaining) for entry in call[count + 1]]
        values = _replayed(trace, graph, inputs, _sizes(trace, graph, call[:count], inputs))
        pairs = [
            p for p in zip(values, cotangents, strict=True) if p[0] is not None and p[1] is not None
        ]
        targets = [inputs[slot] for slot in call[count]]
        gradients = differentiate([v for v, _ in pairs], [g for _, g in pairs], targets)
        return [
            GraphOutput(ABSENT)
            if grad is None
            else GraphOutput(prims.cast(grad, x.dtype), layout.contiguous_strides(grad.shape))
            for x, grad in zip(targets, gradients, strict=True)
        ]

    return _traced(source, call, single, run)
