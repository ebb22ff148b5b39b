"""Sorting and selection along a dimension: sort, topk, kthvalue; histograms and counts.

NaN counts as greater than every number. Ties keep their order, whether `stable` is asked or not,
but in `topk`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from flambeau import prims
from flambeau.ir.dtypes import ITEM_SIZE, UNSIGNED
from flambeau.ir.environment import less
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.ir.size import Size
from flambeau.language import layout
from flambeau.language.definition import given_dtype, op
from flambeau.language.dtypes import object_of
from flambeau.language.no_data import refuse_meta
from flambeau.language.promotion import CATEGORY
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.language.schema import Scalar, SymInt, Tensor
from flambeau.ops.broadcasting import insist, is_complex, rounded, unsupported
from flambeau.ops.common import normalise_dim, number_shown

_DISTINCT = [[3.0, 1.0, 2.5, -1.0], [0.5, 4.0, -2.0, 7.0], [9.0, 8.0, 1.5, 0.25]]


def _samples(*keywords: dict[str, Any]) -> Callable[[], Iterator[Sample]]:
    def make() -> Iterator[Sample]:
        for extra in keywords:
            yield sample(T(3, 4, values=_DISTINCT), **extra)
        yield sample(T(300, dtype="f64"), **keywords[0])
        yield sample(T(2, 3, 5, dtype="f64"), **(keywords[0] | {"dim": 1}))
        yield sample(T(4, 6, dtype="f64", layout="transposed"), **keywords[0])

    return make


def _dim_errors() -> Iterator[ErrorSample]:
    yield ErrorSample(sample(T(3), dim=1), IndexError, "Dimension out of range")


def _ordered_axis(name: str, x: Node, dim: int) -> int:
    axis = normalise_dim(dim, x.ndim, name)
    if is_complex(x) and name in ("sort", "argsort", "msort", "topk"):
        kind = name if name == "topk" else "Sort"
        problem = f"{kind} does not support complex dtypes on CPU"
        raise failure(RuntimeError, name, problem, "sort x.abs()")
    if is_complex(x):
        raise unsupported(name, x, "complex numbers have no order")
    return axis


def selected(
    x: Node, axis: int, first: Size, count: Size, descending: bool, ties: str = "first"
) -> tuple[Node, Node]:
    """Values and places at first .. first + count of the order along an axis, not all sorted."""
    if x.ndim == 0:
        return x, prims.full(0, (), "i64")
    last = x.ndim - 1
    selection = prims.select(prims.transpose(x, axis, last), first, count, descending, ties)
    values, places = (prims.transpose(y, axis, last) for y in selection)
    return values, places


def sorted_pair(name: str, x: Node, dim: int, descending: bool) -> tuple[Node, Node, int]:
    """Values and places in order along a dimension, and that dimension."""
    axis = _ordered_axis(name, x, dim)
    if x.ndim == 0:
        return x, prims.full(0, (), "i64"), axis
    values, places = prims.sort(sortable(x), axis, descending, True)
    return sortable(values, x.dtype), places, axis


def sortable(x: Node, back: str = "") -> Node:
    """Wide unsigned integers as signed ones in the same order; others as they are.

    Args:
        x: the numbers.
        back: the unsigned dtype that `x` had before, to which it goes back.
    """
    target = back if back in UNSIGNED else f"i{x.dtype[1:]}" if x.dtype in UNSIGNED else x.dtype
    if target == x.dtype:
        return x
    wide = x if x.dtype in UNSIGNED else prims.bitcast(x, target)
    top = prims.full_like(1 << (8 * ITEM_SIZE[wide.dtype] - 1), wide)
    return prims.bitcast(prims.bitwise_xor(wide, top), target)


@op(
    layout="follow",
    out="exact",
    results="values indices",
    samples=_samples({}, {"descending": True}, {"dim": 0}),
    errors=_dim_errors,
    pointwise=False,
)
def sort(self: Tensor, dim: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
    """The elements in order along `dim`, and where they stood: (values, indices).

    The order is stable, with or without `stable`; NaN counts as greatest.

    Raises:
        IndexError: a dimension out of range.
        NotImplementedError: a complex tensor.

    Example:
        >>> torch.sort(torch.tensor([3.0, 1.0, 2.0])).indices
        tensor([1, 2, 0])
    """
    return sorted_pair("sort", self, dim, descending)[:2]


@sort.overload(results="values indices")
def _stable_sort(
    self: Tensor, *, stable: bool | None, dim: int = -1, descending: bool = False
) -> tuple[Tensor, Tensor]:
    return sorted_pair("sort", self, dim, descending)[:2]


@op(
    layout="follow",
    samples=_samples({}, {"descending": True}, {"dim": 0, "stable": True}),
    errors=_dim_errors,
    reference="numpy.argsort",
    pointwise=False,
)
def argsort(self: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """Where the elements in order along `dim` stand; see `sort`.

    Example:
        >>> torch.argsort(torch.tensor([3.0, 1.0, 2.0]))
        tensor([1, 2, 0])
    """
    return sorted_pair("argsort", self, dim, descending)[1]


@op(
    layout="follow",
    out="exact",
    samples=lambda: [sample(T(3, 4, values=_DISTINCT)), sample(T(7))],
    pointwise=False,
)
def msort(self: Tensor) -> Tensor:
    """The elements in order along the first dimension.

    Example:
        >>> torch.msort(torch.tensor([3.0, 1.0, 2.0]))
        tensor([1., 2., 3.])
    """
    return sorted_pair("msort", self, 0, False)[0]


def _topk_errors() -> Iterator[ErrorSample]:
    yield ErrorSample(sample(T(3), 4), RuntimeError, "selected index k out of range")


@op(
    out="exact",
    results="values indices",
    overlap="partial",
    samples=_samples({"k": 2}, {"k": 3, "largest": False}, {"k": 1, "dim": 0}, {"k": 0}),
    errors=_topk_errors,
)
def topk(
    self: Tensor, k: SymInt, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Tensor, Tensor]:
    """The k greatest (or least) elements along `dim` in order, and their places.

    Which of equal elements are taken, and their order (with `sorted=False`, any order), is
    PyTorch's; it depends on the row alone.

    Raises:
        RuntimeError: k negative or beyond the dimension.
        IndexError: a dimension out of range.

    Example:
        >>> torch.topk(torch.tensor([3.0, 1.0, 2.0]), 2).values
        tensor([3., 2.])
    """
    axis = _ordered_axis("topk", self, dim)
    extent = self.shape[axis] if self.ndim else 1
    if less(k, 0) or less(extent, k):
        problem = f"selected index k out of range: {number_shown(k)} of {number_shown(extent)}"
        raise failure(RuntimeError, "topk", problem, "k is at most the size of the dimension")
    return selected(self, axis, 0, k, largest, "topk" if sorted else "unordered")


def _kth_errors() -> Iterator[ErrorSample]:
    yield ErrorSample(sample(T(3), 4), RuntimeError, "selected number k out of range")


@op(
    out="separate",
    results="values indices",
    samples=_samples({"k": 2}, {"k": 3, "dim": 0}, {"k": 1, "keepdim": True}),
    errors=_kth_errors,
)
def kthvalue(
    self: Tensor, k: SymInt, dim: int = -1, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """The k-th least element along `dim` (k counts from 1), and its place.

    Raises:
        RuntimeError: k outside of [1, size].
        IndexError: a dimension out of range, or empty.

    Example:
        >>> torch.kthvalue(torch.tensor([3.0, 1.0, 2.0]), 2).values
        tensor(2.)
    """
    axis = _ordered_axis("kthvalue", self, dim)
    extent = self.shape[axis] if self.ndim else 1
    if layout.same(extent, 0):
        problem = f"kthvalue(): Expected reduction dim {axis} to have non-zero size."
        raise failure(IndexError, "kthvalue", problem, "nothing has no k-th element")
    if less(k, 1) or less(extent, k):
        problem = f"kthvalue(): selected number k out of range for dimension {axis}: "
        problem += f"{number_shown(k)} of {number_shown(extent)}"
        raise failure(RuntimeError, "kthvalue", problem, "k counts from 1")
    chosen = selected(self, axis, k - 1, 1, False)
    if self.ndim == 0 or keepdim:
        return chosen
    return prims.squeeze(chosen[0], axis), prims.squeeze(chosen[1], axis)


# ------------------------------------------------------------------------------------ histograms


@op(where="method", out=True, differentiable=False)
def _bincount(self: Tensor, weights: Tensor | None, size: SymInt) -> Tensor:
    """Counts (or sums of weights) of the values 0 ... size - 1, all of which lie in that range."""
    if weights is None:
        source = prims.full(1, self.shape, "i64")
    else:
        source = prims.cast(weights, weights.dtype if weights.dtype == "f32" else "f64")
    base = prims.full(0, (size,), source.dtype)
    return prims.scatter(base, prims.cast(self, "i64"), source, 0, "add")


def _bincount_samples() -> Iterator[Sample]:
    numbers = T(9, dtype="i64", low=0, high=6)
    yield sample(numbers)
    yield sample(numbers, minlength=10)
    yield sample(numbers, T(9))
    yield sample(T(0, dtype="i64"), minlength=2)


@op(host=True, samples=_bincount_samples, dtypes="u8 i8 i16 i32 i64", reference="numpy.bincount")
def bincount(self: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Any:
    """How often each of 0 ... max occurs in a vector of non-negative integers, or its weight.

    Raises:
        RuntimeError: not a vector of non-negative integers, or weights of another size.

    Example:
        >>> torch.bincount(torch.tensor([0, 2, 2]))
        tensor([1, 0, 2])
    """
    from flambeau.ops.reduction.extremes import aminmax

    if self.is_floating_point() or self.is_complex():
        problem = f"not implemented for {self.dtype}"
        raise failure(NotImplementedError, "bincount", problem, "counts are of integers")
    if self.dim() != 1 or self.dtype is object_of("bool"):
        problem = "bincount only supports 1-d non-negative integral inputs."
        raise failure(
            RuntimeError, "bincount", problem, f"got {self.dim()} dimensions of {self.dtype}"
        )
    if weights is not None and tuple(weights.shape) != tuple(self.shape):
        problem = "weights should be 1-d and have the same length as input"
        raise failure(RuntimeError, "bincount", problem, "one each")
    if minlength < 0:
        raise failure(RuntimeError, "bincount", "minlength should be >= 0", "leave it out")
    refuse_meta("bincount", self)
    size = minlength
    if self.numel():
        least, greatest = (int(x.item()) for x in aminmax(self))
        if least < 0:
            problem = "bincount only supports 1-d non-negative integral inputs."
            raise failure(RuntimeError, "bincount", problem, f"the least element is {least}")
        size = size if size > greatest else greatest + 1
    return _bincount(self, weights, size)


def _histc_samples() -> Iterator[Sample]:
    yield sample(T(40), 5)
    yield sample(T(40), 7, -1, 1)
    yield sample(T(3, 4), bins=4, min=0, max=2)
    yield sample(T(3, values=[1.0, 1.0, 1.0]), 3)


@op(
    kind="reduction",
    differentiable=False,
    samples=_histc_samples,
    dtypes="f16 bf16 f32 f64",
    varying=True,
)
def histc(self: Tensor, bins: int = 100, min: Scalar = 0, max: Scalar = 0) -> Tensor:
    """Counts of the elements in `bins` equal parts of [min, max]; elements outside are left out.

    With min = max the extremes of the data are the bounds.

    Raises:
        RuntimeError: bins not positive, or max below min.
        NotImplementedError: not a floating-point tensor.

    Example:
        >>> torch.histc(torch.tensor([1.0, 2.0, 1.0]), bins=4, min=0, max=3)
        tensor([0., 2., 1., 0.])
    """
    if CATEGORY[self.dtype] != 2:
        raise unsupported("histc", self, "convert to a floating-point type first")
    if bins <= 0 or max < min:
        problem = "torch.histc(): bins must be > 0 and max must be larger than min, got "
        problem += f"bins={bins}, min={min}, max={max}"
        raise failure(RuntimeError, "histc", problem, "min=max=0 takes the data's bounds")
    x = prims.reshape(self, (layout.numel(self.shape),))
    half = given_dtype(self)
    low, high = _bounds(x, float(min), float(max), half)
    wide = [rounded(prims.broadcast_to(v, x.shape), half) for v in (low, high)]
    inside = (x >= wide[0]) & (x <= wide[1])
    place = rounded(rounded(x - wide[0], half) * float(bins), half)
    place = rounded(place / rounded(wide[1] - wide[0], half), half)
    place = prims.where(inside, place, prims.full_like(0, x))
    index = prims.minimum(prims.cast(place, "i64"), prims.full(bins - 1, x.shape, "i64"))
    index = prims.maximum(index, prims.full(0, x.shape, "i64"))  # a range may overflow the dtype
    base = prims.full(0, (bins,), x.dtype)
    return prims.take_add(base, index, prims.cast(inside, x.dtype), 0)


_NOT_FINITE = "[histc] torch.histc: the range is not finite in the dtype\nhint: give min and max"


def _bounds(x: Node, low: float, high: float, half: str) -> tuple[Node, Node]:
    """The bounds given, else those of the data; a single point gets one unit on both sides."""
    empty = layout.same(x.shape[0], 0)
    if not (math.isfinite(low) and math.isfinite(high)):
        problem = f"torch.histc: range of [{low}, {high}] is not finite"
        raise failure(RuntimeError, "histc", problem, "finite bounds")
    if low != high or empty:
        spare = 1.0 if low == high else 0.0
        least, greatest = (prims.full(n, (), x.dtype) for n in (low - spare, high + spare))
    else:
        least, greatest = prims.min(x, 0), prims.max(x, 0)
    finite = prims.lt(prims.abs(rounded(greatest - least, half)), prims.full(math.inf, (), x.dtype))
    least = insist(least, ~finite, "histc", _NOT_FINITE)
    if low != high or empty:
        return least, greatest
    same = prims.eq(least, greatest)
    return prims.where(same, least - 1, least), prims.where(same, greatest + 1, greatest)
