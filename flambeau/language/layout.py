"""Strides at an op's boundary: what PyTorch's users see in `.stride()`.

Inside a graph values have no layout. Only here, where results leave an op, strides are chosen:
contiguous, following the operands (pointwise ops), or those of a view. Sizes may be symbolic;
undecidable comparisons ask the shape environment, which records a guard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar

from flambeau.ir.environment import current_environment
from flambeau.ir.node import Node
from flambeau.ir.size import Size, known_equal, mul, prod
from flambeau.ir.size_program import eq, lt
from flambeau.prims.record import record_of

Shape = tuple[Size, ...]
Geometry = tuple[Shape, Shape, Size]  # sizes, strides, offset

# Storage offsets by tensor slot while a trace runs an operator's body; None outside of traces.
argument_offsets: ContextVar[Mapping[int, Size] | None] = ContextVar("offsets", default=None)


def contiguous_strides(shape: Sequence[Size]) -> Shape:
    """Row-major strides; a size of 0 or 1 counts as 1, as in PyTorch."""
    strides: list[Size] = []
    step: Size = 1
    for size in reversed(shape):
        strides.append(step)
        if not (isinstance(size, int) and size <= 1):
            step = mul(step, size)
    return tuple(reversed(strides))


def same(a: Size, b: Size) -> bool:
    """Whether two sizes are equal, asking the environment when structure does not tell."""
    known = known_equal(a, b)
    if known is not None:
        return known
    return bool(current_environment().truth(eq(a, b)))


def _less(a: Size, b: Size) -> bool:
    if isinstance(a, int) and isinstance(b, int):
        return a < b
    return bool(current_environment().truth(lt(a, b)))


def dense_strides(shape: Sequence[Size], order: Sequence[int]) -> Shape:
    """Strides of a dense buffer whose dimensions from outermost to innermost are `order`."""
    strides: list[Size] = [1] * len(shape)
    step: Size = 1
    for dim in reversed(order):
        strides[dim] = step
        if not (isinstance(shape[dim], int) and shape[dim] <= 1):  # type: ignore[operator]
            step = mul(step, shape[dim])
    return tuple(strides)


def by_strides(dims: Sequence[int], strides: Shape) -> tuple[int, ...]:
    """`dims`, those of greater strides first; of equal ones in the order given."""
    order: list[int] = []
    for dim in dims:
        place = len(order)
        while place > 0 and _less(strides[order[place - 1]], strides[dim]):
            place -= 1
        order.insert(place, dim)
    return tuple(order)


def follow_strides(shape: Shape, operands: Sequence[tuple[Shape, Shape]]) -> Shape:
    """Strides of a pointwise result: dense, in the order of the operands' strides.

    Args:
        shape: the result's sizes.
        operands: sizes and strides of each tensor operand, as they were given.
    """
    return dense_strides(shape, follow_order(shape, operands))


def follow_order(shape: Shape, operands: Sequence[tuple[Shape, Shape]]) -> list[int]:
    """The dimensions of `follow_strides`, the outermost first."""
    full = [(sizes, strides) for sizes, strides in operands if strides]
    if all(strides == contiguous_strides(sizes) for sizes, strides in full):
        return list(range(len(shape)))
    aligned = [_aligned(shape, sizes, strides) for sizes, strides in full]
    order = list(reversed(range(len(shape))))  # the innermost first, while sorting
    for start in range(1, len(order)):
        here = start
        for inner in range(start - 1, -1, -1):
            found = _compare(order[inner], order[here], aligned, shape)
            if found < 0:
                break
            if found > 0:  # where nothing is known of a pair, a further one may still tell
                order[inner], order[here] = order[here], order[inner]
                here = inner
    return order[::-1]


def image_strides(value: Node, operands: Sequence[tuple[Shape, Shape]]) -> Shape:
    """Strides of an image: its channels lie last in memory where those of an operand do.

    As in PyTorch, volumes of float64 and float16 are always contiguous.
    """
    plain = contiguous_strides(value.shape)
    order = (0, *range(2, value.ndim), 1)
    if value.ndim not in (4, 5) or (value.ndim == 5 and value.dtype in ("f64", "f16")):
        return plain
    for sizes, strides in operands:
        if len(sizes) == value.ndim and strides == dense_strides(sizes, order):
            if strides != contiguous_strides(sizes):
                return dense_strides(value.shape, order)
    return plain


def joined_strides(value: Node, operands: Sequence[tuple[Shape, Shape]]) -> Shape:
    """Strides of joined images: channels lie last in memory where those of all operands do."""
    plain = contiguous_strides(value.shape)
    order = (0, *range(2, value.ndim), 1)
    if value.ndim not in (4, 5) or not operands:
        return plain
    last = all(
        len(sizes) == value.ndim
        and strides == dense_strides(sizes, order)
        and strides != contiguous_strides(sizes)
        for sizes, strides in operands
    )
    return dense_strides(value.shape, order) if last else plain


def gradient_strides(value: Node) -> Shape:
    """Strides of a gradient: contiguous, but those of attention follow their operand.

    Heads are mostly a view of one tensor, whose gradient is put together from theirs.
    """
    if value.op == "attention_backward":
        number = ("query", "key", "value").index(value.attribute("result")) + 1
        operand = value.inputs[number]
        if operand.is_input:
            return follow_strides(value.shape, [(operand.shape, operand.attribute("strides"))])
    return contiguous_strides(value.shape)


def _aligned(shape: Shape, sizes: Shape, strides: Shape) -> Shape:
    """Strides seen from the broadcast result: 0 where the operand is repeated."""
    lead = len(shape) - len(sizes)
    out: list[Size] = [0] * lead
    for size, stride, target in zip(sizes, strides, shape[lead:], strict=True):
        repeated = isinstance(size, int) and size == 1 and not (target == 1)
        out.append(0 if repeated else stride)
    return tuple(out)


def _compare(a: int, b: int, operands: Sequence[Shape], shape: Shape) -> int:
    """1 where dimension `a` must lie outside of `b`, -1 inside, 0 where no operand tells."""
    for strides in operands:
        left, right = strides[a], strides[b]
        if left == 0 or right == 0:
            continue
        if not known_equal(left, right):
            return 1 if _less(right, left) else -1
        if not known_equal(shape[a], shape[b]) and _less(shape[b], shape[a]):
            return 1
    return 0


def reshape_strides(sizes: Shape, strides: Shape, target: Shape) -> Shape | None:
    """Strides of a view with shape `target`, or None when a copy is needed."""
    if strides == contiguous_strides(sizes):
        return contiguous_strides(target)
    if any(isinstance(s, int) and s == 0 for s in sizes):
        return contiguous_strides(target)
    groups = _merged(sizes, strides)
    out: list[Size] = [1] * len(target)
    position = len(target) - 1
    for extent, step in reversed(groups):
        covered: Size = 1
        while position >= 0 and (_is_one(target[position]) or not same(covered, extent)):
            out[position] = mul(step, covered)
            covered = mul(covered, target[position])
            position -= 1
        if not same(covered, extent):
            return None
    return tuple(out) if position < 0 else None


def _is_one(size: Size) -> bool:
    return isinstance(size, int) and size == 1


def _merged(sizes: Shape, strides: Shape) -> list[tuple[Size, Size]]:
    """Groups of dimensions that lie one after the other in memory: (extent, innermost stride)."""
    groups: list[tuple[Size, Size]] = []
    for size, stride in zip(sizes, strides, strict=True):
        if _is_one(size):
            continue
        if groups and same(groups[-1][1], mul(stride, size)):
            groups[-1] = (mul(groups[-1][0], size), stride)
        else:
            groups.append((size, stride))
    return groups or [(1, 1)]


def view_geometry(value: Node, offsets: dict[int, Size]) -> tuple[int, Geometry] | None:
    """Geometry of a chain of view primitives over an input; None when it is no view.

    Args:
        value: the node.
        offsets: storage offset per input slot.

    Returns:
        The input's slot and (sizes, strides, offset).
    """
    chain: list[Node] = []
    while not value.is_input:
        if record_of(value).view is None:
            return None
        chain.append(value)
        value = value.inputs[0]
    slot = value.attribute("slot")
    sizes, strides, offset = value.shape, value.attribute("strides"), offsets[slot]
    for step in reversed(chain):
        view = record_of(step).view
        seen = None if view is None else view(step, strides, offset, _restrided)
        if seen is None:
            return None
        sizes, (strides, offset) = step.shape, seen
    return slot, (sizes, strides, offset)


def _restrided(sizes: Shape, strides: Shape, target: Shape) -> Shape | None:
    inserted = _squeeze_strides(sizes, strides, target)
    return inserted if inserted is not None else reshape_strides(sizes, strides, target)


def _squeeze_strides(sizes: Shape, strides: Shape, target: Shape) -> Shape | None:
    """Strides when a reshape only inserts or removes dimensions of size 1."""
    kept = [(s, t) for s, t in zip(sizes, strides, strict=True) if not _is_one(s)]
    if [s for s, _ in kept] != [s for s in target if not _is_one(s)]:
        return None
    out: list[Size] = []
    inner: Size = 1
    for size in reversed(target):
        if _is_one(size):
            out.append(inner)
        else:
            extent, stride = kept.pop()
            out.append(stride)
            inner = mul(extent, stride)
    return tuple(reversed(out))


def numel(shape: Sequence[Size]) -> Size:
    """Number of elements."""
    return prod(shape)
