"""Sizes: what one can ask of them, and their text. The algebra itself is in `size_core`.

This is the module to import: `from flambeau.ir import size`, then `size.symbol("s0")`,
`size.floordiv(a, b)`, `size.stringify(a)`. It re-exports the constructors and bounds.

The module must not know about graphs, kernels or tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from math import gcd
from typing import Literal, TypeAlias

from flambeau.ir.size_core import (
    Bounds,
    Size,
    SizeExpr,
    Terms,
    add,
    ceildiv,
    floordiv,
    from_terms,
    is_non_negative,
    is_positive,
    lower_bound,
    maximum,
    minimum,
    mod,
    mul,
    prod,
    rebuild,
    sorted_terms,
    sub,
    symbol,
    terms_of,
    upper_bound,
)

__all__ = [
    "ENDLESS",
    "Bounds",
    "Size",
    "SizeExpr",
    "add",
    "affine_in",
    "at_least",
    "bounds",
    "ceildiv",
    "choose",
    "coefficient",
    "estimate",
    "evaluate",
    "floordiv",
    "free_symbols",
    "is_static",
    "known_equal",
    "known_less",
    "lower_bound",
    "maximum",
    "minimum",
    "mod",
    "mul",
    "only_if",
    "prod",
    "rename",
    "replace_atoms",
    "simplify",
    "stringify",
    "sub",
    "substitute",
    "symbol",
    "upper_bound",
]


def _narrowed(a: Size, ranges: Bounds | None) -> Size:
    """Return `a` with the named symbols restricted to `[low, high]`."""
    if not ranges or isinstance(a, int):
        return a

    def narrow(atom: SizeExpr) -> Size | None:
        if atom.kind != "symbol" or atom.name not in ranges:
            return None
        low, high = ranges[atom.name]
        extent = atom.extent if high is None else high + 1
        if high is not None and atom.extent is not None:
            extent = minimum(atom.extent, high + 1)
        return symbol(atom.name, minimum=max(low, atom.least), extent=extent)

    return _replace(a, narrow, {})


def bounds(a: Size, ranges: Bounds | None = None) -> tuple[int | None, int | None]:
    """Return `(low, high)` with `low <= a <= high`; None is an unknown end.

    Args:
        a: the expression.
        ranges: inclusive ranges of symbols, in addition to what the symbols know themselves.
    """
    narrowed = _narrowed(a, ranges)
    return lower_bound(narrowed), upper_bound(narrowed)


def simplify(a: Size, ranges: Bounds) -> Size:
    """Return `a` simplified under inclusive ranges of symbols, over the same symbols as before."""
    original = {atom.name: atom for atom in _symbol_atoms(a) if atom.name in ranges}
    return substitute(_narrowed(a, ranges), original)


def known_equal(a: Size, b: Size) -> bool | None:
    """Return whether `a == b` for all values of the symbols; None if it depends or is unknown."""
    difference = sub(a, b)
    if isinstance(difference, int):
        return difference == 0
    low, high = lower_bound(difference), upper_bound(difference)
    if (low is not None and low > 0) or (high is not None and high < 0):
        return False
    if low == high == 0:
        return True
    # Never zero if all factors share a divisor that the constant does not have.
    common = gcd(*(factor for monomial, factor in difference.terms.items() if monomial))
    return False if difference.terms.get((), 0) % common else None


def known_less(a: Size, b: Size, bounds: Bounds | None = None) -> bool | None:
    """Return whether `a < b` for all values of the symbols; None if it depends or is unknown."""
    difference = _narrowed(sub(b, a), bounds)
    if is_positive(difference):
        return True
    high = upper_bound(difference)
    return False if high is not None and high <= 0 else None


# --------------------------------------------------------------------------------------------------
# Inspection, substitution, evaluation


def is_static(a: Size) -> bool:
    """Tell whether a size is a plain integer."""
    return isinstance(a, int)


def _atoms(a: Size) -> list[SizeExpr]:
    return [] if isinstance(a, int) else [atom for monomial in a.terms for atom in monomial]


def _symbol_atoms(a: Size) -> Iterator[SizeExpr]:
    for atom in _atoms(a):
        if atom.kind == "symbol":
            yield atom
        for operand in atom.operands:
            yield from _symbol_atoms(operand)


def free_symbols(a: Size) -> frozenset[str]:
    """Return the names of the symbols in a size; a symbol's extent does not count."""
    if isinstance(a, int):
        return frozenset()
    if a._symbols is None:
        a._symbols = frozenset(atom.name for atom in _symbol_atoms(a))
    return a._symbols


def _replace(
    a: Size, lookup: Callable[[SizeExpr], Size | None], memo: dict[SizeExpr, Size]
) -> Size:
    """Rebuild `a` with every atom replaced by what `lookup` returns for it, or rebuilt if None."""
    if isinstance(a, int):
        return a
    if a in memo:
        return memo[a]
    result: Size = 0
    if a.kind == "sum":
        for monomial, factor in a.terms.items():
            result = result + prod([factor, *(_replace(x, lookup, memo) for x in monomial)])
    else:
        value = lookup(a)
        result = value if value is not None else _replace_inside(a, lookup, memo)
    memo[a] = result
    return result


def _replace_inside(
    atom: SizeExpr, lookup: Callable[[SizeExpr], Size | None], memo: dict[SizeExpr, Size]
) -> Size:
    if atom.kind == "symbol":
        if not isinstance(atom.extent, SizeExpr):
            return atom
        extent = _replace(atom.extent, lookup, memo)
        return symbol(atom.name, minimum=atom.least, extent=extent)
    operands = tuple(_replace(operand, lookup, memo) for operand in atom.operands)
    if operands == atom.operands:
        return atom
    return rebuild(atom.kind, operands)


def substitute(a: Size, values: Mapping[str, Size]) -> Size:
    """Return `a` with symbols replaced by name, also in the extents of other symbols."""
    if isinstance(a, int) or not values:
        return a
    return _replace(a, lambda x: values.get(x.name) if x.kind == "symbol" else None, {})


def rename(a: Size, names: Mapping[str, str]) -> Size:
    """Return `a` with symbols renamed; what is known about them stays."""

    def renamed(x: SizeExpr) -> Size | None:
        if x.kind != "symbol" or x.name not in names:
            return None
        return symbol(names[x.name], minimum=x.least, extent=x.extent)

    return _replace(a, renamed, {})


def replace_atoms(a: Size, values: Mapping[SizeExpr, Size]) -> Size:
    """Return `a` with atoms (symbols, or opaque operations such as `s0 % 4`) replaced."""
    if isinstance(a, int) or not values:
        return a
    return _replace(a, values.get, {})


def evaluate(a: Size, values: Mapping[str, int]) -> int:
    """Return the value of a size.

    Raises:
        KeyError: if a symbol has no value.
        ZeroDivisionError: if a divisor is zero.
    """
    if isinstance(a, int):
        return a
    if a.kind == "symbol":
        return values[a.name]
    if a.kind == "sum":
        total = 0
        for monomial, factor in a.terms.items():
            for atom in monomial:
                factor *= evaluate(atom, values)
            total += factor
        return total
    operands = [evaluate(operand, values) for operand in a.operands]
    if a.kind == "floordiv":
        return operands[0] // operands[1]
    if a.kind == "mod":
        return operands[0] % operands[1]
    return min(operands) if a.kind == "min" else max(operands)


def estimate(a: Size, values: Mapping[str, int], default: int) -> int:
    """Return a plausible value of a size, for heuristics; never raises.

    Args:
        a: the size.
        values: the values of symbols.
        default: the value of symbols without one, and of the size itself where its value cannot be
            a size: a divisor is 0, or the result is negative.
    """
    if isinstance(a, int):
        return a
    assumed = {name: values.get(name, default) for name in free_symbols(a)}
    try:
        result = evaluate(a, assumed)
    except ZeroDivisionError:
        return default
    return result if result >= 0 else default


ENDLESS = 1 << 40  # more than any extent

# Conditions are sizes that are 0 or 1. They are combined by minima and maxima, which stay one atom:
# products of sums of them would be multiplied out.


def at_least(size: Size, limit: Size) -> Size:
    """1 where size >= limit, else 0; the limit is positive."""
    return minimum(1, floordiv(size, limit))


def only_if(flag: Size, size: Size) -> Size:
    """The size where the flag is set, else 0."""
    if isinstance(flag, int):
        return size if flag else 0
    return 0 if size == 0 else minimum(size, mul(flag, ENDLESS), proves=False)


def choose(flag: Size, if_set: Size, otherwise: Size) -> Size:
    """One of two sizes."""
    if isinstance(flag, int):
        return if_set if flag else otherwise
    return add(otherwise, mul(flag, sub(if_set, otherwise)))


def affine_in(a: Size, names: Iterable[str]) -> tuple[dict[str, Size], Size] | None:
    """Return `({name: factor}, rest)` with `a == sum(factor * name) + rest`, all free of `names`.

    Returns None where `a` is not affine in the names together. Names that do not occur are left
    out of the dictionary.
    """
    variables = frozenset(names)
    factors: dict[str, Terms] = {}
    offset: Terms = {}
    for monomial, number in terms_of(a).items():
        inside = [atom for atom in monomial if not variables.isdisjoint(free_symbols(atom))]
        if not inside:
            offset[monomial] = number
        elif len(inside) > 1 or inside[0].kind != "symbol":
            return None
        else:
            reduced = tuple(atom for atom in monomial if atom is not inside[0])
            factors.setdefault(inside[0].name, {})[reduced] = number
    return {name: from_terms(terms) for name, terms in factors.items()}, from_terms(offset)


def coefficient(a: Size, name: str) -> Size | None:
    """Return the factor of a symbol in which `a` is affine (0 if absent), else None."""
    split = affine_in(a, (name,))
    return None if split is None else split[0].get(name, 0)


# --------------------------------------------------------------------------------------------------
# Text

Style: TypeAlias = Literal["python", "c"]


def stringify(a: Size, style: Style = "python") -> str:
    """Return a size as an expression in Python or C.

    The C text assumes positive divisors and signed arithmetic; where a numerator is not proven
    non-negative it spells out the rounding, so that it always equals the Python text.
    """
    if isinstance(a, int):
        return str(a)
    text = ""
    terms = sorted_terms(a)
    for monomial, factor in sorted(terms, key=lambda term: term[1] < 0):
        factors = [] if abs(factor) == 1 and monomial else [str(abs(factor))]
        alone = len(monomial) == 1 and not factors
        factors += [_stringify_atom(atom, style, alone and factor > 0) for atom in monomial]
        sign = ("-" if factor < 0 else "") if not text else (" - " if factor < 0 else " + ")
        text += sign + "*".join(factors)
    return text


def _stringify_atom(atom: SizeExpr, style: Style, alone: bool) -> str:
    if atom.kind == "symbol":
        return atom.name
    texts = [stringify(operand, style) for operand in atom.operands]
    if atom.kind in ("min", "max"):
        if style == "python":
            return f"{atom.kind}({', '.join(texts)})"
        order = "<" if atom.kind == "min" else ">"
        return reduce(lambda a, b: f"(({a}) {order} ({b}) ? ({a}) : ({b}))", texts)
    left, right = (text if text.isalnum() else f"({text})" for text in texts)
    if style == "c" and not is_non_negative(atom.operands[0]):
        if atom.kind == "floordiv":
            return f"({left} / {right} - ({left} % {right} < 0))"
        return f"(({left} % {right} + {right}) % {right})"
    operator = "%" if atom.kind == "mod" else {"python": "//", "c": "/"}[style]
    text = f"{left} {operator} {right}" if operator == "%" else f"{left}{operator}{right}"
    return text if alone else f"({text})"
