"""Discrete Fourier transforms, one axis after the other: `prims.fft` of complex numbers.

The transform of real numbers is its own mirror image, conjugate (Oppenheim & Schafer, Discrete-Time
Signal Processing, ch. 8): `prims.real_fft` gives its first half, `prims.half_fft` inverts that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from flambeau import prims
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.ir.size import Size
from flambeau.language.definition import Dense, op
from flambeau.language.layout import by_strides, contiguous_strides, dense_strides, follow_strides
from flambeau.language.promotion import CATEGORY, default_dtype
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.language.schema import Tensor
from flambeau.ops.common import dtype_or, normalise_dim, static_size
from flambeau.ops.creation.creation import check_sizes, creation
from flambeau.ops.shape.shape import roll

_COMPLEX = {"f32": "c64", "f64": "c128", "c64": "c64", "c128": "c128"}
_NORMS = ("backward", "ortho", "forward")
_ONE = "int? n=None, int dim=-1, str? norm=None) -> Tensor"
_TWO = "int[]? s=None, int[] dim=(-2, -1), str? norm=None) -> Tensor"
_MANY = "int[]? s=None, int[]? dim=None, str? norm=None) -> Tensor"


def _spectrum(x: Node, name: str) -> Node:
    """x as complex numbers."""
    return prims.cast(x, _COMPLEX[_checked(x, name)])


def _signal(x: Node, name: str) -> Node:
    """x as real numbers, if it is real."""
    return prims.cast(x, _checked(x, name))


def _checked(x: Node, name: str) -> str:
    dtype = x.dtype if x.dtype in ("f16", "bf16", *_COMPLEX) else default_dtype()
    if dtype not in _COMPLEX:
        public = {"f16": "Half", "bf16": "BFloat16"}[dtype]
        raise failure(RuntimeError, name, f"Unsupported dtype {public}", "convert to float32")
    return dtype


def _real_only(x: Node, name: str) -> None:
    if x.dtype[0] == "c":
        problem = f"{name} expects a real input tensor, but got a complex one"
        raise failure(RuntimeError, name, problem, "use fft or ifft")


def _no_points(name: str, length: int) -> RuntimeError:
    return RuntimeError(
        f"[{name}] Invalid number of data points ({length}) specified\nhint: at least 1"
    )


def _resized(x: Node, length: int, axis: int, name: str) -> Node:
    """x cut off, or continued by zeros, to `length` along an axis."""
    extent = static_size(x.shape[axis])
    if length < 1:
        raise _no_points(name, length)
    if length <= extent:
        return prims.slice(x, axis, 0, length)
    high = tuple(length - extent if d == axis else 0 for d in range(x.ndim))
    return prims.pad(x, (0,) * x.ndim, high)


def _scale(count: int, norm: str | None, inverse: bool, name: str) -> float:
    """Returns the factor of the results of a transform of `count` points."""
    mode = "backward" if norm is None else norm
    if mode not in _NORMS:
        raise RuntimeError(f'[{name}] Invalid normalization mode: "{norm}"\nhint: one of {_NORMS}')
    if mode == "ortho":
        return 1 / math.sqrt(count)
    return 1 / count if (mode == "backward") == inverse else 1.0


def _axis(x: Node, dim: int, name: str) -> int:
    if x.ndim == 0:
        problem = f"Dimension specified as {dim} but tensor has no dimensions"
        raise failure(IndexError, name, problem, "unsqueeze")
    return normalise_dim(dim, x.ndim, name)


Geometry = tuple[tuple[int, ...], list[int]]


def _geometry(
    x: Node, s: Sequence[int] | None, dim: Sequence[int] | None, name: str, half: bool = False
) -> Geometry:
    """The axes to transform and the lengths of the signal; `half`: x holds half of the last."""
    if dim is not None:
        dims = tuple(_axis(x, d, name) for d in dim)
    else:
        count = x.ndim if s is None else len(s)
        if count > x.ndim:
            problem = f"Got shape with {count} values but input tensor only has {x.ndim} "
            problem += "dimensions."
            raise failure(RuntimeError, name, problem, "one length per transformed dimension")
        dims = tuple(range(x.ndim - count, x.ndim))
    if len(set(dims)) != len(dims):
        raise failure(RuntimeError, name, "FFT dims must be unique", "name each dimension once")
    if s is not None and len(s) != len(dims):
        problem = "When given, dim and shape arguments must have the same length"
        raise failure(RuntimeError, name, problem, "one length per dimension")
    lengths = [static_size(x.shape[d]) for d in dims]
    if half and dims:
        lengths[-1] = 2 * (lengths[-1] - 1)
    if s is not None:
        lengths = [own if stated == -1 else stated for stated, own in zip(s, lengths, strict=True)]
    for length in lengths:
        if length < 1:
            raise _no_points(name, length)
    return dims, lengths


def _complex_transform(x: Node, geometry: Geometry, norm: Any, inverse: bool, name: str) -> Node:
    dims, lengths = geometry
    scale = _scale(math.prod(lengths), norm, inverse, name)
    value = _signal(x, name)
    if not dims:
        return prims.cast(value, _COMPLEX[value.dtype]) * scale
    axis = dims[-1]
    value = _resized(value, lengths[-1], axis, name)
    own = scale if len(dims) == 1 else 1.0
    if value.dtype[0] == "c":
        value = prims.fft(value, axis, inverse, own)
    else:
        value = prims.real_fft(value, axis, inverse, whole=True, scale=own)
    return _others_transformed(value, geometry, inverse, scale, name)


def _others_transformed(x: Node, axes: Geometry, inverse: bool, scale: float, name: str) -> Node:
    """The complex transforms of all axes but the last one; the final one scales."""
    dims, lengths = axes
    for axis, length in zip(dims[:-1], lengths[:-1], strict=True):
        x = _resized(x, length, axis, name)
        x = prims.fft(x, axis, inverse, scale if axis == dims[-2] else 1.0)
    return x


def _to_half(x: Node, geometry: Geometry, norm: Any, inverse: bool, name: str) -> Node:
    """The transform of real numbers: half of the last axis; `inverse` conjugates and scales so."""
    _real_only(x, name)
    dims, lengths = geometry
    value = _signal(x, name)
    if not dims:
        raise failure(RuntimeError, name, f"{name} must transform at least one axis", "give dim")
    scale = _scale(math.prod(lengths), norm, inverse, name)
    value = _resized(value, lengths[-1], dims[-1], name)
    value = prims.real_fft(value, dims[-1], inverse, scale=scale if len(dims) == 1 else 1.0)
    return _others_transformed(value, geometry, inverse, scale, name)


def _from_half(x: Node, geometry: Geometry, norm: Any, inverse: bool, name: str) -> Node:
    """The real transform of a signal whose other half is the mirror image."""
    dims, lengths = geometry
    if not dims:
        raise failure(RuntimeError, name, f"{name} must transform at least one axis", "give dim")
    scale = _scale(math.prod(lengths), norm, inverse, name)
    value = _others_transformed(_spectrum(x, name), geometry, inverse, 1.0, name)
    half = _resized(value, lengths[-1] // 2 + 1, dims[-1], name)
    return prims.half_fft(half, dims[-1], lengths[-1], inverse, scale)


_KINDS: dict[str, tuple[Callable[..., Node], bool, bool]] = {
    # name: what computes it, inverse direction, whether the operand is half of the signal
    "fft": (_complex_transform, False, False),
    "ifft": (_complex_transform, True, False),
    "rfft": (_to_half, False, False),
    "ihfft": (_to_half, True, False),
    "irfft": (_from_half, True, True),
    "hfft": (_from_half, False, True),
}
_MEANING = {
    "fft": "The discrete Fourier transform",
    "ifft": "The inverse discrete Fourier transform",
    "rfft": "The non-redundant half of the Fourier transform of a real signal",
    "irfft": "The real signal whose half of a Fourier transform is given: the inverse of `rfft`",
    "hfft": "The real Fourier transform of a signal with Hermitian symmetry, given its half",
    "ihfft": "The non-redundant half of the inverse Fourier transform of a real signal",
}
_DETAILS = """.

Lengths (`n` or `s`) cut the signal off or continue it by zeros; `norm` is "backward" (the inverse
divides by the number of points), "ortho" (both divide by its root) or "forward".

Raises:
    RuntimeError: no data points, an unknown norm, half types, or complex where real is expected.

Example:
    >>> torch.fft.{name}({argument}).shape
    torch.Size([{result}])
"""


def _resized_memory(x: Node, geometry: Geometry, kind: str) -> tuple[list[Size], tuple[Size, ...]]:
    """Sizes and strides of what is transformed: x converted, cut off and continued."""
    strides = x.attribute("strides") if x.is_input else contiguous_strides(x.shape)
    real = kind in ("rfft", "ihfft")
    if x.dtype not in (("f32", "f64") if real else ("c64", "c128")):
        strides = follow_strides(x.shape, [(x.shape, strides)])
    sizes, grown = list(x.shape), False
    for number, (axis, length) in enumerate(zip(*geometry, strict=True)):
        half = kind in ("irfft", "hfft") and number == len(geometry[0]) - 1
        needed = length // 2 + 1 if half else length
        grown = grown or needed > static_size(sizes[axis])
        sizes[axis] = needed
    return sizes, contiguous_strides(sizes) if grown else strides


def _others(axes: list[int], ndim: int) -> list[int]:
    """The dimensions beside `axes`; the last ones fill the gaps. Shows where strides are equal."""
    order = list(range(ndim))
    first, last = 0, ndim - 1
    while first < last:
        if order[first] not in axes:
            first += 1
        elif order[last] in axes:
            last -= 1
        else:
            order[first], order[last] = order[last], order[first]
    return order[: ndim - len(axes)]


def _memory_order(x: Node, geometry: Geometry, kind: str) -> tuple[int, ...]:
    """How PyTorch's result lies: each pass makes its axes the innermost ones, as they lay before.

    The axes that are not transformed come first, by their strides.
    """
    sizes, strides = _resized_memory(x, geometry, kind)
    *leading, last = geometry[0]
    passes: list[tuple[list[int], list[int]]] = {  # axes by their strides, then the last one
        "fft": [([*leading, last], [])],
        "rfft": [(leading, [last])],
        "ihfft": [([], [last]), (leading, [])],
        "irfft": [(leading, []), ([], [last])],
    }[{"ifft": "fft", "hfft": "irfft"}.get(kind, kind)]
    order = tuple(range(x.ndim))
    for sorted_axes, final in passes:
        axes = [*sorted_axes, *final]
        if not axes:
            continue
        if last in axes and len(final) == 1:
            length = geometry[1][-1]
            sizes[last] = length if kind in ("irfft", "hfft") else length // 2 + 1
        outer = by_strides(_others(axes, x.ndim), strides)
        order = (*outer, *by_strides(sorted_axes, strides), *final)
        strides = dense_strides(sizes, order)
    return order


def _out(kind: str, suffix: str) -> bool | str:
    """Checks `out=`: a real result is not written to complex numbers."""
    if kind in ("irfft", "hfft"):
        return "kind"
    return "exact" if kind + suffix == "ihfft" else True


def _define(kind: str, suffix: str) -> None:
    """One operator of the family: a kind of transform over one, two or many axes."""
    compute, inverse, half = _KINDS[kind]
    name, public = kind + suffix, f"fft_{kind}{suffix}"

    def many(input: Node, s: Any, dim: Any, norm: str | None) -> Node | Dense:
        geometry = _geometry(input, s, dim, public, half)
        value = compute(input, geometry, norm, inverse, public)
        return Dense(value, _memory_order(input, geometry, kind)) if geometry[0] else value

    def one(input: Node, n: int | None, dim: int, norm: str | None) -> Node | Dense:
        if n == -1:  # transforms of many axes read it as "all there is"
            raise _no_points(public, n)
        return many(input, None if n is None else (n,), (dim,), norm)

    arguments = {"": _ONE, "2": _TWO, "n": _MANY}[suffix]
    body = many if suffix else one
    argument = "torch.ones(4)" if suffix != "2" else "torch.ones(4, 4)"
    length = {"rfft": 3, "ihfft": 3, "irfft": 6, "hfft": 6}.get(kind, 4)
    shown = f"4, {length}" if suffix == "2" else str(length)
    over = {"": "one dimension", "2": "two dimensions", "n": "several dimensions"}[suffix]
    text = _DETAILS.format(name=name, argument=argument, result=shown)
    body.__doc__ = f"{_MEANING[kind]}, over {over}{text}"
    op(
        f"{name}(Tensor input, {arguments}",
        where="fft",
        out=_out(kind, suffix),
        varying=True,
        autocast="" if kind in ("hfft", "ihfft") and suffix else "float32",
        samples=_samples(kind, suffix),
        errors=lambda: [ErrorSample(sample(T(4, 4), norm="x"), RuntimeError, "Invalid norm")],
        dtypes="f32 f64" if kind in ("rfft", "ihfft") else "f32 f64 c64 c128",
    )(body)


def _samples(kind: str, suffix: str) -> Callable[[], Iterator[Sample]]:
    def make() -> Iterator[Sample]:
        if not suffix:
            yield sample(T(6))
            yield sample(T(3, 7), 5, 0, "ortho")
            yield sample(T(4, 6, layout="transposed"), 9, norm="forward")
        elif suffix == "2":
            yield sample(T(2, 4, 6))
            yield sample(T(4, 6), (3, 8), norm="ortho")
        else:
            yield sample(T(2, 4, 6), dim=(0, 2))
            yield sample(T(3, 4, 5), (4, 6), norm="ortho")

    return make


for _kind in _KINDS:
    for _suffix in ("", "2", "n"):
        _define(_kind, _suffix)


def _shifted(x: Node, dim: Sequence[int] | None, sign: int) -> Node:
    dims = tuple(range(x.ndim)) if dim is None else tuple(dim)
    if not dims:
        return x
    sizes: list[Size] = [static_size(x.shape[normalise_dim(d, x.ndim, "fftshift")]) for d in dims]
    moved = [n // 2 if sign > 0 else (n + 1) // 2 for n in sizes]
    return roll(x, moved, dims)


def _shift_samples() -> Iterator[Sample]:
    yield sample(T(5))
    yield sample(T(4, 3))
    yield sample(T(4, 3), 1)


@op(where="fft", varying=True, samples=_shift_samples)
def fftshift(input: Tensor, dim: Sequence[int] | None = None) -> Tensor:
    """A spectrum rolled so that frequency zero lies in the middle.

    Example:
        >>> torch.fft.fftshift(torch.arange(4))
        tensor([2, 3, 0, 1])
    """
    return _shifted(input, dim, 1)


@op(where="fft", varying=True, samples=_shift_samples)
def ifftshift(input: Tensor, dim: Sequence[int] | None = None) -> Tensor:
    """The inverse of `fftshift`: frequency zero comes first again.

    Example:
        >>> torch.fft.ifftshift(torch.arange(4))
        tensor([2, 3, 0, 1])
    """
    return _shifted(input, dim, -1)


def _frequencies(n: int, d: float, dtype: Any, half: bool) -> Node:
    """Numbers of the transform's coefficients as multiples of 1 / (n d)."""
    target = dtype_or(dtype)
    if CATEGORY[target] < 2:
        name = "rfftfreq" if half else "fftfreq"
        problem = f"{name} requires a floating point or complex dtype"
        raise failure(RuntimeError, name, problem, "float32")
    place = prims.iota(check_sizes((n // 2 + 1 if half else n,), "fftfreq"), 0)
    if not half:
        place = prims.where(place < (n + 1) // 2, place, place - n)
    scale = 1.0 / (n * d) if n * d else math.inf
    return prims.cast(prims.cast(place, "f64") * scale, target)


def _frequency_samples() -> Iterator[Sample]:
    yield sample(4)
    yield sample(5, 0.25)
    yield sample(1)


@creation(
    "fftfreq(int n, float d=1.0", where="fft", out=True, varying=True, samples=_frequency_samples,
    reference="numpy.fft.fftfreq",
)  # fmt: skip
def fftfreq(n: int, d: float, dtype: Any, layout: Any, device: Any, pin_memory: Any) -> Node:
    """Frequencies of the n coefficients that `fft` gives for samples a time d apart.

    Zero and the positive frequencies come first, then the negative ones.

    Raises:
        RuntimeError: a negative n, or an integer dtype.

    Example:
        >>> torch.fft.fftfreq(4)
        tensor([ 0.0000,  0.2500, -0.5000, -0.2500])
    """
    return _frequencies(n, d, dtype, False)


@creation(
    "rfftfreq(int n, float d=1.0", where="fft", out=True, varying=True, samples=_frequency_samples,
    reference="numpy.fft.rfftfreq",
)  # fmt: skip
def rfftfreq(n: int, d: float, dtype: Any, layout: Any, device: Any, pin_memory: Any) -> Node:
    """Frequencies of the coefficients that `rfft` gives for n samples a time d apart.

    Example:
        >>> torch.fft.rfftfreq(4)
        tensor([0.0000, 0.2500, 0.5000])
    """
    return _frequencies(n, d, dtype, True)
