// Matrix products of floating and complex numbers.
//
// The sum over K has one canonical order (docs/design.md, the promise about numbers): K is cut into
// chunks of 256; a chunk is one chain of FMAs in increasing k that starts at +0; the chunks are
// added in increasing order. Nothing else decides about bits: not M, N, the batch, strides, tiles,
// threads or the instruction set. Half types are widened when packed and rounded once at the end.
//
// The shape of the computation is BLIS's: B in slabs of two vectors' columns, A in panels of as
// many rows as registers hold, both packed so that the inner loop reads memory in order.
#include <cmath>
#include <complex>
#include <utility>

#include "processor.h"
#include "routines_internal.h"

#if defined(__x86_64__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"  // GCC 12's own header
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif

namespace fb {
namespace {

constexpr int kMaxRows = 14;

template <typename T>
struct GemmKernels {
  int rows;     // largest panel height
  int columns;  // of a slab
  // By panel height: (depth, a, b, step of b, c, step of c, accumulate).
  void (*micro[kMaxRows + 1])(int64_t, const T*, const T*, int64_t, T*, int64_t, bool);
  // (depth, a, step of a, b, step of b, sum, columns)
  void (*row_sums)(int64_t, const T*, int64_t, const T*, int64_t, T*, int64_t);
};

}  // namespace
}  // namespace fb

// A kernel's internal linkage would be lost in a header of its own namespace: the anonymous
// namespace above is this file's, and so are these copies.
#define FB_ISA portable
#define FB_TARGET
#define FB_LEVEL 0
#include "gemm_kernels.h"
#undef FB_ISA
#undef FB_TARGET
#undef FB_LEVEL
#if defined(__x86_64__)
#define FB_ISA avx2
#define FB_TARGET __attribute__((target("avx2,fma")))
#define FB_LEVEL 1
#include "gemm_kernels.h"
#undef FB_ISA
#undef FB_TARGET
#undef FB_LEVEL
#define FB_ISA avx512
#define FB_TARGET __attribute__((target("avx512f,avx2,fma")))
#define FB_LEVEL 2
#include "gemm_kernels.h"
#undef FB_ISA
#undef FB_TARGET
#undef FB_LEVEL
#endif

namespace fb {
namespace {

constexpr int64_t kChunk = 256;        // of K: part of the semantics
constexpr int64_t kSuperChunk = 2048;  // of K: packed at once; a multiple of kChunk
constexpr int64_t kPackedRun = 64;     // k packed at a time where numbers are scattered
constexpr int64_t kPackedRows = 8;     // rows in memory packed at a time
constexpr int64_t kManyTiles = 8;      // per thread: from then on their sizes do not matter
constexpr int64_t kPanels = 10;        // panels of A per tile
constexpr int64_t kTileColumns = 256;
constexpr int64_t kRowColumns = 2048;    // of a tile where B is read as it lies
constexpr int64_t kFewRows = 2;          // so few that reading B is all the work
constexpr int64_t kSmall = 1 << 20;      // multiply-adds: below, one thread is faster
constexpr int64_t kPieceWork = 1 << 19;  // multiply-adds worth handing to another thread

template <typename T>
GemmKernels<T> select_kernels(bool complex) {
#if defined(__x86_64__)
  if (vector_level() == 2) return avx512::kernels<T>(complex);
  if (vector_level() == 1) return avx2::kernels<T>(complex);
#endif
  return portable::kernels<T>(complex);
}

// ---- element types: how they are read, accumulated and written

template <typename T>
struct RealElement {
  using Stored = T;
  using Number = T;
  static constexpr int planes = 1;
  static constexpr bool direct = true;  // the accumulator has the stored form
  static void read(const Stored& x, Number* out, int64_t) { *out = x; }
  static Stored write(const Number* x, int64_t) { return *x; }
};
template <typename T>
struct HalfElement {
  using Stored = T;
  using Number = float;
  static constexpr int planes = 1;
  static constexpr bool direct = false;
  static void read(const Stored& x, Number* out, int64_t) { *out = to_float(x); }
  static Stored write(const Number* x, int64_t) {
    if constexpr (std::is_same_v<T, Half>)
      return to_half(*x);
    else
      return to_bfloat16(*x);
  }
};
template <typename T>
struct ComplexElement {
  using Stored = std::complex<T>;
  using Number = T;
  static constexpr int planes = 2;
  static constexpr bool direct = false;
  static void read(const Stored& x, Number* out, int64_t plane) {
    out[0] = x.real();
    out[plane] = x.imag();
  }
  static Stored write(const Number* x, int64_t plane) { return {x[0], x[plane]}; }
};

template <typename E>
struct Matrix {
  typename E::Stored* data;
  int64_t row, column;  // strides
  Matrix at(int64_t i, int64_t j) const { return {data + i * row + j * column, row, column}; }
};

// ---- packing

// `count` copies of `kLength` numbers, which lie `from_step` apart, one after another.
template <int kLength, typename T>
void copy_runs(const T* from, int64_t from_step, int64_t count, T* out) {
  for (int64_t k = 0; k < count; ++k) {
    std::memcpy(out, from, sizeof(T) * kLength);
    from += from_step;
    out += kLength;
  }
}

// A panel of floats whose K runs along memory: square transposes. Returns how many k are done.
int64_t pack_turned_panel(const float* a, int64_t stride, int64_t rows, int64_t depth, float* out) {
#if defined(__x86_64__)
  if (vector_level() == 2 && rows == 14) {
    return avx512::transpose_panel<14>(a, stride, depth, out);
  }
  if (vector_level() == 1 && rows == 6) return avx2::transpose_panel<6>(a, stride, depth, out);
#endif
  (void)a, (void)stride, (void)rows, (void)depth, (void)out;
  return 0;
}

// out[k][rows] (planes after each other) = a[rows][depth].
template <typename E>
void pack_panel(const Matrix<E>& a, int64_t rows, int64_t depth, typename E::Number* out) {
  const int64_t step = rows * E::planes;
  if (a.column == 1) {
    int64_t first = 0;
    if constexpr (std::is_same_v<E, RealElement<float>>) {
      first = pack_turned_panel(a.data, a.row, rows, depth, out);
    }
    for (; first < depth; first += kPackedRun) {  // what is written stays in the nearest cache
      const int64_t last = std::min(depth, first + kPackedRun);
      for (int64_t i = 0; i < rows; ++i) {
        const typename E::Stored* from = a.data + i * a.row;
        for (int64_t k = first; k < last; ++k) E::read(from[k], out + k * step + i, rows);
      }
    }
    return;
  }
  if constexpr (std::is_same_v<typename E::Stored, typename E::Number>) {
    if (a.row == 1) {
      if (rows == 14) return copy_runs<14>(a.data, a.column, depth, out);
      if (rows == 6) return copy_runs<6>(a.data, a.column, depth, out);
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    const typename E::Stored* from = a.data + k * a.column;
    for (int64_t i = 0; i < rows; ++i) E::read(from[i * a.row], out + k * step + i, rows);
  }
}

#if defined(__x86_64__)
// A float slab whose K runs along memory (the usual weight of a linear layer): square transposes.
// Returns how many k are done.
int64_t pack_transposed(const Matrix<RealElement<float>>& b, int64_t depth, int64_t columns,
                        float* out) {
  const bool wide = vector_level() == 2;
  const int64_t block = wide ? avx512::kTranspose : avx2::kTranspose;
  const int64_t whole = depth / block * block;
  for (int64_t j = 0; j < columns; j += block) {
    for (int64_t k = 0; k < whole; k += block) {
      const float* from = b.data + j * b.column + k;
      if (wide)
        avx512::transpose_block(from, b.column, out + k * columns + j, columns);
      else
        avx2::transpose_block(from, b.column, out + k * columns + j, columns);
    }
  }
  return whole;
}

// Sums of one chunk for few rows (a: packed) and a block of columns that lie along memory.
void column_sums(int64_t rows, int64_t depth, const float* a, const float* b, int64_t stride,
                 float* sum) {
  const bool wide = vector_level() == 2;
  const int64_t block = wide ? avx512::kTranspose : avx2::kTranspose;
  const int64_t whole = depth / block * block;
  auto* kernel = wide ? (rows == 1 ? avx512::column_sums<1> : avx512::column_sums<2>)
                      : (rows == 1 ? avx2::column_sums<1> : avx2::column_sums<2>);
  kernel(whole, a, b, stride, sum);
  for (int64_t k = whole; k < depth; ++k) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t x = 0; x < block; ++x) {
        sum[r * block + x] = std::fma(a[k * rows + r], b[x * stride + k], sum[r * block + x]);
      }
    }
  }
}
#endif

// out[k][columns] (planes after each other) = b[depth][used columns], zero beyond `used`.
template <typename E>
void pack_slab(const Matrix<E>& b, int64_t depth, int64_t used, int64_t columns,
               typename E::Number* out) {
  const int64_t step = columns * E::planes;
  if (used < columns) std::memset(out, 0, sizeof(*out) * static_cast<size_t>(depth * step));
  if (b.row == 1 && b.column != 1) {
    int64_t first = 0;
#if defined(__x86_64__)
    if constexpr (std::is_same_v<E, RealElement<float>>) {
      if (used == columns && vector_level() > 0) {
        first = pack_transposed(b, depth, columns, out);
      }
    }
#endif
    for (int64_t j = 0; j < used; ++j) {
      const typename E::Stored* from = b.data + j * b.column;
      for (int64_t k = first; k < depth; ++k) E::read(from[k], out + k * step + j, columns);
    }
    return;
  }
  if constexpr (std::is_same_v<typename E::Stored, typename E::Number>) {
    if (b.column == 1 && used == columns) {
      if (columns == 32) return copy_runs<32>(b.data, b.row, depth, out);
      if (columns == 16) return copy_runs<16>(b.data, b.row, depth, out);
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    const typename E::Stored* from = b.data + k * b.row;
    typename E::Number* to = out + k * step;
    if (b.column == 1) {
      for (int64_t j = 0; j < used; ++j) E::read(from[j], to + j, columns);
    } else {
      for (int64_t j = 0; j < used; ++j) E::read(from[j * b.column], to + j, columns);
    }
  }
}

// ---- one product

template <typename E>
class Product {
 public:
  using Number = typename E::Number;
  Product(const GemmKernels<Number>& kernels, int64_t m, int64_t n, int64_t k, Matrix<E> a,
          Matrix<E> b, Matrix<E> c)
      : kernels_(kernels), m_(m), n_(n), k_(k), a_(a), b_(b), c_(c) {
    row_tiles_ = count_row_tiles(1);
  }

  // Small: everything on this thread, packing as it goes. False: no memory.
  bool run_small() const { return tiles(0, tile_count(), 0, k_, nullptr, nullptr); }

  // Large: packs in parallel what several tiles share, then the tiles in parallel.
  bool run_large() {
    row_tiles_ = count_row_tiles(get_num_threads());
    const int64_t super = needs_tile() ? k_ : kSuperChunk;
    const bool share_b = m_ > 2 * kernels_.rows, share_a = n_ > kTileColumns && m_ > kFewRows;
    const int64_t depth = std::min(super, k_);
    Block packed_b(share_b ? slabs() * depth * slab_width() * (int64_t)sizeof(Number) : 0);
    Block packed_a(share_a ? m_ * E::planes * depth * (int64_t)sizeof(Number) : 0);
    if (!packed_a.ok() || !packed_b.ok()) return false;
    std::atomic<bool> fine{true};
    for (int64_t begin = 0; begin < k_; begin += super) {
      const int64_t end = std::min(k_, begin + super);
      Number* b = share_b ? packed_b.as<Number>() : nullptr;
      Number* a = share_a ? packed_a.as<Number>() : nullptr;
      if (b) pack_all_slabs(begin, end, b);
      if (a) pack_all_panels(begin, end, a);
      const int64_t tile_work = std::min(m_, tile_rows()) * tile_columns() * (end - begin);
      parallel(tile_count(), std::max<int64_t>(1, kPieceWork / tile_work),
               [&](int64_t first, int64_t last) {
                 if (!tiles(first, last, begin, end, a, b)) fine = false;
               });
    }
    return fine;
  }

 private:
  bool needs_tile() const { return !E::direct || c_.column != 1; }
  // Few rows, and those of B lie along memory: B is read once, as it lies.
  bool reads_rows() const { return m_ <= kFewRows && readable_in_place(m_) && !needs_tile(); }
  // The same where its columns lie along memory: they are turned in registers.
  bool turns_columns() const {
    return std::is_same_v<E, RealElement<float>> && m_ <= kFewRows && b_.row == 1 &&
           b_.column != 1 && c_.column == 1 && vector_level() > 0;
  }
  int64_t turned_columns() const { return vector_level() == 2 ? 16 : 8; }
  int64_t tile_columns() const {
    return reads_rows() ? kRowColumns : turns_columns() ? turned_columns() : kTileColumns;
  }
  int64_t tile_rows() const { return kPanels * kernels_.rows; }  // at most
  int64_t panels() const { return (m_ + kernels_.rows - 1) / kernels_.rows; }
  int64_t row_tiles() const { return row_tiles_; }
  // Tiles share the panels evenly: the last one of each thread should end when the others' do.
  int64_t row_begin(int64_t tile) const {
    return std::min(m_, tile * panels() / row_tiles_ * kernels_.rows);
  }
  int64_t count_row_tiles(int64_t threads) const {
    const int64_t columns = column_tiles();
    int64_t rows = (panels() + kPanels - 1) / kPanels;
    if (rows * columns >= kManyTiles * threads) return rows;
    const int64_t most = std::min(panels(), rows + threads - 1);
    for (int64_t more = rows; more <= most; ++more) {
      if (more * columns % threads == 0) return more;
    }
    return rows;
  }
  int64_t column_tiles() const { return (n_ + tile_columns() - 1) / tile_columns(); }
  int64_t tile_count() const { return row_tiles() * column_tiles(); }
  int64_t slabs() const { return (n_ + kernels_.columns - 1) / kernels_.columns; }
  int64_t slab_width() const { return kernels_.columns * E::planes; }

  // Packs slabs of B for k in [begin, end). Rows that lie along memory are read once, in order.
  void pack_all_slabs(int64_t begin, int64_t end, Number* out) const {
    const int64_t columns = kernels_.columns;
    pack_all(slabs(), begin, end, b_.column == 1 ? kPackedRows : end - begin, columns,
             [&](int64_t s, int64_t k, int64_t depth) {
               const int64_t j = s * columns;
               pack_slab<E>(b_.at(k, j), depth, std::min(columns, n_ - j), columns,
                            out + (s * (end - begin) + k - begin) * slab_width());
             });
  }

  void pack_all_panels(int64_t begin, int64_t end, Number* out) const {
    const int64_t rows = kernels_.rows;
    pack_all((m_ + rows - 1) / rows, begin, end, a_.row == 1 ? kPackedRows : end - begin, rows,
             [&](int64_t p, int64_t k, int64_t depth) {
               const int64_t i = p * rows, height = std::min(rows, m_ - i);
               pack_panel<E>(a_.at(i, k), height, depth,
                             out + (i * (end - begin) + (k - begin) * height) * E::planes);
             });
  }

  // Calls pack(number, k, depth) for `count` slabs or panels and all k, `run` of them at a time.
  template <typename F>
  void pack_all(int64_t count, int64_t begin, int64_t end, int64_t run, int64_t width,
                const F& pack) const {
    const int64_t runs = (end - begin + run - 1) / run, work = run * width;
    const int64_t outer = runs > 1 ? runs : count, inner = runs > 1 ? count : 1;
    parallel(outer, std::max<int64_t>(1, (1 << 16) / (work * inner)),
             [&](int64_t first, int64_t last) {
               for (int64_t o = first; o < last; ++o) {
                 for (int64_t i = 0; i < inner; ++i) {
                   const int64_t k = runs > 1 ? begin + o * run : begin;
                   pack(runs > 1 ? i : o, k, std::min(run, end - k));
                 }
               }
             });
  }

  // Where the operands of one chunk come from.
  struct Sources {
    const Number* a;  // packed panels of this tile, first panel's start
    int64_t a_step;   // numbers per row of a panel: panel i starts at i0 * a_step
    const Number* b;  // null: pack into scratch
    int64_t b_depth;
    int64_t offset;  // first k of the chunk within the packed range
  };

  // Workspace of a thread: [panels of A][one slab][edge tile][tile of C].
  struct Workspace {
    Number *a, *slab, *edge, *tile;
  };
  bool workspace(Workspace* w, bool own_a) const {
    const int64_t depth = std::min(k_, kChunk);
    const int64_t a = own_a ? tile_rows() * E::planes * depth : 0;
    const int64_t slab = slab_width() * depth, edge = kMaxRows * slab_width();
    const int64_t tile = needs_tile() ? tile_rows() * tile_width() : reads_rows() ? kRowColumns : 0;
    auto align = [](int64_t n) { return (n + 15) / 16 * 16; };
    const int64_t total = align(a) + align(slab) + align(edge) + align(tile);
    Number* base = static_cast<Number*>(worker_scratch(0, total * (int64_t)sizeof(Number)));
    if (!base) return false;
    *w = {base, base + align(a), base + align(a) + align(slab),
          base + align(a) + align(slab) + align(edge)};
    return true;
  }
  int64_t tile_width() const { return (kTileColumns / kernels_.columns) * slab_width(); }

  bool tiles(int64_t first, int64_t last, int64_t begin, int64_t end, const Number* a,
             const Number* b) const {
    Workspace w;
    if (!workspace(&w, !a)) return false;
    for (int64_t t = first; t < last; ++t) {
      const int64_t i = row_begin(t % row_tiles()), j = t / row_tiles() * tile_columns();
      const int64_t rows = row_begin(t % row_tiles() + 1) - i,
                    columns = std::min(tile_columns(), n_ - j);
      for (int64_t k = begin; k < end; k += kChunk) {
        const int64_t depth = std::min(kChunk, end - k);
        Sources s{w.a, E::planes * depth, nullptr, end - begin, k - begin};
        if (a) {
          s.a = a + i * E::planes * (end - begin);
          s.a_step = E::planes * (end - begin);
        } else {
          for (int64_t p = 0; p < rows; p += kernels_.rows) {
            const int64_t height = std::min<int64_t>(kernels_.rows, rows - p);
            pack_panel<E>(a_.at(i + p, k), height, depth, w.a + p * s.a_step);
          }
        }
        if (b) s.b = b + j / kernels_.columns * slab_width() * (end - begin);
        chunk(s, w, i, j, rows, columns, k, depth, a != nullptr);
      }
      if (needs_tile()) write_tile(w.tile, i, j, rows, columns);
    }
    return true;
  }

  void chunk(const Sources& s, const Workspace& w, int64_t i, int64_t j, int64_t rows,
             int64_t columns, int64_t k, int64_t depth, bool shared_a) const {
    const int64_t width = kernels_.columns;
    int64_t q = 0;
    if (reads_rows()) {
      q = columns / width * width;
      for (int64_t r = 0; r < rows && q > 0; ++r) {
        const Number* b = reinterpret_cast<const Number*>(b_.at(k, j).data);
        kernels_.row_sums(depth, s.a + r, rows, b, b_.row, w.tile, q);
        Number* c = reinterpret_cast<Number*>(c_.at(i + r, j).data);
        for (int64_t x = 0; x < q; ++x) c[x] = k > 0 ? c[x] + w.tile[x] : w.tile[x];
      }
    }
    if constexpr (std::is_same_v<E, RealElement<float>>) {
      if (turns_columns() && columns == turned_columns()) {
        turned_chunk(s, w, i, j, rows, k, depth);
        return;
      }
    }
    for (; q < columns; q += width) {
      const int64_t used = std::min(width, columns - q);
      const Number* b = w.slab;
      int64_t b_step = slab_width();
      if (s.b) {
        b = s.b + q / width * slab_width() * s.b_depth + s.offset * slab_width();
      } else if (used == width && readable_in_place(rows)) {
        b = reinterpret_cast<const Number*>(b_.at(k, j + q).data);
        b_step = b_.row;
      } else {
        pack_slab<E>(b_.at(k, j + q), depth, used, width, w.slab);
      }
      for (int64_t p = 0; p < rows; p += kernels_.rows) {
        const int64_t height = std::min<int64_t>(kernels_.rows, rows - p);
        const Number* a = s.a + p * s.a_step;
        if (shared_a) a += s.offset * height * E::planes;
        auto* micro = kernels_.micro[height];
        if (needs_tile()) {
          Number* c = w.tile + p * tile_width() + q * E::planes;
          micro(depth, a, b, b_step, c, tile_width(), k > 0);
          continue;
        }
        Number* c = reinterpret_cast<Number*>(c_.at(i + p, j + q).data);
        if (used == width) {
          micro(depth, a, b, b_step, c, c_.row, k > 0);
          continue;
        }
        micro(depth, a, b, b_step, w.edge, slab_width(), false);
        for (int64_t r = 0; r < height; ++r) {
          for (int64_t x = 0; x < used; ++x) {
            const Number part = w.edge[r * slab_width() + x];
            Number& sum = c[r * c_.row + x];
            sum = k > 0 ? sum + part : part;
          }
        }
      }
    }
  }

  void turned_chunk(const Sources& s, const Workspace& w, int64_t i, int64_t j, int64_t rows,
                    int64_t k, int64_t depth) const {
#if defined(__x86_64__)
    const int64_t block = turned_columns();
    column_sums(rows, depth, s.a, b_.at(k, j).data, b_.column, w.edge);
    for (int64_t r = 0; r < rows; ++r) {
      Number* c = c_.at(i + r, j).data;
      for (int64_t x = 0; x < block; ++x) {
        c[x] = k > 0 ? c[x] + w.edge[r * block + x] : w.edge[r * block + x];
      }
    }
#endif
  }

  // Few rows and rows of B along memory: packing would cost more than it saves.
  bool readable_in_place(int64_t rows) const {
    return E::direct && b_.column == 1 && rows <= 2 * kernels_.rows;
  }

  void write_tile(const Number* tile, int64_t i, int64_t j, int64_t rows, int64_t columns) const {
    const int64_t width = kernels_.columns;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t x = 0; x < columns; ++x) {
        const Number* from = tile + r * tile_width() + x / width * slab_width() + x % width;
        *c_.at(i + r, j + x).data = E::write(from, width);
      }
    }
  }

  const GemmKernels<Number>& kernels_;
  int64_t m_, n_, k_, row_tiles_ = 1;
  Matrix<E> a_, b_, c_;
};

// ---- the routine

struct Arguments {
  int64_t batch, m, n, k;
  const int64_t *a, *b, *c;  // strides: batch, row, column
};

template <typename E>
void fill_zero(const RoutineContext& context, const Arguments& x) {
  auto* out = pointer<typename E::Stored>(context, 2);
  for (int64_t b = 0; b < x.batch; ++b) {
    for (int64_t i = 0; i < x.m; ++i) {
      for (int64_t j = 0; j < x.n; ++j) out[b * x.c[0] + i * x.c[1] + j * x.c[2]] = {};
    }
  }
}

template <typename E>
const char* matmul(const RoutineContext& context) {
  using Stored = typename E::Stored;
  const int64_t* n = context.n;
  const Arguments x{n[0], n[1], n[2], n[3], n + 4, n + 7, n + 10};
  if (x.batch <= 0 || x.m <= 0 || x.n <= 0) return nullptr;
  if (x.k <= 0) {
    fill_zero<E>(context, x);
    return nullptr;
  }
  static const GemmKernels<typename E::Number> kernels =
      select_kernels<typename E::Number>(E::planes == 2);
  auto product = [&](int64_t b) {
    return Product<E>(kernels, x.m, x.n, x.k,
                      {pointer<Stored>(context, 0) + b * x.a[0], x.a[1], x.a[2]},
                      {pointer<Stored>(context, 1) + b * x.b[0], x.b[1], x.b[2]},
                      {pointer<Stored>(context, 2) + b * x.c[0], x.c[1], x.c[2]});
  };
  const int64_t work = x.m * x.n * x.k;
  std::atomic<bool> fine{true};
  if (work <= kSmall) {
    parallel(x.batch, std::max<int64_t>(1, kPieceWork / work), [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        if (!product(b).run_small()) fine = false;
      }
    });
  } else {
    for (int64_t b = 0; b < x.batch && fine; ++b) {
      if (!product(b).run_large()) fine = false;
    }
  }
  return fine ? nullptr : kOutOfMemory;
}

}  // namespace

void add_matmul_routines(RoutineList* list) {
  list->push_back({"matmul_f32", matmul<RealElement<float>>});
  list->push_back({"matmul_f64", matmul<RealElement<double>>});
  list->push_back({"matmul_f16", matmul<HalfElement<Half>>});
  list->push_back({"matmul_bf16", matmul<HalfElement<BFloat16>>});
  list->push_back({"matmul_c64", matmul<ComplexElement<float>>});
  list->push_back({"matmul_c128", matmul<ComplexElement<double>>});
}

}  // namespace fb
