"""Running sums, products and extremes along a dimension; differences and integrals."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from flambeau import prims
from flambeau.ir.environment import less
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.language.definition import OpDefinition, op
from flambeau.language.promotion import CATEGORY, compute_dtype, default_dtype, result_type
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.language.schema import Scalar, Tensor
from flambeau.ops.broadcasting import apply, participant, rounded, unsupported
from flambeau.ops.common import dtype_or, normalise_dim
from flambeau.ops.linear.complex_products import running_product
from flambeau.ops.reduction.extremes import ordered

_WIDER = {"f32": "f64", "c64": "c128"}


def _samples() -> Iterator[Sample]:
    for shape in ((7,), (1,), (300,)):
        yield sample(T(*shape), 0)
    yield sample(T(3, 4), 0)
    yield sample(T(3, 4), 1)
    yield sample(T(2, 3, 5), -2)
    yield sample(T(4, 6, layout="transposed"), 1)
    yield sample(T(), 0)
    yield sample(T(0, 3), 0)
    yield sample(T(0, 3), 1)


def _errors() -> Iterator[ErrorSample]:
    yield ErrorSample(sample(T(3), 1), IndexError, "Dimension out of range")


def _running(name: str, text: str, example: str) -> OpDefinition:
    function = running_product if name == "cumprod" else prims.cumsum

    def body(self: Node, dim: int, dtype: Any) -> Node:
        axis = normalise_dim(dim, self.ndim, name)
        target = dtype_or(dtype, self.dtype if CATEGORY[self.dtype] >= 2 else "i64")
        # One long chain: in float32 its error would grow with every step.
        wide = _WIDER.get(target, compute_dtype(target))
        x = prims.cast(prims.cast(self, target), wide)
        return prims.cast(function(x, axis) if x.ndim else x, target)

    body.__doc__ = f"""The running {text} along `dim`; integers and bools run in int64.

    Raises:
        IndexError: a dimension out of range.

    Example:
        >>> torch.{name}(torch.tensor([1, 2, 3]), 0)
        {example}
    """
    return op(
        f"{name}(Tensor self, int dim, *, dtype? dtype=None) -> Tensor",
        inplace=True,
        out="dtype",
        overlap="partial",
        samples=_samples,
        errors=_errors,
        reference="numpy." + name,
    )(body)


cumsum = _running("cumsum", "sum", "tensor([1, 3, 6])")
cumprod = _running("cumprod", "product", "tensor([1, 2, 6])")


def _running_extreme(name: str, word: str) -> OpDefinition:
    function = getattr(prims, name)

    def body(self: Node, dim: int) -> list[Node]:
        axis = normalise_dim(dim, self.ndim, name)
        x = ordered(name, self)
        if x.ndim == 0:
            return [self, prims.full(0, (), "i64")]
        values = function(x, axis)
        return [prims.cast(values, self.dtype), prims.extreme_index(values, x, axis)]

    body.__doc__ = f"""The {word} element so far along `dim`, and its (last) place.

    The named pair (values, indices); NaN wins.

    Raises:
        IndexError: a dimension out of range.

    Example:
        >>> torch.{name}(torch.tensor([1.0, 3.0, 2.0]), 0).indices.dtype
        torch.int64
    """
    return op(
        f"{name}(Tensor self, int dim) -> (Tensor values, Tensor indices)",
        kind="reduction",
        samples=_samples,
        errors=_errors,
    )(body)


cummax = _running_extreme("cummax", "greatest")
cummin = _running_extreme("cummin", "least")


@op(
    kind="reduction",
    overlap="partial",
    samples=lambda: (s for s in _samples()),
    errors=_errors,
    dtypes="f16 bf16 f32 f64 c64 c128",
)
def logcumsumexp(self: Tensor, dim: int) -> Tensor:
    """log(cumsum(exp(x))) along `dim`, without overflow.

    Sums are kept relative to the running maximum m: s[k] = s[k-1] exp(m[k-1] - m[k]) + exp(x[k] -
    m[k]), as in the online softmax (Milakov & Gimelshein 2018).

    Raises:
        IndexError: a dimension out of range.
        NotImplementedError: not a floating-point tensor.

    Example:
        >>> torch.logcumsumexp(torch.zeros(2), 0)
        tensor([0.0000, 0.6931])
    """
    if CATEGORY[self.dtype] < 2:
        raise unsupported("logcumsumexp", self, "convert to a floating-point type first")
    axis = normalise_dim(dim, self.ndim, "logcumsumexp")
    if self.ndim == 0:
        return self
    complex_ = CATEGORY[self.dtype] == 3
    size = prims.real(self) if complex_ else self  # of a complex number, the real part decides
    running = prims.stop_gradient(prims.cummax(size, axis))
    finite = prims.where(prims.isinf(running), prims.zeros_like(running), running)
    lowest = prims.eq(running, prims.full_like(-math.inf, running))
    before = _later(finite, axis)
    decay = prims.where(_later(lowest, axis), prims.zeros_like(size), prims.exp(before - finite))
    shift = prims.cast(finite, self.dtype)
    part = prims.exp(self - shift)
    if not complex_:
        return prims.log(prims.linear_scan(decay, part, axis)) + finite
    parts = [prims.linear_scan(decay, p, axis) for p in (prims.real(part), prims.imag(part))]
    value = prims.log(prims.complex(*parts)) + shift
    return _continued(value, self, prims.isnan(running), axis)


def _continued(value: Node, x: Node, undefined: Node, axis: int) -> Node:
    """`value` with angles that go on from the one before, not cut at pi, as PyTorch's.

    A step adds the lesser of (sum so far, next term) to the greater one and turns it by at most a
    quarter: the angle is the one nearest to that of the greater.
    """
    angle, term = (prims.cast(prims.imag(v), "f64") for v in (value, x))
    begins = prims.ge(prims.real(x), _later(prims.real(value), axis))
    places = prims.iota(x.shape, axis)
    begins = prims.bitwise_or(begins, prims.eq(places, prims.zeros_like(places)))
    from_ = prims.where(begins, term, _later(angle, axis))
    change = angle - from_
    turn = prims.round(change / math.tau) * math.tau
    start = prims.where(begins, from_, prims.zeros_like(from_))
    joins = prims.cast(prims.bitwise_not(begins), "f64")
    phase = prims.linear_scan(joins, start + (change - turn), axis)
    full = prims.round((phase - angle) / math.tau) * math.tau
    full = prims.where(prims.bitwise_or(undefined, prims.isnan(full)), prims.zeros_like(full), full)
    full = prims.stop_gradient(prims.cast(full, prims.imag(value).dtype))
    return value + prims.complex(prims.zeros_like(full), full)


def _later(x: Node, axis: int) -> Node:
    """x moved by one place; the first is 0 (False)."""
    low = [0] * x.ndim
    low[axis] = 1
    return prims.pad(x, low, [-n for n in low], prims.full(0, (), x.dtype))


# ------------------------------------------------------------------------------------ differences


def _diff_samples() -> Iterator[Sample]:
    yield sample(T(7))
    yield sample(T(3, 4), 2)
    yield sample(T(3, 4), 1, 0)
    yield sample(T(3, 4), 1, 1, T(3, 1), T(3, 2))
    yield sample(T(3, dtype="bool"))
    yield sample(T(2), 5)


@op(
    layout="first",
    out=True,
    overlap="partial",
    overlap_when=lambda x, n, dim, before, after: n < 2 and before is None and after is None,
    samples=_diff_samples,
    reference="numpy.diff",
)
def diff(
    self: Tensor,
    n: int = 1,
    dim: int = -1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:
    """The n-th differences of neighbours along `dim`, after putting `prepend`/`append` at the ends.

    Bools give whether neighbours differ.

    Raises:
        RuntimeError: a zero-dimensional tensor, or a negative n.

    Example:
        >>> torch.diff(torch.tensor([1, 4, 9]))
        tensor([3, 5])
    """
    if self.ndim == 0:
        problem = "diff expects input to be at least one-dimensional"
        raise failure(RuntimeError, "diff", problem, "view(1)")
    if n < 0:
        raise RuntimeError(f"[diff] order must be non-negative but got {n}\nhint: pass n >= 0")
    axis = normalise_dim(dim, self.ndim, "diff")
    parts = [x for x in (prepend, self, append) if x is not None]
    if n == 0:
        return self
    dtype = result_type(map(participant, parts))
    x = prims.cat([prims.cast(p, dtype) for p in parts], axis) if len(parts) > 1 else self
    wide = prims.cast(x, compute_dtype(x.dtype))
    for _ in range(n):
        extent = wide.shape[axis]
        if less(extent, 2):
            wide = prims.slice(wide, axis, 0, 0)
            break
        after = prims.slice(wide, axis, 1, extent - 1)
        before = prims.slice(wide, axis, 0, extent - 1)
        wide = prims.ne(after, before) if x.dtype == "bool" else rounded(after - before, x.dtype)
    return prims.cast(wide, x.dtype)


def _integral_samples() -> Iterator[Sample]:
    yield sample(T(7))
    yield sample(T(3, 4), dim=0)
    yield sample(T(3, 4), T(4))
    yield sample(T(3, 4), dx=0.5)
    yield sample(T(3, 4), T(3, 4))


def _strips(name: str, y: Node, x: Node | None, dx: Any, dim: int) -> tuple[Node, int]:
    """The areas of the trapezoids between neighbours along `dim`."""
    axis = normalise_dim(dim, y.ndim, name)
    y = prims.cast(y, compute_dtype(_area_dtype(y, x)))
    extent = y.shape[axis]
    if less(extent, 2):
        return prims.slice(y, axis, 0, 0), axis
    after = prims.slice(y, axis, 1, extent - 1)
    means = (after + prims.slice(y, axis, 0, extent - 1)) * 0.5
    if x is None:
        step = prims.cast(dx, means.dtype) if isinstance(dx, Node) else dx
        return means * step, axis
    x = prims.cast(x, means.dtype)
    if x.ndim == 1:
        x = prims.reshape(x, (x.shape[0], *(1,) * (y.ndim - axis - 1)))
    place = x.ndim - (y.ndim - axis)
    widths = prims.slice(x, place, 1, x.shape[place] - 1)
    widths = widths - prims.slice(x, place, 0, x.shape[place] - 1)
    return apply(name, prims.mul, means, widths), axis


def _trapezoid(self: Node, x: Node | None, dx: Any, dim: int) -> Node:
    areas, axis = _strips("trapezoid", self, x, dx, dim)
    return prims.cast(prims.reduce_dims("sum", areas, (axis,)), _area_dtype(self, x))


def _area_dtype(y: Node, x: Node | None) -> str:
    """The floating-point dtype of heights times widths."""
    common = result_type(participant(v) for v in (y, x) if v is not None)
    return common if CATEGORY[common] >= 2 else default_dtype()


@op(where="torch", unsaved="x y", aliases="trapz", samples=_integral_samples)
def trapezoid(y: Tensor, x: Tensor, *, dim: int = -1) -> Tensor:
    """The integral of samples `y` at places `x` (or `dx` apart) by the trapezoidal rule.

    Example:
        >>> torch.trapezoid(torch.tensor([1.0, 2.0, 3.0]))
        tensor(4.)
    """
    return _trapezoid(y, x, None, dim)


@trapezoid.overload(runtime="dx")
def _trapezoid_dx(y: Tensor, *, dx: Scalar = 1, dim: int = -1) -> Tensor:
    return _trapezoid(y, None, dx, dim)


@op(where="torch", unsaved="x y", samples=_integral_samples)
def cumulative_trapezoid(y: Tensor, x: Tensor, *, dim: int = -1) -> Tensor:
    """The running integral of samples by the trapezoidal rule; see `trapezoid`.

    Example:
        >>> torch.cumulative_trapezoid(torch.tensor([1.0, 2.0, 3.0]))
        tensor([1.5000, 4.0000])
    """
    areas, axis = _strips("cumulative_trapezoid", y, x, None, dim)
    return prims.cast(prims.cumsum(areas, axis), _area_dtype(y, x))


@cumulative_trapezoid.overload(runtime="dx")
def _cumulative_trapezoid_dx(y: Tensor, *, dx: Scalar = 1, dim: int = -1) -> Tensor:
    areas, axis = _strips("cumulative_trapezoid", y, None, dx, dim)
    return prims.cast(prims.cumsum(areas, axis), _area_dtype(y, None))
