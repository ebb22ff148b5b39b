"""New tensors from Python data, NumPy arrays and raw memory, and uninitialised ones.

These are ordinary functions over real tensors: what they do is allocate and copy, at once.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from flambeau.core import tensors
from flambeau.ir.failure import failure
from flambeau.ir.lock import loaded
from flambeau.language.definition import function, op
from flambeau.language.schema import Device, DType, Tensor
from flambeau.ops.creation.creation import check_layout

DATA = "object data, *, dtype? dtype=None, device? device=None, bool requires_grad=False"


def _placed(result: Any, device: Any) -> Any:
    """The tensor on `device` (or the default one)."""
    target = tensors.as_device(device)
    return result if target.type == "cpu" else result.to(target)


@function(where="torch")
def tensor(
    data: Any,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Any:
    """A tensor with a copy of data: numbers, nested sequences, arrays, tensors.

    Without dtype: bool, int64, the default float or complex dtype, as the data needs; arrays and
    tensors keep theirs.

    Raises:
        ValueError, TypeError: nested sequences of different lengths, or data that is no number.

    Example:
        >>> torch.tensor([[1, 2], [3, 4]])
        tensor([[1, 2],
                [3, 4]])
    """
    check_layout(None, "tensor", pin_memory)
    if tensors.is_tensor(data):
        warnings.warn(
            "To copy construct from a tensor, it is recommended to use sourceTensor.detach()."
            "clone() or sourceTensor.detach().clone().requires_grad_(True), rather than torch."
            "tensor(sourceTensor).",
            UserWarning,
            stacklevel=2,
        )
        if data.layout is not tensors.strided or data.is_nested:  # its own memory holds no elements
            copied = data.detach().clone()
            copied = copied if dtype is None else copied.to(dtype)
            return copied.requires_grad_() if requires_grad else copied
    result = _placed(tensors.from_python(data, dtype), device)
    dispatch = loaded("flambeau.utils._python_dispatch")
    result = result if dispatch is None else dispatch.lifted(result)
    return result.requires_grad_() if requires_grad else result


@function(where="torch")
def as_tensor(data: Any, dtype: DType | None = None, device: Device | None = None) -> Any:
    """A tensor of data, sharing memory with tensors and arrays where dtype and device allow.

    Example:
        >>> torch.as_tensor([1., 2.])
        tensor([1., 2.])
    """
    result = tensors.shared(data, dtype)
    return result if device is None and tensors.is_tensor(data) else _placed(result, device)


@function(where="torch")
def asarray(
    obj: Any,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
    copy: bool | None = None,
    requires_grad: bool = False,
) -> Any:
    """A tensor of any object: tensor, array, DLPack exporter, buffer, number or sequence.

    Args:
        copy: True always copies, False never does, None copies when it must.

    Raises:
        ValueError: copy=False where memory cannot be shared.

    Example:
        >>> torch.asarray([1, 2])
        tensor([1, 2])
    """
    shares = tensors.is_tensor(obj) or hasattr(obj, "__array_interface__")
    if copy and tensors.is_tensor(obj):
        result = obj.detach().clone() if dtype is None else obj.detach().to(dtype, copy=True)
    elif copy or not shares:
        if copy is False:
            problem = "can't alias arbitrary sequence into a tensor."
            raise failure(ValueError, "asarray", problem, "leave copy out")
        result = tensors.from_python(obj, dtype)
    else:
        result = tensors.shared(obj, dtype)
    result = _placed(result, device)
    return result.requires_grad_() if requires_grad else result


op("from_numpy(object ndarray) -> Tensor", where="torch", host=True)(tensors.from_numpy)
op("frombuffer(object buffer, *, dtype dtype) -> Tensor", where="torch", host=True)(
    tensors.frombuffer
)
op("from_dlpack(object ext_tensor) -> Tensor", where="torch", host=True)(tensors.from_dlpack)


def _sizes(name: str, size: tuple[Any, ...], named: Any = None) -> Sequence[int]:
    """Sizes as one sequence, or as arguments.

    Raises:
        TypeError: there are none, or the only one is not an integer.
    """
    if named is not None:
        size = (named,)
    if not size:
        raise failure(TypeError, name, "missing argument: size", "() for a tensor of one element")
    if len(size) > 1 or type(size[0]) is int:
        return size
    only = size[0]
    if isinstance(only, (tuple, list)):
        return only
    if isinstance(only, (bool, float)) or not hasattr(type(only), "__index__"):
        kind = type(only).__name__
        raise TypeError(f"[{name}] argument 'size' must be tuple of ints, not {kind}\nhint: sizes")
    return (int(only),)


@op(
    "empty(SymInt[] size, *, dtype? dtype=None, device? device=None, bool requires_grad=False, "
    "memory_format? memory_format=None) -> Tensor",
    where="torch",
    out=True,
    host=True,
)
def empty(
    *sizes: Any,
    size: Any = None,
    out: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    memory_format: Any = None,
) -> Any:
    """A tensor whose elements are whatever the memory held.

    Args:
        size: sizes, as one sequence or as arguments (also `size=`).
        memory_format: `channels_last` puts the channels of an image last in memory.

    Raises:
        RuntimeError: a negative size, or a memory format of another rank.

    Example:
        >>> torch.empty(2, 3).shape
        torch.Size([2, 3])
    """
    check_layout(layout, "empty", pin_memory)
    shape = _sizes("empty", sizes, size)
    if out is not None:
        if dtype is not None and dtype != out.dtype:
            problem = f"dtype {dtype} does not match dtype of out parameter ({out.dtype})"
            raise failure(
                RuntimeError, "empty", problem, "leave out the dtype, or give an out tensor of it"
            )
        return out.resize_(shape)
    if memory_format in (tensors.channels_last, tensors.channels_last_3d):
        result = _channels_last(shape, dtype, device, memory_format)
    else:
        result = tensors.empty(shape, dtype, device)
    return result.requires_grad_() if requires_grad else result


def _channels_last(sizes: Sequence[int], dtype: Any, device: Any, memory_format: Any) -> Any:
    ndim = 5 if memory_format is tensors.channels_last_3d else 4
    if len(sizes) != ndim:
        problem = f"required rank {ndim} tensor to use {memory_format} format"
        raise failure(RuntimeError, "empty", problem, "channels_last is for images (N, C, H, W)")
    outer = tensors.empty((sizes[0], *sizes[2:], sizes[1]), dtype, device)
    return outer.permute(0, ndim - 1, *range(1, ndim - 1))


@op(
    "empty_like(Tensor self, *, dtype? dtype=None, device? device=None, bool requires_grad=False, "
    "memory_format? memory_format=None) -> Tensor",
    where="torch",
    out=True,
    host=True,
    pointwise=True,
)
def empty_like(
    input: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    memory_format: Any = None,
) -> Any:
    """An uninitialised tensor with the shape, dtype, device and memory order of another.

    Example:
        >>> torch.empty_like(torch.zeros(2, 3)).shape
        torch.Size([2, 3])
    """
    if _is_composed(input):
        return _composed(empty_like, input, dtype=dtype).requires_grad_(requires_grad)
    check_layout(layout, "empty_like", pin_memory)
    kind = input.dtype if dtype is None else dtype
    place = input.device if device is None else device
    if memory_format in (tensors.channels_last, tensors.channels_last_3d):
        result = _channels_last(input.shape, kind, place, memory_format)
    elif memory_format is tensors.contiguous_format or input.is_contiguous():
        result = tensors.empty(input.shape, kind, place)
    else:
        result = tensors.empty_strided(input.shape, _dense_strides(input), kind, place)
    return result.requires_grad_() if requires_grad else result


def _is_composed(x: Any) -> bool:
    """Whether a tensor is made of others: sparse, nested, masked. It has no memory of its own."""
    return hasattr(type(x), "_composed_in")


def _composed(op: Any, x: Any, *args: Any, **options: Any) -> Any:
    """Calls an operator of this module for a composed tensor."""
    stated = {name: value for name, value in options.items() if value is not None}
    return type(x).__torch_function__(op.native, (type(x),), (x, *args), stated)


def _dense_strides(x: Any) -> Sequence[int]:
    """Strides of a dense tensor whose dimensions lie in memory in the order of x's."""
    if 0 in x.stride():
        order = list(range(x.ndim))
    else:
        order = sorted(range(x.ndim), key=lambda d: x.stride(d), reverse=True)
    strides, step = [1] * x.ndim, 1
    for d in reversed(order):
        strides[d] = step
        step *= max(x.shape[d], 1)
    return strides


@op(
    "empty_strided(SymInt[] size, SymInt[] stride, *, dtype? dtype=None, device? device=None, "
    "bool requires_grad=False) -> Tensor",
    where="torch",
    out=True,
    host=True,
)
def empty_strided(
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Any:
    """An uninitialised tensor with these sizes and strides.

    Example:
        >>> torch.empty_strided((2, 3), (1, 2)).stride()
        (1, 2)
    """
    check_layout(layout, "empty_strided", pin_memory)
    result = tensors.empty_strided(size, stride, dtype, device)
    return result.requires_grad_() if requires_grad else result


@op(
    "empty_permuted(SymInt[] size, int[] physical_layout) -> Tensor",
    where="torch",
    out=True,
    host=True,
)
def empty_permuted(
    size: Sequence[int],
    physical_layout: Sequence[int],
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Any:
    """An uninitialised dense tensor whose dimensions lie in memory in the order given.

    Args:
        physical_layout: the dimensions, the one with the largest stride first.

    Raises:
        RuntimeError: not every dimension once.

    Example:
        >>> torch.empty_permuted((2, 3), (1, 0)).stride()
        (1, 2)
    """
    check_layout(layout, "empty_permuted", pin_memory)
    if sorted(physical_layout) != list(range(len(size))):
        problem = "Number of dimensions in size does not match the length of the physical_layout, "
        problem += f"or a dimension is not named once: {list(size)}, {list(physical_layout)}"
        raise failure(RuntimeError, "empty_permuted", problem, "a permutation of range(len(size))")
    strides, step = [1] * len(size), 1
    for d in reversed(physical_layout):
        strides[d] = step
        step *= max(size[d], 1)
    result = tensors.empty_strided(size, strides, dtype, device)
    return result.requires_grad_() if requires_grad else result


@op("new_empty(Tensor self, SymInt[] size) -> Tensor", where="method", host=True)
def new_empty(
    self: Any,
    *sizes: Any,
    size: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Any:
    """An uninitialised tensor of this one's dtype and device.

    Example:
        >>> torch.zeros(1).new_empty(2, 3).shape
        torch.Size([2, 3])
    """
    if _is_composed(self):
        composed = _composed(new_empty, self, _sizes("new_empty", sizes, size), dtype=dtype)
        return composed.requires_grad_(requires_grad)
    check_layout(layout, "new_empty", pin_memory)
    kind = self.dtype if dtype is None else dtype
    shape = _sizes("new_empty", sizes, size)
    result = tensors.empty(shape, kind, self.device if device is None else device)
    return result.requires_grad_() if requires_grad else result


@op(
    "new_empty_strided(Tensor self, int[] size, int[] stride) -> Tensor",
    where="method",
    out=True,
    host=True,
)
def new_empty_strided(
    self: Any, size: Sequence[int], stride: Sequence[int], dtype: Any = None, **options: Any
) -> Any:
    """An uninitialised tensor with these strides, of this one's dtype and device.

    Args:
        size, stride: one number per dimension, in elements.
        dtype, device: those of the tensor where None.

    Example:
        >>> torch.zeros(2).new_empty_strided((2, 3), (1, 2)).stride()
        (1, 2)
    """
    if _is_composed(self):
        return _composed(new_empty_strided, self, size, stride, dtype=dtype)
    kind = self.dtype if dtype is None else dtype
    return empty_strided(size, stride, dtype=kind, **{"device": self.device, **options})


@function(where="method")
def new_tensor(
    self: Tensor,
    data: Any,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
    layout: Any = None,
    pin_memory: bool = False,
) -> Any:
    """A copy of data in this tensor's dtype and on its device.

    Example:
        >>> torch.zeros(1).new_tensor([1, 2])
        tensor([1., 2.])
    """
    kind = self.dtype if dtype is None else dtype
    result = _placed(tensors.from_python(data, kind), self.device if device is None else device)
    return result.requires_grad_() if requires_grad else result
