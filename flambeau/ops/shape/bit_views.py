"""`view(dtype)`: the same bytes read as numbers of another type.

The result is a view. What a compiled program makes of it, when it reads through the view, is stated
in integer arithmetic: elements fall into pieces that both types consist of, lowest bytes first.
"""

from __future__ import annotations

from typing import Any

from flambeau import prims
from flambeau.ir.dtypes import ITEM_SIZE, PARTS, TITLES
from flambeau.ir.node import Node
from flambeau.ir.size import Size, floordiv, mod, mul
from flambeau.language import layout
from flambeau.language.dtypes import name_of
from flambeau.language.schema import DType, Tensor
from flambeau.ops.common import hint_of
from flambeau.ops.shape.views import Shape, view, viewed

_INTEGERS = {1: "u8", 2: "i16", 4: "i32", 8: "i64"}


def _integer(x: Node) -> Node:
    if x.dtype == "bool":
        return prims.cast(x, "u8")
    return prims.bitcast(x, _INTEGERS[ITEM_SIZE[x.dtype]])


def _number(x: Node, dtype: str) -> Node:
    return prims.cast(x, "bool") if dtype == "bool" else prims.bitcast(x, dtype)


def _component(dtype: str) -> str:
    """The dtype of the numbers that an element consists of: its parts, if it is complex."""
    return PARTS.get(dtype, dtype)


def _pieces(x: Node, size: int) -> list[Node]:
    """The bytes of every element as integers of `size` bytes, lowest first."""
    if x.dtype in PARTS:
        return [p for part in (prims.real(x), prims.imag(x)) for p in _pieces(part, size)]
    count = ITEM_SIZE[x.dtype] // size
    if count == 1:
        return [_integer(x)]
    wide = prims.cast(_integer(x), "i64")
    mask = prims.full_like((1 << 8 * size) - 1, wide)
    shifts = (prims.full_like(8 * size * i, wide) for i in range(count))
    shifted = [prims.bitwise_and(prims.shift_right(wide, shift), mask) for shift in shifts]
    return [prims.cast(piece, _INTEGERS[size]) for piece in shifted]


def _joined(pieces: list[Node], size: int, dtype: str) -> Node:
    """Elements of `dtype` from their pieces."""
    if dtype in PARTS:
        half = len(pieces) // 2
        parts = (pieces[:half], pieces[half:])
        return prims.complex(*(_joined(part, size, PARTS[dtype]) for part in parts))
    if len(pieces) == 1:
        return _number(pieces[0], dtype)
    bits = prims.zeros_like(prims.cast(pieces[0], "i64"))
    mask = prims.full_like((1 << 8 * size) - 1, bits)
    for i, piece in enumerate(pieces):
        low = prims.bitwise_and(prims.cast(piece, "i64"), mask)
        bits = prims.bitwise_or(bits, prims.shift_left(low, prims.full_like(8 * size * i, low)))
    return _number(prims.cast(bits, _INTEGERS[ITEM_SIZE[dtype]]), dtype)


def _reread(x: Node, dtype: str) -> Node:
    """The elements of x as `dtype`; the last dimension grows or shrinks."""
    size = min(ITEM_SIZE[_component(d)] for d in (x.dtype, dtype))
    pieces = _pieces(x, size)
    count = ITEM_SIZE[dtype] // size
    if len(pieces) == count:
        return _joined(pieces, size, dtype)
    flat = prims.cat([prims.reshape(p, (*p.shape, 1)) for p in pieces], x.ndim)
    length = floordiv(mul(x.shape[-1], len(pieces)), count)
    rows = prims.reshape(flat, (*x.shape[:-1], length, count))
    columns = (prims.slice(rows, x.ndim, i, 1) for i in range(count))
    return _joined([prims.reshape(c, rows.shape[:-1]) for c in columns], size, dtype)


def _refused(x: Node, dtype: str, what: str, actual: Any = None) -> RuntimeError:
    end = "" if actual is None else f", but got {actual}"
    return RuntimeError(
        f"[view] self.{what} to view {TITLES[x.dtype]} as {TITLES[dtype]} (different element "
        f"sizes){end}\nhint: contiguous() first, or another dtype"
    )


def _divided(x: Node, dtype: str, what: str, number: Size, ratio: int) -> Size:
    if not layout.same(mod(number, ratio), 0):
        raise _refused(x, dtype, f"{what} must be divisible by {ratio}", hint_of(number))
    return floordiv(number, ratio)


@view.overload(samples=None, errors=None)
def _view_dtype(self: Tensor, dtype: DType) -> Tensor:
    name = name_of(dtype)
    if name == self.dtype:
        return self
    before, after = ITEM_SIZE[self.dtype], ITEM_SIZE[name]
    if before != after and self.ndim == 0:
        raise _refused(self, name, "dim() cannot be 0")

    def move(sizes: Shape, strides: Shape, offset: Size) -> tuple[Shape, Size]:
        if before == after:
            return strides, offset
        if not layout.same(strides[-1], 1):
            what = "stride(-1) must be 1"
            raise _refused(self, name, what, hint_of(strides[-1]))
        ratio = before // after
        if ratio:
            return (*(mul(s, ratio) for s in strides[:-1]), 1), mul(offset, ratio)
        ratio = after // before
        place = _divided(self, name, "storage_offset()", offset, ratio)
        outer = [_divided(self, name, f"stride({d})", s, ratio) for d, s in enumerate(strides[:-1])]
        return (*outer, 1), place

    if after > before:
        _divided(self, name, "size(-1)", self.shape[-1], after // before)
    return viewed(self, prims.stop_gradient(_reread(self, name)), move)
