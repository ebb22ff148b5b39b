"""float32 functions that compute in float64: simple formulas, and about half an ulp of error.

Each function is a *core* on float64 lanes, good to 1e-11 or better over the values of float32;
``widen`` wraps it for a number of float32 lanes. The rounding at the end is then the only error
that shows, also for overflow and subnormal results. The functions here are either rare in kernels
or so delicate that float32 would need pairs of floats throughout. Templates are as in
``cmath_float32``.
"""

from __future__ import annotations

from .cmath_float32 import TRIG_SLOW, polynomial


def wide_polynomial(variable: str, coefficients: list[float]) -> str:
    """``polynomial`` with float64 coefficients."""
    return polynomial(variable, coefficients, suffix="")


# exp(r) = 1 + r + r^2 q(r), |r| <= ln(2) / 2, relative error 1.6e-14.
_EXP = [
    0.49999999999590777,
    0.16666666666566962,
    0.041666666997022754,
    0.0083333333891582838,
    0.0013888806248226575,
    0.00019841162215967432,
    2.4882934724752261e-05,
    2.7644101063792012e-06,
]
# log((1 + s) / (1 - s)) = 2 s + s^3 p(s^2), |s| < 0.172, 5e-18.
_LOG = [
    0.66666666666667262,
    0.39999999999474289,
    0.28571428729931186,
    0.22222199805948331,
    0.18183501817872749,
    0.15315621157562187,
    0.14780393668025013,
]
_SIN = [
    -0.16666666666666688,
    0.0083333333333258722,
    -0.0001984126982946407,
    2.7557313100533576e-06,
    -2.5050631006224933e-08,
    1.5888478793714055e-10,
]
_COS = [
    0.041666666666602251,
    -0.0013888888878274641,
    2.4801580971491573e-05,
    -2.7555567028571478e-07,
    2.0647727290294827e-09,
]
# atan(t) = t + t^3 p(t^2), |t| <= tan(pi / 8), 2.7e-14.
_ATAN = [
    -0.33333333331692205,
    0.19999999684796682,
    -0.14285693550243753,
    0.11110448791855056,
    -0.090791211675259914,
    0.075684161837229133,
    -0.058905775498153186,
    0.030887174383314085,
]
# erf(x) / x in x^2, |x| < 1, 8e-13; erfc(x) exp(x^2) (x + 3) in (x - 3) / (x + 3), 3e-12.
_ERF = [
    1.1283791670947165,
    -0.37612638890115985,
    0.11283791318569138,
    -0.02686613402721932,
    0.0052237865767122598,
    -0.00085427039334694396,
    0.00011957340144880581,
    -1.3914116964235441e-05,
    1.060130636033627e-06,
]
_ERFC = [
    1.0740069070901916,
    -0.88339445310489306,
    0.59022835655856676,
    -0.31046726731745722,
    0.11952778696260193,
    -0.026827108353008149,
    -0.001212856215268651,
    0.0030328481932901576,
    -0.00054490371889577159,
    -0.00027148671375492673,
    9.5265699824803159e-05,
    2.0765027987779132e-05,
]
# erfinv(x) / x in w - 2.5, w = -log(1 - x^2) < 5, 2.3e-11; beyond, in sqrt(w) - 3, 2.2e-9.
ERFINV_CENTRE = [
    1.501409351137615,
    0.24664027676932887,
    -0.004177318127278405,
    -0.0012527080247481984,
    0.0002182512548155131,
    -4.9959402562456542e-06,
    -3.4175365488791883e-06,
    4.7866825673155209e-07,
    1.3823677741923045e-08,
    -1.0858415562396764e-08,
    8.1362781821427279e-10,
    1.2327645529881668e-10,
    -2.0173478339844228e-11,
]
_ERFINV_TAIL = [
    2.832976802310037,
    1.0016752100731028,
    0.0094452491143631207,
    -0.0076421963777778745,
    0.0056880948134875589,
    -0.0035704580940023865,
    0.001474840496714654,
    -0.00011247782703828481,
    -0.00027981054459768793,
    0.00015478691013753179,
    -2.6245245792535444e-05,
]
# lgamma(2 + t) / t, |t| <= 1/2, 7e-20.
_LGAMMA = [
    0.42278433509846713,
    0.3224670334241132,
    -0.06735230105319814,
    0.02058080842778457,
    -0.0073855510286681535,
    0.002890510330738737,
    -0.0011927539120010226,
    0.0005096695248853096,
    -0.00022315475074520367,
    9.945750909889392e-05,
    -4.4926351103833334e-05,
    2.050726741605779e-05,
    -9.438458716242811e-06,
    4.374374916915131e-06,
    -2.0449201467015115e-06,
    9.578663334114758e-07,
    -4.303558760359961e-07,
    2.0304806751615227e-07,
    -1.3412819758517287e-07,
    6.379047507619774e-08,
]
# Stirling's series of lgamma and digamma in 1 / x^2 (Bernoulli numbers).
_LGAMMA_TAIL = [
    1 / 12,
    -1 / 360,
    1 / 1260,
    -1 / 1680,
    1 / 1188,
    -691 / 360360,
    1 / 156,
    -3617 / 122400,
]
_DIGAMMA_TAIL = [1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12]
# sin(pi f) / f and cos(pi f) / (1/4 - f^2) in f^2, |f| <= 1/2, 1e-18.
_SIN_PI = [
    3.141592653589793,
    -5.167712780049969,
    2.5501640398773007,
    -0.5992645293189447,
    0.0821458865731029,
    -0.007370430505916944,
    0.0004662998161898394,
    -2.1903497074626018e-05,
    7.697826768224191e-07,
]
_COS_PI = [
    4.0,
    -3.7392088021787173,
    1.278013296952197,
    -0.22899788760925296,
    0.025330970991448813,
    -0.0019036815015743397,
    0.00010357048777536892,
    -4.2667403881989305e-06,
    1.3391546772153723e-07,
]

_EXP_REDUCE = """\
  F c = SEL(GT(x, K(300.0)), K(300.0), x);
  c = SEL(LT(c, K(-300.0)), K(-300.0), c);
  F j = FMA(c, K(1.4426950408889634), K(6755399441055744.0));
  F n = j - 6755399441055744.0;
  F r = FMA(n, K(-0.6931471805599453), c);
  r = FMA(n, K(-2.3190468138462996e-17), r);
  F scale = AS_F((AS_U(j) - 0x4337fffffffffc01ull) << 52);
"""

_EXP_CORE = (
    "static inline F FN(core_exp)(F x) {\n"
    + _EXP_REDUCE
    + f"  return (FMA(r * r, {wide_polynomial('r', _EXP)}, r) + 1.0) * scale;\n}}\n"
)
_EXPM1_CORE = (
    "static inline F FN(core_expm1)(F x) {\n"
    + _EXP_REDUCE
    + f"  F t = FMA(r * r, {wide_polynomial('r', _EXP)}, r);\n"
    + "  return FMA(t, scale, scale - 1.0);\n}\n"
)

_LOG_SERIES = f"""\
  F s = f / (f + 2.0), z = s * s;
  F y = FMA(s * z, {wide_polynomial("z", _LOG)}, s * 2.0);
  y = FMA(e, K(0.6931471805599453), y);
"""
# No subnormals: float32 has none in float64. Infinities and NaN pass.
_LOG_CORE = (
    """\
static inline F FN(core_log)(F x) {
  U bits = AS_U(x) - 0x3fe6a09e00000000ull;
  F e = TO_F(AS_I(bits) >> 52);
  F f = AS_F((bits & 0xfffffffffffffull) + 0x3fe6a09e00000000ull) - 1.0;
"""
    + _LOG_SERIES
    + """\
  y = SEL(LT(x, K(__builtin_inf())), y, x);
  y = SEL(LT(x, K(0.0)), K(__builtin_nan("")), y);
  return SEL(EQ(x, K(0.0)), K(-__builtin_inf()), y);
}
"""
)
_LOG1P_CORE = (
    """\
static inline F FN(core_log1p)(F x) {
  I k = AS_I(AS_U(x + 1.0) - 0x3fe6a09e00000000ull) >> 52;
  F e = TO_F(k), scale = AS_F(AS_U(1023 - k) << 52);
  F f = FMA(x, scale, scale - 1.0);
"""
    + _LOG_SERIES
    + """\
  y = SEL(LT(x, K(__builtin_inf())), y, x);
  return SEL(LT(x, K(-1.0)), K(__builtin_nan("")), y);
}
"""
)

# One division, on [0, tan(pi / 8)]: octants are folded as (n - d) / (n + d) and d / n. Infinities
# become 1e300, far above float32, so that inf / inf is 1.
_ATAN2_CORE = (
    """\
static inline F FN(core_atan2)(F y, F x) {
  F a = ABS(y), b = ABS(x);
  a = SEL(GT(a, K(1e300)), K(1e300), a);
  b = SEL(GT(b, K(1e300)), K(1e300), b);
  I steep = GT(a, b);
  F n = SEL(steep, b, a), d = SEL(steep, a, b);
  I middle = GT(n, d * 0.41421356237309503);
  F top = SEL(middle, n - d, n), bottom = SEL(middle, n + d, d);
  F t = top / SEL(EQ(bottom, K(0.0)), K(1.0), bottom), z = t * t;
"""
    + f"  F angle = FMA(t * z, {wide_polynomial('z', _ATAN)}, t);\n"
    + """\
  angle = angle + SEL(middle, K(0.78539816339744828), K(0.0));
  angle = SEL(steep, K(1.5707963267948966) - angle, angle);
  angle = SEL(LT(COPYSIGN(K(1.0), x), K(0.0)), K(3.1415926535897931) - angle, angle);
  return COPYSIGN(angle, y);
}
"""
)
_ATAN_CORE = "static inline F FN(core_atan)(F x) { return FN(core_atan2)(x, K(1.0)); }\n"
_ASIN_CORE = """\
static inline F FN(core_asin)(F x) {
  return FN(core_atan2)(x, SQRT((K(1.0) - x) * (x + 1.0)));
}
"""
_ACOS_CORE = """\
static inline F FN(core_acos)(F x) {
  return FN(core_atan2)(SQRT((K(1.0) - x) * (x + 1.0)), x);
}
"""

_TAN_CORE = (
    TRIG_SLOW
    + """\
static inline F FN(core_tan)(F x) {
  F a = ABS(x);
  F j = FMA(a, K(0.63661977236758138), K(6755399441055744.0));
  F n = j - 6755399441055744.0;
  F r = FMA(n, K(-1.5707963267948966), a);
  r = FMA(n, K(-6.123233995736766e-17), r);
  I q = AS_I(j), huge = GT(a, K(1e8));
  if (__builtin_expect(ANY(huge), 0)) {
    EACH_LANE {
      if (LANE(huge)) {
        double remainder;
        LANE(q) = fb_trig_slow_f32((float)LANE(a), &remainder);
        LANE(r) = remainder;
      }
    }
  }
  F z = r * r;
"""
    + f"  F sine = FMA(r * z, {wide_polynomial('z', _SIN)}, r);\n"
    + f"  F cosine = FMA(z * z, {wide_polynomial('z', _COS)}, FMA(z, K(-0.5), K(1.0)));\n"
    + """\
  I odd = AS_I(0ull - (AS_U(q) & 1ull));
  F y = SEL(odd, -cosine, sine) / SEL(odd, sine, cosine);
  return AS_F(AS_U(y) ^ (AS_U(x) & 0x8000000000000000ull));
}
"""
)

_SINH_CORE = """\
static inline F FN(core_sinh)(F x) {
  F a = ABS(x), e = FN(core_expm1)(a);
  return COPYSIGN((e + e / (e + 1.0)) * 0.5, x);
}
"""
_COSH_CORE = """\
static inline F FN(core_cosh)(F x) {
  F e = FN(core_exp)(ABS(x));
  return (e + K(1.0) / e) * 0.5;
}
"""
_ASINH_CORE = """\
static inline F FN(core_asinh)(F x) {
  F a = ABS(x);
  F bounded = SEL(GT(a, K(1e39)), K(1e39), a), square = bounded * bounded;
  F y = FN(core_log1p)(bounded + square / (SQRT(square + 1.0) + 1.0));
  return COPYSIGN(SEL(EQ(a, K(__builtin_inf())), a, y), x);
}
"""
_ACOSH_CORE = """\
static inline F FN(core_acosh)(F x) {
  F t = x - 1.0;
  F y = FN(core_log1p)(t + SQRT(t * (x + 1.0)));
  return SEL(LT(x, K(1.0)), K(__builtin_nan("")), y);
}
"""
_ATANH_CORE = """\
static inline F FN(core_atanh)(F x) {
  F a = ABS(x);
  return COPYSIGN(FN(core_log1p)(a * 2.0 / (K(1.0) - a)) * 0.5, x);
}
"""

_ERFC_CORE = (
    """\
static inline F FN(core_erfc)(F x) {
  F a = ABS(x);
  a = SEL(GT(a, K(10.2)), K(10.2), a);
  F square = a * a, t = (a - 3.0) / (a + 3.0);
"""
    + f"  F small = FMA(-x, {wide_polynomial('square', _ERF)}, K(1.0));\n"
    + f"  F large = {wide_polynomial('t', _ERFC)} / (a + 3.0) * FN(core_exp)(-square);\n"
    + """\
  large = SEL(LT(x, K(0.0)), K(2.0) - large, large);
  return SEL(LT(a, K(1.0)), small, large);
}
"""
)
_ERFINV_CORE = (
    """\
static inline F FN(core_erfinv)(F x) {
  F a = ABS(x);
  F w = -FN(core_log)((K(1.0) - a) * (a + 1.0));
  F u = w - 2.5, v = SQRT(SEL(LT(w, K(5.0)), K(5.0), w)) - 3.0;
"""
    + f"  F centre = {wide_polynomial('u', ERFINV_CENTRE)};\n"
    + f"  F tail = {wide_polynomial('v', _ERFINV_TAIL)};\n"
    + """\
  F y = x * SEL(LT(w, K(5.0)), centre, tail);
  return SEL(EQ(a, K(1.0)), COPYSIGN(K(__builtin_inf()), x), y);
}
"""
)

# C99 F.9.4.4; x and y hold float32 values.
_POW_CORE = """\
static inline F FN(core_pow)(F x, F y) {
  F a = ABS(x);
  F p = FN(core_exp)(y * FN(core_log)(a));
  I whole = EQ(RINT(y), y);
  I odd = whole & NE(RINT(y * 0.5) * 2.0, y);
  I finite_negative = LT(x, K(0.0)) & GT(x, K(-__builtin_inf()));
  p = SEL(finite_negative & ~whole, K(__builtin_nan("")), p);
  p = AS_F(AS_U(p) ^ (AS_U(x) & AS_U(odd) & 0x8000000000000000ull));
  I one = EQ(y, K(0.0)) | EQ(x, K(1.0)) | (EQ(a, K(1.0)) & EQ(ABS(y), K(__builtin_inf())));
  return SEL(one, K(1.0), p);
}
"""

# a < 6.5 is moved to y in [1.5, 2.5) by the recurrence, where the zeros at 1 and 2 are exact
# factors; above, Stirling's series. For x < 0, the reflection through sin(pi x).
_LGAMMA_CORE = (
    """\
static inline F FN(core_lgamma)(F x) {
  F a = ABS(x);
  I large = GE(a, K(6.5));
  I below = LT(a, K(1.5)), tiny = LT(a, K(0.5));
  F y = SEL(large, K(2.0), a), product = K(1.0);
  product = SEL(below, K(1.0) / SEL(tiny, a * (a + 1.0), a), product);
  y = SEL(below, SEL(tiny, a + 2.0, a + 1.0), y);
  for (int step = 0; step < 4; ++step) {
    I above = GE(y, K(2.5));
    y = SEL(above, y - 1.0, y);
    product = SEL(above, product * y, product);
  }
  F t = y - 2.0, inverse = K(1.0) / a, z = inverse * inverse;
  F log_part = FN(core_log)(SEL(large, a, product));
"""
    + f"  F near = FMA(t, {wide_polynomial('t', _LGAMMA)}, log_part);\n"
    + f"  F tail = FMA(inverse, {wide_polynomial('z', _LGAMMA_TAIL)}, K(0.9189385332046728));\n"
    + """\
  F far = FMA(a - 0.5, log_part, tail - a);
  far = SEL(GT(a, K(1e300)), a, far);
  F y_positive = SEL(large, far, near);
  F f = a - RINT(a), square = f * f;
"""
    + f"  F sine = ABS(f * {wide_polynomial('square', _SIN_PI)});\n"
    + """\
  F reflected = FN(core_log)(K(3.1415926535897931) / (a * sine)) - y_positive;
  reflected = SEL(GT(a, K(1e300)), a, reflected);
  return SEL(LT(x, K(0.0)), reflected, y_positive);
}
"""
)

# psi(a) by the asymptotic series at a + 10 for a < 10, less sum 1 / (a + k) as one fraction;
# psi(-a) = psi(a) + 1 / a + pi / tan(pi a).
_DIGAMMA_CORE = (
    """\
static inline F FN(core_digamma)(F x) {
  F a = ABS(x);
  I shifted = LT(a, K(10.0));
  F b = SEL(shifted, a, K(1.0)), numerator = K(1.0), denominator = b;
  for (int k = 1; k < 10; ++k) {
    F term = b + (double)k;
    numerator = FMA(numerator, term, denominator);
    denominator = denominator * term;
  }
  F shift = SEL(shifted, numerator / denominator, K(0.0));
  F c = SEL(shifted, a + 10.0, a), inverse = K(1.0) / c, z = inverse * inverse;
"""
    + f"  F series = FMA(z, {wide_polynomial('z', _DIGAMMA_TAIL)}, inverse * 0.5);\n"
    + """\
  F y = (FN(core_log)(c) - series) - shift;
  F f = a - RINT(a), square = f * f;
"""
    + f"  F sine = f * {wide_polynomial('square', _SIN_PI)};\n"
    + f"  F cosine = (K(0.25) - square) * {wide_polynomial('square', _COS_PI)};\n"
    + """\
  F reflected = (y + K(1.0) / a) + K(3.1415926535897931) * cosine / sine;
  reflected = SEL(EQ(f, K(0.0)) | EQ(a, K(__builtin_inf())), K(__builtin_nan("")), reflected);
  y = SEL(LT(x, K(0.0)), reflected, y);
  return SEL(EQ(x, K(0.0)), COPYSIGN(K(__builtin_inf()), -x), y);
}
"""
)

_CORES: dict[str, tuple[tuple[str, ...], str]] = {
    "exp": ((), _EXP_CORE),
    "expm1": ((), _EXPM1_CORE),
    "log": ((), _LOG_CORE),
    "log1p": ((), _LOG1P_CORE),
    "atan2": ((), _ATAN2_CORE),
    "atan": (("atan2",), _ATAN_CORE),
    "asin": (("atan2",), _ASIN_CORE),
    "acos": (("atan2",), _ACOS_CORE),
    "tan": ((), _TAN_CORE),
    "sinh": (("expm1",), _SINH_CORE),
    "cosh": (("exp",), _COSH_CORE),
    "asinh": (("log1p",), _ASINH_CORE),
    "acosh": (("log1p",), _ACOSH_CORE),
    "atanh": (("log1p",), _ATANH_CORE),
    "erfc": (("exp",), _ERFC_CORE),
    "erfinv": (("log",), _ERFINV_CORE),
    "pow": (("exp", "log"), _POW_CORE),
    "lgamma": (("log",), _LGAMMA_CORE),
    "digamma": (("log",), _DIGAMMA_CORE),
}

WIDE = frozenset("atan2 atan asin acos tan sinh cosh asinh acosh atanh erfc".split()) | {
    "erfinv",
    "pow",
    "lgamma",
    "digamma",
}
"""Names of the float32 functions that ``widen`` makes."""


def core(name: str) -> str:
    """Template of a core with the cores it calls; each is guarded, and so emitted once."""
    needed, text = _CORES[name]
    guard = f"FB_GUARD(core_{name})"
    own = f"#ifndef {guard}\n#define {guard}\n{text}#endif\n"
    return "".join(core(other) for other in needed) + own


def core_lanes(lanes: int) -> int:
    """Lanes of the core of a function of ``lanes`` float32: registers of the same width."""
    return max(1, lanes // 2)


def widen(name: str, arguments: int, lanes: int) -> str:
    """Template (in float32) of ``name``, calling its core on half as many lanes at a time."""
    width = core_lanes(lanes)
    narrow, wide = f"f32x{width}", f"f64x{width}"
    names = ("x", "y")[:arguments]
    parameters = ", ".join(f"F {argument}" for argument in names)
    call = f"fb_one_nan_{narrow}(fb_to_{narrow}(fb_core_{name}_{wide}({{}})))"
    if lanes == 1:
        values = ", ".join(f"fb_to_{wide}({argument})" for argument in names)
        return f"static inline F FN({name})({parameters}) {{ return {call.format(values)}; }}\n"
    unions = " ".join(
        f"union {{ F all; {narrow} half[2]; }} {argument}s = {{ {argument} }};"
        for argument in names
    )
    halves = "".join(
        f"  xs.half[{i}] = "
        + call.format(", ".join(f"fb_to_{wide}({argument}s.half[{i}])" for argument in names))
        + ";\n"
        for i in (0, 1)
    )
    return (
        f"static inline F FN({name})({parameters}) {{\n  {unions}\n{halves}  return xs.all;\n}}\n"
    )
