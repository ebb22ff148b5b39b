"""Functions of NumPy's arrays, called with tensors or in compiled functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import flambeau as torch
from flambeau._numpy.arrays import asarray, ndarray
from flambeau._numpy.dtypes import Untranslated
from flambeau.utils import _pytree as pytree

__all__ = ["called", "compiled", "holds_arrays"]

Value = Any  # an argument or a result


def _array(value: Value) -> Value:
    """An array of ours in place of a tensor."""
    return ndarray(value) if isinstance(value, torch.Tensor) else value


def _tensor(value: Value) -> Value:
    """A tensor in place of an array, of ours or of NumPy."""
    if type(value) is ndarray:
        return value.tensor
    return torch.as_tensor(value) if isinstance(value, (np.ndarray, np.generic)) else value


def called(fn: Callable[..., Value], args: Value, kwargs: Value) -> Value:
    """Calls a function of NumPy's arrays with tensors; see `torch.compiler.wrap_numpy`."""
    args, kwargs = pytree.tree_map(_array, (args, kwargs))
    return pytree.tree_map(_tensor, fn(*args, **kwargs))


def holds_arrays(args: Value, kwargs: Value) -> bool:
    """Whether there are arrays of NumPy among arguments."""
    return any(type(x) is np.ndarray for x in pytree.tree_leaves((args, kwargs)))


def _inside(value: Value) -> Value:
    """An array of ours that has the memory of one of NumPy; that one where there is none."""
    if type(value) is not np.ndarray or not value.flags.writeable:
        return value
    if any(step < 0 for step in value.strides):
        return value
    try:
        return asarray(value)
    except Untranslated:
        return value


def compiled(fn: Callable[..., Value], args: Value, kwargs: Value) -> Value:
    """Calls a function whose arguments have arrays of NumPy: its functions run on tensors.

    Args:
        fn: the function.
        args, kwargs: its arguments.

    Returns:
        its results, with arrays of NumPy.
    """
    outside = {}

    def inside(value: Value) -> Value:
        result = _inside(value)
        if result is not value:
            outside[id(result.tensor)] = value
        return result

    args, kwargs = pytree.tree_map(inside, (args, kwargs))
    results = fn(*args, **kwargs)
    return pytree.tree_map(lambda x: _outside(x, outside), results)


def _outside(value: Value, origins: dict[int, Value]) -> Value:
    if type(value) is not ndarray:
        return value
    origin = origins.get(id(value.tensor))
    return value.__array__() if origin is None else origin
