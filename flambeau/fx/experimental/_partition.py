"""From a joint graph to a forward and a backward graph, and what the one leaves for the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from operator import getitem

import flambeau as torch
from flambeau.derivation.memory_budget import Budget, Forward, choose_within
from flambeau.derivation.partition import INFINITE, TENSOR_OVERHEAD, FlowNetwork
from flambeau.fx import Graph, GraphModule
from flambeau.fx._function_names import draws_random_numbers
from flambeau.fx.experimental._operator_trace import Value
from flambeau.fx.node import Node
from flambeau.ir.failure import failure
from flambeau.ops import aten
from flambeau.runtime import config_modules
from flambeau.utils import _pytree as pytree
from flambeau.utils.flop_counter import FlopCounterMode

__all__ = ["default_partition", "min_cut_rematerialization_partition"]

BACKWARD = "is_backward"  # of `node.meta["partitioner_tag"]`: it ran after the results were there


def default_partition(
    joint_module: GraphModule,
    _joint_inputs: Value,
    *,
    num_fwd_outputs: int,
    static_lifetime_input_indices: Value = None,
    static_lifetime_input_nodes: Value = None,
) -> tuple[GraphModule, GraphModule]:
    """Splits where the forward ended: all that ran before stays there, and is not run again.

    Args:
        joint_module: takes `primals_*` and `tangents_*`, gives results and gradients.
        num_fwd_outputs: how many of its outputs are results.
        static_lifetime_input_indices, static_lifetime_input_nodes: as in PyTorch, without effect.

    Returns:
        a module of the primals that gives results and saved values, and one of the saved values
        and tangents that gives gradients.
    """
    joint = _Joint(joint_module, num_fwd_outputs)
    return joint.split(joint.read, ())


def min_cut_rematerialization_partition(
    joint_module: GraphModule,
    _joint_inputs: Value,
    compiler: str = "inductor",
    *,
    num_fwd_outputs: int,
    static_lifetime_input_indices: Value = None,
) -> tuple[GraphModule, GraphModule]:
    """Splits so that the fewest bytes are saved: cheap operators run again in the backward.

    Pointwise operators, views, casts and constants are cheap; reductions, products, random draws
    and what writes are run once. The saved values are those of fewest bytes between what is run
    once, or is an input, and what the gradients read; of equal ones the nearest to the gradients.
    `torch._functorch.config.activation_memory_budget` below 1 has expensive operators run again,
    too; inputs then count nothing. `node.meta["memory_budget"]` of a node comes before it.

    Args:
        joint_module, num_fwd_outputs: see `default_partition`.
        compiler: in PyTorch, whose fusions are assumed; without effect.
        static_lifetime_input_indices: as in PyTorch, without effect.

    Returns:
        as `default_partition`.
    """
    joint = _Joint(joint_module, num_fwd_outputs)
    saved = _cheapest(joint)
    return joint.split(saved, _again(joint, set(saved)))


class _Joint:
    """A joint graph and its sides.

    Attributes:
        results, gradients: its outputs.
        primals, tangents: its inputs.
        early, late: nodes of the forward and of the backward, in order.
        read: nodes of the forward that the backward reads.
    """

    def __init__(self, module: GraphModule, count: int) -> None:
        self.module, graph = module, module.graph
        graph.eliminate_dead_code()
        outputs = list(_output(graph).args[0])
        self.results, self.gradients = outputs[:count], outputs[count:]
        inputs = [node for node in graph.nodes if node.op == "placeholder"]
        self.tangents = [node for node in inputs if _is_tangent(node)]
        self.primals = [node for node in inputs if not _is_tangent(node)]
        self.early = [node for node in graph.nodes if _is_early(node)]
        members = set(self.early)
        self.late = [n for n in graph.nodes if n.op != "output" and n not in members]
        late = set(self.late) | {n for n in self.gradients if isinstance(n, Node)}
        self.read = [
            node
            for node in self.early
            if node.op != "get_attr" and (node in late or not late.isdisjoint(node.users))
        ]

    def split(
        self, saved: Sequence[Node], again: Sequence[Node]
    ) -> tuple[GraphModule, GraphModule]:
        """The two modules, of which the second runs `again` before its own nodes."""
        forward = _extracted(self.module, self.primals, [*self.results, *saved], self.early)
        inputs = [*saved, *self.tangents]
        backward = _extracted(self.module, inputs, self.gradients, [*again, *self.late])
        return forward, backward


_SAME_DATA = frozenset({"alias", "detach"})  # views that are no public operators


def _operator(node: Node) -> Value:
    """The operator of a node that may run again with the same result, or None."""
    if node.op != "call_function":
        return None
    if node.target is getitem:
        return _operator(node.args[0])
    packet = getattr(node.target, "overloadpacket", None)
    if packet is None or packet.__name__.endswith("_") or draws_random_numbers(node.target):
        return None
    return packet


def _repeatable(node: Node) -> bool:
    """Whether the backward may run a node of the forward again, at whatever cost."""
    return _operator(node) is not None


def _runs_again(node: Node) -> bool:
    """Whether the backward runs a node of the forward again where that saves memory."""
    packet = _operator(node)
    if packet is None:
        return False
    definition = aten.definition_of(packet._function)
    if definition is None:
        return packet.__name__ in _SAME_DATA
    options = definition.overloads[0].options
    return bool(options.is_pointwise or options.view)


def _cheapest(joint: _Joint) -> list[Node]:
    """The values to save, by bytes, within the budget."""
    budget = _budget(joint)
    if budget.full:
        return _cut(joint, _runs_again, _bytes)

    def cut(again: Callable[[Node], bool]) -> list[Node]:
        return _cut(joint, again, _weight)

    forward = Forward(
        cut,
        _runs_again,
        _repeatable,
        lambda node: node.all_input_nodes,
        lambda node: max(_weight(node) - TENSOR_OVERHEAD, 0),
        _runtime_of(str(budget.estimator)),
    )
    return choose_within(forward, budget)


def _cut(joint: _Joint, again: Callable[[Node], bool], weight: Callable[[Node], int]) -> list[Node]:
    """The values to save, where the backward may run the nodes again that `again` says."""
    network, entries = FlowNetwork(), dict[Node, int]()
    for node in joint.early:
        if node.op == "get_attr":
            continue
        entry = network.enter(entries, node, weight(node))
        if not again(node):
            network.connect(network.SOURCE, entry, INFINITE)
            continue
        for operand in node.all_input_nodes:
            if operand in entries:
                network.connect(entries[operand] + 1, entry, INFINITE)
    for node in joint.read:
        network.connect(entries[node] + 1, network.SINK, INFINITE)
    return network.minimum_cut(entries)


def _again(joint: _Joint, saved: set[Node]) -> list[Node]:
    """Nodes of the forward that the backward runs, in order."""
    needed: set[Node] = set()
    stack = [node for node in joint.read if node not in saved]
    while stack:
        node = stack.pop()
        if node not in needed and node.op == "call_function":
            needed.add(node)
            stack += [x for x in node.all_input_nodes if x not in saved]
    return [node for node in joint.early if node in needed]


def _bytes(node: Node) -> int:
    """The size of a node's value; several values are not saved as one."""
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        return int(value.numel() * value.element_size()) + TENSOR_OVERHEAD
    return INFINITE if isinstance(value, (tuple, list)) else 1


def _weight(node: Node) -> int:
    """The bytes that saving a node's value takes: an input is there anyway."""
    return TENSOR_OVERHEAD if node.op == "placeholder" else _bytes(node)


_SETTINGS = "torch._functorch.config"


def _budget(joint: _Joint) -> Budget:
    """The budget of the settings, or of the first node that has one.

    Raises:
        RuntimeError: a node's budget is not between 0 and 1.
    """
    names = ("", "_runtime_estimator", "_solver")
    settings = [config_modules.value(_SETTINGS, f"activation_memory_budget{n}") for n in names]
    of_nodes = [node.meta.get("memory_budget") for node in joint.module.graph.nodes]
    fraction = next((each for each in of_nodes if isinstance(each, float)), settings[0])
    return Budget(fraction, *settings[1:]).checked()


def _runtime_of(estimator: str) -> Callable[[Node], float]:
    """The function that estimates how long a node takes: by operations, measured, or 1."""
    return {"testing": lambda node: 1.0, "profile": _measured, "flops": _flops}[estimator]


def _called(node: Node, value_of: Callable[[Value], Value]) -> Value:
    """The result of a node's operator on stand-ins for its operands."""
    args, kwargs = pytree.tree_map(
        lambda x: value_of(x.meta["val"]) if isinstance(x, Node) else x, (node.args, node.kwargs)
    )
    return node.target(*args, **kwargs)


def _flops(node: Node) -> float:
    if node.op != "call_function" or node.target is getitem:
        return 1.0
    with FlopCounterMode(display=False) as counter:
        _called(node, _on_meta)
    return float(max(counter.get_total_flops(), 1))


def _measured(node: Node) -> float:
    """The shortest of a few runs, in seconds."""
    if node.op != "call_function" or node.target is getitem:
        return 0.0
    times = []
    for _ in range(_RUNS):
        start = time.perf_counter()
        _called(node, _ones)
        times.append(time.perf_counter() - start)
    return min(times)


_RUNS = 3


def _on_meta(value: Value) -> Value:
    return value.to("meta") if isinstance(value, torch.Tensor) else value


def _ones(value: Value) -> Value:
    if not isinstance(value, torch.Tensor):
        return value
    return torch.ones(value.shape, dtype=value.dtype, device=value.device)


def _output(graph: Graph) -> Node:
    return next(iter(reversed(graph.nodes)))


def _is_tangent(node: Node) -> bool:
    return node.op == "placeholder" and str(node.target).startswith("tangents")


def _is_early(node: Node) -> bool:
    """Whether a node belongs to the forward."""
    tag = node.meta.get("partitioner_tag")
    return node.op != "output" and not _is_tangent(node) and tag != BACKWARD


def _extracted(
    module: GraphModule, inputs: Sequence[Node], outputs: Sequence[Value], members: Sequence[Node]
) -> GraphModule:
    """The module of some nodes of a graph."""
    graph = Graph()
    copies: dict[Node, Node] = {}
    for node in inputs:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta = dict(node.meta)

    def copied(node: Node) -> Node:
        if node not in copies:
            if node.op != "get_attr":
                problem = f"{node.name} is read on the wrong side of the partition"
                hint = "save it, or run it there"
                raise failure(RuntimeError, "partition", problem, hint)
            copies[node] = graph.node_copy(node, copied)
        return copies[node]

    for node in members:
        if node.op not in ("placeholder", "get_attr"):
            copies[node] = graph.node_copy(node, copied)
    values = tuple([copied(x) if isinstance(x, Node) else x for x in outputs])
    graph.output(values)
    graph.eliminate_dead_code()
    return GraphModule(module, graph)
