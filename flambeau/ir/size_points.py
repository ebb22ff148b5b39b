"""Values of size expressions at a few points: a claim that fails at one of them is not provable.

Most queries of simplification ("is a <= b?", for two unrelated extents) have the answer no, which a
search for a proof finds last. A counterexample costs
some multiplications, remembered for every atom, and can never change an answer.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from flambeau.ir.lock import memo

if TYPE_CHECKING:
    from flambeau.ir.size_core import Size, SizeExpr

# None: the point is outside of the domain, as where something is divided by zero.
Values: TypeAlias = tuple[int | None, ...]

_LARGE, _MASKS, _SHIFTS = 1 << 20, (1, 2, 4), range(3, 27, 3)
POINTS = 4 + 2 * len(_MASKS) + len(_SHIFTS)
_KNOWN: dict[SizeExpr, Values] = memo()
_LIMIT = 1 << 16


def falls_below(a: SizeExpr, limit: int) -> bool:
    """Whether the expression is less than a number at one of the points."""
    return any(value is not None and value < limit for value in _values(a))


def _values(a: Size) -> Values:
    if isinstance(a, int):
        return (a,) * POINTS
    values = _KNOWN.get(a)
    if values is None:
        if len(_KNOWN) >= _LIMIT:
            _KNOWN.clear()
        values = _KNOWN[a] = _computed(a)
    return values


def _computed(a: SizeExpr) -> Values:
    if a.kind == "symbol":
        return _of_symbol(a)
    if a.kind == "sum":
        return _of_sum(a)
    return tuple(map(_OPERATIONS[a.kind], *map(_values, a.operands)))


def _of_symbol(a: SizeExpr) -> Values:
    """Small, large and middling values, and mixtures, each symbol's bits its own."""
    bits = zlib.crc32(a.name.encode())
    offsets = [0, 1, 1000 + bits % 7, bits % 50]
    for mask in _MASKS:
        offsets += [_LARGE, bits % 3] if bits & mask else [bits % 3, _LARGE]
    offsets += [1 << (bits >> shift) % 13 for shift in _SHIFTS]
    if a.extent is None:
        return tuple(a.least + offset for offset in offsets)
    return tuple(
        None if extent is None or extent <= a.least else min(a.least + offset, extent - 1)
        for offset, extent in zip(offsets, _values(a.extent), strict=True)
    )


def _of_sum(a: SizeExpr) -> Values:
    totals: list[int | None] = [0] * POINTS
    for monomial, factor in a.terms.items():
        atoms = [_values(atom) for atom in monomial]
        for point, total in enumerate(totals):
            if total is None:
                continue
            term: int | None = factor
            for values in atoms:
                value = values[point]
                term = None if value is None or term is None else term * value
            totals[point] = None if term is None else total + term
    return tuple(totals)


def _floordiv(x: int | None, y: int | None) -> int | None:
    return None if x is None or not y else x // y


def _mod(x: int | None, y: int | None) -> int | None:
    return None if x is None or not y else x % y


def _least(*values: int | None) -> int | None:
    finite = [value for value in values if value is not None]
    return min(finite) if len(finite) == len(values) else None


def _greatest(*values: int | None) -> int | None:
    finite = [value for value in values if value is not None]
    return max(finite) if len(finite) == len(values) else None


_OPERATIONS: dict[str, Callable[..., int | None]]
_OPERATIONS = {"floordiv": _floordiv, "mod": _mod, "min": _least, "max": _greatest}
