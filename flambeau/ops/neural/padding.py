"""Padding by a constant, by reflection, by the border, or around the circle.

The constant is a primitive. The other modes read the input at places computed from the result's
index, so their gradients add up deterministically where one element is read several times.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from flambeau import prims
from flambeau.ir.environment import less
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.ir.size import Size
from flambeau.language.definition import Dense, op
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.language.schema import Scalar, Tensor
from flambeau.ops.cast_rules import by_arguments
from flambeau.ops.common import shown, static_size

MODES = ("constant", "reflect", "replicate", "circular")


def _samples() -> Iterator[Sample]:
    yield sample(T(3, 4), (1, 2))
    yield sample(T(2, 3, 4), (1, -2, 0, 3, -1, 0), value=1.5)
    yield sample(T(2, 3, layout="transposed"), (2, 1, 1, 1), "constant", 2.0)
    yield sample(T(4, dtype="i64", low=0, high=9), (1, 1), value=3)
    for mode in MODES[1:]:
        yield sample(T(3, 5), (2, 1), mode)
        yield sample(T(2, 3, 5, 6), (2, 1, 3, 2), mode)
        yield sample(T(2, 3, 5, 6), (-1, 2, 1, -2), mode)
        yield sample(T(1, 2, 3, 4, 5), (2, 1, 0, 2, 1, 2), mode)


def _errors() -> Iterator[ErrorSample]:
    yield ErrorSample(sample(T(2, 3), (1,)), RuntimeError, "divisible by 2")
    yield ErrorSample(sample(T(2, 3), (1, 1, 1, 1, 1, 1)), RuntimeError, "less than or equal")
    yield ErrorSample(sample(T(2, 3), (3, 0), "reflect"), RuntimeError, "less than")
    yield ErrorSample(sample(T(2, 3), (1, 1), "mirror"), NotImplementedError, "mirror")
    yield ErrorSample(sample(T(2, 3), (1, 1), "reflect", 1.0), RuntimeError, "value")


def _check(x: Node, pads: tuple[int, ...], mode: str, value: float | None) -> None:
    if len(pads) % 2:
        problem = f"Padding length must be divisible by 2, got {len(pads)}"
        raise failure(RuntimeError, "pad", problem, "(before, after) of the last dimension first")
    if len(pads) > 2 * x.ndim:
        problem = "Padding length should be less than or equal to two times the input dimension "
        problem += f"but got padding length {len(pads)} and input of dimension {x.ndim}"
        raise failure(RuntimeError, "pad", problem, "(before, after) of the last dimension first")
    if mode not in MODES:
        problem = f"Unrecognised padding mode {mode}"
        raise failure(NotImplementedError, "pad", problem, f"one of {', '.join(MODES)}")
    if mode == "constant":
        return
    if value:
        problem = f'Padding mode "{mode}" doesn\'t take in value argument'
        raise failure(RuntimeError, "pad", problem, "drop value")
    count = len(pads) // 2
    if not 1 <= count <= 3 or x.ndim not in (count + 1, count + 2):
        raise NotImplementedError(
            f"[pad] Padding size {len(pads)} is not supported for {x.ndim}D input tensor.\n"
            "hint: padding by other modes than constant pads the last dimensions of (N, C, *) "
            "or (C, *), all but N and C"
        )


def _check_extent(x: Node, dimension: int, low: int, high: int, mode: str) -> None:
    size = x.shape[dimension]
    largest = max(low, high)
    if mode == "reflect" and not less(largest, size):
        problem = "Padding size should be less than the corresponding input dimension, but got: "
        problem += f"padding ({low}, {high}) at dimension {dimension} of input {shown(x.shape)}"
        raise failure(
            RuntimeError, "pad", problem, "reflection needs an element for each padded one"
        )
    if mode == "circular" and less(size, largest):
        problem = "Padding value causes wrapping around more than once."
        raise failure(
            RuntimeError, "pad", problem, f"at most {shown([size])} at dimension {dimension}"
        )


def _places(size: Size, low: int, extent: Size, mode: str) -> Node:
    """Where each element of the result is read."""
    place = prims.iota((extent,), 0, "i64") + -low
    last = prims.constant(size - 1, place)
    if mode == "replicate":
        return prims.minimum(prims.maximum(place, prims.full_like(0, place)), last)
    if mode == "circular":
        return prims.remainder(place, prims.constant(size, place))
    place = prims.abs(place)
    return prims.where(place > last, last + last - place, place)


def _pad_rule(input: Any, pad: Any, mode: str = "constant", value: Any = None) -> str:
    """PyTorch's operators of borders are cast, but for three-dimensional reflection."""
    return "float32" if mode == "replicate" or (mode == "reflect" and len(pad) < 6) else ""


@op(
    where="nn.functional",
    layout="images",
    autocast=by_arguments(_pad_rule),
    fits="value",
    samples=_samples,
    errors=_errors,
    varying=True,
)
def pad(
    input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Tensor:
    """The input with elements added around it; negative numbers remove elements.

    Args:
        pad: (before, after) of the last dimension, then of the one before it, ...
        mode: "constant", "reflect" (without repeating the border), "replicate" or "circular".
        value: the constant; 0 when None. The other modes take no other number.

    Raises:
        RuntimeError: an odd or too long `pad`, or padding the input cannot supply.
        NotImplementedError: an unknown mode, or a rank the mode does not cover.

    Example:
        >>> torch.nn.functional.pad(torch.tensor([[1.0, 2.0, 3.0]]), (2, 1), mode="reflect")
        tensor([[3., 2., 1., 2., 3., 2.]])
    """
    pads = tuple(static_size(p) for p in pad)
    _check(input, pads, mode, value)
    low, high = [0] * input.ndim, [0] * input.ndim
    for position in range(len(pads) // 2):
        d = input.ndim - 1 - position
        low[d], high[d] = pads[2 * position], pads[2 * position + 1]
        if less(input.shape[d] + low[d] + high[d], 0):
            problem = f"The input size {shown(input.shape)}, plus negative padding {list(pads)}, "
            problem += "resulted in a negative output size"
            raise failure(RuntimeError, "pad", problem, "remove fewer elements")
    if mode == "constant":
        return prims.pad(input, low, high, _fill(input, value))
    x = input
    for d in range(x.ndim):
        if low[d] or high[d]:
            x = _padded(x, d, low[d], high[d], mode)
    return Dense(x, range(x.ndim)) if mode == "circular" else x


def _padded(x: Node, d: int, low: int, high: int, mode: str) -> Node:
    """One dimension padded; a circle is closed after elements are removed."""
    _check_extent(x, d, low, high, mode)
    if mode == "circular" and min(low, high) < 0:
        before, after = max(-low, 0), max(-high, 0)
        x = prims.slice(x, d, before, x.shape[d] - before - after)
        low, high = max(low, 0), max(high, 0)
    extent = x.shape[d] + low + high
    return prims.take(x, _places(x.shape[d], low, extent, mode), d)


def _fill(x: Node, value: float | None) -> Any:
    number = 0.0 if value is None else value
    if x.dtype == "bool":
        return bool(number)
    if x.dtype not in ("u8", "i8", "i16", "i32", "i64"):
        return number
    if not math.isfinite(number):
        raise RuntimeError(
            f"[pad] value cannot be converted to type {x.dtype} without overflow\n"
            "hint: give a number that the dtype holds, or convert the tensor first"
        )
    return int(number)


@op(
    where="torch",
    layout="images",
    fits="value",
    samples=lambda: [sample(T(3, 4), (1, 2)), sample(T(2, 3, 4), (1, -2, 0, 3), 1.5)],
    errors=lambda: [ErrorSample(sample(T(2, 3), (1,)), RuntimeError, "divisible by 2")],
    varying=True,
)
def constant_pad_nd(self: Tensor, pad: Sequence[int], value: Scalar = 0) -> Tensor:
    """The input with a number around it: `nn.functional.pad` in its mode "constant".

    Raises:
        RuntimeError: an odd or too long `pad`, or more elements removed than there are.

    Example:
        >>> torch.constant_pad_nd(torch.tensor([1.0]), (1, 2), 7)
        tensor([7., 1., 7., 7.])
    """
    return _constant_pad(self, pad, "constant", value)


_constant_pad = pad
