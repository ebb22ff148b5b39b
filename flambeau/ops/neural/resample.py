"""`interpolate`: images resized by nearest neighbours, linear, cubic or area weights.

Every mode but area is separable: each dimension is read at a few places per output element, which
are added with weights (Keys 1981 for the cubic). Places and weights are computed in the dtype
of the arithmetic (float32 for half types), as PyTorch computes them, so borders fall alike.
"""

from __future__ import annotations

import math
import struct
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from flambeau import prims
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.ir.size import prod
from flambeau.language.definition import function, op
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.language.schema import Tensor
from flambeau.ops.common import static_size
from flambeau.ops.neural.adaptive_pooling import adaptive_average

_F = "nn.functional"
_RANKS = {"linear": 3, "bilinear": 4, "bicubic": 4, "trilinear": 5, "lanczos": 4}
_ALIGNED = tuple(_RANKS)


def _ratio(size: int, out: int, scale: float | None, align: bool, dtype: str) -> Node:
    """Input elements per output element, rounded to the dtype as the division is."""

    def number(value: float) -> Node:
        return prims.full(value, (), dtype)

    if align:
        return number(size - 1) / number(out - 1) if out > 1 else number(0)
    if scale is not None and scale > 0:
        return number(1.0 / scale)
    return number(size) / number(out)


def _centres(size: int, out: int, scale: float | None, align: bool, dtype: str) -> Node:
    """Position of each output element in the input, (out,)."""
    index = prims.cast(prims.iota((out,), 0, "i64"), dtype)
    ratio = prims.broadcast(_ratio(size, out, scale, align, dtype), (out,), ())
    return index * ratio if align else ratio * (index + 0.5) - 0.5


def _clamped(place: Node, size: int) -> Node:
    low = prims.maximum(place, prims.full_like(0, place))
    return prims.minimum(low, prims.full_like(size - 1, place))


def _spread(line: Node, like: Node, axis: int) -> Node:
    return prims.broadcast(line, like.shape, (axis,))


_REPEATS = 4  # factors up to which neighbours are joined instead of looked up


def _rounded(value: float) -> float:
    """The float32 nearest to a number."""
    rounded_value: float = struct.unpack("f", struct.pack("f", value))[0]
    return rounded_value


def _repeats(size: int, out: int, scale: float | None, exact: bool, dtype: str) -> int:
    """How often each element is repeated; 0 unless it is the same small number for all."""
    times = out // size if size else 0
    if not 1 < times <= _REPEATS or times * size != out:
        return 0

    def number(value: float) -> float:
        return value if dtype == "f64" else _rounded(value)

    ratio = number(1.0 / scale) if scale is not None and scale > 0 else number(size / out)
    half = 0.5 if exact else 0.0
    places = (min(int(number((i + half) * ratio)), size - 1) for i in range(out))
    return times if all(place == i // times for i, place in enumerate(places)) else 0


def _repeated(x: Node, axis: int, times: int) -> Node:
    beside = prims.cat([prims.unsqueeze(x, axis + 1)] * times, axis + 1)
    return prims.reshape(beside, (*x.shape[:axis], x.shape[axis] * times, *x.shape[axis + 1 :]))


def _nearest(x: Node, axis: int, out: int, scale: float | None, exact: bool) -> Node:
    size = static_size(x.shape[axis])
    times = _repeats(size, out, scale, exact, x.dtype)
    if times:
        return _repeated(x, axis, times)
    dtype = "f64" if x.dtype == "f64" else "f32"
    index = prims.cast(prims.iota((out,), 0, "i64"), dtype)
    ratio = prims.broadcast(_ratio(size, out, scale, False, dtype), (out,), ())
    place = (index + 0.5) * ratio if exact else index * ratio
    return prims.take(x, _clamped(prims.cast(prims.floor(place), "i64"), size), axis)


def _linear(x: Node, axis: int, out: int, scale: float | None, align: bool) -> Node:
    size = static_size(x.shape[axis])
    centre = _centres(size, out, scale, align, x.dtype)
    if not align:
        centre = prims.maximum(centre, prims.full_like(0, centre))
    first = _clamped(prims.cast(prims.floor(centre), "i64"), size)
    second = _clamped(first + 1, size)
    weight = centre - prims.cast(first, x.dtype)
    left, right = prims.take(x, first, axis), prims.take(x, second, axis)
    return left * _spread(1.0 - weight, left, axis) + right * _spread(weight, left, axis)


def cubic_weights(t: Node, a: float) -> list[Node]:
    """Keys' kernel at distances 1 + t, t, 1 - t, 2 - t."""

    def near(x: Node) -> Node:
        return ((x * (a + 2.0) - (a + 3.0)) * x) * x + 1.0

    def far(x: Node) -> Node:
        return ((x * a - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a

    return [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)]


def _cubic(x: Node, axis: int, out: int, scale: float | None, align: bool) -> Node:
    size = static_size(x.shape[axis])
    centre = _centres(size, out, scale, align, x.dtype)
    base = prims.floor(centre)
    place = prims.cast(base, "i64")
    total: Node | None = None
    for offset, weight in enumerate(cubic_weights(centre - base, -0.75)):
        taken = prims.take(x, _clamped(place + (offset - 1), size), axis)
        part = taken * _spread(weight, taken, axis)
        total = part if total is None else total + part
    assert total is not None
    return total


def _triangle(x: Node) -> Node:
    return prims.maximum(1.0 - prims.abs(x), prims.full_like(0, x))


def _keys(x: Node) -> Node:
    """Keys' kernel with a = -0.5, everywhere."""
    distance = prims.abs(x)
    near = ((distance * 1.5 - 2.5) * distance) * distance + 1.0
    far = ((distance * -0.5 + 2.5) * distance - 4.0) * distance + 2.0
    zero = prims.full_like(0, x)
    return prims.where(distance < 1.0, near, prims.where(distance < 2.0, far, zero))


def _lanczos(x: Node) -> Node:
    """The product of sinc(x) and sinc(x / 3) at distances below 3 (Duchon 1979)."""
    zero = prims.full_like(0, x)
    angle = prims.where(prims.eq(x, zero), prims.full_like(1, x), x * math.pi)
    window = angle / 3.0
    value = (prims.sin(angle) / angle) * (prims.sin(window) / window)
    value = prims.where(prims.eq(x, zero), prims.full_like(1, x), value)
    return prims.where(prims.abs(x) < 3.0, value, zero)


# Filters of antialiased images, and how far they reach.
_FILTERS = {"bilinear": (_triangle, 1.0), "bicubic": (_keys, 2.0), "lanczos": (_lanczos, 3.0)}


def _smoothed(x: Node, axis: int, out: int, scale: float | None, align: bool, mode: str) -> Node:
    """Antialiased: the filter is as wide as the output pixel; a product with its matrix."""
    size = static_size(x.shape[axis])
    grid, dtype = (out, size), x.dtype
    ratio = prims.broadcast(_ratio(size, out, scale, align, dtype), grid, ())
    width = prims.maximum(ratio, prims.full_like(1, ratio))
    centre = (prims.cast(prims.iota(grid, 0, "i64"), dtype) + 0.5) * ratio
    kernel, reach = _FILTERS[mode]
    support = width * reach
    place = prims.cast(prims.iota(grid, 1, "i64"), dtype)
    low = prims.maximum(prims.trunc(centre - support + 0.5), prims.full_like(0, centre))
    high = prims.trunc(centre + support + 0.5)
    distance = (place - centre + 0.5) / width
    weight = kernel(distance)
    inside = prims.ge(place, low) & (place < high)
    weight = prims.where(inside, weight, prims.full_like(0, weight))
    weight = weight / prims.broadcast(prims.sum(weight, 1), grid, (0,))
    moved = prims.transpose(x, axis, x.ndim - 1)
    lead = moved.shape[:-1]
    flat = prims.reshape(moved, (prod(lead), size))
    product = prims.matmul(flat, prims.transpose(weight, 0, 1))
    return prims.transpose(prims.reshape(product, (*lead, out)), axis, x.ndim - 1)


@op(
    name="_interpolate",
    kind="image",
    where="private",
    samples=lambda: [sample(T(1, 2, 5), (7,), None, "linear", False, False)],
    varying=True,
)
def resize(
    input: Tensor,
    size: Sequence[int],
    scales: Sequence[float] | None,
    mode: str,
    align_corners: bool,
    antialias: bool,
) -> Tensor:
    """The input resized to the spatial sizes `size`; arguments already checked.

    Args:
        scales: factors that replace size / input size; none, or 0 in a dimension, replace nothing.
    """
    x = input
    if mode == "area":
        return adaptive_average("interpolate", x, len(size), size)
    for d in reversed(range(len(size))):
        axis, out, scale = 2 + d, size[d], scales[d] if scales else None
        if mode in ("nearest", "nearest-exact"):
            x = _nearest(x, axis, out, scale, mode == "nearest-exact")
        elif antialias:
            x = _smoothed(x, axis, out, scale, align_corners, mode)
        elif mode == "bicubic":
            x = _cubic(x, axis, out, scale, align_corners)
        else:
            x = _linear(x, axis, out, scale, align_corners)
    return x


def _samples() -> Iterator[Sample]:
    yield sample(T(2, 3, 5), 8)
    yield sample(T(1, 2, 5, 6), (3, 9), mode="nearest-exact")
    yield sample(T(1, 2, 3, 4, 2), scale_factor=2.0)
    yield sample(T(2, 3, 5), 8, mode="linear")
    yield sample(T(1, 2, 5, 6), (3, 9), mode="bilinear", align_corners=True)
    yield sample(T(1, 2, 5, 6), scale_factor=(1.7, 0.6), mode="bilinear")
    yield sample(T(1, 2, 5, 6), scale_factor=1.7, mode="bilinear", recompute_scale_factor=True)
    yield sample(T(1, 2, 3, 4, 2), (5, 2, 3), mode="trilinear")
    yield sample(T(1, 2, 5, 6), (3, 9), mode="bicubic")
    yield sample(T(1, 2, 5, 6), (7, 4), mode="bicubic", align_corners=True)
    yield sample(T(1, 2, 9, 8), (4, 9), mode="bilinear", antialias=True)
    yield sample(T(1, 2, 9, 8), (4, 3), mode="bicubic", antialias=True)
    yield sample(T(1, 2, 9, 8), (4, 11), mode="lanczos", antialias=True)
    yield sample(T(1, 2, 6, 7), (3, 4), mode="area")


def _errors() -> Iterator[ErrorSample]:
    yield ErrorSample(sample(T(1, 2, 4, 4)), ValueError, "should be defined")
    yield ErrorSample(sample(T(1, 2, 4, 4), 3, 2.0), ValueError, "only one of size")
    yield ErrorSample(sample(T(1, 2, 4, 4), 3, mode="linear"), NotImplementedError, "needs 3D")
    yield ErrorSample(sample(T(1, 2, 4), 3, align_corners=True), ValueError, "align_corners")


def _check_mode(x: Any, mode: str, align_corners: bool | None, antialias: bool) -> None:
    rank = x.ndim
    supported = mode in ("nearest", "nearest-exact", "area") or mode in _RANKS
    if not supported or rank not in (3, 4, 5):
        problem = f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {rank}D) for the "
        problem += "modes: nearest | linear | bilinear | bicubic | trilinear | lanczos | area | "
        problem += f"nearest-exact (got {mode})"
        raise failure(NotImplementedError, "interpolate", problem, "(N, C, *)")
    if align_corners is not None and mode not in _ALIGNED:
        problem = "align_corners option can only be set with the interpolating modes: linear | "
        problem += "bilinear | bicubic | trilinear | lanczos"
        raise failure(ValueError, "interpolate", problem, "drop align_corners")
    if _RANKS.get(mode, rank) != rank:
        raise NotImplementedError(
            f"[interpolate] Got {rank}D input, but {mode} mode needs {_RANKS[mode]}D input\n"
            "hint: linear, bilinear and trilinear are for 1, 2 and 3 spatial dimensions"
        )
    if antialias and not (mode in _FILTERS and rank == 4):
        problem = "Anti-alias option is restricted to bilinear, bicubic, and lanczos modes and "
        problem += "requires a 4-D tensor as input"
        raise failure(ValueError, "interpolate", problem, "drop antialias")
    if mode == "lanczos" and (align_corners or not antialias):
        problem = "Lanczos mode requires antialias=True and does not support align_corners=True"
        raise failure(ValueError, "interpolate", problem, 'antialias=True, or mode="bicubic"')


def _sizes_and_scales(
    x: Any, size: Any, scale_factor: Any, recompute: bool | None
) -> tuple[tuple[int, ...], tuple[float, ...] | None]:
    """Output sizes and the scales that replace in / out, if the user gave them."""
    space = [static_size(s) for s in x.shape[2:]]
    count = len(space)
    if (size is None) == (scale_factor is None):
        what = "either" if size is None else "only one of"
        problem = f"{what} size or scale_factor should be defined"
        raise failure(ValueError, "interpolate", problem, "give one of them")
    stated = size if size is not None else scale_factor
    values = tuple(stated) if isinstance(stated, (list, tuple)) else (stated,) * count
    if len(values) != count:
        named = "output size of" if size is not None else "scale_factor of shape"
        problem = "Input and output must have the same number of spatial dimensions, but got "
        problem += f"input with spatial dimensions of {space} and {named} {values}"
        raise failure(ValueError, "interpolate", problem, "one number per spatial dimension")
    if size is not None:
        if recompute:
            problem = "recompute_scale_factor is not meaningful with an explicit size"
            raise failure(ValueError, "interpolate", problem, "drop recompute_scale_factor")
        return tuple(int(v) for v in values), None
    sizes = tuple(math.floor(s * float(f)) for s, f in zip(space, values, strict=True))
    return sizes, None if recompute else tuple(float(f) for f in values)


@function(where=_F, samples=_samples, errors=_errors)
def interpolate(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Any:
    """The input resized along its spatial dimensions.

    Shape: `(N, C, *S)` -> `(N, C, *size)`, size = floor(S scale_factor) where not given.

    Args:
        mode: "nearest", "nearest-exact", "linear" (3D), "bilinear", "bicubic" (4D), "trilinear"
            (5D), "lanczos" (4D, with antialias) or "area".
        align_corners: the centres of the corner pixels map to each other.
        recompute_scale_factor: use the ratio of the sizes instead of the given factor.
        antialias: filter as wide as the output's pixels; bilinear, bicubic and lanczos only.

    Raises:
        ValueError: size and scale_factor both given or both missing; wrong lengths.
        NotImplementedError: the mode is unknown or not for this rank.

    Example:
        >>> torch.nn.functional.interpolate(torch.tensor([[[1.0, 2.0]]]), 4)
        tensor([[[1., 1., 2., 2.]]])
    """
    _check_mode(input, mode, align_corners, antialias)
    sizes, scales = _sizes_and_scales(input, size, scale_factor, recompute_scale_factor)
    if min(sizes) <= 0 or 0 in tuple(input.shape[2:]):
        problem = "Input and output sizes should be greater than 0, but got input "
        problem += f"{list(input.shape[2:])} output {list(sizes)}"
        raise failure(RuntimeError, "interpolate", problem, "sizes >= 1")
    return resize(input, sizes, scales, mode, bool(align_corners), antialias)


def _warn(name: str) -> None:
    warnings.warn(
        f"[{name}] `nn.functional.{name}` is deprecated. Use `nn.functional.interpolate` instead.",
        stacklevel=3,
    )


def _upsample(
    input: Any,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Any:
    """`interpolate` under its old name.

    Example:
        >>> F.upsample(torch.tensor([[[1.0, 2.0]]]), scale_factor=2)
        tensor([[[1., 1., 2., 2.]]])
    """
    _warn("upsample")
    return interpolate(input, size, scale_factor, mode, align_corners)


def _upsample_nearest(input: Any, size: Any = None, scale_factor: Any = None) -> Any:
    """`interpolate(mode="nearest")` under its old name.

    Example:
        >>> F.upsample_nearest(torch.tensor([[[1.0, 2.0]]]), scale_factor=2)
        tensor([[[1., 1., 2., 2.]]])
    """
    _warn("upsample_nearest")
    return interpolate(input, size, scale_factor)


def _upsample_bilinear(input: Any, size: Any = None, scale_factor: Any = None) -> Any:
    """`interpolate(mode="bilinear", align_corners=True)` under its old name.

    Example:
        >>> F.upsample_bilinear(torch.ones(1, 1, 2, 2), size=3).shape
        torch.Size([1, 1, 3, 3])
    """
    _warn("upsample_bilinear")
    return interpolate(input, size, scale_factor, "bilinear", True)


_OLD = "Tensor input, object size=None, object scale_factor=None"
_MORE = ", str mode='nearest', bool? align_corners=None"
for _name, _body, _arguments in (
    ("upsample", _upsample, _OLD + _MORE),
    ("upsample_nearest", _upsample_nearest, _OLD),
    ("upsample_bilinear", _upsample_bilinear, _OLD),
):
    op(
        f"{_name}({_arguments}) -> Tensor",
        where=_F,
        host=True,
        samples=lambda: [sample(T(1, 2, 3, 4), (5, 6))],
    )(_body)
