"""`torch.compile(backend=function)`: graphs of a recorder, compiled by the user's function.

A function's compiled graphs are stored by segment: equal operators on inputs of equal metadata run
the callable that the backend returned. Another dtype or number is another segment, for which the
backend is called again. Another size is one, too, until it is seen to vary: then the graph has a
symbol in its place (`symbolic_graphs`), and segments with equal symbols and guards share it.
Functions of equal code share graphs: layers that are compiled one by one call the backend once.
"""

from __future__ import annotations

import functools
import inspect
import re
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from flambeau import _core
from flambeau._dynamo import higher_order
from flambeau._dynamo.backends import registry
from flambeau._dynamo.exc import BackendCompilerFailed, FailOnRecompileLimitHit
from flambeau._dynamo.recorder import Recorder, Segment
from flambeau._dynamo.sizes import Marks, SizeReads, VaryingSizes, covers, marks_of, plain
from flambeau._dynamo.symbolic_graphs import Replay, replayed
from flambeau.amp import state as autocast
from flambeau.capture import breaks, flushes, recording, regions
from flambeau.capture.stance import stance
from flambeau.fx import Graph, GraphModule
from flambeau.ir.lock import fork_safe_lock, late
from flambeau.nn import Module
from flambeau.nn.parameter import Parameter
from flambeau.runtime import boundaries
from flambeau.utils._pytree import tree_flatten_with_path

__all__ = ["GRAPHS_PER_FUNCTION", "compiled_by", "recorded_block"]

_changing = fork_safe_lock(level=3)
_functions: weakref.WeakSet[_Compiled] = weakref.WeakSet()
# Graphs of one function that are stored; the one used longest ago is dropped first.
GRAPHS_PER_FUNCTION = 256


class _Entry(NamedTuple):
    """A compiled graph.

    Attributes:
        function: what the backend returned.
        slots: of `Replay`; None where all inputs are tensors.
    """

    function: Callable[..., Any]
    slots: Sequence[tuple[bool, int]] | None = None

    def __call__(self, inputs: Sequence[Any]) -> Any:
        """Runs the graph on a segment's inputs."""
        if self.slots is None:
            return self.function(*inputs)
        return self.function(*[inputs[n] if is_tensor else n for is_tensor, n in self.slots])


class _Graphs:
    """The graphs that functions of equal code share.

    A segment holds all that a graph depends on, so that the functions need not be equal.
    """

    def __init__(self) -> None:
        self.by_segment: OrderedDict[_Key, _Entry] = OrderedDict()
        self.symbolic: OrderedDict[Any, list[tuple[Replay, Any, Sequence[Marks]]]] = OrderedDict()
        self.users: weakref.WeakSet[_Compiled] = weakref.WeakSet()

    def shrink(self) -> None:
        """Drops the graphs used longest ago of those that are too many."""
        limit = GRAPHS_PER_FUNCTION * max(len(self.users), 1)
        for graphs in (self.by_segment, self.symbolic):
            while len(graphs) > limit:
                graphs.popitem(last=False)

    def clear(self) -> None:
        """Drops all."""
        self.by_segment.clear()
        self.symbolic.clear()


# By code, backend and the option of sizes. The graphs live as long as a function that uses them.
_graphs_by_code: weakref.WeakValueDictionary[Any, _Graphs] = weakref.WeakValueDictionary()


def _graphs_of(function: Any, backend: Any, dynamic: bool | None) -> _Graphs:
    """The graphs of a function, shared with functions of equal code."""
    owner = getattr(function, "__self__", None)
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if code is None:
        return _Graphs()
    with _changing:
        return _graphs_by_code.setdefault((code, type(owner), id(backend), dynamic), _Graphs())


class _Compiled:
    """A compiled function.

    Args:
        function: what was compiled.
        backend: from a `GraphModule` and example inputs to a callable.
        limit: graphs until later calls run eagerly, or None.
        fullgraph: whether reaching the limit raises.
        dynamic: of `torch.compile`.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        backend: Any,
        limit: int | None,
        fullgraph: bool,
        dynamic: bool | None,
    ) -> None:
        self._function, self._backend = function, backend
        self._limit, self._fullgraph = limit, fullgraph
        self.writes = backend is registry.registered("eager")
        self._graphs = _graphs_of(function, backend, dynamic)
        self._graphs.users.add(self)
        self._varying = VaryingSizes(dynamic)
        self._count = 0
        _functions.add(self)

    def clear(self) -> None:
        """Drops the graphs."""
        with _changing:
            self._graphs.clear()
            self._varying.clear()
            self._count = 0

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls the function; its operators run in graphs."""
        reads = SizeReads(self._varying, self._function, args, kwargs)
        block = _Recording(self, (args, kwargs), reads)
        args, kwargs = reads.arguments(args, kwargs)
        with block:
            result = self._function(*args, **kwargs)
        return plain(result)

    def run(
        self,
        segment: Segment,
        live: Sequence[Any],
        reason: str,
        arguments: Any,
        reads: SizeReads,
    ) -> Sequence[Any]:
        """Results of a segment, by its graph.

        Args:
            segment: the operators.
            live: calls whose results are referenced, with these.
            reason: why the segment ends.
            arguments: of the call.
            reads: numbers of the call.
        """
        outputs = tuple(index for index, _ in live)
        key = _key(segment, outputs)
        decisions = reads.decisions()
        with _changing:
            entry = self._graphs.by_segment.get(key)
            if entry is not None:
                self._graphs.by_segment.move_to_end(key)
        replay = None
        if entry is None:
            names = _input_names(self._function, arguments)
            for replay in replayed(segment, reads, decisions, names):
                entry = self._shared(replay, key)
                if entry is not None:
                    break
        flushes.on_flush(reason, len(segment.calls), int(entry is not None))
        if entry is None:  # the backend is called without the lock: it may be slow, or fork
            entry = self._compile(segment, names, replay, key)
            reads.note()
        with _changing:
            entry = self._graphs.by_segment.setdefault(key, entry)
            self._graphs.shrink()
        results = entry(segment.inputs)
        if not isinstance(results, (tuple, list)) or len(results) != len(outputs):
            raise RuntimeError(
                f"[compile] the backend's callable returned {_described(results)} for a graph with "
                f"{len(outputs)} outputs\nhint: return one tensor per output, in a tuple"
            )
        return results

    def _shared(self, replay: Replay, key: _Key) -> _Entry | None:
        """The compiled graph of a segment with equal symbols, whose inputs may have more marks."""
        with _changing:
            candidates = list(self._graphs.symbolic.get((replay.key(), key.outputs, key.facts), ()))
        for other, function, marks in candidates:
            if all(map(covers, marks, key.marks)) and other.holds_for(replay):
                return _Entry(function, tuple(replay.slots))
        return None

    def _compile(
        self,
        segment: Segment,
        names: dict[int | str, str],
        replay: Replay | None,
        key: _Key,
    ) -> _Entry:
        if stance.refuses:
            raise late("flambeau.reports.recompiles").refusal(self._function)
        if replay is None:
            module = _graph_module(segment, key.outputs, names)
            return _Entry(self._function_of(module, list(segment.inputs)))
        symbolic = replay.key(), key.outputs, key.facts
        module = replay.module(key.outputs)
        function = self._function_of(module, replay.example_inputs())
        with _changing:
            self._graphs.symbolic.setdefault(symbolic, []).append((replay, function, key.marks))
        replay.finish()
        return _Entry(function, tuple(replay.slots))

    def _function_of(self, module: GraphModule, inputs: list[Any]) -> Any:
        """Returns a graph that the backend compiled."""
        if self._limit is not None and self._count >= self._limit:
            return self._over_limit(module)
        name = getattr(self._backend, "__name__", type(self._backend).__name__)
        try:
            compiled = self._backend(module, inputs)
        except Exception as error:
            raise BackendCompilerFailed(
                f"backend={name!r} raised:\n{type(error).__name__}: {error}"
            ) from error
        if not callable(compiled):
            raise BackendCompilerFailed(
                f"backend={name!r} raised:\nAssertionError: compiler_fn did not return callable"
            )
        self._count += 1
        return compiled

    def _over_limit(self, module: GraphModule) -> Any:
        text = (
            f"[compile] {self._limit} graphs were compiled for {self._function!r}\n"
            "hint: pass a larger recompile_limit"
        )
        if self._fullgraph:
            raise FailOnRecompileLimitHit(text)
        warnings.warn(text, stacklevel=2)
        return module.forward


class _Recording:
    """A `with` block whose operators run in graphs of a compiled function.

    Args:
        compiled: the function.
        arguments: of its call.
        reads: numbers of its call.
    """

    def __init__(self, compiled: _Compiled, arguments: Any, reads: SizeReads) -> None:
        def run(segment: Segment, live: Sequence[Any], reason: str) -> Sequence[Any]:
            return compiled.run(segment, live, reason, arguments, reads)

        self._recorder, self._reads = Recorder(run, reads, compiled.writes), reads

    def __enter__(self) -> None:
        self._recorder.__enter__()

    def __exit__(self, *exception: object) -> None:
        try:
            self._recorder.interrupt(breaks.END if exception[0] is None else breaks.ERROR)
            self._reads.close()
        finally:
            self._recorder.__exit__(*exception)


def recorded_block() -> _Recording:
    """A `with` block whose operators are recorded and run one by one: graph breaks are noticed."""
    compiled = _Compiled(recorded_block, registry.registered("eager"), None, False, False)
    return _Recording(compiled, ((), {}), SizeReads(VaryingSizes(False), recorded_block, (), {}))


def _described(results: Any) -> str:
    kind = type(results).__name__
    return f"{len(results)} values" if isinstance(results, (tuple, list)) else f"a {kind}"


class _Key(NamedTuple):
    """Equal for segments that one compiled graph serves.

    Attributes:
        calls: operators with their arguments.
        outputs: calls whose results are outputs.
        shapes: sizes and strides of the inputs.
        facts: of the inputs, beside sizes; modes.
        marks: of the inputs' sizes.
    """

    calls: Sequence[Any]
    outputs: tuple[int, ...]
    shapes: Sequence[Any]
    facts: Any
    marks: Sequence[Marks]


def _key(segment: Segment, outputs: tuple[int, ...]) -> _Key:
    modes = (segment.grad, segment.inference, _core.get_default_dtype())
    if autocast.is_autocast_enabled("cpu"):
        modes += (autocast.get_autocast_dtype("cpu"), autocast.is_autocast_cache_enabled())
    shapes = tuple([(tuple(x.shape), x.stride()) for x in segment.inputs])
    facts = tuple([(type(x), x.dtype, x.requires_grad, x.is_leaf) for x in segment.inputs])
    marks = tuple(map(marks_of, segment.inputs))
    calls = tuple([call.key for call in segment.calls])
    return _Key(calls, outputs, shapes, (facts, modes), marks)


def _graph_module(
    segment: Segment, outputs: tuple[int, ...], names: dict[int | str, str]
) -> GraphModule:
    """The graph of a segment; inputs are placeholders, in the order of their first use."""
    graph = Graph()
    inputs = []
    for number, tensor in enumerate(segment.inputs):
        kind = Parameter if isinstance(tensor, Parameter) else _core.Tensor
        name = names.get(id(tensor), f"L_tensor_{number}_")
        inputs.append(graph.placeholder(name, type_expr=kind))
        inputs[-1].meta["example_value"] = segment.mode.from_tensor(tensor)

    root = Module()
    nodes = higher_order.add_calls(graph, root, segment.calls, inputs)
    graph.output(tuple([nodes[index] for index in outputs]))
    return GraphModule(root, graph)


def _input_names(function: Any, arguments: Any) -> dict[int | str, str]:
    """PyTorch-like names of a function's arguments and a module's state.

    Tensors are named by identity, integers by their source (`SizeReads.arguments`).
    """
    owner = getattr(function, "__self__", None)
    names: dict[int | str, str] = {}
    if isinstance(owner, Module):
        state = [*owner.named_parameters(), *owner.named_buffers()]
        kinds = ["parameters"] * len(list(owner.parameters()))
        kinds += ["buffers"] * (len(state) - len(kinds))
        for kind, (path, tensor) in zip(kinds, state, strict=True):
            *modules, last = path.split(".")
            parts = [*(f"modules_{each}" for each in modules), kind, last]
            names[id(tensor)] = f"L_self_{'_'.join(parts)}_"
    args, kwargs = arguments
    try:
        bound = dict(inspect.signature(function).bind(*args, **kwargs).arguments)
    except (TypeError, ValueError):
        bound = {"args": args, **kwargs}
    names |= {str(number): f"L_{name}_" for number, name in zip(range(len(args)), bound)}
    names |= {name: f"L_{name}_" for name in kwargs}
    for path, value in tree_flatten_with_path(bound)[0]:
        if isinstance(value, _core.Tensor):
            text = re.sub(r"\W+", "_", "".join(map(str, path))).strip("_")
            names.setdefault(id(value), f"L_{text}_")
    return names


def compiled_by(
    function: Callable[..., Any],
    backend: Any,
    fullgraph: bool,
    limit: int | None,
    dynamic: bool | None = None,
) -> Callable[..., Any]:
    """A function whose operators run in graphs that a backend compiled.

    Args:
        function: the function.
        backend: from a `GraphModule` and example inputs to a callable.
        fullgraph: whether a graph that ends before the function does raises.
        limit: graphs until the rest runs uncompiled.
        dynamic: True: sizes are symbols; False: numbers; None: those that vary are symbols.
    """
    compiled = _Compiled(function, backend, limit, fullgraph, dynamic)

    def recorded(*args: Any, **kwargs: Any) -> Any:
        if stance.eager or boundaries.local.recorder is not None:
            return function(*args, **kwargs)
        for check in recording.argument_checks:
            check(args, kwargs)
        if not fullgraph:
            return compiled(args, kwargs)
        with flushes.full_graph():
            return compiled(args, kwargs)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if regions.takes_arrays(args, kwargs):
            return late("flambeau._numpy").compiled(recorded, args, kwargs)
        return recorded(*args, **kwargs)

    return call


def reset() -> None:
    """Drops the graphs of all functions."""
    for compiled in list(_functions):
        compiled.clear()
