// The streams of random.h. Two ideas carry the file:
//
// * Words are made in bulk. A fill asks for a few thousand words at a time (they stay in the
//   first-level cache) and transforms them in a loop without calls, so both halves vectorise.
// * The hot loops are compiled three times (AVX-512, AVX2 + FMA, baseline) and chosen at run
//   time. All three give the same bits: the arithmetic is spelled out, fused operations included.
#include "random.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <type_traits>

#if defined(__x86_64__) && defined(__GNUC__)
#define FB_RANDOM_VARIANTS 1
#endif
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")  // at -O2 the loops over words stay scalar: 7 times slower
#endif
#if defined(__GNUC__)
#define FB_INLINE __attribute__((always_inline)) inline
#else
#define FB_INLINE inline
#endif

namespace fb {
namespace {

// ---- choice of the machine's variant -----------------------------------------------------------

#ifdef FB_RANDOM_VARIANTS
int machine_level() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 0;
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                 __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw")
             ? 2
             : 1;
}
const int kMachineLevel = machine_level();

// Body::run(arguments...) compiled for each level; the body must be FB_INLINE throughout.
template <class Body, class... Args>
[[gnu::target("avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,prefer-vector-width=512")]] void
run_avx512(Args... args) {
  Body::run(args...);
}
template <class Body, class... Args>
[[gnu::target("avx2,fma")]] void run_avx2(Args... args) {
  Body::run(args...);
}
template <class Body, class... Args>
void run_variant(Args... args) {
  if (kMachineLevel == 2) return run_avx512<Body, Args...>(args...);
  if (kMachineLevel == 1) return run_avx2<Body, Args...>(args...);
  Body::run(args...);
}
#else
template <class Body, class... Args>
void run_variant(Args... args) {
  Body::run(args...);
}
#endif

// ---- mt19937 (Matsumoto and Nishimura, 1998) ---------------------------------------------------

constexpr int kShift = 397;

FB_INLINE uint32_t twist(uint32_t upper, uint32_t lower) {
  const uint32_t mixed = (upper & 0x80000000u) | (lower & 0x7fffffffu);
  return (mixed >> 1) ^ ((lower & 1u) ? 0x9908b0dfu : 0u);
}

FB_INLINE uint32_t temper(uint32_t word) {
  word ^= word >> 11;
  word ^= (word << 7) & 0x9d2c5680u;
  word ^= (word << 15) & 0xefc60000u;
  return word ^ (word >> 18);
}

struct Refill {
  // A word depends on the word 397 ahead (of the old block) or 227 behind (of the new one):
  // both farther than any vector is long. The loops are cut where this changes.
  static FB_INLINE void run(uint32_t* words) {
    constexpr int kSplit = Generator::kWords - kShift;
    for (int i = 0; i < kSplit; ++i) {
      words[i] = words[i + kShift] ^ twist(words[i], words[i + 1]);
    }
    for (int i = kSplit; i < Generator::kWords - 1; ++i) {
      words[i] = words[i - kSplit] ^ twist(words[i], words[i + 1]);
    }
    words[Generator::kWords - 1] =
        words[kShift - 1] ^ twist(words[Generator::kWords - 1], words[0]);
  }
};

struct Temper {
  static FB_INLINE void run(const uint32_t* words, uint32_t* out, int64_t count) {
    for (int64_t i = 0; i < count; ++i) out[i] = temper(words[i]);
  }
};

// ---- words in blocks ---------------------------------------------------------------------------

constexpr int64_t kBlock = 1024;  // numbers per block: 4 or 8 KB of words

// Calls transform(words, first, count) for consecutive blocks of numbers that take
// `words_each` 32-bit words.
template <int words_each, class Transform>
void for_blocks(Generator& generator, int64_t n, Transform transform) {
  alignas(64) uint32_t words[kBlock * words_each];
  for (int64_t first = 0; first < n; first += kBlock) {
    const int64_t count = std::min(kBlock, n - first);
    generator.random_words(words, count * words_each);
    transform(words, first, count);
  }
}

FB_INLINE uint64_t word_pair(const uint32_t* words, int64_t i) {
  return (uint64_t{words[2 * i]} << 32) | words[2 * i + 1];
}

FB_INLINE float unit_float(uint32_t word) {
  return static_cast<float>(static_cast<int32_t>(word & 0xffffffu)) * 0x1p-24f;
}

// The low 53 bits of a pair of words, as high * 2^32 + low: exact, and made of the 32-bit
// conversions that every vector unit has.
FB_INLINE double unit_double(uint32_t high, uint32_t low) {
  const double upper = static_cast<double>(static_cast<int32_t>(high & 0x1fffffu));
  const double lower =
      static_cast<double>(static_cast<int32_t>(low ^ 0x80000000u)) + 2147483648.0;
  return (upper * 0x1p32 + lower) * 0x1p-53;
}

// ---- half types --------------------------------------------------------------------------------

// Round to nearest, ties to even; scaling by 2^112 and back lets the float unit do the rounding
// of subnormal results.
uint16_t half_bits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  magnitude += 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000u) >> 13));
}

float half_value(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t magnitude = bits & 0x7fffu;
  if (magnitude >= 0x7c00u) {
    return std::bit_cast<float>(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
  }
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(scaled));
}

uint16_t bfloat_bits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fc0u;
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float bfloat_value(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

struct Half {
  uint16_t bits;
  static constexpr int kDigits = 11;
  static Half from(float value) { return {half_bits(value)}; }
  float value() const { return half_value(bits); }
};

struct BFloat {
  uint16_t bits;
  static constexpr int kDigits = 8;
  static BFloat from(float value) { return {bfloat_bits(value)}; }
  float value() const { return bfloat_value(bits); }
};

template <class T>
constexpr bool kIsHalf = std::is_same_v<T, Half> || std::is_same_v<T, BFloat>;

// static_cast that knows the half types; a double goes to a half type through float, as in PyTorch.
template <class T, class Value>
FB_INLINE T convert(Value value) {
  if constexpr (kIsHalf<T>) {
    return T::from(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

// Calls body(pointer of the element type) for a type code.
template <class Body>
void with_type(RandomType type, void* out, Body body) {
  switch (type) {
    case RandomType::kBool: return body(static_cast<bool*>(out));
    case RandomType::kUInt8: return body(static_cast<uint8_t*>(out));
    case RandomType::kInt8: return body(static_cast<int8_t*>(out));
    case RandomType::kInt16: return body(static_cast<int16_t*>(out));
    case RandomType::kInt32: return body(static_cast<int32_t*>(out));
    case RandomType::kInt64: return body(static_cast<int64_t*>(out));
    case RandomType::kFloat16: return body(static_cast<Half*>(out));
    case RandomType::kBFloat16: return body(static_cast<BFloat*>(out));
    case RandomType::kFloat32: return body(static_cast<float*>(out));
    case RandomType::kFloat64: return body(static_cast<double*>(out));
  }
}

// Draws one double in [0, 1) per element and stores function(it).
template <class T, class Function>
void fill_from_unit_double(Generator& generator, T* out, int64_t n, Function function) {
  for_blocks<2>(generator, n, [=](const uint32_t* words, int64_t first, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      out[first + i] = convert<T>(function(unit_double(words[2 * i], words[2 * i + 1])));
    }
  });
}

// ---- uniform -----------------------------------------------------------------------------------

// Rounding can reach the excluded end; such a number becomes the low end.
struct UniformFloat {
  static FB_INLINE void run(const uint32_t* words, float* out, int64_t count, float from,
                            float to) {
    const float range = to - from;
    for (int64_t i = 0; i < count; ++i) {
      const float value = std::fma(unit_float(words[i]), range, from);
      out[i] = value == to ? from : value;
    }
  }
};

// [0, 1): the end is out of reach, and nothing is left to multiply.
struct UnitFloat {
  static FB_INLINE void run(const uint32_t* words, float* out, int64_t count) {
    for (int64_t i = 0; i < count; ++i) out[i] = unit_float(words[i]);
  }
};

struct UniformDouble {
  static FB_INLINE void run(const uint32_t* words, double* out, int64_t count, double from,
                            double to) {
    const double range = to - from;
    for (int64_t i = 0; i < count; ++i) {
      const double value = std::fma(unit_double(words[2 * i], words[2 * i + 1]), range, from);
      out[i] = value == to ? from : value;
    }
  }
};

template <class T>
void fill_uniform_half(Generator& generator, uint16_t* out, int64_t n, double from, double to) {
  const float low = static_cast<float>(from);
  const float high = static_cast<float>(to);
  const uint16_t low_bits = T::from(low).bits;
  const uint16_t high_bits = T::from(high).bits;
  for_blocks<1>(generator, n, [=](const uint32_t* words, int64_t first, int64_t count) {
    alignas(64) float values[kBlock];
    run_variant<UniformFloat>(words, &values[0], count, low, high);
    for (int64_t i = 0; i < count; ++i) {
      const uint16_t bits = T::from(values[i]).bits;
      out[first + i] = bits == high_bits ? low_bits : bits;
    }
  });
}

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
// last sixteen places, and so replaces some of the block before.
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

// ---- bernoulli ---------------------------------------------------------------------------------

// The mask of dropout, hence worth a vector loop.
template <class T>
struct Bernoulli {
  static FB_INLINE void run(const uint32_t* words, T* out, int64_t count, double p) {
    const T one = convert<T>(1);
    const T zero = convert<T>(0);
    for (int64_t i = 0; i < count; ++i) {
      out[i] = unit_double(words[2 * i], words[2 * i + 1]) < p ? one : zero;
    }
  }
};

// ---- integers ----------------------------------------------------------------------------------

constexpr uint64_t kWideRange = uint64_t{1} << 28;  // from here on a number takes 64 bits

// value + low with wrap-around, then to the element type by way of int64.
template <class T>
FB_INLINE T shifted(uint64_t value, int64_t low) {
  return convert<T>(static_cast<int64_t>(value + static_cast<uint64_t>(low)));
}

template <class T>
void fill_narrow(Generator& generator, T* out, int64_t n, uint32_t range, int64_t low) {
  for_blocks<1>(generator, n, [=](const uint32_t* words, int64_t first, int64_t count) {
    for (int64_t i = 0; i < count; ++i) out[first + i] = shifted<T>(words[i] % range, low);
  });
}

template <class T>
void fill_wide(Generator& generator, T* out, int64_t n, uint64_t range, int64_t low) {
  for_blocks<2>(generator, n, [=](const uint32_t* words, int64_t first, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      out[first + i] = shifted<T>(word_pair(words, i) % range, low);
    }
  });
}

// All of int64: the 64 bits themselves.
template <class T>
void fill_all_64_bits(Generator& generator, T* out, int64_t n) {
  for_blocks<2>(generator, n, [=](const uint32_t* words, int64_t first, int64_t count) {
    for (int64_t i = 0; i < count; ++i) out[first + i] = shifted<T>(word_pair(words, i), 0);
  });
}

// random_() without arguments: floating types reach 2**digits, every integer they can hold.
template <class T>
void fill_full(Generator& generator, T* out, int64_t n) {
  if constexpr (std::is_same_v<T, double>) {
    fill_wide(generator, out, n, (uint64_t{1} << 53) + 1, 0);
  } else if constexpr (std::is_same_v<T, float>) {
    fill_narrow(generator, out, n, (uint32_t{1} << 24) + 1, 0);
  } else if constexpr (kIsHalf<T>) {
    fill_narrow(generator, out, n, (uint32_t{1} << T::kDigits) + 1, 0);
  } else if constexpr (std::is_same_v<T, int64_t>) {
    fill_wide(generator, out, n, uint64_t{1} << 63, 0);
  } else {
    fill_narrow(generator, out, n, uint32_t{std::numeric_limits<T>::max()} + 1, 0);
  }
}

}  // namespace

// ---- the generator -----------------------------------------------------------------------------

Generator::Generator(uint64_t seed) { manual_seed(seed); }

void Generator::manual_seed(uint64_t seed) {
  seed_ = seed;
  words_[0] = static_cast<uint32_t>(seed);
  for (uint32_t i = 1; i < kWords; ++i) {
    words_[i] = 1812433253u * (words_[i - 1] ^ (words_[i - 1] >> 30)) + i;
  }
  left_ = 1;
  next_ = 0;
  has_normal_ = has_float_normal_ = false;
  normal_ = 0.0;
  float_normal_ = 0.0f;
}

void Generator::refill() {
  run_variant<Refill>(&words_[0]);
  left_ = kWords + 1;
  next_ = 0;
}

uint32_t Generator::random() {
  if (left_ == 1) refill();
  --left_;
  return temper(words_[next_++]);
}

uint64_t Generator::random64() {
  const uint64_t high = random();
  return (high << 32) | random();
}

void Generator::random_words(uint32_t* out, int64_t count) {
  while (count > 0) {
    if (left_ == 1) refill();
    const int64_t taken = std::min<int64_t>(count, left_ - 1);
    run_variant<Temper>(static_cast<const uint32_t*>(words_ + next_), out, taken);
    left_ -= static_cast<int32_t>(taken);
    next_ += static_cast<uint32_t>(taken);
    out += taken;
    count -= taken;
  }
}

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

// ---- state -------------------------------------------------------------------------------------

namespace {

// The bytes of torch.get_rng_state(): a record from the days of Lua Torch, whose words take 64
// bits each, followed by the cached float32 normal value.
struct StateRecord {
  uint64_t seed;
  int32_t left;
  int32_t seeded;
  uint64_t next;
  uint64_t words[Generator::kWords];
  double normal_x;
  double normal_y;
  double normal_rho;
  int32_t normal_is_valid;
  int32_t padding;
  float float_normal;
  uint8_t float_normal_is_valid;
  uint8_t more_padding[3];
};
static_assert(sizeof(StateRecord) == Generator::kStateBytes);

}  // namespace

std::vector<uint8_t> Generator::get_state() const {
  StateRecord record{};
  record.seed = seed_;
  record.left = left_;
  record.seeded = 1;
  record.next = next_;
  std::copy(words_, words_ + kWords, record.words);
  record.normal_y = normal_;
  record.normal_is_valid = has_normal_;
  record.float_normal = float_normal_;
  record.float_normal_is_valid = has_float_normal_;
  std::vector<uint8_t> bytes(sizeof record);
  std::memcpy(bytes.data(), &record, sizeof record);
  return bytes;
}

bool Generator::set_state(const uint8_t* bytes, size_t size) {
  StateRecord record;
  if (size != sizeof record) return false;
  std::memcpy(&record, bytes, sizeof record);
  const bool valid = record.seeded == 1 && record.left > 0 && record.left <= kWords &&
                     record.next <= kWords &&
                     record.next + static_cast<uint64_t>(record.left - 1) <= kWords;
  if (!valid) return false;
  seed_ = record.seed;
  left_ = record.left;
  next_ = static_cast<uint32_t>(record.next);
  for (int i = 0; i < kWords; ++i) words_[i] = static_cast<uint32_t>(record.words[i]);
  has_normal_ = record.normal_is_valid != 0;
  normal_ = has_normal_ ? record.normal_y : 0.0;
  has_float_normal_ = record.float_normal_is_valid != 0;
  float_normal_ = has_float_normal_ ? record.float_normal : 0.0f;
  return true;
}

// ---- public fills ------------------------------------------------------------------------------

void fill_uniform_f32(Generator& generator, float* out, int64_t n, double from, double to) {
  const float low = static_cast<float>(from);
  const float high = static_cast<float>(to);
  for_blocks<1>(generator, n, [=](const uint32_t* words, int64_t first, int64_t count) {
    if (low == 0.0f && high == 1.0f) {
      run_variant<UnitFloat>(words, out + first, count);
    } else {
      run_variant<UniformFloat>(words, out + first, count, low, high);
    }
  });
}

void fill_uniform_f64(Generator& generator, double* out, int64_t n, double from, double to) {
  for_blocks<2>(generator, n, [=](const uint32_t* words, int64_t first, int64_t count) {
    run_variant<UniformDouble>(words, out + first, count, from, to);
  });
}

void fill_uniform_f16(Generator& generator, uint16_t* out, int64_t n, double from, double to) {
  fill_uniform_half<Half>(generator, out, n, from, to);
}

void fill_uniform_bf16(Generator& generator, uint16_t* out, int64_t n, double from, double to) {
  fill_uniform_half<BFloat>(generator, out, n, from, to);
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

void fill_randint(Generator& generator, void* out, RandomType type, int64_t n, int64_t low,
                  int64_t high) {
  const uint64_t range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  fill_random_range(generator, out, type, n, range, low);
}

void fill_random_range(Generator& generator, void* out, RandomType type, int64_t n,
                       uint64_t range, int64_t low) {
  with_type(type, out, [&](auto* typed) {
    if (range == 0) {
      fill_all_64_bits(generator, typed, n);
    } else if (range >= kWideRange) {
      fill_wide(generator, typed, n, range, low);
    } else {
      fill_narrow(generator, typed, n, static_cast<uint32_t>(range), low);
    }
  });
}

void fill_random_full(Generator& generator, void* out, RandomType type, int64_t n) {
  with_type(type, out, [&](auto* typed) { fill_full(generator, typed, n); });
}

void fill_randperm(Generator& generator, int64_t* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = i;
  const auto swap_with = [=](int64_t i, uint64_t draw) {
    std::swap(out[i], out[i + static_cast<int64_t>(draw % static_cast<uint64_t>(n - i))]);
  };
  for_blocks<1>(generator, n - 1, [=](const uint32_t* words, int64_t first, int64_t count) {
    for (int64_t i = 0; i < count; ++i) swap_with(first + i, words[i]);
  });
}

void fill_bernoulli(Generator& generator, void* out, RandomType type, int64_t n, double p) {
  with_type(type, out, [&](auto* typed) {
    using T = std::remove_pointer_t<decltype(typed)>;
    for_blocks<2>(generator, n, [=](const uint32_t* words, int64_t first, int64_t count) {
      run_variant<Bernoulli<T>>(words, typed + first, count, p);
    });
  });
}

void fill_bernoulli_f32(Generator& generator, void* out, RandomType type, int64_t n,
                        const float* probabilities) {
  with_type(type, out, [&](auto* typed) {
    using T = std::remove_pointer_t<decltype(typed)>;
    for_blocks<1>(generator, n, [=](const uint32_t* words, int64_t first, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        typed[first + i] = convert<T>(unit_float(words[i]) < probabilities[first + i]);
      }
    });
  });
}

void fill_bernoulli_f64(Generator& generator, void* out, RandomType type, int64_t n,
                        const double* probabilities) {
  with_type(type, out, [&](auto* typed) {
    using T = std::remove_pointer_t<decltype(typed)>;
    for_blocks<2>(generator, n, [=](const uint32_t* words, int64_t first, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        const double unit = unit_double(words[2 * i], words[2 * i + 1]);
        typed[first + i] = convert<T>(unit < probabilities[first + i]);
      }
    });
  });
}

void fill_exponential(Generator& generator, void* out, RandomType type, int64_t n,
                      double lambda) {
  with_type(type, out, [&](auto* typed) {
    fill_from_unit_double(generator, typed, n, [=](double unit) {
      return -1.0 / lambda * std::log1p(-unit);
    });
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
    fill_from_unit_double(generator, typed, n, [=](double unit) {
      return std::ceil(std::log(unit) / std::log1p(-p));
    });
  });
}

}  // namespace fb
