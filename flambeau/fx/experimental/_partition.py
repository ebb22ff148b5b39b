"""From a joint graph to a forward and a backward graph, and what the one leaves for the other."""

from __future__ import annotations

from collections.abc import Sequence

from flambeau.fx import Graph, GraphModule
from flambeau.fx.experimental._operator_trace import Value
from flambeau.fx.node import Node
from flambeau.ir.failure import failure

__all__ = ["default_partition"]

BACKWARD = "is_backward"  # of `node.meta["partitioner_tag"]`: it ran after the results were there


def default_partition(
    joint_module: GraphModule,
    _joint_inputs: Value,
    *,
    num_fwd_outputs: int,
    static_lifetime_input_indices: Value = None,
    static_lifetime_input_nodes: Value = None,
) -> tuple[GraphModule, GraphModule]:
    """Splits where the forward ended: all that ran before stays there, and is not run again.

    Args:
        joint_module: takes `primals_*` and `tangents_*`, gives results and gradients.
        num_fwd_outputs: how many of its outputs are results.
        static_lifetime_input_indices, static_lifetime_input_nodes: as in PyTorch, without effect.

    Returns:
        a module of the primals that gives results and saved values, and one of the saved values
        and tangents that gives gradients.
    """
    graph = joint_module.graph
    graph.eliminate_dead_code()
    outputs = list(_output(graph).args[0])
    results, gradients = outputs[:num_fwd_outputs], outputs[num_fwd_outputs:]
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    tangents = [node for node in inputs if _is_tangent(node)]
    early = [node for node in graph.nodes if _is_early(node)]
    members = set(early)
    late = [node for node in graph.nodes if node.op != "output" and node not in members]
    saved = _saved(early, set(late), gradients)
    primals = [node for node in inputs if node not in tangents]
    forward = _extracted(joint_module, primals, [*results, *saved], early)
    backward = _extracted(joint_module, [*saved, *tangents], gradients, late)
    return forward, backward


def _output(graph: Graph) -> Node:
    return next(iter(reversed(graph.nodes)))


def _is_tangent(node: Node) -> bool:
    return node.op == "placeholder" and str(node.target).startswith("tangents")


def _is_early(node: Node) -> bool:
    """Whether a node belongs to the forward."""
    tag = node.meta.get("partitioner_tag")
    return node.op != "output" and not _is_tangent(node) and tag != BACKWARD


def _saved(early: Sequence[Node], late: set[Node], gradients: Sequence[Value]) -> list[Node]:
    """Values of the forward that the backward reads; constants are read again."""
    results = {node for node in gradients if isinstance(node, Node)}
    return [
        node
        for node in early
        if node.op != "get_attr" and (node in results or any(user in late for user in node.users))
    ]


def _extracted(
    module: GraphModule, inputs: Sequence[Node], outputs: Sequence[Value], members: Sequence[Node]
) -> GraphModule:
    """The module of some nodes of a graph."""
    graph = Graph()
    copies: dict[Node, Node] = {}
    for node in inputs:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta = dict(node.meta)

    def copied(node: Node) -> Node:
        if node not in copies:
            if node.op != "get_attr":
                problem = f"{node.name} is read on the wrong side of the partition"
                hint = "save it, or run it there"
                raise failure(RuntimeError, "partition", problem, hint)
            copies[node] = graph.node_copy(node, copied)
        return copies[node]

    for node in members:
        if node.op not in ("placeholder", "get_attr"):
            copies[node] = graph.node_copy(node, copied)
    values = tuple([copied(x) if isinstance(x, Node) else x for x in outputs])
    graph.output(values)
    graph.eliminate_dead_code()
    return GraphModule(module, graph)
