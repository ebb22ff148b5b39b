"""Graphs, dynamic programming, puzzles."""

import heapq
from collections import defaultdict, deque
from functools import cache

import flambeau as torch
from tests.capture.corpus.cases import case, family, t

SMALL = {"a": {"b": 1, "c": 4}, "b": {"c": 2, "d": 5}, "c": {"d": 1}, "d": {}}
RING = {i: {(i + 1) % 5: i + 1} for i in range(5)}
LOOSE = {"a": {"b": 2}, "b": {}, "c": {"a": -1}}
GRAPHS = {"small": [(SMALL, "a"), (SMALL, "d"), (SMALL, "zz")], "ring": [(RING, 0), (RING, 3)],
          "loose": [(LOOSE, "c"), (LOOSE, "b")]}  # fmt: skip


@family(**GRAPHS)
def breadth_first(graph, start):
    order, queue, seen = [], deque([start]), {start}
    while queue:
        node = queue.popleft()
        order.append(node)
        for neighbour in graph[node]:
            if neighbour not in seen:
                seen.add(neighbour)
                queue.append(neighbour)
    return order


@family(**GRAPHS)
def depth_first(graph, start):
    seen = []

    def visit(node):
        if node not in seen:
            seen.append(node)
            for neighbour in graph[node]:
                visit(neighbour)

    visit(start)
    return seen


@family(**GRAPHS)
def shortest(graph, start):
    distances, queue = {start: 0}, [(0, start)]
    while queue:
        distance, node = heapq.heappop(queue)
        if distance > distances[node]:
            continue
        for neighbour, weight in graph[node].items():
            through = distance + weight
            if through < distances.get(neighbour, float("inf")):
                distances[neighbour] = through
                heapq.heappush(queue, (through, neighbour))
    return distances


@family(**GRAPHS)
def bellman_ford(graph, start):
    distances = dict.fromkeys(graph, float("inf"))
    distances[start] = 0
    for _ in range(len(graph) - 1):
        for node, edges in graph.items():
            for neighbour, weight in edges.items():
                distances[neighbour] = min(distances[neighbour], distances[node] + weight)
    for node, edges in graph.items():
        if any(distances[node] + w < distances[n] for n, w in edges.items()):
            raise ValueError("a negative cycle")
    return distances


@family(**GRAPHS)
def topological(graph, start):
    incoming = {node: 0 for node in graph}
    for edges in graph.values():
        for node in edges:
            incoming[node] += 1
    ready = [node for node, count in incoming.items() if count == 0]
    order = []
    while ready:
        node = ready.pop()
        order.append(node)
        for neighbour in graph[node]:
            incoming[neighbour] -= 1
            if incoming[neighbour] == 0:
                ready.append(neighbour)
    return order if len(order) == len(graph) else f"a cycle from {start}"


@family(**GRAPHS)
def paths(graph, start):
    def walk(path):
        yield tuple(path)
        for neighbour in graph[path[-1]]:
            if neighbour not in path:
                yield from walk([*path, neighbour])

    return list(walk([start]))


@family(**GRAPHS)
def spanning_tree(graph, start):
    parents = {node: node for node in graph}

    def root(node):
        while parents[node] != node:
            node = parents[node]
        return node

    edges = sorted((w, str(a), str(b), a, b) for a in graph for b, w in graph[a].items())
    tree = []
    for weight, _, _, a, b in edges:
        if root(a) != root(b):
            parents[root(a)] = root(b)
            tree.append((a, b, weight))
    return tree, sum(weight for _, _, weight in tree)


@family(**GRAPHS)
def components(graph, start):
    index, stack, result, numbers, low = [0], [], [], {}, {}

    def visit(node):
        numbers[node] = low[node] = index[0]
        index[0] += 1
        stack.append(node)
        for neighbour in graph[node]:
            if neighbour not in numbers:
                visit(neighbour)
                low[node] = min(low[node], low[neighbour])
            elif neighbour in stack:
                low[node] = min(low[node], numbers[neighbour])
        if low[node] == numbers[node]:
            component = []
            while True:
                component.append(stack.pop())
                if component[-1] == node:
                    break
            result.append(sorted(component))

    visit(start)
    return result


@case((t(4, 4).abs(),), (t(2, 2).abs(),), (t(2, 3),))
def floyd_warshall(distances):
    for k in range(distances.shape[0]):
        through = distances[:, k : k + 1] + distances[k : k + 1, :]
        distances = torch.minimum(distances, through)
    return distances


@case((t(3, 3).abs(), 4), (t(3, 3).abs(), 0), (t(2, 2).abs(), -1))
def page_rank(links, rounds):
    links = links / links.sum(0, keepdim=True)
    rank = torch.full((links.shape[0],), 1.0 / links.shape[0])
    if rounds < 0:
        raise ValueError(rounds)
    for _ in range(rounds):
        rank = 0.85 * (links @ rank) + 0.15 / len(rank)
    return rank


@case(([[1, 1, 0], [0, 1, 0], [1, 0, 1]],), ([[0]],), ([],))
def islands(grid):
    grid = [row[:] for row in grid]

    def sink(i, j):
        if 0 <= i < len(grid) and 0 <= j < len(grid[0]) and grid[i][j]:
            grid[i][j] = 0
            return 1 + sum(sink(i + a, j + b) for a, b in ((0, 1), (1, 0), (0, -1), (-1, 0)))
        return 0

    return [size for i in range(len(grid)) for j in range(len(grid[0])) if (size := sink(i, j))]


@case((["..#", ".#.", "..."],), (["#"],), (["S"],))
def maze(rows):
    frontier, steps = {(0, 0)}, {(0, 0): 0}
    while frontier:
        following = set()
        for i, j in frontier:
            for a, b in ((i + 1, j), (i, j + 1), (i - 1, j), (i, j - 1)):
                inside = 0 <= a < len(rows) and 0 <= b < len(rows[0])
                if inside and rows[a][b] == "." and (a, b) not in steps:
                    steps[a, b] = steps[i, j] + 1
                    following.add((a, b))
        frontier = following
    return sorted(steps.items())


@case((4,), (1,), (3,), (0,))
def queens(n):
    def place(columns):
        row = len(columns)
        if row == n:
            yield tuple(columns)
            return
        for column in range(n):
            if all(column != c and abs(column - c) != row - r for r, c in enumerate(columns)):
                yield from place([*columns, column])

    return list(place([]))


@case((3, "a", "b", "c"), (1, 1, 2, 3), (0, 1, 2, 3))
def hanoi(n, source, target, spare):
    if n == 0:
        return []
    before = hanoi(n - 1, source, spare, target)
    return [*before, (source, target), *hanoi(n - 1, spare, target, source)]


@case(("kitten", "sitting"), ("", "abc"), ("same", "same"), ("x", None))
def edit_distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        previous, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (x != y))
    return row[-1]


@case(("ABCBDAB", "BDCABA"), ("", "A"), ("A", "A"))
def common_subsequence(a, b):
    @cache
    def longest(i, j):
        if i == len(a) or j == len(b):
            return ""
        if a[i] == b[j]:
            return a[i] + longest(i + 1, j + 1)
        return max(longest(i + 1, j), longest(i, j + 1), key=len)

    return longest(0, 0)


@case(([60, 100, 120], [1, 2, 3], 5), ([], [], 4), ([1], [2], 1), ([1], [], 1))
def knapsack(values, weights, capacity):
    best = [0] * (capacity + 1)
    for value, weight in zip(values, weights, strict=True):
        for room in range(capacity, weight - 1, -1):
            best[room] = max(best[room], best[room - weight] + value)
    return best[capacity]


@case(([60.0, 100.0, 120.0], [1, 2, 3], 5), ([1.0], [1], 2))
def tensor_knapsack(values, weights, capacity):
    best = torch.zeros(capacity + 1)
    for value, weight in zip(values, weights):
        shifted = torch.cat([torch.full((weight,), -1e9), best[:-weight] + value])
        best = torch.maximum(best, shifted)
    return best


@case(([1, 5, 10], 18), ([2], 3), ([1], 0), ([], 0))
def coins(values, total):
    fewest = [0] + [None] * total
    for amount in range(1, total + 1):
        options = [fewest[amount - v] for v in values if v <= amount]
        options = [o for o in options if o is not None]
        fewest[amount] = min(options) + 1 if options else None
    return fewest[total]


@case(([-2, 1, -3, 4, -1, 2, 1, -5, 4],), ([-1],), ([],))
def maximal_sum(values):
    best = here = values[0]
    for value in values[1:]:
        here = max(value, here + value)
        best = max(best, here)
    return best


@case(([3, 2, 4], [10, 30, 5, 60]), ([], [1, 2]), ([], []))
def matrix_chain(names, sizes):
    costs = {}
    count = len(sizes) - 1
    for length in range(1, count + 1):
        for i in range(count - length + 1):
            j = i + length
            costs[i, j] = 0 if length == 1 else min(
                costs[i, k] + costs[k, j] + sizes[i] * sizes[k] * sizes[j] for k in range(i + 1, j)
            )  # fmt: skip
    return costs[0, count], names


@case(("aab",), ("",), ("racecar",))
def palindromes(text):
    if not text:
        return [[]]
    return [
        [text[:end], *others]
        for end in range(1, len(text) + 1)
        if text[:end] == text[:end][::-1]
        for others in palindromes(text[end:])
    ]


@case((t(4), t(3)), (t(2), t(2)), (t(1), t(4)))
def time_warping(a, b):
    costs = [[None] * len(b) for _ in range(len(a))]
    for i in range(len(a)):
        for j in range(len(b)):
            cost = (a[i] - b[j]).abs()
            before = [costs[p][q] for p, q in ((i - 1, j), (i, j - 1), (i - 1, j - 1))
                      if p >= 0 and q >= 0]  # fmt: skip
            costs[i][j] = cost + torch.stack(before).min() if before else cost
    return costs[-1][-1]


@case((3,), (1,), (0,))
def pascal(n):
    rows = [[1]]
    for _ in range(n):
        rows.append([1, *(a + b for a, b in zip(rows[-1], rows[-1][1:])), 1])
    return rows


@case(("aabbc",), ("",), ("z",))
def huffman(text):
    counts = defaultdict(int)
    for letter in text:
        counts[letter] += 1
    queue = [(count, letter, letter) for letter, count in counts.items()]
    heapq.heapify(queue)
    while len(queue) > 1:
        (a, x, left), (b, y, right) = heapq.heappop(queue), heapq.heappop(queue)
        heapq.heappush(queue, (a + b, min(x, y), (left, right)))
    codes = {}

    def walk(node, code):
        if isinstance(node, str):
            codes[node] = code or "0"
        else:
            walk(node[0], code + "0")
            walk(node[1], code + "1")

    if queue:
        walk(queue[0][2], "")
    return codes


@case(([[5, 1], [1, 5]], 2), ([[1]], 3))
def life(cells, rounds):
    alive = {(i, j) for i, row in enumerate(cells) for j, v in enumerate(row) if v > 1}
    for _ in range(rounds):
        counts = defaultdict(int)
        for i, j in alive:
            for a in (-1, 0, 1):
                for b in (-1, 0, 1):
                    if a or b:
                        counts[i + a, j + b] += 1
        alive = {c for c, n in counts.items() if n == 3 or (n == 2 and c in alive)}
    return sorted(alive)


@case((t(5, 5), 2), (t(3, 3), 1), (t(3, 3), 0))
def tensor_life(x, rounds):
    board = (x > 0).float()
    for _ in range(rounds):
        padded = torch.nn.functional.pad(board, (1, 1, 1, 1))
        n, m = board.shape
        around = sum(
            padded[i : i + n, j : j + m] for i in range(3) for j in range(3) if (i, j) != (1, 1)
        )
        board = ((around == 3) | ((board == 1) & (around == 2))).float()
    return board


@case((["a", "b"], {"a": 1}), (["c"], {}), ([], {"a": 1}))
def union_find(names, weights):
    class Forest:
        def __init__(self):
            self.parents = {}

        def find(self, name):
            parent = self.parents.setdefault(name, name)
            if parent != name:
                parent = self.parents[name] = self.find(parent)
            return parent

        def union(self, a, b):
            self.parents[self.find(a)] = self.find(b)

    forest = Forest()
    for a, b in zip(names, names[1:]):
        forest.union(a, b)
    return forest.parents, weights[names[0]]
