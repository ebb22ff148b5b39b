"""PyTorch's type promotion on IR dtype names.

Three classes of participants decide: tensors with dimensions, zero-dimensional tensors, Python
numbers. A class of lower priority matters only when its category (bool < int < float < complex) is
higher. Source: PyTorch's documented promotion semantics.
"""

from __future__ import annotations

from collections.abc import Iterable

from flambeau.ir.dtypes import CATEGORY as CATEGORY
from flambeau.ir.dtypes import COMPUTE, NAMES, OPAQUE, TITLES, UNSIGNED
from flambeau.ir.dtypes import PARTS as PARTS

_INDEX = {name: position for position, name in enumerate(NAMES)}
HALF = frozenset(("f16", "bf16"))
_default = "f32"
_COMPLEX = {"f16": "c32", "f64": "c128"}  # of other dtypes: c64


def default_dtype() -> str:
    """The dtype of Python floats: `f32` unless `set_default_dtype` changed it."""
    return _default


def set_default(dtype: str) -> None:
    """Sets the dtype that Python floats become."""
    global _default
    _default = dtype


def default_complex() -> str:
    """The complex dtype that belongs to the default float dtype."""
    return _COMPLEX.get(_default, "c64")


def _unlike(a: str, b: str) -> RuntimeError:
    small = a in OPAQUE or b in OPAQUE
    kinds = "Float8" if small else "uint16, uint32, uint64"
    return RuntimeError(
        f"[promotion] Promotion for {kinds} types is not supported, attempted to promote "
        f"{TITLES[a]} and {TITLES[b]}\nhint: convert one of them with .to(dtype)"
    )


def promote_types(a: str, b: str) -> str:
    """The smallest dtype to which both `a` and `b` convert.

    Raises:
        RuntimeError: there is none: two float8 types, or an unsigned integer of more than a byte
            with another integer.
    """
    if a == b:
        return a
    if CATEGORY[a] > CATEGORY[b]:
        a, b = b, a
    if a in OPAQUE or b in OPAQUE or b in UNSIGNED or (a in UNSIGNED and CATEGORY[b] != 2):
        raise _unlike(a, b)
    if CATEGORY[b] == 3:
        if {"f64", "c128"} & {a, b}:
            return "c128"
        return "c64" if {"bf16", "f32", "c64"} & {a, b} else "c32"
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
            result = _raised(dtype, result)
    if result is None:
        raise ValueError("[result_type] nothing to promote\nhint: pass at least one operand")
    return result


def _raised(dtype: str, result: str) -> str:
    """`result` lifted to the higher category of `dtype`; a float keeps its precision."""
    if CATEGORY[dtype] == 3 and CATEGORY[result] == 2:
        return _COMPLEX.get(result, "c64")
    return dtype


def can_cast(source: str, target: str) -> bool:
    """True when writing `source` values into a `target` tensor is allowed."""
    return CATEGORY[source] <= CATEGORY[target]


def compute_dtype(dtype: str) -> str:
    """Half types are computed in float32 inside an op, complex32 in complex64."""
    return COMPUTE.get(dtype, dtype)
