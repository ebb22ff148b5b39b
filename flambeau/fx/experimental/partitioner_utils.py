"""Parts of a model on several devices: sizes, times, settings."""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

from flambeau.fx.node import Node, map_arg


class Partition:
    """Nodes that run on one device.

    Args:
        partition_id: a number.
    """

    def __init__(self, partition_id: int) -> None:
        self.nodes: set[Node] = set()
        self.partition_id = partition_id
        self.parents: set[Partition] = set()
        self.children: set[Partition] = set()
        self.bfs_level: int = -1
        self.used_mem_bytes: int = 0
        self.logical_device_ids: list[int] = []

    def __str__(self) -> str:
        return str(self.partition_id)

    def recalculate_mem_size(self) -> None:
        """Adds up the bytes of the nodes."""
        self.used_mem_bytes = 0
        for node in self.nodes:
            self.used_mem_bytes += get_extra_size_of(node, self.nodes)

    def add_node(self, node: Node) -> None:
        """Adds a node, with the inputs and attributes that it reads."""
        inputs: dict[Node, None] = {}
        map_arg(node.args, inputs.setdefault)
        map_arg(node.kwargs, inputs.setdefault)
        self.nodes.update(n for n in inputs if n.op in ("placeholder", "get_attr"))
        self.nodes.add(node)
        self.recalculate_mem_size()

    def remove_node(self, node: Node) -> None:
        """Takes a node away, with what only it reads."""
        if node not in self.nodes:
            return
        self.nodes.remove(node)
        for each in node.all_input_nodes:
            alone = all(user not in self.nodes for user in each.users)
            if alone and each.op in ("placeholder", "get_attr"):
                self.nodes.discard(each)
        self.recalculate_mem_size()


class Device(NamedTuple):
    """A device.

    Attributes:
        name: its name.
        available_mem_bytes: its memory.
        logical_id: its number.
    """

    name: str
    available_mem_bytes: int
    logical_id: int


class NodeLatency(NamedTuple):
    """How long a node takes.

    Attributes:
        mem_latency_sec: for its memory.
        computer_latency_sec: for its computation.
    """

    mem_latency_sec: float
    computer_latency_sec: float


class PartitionLatency(NamedTuple):
    """How long a part takes.

    Attributes:
        mem_latency_sec: for its memory.
        computer_latency_sec: for its computation.
        overall_latency_sec: along its longest path.
    """

    mem_latency_sec: float
    computer_latency_sec: float
    overall_latency_sec: float


class PartitionMode(Enum):
    """How parts are chosen."""

    size_based = 0
    sparse_nn = 1
    cost_aware = 2
    kl_based = 3
    aot_based = 4


class PartitionerConfig(NamedTuple):
    """Settings.

    Attributes:
        devices: the devices.
        mode: how parts are chosen.
        transfer_rate_bytes_per_sec: between devices.
        node_to_latency_mapping: how long nodes take.
        node_to_partition_mapping: parts that are chosen already.
        partition_to_logical_device_mapping: devices of parts.
        saturate_host: whether all devices of a host are used.
    """

    devices: list[Device]
    mode: PartitionMode = PartitionMode.size_based
    transfer_rate_bytes_per_sec: float = 0.0
    node_to_latency_mapping: dict[Node, NodeLatency] = {}
    node_to_partition_mapping: dict[Node, int] = {}
    partition_to_logical_device_mapping: dict[int, list[int]] = {}
    saturate_host: bool = False


def get_extra_size_of(node: Node, nodes: set[Node]) -> int:
    """Bytes that a node adds to a set of nodes: its own, and of inputs not in the set.

    Args:
        node: a node with `size_bytes`.
        nodes: the set.
    """
    total = 0
    for each in node.all_input_nodes:
        if each not in nodes:
            total += _bytes(each).output_size
    return total + _bytes(node).total_size


def _bytes(node: Node) -> Any:
    size = getattr(node, "size_bytes", None)
    if size is None:
        raise RuntimeError("node has no size_bytes attr")
    return size


def get_latency_of_one_partition(
    partition: Partition, node_to_latency_mapping: dict[Node, NodeLatency]
) -> PartitionLatency:
    """How long a part takes, along its longest path.

    Args:
        partition: the part.
        node_to_latency_mapping: how long nodes take.
    """
    best: dict[Node, PartitionLatency] = {}
    nodes = sorted(n for n in partition.nodes if n.op not in ("placeholder", "get_attr"))
    for node in nodes:
        before = [best[n] for n in node.all_input_nodes if n in best]
        longest = max(before, key=lambda each: each.overall_latency_sec,
                      default=PartitionLatency(0.0, 0.0, 0.0))  # fmt: skip
        own = node_to_latency_mapping[node]
        best[node] = PartitionLatency(
            longest.mem_latency_sec + own.mem_latency_sec,
            longest.computer_latency_sec + own.computer_latency_sec,
            longest.overall_latency_sec + max(own.mem_latency_sec, own.computer_latency_sec),
        )
    return max(best.values(), key=lambda each: each.overall_latency_sec,
               default=PartitionLatency(0.0, 0.0, 0.0))  # fmt: skip


def get_partition_to_latency_mapping(
    partitions: list[Partition], node_to_latency_mapping: dict[Node, NodeLatency]
) -> dict[Partition, PartitionLatency]:
    """How long each part takes.

    Args:
        partitions: the parts.
        node_to_latency_mapping: how long nodes take.
    """
    return {
        each: get_latency_of_one_partition(each, node_to_latency_mapping) for each in partitions
    }


def get_comm_latency_between(
    parent_partition: Partition, child_partition: Partition, transfer_rate_bytes_per_sec: float
) -> float:
    """How long the values that pass between two parts take.

    Args:
        parent_partition: gives them.
        child_partition: reads them.
        transfer_rate_bytes_per_sec: how fast.
    """
    same = parent_partition.logical_device_ids == child_partition.logical_device_ids
    if parent_partition.logical_device_ids and same:
        return 0.0
    values = {
        each
        for node in child_partition.nodes
        for each in node.all_input_nodes
        if each in parent_partition.nodes and each not in child_partition.nodes
    }
    return sum(_bytes(each).output_size for each in values) / transfer_rate_bytes_per_sec


def get_latency_of_partitioned_graph(
    partitions: list[Partition],
    partition_to_latency_mapping: dict[Partition, PartitionLatency],
    transfer_rate_bytes_per_sec: float,
) -> float:
    """How long all parts take, along the longest path.

    Args:
        partitions: the parts.
        partition_to_latency_mapping: how long each takes.
        transfer_rate_bytes_per_sec: between devices.
    """

    def longest(partition: Partition) -> float:
        own = partition_to_latency_mapping[partition].overall_latency_sec
        following = (
            get_comm_latency_between(partition, child, transfer_rate_bytes_per_sec) + longest(child)
            for child in partition.children
        )
        return own + max(following, default=0.0)

    return max((longest(each) for each in partitions if not each.parents), default=0.0)
