"""Groups of nodes that come from one module or function, by `meta`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from flambeau.fx._compatibility import compatibility
from flambeau.fx.graph import Graph
from flambeau.fx.node import Node

__all__ = ["SourcePartition", "check_subgraphs_connected", "get_source_partitions"]

logger = logging.getLogger(__name__)


@compatibility(is_backward_compatible=False)
@dataclass
class SourcePartition:
    """The nodes that come from one call.

    Attributes:
        nodes: all of them.
        source: the module's class, or the function.
        input_nodes: the nodes that they read from outside.
        output_nodes: those that are read outside.
        params: reads of parameters among their operands.
    """

    nodes: list[Node]
    source: Any
    input_nodes: list[Node] = field(default_factory=list)
    output_nodes: list[Node] = field(default_factory=list)
    params: list[Node] = field(default_factory=list)


@compatibility(is_backward_compatible=False)
def get_source_partitions(
    graph: Graph,
    wanted_sources: list[Any],
    filter_fn: Callable[[Node], bool] | None = None,
) -> dict[Any, list[SourcePartition]]:
    """Groups of nodes by the module or function that they come from.

    Args:
        graph: the graph; its nodes have `meta["source_fn_stack"]` or `meta["torch_fn"]`.
        wanted_sources: classes of modules and functions.
        filter_fn: selects the groups for all of whose nodes it returns True.

    Returns:
        dict: source -> groups.
    """
    modules: dict[Any, dict[str, list[Node]]] = {}
    for node in graph.nodes:
        stack = node.meta.get("source_fn_stack")
        torch_fn = node.meta.get("torch_fn")
        if stack:
            name, source = stack[-1]
        elif torch_fn:
            name, source = torch_fn
        else:
            continue
        if source in wanted_sources or (torch_fn and name in wanted_sources):
            modules.setdefault(source, {}).setdefault(name, []).append(node)
    groups = {
        source: [_partition(nodes, source) for nodes in by_name.values()]
        for source, by_name in modules.items()
    }
    if filter_fn is None:
        return groups
    filtered = {
        source: [each for each in each_list if all(map(filter_fn, each.output_nodes))]
        for source, each_list in groups.items()
    }
    return {source: each_list for source, each_list in filtered.items() if each_list}


def _partition(nodes: list[Node], source: Any) -> SourcePartition:
    inputs: dict[Node, None] = {}
    outputs: dict[Node, None] = {}
    params: dict[Node, None] = {}
    members = set(nodes)
    for node in nodes:
        for argument in node.all_input_nodes:
            if argument not in members and argument.op != "get_attr":
                inputs[argument] = None
            if argument.op == "get_attr":
                params[argument] = None
        if node.op == "get_attr":
            params[node] = None
        if any(user not in members for user in node.users):
            outputs[node] = None
    return SourcePartition(nodes, source, list(inputs), list(outputs), list(params))


@compatibility(is_backward_compatible=False)
def check_subgraphs_connected(subgraph1: SourcePartition, subgraph2: SourcePartition) -> bool:
    """Whether the second group reads the first.

    Args:
        subgraph1: a group.
        subgraph2: a group.
    """
    members = set(subgraph1.nodes)
    return any(argument in members for n in subgraph2.nodes for argument in n.all_input_nodes)
