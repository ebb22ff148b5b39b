"""Shapes, parts and order of arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import flambeau as torch
from flambeau._numpy.arrays import asarray, ndarray, register, tensor_of
from flambeau._numpy.dtypes import Untranslated, cast, torch_dtype

Value = Any  # an array, a number, what NumPy's functions take and give


def together(arrays: Sequence[Value], dtype: Value = None) -> list[Value]:
    """Tensors of the type that NumPy gives to what is computed from arrays."""
    items = [asarray(x) for x in arrays]
    kind = np.result_type(*[x.dtype for x in items]) if dtype is None else dtype
    return [cast(x.tensor, torch_dtype(kind)) for x in items]


@register("reshape")
def reshape(a: Value, /, shape: Value, order: str = "C", *, copy: bool | None = None) -> ndarray:
    """The elements in another shape."""
    if order not in ("C", "A") and not (order == "F" and asarray(a).ndim < 2):
        raise Untranslated(f"order {order}")
    tensor = tensor_of(a)
    sizes = (int(shape),) if not isinstance(shape, (tuple, list)) else tuple(map(int, shape))
    return ndarray(tensor.reshape(sizes).clone() if copy else tensor.reshape(sizes))


@register("ravel")
def ravel(a: Value, order: str = "C") -> ndarray:
    """The elements in one dimension."""
    if order not in ("C", "K", "A"):
        raise Untranslated(f"order {order}")
    return ndarray(tensor_of(a).reshape(-1))


@register("transpose", "permute_dims")
def transpose(a: Value, axes: Value = None) -> ndarray:
    """The dimensions in another order, by default reversed."""
    tensor = tensor_of(a)
    order = reversed(range(tensor.ndim)) if axes is None else axes
    return ndarray(tensor.permute(*order))


@register("matrix_transpose")
def matrix_transpose(x: Value, /) -> ndarray:
    """The last two dimensions swapped."""
    return ndarray(tensor_of(x).mT)


@register("swapaxes")
def swapaxes(a: Value, axis1: int, axis2: int) -> ndarray:
    """Two dimensions swapped."""
    return ndarray(tensor_of(a).transpose(axis1, axis2))


@register("moveaxis")
def moveaxis(a: Value, source: Value, destination: Value) -> ndarray:
    """Dimensions moved to other positions."""
    return ndarray(torch.movedim(tensor_of(a), source, destination))


@register("rollaxis")
def rollaxis(a: Value, axis: int, start: int = 0) -> ndarray:
    """A dimension moved before another one."""
    tensor = tensor_of(a)
    axis, start = axis % tensor.ndim, start + tensor.ndim if start < 0 else start
    return ndarray(torch.movedim(tensor, axis, start - (axis < start)))


@register("expand_dims")
def expand_dims(a: Value, axis: Value) -> ndarray:
    """The array with further dimensions of size 1."""
    tensor = tensor_of(a)
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    rank = tensor.ndim + len(axes)
    if any(not -rank <= d < rank for d in axes):
        raise np.exceptions.AxisError(axes[0], rank)
    for dim in sorted([d % rank for d in axes]):
        tensor = tensor.unsqueeze(dim)
    return ndarray(tensor)


@register("squeeze")
def squeeze(a: Value, axis: Value = None) -> ndarray:
    """The array without dimensions of size 1."""
    tensor = tensor_of(a)
    if axis is None:
        return ndarray(tensor.squeeze())
    axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    if any(tensor.shape[d] != 1 for d in axes):
        raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
    return ndarray(tensor.squeeze(axes))


@register("broadcast_to")
def broadcast_to(array: Value, shape: Value) -> ndarray:
    """A view of a larger shape."""
    return ndarray(tensor_of(array).expand(*((shape,) if isinstance(shape, int) else shape)))


@register("broadcast_arrays")
def broadcast_arrays(*args: Value) -> tuple[ndarray, ...]:
    """Views of one shape."""
    return tuple(map(ndarray, torch.broadcast_tensors(*map(tensor_of, args))))


def _at_least(rank: int) -> Callable[..., Value]:
    def change(*arys: Value) -> Value:
        results = tuple([ndarray(_ranked(tensor_of(x), rank)) for x in arys])
        return results[0] if len(results) == 1 else results

    return change


def _ranked(tensor: Value, rank: int) -> Value:
    if rank == 3 and tensor.ndim == 2:
        return tensor[:, :, None]
    if rank == 3 and tensor.ndim == 1:
        return tensor[None, :, None]
    return tensor.reshape(*(1,) * (rank - tensor.ndim), *tensor.shape)


for _rank in (1, 2, 3):
    register(f"atleast_{_rank}d")(_at_least(_rank))


# ------------------------------------------------------------------------------ joined, split
@register("concatenate", "concat")
def concatenate(arrays: Value, axis: int | None = 0, *, dtype: Value = None) -> ndarray:
    """Arrays one after the other."""
    tensors = together(list(arrays), dtype)
    if axis is None:
        tensors, axis = [x.reshape(-1) for x in tensors], 0
    return ndarray(torch.cat(tensors, axis))


@register("stack")
def stack(arrays: Value, axis: int = 0, *, dtype: Value = None) -> ndarray:
    """Arrays along a new dimension."""
    return ndarray(torch.stack(together(list(arrays), dtype), axis))


def _stacking(join: Callable[..., Value]) -> Callable[..., Value]:
    def stacked(tup: Value, *, dtype: Value = None) -> ndarray:
        return ndarray(join(together(list(tup), dtype)))

    return stacked


for _name, _join in (("vstack", torch.vstack), ("hstack", torch.hstack),
                     ("dstack", torch.dstack)):  # fmt: skip
    register(_name)(_stacking(_join))


@register("column_stack")
def column_stack(tup: Value) -> ndarray:
    """Arrays of one dimension as columns."""
    return ndarray(torch.column_stack(together(list(tup))))


@register("append")
def append(arr: Value, values: Value, axis: int | None = None) -> ndarray:
    """Values behind an array."""
    return concatenate((arr, values), axis)


@register("array_split")
def array_split(ary: Value, indices_or_sections: Value, axis: int = 0) -> list[ndarray]:
    """Parts, of sizes that differ by at most 1 or that begin at positions."""
    sections = indices_or_sections
    sections = sections if isinstance(sections, int) else list(map(int, sections))
    parts = torch.tensor_split(tensor_of(ary), sections, axis)
    return list(map(ndarray, parts))


@register("split")
def split(ary: Value, indices_or_sections: Value, axis: int = 0) -> list[ndarray]:
    """Parts of one size, or that begin at positions."""
    size = asarray(ary).shape[axis]
    if isinstance(indices_or_sections, int) and size % indices_or_sections:
        raise ValueError("array split does not result in an equal division")
    return array_split(ary, indices_or_sections, axis)


@register("vsplit")
def vsplit(ary: Value, indices_or_sections: Value) -> list[ndarray]:
    """Parts along the first dimension."""
    return split(ary, indices_or_sections, 0)


@register("hsplit")
def hsplit(ary: Value, indices_or_sections: Value) -> list[ndarray]:
    """Parts along the second dimension, or the only one."""
    return split(ary, indices_or_sections, min(1, asarray(ary).ndim - 1))


@register("tile")
def tile(A: Value, reps: Value) -> ndarray:  # noqa: N803 - NumPy's name
    """Copies of an array side by side."""
    return ndarray(torch.tile(tensor_of(A), (reps,) if isinstance(reps, int) else tuple(reps)))


@register("repeat")
def repeat(a: Value, repeats: Value, axis: int | None = None) -> ndarray:
    """Copies of each element one after the other."""
    tensor = tensor_of(a)
    if axis is None:
        tensor, axis = tensor.reshape(-1), 0
    count = repeats if isinstance(repeats, int) else tensor_of(repeats).to(torch.int64)
    return ndarray(torch.repeat_interleave(tensor, count, dim=axis))


# ------------------------------------------------------------------------------ moved
@register("flip")
def flip(m: Value, axis: Value = None) -> ndarray:
    """Reversed along dimensions."""
    tensor = tensor_of(m)
    axes = range(tensor.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    return ndarray(torch.flip(tensor, tuple(axes)))


@register("fliplr")
def fliplr(m: Value) -> ndarray:
    """Columns reversed."""
    return flip(m, 1)


@register("flipud")
def flipud(m: Value) -> ndarray:
    """Rows reversed."""
    return flip(m, 0)


@register("roll")
def roll(a: Value, shift: Value, axis: Value = None) -> ndarray:
    """Elements moved on, those that leave come in at the other end."""
    return ndarray(torch.roll(tensor_of(a), shift, () if axis is None else axis))


@register("rot90")
def rot90(m: Value, k: int = 1, axes: tuple[int, int] = (0, 1)) -> ndarray:
    """Rotated by multiples of 90 degrees."""
    return ndarray(torch.rot90(tensor_of(m), k, list(axes)))


@register("pad")
def pad(
    array: Value, pad_width: Value, mode: str = "constant", *, constant_values: Value = 0
) -> Value:
    """An array with a border of one number."""
    if mode != "constant" or type(constant_values) not in (int, float):
        raise Untranslated(f"mode {mode}")
    tensor = tensor_of(array)
    widths = np.broadcast_to(np.asarray(pad_width), (tensor.ndim, 2)).tolist()
    flat = [n for pair in reversed(widths) for n in pair]
    return ndarray(torch.nn.functional.pad(tensor, flat, value=constant_values))


# ------------------------------------------------------------------------------ selected
@register("where")
def where(condition: Value, x: Value = None, y: Value = None, /) -> Value:
    """Elements of one or the other array; without these, positions of true elements."""
    mask = tensor_of(condition)
    mask = mask if mask.dtype == torch.bool else mask != 0
    if x is None and y is None:
        return tuple(map(ndarray, torch.nonzero(mask, as_tuple=True)))
    kinds = [z if type(z) in (int, float, complex) else asarray(z).dtype for z in (x, y)]
    kind = torch_dtype(np.result_type(*kinds))
    sides = [
        torch.full((), z, dtype=kind)
        if type(z) in (int, float, complex)
        else cast(tensor_of(z), kind)
        for z in (x, y)
    ]
    return ndarray(torch.where(mask, *sides))


@register("take")
def take(a: Value, indices: Value, axis: int | None = None) -> ndarray:
    """Elements at positions."""
    tensor, index = tensor_of(a), tensor_of(indices).to(torch.int64)
    if axis is None:
        tensor, axis = tensor.reshape(-1), 0
    axis %= tensor.ndim
    index = torch.where(index < 0, index + tensor.shape[axis], index)
    flat = torch.index_select(tensor, axis, index.reshape(-1))
    return ndarray(flat.reshape(*tensor.shape[:axis], *index.shape, *tensor.shape[axis + 1 :]))


@register("take_along_axis")
def take_along_axis(arr: Value, indices: Value, axis: int | None = -1) -> ndarray:
    """Elements at positions along a dimension."""
    return ndarray(torch.take_along_dim(tensor_of(arr), tensor_of(indices).to(torch.int64), axis))


@register("nonzero")
def nonzero(a: Value) -> tuple[ndarray, ...]:
    """Positions of elements that are not 0, by dimension."""
    return tuple(map(ndarray, torch.nonzero(tensor_of(a), as_tuple=True)))


@register("flatnonzero")
def flatnonzero(a: Value) -> ndarray:
    """Positions of elements that are not 0, of the elements in one dimension."""
    return ndarray(torch.nonzero(tensor_of(a).reshape(-1), as_tuple=True)[0])


@register("argwhere")
def argwhere(a: Value) -> ndarray:
    """Positions of elements that are not 0, as rows."""
    return ndarray(torch.argwhere(tensor_of(a)))


@register("sort")
def sort(a: Value, axis: int | None = -1, kind: Value = None, *, stable: Value = None) -> ndarray:
    """Sorted elements."""
    return ndarray(_sorted(a, axis)[0])


@register("argsort")
def argsort(
    a: Value, axis: int | None = -1, kind: Value = None, *, stable: Value = None
) -> ndarray:
    """Positions of the sorted elements; of equal ones, the first comes first."""
    return ndarray(_sorted(a, axis)[1])


def _sorted(a: Value, axis: int | None) -> tuple[Value, Value]:
    tensor = tensor_of(a)
    if tensor.is_complex():
        raise Untranslated("an order of complex numbers")
    if axis is None:
        tensor, axis = tensor.reshape(-1), -1
    values, order = torch.sort(tensor, dim=axis, stable=True)
    return values, order


@register("searchsorted")
def searchsorted(a: Value, v: Value, side: str = "left") -> ndarray:
    """Positions at which numbers would be in a sorted array."""
    boundaries, values = together((a, v))
    return ndarray(torch.searchsorted(boundaries, values, right=side == "right"))


@register("unique")
def unique(ar: Value) -> ndarray:
    """The different elements, sorted."""
    tensor = tensor_of(ar)
    if tensor.is_complex():
        raise Untranslated("an order of complex numbers")
    return ndarray(torch.unique(tensor))


@register("isin")
def isin(element: Value, test_elements: Value) -> ndarray:
    """The elements that another array has, as a mask."""
    return ndarray(torch.isin(*together((element, test_elements))))
