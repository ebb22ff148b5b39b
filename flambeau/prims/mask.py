"""Elements that a mask selects: where they are, and their values.

Both take the number of true elements, which is data, as a size.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau.ir.node import ITEM_SIZE, Node
from flambeau.ir.size import Size, floordiv, mul, prod
from flambeau.prims.common import Gradients, Type, check_count, check_dtype
from flambeau.prims.create import zeros_like
from flambeau.prims.pointwise import maximum
from flambeau.prims.record import (
    NOT_DIFFERENTIABLE,
    Arguments,
    Batched,
    Primitive,
    Routine,
    bind,
    register,
)
from flambeau.prims.scatter import put_nd
from flambeau.prims.shape import fold, reshape, unfold

Samples = Iterator[tuple[list[Any], dict[str, Any]]]


def _infer_indices(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
    check_count("true_indices", operands, 1)
    [mask] = operands
    check_dtype("true_indices", mask, frozenset({"bool"}))
    batch: int = constants["batch"]
    return "i64", (*mask.shape[:batch], mask.ndim - batch, constants["count"])


def _numpy_indices(arrays: list[Any], constants: dict[str, Any]) -> Any:
    import numpy

    [mask] = arrays
    batch, count = constants["batch"], constants["count"]
    rows = mask.reshape(-1, *mask.shape[batch:])
    result = numpy.full((len(rows), mask.ndim - batch, count), -1)
    for row, indices in zip(result, (numpy.array(r.nonzero()) for r in rows), strict=True):
        row[:, : indices.shape[1]] = indices[:, :count]
    return result.reshape(*mask.shape[:batch], mask.ndim - batch, count)


def _index_samples() -> Samples:
    mask = [[True, False, True], [False, False, True]]
    yield [mask], {"count": 3, "batch": 0}
    yield [mask], {"count": 2, "batch": 1}


def _batch_indices(b: Batched) -> Node:
    """A batch is one more leading dimension of the mask."""
    return b.same(*b.all(), batch=b.node.attribute("batch") + 1)


def _index_arguments(value: Node) -> Arguments:
    [shape] = value.attribute("shapes")
    batch = value.attribute("batch")
    sizes = shape[batch:]
    counts = (prod(shape[:batch]), prod(sizes), value.shape[-1], len(sizes))
    return Arguments("true_indices", (*counts, *sizes), floordiv(prod(shape), 4))


register(
    Primitive(
        "true_indices",
        "routine",
        _infer_indices,
        NOT_DIFFERENTIABLE,
        routine=Routine("true_indices", arguments=_index_arguments),
        cost=2,
        reference=_numpy_indices,
        samples=_index_samples,
        batch=_batch_indices,
    )
)


def true_indices(mask: Node, count: Size, batch: int = 0) -> Node:
    """Indices of the first `count` true elements in row-major order; -1 where there are fewer.

    Mask: [*B, *S] with `batch` leading dimensions B. Result: [*B, len(S), count], a row of indices
    per dimension of S.
    """
    return bind("true_indices", mask, count=count, batch=batch)


def true_positions(mask: Node, count: Size) -> Node:
    """Where a vector is true, [count]; 0 where there are fewer, so that it may be read there."""
    index = reshape(true_indices(mask, count), (count,))
    return maximum(index, zeros_like(index))


def _infer_compress(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
    check_count("compress", operands, 2)
    x, mask = operands
    check_dtype("compress", mask, frozenset({"bool"}))
    return x.dtype, (constants["count"], *x.shape[1:])


def _compress_rule(g: Node, y: Node, x: Node, mask: Node) -> Gradients:
    return put_nd(zeros_like(x), (true_positions(mask, y.shape[0]),), g, (0,), "set"), None


def _numpy_compress(arrays: list[Any], constants: dict[str, Any]) -> Any:
    x, mask = arrays
    return x[mask]


def _compress_samples() -> Samples:
    yield [[1.0, 2.0, 3.0], [True, False, True]], {"count": 2}
    yield [[[1.0, 2.0], [3.0, 4.0]], [False, True]], {"count": 1}


def _batch_compress(b: Batched) -> Node:
    """Samples of which each has as many true elements: one long vector."""
    x, mask = (fold(operand, 0) for operand in b.all())
    each = b.node.shape[0]
    return unfold(b.same(x, mask, count=mul(b.extent, each)), 0, b.extent, each)


def _compress_arguments(value: Node) -> Arguments:
    shape, _ = value.attribute("shapes")
    entry = mul(prod(shape[1:]), ITEM_SIZE[value.dtype])
    return Arguments("compress", (shape[0], value.shape[0], entry), floordiv(prod(shape), 4))


register(
    Primitive(
        "compress",
        "routine",
        _infer_compress,
        _compress_rule,
        routine=Routine("compress", arguments=_compress_arguments),
        cost=2,
        reference=_numpy_compress,
        samples=_compress_samples,
        batch=_batch_compress,
    )
)


def compress(x: Node, mask: Node, count: Size) -> Node:
    """The entries of dimension 0 of which the mask, a vector with `count` true elements, is true.

    No index is stored: that takes less memory than `take`, where x is contiguous.
    """
    return bind("compress", x, mask, count=count)
