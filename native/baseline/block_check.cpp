// Checks block programs: every number in them, and that no instruction reads or writes beyond what
// a register, a state or a resident vector holds. The names of functions state the bytes of
// elements; levels state how many elements there are. Where a program is in its buffers follows
// from sizes, as it does in a kernel, and is not checked here.
#include "baseline/block_check.h"

#include <algorithm>
#include <string_view>

#include "call/op_internal.h"
#include "plan/plan_check.h"

namespace fb {
namespace {

constexpr int32_t kMaskWidth = 4;
constexpr int32_t kIndexWidth = 8;
constexpr size_t kMostOperands = 3;
constexpr int32_t kMostChunk = 1 << 20;  // elements

bool wrong(const char* details) { return bad_spec("block program", details); }

bool is_width(int32_t bytes) {
  return bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8 || bytes == 16;
}

// ---- names of functions

// Bytes of a dtype's elements in memory; 0: there is no such dtype.
int32_t memory_width(std::string_view dtype) {
  for (const DTypeInfo& info : kDTypes) {
    if (dtype == info.ir_name) return static_cast<int32_t>(info.item_size);
  }
  return 0;
}

// Bytes of a dtype's elements in a register.
int32_t value_width(std::string_view dtype) {
  const bool coded = dtype == "f16" || dtype == "bf16" || dtype == "bool";
  return coded ? kMaskWidth : memory_width(dtype);
}

// The part of a name behind its first word, if that is `word`; else nothing.
std::string_view after(std::string_view name, std::string_view word) {
  if (!name.starts_with(word) || name.size() <= word.size() || name[word.size()] != ' ') return {};
  return name.substr(word.size() + 1);
}

// Widths of a primitive: `<primitive> <dtype>,..><dtype>`.
struct Widths {
  int32_t result = 0;  // 0: the name is none of a primitive
  int32_t operands[kMostOperands] = {};
  size_t count = 0;
};

Widths widths_of(std::string_view name) {
  Widths widths;
  const size_t space = name.find(' '), arrow = name.rfind('>');
  if (space == name.npos || arrow == name.npos || arrow < space) return {};
  std::string_view dtypes = name.substr(space + 1, arrow - space - 1);
  while (!dtypes.empty()) {
    const size_t comma = dtypes.find(',');
    if (widths.count == kMostOperands) return {};
    widths.operands[widths.count] = value_width(dtypes.substr(0, comma));
    if (widths.operands[widths.count++] == 0) return {};
    dtypes.remove_prefix(comma == dtypes.npos ? dtypes.size() : comma + 1);
  }
  widths.result = value_width(name.substr(arrow + 1));
  return widths;
}

// ---- instructions

enum class Section : uint8_t { Prologue, Before, Body };

constexpr int32_t kNothing = -1;
constexpr int32_t kPending = -2;  // a result of a reduction that goes on

// What a register holds: elements of a level, or as many as there can be.
struct Contents {
  int32_t level = kNothing;
  bool all = false;    // kBlock elements in memory of its own
  bool local = false;  // of one body only
  bool calls = false;  // for calls only: perhaps it is the memory of what was expanded
};

class Checker {
 public:
  Checker(const BlockProgram& program, const BlockNames& names, BlockPlace* place)
      : program_(program), names_(names), place_(place), contents_(program.registers.size()) {}

  bool header() const;
  bool sizes();
  bool run();

 private:
  bool section(Section section, int32_t begin, int32_t end);
  bool statement(const BlockStatement& statement);
  bool in_section(Section section, BlockCode code) const;
  bool instruction(Section section, const BlockInstruction& i);
  bool number(const BlockInstruction& i) const;
  bool reduction(const BlockInstruction& i);
  bool scan(const BlockInstruction& i);
  bool load(const BlockInstruction& i);
  bool window(const BlockInstruction& i, bool masked, int32_t bytes) const;
  bool store(const BlockInstruction& i);
  bool call(const BlockInstruction& i, bool last);
  bool expand(const BlockInstruction& i);
  bool define(Section section, const BlockInstruction& i);

  std::string_view name(const BlockInstruction& i, size_t which) const {
    const auto at = static_cast<size_t>(&i - program_.instructions.data());
    const int32_t number = names_.calls[at][which];
    return number < 0 ? std::string_view{} : names_.functions[static_cast<size_t>(number)].name;
  }
  // Whether a function is that of a width: `gather 4`.
  bool moves(const BlockInstruction& i, std::string_view move, int32_t width) const {
    return i.f && after(name(i, 0), move) == std::to_string(width);
  }
  // Whether a register of this width holds the elements of memory of that one, directly or by `g`.
  bool converts(const BlockInstruction& i, std::string_view word, int32_t value,
                int32_t memory) const {
    if (!i.g) return value == memory;
    return value == kMaskWidth && memory_width(after(name(i, 1), word)) == memory;
  }
  bool own_state(const BlockInstruction& i, std::string_view kind, std::string_view operation);
  int32_t width(int32_t number) const {
    const bool exists = number >= 0 && static_cast<size_t>(number) < program_.registers.size();
    return exists ? program_.registers[static_cast<size_t>(number)] : 0;
  }
  // Whether a register holds elements of this width for every element of a level.
  bool reads(int32_t number, int32_t bytes, int32_t level, bool calls = false) const {
    if (bytes == 0 || width(number) != bytes) return false;
    const Contents& held = contents_[static_cast<size_t>(number)];
    return (held.level == level || held.all) && (!held.calls || calls);
  }
  bool result(const BlockInstruction& i, int32_t bytes) const {
    if (bytes == 0 || width(i.dst) != bytes) return false;
    return i.code == BlockCode::Call || (i.dst != i.a && i.dst != i.b && i.dst != i.c);
  }
  int32_t parameter(const BlockInstruction& i, bool written) const {
    const int32_t number = i.x[0];
    if (number < 0 || static_cast<size_t>(number) >= program_.parameters.size()) return 0;
    const BlockParameter& parameter = program_.parameters[static_cast<size_t>(number)];
    return written && !parameter.written ? 0 : parameter.width;
  }
  bool size(int32_t number, bool absent) const {
    return (number == -1 && absent) || (number >= 0 && number < program_.code.registers());
  }
  // Whether a size is computed before the row axes are.
  bool fixed(int32_t number) const {
    const int32_t inputs = program_.code.inputs;
    return number >= 0 &&
           (number < program_.sizes || (number >= inputs && number < inputs + program_.fixed));
  }
  bool strides(const BlockInstruction& i) const {
    return size(i.x[1], true) && size(i.x[2], true) && size(i.x[3], true);
  }
  bool along_rows() const {
    return program_.form == BlockForm::Map || program_.form == BlockForm::Row;
  }
  // Whether a value of this level differs from block to block of a body.
  bool varies(int32_t level) const { return level & (along_rows() ? kAlongW : kAlongS); }
  int32_t resident(const BlockInstruction& i) const {
    if (!along_rows() || i.level != kAlongBoth) return 0;
    const auto number = static_cast<size_t>(i.x[0]);
    return i.x[0] >= 0 && number < program_.resident.size() ? program_.resident[number] : 0;
  }

  const BlockProgram& program_;
  const BlockNames& names_;
  BlockPlace* place_;
  std::vector<Contents> contents_;
  std::vector<bool> used_ = std::vector<bool>(program_.states.size());  // states
};

bool Checker::header() const {
  if (program_.form > BlockForm::Scan) return wrong("form");
  if (program_.fixed < 0 || program_.fixed > static_cast<int32_t>(program_.code.code.size())) {
    return wrong("size instructions that depend on sizes alone");
  }
  if (program_.rows.size() > kMaxDims) return wrong("row axes");
  for (int32_t row : program_.rows) {
    if (!fixed(row)) return wrong("row axes");
  }
  const bool across = program_.form == BlockForm::Column || program_.form == BlockForm::Scan;
  if (!size(program_.inner, false) || !size(program_.reduce, false)) return wrong("extents");
  if ((across || !program_.inner_moves) && !fixed(program_.inner)) return wrong("extents");
  const bool flat = program_.form == BlockForm::Map && program_.rows.empty();
  if (!flat && program_.sizes == 0) return wrong("no number of rows of a chunk");
  const bool tiles = program_.form == BlockForm::Map && !program_.rows.empty();
  if (program_.tiled && !tiles) return wrong("tiles without rows");
  for (int32_t elements : {program_.map_chunk, program_.column_block, program_.tile_block}) {
    if (elements <= 0 || elements > kMostChunk) return wrong("chunks");
  }
  if (program_.column_block > kStateColumns) return wrong("chunks");
  for (const auto* widths : {&program_.registers, &program_.resident}) {
    if (!std::all_of(widths->begin(), widths->end(), is_width)) return wrong("width");
  }
  for (const BlockParameter& parameter : program_.parameters) {
    if (!is_width(parameter.width)) return wrong("width");
  }
  return true;
}

bool Checker::sizes() {
  const SizeProgram& code = program_.code;
  for (size_t k = 0; k < code.code.size(); ++k) {
    *place_ = {"size", static_cast<int32_t>(k)};
    const SizeInstruction& instruction = code.code[k];
    const auto op = static_cast<int>(instruction.op);
    if (op < 0 || op > static_cast<int>(SizeOp::Not)) return wrong("size instruction");
    if (instruction.op == SizeOp::Const) continue;
    const int64_t here = code.inputs + static_cast<int64_t>(k);
    for (const int64_t operand : {instruction.a, static_cast<int64_t>(instruction.b)}) {
      if (operand < 0 || operand >= here) return wrong("size operand");
      const bool row = operand >= program_.sizes && operand < code.inputs;
      if (row && k < static_cast<size_t>(program_.fixed)) return wrong("size operand");
    }
  }
  return true;
}

bool Checker::run() {
  *place_ = {};
  const auto count = static_cast<int32_t>(program_.instructions.size());
  if (program_.prologue < 0 || program_.prologue > count) return wrong("prologue");
  if (!section(Section::Prologue, 0, program_.prologue)) return false;
  for (size_t k = 0; k < program_.statements.size(); ++k) {
    *place_ = {"statement", static_cast<int32_t>(k)};
    if (!statement(program_.statements[k])) return false;
  }
  return true;
}

// Registers of a body hold nothing behind it, but for results of reductions.
bool Checker::statement(const BlockStatement& statement) {
  const auto count = static_cast<int32_t>(program_.instructions.size());
  if (statement.before < program_.prologue || statement.body < statement.before ||
      statement.end < statement.body || statement.end > count ||
      (statement.once && statement.end != statement.body)) {
    return wrong("statement");
  }
  if (!section(Section::Before, statement.before, statement.body) ||
      !section(Section::Body, statement.body, statement.end)) {
    return false;
  }
  for (Contents& held : contents_) {
    if (held.local) held.level = kNothing;
  }
  for (int32_t k = statement.body; k < statement.end; ++k) {
    const BlockInstruction& i = program_.instructions[static_cast<size_t>(k)];
    const bool reduces = i.code == BlockCode::Reduce || i.code == BlockCode::Columns;
    if (reduces) contents_[static_cast<size_t>(i.dst)].level = i.level;
  }
  return true;
}

bool Checker::section(Section section, int32_t begin, int32_t end) {
  for (int32_t k = begin; k < end; ++k) {
    *place_ = {"instruction", k};
    const BlockInstruction& i = program_.instructions[static_cast<size_t>(k)];
    const bool fine = in_section(section, i.code) &&
                      (i.code == BlockCode::Call ? call(i, k + 1 == end) : instruction(section, i));
    if (!fine || !define(section, i)) return wrong("instruction");
    if (i.code != BlockCode::Expand) continue;
    const bool repeated = section == Section::Body && i.x[4] && !varies(i.x[0]);
    if (repeated || (section == Section::Prologue && i.x[0] != kAlongNone)) {
      return wrong("instruction");
    }
  }
  return true;
}

// Whether an index is one number that follows from sizes alone.
bool Checker::number(const BlockInstruction& i) const {
  return i.level == kAlongNone && (i.x[1] < 0 || fixed(i.x[1]));
}

bool Checker::in_section(Section section, BlockCode code) const {
  switch (code) {
    case BlockCode::Call:
    case BlockCode::Expand:
    case BlockCode::Index:
      return true;
    case BlockCode::Constant:
    case BlockCode::Scalar:
      return section == Section::Prologue;
    case BlockCode::Reduce:
    case BlockCode::Columns:
    case BlockCode::Scan:
    case BlockCode::Retain:
    case BlockCode::Resident:
      return section == Section::Body;
    default:
      return section != Section::Prologue;
  }
}

// A register has one definition, or several in bodies, each of which holds for one body. A result
// of a reduction is defined behind its body.
bool Checker::define(Section section, const BlockInstruction& i) {
  if (i.dst < 0) return true;
  Contents& held = contents_[static_cast<size_t>(i.dst)];
  const bool reduces = i.code == BlockCode::Reduce || i.code == BlockCode::Columns;
  const bool local = section == Section::Body && !reduces;
  const bool again = local && held.local;
  if (held.level != kNothing && !again) return false;
  if (held.local && !local) return false;
  held.local = local;
  held.level = reduces ? kPending : i.level;
  held.all = section == Section::Prologue && i.level != kAlongNone;
  held.calls = i.code == BlockCode::Expand && i.x[4];
  return true;
}

bool Checker::instruction(Section section, const BlockInstruction& i) {
  switch (i.code) {
    case BlockCode::Constant:
      return i.level == kAlongNone && width(i.dst) != 0;
    case BlockCode::Scalar:
      return i.level == kAlongNone && i.x[0] >= 0 && i.x[0] < program_.scalars && i.x[1] >= 0 &&
             i.x[1] <= 2 && width(i.dst) == (i.x[1] == 2 ? kMaskWidth : kIndexWidth);
    case BlockCode::Load:
    case BlockCode::Take:
      return load(i);
    case BlockCode::Store:
    case BlockCode::Give:
      return store(i);
    case BlockCode::Index:
      return i.f && name(i, 0) == "index" && strides(i) && size(i.x[4], true) &&
             (i.a < 0 || reads(i.a, kIndexWidth, i.level)) && result(i, kIndexWidth) &&
             (section != Section::Prologue || number(i));
    case BlockCode::AddIndex:
      return size(i.x[1], false) && reads(i.a, kIndexWidth, i.level) &&
             reads(i.b, kIndexWidth, i.level) && result(i, kIndexWidth);
    case BlockCode::Integer:
      return i.x[0] >= static_cast<int>(SizeOp::Add) && i.x[0] <= static_cast<int>(SizeOp::Max) &&
             reads(i.a, kIndexWidth, i.level) && reads(i.b, kIndexWidth, i.level) &&
             result(i, kIndexWidth);
    case BlockCode::Check:
      return i.f && name(i, 0) == "check" && parameter(i, true) == kIndexWidth && fixed(i.x[1]) &&
             reads(i.a, kIndexWidth, i.level) && result(i, kIndexWidth);
    case BlockCode::Expand:
      return expand(i);
    case BlockCode::Retain:
      return i.dst < 0 && reads(i.a, width(i.a), kAlongBoth) && resident(i) != 0 &&
             converts(i, "encode", width(i.a), resident(i));
    case BlockCode::Resident:
      return width(i.dst) != 0 && resident(i) != 0 &&
             converts(i, "decode", width(i.dst), resident(i));
    case BlockCode::Reduce:
    case BlockCode::Columns:
      return reduction(i);
    case BlockCode::Scan:
      return scan(i);
    case BlockCode::Call:
      break;  // see `call`
  }
  return false;
}

// Calls whose x[0] is set may write where the next instruction stores.
bool Checker::call(const BlockInstruction& i, bool last) {
  const Widths widths = i.f ? widths_of(name(i, 0)) : Widths{};
  if (!result(i, widths.result)) return false;
  const int16_t operands[kMostOperands] = {i.a, i.b, i.c};
  for (size_t k = 0; k < kMostOperands; ++k) {
    const bool fine =
        k < widths.count ? reads(operands[k], widths.operands[k], i.level, true) : operands[k] < 0;
    if (!fine) return false;
  }
  if (!i.x[0]) return true;
  if (last) return false;
  const BlockInstruction& next = (&i)[1];
  return next.code == BlockCode::Store && next.a == i.dst && next.level == kAlongBoth &&
         i.level == kAlongBoth;
}

bool Checker::expand(const BlockInstruction& i) {
  const int32_t bytes = width(i.a), source = i.x[0];
  if (!result(i, bytes) || !reads(i.a, bytes, source)) return false;
  if (source == kAlongNone) return moves(i, "splat", bytes);
  if (i.level != kAlongBoth) return false;
  return source == kAlongS   ? moves(i, "spread", bytes)
         : source == kAlongW ? moves(i, "repeat", bytes)
                             : false;
}

// Of memory: a window, or elements at positions; masks guard both.
bool Checker::load(const BlockInstruction& i) {
  const bool masked = i.b >= 0, affine = i.code == BlockCode::Load;
  const int32_t bytes = parameter(i, false);
  if (bytes == 0 || width(i.dst) == 0 || !converts(i, "decode", width(i.dst), bytes)) return false;
  if (masked ? !reads(i.b, kMaskWidth, i.level) || !reads(i.c, bytes, kAlongNone) : i.c >= 0) {
    return false;
  }
  if (!result(i, width(i.dst))) return false;
  if (affine) return window(i, masked, bytes);
  return reads(i.a, kIndexWidth, i.level) && moves(i, masked ? "takeif" : "take", bytes);
}

// A register may be memory itself where it holds full blocks: what does not vary in a block of
// one row is read as several equal elements.
bool Checker::window(const BlockInstruction& i, bool masked, int32_t bytes) const {
  const int32_t offsets = i.x[4] & kSharedOffset ? kAlongNone : kAlongS;
  if (i.a >= 0 && !reads(i.a, kIndexWidth, offsets)) return false;
  if (i.x[4] & kDirect && !varies(i.level)) return false;
  if (!strides(i) || !moves(i, masked ? "gatherif" : "gather", bytes)) return false;
  return masked || (i.h && after(name(i, 2), "transpose") == std::to_string(bytes));
}

bool Checker::store(const BlockInstruction& i) {
  const bool affine = i.code == BlockCode::Store;
  const int32_t bytes = parameter(i, true);
  if (bytes == 0 || i.dst >= 0 || i.c >= 0 || !reads(i.a, width(i.a), i.level)) return false;
  if (!converts(i, "encode", width(i.a), bytes)) return false;
  if (affine) return i.b < 0 && strides(i) && moves(i, "scatter", bytes);
  return reads(i.b, kIndexWidth, i.level) && moves(i, "give", bytes);
}

// Whether the state is that of an operation, and no other instruction's.
bool Checker::own_state(const BlockInstruction& i, std::string_view kind,
                        std::string_view operation) {
  const auto number = static_cast<size_t>(i.x[0]);
  if (i.x[0] < 0 || number >= program_.states.size() || used_[number]) return false;
  used_[number] = true;
  const auto& state = names_.functions[static_cast<size_t>(names_.states[number])];
  return !operation.empty() && after(after(state.name, "state"), kind) == operation;
}

int32_t value_of(std::string_view operation) {
  const size_t space = operation.rfind(' ');
  return space == operation.npos ? 0 : value_width(operation.substr(space + 1));
}

bool Checker::reduction(const BlockInstruction& i) {
  const bool columns = i.code == BlockCode::Columns;
  const std::string_view first = columns ? "columns" : "reduce";
  const std::string_view operation = after(name(i, 0), first);
  if (columns ? program_.form != BlockForm::Column : !along_rows()) return false;
  if (i.level != (columns ? kAlongW : kAlongS) || !i.f || !i.g || (!columns && !i.h)) return false;
  if (!own_state(i, first, operation)) return false;
  if (after(name(i, 1), columns ? "columned" : "reduced") != operation) return false;
  if (!columns && after(name(i, 2), "reducerows") != operation) return false;
  const int32_t bytes = value_of(operation);
  return reads(i.a, bytes, kAlongBoth) && i.b < 0 && i.c < 0 &&
         result(i, operation.starts_with("arg") ? kIndexWidth : bytes);
}

bool Checker::scan(const BlockInstruction& i) {
  const bool at = !after(name(i, 0), "scanat").empty(), linear = i.b >= 0;
  const std::string_view kind = at ? "scanat" : "scan", operation = after(name(i, 0), kind);
  if (program_.form != BlockForm::Scan || i.level != kAlongBoth || !i.f) return false;
  if (!own_state(i, kind, operation)) return false;
  const int32_t bytes = value_of(operation);
  if (linear != operation.starts_with("linear ")) return false;
  if (linear && !reads(i.b, bytes, kAlongBoth)) return false;
  return reads(i.a, bytes, kAlongBoth) && i.c < 0 && result(i, at ? kIndexWidth : bytes);
}

}  // namespace

bool check_block_program(const BlockProgram& program, const BlockNames& names, BlockPlace* place) {
  Checker checker(program, names, place);
  return checker.header() && checker.sizes() && checker.run();
}

}  // namespace fb
