"""Sizes of values in bytes; targets replaced by others."""

from __future__ import annotations

from typing import Any, NamedTuple

import flambeau as torch
from flambeau.fx._compatibility import compatibility
from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node, Target, map_arg
from flambeau.fx.passes.shape_prop import ShapeProp

__all__ = [
    "get_size_of_all_nodes",
    "get_size_of_node",
    "get_tensor_meta",
    "replace_target_nodes_with",
    "size_bytes",
]


@compatibility(is_backward_compatible=False)
class size_bytes(NamedTuple):
    """Bytes of a node's value.

    Attributes:
        output_size: of the value alone.
        total_size: with the parameters that it uses.
    """

    output_size: int
    total_size: int


@compatibility(is_backward_compatible=False)
def replace_target_nodes_with(
    fx_module: GraphModule, old_op: str, old_target: Target, new_op: str, new_target: Target
) -> None:
    """Replaces calls of one target by calls of another.

    Args:
        fx_module: the module, which gets a new graph.
        old_op: kind of the nodes.
        old_target: their target.
        new_op: their new kind.
        new_target: their new target.
    """
    new_graph = Graph()
    values: dict[Node, Node] = {}
    for node in fx_module.graph.nodes:
        if node.op == old_op and node.target == old_target:
            args = map_arg(node.args, lambda n: values[n])
            kwargs = map_arg(node.kwargs, lambda n: values[n])
            values[node] = new_graph.create_node(new_op, new_target, args, kwargs, node.name)
        else:
            values[node] = new_graph.node_copy(node, lambda n: values[n])
    fx_module.graph = new_graph


@compatibility(is_backward_compatible=False)
def get_size_of_all_nodes(fx_module: GraphModule, args: list[Any] | None = None) -> None:
    """Sets `size_bytes` of every node.

    Args:
        fx_module: the module.
        args: inputs, to find shapes with; without them they are known already.
    """
    if args is not None:
        ShapeProp(fx_module).propagate(*args)
    for node in fx_module.graph.nodes:
        if node.op == "output":
            break
        node.size_bytes = get_size_of_node(fx_module, node)


@compatibility(is_backward_compatible=False)
def get_tensor_meta(node: Node) -> Any:
    """Returns the metadata that `ShapeProp` stored on a node.

    Raises:
        RuntimeError: nothing.
    """
    meta = node.meta.get("tensor_meta")
    if not meta:
        raise RuntimeError(
            f"Node {node} has no tensor metadata associated with it! Check that shape "
            "propagation has run."
        )
    return meta


@compatibility(is_backward_compatible=False)
def get_size_of_node(fx_module: GraphModule, node: Node) -> size_bytes:
    """Bytes of a node's value, and of the parameters that it uses.

    Args:
        fx_module: the module.
        node: a node with a shape.
    """
    count = 0
    if node.op == "call_module":
        module = dict(fx_module.named_modules())[node.target]
        count += sum(parameter.numel() for _, parameter in module.named_parameters())
    meta = get_tensor_meta(node)
    output = meta.shape.numel()
    count += output
    element = torch.tensor([], dtype=meta.dtype).element_size()
    return size_bytes(element * output, element * count)
