"""Products with one matrix made at once: `a @ w` and `b @ w` as `cat([a, b]) @ w`."""

from __future__ import annotations

import itertools
import operator
from typing import Any

import flambeau as torch
from flambeau.fx import GraphModule, Node, symbolic_trace
from flambeau.fx.passes.tools_common import legalize_graph


def split_result_tensors(
    result: torch.Tensor, inputs: list[torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    """The results of the single products.

    Args:
        result: the product of the joined matrices.
        inputs: the matrices.
    """
    return torch.split(result, [value.shape[0] for value in inputs])


def may_depend_on(a: Node, b: Node, search_depth: int = 6) -> bool:
    """Whether a node may depend on another: False only if it surely does not.

    Args:
        a: the node.
        b: what it may depend on.
        search_depth: how far back is searched.
    """
    if a == b:
        return True
    if not a.all_input_nodes:
        return False
    if search_depth == 0:
        return True
    return any(may_depend_on(each, b, search_depth - 1) for each in a.all_input_nodes)


def are_nodes_independent(nodes: list[Node]) -> bool:
    """Whether no node depends on another, as far as `may_depend_on` sees.

    Args:
        nodes: the nodes.
    """
    return not any(
        may_depend_on(i, j) or may_depend_on(j, i) for i, j in itertools.combinations(nodes, 2)
    )


def merge_matmul(in_mod: torch.nn.Module) -> GraphModule:
    """Joins the products of several matrices with the same one.

    Args:
        in_mod: the module.

    Returns:
        GraphModule: computes the same.
    """
    module = symbolic_trace(in_mod)
    graph = module.graph
    right: dict[Any, list[Node]] = {}
    for node in graph.nodes:
        product = node.op == "call_function" and node.target is torch.matmul
        if product or (node.op == "call_method" and node.target == "matmul"):
            right.setdefault(node.args[1], []).append(node)
    for operand, products in right.items():
        if len(products) < 2 or not are_nodes_independent(products):
            continue
        lefts = [node.args[0] for node in products]
        latest = max([*lefts, operand] if isinstance(operand, Node) else lefts)
        with graph.inserting_before(latest.next):
            joined = graph.call_function(torch.cat, (lefts,))
            product = graph.call_function(torch.matmul, (joined, operand))
            parts = graph.call_function(split_result_tensors, (product, lefts))
            items = [graph.call_function(operator.getitem, (parts, i)) for i in range(len(lefts))]
        for old, new in zip(products, items, strict=True):
            old.replace_all_uses_with(new)
            graph.erase_node(old)
    graph.lint()
    module.recompile()
    return legalize_graph(module)
