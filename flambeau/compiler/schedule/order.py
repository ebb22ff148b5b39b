"""The order of launches: one that keeps little memory alive, and stays close to the program's.

Of the launches that could come next, those that free at least as much as they allocate go first
(the gradient of a weight frees the activation it was kept for; the optimizer's update frees that
gradient), then the earliest in the program. What reads nothing waits for its first reader.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection

from flambeau.compiler.schedule.cluster import Cluster
from flambeau.ir.node import ITEM_SIZE, Node
from flambeau.ir.size import estimate

TYPICAL_SIZE = 16  # stands for every symbol: only proportions matter


def in_order(
    clusters: list[Cluster], written: Collection[Node], needed: Collection[Node]
) -> list[Cluster]:
    """A topological order.

    Args:
        clusters: all of them, with all their dependencies.
        written: values that live in memory of the caller.
        needed: values that some cluster reads.
    """
    return _Ordering(clusters, written, needed).run()


class _Ordering:
    def __init__(
        self, clusters: list[Cluster], written: Collection[Node], needed: Collection[Node]
    ) -> None:
        self.clusters = clusters
        self.bytes: dict[Node, int] = {}
        self.readers: dict[Node, set[int]] = {}
        self.by_bit = {c.bit: c for c in clusters}
        for cluster in clusters:
            for value in cluster.members:
                if value in needed and value not in written:
                    self.bytes[value] = _bytes(value)
            for source in cluster.sources:
                self.readers.setdefault(source, set()).add(cluster.bit)
        self.counts: dict[int, int] = {}  # launches that a launch still waits for
        self.followers: dict[int, list[int]] = {c.bit: [] for c in clusters}
        for cluster in clusters:
            direct = cluster.waits_for()
            self.counts[cluster.bit] = len(direct)
            for other in direct:
                self.followers[other.bit].append(cluster.bit)
        self.allocated = {
            c.bit: sum(self.bytes.get(value, 0) for value in c.members) for c in clusters
        }
        self.places = {c.bit: (c.order, 1) for c in clusters}
        for cluster in clusters:
            if not self.counts[cluster.bit]:
                orders = (self.by_bit[bit].order for bit in self.followers[cluster.bit])
                self.places[cluster.bit] = (min(orders, default=cluster.order), 0)

    def _key(self, bit: int) -> tuple[bool, tuple[int, int], int]:
        freed = sum(
            self.bytes.get(source, 0)
            for source in self.by_bit[bit].sources
            if len(self.readers[source]) == 1
        )
        keeps = self.allocated[bit] > freed or not self.by_bit[bit].before
        return keeps, self.places[bit], bit

    def run(self) -> list[Cluster]:
        """Takes the best launch that is ready, again and again."""
        counts = self.counts
        heap = [self._key(bit) for bit, count in counts.items() if count == 0]
        heapq.heapify(heap)
        done: set[int] = set()
        ordered: list[Cluster] = []
        while heap:
            bit = heapq.heappop(heap)[2]
            if bit in done:
                continue
            done.add(bit)
            ordered.append(self.by_bit[bit])
            for follower in self.followers[bit]:
                counts[follower] -= 1
                if counts[follower] == 0:
                    heapq.heappush(heap, self._key(follower))
            for source in self.by_bit[bit].sources:
                left = self.readers[source]
                left.discard(bit)
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
