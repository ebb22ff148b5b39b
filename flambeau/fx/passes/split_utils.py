"""`split_by_tags`: a module split into submodules by the `tag` of each node."""

from __future__ import annotations

import copy
import operator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flambeau.fx._compatibility import compatibility
from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node, map_arg
from flambeau.fx.passes.tools_common import CALLABLE_NODE_OPS, is_node_output_tensor
from flambeau.fx.passes.utils.common import HolderModule, lift_subgraph_as_module

if TYPE_CHECKING:
    from flambeau.fx.passes.splitter_base import Subgraph

__all__ = [
    "Component",
    "getattr_recursive",
    "move_non_tensor_nodes_on_boundary",
    "setattr_recursive",
    "split_by_tags",
]


@compatibility(is_backward_compatible=False)
def getattr_recursive(obj: object, name: str) -> Any:
    """An attribute by its dotted name; None if it does not exist."""
    for part in name.split("."):
        if not hasattr(obj, part):
            return None
        obj = getattr(obj, part)
    return obj


@compatibility(is_backward_compatible=False)
def setattr_recursive(obj: object, attr: str, value: object) -> None:
    """Sets an attribute by its dotted name."""
    *prefix, last = attr.split(".")
    for part in prefix:
        obj = getattr(obj, part)
    setattr(obj, last, value)


@compatibility(is_backward_compatible=False)
@dataclass
class Component:
    """One part while it is made.

    Attributes:
        graph: its nodes.
        order: its number.
        name: its tag.
        input_placeholders: its inputs.
        orig_inputs: the same values in the original graph.
        orig_outputs: its results in the whole graph.
        getattr_maps: reads of attributes in the whole graph -> in the part.
        constructor_args: not used.
        gm: the module that it becomes.
    """

    graph: Graph
    order: int
    name: str
    input_placeholders: list[Node] = field(default_factory=list)
    orig_inputs: list[Node] = field(default_factory=list)
    orig_outputs: list[Node] = field(default_factory=list)
    getattr_maps: dict[Node, Node] = field(default_factory=dict)
    constructor_args: list[str] = field(default_factory=list)
    gm: GraphModule | None = None


class _Parts:
    """The state of one call of `split_by_tags`."""

    def __init__(self, gm: GraphModule, tags: list[str]) -> None:
        self.gm = gm
        self.all = [Component(Graph(), index, tag) for index, tag in enumerate(tags)]
        self.by_tag = dict(zip(tags, self.all, strict=True))
        self.home: dict[Node, Component] = {}
        self.inner: dict[Node, Node] = {}  # node of the whole -> node of its part
        self.main = Graph()
        self.main_values: dict[Node, Node] = {}

    def add(self, node: Node) -> None:
        """Copies one node into its part."""
        tag = getattr(node, "tag", None)
        if tag is None:
            raise AssertionError(f"Node {node} does not have tag")
        part = self.by_tag[tag]
        upstream = [self.home[x] for x in node.all_input_nodes if x in self.home]
        latest = max((each.order for each in upstream), default=0)
        if part.order < latest:
            raise AssertionError(
                f"Component {part.name} order must be >= max of its upstream components, order="
                f"{part.order} and max={latest}"
            )
        self.home[node] = part

        def take(value: Node) -> Node:
            if value.op == "get_attr":
                if value not in part.getattr_maps:
                    copied = part.graph.get_attr(value.target, type_expr=value.type)
                    part.getattr_maps[value] = copied
                return part.getattr_maps[value]
            if self.home.get(value) is part:
                return self.inner[value]
            if value not in part.orig_inputs:
                new = part.graph.placeholder(value.name, type_expr=value.type)
                new.meta = copy.copy(value.meta)
                part.orig_inputs.append(value)
                part.input_placeholders.append(new)
            return part.input_placeholders[part.orig_inputs.index(value)]

        self.inner[node] = part.graph.node_copy(node, take)

    def mark_outputs(self) -> None:
        """Finds the values that are read outside their part, or returned."""
        for part in self.all:
            for value in part.orig_inputs:
                if value in self.home:
                    self._give(value)
        for value in self.gm.graph.output_node().all_input_nodes:
            if value in self.home:
                self._give(value)

    def _give(self, value: Node) -> None:
        outputs = self.home[value].orig_outputs
        if value not in outputs:
            outputs.append(value)

    def call(self, part: Component, kind: type, always_tuple: bool) -> dict[str, str]:
        """Makes the part's module, and its call in the whole."""
        results = tuple(self.inner[node] for node in part.orig_outputs)
        single = len(results) == 1 and not always_tuple
        part.graph.output(results[0] if single else results)
        part.gm, names = lift_subgraph_as_module(
            self.gm, subgraph=part.graph, comp_name=part.name, class_name=kind.__name__
        )
        call = self.main.call_module(
            part.name, tuple(self.main_values[node] for node in part.orig_inputs)
        )
        if single:
            self.main_values[part.orig_outputs[0]] = call
        else:
            for index, node in enumerate(part.orig_outputs):
                self.main_values[node] = self.main.call_function(operator.getitem, (call, index))
        return names


@compatibility(is_backward_compatible=False)
def split_by_tags(
    gm: GraphModule,
    tags: list[str],
    return_fqn_mapping: bool = False,
    return_tuple: bool = False,
    GraphModuleCls: type[GraphModule] = GraphModule,
) -> Any:
    """A module that calls one submodule for each tag.

    Args:
        gm: the module; each node that computes something has an attribute `tag`.
        tags: all tags in the order in which the parts run.
        return_fqn_mapping: whether names of submodules are returned as well.
        return_tuple: whether parts with one result return a tuple.
        GraphModuleCls: the class of the result.

    Returns:
        GraphModule: or a pair with names in the parts -> names before.
    """
    parts = _Parts(gm, tags)
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            new = parts.main.placeholder(node.name, type_expr=node.type)
            new.meta = copy.copy(node.meta)
            parts.main_values[node] = new
        elif node.op not in ("get_attr", "output"):
            parts.add(node)
    parts.mark_outputs()
    names: dict[str, str] = {}
    for part in parts.all:
        names.update(parts.call(part, GraphModule, return_tuple))
    holder = {part.name: part.gm for part in parts.all}
    for node in gm.graph.nodes:
        if node.op == "output":
            for value in node.all_input_nodes:
                if value.op == "get_attr":
                    parts.main_values[value] = parts.main.get_attr(value.name)
                    holder[value.name] = getattr_recursive(gm, value.target)
            result = map_arg(node.args[0], lambda each: parts.main_values[each])
            parts.main.output(result).meta = copy.copy(node.meta)
    tensors = {name: value for name, value in holder.items() if not isinstance(value, GraphModule)}
    root = HolderModule({name: m for name, m in holder.items() if name not in tensors})
    for name, value in tensors.items():
        setattr(root, name, value)
    split = GraphModuleCls(root, parts.main)
    return (split, names) if return_fqn_mapping else split


@compatibility(is_backward_compatible=False)
def move_non_tensor_nodes_on_boundary(subgraphs: list[Subgraph]) -> None:
    """Moves nodes whose value is no tensor to the part that uses them.

    Args:
        subgraphs: the parts, which are changed.
    """
    home = {node: part for part in subgraphs for node in part.nodes}
    for part in subgraphs:
        for node in reversed(list(part.nodes)):
            users = [user for user in node.users if user.op in CALLABLE_NODE_OPS]
            homes = {id(home.get(user)) for user in users}
            if node.op not in CALLABLE_NODE_OPS or is_node_output_tensor(node) or not users:
                continue
            target = home.get(users[0])
            if len(homes) == 1 and target is not None and target is not part:
                part.nodes.remove(node)
                target.nodes.insert(0, node)
                home[node] = target
