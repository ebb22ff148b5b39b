"""Elementary and special functions of one operand: exponentials, circles, gamma, erf.

All compute in floating point: integers and bools become the default float dtype. Their accuracy is
that of the C functions they are primitives of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from flambeau import prims
from flambeau.core.definition import OpDefinition, op
from flambeau.core.samples import Sample, T, sample, unary_samples
from flambeau.ir.node import Node
from flambeau.ops.broadcasting import unsupported

_HOMES = "torch method"
_SPECIAL = "torch method special"


def _function(
    name: str,
    text: str,
    low: float = -2.0,
    high: float = 2.0,
    where: str = _HOMES,
    aliases: str = "",
    reference: str | Callable[..., Any] = "",
    primitive: Callable[[Node], Node] | None = None,
    real: bool = False,
) -> OpDefinition:
    """Defines an operator that is one primitive."""
    function: Callable[[Node], Node] = primitive or getattr(prims, name)

    def body(self: Node) -> Node:
        if real and self.dtype in ("c64", "c128"):
            raise unsupported(name, self, "pass real numbers")
        return function(self)

    value = max(low, min(0.5, high)) if low <= 0.5 <= high else (low + high) / 2
    home = "" if "torch" in where.split() else f"{where}."
    body.__doc__ = f"""{text}

    Shape: any; integers and bools compute in the default float dtype.

    Example:
        >>> torch.{home}{name}(torch.tensor([{value}])).shape
        torch.Size([1])
    """
    return op(
        f"{name}(Tensor self) -> Tensor",
        where=where,
        promote="float",
        aliases=aliases,
        samples=unary_samples(low, high),
        reference=reference or "numpy." + name,
    )(body)


# fmt: off
exp = _function("exp", "e to the power of x.")
exp2 = _function("exp2", "2 to the power of x.", where=_SPECIAL)
expm1 = _function("expm1", "exp(x) - 1, accurate near 0.", where=_SPECIAL)
log = _function("log", "The natural logarithm; NaN below 0.", 0.1, 5.0)
log2 = _function("log2", "The logarithm to base 2.", 0.1, 5.0)
log10 = _function("log10", "The logarithm to base 10.", 0.1, 5.0)
log1p = _function("log1p", "log(1 + x), accurate near 0.", -0.9, 5.0, where=_SPECIAL)
sqrt = _function("sqrt", "The square root; NaN below 0.", 0.1, 5.0)
rsqrt = _function("rsqrt", "1 / sqrt(x).", 0.1, 5.0, reference=lambda x: x**-0.5)
sin = _function("sin", "The sine of radians.", -6.0, 6.0)
cos = _function("cos", "The cosine of radians.", -6.0, 6.0)
tan = _function("tan", "The tangent of radians.", -1.2, 1.2)
asin = _function("asin", "The inverse sine, in [-pi/2, pi/2].", -0.95, 0.95, aliases="arcsin",
                 reference="numpy.arcsin")
acos = _function("acos", "The inverse cosine, in [0, pi].", -0.95, 0.95, aliases="arccos",
                 reference="numpy.arccos")
atan = _function("atan", "The inverse tangent.", aliases="arctan", reference="numpy.arctan")
sinh = _function("sinh", "The hyperbolic sine.")
cosh = _function("cosh", "The hyperbolic cosine.")
tanh = _function("tanh", "The hyperbolic tangent.")
asinh = _function("asinh", "The inverse hyperbolic sine.", aliases="arcsinh",
                  reference="numpy.arcsinh")
acosh = _function("acosh", "The inverse hyperbolic cosine; NaN below 1.", 1.1, 4.0,
                  aliases="arccosh", reference="numpy.arccosh")
atanh = _function("atanh", "The inverse hyperbolic tangent.", -0.9, 0.9, aliases="arctanh",
                  reference="numpy.arctanh")
erf = _function("erf", "The error function.", where=_SPECIAL, reference="scipy.special.erf",
                real=True)
erfc = _function("erfc", "1 - erf(x), accurate for large x.", where=_SPECIAL,
                 reference="scipy.special.erfc", real=True)
erfinv = _function("erfinv", "The inverse of erf.", -0.95, 0.95, where=_SPECIAL,
                   reference="scipy.special.erfinv", real=True)
lgamma = _function("lgamma", "The logarithm of |gamma(x)|.", 0.1, 5.0,
                   reference="scipy.special.gammaln", real=True)
digamma = _function("digamma", "The derivative of lgamma.", 0.1, 5.0, where=_SPECIAL,
                    reference="scipy.special.digamma", real=True)
reciprocal = _function("reciprocal", "1 / x.", 0.2, 3.0, primitive=lambda x: 1 / x)
deg2rad = _function("deg2rad", "Degrees as radians.", -180.0, 180.0,
                    primitive=lambda x: x * (math.pi / 180), real=True)
rad2deg = _function("rad2deg", "Radians as degrees.", primitive=lambda x: x * (180 / math.pi),
                    real=True)
# fmt: on


def _sinc(x: Node) -> Node:
    zero = prims.eq(x, prims.zeros_like(x))
    angle = prims.where(zero, prims.full_like(1, x), x * math.pi)
    return prims.where(zero, prims.full_like(1, x), prims.sin(angle) / angle)


sinc = _function("sinc", "sin(pi x) / (pi x), and 1 at 0.", where=_SPECIAL, primitive=_sinc)


def _logit_samples() -> Iterator[Sample]:
    for shape in ((), (7,), (3, 4), (0, 3)):
        yield sample(T(*shape, low=0.05, high=0.95))
    yield sample(T(3, 4, low=-0.5, high=1.5), 0.1)


@op(
    "logit(Tensor self, float? eps=None) -> Tensor",
    where=_SPECIAL,
    promote="float",
    samples=_logit_samples,
)
def logit(self: Node, eps: float | None) -> Node:
    """log(x / (1 - x)), the inverse of `sigmoid`; with `eps` x is first clamped to [eps, 1 - eps].

    NaN outside of [0, 1] without `eps`; the gradient is zero where x was clamped.

    Example:
        >>> torch.logit(torch.tensor([0.5]))
        tensor([0.])
    """
    if eps is None:
        return prims.log(self / (1 - self))
    inside = (self >= eps) & (self <= 1 - eps)
    bounded = prims.where(self < eps, prims.full_like(eps, self), self)
    bounded = prims.where(self > 1 - eps, prims.full_like(1 - eps, self), bounded)
    value = prims.log(bounded / (1 - bounded))
    return prims.with_derivative(value, self, bounded, inside, rule="logit")


def _logit_rule(g: Node, y: Node, x: Node, bounded: Node, inside: Node) -> list[Node | None]:
    return [prims.where(inside, g / (bounded * (1 - bounded)), prims.zeros_like(g)), None, None]


prims.register_rule("logit", _logit_rule)

_BERNOULLI = (  # B(2k) / (2k)! of the Euler-Maclaurin sum, k = 1..10
    1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000,
    1 / 74724249600, -3617 / 10670622842880000, 43867 / 5109094217170944000,
    -174611 / 802857662698291200000,
)  # fmt: skip
_SHIFT = 12


def hurwitz_zeta(order: float, x: Node) -> Node:
    """sum over k >= 0 of (x + k)^-order for x > 0 and a fixed order > 1.

    The first twelve terms, then the Euler-Maclaurin formula for the rest (NIST DLMF 25.11.5).
    """
    total = prims.zeros_like(x)
    for k in range(_SHIFT):
        total = total + (x + k) ** -order
    end = x + _SHIFT
    total = total + end ** (1 - order) / (order - 1) + end**-order * 0.5
    factor, power = order, end ** (-order - 1)
    for k, coefficient in enumerate(_BERNOULLI):
        total = total + power * (coefficient * factor)
        factor *= (order + 2 * k + 1) * (order + 2 * k + 2)
        power = power / (end * end)
    return total


def _polygamma(n: int, x: Node) -> Node:
    if n == 0:
        return prims.digamma(x)
    if n == 1:
        return prims.trigamma(x)
    scale = (-1) ** (n + 1) * math.factorial(n)
    value = hurwitz_zeta(n + 1.0, x) * float(scale)
    return prims.where(x >= 0, value, prims.full_like(math.nan, x))


prims.register_rule(
    "polygamma", lambda g, y, x: (g * _annotated_polygamma(y.attribute("n") + 1, x),)
)


def _annotated_polygamma(n: int, x: Node) -> Node:
    return prims.with_derivative(_polygamma(n, x), x, rule="polygamma", n=n)


def _check_order(n: int) -> None:
    if n < 0:
        raise RuntimeError(
            f"[polygamma] polygamma(n, x) does not support negative n, got {n}\nhint: pass n >= 0"
        )


@op(
    "polygamma(int n, Tensor self) -> Tensor",
    where=_SPECIAL,
    promote="float",
    inplace=False,
    participants="self",
    samples=lambda: iter([sample(n, T(3, 4, low=0.2, high=5.0)) for n in range(4)]),
    reference="scipy.special.polygamma",
)
def polygamma(n: int, self: Node) -> Node:
    """The n-th derivative of `digamma`.

    For n >= 2 only positive x are supported (the others give NaN).

    Raises:
        RuntimeError: a negative n.

    Example:
        >>> torch.polygamma(1, torch.tensor([1.0]))
        tensor([1.6449])
    """
    _check_order(n)
    return _annotated_polygamma(n, self)


@polygamma.overload("polygamma.method(Tensor self, int n) -> Tensor", samples=None)
def _polygamma_method(self: Node, n: int) -> Node:
    return polygamma(n, self)


@op(
    "multigammaln(Tensor self, int p) -> Tensor",
    where="special",
    promote="float",
    inplace=False,
    samples=lambda: iter([sample(T(3, 4, low=2.2, high=6.0), 3)]),
    reference="scipy.special.multigammaln",
)
def multigammaln(self: Node, p: int) -> Node:
    """The logarithm of the multivariate gamma function with dimension p, for x > (p - 1) / 2.

    Raises:
        RuntimeError: p below 1.

    Example:
        >>> torch.mvlgamma(torch.tensor([3.0]), 1)
        tensor([0.6931])
    """
    if p < 1:
        raise RuntimeError(f"[mvlgamma] p has to be greater than or equal to 1, got {p}\nhint: 1")
    total = prims.full_like(p * (p - 1) / 4 * math.log(math.pi), self)
    for j in range(p):
        total = total + prims.lgamma(self - j / 2)
    return total


@op(
    "mvlgamma(Tensor self, int p) -> Tensor",
    promote="float",
    samples=lambda: iter([sample(T(3, 4, low=2.2, high=6.0), 3)]),
)
def mvlgamma(self: Node, p: int) -> Node:
    """The logarithm of the multivariate gamma function; see `special.multigammaln`.

    Example:
        >>> torch.mvlgamma(torch.tensor([3.0]), 1)
        tensor([0.6931])
    """
    return multigammaln(self, p)


def _entr(x: Node) -> Node:
    positive = x > 0
    safe = prims.where(positive, x, prims.full_like(1, x))
    value = prims.where(positive, -(safe * prims.log(safe)), prims.full_like(-math.inf, x))
    zero = prims.eq(x, prims.zeros_like(x))
    value = prims.where(zero, prims.zeros_like(x), value)
    value = prims.where(prims.isnan(x), x, value)
    return prims.with_derivative(value, x, rule="entr")


prims.register_rule("entr", lambda g, y, x: (g * (-prims.log(x) - 1),))

entr = _function("entr", "-x log(x): 0 at 0, -inf below.", 0.1, 3.0, where="special",
                 reference="scipy.special.entr", primitive=_entr, real=True)  # fmt: skip
ndtr = _function(
    "ndtr", "The normal distribution function.", where="special", reference="scipy.special.ndtr",
    primitive=lambda x: prims.erfc(x * -math.sqrt(0.5)) * 0.5, real=True,
)  # fmt: skip
ndtri = _function(
    "ndtri", "The inverse of the normal distribution function.", 0.05, 0.95, where="special",
    reference="scipy.special.ndtri",
    primitive=lambda x: prims.erfinv(x * 2 - 1) * math.sqrt(2), real=True,
)  # fmt: skip


def _log_ndtr(x: Node) -> Node:
    """log of the normal distribution function; its tail by the asymptotic series of erfc.

    Source: Abramowitz & Stegun 26.2.12.
    """
    edge = -8.0 if x.dtype == "f32" else -25.0
    tail = x < edge
    near = prims.where(tail, prims.full_like(0, x), x)
    central = prims.log(prims.erfc(near * -math.sqrt(0.5)) * 0.5)
    far = prims.where(tail, x, prims.full_like(edge, x))
    w = 1 / (far * far)
    series = prims.full_like(10395.0, x)
    for coefficient in (-945.0, 105.0, -15.0, 3.0, -1.0):
        series = series * w + coefficient
    logs = prims.log(-far) + 0.5 * math.log(2 * math.pi)
    outer = prims.log1p(series * w) - logs - far * far * 0.5
    return prims.with_derivative(prims.where(tail, outer, central), x, rule="log_ndtr")


prims.register_rule(
    "log_ndtr",
    lambda g, y, x: (g * (prims.exp(x * x * -0.5 - y) * (1 / math.sqrt(2 * math.pi))),),
)

log_ndtr = _function(
    "log_ndtr", "The logarithm of the normal distribution function, accurate far below 0.",
    -30.0, 5.0, where="special", reference="scipy.special.log_ndtr", primitive=_log_ndtr, real=True,
)  # fmt: skip
