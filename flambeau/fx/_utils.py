"""Texts about graphs, for logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flambeau.fx.graph import Graph
    from flambeau.fx.graph_module import GraphModule
    from flambeau.fx.node import Node


def _format_graph_code(name: str, filename: str, graph_str: str) -> str:
    """A headed text."""
    return f"TRACED GRAPH\n {name} {filename} {graph_str}\n"


def lazy_format_graph_code(
    name: str, gm: GraphModule, maybe_id: int | None = None, **kwargs: Any
) -> str:
    """The code of a module under a heading.

    Args:
        name: the heading.
        gm: the module.
        maybe_id: a number in the heading.
        kwargs: options of `GraphModule.print_readable`.
    """
    head = name if maybe_id is None else f"{name} {maybe_id}"
    text = gm.print_readable(print_output=False, **kwargs)
    return _format_graph_code(f"===== {head} =====\n", type(gm).__name__, text)


def first_call_function_nn_module_stack(graph: Graph) -> dict[str, Any] | None:
    """The modules that the first call of a function comes from.

    Args:
        graph: the graph.
    """
    for node in graph.nodes:
        if node.op == "call_function" and "nn_module_stack" in node.meta:
            stack: dict[str, Any] = node.meta["nn_module_stack"]
            return stack
    return None


def get_node_context(node: Node, num_nodes: int = 2) -> str:
    """A node and some in front of it, as text.

    Args:
        node: the node.
        num_nodes: how many in front of it.
    """
    nodes = [node]
    while len(nodes) <= num_nodes and nodes[-1].prev.op != "root":
        nodes.append(nodes[-1].prev)
    return "\n".join(str(each.format_node()) for each in reversed(nodes))
