"""Helpers of splitters: names of targets, groups that belong together, orders of nodes."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import flambeau as torch
from flambeau.fx import _function_names
from flambeau.fx._compatibility import compatibility
from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node, _get_qualified_name

__all__ = [
    "FxNetAccFusionsFinder",
    "get_acc_ops_name",
    "get_node_target",
    "is_node_output_tensor",
    "legalize_graph",
    "stable_topological_sort",
]

Tensors = Any
TensorOrTensors = Any
NodeList = list[Node]
NodeSet = set[Node]
Names = list[str]
CALLABLE_NODE_OPS = {"call_module", "call_function", "call_method"}


@compatibility(is_backward_compatible=False)
def get_acc_ops_name(k: Any) -> str:
    """A short name of a target.

    Args:
        k: a name, or a function.
    """
    if isinstance(k, str):
        return k
    if k.__module__ and "acc_ops" in k.__module__:
        return f"acc_ops.{k.__name__}"
    if not isinstance(k, type):
        return _get_qualified_name(k)
    return f"{_function_names.upstream(k.__module__)}.{k.__name__}"


@compatibility(is_backward_compatible=False)
def get_node_target(submodules: Mapping[str, torch.nn.Module], node: Node) -> str:
    """The name of what a node calls: a module's type, a function, a method.

    Args:
        submodules: modules by name.
        node: a node that calls something.
    """
    if node.op not in CALLABLE_NODE_OPS:
        raise AssertionError(
            "Expect op types of " + ", ".join(CALLABLE_NODE_OPS) + f", but found {node.op}"
        )
    if node.op == "call_module":
        if not isinstance(node.target, str):
            raise AssertionError(f"Expected node.target to be str, got {type(node.target)}")
        module: Any = submodules[node.target]
        base = getattr(module, "_base_class_origin", type(module))
        return get_acc_ops_name(base)
    if node.op == "call_function":
        target: Any = node.target
        acc = target.__module__ is not None and "acc_ops" in target.__module__
        return f"acc_ops.{target.__name__}" if acc else _get_qualified_name(target)
    return str(node.target)


@compatibility(is_backward_compatible=False)
def is_node_output_tensor(node: Node) -> bool:
    """Whether a node's value is a tensor, by `meta["type"]`.

    Args:
        node: a node that a pass noted the type of.
    """
    kind = node.meta.get("type", None)
    return isinstance(kind, type) and issubclass(kind, torch.Tensor)


@compatibility(is_backward_compatible=False)
class FxNetAccFusionsFinder:
    """Groups of nodes that pass each other what is no tensor, so that no border may part them.

    Args:
        module: the module.
        acc_nodes: the nodes to group.
    """

    @dataclass
    class FusionGroup:
        """Nodes that stay together.

        Attributes:
            top_node_idx: the index of the first of them.
            nodes: all of them.
            inputs: the values that they read from outside.
            nodes_need_process: those whose inputs and users were not looked at.
        """

        top_node_idx: int
        nodes: NodeSet
        inputs: NodeSet
        nodes_need_process: NodeSet

        def add_node(self, node: Node) -> None:
            """Adds a node."""
            if node in self.nodes:
                return
            self.nodes_need_process.add(node)
            self.nodes.add(node)
            self.inputs.discard(node)
            self.inputs.update(
                each
                for each in node.all_input_nodes
                if each.op in CALLABLE_NODE_OPS and each not in self.nodes
            )

    def __init__(self, module: GraphModule, acc_nodes: NodeSet) -> None:
        self.module = module
        self.nodes = list(module.graph.nodes)
        self.acc_nodes = acc_nodes

    def recursive_add_node(
        self,
        fusion_group: FxNetAccFusionsFinder.FusionGroup,
        inputs: NodeSet | NodeList,
        visited: NodeSet | None = None,
    ) -> bool:
        """Adds the nodes on paths from the group back to itself.

        Args:
            fusion_group: the group.
            inputs: where the paths end.
            visited: nodes that were seen.

        Returns:
            bool: whether there was one.
        """
        for node in inputs:
            if visited is not None:
                if node in visited:
                    continue
                visited.add(node)
            if node.op not in CALLABLE_NODE_OPS:
                continue
            if self.nodes.index(node) < fusion_group.top_node_idx:
                continue
            if node in fusion_group.nodes:
                return True
            if self.recursive_add_node(fusion_group, node.all_input_nodes, visited):
                fusion_group.add_node(node)
                return True
        return False

    def __call__(self) -> dict[Node, NodeSet]:
        """Each node of a group -> the group."""
        result: dict[Node, NodeSet] = {}
        for node in list(self.acc_nodes):
            if node in result or node.op not in CALLABLE_NODE_OPS:
                continue
            if "tensor_meta" in node.meta or node not in self.acc_nodes:
                continue
            group = self.FusionGroup(
                self.nodes.index(node), {node}, set(node.all_input_nodes), {node}
            )
            while group.nodes_need_process:
                self._grow(group, group.nodes_need_process.pop())
            if not group.nodes <= self.acc_nodes:
                self.acc_nodes -= group.nodes
            else:
                for each in group.nodes:
                    result[each] = group.nodes
        return result

    def _grow(self, group: FxNetAccFusionsFinder.FusionGroup, node: Node) -> None:
        self.recursive_add_node(group, group.inputs, visited=set())
        if "tensor_meta" not in node.meta:
            for user in node.users:
                if user.op not in CALLABLE_NODE_OPS or user in group.nodes:
                    continue
                group.add_node(user)
                self.recursive_add_node(group, group.inputs, visited=set())
        for argument in node.all_input_nodes:
            if argument.op not in CALLABLE_NODE_OPS or "tensor_meta" in argument.meta:
                continue
            if argument in group.nodes:
                continue
            group.add_node(argument)
            group.top_node_idx = min(group.top_node_idx, self.nodes.index(argument))
            self.recursive_add_node(group, group.inputs, visited=set())


def _sorted_graph(gm: GraphModule, stable: bool) -> GraphModule:
    """Gives a module a graph whose nodes follow their operands."""
    old = list(gm.graph.nodes)
    order = {node: index for index, node in enumerate(old)}
    waiting = {node: len(node.all_input_nodes) for node in old}
    ready = [(0 if stable else order[node], order[node]) for node in old if waiting[node] == 0]
    if stable:
        ready = [(index, index) for _, index in ready]
    heapq.heapify(ready)
    new_graph = Graph(tracer_cls=gm.graph._tracer_cls)
    values: dict[Node, Node] = {}
    step = len(old)
    while ready:
        _, index = heapq.heappop(ready)
        node = old[index]
        values[node] = new_graph.node_copy(node, lambda each: values[each])
        for user in node.users:
            waiting[user] -= 1
            if waiting[user] == 0:
                step += 1
                heapq.heappush(ready, (order[user] if stable else step, order[user]))
    if len(values) < len(old):
        raise RuntimeError(
            f"Input graph has cycles, unable to add {[n for n in old if waiting[n] != 0]}"
        )
    new_graph._codegen = gm.graph._codegen
    gm.graph = new_graph
    return gm


@compatibility(is_backward_compatible=False)
def stable_topological_sort(gm: GraphModule) -> GraphModule:
    """Sorts nodes behind their operands, and changes the order no more than that.

    Args:
        gm: the module, which gets a new graph.
    """
    return _sorted_graph(gm, stable=True)


@compatibility(is_backward_compatible=False)
def legalize_graph(gm: GraphModule) -> GraphModule:
    """Sorts nodes behind their operands, breadth first.

    Args:
        gm: the module, which gets a new graph.

    Raises:
        RuntimeError: nodes read each other in a circle.
    """
    return _sorted_graph(gm, stable=False)
