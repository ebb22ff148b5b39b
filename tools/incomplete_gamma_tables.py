"""Computes the tables of flambeau/compiler/codegen/c/math/gamma.c.in with mpmath.

    python -m tools.incomplete_gamma_tables

It prints the arrays as C. `table` are the coefficients of Temme's uniform expansion (NIST DLMF,
8.12.7 to 8.12.12), from recurrences of exact fractions; mpmath interpolates the two functions next
to the gamma function's poles, `reciprocal` and `logarithm`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

import mpmath as mp  # type: ignore[import-not-found]  # a tool's own need: pip install mpmath

mp.mp.dps = 60
ORDERS, POWERS = 16, 24  # of 1 / a, and of eta
RECIPROCAL, LOGARITHM = 17, 20  # coefficients


def _inverse(series: list[Fraction]) -> list[Fraction]:
    """1 / a power series that begins with 1."""
    found: list[Fraction] = []
    for n in range(len(series)):
        earlier = sum((series[j] * found[n - j] for j in range(1, n + 1)), Fraction(0))
        found.append(Fraction(n == 0) - earlier)
    return found


def _over_mu(count: int) -> list[Fraction]:
    """eta / mu in powers of eta, where eta^2 / 2 = mu - log(1 + mu): mu mu' = eta (1 + mu)."""
    m = [Fraction(0), Fraction(1)]  # of mu
    for n in range(2, count + 1):
        inner = sum((j * m[j] * m[n + 1 - j] for j in range(2, n)), Fraction(0))
        m.append((m[n - 1] - inner) / (n + 1))
    return _inverse(m[1:])


def _stirling(count: int) -> list[Fraction]:
    """Coefficients of the gamma function's asymptotic series, from those of its logarithm's."""
    log = [Fraction(0)] * (count + 1)
    for j in range(1, count // 2 + 2):
        if 2 * j - 1 <= count:
            log[2 * j - 1] = _bernoulli(2 * j) / (2 * j * (2 * j - 1))
    found = [Fraction(1)]
    for n in range(1, count + 1):
        found.append(sum((k * log[k] * found[n - k] for k in range(1, n + 1)), Fraction(0)) / n)
    return found


def _bernoulli(n: int) -> Fraction:
    above, below = mp.bernfrac(n)
    return Fraction(int(above), int(below))


def uniform() -> list[list[Fraction]]:
    """c[k][n]: the coefficient of eta^n in what is multiplied with a^-k."""
    ratios = _over_mu(POWERS + 2 * ORDERS + 2)  # 1 / mu = 1 / eta + ratios[1] + ratios[2] eta ...
    gamma = _stirling(ORDERS)
    row = ratios[1:]
    rows = [row]
    for k in range(1, ORDERS):
        sign = -1 if k % 2 else 1
        row = [(n + 2) * row[n + 2] + sign * gamma[k] * ratios[n + 1] for n in range(len(row) - 2)]
        rows.append(row)
    return [row[:POWERS] for row in rows]


def polynomial(function: Callable[[Any], Any], low: float, high: float, count: int) -> list[float]:
    """Interpolates at Chebyshev's points; lowest power of x - (low + high) / 2 first."""
    middle, half = (mp.mpf(low) + high) / 2, (mp.mpf(high) - low) / 2
    points = [half * mp.cos(mp.pi * (j + mp.mpf(0.5)) / count) for j in range(count)]
    matrix = mp.matrix(count, count)
    for i, point in enumerate(points):
        for j in range(count):
            matrix[i, j] = point**j
    found = mp.lu_solve(matrix, mp.matrix([function(middle + point) for point in points]))
    return [float(value) for value in found]


def _log_gamma(x: Any) -> Any:
    """(log gamma(1 + x) + log(1 + x)) / x: smooth right of -2."""
    return (mp.loggamma(1 + x) + mp.log(1 + x)) / x


def _print_array(name: str, values: Iterable[float]) -> None:
    print(f"static const double {name}[] = {{{', '.join(map(repr, values))}}};")


def main() -> None:
    """Prints the tables."""
    _print_array("table", (float(value) for column in zip(*uniform()) for value in column))
    _print_array("reciprocal", polynomial(mp.rgamma, 1, 2, RECIPROCAL))
    _print_array("logarithm", polynomial(_log_gamma, 0, 1.5, LOGARITHM))


if __name__ == "__main__":
    main()
