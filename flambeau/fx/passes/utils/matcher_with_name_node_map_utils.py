"""`SubgraphMatcherWithNameNodeMap`: a pattern that also gives names to its nodes."""

from __future__ import annotations

from flambeau.fx._compatibility import compatibility
from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node
from flambeau.fx.passes.utils.matcher_utils import InternalMatch, SubgraphMatcher

__all__ = ["SubgraphMatcherWithNameNodeMap"]


def _split_to_graph_and_name_node_map(
    gm: GraphModule,
) -> tuple[GraphModule, dict[str, Node]]:
    """The pattern without the dictionary of names that it returns last."""
    name_node_map: dict[str, Node] = {}
    output = gm.graph.output_node()
    *results, names = output.args[0]
    if not isinstance(names, dict):
        raise AssertionError("Expecting the input graph to have a dict output as the last element")
    name_node_map.update(names)
    output.args = (tuple(results),)
    gm.recompile()
    return gm, name_node_map


@compatibility(is_backward_compatible=False)
class SubgraphMatcherWithNameNodeMap(SubgraphMatcher):
    """A matcher whose pattern returns its results and a dictionary: name -> node.

    Args:
        pattern_gm: the pattern.
        match_output: see `SubgraphMatcher`.
        match_placeholder: likewise.
        remove_overlapping_matches: likewise.
        ignore_literals: likewise.
    """

    def __init__(
        self,
        pattern_gm: GraphModule,
        match_output: bool = False,
        match_placeholder: bool = False,
        remove_overlapping_matches: bool = True,
        ignore_literals: bool = False,
    ) -> None:
        pattern_gm, name_node_map = _split_to_graph_and_name_node_map(pattern_gm)
        self.name_node_map = name_node_map
        super().__init__(
            pattern_gm.graph,
            match_output,
            match_placeholder,
            remove_overlapping_matches,
            ignore_literals,
        )

    def match(self, graph: Graph, node_name_match: str = "") -> list[InternalMatch]:
        """The matches; `name_node_map` of each says what the named nodes are.

        Args:
            graph: the graph.
            node_name_match: see `SubgraphMatcher.match`.
        """
        matches = super().match(graph, node_name_match)
        for match in matches:
            for name, node in self.name_node_map.items():
                match.name_node_map[name] = match.nodes_map[node]
        return matches
