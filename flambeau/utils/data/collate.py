"""From a list of items to a batch: `default_collate`, and `default_convert` without batching."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import flambeau as torch
from flambeau.ir.failure import failure

__all__ = ["collate", "default_collate", "default_convert"]

Rule = Callable[..., Any]
_TEXT = "found {}\nhint: convert the items, or pass your own collate_fn"


def _is_array(value: Any) -> bool:
    """NumPy arrays and scalars, without importing NumPy."""
    return type(value).__module__ == "numpy" and hasattr(value, "__array__")


def _checked_array(array: Any) -> Any:
    if getattr(array, "dtype", None) is not None and array.dtype.kind in "SUOV":
        raise TypeError(
            "[default_collate] batch must contain tensors, numpy arrays, numbers, dicts or lists; "
            + _TEXT.format(array.dtype)
        )
    return array


def _rebuilt(like: Any, values: Any, fallback: Any) -> Any:
    """A container of the kind of `like`, where that kind can be made from values."""
    try:
        if isinstance(values, dict):
            if isinstance(like, MutableMapping):  # a copy has the defaults and attributes
                result = copy.copy(like)
                result.update(values)
                return result
            return type(like)(values)
        if isinstance(like, MutableSequence):
            clone = copy.copy(like)
            for position, value in enumerate(values):
                clone[position] = value
            return clone
        return type(like)(values)
    except TypeError:
        return fallback


def default_convert(data: Any) -> Any:
    """NumPy arrays become tensors, inside of any nesting; everything else stays as it is.

    Example:
        >>> import numpy
        >>> default_convert([0, {"a": numpy.zeros(2)}])
        [0, {'a': tensor([0., 0.], dtype=torch.float64)}]
    """
    if isinstance(data, torch.Tensor):
        return data
    if _is_array(data):
        return data if data.dtype.kind in "SUOV" else torch.as_tensor(data)
    if isinstance(data, Mapping):
        values: Any = {key: default_convert(data[key]) for key in data}
        return _rebuilt(data, values, values)
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(default_convert(item) for item in data))
    if isinstance(data, tuple):
        return [default_convert(item) for item in data]
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        values = [default_convert(item) for item in data]
        return _rebuilt(data, values, values)
    return data


def _matching_rule(kind: type, rules: dict[Any, Rule]) -> Rule | None:
    if kind in rules:
        return rules[kind]
    return next((rule for key, rule in rules.items() if issubclass(kind, key)), None)


def collate(batch: Any, *, collate_fn_map: dict[Any, Rule] | None = None) -> Any:
    """`default_collate`, with rules for further types.

    Args:
        batch: a list of items of one type.
        collate_fn_map: type (or tuple of types) -> function(batch, collate_fn_map=...).
    """
    first = batch[0]
    rule = _array_rule(first) if collate_fn_map is default_collate_fn_map else None
    rule = rule or _matching_rule(type(first), collate_fn_map or {})
    if rule is not None:
        return rule(batch, collate_fn_map=collate_fn_map)
    if isinstance(first, Mapping):
        columns: Any = {
            key: collate([item[key] for item in batch], collate_fn_map=collate_fn_map)
            for key in first
        }
        return _rebuilt(first, columns, columns)
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        parts = zip(*batch, strict=True)
        return type(first)(*(collate(part, collate_fn_map=collate_fn_map) for part in parts))
    if isinstance(first, Sequence) and not isinstance(first, (str, bytes)):
        return _collate_sequences(batch, collate_fn_map)
    raise TypeError(
        "[default_collate] batch must contain tensors, numpy arrays, numbers, dicts or lists; "
        + _TEXT.format(type(first))
    )


def _collate_sequences(batch: Any, rules: dict[Any, Rule] | None) -> Any:
    first = batch[0]
    if any(len(item) != len(first) for item in batch):
        problem = "each element in list of batch should be of equal size"
        raise failure(
            RuntimeError, "default_collate", problem, "pad the items, or pass your own collate_fn"
        )
    columns = [collate(part, collate_fn_map=rules) for part in zip(*batch, strict=True)]
    return columns if isinstance(first, tuple) else _rebuilt(first, columns, columns)


def collate_tensor_fn(batch: Any, *, collate_fn_map: dict[Any, Rule] | None = None) -> Any:
    """Tensors of equal size, stacked."""
    return torch.stack(list(batch), 0)


def collate_numpy_array_fn(batch: Any, *, collate_fn_map: dict[Any, Rule] | None = None) -> Any:
    """Arrays of equal size, stacked as tensors."""
    return torch.stack([torch.as_tensor(_checked_array(array)) for array in batch], 0)


def collate_numpy_scalar_fn(batch: Any, *, collate_fn_map: dict[Any, Rule] | None = None) -> Any:
    """NumPy's scalars as a tensor of their dtype."""
    dtype = torch.as_tensor(_checked_array(batch[0])).dtype
    return torch.as_tensor([_checked_array(scalar).item() for scalar in batch]).to(dtype)


def collate_float_fn(batch: Any, *, collate_fn_map: dict[Any, Rule] | None = None) -> Any:
    """Python's floats as a tensor of float64."""
    return torch.tensor(batch, dtype=torch.float64)


def collate_int_fn(batch: Any, *, collate_fn_map: dict[Any, Rule] | None = None) -> Any:
    """Integers (of int64) or truth values (of bool) as a tensor."""
    return torch.tensor(batch)


def collate_str_fn(batch: Any, *, collate_fn_map: dict[Any, Rule] | None = None) -> Any:
    """Texts as they are."""
    return batch


default_collate_fn_map: dict[Any, Rule] = {
    torch.Tensor: collate_tensor_fn,
    float: collate_float_fn,
    int: collate_int_fn,
    str: collate_str_fn,
    bytes: collate_str_fn,
}
"""Rules of `default_collate` by type; a program may add its own types."""


def _array_rule(first: Any) -> Rule | None:
    if not _is_array(first) or type(first) in default_collate_fn_map:
        return None
    return collate_numpy_array_fn if getattr(first, "shape", ()) else collate_numpy_scalar_fn


def default_collate(batch: Any) -> Any:
    """Items to a batch: tensors and arrays are stacked, numbers become tensors, text stays.

    Dicts become dicts of batches, tuples and lists become lists of batches, named tuples named
    tuples.

    Raises:
        TypeError: items of another type.
        RuntimeError: sequences of different lengths, tensors of different sizes.

    Example:
        >>> default_collate([{"x": 1.0, "y": "a"}, {"x": 2.0, "y": "b"}])
        {'x': tensor([1., 2.], dtype=torch.float64), 'y': ['a', 'b']}
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)
