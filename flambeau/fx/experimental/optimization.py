"""Modules made ready for inference: folded batch norms, no dropout."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import flambeau as torch
from flambeau.fx import Graph, GraphModule, Node, Tracer, Transformer, symbolic_trace
from flambeau.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

__all__ = [
    "MklSubgraph",
    "UnionFind",
    "extract_subgraph",
    "fuse",
    "gen_mkl_autotuner",
    "matches_module_pattern",
    "modules_to_mkldnn",
    "optimize_for_inference",
    "remove_dropout",
    "replace_node_module",
    "reset_modules",
    "use_mkl_length",
]

nn = torch.nn


def _parent_name(target: str) -> tuple[str, str]:
    """("a.b", "c") of "a.b.c"."""
    parent, _, name = target.rpartition(".")
    return parent, name


def matches_module_pattern(
    pattern: Iterable[type], node: Node, modules: dict[str, torch.nn.Module]
) -> bool:
    """Whether a node and its operand call modules of two types.

    Args:
        pattern: the types: of the first module, and of the one that reads it.
        node: the second call.
        modules: modules by name.
    """
    if len(node.args) == 0:
        return False
    for kind, each in zip(pattern, (node.args[0], node), strict=False):
        if not isinstance(each, Node) or each.op != "call_module":
            return False
        if not isinstance(each.target, str) or type(modules.get(each.target)) is not kind:
            return False
    return True


def replace_node_module(
    node: Node, modules: dict[str, torch.nn.Module], new_module: torch.nn.Module
) -> None:
    """Puts another module where a node calls one.

    Args:
        node: the call.
        modules: modules by name, in which it is replaced as well.
        new_module: the module.
    """
    if not isinstance(node.target, str):
        raise AssertionError(f"Expected node.target to be str, got {type(node.target)}")
    parent, name = _parent_name(node.target)
    modules[node.target] = new_module
    setattr(modules[parent], name, new_module)


def fuse(model: torch.nn.Module, inplace: bool = False, no_trace: bool = False) -> torch.nn.Module:
    """Folds batch norms into the convolutions and linear layers in front of them.

    Args:
        model: a module in evaluation mode.
        inplace: whether it is changed; else a copy.
        no_trace: whether it is a `GraphModule` already, whose graph is used.

    Returns:
        GraphModule: computes the same, up to rounding.

    Example:
        >>> from torch.fx.experimental.optimization import fuse
        >>> model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)).eval()
        >>> [type(module).__name__ for module in fuse(model).children()]
        ['Conv2d']
    """
    patterns = [
        (nn.Conv1d, nn.BatchNorm1d), (nn.Conv2d, nn.BatchNorm2d), (nn.Conv3d, nn.BatchNorm3d),
        (nn.Linear, nn.BatchNorm1d),
    ]  # fmt: skip
    if not inplace:
        model = copy.deepcopy(model)
    traced = model if no_trace and isinstance(model, GraphModule) else symbolic_trace(model)
    modules = dict(traced.named_modules())
    graph = copy.deepcopy(traced.graph)
    for pattern in patterns:
        for node in graph.nodes:
            if not matches_module_pattern(pattern, node, modules):
                continue
            if len(node.args[0].users) > 1:  # the layer's own result is read elsewhere
                continue
            layer, norm = modules[node.args[0].target], modules[node.target]
            if not norm.track_running_stats:
                continue
            fold: Any = fuse_linear_bn_eval if pattern[0] is nn.Linear else fuse_conv_bn_eval
            replace_node_module(node.args[0], modules, fold(layer, norm))
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
    return GraphModule(traced, graph)


def remove_dropout(model: torch.nn.Module) -> torch.nn.Module:
    """A module without its dropout layers.

    Args:
        model: the module.
    """

    class DropoutRemover(Transformer):
        """Passes on what dropout would read."""

        def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if isinstance(self.submodules[target], nn.Dropout):
                if len(args) != 1:
                    raise AssertionError(f"Expected 1 arg for Dropout, got {len(args)}")
                return args[0]
            return super().call_module(target, args, kwargs)

    return DropoutRemover(symbolic_trace(model)).transform()


def extract_subgraph(
    orig_module: torch.nn.Module, nodes: list[Node], inputs: list[Node], outputs: list[Node]
) -> GraphModule:
    """Some nodes as a module of their own.

    Args:
        orig_module: has the submodules that they call.
        nodes: the nodes, in order.
        inputs: the values that they read from outside.
        outputs: those whose values are returned.
    """
    graph = Graph()
    values: dict[Node, Node] = {}
    for node in inputs:
        values[node] = graph.placeholder(node.name)
    for node in nodes:
        values[node] = graph.node_copy(node, lambda n: values[n])
    graph.output([values[node] for node in outputs])
    graph.lint()
    return GraphModule(orig_module, graph)


def modules_to_mkldnn(
    nodes: list[Node], modules: dict[str, torch.nn.Module]
) -> dict[torch.nn.Module, torch.nn.Module]:
    """In PyTorch: converts modules to another layout. Here kernels choose theirs: none is.

    Args:
        nodes: calls of modules.
        modules: modules by name.

    Returns:
        dict: new module -> old module: empty.
    """
    return {}


def reset_modules(
    nodes: Iterable[Node],
    modules: dict[str, torch.nn.Module],
    old_modules: dict[torch.nn.Module, torch.nn.Module],
) -> None:
    """Puts modules back that `modules_to_mkldnn` replaced.

    Args:
        nodes: calls of modules.
        modules: modules by name.
        old_modules: what that function returned.
    """
    for node in nodes:
        if node.op == "call_module" and modules[str(node.target)] in old_modules:
            replace_node_module(node, modules, old_modules[modules[str(node.target)]])


class MklSubgraph:
    """Nodes of a graph that PyTorch would run in another layout.

    Args:
        fx_graph: the graph.
    """

    def __init__(self, fx_graph: Graph) -> None:
        self.fx_graph = fx_graph
        self.nodes: list[Node] = []
        self.start_nodes: list[Node] = []
        self.end_nodes: list[Node] = []


def gen_mkl_autotuner(
    example_inputs: list[torch.Tensor], iters: int = 10, warmup: int = 1
) -> Callable[[MklSubgraph], bool]:
    """A judge of such nodes: here they run as they are.

    Args:
        example_inputs: inputs.
        iters: how often PyTorch would measure.
        warmup: how often it would run before.
    """
    return lambda graph: False


def use_mkl_length(graph: MklSubgraph) -> bool:
    """Whether there are more than two such nodes."""
    return len(graph.nodes) > 2


class UnionFind:
    """Sets that are joined.

    Args:
        n: number of elements.
    """

    def __init__(self, n: int) -> None:
        self.parent: list[int | None] = [None] * n
        self.size: list[int] = [0] * n

    def make_set(self, v: int) -> None:
        """A set of one element."""
        self.parent[v] = v
        self.size[v] = 1

    def find(self, v: int) -> int:
        """The representative of an element's set."""
        parent = self.parent[v]
        if parent is None:
            raise AssertionError(f"Element {v} is in no set")
        while parent != self.parent[parent]:
            parent = self.parent[parent]  # type: ignore[index,assignment]
        self.parent[v] = parent
        return parent

    def join(self, a: int, b: int) -> int | None:
        """Joins the sets of two elements; returns the representative of both."""
        a, b = self.find(a), self.find(b)
        if a == b:
            return a
        if self.size[a] < self.size[b]:
            a, b = b, a
        self.parent[b] = a
        self.size[a] += self.size[b]
        return a


def optimize_for_inference(
    model: torch.nn.Module,
    pass_config: dict[str, Any] | None = None,
    tracer: type[Tracer] = Tracer,
) -> torch.nn.Module:
    """A module ready for inference: folded batch norms, no dropout.

    Layouts are chosen when kernels are compiled, so that the pass "mkldnn_layout_optimize" of
    PyTorch has nothing to do here.

    Args:
        model: a module in evaluation mode.
        pass_config: pass -> whether it runs, or its options.
        tracer: traces the module.
    """
    config: dict[str, Any] = {
        "conv_bn_fuse": True, "remove_dropout": True, "mkldnn_layout_optimize": True,
        **(pass_config or {}),
    }  # fmt: skip
    if config["conv_bn_fuse"]:
        model = fuse(model)
    if config["remove_dropout"]:
        model = remove_dropout(model)
    current = tracer()
    graph = current.trace(copy.deepcopy(model))
    return GraphModule(current.root, graph)
