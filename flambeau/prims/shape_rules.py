"""Rules of shape primitives: index maps, views of memory, simplifications.

An index map defines where an element of the result is read, a view the layout of the whole result
in its operand's memory. The records of `flambeau.prims.shape` refer to these functions.
"""

from __future__ import annotations

from typing import Any

from flambeau.ir.geometry import Index, Shape, contiguous, reshape_index, reshape_strides
from flambeau.ir.node import Node, attributes, node
from flambeau.ir.size import Size, floordiv, known_less, mod, mul
from flambeau.ir.spelling import SPELLINGS
from flambeau.prims.record import Elements, Read, Restride
from flambeau.prims.simplification import full_like

# ------------------------------------------------------------------------------- index maps


def broadcast_reads(y: Node, index: Index) -> list[Read]:
    """Extents of 1 are read at 0."""
    [x] = y.inputs
    picked = zip(x.shape, y.attribute("dimensions"))
    return [Read(0, tuple([0 if extent == 1 else index[d] for extent, d in picked]))]


def reshape_reads(y: Node, index: Index) -> list[Read]:
    """The same element in row-major order."""
    return [Read(0, reshape_index(index, y.shape, y.inputs[0].shape))]


def permute_reads(y: Node, index: Index) -> list[Read]:
    """Dimension `order[i]` is read where the result's dimension i is."""
    source: list[Size] = [0] * len(index)
    for position, dimension in zip(index, y.attribute("order")):
        source[dimension] = position
    return [Read(0, tuple(source))]


def slice_reads(y: Node, index: Index) -> list[Read]:
    """Every `step`-th element from `start` on."""
    d = y.attribute("dimension")
    moved = index[d] * y.attribute("step") + y.attribute("start")
    return [Read(0, (*index[:d], moved, *index[d + 1 :]))]


def flip_reads(y: Node, index: Index) -> list[Read]:
    """From the end."""
    flipped = y.attribute("dimensions")
    source = [y.shape[d] - 1 - p if d in flipped else p for d, p in enumerate(index)]
    return [Read(0, tuple(source))]


def pad_reads(y: Node, index: Index) -> list[Read]:
    """The operand where the index is inside of it, else the fill value."""
    low, high = y.attribute("low"), y.attribute("high")
    shifted = tuple(i - n for i, n in zip(index, low))
    bounded = tuple(
        d
        for d, (a, b) in enumerate(zip(low, high))
        if known_less(0, a) is not False or known_less(0, b) is not False
    )
    return [Read(0, shifted, bounded), Read(1, ())]


def cat_reads(y: Node, index: Index) -> list[Read]:
    """The first operand whose extent contains the index, of those that are left."""
    d = y.attribute("dimension")
    start: Size = 0
    reads = []
    for number, x in enumerate(y.inputs):
        # In order: an element before this operand has been found already, so one bound suffices,
        # but both are tested, so that the reads are independent.
        bounded = (d,) if number + 1 < len(y.inputs) else ()
        reads.append(Read(number, (*index[:d], index[d] - start, *index[d + 1 :]), bounded))
        start = start + x.shape[d]
    return reads


def windows_reads(y: Node, index: Index) -> list[Read]:
    """The last dimension is the position in the window."""
    d, step, dilation = (y.attribute(name) for name in ("dimension", "step", "dilation"))
    place = index[d] * step + index[-1] * dilation
    return [Read(0, (*index[:d], place, *index[d + 1 : -1]))]


def places(index: Any, strides: Any, offset: Any) -> Any:
    """Distance of an element from the first one, in elements."""
    linear = offset
    for place, step in zip(index, strides, strict=True):
        linear = linear + place * step
    return linear


def as_strided_reads(y: Node, index: Index) -> list[Read]:
    """The element at `offset + sum(index * strides)` of the row-major order."""
    [x] = y.inputs
    linear = places(index, y.attribute("strides"), y.attribute("offset"))
    result: list[Size] = [0] * x.ndim
    for d in range(x.ndim - 1, 0, -1):
        result[d] = mod(linear, x.shape[d])
        linear = floordiv(linear, x.shape[d])
    if x.ndim:
        result[0] = linear
    return [Read(0, tuple(result))]


# ------------------------------------------------------------------------------- kernel values


def _both(a: Node | None, b: Node | None) -> Node | None:
    if a is None or b is None:
        return b if a is None else a
    return a if a is b else node("bitwise_and", (a, b), (), "bool")


def pad_lower(elements: Elements, value: Node, index: Index, mask: Node | None) -> Node:
    """A choice; only bounds that may be passed are tested."""
    operand, fill = value.inputs
    inside: Node | None = None
    source: list[Size] = []
    lows, highs = value.attribute("low"), value.attribute("high")
    for position, extent, low, high in zip(index, operand.shape, lows, highs):
        moved = position - low
        source.append(moved)
        if not (isinstance(low, int) and low <= 0):
            test = (elements.index_value(moved), elements.constant(0, "i64"))
            inside = _both(inside, node("ge", test, (), "bool"))
        if not (isinstance(high, int) and high <= 0):
            test = (elements.index_value(moved), elements.index_value(extent))
            inside = _both(inside, node("lt", test, (), "bool"))
    if inside is None:
        return elements.at(operand, tuple(source), mask)
    read = elements.at(operand, tuple(source), _both(mask, inside))
    outside = elements.at(fill, (), mask)
    return node("where", (inside, read, outside), (), value.dtype)


def _choice(condition: Node, first: Node, second: Node, memo: dict[Any, Node]) -> Node:
    """One of two values. What both compute alike is computed once, of the chosen operands: parts
    of one tensor (`roll`) differ in what they load alone."""
    if first is second:
        return first
    value = memo.get((first, second))
    if value is None:
        alike = first.op == second.op and first.attributes == second.attributes
        alike = alike and first.op in SPELLINGS and len(first.inputs) == len(second.inputs)
        alike = alike and first.dtype == second.dtype != "bool"
        if alike and (first.op != "where" or first.inputs[0] is second.inputs[0]):
            pairs = zip(first.inputs, second.inputs)
            operands = [_choice(condition, a, b, memo) for a, b in pairs]
            value = node(first.op, operands, first.attributes, first.dtype)
        else:
            value = node("where", (condition, first, second), (), first.dtype)
        memo[first, second] = value
    return value


def cat_lower(elements: Elements, value: Node, index: Index, mask: Node | None) -> Node:
    """A chain of choices, the last operand innermost; one element that is repeated needs none."""
    d, first = value.attribute("dimension"), value.inputs[0]
    if first.shape[d] == 1 and all(operand is first for operand in value.inputs):
        return elements.at(first, (*index[:d], 0, *index[d + 1 :]), mask)
    position = index[d]
    end: Size = 0
    ends = [end := end + operand.shape[d] for operand in value.inputs]
    joined: Node | None = None
    for number in range(len(value.inputs) - 1, -1, -1):
        low = ends[number - 1] if number else 0
        source = (*index[:d], position - low, *index[d + 1 :])
        here = elements.index_value(position)
        before: Node | None = None
        after: Node | None = None
        if number + 1 < len(value.inputs):
            before = node("lt", (here, elements.index_value(ends[number])), (), "bool")
        if number:
            after = node("ge", (here, elements.index_value(low)), (), "bool")
        part = elements.at(value.inputs[number], source, _both(mask, _both(before, after)))
        joined = part if joined is None or before is None else _choice(before, part, joined, {})
    assert joined is not None
    return joined


# ------------------------------------------------------------------------------- views


def broadcast_view(
    y: Node, strides: Shape, offset: Size, restride: Restride
) -> tuple[Shape, Size] | None:
    """Repeated elements have stride 0."""
    [x] = y.inputs
    spread: list[Size] = [0] * y.ndim
    for i, d in enumerate(y.attribute("dimensions")):
        repeated = x.shape[i] == 1 and not y.shape[d] == 1
        spread[d] = 0 if repeated else strides[i]
    return tuple(spread), offset


def reshape_view(
    y: Node, strides: Shape, offset: Size, restride: Restride
) -> tuple[Shape, Size] | None:
    """The view of joined dimensions that are adjacent in memory."""
    carried = restride(y.inputs[0].shape, strides, y.shape)
    return None if carried is None else (carried, offset)


def permute_view(
    y: Node, strides: Shape, offset: Size, restride: Restride
) -> tuple[Shape, Size] | None:
    """Strides in another order."""
    return tuple(strides[d] for d in y.attribute("order")), offset


def reshape_unview(y: Node, strides: Shape) -> Shape | None:
    """Strides of the other shape, where these allow it."""
    return reshape_strides(y.shape, strides, y.inputs[0].shape)


def permute_unview(y: Node, strides: Shape) -> Shape:
    """Strides in the order of the operand."""
    moved: list[Size] = [0] * len(strides)
    for stride, dimension in zip(strides, y.attribute("order")):
        moved[dimension] = stride
    return tuple(moved)


def slice_view(
    y: Node, strides: Shape, offset: Size, restride: Restride
) -> tuple[Shape, Size] | None:
    """A longer stride along one dimension, from a later element on."""
    d = y.attribute("dimension")
    along = strides[d]
    step = mul(along, y.attribute("step"))
    return (*strides[:d], step, *strides[d + 1 :]), offset + mul(y.attribute("start"), along)


def as_strided_view(
    y: Node, strides: Shape, offset: Size, restride: Restride
) -> tuple[Shape, Size] | None:
    """Any strides, over dense memory only."""
    if strides != contiguous(y.inputs[0].shape):
        return None
    return y.attribute("strides"), offset + y.attribute("offset")


# ------------------------------------------------------------------------------- simplifications


def _full_of_shape(operand: Node, value: Node) -> Node | None:
    return full_like(operand.attribute("value"), value) if operand.op == "full" else None


def _again(value: Node, operand: Node, **constants: Any) -> Node:
    """A node's primitive on the operand of its operand."""
    packed = attributes(**constants)
    return node(value.op, operand.inputs, packed, value.dtype, value.shape, value.source)


def simpler_reshape(value: Node) -> Node | None:
    """Reshapes of reshapes are one."""
    operand = value.inputs[0]
    if operand.shape == value.shape:
        return operand
    if operand.op == "reshape":
        return _again(value, operand, shape=value.attribute("shape"))
    return _full_of_shape(operand, value)


def simpler_permute(value: Node) -> Node | None:
    """Permutations of permutations are one."""
    operand, order = value.inputs[0], value.attribute("order")
    if order == tuple(range(len(order))):
        return operand
    if operand.op == "permute":
        inner = operand.attribute("order")
        return _again(value, operand, order=tuple(inner[d] for d in order))
    return _full_of_shape(operand, value)


def simpler_broadcast(value: Node) -> Node | None:
    """Broadcasts of broadcasts are one."""
    operand, dimensions = value.inputs[0], value.attribute("dimensions")
    if operand.shape == value.shape and dimensions == tuple(range(value.ndim)):
        return operand
    if operand.op == "broadcast":
        placed = tuple(dimensions[d] for d in operand.attribute("dimensions"))
        return _again(value, operand, dimensions=placed, shape=value.shape)
    return _full_of_shape(operand, value)


def simpler_slice(value: Node) -> Node | None:
    """Slices of slices along one dimension are one."""
    operand = value.inputs[0]
    start, step = value.attribute("start"), value.attribute("step")
    if start == 0 and step == 1 and operand.shape == value.shape:
        return operand
    dimension = value.attribute("dimension")
    if operand.op == "slice" and operand.attribute("dimension") == dimension:
        inner: Size = operand.attribute("step")
        return _again(
            value,
            operand,
            dimension=dimension,
            start=operand.attribute("start") + start * inner,
            step=step * inner,
            length=value.attribute("length"),
        )
    return _full_of_shape(operand, value)


def simpler_flip(value: Node) -> Node | None:
    """A dimension that is reversed twice is not reversed."""
    operand, flipped = value.inputs[0], value.attribute("dimensions")
    if operand.op == "flip":
        left = set(flipped) ^ set(operand.attribute("dimensions"))
        if not left:
            return operand.inputs[0]
        return _again(value, operand, dimensions=tuple(sorted(left)))
    return _full_of_shape(operand, value)
