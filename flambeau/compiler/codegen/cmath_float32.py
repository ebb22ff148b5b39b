"""float32 elementary functions that compute in float32: the ones kernels spend their time in.

Each text is a template in C whose capital tokens ``cmath.function_source`` resolves for a lane
count (``F``/``I``/``U`` are the float, signed and unsigned vector types, ``K`` splats a constant,
``SEL`` blends by a mask). The arithmetic of a lane never depends on its neighbours. Polynomials
are minimax fits, their coefficients rounded to float32 one after another, the rest refitted each
time. Where a plain evaluation would lose more than an ulp, the low part of a sum is kept
("fast two-sum": for |a| >= |b|, ``s = a + b`` has the exact error ``(a - s) + b``).
"""

from __future__ import annotations


def polynomial(variable: str, coefficients: list[float], suffix: str = "f") -> str:
    """Horner's scheme in fused multiply-adds; ``coefficients`` from the constant term up."""
    text = f"K({coefficients[-1]!r}{suffix})"
    for coefficient in reversed(coefficients[:-1]):
        text = f"FMA({text}, {variable}, K({coefficient!r}{suffix}))"
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
# erf(x) = x + x p(x^2), |x| < 0.92, 8.6e-10; erf(x) = 1 - exp(-(x + x p(x))) above, 8.6e-10.
_ERF_SMALL = [
    0.128379166,
    -0.376126289,
    0.112836242,
    -0.026855588,
    0.0051919478,
    -0.000804383948,
    7.96966342e-05,
]
_ERF_LARGE = [
    0.128637075,
    0.635198057,
    0.106158964,
    -0.0236944444,
    0.00361025869,
    -0.000314830831,
    1.04296951e-05,
]
# sin(r) = r + r^3 s(r^2), cos(r) = 1 - r^2 / 2 + r^4 c(r^2), |r| < 0.792, 1.6e-10 and 1.1e-10.
_SIN = [-0.166666672, 0.0083333794, -0.000198530033, 2.83121199e-06]
_COS = [0.0416666456, -0.00138873013, 2.44306684e-05]

# j holds the rounded quotient n in the low bits of its mantissa (1.5 * 2^23 + n); r is x - n ln 2
# with ln 2 in two floats: the first product cancels exactly, so r is good to its last bit.
_REDUCE_EXP = """\
  F j = FMA(c, K(1.44269502f), K(12582912.0f));
  F n = j - 12582912.0f;
  F r = FMA(n, K(-0.693147182f), c);
  r = FMA(n, K(1.90465430e-9f), r);
  I k = AS_I(AS_U(j) - 0x4b400000u);
"""

# 2^n in two factors, so that overflow and gradual underflow happen in one final rounding.
_SCALE = """\
  I half = k >> 1;
  F low_scale = AS_F(AS_U(half + 127) << 23);
  F high_scale = AS_F(AS_U(k - half + 127) << 23);
"""

_EXP_TEXT = (
    """\
static inline F FN(exp)(F x) {
  F c = SEL(GT(x, K(89.0f)), K(89.0f), x);
  c = SEL(LT(c, K(-104.0f)), K(-104.0f), c);
"""
    + _REDUCE_EXP
    + _SCALE
    + f"  F p = FMA(r * r, {polynomial('r', _EXP)}, r) + 1.0f;\n"
    + "  return p * low_scale * high_scale;\n}\n"
)

_EXP2_TEXT = (
    """\
static inline F FN(exp2)(F x) {
  F c = SEL(GT(x, K(129.0f)), K(129.0f), x);
  c = SEL(LT(c, K(-151.0f)), K(-151.0f), c);
  F j = c + 12582912.0f;
  F r = c - (j - 12582912.0f);
  I k = AS_I(AS_U(j) - 0x4b400000u);
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
  F c = SEL(GT(x, K(89.0f)), K(89.0f), x);
  c = SEL(LT(c, K(-18.0f)), K(-18.0f), c);
"""
    + _REDUCE_EXP
    + f"  F w = r * r * {polynomial('r', _EXP)};\n"
    + """\
  F t = r + w, t_low = (r - t) + w;
  F s = AS_F(AS_U(k + 126) << 23);
  F base = s - 0.5f, base_low = (s - base) - 0.5f;
  F high = FMA(s, t, base);
  F low = FMA(s, t_low, FMA(s, t, base - high) + base_low);
  F y = (high + low) * 2.0f;
  return SEL(LT(ABS(x), K(1.4901161e-8f)), x, y);
}
"""
)

_TANH_TEXT = (
    """\
static inline F FN(tanh)(F x) {
  /* With e = exp(-2|x|) - 1 in (-1, 0], tanh|x| = -e / (2 + e); both sums keep a low part and
     the quotient is corrected by its residual. */
  F a = ABS(x);
  a = SEL(GT(a, K(10.0f)), K(10.0f), a);
  F c = a * -2.0f;
"""
    + _REDUCE_EXP
    + f"  F w = r * r * {polynomial('r', _EXP)};\n"
    + """\
  F t = r + w, t_low = (r - t) + w;
  F s = AS_F(AS_U(k + 127) << 23);
  F base = s - 1.0f, base_low = s - (base + 1.0f);
  F e = FMA(s, t, base);
  F e_low = FMA(s, t_low, FMA(s, t, base - e) + base_low);
  F d = e + 2.0f;
  F d_low = ((K(2.0f) - d) + e) + e_low;
  F reciprocal = K(1.0f) / d;
  F q = -e * reciprocal;
  F residual = FMA(-q, d_low, FMA(-q, d, -e) - e_low);
  return COPYSIGN(FMA(residual, reciprocal, q), x);
}
"""
)

_SIGMOID_TEXT = (
    """\
static inline F FN(sigmoid)(F x) {
  /* e = exp(-|x|); the result is 1 / (1 + e) or e / (1 + e), corrected by the residual. The
     power of two of a small numerator is applied last, so that subnormal results round once. */
  I negative = LT(x, K(0.0f));
  F c = -ABS(x);
  c = SEL(LT(c, K(-106.0f)), K(-106.0f), c);
"""
    + _REDUCE_EXP
    + f"  F w = r * r * {polynomial('r', _EXP)};\n"
    + """\
  F t = r + w, t_low = (r - t) + w;
  F p = t + 1.0f, p_low = ((K(1.0f) - p) + t) + t_low;
  I first = ISEL(LT(n, K(-100.0f)), KI(-100), k);
  F s = AS_F(AS_U(first + 127) << 23), s_rest = AS_F(AS_U(k - first + 127) << 23);
  F e = p * s, d = e + 1.0f;
  F d_low = FMA(p_low, s, (K(1.0f) - d) + e);
  F numerator = SEL(negative, p, K(1.0f)), numerator_low = SEL(negative, p_low, K(0.0f));
  F reciprocal = K(1.0f) / d;
  F q = numerator * reciprocal;
  F residual = FMA(-q, d_low, FMA(-q, d, numerator) + numerator_low);
  F y = FMA(residual, reciprocal, q);
  return ONE_NAN(y * SEL(negative, s, K(1.0f)) * SEL(negative, s_rest, K(1.0f)));
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
  F square = x * x;
"""
    + f"  F small = FMA(x, {polynomial('square', _ERF_SMALL)}, x);\n"
    + """\
  F a = ABS(x);
  a = SEL(GT(a, K(3.94f)), K(3.94f), a);
"""
    + f"  F c = -FMA(a, {polynomial('a', _ERF_LARGE)}, a);\n"
    + _REDUCE_EXP
    + f"  F p = FMA(r * r, {polynomial('r', _EXP)}, r) + 1.0f;\n"
    + """\
  F large = FMA(-p, AS_F(AS_U(k + 127) << 23), K(1.0f));
  return SEL(LT(a, K(0.92f)), small, COPYSIGN(large, x));
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
  if (exponent == 255) { *remainder = x - x; return 0; }
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

# n = round(x 2 / pi); pi / 2 in three floats. The first product cancels exactly; the second
# difference keeps its error (two-sum: either operand may be the larger), the third goes there.
_TRIG_REDUCE = """\
  F a = ABS(x);
  F j = FMA(a, K(0.636619747f), K(12582912.0f));
  F n = j - 12582912.0f;
  F first = FMA(n, K(-1.57079637f), a);
  F second = n * 4.37113883e-8f, second_low = FMA(n, K(4.37113883e-8f), -second);
  F r = first + second, part = r - first;
  F low = ((first - (r - part)) + (second - part)) + second_low;
  low = FMA(n, K(1.71512450e-15f), low);
  I q = AS_I(j);
  I huge = GT(a, K(1e5f));
  if (__builtin_expect(ANY(huge), 0)) {
    EACH_LANE {
      if (LANE(huge)) {
        double remainder;
        LANE(q) = fb_trig_slow_f32(LANE(a), &remainder);
        LANE(r) = (float)remainder;
        LANE(low) = (float)(remainder - (double)LANE(r));
      }
    }
  }
"""

_TRIG_PAIR = (
    "  F z = r * r;\n"
    + f"  F sine = r + FMA(r * z, {polynomial('z', _SIN)}, low);\n"
    + f"  F cosine_tail = FMA(z * z, {polynomial('z', _COS)}, -r * low);\n"
    + "  F rough = FMA(K(-0.5f), z, K(1.0f));\n"
    + "  F cosine = rough + (FMA(K(-0.5f), z, K(1.0f) - rough) + cosine_tail);\n"
)


def _trig(name: str, quadrant: str, sign: str) -> str:
    return (
        TRIG_SLOW
        + f"static inline F FN({name})(F x) {{\n"
        + _TRIG_REDUCE
        + _TRIG_PAIR
        + f"  U quadrant = {quadrant};\n"
        + "  F y = SEL(AS_I(0u - (quadrant & 1u)), cosine, sine);\n"
        + f"  return ONE_NAN(AS_F(AS_U(y) ^ ({sign})));\n}}\n"
    )


_SIN_TEXT = _trig("sin", "AS_U(q)", "((quadrant & 2u) << 30) ^ (AS_U(x) & 0x80000000u)")
_COS_TEXT = _trig("cos", "AS_U(q) + 1u", "(quadrant & 2u) << 30")

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
