"""Operators that take functions in graphs for backends: one call, whose functions are graphs.

A function runs once on the recorder's fakes, in a segment of its own. Whatever a graph cannot hold
(a value that Python reads, say) ends that: the operator then runs at once, as other calls do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import flambeau as torch
from flambeau import _core
from flambeau._dynamo.recorder import (
    Call,
    Interrupted,
    Recorder,
    Reference,
    Segment,
    Unrecordable,
    without_history,
)  # fmt: skip
from flambeau._higher_order_ops.arrangements import Like, arranged
from flambeau._higher_order_ops.operators import HigherOrderOperator
from flambeau._subclasses import fake_calls
from flambeau.fx import Graph, GraphModule
from flambeau.nn import Module
from flambeau.utils import _pytree as pytree

__all__ = ["Subgraph", "record"]

_REUSED = "subgraph"
_NAMES = {
    "cond": ("cond_true", "cond_false"),
    "while_loop": ("cond_fn", "body_fn"),
    "scan": ("scan_combine_fn",),
    "map_impl": ("map_body",),
    "associative_scan": ("associative_scan_combine_fn",),
    "invoke_subgraph": (_REUSED,),
}


class Subgraph:
    """The graph of a function, as an argument of a recorded call.

    Args:
        name: of the attribute that holds it, without a number.
        calls: of the function.
        outputs: references of what it returned, in its containers.
        count: number of its parameters.
    """

    def __init__(self, name: str, calls: Sequence[Call], outputs: Any, count: int) -> None:
        self.name, self.calls, self.outputs, self.count = name, calls, outputs, count

    def __repr__(self) -> str:  # equal for graphs that do the same, see `Call.key`
        return f"{self.name}{[call.key for call in self.calls]}{self.outputs}{self.count}"

    def module(self) -> GraphModule:
        """The graph as a module."""
        graph = Graph()
        inputs = [graph.placeholder(f"arg{number}") for number in range(self.count)]
        root = Module()
        nodes = add_calls(graph, root, self.calls, inputs)
        graph.output(_node_of(self.outputs, nodes, inputs))
        return GraphModule(root, graph)


def add_calls(graph: Graph, root: Module, calls: Sequence[Call], inputs: Sequence[Any]) -> Any:
    """Adds nodes of calls to a graph, and returns them.

    Args:
        graph: the graph.
        root: gets the graphs of functions as attributes.
        calls: refer to inputs and to each other.
        inputs: nodes.
    """
    nodes: list[Any] = []
    names: dict[str, str] = {}

    def attribute(value: Any) -> Any:
        return _attribute(graph, root, names, value) if isinstance(value, Subgraph) else value

    for call in calls:
        values = pytree.tree_map(attribute, call.args, is_leaf=_is_slice)
        args, kwargs = _node_of(values, nodes, inputs), _node_of(call.kwargs, nodes, inputs)
        nodes.append(graph.create_node(call.kind, call.target, args, kwargs, call.name))
    return nodes


def _is_slice(value: Any) -> bool:
    return isinstance(value, slice)


def _attribute(graph: Graph, root: Module, names: dict[str, str], subgraph: Subgraph) -> Any:
    """A node that reads a graph; calls of one `nested_compile_region` read one attribute."""
    text = repr(subgraph) if subgraph.name == _REUSED else ""
    if text in names:
        return graph.get_attr(names[text])
    number = 0
    while hasattr(root, f"{subgraph.name}_{number}"):
        number += 1
    name = f"{subgraph.name}_{number}"
    setattr(root, name, subgraph.module())
    if text:
        names[text] = name
    return graph.get_attr(name)


def _node_of(value: Any, nodes: Sequence[Any], inputs: Sequence[Any]) -> Any:
    if isinstance(value, Reference):
        return nodes[value.index] if value.index >= 0 else inputs[~value.index]
    if type(value) in (tuple, list):
        return type(value)(_node_of(item, nodes, inputs) for item in value)
    if isinstance(value, dict):
        return {key: _node_of(item, nodes, inputs) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(*(_node_of(x, nodes, inputs) for x in (value.start, value.stop, value.step)))
    return value


# ------------------------------------------------------------------------------- recording


@contextlib.contextmanager
def _function_modes(enabled: bool) -> Iterator[None]:
    """A `with` block in which function modes, the recorder among them, see calls or do not."""
    before = _core.set_function_modes_enabled(enabled)
    try:
        yield
    finally:
        _core.set_function_modes_enabled(before)


def _traced(recorder: Recorder, function: Any, operands: list[Any], lifted: list[Any]) -> Any:
    """The calls of a function, its results, and references to these.

    Args:
        recorder: delays the calls.
        function: of the operands.
        operands: tensors and numbers of the outer segment.
        lifted: tensors of the outer segment, further parameters; grows.
    """
    outer = recorder.segment
    inner = Segment(outer.mode, outer=outer)
    values = [inner.parameter(value) for value in (*operands, *lifted)]
    count = len(inner.inputs)
    recorder.segment = inner
    try:
        with _function_modes(True):
            results = function(*values[: len(operands)])
        leaves = pytree.tree_leaves(results)
        if not all(isinstance(x, _core.Tensor) for x in leaves):
            raise Interrupted("a function returns what is no tensor")
        results = pytree.tree_map(inner.fake_of, results)
        outputs = pytree.tree_map(recorder._reference, results)
    finally:
        recorder.segment = outer
    lifted += inner.inputs[count:]
    return inner.calls, results, outputs


def record(recorder: Recorder, operator: HigherOrderOperator, args: Any, kwargs: Any) -> Any:
    """Records a call, or runs what was recorded and then the call.

    Args:
        recorder: delays calls.
        operator: the operator.
        args, kwargs: its arguments.
    """
    outer = recorder.segment
    try:
        with _function_modes(False):  # what follows is no code of the user's
            return _recorded(recorder, operator, args, kwargs)
    except Interrupted as stop:
        recorder.segment = outer
        recorder.interrupt(f"{operator}: {stop}")
    return operator.run(*args, **kwargs)


def _recorded(recorder: Recorder, operator: HigherOrderOperator, args: Any, kwargs: Any) -> Any:
    segment = recorder.segment
    args, kwargs = pytree.tree_map(lambda x: _operand(segment, x), (args, kwargs))
    parts = arranged(operator.name(), _first, args, kwargs)
    lifted: list[Any] = []
    traces = [_traced(recorder, f, parts.operands, lifted) for f in parts.functions]
    likes = parts.results([results for _, results, _ in traces])
    count = len(parts.operands) + len(lifted)
    graphs = [
        Subgraph(name, calls, outputs, count)
        for name, (calls, _, outputs) in zip(_NAMES[operator.name()], traces, strict=True)
    ]
    template = parts.template(lifted)
    leading, behind = pytree.tree_map(
        lambda x: recorder._reference(x) if isinstance(x, _core.Tensor) else x,
        (parts.leading, template),
    )
    recorder._follow_grad_mode()
    call = Call("call_function", operator, (*leading, *graphs, *behind), {}, operator.name())
    segment.calls.append(call)
    number = len(segment.calls) - 1
    needs = _core.is_grad_enabled() and any(
        isinstance(x, _core.Tensor) and x.requires_grad for x in pytree.tree_leaves(template)
    )
    results = pytree.tree_map(lambda x: _fresh(segment, x, needs), likes, is_leaf=_is_like)
    return recorder._bound(results, Reference(number), set())


def _operand(segment: Segment, value: Any) -> Any:
    if not isinstance(value, _core.Tensor):
        return value
    try:
        return segment.fake_of(value)
    except Unrecordable as stop:
        raise Interrupted(str(stop)) from None


def _first(xs: Sequence[Any]) -> list[Any]:
    return [fake_calls.answer(x.fake_mode, torch.select, (x, 0, 0), {}) for x in xs]


def _is_like(value: Any) -> bool:
    return isinstance(value, Like)


def _fresh(segment: Segment, like: Like, needs_gradient: bool) -> Any:
    """A result without data."""
    options = {"dtype": like.tensor.dtype, "device": like.tensor.fake_device}
    fake = fake_calls.answer(segment.mode, torch.empty, (like.shape,), options)
    if needs_gradient and fake.is_floating_point():
        without_history(fake)
    return fake
