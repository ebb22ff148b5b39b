"""Which launch must run before which: a graph that grows edge by edge and stays closed.

Every vertex keeps the set of all its predecessors, direct or not, as the bits of one integer, so
that "does a run before b" is one `and`. A new edge visits only the followers whose set it changes.
"""

from __future__ import annotations

from collections.abc import Iterable


class Vertex:
    """What must keep an order.

    Args:
        bit: its number; no two vertices of a graph share one.

    Attributes:
        bits: mask of its number and of those of all vertices that were merged into it.
        before: mask of all that must run earlier.
        direct: the predecessors by edges.
        followers: the vertices whose predecessor it is by an edge.
    """

    __slots__ = ("before", "bit", "bits", "direct", "followers")

    def __init__(self, bit: int) -> None:
        self.bit = bit
        self.bits = 1 << bit
        self.before = 0
        self.direct: dict[Vertex, None] = {}
        self.followers: dict[Vertex, None] = {}

    def follows(self, other: Vertex) -> bool:
        """Whether this must run after another."""
        return self.before & other.bits != 0

    def follow(self, others: Iterable[Vertex]) -> None:
        """Puts this, and all that follow it, behind others, none of which may follow it."""
        mask = 0
        for other in others:
            if other is not self and other not in self.direct:
                self.direct[other] = other.followers[self] = None
                mask |= other.before | other.bits
        self._grow(mask)

    def detour(self, first: Vertex) -> bool:
        """Whether a third must run after `first` and before this."""
        return self.follows(first) and any(
            third is not first and third.follows(first) for third in self.direct
        )

    def absorb(self, other: Vertex) -> None:
        """Merges another vertex into this one; there must be no detour between them."""
        self.bits |= other.bits
        for vertex in (*other.direct, self):
            vertex.followers.pop(other, None)
        for vertex in (*other.followers, self):
            vertex.direct.pop(other, None)
        other.direct.pop(self, None)
        other.followers.pop(self, None)
        for vertex in other.direct:
            self.direct[vertex] = vertex.followers[self] = None
        for vertex in other.followers:
            vertex.direct[self] = self.followers[vertex] = None
        self.before = (self.before | other.before) & ~self.bits
        for vertex in self.followers:
            vertex._grow(self.before | self.bits)
        other.direct, other.followers = {}, {}

    def waits_for(self) -> list[Vertex]:
        """The predecessors by edges that no other of them follows."""
        mask = 0
        for other in self.direct:
            mask |= other.before
        return [other for other in self.direct if not mask & other.bits]

    def _grow(self, mask: int) -> None:
        stack = [self]
        while stack:
            vertex = stack.pop()
            grown = vertex.before | mask
            if grown != vertex.before:
                vertex.before = grown
                stack.extend(vertex.followers)
