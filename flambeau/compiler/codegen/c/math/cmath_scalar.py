"""Special functions whose number of steps depends on the operands: C text in double, lane by lane.

Both precisions call one text, float32 with a single rounding at its end, so a value has the same
bits for every lane count. Where a loop could not end, the function is refused (NaN) instead.
Sources: NIST DLMF, 18.9.1 (recurrences), 18.5.1 (Chebyshev polynomials of an angle), 25.11.5
(Euler-Maclaurin for the zeta function) and 25.11.3.
"""

from __future__ import annotations

from flambeau.compiler.codegen.c.math import cmath_gamma

# Families: 0-3 Chebyshev T, U, V, W; 4 Hermite H; 5 Hermite He; 6 Laguerre; 7 Legendre; 8 and up
# are 0-3 of 2x - 1. V and W exchange their roles where x is negative, so that angles stay below
# pi / 2, where acos is exact to its last digit. Above 1 Chebyshev's and Legendre's polynomials
# only grow: what has overflowed stays infinite.
_POLYNOMIAL = """\
extern double acos(double);
extern double cos(double);
extern double sin(double);
static double fb_scalar_chebyshev(double x, double n, int family) {
  double a = __builtin_fabs(x), odd = n - 2.0 * __builtin_trunc(n * 0.5), p = 1.0, q;
  double sign = x < 0.0 && odd != 0.0 ? -1.0 : 1.0;
  int kind = family < 2 || x >= 0.0 ? family : 5 - family;
  if (n == 0.0) return 1.0;
  if (a == 1.0) return sign * (kind == 1 ? n + 1.0 : kind == 3 ? n + n + 1.0 : 1.0);
  if (a < 1.0 && n > (kind == 0 ? 6.0 : 8.0)) {
    double t = acos(a);
    if (kind == 0) return sign * cos(n * t);
    if (kind == 1) return sign * (sin((n + 1.0) * t) / __builtin_sqrt((1.0 - a) * (1.0 + a)));
    if (kind == 2) return sign * (cos((n + 0.5) * t) / cos(t * 0.5));
    return sign * (sin((n + 0.5) * t) / sin(t * 0.5));
  }
  q = kind == 0 ? a : kind == 1 ? a + a : kind == 2 ? a + a - 1.0 : a + a + 1.0;
  for (double k = 1.0; k < n && q - q == 0.0; k += 1.0) {
    double r = (a + a) * q - p;
    p = q;
    q = r;
  }
  return sign * q;
}
static double fb_scalar_polynomial(double x, double degree, double number) {
  int family = (int)number;
  double n = __builtin_trunc(degree), p = 1.0, q = x, a = __builtin_fabs(x);
  if (degree != degree) return degree;
  if (n < 0.0) return 0.0;
  if (family >= 8) return fb_scalar_chebyshev(x + x - 1.0, n, family - 8);
  if (family < 4) return fb_scalar_chebyshev(x, n, family);
  if (n == 0.0) return 1.0;
  if (n > 2147483648.0) return __builtin_nan("");
  if (family < 6) {
    double twice = family == 4 ? 2.0 : 1.0, slope = x * twice;
    q = slope;
    for (double k = 1.0; k < n && q == q; k += 1.0) {
      double other = k * twice * p, lost = __builtin_fma(-k * twice, p, other);
      double r = __builtin_fma(slope, q, -other) + lost;
      p = q;
      q = r;
    }
    return q;
  }
  if (family == 6) {
    double d = -x;
    q = 1.0 + d;
    for (double k = 1.0; k < n && q == q; k += 1.0) {
      d = __builtin_fma(k, d, -x * q) / (k + 1.0);
      q += d;
    }
    return q;
  }
  double d = a - 1.0;
  q = a;
  for (double k = 1.0; k < n && q - q == 0.0; k += 1.0) {
    d = __builtin_fma(k, d, (k + k + 1.0) * (a - 1.0) * q) / (k + 1.0);
    q += d;
  }
  return x < 0.0 && n != 2.0 * __builtin_trunc(n * 0.5) ? -q : q;
}
"""

# Twelve terms, then Euler and Maclaurin's formula with B(2k) / (2k)!. Left of 0, for whole orders,
# the terms between q and 0 are the difference of two zeta functions of positive arguments.
_ZETA = """\
extern double pow(double, double);
static void fb_scalar_zeta_add(double term, double *sum) {
  double high = sum[0] + term, part = high - sum[0];
  sum[1] += (sum[0] - (high - part)) + (term - part);
  sum[0] = high;
}
static void fb_scalar_zeta_right(double s, double q, double sign, double *sum) {
  static const double weights[] = {
    1.0 / 12, -1.0 / 720, 1.0 / 30240, -1.0 / 1209600, 1.0 / 47900160,
    -691.0 / 1307674368000.0, 1.0 / 74724249600.0, -3617.0 / 10670622842880000.0,
    43867.0 / 5109094217170944000.0, -174611.0 / 802857662698291200000.0};
  double end = q + 12.0, power = sign * pow(end, -s), factor = s, scaled = power / end, tail = 0.0;
  if (q == __builtin_inf()) return;
  for (int k = 0; k < 10; ++k) {
    double term = scaled * (weights[k] * factor);
    if (!(term - term == 0.0)) break;
    tail += term;
    factor *= (s + 2 * k + 1) * (s + 2 * k + 2);
    scaled /= end * end;
  }
  fb_scalar_zeta_add(tail, sum);
  fb_scalar_zeta_add(power * 0.5, sum);
  fb_scalar_zeta_add(power * (end / (s - 1.0)), sum);
  for (int k = 11; k >= 0; --k) fb_scalar_zeta_add(sign * pow(q + k, -s), sum);
}
static double fb_scalar_zeta(double s, double q) {
  double sum[2] = {0.0, 0.0};
  if (s != s || q != q) return s + q;
  if (s == 1.0) return __builtin_inf();
  if (s < 1.0) return __builtin_nan("");
  double below = __builtin_floor(q), whole = __builtin_floor(s), part = q - below;
  if (q <= 0.0 && q == below) return __builtin_inf();
  if (q < 0.0) {
    if (s != whole || s - s != 0.0) return __builtin_nan("");
    double sign = whole == 2.0 * __builtin_floor(whole * 0.5) ? 1.0 : -1.0;
    fb_scalar_zeta_right(s, 1.0 - q, -sign, sum);
    fb_scalar_zeta_right(s, 1.0 - part, sign, sum);
    q = part;
  }
  fb_scalar_zeta_right(s, q, 1.0, sum);
  return sum[0] - sum[0] == 0.0 ? sum[0] + sum[1] : sum[0];
}
"""

# name: text (of one name, where several functions share it), function, number of operands
_TEXTS = {
    "orthogonal_polynomial": ("polynomial", _POLYNOMIAL, "polynomial", 3),
    "zeta": ("zeta", _ZETA, "zeta", 2),
    "igamma": ("gamma", cmath_gamma.TEXT, "igamma", 2),
    "igammac": ("gamma", cmath_gamma.TEXT, "igammac", 2),
}
FUNCTIONS = frozenset(_TEXTS)


def function_source(name: str, kind: str, lanes: int) -> str:
    """C text of `fb_<name>_<kind>x<lanes>`; it follows the prelude."""
    shared, text, scalar, count = _TEXTS[name]
    names = ("x", "y", "z")[:count]
    vector, guard = f"{kind}x{lanes}", f"FB_SCALAR_{shared.upper()}"
    parameters = ", ".join(f"{vector} {n}" for n in names)
    values = ", ".join(n if lanes == 1 else f"{n}[l]" for n in names)
    target = "r" if lanes == 1 else "r[l]"
    loop = "" if lanes == 1 else f"for (int l = 0; l < {lanes}; ++l) "
    return (
        f"#ifndef {guard}\n#define {guard}\n{text}#endif\n"
        f"static inline {vector} fb_{name}_{vector}({parameters}) {{\n"
        f"  {vector} r;\n  {loop}{target} = fb_scalar_{scalar}({values});\n"
        f"  return fb_one_nan_{vector}(r);\n}}\n"
    )
