"""`make_tensor`: random tensors for tests, with the numbers of PyTorch's function of that name."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import flambeau as torch

__all__ = ["make_tensor"]

# Default bounds of drawn values; limited to what the dtype holds.
_LOW, _HIGH_INTEGER, _HIGH = -9, 10, 9


def _problem(text: str, hint: str) -> ValueError:
    return ValueError(f"[make_tensor] {text}\nhint: {hint}")


def _is_integral(dtype: Any) -> bool:
    return not (dtype.is_floating_point or dtype.is_complex)


def _limits(dtype: Any) -> tuple[float, float, float, float]:
    """Smallest value, end of the range, and the default bounds."""
    if dtype is torch.bool:
        return 0, 2, 0, 2
    if _is_integral(dtype):
        info = torch.iinfo(dtype)
        end = info.max + (0 if dtype is torch.int64 else 1)
        return info.min, end, _LOW, _HIGH_INTEGER
    info = torch.finfo(dtype)
    return info.min, info.max, _LOW, _HIGH


def _bounds(dtype: Any, low: float | None, high: float | None) -> tuple[Any, Any]:
    smallest, end, default_low, default_high = _limits(dtype)
    low = default_low if low is None else low
    high = default_high if high is None else high
    if any(isinstance(v, float) and math.isnan(v) for v in (low, high)):
        raise _problem(f"`low` and `high` cannot be NaN, but got {low=} and {high=}", "numbers")
    if low == high and not _is_integral(dtype):
        warnings.warn(
            "[make_tensor] low == high for floating or complex types is deprecated; use "
            "torch.full(...)",
            FutureWarning,
            stacklevel=3,
        )
    elif low >= high:
        raise _problem(f"`low` must be less than `high`, but got {low} >= {high}", "low < high")
    elif high < smallest or low >= end:
        raise _problem(
            f"The value interval specified by `low` and `high` is [{low}, {high}), but {dtype} "
            f"only supports [{smallest}, {end})",
            "choose bounds the dtype holds",
        )
    low, high = min(max(low, smallest), end), min(max(high, smallest), end)
    if _is_integral(dtype):
        return math.ceil(low), math.ceil(high)
    return low, high


def _drawn(shape: Sequence[int], dtype: Any, device: Any, low: Any, high: Any) -> Any:
    if _is_integral(dtype):
        return torch.randint(low, high, shape, device=device, dtype=dtype)
    result = torch.empty(shape, device=device, dtype=dtype)
    numbers = torch.view_as_real(result) if dtype.is_complex else result
    if high - low >= torch.finfo(numbers.dtype).max:  # the difference itself would overflow
        numbers.uniform_(low / 2, high / 2).mul_(2)
    else:
        numbers.uniform_(low, high)
    return result


def make_tensor(
    *shape: Any,
    dtype: Any,
    device: Any,
    low: float | None = None,
    high: float | None = None,
    requires_grad: bool = False,
    noncontiguous: bool = False,
    exclude_zero: bool = False,
    memory_format: Any = None,
) -> Any:
    """A tensor of values drawn uniformly from [low, high).

    Args:
        shape: sizes, or one sequence of sizes.
        low, high: -9 and 9 (10 for integers, 0 and 2 for bool) where None.
        noncontiguous: every second element of a larger tensor.
        exclude_zero: zeros become 1, or the smallest positive normal number.

    Raises:
        ValueError: bounds out of order or outside of the dtype; options that exclude each other.

    Example:
        >>> make_tensor((3,), dtype=torch.float32, device="cpu", low=-1, high=1).shape
        torch.Size([3])
    """
    if len(shape) == 1 and isinstance(shape[0], Sequence):
        shape = tuple(shape[0])
    if noncontiguous and memory_format is not None:
        raise _problem(
            "The parameters `noncontiguous` and `memory_format` are mutually exclusive", "choose"
        )
    if requires_grad and _is_integral(dtype):
        raise _problem(
            f"`requires_grad=True` is not supported for boolean and integral dtypes, but got "
            f"{dtype=}",
            "a floating dtype",
        )
    stepped = noncontiguous and math.prod(shape) > 1
    sizes = (*shape[:-1], 2 * shape[-1]) if stepped else shape
    low, high = _bounds(dtype, low, high)
    result = _drawn(sizes, dtype, device, low, high)
    if stepped:
        result = result[..., 1::2]
    elif memory_format is not None:
        result = result.clone(memory_format=memory_format)
    if exclude_zero:
        smallest = 1 if _is_integral(dtype) else torch.finfo(dtype).tiny
        result.copy_(torch.where(result == 0, torch.full_like(result, smallest), result))
    return result.requires_grad_() if requires_grad else result
