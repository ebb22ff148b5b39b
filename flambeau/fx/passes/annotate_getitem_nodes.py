"""Types of the items of annotated tuples, lists and named tuples."""

from __future__ import annotations

import operator
from typing import Any

from flambeau.fx.graph import Graph


def annotate_getitem_nodes(graph: Graph) -> None:
    """Sets the type of each `getitem` whose container has one.

    Args:
        graph: the graph, which is changed.
    """
    for node in graph.nodes:
        if node.target is not operator.getitem:
            continue
        container, index = node.args
        kind: Any = getattr(container, "type", None)
        if kind is None:
            continue
        arguments = getattr(kind, "__args__", None)
        origin = getattr(kind, "__origin__", None)
        if arguments and origin is tuple:
            repeated = len(arguments) == 2 and arguments[1] is ...
            node.type = arguments[0 if repeated else index]
        elif arguments and origin is list:
            node.type = arguments[0]
        elif hasattr(kind, "_fields") and hasattr(kind, "__annotations__"):
            node.type = kind.__annotations__[kind._fields[index]]
