"""`torch.nn._reduction`: numbers of reductions, and what older arguments mean."""

from __future__ import annotations

import warnings

__all__ = ["get_enum", "legacy_get_enum", "legacy_get_string"]

_NUMBERS = {"none": 0, "mean": 1, "elementwise_mean": 1, "sum": 2}


def get_enum(reduction: str) -> int:
    """The number of a reduction.

    Raises:
        ValueError: another word.

    Example:
        >>> torch.nn._reduction.get_enum("mean")
        1
    """
    if reduction not in _NUMBERS:
        raise ValueError(f"{reduction} is not a valid value for reduction\nhint: 'mean'")
    return _NUMBERS[reduction]


def legacy_get_string(
    size_average: bool | None, reduce: bool | None, emit_warning: bool = True
) -> str:
    """The reduction that `size_average` and `reduce` mean."""
    averages = size_average is None or size_average
    reduces = reduce is None or reduce
    reduction = ("mean" if averages else "sum") if reduces else "none"
    if emit_warning:
        text = "size_average and reduce args will be deprecated, please use reduction='{}' instead."
        warnings.warn(text.format(reduction), stacklevel=2)
    return reduction


def legacy_get_enum(
    size_average: bool | None, reduce: bool | None, emit_warning: bool = True
) -> int:
    """The number of `legacy_get_string`."""
    return get_enum(legacy_get_string(size_average, reduce, emit_warning))
