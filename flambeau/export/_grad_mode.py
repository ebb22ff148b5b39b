"""Parts of exported graphs that run with another gradient mode: `torch.no_grad()` in a model.

A recorded node remembers whether gradients were enabled. Neighbouring nodes that differ from the
mode around the run become one node, `wrap_with_set_grad_enabled`, with a graph of their own.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any

from flambeau._higher_order_ops.operators import wrap_with_set_grad_enabled
from flambeau.fx import Graph, GraphModule
from flambeau.fx.node import Node

__all__ = ["GRAD_MODE", "enclose"]

Value = Any  # a node, or an argument of one
GRAD_MODE = "grad_enabled"  # the entry of `meta` of nodes that are recorded


def enclose(graph: Graph, attributes: dict[str, Value], around: bool) -> None:
    """Gives parts with another gradient mode nodes of their own.

    Args:
        graph: the graph.
        attributes: modules that the graph reads; gets those of the parts.
        around: whether gradients were enabled around the run.
    """
    for number, part in enumerate(list(_parts(graph, around))):
        _enclose(graph, attributes, part, not around, f"submod_{number + 1}")
    for node in graph.nodes:
        node.meta.pop(GRAD_MODE, None)


def _parts(graph: Graph, around: bool) -> Iterator[list[Node]]:
    part: list[Node] = []
    for node in graph.nodes:
        if node.meta.get(GRAD_MODE, around) != around:
            part.append(node)
        elif part:
            yield part
            part = []


def _enclose(
    graph: Graph, attributes: dict[str, Value], part: Sequence[Node], enabled: bool, name: str
) -> None:
    inside = set(part)
    sources = dict.fromkeys(x for node in part for x in node.all_input_nodes if x not in inside)
    results = [node for node in part if any(user not in inside for user in node.users)]
    inner = Graph()
    copies = {source: inner.placeholder(source.name) for source in sources}
    for source, copy in copies.items():
        copy.meta.update(source.meta)
    for node in part:
        copies[node] = inner.node_copy(node, lambda x: copies[x])
        copies[node].meta.pop(GRAD_MODE, None)
    inner.output(tuple([copies[node] for node in results]))
    read = {str(node.target) for node in part if isinstance(node.target, str)}
    attributes[name] = GraphModule({x: attributes[x] for x in read}, inner)
    _replace(graph, part, results, (enabled, name, tuple(sources)))


def _replace(
    graph: Graph, part: Sequence[Node], results: Sequence[Node], call: tuple[bool, str, Value]
) -> None:
    """Puts the call of a part in place of its nodes."""
    enabled, name, sources = call
    inside = set(part)
    stack = _shared([node.meta.get("nn_module_stack", {}) for node in part])
    with graph.inserting_before(part[0]):
        module = graph.create_node("get_attr", name, name=name)
        node = graph.call_function(wrap_with_set_grad_enabled, (enabled, module, *sources))
        node.meta["val"] = tuple([x.meta.get("val") for x in results])
        made = [module, node]
        for number, result in enumerate(results):
            item = graph.call_function(operator.getitem, (node, number))
            item.meta.update({k: v for k, v in result.meta.items() if k != GRAD_MODE})
            made.append(item)
            for user in list(result.users):
                if user not in inside:
                    user.replace_input_with(result, item)
    for each in made:
        each.meta["nn_module_stack"] = stack
    for each in reversed(part):
        graph.erase_node(each)


def _shared(stacks: Sequence[dict[str, Value]]) -> dict[str, Value]:
    """The modules that all nodes of a part have in common."""
    first = list(stacks[0].items())
    count = 0
    while count < len(first) and all(
        list(s.items())[: count + 1] == first[: count + 1] for s in stacks
    ):
        count += 1
    return dict(first[:count])
