"""Reductions: sums, means, extremes, tests, over all or some dimensions.

Half types accumulate in float32 and round once, at the end; integer sums are 64 bits wide.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau import prims
from flambeau.core import layout
from flambeau.core.definition import op
from flambeau.core.promotion import CATEGORY, compute_dtype
from flambeau.core.samples import Sample, T, sample
from flambeau.ir.node import Node
from flambeau.ops.common import dtype_or, normalise_dims

Dims = Any  # int, tuple of ints or None


def reduced_dims(dim: Dims, ndim: int, name: str) -> tuple[int, ...]:
    """The dimensions to reduce; None and the empty list mean all of them."""
    if dim is None or (isinstance(dim, (tuple, list)) and len(dim) == 0):
        return tuple(range(ndim))
    dims = (dim,) if isinstance(dim, int) else dim
    wrapped = normalise_dims(dims, ndim, name)
    return wrapped if ndim else ()


def reduction_samples() -> Iterator[Sample]:
    """Shapes, layouts and dims every reduction must survive."""
    for shape in ((), (1,), (7,), (3, 4), (2, 3, 5), (33, 17), (4200,)):
        yield sample(T(*shape))
    yield sample(T(4, 6, layout="transposed"))
    yield sample(T(3, 5, layout="expanded"))
    yield sample(T(3, 4), 1)
    yield sample(T(2, 3, 5), -2, keepdim=True)


def list_samples() -> Iterator[Sample]:
    """As `reduction_samples`, and lists of dims, empty tensors."""
    yield from reduction_samples()
    yield sample(T(2, 3, 5), (0, 2))
    yield sample(T(2, 3, 5), (0, 2), keepdim=True)
    yield sample(T(0, 3), 0)


def accumulated(name: str, x: Node, dims: tuple[int, ...], keepdim: bool, dtype: str) -> Node:
    """Reduce by a primitive in `dtype`, halves in float32, rounded once."""
    inner = prims.cast(prims.cast(x, dtype), compute_dtype(dtype))
    return prims.cast(prims.reduce_dims(name, inner, dims, keepdim), dtype)


def _sum_dtype(x: Node, dtype: Any) -> str:
    return dtype_or(dtype, x.dtype if CATEGORY[x.dtype] >= 2 else "i64")


@op("sum(Tensor self, *, dtype? dtype=None) -> Tensor", samples=list_samples, reference="numpy.sum")
def sum(self: Node, dtype: Any) -> Node:
    """Sum of all elements, or over `dim`.

    Integers and bools sum in int64; half types accumulate in float32; `dtype` converts first.

    Raises:
        IndexError: a dimension out of range.
        RuntimeError: a dimension named twice.

    Example:
        >>> torch.sum(torch.tensor([[1, 2], [3, 4]]), dim=0)
        tensor([4, 6])
    """
    return accumulated("sum", self, tuple(range(self.ndim)), False, _sum_dtype(self, dtype))


@sum.overload(
    "sum.dim(Tensor self, int[]? dim, bool keepdim=False, *, dtype? dtype=None) -> Tensor"
)
def _sum_dim(self: Node, dim: Dims, keepdim: bool, dtype: Any) -> Node:
    dims = reduced_dims(dim, self.ndim, "sum")
    return accumulated("sum", self, dims, keepdim, _sum_dtype(self, dtype))


def _mean_dtype(x: Node, dtype: Any) -> str:
    found = dtype_or(dtype, x.dtype)
    if CATEGORY[found] < 2:
        what = "Input" if dtype is None else "Optional"
        raise RuntimeError(
            "[mean] mean(): could not infer output dtype. "
            f"{what} dtype must be either a floating point or complex dtype. Got: {found}\n"
            "hint: convert first: x.float().mean(), or pass dtype=torch.float32"
        )
    return found


@op("mean(Tensor self, *, dtype? dtype=None) -> Tensor", samples=list_samples)
def mean(self: Node, dtype: Any) -> Node:
    """Mean of all elements, or over `dim`. Dtypes: floats and complex; empty means are NaN.

    Raises:
        RuntimeError: an integer tensor without `dtype`.
        IndexError: a dimension out of range.

    Example:
        >>> torch.mean(torch.tensor([1.0, 2.0, 6.0]))
        tensor(3.)
    """
    return mean_over(self, tuple(range(self.ndim)), False, _mean_dtype(self, dtype))


@mean.overload(
    "mean.dim(Tensor self, int[]? dim, bool keepdim=False, *, dtype? dtype=None) -> Tensor"
)
def _mean_dim(self: Node, dim: Dims, keepdim: bool, dtype: Any) -> Node:
    dims = reduced_dims(dim, self.ndim, "mean")
    return mean_over(self, dims, keepdim, _mean_dtype(self, dtype))


def mean_over(x: Node, dims: tuple[int, ...], keepdim: bool, dtype: str) -> Node:
    """Sum divided by the number of elements, in the accumulation dtype."""
    inner = prims.cast(prims.cast(x, dtype), compute_dtype(dtype))
    total = prims.reduce_dims("sum", inner, dims, keepdim)
    count = layout.numel([x.shape[d] for d in dims])
    return prims.cast(total / count, dtype)
