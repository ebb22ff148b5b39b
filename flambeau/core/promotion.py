"""PyTorch's type promotion on IR dtype names.

Three classes of participants decide: tensors with dimensions, zero-dimensional tensors, Python
numbers. A class of lower priority matters only when its category (bool < int < float < complex) is
higher. Source: PyTorch's documented promotion semantics.
"""

from __future__ import annotations

from collections.abc import Iterable

from flambeau.ir.node import DTYPES

_INDEX = {name: position for position, name in enumerate(DTYPES)}
CATEGORY = {
    "bool": 0, "u8": 1, "i8": 1, "i16": 1, "i32": 1, "i64": 1,
    "f16": 2, "bf16": 2, "f32": 2, "f64": 2, "c64": 3, "c128": 3,
}  # fmt: skip
HALF = frozenset(("f16", "bf16"))
_default = "f32"


# The real dtype of a complex one's parts.
PARTS = {"c64": "f32", "c128": "f64"}


def default_dtype() -> str:
    """The dtype of Python floats: `f32` unless `set_default_dtype` changed it."""
    return _default


def set_default(dtype: str) -> None:
    """Sets the dtype that Python floats become."""
    global _default
    _default = dtype


def default_complex() -> str:
    """The complex dtype that belongs to the default float dtype."""
    return "c128" if _default == "f64" else "c64"


def promote_types(a: str, b: str) -> str:
    """The smallest dtype to which both `a` and `b` convert."""
    if a == b:
        return a
    if CATEGORY[a] > CATEGORY[b]:
        a, b = b, a
    if CATEGORY[b] == 3:
        return "c128" if "f64" in (a, b) or "c128" in (a, b) else "c64"
    if CATEGORY[a] < CATEGORY[b]:
        return b
    if CATEGORY[a] == 2:
        return "f32" if {a, b} == HALF else max(a, b, key=_INDEX.__getitem__)
    if "u8" in (a, b):
        other = b if a == "u8" else a
        return "i16" if other == "i8" else other
    return max(a, b, key=_INDEX.__getitem__)


def number_dtype(kind: type) -> str:
    """The dtype of a Python number of type `kind`."""
    if kind is bool:
        return "bool"
    if kind is int:
        return "i64"
    return default_complex() if kind is complex else _default


def result_type(participants: Iterable[tuple[str, str]]) -> str:
    """The common dtype of `(dtype, class)` pairs; class is "tensor", "zero_dim" or "number"."""
    best: dict[str, str] = {}
    for dtype, kind in participants:
        best[kind] = promote_types(best[kind], dtype) if kind in best else dtype
    result: str | None = None
    for kind in ("tensor", "zero_dim", "number"):
        dtype = best.get(kind, "")
        if not dtype:
            continue
        if result is None:
            result = dtype
        elif CATEGORY[dtype] > CATEGORY[result]:
            lift = kind == "number" and CATEGORY[dtype] == 3 and result == "f64"
            result = "c128" if lift else _raised(dtype, kind, result)
    if result is None:
        raise ValueError("[result_type] nothing to promote\nhint: pass at least one operand")
    return result


def _raised(dtype: str, kind: str, result: str) -> str:
    """`result` lifted to the higher category of `dtype`."""
    if kind == "number" and CATEGORY[dtype] == 3 and CATEGORY[result] == 2:
        return "c128" if result == "f64" else "c64"
    return dtype


def can_cast(source: str, target: str) -> bool:
    """True when writing `source` values into a `target` tensor is allowed."""
    return CATEGORY[source] <= CATEGORY[target]


def compute_dtype(dtype: str) -> str:
    """Half types are computed in float32 inside an op."""
    return "f32" if dtype in HALF else dtype
