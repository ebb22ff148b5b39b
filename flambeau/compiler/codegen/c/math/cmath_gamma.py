"""The regularised incomplete gamma functions P(a, x) and Q(a, x): C text in double, for one lane.

Near x = a, from a = 10, Temme's uniform expansion (SIAM J. Math. Anal. 10, 1979; NIST DLMF 8.12);
elsewhere the power series of P (8.11.4), the continued fraction of Q (8.9.2), or for Q of small a
and x the series of what P lacks (8.7.1). Of P and Q the one that a formula gives without loss is
computed; the other one is what is left of 1. About 1e-14 relative, up to the rounding of a and x.
"""

from __future__ import annotations

from collections.abc import Sequence

from flambeau.compiler.codegen.c.math import cmath_gamma_tables as tables

# `density` is x^a exp(-x) / gamma(a + 1); from a = 10 by Stirling's series, where the large factors
# meet in mu - log(1 + mu), mu = x / a - 1; below by the reciprocal of gamma between 1 and 2.
_DENSITY = """\
extern double exp(double);
extern double expm1(double);
extern double erfc(double);
extern double log(double);
extern double log1p(double);
extern double pow(double, double);
static double fb_scalar_gamma_phi(double a, double x) {
  static const double odd[] = {@ODD@};
  double mu = (x - a) / a, r = mu / (mu + 2.0), s = r * r, p = 0.0;
  if (!(__builtin_fabs(mu) < 0.5)) return mu - log(x / a);
  for (int k = 15; k >= 0; --k) p = p * s + odd[k];
  return r * (mu - 2.0 * s * p);
}
static double fb_scalar_gamma_density(double a, double x, double phi) {
  static const double reciprocal[] = {@RECIPROCAL@};
  if (a >= 10.0) {
    double i = 1.0 / a, s = i * i;
    double c = i * (1.0 / 12 + s * (-1.0 / 360 + s * (1.0 / 1260 + s * (-1.0 / 1680 +
      s * (1.0 / 1188 + s * (-691.0 / 360360 + s * (1.0 / 156)))))));
    return __builtin_sqrt(i * 0.15915494309189535) * exp(-a * phi - c);
  }
  if (x > 2000.0) return 0.0;
  double whole = __builtin_floor(a), rest = a - whole - 0.5, p = 0.0, below = 1.0;
  double half = exp(x * -0.5);
  for (int k = @LAST_RECIPROCAL@; k >= 0; --k) p = p * rest + reciprocal[k];
  for (double k = a - whole + 1.0; k < a - 0.5; k += 1.0) below *= k;
  return pow(x, a) * half * (p / (a < 1.0 ? 1.0 : below * a)) * half;
}
"""

_PARTS = """\
static double fb_scalar_gamma_series(double a, double x) {
  double term = 1.0, sum = 1.0;
  for (double n = a + 1.0; term > sum * 1e-17; n += 1.0) {
    term *= x / n;
    sum += term;
  }
  return sum;
}
static double fb_scalar_gamma_fraction(double a, double x) {
  double b = x + 1.0 - a, p0 = 0.0, q0 = 1.0, p1 = 1.0, q1 = b;
  for (double k = 1.0; k < 2000.0; k += 1.0) {
    double factor = k * (k - a), p, q;
    b += 2.0;
    p = b * p1 - factor * p0;
    q = b * q1 - factor * q0;
    p0 = p1, q0 = q1, p1 = p, q1 = q;
    if (__builtin_fabs(p1 * q0 - p0 * q1) <= 1e-16 * __builtin_fabs(p1 * q0)) break;
    if (__builtin_fabs(p) > 1e100 || __builtin_fabs(q) > 1e100)
      p0 *= 1e-100, q0 *= 1e-100, p1 *= 1e-100, q1 *= 1e-100;
  }
  return p1 / q1;
}
static double fb_scalar_gamma_small(double a, double x) {
  static const double logarithm[] = {@LOGARITHM@};
  double term = a, sum = 0.0, p = 0.0, power = a * log(x), t = a - 0.75;
  for (double n = 1.0; n < 40.0 && __builtin_fabs(term) > 1e-18 * a; n += 1.0) {
    term *= -x / n;
    sum += term / (a + n);
  }
  for (int k = @LAST_LOGARITHM@; k >= 0; --k) p = p * t + logarithm[k];
  p = power - (p * a - log1p(a));
  return -expm1(p) - exp(p) * sum;
}
static double fb_scalar_gamma_uniform(double a, double x, double phi, double sign) {
  static const double table[] = {@UNIFORM@};
  double eta = __builtin_sqrt(phi + phi) * (x < a ? -1.0 : 1.0), i = 1.0 / a, sum = 0.0;
  double part[@ORDERS@] = {0.0};
  for (int n = @LAST_POWER@; n >= 0; --n)
    for (int k = 0; k < @ORDERS@; ++k) part[k] = part[k] * eta + table[n * @ORDERS@ + k];
  for (int k = @ORDERS@ - 1; k >= 0; --k) sum = sum * i + part[k];
  sum *= exp(-a * phi) * 0.3989422804014327 * __builtin_sqrt(i);
  return 0.5 * erfc(sign * eta * __builtin_sqrt(a * 0.5)) + sign * sum;
}
"""

_WHOLE = """\
static double fb_scalar_gamma_part(double a, double x, int upper) {
  double full = upper ? 0.0 : 1.0, found, phi = 0.0, infinity = __builtin_inf();
  int lower;
  if (!(a >= 0.0 && x >= 0.0) || (a == 0.0 && x == 0.0) || (a == infinity && x == infinity))
    return __builtin_nan("");
  if (a == 0.0 || x == infinity) return full;
  if (x == 0.0 || a == infinity) return 1.0 - full;
  if (a >= 10.0) {
    phi = fb_scalar_gamma_phi(a, x);
    if (x > a * 0.5 && x < a * 2.0)
      return fb_scalar_gamma_uniform(a, x, phi, upper ? 1.0 : -1.0);
  }
  if (upper && x <= 1.1 && a <= 1.5) return fb_scalar_gamma_small(a, x);
  lower = x <= 1.1 || x < a;
  found = fb_scalar_gamma_density(a, x, phi);
  if (found != 0.0)
    found *= lower ? fb_scalar_gamma_series(a, x) : a * fb_scalar_gamma_fraction(a, x);
  if (found > 1.0) found = 1.0;
  return lower == upper ? 1.0 - found : found;
}
static double fb_scalar_igamma(double a, double x) { return fb_scalar_gamma_part(a, x, 0); }
static double fb_scalar_igammac(double a, double x) { return fb_scalar_gamma_part(a, x, 1); }
"""


def _listed(values: Sequence[float]) -> str:
    return ", ".join(map(repr, values))


def _filled() -> str:
    text = _DENSITY + _PARTS + _WHOLE
    for name, value in (
        ("ODD", _listed([1 / (2 * k + 3) for k in range(16)])),
        ("RECIPROCAL", _listed(tables.RECIPROCAL)),
        ("LAST_RECIPROCAL", len(tables.RECIPROCAL) - 1),
        ("LOGARITHM", _listed(tables.LOGARITHM)),
        ("LAST_LOGARITHM", len(tables.LOGARITHM) - 1),
        ("UNIFORM", ",\n    ".join(map(_listed, tables.UNIFORM))),
        ("LAST_POWER", len(tables.UNIFORM) - 1),
        ("ORDERS", len(tables.UNIFORM[0])),
    ):
        text = text.replace(f"@{name}@", str(value))
    return text


TEXT = _filled()
