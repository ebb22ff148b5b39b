"""Sums of rows of a table by bags of indices, read where they are (`embedding_bag`).

As a composition it would write a row per index; the routine adds them up in registers. A bag's rows
are added in the order of its indices, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau.ir.environment import same_shape, same_size
from flambeau.ir.node import Node
from flambeau.ir.size import Size, mul
from flambeau.prims import pointwise
from flambeau.prims.common import Gradients, Type, check_dtype, show
from flambeau.prims.create import full, iota, zeros_like
from flambeau.prims.helpers import constant
from flambeau.prims.index import take
from flambeau.prims.record import Arguments, Batched, Primitive, Routine, bind, register
from flambeau.prims.reduce import spread, sum
from flambeau.prims.routine import searchsorted
from flambeau.prims.shape import fold, unfold

Samples = Iterator[tuple[list[Any], dict[str, Any]]]


def _infer(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
    table, index, starts, ends, *shares = operands
    check_dtype("bag_sum", table, frozenset({"f32", "f64"}))
    for places in (index, starts, ends):
        check_dtype("bag_sum", places, frozenset({"i64"}))
    for share in shares:
        check_dtype("bag_sum", share, frozenset({table.dtype}))
    fits = same_shape(starts.shape, ends.shape) and all(
        same_shape(share.shape, index.shape) for share in shares
    )
    if table.ndim != 2 or index.ndim != 1 or starts.ndim != 1 or not fits:
        raise ValueError(
            f"[bag_sum] a table {show(table.shape)}, indices {show(index.shape)}, bags from "
            f"{show(starts.shape)} to {show(ends.shape)}\nhint: (V, D), (n), (B) and (B)"
        )
    return table.dtype, (starts.shape[0], table.shape[1])


def _rule(
    g: Node, y: Node, table: Node, index: Node, starts: Node, ends: Node, *shares: Node
) -> Gradients:
    """Every index has a row of the gradient, its bag's; those in no bag have zeros."""
    from flambeau.prims.scatter import take_add

    nothing = [None] * 3
    if same_size(starts.shape[0], 0) or same_size(table.shape[0], 0):
        return zeros_like(table), *nothing, *map(zeros_like, shares)
    place = iota(index.shape, 0, "i64")
    bag = searchsorted(starts, place, right=True) + -1
    inside = pointwise.maximum(bag, zeros_like(bag))
    used = pointwise.ge(bag, zeros_like(bag)) & (place < take(ends, inside, 0))
    used = used & pointwise.ge(index, zeros_like(index))
    rows_at = pointwise.maximum(index, zeros_like(index))
    of_rows = take(g, inside, 0)
    rows = of_rows
    for share in shares:
        rows = rows * spread(share, rows, 1)
    rows = pointwise.where(spread(used, rows, 1), rows, zeros_like(rows))
    of_table = take_add(zeros_like(table), rows_at, rows, 0)
    products = [sum(take(table, rows_at, 0) * of_rows, 1) for _ in shares]
    return of_table, *nothing, *(pointwise.where(used, p, zeros_like(p)) for p in products)


def _reference(arrays: list[Any], constants: dict[str, Any]) -> Any:
    import numpy

    table, index, starts, ends, *shares = arrays
    out = numpy.zeros((len(starts), table.shape[1]), table.dtype)
    for bag, (start, end) in enumerate(zip(starts, ends)):
        for place in range(start, end):
            if index[place] >= 0:
                row = table[index[place]]
                out[bag] += row * shares[0][place] if shares else row
    return out


def _samples() -> Samples:
    table, index = [[1.0, 2.0, 3.0], [4.0, 5.0, -6.0]], [1, 0, -1, 1, 1, 0]
    bags = [[0, 3, 3], [3, 3, 5]]
    yield [table, index, *bags], {}
    yield [table, index, *bags, [0.5, 2.0, 3.0, -1.0, 1.5, 7.0]], {}


def _batch(b: Batched) -> Node:
    """Tables one after the other, and bags."""
    table, index, starts, ends, *shares = b.all()
    rows, places = table.shape[1], index.shape[1]

    def moved(x: Node, step: Size) -> Node:
        return x + iota(x.shape, 0) * constant(step, x)

    shifted = pointwise.where(index < 0, index, moved(index, rows))
    bags = [moved(starts, places), moved(ends, places)]
    operands = [fold(x, 0) for x in (table, shifted, *bags, *shares)]
    return unfold(b.same(*operands), 0, b.extent, b.node.shape[0])


def _arguments(value: Node) -> Arguments:
    table, index, *_ = value.attribute("shapes")
    sizes = (value.shape[0], table[1], index[0], int(len(value.inputs) > 4))
    function = f"bag_sum_{value.dtype}"
    return Arguments(function, sizes, mul(index[0], table[1]), result_first=True)


register(
    Primitive(
        "bag_sum",
        "routine",
        _infer,
        _rule,
        routine=Routine("bag_sum", arguments=_arguments),
        cost=16,
        reference=_reference,
        samples=_samples,
        batch=_batch,
    )
)


def bag_sum(table: Node, index: Node, starts: Node, ends: Node, share: Node | None = None) -> Node:
    """out[b] = the sum of table[index[i]] (times share[i]) for starts[b] <= i < ends[b].

    Bags ascend and share no place; an index of -1 counts as none.
    """
    return bind("bag_sum", table, index, starts, ends, *(() if share is None else (share,)))


def bag_sizes(index: Node, starts: Node, ends: Node, rows: Any, dtype: str) -> Node:
    """How many indices of each bag count."""
    return bag_sum(full(1.0, (rows, 1), dtype), index, starts, ends)
