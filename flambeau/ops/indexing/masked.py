"""`torch.masked`: reductions and normalisations over the elements whose mask is True.

What is masked out counts as the operation's neutral element; a mean, a variance and a median are
over those that are left. A result of which nothing was left is the neutral element too, for a mean
or a median NaN. The mask broadcasts to the input.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from flambeau.ir.failure import failure
from flambeau.language.definition import REGISTRY, op
from flambeau.language.dtypes import DTYPE_OBJECTS, name_of
from flambeau.language.samples import Sample, T, sample
from flambeau.ops.pointwise import activation, pointwise, powers  # noqa: F401 - defines the operators
from flambeau.ops.reduction import extremes, reduce, scan, statistics, variance  # noqa: F401 - defines the operators

Dims = int | Sequence[int] | None
_KEEP = "*, bool keepdim=False, dtype? dtype=None, Tensor? mask=None) -> Tensor"
_ALONG = "int dim, *, dtype? dtype=None, Tensor? mask=None) -> Tensor"
_OVER = "int[]? dim=None, "


def _call(name: str, *args: Any, **kwargs: Any) -> Any:
    return REGISTRY[name].native(*args, **kwargs)


def _least(x: Any, sign: int) -> Any:
    """The greatest (sign 1) or least (-1) number of a dtype."""
    name = name_of(x.dtype)
    if name == "bool":
        return sign > 0
    if name[0] not in "iu":
        return sign * math.inf
    bits = int(name[1:]) - (name[0] == "i")
    return 2**bits - 1 if sign > 0 else (0 if name[0] == "u" else -(2**bits))


_NEUTRAL: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: 0,
    "prod": lambda x: 1,
    "cumsum": lambda x: 0,
    "cumprod": lambda x: 1,
    "amax": lambda x: _least(x, -1),
    "amin": lambda x: _least(x, 1),
    "argmax": lambda x: _least(x, -1),
    "argmin": lambda x: _least(x, 1),
    "softmax": lambda x: _least(x, -1),
    "log_softmax": lambda x: _least(x, -1),
    "softmin": lambda x: _least(x, 1),
    "logsumexp": lambda x: _least(x, -1),
}


def _filled(name: str, x: Any, mask: Any, dtype: Any = None) -> Any:
    """x in the dtype of the computation, its masked elements neutral for `name`."""
    if dtype is not None:
        x = x.to(dtype)
    if mask is None:
        return x
    value = _NEUTRAL[name](x)
    return _call("where", mask.bool(), x, x.new_full((), value))


def _dims(x: Any, dim: Dims) -> tuple[int, ...]:
    if dim is None or (isinstance(dim, (tuple, list)) and not dim):
        return tuple(range(x.ndim))
    return (dim,) if isinstance(dim, int) else tuple(dim)


def _wide(name: str, x: Any, dtype: Any) -> Any:
    """The dtype of a result: sums and products of integers are int64, running ones are not."""
    if dtype is not None:
        return dtype
    counted = name in ("sum", "prod")
    integral = not (x.is_floating_point() or x.is_complex())
    return DTYPE_OBJECTS["i64"] if counted and integral else x.dtype


def _counts(x: Any, mask: Any, dims: tuple[int, ...], keepdim: bool) -> Any:
    """How many elements are left."""
    if mask is None:
        return x.new_ones(x.shape, dtype=_call("any", x).dtype).sum(dims, keepdim=keepdim)
    return mask.bool().expand(x.shape).sum(dims, keepdim=keepdim)


def _samples(*arguments: Any) -> Callable[[], Iterator[Sample]]:
    def make() -> Iterator[Sample]:
        mask = T(2, 3, dtype="bool", values=[[True, False, True], [True, True, False]], grad=False)
        yield sample(T(2, 3), *arguments)
        yield sample(T(2, 3), *arguments, mask=mask)

    return make


def _documented(body: Any, name: str, text: str, shown: str) -> Any:
    body.__name__ = body.__qualname__ = name
    body.__doc__ = f"""{text}

    Elements whose mask is False take no part.

    Raises:
        RuntimeError: the mask does not broadcast to the input.

    Example:
        >>> torch.masked.{name}(torch.ones(2, 3){shown}).shape is not None
        True
    """
    return body


def _publish(name: str, arguments: str, text: str, body: Any, extra: tuple[Any, ...] = ()) -> None:
    shown = "".join(f", {value}" for value in extra)
    op(
        f"{name}(Tensor input, {arguments}",
        where="masked",
        host=True,
        samples=_samples(*extra),
        dtypes="f32 f64",
        autocast="float32" if name == "prod" else "",
    )(_documented(body, name, text, shown))


def _define_fold(name: str, text: str) -> None:
    def body(
        input: Any, dim: Dims = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None
    ) -> Any:
        target = _wide(name, input, dtype)
        x = _filled(name, input, mask, target)
        dims = _dims(x, dim)
        if name == "prod":
            for d in sorted((d % max(x.ndim, 1) for d in dims), reverse=True):
                x = x.prod(d, keepdim=keepdim)
            return x.to(target)
        if not dims:
            return x
        return _call(name, x, dims, keepdim=keepdim).to(target)

    _publish(name, _OVER + _KEEP, text, body)


def _define_place(name: str, text: str) -> None:
    def body(
        input: Any,
        dim: int | None = None,
        *,
        keepdim: bool = False,
        dtype: Any = None,
        mask: Any = None,
    ) -> Any:
        x = _filled(name, input, mask, dtype)
        return _call(name, x, dim, keepdim=keepdim).to(x.dtype)

    _publish(name, "int? dim=None, " + _KEEP, text, body)


def _define_along(name: str, text: str) -> None:
    def body(input: Any, dim: int, *, dtype: Any = None, mask: Any = None) -> Any:
        x = _filled(name, input, mask, dtype)
        if name == "softmin":
            return _call("softmax", -x, dim)
        if name.startswith("cum"):
            return _call(name, x, dim, dtype=x.dtype)
        return _call(name, x, dim)

    _publish(name, _ALONG, text, body, (0,))


for _name, _text in {
    "sum": "The sum, over all dimensions or `dim`.",
    "prod": "The product, over all dimensions or `dim`.",
    "amax": "The greatest element, over all dimensions or `dim`.",
    "amin": "The least element, over all dimensions or `dim`.",
}.items():
    _define_fold(_name, _text)
for _name, _text in {
    "argmax": "The place of the greatest element, of all or along `dim`, in the input's dtype.",
    "argmin": "The place of the least element, of all or along `dim`, in the input's dtype.",
}.items():
    _define_place(_name, _text)
for _name, _text in {
    "cumsum": "The sums of the elements so far along `dim`.",
    "cumprod": "The products of the elements so far along `dim`.",
    "softmax": "The softmax along `dim`.",
    "log_softmax": "The logarithm of the softmax along `dim`.",
    "softmin": "The softmax of the negatives along `dim`.",
}.items():
    _define_along(_name, _text)


def _mean(
    input: Any, dim: Dims = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None
) -> Any:
    x = input if dtype is None else input.to(dtype)
    dims = _dims(x, dim)
    if mask is None:
        return x.mean(dims, keepdim=keepdim) if dims else x
    if not (x.is_floating_point() or x.is_complex()):
        problem = f"mean(): Could not infer output dtype. Input dtype is {x.dtype}"
        raise failure(ValueError, "masked.mean", problem, "dtype=torch.float32")
    total = _call("where", mask.bool(), x, x.new_zeros(())).sum(dims, keepdim=keepdim)
    return total / _counts(x, mask, dims, keepdim)


def _logsumexp(
    input: Any, dim: Dims = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None
) -> Any:
    x = _filled("logsumexp", input, mask, dtype)
    return _call("logsumexp", x, _dims(x, dim), keepdim).to(x.dtype)


def _norm(
    input: Any,
    ord: float = 2.0,
    dim: Dims = None,
    *,
    keepdim: bool = False,
    dtype: Any = None,
    mask: Any = None,
) -> Any:
    x = input if dtype is None else input.to(dtype)
    if mask is not None:
        neutral = math.inf if ord == -math.inf or ord < 0 else 0.0
        x = _call("where", mask.bool(), x, x.new_full((), neutral))
    return _call("linalg.vector_norm", x, ord, _dims(x, dim), keepdim)


def _refuse_masks(name: str, x: Any, mask: Any) -> None:
    if mask is not None and x.dtype == DTYPE_OBJECTS["bool"]:
        problem = f"{name}: Subtraction, the `-` operator, with a bool tensor is not supported"
        raise failure(RuntimeError, "masked", problem, "convert the input to integers or floats")


def _variance(
    input: Any,
    dim: Dims,
    unbiased: bool | None,
    correction: float | None,
    keepdim: bool,
    dtype: Any,
    mask: Any,
) -> Any:
    """The variance, of the input's dtype: of complex numbers a complex one, as in PyTorch."""
    degrees = correction if correction is not None else 1 if unbiased is None else int(unbiased)
    _refuse_masks("std and var", input, mask)
    x = input if dtype is None else input.to(dtype)
    if not (x.is_floating_point() or x.is_complex()):
        x = x.to(x.sum().float().dtype)
    dims = _dims(x, dim)
    if mask is None:
        return x.var(dims, correction=degrees, keepdim=keepdim).to(x.dtype)
    selected = mask.bool().expand(x.shape)
    count = selected.sum(dims, keepdim=True)
    zero = x.new_zeros(())
    mean = _call("where", selected, x, zero).sum(dims, keepdim=True) / count
    off = _call("where", selected, x - mean, zero)
    total = (off * off.conj()).sum(dims, keepdim=keepdim)
    left = selected.sum(dims, keepdim=keepdim) - degrees
    return (total / left.clamp(min=0)).to(x.dtype)


def _define_spread(name: str, text: str, finish: Callable[[Any], Any]) -> None:
    def body(
        input: Any,
        dim: Dims = None,
        unbiased: bool | None = None,
        *,
        correction: float | None = None,
        keepdim: bool = False,
        dtype: Any = None,
        mask: Any = None,
    ) -> Any:
        return finish(_variance(input, dim, unbiased, correction, keepdim, dtype, mask))

    _publish(name, _SPREAD, text, body)


def _median(
    input: Any, dim: int = -1, *, keepdim: bool = False, dtype: Any = None, mask: Any = None
) -> Any:
    x = input if dtype is None else input.to(dtype)
    if mask is None:
        return _call("nanmedian", x, dim, keepdim).values
    mask = mask.bool()
    if x.is_floating_point() or x.is_complex():
        x = _call("where", mask, x, x.new_full((), math.nan))
        return _call("nanmedian", x, dim, keepdim).values
    exact = x.double()  # integers have no NaN
    exact = _call("where", mask, exact, exact.new_full((), math.nan))
    medians = _call("nanmedian", exact, dim, keepdim).values
    if medians.isnan().any():
        problem = "a row of integers is masked as a whole, and no integer stands for that"
        raise failure(
            ValueError, "masked.median", problem, "convert to a floating-point type first"
        )
    return medians.to(x.dtype)


def _normalize(
    input: Any, ord: float, dim: int, *, eps: float = 1e-12, dtype: Any = None, mask: Any = None
) -> Any:
    x = input if dtype is None else input.to(dtype)
    size = _norm(x, ord, dim, keepdim=True, mask=mask).clamp(min=eps)
    operand = x if mask is None else _call("where", mask.bool(), x, x.new_zeros(()))
    return operand / size


def _logaddexp(
    input: Any, other: Any, *, dtype: Any = None, input_mask: Any = None, other_mask: Any = None
) -> Any:
    dtype = input.dtype if dtype is None else dtype
    left = _filled("logsumexp", input, input_mask, dtype)
    return _call("logaddexp", left, _filled("logsumexp", other, other_mask, dtype))


_SPREAD = "int[]? dim=None, bool? unbiased=None, *, Scalar? correction=None, "
_SPREAD += "bool keepdim=False, dtype? dtype=None, Tensor? mask=None) -> Tensor"
_publish("mean", _OVER + _KEEP, "The mean, over all dimensions or `dim`.", _mean)
_publish("logsumexp", _OVER + _KEEP, "log(sum(exp(x))), over all dimensions or `dim`.", _logsumexp)
_publish("norm", "Scalar ord=2, " + _OVER + _KEEP, "The vector norm of order `ord`.", _norm)
_define_spread("var", "The variance; the divisor is the count less `correction` (1).", lambda x: x)
_define_spread("std", "The standard deviation; see `var`.", lambda x: x.sqrt())
_publish("median", "int dim=-1, " + _KEEP, "The (lower) median along `dim`.", _median)
_publish(
    "normalize",
    "Scalar ord, int dim, *, float eps=1e-12, dtype? dtype=None, Tensor? mask=None) -> Tensor",
    "Each slice along `dim` divided by its norm, or by `eps` where that is less.",
    _normalize,
    (2, 1),
)
op(
    "logaddexp(Tensor input, Tensor other, *, dtype? dtype=None, Tensor? input_mask=None, "
    "Tensor? other_mask=None) -> Tensor",
    where="masked",
    host=True,
    samples=lambda: [sample(T(2, 3), T(2, 3))],
    dtypes="f32 f64",
)(_documented(_logaddexp, "logaddexp", "log(exp(a) + exp(b)).", ", torch.ones(2, 3)"))
