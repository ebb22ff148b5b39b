"""Geometry of shapes: how an index or the strides of one shape carry over to another.

Used for reshapes (same elements, other extents) in both directions. Sizes that are equal only under
a guard may be structurally different: everything here stays right then, only less simplified.
"""

from __future__ import annotations

from collections.abc import Sequence

from flambeau.ir.lock import memo
from flambeau.ir.size import Size, add, floordiv, known_less, mod, mul, prod

Shape = tuple[Size, ...]
Index = tuple[Size, ...]


def contiguous(shape: Sequence[Size]) -> Shape:
    """Row-major element strides of a dense tensor."""
    strides: list[Size] = []
    running: Size = 1
    for extent in reversed(shape):
        strides.append(running)
        running = running * extent
    strides.reverse()
    return tuple(strides)


def address(index: Sequence[Size], strides: Sequence[Size], offset: Size = 0) -> Size:
    """Element offset of an index."""
    total = offset
    for position, stride in zip(index, strides):
        total = total + position * stride
    return total


Group = tuple[list[int], list[int]]
_groups: dict[tuple[Shape, Shape], list[Group]] = memo()


def reshape_groups(old: Shape, new: Shape) -> list[Group]:
    """Splits both shapes into runs of dimensions with equal products, as short as possible.

    Dimensions of extent 1 are left out.
    """
    groups = _groups.get((old, new))
    if groups is None:
        if len(_groups) > 4096:
            _groups.clear()
        groups = _groups[old, new] = _match(old, new)
    return groups


def _match(old: Shape, new: Shape) -> list[Group]:
    left = [i for i, extent in enumerate(old) if extent != 1]
    right = [i for i, extent in enumerate(new) if extent != 1]
    groups: list[Group] = []
    i = j = 0
    while i < len(left) and j < len(right):
        first, second = [left[i]], [right[j]]
        a, b = old[left[i]], new[right[j]]
        i, j = i + 1, j + 1
        while a != b:
            grow = _grows(a, b)
            if grow == "left" and i < len(left):
                a = a * old[left[i]]
                first.append(left[i])
                i += 1
            elif grow == "right" and j < len(right):
                b = b * new[right[j]]
                second.append(right[j])
                j += 1
            else:  # undecidable: everything that is left is one group
                first.extend(left[i:])
                second.extend(right[j:])
                i, j = len(left), len(right)
                break
        groups.append((first, second))
    if i < len(left) or j < len(right):  # extents that are 1 under a guard only
        first, second = groups.pop() if groups else ([], [])
        groups.append((first + left[i:], second + right[j:]))
    return groups


def _grows(a: Size, b: Size) -> str:
    if a == 0 or b == 0:
        return "neither"
    if isinstance(a, int) and isinstance(b, int):
        return "left" if a < b else "right"
    if mod(b, a) == 0:
        return "left"
    if mod(a, b) == 0:
        return "right"
    if known_less(a, b):
        return "left"
    return "right" if known_less(b, a) else "neither"


def reshape_index(index: Index, old: Shape, new: Shape) -> Index:
    """The index into `new` of the element that `index` addresses in `old`, row-major."""
    if old == new:
        return index
    result: list[Size] = [0] * len(new)
    if 0 in new:
        return tuple(result)  # no element is there to be addressed
    for first, second in reshape_groups(old, new):
        if len(first) == 1 and len(second) == 1:
            result[second[0]] = index[first[0]]
            continue
        flat: Size = 0
        for i in first:
            flat = flat * old[i] + index[i]
        for position in range(len(second) - 1, 0, -1):
            extent = new[second[position]]
            result[second[position]] = mod(flat, extent)
            flat = floordiv(flat, extent)
        if second:
            result[second[0]] = flat
    return tuple(result)


def reshape_strides(shape: Shape, strides: Shape, new: Shape) -> Shape | None:
    """Strides with which `new` views the elements of (`shape`, `strides`); None if none exist."""
    if shape == new:
        return strides
    dense = contiguous(new)
    result: list[Size] = list(dense)
    for first, second in reshape_groups(shape, new):
        for a, b in zip(first, first[1:]):
            if strides[a] != mul(strides[b], shape[b]):
                return None
        running: Size = strides[first[-1]] if first else 1
        for position in reversed(second):
            result[position] = running
            running = running * new[position]
    return tuple(result)


def refined(shape: Shape, other: Shape) -> Shape:
    """The shape with dimensions split where `other` splits them: neither needs a division then."""
    sizes: list[Size] = []
    for first, second in reshape_groups(shape, other):
        split = len(first) == 1 and len(second) > 1
        if split and shape[first[0]] != count([other[d] for d in second]):
            split = False  # sizes that only a guard says are equal
        sizes.extend(other[d] for d in second) if split else sizes.extend(shape[d] for d in first)
    return tuple(sizes)


def span(shape: Shape, strides: Shape) -> Size:
    """Number of elements from the first to one past the last of a non-empty strided tensor."""
    last: Size = 1
    for extent, stride in zip(shape, strides):
        last = add(last, mul(extent - 1, stride))
    return last


def count(shape: Sequence[Size]) -> Size:
    """Number of elements."""
    return prod(shape)
