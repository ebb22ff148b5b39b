"""The checks of `Graph.lint`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import flambeau as torch
from flambeau.fx.node import Node, map_arg

if TYPE_CHECKING:
    from flambeau.fx.graph import Graph

_OPS = ("placeholder", "call_method", "call_module", "call_function", "get_attr", "output")


def check(graph: Graph) -> None:
    """Raises the first violation of a graph.

    Args:
        graph: the graph.

    Raises:
        RuntimeError: an argument of another graph, a use before a definition, a name twice.
        ValueError: a target of the wrong type, a module or attribute that does not exist.
    """
    values: set[Node] = set()
    names: set[str] = set()
    for node in graph.nodes:
        if node.op not in _OPS:
            raise RuntimeError(f"Node {node} had unknown opcode {node.op}!")
        if node.graph is not graph:
            raise RuntimeError(f"Node '{node}' does not belong to this Graph!")
        _check_arguments(graph, node, values)
        values.add(node)
        if node.name in names:
            raise RuntimeError(f"Node redefined name {node.name}!")
        names.add(node.name)
    if graph.owning_module is not None:
        for node in graph.nodes:
            _check_target(graph.owning_module, node)


def _check_arguments(graph: Graph, node: Node, values: set[Node]) -> None:
    def seen(argument: Node) -> Node:
        if argument.graph is not graph:
            raise RuntimeError(
                f"Argument '{argument}' of Node '{node}' does not belong to this Graph, but was "
                "used as an argument! If you are copying nodes from another graph, make sure to "
                "use ``arg_transform`` on node_copy() to remap values\n"
                f"{graph}"
            )
        if argument not in values:
            raise RuntimeError(
                f"Argument '{argument}' of Node '{node}' was used before it has been "
                f"defined! Please check that Nodes in the graph are topologically ordered\n{graph}"
            )
        return argument

    map_arg(node.args, seen)
    map_arg(node.kwargs, seen)


def _check_target(root: Any, node: Node) -> None:
    """Modules and attributes that a node names exist."""
    if node.op == "call_function" and not callable(node.target):
        raise ValueError(
            f"Node {node} target {node.target} has type {torch.typename(node.target)} but "
            "a Callable is expected"
        )
    if node.op not in ("get_attr", "call_module"):
        return
    parts = str(node.target).split(".")
    value: Any = root
    for index, part in enumerate(parts):
        path = ".".join(parts[:index])
        owner = f"Node {node} target {node.target} references nonexistent attribute {part}"
        if not hasattr(value, part):
            raise RuntimeError(owner + (f" of {path}" if path else ""))
        value = getattr(value, part)
        last = index == len(parts) - 1
        if last and node.op == "call_module" and not isinstance(value, torch.nn.Module):
            raise RuntimeError(
                f"Node {node} target {node.target} {path} of type {torch.typename(value)} does "
                "not reference an nn.Module"
            )
