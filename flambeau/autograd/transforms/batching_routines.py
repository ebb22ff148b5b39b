"""Batching of products, convolutions, attention and searching: where the batch goes.

A batch is folded into a dimension that the routine has anyhow: rows of a product, samples or groups
of a convolution, samples of attention. None of them changes the order of a sum.
"""

from __future__ import annotations

from collections.abc import Sequence

from flambeau import prims
from flambeau.autograd.transforms.batching import Batched, Rule
from flambeau.ir.environment import current_environment
from flambeau.ir.node import Node
from flambeau.ir.size import Size, mul, prod


def _fold(x: Node, first: int) -> Node:
    """The batch becomes the outer part of dimension `first` of a sample."""
    order = [*range(1, first + 1), 0, *range(first + 1, x.ndim)]
    moved = prims.permute(x, order)
    joined = mul(moved.shape[first], moved.shape[first + 1])
    return prims.reshape(moved, (*moved.shape[:first], joined, *moved.shape[first + 2 :]))


def _unfold(x: Node, first: int, extent: Size, rest: Size) -> Node:
    """The inverse of `_fold`: dimension `first` is split, its outer part is the batch."""
    split = prims.reshape(x, (*x.shape[:first], extent, rest, *x.shape[first + 1 :]))
    order = [first, *(d for d in range(split.ndim) if d != first)]
    return prims.permute(split, order)


def _matmul(b: Batched) -> Node:
    left, right = b.operands
    if b.flags[0] and not b.flags[1] and right.ndim == 2:  # more rows of one product
        rows = mul(b.extent, left.shape[1])
        joined = b.same(prims.reshape(left, (rows, left.shape[2])), right)
        return prims.reshape(joined, (b.extent, *b.node.shape))
    return b.same(*b.all())


def _searchsorted(b: Batched) -> Node:
    boundaries, values = b.operands
    if not b.flags[0] and boundaries.ndim == 1:
        return b.same(boundaries, values)
    boundaries, values = b.all()
    if boundaries.ndim > 2 or values.ndim == 2:
        return b.same(boundaries, values)
    flat = prims.reshape(values, (b.extent, prod(values.shape[1:])))
    return prims.reshape(b.same(boundaries, flat), values.shape)


def _folded(b: Batched, places: Sequence[int], place: int, count: Size, **changed: int) -> Node:
    """The routine with the batch folded into a dimension of each operand and of the result."""
    operands = [_fold(x, at) for x, at in zip(b.all(), places, strict=True)]
    return _unfold(b.same(*operands, **changed), place, b.extent, count)


def _convolution(b: Batched) -> Node:
    """x (N, C, *S), weight (O, C / groups, *K): more samples, more channels, or more groups."""
    (x, weight), shape = b.operands, b.node.shape
    if not b.flags[1]:
        return _unfold(b.same(_fold(x, 0), weight), 0, b.extent, shape[0])
    if not b.flags[0] and b.attribute("groups") == 1:
        return _unfold(b.same(x, _fold(weight, 0)), 1, b.extent, shape[1])
    return _grouped(b, (1, 0), 1)


def _grouped(b: Batched, places: Sequence[int], place: int) -> Node:
    """A group for every sample; the number of groups is a constant of a convolution."""
    extent = b.extent
    if not isinstance(extent, int):
        extent = current_environment().specialise(extent)
    if b.attribute("method") != "plain":  # its sums are those of one group
        operands = b.all()
        single = [b.same(*(_sample(x, i) for x in operands)) for i in range(extent)]
        return prims.cat([prims.unsqueeze(x, 0) for x in single], 0)
    groups = b.attribute("groups") * extent
    return _folded(b, places, place, b.node.shape[place], groups=groups)


def _sample(x: Node, number: int) -> Node:
    return prims.reshape(prims.slice(x, 0, number, 1), x.shape[1:])


def _convolution_input(b: Batched) -> Node:
    """g (N, O, *out), weight (O, C / groups, *K) -> (N, C, *S)."""
    g, weight = b.operands
    if not b.flags[1]:
        return _unfold(b.same(_fold(g, 0), weight), 0, b.extent, b.node.shape[0])
    return _grouped(b, (1, 0), 1)


def _convolution_weight(b: Batched) -> Node:
    """g (N, O, *out), x (N, C, *S) -> (O, C / groups, *K): the sum is over samples and places."""
    g, x = b.operands
    if not b.flags[1] and b.attribute("groups") == 1:
        return _unfold(b.same(_fold(g, 1), x), 0, b.extent, b.node.shape[0])
    if not b.flags[0] and b.attribute("groups") == 1:
        return _unfold(b.same(g, _fold(x, 1)), 1, b.extent, b.node.shape[1])
    return _grouped(b, (1, 1), 0)


def _attention(b: Batched) -> Node:
    """All operands have samples first."""
    operands = [_fold(x, 0) for x in b.all()]
    return _unfold(b.same(*operands), 0, b.extent, b.node.shape[0])


def _bag_sum(b: Batched) -> Node:
    """Tables one after the other, and bags."""
    table, index, starts, ends, *shares = b.all()
    rows, places = table.shape[1], index.shape[1]

    def moved(x: Node, step: Size) -> Node:
        return x + prims.iota(x.shape, 0) * prims.constant(step, x)

    shifted = prims.where(index < 0, index, moved(index, rows))
    bags = [moved(starts, places), moved(ends, places)]
    operands = [_fold(x, 0) for x in (table, shifted, *bags, *shares)]
    return _unfold(b.same(*operands), 0, b.extent, b.node.shape[0])


def _true_indices(b: Batched) -> Node:
    """A batch is one more leading dimension of the mask."""
    return b.same(*b.all(), batch=b.node.attribute("batch") + 1)


def _compress(b: Batched) -> Node:
    """Samples of which each has as many true elements: one long vector."""
    x, mask = (_fold(operand, 0) for operand in b.all())
    each = b.node.shape[0]
    return _unfold(b.same(x, mask, count=mul(b.extent, each)), 0, b.extent, each)


ROUTINES: dict[str, Rule] = {
    "matmul": _matmul,
    "searchsorted": _searchsorted,
    "true_indices": _true_indices,
    "compress": _compress,
    "bag_sum": _bag_sum,
    "convolution": _convolution,
    "convolution_input": _convolution_input,
    "convolution_weight": _convolution_weight,
    "attention": _attention,
    "attention_backward": _attention,
    "kept_elements": lambda b: b.same(*b.all()),
}
