"""Groups of nodes as submodules."""

from __future__ import annotations

import copy
import operator
from collections import deque

from flambeau.fx._compatibility import compatibility
from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node
from flambeau.fx.passes.tools_common import stable_topological_sort
from flambeau.fx.passes.utils.common import lift_subgraph_as_module


@compatibility(is_backward_compatible=False)
def topo_sort(nodes: list[Node]) -> list[Node]:
    """Nodes behind those that they read.

    Args:
        nodes: nodes of one graph.

    Raises:
        AssertionError: they read each other in a circle.
    """
    members = set(nodes)
    waiting = {node: sum(1 for n in node.all_input_nodes if n in members) for node in nodes}
    ready = deque(node for node in nodes if waiting[node] == 0)
    ordered: list[Node] = []
    while ready:
        node = ready.popleft()
        ordered.append(node)
        for user in node.users:
            if user in members:
                waiting[user] -= 1
                if waiting[user] == 0:
                    ready.append(user)
    if len(nodes) != len(ordered):
        raise AssertionError("topological sorted nodes doesn't have same length as input nodes")
    return ordered


@compatibility(is_backward_compatible=False)
def validate_partition(partition: list[Node]) -> bool:
    """Whether a group can run at once: no path leaves it and comes back.

    Args:
        partition: the nodes.
    """
    members = set(partition)
    pending = deque(user for node in partition for user in node.users if user not in members)
    seen: set[Node] = set()
    while pending:
        node = pending.popleft()
        if node in members:
            return False
        if node not in seen:
            seen.add(node)
            pending.extend(node.users)
    return True


@compatibility(is_backward_compatible=False)
def fuse_as_graphmodule(
    gm: GraphModule,
    nodes: list[Node],
    module_name: str,
    partition_lookup_table: dict[Node, int | None] | None = None,
    *,
    always_return_tuple: bool = False,
) -> tuple[GraphModule, tuple[Node, ...], tuple[Node, ...]]:
    """A group of nodes as a module of its own; the graph stays as it is.

    Args:
        gm: the module.
        nodes: the group, in topological order.
        module_name: the new module's class.
        partition_lookup_table: the group as a table.
        always_return_tuple: whether a single result is returned in a tuple.

    Returns:
        tuple: the module, the values that it reads, the nodes whose values it gives.
    """
    for node in nodes:
        if node.graph.owning_module is not gm:
            raise AssertionError(
                f"{node} doesn't belong to passed in graph module {gm._get_name()}"
            )
        if node._erased:
            raise AssertionError(f"{node} has been removed from owning graph")
        if node not in gm.graph._find_nodes_lookup_table:
            raise AssertionError(f"{node} is not found in graph module {gm._get_name()}")
    if not validate_partition(nodes):
        raise AssertionError("Invalid partition, found dependency cycles")
    members = set(nodes) if partition_lookup_table is None else partition_lookup_table
    graph = Graph()
    inputs: dict[Node, Node] = {}
    values: dict[Node, Node] = {}

    def take(value: Node) -> Node:
        if value in values:
            return values[value]
        if value not in inputs:
            inputs[value] = graph.placeholder(value.name, type_expr=value.type)
            inputs[value].meta = copy.copy(value.meta)
        return inputs[value]

    for node in nodes:
        values[node] = graph.node_copy(node, take)
    outputs = [n for n in nodes if any(user not in members for user in n.users)]
    results = tuple(values[node] for node in outputs)
    graph.output(results[0] if len(results) == 1 and not always_return_tuple else results)
    graph.lint()
    fused, _ = lift_subgraph_as_module(gm, graph, comp_name="", class_name=module_name)
    return fused, tuple(inputs), tuple(outputs)


@compatibility(is_backward_compatible=False)
def insert_subgm(
    gm: GraphModule,
    sub_gm: GraphModule,
    orig_inputs: tuple[Node, ...],
    orig_outputs: tuple[Node, ...],
    insertion_point: Node | None = None,
) -> GraphModule:
    """Calls a module in place of nodes.

    Args:
        gm: the module, which is changed.
        sub_gm: what to call; its class's name is the name of the submodule.
        orig_inputs: its arguments.
        orig_outputs: the nodes whose values it gives.
        insertion_point: the node behind which it is called; the last of the outputs by default.
    """
    name = sub_gm.__class__.__name__
    gm.add_submodule(name, sub_gm)
    place = max(orig_outputs) if insertion_point is None else insertion_point
    with gm.graph.inserting_after(place):
        call = gm.graph.call_module(name, args=orig_inputs, kwargs=None)
        output = sub_gm.graph.output_node().args[0]
        if len(orig_outputs) == 1 and not isinstance(output, tuple):
            orig_outputs[0].replace_all_uses_with(call, propagate_meta=True)
        else:
            with gm.graph.inserting_before(call.next):
                for index, old in enumerate(orig_outputs):
                    item = gm.graph.call_function(operator.getitem, (call, index))
                    old.replace_all_uses_with(item, propagate_meta=True)
            call.meta["val"] = tuple(node.meta.get("val", None) for node in orig_outputs)
    return gm


@compatibility(is_backward_compatible=False)
def erase_nodes(gm: GraphModule, nodes: list[Node]) -> None:
    """Erases nodes, the last one first.

    Args:
        gm: the module.
        nodes: nodes that only each other use.
    """
    for node in reversed(nodes):
        gm.graph.erase_node(node)


@compatibility(is_backward_compatible=False)
def fuse_by_partitions(
    gm: GraphModule,
    partitions: list[dict[Node, int | None]],
    prefix: str = "fused_",
    always_return_tuple: bool = False,
) -> GraphModule:
    """Puts groups of nodes in submodules.

    Args:
        gm: the module, which is changed.
        partitions: the groups.
        prefix: what the names of the submodules begin with.
        always_return_tuple: whether a single result is returned in a tuple.
    """
    for number, partition in enumerate(partitions):
        ordered = topo_sort(sorted(partition))
        sub_gm, inputs, outputs = fuse_as_graphmodule(
            gm, ordered, f"{prefix}{number}", partition, always_return_tuple=always_return_tuple
        )
        insert_subgm(gm, sub_gm, inputs, outputs, ordered[-1])
        erase_nodes(gm, ordered)
    stable_topological_sort(gm)
    gm.graph.lint()
    return gm
