"""Public dtype objects and their IR names; the default float dtype."""

from __future__ import annotations

from typing import Any

from flambeau import _core
from flambeau.core import promotion
from flambeau.ir.node import DTYPES

PUBLIC_NAMES = {
    "bool": "bool", "u8": "uint8", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64",
    "c64": "complex64", "c128": "complex128",
}  # fmt: skip

DTYPE_OBJECTS: dict[str, Any] = {name: getattr(_core, PUBLIC_NAMES[name]) for name in DTYPES}
_IR_NAMES: dict[Any, str] = {value: name for name, value in DTYPE_OBJECTS.items()}


def name_of(dtype: Any) -> str:
    """IR name of a public dtype object.

    Raises:
        TypeError: `dtype` is no dtype.
    """
    found = _IR_NAMES.get(dtype)
    if found is None:
        raise TypeError(f"[dtype] expected a dtype, got {dtype!r}\nhint: pass e.g. torch.float32")
    return found


def object_of(name: str) -> Any:
    """Public dtype object of an IR name."""
    return DTYPE_OBJECTS[name]


def set_default_dtype(dtype: Any) -> None:
    """Sets the dtype of new floating-point tensors (float32 at start).

    Raises:
        TypeError: not a floating-point dtype.
    """
    name = name_of(dtype)
    if promotion.CATEGORY[name] != 2:
        raise TypeError(
            "[set_default_dtype] only floating-point types are supported as the default type\n"
            "hint: pass torch.float32 or torch.float64"
        )
    _core.set_default_dtype(dtype)
    promotion.set_default(name)


def get_default_dtype() -> Any:
    """The dtype of new floating-point tensors."""
    return object_of(promotion.default_dtype())
