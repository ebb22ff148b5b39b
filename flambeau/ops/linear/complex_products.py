"""Products of complex numbers along a dimension.

Kernels fold and scan real numbers only: a complex product is no pair of real ones. A native routine
folds; few numbers lie along a dimension that is scanned, so that log2 of their number steps do.
"""

from __future__ import annotations

from flambeau import prims
from flambeau.ir.node import Node
from flambeau.language.promotion import CATEGORY
from flambeau.ops.common import static_size


def product_along(x: Node, axis: int) -> Node:
    """The product along an axis, which is dropped; 1 of nothing."""
    if CATEGORY[x.dtype] != 3:
        return prims.reduce_dims("prod", x, (axis,), False)
    order = (*(d for d in range(x.ndim) if d != axis), axis)
    return prims.complex_product(x if axis == x.ndim - 1 else prims.permute(x, order))


def product_of(x: Node, dims: tuple[int, ...], keepdim: bool) -> Node:
    """The product over dimensions."""
    if CATEGORY[x.dtype] != 3:
        return prims.reduce_dims("prod", x, dims, keepdim)
    value = x
    for dim in sorted(dims, reverse=True):
        value = product_along(value, dim)
    keepdim_shape = tuple(1 if d in dims else n for d, n in enumerate(x.shape))
    return prims.reshape(value, keepdim_shape) if keepdim and dims else value


def running_product(x: Node, axis: int) -> Node:
    """The product of the elements so far along an axis.

    Source: Hillis & Steele, Data Parallel Algorithms, Communications of the ACM 29, 1986.
    """
    if CATEGORY[x.dtype] != 3:
        return prims.cumprod(x, axis)
    reach, count = 1, static_size(x.shape[axis])
    low = [0] * x.ndim
    while reach < count:
        low[axis] = reach
        x = x * prims.pad(x, low, [-n for n in low], prims.full(1, (), x.dtype))
        reach *= 2
    return x
