"""`CSEPass`: equal calls are made once."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.decompositions import listed  # noqa: F401 - which operators below are found in
from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node
from flambeau.fx.passes.infra.pass_base import PassBase, PassResult
from flambeau.library import aten_schemas, script_operators  # noqa: F401 - as `listed`
from flambeau.utils import _pytree as pytree

_RANDOM = (
    "dropout", "_fused_dropout", "_standard_gamma", "bernoulli", "multinomial", "native_dropout",
    "normal", "poisson", "binomial", "rrelu", "rand_like", "rand", "randint", "randn", "randperm",
)  # fmt: skip
_IN_PLACE = (
    "add_", "sub_", "mul_", "div_", "pow_", "lerp_", "relu_", "sigmoid_", "tanh_",
)  # fmt: skip


def _packets(names: tuple[str, ...]) -> set[Any]:
    space = torch.ops.aten
    return {getattr(space, name) for name in names if hasattr(space, name)}


rand_ops = _packets(_RANDOM)
inplace_ops = _packets(_IN_PLACE)


def get_CSE_banned_ops() -> set[Any]:
    """The operators whose equal calls differ: they draw random numbers, or write."""
    return rand_ops.union(inplace_ops)


class CSEPass(PassBase):
    """Lets the users of a call read an earlier equal one.

    Args:
        banned_ops: operators that are left alone.

    Example:
        >>> from torch.fx.passes.dialect.common.cse_pass import CSEPass
        >>> traced = torch.fx.symbolic_trace(lambda x: torch.relu(x) + torch.relu(x))
        >>> CSEPass()(traced).modified
        True
    """

    def __init__(self, banned_ops: set[Any] | None = None) -> None:
        self.banned_ops = set() if banned_ops is None else banned_ops
        super().__init__()

    def call(self, graph_module: GraphModule) -> PassResult:
        """Makes a module with the shorter graph.

        Args:
            graph_module: the module.
        """
        old, new_graph = graph_module.graph, Graph()
        values: dict[Node, Node] = {}
        calls: dict[Any, Node] = {}
        modified = False
        for node in old.nodes:
            if node.op in ("placeholder", "output", "get_attr", "call_module", "call_method"):
                values[node] = new_graph.node_copy(node, lambda n: values[n])
                continue
            if self._is_banned(node):
                values[node] = new_graph.node_copy(node, lambda n: values[n])
                continue
            key = self._key(node, values)
            if key is not None and key in calls:
                values[node] = calls[key]
                modified = True
                continue
            copied = values[node] = new_graph.node_copy(node, lambda n: values[n])
            if key is not None:
                calls[key] = copied
        return PassResult(GraphModule(graph_module, new_graph), modified)

    def _is_banned(self, node: Node) -> bool:
        packet = getattr(node.target, "overloadpacket", node.target)
        return packet in self.banned_ops or node.is_impure()

    def _key(self, node: Node, values: dict[Node, Node]) -> Any:
        """Returns a key that equal calls share; None if the call cannot be compared."""
        leaves, spec = pytree.tree_flatten((node.args, node.kwargs))
        parts = []
        for leaf in leaves:
            value = values[leaf] if isinstance(leaf, Node) else leaf
            if isinstance(value, slice):
                bounds = (value.start, value.stop, value.step)
                value = ("slice", *(values.get(b, b) if isinstance(b, Node) else b for b in bounds))
            parts.append((type(value), value))
        try:
            key = (node.target, tuple(parts), str(spec))
            hash(key)
        except TypeError:
            return None
        return key
