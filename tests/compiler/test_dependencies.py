"""The graph of launches that must keep an order stays closed under edges and merges."""

import random

import pytest

from flambeau.compiler.schedule.dependencies import Vertex, Vertices


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


def _table(count: int) -> Vertices[Vertex]:
    vertices: Vertices[Vertex] = Vertices()
    for number in range(count):
        vertices.put(Vertex(number=number, numbers=1 << number))
    return vertices


def _check(vertices: Vertices[Vertex], edges: set[tuple[int, int]], count: int) -> None:
    before = _closure(edges, count)
    for vertex in vertices:
        for other in vertices:
            assert vertex.follows(other) == (other.number in before[vertex.number])
            between = any(other.number in before[third] for third in before[vertex.number])
            assert vertices.detour(vertex.number, other.number) == between
        direct = {a for a, b in edges if b == vertex.number}
        assert vertex.predecessors == direct
        assert set(vertices.followers(vertex.number)) == {b for a, b in edges if a == vertex.number}
        needed = {a for a in direct if not any(a in before[b] for b in direct)}
        assert set(vertices.waits_for(vertex.number)) == needed


def test_random_edges_and_merges() -> None:
    """Every answer equals that of a search from scratch."""
    draw = random.Random(0)
    for _ in range(30):
        count = 12
        vertices = _table(count)
        edges: set[tuple[int, int]] = set()
        for _ in range(25):
            a, b = draw.sample([vertex.number for vertex in vertices], 2)
            first, second = vertices[a], vertices[b]
            if draw.random() < 0.75:
                if not first.follows(second):
                    vertices.follow(b, (a,))
                    edges.add((a, b))
            elif len(list(vertices)) > 3 and not vertices.detour(a, b) | vertices.detour(b, a):
                vertices.merge(second, a)
                edges = _merged(edges, a, b)
            _check(vertices, edges, count)


def test_vertices_are_values() -> None:
    """An edge leaves the vertices as they were, and puts others in the table."""
    vertices = _table(3)
    first, second = vertices[0], vertices[1]
    vertices.follow(1, (0,))
    assert not second.follows(first) and vertices[1].follows(first)
    assert vertices[0] is first  # an edge changes none that comes before it
    with pytest.raises(AttributeError):
        second.before = 1  # type: ignore[misc]


def test_an_edge_visits_only_what_it_changes() -> None:
    """A chain that grows at its end never looks back, and knows all of itself."""
    vertices = _table(200)
    for number in range(199):
        vertices.follow(number + 1, (number,))
    assert vertices[199].before == (1 << 199) - 1
    assert vertices.waits_for(199) == [198]
    assert all(len(vertex.predecessors) <= 1 for vertex in vertices)
