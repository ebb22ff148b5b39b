"""Sorting and searching."""

import bisect
import heapq

import flambeau as torch
from tests.capture.corpus.cases import Call, case, family, t

NUMBERS = [5, 3, 8, 1, 9, 2, 2]
DATA = {
    "ints": [(NUMBERS,), ([1],), ([],), (None,)],
    "floats": [([2.5, -1.0, 0.0, -0.0],), ([3, 2.5],), ([float("inf"), 1],)],
    "texts": [(["pear", "fig", "apple"],), (["b", 1],)],
    "tensors": [(t(5).flip(0).tolist(),), (t(3).unbind(),)],
}


@family(**DATA)
def bubble(values):
    values = list(values)
    for end in range(len(values) - 1, 0, -1):
        swapped = False
        for i in range(end):
            if values[i] > values[i + 1]:
                values[i], values[i + 1] = values[i + 1], values[i]
                swapped = True
        if not swapped:
            break
    return values


@family(**DATA)
def insertion(values):
    result = []
    for value in values:
        i = len(result)
        while i > 0 and result[i - 1] > value:
            i -= 1
        result.insert(i, value)
    return result


@family(**DATA)
def selection(values):
    values, result = list(values), []
    while values:
        smallest = min(range(len(values)), key=values.__getitem__)
        result.append(values.pop(smallest))
    return result


@family(**DATA)
def quick(values):
    if len(values) < 2:
        return list(values)
    pivot, *others = values
    return (
        quick([v for v in others if v < pivot])
        + [pivot]
        + quick([v for v in others if not v < pivot])
    )


@family(**DATA)
def quick_in_place(values):
    values = list(values)

    def sort(low, high):
        if low >= high:
            return
        i = low
        for j in range(low, high):
            if values[j] < values[high]:
                values[i], values[j] = values[j], values[i]
                i += 1
        values[i], values[high] = values[high], values[i]
        sort(low, i - 1)
        sort(i + 1, high)

    sort(0, len(values) - 1)
    return values


@family(**DATA)
def merge(values):
    if len(values) < 2:
        return list(values)
    middle = len(values) // 2
    left, right = merge(values[:middle]), merge(values[middle:])
    result = []
    while left and right:
        result.append((left if left[0] <= right[0] else right).pop(0))
    return result + left + right


@family(**DATA)
def heap(values):
    values = list(values)

    def sift(root, end):
        while (child := 2 * root + 1) < end:
            if child + 1 < end and values[child] < values[child + 1]:
                child += 1
            if not values[root] < values[child]:
                return
            values[root], values[child] = values[child], values[root]
            root = child

    for root in reversed(range(len(values) // 2)):
        sift(root, len(values))
    for end in range(len(values) - 1, 0, -1):
        values[0], values[end] = values[end], values[0]
        sift(0, end)
    return values


@family(**DATA)
def heap_queue(values):
    queue = []
    for value in values:
        heapq.heappush(queue, value)
    return [heapq.heappop(queue) for _ in range(len(queue))]


@family(**DATA)
def shell(values):
    values, gap = list(values), len(values) // 2
    while gap:
        for i in range(gap, len(values)):
            value, j = values[i], i
            while j >= gap and values[j - gap] > value:
                values[j] = values[j - gap]
                j -= gap
            values[j] = value
        gap //= 2
    return values


@family(**DATA)
def tree(values):
    class Node:
        def __init__(self, value):
            self.value, self.left, self.right = value, None, None

    root = None
    for value in values:
        if root is None:
            root = Node(value)
            continue
        node = root
        while True:
            side = "left" if value < node.value else "right"
            below = getattr(node, side)
            if below is None:
                setattr(node, side, Node(value))
                break
            node = below

    def walk(node):
        if node:
            yield from walk(node.left)
            yield node.value
            yield from walk(node.right)

    return list(walk(root))


@case(([3, 1, 2, 0, 3],), ([],), ([5],), ([-1],))
def counting(values):
    counts = [0] * (max(values, default=-1) + 1)
    for value in values:
        counts[value] += 1
    return [value for value, count in enumerate(counts) for _ in range(count)]


@case(([170, 45, 75, 90, 802, 24, 2],), ([1],), (["a"],))
def radix(values):
    digit = 1
    while any(value // digit for value in values):
        buckets = [[] for _ in range(10)]
        for value in values:
            buckets[value // digit % 10].append(value)
        values = [value for bucket in buckets for value in bucket]
        digit *= 10
    return values


@case((t(6).flip(0),), (t(3),), (t(1),))
def tensor_bubble(x):
    rows = [x[i : i + 1] for i in range(x.shape[0])]
    for end in range(len(rows) - 1, 0, -1):
        for i in range(end):
            a, b = rows[i], rows[i + 1]
            rows[i], rows[i + 1] = torch.minimum(a, b), torch.maximum(a, b)
    return torch.cat(rows)


@case((t(8).flip(0),), (t(4),))
def bitonic(x):
    n = x.shape[0]
    size = 2
    while size <= n:
        stride = size // 2
        while stride:
            index = torch.arange(n)
            partner = index ^ stride
            low = torch.minimum(x, x[partner])
            high = torch.maximum(x, x[partner])
            ascending = ((index & size) == 0) == (index < partner)
            x = torch.where(ascending, low, high)
            stride //= 2
        size *= 2
    return x


@family(
    hit=[([1, 3, 5, 7], 5), ([1, 3, 5, 7], 1), ([1, 3, 5, 7], 4)],
    empty=[([], 3), ([3], 3)],
    wrong=[([1, 2], "a"), ([1, 2], 2)],
)
def binary(values, target):
    low, high = 0, len(values) - 1
    while low <= high:
        middle = (low + high) // 2
        if values[middle] == target:
            return middle
        if values[middle] < target:
            low = middle + 1
        else:
            high = middle - 1
    raise LookupError(f"{target} is not there")


@family(
    middle=[([7, 2, 9, 4], 2), ([7, 2, 9, 4], 0)],
    outside=[([7, 2], 5), ([7, 2], -1)],
)
def select(values, k):
    pivot = values[len(values) // 2]
    below = [v for v in values if v < pivot]
    same = [v for v in values if v == pivot]
    if k < len(below):
        return select(below, k)
    if k < len(below) + len(same):
        return pivot
    return select([v for v in values if v > pivot], k - len(below) - len(same))


@case(([3, 1, 4, 1, 5, 9, 2, 6],), ([],), ([2, 2],))
def increasing(values):
    tails = []
    for value in values:
        at = bisect.bisect_left(tails, value)
        tails[at : at + 1] = [value]
    return len(tails), tails


@case((t(4, 2), 0), (t(4, 2), 1), (t(4, 2), 5))
def rows_by_column(x, column):
    order = sorted(range(len(x)), key=lambda i: -x.shape[0] * i + column)
    return torch.stack([x[i] for i in order]), x[:, column].sort().values


@case(([(2, "b"), (1, "z"), (2, "a")],), ([],))
def stable(pairs):
    once = sorted(pairs, key=lambda pair: pair[0])
    return once, sorted(pairs), sorted(once, key=lambda pair: pair[1], reverse=True)


@case((["b", "a"], [1, 2]), Call(["x"], values=[3]), (["q"], []))
def by_other(names, values):
    return [name for _, name in sorted(zip(values, names, strict=True))]
