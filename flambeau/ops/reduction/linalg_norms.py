"""Norms of vectors and matrices, distances, and renormalisation.

A norm's derivative is written out once, for all orders: derived from its parts it would be NaN
where the vector is zero. Source of the formulas: Horn & Johnson, Matrix Analysis, ch. 5.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from flambeau import prims
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.language import layout
from flambeau.language.definition import op
from flambeau.language.promotion import CATEGORY, HALF, compute_dtype, promote_types
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.language.schema import DType, Scalar, Tensor
from flambeau.ops.broadcasting import (
    broadcast_sizes,
    check_float,
    insist,
    is_complex,
    unsupported,
)
from flambeau.ops.common import dtype_or, normalise_dim, normalise_dims
from flambeau.ops.reduction.reduce import Dims, dropped, reduced_dims

_REAL = {"c64": "f32", "c128": "f64"}


def p_norm(x: Node, order: float, dims: tuple[int, ...]) -> Node:
    """The vector norm over dims, kept as size 1, in the dtype of x (float32 or float64)."""
    size = prims.abs(x)
    if order == 0:
        nonzero = prims.cast(prims.ne(size, prims.zeros_like(size)), size.dtype)
        count = prims.reduce_dims("sum", nonzero, dims, True)
        return prims.with_derivative(count, x, rule="flat")
    if math.isinf(order):
        value = prims.reduce_dims("max" if order > 0 else "min", size, dims, True)
    elif order == 1:
        value = prims.reduce_dims("sum", size, dims, True)
    elif order == 2:
        value = prims.sqrt(prims.reduce_dims("sum", size * size, dims, True))
    else:
        value = prims.reduce_dims("sum", size**order, dims, True) ** (1 / order)
    if CATEGORY[x.dtype] == 3:
        return value  # the derivative of abs is right for complex numbers, but not at zero
    return prims.with_derivative(value, x, rule="p_norm", order=float(order), dims=dims)


def _p_norm_rule(g: Node, y: Node, x: Node) -> list[Node]:
    order, dims = y.attribute("order"), y.attribute("dims")
    zero = prims.zeros_like(x)
    grad, norm = prims.broadcast_to(g, x.shape), prims.broadcast_to(y, x.shape)
    if math.isinf(order):
        here = prims.eq(prims.abs(x), norm)
        count = prims.reduce_dims("sum", prims.cast(here, x.dtype), dims, True)
        share = grad / prims.broadcast_to(count, x.shape)
        return [prims.where(here, prims.sign(x) * share, zero)]
    if order == 1:
        return [grad * prims.sign(x)]
    empty = prims.eq(norm, zero)
    divisor = prims.where(empty, prims.full_like(1, x), norm)
    if order == 2:
        return [prims.where(empty, zero, x * (grad / divisor))]
    still = prims.eq(x, zero)
    size = prims.where(still, prims.full_like(1, x), prims.abs(x))
    scale = prims.sign(x) * (size / divisor) ** (order - 1)
    return [prims.where(empty | still, zero, scale * grad)]


prims.register_rule("p_norm", _p_norm_rule)


def _norm_dtype(name: str, x: Node, dtype: Any) -> str:
    """The dtype to compute in: the input's, or one that holds all its values."""
    check_float("linalg.vector_norm", x)
    chosen = dtype_or(dtype, x.dtype)
    if CATEGORY[chosen] < 2:
        problem = f"dtype should be floating point or complex. Got {chosen}"
        raise failure(RuntimeError, name, problem, "leave dtype out")
    if CATEGORY[chosen] != CATEGORY[x.dtype]:
        problem = f"linalg.vector_norm: dtype should be {'complex' if is_complex(x) else 'real'} "
        problem += f"for such inputs, but got {chosen}"
        raise failure(RuntimeError, name, problem, "the norm itself is real")
    if promote_types(x.dtype, chosen) != chosen:
        problem = f"linalg.vector_norm: the dtype of the input ({x.dtype}) should be convertible "
        problem += f"without narrowing to the specified dtype ({chosen})"
        raise failure(RuntimeError, name, problem, "convert the input first")
    return chosen


def _vector_norm(name: str, self: Node, order: float, dim: Dims, keepdim: bool, dtype: Any) -> Node:
    target = _norm_dtype(name, self, dtype)
    x = prims.cast(prims.cast(self, target), compute_dtype(target))
    dims = reduced_dims(dim, x.ndim, name)
    empty = layout.same(layout.numel([x.shape[d] for d in dims]), 0)
    if empty and (order < 0 or order == math.inf):
        problem = f"linalg.vector_norm cannot compute the {order} norm on an empty tensor because "
        problem += "the operation does not have an identity"
        raise failure(RuntimeError, name, problem, "reduce other dimensions")
    value = dropped(p_norm(x, order, dims), dims, keepdim)
    return prims.cast(value, _REAL.get(target, target))


def _norm_samples() -> Iterator[Sample]:
    for shape in ((), (7,), (3, 4), (4200,), (0,)):
        yield sample(T(*shape))
    for order in (0, 1, 2, 3, 0.5, -1, math.inf, -math.inf):
        yield sample(T(3, 4), order, 1)
        yield sample(T(2, 3, 5), order, (0, 2), True)
    yield sample(T(2, 3, values=[[0.0, 0.0, 0.0], [1.0, 0.0, 2.0]]), 2, 1)
    yield sample(T(2, 3, values=[[0.0, 0.0, 0.0], [1.0, 0.0, 2.0]]), 3, 1)
    yield sample(T(4, 6, layout="transposed"), 2, 0)


def _norm_errors() -> Iterator[ErrorSample]:
    yield ErrorSample(sample(T(3, dtype="i64")), RuntimeError, "Expected a floating point")


@op(out="exact", samples=_norm_samples, errors=_norm_errors, dtypes="f16 bf16 f32 f64")
def norm(
    self: Tensor,
    p: Scalar | None = 2,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Tensor:
    """The p-norm of all elements, or over `dim`; "fro" is the 2-norm.

    Matrix norms ("nuc" and those by singular values) are in `torch.linalg`.

    Raises:
        RuntimeError: integer tensors.
        NotImplementedError: the nuclear norm.

    Example:
        >>> torch.norm(torch.tensor([3.0, 4.0]))
        tensor(5.)
    """
    return _vector_norm("norm", self, 2 if p is None else p, dim, keepdim, dtype)


@norm.overload()
def _named_norm(
    self: Tensor,
    p: str = "fro",
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Tensor:
    if p == "nuc":
        if dim is None and self.ndim != 2:
            problem = f"Expected a tensor with 2 dimensions, but got a tensor with {self.ndim} "
            problem += "dimensions instead."
            raise failure(RuntimeError, "norm", problem, "pass dim")
        return _matrix_norm("norm", self, p, (-2, -1) if dim is None else dim, keepdim, dtype)
    if p != "fro":
        raise RuntimeError(f"[norm] order {p!r} is not supported\nhint: 'fro', 'nuc', a number")
    return _vector_norm("norm", self, 2, dim, keepdim, dtype)


@op(where="linalg", out="exact", samples=_norm_samples, dtypes="f16 bf16 f32 f64")
def vector_norm(
    self: Tensor,
    ord: Scalar = 2,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Tensor:
    """The norm of order `ord` of all elements, or over `dim`, as if flattened.

    Orders: any number; 0 counts the elements that are not zero; inf and -inf are the greatest and
    least magnitude. The gradient is 0 where the norm is 0.

    Raises:
        RuntimeError: integer tensors, or an empty norm without a neutral element.

    Example:
        >>> torch.linalg.vector_norm(torch.tensor([3.0, 4.0]))
        tensor(5.)
    """
    return _vector_norm("vector_norm", self, ord, dim, keepdim, dtype)


# ------------------------------------------------------------------------------------ matrices


def _extreme(name: str, x: Node, order: float, dims: tuple[int, ...], keepdim: bool) -> Node:
    """The greatest of numbers that are not negative, of none 0; or the least."""
    empty = layout.same(x.shape[dims[0]], 0)
    if order > 0:
        return prims.reduce_dims("sum" if empty else "max", x, dims, keepdim)
    if empty:
        problem = "linalg.matrix_norm: the least of no rows, columns or singular values"
        raise failure(IndexError, name, problem, "an order above 0 gives 0")
    return prims.reduce_dims("min", x, dims, keepdim)


def _matrix_norm(name: str, self: Node, order: Any, dim: Any, keepdim: bool, dtype: Any) -> Node:
    if self.ndim < 2:
        problem = "linalg.matrix_norm: The input tensor A must have at least 2 dimensions."
        raise failure(RuntimeError, name, problem, "use vector_norm")
    if len(dim) != 2:
        raise failure(RuntimeError, name, "linalg.matrix_norm: dim must be a 2-tuple", "(-2, -1)")
    row, column = normalise_dims(dim, self.ndim, name)
    if order in ("fro", None):
        return _vector_norm(name, self, 2, (row, column), keepdim, dtype)
    if order in (1, -1, math.inf, -math.inf):
        summed, sought = (row, column) if abs(order) == 1 else (column, row)
        target = _norm_dtype(name, self, dtype)
        x = prims.cast(prims.cast(self, target), compute_dtype(target))
        sums = p_norm(x, 1, (summed,))
        value = _extreme(name, sums, order, (sought,), True)
        return prims.cast(dropped(value, (row, column), keepdim), _REAL.get(target, target))
    if order in (2, -2, "nuc"):
        target = _norm_dtype(name, self, dtype)
        if self.dtype in HALF:
            problem = f"linalg.matrix_norm: Low precision dtypes not supported. Got {self.dtype}"
            raise failure(
                RuntimeError, name, problem, "singular values are computed in float32 or float64"
            )
        x = prims.cast(prims.cast(self, target), compute_dtype(target))
        others = [d for d in range(x.ndim) if d not in (row, column)]
        values = prims.linear_algebra.svd(prims.permute(x, (*others, row, column)))[1]
        last = (values.ndim - 1,)
        if order == "nuc":
            value = prims.reduce_dims("sum", values, last, False)
        else:
            value = _extreme(name, values, order, last, False)
        if keepdim:
            value = prims.reshape(
                value, tuple(1 if d in (row, column) else x.shape[d] for d in range(x.ndim))
            )
        return prims.cast(value, _REAL.get(target, target))
    problem = f"linalg.matrix_norm: Order {order} not supported."
    raise failure(RuntimeError, name, problem, "'fro', 1, -1, inf, -inf")


def _matrix_samples() -> Iterator[Sample]:
    for order in ("fro", 1, -1, math.inf, -math.inf, 2):
        yield sample(T(3, 4), order)
        yield sample(T(2, 3, 5), order, (0, 2), True)
    yield sample(T(3, 4), "nuc")


@op(where="linalg", out="exact", samples=_matrix_samples, dtypes="f16 bf16 f32 f64")
def matrix_norm(
    self: Tensor,
    ord: Scalar,
    dim: Sequence[int] = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Tensor:
    """The norm of matrices: "fro", the greatest (1, inf) or least (-1, -inf) absolute sums, the
    greatest (2), least (-2) or the sum ("nuc") of the singular values.

    Raises:
        RuntimeError: fewer than two dimensions, or an unknown order.

    Example:
        >>> torch.linalg.matrix_norm(torch.ones(2, 2))
        tensor(2.)
    """
    return _matrix_norm("matrix_norm", self, ord, dim, keepdim, dtype)


@matrix_norm.overload()
def _named_matrix_norm(
    self: Tensor,
    ord: str = "fro",
    dim: Sequence[int] = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Tensor:
    return _matrix_norm("matrix_norm", self, ord, dim, keepdim, dtype)


def _linalg_norm_samples() -> Iterator[Sample]:
    yield sample(T(3, 4))
    yield sample(T(7), 3)
    yield sample(T(3, 4), 1)
    yield sample(T(3, 4), "fro")
    yield sample(T(3, 4), 2, 1)
    yield sample(T(2, 3, 5), math.inf, (0, 2), True)


@op(
    name="norm",
    where="linalg",
    out="exact",
    samples=_linalg_norm_samples,
    dtypes="f16 bf16 f32 f64",
)
def linalg_norm(
    self: Tensor,
    ord: Scalar | None = None,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Tensor:
    """A vector or matrix norm: a vector's over one dimension, a matrix's over two.

    Without `ord` and `dim` the tensor is flattened; with `ord` only, it must have one or two
    dimensions.

    Raises:
        RuntimeError: dimensions that are neither, or an unknown order.

    Example:
        >>> torch.linalg.norm(torch.ones(2, 2))
        tensor(2.)
    """
    if ord is None or (dim is not None and len(dim) == 1):
        return _vector_norm("norm", self, 2 if ord is None else ord, dim, keepdim, dtype)
    if dim is None and self.ndim not in (1, 2):
        problem = "linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. "
        problem += f"Got {self.ndim}D."
        raise failure(RuntimeError, "norm", problem, "pass dim")
    if dim is None and self.ndim == 1:
        return _vector_norm("norm", self, ord, None, keepdim, dtype)
    return _matrix_norm("norm", self, ord, (0, 1) if dim is None else dim, keepdim, dtype)


@linalg_norm.overload()
def _linalg_named_norm(
    self: Tensor,
    ord: str,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Tensor:
    if dim is None and self.ndim != 2:
        problem = "linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. "
        problem += f"Got {self.ndim}D."
        raise failure(RuntimeError, "norm", problem, "pass dim")
    return _matrix_norm("norm", self, ord, (0, 1) if dim is None else dim, keepdim, dtype)


# ------------------------------------------------------------------------------------ distances


def _distance_samples() -> Iterator[Sample]:
    for order in (2, 1, 0, 3.5, math.inf):
        yield sample(T(3, 4), T(4), order)
    yield sample(T(7), T(7))


@op(samples=_distance_samples)
def dist(self: Tensor, other: Tensor, p: Scalar = 2) -> Tensor:
    """The p-norm of `self - other`; operands broadcast.

    Example:
        >>> torch.dist(torch.tensor([0.0, 0.0]), torch.tensor([3.0, 4.0]))
        tensor(5.)
    """
    from flambeau.ops.pointwise.binary import sub

    return _vector_norm("dist", sub(self, other), p, None, False, None)


def _cdist_samples() -> Iterator[Sample]:
    for order in (2.0, 1.0, 0.5, 3.0, math.inf):
        yield sample(T(3, 4), T(5, 4), order)
    yield sample(T(2, 3, 4), T(5, 4))
    yield sample(T(3, 4), T(0, 4))
    yield sample(T(3, 4), T(0, 4), math.inf)


@op(where="torch", samples=_cdist_samples, dtypes="f32 f64", autocast="float32")
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str | None = None) -> Tensor:
    """The p-norm distance of every row of x1 to every row of x2.

    Shapes: [*B, P, M] and [*B, R, M] give [*B, P, R]; batches broadcast.

    Distances are always computed from differences, never through a matrix product, whatever
    `compute_mode`: near points keep their digits. The gradient at distance 0 is 0.

    Raises:
        RuntimeError: fewer than two dimensions, different row sizes, or a negative p.

    Example:
        >>> torch.cdist(torch.zeros(1, 2), torch.ones(1, 2))
        tensor([[1.4142]])
    """
    if x1.ndim < 2 or x2.ndim < 2:
        raise RuntimeError("[cdist] cdist only supports at least 2D tensors\nhint: unsqueeze(0)")
    if not layout.same(x1.shape[-1], x2.shape[-1]):
        problem = f"X1 and X2 must have the same number of columns. X1: {x1.shape[-1]} X2: "
        problem += f"{x2.shape[-1]}"
        raise failure(RuntimeError, "cdist", problem, "rows are points")
    if p < 0:
        raise failure(RuntimeError, "cdist", "cdist only supports non-negative p values", "p=2")
    if CATEGORY[x1.dtype] != 2 or x1.dtype != x2.dtype:
        raise unsupported("cdist", x1, "pass two floating-point tensors of one dtype")
    batch = broadcast_sizes("cdist", x1.shape[:-2], x2.shape[:-2])
    rows, columns, size = x1.shape[-2], x2.shape[-2], x1.shape[-1]
    pair_shape = (*batch, rows, columns, size)
    wide = compute_dtype(x1.dtype)
    a = prims.broadcast_to(prims.unsqueeze(prims.cast(x1, wide), -2), pair_shape)
    b = prims.broadcast_to(prims.unsqueeze(prims.cast(x2, wide), -3), pair_shape)
    axis = len(pair_shape) - 1
    if layout.same(layout.numel(pair_shape), 0) and p == math.inf:
        p = 1.0  # nothing has no greatest element; every other norm of it is 0
    return prims.cast(dropped(p_norm(a - b, p, (axis,)), (axis,), False), x1.dtype)


@op(
    inplace=True,
    out="exact",
    overlap="partial",
    runtime="maxnorm",
    samples=lambda: [sample(T(3, 4), 2, 0, 1.0), sample(T(2, 3, 4), 1, -1, 0.5)],
    dtypes="f16 bf16 f32 f64 c64 c128",
)
def renorm(self: Tensor, p: Scalar, dim: int, maxnorm: Scalar) -> Tensor:
    """Every slice along `dim` scaled down to a p-norm of at most `maxnorm`.

    Raises:
        RuntimeError: fewer than two dimensions, or p not positive.

    Example:
        >>> torch.renorm(torch.tensor([[3.0, 4.0], [0.3, 0.4]]), 2, 0, 1.0)
        tensor([[0.6000, 0.8000],
                [0.3000, 0.4000]])
    """
    if self.ndim < 2 or p <= 0:
        problem = f"renorm: input needs at least 2 dimensions (got {self.ndim}) and a "
        problem += f"non-negative-norm (p > 0, got {p})"
        raise failure(RuntimeError, "renorm", problem, "unsqueeze the tensor")
    axis = normalise_dim(dim, self.ndim, "renorm")
    x = prims.cast(self, compute_dtype(self.dtype))
    size = p_norm(x, p, tuple(d for d in range(x.ndim) if d != axis))
    limit = (
        prims.broadcast_to(prims.cast(maxnorm, size.dtype), size.shape)
        if isinstance(maxnorm, Node)
        else prims.full_like(maxnorm, size)
    )
    text = "[renorm] renorm: expected maxnorm to be >= 0\nhint: a norm"
    limit = insist(limit, limit < 0, "renorm", text)
    scale = prims.where(size > limit, limit / (size + 1e-7), prims.full_like(1, size))
    return prims.cast(x * prims.cast(scale, x.dtype), self.dtype)
