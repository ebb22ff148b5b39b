"""`replace_pattern`: every place that looks like a pattern becomes something else."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import flambeau as torch
from flambeau.fx._compatibility import compatibility
from flambeau.fx._symbolic_trace import symbolic_trace
from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node
from flambeau.ir.lock import late

if TYPE_CHECKING:
    from flambeau.fx.passes.utils.matcher_utils import InternalMatch

__all__ = ["Match", "ReplacedPatterns", "replace_pattern", "replace_pattern_with_filters"]

Filter = Callable[[Any, Graph, Graph], bool]
Pattern = Callable[..., Any] | Graph | GraphModule


@compatibility(is_backward_compatible=True)
class Match(NamedTuple):
    """One place that was replaced.

    Attributes:
        anchor: the node of the pattern where the comparison began.
        nodes_map: nodes of the pattern -> nodes of the graph.
    """

    anchor: Node
    nodes_map: dict[Node, Node]


@compatibility(is_backward_compatible=False)
@dataclass
class ReplacedPatterns:
    """One place that was replaced, with the nodes that are there now.

    Attributes:
        anchor: the node of the pattern where the comparison began.
        nodes_map: nodes of the pattern -> nodes of the graph.
        replacements: the new nodes.
    """

    anchor: Node
    nodes_map: dict[Node, Node]
    replacements: list[Node]


def _replace_attributes(gm: GraphModule, replacement: torch.nn.Module) -> None:
    """Drops submodules that are not used any more, takes over those of the replacement."""
    gm.delete_all_unused_submodules()
    if isinstance(replacement, GraphModule):
        replacement.graph.lint()

    def attribute(module: Any, target: str) -> Any:
        for part in target.split("."):
            module = getattr(module, part, None)
        return module

    for node in gm.graph.nodes:
        if node.op not in ("call_module", "get_attr"):
            continue
        mine, theirs = attribute(gm, node.target), attribute(replacement, node.target)
        if mine is not None:
            continue
        if theirs is None:
            raise RuntimeError(
                f'Attempted to create a "{node.op}" node during subgraph rewriting with target '
                f"{node.target}, but the referenced attribute does not exist in the replacement "
                "GraphModule"
            )
        new = copy.deepcopy(theirs)
        if isinstance(new, torch.nn.Module):
            gm.add_submodule(node.target, new)
        else:
            *prefix, field = node.target.split(".")
            owner: Any = gm
            for part in prefix:
                if not hasattr(owner, part):
                    owner.add_module(part, torch.nn.Module())
                owner = getattr(owner, part)
            setattr(owner, field, new)
    gm.graph.lint()


@compatibility(is_backward_compatible=True)
def replace_pattern(
    gm: GraphModule,
    pattern: Callable[..., Any] | GraphModule,
    replacement: Callable[..., Any] | GraphModule,
) -> list[Match]:
    """Replaces every subgraph that matches a pattern.

    A subgraph matches if it makes the same calls in the same way and nothing else uses its inner
    values. Of overlapping matches the first one is replaced.

    Args:
        gm: the module, which is changed.
        pattern: what to look for.
        replacement: what to put there; it takes and returns the same number of values.

    Returns:
        list: of `Match`.

    Example:
        >>> traced = torch.fx.symbolic_trace(lambda x, y: torch.relu(x + y) * 2)
        >>> matches = torch.fx.replace_pattern(
        ...     traced, lambda a, b: torch.relu(a + b), lambda a, b: torch.tanh(a - b)
        ... )
        >>> print(len(matches), traced.code.strip().splitlines()[1].strip())
        1 sub = x - y;  x = y = None
    """
    replaced = _replace_pattern(gm, pattern, replacement)
    return [Match(anchor=each.anchor, nodes_map=each.nodes_map) for each in replaced]


@compatibility(is_backward_compatible=False)
def replace_pattern_with_filters(
    gm: GraphModule,
    pattern: Pattern,
    replacement: Pattern | None = None,
    match_filters: list[Filter] | None = None,
    ignore_literals: bool = False,
    replacement_callback: Callable[[InternalMatch, Graph, Graph], Graph] | None = None,
    node_name_match: str = "",
) -> list[ReplacedPatterns]:
    """`replace_pattern` with more to say.

    Args:
        gm: the module, which is changed.
        pattern: what to look for.
        replacement: what to put there.
        match_filters: functions of a match, the graph and the pattern; one False: it is left alone.
        ignore_literals: whether numbers and other constants may differ.
        replacement_callback: makes the replacement of each match, as a graph.
        node_name_match: a text; nodes with it in their name fit every node of the pattern.

    Returns:
        list: of `ReplacedPatterns`.
    """
    return _replace_pattern(
        gm, pattern, replacement, match_filters, ignore_literals, replacement_callback,
        node_name_match,
    )  # fmt: skip


def _graph_of(program: Any) -> Graph:
    if isinstance(program, GraphModule):
        return program.graph
    return program if isinstance(program, Graph) else symbolic_trace(program).graph


def _replace_pattern(
    gm: GraphModule,
    pattern: Pattern,
    replacement: Pattern | None = None,
    match_filters: list[Filter] | None = None,
    ignore_literals: bool = False,
    replacement_callback: Callable[[InternalMatch, Graph, Graph], Graph] | None = None,
    node_name_match: str = "",
) -> list[ReplacedPatterns]:
    utils = late("flambeau.fx.passes.utils.matcher_utils")
    original, searched = gm.graph, _graph_of(pattern)
    matcher = utils.SubgraphMatcher(
        searched,
        match_output=False,
        match_placeholder=False,
        remove_overlapping_matches=True,
        ignore_literals=ignore_literals,
    )
    matches = [
        match
        for match in matcher.match(original, node_name_match=node_name_match)
        if all(passes(match, original, searched) for passes in match_filters or ())
    ]
    common = None
    if replacement_callback is None:
        if replacement is None:
            raise AssertionError(
                "Must provide either a replacement GraphModule/callable or a replacement callback"
            )
        common = _graph_of(replacement)
    replaced: list[ReplacedPatterns] = []
    moved: dict[Node, Node] = {}  # values of earlier matches -> their replacements
    for match in matches:
        graph = common if common is not None else replacement_callback(match, original, searched)  # type: ignore[misc]
        replaced.append(_replace_one(original, match, graph, moved))
    gm.recompile()
    module = _module_of(replacement)
    if module is not None:
        _replace_attributes(gm, module)
    return replaced


def _module_of(replacement: Any) -> torch.nn.Module | None:
    return replacement if isinstance(replacement, torch.nn.Module) else None


def _replace_one(
    original: Graph, match: InternalMatch, replacement: Graph, moved: dict[Node, Node]
) -> ReplacedPatterns:
    placeholders = [node for node in replacement.nodes if node.op == "placeholder"]
    if len(match.placeholder_nodes) != len(placeholders):
        raise AssertionError(
            f"Placeholder count mismatch: {len(match.placeholder_nodes)} vs {len(placeholders)}"
        )
    values: dict[Node, Any] = {}
    for new, old in zip(placeholders, match.placeholder_nodes, strict=True):
        values[new] = moved.get(old, old) if isinstance(old, Node) else old
        if values[new] is not old:
            _rename_in_map(match, old, values[new])
    inner = {
        node
        for key, node in match.nodes_map.items()
        if key.op != "placeholder" and isinstance(node, Node)
    }
    with original.inserting_before(_insert_point(match, values, inner)):
        results = original.graph_copy(replacement, values)
    results_list: tuple[Any, ...] = (
        (results,) if isinstance(results, Node) else tuple(results)  # type: ignore[arg-type]
    )
    if len(match.returning_nodes) != len(results_list):
        raise AssertionError(
            f"Returning nodes count mismatch: {len(match.returning_nodes)} vs {len(results_list)}"
        )
    for old, new in zip(match.returning_nodes, results_list, strict=True):
        old.replace_all_uses_with(new)
        moved[old] = new
    for node in reversed(list(match.nodes_map)):
        mapped = match.nodes_map[node]
        if node.op not in ("placeholder", "output") and mapped in inner and not mapped.users:
            inner.discard(mapped)
            original.erase_node(mapped)
    for mapped in sorted(inner, reverse=True):
        if not mapped.users:
            original.erase_node(mapped)
    inputs = set(placeholders)
    new_nodes = [n for key, n in values.items() if key not in inputs and isinstance(n, Node)]
    return ReplacedPatterns(match.anchors[0], match.nodes_map, new_nodes)


def _rename_in_map(match: InternalMatch, old: Node, new: Any) -> None:
    for key, value in match.nodes_map.items():
        if value is old:
            match.nodes_map[key] = new


def _insert_point(match: InternalMatch, values: dict[Node, Any], inner: set[Node]) -> Node:
    """Behind all inputs, in front of everything that uses a result."""
    if not inner:
        raise AssertionError("The insert point can't be None")
    first_user = min(
        (user for node in match.returning_nodes for user in node.users if user not in inner),
        default=None,
    )
    inputs = [value for value in values.values() if isinstance(value, Node)]
    point = min(match.returning_nodes) if first_user is None else first_user
    if any(each >= point for each in inputs):
        point = max(inputs).next
    return point
