"""The state of autocast in this thread: for each device type whether it is on, and its dtype.

The CPU's state belongs to the native core, which casts operands (`native/call/autocast.cpp`). Other
device types only store their settings.
"""

from __future__ import annotations

import threading
import warnings
from typing import Any

from flambeau import _core
from flambeau.language.dtypes import DTYPE_OBJECTS

# Device types that a device string may name, in PyTorch's order.
DEVICE_TYPES = (
    "cpu", "cuda", "ipu", "xpu", "mkldnn", "opengl", "opencl", "ideep", "hip", "ve", "fpga",
    "maia", "xla", "lazy", "vulkan", "mps", "meta", "hpu", "mtia", "privateuseone",
)  # fmt: skip
# The dtype of lower precision that a thread starts with, of each type that has autocast.
DEFAULTS = {
    "cpu": "bf16", "cuda": "f16", "ipu": "f16", "xpu": "f16", "maia": "bf16", "xla": "bf16",
    "mps": "f16", "hpu": "bf16", "mtia": "f16", "privateuseone": "f16",
}  # fmt: skip


class _State(threading.local):
    """A thread's settings for device types other than the CPU."""

    def __init__(self) -> None:
        self.enabled: dict[str, bool] = {}
        self.dtypes: dict[str, Any] = {}


_state = _State()


def device_kind(device_type: str) -> str:
    """The type in a device string.

    Raises:
        TypeError: no string.
        RuntimeError: no type of device.

    Example:
        >>> torch.amp.state.device_kind("cpu:0")
        'cpu'
    """
    if not isinstance(device_type, str):
        raise TypeError(
            "[autocast] argument 'device_type' must be str, not "
            f"{type(device_type).__name__}\nhint: device.type"
        )
    kind = device_type.partition(":")[0]
    if kind not in DEVICE_TYPES:
        raise RuntimeError(
            f"[autocast] Expected one of {', '.join(DEVICE_TYPES)} device type at start of device "
            f"string: {device_type}\nhint: 'cpu'"
        )
    return kind


def is_autocast_available(device_type: str) -> bool:
    """Whether a device type has autocast.

    Raises:
        RuntimeError: no type of device.

    Example:
        >>> torch.amp.is_autocast_available("cpu"), torch.amp.is_autocast_available("meta")
        (True, False)
    """
    return device_kind(device_type) in DEFAULTS


def _supported(device_type: str, text: str) -> str:
    kind = device_kind(device_type)
    if kind not in DEFAULTS:
        raise RuntimeError(f"[autocast] {text}: {kind!r}\nhint: is_autocast_available() is False")
    return kind


_UNKNOWN = "unknown device type for autocast in get_autocast_dispatch_key_from_device_type"
_NO_DTYPE = "unsupported scalarType, the device type has no autocast"


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether autocast is on for a device type in this thread.

    Raises:
        RuntimeError: a device type without autocast.

    Example:
        >>> with torch.autocast("cpu"):
        ...     torch.is_autocast_enabled("cpu")
        True
    """
    kind = _supported(device_type, _UNKNOWN)
    return _core.is_autocast_enabled() if kind == "cpu" else _state.enabled.get(kind, False)


def set_autocast_enabled(*args: Any, **kwargs: Any) -> None:
    """Turns autocast on or off in this thread: `(device_type, enabled)`; one argument is CUDA's.

    Raises:
        TypeError: `enabled` is no bool.
        RuntimeError: a device type without autocast.

    Example:
        >>> torch.set_autocast_enabled("cpu", True)
        >>> torch.ones(2, 2).mm(torch.ones(2, 2)).dtype
        torch.bfloat16
        >>> torch.set_autocast_enabled("cpu", False)
    """
    if len(args) + len(kwargs) == 1:
        args = ("cuda", *args)
    device_type, enabled = _two(*args, **kwargs)
    if not isinstance(enabled, bool):
        raise TypeError(
            "[set_autocast_enabled] argument 'enabled' must be bool, not "
            f"{type(enabled).__name__}\nhint: True or False"
        )
    kind = _supported(device_type, _UNKNOWN)
    if kind == "cpu":
        _core.set_autocast_enabled(enabled)
    else:
        _state.enabled[kind] = enabled


def _two(device_type: str, enabled: Any) -> tuple[str, Any]:
    return device_type, enabled


def get_autocast_dtype(device_type: str) -> Any:
    """The dtype of operators of lower precision on a device type.

    Raises:
        RuntimeError: a device type without autocast.

    Example:
        >>> torch.get_autocast_dtype("cpu")
        torch.bfloat16
    """
    kind = _supported(device_type, _NO_DTYPE)
    if kind == "cpu":
        return _core.get_autocast_dtype()
    return _state.dtypes.get(kind, DTYPE_OBJECTS[DEFAULTS[kind]])


def set_autocast_dtype(device_type: str, dtype: Any) -> None:
    """Sets the dtype of operators of lower precision on a device type, in this thread.

    Raises:
        TypeError: no dtype.
        RuntimeError: a device type without autocast.
    """
    kind = _supported(device_type, _NO_DTYPE)
    if not isinstance(dtype, _core.dtype):
        raise TypeError(
            "[set_autocast_dtype] argument 'dtype' must be torch.dtype, not "
            f"{type(dtype).__name__}\nhint: torch.bfloat16"
        )
    if kind == "cpu":
        _core.set_autocast_dtype(dtype)
    else:
        _state.dtypes[kind] = dtype


def is_autocast_cache_enabled() -> bool:
    """Whether casts of parameters are reused within a region.

    Example:
        >>> torch.is_autocast_cache_enabled()
        True
    """
    enabled: bool = _core.is_autocast_cache_enabled()
    return enabled


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Whether casts of parameters are reused within a region, in this thread.

    Raises:
        TypeError: no bool.
    """
    if not isinstance(enabled, bool):
        raise TypeError(
            "[set_autocast_cache_enabled] enabled must be a bool (got "
            f"{type(enabled).__name__})\nhint: True or False"
        )
    _core.set_autocast_cache_enabled(enabled)


def clear_autocast_cache() -> None:
    """Drops the casts of parameters that this thread caches until its outermost region ends."""
    _core.clear_autocast_cache()


def autocast_increment_nesting() -> int:
    """Enters a region: returns the depth of regions in this thread."""
    depth: int = _core.autocast_nesting(1)
    return depth


def autocast_decrement_nesting() -> int:
    """Leaves a region: returns the depth of regions in this thread."""
    depth: int = _core.autocast_nesting(-1)
    return depth


def _older(name: str, shown: str, instead: str, function: Any, device_type: str) -> Any:
    """A function under the name that says its device type."""

    def call(*args: Any) -> Any:
        warnings.warn(
            f"torch.{shown} is deprecated. Please use torch.{instead} instead.",
            DeprecationWarning,
            stacklevel=2,
        )
        return function(device_type, *args)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"Deprecated: `torch.{instead}`."
    return call


for _name, _kind in (("cpu", "cpu"), ("gpu", "cuda"), ("ipu", "ipu"), ("xla", "xla")):
    for _form, _argument, _function in (
        ("get_autocast_{}_dtype", "", get_autocast_dtype),
        ("set_autocast_{}_dtype", "dtype", set_autocast_dtype),
        ("is_autocast_{}_enabled", "", is_autocast_enabled),
        ("set_autocast_{}_enabled", "enabled", set_autocast_enabled),
    ):
        if _name == "gpu" and _form.endswith("enabled"):
            continue
        _public = _form.format(_name)
        _arguments = f"{_kind!r}, {_argument}" if _argument else repr(_kind)
        globals()[_public] = _older(
            _public,
            f"{_public}({_argument})",
            f"{_function.__name__}({_arguments})",
            _function,
            _kind,
        )
