"""How this package words its errors and names types, in one place."""

from __future__ import annotations

from typing import Any

from flambeau._core import Tensor

_LEGACY = {
    "float32": "FloatTensor", "float64": "DoubleTensor", "float16": "HalfTensor",
    "bfloat16": "BFloat16Tensor", "int64": "LongTensor", "int32": "IntTensor",
    "int16": "ShortTensor", "int8": "CharTensor", "uint8": "ByteTensor", "bool": "BoolTensor",
    "complex64": "ComplexFloatTensor", "complex128": "ComplexDoubleTensor",
}  # fmt: skip


def problem(op: str, what: str, hint: str) -> str:
    """The text of an error: who complains, about what, and what to do."""
    return f"[{op}] {what}\nhint: {hint}"


def typename(value: Any) -> str:
    """Name of a value's type as messages show it: `int`, `torch.FloatTensor`, `module.Class`."""
    if isinstance(value, Tensor):
        return "torch." + _LEGACY[str(value.dtype).rsplit(".", 1)[-1]]
    cls = value if isinstance(value, type) else type(value)
    if cls.__module__ in ("builtins", "", None):
        return cls.__qualname__
    return f"{cls.__module__}.{cls.__qualname__}"
