"""Computes the Chebyshev coefficients of flambeau/ops/special/bessel_tables.py with mpmath."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath as mp  # type: ignore[import-not-found]  # a tool's own need: pip install mpmath

mp.mp.dps = 40


def coefficients(function: Callable[[Any], Any], count: int) -> list[float]:
    """Of the series on [-1, 1], by a discrete cosine transform at twice as many points."""
    points = 2 * count
    angles = [mp.pi * (mp.mpf(j) + 0.5) / points for j in range(points)]
    values = [function(mp.cos(a)) for a in angles]
    found = [2 * sum(v * mp.cos(k * a) for v, a in zip(values, angles)) / points
             for k in range(count)]  # fmt: skip
    found[0] /= 2
    return [float(c) for c in found]


def _tail(of: Callable[[Any], Any], limit: int, power: int = 1) -> Callable[[Any], Any]:
    """of(x) for x > limit, as a function of t in (-1, 1]: (limit / x)^power = (1 + t) / 2."""
    return lambda t: of(limit / ((1 + t) / 2) ** mp.mpf(1) if power == 1
                        else limit / mp.sqrt((1 + t) / 2))  # fmt: skip


def _scaled_i(order: int, x: Any) -> Any:
    return mp.exp(-x) * mp.besseli(order, x) / x**order


def _phase(order: int, x: Any) -> tuple[Any, Any]:
    angle = x - (2 * order + 1) * mp.pi / 4
    scale = mp.sqrt(mp.pi * x / 2)
    j, y = mp.besselj(order, x), mp.bessely(order, x)
    p = scale * (j * mp.cos(angle) + y * mp.sin(angle))
    q = scale * (y * mp.cos(angle) - j * mp.sin(angle))
    return p, q * x


Table = tuple[Callable[[Any], Any], int]
TABLES: dict[str, Table] = {}


def _of_order(n: int) -> dict[str, Table]:
    def far(of: Callable[[int, Any], Any], growth: int) -> Callable[[Any], Any]:
        return lambda x: mp.sqrt(x) * mp.exp(growth * x) * of(n, x)

    return {
        f"I{n}_NEAR": (lambda t: _scaled_i(n, 4 * (t + 1)), 32),
        f"I{n}_FAR": (_tail(far(mp.besseli, -1), 8), 26),
        f"K{n}_FAR": (_tail(far(mp.besselk, 1), 2), 28),
        f"P{n}": (_tail(lambda x: _phase(n, x)[0], 8, 2), 16),
        f"Q{n}": (_tail(lambda x: _phase(n, x)[1], 8, 2), 16),
    }


for _n in (0, 1):
    TABLES.update(_of_order(_n))


def _near(function: Callable[[Any], Any], limit: int) -> Callable[[Any], Any]:
    """function(x) for 0 < x < limit as a function of t: (x / limit)^2 = (1 + t) / 2."""
    return lambda t: function(limit * mp.sqrt((1 + t) / 2))


TABLES["K0_NEAR"] = (
    _near(lambda x: mp.besselk(0, x) + mp.log(x / 2) * mp.besseli(0, x), 2), 14)  # fmt: skip
TABLES["K1_NEAR"] = (
    _near(lambda x: x * (mp.besselk(1, x) - mp.log(x / 2) * mp.besseli(1, x)), 2), 14)  # fmt: skip
TABLES["J0_NEAR"] = (_near(lambda x: mp.besselj(0, x), 8), 22)
TABLES["J1_NEAR"] = (_near(lambda x: mp.besselj(1, x) / x, 8), 22)


def _y0(x: Any) -> Any:
    return mp.bessely(0, x) - 2 / mp.pi * mp.log(x) * mp.besselj(0, x)


def _y1(x: Any) -> Any:
    return (mp.bessely(1, x) - 2 / mp.pi * (mp.log(x) * mp.besselj(1, x) - 1 / x)) / x


TABLES["Y0_NEAR"] = (_near(_y0, 8), 24)
TABLES["Y1_NEAR"] = (_near(_y1, 8), 24)


def _airy_phase(z: Any) -> tuple[Any, Any]:
    """What multiplies cosine and sine of zeta - pi / 4 in Ai(-x), with zeta = 2/3 x^(3/2)."""
    x = (mp.mpf(3) / 2 * z) ** (mp.mpf(2) / 3)
    scale = mp.sqrt(mp.pi) * x ** mp.mpf("0.25")
    first, second = scale * mp.airyai(-x), scale * mp.airybi(-x)
    cosine, sine = mp.cos(z - mp.pi / 4), mp.sin(z - mp.pi / 4)
    return first * cosine - second * sine, (first * sine + second * cosine) * z


def _airy_decay(z: Any) -> Any:
    x = (mp.mpf(3) / 2 * z) ** (mp.mpf(2) / 3)
    return 2 * mp.sqrt(mp.pi) * x ** mp.mpf("0.25") * mp.exp(z) * mp.airyai(x)


_AIRY_LEFT = mp.mpf(2) / 3 * mp.mpf(5) ** mp.mpf("1.5")
_AIRY_RIGHT = mp.mpf(2) / 3 * mp.mpf(2) ** mp.mpf("1.5")
TABLES["AI_LEFT"] = (lambda t: mp.airyai((t - 1) * mp.mpf("2.5")), 34)
TABLES["AI_RIGHT"] = (lambda t: mp.airyai(t + 1), 24)
TABLES["AI_FAR"] = (_tail(_airy_decay, _AIRY_RIGHT), 32)
TABLES["AI_COSINE"] = (_tail(lambda z: _airy_phase(z)[0], _AIRY_LEFT, 2), 18)
TABLES["AI_SINE"] = (_tail(lambda z: _airy_phase(z)[1], _AIRY_LEFT, 2), 18)


def main() -> None:
    """Prints the module."""
    print('"""Chebyshev coefficients of Bessel functions; computed by tools/bessel_tables.py.')
    print(
        "\nEach is a series in t on [-1, 1]; `ops/special/bessel.py` uses them. Nobody edits them."
    )
    print('"""')
    print("\nfrom __future__ import annotations\n")
    for name, (function, count) in TABLES.items():
        print(f"{name} = (")
        for value in coefficients(function, count):
            print(f"    {value!r},")
        print(")")


if __name__ == "__main__":
    main()
