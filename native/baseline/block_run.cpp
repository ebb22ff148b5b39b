// Runs block programs: the baseline tier. No GIL, no allocation, no exceptions.
#include <algorithm>

#include "baseline/block_program.h"
#include "plan/size_run.h"

namespace fb {
namespace {

constexpr int64_t kTileRows = 16;  // of a block of a transposing map: full cache lines
constexpr int64_t kMostResident = int64_t{1} << 40;  // elements; no memory has so many
constexpr int64_t kMaskBytes = 4;                    // of a mask in a register
constexpr int64_t kNarrow = 16;                      // equal elements of a narrow value

struct Run {
  const BlockProgram& program;
  char* const* p;
  const int64_t* n;
  const Scalar* x;
  char* scratch;
  int64_t* sizes;   // size registers
  char** at;        // per block register: where its elements are
  uint8_t* narrow;  // per block register: kNarrow equal elements, for all of the block
  char* staging;    // a block in memory form
  int64_t s = 1, w = 1, s0 = 0, w0 = 0;  // extents of the block, and its first element
  int64_t counts[4] = {1, 1, 1, 1};      // elements, by level
  bool one_block = false;                // it has all of w: reductions need no state
  bool across = false;                   // a column or scan kernel
  int64_t resident_elements = 0;         // of a resident vector
  const BlockObserver* observer = nullptr;

  char* own(int32_t number) const { return scratch + program.register_offsets[number]; }
  char* state(int32_t number) const { return scratch + program.state_offsets[number]; }
  char* fresh(int32_t number) { return at[number] = own(number); }
  // What does not vary in a block of one row is computed as kNarrow equal elements.
  bool single(uint8_t level) const {
    return level == kAlongNone || (level == kAlongS && s == 1 && !across);
  }
  int64_t size(int32_t number) const { return number < 0 ? 0 : sizes[number]; }

  void extents(int64_t rows, int64_t columns) {
    s = rows;
    w = columns;
    counts[kAlongS] = rows;
    counts[kAlongW] = columns;
    counts[kAlongBoth] = rows * columns;
  }
  char* resident(int32_t number) const {
    int64_t offset = program.fixed_bytes;
    for (int32_t i = 0; i < number; ++i) offset += resident_elements * program.resident[i];
    return scratch + offset + (s == 1 ? w0 : 0) * program.resident[number];
  }
};

// Elements of a buffer that a block touches: `rows` times `columns`, or one run of them.
struct Window {
  char* base;
  int64_t rows, columns, row_stride, stride, width;
  const int64_t* offsets = nullptr;  // of each row, in elements
  bool shared_offset = false;        // one of all rows

  bool single() const { return rows == 1; }
  bool contiguous() const { return stride == 1 || columns == 1; }
  char* row(int64_t i) const {
    const int64_t offset = offsets ? offsets[shared_offset ? 0 : i] : 0;
    return base + (i * row_stride + offset) * width;
  }
};

Window window_of(const Run& run, const BlockInstruction& i) {
  const int64_t along_s = run.size(i.x[2]), along_w = run.size(i.x[3]);
  const int64_t width = run.program.parameters[i.x[0]].width;
  const int64_t first = run.size(i.x[1]) + along_s * run.s0 + along_w * run.w0;
  const int64_t rows = i.level & kAlongS ? run.s : 1, columns = i.level & kAlongW ? run.w : 1;
  Window window{run.p[i.x[0]] + first * width, rows, columns, along_s, along_w, width};
  if (i.code == BlockCode::Load && i.a >= 0) {
    window.offsets = reinterpret_cast<const int64_t*>(run.at[i.a]);
    window.shared_offset = i.x[4] & kSharedOffset;
  } else if (rows == 1 || (columns > 1 && along_s == columns * along_w)) {
    window.rows = 1;
    window.columns = rows * columns;
  } else if (columns == 1) {
    window.rows = 1;
    window.columns = rows;
    window.stride = along_s;
  }
  return window;
}

void copy(char* to, const char* from, int64_t bytes) {
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

template <typename T>
void repeat_first(char* at) {
  T* elements = reinterpret_cast<T*>(at);
  for (int64_t i = 1; i < kNarrow; ++i) elements[i] = elements[0];
}

struct Wide {
  int64_t low, high;
};

// After a value was computed as one element.
void fill_narrow(Run* run, const BlockInstruction& i) {
  if (!run->single(i.level)) return;
  char* at = run->at[i.dst];
  switch (run->program.registers[i.dst]) {
    case 1:
      return repeat_first<int8_t>(at);
    case 2:
      return repeat_first<int16_t>(at);
    case 4:
      return repeat_first<int32_t>(at);
    case 8:
      return repeat_first<int64_t>(at);
    default:
      return repeat_first<Wide>(at);
  }
}

// `function` (a gather, or a scatter) copies the elements of a window.
void move(BlockFunction function, char* to, char* from, const Window& window) {
  char* const operands[] = {to, from};
  const int64_t stride = window.columns == 1 ? 1 : window.stride;
  const int64_t numbers[] = {window.rows, window.columns, window.row_stride, stride};
  function(operands, numbers);
}

// Elements of memory, in memory form, side by side at `to`.
void gather(const Window& window, const BlockInstruction& i, char* to) {
  if (!window.single() && window.row_stride == 1 && !window.contiguous() && !window.offsets) {
    // Memory runs along s: full cache lines are read, and written across the block.
    char* const operands[] = {to, window.base};
    const int64_t numbers[] = {window.rows, window.columns, window.stride};
    return i.h(operands, numbers);
  }
  if (!window.offsets) return move(i.f, to, window.base, window);
  Window line = window;
  line.rows = 1;
  for (int64_t row = 0; row < window.rows; ++row) {
    move(i.f, to + row * window.columns * window.width, window.row(row), line);
  }
}

void convert(BlockFunction function, char* to, char* from, int64_t count) {
  char* const operands[] = {to, from};
  const int64_t numbers[] = {count, 0};
  function(operands, numbers);
}

void load_masked(Run* run, const BlockInstruction& i, const Window& window, char* to) {
  for (int64_t row = 0; row < window.rows; ++row) {
    const int64_t first = row * window.columns;
    char* const operands[] = {to + first * window.width, window.row(row),
                              run->at[i.b] + first * kMaskBytes, run->at[i.c]};
    const int64_t numbers[] = {window.columns, window.stride};
    i.f(operands, numbers);
  }
}

void load(Run* run, const BlockInstruction& i) {
  const Window window = window_of(*run, i);
  const int64_t count = run->counts[i.level];
  if (i.b >= 0) {
    char* to = i.g ? run->staging : run->fresh(i.dst);
    load_masked(run, i, window, to);
    if (i.g) convert(i.g, run->fresh(i.dst), to, count);
  } else if (window.single() && window.contiguous()) {
    if (i.g) {
      convert(i.g, run->fresh(i.dst), window.row(0), count);
    } else if (i.x[4] & kDirect) {
      run->at[i.dst] = window.row(0);
    } else {
      move(i.f, run->fresh(i.dst), window.row(0), window);
    }
  } else if (i.g) {
    gather(window, i, run->staging);
    convert(i.g, run->fresh(i.dst), run->staging, count);
  } else {
    gather(window, i, run->fresh(i.dst));
  }
}

void take(Run* run, const BlockInstruction& i) {
  char* to = i.g ? run->staging : run->own(i.dst);
  const int64_t count = run->counts[i.level];
  char* operands[] = {to, run->p[i.x[0]], run->at[i.a], nullptr, nullptr};
  if (i.b >= 0) {
    operands[3] = run->at[i.b];
    operands[4] = run->at[i.c];
  }
  i.f(operands, &count);
  if (i.g) convert(i.g, run->own(i.dst), to, count);
  run->fresh(i.dst);
}

void store(Run* run, const BlockInstruction& i) {
  const Window window = window_of(*run, i);
  char* from = run->at[i.a];
  if (i.g && window.single() && window.contiguous()) {
    return convert(i.g, window.base, from, window.columns);
  }
  if (i.g) {
    convert(i.g, run->staging, from, run->counts[i.level]);
    from = run->staging;
  }
  const bool there = window.single() && from == window.base;
  if (!there) move(i.f, window.base, from, window);
}

void give(Run* run, const BlockInstruction& i) {
  char* from = run->at[i.a];
  const int64_t count = run->counts[i.level];
  if (i.g) convert(i.g, run->staging, from, count);
  char* const operands[] = {run->p[i.x[0]], run->at[i.b], i.g ? run->staging : from};
  i.f(operands, &count);
}

void call(Run* run, const BlockInstruction& i, char* to) {
  char* operands[4] = {to};
  int64_t numbers[4] = {run->single(i.level) ? kNarrow : run->counts[i.level], 0, 0, 0};
  const int16_t registers[] = {i.a, i.b, i.c};
  for (int k = 0; k < 3 && registers[k] >= 0; ++k) {
    operands[k + 1] = run->at[registers[k]];
    numbers[k + 1] = -static_cast<int64_t>(run->narrow[registers[k]]);
  }
  i.f(operands, numbers);
}

// Where the store of a result writes, if that is where the result may be computed.
char* direct(const Run& run, const BlockInstruction& i) {
  if (i.g) return nullptr;
  const Window window = window_of(run, i);
  return window.single() && window.contiguous() ? window.base : nullptr;
}

// A block of nothing may hold anything: what is computed of it may overflow.
int64_t wrapping_add(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
int64_t wrapping_mul(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

void fill_index(Run* run, const BlockInstruction& i) {
  char* const operands[] = {run->own(i.dst), i.a < 0 ? nullptr : run->at[i.a]};
  const int64_t along_s = run->size(i.x[2]), along_w = run->size(i.x[3]);
  const int64_t first = run->size(i.x[1]) + along_s * run->s0 + along_w * run->w0;
  const int64_t rows = i.level & kAlongS ? run->s : 1, columns = i.level & kAlongW ? run->w : 1;
  const int64_t numbers[] = {rows, columns, first, along_s, along_w, run->size(i.x[4])};
  i.f(operands, numbers);
  run->fresh(i.dst);
}

void add_index(Run* run, const BlockInstruction& i) {
  const auto* a = reinterpret_cast<const int64_t*>(run->at[i.a]);
  const auto* b = reinterpret_cast<const int64_t*>(run->at[i.b]);
  auto* to = reinterpret_cast<int64_t*>(run->fresh(i.dst));
  const int64_t factor = run->size(i.x[1]), count = run->counts[i.level];
  for (int64_t j = 0; j < count; ++j) to[j] = wrapping_add(a[j], wrapping_mul(b[j], factor));
}

template <typename Operation>
void integers(Run* run, const BlockInstruction& i, Operation operation) {
  const auto* a = reinterpret_cast<const int64_t*>(run->at[i.a]);
  const auto* b = reinterpret_cast<const int64_t*>(run->at[i.b]);
  auto* to = reinterpret_cast<int64_t*>(run->fresh(i.dst));
  const int64_t count = run->counts[i.level];
  for (int64_t j = 0; j < count; ++j) to[j] = operation(a[j], b[j]);
}

// Quotients, rounded down, or remainders. Positions mostly move by less than the divisor: no
// division. Divisors are positive; a block of nothing may hold anything.
template <bool kQuotient>
void divide(Run* run, const BlockInstruction& i) {
  const auto* a = reinterpret_cast<const int64_t*>(run->at[i.a]);
  const auto* b = reinterpret_cast<const int64_t*>(run->at[i.b]);
  auto* to = reinterpret_cast<int64_t*>(run->fresh(i.dst));
  const int64_t count = run->counts[i.level];
  int64_t divisor = 0, last = 0, quotient = 0, remainder = 0;
  for (int64_t j = 0; j < count; ++j) {
    const int64_t moved = wrapping_add(remainder, wrapping_add(a[j], wrapping_mul(last, -1)));
    if (b[j] == divisor && moved >= 0 && moved < divisor) {
      remainder = moved;
    } else if (b[j] == divisor && moved >= divisor && moved - divisor < divisor) {
      remainder = moved - divisor;
      ++quotient;
    } else if (b[j] == divisor && moved < 0 && moved >= -divisor) {
      remainder = moved + divisor;
      --quotient;
    } else {
      divisor = b[j];
      quotient = divisor > 0 ? a[j] / divisor : 0;
      remainder = divisor > 0 ? a[j] % divisor : 0;
      if (remainder < 0) {
        remainder += divisor;
        --quotient;
      }
    }
    last = a[j];
    to[j] = kQuotient ? quotient : remainder;
  }
}

void integer(Run* run, const BlockInstruction& i) {
  using I = int64_t;
  switch (static_cast<SizeOp>(i.x[0])) {
    case SizeOp::Add:
      return integers(run, i, [](I a, I b) { return wrapping_add(a, b); });
    case SizeOp::Sub:
      return integers(run, i, [](I a, I b) { return wrapping_add(a, wrapping_mul(b, -1)); });
    case SizeOp::Mul:
      return integers(run, i, [](I a, I b) { return wrapping_mul(a, b); });
    case SizeOp::FloorDiv:
      return divide<true>(run, i);
    case SizeOp::Mod:
      return divide<false>(run, i);
    case SizeOp::Min:
      return integers(run, i, [](I a, I b) { return a < b ? a : b; });
    default:
      return integers(run, i, [](I a, I b) { return a > b ? a : b; });
  }
}

void check(Run* run, const BlockInstruction& i) {
  char* const operands[] = {run->own(i.dst), run->at[i.a], run->p[i.x[0]]};
  const int64_t numbers[] = {run->counts[i.level], run->size(i.x[1]), i.x[2], i.x[3]};
  i.f(operands, numbers);
  run->fresh(i.dst);
}

// Repeats an operand along axes. Primitives take one that is the same in all of a block as it is.
void expand(Run* run, const BlockInstruction& i) {
  const auto level = static_cast<uint8_t>(i.x[0]);
  const bool narrow = i.x[4] && run->single(level);
  run->narrow[i.dst] = narrow;
  if (narrow || (level == kAlongW && run->s == 1 && !run->across)) {
    run->at[i.dst] = run->at[i.a];
    return;
  }
  char* const operands[] = {run->own(i.dst), run->at[i.a]};
  const int64_t count = run->counts[i.level], extents[] = {run->s, run->w};
  i.f(operands, i.x[0] == kAlongNone ? &count : extents);
  run->fresh(i.dst);
}

void retain(Run* run, const BlockInstruction& i) {
  const int64_t count = run->counts[i.level];
  char* to = run->resident(i.x[0]);
  if (i.g) {
    convert(i.g, to, run->at[i.a], count);
  } else {
    copy(to, run->at[i.a], count * run->program.resident[i.x[0]]);
  }
}

void read_resident(Run* run, const BlockInstruction& i) {
  char* from = run->resident(i.x[0]);
  if (i.g) {
    convert(i.g, run->fresh(i.dst), from, run->counts[i.level]);
  } else {
    run->at[i.dst] = from;
  }
}

void reduce(Run* run, const BlockInstruction& i) {
  if (run->one_block) {
    char* const operands[] = {run->fresh(i.dst), run->at[i.a]};
    const int64_t numbers[] = {run->s, run->w};
    return i.h(operands, numbers);
  }
  char* const operands[] = {run->state(i.x[0]), run->at[i.a]};
  const int64_t numbers[] = {run->w, run->w0};
  i.f(operands, numbers);
}

void columns(Run* run, const BlockInstruction& i) {
  char* const operands[] = {run->state(i.x[0]), run->at[i.a]};
  const int64_t numbers[] = {run->s, run->w, run->s0, run->size(run->program.reduce)};
  i.f(operands, numbers);
}

void scan(Run* run, const BlockInstruction& i) {
  char* const operands[] = {run->fresh(i.dst), run->state(i.x[0]), run->at[i.a],
                            i.b < 0 ? nullptr : run->at[i.b]};
  const int64_t numbers[] = {run->s, run->w, run->s0};
  i.f(operands, numbers);
}

void read_scalar(Run* run, const BlockInstruction& i) {
  const Scalar value = run->x[i.x[0]];
  char* to = run->fresh(i.dst);
  if (i.x[1] == 2) {
    const int32_t mask = value.i != 0 ? -1 : 0;
    copy(to, reinterpret_cast<const char*>(&mask), sizeof(mask));
  } else {
    copy(to, reinterpret_cast<const char*>(&value), sizeof(value));
  }
}

// Calls the observer; `done`: the instruction has a result.
void observe(const Run& run, const BlockInstruction& i, bool done) {
  const int32_t number = i.dst >= 0 ? i.dst : i.a;  // of a store what it stored
  const bool equal = i.code == BlockCode::Expand && run.narrow[i.dst];
  const int64_t rows = i.level & kAlongS ? run.s : 1, columns = i.level & kAlongW ? run.w : 1;
  const BlockStep step{static_cast<int32_t>(&i - run.program.instructions.data()),
                       done ? run.at[number] : nullptr,
                       run.program.registers[number],
                       equal ? 1 : rows * columns,
                       rows,
                       columns,
                       run.s0,
                       run.w0,
                       run.sizes + run.program.sizes};
  run.observer->step(run.observer->context, step);
}

bool goes_on(const Run& run, const BlockInstruction& i) {
  return i.code == BlockCode::Columns || (i.code == BlockCode::Reduce && !run.one_block);
}

template <bool kObserved>
void execute_all(Run* run, int32_t begin, int32_t end) {
  const BlockInstruction* const list = run->program.instructions.data();
  for (const BlockInstruction* i = list + begin; i < list + end; ++i) {
    switch (i->code) {
      case BlockCode::Call: {
        char* to = nullptr;
        if (!kObserved && i->x[0] && (to = direct(*run, i[1]))) {
          call(run, *i, to);
          ++i;
        } else {
          call(run, *i, run->own(i->dst));
          run->fresh(i->dst);
        }
        break;
      }
      case BlockCode::Constant:
        copy(run->fresh(i->dst), reinterpret_cast<const char*>(i->x), kRegisterBytes);
        fill_narrow(run, *i);
        break;
      case BlockCode::Scalar:
        read_scalar(run, *i);
        fill_narrow(run, *i);
        break;
      case BlockCode::Load:
        load(run, *i);
        if (!(i->x[4] & kDirect)) fill_narrow(run, *i);
        break;
      case BlockCode::Take:
        take(run, *i);
        fill_narrow(run, *i);
        break;
      case BlockCode::Store:
        store(run, *i);
        break;
      case BlockCode::Give:
        give(run, *i);
        break;
      case BlockCode::Index:
        fill_index(run, *i);
        fill_narrow(run, *i);
        break;
      case BlockCode::AddIndex:
        add_index(run, *i);
        fill_narrow(run, *i);
        break;
      case BlockCode::Integer:
        integer(run, *i);
        fill_narrow(run, *i);
        break;
      case BlockCode::Check:
        check(run, *i);
        fill_narrow(run, *i);
        break;
      case BlockCode::Expand:
        expand(run, *i);
        break;
      case BlockCode::Retain:
        retain(run, *i);
        break;
      case BlockCode::Resident:
        read_resident(run, *i);
        break;
      case BlockCode::Reduce:
        reduce(run, *i);
        break;
      case BlockCode::Columns:
        columns(run, *i);
        break;
      case BlockCode::Scan:
        scan(run, *i);
        break;
    }
    if constexpr (kObserved) observe(*run, *i, !goes_on(*run, *i));
  }
}

void execute(Run* run, int32_t begin, int32_t end) {
  if (run->observer) [[unlikely]] {
    return execute_all<true>(run, begin, end);
  }
  execute_all<false>(run, begin, end);
}

// Results of reductions after the last block.
void conclude(Run* run, const BlockStatement& statement, int64_t extent) {
  for (int32_t at = statement.body; at < statement.end; ++at) {
    const BlockInstruction& i = run->program.instructions[at];
    if (i.code == BlockCode::Reduce && !run->one_block) {
      char* const operands[] = {run->fresh(i.dst), run->state(i.x[0])};
      i.g(operands, &extent);
      fill_narrow(run, i);
    } else if (i.code == BlockCode::Reduce) {
      fill_narrow(run, i);
    } else if (i.code == BlockCode::Columns) {
      char* const operands[] = {run->fresh(i.dst), run->state(i.x[0])};
      const int64_t numbers[] = {run->w, extent};
      i.g(operands, numbers);
    }
    if (run->observer && goes_on(*run, i)) observe(*run, i, true);
  }
}

// Expands the rows' own values anew for a block of fewer columns: it has shorter rows.
void expand_again(Run* run, const BlockStatement& statement) {
  for (int32_t at = statement.before; at < statement.body; ++at) {
    const BlockInstruction& i = run->program.instructions[at];
    if (i.code == BlockCode::Expand) expand(run, i);
  }
}

// Where the last of several statements writes: the memory arrives while the others run.
void fetch_results(Run* run, int64_t rows, int64_t first, int64_t columns) {
  const auto& statements = run->program.statements;
  if (statements.size() < 2) return;
  run->w0 = first;
  run->extents(rows, columns);
  for (int32_t at = statements.back().body; at < statements.back().end; ++at) {
    const BlockInstruction& i = run->program.instructions[at];
    if (i.code != BlockCode::Store) continue;
    const Window window = window_of(*run, i);
    if (!window.single() || !window.contiguous()) continue;
    const int64_t bytes = window.columns * window.width;
    for (int64_t byte = 0; byte < bytes; byte += 64) __builtin_prefetch(window.base + byte, 1);
  }
}

// Statements of a map or row kernel for `rows` rows, r in [first, inner).
void run_rows(Run* run, int64_t rows, int64_t first, int64_t inner, int64_t most) {
  if (run->resident_elements > 0 && inner > run->resident_elements)
    return;  // none of lower.py's programs
  const int64_t widest = std::clamp<int64_t>(inner - first, 0, most);
  fetch_results(run, rows, first, widest);
  for (const BlockStatement& statement : run->program.statements) {
    run->w0 = first;
    run->extents(rows, widest);
    execute(run, statement.before, statement.body);
    if (statement.once) continue;
    for (int64_t r = first; r < inner; r += most) {
      run->w0 = r;
      run->extents(rows, std::min(most, inner - r));
      if (rows > 1 && run->w < widest) expand_again(run, statement);
      execute(run, statement.body, statement.end);
    }
    conclude(run, statement, inner);
  }
}

// Statements of a column or scan kernel for a block of columns from r0 on.
void run_columns(Run* run, int64_t r0, int64_t inner) {
  const BlockProgram& program = run->program;
  const int64_t width = std::min<int64_t>(program.column_block, inner - r0);
  const int64_t extent = run->sizes[program.reduce];
  const int64_t elements = program.form == BlockForm::Column ? kReduceChunk : kBlock;
  int64_t most = elements;
  while (most * width > elements) most /= 2;
  for (const BlockStatement& statement : run->program.statements) {
    run->s0 = 0;
    run->w0 = r0;
    run->extents(most, width);
    execute(run, statement.before, statement.body);
    if (statement.once) continue;
    for (int64_t k = 0; k < extent; k += most) {
      run->s0 = k;
      run->extents(std::min(most, extent - k), width);
      execute(run, statement.body, statement.end);
    }
    conclude(run, statement, extent);
  }
}

// ---- rows

int64_t blocks_of(int64_t extent, int64_t block) { return (extent + block - 1) / block; }

struct Rows {
  int64_t extents[kMaxDims + 2], at[kMaxDims + 2];
  int count = 0;

  void add(int64_t extent) { extents[count++] = extent; }
  int64_t total() const {
    int64_t product = 1;
    for (int i = 0; i < count; ++i) product *= extents[i];
    return product;
  }
  void seek(int64_t row) {
    for (int i = count - 1; i >= 0; --i) {
      at[i] = row % extents[i];
      row /= extents[i];
    }
  }
  // By at most what is left of the last axis.
  void advance(int64_t number) {
    for (int i = count - 1; i >= 0; --i, number = 1) {
      at[i] += number;
      if (at[i] < extents[i]) return;
      at[i] = 0;
    }
  }
};

// The row axes' values, and all that depends on them.
void enter(Run* run, const int64_t* axes) {
  const BlockProgram& program = run->program;
  std::copy(axes, axes + program.rows.size(), run->sizes + program.sizes);
  const auto first = static_cast<size_t>(program.fixed);
  run_sizes(program.code, run->sizes, first, program.code.code.size());
}

void map_or_row_chunks(Run* run, Rows rows, int64_t row, int64_t stop) {
  const BlockProgram& program = run->program;
  const int64_t last = rows.count - 1;
  int64_t length = 0, fitting = 1;  // a length of rows, and how many of it fit into a block
  for (rows.seek(row); row < stop;) {
    enter(run, rows.at);
    const int64_t inner = run->sizes[program.inner];
    int64_t most = 1;
    if (program.spans && last >= 0 && inner > 0) {
      if (inner != length) {
        length = inner;
        fitting = std::max<int64_t>(1, kBlock / inner);
      }
      most = std::min({fitting, rows.extents[last] - rows.at[last], stop - row});
    }
    run->one_block = inner > 0 && inner <= kBlock;
    run_rows(run, most, 0, inner, kBlock);
    row += most;
    rows.advance(most);
  }
}

void tiled_chunks(Run* run, Rows rows, int64_t row, int64_t stop) {
  const BlockProgram& program = run->program;
  const int64_t last = rows.count - 1, height = run->sizes[program.rows[last]];
  for (; row < stop; ++row) {
    rows.seek(row);
    const int64_t first = rows.at[last] * program.tile_block;
    const int64_t end = std::min(height, first + program.tile_block);
    const int64_t step = program.spans ? kTileRows : 1;
    for (int64_t p = first; p < end; p += step) {
      rows.at[last] = p;
      enter(run, rows.at);
      run_rows(run, std::min(step, end - p), 0, run->sizes[program.inner], kBlock / step);
    }
  }
}

void column_chunks(Run* run, Rows rows, int64_t row, int64_t stop) {
  for (; row < stop; ++row) {
    rows.seek(row);
    enter(run, rows.at);
    run_columns(run, rows.at[rows.count - 1] * run->program.column_block,
                run->sizes[run->program.inner]);
  }
}

// Numbers, constants and what is computed from them alone: one element, or blocks of it.
void run_prologue(Run* run) {
  run->extents(1, 1);
  for (int level = kAlongS; level <= kAlongBoth; ++level) run->counts[level] = kBlock;
  execute(run, 0, run->program.prologue);
}

void report(int64_t* record, int64_t value, int64_t size, int64_t dimension) {
  if (record[0]) return;
  record[1] = value;
  record[2] = size;
  record[3] = dimension;
  record[0] = 1;
}

// A checked index into nothing is an error even before anything may be read.
bool indexes_nothing(const Run& run) {
  if (!run.program.checks) return false;
  for (const BlockInstruction& i : run.program.instructions) {
    if (i.code != BlockCode::Check || run.size(i.x[1]) != 0) continue;
    report(reinterpret_cast<int64_t*>(run.p[i.x[0]]), 0, 0, i.x[2]);
    return true;
  }
  return false;
}

}  // namespace

int64_t BlockProgram::prepare(int64_t* n, int64_t* behind) const {
  std::copy(n, n + sizes, behind);
  const bool valid = run_sizes(code, behind, 0, static_cast<size_t>(fixed));
  n[-1] = reinterpret_cast<int64_t>(this);
  n[-2] = valid ? reinterpret_cast<int64_t>(behind) : 0;
  n[-3] = resident.empty() ? 0 : resident_elements(behind);
  int64_t width = 0;
  for (int32_t bytes : resident) width += bytes;
  return fixed_bytes + n[-3] * width;
}

// Vectors of rows whose length depends on the row have at most 8192 elements (ir/kernel.py).
int64_t BlockProgram::resident_elements(const int64_t* numbers) const {
  const int64_t longest = inner_moves ? 8192 : std::clamp(numbers[inner], kBlock, kMostResident);
  return (longest + 63) / 64 * 64;
}

namespace {

void run_chunks(char* const* p, const int64_t* n, const Scalar* x, int64_t begin, int64_t end,
                char* scratch, const BlockObserver* observer) {
  const auto& program = *reinterpret_cast<const BlockProgram*>(n[-1]);
  Run run{program,
          p,
          n,
          x,
          scratch,
          reinterpret_cast<int64_t*>(scratch),
          reinterpret_cast<char**>(scratch + program.pointers),
          reinterpret_cast<uint8_t*>(scratch + program.narrow),
          scratch + program.staging};
  const auto* numbers = reinterpret_cast<const int64_t*>(n[-2]);
  if (!numbers) return;  // sizes that no kernel takes
  std::memset(run.narrow, 0, program.registers.size());
  std::copy(numbers, numbers + program.code.inputs + program.fixed, run.sizes);
  run.resident_elements = n[-3];
  const bool across = program.form == BlockForm::Column || program.form == BlockForm::Scan;
  run.across = across;
  run.observer = observer;
  if (observer) std::fill_n(run.sizes + program.sizes, program.rows.size(), 0);  // of the prologue
  if (indexes_nothing(run)) return;
  run_prologue(&run);
  if (program.form == BlockForm::Map && program.rows.empty()) {
    enter(&run, nullptr);
    const int64_t chunk = program.map_chunk;
    const int64_t inner = std::min(run.sizes[program.inner], end * chunk);
    return run_rows(&run, 1, begin * chunk, inner, kBlock);
  }
  Rows rows;
  for (int32_t extent : program.rows) {
    if (run.sizes[extent] <= 0) return;
    rows.add(run.sizes[extent]);
  }
  if (across) rows.add(blocks_of(run.sizes[program.inner], program.column_block));
  if (program.tiled) {
    int64_t& height = rows.extents[rows.count - 1];
    height = blocks_of(height, program.tile_block);
  }
  const int64_t step = n[program.sizes - 1], total = rows.total();
  const int64_t row = begin * step, stop = std::min(end * step, total);
  if (across) return column_chunks(&run, rows, row, stop);
  if (program.tiled) return tiled_chunks(&run, rows, row, stop);
  map_or_row_chunks(&run, rows, row, stop);
}

}  // namespace

void run_block_program(char* const* p, const int64_t* n, const Scalar* x, int64_t begin,
                       int64_t end, char* scratch) {
  run_chunks(p, n, x, begin, end, scratch, nullptr);
}

void step_block_program(char* const* p, const int64_t* n, const Scalar* x, int64_t begin,
                        int64_t end, char* scratch, const BlockObserver& observer) {
  run_chunks(p, n, x, begin, end, scratch, &observer);
}

}  // namespace fb
