"""Factors that a dividend shares with a divisor which is not proven to be positive.

`size_core` calls this module where none of its other rules applies. The module must not know about
graphs, kernels or tensors.
"""

from __future__ import annotations

from math import gcd

from flambeau.ir.size_core import (
    Monomial,
    Polynomial,
    Size,
    SizeExpr,
    divide_monomial,
    from_terms,
    shared_atoms,
    sub,
    terms_of,
    truncate,
)


def cancel(a: Size, b: Size) -> tuple[Size, Size, Size] | None:
    """Return `(g, x, y)` with `a == g*x`, `b == g*y`, or None where no factor is shared.

    `a // b == x // y` and `a % b == g * (x % y)` hold for every `b` other than 0.
    """
    if isinstance(a, int) and a == 0:
        return b, 0, 1
    if isinstance(b, SizeExpr):
        quotient, remnant = polynomial_division(terms_of(a), b)
        if isinstance(remnant, int) and remnant == 0:
            return b, quotient, 1
    content, common = 0, None
    for monomial, factor in (*terms_of(a).items(), *terms_of(b).items()):
        content = gcd(content, factor)
        common = monomial if common is None else shared_atoms(common, monomial)
    if content == 1 and not common:
        return None
    shared = common or ()
    return from_terms({shared: content}), _reduced(a, shared, content), _reduced(b, shared, content)


def _reduced(a: Size, monomial: Monomial, number: int) -> Size:
    """Divide every term by a monomial and a number that all of them contain."""
    return from_terms(
        {divide_monomial(m, monomial) or (): factor // number for m, factor in terms_of(a).items()}
    )


def polynomial_division(a: Polynomial, b: Size) -> tuple[Size, Size]:
    """Divide by a polynomial's leading term (highest degree, then greatest key), repeatedly."""

    def order(monomial: Monomial) -> tuple[int, list[str]]:
        return len(monomial), [atom.key for atom in monomial]

    divisor = terms_of(b)
    lead = max(divisor, key=order)
    quotient: Size = 0
    remnant: Size = from_terms(dict(a))
    for _ in range(32):
        for monomial in sorted(terms_of(remnant), key=order, reverse=True):
            reduced = divide_monomial(monomial, lead)
            count = truncate(terms_of(remnant)[monomial], divisor[lead])
            if reduced is not None and count:
                step = from_terms({reduced: count})
                quotient, remnant = quotient + step, sub(remnant, step * b)
                break
        else:
            break
    return quotient, remnant
