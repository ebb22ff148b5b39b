"""`torch._utils`: private helpers of PyTorch that other packages import."""

from __future__ import annotations

import functools
import importlib
import logging
import sys
import traceback
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Generic, ParamSpec

import flambeau as torch
from flambeau.ir.lock import late

__all__: list[str] = []

P = ParamSpec("P")
logger = logging.getLogger(__name__)


def _type(self: Any, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
    return self.type(dtype, non_blocking, **kwargs)


def _element_size(dtype: Any) -> int:
    """Bytes of an element.

    Raises:
        RuntimeError: no dtype.
    """
    if not isinstance(dtype, torch.dtype):
        raise RuntimeError(f"expected torch.dtype, but got {type(dtype)}")
    return int(dtype.itemsize)


def _get_available_device_type() -> None:
    """The type of the accelerator: there is none."""


def _get_device_attr(get_member: Callable[[Any], Any]) -> None:
    """An attribute of the accelerator's module: there is none."""


def _get_current_device_index() -> int:
    return -1


def get_current_device_index() -> int:
    """Index of the current accelerator: -1."""
    return -1


def _get_all_device_indices() -> None:
    """Indices of accelerators: there are none."""


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """Index of a device; -1 of the CPU.

    Raises:
        ValueError: the CPU, unless `allow_cpu`; None, unless `optional`.
    """
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device):
        if device.type == "cpu" and not allow_cpu:
            raise ValueError(f"Expected a non cpu device, but got: {device}")
        return -1 if device.type == "cpu" or device.index is None else int(device.index)
    if isinstance(device, int):
        return device
    if device is None and optional:
        return _get_current_device_index()
    raise ValueError(
        f"Expected a torch.device with a specified index or an integer, but got:{device}"
    )


def _get_device_module(device_type: str) -> Any:
    """The module of a type of devices, `torch.cuda` say.

    Raises:
        RuntimeError: there is none.
    """
    try:
        return late(f"flambeau.{device_type}")
    except ModuleNotFoundError:
        raise RuntimeError(
            f"Device '{device_type}' does not have a corresponding module registered as "
            f"'torch.{device_type}'."
        ) from None


def _flatten_dense_tensors(tensors: Any) -> Any:
    """Tensors of one dtype as one vector."""
    tensors = list(tensors)
    if len(tensors) == 1:
        return tensors[0].contiguous().view(-1)
    return torch.cat([tensor.contiguous().view(-1) for tensor in tensors])


def _unflatten_dense_tensors(flat: Any, tensors: Any) -> tuple[Any, ...]:
    """Views of a vector, of the shapes of tensors."""
    views, offset = [], 0
    for tensor in tensors:
        count = tensor.numel()
        views.append(flat.narrow(0, offset, count).view_as(tensor))
        offset += count
    return tuple(views)


def _take_tensors(tensors: Any, size_limit: int) -> Any:
    """Groups of tensors of one dtype, of at most `size_limit` bytes each where they can be."""
    groups: dict[Any, list[Any]] = defaultdict(list)
    sizes: dict[Any, int] = defaultdict(int)
    for tensor in tensors:
        kind = tensor.dtype
        size = tensor.numel() * tensor.element_size()
        if groups[kind] and sizes[kind] + size > size_limit:
            yield groups.pop(kind)
            sizes[kind] = 0
        groups[kind].append(tensor)
        sizes[kind] += size
    yield from (group for group in groups.values() if group)


def _reorder_tensors_as(tensors: Any, ordered_tensors: Any) -> tuple[Any, ...]:
    """Tensors in the order of the dtypes of others."""
    by_kind: dict[Any, list[Any]] = defaultdict(list)
    for tensor in tensors:
        by_kind[tensor.type()].append(tensor)
    queues = {kind: iter(group) for kind, group in by_kind.items()}
    return tuple(next(queues[tensor.type()]) for tensor in ordered_tensors)


class KeyErrorMessage(str):
    """A message that a KeyError prints as it is."""

    def __repr__(self) -> str:
        return str(self)


class ExceptionWrapper:
    """An exception as text, to be raised again elsewhere.

    Args:
        exc_info: of `sys.exc_info()`, the present one when None.
        where: what raised it, for the message.
    """

    def __init__(self, exc_info: Any = None, where: str = "in background") -> None:
        kind, error, trace = sys.exc_info() if exc_info is None else exc_info
        self.exc_type: Any = kind
        self.exc_msg = "".join(traceback.format_exception(kind, error, trace))
        self.where = where

    def reraise(self) -> None:
        """Raises an exception of the same type, whose message holds the first one's traceback."""
        message = f"Caught {self.exc_type.__name__} {self.where}.\nOriginal {self.exc_msg}"
        if self.exc_type is KeyError:
            raise KeyError(KeyErrorMessage(message))
        if getattr(self.exc_type, "message", None):
            raise self.exc_type(message=message)
        try:
            error = self.exc_type(message)
        except Exception:
            raise RuntimeError(message) from None
        raise error


class _ClassPropertyDescriptor:
    def __init__(self, fget: Any, fset: Any = None) -> None:
        self.fget = fget

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        owner = type(instance) if owner is None else owner
        return self.fget.__get__(instance, owner)()


def classproperty(func: Any) -> Any:
    """A property of the class itself."""
    bound = func if isinstance(func, (classmethod, staticmethod)) else classmethod(func)
    return _ClassPropertyDescriptor(bound)


class CallbackRegistry(Generic[P]):
    """Functions that are called together; their errors are logged."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.callback_list: list[Callable[P, None]] = []

    def add_callback(self, cb: Callable[P, None]) -> None:
        """Adds a function."""
        self.callback_list.append(cb)

    def fire_callbacks(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Calls all functions."""
        for callback in self.callback_list:
            try:
                callback(*args, **kwargs)
            except Exception:
                logger.exception("Exception in callback for %s registered with", self.name)


def _import_dotted_name(name: str) -> Any:
    """Resolves a dotted name in an imported module."""
    first, *attributes = name.split(".")
    return functools.reduce(getattr, attributes, __import__(first))


def try_import(module_name: str) -> Any:
    """A module, or None where it is not installed."""
    if importlib.util.find_spec(module_name) is None:
        return None
    return importlib.import_module(module_name)


def is_compiling() -> bool:
    """Whether a region is being recorded: `torch.compiler.is_compiling`."""
    return bool(torch.compiler.is_compiling())


def cpu_count() -> int:
    """CPUs that this process may run on."""
    import os

    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def render_call(fn: Any, args: Any, kwargs: Any) -> str:
    """A call as text."""
    parts = [repr(arg) for arg in args] + [f"{name}={value!r}" for name, value in kwargs.items()]
    name = getattr(fn, "__name__", str(fn))
    return f"{name}({', '.join(parts)})"


def get_tensor_metadata(tensor: Any) -> dict[str, object]:
    """Returns the metadata stored with a tensor, see `set_tensor_metadata`."""
    return dict(getattr(tensor, "_metadata_of_checkpoint", {}))


def set_tensor_metadata(tensor: Any, metadata: dict[str, object]) -> None:
    """Stores more with a tensor."""
    tensor._metadata_of_checkpoint = dict(metadata)


def _get_obj_state(obj: Any) -> Any:
    """Returns the attributes that pickling stores with a tensor."""
    getter = getattr(obj, "__getstate__", None)
    return getter() if getter else obj.__dict__


def _set_obj_state(obj: Any, state: Any) -> Any:
    """Sets attributes that pickling stored."""
    attributes, slots = state if isinstance(state, tuple) else (state, None)
    obj.__dict__.update(attributes or {})
    for name, value in (slots or {}).items():
        setattr(obj, name, value)
    return obj


def __getattr__(name: str) -> Any:
    """Functions that checkpoints name."""
    if name.startswith("_rebuild"):
        try:
            return getattr(late("flambeau.serialization.rebuild"), name)
        except (ModuleNotFoundError, AttributeError):
            pass
    from flambeau.runtime import missing

    missing.refuse(__name__, name)
