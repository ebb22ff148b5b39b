"""`torch.compile(backend=function)`: graphs of a recorder, compiled by the user's function.

A function's compiled graphs are stored by segment: equal operators on inputs of equal metadata run
the callable that the backend returned. Another size, dtype or number is another segment, for which
the backend is called again.
"""

from __future__ import annotations

import functools
import inspect
import re
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from flambeau import _core
from flambeau._dynamo import higher_order
from flambeau._dynamo.exc import BackendCompilerFailed, FailOnRecompileLimitHit
from flambeau._dynamo.recorder import Recorder, Segment
from flambeau.amp import state as autocast
from flambeau.capture import breaks, regions
from flambeau.fx import Graph, GraphModule
from flambeau.ir.lock import fork_safe_lock, late
from flambeau.nn import Module
from flambeau.nn.parameter import Parameter
from flambeau.runtime import boundaries
from flambeau.utils._pytree import tree_flatten_with_path

__all__ = ["GRAPHS_PER_FUNCTION", "compiled_by"]

_changing = fork_safe_lock(level=3)
_functions: weakref.WeakSet[_Compiled] = weakref.WeakSet()
# Graphs of one function that are stored; the one used longest ago is dropped first.
GRAPHS_PER_FUNCTION = 256


class _Compiled:
    """The graphs of one compiled function.

    Args:
        function: what was compiled.
        backend: from a `GraphModule` and example inputs to a callable.
        limit: graphs until later calls run eagerly, or None.
        fullgraph: whether reaching the limit raises.
    """

    def __init__(
        self, function: Callable[..., Any], backend: Any, limit: int | None, fullgraph: bool
    ) -> None:
        self._function, self._backend = function, backend
        self._limit, self._fullgraph = limit, fullgraph
        self._graphs: OrderedDict[Any, Callable[..., Any]] = OrderedDict()
        _functions.add(self)

    def clear(self) -> None:
        """Drops the graphs."""
        with _changing:
            self._graphs.clear()

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls the function; its operators run in graphs."""

        def run(segment: Segment, live: Sequence[Any], reason: str) -> Sequence[Any]:
            return self._run(segment, live, reason, (args, kwargs))

        with Recorder(run) as recorder:
            reason = breaks.ERROR
            try:
                result = self._function(*args, **kwargs)
                reason = regions.END
            finally:
                recorder.interrupt(reason)
        return result

    def _run(
        self, segment: Segment, live: Sequence[Any], reason: str, arguments: Any
    ) -> Sequence[Any]:
        outputs = tuple(index for index, _ in live)
        key = _key(segment, outputs)
        with _changing:
            compiled = self._graphs.get(key)
            if compiled is not None:
                self._graphs.move_to_end(key)
        regions._on_flush(reason, len(segment.calls), int(compiled is not None))
        if compiled is None:  # the backend is called without the lock: it may be slow, or fork
            compiled = self._compile(segment, outputs, arguments)
            with _changing:
                compiled = self._graphs.setdefault(key, compiled)
                if len(self._graphs) > GRAPHS_PER_FUNCTION:
                    self._graphs.popitem(last=False)
        results = compiled(*segment.inputs)
        if not isinstance(results, (tuple, list)) or len(results) != len(outputs):
            raise RuntimeError(
                f"[compile] the backend's callable returned {_described(results)} for a graph with "
                f"{len(outputs)} outputs\nhint: return one tensor per output, in a tuple"
            )
        return results

    def _compile(self, segment: Segment, outputs: tuple[int, ...], arguments: Any) -> Any:
        if regions.Stance.refuses:
            raise late("flambeau.reports.recompiles").refusal(self._function)
        module = _graph_module(segment, outputs, _input_names(self._function, arguments))
        if self._limit is not None and len(self._graphs) >= self._limit:
            return self._over_limit(module)
        name = getattr(self._backend, "__name__", type(self._backend).__name__)
        try:
            compiled = self._backend(module, list(segment.inputs))
        except Exception as error:
            raise BackendCompilerFailed(
                f"backend={name!r} raised:\n{type(error).__name__}: {error}"
            ) from error
        if not callable(compiled):
            raise BackendCompilerFailed(
                f"backend={name!r} raised:\nAssertionError: compiler_fn did not return callable"
            )
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


def _described(results: Any) -> str:
    kind = type(results).__name__
    return f"{len(results)} values" if isinstance(results, (tuple, list)) else f"a {kind}"


def _key(segment: Segment, outputs: tuple[int, ...]) -> tuple[Any, ...]:
    """Equal for segments that one compiled graph serves."""
    modes = (segment.grad, segment.inference, _core.get_default_dtype())
    if autocast.is_autocast_enabled("cpu"):
        modes += (autocast.get_autocast_dtype("cpu"), autocast.is_autocast_cache_enabled())
    inputs = tuple([
        (type(x), x.dtype, tuple(x.shape), x.stride(), x.requires_grad, x.is_leaf)
        for x in segment.inputs
    ])  # fmt: skip
    return tuple([call.key for call in segment.calls]), outputs, inputs, modes


def _graph_module(segment: Segment, outputs: tuple[int, ...], names: dict[int, str]) -> GraphModule:
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


def _input_names(function: Any, arguments: Any) -> dict[int, str]:
    """PyTorch-like names of a function's arguments and a module's state, by identity."""
    owner = getattr(function, "__self__", None)
    names = {}
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
    for path, value in tree_flatten_with_path(bound)[0]:
        if isinstance(value, _core.Tensor):
            text = re.sub(r"\W+", "_", "".join(map(str, path))).strip("_")
            names.setdefault(id(value), f"L_{text}_")
    return names


def compiled_by(
    function: Callable[..., Any], backend: Any, fullgraph: bool, limit: int | None
) -> Callable[..., Any]:
    """A function whose operators run in graphs that a backend compiled.

    Args:
        function: the function.
        backend: from a `GraphModule` and example inputs to a callable.
        fullgraph: whether a graph that ends before the function does raises.
        limit: graphs until the rest runs uncompiled.
    """
    compiled = _Compiled(function, backend, limit, fullgraph)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if regions.Stance.eager or boundaries.local.recorder is not None:
            return function(*args, **kwargs)
        for check in regions.argument_checks:
            check(args, kwargs)
        if not fullgraph:
            return compiled(args, kwargs)
        with regions.full_graph():
            return compiled(args, kwargs)

    return call


def reset() -> None:
    """Drops the graphs of all functions."""
    for compiled in list(_functions):
        compiled.clear()
