"""The order of launches: vertices are values, and a table holds the present ones.

Every vertex has the set of all its predecessors, direct or not, as the bits of one integer, so that
"does a run before b" is one `and`. An edge or a merge puts new vertices in the table in place of
those whose predecessors it changes; it visits no others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Generic, TypeVar


@dataclass(frozen=True, eq=False, kw_only=True)
class Vertex:
    """One launch among others.

    Attributes:
        number: no two vertices of a table share one.
        numbers: bits of its number and of those of all vertices that were merged into it.
        before: bits of the numbers of all its predecessors.
        predecessors: numbers of those by edges.
    """

    number: int
    numbers: int
    before: int = 0
    predecessors: frozenset[int] = frozenset()

    def follows(self, other: Vertex) -> bool:
        """Whether this must run after another."""
        return self.before & other.numbers != 0


V = TypeVar("V", bound=Vertex)


class Vertices(Generic[V]):
    """The present vertices of a graph by number; its edges have no cycle."""

    def __init__(self) -> None:
        self._present: dict[int, V] = {}
        self._followers: dict[int, set[int]] = {}

    def __getitem__(self, number: int) -> V:
        return self._present[number]

    def __contains__(self, number: int) -> bool:
        return number in self._present

    def __iter__(self) -> Iterator[V]:
        """The vertices in order of their numbers."""
        return iter([self._present[number] for number in sorted(self._present)])

    def put(self, vertex: V) -> None:
        """Adds a vertex, or puts it in place of the one of its number, edges unchanged."""
        self._present[vertex.number] = vertex

    def followers(self, number: int) -> tuple[int, ...]:
        """The vertices whose predecessor this is by an edge."""
        return tuple(self._followers.get(number, ()))

    def follow(self, number: int, others: Iterable[int]) -> None:
        """Puts a vertex, and all that follow it, behind others, none of which may follow it."""
        vertex = self._present[number]
        added = set(others) - vertex.predecessors - {number}
        if not added:
            return
        before = 0
        for other in added:
            earlier = self._present[other]
            before |= earlier.before | earlier.numbers
            self._followers.setdefault(other, set()).add(number)
        self._present[number] = replace(vertex, predecessors=vertex.predecessors | added)
        self._grow([number], before)

    def detour(self, later: int, earlier: int) -> bool:
        """Whether a third must run after `earlier` and before `later`."""
        first, last = self._present[earlier], self._present[later]
        return last.follows(first) and any(
            self._present[third].follows(first) for third in last.predecessors if third != earlier
        )

    def merge(self, vertex: V, other: int) -> None:
        """Puts a vertex in place of itself and another; there must be no detour between them."""
        number, gone = vertex.number, self._present.pop(other)
        followers = self._followers.setdefault(number, set())
        followers |= self._followers.pop(other, set())
        followers -= {number, other}
        predecessors = (vertex.predecessors | gone.predecessors) - {number, other}
        for earlier in predecessors:
            self._followers[earlier].discard(other)
            self._followers[earlier].add(number)
        numbers = vertex.numbers | gone.numbers
        before = (vertex.before | gone.before) & ~numbers
        self._present[number] = replace(
            vertex, numbers=numbers, before=before, predecessors=predecessors
        )
        for follower in followers:
            later = self._present[follower]
            if other in later.predecessors:
                renamed = later.predecessors - {other} | {number}
                self._present[follower] = replace(later, predecessors=renamed)
        self._grow(followers, before | numbers)

    def waits_for(self, number: int) -> list[int]:
        """The predecessors by edges that no other of them follows."""
        predecessors = [self._present[other] for other in self._present[number].predecessors]
        before = 0
        for other in predecessors:
            before |= other.before
        return [other.number for other in predecessors if not before & other.numbers]

    def _grow(self, numbers: Iterable[int], before: int) -> None:
        stack = list(numbers)
        while stack:
            vertex = self._present[stack.pop()]
            grown = vertex.before | before
            if grown != vertex.before:
                self._present[vertex.number] = replace(vertex, before=grown)
                stack.extend(self._followers.get(vertex.number, ()))
