"""`torch._prims_common`: rules of shapes, strides and dtypes that packages import from PyTorch."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, TypeAlias

import flambeau as torch
from flambeau._prims_common import dtypes as _dtypes
from flambeau.runtime import missing as _missing

Tensor = torch.Tensor
ShapeType: TypeAlias = "torch.Size | list[int] | tuple[int, ...]"
StrideType: TypeAlias = "list[int] | tuple[int, ...]"
DimsType: TypeAlias = "int | list[int] | tuple[int, ...]"
DimsSequenceType: TypeAlias = "list[int] | tuple[int, ...]"
TensorSequenceType: TypeAlias = "list[Tensor] | tuple[Tensor, ...]"
DeviceLikeType: TypeAlias = "str | torch.device | int"
Number = bool | int | float | complex
NumberType: TypeAlias = Number
NumberTypeType: TypeAlias = "type[bool] | type[int] | type[float] | type[complex]"
RealNumberType = bool | int | float
IntLike, FloatLike, BoolLike, Dim = int, float, bool, int
TensorLike = TensorLikeType = Tensor
TensorOrNumberLikeType: TypeAlias = "Tensor | bool | int | float | complex"


class RETURN_TYPE(Enum):  # noqa: N801 - PyTorch's name
    """The kinds of an operator's results: new tensors, views, its argument, or none."""

    NEW = (0,)
    VIEW = (1,)
    INPLACE = (2,)
    NONE = (3,)


# ------------------------------------------------------------------------------ dimensions
def canonicalize_dim(rank: int, idx: int, wrap_scalar: bool = True) -> int:
    """The dimension from the front; without dimensions, 0 and -1 are 0.

    Args:
        rank: number of dimensions.
        idx: from -rank to rank - 1.
        wrap_scalar: whether a tensor without dimensions counts as one of one dimension.

    Raises:
        IndexError: there is no such dimension.
    """
    if rank < 0:
        raise IndexError(f"Rank cannot be negative but got {rank}")
    if rank == 0:
        if not wrap_scalar:
            raise IndexError(f"Dimension specified as {idx} but tensor has no dimensions")
        rank = 1
    if not -rank <= idx < rank:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got "
            f"{idx})"
        )
    return idx + rank if idx < 0 else idx


def canonicalize_dims(rank: int, indices: Any, wrap_scalar: bool = True) -> Any:
    """`canonicalize_dim` of one index, or of each."""
    if isinstance(indices, int):
        return canonicalize_dim(rank, indices, wrap_scalar)
    return tuple([canonicalize_dim(rank, index, wrap_scalar) for index in indices])


def is_valid_permutation(rank: int, perm: Sequence[int]) -> bool:
    """Whether every dimension occurs once."""
    return isinstance(perm, Sequence) and sorted(perm) == list(range(rank))


def invert_perm(perm: Sequence[int]) -> list[int]:
    """The permutation that undoes another."""
    return sorted(range(len(perm)), key=perm.__getitem__)


def apply_perm(inp: Sequence[Any], perm: Sequence[int]) -> list[Any]:
    """Elements in the order of a permutation; -1 is left out of the result's positions."""
    return [inp[index] for index in perm if index != -1]


def validate_idx(rank: int, idx: int) -> None:
    """Raises AssertionError unless an index is one of a dimension, from the front."""
    if not (isinstance(idx, int) and isinstance(rank, int)):
        raise AssertionError(f"idx and rank must be integers, got {idx!r} and {rank!r}")
    if not (0 <= idx < rank or idx == 0):
        raise AssertionError(f"idx {idx} is out of bounds for rank {rank}")


def validate_dimension_indices(rank: int, indices: Sequence[int]) -> None:
    """`validate_idx` of each."""
    for idx in indices:
        validate_idx(rank, idx)


def validate_no_repeating_dims(dims: Sequence[int]) -> None:
    """Raises RuntimeError if a dimension occurs twice."""
    if len(dims) != len(set(dims)):
        raise RuntimeError("duplicate value in the list of dims")


def reduction_dims(shape: Any, dims: Sequence[int] | None) -> tuple[int, ...]:
    """The dimensions that a reduction takes: all without *dims*."""
    if dims is None:
        return tuple(range(len(shape)))
    canonical = tuple(canonicalize_dim(len(shape), idx) for idx in dims)
    validate_no_repeating_dims(canonical)
    return canonical


def compute_reduction_output_shape(shape: Any, dimensions: Sequence[int]) -> tuple[int, ...]:
    """A shape without the reduced dimensions."""
    validate_dimension_indices(len(shape), dimensions)
    return tuple([size for dim, size in enumerate(shape) if dim not in dimensions])


# ------------------------------------------------------------------------------ shapes
def validate_dim_length(length: int) -> None:
    """Raises RuntimeError for a negative size."""
    torch._check(length >= 0)


def validate_shape(shape: Any) -> None:
    """`validate_dim_length` of each size."""
    if not isinstance(shape, Sequence):
        raise AssertionError(f"shape must be a Sequence, got {type(shape)}")
    for length in shape:
        validate_dim_length(length)


def validate_strides(strides: Any) -> None:
    """Raises AssertionError for a negative stride."""
    if not isinstance(strides, Sequence):
        raise AssertionError(f"strides must be a Sequence, got {type(strides)}")
    for stride in strides:
        if stride < 0:
            raise AssertionError(f"stride must be non-negative, got {stride}")


def same_shape(a: Any, b: Any, *, allow_rhs_unbacked: bool = False) -> bool:
    """Whether two shapes are equal."""
    return len(a) == len(b) and all(x == y for x, y in zip(a, b, strict=True))


is_same_shape = same_shape


def is_expandable_to(shape: Any, desired: Any) -> bool:
    """Whether a shape broadcasts to another."""
    if len(shape) > len(desired):
        return False
    pairs = zip(reversed(shape), reversed(desired), strict=False)
    return all(size in (goal, 1) for size, goal in pairs)


def extract_dims_from_varargs(dims: Any) -> Any:
    """Dimensions of a call `f(0, 1)` or `f((0, 1))`."""
    return dims[0] if dims and isinstance(dims[0], Sequence) and len(dims) == 1 else dims


def extract_shape_from_varargs(shape: Any, validate: bool = True) -> tuple[int, ...]:
    """A shape of a call `f(2, 3)` or `f((2, 3))`."""
    shape = extract_dims_from_varargs(shape)
    if validate:
        validate_shape(shape)
    return tuple(shape)


def infer_size(shape: Any, numel: int) -> tuple[int, ...]:
    """A shape whose one -1 is what the number of elements leaves.

    Raises:
        RuntimeError: no size fits, or there are two -1.
    """
    unknown = [dim for dim, size in enumerate(shape) if size == -1]
    torch._check(len(unknown) <= 1, lambda: "only one dimension can be inferred")
    product = math.prod(size for size in shape if size != -1)
    fits = numel == product if not unknown else product > 0 and numel % product == 0
    torch._check(fits, lambda: f"shape '{list(shape)}' is invalid for input of size {numel}")
    return tuple([numel // product if size == -1 else size for size in shape])


def infer_size_shapes(a: Any, b: Any) -> tuple[int, ...]:
    """The shape that two shapes broadcast to."""
    return tuple(torch.broadcast_shapes(tuple(a), tuple(b)))


def extract_shape(*args: Any, allow_cpu_scalar_tensors: bool) -> Any:
    """The shape that all tensors have, or None."""
    shapes = {
        tuple(x.shape)
        for x in args
        if isinstance(x, Tensor) and not (allow_cpu_scalar_tensors and is_cpu_scalar_tensor(x))
    }
    return shapes.pop() if len(shapes) == 1 else None


# ------------------------------------------------------------------------------ strides
def make_contiguous_strides_for(shape: Any, row_major: bool = True) -> tuple[int, ...]:
    """Strides of a tensor that is dense in row-major order.

    Args:
        shape: its sizes; 0 counts as 1.
        row_major: False: the last two dimensions are in column-major order.

    Example:
        >>> torch._prims_common.make_contiguous_strides_for((2, 3, 4))
        (12, 4, 1)
    """
    validate_shape(shape)
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    strides.reverse()
    if not row_major and len(shape) >= 2:
        strides[-2:] = [1, max(shape[-2], 1)]
    return tuple(strides)


def make_channels_last_strides_for(shape: Any) -> tuple[int, ...]:
    """Strides of a batch of images, volumes or signals whose channels are innermost."""
    if len(shape) not in (3, 4, 5):
        raise RuntimeError(f"no channels last format strides exist in {len(shape)} dimensions")
    order = [0, *range(2, len(shape)), 1]
    dense = make_contiguous_strides_for([shape[dim] for dim in order])
    return tuple([dense[order.index(dim)] for dim in range(len(shape))])


make_channels_last_1d_strides_for = make_channels_last_strides_for
make_channels_last_2d_strides_for = make_channels_last_strides_for
make_channels_last_3d_strides_for = make_channels_last_strides_for


def is_contiguous(a: Any, false_if_dde: bool = False) -> bool:
    """Whether a tensor is dense in row-major order."""
    return bool(a.is_contiguous())


is_contiguous_or_false = is_contiguous


def is_contiguous_for_memory_format(
    a: Any, *, memory_format: Any, false_if_dde: bool = False
) -> bool:
    """Whether a tensor is dense in a memory format."""
    validate_memory_format(memory_format)
    return bool(a.is_contiguous(memory_format=memory_format))


is_contiguous_for_memory_format_or_false = is_contiguous_for_memory_format


def is_channels_last_contiguous_2d(a: Any, false_if_dde: bool = False) -> bool:
    """Whether images have their channels innermost."""
    return a.dim() == 4 and bool(a.is_contiguous(memory_format=torch.channels_last))


def is_channels_last_contiguous_3d(a: Any, false_if_dde: bool = False) -> bool:
    """Whether volumes have their channels innermost."""
    return a.dim() == 5 and bool(a.is_contiguous(memory_format=torch.channels_last_3d))


def is_channels_last_contiguous(a: Any) -> bool:
    """Whether images or volumes have their channels innermost."""
    return is_channels_last_contiguous_2d(a) or is_channels_last_contiguous_3d(a)


is_channels_last_contiguous_or_false = is_channels_last_contiguous
is_channels_last_contiguous_or_false_2d = is_channels_last_contiguous_2d
is_channels_last_contiguous_or_false_3d = is_channels_last_contiguous_3d


def is_non_overlapping_and_dense_or_false(a: Any) -> bool:
    """Whether a tensor's elements fill a stretch of memory, in some order of dimensions."""
    step = 1
    for stride, size in sorted((s, n) for s, n in zip(a.stride(), a.shape, strict=True) if n != 1):
        if a.numel() and stride != step:
            return False
        step *= size
    return a.layout is torch.strided


is_non_overlapping_and_dense = is_non_overlapping_and_dense_or_false


def compute_required_storage_length(shape: Any, strides: Any, storage_offset: int) -> int:
    """Elements of memory that a geometry reaches."""
    if 0 in shape:
        return 0
    pairs = zip(shape, strides, strict=True)
    return int(1 + storage_offset + sum((n - 1) * s for n, s in pairs))


def check_in_bounds_for_storage(a: Any, shape: Any, strides: Any, storage_offset: int) -> None:
    """Raises ValueError if a geometry leaves a storage."""
    needed = compute_required_storage_length(shape, strides, storage_offset)
    if a.size() < needed:
        raise ValueError(
            f"Can't view a storage of size {a.size()} with an offset of {storage_offset}, shape of "
            f"{tuple(shape)}, and strides of {tuple(strides)}, which requires a storage of size "
            f"{needed}"
        )


def suggest_memory_format(x: Any) -> Any:
    """The memory format that a result of a tensor's layout should have."""
    if x.layout is not torch.strided or x.is_contiguous():
        return torch.contiguous_format
    if is_channels_last_contiguous_2d(x):
        return torch.channels_last
    return torch.channels_last_3d if is_channels_last_contiguous_3d(x) else torch.contiguous_format


def validate_memory_format(memory_format: Any) -> None:
    """Raises RuntimeError for what is no memory format."""
    torch._check(
        isinstance(memory_format, torch.memory_format),
        lambda: f"Received unknown memory format {memory_format}!",
    )


def clone_preserve_strides(x: Any) -> Any:
    """A copy with the same strides."""
    length = compute_required_storage_length(x.shape, x.stride(), 0)
    window = torch.as_strided(x, (length,), (1,), x.storage_offset()).clone()
    return torch.as_strided(window, x.shape, x.stride())


# ------------------------------------------------------------------------------ checks
def is_cpu_scalar_tensor(a: object) -> bool:
    """Whether a value is a tensor without dimensions on the CPU."""
    return isinstance(a, Tensor) and a.ndim == 0 and a.device.type == "cpu"


def _each(args: Sequence[Any], skip_scalars: bool) -> list[Any]:
    for x in args:
        if not isinstance(x, (Tensor, bool, int, float, complex)):
            raise RuntimeError(f"Unexpected type when checking, {type(x)}!")
    tensors = [x for x in args if isinstance(x, Tensor)]
    return [x for x in tensors if not (skip_scalars and is_cpu_scalar_tensor(x))]


def _require_equal(name: str, values: Sequence[Any], start: str) -> None:
    for value in values[1:]:
        if value != values[0]:
            raise RuntimeError(f"{start}{value} is not the expected {name} {values[0]}!")


def check_same_shape(*args: Any, allow_cpu_scalar_tensors: bool) -> None:
    """Raises RuntimeError unless all tensors have one shape."""
    shapes = [x.shape for x in _each(args, allow_cpu_scalar_tensors)]
    _require_equal("shape", shapes, "Shape ")


def check_same_device(*args: Any, allow_cpu_scalar_tensors: bool) -> None:
    """Raises RuntimeError unless all tensors are on one device."""
    devices = [x.device for x in _each(args, allow_cpu_scalar_tensors)]
    _require_equal("device", devices, "Tensor on device ")


def check_same_dtype(*args: Any) -> None:
    """Raises RuntimeError unless all tensors have one dtype."""
    _require_equal("dtype of", [x.dtype for x in _each(args, False)], "Tensor with dtype ")


def check_layout(layout: Any) -> None:
    """Raises NotImplementedError for other layouts than strided."""
    if layout is not torch.strided:
        raise NotImplementedError(f"PrimTorch doesn't support layout={layout}")


def check_pin_memory(pin_memory: bool) -> None:
    """Raises NotImplementedError for pinned memory."""
    if pin_memory:
        raise NotImplementedError("PrimTorch does not support pinned memory")


def check_is_matrix(A: Any, f_name: str, arg_name: str = "A") -> None:  # noqa: N803
    """Raises RuntimeError for fewer than two dimensions."""
    if A.dim() < 2:
        raise RuntimeError(
            f"{f_name}: The input tensor {arg_name} must have at least 2 dimensions."
        )


def check(b: bool, s: Callable[[], str], exc_type: type[Exception] = RuntimeError) -> None:
    """Raises unless a condition holds; `torch._check` is its successor."""
    torch._check_with(exc_type, b, s)


def set_correction(unbiased: bool | None = None, correction: Any = None) -> float:
    """The correction of a variance, from either of its options."""
    if unbiased is not None and correction is not None:
        raise RuntimeError("cannot specify both correction and unbiased arguments")
    value = (0.0 if unbiased is False else 1.0) if correction is None else correction
    if not isinstance(value, (int, float)):
        raise ValueError("correction argument should be integer or float")
    return float(value)


def mask_tensor(mask: Any, t: Any) -> Any:
    """Zeros where a mask is False."""
    return t.logical_and(mask) if t.dtype is torch.bool else torch.where(mask, t, 0)


def prod(xs: Sequence[Any]) -> Any:
    """The product of numbers."""
    return functools.reduce(operator.mul, xs, 1)


def canonicalize_device(device: Any) -> Any:
    """A device object."""
    return device if isinstance(device, torch.device) else torch.device(device)


def device_or_default(device: Any) -> Any:
    """A device, or the CPU instead of None."""
    return torch.device("cpu") if device is None else device


def layout_or_default(layout: Any) -> Any:
    """A layout, or strided instead of None."""
    return torch.strided if layout is None else layout


def alert_not_deterministic(caller: str) -> None:
    """Returns: every operator is deterministic."""


__getattr__ = _missing.getter(
    __name__, {name: "flambeau._prims_common.dtypes" for name in _dtypes.__all__}, ("dtypes",)
)
