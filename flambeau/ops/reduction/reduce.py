"""Reductions: sums, means, products, tests and counts over all or some dimensions.

Half types accumulate in float32 and round once, at the end; integer sums are 64 bits wide.
Extremes are in `extremes.py`, spreads in `variance.py`, order statistics in `statistics.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from flambeau import prims
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.language import layout
from flambeau.language.definition import OpDefinition, op
from flambeau.language.promotion import CATEGORY, compute_dtype, default_dtype
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.language.schema import DType, Tensor
from flambeau.ops.common import dtype_or, normalise_dims
from flambeau.ops.linear.complex_products import product_of

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
    yield sample(T(), 0)


def list_samples() -> Iterator[Sample]:
    """As `reduction_samples`, and lists of dims, empty tensors."""
    yield from reduction_samples()
    yield sample(T(2, 3, 5), (0, 2))
    yield sample(T(2, 3, 5), (0, 2), keepdim=True)
    yield sample(T(0, 3), 0)


def dim_errors() -> Iterator[ErrorSample]:
    """Dimensions that are out of range or named twice."""
    yield ErrorSample(sample(T(3, 4), 2), IndexError, "Dimension out of range")
    yield ErrorSample(sample(T(3, 4), (0, 0)), RuntimeError, "appears multiple times")


def accumulated(name: str, x: Node, dims: tuple[int, ...], keepdim: bool, dtype: str) -> Node:
    """Reduce by a primitive in `dtype`, halves in float32, rounded once."""
    inner = prims.cast(prims.cast(x, dtype), compute_dtype(dtype))
    if name == "prod":
        return prims.cast(product_of(inner, dims, keepdim), dtype)
    return prims.cast(prims.reduce_dims(name, inner, dims, keepdim), dtype)


def every(x: Node) -> tuple[int, ...]:
    """All dimensions."""
    return tuple(range(x.ndim))


def _sum_dtype(x: Node, dtype: Any) -> str:
    return dtype_or(dtype, x.dtype if CATEGORY[x.dtype] >= 2 else "i64")


def _total(name: str, primitive: str, x: Node, dims: Any, keepdim: bool, dtype: Any) -> Node:
    target = _sum_dtype(x, dtype)
    if target == "bool":  # a sum of truths is "or", a product is "and"
        logical = "any" if primitive == "sum" else "all"
        return prims.reduce_dims(logical, prims.cast(x, "bool"), dims, keepdim)
    return accumulated(primitive, x, dims, keepdim, target)


@op(out="dtype", samples=list_samples, errors=dim_errors, reference="numpy.sum")
def sum(self: Tensor, *, dtype: DType | None = None) -> Tensor:
    """Sum of all elements, or over `dim`.

    Integers and bools sum in int64; half types accumulate in float32; `dtype` converts first.

    Raises:
        IndexError: a dimension out of range.
        RuntimeError: a dimension named twice.

    Example:
        >>> torch.sum(torch.tensor([[1, 2], [3, 4]]), dim=0)
        tensor([4, 6])
    """
    return _total("sum", "sum", self, every(self), False, dtype)


@sum.overload()
def _sum_dim(
    self: Tensor, dim: Sequence[int] | None, keepdim: bool = False, *, dtype: DType | None = None
) -> Tensor:
    return _total("sum", "sum", self, reduced_dims(dim, self.ndim, "sum"), keepdim, dtype)


@op(out="dtype", samples=list_samples, errors=dim_errors, reference="numpy.nansum")
def nansum(
    self: Tensor,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Tensor:
    """`sum` with NaN counted as 0.

    Raises:
        RuntimeError: a complex tensor.

    Example:
        >>> torch.nansum(torch.tensor([1.0, float("nan"), 2.0]))
        tensor(3.)
    """
    if CATEGORY[self.dtype] == 3:
        raise RuntimeError("[nansum] nansum does not support complex inputs\nhint: sum the parts")
    return sum(_without_nan(self), dim, keepdim, dtype=dtype)


def _without_nan(x: Node) -> Node:
    if CATEGORY[x.dtype] < 2:
        return x
    wide = prims.cast(x, compute_dtype(x.dtype))
    return prims.cast(prims.where(prims.isnan(wide), prims.zeros_like(wide), wide), x.dtype)


def _prod_samples() -> Iterator[Sample]:
    yield from reduction_samples()
    yield sample(T(2, 4, values=[[3.0, 0.0, 2.0, 1.0], [0.0, 0.0, 0.5, 1.0]]), 1)
    yield sample(T(0, 3), 0)


@op(out="dtype", samples=_prod_samples, reference="numpy.prod", autocast="float32")
def prod(self: Tensor, *, dtype: DType | None = None) -> Tensor:
    """Product of all elements, or over `dim`; integers multiply in int64.

    The gradient is right with any number of zeros.

    Raises:
        IndexError: a dimension out of range.

    Example:
        >>> torch.prod(torch.tensor([2.0, 3.0]))
        tensor(6.)
    """
    return _total("prod", "prod", self, every(self), False, dtype)


@prod.overload()
def _prod_dim(
    self: Tensor, dim: int, keepdim: bool = False, *, dtype: DType | None = None
) -> Tensor:
    return _total("prod", "prod", self, reduced_dims(dim, self.ndim, "prod"), keepdim, dtype)


# ------------------------------------------------------------------------------------ means


def _mean_dtype(name: str, x: Node, dtype: Any) -> str:
    mean_dtype = dtype_or(dtype, x.dtype)
    if CATEGORY[mean_dtype] < 2:
        what = "Input" if dtype is None else "Optional"
        raise RuntimeError(
            f"[{name}] {name}(): could not infer output dtype. {what} dtype must be either a "
            f"floating point or complex dtype. Got: {mean_dtype}\n"
            "hint: convert first: x.float().mean(), or pass dtype=torch.float32"
        )
    return mean_dtype


def _mean_errors() -> Iterator[ErrorSample]:
    yield ErrorSample(sample(T(3, dtype="i64")), RuntimeError, "could not infer output dtype")


@op(
    out="dtype",
    samples=list_samples,
    errors=_mean_errors,
    dtypes="f16 bf16 f32 f64 c64 c128",
    reference="numpy.mean",
)
def mean(self: Tensor, *, dtype: DType | None = None) -> Tensor:
    """Mean of all elements, or over `dim`. Dtypes: floats and complex; empty means are NaN.

    Raises:
        RuntimeError: an integer tensor without `dtype`.
        IndexError: a dimension out of range.

    Example:
        >>> torch.mean(torch.tensor([1.0, 2.0, 6.0]))
        tensor(3.)
    """
    return mean_over(self, every(self), False, _mean_dtype("mean", self, dtype))


@mean.overload()
def _mean_dim(
    self: Tensor, dim: Sequence[int] | None, keepdim: bool = False, *, dtype: DType | None = None
) -> Tensor:
    dims = reduced_dims(dim, self.ndim, "mean")
    return mean_over(self, dims, keepdim, _mean_dtype("mean", self, dtype))


def mean_over(x: Node, dims: tuple[int, ...], keepdim: bool, dtype: str) -> Node:
    """Sum divided by the number of elements, in the accumulation dtype."""
    inner = prims.cast(prims.cast(x, dtype), compute_dtype(dtype))
    total = prims.reduce_dims("sum", inner, dims, keepdim)
    count = layout.numel([x.shape[d] for d in dims])
    return prims.cast(total / count, dtype)


@op(out="dtype", samples=list_samples, dtypes="f16 bf16 f32 f64", reference="numpy.nanmean")
def nanmean(
    self: Tensor,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Tensor:
    """Mean of the elements that are not NaN.

    Raises:
        RuntimeError: an integer tensor.

    Example:
        >>> torch.nanmean(torch.tensor([1.0, float("nan"), 3.0]))
        tensor(2.)
    """
    if CATEGORY[self.dtype] < 2:
        problem = "nanmean(): expected input to have floating point or complex dtype but got "
        problem += f"{self.dtype}"
        raise failure(RuntimeError, "nanmean", problem, "convert to float first")
    target = _mean_dtype("nanmean", self, dtype)
    inner = compute_dtype(target)
    dims = reduced_dims(dim, self.ndim, "nanmean")
    x = prims.cast(prims.cast(self, target), inner)
    valid = prims.cast(~prims.isnan(x), inner)
    total = prims.reduce_dims("sum", _without_nan(x), dims, keepdim)
    return prims.cast(total / prims.reduce_dims("sum", valid, dims, keepdim), target)


# ------------------------------------------------------------------------------------ tests


def _quantifier(name: str, text: str) -> OpDefinition:
    def over(self: Node, dims: tuple[int, ...], keepdim: bool) -> Node:
        result = prims.reduce_dims(name, prims.cast(self, "bool"), dims, keepdim)
        return prims.cast(result, "u8") if self.dtype == "u8" else result

    def body(self: Node) -> Node:
        return over(self, every(self), False)

    def with_dim(self: Node, dim: Dims, keepdim: bool) -> Node:
        # Unlike a sum, this takes no dimensions for none at all.
        return over(self, () if dim == () else reduced_dims(dim, self.ndim, name), keepdim)

    body.__doc__ = f"""{text} of a tensor, or over `dim`, is not zero.

    The result is `bool`; uint8 tensors give uint8, as in PyTorch.

    Raises:
        IndexError: a dimension out of range.

    Example:
        >>> torch.{name}(torch.tensor([True, True]))
        tensor(True)
    """
    definition = op(
        f"{name}(Tensor self) -> Tensor",
        out="truth",
        samples=list_samples,
        errors=dim_errors,
        reference="numpy." + name,
    )(body)
    signature = f"{name}.dims(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor"
    return definition.overload(signature)(with_dim)


all = _quantifier("all", "Whether every element")
any = _quantifier("any", "Whether some element")


def _count_samples() -> Iterator[Sample]:
    for shape in ((), (7,), (3, 4), (0, 3)):
        yield sample(T(*shape, dtype="i64", low=-1, high=2))
    yield sample(T(3, 4), 1)
    yield sample(T(2, 3, 5), (0, 2))


@op(samples=_count_samples, reference="numpy.count_nonzero")
def count_nonzero(self: Tensor, dim: Sequence[int] | None = None) -> Tensor:
    """The number of elements that are not zero, as int64.

    Example:
        >>> torch.count_nonzero(torch.tensor([0, 3, 5]))
        tensor(2)
    """
    dims = reduced_dims(dim, self.ndim, "count_nonzero")
    truths = prims.cast(prims.cast(self, "bool"), "i64")
    return prims.reduce_dims("sum", truths, dims)


# ------------------------------------------------------------------------------------ logsumexp


def _logsumexp_samples() -> Iterator[Sample]:
    yield sample(T(7), 0)
    yield sample(T(3, 4), 1)
    yield sample(T(2, 3, 5), -2, keepdim=True)
    yield sample(T(2, 3, 5), (0, 2))
    yield sample(T(3, 4, low=-300, high=300), (0,))
    yield sample(T(), 0)
    yield sample(T(0, 3), 0)


def _logsumexp_rule(g: Node, y: Node, x: Node) -> list[Node]:
    spread = [prims.broadcast_to(value, x.shape) for value in (g, y)]
    return [spread[0] * prims.exp(x - spread[1])]


prims.register_rule("logsumexp", _logsumexp_rule)


def _complex_logsumexp(x: Node, dims: tuple[int, ...], keepdim: bool) -> Node:
    """Shifted by the greatest real part, which decides about the magnitude of exp(x)."""
    total = prims.exp(x)
    if layout.same(layout.numel([x.shape[d] for d in dims]), 0):
        return dropped(prims.log(prims.reduce_dims("sum", total, dims, True)), dims, keepdim)
    greatest = prims.stop_gradient(prims.reduce_dims("max", prims.real(x), dims, True))
    finite = prims.where(prims.isinf(greatest), prims.zeros_like(greatest), greatest)
    shift = prims.cast(finite, x.dtype)
    total = prims.reduce_dims("sum", prims.exp(x - shift), dims, True)
    return dropped(prims.log(total) + shift, dims, keepdim)


@op(
    where="torch method special",
    out=True,
    samples=_logsumexp_samples,
    reference="scipy.special.logsumexp",
)
def logsumexp(self: Tensor, dim: Sequence[int], keepdim: bool = False) -> Tensor:
    """log(sum(exp(x))) over `dim`, without overflow; integers become the default float dtype.

    The gradient is exp(x - result).

    Raises:
        IndexError: a dimension out of range.

    Example:
        >>> torch.logsumexp(torch.zeros(2, 3), 1)
        tensor([1.0986, 1.0986])
    """
    if CATEGORY[self.dtype] == 3:
        return _complex_logsumexp(self, reduced_dims(dim, self.ndim, "logsumexp"), keepdim)
    target = self.dtype if CATEGORY[self.dtype] == 2 else default_dtype()
    x = prims.cast(self, compute_dtype(target))
    dims = reduced_dims(dim, x.ndim, "logsumexp")
    if layout.same(layout.numel([x.shape[d] for d in dims]), 0):
        greatest = prims.zeros_like(prims.reduce_dims("sum", x, dims, True))
    else:
        greatest = prims.reduce_dims("max", x, dims, True)
    finite = prims.where(prims.isinf(greatest), prims.zeros_like(greatest), greatest)
    total = prims.reduce_dims("sum", prims.exp(x - finite), dims, True)
    # One rounding in the end: in float32 the logarithm's own would be half of the error.
    wide = "f64" if target == "f32" else x.dtype
    joined = prims.log(prims.cast(total, wide)) + prims.cast(finite, wide)
    value = prims.with_derivative(prims.cast(joined, x.dtype), x, rule="logsumexp")
    return prims.cast(dropped(value, dims, keepdim), target)


def dropped(x: Node, dims: tuple[int, ...], keepdim: bool) -> Node:
    """Without the reduced dimensions of size 1, unless they are to be kept."""
    if keepdim or not dims:
        return x
    return prims.reshape(x, tuple(n for d, n in enumerate(x.shape) if d not in dims))
