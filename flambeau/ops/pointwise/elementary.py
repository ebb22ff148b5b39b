"""Elementary and special functions of one operand: exponentials, circles, gamma, erf.

All compute in floating point: integers and bools become the default float dtype. Their accuracy is
that of the C functions they are primitives of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from flambeau import prims
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.language.definition import OpDefinition, op
from flambeau.language.samples import Sample, T, sample, unary_samples
from flambeau.language.schema import Scalar, Tensor
from flambeau.ops.broadcasting import check_any_tensor, is_float, together, unsupported

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
    saves_result: bool = True,
    saves_operand: bool = True,
    overlap: str = "",
    zero: bool = False,
    linear: bool = False,
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
        kind="elementary",
        where=where,
        saves_result=saves_result,
        unsaved=() if saves_operand else ("self",),
        overlap=overlap,
        aliases=aliases,
        zero_preserving=zero,
        linear=linear,
        samples=unary_samples(low, high),
        reference=reference or "numpy." + name,
    )(body)


def _reciprocal(x: Node) -> Node:
    return prims.with_derivative(1 / x, x, rule="reciprocal")


prims.register_rule("reciprocal", lambda g, y, x: (-g * prims.conj(y * y),))

# fmt: off
exp = _function("exp", "e to the power of x.")
exp2 = _function("exp2", "2 to the power of x.", where=_SPECIAL)
expm1 = _function("expm1", "exp(x) - 1, accurate near 0.", where=_SPECIAL, zero=True)
log = _function("log", "The natural logarithm; NaN below 0.", 0.1, 5.0)
log2 = _function("log2", "The logarithm to base 2.", 0.1, 5.0)
log10 = _function("log10", "The logarithm to base 10.", 0.1, 5.0)
log1p = _function("log1p", "log(1 + x), accurate near 0.", -0.9, 5.0, where=_SPECIAL, zero=True)
sqrt = _function("sqrt", "The square root; NaN below 0.", 0.1, 5.0, zero=True)
rsqrt = _function("rsqrt", "1 / sqrt(x).", 0.1, 5.0, reference=lambda x: x**-0.5)
sin = _function("sin", "The sine of radians.", -6.0, 6.0, saves_result=False, zero=True)
cos = _function("cos", "The cosine of radians.", -6.0, 6.0, saves_result=False)
tan = _function("tan", "The tangent of radians.", -1.2, 1.2, zero=True)
asin = _function("asin", "The inverse sine, in [-pi/2, pi/2].", -0.95, 0.95, aliases="arcsin",
                 reference="numpy.arcsin", zero=True)
acos = _function("acos", "The inverse cosine, in [0, pi].", -0.95, 0.95, aliases="arccos",
                 reference="numpy.arccos")
atan = _function("atan", "The inverse tangent.", aliases="arctan", reference="numpy.arctan",
                 zero=True)
sinh = _function("sinh", "The hyperbolic sine.", saves_result=False, zero=True)
cosh = _function("cosh", "The hyperbolic cosine.", saves_result=False)
tanh = _function("tanh", "The hyperbolic tangent.", zero=True)
asinh = _function("asinh", "The inverse hyperbolic sine.", aliases="arcsinh",
                  reference="numpy.arcsinh", zero=True)
acosh = _function("acosh", "The inverse hyperbolic cosine; NaN below 1.", 1.1, 4.0,
                  aliases="arccosh", reference="numpy.arccosh")
atanh = _function("atanh", "The inverse hyperbolic tangent.", -0.9, 0.9, aliases="arctanh",
                  reference="numpy.arctanh", zero=True)
erf = _function("erf", "The error function.", where=_SPECIAL, reference="scipy.special.erf",
                real=True, zero=True)
erfc = _function("erfc", "1 - erf(x), accurate for large x.", where=_SPECIAL,
                 reference="scipy.special.erfc", real=True)
erfinv = _function("erfinv", "The inverse of erf.", -0.95, 0.95, where=_SPECIAL,
                   reference="scipy.special.erfinv", real=True, saves_result=False, zero=True)
lgamma = _function("lgamma", "The logarithm of |gamma(x)|.", 0.1, 5.0,
                   reference="scipy.special.gammaln", real=True)
digamma = _function("digamma", "The derivative of lgamma.", 0.1, 5.0, where=_SPECIAL,
                    reference="scipy.special.digamma", real=True)
reciprocal = _function("reciprocal", "1 / x.", 0.2, 3.0, primitive=_reciprocal,
                    saves_operand=False)
deg2rad = _function("deg2rad", "Degrees as radians.", -180.0, 180.0,
                    primitive=lambda x: x * (math.pi / 180), real=True, linear=True)
rad2deg = _function("rad2deg", "Radians as degrees.", primitive=lambda x: x * (180 / math.pi),
                    real=True, linear=True)
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


@op(kind="elementary", where=_SPECIAL, samples=_logit_samples)
def logit(self: Tensor, eps: float | None = None) -> Tensor:
    """log(x / (1 - x)), the inverse of `sigmoid`; with `eps` x is first clamped to [eps, 1 - eps].

    NaN outside of [0, 1] without `eps`; the gradient is zero where x was clamped.

    Example:
        >>> torch.logit(torch.tensor([0.5]))
        tensor([0.])
    """
    if eps is None:
        value, outside = prims.log(self / (1 - self)), prims.full_like(math.nan, self)
        inside = (self >= 0) & (self <= 1)
        return prims.with_derivative(value, self, self, inside, outside, rule="logit")
    inside = (self >= eps) & (self <= 1 - eps)
    bounded = prims.where(self < eps, prims.full_like(eps, self), self)
    bounded = prims.where(self > 1 - eps, prims.full_like(1 - eps, self), bounded)
    value = prims.log(bounded / (1 - bounded))
    zero = prims.zeros_like(self)
    return prims.with_derivative(value, self, bounded, inside, zero, rule="logit")


def _logit_rule(
    g: Node, y: Node, x: Node, bounded: Node, inside: Node, outside: Node
) -> list[Node | None]:
    grad = prims.where(inside, g / (bounded * (1 - bounded)), outside)
    return [grad, None, None, None]


prims.register_rule("logit", _logit_rule)


def _polygamma(n: int, x: Node) -> Node:
    if n == 0:
        return prims.digamma(x)
    if n == 1:
        return prims.trigamma(x)
    scale = float(math.factorial(n)) if n <= 170 else math.inf
    value = prims.zeta(prims.full_like(n + 1, x), x) * scale
    return value if n % 2 else -value


prims.register_rule(
    "polygamma", lambda g, y, x: (g * _annotated_polygamma(y.attribute("n") + 1, x),)
)


def _annotated_polygamma(n: int, x: Node) -> Node:
    return prims.with_derivative(_polygamma(n, x), x, rule="polygamma", n=n)


def _check_order(n: int) -> None:
    if n < 0:
        problem = f"polygamma(n, x) does not support negative n, got {n}"
        raise failure(RuntimeError, "polygamma", problem, "pass n >= 0")


@op(
    kind="elementary",
    where=_SPECIAL,
    inplace=False,
    participants="self",
    samples=lambda: iter([sample(n, T(3, 4, low=0.2, high=5.0)) for n in range(4)]),
    reference="scipy.special.polygamma",
)
def polygamma(n: int, self: Tensor) -> Tensor:
    """The n-th derivative of `digamma`: (-1)^(n + 1) n! zeta(n + 1, x), for n >= 2 to a few units
    of the last place (NIST DLMF 5.15.1).

    Raises:
        RuntimeError: a negative n.

    Example:
        >>> torch.polygamma(2, torch.tensor([1.0, -0.5]))
        tensor([-2.4041, -0.8288])
    """
    _check_order(n)
    return _annotated_polygamma(n, self)


@polygamma.overload(samples=None, inplace=True)
def _polygamma_method(self: Tensor, n: int) -> Tensor:
    return polygamma(n, self)


def _zeta_samples() -> Iterator[Sample]:
    orders = T(3, 4, low=1.5, high=9.0, grad=False)
    yield sample(orders, T(3, 4, low=0.2, high=9.0))
    yield sample(T(3, 1, low=1.5, high=9.0, grad=False), T(4, low=0.2, high=9.0))
    yield sample(T(2, 2, dtype="i64", values=[[2, 3], [4, 5]]), T(2, low=-3.4, high=-3.1))
    yield sample(3, T(2, 3, low=0.2, high=9.0))
    yield sample(orders, 1.5)


@op(
    kind="elementary",
    where="special",
    runtime="self other",
    samples=_zeta_samples,
    reference=lambda s, q: _numpy_zeta(s, q),
)
def zeta(self: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """Hurwitz's zeta function: the sum over k >= 0 of (other + k)^-self.

    Operands broadcast, and either may be a number. Infinite for an order of 1 and where `other` is
    0, -1, ...; NaN for orders below 1, and for orders that are not whole where `other` < 0.

    Twelve terms and Euler and Maclaurin's formula for the rest (NIST DLMF 25.11.5). Error against
    mpmath: float32 half a unit of the last place, float64 at most 2 units for other > 0.
    There is a gradient with respect to `other` only, as in PyTorch.

    Raises:
        NotImplementedError: complex numbers.
        TypeError: neither operand is a tensor.

    Example:
        >>> torch.special.zeta(torch.tensor([2.0, 4.0]), 1)
        tensor([1.6449, 1.0823])
    """
    check_any_tensor("zeta", self, other)
    s, q = together("zeta", self, other)
    if not is_float(s):
        raise unsupported("zeta", s, "pass real numbers")
    return _zeta(s, q)


def _zeta(s: Node, q: Node) -> Node:
    return prims.with_derivative(prims.zeta(s, q), s, q, rule="zeta")


prims.register_rule("zeta", lambda g, y, s, q: (None, g * (-s * _zeta(s + 1, q))))


def _numpy_zeta(s: Any, q: Any) -> Any:
    """SciPy's zeta function; what lies left of 0 is added term by term."""
    import numpy
    from scipy.special import zeta as known  # type: ignore[import-untyped]

    s, q = numpy.broadcast_arrays(s, numpy.asarray(q, dtype=float))
    total, q = numpy.zeros(q.shape), q.copy()
    for _ in range(4):
        below = q < 0
        total = total + numpy.where(below, numpy.where(below, q, 1.0) ** -(s * 1.0), 0.0)
        q = numpy.where(below, q + 1, q)
    return total + known(s, q)


@op(
    kind="elementary",
    where="special",
    overlap="copy",
    samples=lambda: [sample(T(3, 4, low=2.2, high=6.0), 3)],
    reference="scipy.special.multigammaln",
)
def multigammaln(self: Tensor, p: int) -> Tensor:
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
    promote="float",
    inplace=True,
    out=True,
    samples=lambda: [sample(T(3, 4, low=2.2, high=6.0), 3)],
    pointwise=True,
)
def mvlgamma(self: Tensor, p: int) -> Tensor:
    """The logarithm of the multivariate gamma function; see `special.multigammaln`.

    Example:
        >>> torch.mvlgamma(torch.tensor([3.0]), 1)
        tensor([0.6931])
    """
    return multigammaln(self, p)


def _erfcx(x: Node) -> Node:
    """exp(x^2) erfc(x): the product up to 12, an asymptotic series from there on (DLMF 7.12.1).

    x^2 is the square of x rounded to float32, which is exact, and the small rest.
    """
    wide = prims.cast(x, "f64")
    far = wide > 12.0
    near = prims.where(far, prims.zeros_like(wide), wide)
    head = prims.cast(prims.cast(near, "f32"), "f64")
    square = prims.exp((near - head) * (near + head)) * prims.exp(head * head)
    large = prims.where(far, wide, prims.full_like(12, wide))
    w = 0.5 / (large * large)
    series = prims.full_like(1, wide)
    for k in range(23, 0, -2):
        series = 1 - series * w * k
    tail = series / (large * math.sqrt(math.pi))
    value = prims.cast(prims.where(far, tail, square * prims.erfc(near)), x.dtype)
    return prims.with_derivative(value, x, rule="erfcx")


prims.register_rule("erfcx", lambda g, y, x: (g * (x * 2 * _erfcx(x) - 2 / math.sqrt(math.pi)),))


def _entr(x: Node) -> Node:
    positive = x > 0
    safe = prims.where(positive, x, prims.full_like(1, x))
    value = prims.where(positive, -(safe * prims.log(safe)), prims.full_like(-math.inf, x))
    zero = prims.eq(x, prims.zeros_like(x))
    value = prims.where(zero, prims.zeros_like(x), value)
    value = prims.where(prims.isnan(x), x, value)
    return prims.with_derivative(value, x, rule="entr")


prims.register_rule("entr", lambda g, y, x: (g * (-prims.log(x) - 1),))

erfcx = _function("erfcx",
                  "exp(x^2) erfc(x), which stays in range where erfc vanishes; within half a unit "
                  "of the last\nplace of float32 and 3 of float64 (against mpmath).",
                  -3.0, 30.0, where="special", reference="scipy.special.erfcx", primitive=_erfcx,
                  real=True)  # fmt: skip
entr = _function("entr", "-x log(x): 0 at 0, -inf below.", 0.1, 3.0, where="special",
                 reference="scipy.special.entr", primitive=_entr, real=True, zero=True)  # fmt: skip
ndtr = _function(
    "ndtr", "The normal distribution function.", where="special", reference="scipy.special.ndtr",
    primitive=lambda x: prims.erfc(x * -math.sqrt(0.5)) * 0.5, real=True, saves_operand=False,
    overlap="copy",
)  # fmt: skip
ndtri = _function(
    "ndtri", "The inverse of the normal distribution function.", 0.05, 0.95, where="special",
    reference="scipy.special.ndtri",
    primitive=lambda x: prims.erfinv(x * 2 - 1) * math.sqrt(2), real=True, saves_operand=False,
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
