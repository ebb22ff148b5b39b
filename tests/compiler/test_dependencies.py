"""The graph of launches that must keep an order stays closed under edges and merges."""

import random

from flambeau.compiler.schedule.dependencies import Vertex


def _closure(edges: set[tuple[int, int]], count: int) -> list[set[int]]:
    """Per vertex all that come before it, by a search from scratch."""
    before: list[set[int]] = []
    for start in range(count):
        found: set[int] = set()
        stack = [start]
        while stack:
            current = stack.pop()
            for first, second in edges:
                if second == current and first not in found:
                    found.add(first)
                    stack.append(first)
        before.append(found)
    return before


def _merged(edges: set[tuple[int, int]], gone: int, into: int) -> set[tuple[int, int]]:
    renamed = {(into if a == gone else a, into if b == gone else b) for a, b in edges}
    return {(a, b) for a, b in renamed if a != b}


def _check(vertices: dict[int, Vertex], edges: set[tuple[int, int]], count: int) -> None:
    before = _closure(edges, count)
    for number, vertex in vertices.items():
        for other_number, other in vertices.items():
            assert vertex.follows(other) == (other_number in before[number])
            between = any(other_number in before[third] for third in before[number])
            assert vertex.detour(other) == between
        direct = {a for a, b in edges if b == number}
        needed = {a for a in direct if not any(a in before[b] for b in direct)}
        assert {vertex.bit for vertex in vertex.waits_for()} == needed


def test_random_edges_and_merges() -> None:
    """Every answer equals that of a search from scratch."""
    draw = random.Random(0)
    for _ in range(30):
        count = 12
        vertices = {number: Vertex(number) for number in range(count)}
        edges: set[tuple[int, int]] = set()
        for _ in range(25):
            a, b = draw.sample(sorted(vertices), 2)
            first, second = vertices[a], vertices[b]
            if draw.random() < 0.75:
                if not first.follows(second):
                    second.follow((first,))
                    edges.add((a, b))
            elif len(vertices) > 3 and not first.detour(second) and not second.detour(first):
                second.absorb(first)
                edges = _merged(edges, a, b)
                del vertices[a]
            _check(vertices, edges, count)


def test_an_edge_visits_only_what_it_changes() -> None:
    """A chain that grows at its end never looks back, and knows all of itself."""
    chain = [Vertex(number) for number in range(200)]
    for first, second in zip(chain, chain[1:]):
        second.follow((first,))
    assert chain[-1].before == (1 << 199) - 1
    assert chain[-1].waits_for() == [chain[-2]]
    assert all(len(vertex.direct) <= 1 for vertex in chain)
