"""Conversions and copies: dtype, device, memory order, the contents of another tensor.

A conversion that changes nothing returns the tensor itself, as PyTorch's do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from flambeau import prims
from flambeau.core import tensors
from flambeau.core.devices import has_memory, on_host, same_place
from flambeau.ir.dtypes import ROWS, TITLES
from flambeau.ir.failure import failure
from flambeau.ir.lock import late
from flambeau.ir.node import Node
from flambeau.language import layout
from flambeau.language.definition import Dense, function, op
from flambeau.language.dtypes import DTYPE_OBJECTS, PUBLIC_NAMES, name_of
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.language.schema import Device, DType, MemoryFormat, Mutable, Tensor
from flambeau.ops.common import geometry_of, is_one, same_sizes, shown

Samples = Iterator[Sample]

prims.register_rule("copy", lambda grad, out, x: (grad,))


def copied(x: Node) -> Node:
    """The same value, never the same memory."""
    return prims.with_derivative(x, x, rule="copy")


def _layouts() -> Samples:
    for order in ("contiguous", "transposed", "sliced"):
        yield sample(T(4, 6, layout=order))
    yield sample(T())
    yield sample(T(0, 3))


# ------------------------------------------------------------------------------------ memory order


@op(where="method", returns_self=True, samples=_layouts)
def contiguous(self: Tensor) -> Tensor:
    """The tensor itself if its elements lie in row-major order, else a copy that does.

    Args:
        memory_format: `contiguous_format`, `channels_last` or `channels_last_3d`.

    Example:
        >>> torch.zeros(2, 3).t().contiguous().stride()
        (2, 1)
    """
    return self if _lies(self, range(self.ndim)) else copied(self)


def _lies(x: Node, order: Sequence[int]) -> bool:
    """Whether a dense tensor's dimensions lie in memory in an order, from the outermost."""
    geometry = geometry_of(x)
    if geometry is None:  # computed: it lies as the result that is asked for
        return True
    sizes, strides, _ = geometry
    expected = layout.dense_strides(sizes, order)
    pairs = [(a, b) for a, b, n in zip(strides, expected, sizes, strict=True) if not is_one(n)]
    empty = any(isinstance(n, int) and n == 0 for n in sizes)
    return empty or same_sizes([a for a, _ in pairs], [b for _, b in pairs])


def _order(x: Node, memory_format: Any) -> Sequence[int]:
    """The dimensions from the outermost to the innermost in a memory format."""
    if memory_format is tensors.contiguous_format:
        return range(x.ndim)
    ranks = {tensors.channels_last: 4, tensors.channels_last_3d: 5}
    if not isinstance(memory_format, type(tensors.contiguous_format)):
        problem = f"contiguous(): memory_format is {type(memory_format).__name__}"
        raise failure(TypeError, "contiguous", problem, "torch.contiguous_format")
    if memory_format not in ranks:
        problem = "preserve memory format is unsupported by the contiguous operator"
        raise failure(RuntimeError, "contiguous", problem, "clone() preserves the order")
    if x.ndim != ranks[memory_format]:
        problem = f"required rank {ranks[memory_format]} tensor to use {memory_format} format"
        raise failure(
            RuntimeError, "contiguous", problem, "channels_last is for images (N, C, H, W)"
        )
    return (0, *range(2, x.ndim), 1)


@contiguous.overload(samples=None)
def _contiguous_format(self: Tensor, *, memory_format: MemoryFormat | None) -> Tensor:
    order = _order(self, memory_format)
    return self if _lies(self, order) else Dense(copied(self), order)


@op(layout="follow", samples=_layouts, linear=True)
def clone(self: Tensor) -> Tensor:
    """A copy that keeps the order of dense dimensions in memory; gradients flow through.

    Args:
        memory_format: `preserve_format` (default), `contiguous_format`, `channels_last`.

    Example:
        >>> x = torch.zeros(2)
        >>> x.clone() is x
        False
    """
    return copied(self)


@clone.overload(samples=None)
def _clone_format(self: Tensor, *, memory_format: MemoryFormat | None) -> Tensor:
    if memory_format in (None, tensors.preserve_format):
        return copied(self)
    return Dense(copied(self), _order(self, memory_format))


# ------------------------------------------------------------------------------------ dtype


def _to_samples() -> Samples:
    yield sample(T(2, 3), sample_dtype("float64"))
    yield sample(T(4, 6, layout="transposed"), sample_dtype("int32"))


class DTypeSpec:
    """A dtype argument in samples, by its public name; tests turn it into their library's."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        """Return the name as users write it."""
        return f"torch.{self.name}"


def sample_dtype(name: str) -> DTypeSpec:
    """A dtype argument for samples."""
    return DTypeSpec(name)


def _cast(x: Node, dtype: str) -> Node:
    """A conversion that users write: it warns where it drops imaginary parts."""
    if x.dtype in ("c64", "c128") and dtype not in ("c64", "c128", "bool"):
        late("flambeau.core.warned").warn_once(
            "Casting complex values to real discards the imaginary part"
        )
    return prims.cast(x, dtype)


@op(where="method", layout="follow", returns_self=True)
def to(self: Tensor, dtype: DType, non_blocking: bool = False, copy: bool = False) -> Tensor:
    """The tensor in another dtype, on another device, or like another tensor.

    `to(dtype)`, `to(device, dtype)`, `to(other)`; nothing to change returns the tensor itself
    unless `copy` is set. Devices: "cpu", and "meta" for shapes without data.

    Raises:
        NotImplementedError: from the meta device, which has no data.

    Example:
        >>> torch.tensor([1.5]).to(torch.int64)
        tensor([1])
    """
    result = _cast(self, name_of(dtype))
    return copied(result) if copy and result is self else result


@to.overload(host=True)
def _to_device(
    self: Tensor,
    device: Device | None = None,
    dtype: DType | None = None,
    non_blocking: bool = False,
    copy: bool = False,
    *,
    memory_format: MemoryFormat | None = None,
) -> Any:
    return _moved(self, device, dtype, copy, memory_format)


@to.overload(host=True)
def _to_other(
    self: Tensor,
    other: Tensor,
    non_blocking: bool = False,
    copy: bool = False,
    *,
    memory_format: MemoryFormat | None = None,
) -> Any:
    return _moved(self, other.device, other.dtype, copy, memory_format)


@to.overload(host=True)
def _to_dtype_format(
    self: Tensor,
    dtype: DType,
    non_blocking: bool = False,
    copy: bool = False,
    *,
    memory_format: MemoryFormat | None,
) -> Any:
    return _moved(self, None, dtype, copy, memory_format)


def _moved(self: Any, device: Any, dtype: Any, copy: bool, memory_format: Any) -> Any:
    if device is not None and not (device == "cpu" and self.is_cpu):
        target = tensors.as_device(device)
        if not same_place(target, self.device):
            return _transferred(self, target, dtype)
    result = self if dtype is None else to.native(self, dtype)
    if memory_format is None and not copy:
        return result
    preserving = (None, tensors.preserve_format)
    if memory_format not in preserving and not result.is_contiguous(memory_format=memory_format):
        return clone.native(result, memory_format=memory_format)
    return clone(self) if copy and result is self else result


def _transferred(self: Any, target: Any, dtype: Any) -> Any:
    if has_memory(target) and has_memory(self.device):
        result = self if dtype is None else to.native(self, dtype)
        return late("flambeau.autograd.moving").moved(result, target)
    if on_host(target):
        raise NotImplementedError(
            f"[to] Cannot copy out of {self.device.type} tensor; no data!\n"
            f"hint: a tensor on the {self.device.type} device has a shape but no values"
        )
    return tensors.empty_strided(self.shape, self.stride(), dtype or self.dtype, target)


@op(
    where="method",
    layout="first",
    returns_self=True,
    samples=lambda: [sample(T(2, 3), T(1, dtype="f64", grad=False))],
    pointwise=True,
)
def type_as(self: Tensor, other: Tensor) -> Tensor:
    """The tensor in the dtype of another.

    Example:
        >>> torch.tensor([1]).type_as(torch.zeros(1))
        tensor([1.])
    """
    return _cast(self, other.dtype)


def _define_cast(name: str, dtype: str) -> None:
    public = PUBLIC_NAMES[dtype]

    def body(self: Node) -> Node:
        return _cast(self, dtype)

    body.__doc__ = f"""The tensor as `{public}`; itself if it is that already.

    Example:
        >>> torch.tensor([1]).{name}().dtype
        torch.{public}
    """
    definition = op(
        f"{name}(Tensor self) -> Tensor",
        where="method",
        layout="follow",
        zero_preserving=True,
        returns_self=True,
        samples=_layouts,
    )(body)

    def with_format(self: Any, *, memory_format: Any) -> Any:
        return _moved(self, None, DTYPE_OBJECTS[dtype], False, memory_format)

    definition.overload(
        f"{name}.format(Tensor self, *, memory_format? memory_format) -> Tensor",
        host=True,
        samples=None,
    )(with_format)


CASTS = {row.alias: row.name for row in ROWS if row.alias}
CASTS |= {"bfloat16": "bf16", "char": "i8", "byte": "u8", "bool": "bool"}
for _name, _dtype in CASTS.items():
    _define_cast(_name, _dtype)


@function(name="type", where="method")
def type_of(self: Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    """The name of the tensor's type, or the tensor converted to a type.

    Args:
        dtype: a dtype, a type such as `torch.DoubleTensor`, or its name.

    Raises:
        ValueError: an unknown name.

    Example:
        >>> torch.zeros(1).type()
        'torch.FloatTensor'
    """
    if dtype is None:
        return f"torch.{TITLES[name_of(self.dtype)]}Tensor"
    if isinstance(dtype, str):
        names = [k for k, v in TITLES.items() if dtype == f"torch.{v}Tensor"]
        if not names:
            raise failure(ValueError, "type", f"invalid type: '{dtype}'", "e.g. torch.FloatTensor")
        dtype = DTYPE_OBJECTS[names[0]]
    elif isinstance(dtype, type):  # torch.FloatTensor
        dtype = getattr(dtype, "dtype", dtype)
    if name_of(dtype) is None:
        raise TypeError("[type] dtype must be a type, str, or dtype object\nhint: torch.float32")
    return to(self, dtype)


# ------------------------------------------------------------------------------------ device


@function(where="method", out=True)
def cpu(self: Tensor, memory_format: MemoryFormat | None = None) -> Any:
    """The tensor on the CPU: itself if it is there.

    Raises:
        NotImplementedError: from the meta device, which has no data.

    Example:
        >>> x = torch.zeros(1)
        >>> x.cpu() is x
        True
    """
    if self.is_cpu and memory_format is None:
        return self
    return _moved(self, "cpu", None, False, memory_format)


@function(where="method", out=True)
def cuda(self: Tensor, device: Any = None, non_blocking: bool = False, **options: Any) -> Any:
    """Raises AssertionError: this build has no CUDA devices.

    Raises:
        AssertionError: always.

    Example:
        >>> torch.zeros(1).cuda()
        Traceback (most recent call last):
        AssertionError: [cuda] Torch not compiled with CUDA enabled...
    """
    problem = "Torch not compiled with CUDA enabled"
    raise failure(AssertionError, "cuda", problem, "test torch.cuda.is_available() first")


# ------------------------------------------------------------------------------------ writing


def _copy_samples() -> Samples:
    yield sample(T(2, 3), T(2, 3))
    yield sample(T(2, 3), T(3))
    yield sample(T(4, 6, layout="transposed"), T(4, 6))
    yield sample(T(2, 3), T(dtype="i64", grad=False))


def broadcast_source(value: Node, target: Node, name: str) -> Node:
    """`value` in the dtype and shape of the tensor it is written to."""
    try:
        return prims.broadcast_to(_cast(value, target.dtype), target.shape)
    except ValueError as error:
        for a, b in zip(reversed(target.shape), reversed(value.shape), strict=False):
            if not is_one(b) and not layout.same(a, b):
                break
        raise RuntimeError(
            f"[{name}] The size of tensor a {shown(target.shape)} must match the size of tensor b "
            f"{shown(value.shape)}\nhint: the value must broadcast to the tensor"
        ) from error


@op(
    where="method",
    overlap="partial",
    samples=_copy_samples,
    errors=lambda: [ErrorSample(sample(T(2, 3), T(4)), RuntimeError, "must match the size")],
)
def copy_(self: Mutable[Tensor], other: Tensor, non_blocking: bool = False) -> Tensor:
    """Overwrites the tensor with `other`, broadcast and converted.

    Raises:
        RuntimeError: other does not broadcast to the tensor.

    Example:
        >>> torch.zeros(2).copy_(torch.tensor([1, 2]))
        tensor([1., 2.])
    """
    return broadcast_source(other, self, "copy_")
