"""Sums, extremes and other functions along dimensions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import flambeau as torch
from flambeau._numpy.arrays import asarray, ndarray, register, tensor_of
from flambeau._numpy.dtypes import Untranslated, cast, torch_dtype

Value = Any  # an array, a number, what NumPy's functions take and give
Axis = int | tuple[int, ...] | None


def _axes(tensor: Value, axis: Axis) -> tuple[int, ...]:
    """Dimensions as numbers that are not negative; all of them for None."""
    if axis is None:
        return tuple(range(tensor.ndim))
    axes = axis if isinstance(axis, tuple) else (axis,)
    for d in axes:
        if not -tensor.ndim <= d < max(tensor.ndim, 1):
            raise np.exceptions.AxisError(d, tensor.ndim)
    return tuple([int(d) % max(tensor.ndim, 1) for d in axes]) if tensor.ndim else ()


def _flat(tensor: Value, axes: tuple[int, ...]) -> Value:
    """The reduced dimensions as one, the last."""
    others = [d for d in range(tensor.ndim) if d not in axes]
    moved = tensor.permute(*others, *axes) if tensor.ndim else tensor
    return moved.reshape(*[tensor.shape[d] for d in others], -1)


def _shaped(result: Value, tensor: Value, axes: tuple[int, ...], keepdims: bool) -> ndarray:
    if not keepdims:
        return ndarray(result)
    return ndarray(result.reshape([1 if d in axes else n for d, n in enumerate(tensor.shape)]))


def _sum_type(dtype: Value) -> Value:
    """The type of sums: short integers have the machine's width."""
    return np.add.resolve_dtypes((dtype, dtype, None), reduction=True)[-1]


def _float_type(dtype: Value) -> Value:
    return dtype if dtype.kind in "fc" else np.dtype(np.float64)


def _cast(a: Value, dtype: Value, rule: Callable[[Value], Value]) -> Value:
    array = asarray(a)
    return cast(array.tensor, torch_dtype(rule(array.dtype) if dtype is None else dtype))


@register("sum")
def sum(a: Value, axis: Axis = None, dtype: Value = None, *, keepdims: bool = False) -> ndarray:  # noqa: A001
    """Sums."""
    tensor = _cast(a, dtype, _sum_type)
    axes = _axes(tensor, axis)
    return ndarray(tensor.sum(axes, keepdim=keepdims) if axes else tensor.clone())


@register("prod")
def prod(a: Value, axis: Axis = None, dtype: Value = None, *, keepdims: bool = False) -> ndarray:
    """Products."""
    tensor = _cast(a, dtype, _sum_type)
    axes = _axes(tensor, axis)
    return _shaped(torch.prod(_flat(tensor, axes), -1), tensor, axes, keepdims)


@register("mean")
def mean(a: Value, axis: Axis = None, dtype: Value = None, *, keepdims: bool = False) -> ndarray:
    """Means."""
    tensor = _cast(a, dtype, _float_type)
    axes = _axes(tensor, axis)
    return ndarray(tensor.mean(axes, keepdim=keepdims) if axes else tensor.clone())


@register("var")
def var(
    a: Value, axis: Axis = None, dtype: Value = None, *, ddof: float = 0, keepdims: bool = False
) -> ndarray:
    """Variances."""
    tensor = _cast(a, dtype, _float_type)
    if tensor.is_complex():
        raise Untranslated("variances of complex numbers")
    axes = _axes(tensor, axis)
    return _shaped(torch.var(_flat(tensor, axes), -1, correction=ddof), tensor, axes, keepdims)


@register("std")
def std(
    a: Value, axis: Axis = None, dtype: Value = None, *, ddof: float = 0, keepdims: bool = False
) -> ndarray:
    """Standard deviations."""
    return ndarray(torch.sqrt(var(a, axis, dtype, ddof=ddof, keepdims=keepdims).tensor))


def _extreme(take: Callable[..., Value]) -> Callable[..., Value]:
    def extreme(a: Value, axis: Axis = None, *, keepdims: bool = False) -> ndarray:
        tensor = tensor_of(a)
        if tensor.is_complex():
            raise Untranslated("an order of complex numbers")
        if not tensor.numel():
            raise ValueError("zero-size array to reduction operation which has no identity")
        return _shaped(take(_flat(tensor, _axes(tensor, axis)), -1), tensor,
                       _axes(tensor, axis), keepdims)  # fmt: skip

    return extreme


register("max", "amax")(_extreme(torch.amax))
register("min", "amin")(_extreme(torch.amin))


@register("ptp")
def ptp(a: Value, axis: Axis = None, *, keepdims: bool = False) -> Value:
    """Differences of the largest and the smallest element."""
    return np.max(a, axis, keepdims=keepdims) - np.min(a, axis, keepdims=keepdims)


def _position(take: Callable[..., Value]) -> Callable[..., Value]:
    def position(a: Value, axis: int | None = None, *, keepdims: bool = False) -> ndarray:
        tensor = tensor_of(a)
        if tensor.is_complex() or axis is None and keepdims:
            raise Untranslated("an order of complex numbers")
        tensor = tensor.to(torch.uint8) if tensor.dtype == torch.bool else tensor
        if axis is None:
            return ndarray(take(tensor.reshape(-1), 0))
        return ndarray(take(tensor, axis, keepdim=keepdims))

    return position


register("argmax")(_position(torch.argmax))
register("argmin")(_position(torch.argmin))


def _truth(take: Callable[..., Value]) -> Callable[..., Value]:
    def truth(a: Value, axis: Axis = None, *, keepdims: bool = False) -> ndarray:
        tensor = tensor_of(a) != 0
        axes = _axes(tensor, axis)
        return _shaped(take(_flat(tensor, axes), -1), tensor, axes, keepdims)

    return truth


register("any")(_truth(torch.any))
register("all")(_truth(torch.all))


def _running(take: Callable[..., Value]) -> Callable[..., Value]:
    def running(a: Value, axis: int | None = None, dtype: Value = None) -> ndarray:
        tensor = _cast(a, dtype, _sum_type)
        return ndarray(take(tensor.reshape(-1), 0) if axis is None else take(tensor, axis))

    return running


register("cumsum")(_running(torch.cumsum))
register("cumprod")(_running(torch.cumprod))


@register("count_nonzero")
def count_nonzero(a: Value, axis: Axis = None, *, keepdims: bool = False) -> Value:
    """How many elements are not 0."""
    return sum(ndarray(tensor_of(a) != 0), axis, keepdims=keepdims)


# ------------------------------------------------------------------------------ without NaN
def _replaced(a: Value, value: float) -> tuple[Value, Value]:
    """An array with a number in place of NaN, and where numbers are."""
    tensor = tensor_of(a)
    if not tensor.is_floating_point():
        return ndarray(tensor), ndarray(torch.ones_like(tensor, dtype=torch.bool))
    nan = torch.isnan(tensor)
    return ndarray(torch.where(nan, value, tensor)), ndarray(~nan)


@register("nansum")
def nansum(a: Value, axis: Axis = None, dtype: Value = None, *, keepdims: bool = False) -> Value:
    """Sums of what is no NaN."""
    return sum(_replaced(a, 0.0)[0], axis, dtype, keepdims=keepdims)


@register("nanmean")
def nanmean(a: Value, axis: Axis = None, dtype: Value = None, *, keepdims: bool = False) -> Value:
    """Means of what is no NaN."""
    values, numbers = _replaced(a, 0.0)
    total = sum(values, axis, dtype or _float_type(values.dtype), keepdims=keepdims)
    count = sum(numbers, axis, keepdims=keepdims).tensor.to(total.tensor.dtype)
    return ndarray(total.tensor / count)


def _nan_extreme(name: str, value: float) -> Callable[..., Value]:
    def extreme(a: Value, axis: Axis = None, *, keepdims: bool = False) -> Value:
        values, numbers = _replaced(a, value)
        result = getattr(np, name)(values, axis, keepdims=keepdims)
        if values.dtype.kind != "f":
            return result
        some = np.any(numbers, axis, keepdims=keepdims)
        return ndarray(torch.where(tensor_of(some), result.tensor, float("nan")))

    return extreme


register("nanmax")(_nan_extreme("max", float("-inf")))
register("nanmin")(_nan_extreme("min", float("inf")))


@register("nan_to_num")
def nan_to_num(
    x: Value, copy: bool = True, nan: float = 0.0, posinf: Value = None, neginf: Value = None
) -> ndarray:
    """Numbers in place of NaN and infinities."""
    tensor = tensor_of(x)
    if not copy:
        raise Untranslated("in place")
    return ndarray(torch.nan_to_num(tensor, nan, posinf, neginf))


# ------------------------------------------------------------------------------ order
@register("median")
def median(a: Value, axis: Axis = None, *, keepdims: bool = False) -> ndarray:
    """Medians: the mean of the two middle elements where their number is even."""
    return quantile(a, 0.5, axis, keepdims=keepdims)


@register("quantile")
def quantile(a: Value, q: Value, axis: Axis = None, *, keepdims: bool = False) -> ndarray:
    """Quantiles, linear between two elements."""
    tensor = _cast(a, None, _float_type)
    if tensor.dtype not in (torch.float32, torch.float64):
        raise Untranslated("quantiles of this type")
    axes = _axes(tensor, axis)
    levels = tensor_of(q).to(tensor.dtype)
    result = torch.quantile(_flat(tensor, axes), levels, -1)
    if not keepdims:
        return ndarray(result)
    sizes = [1 if d in axes else n for d, n in enumerate(tensor.shape)]
    return ndarray(result.reshape(*levels.shape, *sizes))


@register("percentile")
def percentile(a: Value, q: Value, axis: Axis = None, *, keepdims: bool = False) -> ndarray:
    """Quantiles, of levels in percent."""
    return quantile(a, ndarray(tensor_of(q).to(torch.float64) / 100), axis, keepdims=keepdims)


@register("average")
def average(a: Value, axis: Axis = None, weights: Value = None) -> Value:
    """Means with weights."""
    if weights is None:
        return mean(a, axis)
    array, factors = asarray(a), asarray(weights)
    if factors.shape != array.shape:
        if not isinstance(axis, int) or factors.ndim != 1:
            raise Untranslated("weights of another shape")
        sizes = [-1 if d == axis % array.ndim else 1 for d in range(array.ndim)]
        factors = ndarray(factors.tensor.reshape(sizes).expand(array.shape))
    return np.divide(sum(np.multiply(array, factors), axis), sum(factors, axis))


@register("diff")
def diff(a: Value, n: int = 1, axis: int = -1) -> ndarray:
    """Differences of neighbours."""
    tensor = tensor_of(a)
    return ndarray(torch.diff(tensor, n, axis))


@register("clip")
def clip(
    a: Value, a_min: Value = None, a_max: Value = None, *, min: Value = None, max: Value = None
) -> Value:  # noqa: A002
    """Elements between two bounds."""
    low, high = min if a_min is None else a_min, max if a_max is None else a_max
    result = asarray(a)
    result = result if low is None else np.maximum(result, low)
    return result if high is None else np.minimum(result, high)


@register("round", "around")
def round(a: Value, decimals: int = 0) -> ndarray:  # noqa: A001
    """Rounded to a number of digits, to the even neighbour where there are two."""
    tensor = tensor_of(a)
    if not tensor.is_floating_point() or tensor.dtype == torch.bool:
        raise Untranslated("digits of integers")
    if decimals == 0:
        return ndarray(torch.round(tensor))
    scale = 10.0 ** abs(decimals)
    if decimals > 0:
        return ndarray(torch.round(tensor * scale) / scale)
    return ndarray(torch.round(tensor / scale) * scale)


# ------------------------------------------------------------------------------ comparisons
@register("isclose")
def isclose(
    a: Value, b: Value, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> Value:
    """The elements that are equal within tolerances, as a mask."""
    x, y = asarray(a).tensor.to(torch.float64), asarray(b).tensor.to(torch.float64)
    return ndarray(torch.isclose(x, y, rtol, atol, equal_nan))


@register("allclose")
def allclose(
    a: Value, b: Value, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> bool:
    """Whether all elements are equal within tolerances."""
    return bool(np.all(isclose(a, b, rtol, atol, equal_nan)))


@register("array_equal")
def array_equal(a1: Value, a2: Value) -> bool:
    """Whether arrays have one shape and equal elements."""
    one, two = asarray(a1), asarray(a2)
    return one.shape == two.shape and bool(np.all(np.equal(one, two)))


# ------------------------------------------------------------------------------ complex numbers
@register("real")
def real(val: Value) -> Value:
    """Real parts."""
    return asarray(val).real


@register("imag")
def imag(val: Value) -> Value:
    """Imaginary parts."""
    return asarray(val).imag


@register("angle")
def angle(z: Value, deg: bool = False) -> ndarray:
    """Angles of complex numbers."""
    tensor = _cast(z, None, _float_type)
    result = torch.angle(tensor)
    return ndarray(torch.rad2deg(result) if deg else result)
