// Shared by random.cpp and random_continuous.cpp only: words in bulk, and element types.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "random/random.h"
#include "routines/variants.h"

namespace fb::random_detail {

// ---- words in blocks ---------------------------------------------------------------------------

inline constexpr int64_t kBlock = 1024;  // numbers per block: 4 or 8 KB of words

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

// The low 53 bits of a pair of words, as high * 2^32 + low: exact, and computed from the 32-bit
// conversions that every vector unit has.
FB_INLINE double unit_double(uint32_t high, uint32_t low) {
  const double upper = static_cast<double>(static_cast<int32_t>(high & 0x1fffffu));
  const double lower = static_cast<double>(static_cast<int32_t>(low ^ 0x80000000u)) + 2147483648.0;
  return (upper * 0x1p32 + lower) * 0x1p-53;
}

// ---- half types --------------------------------------------------------------------------------

// Round to nearest, ties to even. Adding 0.5 makes the float unit round a subnormal result: it
// leaves the bits of the half in the low end of the sum.
inline uint16_t half_bits(float value) {
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

inline float half_value(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t magnitude = bits & 0x7fffu;
  if (magnitude >= 0x7c00u) {
    return std::bit_cast<float>(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
  }
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(scaled));
}

inline uint16_t bfloat_bits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fc0u;
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline float bfloat_value(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

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
inline constexpr bool kIsHalf = std::is_same_v<T, Half> || std::is_same_v<T, BFloat>;

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
    case RandomType::kBool:
      return body(static_cast<bool*>(out));
    case RandomType::kUInt8:
      return body(static_cast<uint8_t*>(out));
    case RandomType::kInt8:
      return body(static_cast<int8_t*>(out));
    case RandomType::kInt16:
      return body(static_cast<int16_t*>(out));
    case RandomType::kInt32:
      return body(static_cast<int32_t*>(out));
    case RandomType::kInt64:
      return body(static_cast<int64_t*>(out));
    case RandomType::kFloat16:
      return body(static_cast<Half*>(out));
    case RandomType::kBFloat16:
      return body(static_cast<BFloat*>(out));
    case RandomType::kFloat32:
      return body(static_cast<float*>(out));
    case RandomType::kFloat64:
      return body(static_cast<double*>(out));
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

}  // namespace fb::random_detail
