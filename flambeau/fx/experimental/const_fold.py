"""Nodes that depend on parameters alone, computed once."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau.fx import Graph, GraphModule, Node, symbolic_trace

__all__ = ["FoldedGraphModule", "get_unique_attr_name_in_module", "split_const_subgraphs"]

_PREFIX = "_FX_CONST_FOLDED_ATTRS"


class FoldedGraphModule(GraphModule):
    """A module whose constant part runs once, at the first call or in `run_folding`.

    Args:
        root: see `GraphModule`.
        graph: the rest of the graph, which reads the folded values.
        const_subgraph: the constant part.
        fx_const_folded_attrs_name: the attribute that holds its values.
        device_for_folded_attrs: where they are.
    """

    def __init__(
        self,
        root: torch.nn.Module,
        graph: Graph,
        const_subgraph: Graph | None = None,
        fx_const_folded_attrs_name: str | None = None,
        device_for_folded_attrs: str = "cuda",
    ) -> None:
        super().__init__(root, graph)
        self.const_subgraph_module = (
            None if const_subgraph is None else GraphModule(root, const_subgraph)
        )
        self.has_folding_been_run = False
        self.fx_const_folded_attrs_name = fx_const_folded_attrs_name
        self.device_for_folded_attrs = device_for_folded_attrs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the rest, after the constant part."""
        if not self.has_folding_been_run:
            self.run_folding()
        return super().__call__(*args, **kwargs)

    def run_folding(self) -> None:
        """Computes the constant part."""
        if self.const_subgraph_module is None or self.fx_const_folded_attrs_name is None:
            return
        if self.has_folding_been_run:
            raise AssertionError("Folding has already been run")
        self.has_folding_been_run = True
        values = self.const_subgraph_module()

        def parameter(value: Any) -> Any:
            if isinstance(value, torch.nn.Parameter):
                return value
            grad = value.requires_grad if isinstance(value, torch.Tensor) else False
            return torch.nn.Parameter(value.detach(), requires_grad=grad)

        if isinstance(values, tuple):
            folded: Any = torch.nn.ParameterList(map(parameter, values))
        else:
            folded = parameter(values)
        setattr(self, self.fx_const_folded_attrs_name, folded)


def get_unique_attr_name_in_module(mod_traced: GraphModule, name: str) -> str:
    """A name that a module has no attribute of.

    Args:
        mod_traced: the module.
        name: the preferred name.
    """
    name = re.sub("[^0-9a-zA-Z_]+", "_", name)
    if name[0].isdigit():
        name = f"_{name}"
    while hasattr(mod_traced, name):
        match = re.match(r"(.*)_(\d+)$", name)
        name = f"{name}_1" if match is None else f"{match[1]}_{int(match[2]) + 1}"
    return name


def _constant_nodes(module: GraphModule, skip: Callable[[Node], bool] | None) -> set[Node]:
    """Nodes that read parameters and constants alone, and draw no random numbers."""
    constant: set[Node] = set()
    for node in module.graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        if node.op != "get_attr" and not set(node.all_input_nodes) <= constant:
            continue
        if skip is not None and skip(node):
            continue
        if node.is_impure():
            continue
        constant.add(node)
    return constant


def _folded_values(graph: Graph, name: str, results: list[Node]) -> dict[Node, Node]:
    """Reads the folded values from their attribute: one, or the items of a list."""
    holder = graph.get_attr(name)
    if len(results) == 1:
        holder.meta = results[0].meta.copy()
        return {results[0]: holder}
    items = {}
    for index, node in enumerate(results):
        items[node] = graph.call_function(operator.getitem, (holder, index))
        items[node].meta = node.meta.copy()
    return items


def split_const_subgraphs(
    module: torch.nn.Module | GraphModule,
    skip_folding_node_fn: Callable[[Node], bool] | None = None,
    device_for_folded_attrs: str = "cpu",
) -> FoldedGraphModule:
    """Splits off the nodes that depend on parameters alone.

    Args:
        module: the module.
        skip_folding_node_fn: says which nodes stay where they are.
        device_for_folded_attrs: where the values are.

    Returns:
        FoldedGraphModule: computes the same; the constant part once.

    Example:
        >>> from torch.fx.experimental.const_fold import split_const_subgraphs
        >>> class Scaled(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.scale = nn.Parameter(torch.ones(2))
        ...     def forward(self, x):
        ...         return x * (self.scale + 1)
        >>> folded = split_const_subgraphs(Scaled())
        >>> folded(torch.ones(2)), "scale" in folded.code
        (tensor([2., 2.], grad_fn=<MulBackward0>), False)
    """
    traced = module if isinstance(module, GraphModule) else symbolic_trace(module)
    constant = _constant_nodes(traced, skip_folding_node_fn)
    computed = [node for node in traced.graph.nodes if node in constant and node.op != "get_attr"]
    if not computed:
        return FoldedGraphModule(
            traced, traced.graph, device_for_folded_attrs=device_for_folded_attrs
        )
    results = [n for n in computed if any(user not in constant for user in n.users)]
    const_graph = Graph()
    values: dict[Node, Node] = {}
    for node in traced.graph.nodes:
        if node in constant:
            values[node] = const_graph.node_copy(node, lambda n: values[n])
    outputs = tuple(values[node] for node in results)
    const_graph.output(outputs[0] if len(outputs) == 1 else outputs)
    name = get_unique_attr_name_in_module(traced, _PREFIX)
    graph = Graph(tracer_cls=traced.graph._tracer_cls)
    copies: dict[Node, Node] = {}
    holder = torch.nn.Module()
    for key, value in vars(traced).items():
        if key in ("_parameters", "_buffers", "_modules", "training"):
            holder.__dict__[key] = dict(value) if isinstance(value, dict) else value
    for node in traced.graph.nodes:
        if node in results and node not in copies:
            copies.update(_folded_values(graph, name, results))
        elif node in results:
            continue
        elif node not in constant or any(user not in constant for user in node.users):
            copies[node] = graph.node_copy(node, lambda n: copies[n])
    graph._codegen = traced.graph._codegen
    single = len(results) == 1
    empty = torch.nn.Parameter(torch.randn(1)) if single else torch.nn.ParameterList()
    setattr(holder, name, empty)
    return FoldedGraphModule(holder, graph, const_graph, name, device_for_folded_attrs)
