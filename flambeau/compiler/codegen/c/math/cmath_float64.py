"""float64 elementary functions, and the exact functions of both precisions.

Most float64 functions call the C library once per lane: within 2 ulp (glibc's lgamma 4, its erfc
5), and the same bits for any lane count. What the library lacks or rounds worse (erfinv, digamma,
sigmoid, tanh, rsqrt) is written here. The *exact* functions (rounding, fmod, nextafter) have one
right answer, however it is computed.
"""

from __future__ import annotations

from .cmath_wide import ERFINV_CENTRE, core, wide_polynomial

_LIBRARY = frozenset(
    "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh asinh acosh "
    "atanh erf erfc atan2 pow".split()
)

# lgamma_r, since lgamma writes the sign to a global that threads would share.
_LGAMMA = """\
extern double lgamma_r(double, int *);
static inline F FN(lgamma)(F x) {
  F y;
  int sign;
  EACH_LANE LANE(y) = lgamma_r(LANE(x), &sign);
  return ONE_NAN(y);
}
"""

# Both quotients are corrected by their residual, which counts the rounding of the divisor too.
_CORRECTED = """\
  F q = n / d;
  q = q + FMA(-q, d_low, FMA(-q, d, n)) / d;
"""

_SIGMOID = (
    """\
extern double exp(double);
static inline F FN(sigmoid)(F x) {
  F e;
  EACH_LANE LANE(e) = exp(-__builtin_fabs(LANE(x)));
  F n = SEL(LT(x, K(0.0)), e, K(1.0)), d = e + 1.0, d_low = (K(1.0) - d) + e;
"""
    + _CORRECTED
    + "  return ONE_NAN(q);\n}\n"
)

# With e = exp(-2|x|) - 1, tanh|x| = -e / (2 + e): closer than the C library's 2 ulp.
_TANH = (
    """\
extern double expm1(double);
static inline F FN(tanh)(F x) {
  F e;
  EACH_LANE LANE(e) = expm1(-2.0 * __builtin_fabs(LANE(x)));
  F n = -e, d = e + 2.0, d_low = (K(2.0) - d) + e;
"""
    + _CORRECTED
    + "  return ONE_NAN(COPYSIGN(q, x));\n}\n"
)

_RSQRT = "static inline F FN(rsqrt)(F x) { return ONE_NAN(K(1.0) / SQRT(x)); }\n"

# digamma(2 + t) / (2 + t - root), |t| <= 1, 1e-18; the root in two doubles.
_DIGAMMA_NEAR = [
    0.7853075386041053,
    -0.26073895468300085,
    0.10899991701762815,
    -0.049551032917745826,
    0.02344730959760139,
    -0.011338432550277753,
    0.005552254174526186,
    -0.0027395729429329422,
    0.0013581421476875015,
    -0.0006753127085218515,
    0.0003364327195465597,
    -0.00016781978030629567,
    8.377787676220672e-05,
    -4.182492865527941e-05,
    2.089802780670172e-05,
    -1.0509526063726006e-05,
    5.253172898961469e-06,
    -2.4781719030311023e-06,
    1.238910144497479e-06,
    -8.580896982578119e-07,
    4.290253291489252e-07,
    5.8285994586065274e-08,
    -2.9145119207885333e-08,
    -2.0107270819670245e-07,
    1.0053608396456935e-07,
    6.186795491568026e-08,
    -3.093398948520762e-08,
    -1.903635721105846e-08,
    9.518171739147029e-09,
]

# The core is made for float32: near the positive zero it loses relative accuracy. Here (0, 1) is
# moved up by one. Below zero, where zeros lie between the poles, the error stays absolute.
_DIGAMMA = f"""\
static inline F FN(digamma)(F x) {{
  I below = LT(x, K(1.0));
  F t = x - SEL(below, K(1.0), K(2.0));
  F near = ((t + (2.0 - 1.4616321449683622)) - 9.549995429965697e-17)
    * {wide_polynomial("t", _DIGAMMA_NEAR)};
  near = near - SEL(below, K(1.0) / x, K(0.0));
  return ONE_NAN(SEL(GT(x, K(0.0)) & LE(x, K(3.0)), near, FN(core_digamma)(x)));
}}
"""

# erfinv(x) / x in sqrt(w) - 4, 5e-7: the start of an iteration, good for w up to 38.
_ERFINV_TAIL = [
    3.8397841812140898,
    1.0095050338234965,
    0.0012562542502815557,
    -0.00092855795037541085,
    0.00033143605717521823,
    -3.441644522689679e-05,
    3.7842942179437104e-05,
    -7.8410810756427261e-05,
    3.2753149243728551e-05,
    1.249373265534136e-07,
    -1.4772648838366418e-06,
]


def _scalar_polynomial(variable: str, coefficients: list[float]) -> str:
    text = repr(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        text = f"__builtin_fma({text}, {variable}, {coefficient!r})"
    return text


# One step of Halley's method cubes the error of the start. 1 - |x| is exact from 1/2 on.
_ERFINV = f"""\
extern double log(double);
extern double exp(double);
extern double erf(double);
extern double erfc(double);
#ifndef FB_ERFINV_F64
#define FB_ERFINV_F64
static double fb_erfinv_scalar_f64(double x) {{
  double a = __builtin_fabs(x);
  if (!(a < 1.0)) return a == 1.0 ? x * __builtin_inf() : (x - x) / (x - x);
  double w = -log((1.0 - a) * (1.0 + a)), u = w - 2.5;
  double v = (w > 5.0 ? __builtin_sqrt(w) : 2.5) - 4.0;
  double y = a * (w > 5.0 ? {_scalar_polynomial("v", _ERFINV_TAIL)}
                          : {_scalar_polynomial("u", ERFINV_CENTRE)});
  double excess = a < 0.5 ? erf(y) - a : (1.0 - a) - erfc(y);
  double step = excess / (1.1283791670955126 * exp(-y * y));
  y -= step / (1.0 + y * step);
  return __builtin_copysign(y, x);
}}
#endif
static inline F FN(erfinv)(F x) {{
  F y;
  EACH_LANE LANE(y) = fb_erfinv_scalar_f64(LANE(x));
  return ONE_NAN(y);
}}
"""

_TEXTS = {
    "lgamma": _LGAMMA,
    "sigmoid": _SIGMOID,
    "tanh": _TANH,
    "rsqrt": _RSQRT,
    "erfinv": _ERFINV,
}

# For quotients below 2^LIMIT the division finds the quotient or one more, and the remainder is
# exact; the rest of the lanes go to the C library, whose result is the same by definition.
_FMOD = """\
extern SCALAR CALL(SCALAR, SCALAR);
static inline F FN(fmod)(F x, F y) {
  F a = ABS(x), b = ABS(y);
  F quotient = TRUNC(a / b);
  F r = FMA(-quotient, b, a);
  r = SEL(LT(r, K(0)), r + b, r);
  I fast = LT(a, b * LIMIT) & LT(b, K(1e30f));
  if (__builtin_expect(ANY(~fast), 0)) {
    EACH_LANE {
      if (!LANE(fast)) LANE(r) = CALL(LANE(a), LANE(b));
    }
  }
  return ONE_NAN(COPYSIGN(r, x));
}
"""

_FMOD_NAMES = {
    "f32": ("float", "fmodf", "4194304.0f"),
    "f64": ("double", "fmod", "1125899906842624.0"),
}

# Steps the bit pattern; zero goes to the smallest subnormal of y's sign.
_NEXTAFTER = """\
static inline F FN(nextafter)(F x, F y) {
  I toward_zero = LT(ABS(y), ABS(x)) | NE(COPYSIGN(K(1), x), COPYSIGN(K(1), y));
  U bits = AS_U(x);
  F next = AS_F(bits + AS_U(toward_zero | 1));
  next = SEL(EQ(x, K(0)), COPYSIGN(AS_F((bits & 0u) + 1u), y), next);
  next = SEL(EQ(x, y), y, next);
  return ONE_NAN(SEL(NE(x, x) | NE(y, y), x + y, next));
}
"""


def float64_template(name: str, arguments: int) -> str:
    """Template of a float64 function."""
    if name in _LIBRARY:
        return _library_calls(name, arguments)
    if name == "digamma":
        return core(name) + _DIGAMMA
    return _TEXTS.get(name) or exact_template(name, arguments, "f64")


def exact_template(name: str, arguments: int, dtype: str) -> str:
    """Template of a function whose result is exact, in either precision."""
    if name == "fmod":
        scalar, call, limit = _FMOD_NAMES[dtype]
        return _FMOD.replace("SCALAR", scalar).replace("CALL", call).replace("LIMIT", limit)
    if name == "nextafter":
        return _NEXTAFTER
    # The prelude already defines sqrt and the roundings.
    return ""


def _library_calls(name: str, arguments: int) -> str:
    names = ("x", "y")[:arguments]
    prototype = ", ".join("double" for _ in names)
    parameters = ", ".join(f"F {argument}" for argument in names)
    values = ", ".join(f"LANE({argument})" for argument in names)
    return (
        f"extern double {name}({prototype});\n"
        f"static inline F FN({name})({parameters}) {{\n"
        f"  F r;\n  EACH_LANE LANE(r) = {name}({values});\n  return ONE_NAN(r);\n}}\n"
    )
