// Sort keys: unsigned integers in the order of the values. NaN is the largest value and all NaNs
// are equal; -0.0 equals 0.0. Sorting keys instead of values makes every dtype the same problem.
#pragma once
#include <type_traits>

#include "routines/routines_internal.h"
#include "routines/variants.h"

namespace fb {

template <typename T>
struct KeyOf {  // integers and bool
  using Key = std::make_unsigned_t<T>;
  static FB_INLINE Key key(T x) {
    constexpr Key top = std::is_signed_v<T> ? Key(Key(1) << (8 * sizeof(T) - 1)) : Key(0);
    return static_cast<Key>(static_cast<Key>(x) ^ top);
  }
};

template <typename Key>
FB_INLINE Key float_key(Key bits, Key infinity) {
  constexpr Key sign = Key(Key(1) << (8 * sizeof(Key) - 1));
  const Key magnitude = static_cast<Key>(bits & static_cast<Key>(~sign));
  if (magnitude > infinity) return static_cast<Key>(~Key(0));
  if (magnitude == 0) return sign;
  return static_cast<Key>(bits & sign ? ~bits : bits | sign);
}

template <typename T, typename K, uint64_t kInfinity>
struct FloatKeyOf {
  using Key = K;
  static FB_INLINE Key key(T x) {
    Key bits;
    std::memcpy(&bits, &x, sizeof bits);
    return float_key<Key>(bits, static_cast<Key>(kInfinity));
  }
};
template <>
struct KeyOf<float> : FloatKeyOf<float, uint32_t, 0x7f800000> {};
template <>
struct KeyOf<double> : FloatKeyOf<double, uint64_t, 0x7ff0000000000000> {};
template <>
struct KeyOf<Half> : FloatKeyOf<Half, uint16_t, 0x7c00> {};
template <>
struct KeyOf<BFloat16> : FloatKeyOf<BFloat16, uint16_t, 0x7f80> {};

// Adds `prefix_<dtype>` for every real dtype. `Make` has a static member template `get<T>()`.
template <typename Make>
FB_ONCE void add_for_real(RoutineList* list, const std::string& prefix) {
  list->push_back({prefix + "bool", Make::template get<uint8_t>()});
  list->push_back({prefix + "u8", Make::template get<uint8_t>()});
  list->push_back({prefix + "i8", Make::template get<int8_t>()});
  list->push_back({prefix + "i16", Make::template get<int16_t>()});
  list->push_back({prefix + "i32", Make::template get<int32_t>()});
  list->push_back({prefix + "i64", Make::template get<int64_t>()});
  list->push_back({prefix + "f16", Make::template get<Half>()});
  list->push_back({prefix + "bf16", Make::template get<BFloat16>()});
  list->push_back({prefix + "f32", Make::template get<float>()});
  list->push_back({prefix + "f64", Make::template get<double>()});
}

}  // namespace fb
