"""Typed access of host operators to the native constructors of tensors.

Only `core` and `runtime` know the native module; operators written in Python over real tensors
reach it through here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from flambeau import _core
from flambeau.core.devices import has_data

Tensor = _core.Tensor
Size = _core.Size
Generator = _core.Generator
default_generator = _core.default_generator
contiguous_format = _core.contiguous_format
preserve_format = _core.preserve_format
channels_last = _core.channels_last
channels_last_3d = _core.channels_last_3d
strided = _core.strided

from_numpy: Callable[[Any], Any] = _core.from_numpy
frombuffer: Callable[..., Any] = _core.frombuffer
from_dlpack: Callable[..., Any] = _core.from_dlpack
from_python: Callable[..., Any] = _core.tensor_from_python
shared: Callable[..., Any] = _core.as_tensor
call_each: Callable[..., list[Any]] = _core.call_each
autocast_call: Callable[..., Any] = _core.autocast_call
count_true: Callable[[Any], int | None] = _core.count_true


def empty(sizes: Sequence[int], dtype: Any = None, device: Any = None) -> Any:
    """An uninitialised row-major tensor; the defaults of new tensors where None."""
    result = _core.tensor_empty(sizes, dtype, device)
    return filled_for_debugging(result) if _core.fills_uninitialised else result


def seed_generators(seed: int) -> Any:
    """Starts the default generators of all devices from a seed; returns the CPU's."""
    for generator in _core.device_generators():
        generator.manual_seed(seed)
    return default_generator.manual_seed(seed)


def empty_strided(
    sizes: Sequence[int], strides: Sequence[int], dtype: Any = None, device: Any = None
) -> Any:
    """An uninitialised tensor with these strides."""
    result = _core.tensor_empty_strided(sizes, strides, dtype, device)
    return filled_for_debugging(result) if _core.fills_uninitialised else result


is_grad_enabled = _core.is_grad_enabled
enable_grad = _core.enable_grad

# Whether uninitialised memory is filled: `runtime.switches` sets it.
_core.fills_uninitialised = False


def fills_uninitialised() -> bool:
    """Whether uninitialised memory is filled."""
    return bool(_core.fills_uninitialised)


def filled_for_debugging(result: Any) -> Any:
    """The tensor with NaN, the largest integer or True in every element."""
    if not has_data(result):
        return result
    kind = result.dtype
    if kind is _core.bool:
        value: Any = True
    elif kind.is_floating_point or kind.is_complex:
        value = float("nan")
    else:
        value = _core.iinfo(kind).max
    with _core.no_grad():
        return result.fill_(value)


def reinterpreted(
    tensor: Any, dtype: Any, sizes: Sequence[int], strides: Sequence[int], offset: int
) -> Any:
    """Another view of a tensor's memory, outside of the autograd graph."""
    return _core.tensor_from_storage(tensor.untyped_storage(), dtype, sizes, strides, offset)


def set_geometry(
    tensor: Any, storage: Any, sizes: Sequence[int], strides: Sequence[int], offset: int
) -> Any:
    """Makes a tensor look at this memory from now on; no autograd."""
    return _core.tensor_set(tensor, storage, sizes, strides, offset)


def take_over(tensor: Any, other: Any) -> Any:
    """Makes a tensor what `other` is: its geometry and its place in the autograd graph."""
    return _core.tensor_take_over(tensor, other)


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor."""
    return isinstance(value, Tensor)


def as_device(device: Any) -> Any:
    """A device object; the default of new tensors where None."""
    if device is None:
        return _core.get_default_device()
    return device if isinstance(device, _core.device) else _core.device(device)


def define_method(name: str, function: Callable[..., Any]) -> None:
    """Gives tensors a method."""
    setattr(_core.Tensor, name, function)


@cache
def struct_sequence(name: str, fields: tuple[str, ...]) -> Any:
    """The type of a result with named fields: call it with a tuple.

    It is `torch.return_types.<name>` in texts; pickles find it in the module of that name here.
    """
    kind = _core.make_structseq(f"torch.return_types.{name}", fields)
    kind.__module__ = "flambeau.return_types"
    function = name.replace("linalg_", "linalg.")
    kind.__doc__ = f"What `torch.{function}` returns: {', '.join(fields)}."
    kind.__repr__ = _struct_text
    return kind


def _struct_text(value: Any) -> str:
    """A field per line, as tensors have several lines."""
    kind = type(value)
    fields = (f"{name}={item!r}" for name, item in zip(kind.__match_args__, value, strict=True))
    return f"torch.return_types.{kind.__name__}(\n" + ",\n".join(fields) + ")"
