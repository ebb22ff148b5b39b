"""`torch._C`: the few of its names that programs with extension points use.

PyTorch's private module of its native core. `__torch_function__` and `__torch_dispatch__` are
turned off for a type, or for a while, by these names in PyTorch's own documentation.
"""

from __future__ import annotations

import types
from typing import Any

from flambeau import _core
from flambeau._core import Generator, Size

__all__ = ["DisableTorchFunction", "DisableTorchFunctionSubclass", "Generator", "Size"]

_disabled_torch_function_impl = _core._disabled_torch_function
_disabled_torch_dispatch_impl = _core._disabled_torch_function  # by identity: never called


class DisableTorchFunctionSubclass:
    """A `with` block in which subclasses are plain tensors to every function; modes stay.

    Example:
        >>> with torch._C.DisableTorchFunctionSubclass():
        ...     torch._C._is_torch_function_enabled()
        False
    """

    def __enter__(self) -> None:
        self._before = _core.set_torch_function_enabled(False)

    def __exit__(self, *exception: object) -> None:
        _core.set_torch_function_enabled(self._before)


class DisableTorchFunction(DisableTorchFunctionSubclass):
    """A `with` block without any `__torch_function__`: of types and of modes."""

    def __enter__(self) -> None:
        super().__enter__()
        self._modes = _core.set_function_modes_enabled(False)

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        _core.set_function_modes_enabled(self._modes)


def _is_torch_function_enabled() -> bool:
    """Whether `__torch_function__` of types is on in this thread."""
    before: bool = _core.set_torch_function_enabled(True)
    _core.set_torch_function_enabled(before)
    return before


def _is_torch_function_mode_enabled() -> bool:
    """Whether a `TorchFunctionMode` is active in this thread."""
    before: bool = _core.set_function_modes_enabled(True)
    _core.set_function_modes_enabled(before)
    return before


def _len_torch_function_stack() -> int:
    """Number of active `TorchFunctionMode`s."""
    return len(_core.function_modes())


def _get_function_stack_at(index: int) -> Any:
    """An active `TorchFunctionMode`; 0 is the oldest."""
    return _core.function_modes()[index]


def _parse_to(
    *args: Any,
    device: Any = None,
    dtype: Any = None,
    non_blocking: bool = False,
    copy: bool = False,
    memory_format: Any = None,
) -> tuple[Any, Any, bool, Any]:
    """Device, dtype, whether not to wait, and memory format of the arguments of `Module.to`.

    Raises:
        TypeError: an argument of another type.
    """
    rest = list(args)
    if rest and isinstance(rest[0], _core.Tensor):
        other = rest.pop(0)
        device, dtype = other.device, other.dtype
    elif rest and (rest[0] is None or isinstance(rest[0], (str, int, _core.device))):
        device = rest.pop(0)
        if rest and (rest[0] is None or isinstance(rest[0], _core.dtype)):
            dtype = rest.pop(0)
    elif rest and isinstance(rest[0], _core.dtype):
        dtype = rest.pop(0)
    if len(rest) > 2 or not all(isinstance(flag, bool) for flag in rest):
        text = f"[to] received an invalid combination of arguments: {args}"
        raise TypeError(f"{text}\nhint: a device")
    non_blocking = rest[0] if rest else non_blocking
    found = None if device is None else _core.device(device)
    return found, dtype, non_blocking, memory_format


_nn = types.SimpleNamespace(_parse_to=_parse_to)
