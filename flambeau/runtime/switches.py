"""PyTorch's process-wide switches: precision of products, determinism, warnings, threads.

Flambeau computes every product in its operands' precision and gives the same bits every time, so
that most switches have no effect. Their values are stored, for programs that read them.
"""

from __future__ import annotations

import warnings
from typing import Any

from flambeau import _core

__all__ = [
    "are_deterministic_algorithms_enabled",
    "get_deterministic_debug_mode",
    "get_float32_matmul_precision",
    "get_num_interop_threads",
    "is_deterministic_algorithms_warn_only_enabled",
    "is_warn_always_enabled",
    "set_deterministic_debug_mode",
    "set_float32_matmul_precision",
    "set_flush_denormal",
    "set_num_interop_threads",
    "set_warn_always",
    "typename",
    "use_deterministic_algorithms",
]

_PRECISIONS = ("highest", "high", "medium")
_MODES = {"default": 0, "warn": 1, "error": 2}
_settings: dict[str, Any] = {
    "precision": "highest",
    "deterministic": False,
    "warn_only": False,
    "fill": True,
    "warn_always": False,
    "interop": 1,
}


def set_float32_matmul_precision(precision: str) -> None:
    """Says how products of float32 may be computed: "highest", "high" or "medium".

    It is a permission to be faster, not an order: products are always of float32's precision here.

    Another word changes nothing and warns.

    Example:
        >>> torch.set_float32_matmul_precision("high")
        >>> torch.get_float32_matmul_precision()
        'high'
        >>> torch.set_float32_matmul_precision("highest")
    """
    if precision not in _PRECISIONS:
        warnings.warn(
            f"[set_float32_matmul_precision] {precision!r} is not one of {', '.join(_PRECISIONS)}: "
            "nothing is changed. hint: 'highest' is the default",
            stacklevel=2,
        )
        return
    _settings["precision"] = precision


def get_float32_matmul_precision() -> str:
    """Returns the last value passed to `set_float32_matmul_precision`.

    Example:
        >>> torch.get_float32_matmul_precision()
        'highest'
    """
    precision: str = _settings["precision"]
    return precision


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Requests operators that give the same bits every time; all operators do, in either mode.

    Memory that `torch.empty` and its relatives leave uninitialised is filled with NaN, or with the
    largest integer, unless `torch.utils.deterministic.fill_uninitialized_memory` is False.

    Raises:
        TypeError: not a bool.

    Example:
        >>> torch.use_deterministic_algorithms(True)
        >>> torch.are_deterministic_algorithms_enabled()
        True
        >>> torch.use_deterministic_algorithms(False)
    """
    if not isinstance(mode, bool) or not isinstance(warn_only, bool):
        raise TypeError(
            f"[use_deterministic_algorithms] expected a bool, got {type(mode).__name__}\nhint: True"
        )
    _settings["deterministic"], _settings["warn_only"] = mode, mode and warn_only
    _choose_fill()


def _choose_fill() -> None:
    _core.fills_uninitialised = bool(_settings["deterministic"] and _settings["fill"])


def fills_uninitialized_memory() -> bool:
    """Whether `torch.empty` and its relatives fill memory under deterministic algorithms."""
    return bool(_settings["fill"])


def fill_uninitialized_memory(mode: Any) -> None:
    """Chooses whether `torch.empty` fills memory under deterministic algorithms: as it does first.

    Raises:
        RuntimeError: not a bool.
    """
    if not isinstance(mode, bool):
        kind = type(mode).__name__
        raise RuntimeError(
            f"[fill_uninitialized_memory] expected a bool, but got {kind}\nhint: True"
        )
    _settings["fill"] = mode
    _choose_fill()


def are_deterministic_algorithms_enabled() -> bool:
    """Whether `use_deterministic_algorithms` enabled them."""
    return bool(_settings["deterministic"])


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Whether operators without a deterministic form should only warn."""
    return bool(_settings["warn_only"])


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """`use_deterministic_algorithms` by a mode: "default" (0), "warn" (1) or "error" (2).

    Raises:
        TypeError: neither a number nor a word.
        RuntimeError: another mode.
    """
    if not isinstance(debug_mode, (int, str)):
        raise TypeError(
            f"[set_deterministic_debug_mode] debug_mode must be str or int, but got {debug_mode!r}"
            "\nhint: 'error'"
        )
    mode = _MODES.get(debug_mode) if isinstance(debug_mode, str) else debug_mode
    if mode not in (0, 1, 2):
        raise RuntimeError(
            f"[set_deterministic_debug_mode] invalid value of debug_mode: {debug_mode!r}\n"
            f"hint: one of {', '.join(_MODES)}"
        )
    use_deterministic_algorithms(mode > 0, warn_only=mode == 1)


def get_deterministic_debug_mode() -> int:
    """The mode that `set_deterministic_debug_mode` sets: 0, 1 or 2."""
    if not _settings["deterministic"]:
        return 0
    return 1 if _settings["warn_only"] else 2


def set_warn_always(b: bool, /) -> None:
    """Whether a warning appears each time, as far as Python's own filters let it."""
    _settings["warn_always"] = bool(b)
    if b:
        warnings.filterwarnings("always", module="flambeau")


def is_warn_always_enabled() -> bool:
    """Returns the last value passed to `set_warn_always`."""
    return bool(_settings["warn_always"])


def set_flush_denormal(mode: bool) -> bool:
    """Requests that numbers too small to be normal become zero: not supported, so False.

    Example:
        >>> torch.set_flush_denormal(True)
        False
    """
    return False


def get_num_interop_threads() -> int:
    """How many operators run side by side: as many as were set; each uses all threads by itself."""
    return int(_settings["interop"])


def set_num_interop_threads(num: int) -> None:
    """Stores a number of operators that might run side by side.

    Raises:
        RuntimeError: not positive.
    """
    if num < 1:
        raise RuntimeError("[set_num_interop_threads] expected a positive number\nhint: 1")
    _settings["interop"] = num


def typename(obj: Any, /) -> str:
    """The name of an object's type; for tensors that of `Tensor.type()`.

    Example:
        >>> torch.typename(torch.tensor(1))
        'torch.LongTensor'
    """
    if isinstance(obj, _core.Tensor):
        name: str = obj.type()
        return name
    module = getattr(type(obj) if not hasattr(obj, "__qualname__") else obj, "__module__", "")
    named = getattr(obj, "__qualname__", None) or type(obj).__qualname__
    return named if module in ("", "builtins") else f"{module}.{named}"
