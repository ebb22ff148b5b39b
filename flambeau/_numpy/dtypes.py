"""Element types: NumPy's and ours."""

from __future__ import annotations

from typing import Any

import numpy as np

import flambeau as torch

__all__ = ["Untranslated", "cast", "numpy_dtype", "torch_dtype"]

Value = Any  # an array, a number, what NumPy's functions take and give

_NAMES = "bool uint8 int8 int16 int32 int64 float16 float32 float64 complex64 complex128".split()
_OURS = {np.dtype(name): getattr(torch, name) for name in _NAMES}
_NUMPY = {ours: theirs for theirs, ours in _OURS.items()}


class Untranslated(Exception):  # noqa: N818 - control flow within this package
    """A call that operators on tensors do not compute; it runs as NumPy itself."""


def torch_dtype(dtype: Value) -> Value:
    """Our type of elements.

    Args:
        dtype: whatever NumPy takes for one.

    Raises:
        Untranslated: there is none.
    """
    ours = _OURS.get(np.dtype(dtype))
    if ours is None:
        raise Untranslated(f"elements of type {np.dtype(dtype)}")
    return ours


def numpy_dtype(dtype: Value) -> Value:
    """NumPy's type of a tensor's elements.

    Raises:
        Untranslated: there is none.
    """
    theirs = _NUMPY.get(dtype)
    if theirs is None:
        raise Untranslated(f"elements of type {dtype}")
    return theirs


def cast(tensor: Value, dtype: Value) -> Value:
    """A tensor with elements of one of our types."""
    return tensor if tensor.dtype == dtype else tensor.to(dtype)
