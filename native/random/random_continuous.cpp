// The distributions that need transcendental functions: normal and those derived from it,
// exponential, cauchy, geometric, poisson, binomial, gamma.
//
// float32 normals take single-precision polynomials that are part of the stream. Everything else
// is computed in float64 by the C library, as PyTorch does: with the same C library, the same bits.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <type_traits>

#include "random/random.h"
#include "random/random_internal.h"

namespace fb {

using namespace random_detail;

namespace {

// ---- normal ------------------------------------------------------------------------------------

// log, sin and cos of the block transform: the single-precision polynomials of S. Moshier's
// Cephes library, evaluated with the fused operations of PyTorch's AVX2 build. They are part of
// the stream, so they stay apart from the framework's own (more accurate) functions.

// Natural logarithm of a normal number in (0, 1].
FB_INLINE float cephes_log(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  float exponent = static_cast<float>(static_cast<int32_t>(bits >> 23) - 126);
  float m = std::bit_cast<float>((bits & 0x007fffffu) | 0x3f000000u);  // [0.5, 1)
  const bool small = m < 0.707106781186547524f;
  exponent -= small ? 1.0f : 0.0f;
  m = (m - 1.0f) + (small ? m : 0.0f);
  const float square = m * m;
  float y = 7.0376836292E-2f;
  y = std::fma(y, m, -1.1514610310E-1f);
  y = std::fma(y, m, 1.1676998740E-1f);
  y = std::fma(y, m, -1.2420140846E-1f);
  y = std::fma(y, m, 1.4249322787E-1f);
  y = std::fma(y, m, -1.6668057665E-1f);
  y = std::fma(y, m, 2.0000714765E-1f);
  y = std::fma(y, m, -2.4999993993E-1f);
  y = std::fma(y, m, 3.3333331174E-1f);
  y = y * m;
  y = std::fma(y, square, exponent * -2.12194440e-4f);
  y = std::fma(square, -0.5f, y);
  return std::fma(exponent, 0.693359375f, m + y);
}

// Sine and cosine of an angle in [0, 2 pi].
FB_INLINE void cephes_sincos(float x, float& sine, float& cosine) {
  const int32_t octant = (static_cast<int32_t>(x * 1.27323954473516f) + 1) & ~1;
  const float y = static_cast<float>(octant);
  x = std::fma(y, -0.78515625f, x);
  x = std::fma(y, -2.4187564849853515625e-4f, x);
  x = std::fma(y, -3.77489497744594108e-8f, x);
  const float z = x * x;
  float c = 2.443315711809948E-005f;
  c = std::fma(c, z, -1.388731625493765E-003f);
  c = std::fma(c, z, 4.166664568298827E-002f);
  c = c * z;
  c = std::fma(c, z, -(z * 0.5f)) + 1.0f;
  float s = -1.9515295891E-4f;
  s = std::fma(s, z, 8.3321608736E-3f);
  s = std::fma(s, z, -1.6666654611E-1f);
  s = std::fma(s * z, x, x);
  const bool swapped = (octant & 2) != 0;
  const uint32_t sine_sign = static_cast<uint32_t>(octant & 4) << 29;
  const uint32_t cosine_sign = static_cast<uint32_t>(~(octant - 2) & 4) << 29;
  sine = std::bit_cast<float>(std::bit_cast<uint32_t>(swapped ? c : s) ^ sine_sign);
  cosine = std::bit_cast<float>(std::bit_cast<uint32_t>(swapped ? s : c) ^ cosine_sign);
}

// Sixteen uniform numbers become sixteen normal ones, in place: the first eight give radii, the
// last eight angles (Box and Muller, 1958).
struct NormalFloat {
  static FB_INLINE void run(float* values, int64_t groups, float mean, float std) {
    for (int64_t group = 0; group < groups; ++group, values += 16) {
      for (int j = 0; j < 8; ++j) {
        const float radius = std::sqrt(-2.0f * cephes_log(1.0f - values[j]));
        float sine, cosine;
        cephes_sincos(static_cast<float>(2.0 * std::numbers::pi) * values[j + 8], sine, cosine);
        values[j] = std::fma(radius * cosine, std, mean);
        values[j + 8] = std::fma(radius * sine, std, mean);
      }
    }
  }
};

void normal_groups(float* values, int64_t groups, double mean, double std) {
  run_variant<NormalFloat>(values, groups, static_cast<float>(mean), static_cast<float>(std));
}

void normal_groups(double* values, int64_t groups, double mean, double std) {
  for (int64_t group = 0; group < groups; ++group, values += 16) {
    for (int j = 0; j < 8; ++j) {
      const double radius = std::sqrt(-2.0 * std::log(1.0 - values[j]));
      const double theta = 2.0 * std::numbers::pi * values[j + 8];
      values[j] = std::fma(radius * std::cos(theta), std, mean);
      values[j + 8] = std::fma(radius * std::sin(theta), std, mean);
    }
  }
}

void fill_unit(Generator& generator, float* out, int64_t n) {
  fill_uniform_f32(generator, out, n, 0.0, 1.0);
}
void fill_unit(Generator& generator, double* out, int64_t n) {
  fill_uniform_f64(generator, out, n, 0.0, 1.0);
}

template <class T>
void fill_normal_one_by_one(Generator& generator, T* out, int64_t n, double mean, double std) {
  for (int64_t i = 0; i < n; ++i) out[i] = convert<T>(generator.normal(mean, std));
}

// The block transform. A length that is no multiple of sixteen draws sixteen new numbers for the
// last sixteen elements, and so replaces some of the block before.
template <class T>
void fill_normal(Generator& generator, T* out, int64_t n, double mean, double std) {
  if (n < 16) return fill_normal_one_by_one(generator, out, n, mean, std);
  const int64_t whole = n / 16 * 16;
  for (int64_t first = 0; first < whole; first += kBlock) {
    const int64_t count = std::min(kBlock, whole - first);
    fill_unit(generator, out + first, count);
    normal_groups(out + first, count / 16, mean, std);
  }
  if (whole == n) return;
  // The words of an incomplete group are drawn, but not used.
  T skipped[16];
  fill_unit(generator, skipped, n - whole);
  fill_unit(generator, out + n - 16, 16);
  normal_groups(out + n - 16, 1, mean, std);
}

// Half types transform in float32 and draw no words for an incomplete group.
template <class T>
void fill_normal_half(Generator& generator, uint16_t* out, int64_t n, double mean, double std) {
  if (n < 16) {
    for (int64_t i = 0; i < n; ++i) out[i] = convert<T>(generator.normal(mean, std)).bits;
    return;
  }
  float values[16];
  for (int64_t done = 0; done < n; done += 16) {
    const int64_t first = std::min(done, n - 16);
    fill_unit(generator, values, 16);
    normal_groups(values, 1, mean, std);
    for (int j = 0; j < 16; ++j) out[first + j] = T::from(values[j]).bits;
  }
}

// ---- poisson: rejection, one number at a time --------------------------------------------------

double next_unit(Generator& generator) {
  const uint32_t high = generator.random();
  return unit_double(high, generator.random());
}

// Rates below 10: count uniform factors until their product falls to exp(-rate) (Knuth).
double poisson_by_product(Generator& generator, double rate) {
  const double limit = std::exp(-rate);
  double count = 0.0;
  for (double product = next_unit(generator); product > limit; count += 1.0) {
    product *= next_unit(generator);
  }
  return count;
}

// Transformed rejection with squeeze, algorithm PTRS of W. Hoermann (1993).
double poisson_by_rejection(Generator& generator, double rate) {
  const double log_rate = std::log(rate);
  const double b = 0.931 + 2.53 * std::sqrt(rate);
  const double a = -0.059 + 0.02483 * b;
  const double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4);
  const double v_limit = 0.9277 - 3.6224 / (b - 2.0);
  for (;;) {
    const double u = next_unit(generator) - 0.5;
    const double v = next_unit(generator);
    const double distance = 0.5 - std::fabs(u);
    const double k = std::floor((2.0 * a / distance + b) * u + rate + 0.43);
    if (distance >= 0.07 && v <= v_limit) return k;
    if (k < 0.0 || (distance < 0.013 && v > distance)) continue;
    const double left =
        std::log(v) + std::log(inverse_alpha) - std::log(a / (distance * distance) + b);
    if (left <= -rate + k * log_rate - std::lgamma(k + 1.0)) return k;
  }
}

double poisson(Generator& generator, double rate) {
  if (rate >= 10.0) return poisson_by_rejection(generator, rate);
  return rate == 0.0 ? 0.0 : poisson_by_product(generator, rate);
}

// ---- binomial: rejection, one number at a time -------------------------------------------------
// In the stream that is reproduced, what is computed from the parameters alone has their precision
// (T), what is computed from draws has float64's.

// Expected successes below 10: the gaps between successes are geometric; count those that fit
// (Devroye 1986, X.4.3).
template <class T>
T binomial_by_gaps(Generator& generator, T count, T prob) {
  const double log_failure = static_cast<double>(std::log1p(-prob));
  T successes = 0;
  for (double trials = 0.0;; successes += T{1}) {
    trials += std::ceil(std::log(next_unit(generator)) / log_failure);
    if (trials > static_cast<double>(count)) return successes;
  }
}

// The remainder of Stirling's formula for log(k!): exact below 10, three terms of its series above.
double stirling_remainder(double k) {
  constexpr double kExact[] = {0.0810614667953272,  0.0413406959554092, 0.0276779256849983,
                               0.02079067210376509, 0.0166446911898211, 0.0138761288230707,
                               0.0118967099458917,  0.0104112652619720, 0.00925546218271273,
                               0.00833056343336287};
  if (k <= 9.0) return kExact[static_cast<size_t>(k)];
  const double square = (k + 1.0) * (k + 1.0);
  return (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1.0);
}

// Transformed rejection with squeeze, algorithm BTRS of W. Hoermann (1993).
template <class T>
T binomial_by_rejection(Generator& generator, T count, T prob) {
  const double deviation = static_cast<double>(std::sqrt(count * prob * (T{1} - prob)));
  const double b = 1.15 + 2.53 * deviation;
  const double a = -0.0873 + 0.0248 * b + 0.01 * static_cast<double>(prob);
  const double center = static_cast<double>(count * prob) + 0.5;
  const double v_limit = 0.92 - 4.2 / b;
  const double odds = static_cast<double>(prob / (T{1} - prob));
  const double alpha = (2.83 + 5.1 / b) * deviation;
  const double mode = static_cast<double>(std::floor((count + T{1}) * prob));
  const double n = static_cast<double>(count);
  for (;;) {
    const double u = next_unit(generator) - 0.5;
    const double v = next_unit(generator);
    const double distance = 0.5 - std::fabs(u);
    const T drawn = static_cast<T>(std::floor((2.0 * a / distance + b) * u + center));
    if (!(drawn >= T{0} && drawn <= count)) continue;
    if (distance >= 0.07 && v <= v_limit) return drawn;
    const double k = static_cast<double>(drawn);
    const double after = static_cast<double>(count - drawn + T{1});
    const double left = std::log(v * alpha / (a / (distance * distance) + b));
    const double right = (mode + 0.5) * std::log((mode + 1.0) / (odds * (n - mode + 1.0))) +
                         static_cast<double>(count + T{1}) * std::log((n - mode + 1.0) / after) +
                         (k + 0.5) * std::log(odds * after / static_cast<double>(drawn + T{1})) +
                         stirling_remainder(mode) + stirling_remainder(n - mode) -
                         stirling_remainder(k) -
                         stirling_remainder(static_cast<double>(count - drawn));
    if (left <= right) return drawn;
  }
}

template <class T>
T binomial(Generator& generator, T count, T prob) {
  if (count <= T{0} || prob <= T{0}) return T{0};
  if (prob >= T{1}) return count;
  if (std::isnan(count) || std::isnan(prob)) return std::numeric_limits<T>::quiet_NaN();
  const bool rare = prob <= T{0.5};
  const T smaller = rare ? prob : T{1} - prob;
  const T found = static_cast<double>(count * smaller) >= 10.0
                      ? binomial_by_rejection(generator, count, smaller)
                      : binomial_by_gaps(generator, count, smaller);
  return rare ? found : count - found;
}

// ---- gamma -------------------------------------------------------------------------------------

// G. Marsaglia and W. Tsang (2000); shapes below one are boosted by a power of a uniform number.
// In the stream that is reproduced, the constants 1/3 and 0.0331 have float32 precision, and what
// is computed from the shape alone has the precision of its type.
template <class T>
double standard_gamma(Generator& generator, T shape) {
  if (!(shape >= T{0})) return std::numeric_limits<double>::quiet_NaN();
  double scale = 1.0;
  if (shape < T{1}) {
    if (shape == T{0}) return 0.0;
    scale = std::pow(1.0 - next_unit(generator), static_cast<double>(T{1} / shape));
    shape += T{1};
  }
  const double d = static_cast<double>(shape - T{1.0f / 3.0f});
  const double c = 1.0 / std::sqrt(9.0 * d);
  for (;;) {
    double x, y;
    do {
      x = generator.normal(0.0, 1.0);
      y = 1.0 + c * x;
    } while (y <= 0.0);
    const double v = y * y * y;
    const double u = 1.0 - next_unit(generator);
    const double square = x * x;
    if (u < 1.0 - static_cast<double>(0.0331f) * square * square) return scale * d * v;
    if (std::log(u) < 0.5 * square + d * (1.0 - v + std::log(v))) return scale * d * v;
  }
}

}  // namespace

// ---- public functions --------------------------------------------------------------------------

double Generator::normal(double mean, double std) {
  double value;
  if (has_normal_) {
    value = normal_;
    has_normal_ = false;
    normal_ = 0.0;
  } else {
    uint32_t words[4];
    random_words(words, 4);
    const double theta = 2.0 * std::numbers::pi * unit_double(words[0], words[1]);
    const double radius = std::sqrt(-2.0 * std::log1p(-unit_double(words[2], words[3])));
    normal_ = radius * std::sin(theta);
    has_normal_ = true;
    value = radius * std::cos(theta);
  }
  return std::fma(value, std, mean);
}

void fill_normal_f32(Generator& generator, float* out, int64_t n, double mean, double std) {
  fill_normal(generator, out, n, mean, std);
}

void fill_normal_f64(Generator& generator, double* out, int64_t n, double mean, double std) {
  fill_normal(generator, out, n, mean, std);
}

void fill_normal_f16(Generator& generator, uint16_t* out, int64_t n, double mean, double std) {
  fill_normal_half<Half>(generator, out, n, mean, std);
}

void fill_normal_bf16(Generator& generator, uint16_t* out, int64_t n, double mean, double std) {
  fill_normal_half<BFloat>(generator, out, n, mean, std);
}

void fill_normal_sequential(Generator& generator, void* out, RandomType type, int64_t n,
                            double mean, double std) {
  with_type(type, out,
            [&](auto* typed) { fill_normal_one_by_one(generator, typed, n, mean, std); });
}

void fill_exponential(Generator& generator, void* out, RandomType type, int64_t n, double lambda) {
  with_type(type, out, [&](auto* typed) {
    fill_from_unit_double(generator, typed, n,
                          [=](double unit) { return -1.0 / lambda * std::log1p(-unit); });
  });
}

void fill_cauchy(Generator& generator, void* out, RandomType type, int64_t n, double median,
                 double sigma) {
  with_type(type, out, [&](auto* typed) {
    fill_from_unit_double(generator, typed, n, [=](double unit) {
      return std::fma(sigma, std::tan(std::numbers::pi * (unit - 0.5)), median);
    });
  });
}

void fill_log_normal(Generator& generator, void* out, RandomType type, int64_t n, double mean,
                     double std) {
  with_type(type, out, [&](auto* typed) {
    using T = std::remove_pointer_t<decltype(typed)>;
    for (int64_t i = 0; i < n; ++i) {
      typed[i] = convert<T>(std::exp(generator.normal(mean, std)));
    }
  });
}

void fill_geometric(Generator& generator, void* out, RandomType type, int64_t n, double p) {
  with_type(type, out, [&](auto* typed) {
    fill_from_unit_double(generator, typed, n,
                          [=](double unit) { return std::ceil(std::log(unit) / std::log1p(-p)); });
  });
}

void fill_poisson(Generator& generator, void* out, RandomType type, int64_t n,
                  const double* rates) {
  with_type(type, out, [&](auto* typed) {
    using T = std::remove_pointer_t<decltype(typed)>;
    for (int64_t i = 0; i < n; ++i) typed[i] = convert<T>(poisson(generator, rates[i]));
  });
}

void fill_binomial(Generator& generator, void* out, RandomType type, int64_t n,
                   const double* counts, const double* probs) {
  with_type(type, out, [&](auto* typed) {
    using T = std::remove_pointer_t<decltype(typed)>;
    if constexpr (std::is_floating_point_v<T>) {
      for (int64_t i = 0; i < n; ++i) {
        typed[i] = binomial(generator, static_cast<T>(counts[i]), static_cast<T>(probs[i]));
      }
    }
  });
}

void fill_standard_gamma(Generator& generator, void* out, RandomType type, int64_t n,
                         const double* shapes) {
  with_type(type, out, [&](auto* typed) {
    using T = std::remove_pointer_t<decltype(typed)>;
    if constexpr (std::is_floating_point_v<T>) {
      for (int64_t i = 0; i < n; ++i) {
        const T value = static_cast<T>(standard_gamma(generator, static_cast<T>(shapes[i])));
        typed[i] = std::max(value, std::numeric_limits<T>::min());  // never zero
      }
    }
  });
}

}  // namespace fb
