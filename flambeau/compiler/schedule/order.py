"""The order of launches: one with little live memory, close to the program's order.

Of the launches that could come next, those that free at least as much as they allocate go first
(the gradient of a weight frees the saved activation; the optimizer's update frees that gradient),
then the earliest in the program. A launch that reads nothing is issued before its first reader.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence

from flambeau.compiler.schedule.cluster import Cluster
from flambeau.compiler.schedule.dependencies import Vertices
from flambeau.ir.node import ITEM_SIZE, Node
from flambeau.ir.size import estimate

TYPICAL_SIZE = 16  # the value of every symbol: only proportions matter


def in_order(clusters: Vertices[Cluster], written: Collection[Node]) -> list[Cluster]:
    """A topological order.

    Args:
        clusters: all of them, with all their dependencies.
        written: values that live in memory of the caller.
    """
    return _Ordering(clusters, written).run()


def order_text(clusters: Sequence[Cluster]) -> str:
    """The clusters in order, with the names of their values' operations."""
    lines = [f"cluster {c.number}: {' '.join(v.op for v in c.members)}" for c in clusters]
    return "\n".join(lines) + "\n"


class _Ordering:
    def __init__(self, clusters: Vertices[Cluster], written: Collection[Node]) -> None:
        self.clusters = clusters
        self.bytes: dict[Node, int] = {}
        self.readers: dict[Node, set[int]] = {}
        for cluster in clusters:
            for source in cluster.sources:
                self.readers.setdefault(source, set()).add(cluster.number)
        self.counts: dict[int, int] = {}  # launches that a launch still waits for
        self.followers: dict[int, list[int]] = {c.number: [] for c in clusters}
        self.allocated: dict[int, int] = {}
        for cluster in clusters:
            direct = clusters.waits_for(cluster.number)
            self.counts[cluster.number] = len(direct)
            for other in direct:
                self.followers[other].append(cluster.number)
            stored = [v for v in cluster.members if v in self.readers and v not in written]
            self.bytes.update((value, _bytes(value)) for value in stored)
            self.allocated[cluster.number] = sum(self.bytes[value] for value in stored)
        self.positions = {c.number: (c.order, 1) for c in clusters}
        for cluster in clusters:
            if not self.counts[cluster.number]:
                orders = (clusters[number].order for number in self.followers[cluster.number])
                self.positions[cluster.number] = (min(orders, default=cluster.order), 0)

    def _key(self, number: int) -> tuple[bool, tuple[int, int], int]:
        freed = sum(
            self.bytes.get(source, 0)
            for source in self.clusters[number].sources
            if len(self.readers[source]) == 1
        )
        keeps = self.allocated[number] > freed or not self.clusters[number].before
        return keeps, self.positions[number], number

    def run(self) -> list[Cluster]:
        """Takes the best launch that is ready, again and again."""
        counts = self.counts
        heap = [self._key(number) for number, count in counts.items() if count == 0]
        heapq.heapify(heap)
        done: set[int] = set()
        ordered: list[Cluster] = []
        while heap:
            number = heapq.heappop(heap)[2]
            if number in done:
                continue
            done.add(number)
            ordered.append(self.clusters[number])
            for follower in self.followers[number]:
                counts[follower] -= 1
                if counts[follower] == 0:
                    heapq.heappush(heap, self._key(follower))
            for source in self.clusters[number].sources:
                left = self.readers[source]
                left.discard(number)
                if len(left) == 1:  # its last reader now frees it
                    (last,) = left
                    if counts[last] == 0:
                        heapq.heappush(heap, self._key(last))
        return ordered


def _bytes(value: Node) -> int:
    size = ITEM_SIZE[value.dtype]
    for extent in value.shape:
        size *= estimate(extent, {}, TYPICAL_SIZE)
    return size
