"""Size algebra: hash-consed integer expressions over symbols.

Shapes, strides, loop extents and index expressions are built from these. The tracer makes
thousands of them, so a general computer-algebra system is far too slow; this module knows just
integers, polynomials and the four opaque operations shapes need (`//`, `%`, `min`, `max`).

* A `Size` is a plain `int` or a `SizeExpr`. Every constant *is* an `int`.
* An expression is a polynomial with integer coefficients; its atoms are symbols and opaque
  operations. Expressions are interned, so equal structure means the same object: `==` is `is`.
* `//` and `%` are Python's (floor). A simplification is applied only where it is proven for every
  integer the symbols may stand for and for which no divisor is 0; a divisor is taken as positive
  only if its lower bound says so. So factors that a dividend and its divisor share are cancelled
  even where one of them may be 0: the quotient has no value there.
* A symbol's range is part of it: `symbol(name, minimum=m, extent=e)` is an integer in `[m, e)`.
  Two of one name and different range are different expressions: make each name once per program.

The module must not know about graphs, kernels or tensors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from math import gcd
from operator import attrgetter
from typing import Literal, TypeAlias

from flambeau.ir.lock import Table, late, memo

Kind: TypeAlias = Literal["symbol", "sum", "floordiv", "mod", "min", "max"]


class SizeExpr:
    """An immutable integer expression; build it with `symbol` and the operators.

    Equality and hash are identity, which interning makes structural equality. There are no
    ordering operators and no truth value: ask `known_less`, or a `ShapeEnvironment`.
    """

    __slots__ = ("__weakref__", "_symbols", "_terms", "extent", "key", "kind", "least", "name",
                 "operands")  # fmt: skip

    kind: Kind
    name: str  # of a symbol, else ""
    least: int  # of a symbol: its minimum
    extent: Size | None  # of a symbol: its exclusive upper bound
    operands: tuple[Size, ...]  # of an opaque operation
    _terms: Polynomial | None  # of a sum
    key: str  # orders atoms independently of the order they were made in
    _symbols: frozenset[str] | None

    @property
    def terms(self) -> Polynomial:
        """The polynomial; an atom, which may not hold itself, is {(itself,): 1}."""
        return {(self,): 1} if self._terms is None else self._terms

    def __add__(self, other: Size) -> Size:
        """Return the sum."""
        kind = type(other)
        if kind is SizeExpr or kind is int:
            total = _ADD.get((self, other))
            return total if total is not None else _add(self, other)
        return add(self, int(other)) if isinstance(other, int) else NotImplemented

    __radd__ = __add__

    def __mul__(self, other: Size) -> Size:
        """Return the product."""
        kind = type(other)
        if kind is SizeExpr or kind is int:
            product = _MUL.get((self, other))
            return product if product is not None else _mul(self, other)
        return mul(self, int(other)) if isinstance(other, int) else NotImplemented

    __rmul__ = __mul__

    def __sub__(self, other: Size) -> Size:
        """Return the difference."""
        return sub(self, other) if isinstance(other, (int, SizeExpr)) else NotImplemented

    def __rsub__(self, other: int) -> Size:
        """Return the difference from an integer."""
        return sub(other, self) if isinstance(other, int) else NotImplemented

    def __neg__(self) -> Size:
        """Return the negation."""
        return self * -1

    def __pos__(self) -> Size:
        """Return the expression itself."""
        return self

    def __floordiv__(self, other: Size) -> Size:
        """Return the quotient rounded towards minus infinity."""
        return floordiv(self, other) if isinstance(other, (int, SizeExpr)) else NotImplemented

    def __rfloordiv__(self, other: int) -> Size:
        """Return an integer divided by this, rounded towards minus infinity."""
        return floordiv(other, self) if isinstance(other, int) else NotImplemented

    def __mod__(self, other: Size) -> Size:
        """Return the remainder, which has the divisor's sign."""
        return mod(self, other) if isinstance(other, (int, SizeExpr)) else NotImplemented

    def __rmod__(self, other: int) -> Size:
        """Return the remainder of an integer divided by this."""
        return mod(other, self) if isinstance(other, int) else NotImplemented

    def __bool__(self) -> bool:
        """Refuse: whether an expression is zero depends on its symbols."""
        raise TypeError(
            f"[size] the truth value of a symbolic size is undefined: {self!r}\n"
            "hint: compare with == for structural equality, or ask ShapeEnvironment.truth"
        )

    def __repr__(self) -> str:
        """Return the expression in Python's notation."""
        from flambeau.ir.size import stringify  # printing builds on this module

        return stringify(self)

    def __deepcopy__(self, memo: object = None) -> SizeExpr:
        """Return the expression itself, for it is immutable and interned."""
        return self

    __copy__ = __deepcopy__

    def __reduce__(self) -> tuple[Callable[..., Size], tuple[object, ...]]:
        """Pickle as the call that interns the expression again."""
        payload: tuple[object, ...] = self.operands
        if self.kind == "symbol":
            payload = (self.name, self.least, self.extent)
        elif self.kind == "sum":
            payload = tuple(self.terms.items())
        return rebuild, (self.kind, payload)


Size: TypeAlias = int | SizeExpr
Monomial: TypeAlias = tuple[SizeExpr, ...]
Terms: TypeAlias = dict[Monomial, int]
Polynomial: TypeAlias = Mapping[Monomial, int]  # of an expression: immutable
Bounds: TypeAlias = Mapping[str, tuple[int, Size | None]]

_SUMS: Table[frozenset[tuple[Monomial, int]], SizeExpr] = Table()
_OPAQUE: Table[tuple[Kind, tuple[Size, ...]], SizeExpr] = Table()
_SYMBOLS: Table[tuple[str, int, Size | None], SizeExpr] = Table()
_Memo: TypeAlias = dict[tuple[Size, Size], Size]
_ADD, _MUL, _FLOORDIV, _MOD = memo(), memo(), memo(), memo()
_LOWER: dict[SizeExpr, int | None] = memo()
_BY_KEY = attrgetter("key")
_MEMO_LIMIT, _SEARCH_DEPTH = 1 << 16, 6

# --------------------------------------------------------------------------------------------------
# Construction


def _new(kind: Kind, operands: tuple[Size, ...] = ()) -> SizeExpr:
    node = SizeExpr.__new__(SizeExpr)
    node.kind, node.operands = kind, operands
    node.name, node.least, node.extent = "", 0, None
    node.key, node._symbols, node._terms = "", None, None
    return node


def rebuild(kind: Kind, payload: tuple[object, ...]) -> Size:
    """Return the interned expression of a kind: what pickling and substitution call."""
    if kind == "symbol":
        name, least, extent = payload
        return symbol(name, minimum=least, extent=extent)  # type: ignore[arg-type]
    if kind == "sum":
        return from_terms(dict(payload))  # type: ignore[arg-type]
    if kind == "min" or kind == "max":  # new names alone make nothing provable
        operands: tuple[Size, ...] = payload  # type: ignore[assignment]
        return _extreme(kind, operands, any(isinstance(x, int) for x in operands))
    return {"floordiv": floordiv, "mod": mod}[kind](*payload)  # type: ignore[arg-type]


def symbol(name: str, *, minimum: int = 0, extent: Size | None = None) -> SizeExpr:
    """Return the symbol `name`, an unknown integer in `[minimum, extent)`.

    Args:
        name: an identifier, valid in Python and in C, such as `s3` or `i0`.
        minimum: the least value the symbol may have.
        extent: exclusive upper bound, possibly symbolic (a loop variable's extent), if any.
    """
    existing = _SYMBOLS.get((name, minimum, extent))
    if existing is not None:
        return existing
    if not name.isidentifier() or not name.isascii():
        raise ValueError(f"[size] a symbol's name must be an ASCII identifier: {name!r}")
    node = _new("symbol")
    node.name, node.least, node.extent = name, minimum, extent
    # Numbers inside names are padded so that s10 comes after s2.
    padded = re.sub(r"\d+", lambda digits: digits.group().zfill(6), name)
    node.key = f"{padded}|{name}|{minimum}|{'' if extent is None else _key(extent)}"
    return _SYMBOLS.enter((name, minimum, extent), node)


def _opaque(kind: Kind, operands: tuple[Size, ...]) -> SizeExpr:
    existing = _OPAQUE.get((kind, operands))
    if existing is not None:
        return existing
    node = _new(kind, operands)
    node.key = f"~{kind}({','.join(map(_key, operands))})"
    return _OPAQUE.enter((kind, operands), node)


def from_terms(terms: Polynomial) -> Size:
    """Return the interned polynomial with these non-zero terms."""
    if len(terms) <= 1:
        if not terms:
            return 0
        [(monomial, factor)] = terms.items()
        if not monomial:
            return factor
        if factor == 1 and len(monomial) == 1:
            return monomial[0]
    identity = frozenset(terms.items())
    existing = _SUMS.get(identity)
    if existing is not None:
        return existing
    if any(atom.kind == "mod" for monomial in terms for atom in monomial):
        recombined = _recombine(terms)
        if recombined is not None:
            return recombined
    node = _new("sum")
    node._terms = dict(terms)  # the caller may go on changing its own
    return _SUMS.enter(identity, node)


def _key(a: Size) -> str:
    if isinstance(a, int):
        return str(a)
    if not a.key:
        a.key = "+".join(f"{c}*{'*'.join(atom.key for atom in m)}" for m, c in sorted_terms(a))
    return a.key


def sorted_terms(a: SizeExpr) -> list[tuple[Monomial, int]]:
    """Return the terms, high degree first: the one order that printing and lowering use."""
    return sorted(a.terms.items(), key=lambda term: (-len(term[0]), [x.key for x in term[0]]))


def terms_of(a: Size) -> Polynomial:
    """Return the polynomial of a size."""
    if isinstance(a, int):
        return {(): a} if a else {}
    return a.terms


def _remember(memo: _Memo, a: Size, b: Size, result: Size) -> Size:
    if len(memo) >= _MEMO_LIMIT:
        memo.clear()
    memo[a, b] = result
    return result


def _add(a: SizeExpr, b: Size) -> Size:
    terms = dict(a.terms)
    for monomial, factor in terms_of(b).items():
        total = terms.get(monomial, 0) + factor
        if total:
            terms[monomial] = total
        else:
            del terms[monomial]
    return _remember(_ADD, a, b, from_terms(terms))


def _mul(a: SizeExpr, b: Size) -> Size:
    if isinstance(b, int):
        terms = {monomial: factor * b for monomial, factor in a.terms.items()} if b else {}
        return _remember(_MUL, a, b, from_terms(terms))
    terms = {}
    for left, left_factor in a.terms.items():
        for right, right_factor in b.terms.items():
            monomial = left + right
            if len(monomial) > 1 and left and right and left[-1].key > right[0].key:
                monomial = tuple(sorted(monomial, key=_BY_KEY))
            total = terms.get(monomial, 0) + left_factor * right_factor
            if total:
                terms[monomial] = total
            else:
                terms.pop(monomial, None)
    return _remember(_MUL, a, b, from_terms(terms))


def add(a: Size, b: Size) -> Size:
    """Return `a + b`."""
    return a + b


def sub(a: Size, b: Size) -> Size:
    """Return `a - b`."""
    return a - b if isinstance(a, int) and isinstance(b, int) else a + b * -1


def mul(a: Size, b: Size) -> Size:
    """Return `a * b`."""
    return a * b


def prod(sizes: Iterable[Size]) -> Size:
    """Return the product of all sizes, 1 if there are none."""
    one: Size = 1
    return reduce(mul, sizes, one)


# --------------------------------------------------------------------------------------------------
# Division


def floordiv(a: Size, b: Size) -> Size:
    """Return `a // b`, rounded towards minus infinity.

    Raises:
        ZeroDivisionError: if `b` is the constant 0.
    """
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    cached = _FLOORDIV.get((a, b))
    return cached if cached is not None else _remember(_FLOORDIV, a, b, _floordiv(a, b))


def _floordiv(a: Size, b: Size) -> Size:
    if isinstance(b, int) and -1 <= b <= 1:
        return a * b if b else 1 // b
    if not is_positive(b):
        cancel = late("flambeau.ir.size_factors").cancel  # not needed by an import
        cancelled = cancel(a, b)
        if cancelled is not None:
            return floordiv(*cancelled[1:])
        return _opaque("floordiv", (a, b))
    quotient, left = _split(a, b)
    if quotient != 0:
        return quotient + floordiv(left, b)
    constant = _constant_quotient(left, b)
    if constant is not None:
        return constant
    factored = _factor_out(left, b)
    if factored is not None:
        _, quotient, _, divisor = factored
        return floordiv(quotient, divisor)
    if isinstance(left, SizeExpr) and left.kind == "floordiv" and is_positive(left.operands[1]):
        return floordiv(left.operands[0], left.operands[1] * b)
    if isinstance(left, SizeExpr) and left.kind == "mod" and is_positive(left.operands[1]):
        multiple, remainder = _split(left.operands[1], b)
        if remainder == 0 and is_positive(multiple):
            return mod(floordiv(left.operands[0], b), multiple)
    return _opaque("floordiv", (left, b))


def mod(a: Size, b: Size) -> Size:
    """Return `a % b`, with the sign of `b`.

    Raises:
        ZeroDivisionError: if `b` is the constant 0.
    """
    if isinstance(a, int) and isinstance(b, int):
        return a % b
    cached = _MOD.get((a, b))
    return cached if cached is not None else _remember(_MOD, a, b, _mod(a, b))


def _mod(a: Size, b: Size) -> Size:
    if isinstance(b, int) and -1 <= b <= 1:
        return 0 if b else 1 % b
    if not is_positive(b):
        cancel = late("flambeau.ir.size_factors").cancel  # not needed by an import
        cancelled = cancel(a, b)
        if cancelled is not None:
            factor: Size = cancelled[0]
            return factor * mod(*cancelled[1:])
        return _opaque("mod", (a, b))
    _, left = _split(a, b)
    constant = _constant_quotient(left, b)
    if constant is not None:
        return sub(left, constant * b)
    factored = _factor_out(left, b)
    if factored is not None:
        factor, quotient, remainder, divisor = factored
        return factor * mod(quotient, divisor) + remainder
    if isinstance(left, SizeExpr):
        unwrapped = _without_inner_mod(left, b)
        if unwrapped is not left and (is_non_negative(unwrapped) or not is_non_negative(left)):
            return mod(unwrapped, b)
    return _opaque("mod", (left, b))


def ceildiv(a: Size, b: Size) -> Size:
    """Return `a / b` rounded towards plus infinity."""
    if is_non_negative(b):
        return floordiv(a + b - 1, b)
    return -floordiv(-a, b)


def _without_inner_mod(a: SizeExpr, divisor: Size) -> Size:
    """Replace terms `c * (x % m)` by `c * x` where `m` is a multiple of the divisor."""
    result: Size = a
    for monomial, factor in a.terms.items():
        if len(monomial) == 1 and monomial[0].kind == "mod":
            x, inner = monomial[0].operands
            if is_positive(inner) and _split(inner, divisor)[1] == 0:
                result = result + factor * sub(x, monomial[0])
    return result


def _split(a: Size, b: Size) -> tuple[Size, Size]:
    """Return `(q, r)` with `a == q * b + r`, for a positive `b`; `r` is the same for equal rests.

    A non-negative `a` never gives an `r` that might be negative: C's division would then differ
    from Python's.
    """
    divisor = terms_of(b)
    if len(divisor) > 1:
        polynomial_division = late(
            "flambeau.ir.size_factors"
        ).polynomial_division  # not needed by an import

        quotient, remnant = polynomial_division(terms_of(a), b)
        exact = remnant == 0 or (quotient != 0 and _constant_quotient(remnant, b) is not None)
        return (quotient, remnant) if exact else (0, a)
    [(divisor_monomial, divisor_factor)] = divisor.items()
    quotients: Terms = {}
    for monomial, factor in terms_of(a).items():
        reduced = divide_monomial(monomial, divisor_monomial)
        # Constants get a remainder in [0, b); the factors of symbols retain their sign.
        count = factor // divisor_factor if not monomial else truncate(factor, divisor_factor)
        if reduced is not None and count:
            quotients[reduced] = count
    quotient = from_terms(quotients)
    remnant = sub(a, quotient * b)
    if quotient == 0 or _is_safe_rest(a, remnant, b):
        return quotient, remnant
    constant = quotients.pop((), 0)
    quotient, remnant = from_terms(quotients), remnant + constant * b
    return (quotient, remnant) if _is_safe_rest(a, remnant, b) else (0, a)


def _is_safe_rest(a: Size, remnant: Size, b: Size) -> bool:
    """Tell whether going from `a // b` to `rest // b` makes no non-negative numerator negative."""
    if is_non_negative(remnant) or not is_non_negative(a):
        return True
    return _constant_quotient(remnant, b) is not None


def truncate(a: int, b: int) -> int:
    """Return `a / b` rounded towards zero."""
    return a // b if (a < 0) == (b < 0) else -(-a // b)


def divide_monomial(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    """Return the atoms of a monomial without those of a divisor, None if it lacks some."""
    remaining = list(monomial)
    for atom in divisor:
        if atom not in remaining:
            return None
        remaining.remove(atom)
    return tuple(remaining)


def _constant_quotient(a: Size, b: Size) -> int | None:
    """Return `a // b` if it is one number for all values of the symbols, for a positive `b`."""
    if isinstance(b, int):
        low, high = lower_bound(a), upper_bound(a)
        if low is None or high is None:
            return None
        return low // b if low // b == high // b else None
    if is_non_negative(a) and is_non_negative(sub(b, a) - 1):
        return 0
    if is_non_negative(sub(-1, a)) and is_non_negative(a + b):
        return -1
    return None


def _factor_out(a: Size, b: Size) -> tuple[Size, Size, Size, Size] | None:
    """Return `(g, y, r, k)` with `a == g*y + r`, `0 <= r < g`, `b == g*k`, `g != 1`, or None."""
    content = 0
    common: Monomial | None = None
    for monomial, factor in terms_of(b).items():
        content = gcd(content, factor)
        common = monomial if common is None else shared_atoms(common, monomial)
    candidates: dict[tuple[Monomial, int], None] = {}
    for monomial, factor in terms_of(a).items():
        if monomial:
            shared = shared_atoms(monomial, tuple(x for x in common or () if is_positive(x)))
            candidates[shared, gcd(content, factor)] = None
    candidates.pop(((), 1), None)
    ordered = sorted(candidates, key=lambda g: (len(g[0]), g[1], [x.key for x in g[0]]))
    for monomial, number in reversed(ordered):
        factor_terms: Terms = {monomial: number}
        multiple: Terms = {}
        for term, factor in terms_of(a).items():
            reduced = divide_monomial(term, monomial)
            if reduced is not None and (factor % number == 0 or not term):
                multiple[reduced] = factor // number
        factored = from_terms(factor_terms)
        quotient = from_terms({m: c for m, c in multiple.items() if c})
        remnant = sub(a, factored * quotient)
        if _constant_quotient(remnant, factored) == 0:
            return factored, quotient, remnant, _split(b, factored)[0]
    return None


def shared_atoms(a: Monomial, b: Monomial) -> Monomial:
    """Return the atoms that two monomials have in common."""
    remaining = list(b)
    shared = []
    for atom in a:
        if atom in remaining:
            remaining.remove(atom)
            shared.append(atom)
    return tuple(shared)


def _recombine(terms: Polynomial) -> Size | None:
    """Undo a split into quotient and remainder inside a sum, if there is one.

    `m*(x//m) + x%m` is `x` for every `m` that divides at all, and `b*(y%a) + w` with `0 <= w < b`
    is `(b*y + w) % (a*b)`; the latter is used where `b*y + w` recombines in turn. Both may be
    multiplied by a common factor.
    """
    remainders = [
        (atom, from_terms({divide_monomial(monomial, (atom,)) or (): factor}))
        for monomial, factor in terms.items()
        for atom in dict.fromkeys(monomial)
        if atom.kind == "mod"
    ]
    for atom, factor in remainders:
        x, divisor = atom.operands
        quotient = floordiv(x, divisor)
        if isinstance(quotient, SizeExpr) and quotient.kind == "floordiv":
            part = factor * divisor * quotient
            if _contains(terms, part):
                others = _subtract(terms, part, factor * atom)
                return others + factor * x
    positive = [pair for pair in remainders if is_positive(pair[0].operands[1])]
    for low, factor in positive:
        for high, other in positive:
            if high is low or other != factor * low.operands[1]:
                continue
            joined = low.operands[1] * high.operands[0] + low
            if (low,) not in terms_of(joined):
                others = _subtract(terms, factor * low, other * high)
                return others + factor * mod(joined, low.operands[1] * high.operands[1])
    return None


def _contains(terms: Polynomial, part: Size) -> bool:
    """Tell whether every term of `part` is within the term of the same monomial in `terms`."""
    for monomial, factor in terms_of(part).items():
        available = terms.get(monomial, 0)
        if abs(available) < abs(factor) or (available < 0) != (factor < 0):
            return False
    return True


def _subtract(terms: Polynomial, *parts: Size) -> Size:
    remaining = dict(terms)
    for part in parts:
        for monomial, factor in terms_of(part).items():
            remaining[monomial] = remaining.get(monomial, 0) - factor
    return from_terms({monomial: factor for monomial, factor in remaining.items() if factor})


# --------------------------------------------------------------------------------------------------
# Minimum and maximum


def minimum(*sizes: Size, proves: bool = True) -> Size:
    """Return the least of the sizes; without proofs, which take long, those that never are stay."""
    return _extreme("min", sizes, proves)


def maximum(*sizes: Size, proves: bool = True) -> Size:
    """Return the greatest of the sizes; see `minimum`."""
    return _extreme("max", sizes, proves)


def _extreme(kind: Literal["min", "max"], sizes: Iterable[Size], proves: bool = True) -> Size:
    extremes: list[Size] = []
    for size in sizes:
        same = isinstance(size, SizeExpr) and size.kind == kind
        for operand in size.operands if same and isinstance(size, SizeExpr) else (size,):
            if any(_at_most(kind, other, operand, proves) for other in extremes):
                continue
            extremes = [other for other in extremes if not _at_most(kind, operand, other, proves)]
            extremes.append(operand)
    if not extremes:
        raise ValueError(f"[size] {kind} of no sizes")
    return extremes[0] if len(extremes) == 1 else _opaque(kind, tuple(sorted(extremes, key=_key)))


def _at_most(kind: Literal["min", "max"], a: Size, b: Size, proves: bool) -> bool:
    """Tell whether `a` makes `b` superfluous."""
    if a == b:
        return True
    if not proves and not (isinstance(a, int) and isinstance(b, int)):
        return False
    return is_non_negative(sub(b, a) if kind == "min" else sub(a, b))


# --------------------------------------------------------------------------------------------------
# Bounds


def lower_bound(a: Size) -> int | None:
    """Return a number that `a` is never below, or None if none is known."""
    if isinstance(a, int):
        return a
    try:
        return _LOWER[a]  # another thread may empty it
    except KeyError:
        bound = _search_lower_bound(a, _SEARCH_DEPTH)
    if len(_LOWER) >= _MEMO_LIMIT:
        _LOWER.clear()
    _LOWER[a] = bound
    return bound


def upper_bound(a: Size) -> int | None:
    """Return a number that `a` is never above, or None if none is known."""
    if isinstance(a, SizeExpr) and a.kind != "sum":
        return _atom_upper_bound(a)
    low = lower_bound(-a)
    return None if low is None else -low


def is_non_negative(a: Size) -> bool:
    """Tell whether `a >= 0` is proven."""
    return _is_at_least(a, 0)


def is_positive(a: Size) -> bool:
    """Tell whether `a >= 1` is proven."""
    return _is_at_least(a, 1)


def _is_at_least(a: Size, limit: int) -> bool:
    if isinstance(a, SizeExpr) and a not in _LOWER:
        if late("flambeau.ir.size_points").falls_below(a, limit):  # not needed by an import
            return False
    low = lower_bound(a)
    return low is not None and low >= limit


def _atom_lower_bound(atom: SizeExpr) -> int | None:
    if atom.kind == "symbol":
        return atom.least
    lows = [lower_bound(operand) for operand in atom.operands]
    finite = [low for low in lows if low is not None]
    if atom.kind == "max":
        return max(finite, default=None)
    if atom.kind == "min":
        return min(finite) if len(finite) == len(lows) else None
    if lows[1] is None or lows[1] < 1:
        return None
    if atom.kind == "mod":
        return 0
    if lows[0] is None or lows[0] < 0:
        return None if lows[0] is None else lows[0] // lows[1]
    high = upper_bound(atom.operands[1])
    return 0 if high is None else lows[0] // high


def _atom_upper_bound(atom: SizeExpr) -> int | None:
    if atom.kind == "symbol":
        high = None if atom.extent is None else upper_bound(atom.extent)
        return None if high is None else high - 1
    highs = [upper_bound(operand) for operand in atom.operands]
    finite = [high for high in highs if high is not None]
    if atom.kind == "min":
        return min(finite, default=None)
    if atom.kind == "max":
        return max(finite) if len(finite) == len(highs) else None
    low = lower_bound(atom.operands[1])
    if low is None or low < 1:
        return None
    if atom.kind == "mod":
        limits = [] if highs[1] is None else [highs[1] - 1]
        if highs[0] is not None and is_non_negative(atom.operands[0]):
            limits.append(highs[0])
        return min(limits, default=None)
    if highs[0] is None or highs[0] >= 0:
        return None if highs[0] is None else highs[0] // low
    return -1 if highs[1] is None else highs[0] // highs[1]


def _search_lower_bound(a: Size, depth: int) -> int | None:
    """Bound a polynomial by shifting its atoms to zero, else by relaxing one atom and retrying."""
    if isinstance(a, int):
        return a
    if a.kind != "sum":
        return _atom_lower_bound(a)
    if (shifted := _shifted_lower_bound(a)) is not None:
        return shifted
    best = _interval_lower_bound(a)
    if depth:
        for relaxed, scale in _relaxations(a):
            low = _search_lower_bound(relaxed, depth - 1)
            if low is not None:
                # a >= relaxed / scale; of a symbolic scale only the sign is known.
                bound = -(-low // scale) if isinstance(scale, int) else 0
                if isinstance(scale, int) or low >= 0:
                    best = bound if best is None else max(best, bound)
                    if best >= 0:
                        break
    return best


def _shifted_lower_bound(a: SizeExpr) -> int | None:
    """Write every atom as its lower bound plus a non-negative rest and look at the signs."""
    shifted: Terms = {}
    for monomial, factor in a.terms.items():
        expanded: Terms = {(): factor}
        for atom in monomial:
            low = _atom_lower_bound(atom)
            if low is None:
                return None
            following = {(*left, atom): c for left, c in expanded.items()}
            if low:
                for left, c in expanded.items():
                    following[left] = following.get(left, 0) + c * low
            expanded = following
        for left, c in expanded.items():
            shifted[left] = shifted.get(left, 0) + c
    constant = shifted.pop((), 0)
    return constant if all(c >= 0 for c in shifted.values()) else None


def _interval_lower_bound(a: SizeExpr) -> int | None:
    total = 0
    for monomial, factor in a.terms.items():
        low, high = factor, factor
        for atom in monomial:
            atom_low, atom_high = _atom_lower_bound(atom), _atom_upper_bound(atom)
            if atom_low is None or atom_high is None:
                if atom_low is None or atom_low < 0 or low < 0 or len(monomial) > 1:
                    return None
                atom_high = atom_low  # an increasing term: only its low end counts
            corners = [low * atom_low, low * atom_high, high * atom_low, high * atom_high]
            low, high = min(corners), max(corners)
        total += low
    return total


def _relaxations(a: SizeExpr) -> Iterator[tuple[Size, Size]]:
    """Yield `(e, d)` with `a >= e / d`, `d > 0`, each with one atom replaced by a bound of it."""
    atoms = sorted({atom for monomial in a.terms for atom in monomial}, key=_BY_KEY)
    for atom in sorted(atoms, key=lambda x: x.kind != "symbol"):
        factor = _factor_of(a, atom)
        if factor is None:
            continue
        negated = factor * -1
        sign = 1 if _plainly_non_negative(factor) else -1
        if sign < 0 and not _plainly_non_negative(negated):
            continue
        others = sub(a, factor * atom)
        relaxed = False
        for bound, scale in _atom_limits(atom, sign):
            relaxed = True
            yield factor * bound + scale * others, scale
        if relaxed and sign < 0:
            return  # an upper limit must be used somewhere; the order does not matter


def _factor_of(a: SizeExpr, atom: SizeExpr) -> Size | None:
    """Return the factor of an atom in which the polynomial is affine, else None."""
    factor: Terms = {}
    for monomial, number in a.terms.items():
        if atom in monomial:
            reduced = divide_monomial(monomial, (atom,))
            if reduced is None or atom in reduced:
                return None
            factor[reduced] = number
    return from_terms(factor)


def _plainly_non_negative(a: Size) -> bool:
    low = a if isinstance(a, int) else _shifted_lower_bound(a)
    return low is not None and low >= 0


def _atom_limits(atom: SizeExpr, sign: int) -> Iterator[tuple[Size, Size]]:
    """Yield `(e, d)`, `d > 0`: `atom <= e / d` for a negative sign, `atom >= e / d` otherwise."""
    if atom.kind == "symbol":
        if sign < 0 and atom.extent is not None:
            yield atom.extent - 1, 1
    elif atom.kind in ("min", "max"):
        if (atom.kind == "min") == (sign < 0):
            for operand in atom.operands:
                yield operand, 1
    elif is_positive(atom.operands[1]):
        x, divisor = atom.operands
        if atom.kind == "floordiv":
            yield (x if sign < 0 else sub(x, divisor) + 1), divisor
        elif sign < 0:
            yield divisor - 1, 1
            if is_non_negative(x):
                yield x, 1
