// Writing where an index says. Equal targets are written in increasing position of the source, by
// one thread each, so that sums and overwrites have one well-defined result: work is divided over
// what cannot collide (other dimensions, columns, or ranges of targets), never over positions.
#include <algorithm>
#include <cmath>
#include <complex>

#include "routines/routines_internal.h"
#include "routines/variants.h"  // first: its pragmas must hold for all that is inlined

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
  if constexpr (kMode == Mode::Max) {
    return larger(old, x);
  } else if constexpr (kMode == Mode::Min) {
    return smaller(old, x);
  } else if constexpr (std::is_integral_v<T>) {
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

// A run of neighbours into a run of neighbours.
template <typename T, Mode kMode>
struct CombineRun {
  static FB_INLINE void run(T* __restrict to, const T* __restrict from, int64_t n) {
    for (int64_t j = 0; j < n; ++j) combine<T, kMode>(to + j, from[j]);
  }
};

template <typename T, Mode kMode>
void combine_run(T* to, const T* from, int64_t n) {
  if constexpr (kMode == Mode::Set) {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(T));
  } else if constexpr (std::is_arithmetic_v<T>) {
    if (n >= 8) return run_variant<CombineRun<T, kMode>>(to, from, n);
    CombineRun<T, kMode>::run(to, from, n);
  } else {
    CombineRun<T, kMode>::run(to, from, n);
  }
}

// ---- lines: one index per element of a vector

template <typename T, Mode kMode>
void put_in_order(T* out, const int64_t* index, int64_t index_step, const T* source,
                  int64_t source_step, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    combine<T, kMode>(out + index[i * index_step], source[i * source_step]);
  }
}

// Sums of integers are the same in any order: each thread has a table of its own. One thread does
// all others, because searching each thread's positions costs as much as the work.
template <typename T, Mode kMode>
void put_line(T* out, int64_t targets, const int64_t* index, int64_t index_step, const T* source,
              int64_t source_step, int64_t count) {
  if constexpr (std::is_integral_v<T> && kMode == Mode::Add) {
    const int64_t pieces = std::min<int64_t>(get_num_threads(), count / (kPiece + targets));
    if (pieces > 1) {
      const Block tables((pieces - 1) * targets * static_cast<int64_t>(sizeof(T)));
      if (tables.ok()) {
        T* table = tables.as<T>();
        parallel(pieces, 1, [&](int64_t begin, int64_t end) {
          for (int64_t p = begin; p < end; ++p) {
            T* mine = p == 0 ? out : table + (p - 1) * targets;
            if (p) std::fill(mine, mine + targets, T(0));
            const int64_t first = p * count / pieces, last = (p + 1) * count / pieces;
            put_in_order<T, kMode>(mine, index + first * index_step, index_step,
                                   source + first * source_step, source_step, last - first);
          }
        });
        for (int64_t p = 1; p < pieces; ++p) {
          combine_run<T, kMode>(out, table + (p - 1) * targets, targets);
        }
        return;
      }
    }
  }
  put_in_order<T, kMode>(out, index, index_step, source, source_step, count);
}

// ---- rows: one index per run of neighbours

template <typename T>
struct Rows {
  T* out;
  int64_t out_step, targets;
  const int64_t* index;
  int64_t index_step;
  const T* source;
  int64_t source_step, count, width;
};

// Rows of targets, each written by one thread. The positions of a thread's targets are collected in
// blocks and without branches, which unordered targets would make unpredictable.
template <typename T, Mode kMode>
void put_row_range(const Rows<T>& r, int64_t first, int64_t last) {
  constexpr int64_t kBlock = 1024;
  const uint64_t range = static_cast<uint64_t>(last - first);
  int64_t positions[kBlock];
  for (int64_t block = 0; block < r.count; block += kBlock) {
    const int64_t end = std::min(r.count, block + kBlock);
    int64_t found = 0;
    for (int64_t i = block; i < end; ++i) {
      positions[found] = i;
      found += static_cast<uint64_t>(r.index[i * r.index_step] - first) < range;
    }
    for (int64_t k = 0; k < found; ++k) {
      const int64_t i = positions[k];
      combine_run<T, kMode>(r.out + r.index[i * r.index_step] * r.out_step,
                            r.source + i * r.source_step, r.width);
    }
  }
}

// False where there are too few targets for all threads: then columns are better shared out.
template <typename T, Mode kMode>
bool put_rows(const Rows<T>& r) {
  const int64_t threads = get_num_threads();
  const bool small = threads == 1 || r.count * r.width < 4 * kPiece;
  if (!small && r.targets < 16 * threads) return false;
  const int64_t pieces = small ? 1 : r.width >= 32 ? 4 * threads : threads;
  parallel(pieces, 1, [&](int64_t begin, int64_t end) {
    put_row_range<T, kMode>(r, begin * r.targets / pieces, end * r.targets / pieces);
  });
  return true;
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

struct Steps {  // elements from one place to the next
  int64_t out = 0, index = 0, source = 0;
};

// `depth` indices along the axis, for `width` columns beside each other.
template <typename T, Mode kMode>
void scatter_line(T* out, const int64_t* index, const T* source, int64_t depth, Steps step,
                  int64_t width, Steps column) {
  if (width == 1) {
    for (int64_t k = 0; k < depth; ++k) {
      combine<T, kMode>(out + index[k * step.index] * step.out, source[k * step.source]);
    }
    return;
  }
  const bool runs = column.out == 1 && column.source == 1;
  for (int64_t k = 0; k < depth; ++k) {
    const int64_t* targets = index + k * step.index;
    const T* from = source + k * step.source;
    if (runs && column.index == 0) {  // one target for all columns
      combine_run<T, kMode>(out + targets[0] * step.out, from, width);
      continue;
    }
    for (int64_t j = 0; j < width; ++j) {
      combine<T, kMode>(out + targets[j * column.index] * step.out + j * column.out,
                        from[j * column.source]);
    }
  }
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
  const Steps step{s.out[s.axis], s.index[s.axis], s.source[s.axis]};
  if (lines * width == 1 && step.out == 1) {
    put_line<T, kMode>(out, c.n[2 + 4 * ndim], index, step.index, source, step.source, depth);
    return nullptr;
  }
  const Steps column = inner < 0 ? Steps{} : Steps{s.out[inner], s.index[inner], s.source[inner]};
  if (lines == 1 && column.index == 0 && column.out == 1 && column.source == 1) {
    const Rows<T> rows{out,   step.out, c.n[2 + 4 * ndim], index, step.index, source, step.source,
                       depth, width};
    if (put_rows<T, kMode>(rows)) return nullptr;
  }
  parallel(lines * width, std::max<int64_t>(1, kPiece / depth), [&](int64_t begin, int64_t end) {
    while (begin < end) {  // one line, or the part of it that is ours
      const int64_t line = begin / width, first = begin % width;
      const int64_t last = std::min(width, first + (end - begin));
      const Offsets at = line_offsets(s, inner, line);
      scatter_line<T, kMode>(
          out + at.out + first * column.out, index + at.index + first * column.index,
          source + at.source + first * column.source, depth, step, last - first, column);
      begin += last - first;
    }
  });
  return nullptr;
}

// ---- put: index tensors address slices

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
    combine_run<T, kMode>(out + target_of(c, s, i) * s.inner + first, source + i * s.inner + first,
                          last - first);
  }
}

template <typename T, Mode kMode>
const char* put(const RoutineContext& c) {
  PutShape s{c.n[0], c.n[1], c.n[2], c.n[3], 1, c.n + 4};
  for (int64_t d = 0; d < s.dims; ++d) s.targets *= s.sizes[d];
  if (s.count * s.outer * s.inner == 0) return nullptr;
  if (s.targets == 0) return c.fail(ErrorKind::Index, "a dimension of size 0 cannot be indexed");
  if (s.dims == 1 && s.outer * s.inner == 1) {
    put_line<T, kMode>(pointer<T>(c, 0), s.targets, pointer<int64_t>(c, 2), 1, pointer<T>(c, 1), 1,
                       s.count);
    return nullptr;
  }
  if (s.dims == 1 && s.outer == 1) {
    const Rows<T> rows{
        pointer<T>(c, 0), s.inner, s.targets, pointer<int64_t>(c, 2), 1, pointer<T>(c, 1),
        s.inner,          s.count, s.inner};
    if (put_rows<T, kMode>(rows)) return nullptr;
  }
  const int64_t columns = get_num_threads() == 1 ? s.inner : std::min<int64_t>(s.inner, 64);
  const int64_t blocks = (s.inner + columns - 1) / columns;
  const int64_t grain = std::max<int64_t>(1, kPiece / (s.count * columns));
  parallel(s.outer * blocks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t first = b % blocks * columns;
      put_columns<T, kMode>(c, s, b / blocks, first, std::min(s.inner, first + columns));
    }
  });
  return nullptr;
}

// ---- bags: sums of rows that are read where they are

template <typename T>
struct Bags {
  T* out;
  const T* table;
  const int64_t *index, *starts, *ends;
  const T* shares;  // or null
  int64_t width, count;
};

template <typename T>
struct VectorOf {
  typedef T Wide __attribute__((vector_size(64)));
  typedef T Narrow __attribute__((vector_size(16)));
};

template <typename V, typename T>
FB_INLINE void add_row(V* sum, const T* row, T share) {
  V value;
  std::memcpy(&value, row, sizeof value);
  *sum += value * share;
}

// Columns of one bag, summed up in registers: a V, or four of them.
template <typename T, typename V, bool kFour>
FB_INLINE void sum_columns(const Bags<T>& b, int64_t bag, int64_t column) {
  constexpr int64_t kStep = sizeof(V) / sizeof(T);
  V sum0 = {}, sum1 = {}, sum2 = {}, sum3 = {};
  const int64_t end = std::min(b.ends[bag], b.count), width = b.width;
  const int64_t* const index = b.index;
  const T *const table = b.table + column, *const shares = b.shares;
  for (int64_t i = std::max<int64_t>(b.starts[bag], 0); i < end; ++i) {
    if (index[i] < 0) continue;
    const T* row = table + index[i] * width;
    const T share = shares ? shares[i] : T(1);
    add_row(&sum0, row, share);
    if (!kFour) continue;
    add_row(&sum1, row + kStep, share);
    add_row(&sum2, row + 2 * kStep, share);
    add_row(&sum3, row + 3 * kStep, share);
  }
  T* out = b.out + bag * width + column;
  std::memcpy(out, &sum0, sizeof sum0);
  if (!kFour) return;
  std::memcpy(out + kStep, &sum1, sizeof sum1);
  std::memcpy(out + 2 * kStep, &sum2, sizeof sum2);
  std::memcpy(out + 3 * kStep, &sum3, sizeof sum3);
}

template <typename T>
struct SumBags {
  static FB_INLINE void run(const Bags<T>* bags, int64_t first, int64_t last) {
    using Wide = typename VectorOf<T>::Wide;
    using Narrow = typename VectorOf<T>::Narrow;
    constexpr int64_t kWide = 64 / sizeof(T), kNarrow = 16 / sizeof(T);
    for (int64_t bag = first; bag < last; ++bag) {
      int64_t at = 0;
      for (; at + 4 * kWide <= bags->width; at += 4 * kWide) {
        sum_columns<T, Wide, true>(*bags, bag, at);
      }
      for (; at + kWide <= bags->width; at += kWide) sum_columns<T, Wide, false>(*bags, bag, at);
      for (; at + kNarrow <= bags->width; at += kNarrow) {
        sum_columns<T, Narrow, false>(*bags, bag, at);
      }
      for (; at < bags->width; ++at) sum_columns<T, T, false>(*bags, bag, at);
    }
  }
};

template <typename T>
const char* bag_sum(const RoutineContext& c) {
  const T* shares = c.n[3] ? pointer<T>(c, 5) : nullptr;
  const Bags<T> bags{pointer<T>(c, 0),
                     pointer<T>(c, 1),
                     pointer<int64_t>(c, 2),
                     pointer<int64_t>(c, 3),
                     pointer<int64_t>(c, 4),
                     shares,
                     c.n[1],
                     c.n[2]};
  const int64_t count = c.n[0], work = (bags.count / std::max<int64_t>(count, 1) + 1) * bags.width;
  parallel(count, std::max<int64_t>(1, kPiece / std::max<int64_t>(work, 1)),
           [&](int64_t begin, int64_t end) { run_variant<SumBags<T>>(&bags, begin, end); });
  return nullptr;
}

template <typename T, Mode kMode>
FB_ONCE void add_mode(RoutineList* list, const std::string& mode, const std::string& dtype) {
  list->push_back({"scatter_" + mode + "_" + dtype, scatter<T, kMode>});
  list->push_back({"put_" + mode + "_" + dtype, put<T, kMode>});
}

template <typename T>
FB_ONCE void add_dtype(RoutineList* list, const std::string& dtype) {
  add_mode<T, Mode::Set>(list, "set", dtype);
  add_mode<T, Mode::Add>(list, "add", dtype);
  add_mode<T, Mode::Mul>(list, "mul", dtype);
  list->push_back({"take_add_" + dtype, put<T, Mode::Add>});
  if constexpr (!IsComplex<T>::value) {
    add_mode<T, Mode::Max>(list, "max", dtype);
    add_mode<T, Mode::Min>(list, "min", dtype);
  }
}

FB_ONCE void add_scatter_routines(RoutineList* list) {
  list->push_back({"bag_sum_f32", bag_sum<float>});
  list->push_back({"bag_sum_f64", bag_sum<double>});
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
}

const RoutineRegistration registration{add_scatter_routines};

}  // namespace

}  // namespace fb
