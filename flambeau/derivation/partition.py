"""Chooses the values that forward saves for backward: a min-cut of the joint program.

Backward may recompute cheap values (pointwise, shape, reads) from values that cost nothing: inputs,
visible outputs, run-time numbers, constants. A value that must not be computed twice (random draws)
or is expensive (reductions, scans, routines, writes) is saved, itself or through a value computed
from it. The saved values are a min-cut, by bytes, between those and the values that the backward
part reads; of equal ones the one nearest to the backward part, but no permutation. An operand of a
product or another routine is in memory anyway: where it takes more than a few operations, backward
reads it there. With a budget of memory expensive values are computed again, too
(`memory_budget.py`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeVar

from flambeau.derivation.memory_budget import Budget, Forward, choose_within
from flambeau.ir.environment import hint
from flambeau.ir.node import ITEM_SIZE, Node, topological
from flambeau.ir.size import prod
from flambeau.prims.record import record_of

RECOMPUTABLE = frozenset({"create", "pointwise", "shape", "index", "annotation"})
TENSOR_OVERHEAD = 64  # bytes: one more saved tensor is worth avoiding among equals
INFINITE = 1 << 62
READ_COST = 8  # operations (`Primitive.cost`) beyond which reading an element takes less time
T = TypeVar("T")


def recomputable(node: Node) -> bool:
    """Tell whether backward may compute the node again."""
    return record_of(node).kind in RECOMPUTABLE


def saved_bytes(node: Node) -> int:
    """Return the likely size of a value in bytes."""
    return hint(prod(node.shape)) * ITEM_SIZE[node.dtype] + TENSOR_OVERHEAD


def always_there(node: Node) -> bool:
    """Tell whether a node costs nothing in any program."""
    return node.is_scalar or record_of(node).kind == "create"


def repeatable(node: Node) -> bool:
    """Tell whether backward may compute the node again, at whatever cost."""
    return record_of(node).kind not in ("none", "random")


def stored_operands(nodes: Iterable[Node]) -> set[Node]:
    """Return what routines among the nodes read from memory."""
    routines = (node for node in nodes if record_of(node).routine is not None)
    return {_computed(x) for node in routines for x in node.inputs}


def _computed(value: Node) -> Node:
    """The value of which another one is a reshape or a permutation."""
    while (record := record_of(value)).view is not None and record.unview is not None:
        [value] = value.inputs
    return value


def _unmoved(value: Node, free: set[Node]) -> Node:
    """The value to save for one; an input that is not there later has no result of its own."""
    computed = _computed(value)
    return value if computed.is_input and computed not in free else computed


def choose_saved(
    frontier: Sequence[Node],
    free: Iterable[Node],
    budget: Budget | None = None,
    stored: Collection[Node] = (),
) -> list[Node]:
    """Return the values to save, in topological order.

    Args:
        frontier: forward values that the backward part reads.
        free: inputs and visible outputs that backward has anyway. They are not returned, and what
            they depend on is not looked at.
        budget: of the bytes to save; None: as many as save time.
        stored: values that forward writes to memory in any case.
    """
    free = set(free)
    frontier = list(dict.fromkeys(_unmoved(node, free) for node in frontier))
    read = {node for node in frontier if node in stored and _cost(node) > READ_COST}

    def cut(again: Callable[[Node], bool]) -> list[Node]:
        return _cut(frontier, free, again)

    if budget is None or budget.full:
        return cut(lambda node: recomputable(node) and node not in read)

    def operands(node: Node) -> list[Node]:
        return [x for x in node.inputs if x not in free and not always_there(x)]

    size, runtime = _bytes_of, runtime_of(budget)
    forward = Forward(cut, recomputable, repeatable, operands, size, runtime)
    return choose_within(forward, budget)


def _cost(value: Node) -> int:
    """The operations of an element's recomputation from what is saved, as far as they matter."""
    cost, seen, stack = 0, {value}, [value]
    while stack and cost <= READ_COST:
        node = stack.pop()
        if recomputable(node):
            cost += record_of(node).cost if record_of(node).kind == "pointwise" else 0
            stack.extend(x for x in node.inputs if x not in seen)
            seen.update(node.inputs)
    return cost


def _cut(frontier: Sequence[Node], free: set[Node], again: Callable[[Node], bool]) -> list[Node]:
    """Return the values to save, where backward may compute the nodes again that `again` says."""
    network, entries = FlowNetwork(), dict[Node, int]()
    for node in _needed(frontier, free, again):
        entry = network.enter(entries, node, saved_bytes(node))
        if not again(node):
            network.connect(network.SOURCE, entry, INFINITE)
            continue
        for operand in dict.fromkeys(node.inputs):
            if operand in entries:
                network.connect(entries[operand] + 1, entry, INFINITE)
    for node in dict.fromkeys(frontier):
        if node in entries:
            network.connect(entries[node] + 1, network.SINK, INFINITE)
    return network.minimum_cut(entries)


def _bytes_of(node: Node) -> int:
    return saved_bytes(node) - TENSOR_OVERHEAD


def runtime_of(budget: Budget) -> Callable[[Node], float]:
    """Return what estimates how long a node takes.

    "profile" is the same as "flops": nodes run in fused kernels, and cannot be measured alone.
    """
    return (lambda node: 1.0) if budget.estimator == "testing" else operations


def operations(node: Node) -> float:
    """Return the likely number of operations of a node, by its operands' and its own elements."""
    record = record_of(node)
    elements = hint(prod(node.shape))
    if record.routine is None:
        largest = max([elements, *(hint(prod(x.shape)) for x in node.inputs)])
        return float(max(record.cost * largest, 1))
    sizes = [hint(prod(x.shape)) for x in node.inputs[:2]]
    if record.linear == "each" and len(sizes) == 2:  # a product [M, K] x [K, N]: 2 M K N
        return 2 * math.sqrt(float(elements) * sizes[0] * sizes[1])
    return float(max(record.cost * max([elements, *sizes]), 1))


class FlowNetwork:
    """A flow network with an entry and an exit vertex per node; Dinic's algorithm."""

    SOURCE, SINK = -2, -1

    def __init__(self) -> None:
        self.heads: dict[int, list[int]] = {self.SOURCE: [], self.SINK: []}
        self.target, self.capacity = list[int](), list[int]()

    def connect(self, start: int, end: int, capacity: int) -> None:
        """Add an edge and its reverse; the reverse of edge e is e ^ 1."""
        for a, b, c in ((start, end, capacity), (end, start, 0)):
            self.heads.setdefault(a, []).append(len(self.target))
            self.target.append(b)
            self.capacity.append(c)

    def enter(self, entries: dict[T, int], node: T, size: int) -> int:
        """Add a node that holds so many bytes; return its entry, before the exit."""
        entry = entries[node] = 2 * len(entries)
        self.connect(entry, entry + 1, size)
        return entry

    def minimum_cut(self, entries: dict[T, int]) -> list[T]:
        """Return the nodes between source and sink of fewest bytes, the nearest to the sink."""
        self.saturate()
        side = self.sink_side()
        return [n for n, entry in entries.items() if entry not in side and entry + 1 in side]

    def saturate(self) -> None:
        """Push the maximum flow."""
        while True:
            level = self._levels()
            if self.SINK not in level:
                return
            position = dict.fromkeys(level, 0)
            while self._augment(level, position):
                pass

    def _levels(self) -> dict[int, int]:
        level = {self.SOURCE: 0}
        queue = deque([self.SOURCE])
        while queue:
            vertex = queue.popleft()
            for edge in self.heads[vertex]:
                end = self.target[edge]
                if self.capacity[edge] and end not in level:
                    level[end] = level[vertex] + 1
                    queue.append(end)
        return level

    def _augment(self, level: dict[int, int], position: dict[int, int]) -> bool:
        """Push flow along one path of the level graph, found without recursion."""
        path: list[int] = []
        vertex = self.SOURCE
        while vertex != self.SINK:
            edges = self.heads[vertex]
            while position[vertex] < len(edges):
                edge = edges[position[vertex]]
                end = self.target[edge]
                if self.capacity[edge] and level.get(end) == level[vertex] + 1:
                    path.append(edge)
                    vertex = end
                    break
                position[vertex] += 1
            else:
                if not path:
                    return False
                vertex = self.target[path.pop() ^ 1]
                position[vertex] += 1
        flow = min(self.capacity[edge] for edge in path)
        for edge in path:
            self.capacity[edge] -= flow
            self.capacity[edge ^ 1] += flow
        return True

    def sink_side(self) -> set[int]:
        """Return the vertices from which the sink can still be reached."""
        reached = {self.SINK}
        queue = deque([self.SINK])
        while queue:
            vertex = queue.popleft()
            for edge in self.heads[vertex]:
                start = self.target[edge]
                if self.capacity[edge ^ 1] and start not in reached:
                    reached.add(start)
                    queue.append(start)
        return reached


def _needed(
    frontier: Sequence[Node], free: set[Node], again: Callable[[Node], bool]
) -> Iterable[Node]:
    """Yield what must be computed or saved for the frontier, operands first."""
    done: set[Node] = set()
    stack = [(node, False) for node in reversed(frontier)]
    while stack:
        node, expanded = stack.pop()
        if node in done or node in free or always_there(node):
            continue
        if expanded or not again(node):
            done.add(node)
            yield node
            continue
        stack.append((node, True))
        stack.extend((x, False) for x in reversed(node.inputs) if x not in done)


def split(roots: Sequence[Node], seeds: set[Node]) -> list[Node]:
    """Return the frontier of `roots`: what they read that does not depend on `seeds`."""
    dependent = set(seeds)
    frontier: dict[Node, None] = {}
    for node in topological(roots):
        if any(x in dependent for x in node.inputs):
            dependent.add(node)
            frontier.update((x, None) for x in node.inputs if x not in dependent)
    frontier.update((root, None) for root in roots if root not in dependent)
    return list(frontier)
