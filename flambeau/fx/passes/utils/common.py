"""Parts of graphs as modules; comparison of graphs."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.fx._compatibility import compatibility
from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.passes.utils.matcher_utils import SubgraphMatcher

__all__ = ["HolderModule", "compare_graphs", "lift_subgraph_as_module"]


@compatibility(is_backward_compatible=False)
class HolderModule(torch.nn.Module):
    """A module that holds others, and computes nothing.

    Args:
        d: the modules by name.
    """

    def __init__(self, d: dict[str, Any]) -> None:
        super().__init__()
        for name, module in d.items():
            self.add_module(name, module)


@compatibility(is_backward_compatible=False)
def lift_subgraph_as_module(
    gm: GraphModule, subgraph: Graph, comp_name: str = "", class_name: str = "GraphModule"
) -> tuple[GraphModule, dict[str, str]]:
    """A graph as a module of its own, with the attributes that it reads of another module.

    Args:
        gm: the module that has the submodules and attributes.
        subgraph: the graph.
        comp_name: the name that the new module will have in the old one.
        class_name: the name of its class.

    Returns:
        tuple: the module; and new names of submodules -> names in the old one.
    """
    submodule = HolderModule({})
    names: dict[str, str] = {}
    for node in subgraph.nodes:
        if node.op not in ("call_module", "get_attr"):
            continue
        *prefix, field = node.target.split(".")
        source: Any = gm
        goal: Any = submodule
        for item in prefix:
            if not hasattr(source, item):
                raise RuntimeError(f"Attribute {item} not found in {source}")
            source = getattr(source, item)
            if not hasattr(goal, item):
                goal.add_module(item, HolderModule({}))
            goal = getattr(goal, item)
        original = getattr(source, field)
        if not hasattr(goal, field):
            setattr(goal, field, original)
        if node.op == "call_module":
            names[f"{comp_name}.{node.target}"] = node.target
    return GraphModule(submodule, subgraph, class_name), names


@compatibility(is_backward_compatible=False)
def compare_graphs(left: Graph, right: Graph) -> bool:
    """Whether two graphs are the same up to the names of nodes.

    Args:
        left: a graph.
        right: a graph.
    """
    matcher = SubgraphMatcher(left, match_output=True, match_placeholder=True)
    return len(matcher.match(right)) > 0
