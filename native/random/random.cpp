// The stream of words, and the distributions that take a fixed number of words per element and no
// transcendental function: uniform, bernoulli, integers, permutations.
//
// * Words are generated in bulk. A fill requests a few thousand words at a time (they stay in the
//   first-level cache) and transforms them in a loop without calls, so both halves vectorise.
// * The hot loops are compiled three times (AVX-512, AVX2 + FMA, baseline) and chosen at run
//   time. All three give the same bits: the arithmetic is spelled out, fused operations included.
#include "random/random.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "random/random_internal.h"

namespace fb {

using namespace random_detail;

namespace {

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
  // both farther than any vector is long. The loops are split where this changes.
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

void Generator::skip_words(int64_t count) {
  while (count > 0) {
    if (left_ == 1) refill();
    const int64_t taken = std::min<int64_t>(count, left_ - 1);
    left_ -= static_cast<int32_t>(taken);
    next_ += static_cast<uint32_t>(taken);
    count -= taken;
  }
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

void Generator::save_place(uint32_t* out) const {
  std::copy(words_, words_ + kWords, out);
  std::fill(out + kWords, out + kPlaceWords, 0u);
  out[kWords] = next_;
  out[kWords + 1] = static_cast<uint32_t>(left_ - 1);
}

void Generator::restore_place(const uint32_t* place) {
  std::copy(place, place + kWords, words_);
  next_ = place[kWords];
  left_ = static_cast<int32_t>(place[kWords + 1]) + 1;
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

void fill_randint(Generator& generator, void* out, RandomType type, int64_t n, int64_t low,
                  int64_t high) {
  const uint64_t range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  fill_random_range(generator, out, type, n, range, low);
}

void fill_random_range(Generator& generator, void* out, RandomType type, int64_t n, uint64_t range,
                       int64_t low) {
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

// Short permutations draw 32 bits a step and shuffle in place; where the bias of 32 bits would
// show, PyTorch changes to 64 bits and the inside-out form of the shuffle (Durstenfeld, 1964).
void fill_randperm(Generator& generator, int64_t* out, int64_t n) {
  constexpr int64_t kLong = std::numeric_limits<uint32_t>::max() / 20;
  if (n < kLong) {
    for (int64_t i = 0; i < n; ++i) out[i] = i;
    for_blocks<1>(generator, n - 1, [=](const uint32_t* words, int64_t first, int64_t count) {
      for (int64_t i = first; i < first + count; ++i) {
        std::swap(out[i], out[i + words[i - first] % static_cast<uint32_t>(n - i)]);
      }
    });
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t other = generator.random64() % static_cast<uint64_t>(i + 1);
    out[i] = i;
    std::swap(out[i], out[other]);
  }
}

void fill_bernoulli(Generator& generator, void* out, RandomType type, int64_t n, double p) {
  with_type(type, out, [&](auto* typed) {
    using T = std::remove_pointer_t<decltype(typed)>;
    for_blocks<2>(generator, n, [=](const uint32_t* words, int64_t first, int64_t count) {
      run_variant<Bernoulli<T>>(words, typed + first, count, p);
    });
  });
}

void fill_places(Generator& generator, uint32_t* out, int64_t heads, int64_t rows, int64_t columns,
                 int64_t step) {
  for (int64_t head = 0; head < heads; ++head) {
    for (int64_t row = 0; row < rows; row += step) {
      generator.save_place(out);
      generator.skip_words(2 * columns * std::min(step, rows - row));
      out += Generator::kPlaceWords;
    }
  }
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

}  // namespace fb
