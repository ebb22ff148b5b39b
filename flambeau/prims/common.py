"""Helpers of type rules and derivative rules: checks and dtype classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flambeau.ir.dtypes import MINIFLOATS, PARTS, ROWS, UNSIGNED
from flambeau.ir.environment import current_environment, hint, same_shape
from flambeau.ir.node import DTYPES, Node
from flambeau.ir.size import Size

Type = tuple[str, tuple[Size, ...]]
Infer = Callable[[tuple[Node, ...], dict[str, Any]], Type]
Gradients = Sequence[Node | None]

BOOL = frozenset({"bool"})
INTEGERS = frozenset(row.name for row in ROWS if row.kind == "int" and row.plain)
FLOATS = frozenset(row.name for row in ROWS if row.kind == "float" and row.plain)
COMPLEX = frozenset(PARTS)
INEXACT = FLOATS | COMPLEX
NUMBERS = INTEGERS | INEXACT
WHOLE = INTEGERS | UNSIGNED  # where PyTorch has the wide unsigned types too
ALL = frozenset(DTYPES)
DIFFERENTIABLE = INEXACT | MINIFLOATS.keys()

INTEGER_BITS = {row.name: 8 * row.size for row in ROWS if row.kind == "int"}
TO_REAL = PARTS
TO_COMPLEX = {real: dtype for dtype, real in PARTS.items()}


class ShapeMismatch(ValueError):
    """Sizes of operands do not fit together.

    Attributes:
        sizes: the first two sizes that differ, and the dimension of the result; or None.
    """

    def __init__(self, message: str, sizes: tuple[Size, Size, int] | None = None) -> None:
        super().__init__(message)
        self.sizes = sizes


class DtypeMismatch(TypeError):
    """Operands have different dtypes."""


class UndefinedDtype(TypeError):
    """A primitive is not defined for a dtype."""


def show(shape: Sequence[Size]) -> str:
    """Return a shape as text: the numbers of the call where a trace knows them."""
    has_environment = current_environment() is not None
    return "(" + ", ".join(str(hint(s) if has_environment else s) for s in shape) + ")"


def check_dtype(name: str, x: Node, allowed: frozenset[str]) -> None:
    """Raise unless the operand's dtype is among those the primitive is defined for."""
    if x.dtype not in allowed:
        names = " ".join(d for d in DTYPES if d in allowed)
        raise UndefinedDtype(
            f"[{name}] not defined for {x.dtype}\nhint: cast to one of {names} first"
        )


def check_same(name: str, operands: Sequence[Node], dtypes: bool = True) -> None:
    """Raise unless all operands have one dtype and one shape."""
    first = operands[0]
    for other in operands[1:]:
        if dtypes and other.dtype != first.dtype:
            raise DtypeMismatch(
                f"[{name}] dtypes differ: {first.dtype} and {other.dtype}\n"
                "hint: primitives do not promote; use prims.cast"
            )
        if not same_shape(first.shape, other.shape):
            raise ShapeMismatch(
                f"[{name}] shapes differ: {show(first.shape)} and {show(other.shape)}\n"
                "hint: primitives do not broadcast; use prims.broadcast_all or operators"
            )


def check_count(name: str, operands: Sequence[Node], count: int) -> None:
    """Raise unless there are `count` operands."""
    if len(operands) != count:
        raise TypeError(
            f"[{name}] takes {count} operands: got {len(operands)}\nhint: see the record"
        )


def check_axis(name: str, axis: int, ndim: int) -> int:
    """Return the axis, which must be in [0, ndim)."""
    if not 0 <= axis < ndim:
        raise ValueError(
            f"[{name}] axis {axis} is outside of a value of {ndim} dimensions\n"
            "hint: primitives take non-negative axes"
        )
    return axis


def is_constant(x: Node, value: float | complex | bool) -> bool:
    """Tell whether a node is `full(value)`; -0.0 is never written so."""
    return x.op == "full" and bool(x.attribute("value") == value)
