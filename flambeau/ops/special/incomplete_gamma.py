"""The regularised incomplete gamma functions P(a, x) (`igamma`) and Q = 1 - P (`igammac`).

The functions themselves are primitives (`codegen/c/math/gamma.c.in`). Their derivative by a is
that of the power series below x = 2 (Abramowitz & Stegun, 6.5.29); above, an integral away from the
integrand's peak, by the trapezoidal rule after a double exponential substitution (Takahasi & Mori,
Publ. RIMS 9, 1974), so that no number of terms grows with a. All is computed in float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from flambeau import prims
from flambeau.ir.node import Node
from flambeau.language.definition import OpDefinition, op
from flambeau.language.samples import Sample, T, sample
from flambeau.ops.broadcasting import is_float, unsupported

_NEAR = 2.0  # the series serves below
_TERMS = 30
_NODES, _FIRST, _LAST = 96, -3.7, 4.0  # the trapezoidal rule's
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)


def _polynomial(x: Node, coefficients: tuple[float, ...]) -> Node:
    """The sum of coefficients times powers of x, lowest first."""
    total = prims.full_like(coefficients[-1], x)
    for coefficient in reversed(coefficients[:-1]):
        total = total * x + coefficient
    return total


def _density(a: Node, x: Node) -> Node:
    """x^a exp(-x) / gamma(a), without the cancellation of its factors for large a."""
    plain = prims.exp(a * prims.log(x) - x - prims.lgamma(a))
    large = prims.maximum(a, prims.full_like(10, a))
    mu = (x - large) / large
    ratio = mu / (mu + 2)
    square = ratio * ratio
    atanh = _polynomial(square, tuple(1 / (2 * k + 3) for k in range(25)))
    close = ratio * square * atanh * 2 - mu * ratio  # log1p(mu) - mu near 0
    near = prims.abs(mu) < 0.5
    exponent = prims.where(near, close, prims.log1p(mu) - mu) * large
    inverse = prims.full_like(1, a) / large
    correction = _polynomial(inverse * inverse, _STIRLING) * inverse
    scaled = prims.sqrt(large * (0.5 / math.pi)) * prims.exp(exponent - correction)
    return prims.where(a > 10, scaled, plain)


def _integrals(a: Node, x: Node) -> tuple[Node, Node]:
    """P (x < a) or Q divided by `_density`: an integral over s > 0; and the integral of s times it.

    The variable of the gamma function's integral is x e^-s for P and x e^s for Q.
    """
    below = x < a
    distance = prims.abs(x - a)
    larger = prims.where(below, a, x)
    reach = prims.sqrt(prims.full_like(2, x) / larger) + prims.full_like(1, x) / larger
    reach = prims.where(below, reach, prims.log1p(reach))
    scale = prims.full_like(1, x) / (distance + prims.full_like(1, x) / reach)
    shape, dims = (*x.shape, _NODES), tuple(range(x.ndim))

    def spread(value: Node) -> Node:
        return prims.broadcast(value, shape, dims)

    step = (_LAST - _FIRST) / (_NODES - 1)
    place = prims.iota(shape, x.ndim, "f64") * step + _FIRST
    decay = prims.exp(-place)
    node = prims.exp(place - decay)
    s = node * spread(scale)
    toward = prims.where(spread(below), -s, s)
    bend = prims.expm1(toward) - toward  # e^s - 1 - s, or e^-s - 1 + s
    values = prims.exp(-(spread(distance) * s) - spread(x) * bend) * (node * (decay + 1) * step)
    return prims.sum(values, x.ndim) * scale, prims.sum(values * s, x.ndim) * scale


def _series(a: Node, x: Node) -> Node:
    """Derivative of P(a, x) by a, for small x."""
    factor = prims.exp(a * prims.log(x) - prims.lgamma(a + 1))
    total = slope = prims.zeros_like(x)
    term = prims.full_like(1, x)
    for n in range(1, _TERMS):
        term = term * x * (-1 / n)
        part = term / (a + n)
        total, slope = total + part, slope + part / (a + n)
    growth = prims.log(x) - prims.digamma(a + 1)
    return factor * ((a * total + 1) * growth + (total - a * slope))


def _by_order(a: Node, x: Node) -> Node:
    """The derivative of P by a, for positive finite a and x."""
    far = prims.maximum(x, prims.full_like(_NEAR, x))
    density = _density(a, far)
    integral, moment = _integrals(a, far)
    by_a = density * integral * (prims.log(far) - prims.digamma(a))
    by_a = prims.where(far < a, by_a - density * moment, -(by_a + density * moment))
    return prims.where(x < _NEAR, _series(a, prims.minimum(x, prims.full_like(_NEAR, x))), by_a)


def _inside(value: Node) -> Node:
    """Numbers that the formulas take: the others are replaced by 1, and handled apart."""
    usual = (value > 0) & (value < math.inf)
    return prims.where(usual, value, prims.full_like(1, value))


def _rule(sign: int) -> Any:
    def rule(g: Node, y: Node, a: Node, x: Node) -> tuple[Node, Node]:
        by_a = _by_order(_inside(a), _inside(x))
        return g * by_a * sign, g * (_density(a, x) / x) * sign

    return rule


prims.register_rule("igamma", _rule(1))
prims.register_rule("igammac", _rule(-1))


def _samples() -> Iterator[Sample]:
    for low, high in ((0.1, 5.0), (5.0, 60.0)):
        yield sample(T(3, 4, low=low, high=high, grad=False), T(3, 4, low=0.1, high=high))
    yield sample(T(3, 1, low=0.1, high=5.0, grad=False), T(4, low=0.1, high=5.0))
    yield sample(T(0, low=0.1, grad=False), T(0, low=0.1))
    edges = T(4, values=[0.0, 1.0, 0.0, -1.0], dtype="f32", grad=False)
    yield sample(edges, T(4, values=[1.0, 0.0, 0.0, 1.0], dtype="f32", grad=False))


def _function(name: str, upper: bool, formula: str, shown: str, reference: str) -> OpDefinition:
    def body(self: Node, other: Node) -> Node:
        if not is_float(self):
            raise unsupported(name, self, "convert to a floating-point type first")
        a, x = (prims.cast(v, "f64") for v in prims.broadcast_all(self, other))
        value = (prims.igammac if upper else prims.igamma)(a, x)
        return prims.cast(prims.with_derivative(value, a, x, rule=name), self.dtype)

    body.__doc__ = f"""The regularised {"upper" if upper else "lower"} incomplete gamma function.

    {formula}, for a = self and x = other, which broadcast; NaN where one is negative. Both
    operands have derivatives.

    Example:
        >>> torch.{name}(torch.tensor([1.0]), torch.tensor([1.0]))
        tensor([{shown}])
    """
    return op(
        f"{name}(Tensor self, Tensor other) -> Tensor",
        kind="pointwise",
        samples=_samples,
        reference=reference,
    )(body)


igamma = _function(
    "igamma",
    False,
    "The integral of t^(a - 1) exp(-t) from 0 to x, divided by gamma(a)",
    "0.6321",
    "scipy.special.gammainc",
)
igammac = _function(
    "igammac",
    True,
    "The integral of t^(a - 1) exp(-t) from x to infinity, divided by gamma(a)",
    "0.3679",
    "scipy.special.gammaincc",
)
