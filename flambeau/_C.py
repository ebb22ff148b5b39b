"""`torch._C`: the few of its names that programs with extension points use.

PyTorch's private module of its native core. `__torch_function__` and `__torch_dispatch__` are
turned off for a type, or for a while, by these names in PyTorch's own documentation.
"""

from __future__ import annotations

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
