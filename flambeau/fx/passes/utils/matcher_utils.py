"""`SubgraphMatcher`: finds the subgraphs that match a pattern."""

from __future__ import annotations

import copy
import logging
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import flambeau as torch
from flambeau.fx._compatibility import compatibility
from flambeau.fx._module_attributes import _get_attr
from flambeau.fx.graph import Graph
from flambeau.fx.node import Node

__all__ = ["InternalMatch", "SubgraphMatcher"]

logger = logging.getLogger(__name__)


@compatibility(is_backward_compatible=False)
@dataclass
class InternalMatch:
    """One place that looks like the pattern.

    Attributes:
        anchors: nodes of the pattern where the comparison began.
        nodes_map: nodes of the pattern -> nodes of the graph.
        placeholder_nodes: what the inputs of the pattern are in the graph.
        returning_nodes: what its results are in the graph.
        name_node_map: names that the pattern gives to nodes -> nodes of the graph.
    """

    anchors: list[Node]
    nodes_map: dict[Node, Node] = field(default_factory=dict)
    placeholder_nodes: list[Node] = field(default_factory=list)
    returning_nodes: list[Node] = field(default_factory=list)
    name_node_map: dict[str, Node] = field(default_factory=dict)

    def __copy__(self) -> InternalMatch:
        return InternalMatch(
            anchors=self.anchors,
            nodes_map=self.nodes_map.copy(),
            placeholder_nodes=self.placeholder_nodes.copy(),
            returning_nodes=self.returning_nodes.copy(),
        )


@compatibility(is_backward_compatible=False)
class SubgraphMatcher:
    """Compares a pattern with the subgraphs of a graph, from its results backwards.

    Args:
        pattern: the graph to look for.
        match_output: whether the pattern's output matches the graph's output only.
        match_placeholder: whether its inputs match inputs only.
        remove_overlapping_matches: whether a node is in one match at most.
        ignore_literals: whether numbers and other constants may differ.

    Example:
        >>> from torch.fx.passes.utils.matcher_utils import SubgraphMatcher
        >>> pattern = torch.fx.symbolic_trace(lambda x: torch.relu(x) + 1).graph
        >>> graph = torch.fx.symbolic_trace(lambda x: torch.relu(x * 2) + 1).graph
        >>> len(SubgraphMatcher(pattern).match(graph))
        1
    """

    def __init__(
        self,
        pattern: Graph,
        match_output: bool = False,
        match_placeholder: bool = False,
        remove_overlapping_matches: bool = True,
        ignore_literals: bool = False,
    ) -> None:
        self.pattern = pattern
        self.match_output = match_output
        self.match_placeholder = match_placeholder
        self.remove_overlapping_matches = remove_overlapping_matches
        self.ignore_literals = ignore_literals
        if len(pattern.nodes) == 0:
            raise ValueError("SubgraphMatcher cannot be initialized with an empty pattern")
        for node in pattern.nodes:
            if node.op != "output" and not node.users:
                raise AssertionError(
                    "SubgraphMatcher cannot be initialized with an pattern with dead code"
                )
        self.pattern_placeholder_nodes = [n for n in pattern.nodes if n.op == "placeholder"]
        output = next(iter(reversed(pattern.nodes)))
        self.pattern_returning_nodes: list[Node] = output.all_input_nodes
        self.pattern_anchors: list[Node] = (
            [output] if match_output else [n for n in output.all_input_nodes if len(n.users) == 1]
        )

    # ------------------------------------------------------------------------ single nodes
    def _match_attributes(self, pn: Node, gn: Node) -> bool:
        """Whether two `get_attr` nodes read values of the same kind."""
        if not isinstance(pn.target, str) or not isinstance(gn.target, str):
            raise AssertionError("targets of get_attr nodes are names")
        left = _get_attr(pn.graph.owning_module, pn.target)  # type: ignore[arg-type]
        right = _get_attr(gn.graph.owning_module, gn.target)  # type: ignore[arg-type]
        if type(left) is not type(right):
            return False
        if isinstance(left, torch.Tensor):
            return isinstance(right, torch.Tensor)
        raise RuntimeError(f"Unsupported type {left} when matching attributes")

    def _nodes_are_equal(self, pn: Node, gn: Node, node_name_match: str = "") -> bool:
        if not self.match_placeholder and pn.op == "placeholder":
            return True  # an input of the pattern matches any node
        if node_name_match and node_name_match in gn.name:
            return True
        if pn.op != gn.op:
            return False
        if pn.op in ("placeholder", "output"):
            return True
        if pn.op == "get_attr":
            return self._match_attributes(pn, gn)
        return pn.target == gn.target

    def _match_literals(self, pn: Any, gn: Any, match: InternalMatch) -> bool:
        if isinstance(pn, Node) and isinstance(gn, Node):
            raise AssertionError("pn and gn cannot both be Node")
        if isinstance(pn, Node):
            if pn.op != "placeholder":
                return False
            if pn in match.nodes_map:
                return bool(match.nodes_map[pn] == gn)
            match.nodes_map[pn] = gn
            return True
        if isinstance(gn, Node):
            return False
        return type(gn) is type(pn) and bool(gn == pn)

    # ------------------------------------------------------------------------ graphs
    def _match_nodes(
        self, pn: Node, gn: Node, match: InternalMatch, node_name_match: str = ""
    ) -> bool:
        """Compares two nodes and all that they read; fills the match."""
        if isinstance(pn, Node) != isinstance(gn, Node) or not isinstance(pn, Node):
            raise AssertionError("_match_nodes takes two nodes")
        if pn in match.nodes_map:
            return match.nodes_map[pn] == gn
        if gn in match.nodes_map.values():
            return False
        if not self._nodes_are_equal(pn, gn, node_name_match):
            return False
        saved = copy.copy(match)
        match.nodes_map[pn] = gn
        if pn.op == "placeholder":
            return True
        if self._arguments_match(pn, gn, match, node_name_match):
            return True
        match.nodes_map, match.placeholder_nodes = saved.nodes_map, saved.placeholder_nodes
        match.returning_nodes, match.anchors = saved.returning_nodes, saved.anchors
        return False

    def _arguments_match(
        self, pn: Node, gn: Node, match: InternalMatch, node_name_match: str
    ) -> bool:
        pattern_args, graph_args = _normal_form(pn, gn)
        if pattern_args is None or graph_args is None:
            return False
        return len(pattern_args) == len(graph_args) and self._values_match(
            pattern_args, graph_args, match, node_name_match
        )

    def _values_match(
        self, left: Any, right: Any, match: InternalMatch, node_name_match: str
    ) -> bool:
        if isinstance(left, Node) and isinstance(right, Node):
            return self._match_nodes(left, right, match, node_name_match)
        if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
            return len(left) == len(right) and all(
                self._values_match(a, b, match, node_name_match)
                for a, b in zip(left, right, strict=True)
            )
        if isinstance(left, dict) and isinstance(right, dict):
            return left.keys() == right.keys() and all(
                self._values_match(left[key], right[key], match, node_name_match) for key in left
            )
        if isinstance(left, slice) and isinstance(right, slice):
            return self._values_match(
                [left.start, left.stop, left.step], [right.start, right.stop, right.step],
                match, node_name_match,
            )  # fmt: skip
        return self._match_literals(left, right, match) or self.ignore_literals

    def _is_contained(self, nodes_map: dict[Node, Node]) -> bool:
        """Whether nothing outside uses a value that the replacement would not give."""
        inner = {
            pn: gn
            for pn, gn in nodes_map.items()
            if pn.op != "placeholder" and isinstance(gn, Node)
        }
        for pn, gn in inner.items():
            if pn in self.pattern_returning_nodes or pn.op == "output":
                continue
            if any(user not in inner.values() for user in gn.users):
                return False
        return True

    def _remove_overlapping_matches(self, matches: list[InternalMatch]) -> list[InternalMatch]:
        """The first of the matches that share nodes."""
        taken: set[Node] = set()
        chosen = []
        for match in matches:
            nodes = {
                gn
                for pn, gn in match.nodes_map.items()
                if pn.op not in ("placeholder", "output") and isinstance(gn, Node)
            }
            if not nodes & taken:
                taken |= nodes
                chosen.append(match)
        return chosen

    def match(self, graph: Graph, node_name_match: str = "") -> list[InternalMatch]:
        """The subgraphs that match the pattern, in their order.

        Args:
            graph: the graph.
            node_name_match: a text; nodes with it in their name fit every node of the pattern.

        Returns:
            list: of `InternalMatch`.
        """
        candidates: dict[Node, list[Node]] = defaultdict(list)
        for anchor in self.pattern_anchors:
            for node in graph.nodes:
                if self._nodes_are_equal(anchor, node, node_name_match):
                    candidates[anchor].append(node)
        anchors = [anchor for anchor in self.pattern_anchors if candidates[anchor]]
        matches: list[InternalMatch] = []

        def extend(position: int, match: InternalMatch) -> None:
            if position == len(self.pattern_anchors):
                self._complete(match)
                matches.append(match)
                return
            anchor = self.pattern_anchors[position]
            for node in candidates[anchor]:
                attempt = copy.copy(match)
                if self._match_nodes(anchor, node, attempt, node_name_match):
                    extend(position + 1, attempt)

        if anchors:
            extend(0, InternalMatch(anchors=anchors))
        matches = [match for match in matches if self._is_contained(match.nodes_map)]
        matches = [match for match in matches if self._inputs_come_first(match)]
        if self.remove_overlapping_matches:
            matches = self._remove_overlapping_matches(matches)
        return matches

    def _complete(self, match: InternalMatch) -> None:
        match.placeholder_nodes = [
            match.nodes_map[pn] for pn in self.pattern_placeholder_nodes if pn in match.nodes_map
        ]
        match.returning_nodes = [match.nodes_map[pn] for pn in self.pattern_returning_nodes]

    def _inputs_come_first(self, match: InternalMatch) -> bool:
        """Whether no input of a match depends on its inner nodes."""
        inner = {
            gn for pn, gn in match.nodes_map.items()
            if pn.op != "placeholder" and isinstance(gn, Node)
        }  # fmt: skip
        pending = [n for n in match.placeholder_nodes if isinstance(n, Node)]
        seen: set[Node] = set()
        earliest = min(inner, default=None)
        while pending:
            node = pending.pop()
            if node in seen or earliest is None or node < earliest:
                continue
            seen.add(node)
            if node in inner:
                return False
            pending += node.all_input_nodes
        return True


def _normal_form(pn: Node, gn: Node) -> tuple[list[Any] | None, list[Any] | None]:
    """The arguments of two nodes in one order, defaults included where they are known."""
    if pn.op in ("call_function", "call_module") and not (pn.args == () and pn.kwargs == {}):
        pair = _normalized(pn), _normalized(gn)
        if pair[0] is not None and pair[1] is not None and pair[0].keys() == pair[1].keys():
            return list(pair[0].values()), [pair[1][key] for key in pair[0]]
    if len(pn.args) == len(gn.args) and list(pn.kwargs) == list(gn.kwargs):
        return [*pn.args, *pn.kwargs.values()], [*gn.args, *gn.kwargs.values()]
    if len(pn.args) == len(gn.args) and set(pn.kwargs) == set(gn.kwargs):
        return [*pn.args, *pn.kwargs.values()], [*gn.args, *(gn.kwargs[key] for key in pn.kwargs)]
    return None, None


def _normalized(node: Node) -> dict[str, Any] | None:
    try:
        pair = node.normalized_arguments(
            node.graph.owning_module,
            normalize_to_only_use_kwargs=True,  # type: ignore[arg-type]
        )
    except (RuntimeError, AttributeError, TypeError):
        return None
    return None if pair is None or pair.args else pair.kwargs
