"""`CapabilityBasedPartitioner`: large groups of nodes that a backend supports."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Sequence

from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node, _get_qualified_name
from flambeau.fx.passes.operator_support import OperatorSupportBase
from flambeau.fx.passes.utils.fuser_utils import fuse_by_partitions


class Partition:
    """A group of nodes.

    Args:
        id: its number.
        nodes: its nodes.
        node_orders: their positions.
    """

    def __init__(
        self,
        id: int | None = None,  # noqa: A002
        nodes: Iterable[Node] | None = None,
        node_orders: Iterable[int] | None = None,
    ) -> None:
        self.id = id
        members = list(nodes or ())
        orders = list(node_orders) if node_orders is not None else [None] * len(members)
        self.nodes: dict[Node, int | None] = dict(zip(members, orders, strict=False))

    def __repr__(self) -> str:
        return str(self.nodes)

    def add_node(self, node: Node, node_order: int | None = None) -> None:
        """Adds a node."""
        self.nodes[node] = node_order

    def remove_node(self, node: Node) -> None:
        """Takes a node away."""
        del self.nodes[node]

    def size(self) -> int:
        """Number of nodes."""
        return len(self.nodes)


class _DependencyViewer:
    """The nodes that depend on each node."""

    def __init__(self, graph_module: GraphModule) -> None:
        self.downstreams: dict[Node, set[Node]] = {}
        for node in reversed(graph_module.graph.nodes):
            reached: set[Node] = set()
            for user in node.users:
                reached.add(user)
                reached |= self.downstreams[user]
            self.downstreams[node] = reached

    def downstreams_of(self, node: Node) -> set[Node]:
        """All nodes that depend on one."""
        return self.downstreams[node]


class CapabilityBasedPartitioner:
    """Groups supported nodes, as many as can run at once.

    Args:
        graph_module: the module.
        operator_support: which nodes are supported.
        allows_single_node_partition: whether a group may be one node.
        non_compute_ops: names of targets that compute nothing, for `remove_bookend_...`.
        allowed_single_node_partition_ops: names of targets that may be alone.
        skip_horizontal_fusion: whether only nodes that read each other are grouped.

    Example:
        >>> from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
        >>> from torch.fx.passes.operator_support import create_op_support
        >>> traced = torch.fx.symbolic_trace(lambda x: torch.relu(x + 1).sum())
        >>> functions = create_op_support(lambda modules, node: node.op == "call_function")
        >>> partitioner = CapabilityBasedPartitioner(traced, functions)
        >>> [sorted(n.name for n in p.nodes) for p in partitioner.propose_partitions()]
        [['add', 'relu']]
    """

    def __init__(
        self,
        graph_module: GraphModule,
        operator_support: OperatorSupportBase,
        allows_single_node_partition: bool = False,
        non_compute_ops: Sequence[str] | None = None,
        allowed_single_node_partition_ops: Sequence[str] | None = None,
        skip_horizontal_fusion: bool = False,
    ) -> None:
        self.graph_module = graph_module
        self.operator_support = operator_support
        self.allows_single_node_partition = allows_single_node_partition
        self.non_compute_ops = non_compute_ops or []
        self.allowed_single_node_partition_ops = allowed_single_node_partition_ops or []
        self.skip_horizontal_fusion = skip_horizontal_fusion
        self.dependency_viewer = _DependencyViewer(graph_module)

    def _is_node_supported(self, node: Node) -> bool:
        modules = dict(self.graph_module.named_modules())
        return self.operator_support.is_node_supported(modules, node)

    def propose_partitions(self) -> list[Partition]:
        """The groups; the graph stays as it is.

        Returns:
            list: of `Partition`, the last ones of the graph first.
        """
        modules = dict(self.graph_module.named_modules())
        groups: dict[int, Partition] = {}
        home: dict[Node, int] = {}
        numbers = itertools.count()
        order = {node: index for index, node in enumerate(self.graph_module.graph.nodes)}
        for node in reversed(self.graph_module.graph.nodes):
            if node.op in ("placeholder", "get_attr", "output"):
                continue
            if not self.operator_support.is_node_supported(modules, node):
                continue
            number = next(numbers)
            groups[number] = Partition(number, [node], [order[node]])
            home[node] = number
            for other in dict.fromkeys(home[user] for user in node.users if user in home):
                self._merge(groups, home, number, other)
            self._join_siblings(groups, home, number)
        self._return_items(groups, home)
        partitions = [group for group in groups.values() if group.size()]
        if not self.allows_single_node_partition:
            partitions = [group for group in partitions if self._is_large(group)]
        return partitions

    def _return_items(self, groups: dict[int, Partition], home: dict[Node, int]) -> None:
        """Items of a tuple go where the tuple is: into its group, or out of all groups."""
        for node in self.graph_module.graph.nodes:
            if not all(user.target is operator.getitem for user in node.users):
                continue
            for user in node.users:
                if home.get(user) == home.get(node):
                    continue
                if user in home:
                    groups[home.pop(user)].remove_node(user)
                if node in home:
                    home[user] = home[node]
                    groups[home[node]].add_node(user)

    def _join_siblings(
        self, groups: dict[int, Partition], home: dict[Node, int], number: int
    ) -> None:
        """Groups that read the same values as this one, unless they are not wanted."""
        if self.skip_horizontal_fusion:
            return
        inputs = [value for node in groups[number].nodes for value in node.all_input_nodes]
        siblings = [home[user] for value in inputs for user in value.users if user in home]
        for other in dict.fromkeys(siblings):
            self._merge(groups, home, number, other)

    def _merge(
        self, groups: dict[int, Partition], home: dict[Node, int], number: int, other: int
    ) -> None:
        """Joins two groups, unless a node between them would then read and be read by them."""
        if other == number:
            return
        members = {**groups[number].nodes, **groups[other].nodes}
        outside = {user for node in members for user in node.users if user not in members}
        for node in outside:
            if not self.dependency_viewer.downstreams_of(node).isdisjoint(members):
                return
        for node in groups[other].nodes:
            home[node] = number
        groups[number].nodes = members
        del groups[other]

    def _is_large(self, group: Partition) -> bool:
        plain = {"torch.ops.aten.view", "_operator.getitem", *self.non_compute_ops}
        count = 0
        for node in group.nodes:
            if node.op != "call_function":
                count += 1
                continue
            name = _get_qualified_name(node.target)  # type: ignore[arg-type]
            if name in self.allowed_single_node_partition_ops:
                return True
            count += name not in plain
        return count > 1

    def fuse_partitions(self, partitions: list[Partition], prefix: str = "fused_") -> GraphModule:
        """Puts groups in submodules.

        Args:
            partitions: the groups.
            prefix: what the names of the submodules begin with.
        """
        return fuse_by_partitions(
            self.graph_module, [group.nodes for group in partitions], prefix=prefix
        )

    def remove_bookend_non_compute_ops(self, partitions: list[Partition]) -> None:
        """Takes nodes that compute nothing from the borders of groups.

        Args:
            partitions: the groups, which are changed.
        """
        plain = set(self.non_compute_ops)

        def is_plain(node: Node) -> bool:
            if node.op != "call_function":
                return False
            return _get_qualified_name(node.target) in plain  # type: ignore[arg-type]

        for group in partitions:
            changed = True
            while changed:
                changed = False
                for node in list(group.nodes):
                    first = not any(each in group.nodes for each in node.all_input_nodes)
                    last = not any(user in group.nodes for user in node.users)
                    if is_plain(node) and (first or last):
                        group.remove_node(node)
                        changed = True

    def partition_and_fuse(self, prefix: str = "fused_") -> GraphModule:
        """`propose_partitions`, then `fuse_partitions`.

        Args:
            prefix: what the names of the submodules begin with.
        """
        return self.fuse_partitions(self.propose_partitions(), prefix=prefix)
