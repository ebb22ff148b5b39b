"""Graphs for pattern matching: traces of examples, insertion of replacements, order of nodes."""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import flambeau as torch
from flambeau._functorch.aot_autograd import joint_graph
from flambeau._inductor.decomposition import select_decomp_table
from flambeau.fx import Graph, GraphModule, Interpreter, Node
from flambeau.fx.experimental._operator_trace import Function, Value
from flambeau.fx.experimental._partition import BACKWARD
from flambeau.fx.experimental.proxy_tensor import make_fx
from flambeau.fx.graph import CodeGen
from flambeau.fx.immutable_collections import immutable_list
from flambeau.utils import _pytree as pytree

if TYPE_CHECKING:
    from flambeau._inductor.pattern_expressions import Match

__all__ = [
    "compute_mutation_region_ids", "fwd_only", "get_mutation_region_id", "insert_module",
    "is_mutation_op", "joint_fwd_bwd", "remove_noop_ops", "same_mutation_regions",
    "stable_topological_sort",
]  # fmt: skip

TAG = "partitioner_tag"
REGION = "mutation_region_id"

# ------------------------------------------------------------------------------- traces


def fwd_only(
    fn: Function,
    args: Sequence[Value],
    *,
    run_functional_passes: bool = True,
    get_decomp_fn: Callable[[], Value] | None = None,
) -> GraphModule:
    """Traces a function without gradients.

    Args:
        fn: a function of tensors and numbers.
        args: its arguments, real or fake.
        run_functional_passes: whether operators without effect are removed.
        get_decomp_fn: gives the decompositions; by default those of `torch.compile`.
    """
    table = (get_decomp_fn or select_decomp_table)()
    with torch.no_grad():
        module = make_fx(fn, table, tracing_mode="fake")(*args)
    if run_functional_passes:
        remove_noop_ops(module.graph)
    return _flat(module)


def joint_fwd_bwd(
    fn: Function, args: Sequence[Value], *, get_decomp_fn: Callable[[], Value] | None = None
) -> GraphModule:
    """Traces a function and its backward.

    The module takes the arguments, then a tangent per differentiable result; it gives the results,
    then a gradient or None per argument.

    Args:
        fn: a function of tensors and numbers.
        args: its arguments; those that require a gradient have one.
        get_decomp_fn: gives the decompositions; by default those of `torch.compile`.
    """
    with torch.enable_grad():
        module = joint_graph(fn, args, (get_decomp_fn or select_decomp_table)())
    remove_noop_ops(module.graph)
    return _flat(module)


def _flat(module: GraphModule) -> GraphModule:
    """A module without containers in its signature, and without unused nodes."""
    module.graph.set_codegen(CodeGen())
    module.graph.eliminate_dead_code()
    module.recompile()
    return module


# ------------------------------------------------------------------------------- no effect

_SAME_DATA = frozenset({"alias", "detach", "clone"})
_SAME_SHAPE = frozenset({"view", "reshape", "_unsafe_view", "expand"})


def remove_noop_ops(graph: Graph) -> None:
    """Removes copies and views that are equal to their operand: `alias`, `detach`, `clone` in the
    same layout, `view` and `expand` to the same shape.

    A graph that writes to a tensor stays as it is, and so do results that would be inputs.

    Args:
        graph: of operators, with `meta["val"]`.
    """
    if any(map(is_mutation_op, graph.nodes)):
        return
    for node in list(graph.nodes):
        if node.op != "call_function" or not _is_noop(node):
            continue
        operand = node.args[0]
        if operand.op != "placeholder" or not any(user.op == "output" for user in node.users):
            node.replace_all_uses_with(operand)
            graph.erase_node(node)


def _is_noop(node: Node) -> bool:
    packet = getattr(node.target, "overloadpacket", None)
    name = getattr(packet, "__name__", "")
    operand = node.args[0] if node.args else None
    if not isinstance(operand, Node) or name not in _SAME_DATA | _SAME_SHAPE:
        return False
    before, after = operand.meta.get("val"), node.meta.get("val")
    if not isinstance(before, torch.Tensor) or not isinstance(after, torch.Tensor):
        return False
    return before.shape == after.shape and before.stride() == after.stride()


# ------------------------------------------------------------------------------- order


def stable_topological_sort(graph: Graph) -> None:
    """Orders nodes so that each comes after those that it reads; others stay as they are.

    Args:
        graph: whose nodes may be out of order.

    Raises:
        AssertionError: nodes read each other in a circle.
    """
    nodes = list(graph.nodes)
    numbers = {node: number for number, node in enumerate(nodes)}
    waiting = {node: len(node.all_input_nodes) for node in nodes}
    ready = [number for number, node in enumerate(nodes) if not waiting[node]]
    order: list[Node] = []
    while ready:
        node = nodes[heapq.heappop(ready)]
        order.append(node)
        for user in node.users:
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, numbers[user])
    if len(order) != len(nodes):
        raise AssertionError("the graph has a circle: nodes read each other")
    if order != nodes:
        for before, node in zip(order, order[1:]):
            before.append(node)


# ------------------------------------------------------------------------------- writes

_STATEFUL = re.compile(r"(^|_)(set|enter|exit|seed)(_|$)")


def is_mutation_op(node: Node) -> bool:
    """Whether a node writes to an operand, or changes a mode or a seed."""
    if node.op not in ("call_function", "call_method"):
        return False
    target = node.target
    if getattr(target, "namespace", None) == "aten":  # whose operators are named by what they do
        name = target.overloadpacket.__name__ if hasattr(target, "overloadpacket") else str(target)
        return node.kwargs.get("out") is not None or name.endswith("_") and name[-2:] != "__"
    if node.is_impure(impure_random=False):
        return True
    name = target if isinstance(target, str) else str(getattr(target, "__name__", ""))
    return _STATEFUL.search(name) is not None


def compute_mutation_region_ids(graph: Graph) -> None:
    """Numbers the regions between nodes that write, in `meta["mutation_region_id"]`."""
    region = 0
    for node in graph.nodes:
        region += is_mutation_op(node)
        node.meta[REGION] = region


def get_mutation_region_id(graph: Graph, node: Node) -> int:
    """The number of a node's region; of a new node, counted from an earlier one.

    Args:
        graph: the graph.
        node: one of its nodes.
    """
    unnumbered: list[Node] = []
    current = node
    while REGION not in current.meta and current.op != "root":
        unnumbered.append(current)
        current = current.prev
    region = int(current.meta.get(REGION, 0))
    for each in reversed(unnumbered):
        region += is_mutation_op(each)
        each.meta[REGION] = region
    return region


def same_mutation_regions(a: Node, b: Node) -> bool:
    """Whether no node between two nodes writes."""
    return get_mutation_region_id(a.graph, a) == get_mutation_region_id(b.graph, b)


# ------------------------------------------------------------------------------- replacement


class _Insertion(Interpreter):
    """Copies a module's nodes into a graph, at its insertion point."""

    def __init__(self, module: GraphModule, graph: Graph) -> None:
        super().__init__(module)
        self.target_graph = graph
        self.nodes: list[Node] = []

    def run_node(self, n: Node) -> Value:
        """The node or constant of a node of the module."""
        if n.op in ("placeholder", "output"):
            return super().run_node(n)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        target = self._attribute(n) if n.op in ("get_attr", "call_module") else n.target
        node = self.target_graph.create_node(n.op, target, args, kwargs)
        node.meta = {key: value for key, value in n.meta.items() if key != REGION}
        self.nodes.append(node)
        return node

    def _attribute(self, node: Node) -> str:
        """The name of a member of the module in the module that owns the graph."""
        value: object = self.module
        for part in str(node.target).split("."):
            value = getattr(value, part)
        owner = self.target_graph.owning_module
        assert owner is not None, "a replacement with members goes into a module's graph"
        name = base = "_replacement_" + str(node.target).replace(".", "_")
        number = 0
        while hasattr(owner, name) and getattr(owner, name) is not value:
            number += 1
            name = f"{base}_{number}"
        setattr(owner, name, value)
        return name


def insert_module(match: Match, module: GraphModule, args: Sequence[Value]) -> None:
    """Replaces a match by a module's graph, in front of the match's first result.

    Args:
        match: the match, whose unused nodes are erased.
        module: gives one value per result of the pattern.
        args: of the module: nodes and constants.
    """
    graph, outputs = match.graph, match.output_nodes()
    first = min(node for node in outputs if node is not None)
    inputs = sum(node.op == "placeholder" for node in module.graph.nodes)
    if len(args) != inputs:
        args = pytree.tree_leaves(list(args))
    insertion = _Insertion(module, graph)
    with graph.inserting_before(first):
        results = insertion.run(*args, enable_io_processing=False)
    listed = list(results) if isinstance(results, (tuple, list)) else [results]
    if len(listed) != len(outputs) and len(outputs) == 1:
        listed = [immutable_list(listed)]
    if len(listed) != len(outputs):
        raise AssertionError(
            f"the replacement gives {len(listed)} values, the pattern {len(outputs)}"
        )
    _tag_backward(insertion.nodes, outputs, listed)
    for old, new in zip(outputs, listed, strict=True):
        if old is None:
            continue
        if isinstance(new, Node):
            for key, value in old.meta.items():
                new.meta.setdefault(key, value)
        old.replace_all_uses_with(new)
    match.erase_nodes()
    operands = [node for node in pytree.tree_leaves(list(args)) if isinstance(node, Node)]
    if insertion.nodes and any(node > insertion.nodes[0] for node in operands):
        stable_topological_sort(graph)


def _tag_backward(
    inserted: Iterable[Node], outputs: Sequence[Node | None], results: Sequence[Value]
) -> None:
    """Marks new nodes that only results of the backward read as the backward's."""
    nodes, early = set(inserted), set[Node]()
    stack = [
        new
        for old, new in zip(outputs, results, strict=True)
        if old is not None and isinstance(new, Node) and old.meta.get(TAG) != BACKWARD
    ]
    while stack:
        node = stack.pop()
        if node in nodes and node not in early:
            early.add(node)
            stack += node.all_input_nodes
    for node in nodes:
        if node in early:
            node.meta.pop(TAG, None)
        else:
            node.meta[TAG] = BACKWARD
