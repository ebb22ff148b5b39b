"""Rewrites a graph into a smaller one with the same bits.

One pass, operands first. Equal nodes are one node already (hash-consing), unreachable ones are not
visited. The rules are in the records of primitives (`flambeau/prims/simplification.py`).
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import fields, replace

from flambeau.ir.failure import failure
from flambeau.ir.kernel import Kernel, Statement
from flambeau.ir.node import Graph, Node, node, topological
from flambeau.prims.record import PRIMITIVES, record_of
from flambeau.prims.simplification import full_like


def simplify(graph: Graph) -> Graph:
    """The graph with all rules applied; inputs, order of outputs and guards do not change."""
    return rewritten(graph, _simpler)


def rewritten(graph: Graph, rule: Callable[[Node], Node]) -> Graph:
    """The graph whose values are replaced, operands first; what is new is not replaced again.

    Args:
        graph: the graph.
        rule: from a value with its new operands to one that takes its place.
    """
    new: dict[Node, Node] = {}
    for value in topological(o.node for o in graph.outputs):
        inputs = value.inputs
        if inputs:
            inputs = tuple([new[i] for i in inputs])
        if inputs != value.inputs:
            step = node(value.op, inputs, value.attributes, value.dtype, value.shape, value.source)
        else:
            step = value
        new[value] = rule(step)
    outputs = tuple(
        o if new[o.node] is o.node else o._replace(node=new[o.node]) for o in graph.outputs
    )
    return graph if outputs == graph.outputs else graph.with_outputs(outputs)


def rewritten_kernel(kernel: Kernel, rule: Callable[[Node], Node | None]) -> Kernel:
    """The kernel whose values are replaced, operands first.

    Args:
        kernel: the kernel.
        rule: from a value with its new operands to one that takes its place, or None.
    """
    new: dict[Node, Node] = {}
    for value in topological(kernel.roots()):
        inputs = tuple([new[i] for i in value.inputs])
        step = value
        if inputs != value.inputs:
            step = node(value.op, inputs, value.attributes, value.dtype, value.shape)
        new[value] = rule(step) or step
    return replace(kernel, body=tuple([_with_values(s, new) for s in kernel.body]))


def _with_values(statement: Statement, new: Mapping[Node, Node]) -> Statement:
    """A statement of a kernel with other values, which end the entries of each of its fields."""
    listed = [getattr(statement, field.name) for field in fields(statement)]
    changed = [tuple([(*entry[:-1], new[entry[-1]]) for entry in part]) for part in listed]
    return type(statement)(*changed)


def require_primitive(name: str) -> None:
    """Raises unless there is a primitive of this name.

    Raises:
        ValueError: there is none.
    """
    if name not in PRIMITIVES:
        close = difflib.get_close_matches(name, PRIMITIVES, 3) or sorted(PRIMITIVES)
        problem = f"there is no primitive {name!r}"
        raise failure(ValueError, "passes.lowering", problem, ", ".join(close))


def lowered(graph: Graph, primitive: str, function: Callable[..., Node]) -> Graph:
    """The graph in which a function takes the place of a primitive.

    Args:
        graph: the graph.
        primitive: its name.
        function: from operands, and constants by name, to a value.

    Raises:
        TypeError: the function returns a value of another type or shape.
    """

    def rule(value: Node) -> Node:
        if record_of(value).name != primitive:
            return value
        new = function(*value.inputs, **dict(value.attributes))
        if not isinstance(new, Node) or (new.dtype, new.shape) != (value.dtype, value.shape):
            problem = f"the function of {primitive!r} returned {new!r} for {value!r}"
            hint = "return a value of the same dtype and shape"
            raise failure(TypeError, "passes.lowering", problem, hint)
        return new

    return rewritten(graph, rule)


def _simpler(value: Node) -> Node:
    """A node after all rules of its primitive, and of those that take its place."""
    value = _nothing(value)
    while True:
        rule = record_of(value).simplify
        better = None if rule is None else rule(value)
        if better is None or better is value:
            return value
        value = better


# Kinds whose results without elements are constants.
_EMPTY_KINDS = frozenset({"pointwise", "shape", "index", "reduce", "scan", "routine", "check"})


def _nothing(value: Node) -> Node:
    """Replaces a value without elements, or a sum over none, by a constant: a kernel with an empty
    loop could read outside of the loop memory that does not exist."""
    record = record_of(value)
    if record.kind not in _EMPTY_KINDS:
        return value
    if 0 in value.shape:
        return full_like(False if value.dtype == "bool" else 0, value)
    if record.of_nothing is not None and 0 in value.inputs[0].shape:
        return full_like(record.of_nothing, value)
    return value
