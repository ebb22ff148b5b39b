"""float32 elementary functions that compute in float32: the ones kernels spend their time in.

Each text is a template in C whose capital tokens ``cmath.function_source`` resolves for a lane
count (``F``/``I``/``U`` are the float, signed and unsigned vector types, ``K`` splats a constant,
``SEL`` blends by a mask). The arithmetic of a lane never depends on its neighbours. Polynomials
are minimax fits, their coefficients rounded to float32 one after another, the rest refitted each
time. Where a plain evaluation would lose more than an ulp, the low part of a sum is kept
("fast two-sum": for |a| >= |b|, ``s = a + b`` has the exact error ``(a - s) + b``).
"""

from __future__ import annotations


def blended_polynomial(mask: str, variable: str, first: list[float], second: list[float]) -> str:
    """One polynomial whose coefficients are ``first`` where ``mask`` is set, else ``second``.

    Processors blend in units that multiply-adds leave idle, so this beats two polynomials.
    """
    terms = [f"SEL({mask}, K({a!r}f), K({b!r}f))" for a, b in zip(first, second, strict=True)]
    text = terms[-1]
    for term in reversed(terms[:-1]):
        text = f"FMA({text}, {variable}, {term})"
    return text


def polynomial(variable: str, coefficients: list[float], suffix: str = "f") -> str:
    """Horner's scheme in fused multiply-adds; ``coefficients`` from the constant term up."""
    text = f"K({coefficients[-1]!r}{suffix})"
    for coefficient in reversed(coefficients[:-1]):
        text = f"FMA({text}, {variable}, K({coefficient!r}{suffix}))"
    return text


def paired_polynomial(variable: str, square: str, coefficients: list[float]) -> str:
    """As ``polynomial``, but pairs of terms in powers of the square: a shorter chain."""
    pairs = [polynomial(variable, coefficients[i : i + 2]) for i in range(0, len(coefficients), 2)]
    text = pairs[-1]
    for pair in reversed(pairs[:-1]):
        text = f"FMA({text}, {square}, {pair})"
    return text


# exp(r) = 1 + r + r^2 q(r), |r| <= ln(2) / 2, relative error 3.3e-9.
_EXP = [0.5, 0.166665182, 0.0416663848, 0.00836902112, 0.00139422424]
# 2^r = 1 + r q(r), |r| <= 1/2, 3.1e-9.
_EXP2 = [0.693147182, 0.240226507, 0.0555035956, 0.00961806253, 0.00133909844, 0.000154628826]
# log(1 + f) = f - f^2 / 2 + f^3 p(f), sqrt(1/2) <= 1 + f < sqrt(2), 7.7e-10.
_LOG = [
    0.333333135,
    -0.250000089,
    0.20002073,
    -0.166679934,
    0.142203137,
    -0.124060787,
    0.118837997,
    -0.116713911,
    0.067503266,
]
# 1 - exp(-r) = r + r^2 q(r) and (exp(2 r) - 1) / 2 = r + r^2 q(r), from exp's q.
_EXP_FALL = [-coefficient * (-1) ** i for i, coefficient in enumerate(_EXP)]
_EXP_TWICE = [coefficient * 2.0 ** (i + 1) for i, coefficient in enumerate(_EXP)]
# tanh(x) = x + x^3 p(x^2), |x| < 0.6, 2.7e-9.
_TANH = [-0.333333, 0.13331936, -0.053784624, 0.020797873, -0.0058965203]
# erf(x) = x + x p(x^2), |x| < 0.75, 1.6e-9; erf(x) = 1 - exp(-(x + x p(x))) above, 3.4e-9.
_ERF_SMALL = [0.12837917, -0.3761262, 0.11283379, -0.026834335, 0.005113157, -0.0006737584]
_ERF_LARGE = [0.1285349, 0.6356476, 0.10535658, -0.022951638, 0.0032344584, -0.00021638117]
# sin(r) = r + r z p(z) and cos(r) = 1 + z p(z), z = r^2, |r| < 0.792, 1.6e-10 and 1.1e-10.
_SIN = [-0.166666672, 0.0083333794, -0.000198530033, 2.83121199e-06]
_COS = [-0.5, 0.0416666456, -0.00138873013, 2.44306684e-05]


def reduce_exp(variable: str, bias: int) -> str:
    """``r = variable - n ln 2`` with ln 2 in two floats, and ``j``, of which ``bias + n`` is part.

    j holds the rounded quotient n in the low bits of its mantissa (1.5 * 2^23 + bias + n). The
    first product cancels exactly, so r is good to its last bit. With a bias of 127, the bits of
    j shifted left by 23 are those of 2^n.
    """
    magic = f"K({12582912.0 + bias}f)"
    return f"""\
  F j = FMA({variable}, K(1.44269502f), {magic});
  F n = j - {magic};
  F r = FMA(n, K(-0.693147182f), {variable});
  r = FMA(n, K(1.90465430e-9f), r);
"""


# 2^n in two factors, so that overflow and gradual underflow happen in one final rounding. The
# bits of j are 0x4b400000 + n + 254, and nothing of the first term survives the shifts.
_SCALE = """\
  U half = AS_U(j) >> 1;
  F low_scale = AS_F(half << 23);
  F high_scale = AS_F((AS_U(j) - half) << 23);
"""

_EXP_TEXT = (
    """\
static inline F FN(exp)(F x) {
  F c = MAX(K(-104.0f), MIN(K(89.0f), x));
"""
    + reduce_exp("c", bias=254)
    + _SCALE
    + f"  F t = FMA(r * r, {polynomial('r', _EXP)}, r);\n"
    + "  return FMA(low_scale, t, low_scale) * high_scale;\n}\n"
)

_EXP2_TEXT = (
    """\
static inline F FN(exp2)(F x) {
  F c = MAX(K(-151.0f), MIN(K(129.0f), x));
  F j = c + 12583166.0f;
  F r = c - (j - 12583166.0f);
"""
    + _SCALE
    + f"  F p = FMA(r, {polynomial('r', _EXP2)}, K(1.0f));\n"
    + "  return p * low_scale * high_scale;\n}\n"
)

# 2^n (1 + t) - 1 = (2^n - 1) + 2^n t; the low parts of t and of the sum are added last.
# 2^n (1 + t) - 1, halved so that n = 128 stays finite, as (s - 1/2) + s t with its low parts.
_EXPM1_TEXT = (
    """\
static inline F FN(expm1)(F x) {
  F c = MAX(K(-18.0f), MIN(K(89.0f), x));
"""
    + reduce_exp("c", bias=126)
    + f"  F w = r * r * {polynomial('r', _EXP)};\n"
    + """\
  F t = r + w, t_low = (r - t) + w;
  F s = AS_F(AS_U(j) << 23);
  F base = s - 0.5f, base_low = (s - base) - 0.5f;
  F high = FMA(s, t, base);
  F low = FMA(s, t_low, FMA(s, t, base - high) + base_low);
  F y = (high + low) * 2.0f;
  return SEL(LT(ABS(x), K(1.4901161e-8f)), x, y);
}
"""
)

# Below 0.6 the odd series, and above 1 - 2 / (1 + exp(2 |x|)), whose error shrinks with the
# quotient; both are u + u^2 p, and one polynomial serves both.
_TANH_TEXT = (
    """\
static inline F FN(tanh)(F x) {
  F a = MIN(K(10.0f), ABS(x));
  I small = LT(a, K(0.6f));
  F j = FMA(a, K(2.88539004f), K(12583039.0f));
  F n = j - 12583039.0f;
  F u = SEL(small, a, FMA(n, K(-0.346573591f), a));
  F square = u * u, v = SEL(small, square, u);
"""
    + f"  F t = FMA(u * v, {blended_polynomial('small', 'v', _TANH, _EXP_TWICE)}, u);\n"
    + """\
  F s = AS_F(AS_U(j) << 23);
  F large = K(1.0f) - K(1.0f) / FMA(s, t, FMA(s, K(0.5f), K(0.5f)));
  return COPYSIGN(SEL(small, t, large), x);
}
"""
)

# 1 / (1 + exp(-x)). With exp(-x) = s (1 - t), -2^-64 (1 + exp(-x)) is d + d_low: scaled, so that
# no finite result overflows on the way, and negative, so that the text negates nothing, which
# could change the sign of a NaN. The quotient is corrected for d_low and its own rounding.
_SIGMOID_TEXT = (
    """\
static inline F FN(sigmoid)(F x) {
  F c = MAX(K(-104.0f), MIN(K(20.0f), x));
  F j = FMA(c, K(-1.44269502f), K(12582975.0f));
  F n = j - 12582975.0f;
  F r = FMA(n, K(0.693147182f), c);
  r = FMA(n, K(-1.90465430e-9f), r);
"""
    + "  F z = r * r;\n"
    + f"  F t = FMA(z, {paired_polynomial('r', 'z', _EXP_FALL)}, r);\n"
    + """\
  F s = AS_F(AS_U(j) << 23);
  F base = K(-5.42101086e-20f) - s, base_low = K(-5.42101086e-20f) - (base + s);
  F d = FMA(s, t, base);
  F d_low = FMA(s, t, base - d) + base_low;
  F quotient = K(-1.0f) / d, y = quotient * 5.42101086e-20f;
  F correction = FMA(quotient, d_low, FMA(quotient, d, K(1.0f)));
  return FMA(y, correction, y);
}
"""
)

# x = m 2^e with m in [sqrt(1/2), sqrt(2)): subtracting the bits of sqrt(1/2) carries into e.
_SPLIT = """\
  I small = LT(x, K(1.17549435e-38f));
  U bits = AS_U(SEL(small, x * 8388608.0f, x)) - 0x3f3504f3u;
  F e = TO_F(AS_I(bits) >> 23) - SEL(small, K(23.0f), K(0.0f));
  F f = AS_F((bits & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
"""

_LOG_SERIES = f"  F series = FMA(f, {polynomial('f', _LOG)}, K(-0.5f)), square = f * f;\n"

# Below zero, at zero, at infinity, NaN.
_LOG_EDGES = """\
  y = SEL(LT(x, K(__builtin_inff())), y, x);
  y = SEL(LT(x, K(0.0f)), K(__builtin_nanf("")), y);
  return SEL(EQ(x, K(0.0f)), K(-__builtin_inff()), y);
}
"""

_LOG_TEXT = (
    "static inline F FN(log)(F x) {\n"
    + _SPLIT
    + _LOG_SERIES
    + "  F tail = FMA(square, series, e * -2.12194440e-4f);\n"
    + "  F y = FMA(e, K(0.693359375f), f + tail);\n"
    + _LOG_EDGES
)


def _log_other_base(name: str, terms: str) -> str:
    """log2 and log10: log(m) in two floats times the two-float constant of the base."""
    return (
        f"static inline F FN({name})(F x) {{\n"
        + _SPLIT
        + _LOG_SERIES
        + "  F tail = square * series;\n"
        + "  F high = f + tail, low = (f - high) + tail;\n"
        + terms
        + "  F sum = e_high + p, sum_low = (e_high - sum) + p;\n"
        + "  F y = sum + (sum_low + p_low);\n"
        + _LOG_EDGES
    )


_LOG2_TEXT = _log_other_base(
    "log2",
    """\
  F e_high = e;
  F p = high * 1.44269502f;
  F p_low = FMA(high, K(1.44269502f), -p);
  p_low = FMA(high, K(1.92596303e-8f), FMA(low, K(1.44269502f), p_low));
""",
)
_LOG10_TEXT = _log_other_base(
    "log10",
    """\
  F e_high = e * 0.301025391f; /* 0.30102539 has 12 bits: an exact product */
  F p = high * 0.434294492f;
  F p_low = FMA(high, K(0.434294492f), -p);
  p_low = FMA(high, K(-1.01005938e-8f), FMA(low, K(0.434294492f), p_low));
  p_low = FMA(e, K(4.60503907e-6f), p_low);
""",
)

# As log, but f = 2^-e (1 + x) - 1 is formed from x and keeps its rounding error.
_LOG1P_TEXT = (
    """\
static inline F FN(log1p)(F x) {
  U bits = AS_U(x + 1.0f) - 0x3f3504f3u;
  I k = AS_I(bits) >> 23;
  /* 2^-e is subnormal at e = 128: scale by four times as much and a quarter. */
  F s = AS_F(AS_U(129 - k) << 23);
  F scaled = x * 0.25f * s, base = FMA(s, K(0.25f), K(-1.0f));
  F f = scaled + base, part = f - base;
  F f_low = (base - (f - part)) + (scaled - part);
  f_low = FMA(-f, f_low, f_low);
  F e = TO_F(k);
"""
    + _LOG_SERIES
    + """\
  F tail = FMA(square, series, e * -2.12194440e-4f);
  F y = FMA(e, K(0.693359375f), f + (tail + f_low));
  y = SEL(LT(ABS(x), K(2.9802322e-8f)), x, y);
  y = SEL(LT(x, K(__builtin_inff())), y, x);
  y = SEL(LT(x, K(-1.0f)), K(__builtin_nanf("")), y);
  return SEL(EQ(x, K(-1.0f)), K(-__builtin_inff()), y);
}
"""
)

_ERF_TEXT = (
    """\
static inline F FN(erf)(F x) {
  F a = MIN(K(3.94f), ABS(x));
  I small = LT(a, K(0.75f));
  F v = SEL(small, a * a, a);
"""
    + f"  F w = FMA(a, {blended_polynomial('small', 'v', _ERF_SMALL, _ERF_LARGE)}, a);\n"
    + """\
  F j = FMA(w, K(-1.44269502f), K(12583039.0f));
  F n = j - 12583039.0f;
  F r = FMA(n, K(0.693147182f), w);
"""
    + f"  F t = FMA(r * r, {polynomial('r', _EXP_FALL)}, r);\n"
    + """\
  F s = AS_F(AS_U(j) << 23);
  F large = FMA(s, t, K(1.0f) - s);
  return COPYSIGN(SEL(small, w, large), x);
}
"""
)

# |x| modulo pi / 2 for |x| > 1e5, by Payne and Hanek: x = m 2^e, and of the bits of 2 / pi only
# the 96 that follow the multiples of 4 / m are needed. Scalar, for the few lanes that want it.
TRIG_SLOW = """\
#ifndef FBTRIG_SLOW
#define FBTRIG_SLOW
static __attribute__((noinline)) int fb_trig_slow_f32(float x, double *remainder) {
  static const unsigned two_over_pi[] = {0u, 0xA2F9836Eu, 0x4E441529u, 0xFC2757D1u,
    0xF534DDC0u, 0xDB629599u, 0x3C439041u, 0xFE5163ABu, 0xDEBBC561u, 0xB7246E3Au};
  union { float f; unsigned u; } v = { x };
  unsigned exponent = v.u >> 23;
  if (exponent == 255) { *remainder = __builtin_nan(""); return 0; }
  unsigned skip = exponent - 150 - 2 + 32, word = skip >> 5, shift = skip & 31;
  unsigned __int128 window = 0;
  for (int i = 0; i < 4; ++i) window = window << 32 | two_over_pi[word + i];
  window = window << shift >> 32;
  unsigned __int128 product = window * ((v.u & 0x7fffffu) | 0x800000u);
  long long fraction = (long long)(unsigned long long)(product >> 30);
  /* pi / 2 * 2^-64; the top bit of the fraction rounds the quotient up. */
  *remainder = (double)fraction * 8.5153039502163873e-20;
  return (int)((unsigned)(product >> 94) & 3u) + (fraction < 0);
}
#endif
"""

# n = round(x 2 / pi), and pi / 2 in three floats; r - error is the remainder. The first product
# cancels exactly. The second constant has 11 bits, so that r is a multiple of 2^-34 and, for
# n < 6400, its error is exact: either r has few bits itself, or it is at least twice n times that
# constant. For more, a longer constant and a two-sum, where either operand may be the larger.
_TRIG_REDUCE = """\
  F a = ABS(x);
  F j = FMA(a, K(0.636619747f), K(12582912.0f));
  F n = j - 12582912.0f;
  F first = FMA(n, K(-1.57079625f), a);
  F r = FMA(n, K(-7.54953362e-8f), first);
  F error = FMA(n, K(2.56334407e-12f), FMA(n, K(7.54953362e-8f), r - first));
  I q = AS_I(j);
  I far = ~LE(a, K(1e4f));
  if (__builtin_expect(ANY(far), 0)) {
    F second = n * 7.54978942e-8f, second_low = FMA(n, K(7.54978942e-8f), -second);
    F sum = first - second, part = sum - first;
    F sum_error = ((sum - part) - first) + (second + part);
    r = SEL(far, sum, r);
    error = SEL(far, FMA(n, K(5.39032794e-15f), sum_error + second_low), error);
    I huge = ~LE(a, K(1e5f));
    EACH_LANE {
      if (LANE(huge)) {
        double remainder;
        LANE(q) = fb_trig_slow_f32(LANE(a), &remainder);
        LANE(r) = (float)remainder;
        LANE(error) = (float)((double)LANE(r) - remainder);
      }
    }
  }
"""


def _trig(name: str, quadrant: str, sign: str) -> str:
    """Sine and cosine are u + u z p(z) for u = r and u = 1: one polynomial serves both.

    The error of r counts once in the sine and r times in the cosine. Nothing is negated, so
    that the sign of a NaN is the same everywhere.
    """
    return (
        TRIG_SLOW
        + f"static inline F FN({name})(F x) {{\n"
        + _TRIG_REDUCE
        + f"  U quadrant = {quadrant};\n"
        + "  I odd = NE(quadrant & 1u, 0u);\n"
        + "  F u = SEL(odd, K(1.0f), r), z = r * r, tail = error * SEL(odd, r, K(-1.0f));\n"
        + f"  F y = u + FMA(u * z, {blended_polynomial('odd', 'z', _COS, _SIN)}, tail);\n"
        + f"  return AS_F(AS_U(y) ^ ({sign}));\n}}\n"
    )


_SIN_TEXT = _trig("sin", "AS_U(q)", "(AS_U(x) ^ quadrant << 30) & 0x80000000u")
_COS_TEXT = _trig("cos", "AS_U(q) + 1u", "quadrant << 30 & 0x80000000u")

_RSQRT_TEXT = "static inline F FN(rsqrt)(F x) { return ONE_NAN(K(1.0f) / SQRT(x)); }\n"

TEXTS: dict[str, str] = {
    "exp": _EXP_TEXT,
    "exp2": _EXP2_TEXT,
    "expm1": _EXPM1_TEXT,
    "log": _LOG_TEXT,
    "log2": _LOG2_TEXT,
    "log10": _LOG10_TEXT,
    "log1p": _LOG1P_TEXT,
    "tanh": _TANH_TEXT,
    "sigmoid": _SIGMOID_TEXT,
    "erf": _ERF_TEXT,
    "sin": _SIN_TEXT,
    "cos": _COS_TEXT,
    "rsqrt": _RSQRT_TEXT,
}
