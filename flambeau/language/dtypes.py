"""Public dtype objects and their IR names; the default float dtype."""

from __future__ import annotations

from typing import Any

from flambeau import _core
from flambeau.ir.dtypes import CATEGORY, NAMES, PUBLIC, ROWS
from flambeau.ir.lock import loaded
from flambeau.language import promotion

PUBLIC_NAMES = PUBLIC
DTYPE_OBJECTS: dict[str, Any] = {name: getattr(_core, PUBLIC_NAMES[name]) for name in NAMES}
ALIASES = {row.public: row.alias for row in ROWS if row.alias}
_IR_NAMES: dict[Any, str] = {value: name for name, value in DTYPE_OBJECTS.items()}


def name_of(dtype: Any) -> str:
    """IR name of a public dtype object.

    Raises:
        TypeError: `dtype` is no dtype.
    """
    ir_name = _IR_NAMES.get(dtype)
    if ir_name is None:
        raise TypeError(f"[dtype] expected a dtype, got {dtype!r}\nhint: pass e.g. torch.float32")
    return ir_name


def object_of(name: str) -> Any:
    """Public dtype object of an IR name."""
    return DTYPE_OBJECTS[name]


def report_change(reason: str) -> None:
    """Runs delayed operators before state changes; see `runtime/boundaries.py`.

    Args:
        reason: names the change.
    """
    boundaries = loaded("flambeau.runtime.boundaries")
    if boundaries is not None:
        boundaries.crossing(reason)


def set_default_dtype(dtype: Any) -> None:
    """Sets the dtype of new floating-point tensors (float32 at start).

    Raises:
        TypeError: not a floating-point dtype.
    """
    name = name_of(dtype)
    if CATEGORY[name] != 2:
        raise TypeError(
            "[set_default_dtype] only floating-point types are supported as the default type\n"
            "hint: pass torch.float32 or torch.float64"
        )
    report_change("set_default_dtype")
    _core.set_default_dtype(dtype)
    promotion.set_default(name)


def get_default_dtype() -> Any:
    """The dtype of new floating-point tensors."""
    return object_of(promotion.default_dtype())
