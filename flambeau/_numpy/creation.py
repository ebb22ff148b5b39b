"""Arrays like others. Functions without arrays among their arguments run as NumPy itself."""

from __future__ import annotations

from typing import Any

import numpy as np

import flambeau as torch
from flambeau._numpy.arrays import asarray, ndarray, register, tensor_of
from flambeau._numpy.dtypes import torch_dtype

Value = Any  # an array, a number, what NumPy's functions take and give


def _like(a: Value, dtype: Value, shape: Value, fill: Value) -> ndarray:
    array = asarray(a)
    kind = array.tensor.dtype if dtype is None else torch_dtype(dtype)
    sizes = array.shape if shape is None else shape
    sizes = (sizes,) if isinstance(sizes, int) else tuple(sizes)
    return ndarray(torch.full(sizes, fill, dtype=kind))


@register("zeros_like", "empty_like")
def zeros_like(a: Value, dtype: Value = None, order: str = "K", *, shape: Value = None) -> ndarray:
    """Zeros; of what NumPy leaves open, too."""
    return _like(a, dtype, shape, 0)


@register("ones_like")
def ones_like(a: Value, dtype: Value = None, order: str = "K", *, shape: Value = None) -> ndarray:
    """Ones."""
    return _like(a, dtype, shape, 1)


@register("full_like")
def full_like(
    a: Value, fill_value: Value, dtype: Value = None, order: str = "K", *, shape: Value = None
) -> ndarray:
    """Copies of one number, or of an array that is broadcast."""
    if type(fill_value) in (int, float, bool):
        return _like(a, dtype, shape, fill_value)
    result = _like(a, dtype, shape, 0)
    result.tensor.copy_(tensor_of(fill_value))
    return result


@register("copy")
def copy(a: Value, order: str = "K") -> ndarray:
    """An array with memory of its own."""
    return asarray(a).copy()


@register("astype")
def astype(x: Value, dtype: Value, *, copy: bool = True) -> Value:
    """The elements in another type."""
    return asarray(x).astype(dtype, copy=copy)


@register("meshgrid")
def meshgrid(*xi: Value, indexing: str = "xy") -> tuple[ndarray, ...]:
    """Coordinates of the points of a grid."""
    grids = torch.meshgrid(*[tensor_of(x).reshape(-1) for x in xi], indexing=indexing)
    return tuple([ndarray(grid.clone()) for grid in grids])


def _triangle(take: Value) -> Value:
    def triangle(m: Value, k: int = 0) -> ndarray:
        """A triangle of matrices; zeros elsewhere."""
        tensor = tensor_of(m)
        return ndarray(take(tensor.expand(*tensor.shape * 2) if tensor.ndim == 1 else tensor, k))

    return triangle


register("tril")(_triangle(torch.tril))
register("triu")(_triangle(torch.triu))


@register("diag")
def diag(v: Value, k: int = 0) -> ndarray:
    """A diagonal, or the matrix that has it."""
    return ndarray(torch.diag(tensor_of(v), k))


@register("diagflat")
def diagflat(v: Value, k: int = 0) -> ndarray:
    """The matrix that has a diagonal."""
    return ndarray(torch.diag(tensor_of(v).reshape(-1), k))


@register("vander")
def vander(x: Value, N: int | None = None, increasing: bool = False) -> ndarray:  # noqa: N803
    """Powers of numbers as columns."""
    tensor = tensor_of(x)
    return ndarray(torch.vander(tensor, N, increasing))


@register("result_type")
def result_type(*arrays_and_dtypes: Value) -> Value:
    """NumPy's type of what is computed from these."""
    return np.result_type(*[x.dtype if type(x) is ndarray else x for x in arrays_and_dtypes])


@register("shape")
def shape(a: Value) -> tuple[int, ...]:
    """The sizes."""
    return asarray(a).shape


@register("ndim")
def ndim(a: Value) -> int:
    """The number of dimensions."""
    return asarray(a).ndim


@register("size")
def size(a: Value, axis: int | None = None) -> int:
    """The number of elements, or one size."""
    return asarray(a).size if axis is None else asarray(a).shape[axis]


@register("iscomplexobj")
def iscomplexobj(x: Value) -> bool:
    """Whether elements are complex."""
    return bool(tensor_of(x).is_complex())


@register("isrealobj")
def isrealobj(x: Value) -> bool:
    """Whether elements are no complex numbers."""
    return not tensor_of(x).is_complex()
