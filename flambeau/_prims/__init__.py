"""`torch._prims`: the primitives under PyTorch's names, as overloads of `torch.ops.prims`.

Everything is computed from the records of our primitives (`flambeau/prims`). Names of PyTorch's
that no primitive or operator here serves are not there.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

import flambeau as torch
from flambeau.decompositions.primitive_operators import NAMES, packet

Value = Any  # an argument or a result of an operator
Tensor = Any


# PyTorch's primitives; ours that it has not are in `torch.ops.prims` alone.
_UPSTREAM = """
    abs acos acosh asin asinh atan atanh cos cosh bessel_i0 bessel_i0e bessel_i1 bessel_i1e
    bessel_j0 bessel_j1 bitwise_not cbrt ceil conj_physical digamma erf erf_inv erfc erfcx
    exp expm1 exp2 fill floor imag isfinite lgamma log log1p log2 log10 ndtri neg real
    reciprocal round sign signbit sin sinh spherical_bessel_j0 sqrt tan tanh trunc add atan2
    bitwise_and bitwise_or bitwise_xor div eq fmax fmin fmod frexp gcd ge gt hypot igamma
    igammac le lt maximum minimum mul ne nextafter pow remainder rsqrt shift_left
    shift_right_arithmetic sub zeta as_strided broadcast_in_dim collapse_view conj split_dim
    squeeze transpose view_of as_strided_scatter collapse cat reshape rev where clone
    convert_element_type device_put item copy_strided copy_to resize amax amin prod sum
    xor_sum var empty_strided empty_permuted scalar_tensor iota normal fft_r2c fft_c2c
    fft_c2r
""".split()

__all__ = [
    "RETURN_TYPE",
    "expand_dims",
    "maximum_value",
    "minimum_value",
    *[name for name in _UPSTREAM if name in NAMES],
]


class RETURN_TYPE(Enum):
    """How a primitive's result relates to its operands."""

    NEW = (0,)
    VIEW = (1,)
    INPLACE = (2,)
    NONE = (3,)


def maximum_value(dtype: Value) -> bool | int | float:
    """The largest number of a dtype.

    Args:
        dtype: bool, an integer or a floating-point dtype.

    Example:
        >>> from torch._prims import maximum_value
        >>> maximum_value(torch.int8)
        127
    """
    return _limit(dtype, "max")


def minimum_value(dtype: Value) -> bool | int | float:
    """The smallest number of a dtype.

    Args:
        dtype: bool, an integer or a floating-point dtype.
    """
    return _limit(dtype, "min")


def _limit(dtype: Value, end: str) -> bool | int | float:
    if dtype == torch.bool:
        return end == "max"
    info = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
    limit: int | float = getattr(info, end)
    return limit


def expand_dims(a: Tensor, dimensions: Sequence[int], ndim: int | None = None) -> Tensor:
    """A view of a tensor with further dimensions of size 1.

    Args:
        a: any shape.
        dimensions: where they are in the result.
        ndim: the result's rank, which `dimensions` may count from the end of.

    Returns:
        a view of shape with `len(dimensions)` further sizes of 1.

    Example:
        >>> from torch._prims import expand_dims
        >>> expand_dims(torch.ones(3), (0, 2)).shape
        torch.Size([1, 3, 1])
    """
    rank = a.ndim + len(dimensions) if ndim is None else ndim
    added = sorted(d % rank for d in dimensions)
    sizes = iter(a.shape)
    shape = [1 if d in added else next(sizes) for d in range(rank)]
    places = [d for d in range(rank) if d not in added]
    return packet("broadcast_in_dim").default(a, shape, places)


def __getattr__(name: str) -> Value:
    """The overload of a primitive."""
    if name not in __all__:
        raise AttributeError(f"module 'torch._prims' has no attribute {name!r}")
    return packet(name).default
