"""Bessel's and Airy's functions: Chebyshev series, far from zero of the asymptotic form's rest.

With coefficients from `tools/bessel_tables.py`; forms: Abramowitz & Stegun, Handbook of
Mathematical Functions, 9.4, 9.8. All is computed in float64 and rounded once, to a few units of the
last place of float64 away from the zeros.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from flambeau import prims
from flambeau.ir.node import Node
from flambeau.language.definition import op
from flambeau.language.samples import unary_samples
from flambeau.ops.special import bessel_tables as tables


def chebyshev(t: Node, coefficients: tuple[float, ...]) -> Node:
    """The sum of a Chebyshev series, by Clenshaw's recurrence."""
    significant = list(coefficients)
    while len(significant) > 1 and abs(significant[-1]) < 1e-18:
        significant.pop()
    following = later = prims.zeros_like(t)
    for coefficient in reversed(significant[1:]):
        following, later = t * following * 2 - later + coefficient, following
    return t * following - later + significant[0]


def _between(low: float, x: Node, high: float) -> Node:
    """x held in an interval, so that the branch not taken stays finite."""
    return prims.minimum(prims.maximum(x, prims.full_like(low, x)), prims.full_like(high, x))


def _choose(
    x: Node, limit: float, near: Callable[[Node], Node], far: Callable[[Node], Node]
) -> Any:
    inside = prims.le(x, prims.full_like(limit, x))
    below, above = _between(0.0, x, limit), prims.maximum(x, prims.full_like(limit, x))
    return prims.where(inside, near(below), far(above))


def scaled_i(order: int, x: Node) -> Node:
    """exp(-|x|) I_n(x)."""
    near, far = (getattr(tables, f"I{order}_{part}") for part in ("NEAR", "FAR"))
    size = prims.abs(x)
    value = _choose(
        size,
        8.0,
        lambda y: chebyshev(y * 0.25 - 1, near) * (y if order else 1),
        lambda y: chebyshev(prims.full_like(16, y) / y - 1, far) * prims.rsqrt(y),
    )
    if not order:
        return value
    return prims.where(prims.lt(x, prims.zeros_like(x)), -value, value)


def _scaled_k(order: int, x: Node) -> Node:
    """exp(x) K_n(x); infinite at 0, NaN below."""
    near, far = (getattr(tables, f"K{order}_{part}") for part in ("NEAR", "FAR"))
    positive = prims.maximum(x, prims.full_like(1e-300, x))

    def series(y: Node) -> Node:
        small = prims.maximum(y, prims.full_like(1e-300, y))
        smooth = chebyshev(small * small * 0.5 - 1, near)
        partner = scaled_i(order, small) * prims.exp(small) * prims.log(small * 0.5)
        series_sum = partner + smooth / small if order else smooth - partner
        return series_sum * prims.exp(small)

    value = _choose(
        positive,
        2.0,
        series,
        lambda y: chebyshev(prims.full_like(4, y) / y - 1, far) * prims.rsqrt(y),
    )
    value = prims.where(prims.eq(x, prims.zeros_like(x)), prims.full_like(math.inf, x), value)
    return _refused_below(x, value)


def _refused_below(x: Node, value: Node) -> Node:
    allowed = prims.ge(x, prims.zeros_like(x))
    return prims.where(allowed, value, prims.full_like(math.nan, x))


def _oscillating(order: int, x: Node, second: bool) -> Node:
    """J_n(x) or (second) Y_n(x) for large x: a modulated wave."""
    square = prims.full_like(64, x) / (x * x)
    p, q = (chebyshev(square * 2 - 1, getattr(tables, f"{k}{order}")) for k in "PQ")
    q = q / x
    # The angle x - (2n + 1) pi / 4, without subtracting from a large x.
    cosine, sine = prims.cos(x), prims.sin(x)
    root = math.sqrt(0.5)
    if order:
        shifted_cosine, shifted_sine = (sine - cosine) * root, -(sine + cosine) * root
    else:
        shifted_cosine, shifted_sine = (sine + cosine) * root, (sine - cosine) * root
    wave = (
        p * shifted_sine + q * shifted_cosine if second else p * shifted_cosine - q * shifted_sine
    )
    return wave * prims.rsqrt(x * (math.pi / 2))


def _first(order: int, x: Node) -> Node:
    size = prims.abs(x)

    def near(y: Node) -> Node:
        value = chebyshev(y * y * (1 / 32) - 1, getattr(tables, f"J{order}_NEAR"))
        return value * y if order else value

    value = _choose(size, 8.0, near, lambda y: _oscillating(order, y, False))
    infinite = prims.isinf(x)
    value = prims.where(infinite, prims.zeros_like(x), value)
    if not order:
        return value
    return prims.where(prims.lt(x, prims.zeros_like(x)), -value, value)


def _second(order: int, x: Node) -> Node:
    def near(y: Node) -> Node:
        small = prims.maximum(y, prims.full_like(1e-300, y))
        smooth = chebyshev(small * small * (1 / 32) - 1, getattr(tables, f"Y{order}_NEAR"))
        wave = _first(order, small) * prims.log(small)
        if not order:
            return smooth + wave * (2 / math.pi)
        return smooth * small + (wave - prims.full_like(1, y) / small) * (2 / math.pi)

    value = _choose(x, 8.0, near, lambda y: _oscillating(order, y, True))
    value = prims.where(prims.isinf(x), prims.zeros_like(x), value)
    value = prims.where(prims.eq(x, prims.zeros_like(x)), prims.full_like(-math.inf, x), value)
    return _refused_below(x, value)


def _spherical(x: Node) -> Node:
    """sin(x) / x, by its series near 0."""
    square = x * x
    small = prims.full_like(1, x) - square * (1 / 6) * (
        prims.full_like(1, x) - square * (1 / 20) * (prims.full_like(1, x) - square * (1 / 42))
    )
    near = prims.lt(prims.abs(x), prims.full_like(0.05, x))
    divisor = prims.where(near, prims.full_like(1, x), x)
    value = prims.where(near, small, prims.sin(divisor) / divisor)
    return prims.where(prims.isinf(x), prims.zeros_like(x), value)


def _two_thirds_power(y: Node) -> tuple[Node, Node]:
    """2/3 y^(3/2) as a number of 24 bits and a small rest: its rounding would show in a result.

    The root's first 17 bits have an exact cube; of the others y tells the exact value.
    """
    y = prims.minimum(y, prims.full_like(1e25, y))  # beyond, no digit of an angle is known
    root = prims.sqrt(y)
    wide = root * float(2**36 + 1)
    head = wide - (wide - root)
    low = (y - head * head) / (root + head)
    cube = head * head * head
    first = prims.cast(prims.cast(cube * (2 / 3), "f32"), "f64")
    tail = (cube - first * 1.5 + low * (3 * head * (head + low) + low * low)) * (2 / 3)
    return first, tail


def _airy(x: Node) -> Node:
    """Ai(x): series on [-5, 0] and [0, 2], and in zeta = 2/3 |x|^(3/2) (NIST DLMF 9.7.5, 9.7.9)."""

    def decaying(y: Node) -> Node:
        first, tail = _two_thirds_power(y)
        z = first + tail
        value = chebyshev(prims.full_like(2 * _AIRY_RIGHT, z) / z - 1, tables.AI_FAR)
        value = value * prims.exp(-tail) * prims.rsqrt(prims.sqrt(y))
        return prims.exp(-first) * value * (0.5 / math.sqrt(math.pi))

    def oscillating(y: Node) -> Node:
        first, tail = _two_thirds_power(y)
        z = first + tail
        t = prims.full_like(2 * _AIRY_LEFT * _AIRY_LEFT, z) / (z * z) - 1
        p, q = chebyshev(t, tables.AI_COSINE), chebyshev(t, tables.AI_SINE) / z
        parts = prims.cos(first), prims.sin(first), prims.cos(tail), prims.sin(tail)
        cosine = parts[0] * parts[2] - parts[1] * parts[3]
        sine = parts[1] * parts[2] + parts[0] * parts[3]
        wave = p * (cosine + sine) + q * (sine - cosine)
        return wave * prims.rsqrt(prims.sqrt(y)) * math.sqrt(0.5 / math.pi)

    right = _choose(x, 2.0, lambda y: chebyshev(y - 1, tables.AI_RIGHT), decaying)
    left = _choose(-x, 5.0, lambda y: chebyshev(1 - y * 0.4, tables.AI_LEFT), oscillating)
    value = prims.where(x < 0, left, right)
    return prims.where(prims.isinf(x), prims.zeros_like(x), value)


_AIRY_RIGHT, _AIRY_LEFT = (2 / 3 * limit * math.sqrt(limit) for limit in (2.0, 5.0))


def _numpy_airy(x: Any) -> Any:
    from scipy.special import airy  # type: ignore[import-untyped]

    return airy(x)[0]


def _define(
    name: str,
    text: str,
    compute: Callable[[Node], Node],
    *,
    where: str = "special",
    argument: str = "self",
    low: float = -9.0,
    reference: str | Callable[[Any], Any] | None = None,
    differentiable: bool = False,
    aliases: str = "",
    zero: bool = False,
) -> None:
    def body(self: Node) -> Node:
        value = compute(prims.cast(self, "f64"))
        return prims.cast(value, self.dtype)

    home = "special." if where == "special" else ""
    body.__doc__ = f"""{text}

    Example:
        >>> torch.{home}{name}(torch.ones(2)).shape
        torch.Size([2])
    """
    op(
        f"{name}(Tensor {argument}) -> Tensor",
        kind="elementary",
        where=where,
        inplace="method" in where,
        aliases=aliases,
        zero_preserving=zero,
        differentiable=differentiable,
        samples=unary_samples(low, 12.0),
        reference=reference,
        dtypes="f32 f64",
    )(body)


def _modified(order: int, scaled: bool, x: Node) -> Node:
    """I_n(x), or (scaled) exp(-|x|) I_n(x), with its derivative."""
    value = scaled_i(order, x)
    value = value if scaled else value * prims.exp(prims.abs(x))
    return prims.with_derivative(value, x, rule="modified_bessel", order=order, scaled=scaled)


def _modified_rule(g: Node, y: Node, x: Node) -> list[Node]:
    """I0' = I1 and I1' = I0 - I1 / x; the factor exp(-|x|) takes its share."""
    order, scaled = y.attribute("order"), y.attribute("scaled")
    zero = prims.zeros_like(x)
    slope = _modified(1 - order, scaled, x)
    if order:
        nowhere = prims.eq(x, zero)
        divisor = prims.where(nowhere, prims.full_like(1, x), x)
        slope = slope - prims.where(nowhere, prims.full_like(0.5, x), y / divisor)
    return [g * (slope - prims.sign(x) * y if scaled else slope)]


prims.register_rule("modified_bessel", _modified_rule)


for _order in (0, 1):
    _define(
        f"modified_bessel_i{_order}", f"The modified Bessel function I_{_order}.",
        lambda x, n=_order: _modified(n, False, x), reference=f"scipy.special.i{_order}",
        zero=_order == 1,
    )  # fmt: skip
    _define(
        f"i{_order}e", f"exp(-|x|) I_{_order}(x): the modified Bessel function, scaled.",
        lambda x, n=_order: _modified(n, True, x), reference=f"scipy.special.i{_order}e",
        differentiable=True, zero=_order == 1,
    )  # fmt: skip
    _define(
        f"modified_bessel_k{_order}", f"The modified Bessel function K_{_order}, for x >= 0.",
        lambda x, n=_order: _scaled_k(n, x) * prims.exp(-x), low=0.1,
        reference=f"scipy.special.k{_order}",
    )  # fmt: skip
    _define(
        f"scaled_modified_bessel_k{_order}", f"exp(x) K_{_order}(x), for x >= 0.",
        lambda x, n=_order: _scaled_k(n, x), argument="x", low=0.1,
        reference=f"scipy.special.k{_order}e",
    )  # fmt: skip
    _define(
        f"bessel_j{_order}", f"The Bessel function J_{_order}.",
        lambda x, n=_order: _first(n, x), reference=f"scipy.special.j{_order}",
        zero=_order == 1,
    )  # fmt: skip
    _define(
        f"bessel_y{_order}", f"The Bessel function Y_{_order}, for x >= 0.",
        lambda x, n=_order: _second(n, x), low=0.1, reference=f"scipy.special.y{_order}",
    )  # fmt: skip
_define(
    "i1", "The modified Bessel function I_1.", lambda x: _modified(1, False, x),
    reference="scipy.special.i1",
    differentiable=True, zero=True,
)  # fmt: skip
_define(
    "i0", "The modified Bessel function I_0.", lambda x: _modified(0, False, x),
    reference="scipy.special.i0",
    differentiable=True, where="torch method special",
)  # fmt: skip
_define(
    "spherical_bessel_j0", "The spherical Bessel function: sin(x) / x.", _spherical, argument="x",
)  # fmt: skip
_define(
    "airy_ai",
    "Airy's function Ai. Errors against mpmath, relative to the wave's height where x < -2: half\n"
    "    a unit of the last place of float32; 8 units of float64.",
    _airy, argument="x", reference=lambda x: _numpy_airy(x),
)  # fmt: skip
