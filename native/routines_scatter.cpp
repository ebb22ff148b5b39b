// Writing where an index says. Equal targets are written in increasing position of the source, by
// one thread each, so that sums and overwrites have one well-defined result: work is divided over
// what cannot collide (other dimensions, columns, or ranges of targets), never over positions.
#include <algorithm>
#include <cmath>
#include <complex>

#include "routines_internal.h"

namespace fb {
namespace {

constexpr int64_t kPiece = 1 << 14;  // elements worth handing to another thread

enum class Mode { Set, Add, Mul, Max, Min };

template <typename T>
struct IsComplex : std::false_type {};
template <typename T>
struct IsComplex<std::complex<T>> : std::true_type {};

template <typename T>
T larger(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) ? a : b;
  }
  return a < b ? b : a;
}

template <typename T>
T smaller(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) ? a : b;
  }
  return b < a ? b : a;
}

// bool: add is or, mul is and.
struct Truth {
  uint8_t value;
};

template <typename T, Mode kMode>
T combine_number(T old, T x) {
  if constexpr (kMode == Mode::Max)
    return larger(old, x);
  else if constexpr (kMode == Mode::Min)
    return smaller(old, x);
  else if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;  // wraps
    const U a = static_cast<U>(old), b = static_cast<U>(x);
    return static_cast<T>(kMode == Mode::Add ? static_cast<U>(a + b) : static_cast<U>(1u * a * b));
  } else {
    return kMode == Mode::Add ? old + x : old * x;
  }
}

template <typename T, Mode kMode>
void combine(T* target, T x) {
  if constexpr (kMode == Mode::Set) {
    *target = x;
  } else if constexpr (std::is_same_v<T, Truth>) {
    const bool any = kMode == Mode::Add || kMode == Mode::Max;
    target->value = any ? (target->value | x.value) != 0 : (target->value & x.value) != 0;
  } else if constexpr (std::is_same_v<T, Half>) {
    *target = to_half(combine_number<float, kMode>(to_float(*target), to_float(x)));
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    *target = to_bfloat16(combine_number<float, kMode>(to_float(*target), to_float(x)));
  } else if constexpr (IsComplex<T>::value && kMode == Mode::Mul) {
    *target = {target->real() * x.real() - target->imag() * x.imag(),
               target->real() * x.imag() + target->imag() * x.real()};
  } else if constexpr (IsComplex<T>::value) {
    *target += x;
  } else {
    *target = combine_number<T, kMode>(*target, x);
  }
}

// ---- scatter: one index per element, along one axis

struct ScatterShape {
  int64_t ndim, axis;
  const int64_t *sizes, *out, *index, *source;  // index sizes; strides
};

struct Offsets {
  int64_t out = 0, index = 0, source = 0;
};

// Element offsets of the `line`-th combination of all dimensions but the axis and `inner`.
Offsets line_offsets(const ScatterShape& s, int64_t inner, int64_t line) {
  Offsets at;
  for (int64_t d = s.ndim - 1; d >= 0; --d) {
    if (d == s.axis || d == inner) continue;
    const int64_t i = line % s.sizes[d];
    line /= s.sizes[d];
    at.out += i * s.out[d];
    at.index += i * s.index[d];
    at.source += i * s.source[d];
  }
  return at;
}

template <typename T, Mode kMode>
const char* scatter(const RoutineContext& c) {
  T* out = pointer<T>(c, 0);
  const int64_t* index = pointer<int64_t>(c, 1);
  const T* source = pointer<T>(c, 2);
  const int64_t ndim = c.n[0];
  if (ndim == 0) {
    combine<T, kMode>(out, *source);
    return nullptr;
  }
  const ScatterShape s{
      ndim, c.n[1], c.n + 2, c.n + 2 + ndim, c.n + 2 + 2 * ndim, c.n + 2 + 3 * ndim};
  // The innermost other dimension runs inside the axis, for the sake of memory order.
  const int64_t inner = s.axis != ndim - 1 ? ndim - 1 : -1;
  const int64_t width = inner >= 0 ? s.sizes[inner] : 1, depth = s.sizes[s.axis];
  int64_t lines = 1;
  for (int64_t d = 0; d < ndim; ++d) {
    if (d != s.axis && d != inner) lines *= s.sizes[d];
  }
  if (lines * width * depth == 0) return nullptr;
  const int64_t out_step = s.out[s.axis], index_step = s.index[s.axis];
  const int64_t source_step = s.source[s.axis];
  const int64_t out_column = inner >= 0 ? s.out[inner] : 0;
  const int64_t index_column = inner >= 0 ? s.index[inner] : 0;
  const int64_t source_column = inner >= 0 ? s.source[inner] : 0;
  parallel(lines * width, std::max<int64_t>(1, kPiece / depth), [&](int64_t begin, int64_t end) {
    while (begin < end) {  // one line, or the part of it that is ours
      const int64_t line = begin / width, first = begin % width;
      const int64_t last = std::min(width, first + (end - begin));
      const Offsets at = line_offsets(s, inner, line);
      for (int64_t k = 0; k < depth; ++k) {
        for (int64_t j = first; j < last; ++j) {
          const int64_t target = index[at.index + k * index_step + j * index_column];
          combine<T, kMode>(out + at.out + target * out_step + j * out_column,
                            source[at.source + k * source_step + j * source_column]);
        }
      }
      begin += last - first;
    }
  });
  return nullptr;
}

// ---- put: index tensors address whole slices

struct PutShape {
  int64_t count, outer, inner, dims, targets;  // targets: product of the indexed sizes
  const int64_t* sizes;
};

int64_t target_of(const RoutineContext& c, const PutShape& s, int64_t position) {
  int64_t target = 0;
  for (int64_t d = 0; d < s.dims; ++d) {
    target = target * s.sizes[d] + pointer<int64_t>(c, static_cast<int>(2 + d))[position];
  }
  return target;
}

template <typename T, Mode kMode>
void put_columns(const RoutineContext& c, const PutShape& s, int64_t outer, int64_t first,
                 int64_t last) {
  T* out = pointer<T>(c, 0) + outer * s.targets * s.inner;
  const T* source = pointer<T>(c, 1) + outer * s.count * s.inner;
  for (int64_t i = 0; i < s.count; ++i) {
    T* to = out + target_of(c, s, i) * s.inner;
    for (int64_t j = first; j < last; ++j) combine<T, kMode>(to + j, source[i * s.inner + j]);
  }
}

template <typename T, Mode kMode>
void put_targets(const RoutineContext& c, const PutShape& s, int64_t first, int64_t last) {
  for (int64_t i = 0; i < s.count; ++i) {
    const int64_t target = target_of(c, s, i);
    if (target < first || target >= last) continue;
    for (int64_t o = 0; o < s.outer; ++o) {
      T* to = pointer<T>(c, 0) + (o * s.targets + target) * s.inner;
      const T* from = pointer<T>(c, 1) + (o * s.count + i) * s.inner;
      for (int64_t j = 0; j < s.inner; ++j) combine<T, kMode>(to + j, from[j]);
    }
  }
}

template <typename T, Mode kMode>
const char* put(const RoutineContext& c) {
  PutShape s{c.n[0], c.n[1], c.n[2], c.n[3], 1, c.n + 4};
  for (int64_t d = 0; d < s.dims; ++d) s.targets *= s.sizes[d];
  if (s.count * s.outer * s.inner == 0) return nullptr;
  if (s.targets == 0) return "index: a dimension of size 0 cannot be indexed";
  constexpr int64_t kColumns = 64;
  const int64_t blocks = (s.inner + kColumns - 1) / kColumns;
  if (s.outer * blocks >= 4) {
    const int64_t grain = std::max<int64_t>(1, kPiece / (s.count * std::min(kColumns, s.inner)));
    parallel(s.outer * blocks, grain, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        const int64_t first = b % blocks * kColumns;
        put_columns<T, kMode>(c, s, b / blocks, first, std::min(s.inner, first + kColumns));
      }
    });
    return nullptr;
  }
  // Every piece reads all indices, so pieces must be few and large.
  const int64_t pieces = s.count * s.inner * s.outer < 4 * kPiece ? 1 : 16;
  parallel(std::min(pieces, s.targets), 1, [&](int64_t begin, int64_t end) {
    const int64_t all = std::min(pieces, s.targets);
    put_targets<T, kMode>(c, s, begin * s.targets / all, end * s.targets / all);
  });
  return nullptr;
}

// ---- bounds

// Bad elements become 0, so that what follows stays inside its memory until the error is raised.
const char* check_index(const RoutineContext& c) {
  const int64_t* index = pointer<int64_t>(c, 0);
  int64_t* out = pointer<int64_t>(c, 1);
  int64_t* error = pointer<int64_t>(c, 2);
  const int64_t numel = c.n[0], size = c.n[1];
  std::atomic<int64_t> first{INT64_MAX};
  parallel(numel, 1 << 15, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t x = index[i];
      const bool good = x >= -size && x < size;
      out[i] = !good ? 0 : x < 0 ? x + size : x;
      if (good) continue;
      int64_t known = first.load();
      while (i < known && !first.compare_exchange_weak(known, i)) {
      }
    }
  });
  if (first.load() == INT64_MAX) return nullptr;
  error[1] = index[first.load()];
  error[2] = size;
  error[3] = c.n[2];
  error[0] = 1;
  return nullptr;
}

template <typename T, Mode kMode>
void add_mode(RoutineList* list, const std::string& mode, const std::string& dtype) {
  list->push_back({"scatter_" + mode + "_" + dtype, scatter<T, kMode>});
  list->push_back({"put_" + mode + "_" + dtype, put<T, kMode>});
}

template <typename T>
void add_dtype(RoutineList* list, const std::string& dtype) {
  add_mode<T, Mode::Set>(list, "set", dtype);
  add_mode<T, Mode::Add>(list, "add", dtype);
  add_mode<T, Mode::Mul>(list, "mul", dtype);
  list->push_back({"take_add_" + dtype, put<T, Mode::Add>});
  if constexpr (!IsComplex<T>::value) {
    add_mode<T, Mode::Max>(list, "max", dtype);
    add_mode<T, Mode::Min>(list, "min", dtype);
  }
}

}  // namespace

void add_scatter_routines(RoutineList* list) {
  add_dtype<Truth>(list, "bool");
  add_dtype<uint8_t>(list, "u8");
  add_dtype<int8_t>(list, "i8");
  add_dtype<int16_t>(list, "i16");
  add_dtype<int32_t>(list, "i32");
  add_dtype<int64_t>(list, "i64");
  add_dtype<Half>(list, "f16");
  add_dtype<BFloat16>(list, "bf16");
  add_dtype<float>(list, "f32");
  add_dtype<double>(list, "f64");
  add_dtype<std::complex<float>>(list, "c64");
  add_dtype<std::complex<double>>(list, "c128");
  list->push_back({"check_index", check_index});
}

}  // namespace fb
