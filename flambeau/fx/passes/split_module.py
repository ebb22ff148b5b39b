"""`split_module`: a module whose parts are submodules; a function names each node's part."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau.fx._compatibility import compatibility
from flambeau.fx._module_attributes import _get_attr
from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node, map_arg

__all__ = ["Partition", "split_module", "split_module_simple"]


@compatibility(is_backward_compatible=True)
class Partition:
    """One part: its nodes, inputs and outputs, and the parts that it depends on.

    Args:
        name: the part's name.
    """

    def __init__(self, name: str) -> None:
        self.name: str = name
        self.submod_name = f"submod_{name}"
        self.node_names: list[str] = []
        self.inputs: dict[str, None] = {}
        self.outputs: dict[str, None] = {}
        self.dependencies: dict[str, None] = {}
        self.dependents: dict[str, None] = {}
        self.graph = Graph()
        self.environment: dict[Node, Node] = {}
        self.targets: dict[str, Any] = {}

    def __repr__(self) -> str:
        return (
            f"name: {self.name},\n nodes: {self.node_names},\n inputs: {self.inputs},\n "
            f"outputs: {self.outputs},\n partitions depended on: {self.dependencies},\n "
            f"partition dependents: {self.dependents}"
        )


class _Splitter:
    """The state of one call of `split_module`."""

    def __init__(self, m: GraphModule, root: Any, affix: str | None, keep_names: bool) -> None:
        self.m, self.root = m, root
        self.affix, self.keep_names = affix, keep_names
        self.partitions: dict[str, Partition] = {}
        self.part_of: dict[Node, str] = {}
        self.nodes = {node.name: node for node in m.graph.nodes}

    def assign(self, split_callback: Callable[[Node], Any]) -> None:
        """Calls the callback on every node that computes something."""
        for node in self.m.graph.nodes:
            if node.op in ("placeholder", "get_attr", "output"):
                continue
            name = str(split_callback(node))
            partition = self.partitions.get(name)
            if partition is None:
                partition = self.partitions[name] = Partition(name)
                if self.affix is not None:
                    partition.submod_name = f"submod_{self.affix}_{name}"
            partition.node_names.append(node.name)
            self.part_of[node] = name

    def connect(self) -> None:
        """Notes which values pass from part to part."""
        for node in self.m.graph.nodes:
            if node.op in ("placeholder", "get_attr"):
                continue
            for value in node.all_input_nodes:
                self._use(value, self.part_of.get(node))

    def _use(self, value: Node, part: str | None) -> None:
        home = self.part_of.get(value)
        if home == part:
            return
        if home is not None:
            self.partitions[home].outputs.setdefault(value.name)
            if part is not None:
                self.partitions[home].dependents.setdefault(part)
        if part is not None:
            self.partitions[part].inputs.setdefault(value.name)
            if home is not None:
                self.partitions[part].dependencies.setdefault(home)

    def order(self) -> list[str]:
        """The parts, each behind those that it needs.

        Raises:
            RuntimeError: parts need each other in a circle.
        """
        ready = [name for name, each in self.partitions.items() if not each.dependencies]
        waiting = {name: len(each.dependencies) for name, each in self.partitions.items()}
        ordered: list[str] = []
        while ready:
            name = ready.pop(0)
            ordered.append(name)
            for dependent in self.partitions[name].dependents:
                waiting[dependent] -= 1
                if waiting[dependent] == 0:
                    ready.append(dependent)
        if len(ordered) != len(self.partitions):
            raise RuntimeError("cycle exists between partitions!")
        return ordered

    def fill(self, qualname_map: dict[str, str] | None, keep_input_names: bool) -> None:
        """Copies the nodes into the graphs of their parts."""
        for partition in self.partitions.values():
            for name in partition.inputs:
                node = self.nodes[name]
                shown = name if keep_input_names else f"arg_{len(partition.environment)}"
                new = partition.graph.placeholder(shown, type_expr=node.type)
                new.meta = node.meta.copy()
                partition.environment[node] = new
        for node in self.m.graph.nodes:
            if node not in self.part_of:
                continue
            partition = self.partitions[self.part_of[node]]
            environment = partition.environment
            target = node.target
            if node.op == "call_module":
                target = str(node.target).replace(".", "_")
                partition.targets[target] = _get_attr(self.m, node.target)
                if qualname_map is not None:
                    qualname_map[f"{partition.submod_name}.{target}"] = node.target
            new = partition.graph.create_node(
                node.op,
                target,
                map_arg(node.args, lambda each, env=environment: env[each]),
                map_arg(node.kwargs, lambda each, env=environment: env[each]),
                node.name if self.keep_names else None,
                node.type,
            )
            new.meta = node.meta.copy()
            environment[node] = new

    def build(self, order: list[str], keep_order: bool) -> GraphModule:
        """The module that calls the parts."""
        graph = Graph(tracer_cls=self.m.graph._tracer_cls)
        values: dict[Node, Node] = {}
        attributes: dict[str, Any] = {}
        for node in self.m.graph.nodes:
            if node.op == "placeholder":
                default = () if not node.args else (node.args[0],)
                values[node] = graph.create_node(
                    "placeholder", node.target, default, name=node.name, type_expr=node.type
                )
                values[node].meta = node.meta.copy()
            elif node.op == "get_attr":
                values[node] = graph.get_attr(node.target)
                values[node].meta = node.meta.copy()
                attributes[node.target] = _get_attr(self.m, node.target)
        if keep_order:
            order = self._original_order(order)
        for name in order:
            self._call(self.partitions[name], graph, values, attributes)
        for node in self.m.graph.nodes:
            if node.op == "output":
                result = map_arg(node.args[0], lambda each: values[each])
                graph.output(result, type_expr=node.type).meta = node.meta.copy()
        return GraphModule(attributes, graph)

    def _original_order(self, order: list[str]) -> list[str]:
        """By the last node of each part, as far as dependencies allow."""
        position = {node.name: index for index, node in enumerate(self.m.graph.nodes)}
        last = {name: position[self.partitions[name].node_names[-1]] for name in order}
        remaining, done = list(order), []
        while remaining:
            ready = [
                name for name in remaining if set(self.partitions[name].dependencies) <= set(done)
            ]
            chosen = min(ready, key=lambda name: last[name])
            remaining.remove(chosen)
            done.append(chosen)
        return done

    def _call(
        self, partition: Partition, graph: Graph, values: dict[Node, Node], attributes: Any
    ) -> None:
        outputs = [self.nodes[name] for name in partition.outputs]
        inner = tuple(partition.environment[node] for node in outputs)
        if inner:
            partition.graph.output(inner[0] if len(inner) == 1 else inner)
        attributes[partition.submod_name] = GraphModule(partition.targets, partition.graph)
        arguments = tuple(values[self.nodes[name]] for name in partition.inputs)
        call = graph.call_module(partition.submod_name, arguments)
        if len(outputs) > 1:
            for index, node in enumerate(outputs):
                values[node] = graph.call_function(operator.getitem, (call, index))
                values[node].meta = node.meta.copy()
        elif outputs:
            values[outputs[0]] = call
            call.meta = {**outputs[0].meta}


@compatibility(is_backward_compatible=True)
def split_module(
    m: GraphModule,
    root_m: torch.nn.Module,
    split_callback: Callable[[Node], int],
    qualname_map: dict[str, str] | None = None,
    keep_original_order: bool | None = False,
    keep_original_node_name: bool | None = False,
    keep_original_input_name: bool = True,
    *,
    partition_affix: str | None = None,
    tuple_return: bool = False,
) -> GraphModule:
    """A module that calls submodules, each of which runs some of the nodes.

    Args:
        m: the module.
        root_m: the module that it was traced from; not used.
        split_callback: node -> the part's name or number.
        qualname_map: filled with names of modules in the parts -> their names before.
        keep_original_order: whether parts are called in the order of their nodes.
        keep_original_node_name: whether nodes have their original names.
        keep_original_input_name: whether inputs of parts have the names of the values.
        partition_affix: a text in the names of the parts.
        tuple_return: whether parts with one result return a tuple.

    Returns:
        GraphModule: with submodules `submod_0` and so on.

    Example:
        >>> from torch.fx.passes.split_module import split_module
        >>> traced = torch.fx.symbolic_trace(lambda x: torch.relu(x + 1))
        >>> parts = split_module(traced, None, lambda node: node.name == "relu")
        >>> [name for name, _ in parts.named_children()]
        ['submod_False', 'submod_True']
    """
    splitter = _Splitter(m, root_m, partition_affix, bool(keep_original_node_name))
    splitter.assign(split_callback)
    splitter.connect()
    order = splitter.order()
    splitter.fill(qualname_map, keep_original_input_name)
    if tuple_return:
        return _with_tuples(splitter, order, bool(keep_original_order))
    return splitter.build(order, bool(keep_original_order))


def _with_tuples(splitter: _Splitter, order: list[str], keep_order: bool) -> GraphModule:
    """`build`, and a tuple around the single results of parts."""
    module = splitter.build(order, keep_order)
    for node in list(module.graph.nodes):
        if node.op != "call_module":
            continue
        part = getattr(module, node.target)
        output = part.graph.output_node()
        if isinstance(output.args[0], tuple):
            continue
        output.args = ((output.args[0],),)
        part.recompile()
        with module.graph.inserting_after(node):
            item = module.graph.call_function(operator.getitem, (node, 0))
        node.replace_all_uses_with(item, lambda user, item=item: user is not item)
    module.recompile()
    return module


@compatibility(is_backward_compatible=False)
def split_module_simple(
    m: GraphModule, node_to_partition: dict[Node, int], *, partition_affix: str | None = None
) -> GraphModule:
    """`split_module` by a table.

    Args:
        m: the module.
        node_to_partition: the part of each node.
        partition_affix: a text in the names of the parts.
    """
    return split_module(m, m, lambda node: node_to_partition[node], partition_affix=partition_affix)
