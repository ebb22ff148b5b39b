"""Rewrites a graph into a smaller one with the same bits.

One pass, operands first. Equal nodes are one node already (hash-consing), unreachable ones are not
visited. The rules stand in the records of primitives (`flambeau/prims/simplification.py`).
"""

from __future__ import annotations

from flambeau.ir.node import Graph, Node, node, topological
from flambeau.prims.record import record_of
from flambeau.prims.simplification import full_like


def simplify(graph: Graph) -> Graph:
    """The graph with all rules applied; inputs, order of outputs and guards do not change."""
    new: dict[Node, Node] = {}
    for value in topological(o.node for o in graph.outputs):
        inputs = value.inputs
        if inputs:
            inputs = tuple([new[i] for i in inputs])
        if inputs != value.inputs:
            step = node(value.op, inputs, value.attributes, value.dtype, value.shape, value.source)
        else:
            step = value
        step = _simpler(step)
        new[value] = step
    outputs = tuple(
        o if new[o.node] is o.node else o._replace(node=new[o.node]) for o in graph.outputs
    )
    return graph if outputs == graph.outputs else graph.with_outputs(outputs)


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
