"""Pointwise primitives: the same strict shape in and out, one record per function.

Derivatives of complex functions follow PyTorch's convention: the gradient is conjugated, so a rule
multiplies by `conj` of the derivative; `conj` of a real node is the node itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from flambeau.ir.dtypes import UNSIGNED
from flambeau.ir.node import ITEM_SIZE, Node
from flambeau.ir.spelling import BY_PRINTER, FEW, ONE, Spelling, function, spelled
from flambeau.prims import simplification as rules
from flambeau.prims.common import (
    ALL,
    BOOL,
    COMPLEX,
    DIFFERENTIABLE,
    FLOATS,
    INEXACT,
    INTEGERS,
    NUMBERS,
    TO_COMPLEX,
    TO_REAL,
    WHOLE,
    Type,
    check_count,
    check_dtype,
    check_same,
)
from flambeau.prims.create import full_like, zeros_like
from flambeau.prims.record import (
    NOT_DIFFERENTIABLE,
    Derivative,
    Linearity,
    Primitive,
    Simplification,
    bind,
    register,
)

REALS = INTEGERS | FLOATS
Reference = Callable[[list[Any], dict[str, Any]], Any]
Unary = Callable[[Node], Node]
Binary = Callable[[Node, Node], Node]
UnaryRule = Callable[[Node, Node, Node], Node | None]
BinaryRule = Callable[[Node, Node, Node, Node], tuple[Node | None, Node | None]]

# Rules refer to functions that are defined further down.
cos: Unary
cosh: Unary
digamma: Unary
complex: Binary
lt: Binary
gt: Binary

# Sample values: where a function is smooth, away from kinks and poles, by domain.
SAMPLES: dict[str, list[list[Any]]] = {
    "any": [[[-2.4, -0.7, 0.3], [1.2, 2.7, -1.1]]],
    "positive": [[0.2, 0.9, 1.7, 3.4]],
    "unit": [[-0.8, -0.3, 0.2, 0.7]],
    "above one": [[1.2, 1.9, 3.0]],
    "poles": [[-1.4, -0.6, 0.4, 1.3, 5.2]],
    "integers": [[-3, 0, 5, 12]],
    "bools": [[True, False]],
    "pair": [[[-2.4, -0.7, 0.3], [1.2, 2.7, -1.1]], [[1.5, -0.4, 2.2], [0.8, -1.3, 0.9]]],
    "base and exponent": [[0.3, 1.2, 2.5, 1.7], [2.0, -1.3, 0.5, 0.0]],
    "integer pair": [[7, -7, 5, -9], [2, 3, -3, 4]],
    "orders and arguments": [[1.5, 2.0, 3.0, 7.5], [0.4, 1.0, 2.5, 9.0]],
    "shifts": [[7, -7, 5, 1], [2, 3, 0, 4]],
    "complex": [[1.0 + 2.0j, -0.5 + 0.3j, 0.7 - 1.1j]],
}


def _sampler(name: str) -> Callable[[], Iterator[tuple[list[Any], dict[str, Any]]]]:
    def samples() -> Iterator[tuple[list[Any], dict[str, Any]]]:
        yield SAMPLES[name], {}

    return samples


def _ufunc(name: str) -> Reference:
    """Return the reference `numpy.name`, or `scipy.special.name` when written so."""

    def reference(arrays: list[Any], constants: dict[str, Any]) -> Any:
        import importlib

        module, _, function = name.rpartition(".")
        ufunc = getattr(importlib.import_module(module or "numpy"), function)
        with importlib.import_module("numpy").errstate(all="ignore"):
            return ufunc(*arrays)

    return reference


def _infer(name: str, count: int, allowed: frozenset[str], result: str) -> Any:
    def infer(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
        check_count(name, operands, count)
        first = operands[0]
        check_dtype(name, first, allowed)
        check_same(name, operands)
        dtype = first.dtype if result == "same" else result
        if result == "real":
            dtype = TO_REAL.get(first.dtype, first.dtype)
        elif result == "complex":
            dtype = TO_COMPLEX[first.dtype]
        return dtype, first.shape

    return infer


def _unary(
    name: str,
    documentation: str,
    allowed: frozenset[str],
    rule: UnaryRule | str,
    reference: str | Callable[..., Any],
    domain: str = "any",
    result: str = "same",
    cost: int = 1,
    spelling: Spelling | None = None,
    linear: Linearity | None = None,
    simplify: Simplification | None = None,
) -> Unary:
    def derivative(grad: Node, out: Node, x: Node) -> tuple[Node | None]:
        return (rule(grad, out, x),)  # type: ignore[operator]

    register(
        Primitive(
            name,
            "pointwise",
            _infer(name, 1, allowed, result),
            rule if isinstance(rule, str) else derivative,
            spelling or function(name),
            cost,
            reference=_ufunc(reference) if isinstance(reference, str) else reference,
            samples=_sampler(domain),
            linear=linear,
            simplify=simplify,
        )
    )

    def constructor(x: Node) -> Node:
        return bind(name, x)

    constructor.__name__ = constructor.__qualname__ = name
    constructor.__doc__ = documentation
    return constructor


def _binary(
    name: str,
    documentation: str,
    allowed: frozenset[str],
    rule: BinaryRule | str,
    reference: str | Callable[..., Any],
    domain: str = "pair",
    result: str = "same",
    cost: int = 1,
    spelling: Spelling | None = None,
    linear: Linearity | None = None,
    simplify: Simplification | None = None,
) -> Binary:
    derivative: Derivative | str = rule
    register(
        Primitive(
            name,
            "pointwise",
            _infer(name, 2, allowed, result),
            derivative,
            spelling or function(name, 2),
            cost,
            reference=_ufunc(reference) if isinstance(reference, str) else reference,
            samples=_sampler(domain),
            linear=linear,
            simplify=simplify,
        )
    )

    def constructor(a: Node, b: Node) -> Node:
        return bind(name, a, b)

    constructor.__name__ = constructor.__qualname__ = name
    constructor.__doc__ = documentation
    return constructor


# fmt: off
# -------------------------------------------------------------------------------- rounding, sign

def _flat(g: Node, y: Node, x: Node) -> Node:
    return zeros_like(x)  # piecewise constant: PyTorch gives zeros, not "no gradient"


def _numpy_sign(arrays: list[Any], constants: dict[str, Any]) -> Any:
    import numpy
    return numpy.where(numpy.isnan(arrays[0]), 0, numpy.sign(arrays[0]))


def _abs_rule(g: Node, y: Node, x: Node) -> Node:
    if x.dtype in COMPLEX:
        scale = where(eq(y, zeros_like(y)), zeros_like(y), g / y)
        return complex(real(x) * scale, imag(x) * scale)
    return g * sign(x)


neg = _unary("neg", "Minus x.", NUMBERS, lambda g, y, x: -g, "negative",
             spelling=spelled(exact=True, length=ONE, f="-{a}", i="({V})(-{a})"), linear="each",
             simplify=rules.inverse_of_itself)


def is_negation(value: Node) -> bool:
    """Whether a node is a `neg`."""
    return value.op == "neg"


abs = _unary("abs", "Magnitude of x; real for complex x.", NUMBERS, _abs_rule, "abs",
             result="real",
             spelling=spelled(exact=True, length=ONE, f="fb_abs_{A}({a})", i="fb_iabs_{A}({a})",
                              b="{a}"))
sign = _unary("sign", "-1, 0 or 1; 0 for NaN.", REALS, _flat, _numpy_sign,
              spelling=spelled(exact=True, f="fb_sign_{A}({a})", i="fb_sign_{A}({a})", b="{a}"))
ceil = _unary("ceil", "Least integer not below x.", FLOATS, _flat, "ceil",
              spelling=spelled(exact=True, length=FEW, f="fb_ceil_{A}({a})", i="{a}"))
floor = _unary("floor", "Greatest integer not above x.", FLOATS, _flat, "floor",
               spelling=spelled(exact=True, length=FEW, f="fb_floor_{A}({a})", i="{a}"))
round = _unary("round", "Nearest integer, ties to even.", FLOATS, _flat, "rint",
               spelling=spelled(exact=True, length=FEW, f="fb_rint_{A}({a})", i="{a}"))
trunc = _unary("trunc", "Integer part of x.", FLOATS, _flat, "trunc",
               spelling=spelled(exact=True, length=FEW, f="fb_trunc_{A}({a})", i="{a}"))

# -------------------------------------------------------------------------------- elementary

LN2, LN10 = math.log(2.0), math.log(10.0)


def _numpy_rsqrt(arrays: list[Any], constants: dict[str, Any]) -> Any:
    import numpy
    with numpy.errstate(all="ignore"):
        return 1 / numpy.sqrt(arrays[0])


def _numpy_sigmoid(arrays: list[Any], constants: dict[str, Any]) -> Any:
    import numpy
    with numpy.errstate(all="ignore"):
        return 1 / (1 + numpy.exp(-arrays[0]))


sqrt = _unary("sqrt", "Square root.", INEXACT,
              lambda g, y, x: g / conj(y * 2), "sqrt", "positive", cost=4,
              spelling=function("sqrt", length=FEW))
rsqrt = _unary("rsqrt", "1 / sqrt(x).", INEXACT,
               lambda g, y, x: g * conj(y * y * y * -0.5), _numpy_rsqrt, "positive", cost=6)
exp = _unary("exp", "e to the x.", INEXACT,
             lambda g, y, x: g * conj(y), "exp", cost=10)
exp2 = _unary("exp2", "2 to the x.", INEXACT,
              lambda g, y, x: g * conj(y * LN2), "exp2", cost=10)
expm1 = _unary("expm1", "exp(x) - 1, accurate near 0.", INEXACT,
               lambda g, y, x: g * conj(y + 1), "expm1", cost=12)
log = _unary("log", "Natural logarithm.", INEXACT,
             lambda g, y, x: g / conj(x), "log", "positive", cost=10)
log2 = _unary("log2", "Logarithm to base 2.", INEXACT,
              lambda g, y, x: g / conj(x * LN2), "log2", "positive", cost=10)
log10 = _unary("log10", "Logarithm to base 10.", INEXACT,
               lambda g, y, x: g / conj(x * LN10), "log10", "positive", cost=10)
log1p = _unary("log1p", "log(1 + x), accurate near 0.", INEXACT,
               lambda g, y, x: g / conj(x + 1), "log1p", "positive", cost=12)
sin = _unary("sin", "Sine of radians.", INEXACT,
             lambda g, y, x: g * conj(cos(x)), "sin", cost=12)
cos = _unary("cos", "Cosine of radians.", INEXACT,
             lambda g, y, x: g * conj(-sin(x)), "cos", cost=12)
tan = _unary("tan", "Tangent of radians.", INEXACT,
             lambda g, y, x: g * conj(y * y + 1), "tan", "unit", cost=16)
asin = _unary("asin", "Inverse sine.", INEXACT,
              lambda g, y, x: g * conj(rsqrt(1 - x * x)), "arcsin", "unit", cost=16)
acos = _unary("acos", "Inverse cosine.", INEXACT,
              lambda g, y, x: g * conj(-rsqrt(1 - x * x)), "arccos", "unit", cost=16)
atan = _unary("atan", "Inverse tangent.", INEXACT,
              lambda g, y, x: g / conj(x * x + 1), "arctan", cost=16)
sinh = _unary("sinh", "Hyperbolic sine.", INEXACT,
              lambda g, y, x: g * conj(cosh(x)), "sinh", cost=14)
cosh = _unary("cosh", "Hyperbolic cosine.", INEXACT,
              lambda g, y, x: g * conj(sinh(x)), "cosh", cost=14)
tanh = _unary("tanh", "Hyperbolic tangent.", INEXACT,
              lambda g, y, x: g * conj(1 - y * y), "tanh", cost=14)
asinh = _unary("asinh", "Inverse hyperbolic sine.", INEXACT,
               lambda g, y, x: g * conj(rsqrt(x * x + 1)), "arcsinh", cost=18)
acosh = _unary("acosh", "Inverse hyperbolic cosine.", INEXACT,
               lambda g, y, x: g * conj(rsqrt(x - 1) * rsqrt(x + 1)), "arccosh", "above one",
               cost=18)
atanh = _unary("atanh", "Inverse hyperbolic tangent.", INEXACT,
               lambda g, y, x: g / conj(1 - x * x), "arctanh", "unit", cost=18)
sigmoid = _unary("sigmoid", "1 / (1 + exp(-x)).", INEXACT,
                 lambda g, y, x: g * conj((1 - y) * y), _numpy_sigmoid, cost=12)

# -------------------------------------------------------------------------------- special functions

TWO_OVER_SQRT_PI = 2 / math.sqrt(math.pi)

erf = _unary("erf", "Error function.", FLOATS,
             lambda g, y, x: g * (exp(-(x * x)) * TWO_OVER_SQRT_PI), "scipy.special.erf", cost=14)
erfc = _unary("erfc", "1 - erf(x).", FLOATS,
              lambda g, y, x: g * (exp(-(x * x)) * -TWO_OVER_SQRT_PI), "scipy.special.erfc",
              cost=18)
erfinv = _unary("erfinv", "Inverse of erf.", FLOATS,
                lambda g, y, x: g * (exp(y * y) / TWO_OVER_SQRT_PI), "scipy.special.erfinv",
                "unit", cost=20)
lgamma = _unary("lgamma", "Logarithm of |gamma(x)|.", FLOATS,
                lambda g, y, x: g * digamma(x), "scipy.special.gammaln", "poles", cost=30)
digamma = _unary("digamma", "Derivative of lgamma.", FLOATS,
                 lambda g, y, x: g * trigamma(x), "scipy.special.digamma", "poles", cost=30)
# fmt: on


def trigamma(x: Node) -> Node:
    """Derivative of digamma, from its asymptotic series (Abramowitz & Stegun 6.4.12).

    The argument is reflected to x >= 1/2 (6.4.7) and shifted by ten (6.4.6), where eleven powers
    are accurate to float64.
    """
    reflected = x < 0.5
    z = where(reflected, 1 - x, x)
    total = zeros_like(x)
    for k in range(10):
        shifted = z + k
        total = total + 1 / (shifted * shifted)
    w = 1 / (z + 10)
    square = w * w
    series = full_like(-691 / 2730, x)
    for coefficient in (5 / 66, -1 / 30, 1 / 42, -1 / 30, 1 / 6):
        series = series * square + coefficient
    total = total + w + square * 0.5 + w * square * series
    sine = sin(x * math.pi)
    return where(reflected, (math.pi * math.pi) / (sine * sine) - total, total)


def _polynomial_reference(arrays: list[Any], constants: dict[str, Any]) -> Any:
    import numpy
    import scipy.special as known  # type: ignore[import-untyped]

    x, n, family = arrays
    names = "chebyt chebyu jacobi jacobi hermite hermitenorm laguerre legendre".split()
    name = names[int(family.flat[0])]
    return numpy.asarray(getattr(known, "eval_" + name)(n.astype(numpy.int64), x))


def _polynomial_samples() -> Iterator[tuple[list[Any], dict[str, Any]]]:
    for family in (0.0, 1.0, 4.0, 5.0, 6.0, 7.0):
        yield [[-1.3, 0.4, 0.9, 2.1], [2.0, 3.0, 11.0, 0.0], [family] * 4], {}


register(
    Primitive(
        "orthogonal_polynomial",
        "pointwise",
        _infer("orthogonal_polynomial", 3, FLOATS, "same"),
        NOT_DIFFERENTIABLE,
        function("orthogonal_polynomial", 3),
        200,
        reference=_polynomial_reference,
        samples=_polynomial_samples,
    )
)


def orthogonal_polynomial(x: Node, n: Node, family: int) -> Node:
    """The polynomial of degree n at x; `codegen/c/math/special.c.in` numbers the families."""
    return bind("orthogonal_polynomial", x, n, full_like(family, x))


# fmt: off
zeta = _binary("zeta", "Sum over k >= 0 of (b + k)^-a.", FLOATS, NOT_DIFFERENTIABLE,
               "scipy.special.zeta", "orders and arguments", cost=400)
igamma = _binary("igamma", "Regularised lower incomplete gamma function P(a, b).", FLOATS,
                 NOT_DIFFERENTIABLE, "scipy.special.gammainc", "orders and arguments", cost=400)
igammac = _binary("igammac", "Regularised upper incomplete gamma function Q(a, b).", FLOATS,
                  NOT_DIFFERENTIABLE, "scipy.special.gammaincc", "orders and arguments", cost=400)

# -------------------------------------------------------------------------------- tests, bits

def _numpy_not(arrays: list[Any], constants: dict[str, Any]) -> Any:
    return ~arrays[0]


isnan = _unary("isnan", "Whether x is NaN.", FLOATS, NOT_DIFFERENTIABLE, "isnan", result="bool",
               spelling=spelled(length=ONE, f="?fb_ne_{L}({a}, {a})"))
isinf = _unary("isinf", "Whether x is infinite.", FLOATS, NOT_DIFFERENTIABLE, "isinf",
               result="bool",
               spelling=spelled(f="?fb_eq_{L}(fb_abs_{A}({a}), __builtin_inff())"))
signbit = _unary("signbit", "Whether the sign bit of x is set.", FLOATS, NOT_DIFFERENTIABLE,
                 "signbit", result="bool",
                 spelling=spelled(f="?fb_lt_{L}(fb_as_{I}({a}), 0)", i="?fb_lt_{L}({a}, 0)"))
bitwise_not = _unary("bitwise_not", "Complement of the bits; logical for bool.", INTEGERS | BOOL,
                     NOT_DIFFERENTIABLE, _numpy_not, "integers",
                     spelling=spelled(length=ONE, i="({V})(~{a})", b="({V})(~{a})"),
                     simplify=rules.inverse_of_itself)

# -------------------------------------------------------------------------------- complex numbers


def _numpy_complex(arrays: list[Any], constants: dict[str, Any]) -> Any:
    import numpy
    kind = "complex64" if arrays[0].dtype == numpy.float32 else "complex128"
    out = numpy.empty(arrays[0].shape, kind)
    out.real, out.imag = arrays
    return out


real = _unary("real", "Real part.", COMPLEX, lambda g, y, x: complex(g, zeros_like(g)), "real",
              "complex", result="real",
              spelling=BY_PRINTER, linear="each")
imag = _unary("imag", "Imaginary part.", COMPLEX, lambda g, y, x: complex(zeros_like(g), g), "imag",
              "complex", result="real",
              spelling=BY_PRINTER, linear="each")
complex = _binary("complex", "Complex number from real and imaginary part.", frozenset(TO_COMPLEX),
                  lambda g, y, a, b: (real(g), imag(g)), _numpy_complex, result="complex",
                  spelling=BY_PRINTER, linear="joint")


def conj(x: Node) -> Node:
    """Complex conjugate; x itself when it is real."""
    return complex(real(x), -imag(x)) if x.dtype in COMPLEX else x


# -------------------------------------------------------------------------------- arithmetic

def _pow_rule(g: Node, y: Node, a: Node, b: Node) -> tuple[Node, Node]:
    if b.op == "full":  # a constant exponent: no powers for the common ones
        value = b.attribute("value")
        first = zeros_like(a) if value == 0 else g * conj(
            a * 2 if value == 2 else pow(a, full_like(value - 1, a)) * value)
    else:
        # x**0 is constant, also at 0 and NaN; elsewhere the formula is right without a mask.
        zero = eq(b, zeros_like(b)) & ~(abs(a) > 0)
        first = where(zero, zeros_like(a), g * conj(b * pow(a, b - 1)))
    base_zero = eq(a, zeros_like(a))
    if b.dtype not in COMPLEX:
        base_zero = base_zero & (b >= 0)
    second = where(base_zero, zeros_like(b), g * conj(y * log(a)))
    return first, second


def _atan2_rule(g: Node, y: Node, a: Node, b: Node) -> tuple[Node, Node]:
    squares = a * a + b * b
    zero = eq(squares, zeros_like(squares))
    scale = where(zero, zeros_like(g), g / squares)
    return scale * b, -(scale * a)


def _nextafter_rule(g: Node, y: Node, a: Node, b: Node) -> tuple[Node, None]:
    """A step is a constant added to a, unless a is b already."""
    return where(ne(a, b), g, zeros_like(g)), None


def _extreme_rule(loses: Binary) -> BinaryRule:
    def rule(g: Node, y: Node, a: Node, b: Node) -> tuple[Node, Node]:
        # A tie is split in halves; NaN compares false, so both sides receive the gradient.
        shared, zero = where(eq(a, b), g * 0.5, g), zeros_like(g)
        return where(loses(a, b), zero, shared), where(loses(b, a), zero, shared)

    return rule


def _extreme_spelling(wins: str, of_bools: str) -> Spelling:
    # Equal operands (zeros of both signs) give the first one.
    choice = f"({{I}})fb_{wins}_{{L}}({{b}}, {{a}})"
    with_nan = f"{choice} | ({{I}})fb_ne_{{L}}({{b}}, {{b}})"
    return spelled(
        exact=True,
        length=ONE,
        f=f"fb_select_{{A}}({with_nan}, {{b}}, {{a}})",
        i=f"fb_select_{{A}}({choice}, {{b}}, {{a}})",
        b=of_bools,
    )


def _comparison(name: str, of_bools: str) -> Spelling:
    text = f"?fb_{name}_{{L}}({{a}}, {{b}})"
    return spelled(length=ONE, f=text, i=text, b=of_bools)._replace(compares=True)


def _copysign_rule(g: Node, y: Node, a: Node, b: Node) -> tuple[Node, Node]:
    zero = eq(a, zeros_like(a))
    return where(zero, zeros_like(g), g * (y / a)), zeros_like(b)


def _numpy_shift(operator: str) -> Reference:
    def reference(arrays: list[Any], constants: dict[str, Any]) -> Any:
        return arrays[0] << arrays[1] if operator == "<<" else arrays[0] >> arrays[1]

    return reference


add = _binary("add", "a + b.", NUMBERS, lambda g, y, a, b: (g, g), "add",
              spelling=spelled(length=ONE, f="{a} + {b}", i="({V})({a} + {b})", b="({a} | {b})"),
              linear="sum", simplify=rules.simpler_add)
sub = _binary("sub", "a - b.", NUMBERS, lambda g, y, a, b: (g, -g), "subtract",
              spelling=spelled(length=ONE, f="{a} - {b}", i="({V})({a} - {b})"),
              linear="difference", simplify=rules.simpler_sub)
mul = _binary("mul", "a * b.", NUMBERS | UNSIGNED,
              lambda g, y, a, b: (g * conj(b), g * conj(a)), "multiply",
              spelling=spelled(length=ONE, f="{a} * {b}", i="({V})({a} * {b})", b="({a} & {b})"),
              linear="each", simplify=rules.simpler_mul)
div = _binary("div", "a / b, for floats and complex.", INEXACT,
              lambda g, y, a, b: (g / conj(b), -(g * conj(y / b))), "divide", cost=4,
              spelling=spelled(length=FEW, f="{a} / {b}"), linear="first",
              simplify=rules.simpler_div)
floor_div = _binary("floor_div", "a / b rounded down.", REALS, NOT_DIFFERENTIABLE,
                    "floor_divide", "integer pair", cost=6,
                    spelling=spelled(f="fb_floor_div_{A}({a}, {b})",
                                     i="fb_ifloordiv_{A}({a}, {b})"))
fmod = _binary("fmod", "Remainder with the sign of a.", REALS,
               lambda g, y, a, b: (g, -(g * trunc(a / b))), "fmod", cost=10,
               spelling=spelled(exact=True, f="fb_fmod_{A}({a}, {b})", i="fb_ifmod_{A}({a}, {b})"))
remainder = _binary("remainder", "Remainder with the sign of b.", REALS,
                    lambda g, y, a, b: (g, -(g * floor(a / b))), "remainder", cost=10,
                    spelling=spelled(f="fb_remainder_{A}({a}, {b})",
                                     i="fb_iremainder_{A}({a}, {b})"))
pow = _binary("pow", "a to the power b.", NUMBERS, _pow_rule, "power", "base and exponent", cost=25,
              spelling=spelled(f="fb_pow_{A}({a}, {b})", i="fb_ipow_{A}({a}, {b})"))
atan2 = _binary("atan2", "Angle of the point (b, a).", FLOATS, _atan2_rule, "arctan2", cost=20)
maximum = _binary("maximum", "Greater of a and b; NaN wins, then a.", REALS,
                  _extreme_rule(lambda a, b: lt(a, b)), "maximum",
                  spelling=_extreme_spelling("gt", "({a} | {b})"))
minimum = _binary("minimum", "Lesser of a and b; NaN wins, then a.", REALS,
                  _extreme_rule(lambda a, b: gt(a, b)), "minimum",
                  spelling=_extreme_spelling("lt", "({a} & {b})"))
copysign = _binary("copysign", "Magnitude of a with the sign of b.", FLOATS, _copysign_rule,
                   "copysign",
                   spelling=function("copysign", 2, exact=True, length=ONE))
nextafter = _binary("nextafter", "Next number after a towards b.", FLOATS, _nextafter_rule,
                    "nextafter")

# -------------------------------------------------------------------------------- comparison, logic

eq = _binary("eq", "a == b.", ALL, NOT_DIFFERENTIABLE, "equal", result="bool",
             spelling=_comparison("eq", "({V})(~({a} ^ {b}))"))
ne = _binary("ne", "a != b.", ALL, NOT_DIFFERENTIABLE, "not_equal", result="bool",
             spelling=_comparison("ne", "({a} ^ {b})"))
lt = _binary("lt", "a < b.", REALS | BOOL, NOT_DIFFERENTIABLE, "less", result="bool",
             spelling=_comparison("lt", "({V})(~{a} & {b})"))
le = _binary("le", "a <= b.", REALS | BOOL, NOT_DIFFERENTIABLE, "less_equal", result="bool",
             spelling=_comparison("le", "({V})(~{a} | {b})"))
gt = _binary("gt", "a > b.", REALS | BOOL, NOT_DIFFERENTIABLE, "greater", result="bool",
             spelling=_comparison("gt", "({V})({a} & ~{b})"))
ge = _binary("ge", "a >= b.", REALS | BOOL, NOT_DIFFERENTIABLE, "greater_equal", result="bool",
             spelling=_comparison("ge", "({V})({a} | ~{b})"))
bitwise_and = _binary("bitwise_and", "Bits set in both; logical for bool.", WHOLE | BOOL,
                      NOT_DIFFERENTIABLE, "bitwise_and", "integer pair",
                      spelling=spelled(length=ONE, i="({V})({a} & {b})", b="({a} & {b})"),
                      simplify=rules.simpler_and)
bitwise_or = _binary("bitwise_or", "Bits set in either; logical for bool.", WHOLE | BOOL,
                     NOT_DIFFERENTIABLE, "bitwise_or", "integer pair",
                     spelling=spelled(length=ONE, i="({V})({a} | {b})", b="({a} | {b})"),
                     simplify=rules.simpler_or)
bitwise_xor = _binary("bitwise_xor", "Bits set in just one; logical for bool.", WHOLE | BOOL,
                      NOT_DIFFERENTIABLE, "bitwise_xor", "integer pair",
                      spelling=spelled(length=ONE, i="({V})({a} ^ {b})", b="({a} ^ {b})"))
shift_left = _binary("shift_left", "a * 2**b, wrapping around.", INTEGERS, NOT_DIFFERENTIABLE,
                     _numpy_shift("<<"), "shifts",
                     spelling=spelled(i="fb_shl_{A}({a}, {b})"))
shift_right = _binary("shift_right", "a / 2**b rounded down.", INTEGERS, NOT_DIFFERENTIABLE,
                      _numpy_shift(">>"), "shifts",
                      spelling=spelled(i="fb_shr_{A}({a}, {b})"))
# fmt: on

# ------------------------------------------------------------------------------------ where


def _infer_where(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
    check_count("where", operands, 3)
    check_dtype("where", operands[0], BOOL)
    check_same("where", operands[1:])
    check_same("where", operands[:2], dtypes=False)
    return operands[1].dtype, operands[1].shape


def _where_rule(g: Node, y: Node, c: Node, a: Node, b: Node) -> tuple[None, Node, Node]:
    zero = zeros_like(g)
    return None, where(c, g, zero), where(c, zero, g)


def _where_samples() -> Iterator[tuple[list[Any], dict[str, Any]]]:
    yield [[True, False, True], [1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], {}


register(
    Primitive(
        "where",
        "pointwise",
        _infer_where,
        _where_rule,
        Spelling(dict.fromkeys("fibc", "fb_select_{V}({a}, {b}, {c})"), exact=True, length=ONE),
        reference=_ufunc("where"),
        samples=_where_samples,
        linear="choice",
        simplify=rules.simpler_where,
    )
)


def where(condition: Node, a: Node, b: Node) -> Node:
    """Elements of a where the condition holds, else of b."""
    return bind("where", condition, a, b)


# ------------------------------------------------------------------------------------ conversion


def _infer_cast(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
    check_count("cast", operands, 1)
    if constants["dtype"] not in ALL:
        raise TypeError(f"[cast] unknown dtype {constants['dtype']!r}\nhint: see ir.node.DTYPES")
    return constants["dtype"], operands[0].shape


def _infer_bitcast(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
    dtype, shape = _infer_cast(operands, constants)
    if ITEM_SIZE[dtype] != ITEM_SIZE[operands[0].dtype]:
        raise TypeError(
            f"[bitcast] sizes of elements differ: {operands[0].dtype} and {dtype}\n"
            "hint: reinterpret as a dtype of the same width"
        )
    return dtype, shape


def _cast_rule(g: Node, y: Node, x: Node) -> tuple[Node | None]:
    if x.dtype not in DIFFERENTIABLE:
        return (None,)
    if x.dtype in COMPLEX or g.dtype not in COMPLEX:
        return (cast(g, x.dtype),)
    return (cast(real(g), x.dtype),)


def _numpy_cast(arrays: list[Any], constants: dict[str, Any]) -> Any:
    import numpy

    x = arrays[0]
    if numpy.iscomplexobj(x) and constants["dtype"] not in COMPLEX and constants["dtype"] != "bool":
        x = x.real
    return x.astype(bool) if constants["dtype"] == "bool" else x  # the caller stores it as dtype


def _numpy_bitcast(arrays: list[Any], constants: dict[str, Any]) -> Any:
    names = dict(zip(ITEM_SIZE, "bool uint8 int8 int16 int32 int64 float16".split()))
    names |= {"f32": "float32", "f64": "float64", "c64": "complex64", "c128": "complex128"}
    return arrays[0].view(names[constants["dtype"]])


def _cast_samples() -> Iterator[tuple[list[Any], dict[str, Any]]]:
    yield [[1.7, -2.3, 0.0]], {"dtype": "i32"}
    yield [[1.7, -2.3, 0.0]], {"dtype": "f64"}
    yield [[1.7, -2.3, 0.0]], {"dtype": "bool"}
    yield [[True, False]], {"dtype": "f32"}


def _bitcast_samples() -> Iterator[tuple[list[Any], dict[str, Any]]]:
    yield [[1.7, -2.3, 0.0]], {"dtype": "i64"}


register(
    Primitive(
        "cast",
        "pointwise",
        _infer_cast,
        _cast_rule,
        Spelling(length=ONE, converts=True),
        reference=_numpy_cast,
        samples=_cast_samples,
        linear="each",
        simplify=rules.simpler_cast,
        same_elements=True,
    )
)
register(
    Primitive(
        "bitcast",
        "pointwise",
        _infer_bitcast,
        NOT_DIFFERENTIABLE,
        Spelling(length=FEW),
        reference=_numpy_bitcast,
        samples=_bitcast_samples,
    )
)


def cast(x: Node, dtype: str) -> Node:
    """Convert the values: floats to integers by truncation, anything to bool by `!= 0`."""
    return x if x.dtype == dtype else bind("cast", x, dtype=dtype)


def bitcast(x: Node, dtype: str) -> Node:
    """Reinterpret the bits as another dtype of the same width."""
    return x if x.dtype == dtype else bind("bitcast", x, dtype=dtype)
