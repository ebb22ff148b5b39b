// Reads block programs (flambeau/compiler/baseline/program.py has their words), and checks every
// number in them.
#include "baseline/block_program.h"

#include <algorithm>

#include "call/op_internal.h"
#include "plan/plan_check.h"

namespace fb {
namespace {

constexpr int32_t kVersion = 1;
constexpr int64_t kMostRegisters = 4096;

bool wrong(const char* details) { return bad_spec("block program", details); }

// The words of a program, one after the other. What lies beyond the end is 0, and an error.
class Words {
 public:
  Words(const char* bytes, Py_ssize_t count) : bytes_(bytes), left_(count / 4) {}
  int32_t next() {
    if (left_ <= 0) {
      beyond_ = true;
      return 0;
    }
    int32_t word;
    std::memcpy(&word, bytes_, sizeof(word));
    bytes_ += sizeof(word);
    --left_;
    return word;
  }
  // How many records of some words follow; a number that cannot be is an error.
  int32_t count(int32_t words) {
    const int32_t number = next();
    if (number >= 0 && number <= left_ / words) return number;
    beyond_ = true;
    return 0;
  }
  bool complete() const { return !beyond_ && left_ == 0; }

 private:
  const char* bytes_;
  int64_t left_;
  bool beyond_ = false;
};

void read_numbers(Words* words, std::vector<int32_t>* out) {
  out->resize(static_cast<size_t>(words->count(1)));
  for (int32_t& number : *out) number = words->next();
}

void read_sizes(Words* words, SizeProgram* code) {
  code->code.resize(static_cast<size_t>(words->count(4)));
  for (SizeInstruction& instruction : code->code) {
    instruction.op = static_cast<SizeOp>(words->next());
    const auto low = static_cast<uint32_t>(words->next());
    const int64_t high = words->next();
    instruction.a = static_cast<int64_t>(static_cast<uint64_t>(high) << 32 | low);
    instruction.b = words->next();
  }
}

bool check_sizes(const SizeProgram& code) {
  int64_t here = code.inputs;
  for (const SizeInstruction& instruction : code.code) {
    const auto op = static_cast<int>(instruction.op);
    if (op < 0 || op > static_cast<int>(SizeOp::Not)) return wrong("size instruction");
    const bool constant = instruction.op == SizeOp::Const;
    if (!constant && (instruction.a < 0 || instruction.a >= here || instruction.b < 0 ||
                      instruction.b >= here)) {
      return wrong("size operand");
    }
    ++here;
  }
  return true;
}

// The block functions of a program; of a state of a reduction its bytes.
struct Function {
  BlockFunction address;
  int64_t state;
};
using Functions = std::vector<Function>;

// The library of block functions is loaded by the first program.
bool load_functions() {
  static bool loaded = false;
  if (loaded) return true;
  return loaded = static_cast<bool>(steal(call_helper("flambeau.compiler.baseline", "load")));
}

bool read_functions(PyObject* names, Functions* functions) {
  if (!load_functions()) return false;
  const auto list = steal(PySequence_Fast(names, "[Plan] expected a sequence"));
  if (!list) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(list.get()); ++i) {
    const char* name = PyUnicode_AsUTF8(PySequence_Fast_GET_ITEM(list.get(), i));
    if (!name) return false;
    const bool state = std::string_view(name).starts_with("state ");
    const Function function{state ? nullptr : find_block_function(name),
                            state ? find_block_state(name) : -1};
    if (!function.address && function.state < 0) {
      PyErr_Format(PyExc_NotImplementedError,
                   "[baseline] no block function is called '%s'\nhint: build the package again",
                   name);
      return false;
    }
    functions->push_back(function);
  }
  return true;
}

BlockFunction function_of(const Functions& functions, int32_t number, bool* fine) {
  if (number < 0) return nullptr;
  *fine = *fine && static_cast<size_t>(number) < functions.size();
  return *fine ? functions[static_cast<size_t>(number)].address : nullptr;
}

// code level dst a b c x0 x1 x2 x3 x4 f g h
bool read_instruction(Words* words, const Functions& functions, BlockInstruction* out) {
  const int32_t code = words->next(), level = words->next();
  if (code < 0 || code >= kBlockCodes || level < 0 || level > kAlongBoth) {
    return wrong("instruction");
  }
  out->code = static_cast<BlockCode>(code);
  out->level = static_cast<uint8_t>(level);
  for (int16_t* number : {&out->dst, &out->a, &out->b, &out->c}) {
    const int32_t word = words->next();
    if (word < -1 || word >= kMostRegisters) return wrong("register");
    *number = static_cast<int16_t>(word);
  }
  for (int32_t& number : out->x) number = words->next();
  bool fine = true;
  out->f = function_of(functions, words->next(), &fine);
  out->g = function_of(functions, words->next(), &fine);
  out->h = function_of(functions, words->next(), &fine);
  return fine || wrong("function");
}

// ---- checks

struct Checker {
  const BlockProgram& program;

  bool block_register(int32_t number, bool absent) const {
    if (number == -1 && absent) return true;
    return number >= 0 && number < static_cast<int32_t>(program.registers.size());
  }
  bool size(int32_t number, bool absent = true) const {
    if (number == -1 && absent) return true;
    return number >= 0 && number < program.code.registers();
  }
  bool buffer(int32_t number, bool written) const {
    if (number < 0 || number >= static_cast<int32_t>(program.parameters.size())) return false;
    return !written || program.parameters[static_cast<size_t>(number)].written;
  }
  bool strides(const BlockInstruction& i) const {
    return size(i.x[1]) && size(i.x[2]) && size(i.x[3]);
  }
  static bool within(int32_t number, size_t count) {
    return number >= 0 && static_cast<size_t>(number) < count;
  }
  bool numbers(const BlockInstruction& i) const;
  bool operands(const BlockInstruction& i) const;
};

// What x[] says, and which functions there must be.
bool Checker::numbers(const BlockInstruction& i) const {
  switch (i.code) {
    case BlockCode::Constant:
      return true;
    case BlockCode::Call:
      return i.f;
    case BlockCode::Scalar:
      return within(i.x[0], static_cast<size_t>(program.scalars)) && i.x[1] >= 0 && i.x[1] <= 2;
    case BlockCode::Load:
      return i.f && (i.h || i.b >= 0) && buffer(i.x[0], false) && strides(i) &&
             (i.b < 0) == (i.c < 0);
    case BlockCode::Take:
      return i.f && buffer(i.x[0], false) && (i.b < 0) == (i.c < 0);
    case BlockCode::Store:
      return i.f && buffer(i.x[0], true) && strides(i);
    case BlockCode::Give:
      return i.f && buffer(i.x[0], true);
    case BlockCode::Index:
      return i.f && strides(i) && size(i.x[4]);
    case BlockCode::AddIndex:
      return size(i.x[1], false);
    case BlockCode::Integer:
      return i.x[0] >= static_cast<int>(SizeOp::Add) && i.x[0] <= static_cast<int>(SizeOp::Max);
    case BlockCode::Check:
      return i.f && buffer(i.x[0], true) && size(i.x[1], false);
    case BlockCode::Expand:
      return i.f && i.x[0] >= 0 && i.x[0] <= kAlongBoth;
    case BlockCode::Keep:
    case BlockCode::Kept:
      return within(i.x[0], program.kept.size());
    case BlockCode::Reduce:
      return i.f && i.g && i.h && within(i.x[0], program.states.size());
    case BlockCode::Columns:
      return i.f && i.g && within(i.x[0], program.states.size());
    case BlockCode::Scan:
      return i.f && within(i.x[0], program.states.size());
  }
  return false;
}

bool Checker::operands(const BlockInstruction& i) const {
  const bool stores =
      i.code == BlockCode::Store || i.code == BlockCode::Give || i.code == BlockCode::Keep;
  const bool leaf = i.code == BlockCode::Constant || i.code == BlockCode::Scalar ||
                    i.code == BlockCode::Load || i.code == BlockCode::Index ||
                    i.code == BlockCode::Kept || i.code == BlockCode::Call;
  const bool two =
      i.code == BlockCode::Give || i.code == BlockCode::AddIndex || i.code == BlockCode::Integer;
  return block_register(i.dst, stores) && block_register(i.a, leaf) && block_register(i.b, !two) &&
         block_register(i.c, true);
}

bool check_header(const BlockProgram& program) {
  const Checker checker{program};
  if (program.form > BlockForm::Scan) return wrong("form");
  if (program.sizes < 0 || program.scalars < 0) return wrong("counts");
  if (program.fixed < 0 || program.fixed > static_cast<int32_t>(program.code.code.size())) {
    return wrong("size instructions that depend on sizes alone");
  }
  if (program.rows.size() > kMaxDims) return wrong("row axes");
  for (int32_t row : program.rows) {
    if (!checker.size(row, false)) return wrong("row axes");
  }
  if (!checker.size(program.inner, false) || !checker.size(program.reduce, false)) {
    return wrong("extents");
  }
  const bool flat = program.form == BlockForm::Map && program.rows.empty();
  if (!flat && program.sizes == 0) return wrong("no number of rows of a chunk");
  return !program.tiled || !program.rows.empty() || wrong("tiles without rows");
}

bool is_width(int32_t bytes) {
  return bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8 || bytes == 16;
}

bool check_program(const BlockProgram& program) {
  if (!check_header(program) || !check_sizes(program.code)) return false;
  for (const auto* widths : {&program.registers, &program.kept}) {
    if (!std::all_of(widths->begin(), widths->end(), is_width)) return wrong("width");
  }
  for (const BlockParameter& parameter : program.parameters) {
    if (!is_width(parameter.width)) return wrong("width");
  }
  const Checker checker{program};
  for (const BlockInstruction& i : program.instructions) {
    if (!checker.numbers(i) || !checker.operands(i)) return wrong("instruction");
  }
  for (const BlockStatement& statement : program.statements) {
    const auto last = static_cast<int32_t>(program.instructions.size());
    if (statement.before < program.prologue || statement.body < statement.before ||
        statement.end < statement.body || statement.end > last) {
      return wrong("statement");
    }
  }
  return true;
}

// ---- scratch memory

int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

void lay_out(BlockProgram* program) {
  int64_t at = aligned(8 * program->code.registers());
  program->pointers = at;
  at += aligned(8 * static_cast<int64_t>(program->registers.size()));
  program->narrow = at;
  at += aligned(static_cast<int64_t>(program->registers.size()));
  program->staging = at;
  at += kBlock * kRegisterBytes;
  for (int32_t width : program->registers) {
    program->register_offsets.push_back(at);
    at += std::max(kBlock * width, kRegisterBytes);
  }
  for (int64_t bytes : program->states) {
    program->state_offsets.push_back(at);
    at += aligned(bytes);
  }
  program->fixed_bytes = at;
}

bool read_states(Words* words, const Functions& functions, BlockProgram* program) {
  program->states.resize(static_cast<size_t>(words->count(1)));
  for (int64_t& bytes : program->states) {
    const int32_t number = words->next();
    if (number < 0 || static_cast<size_t>(number) >= functions.size()) return wrong("state");
    bytes = functions[static_cast<size_t>(number)].state;
    if (bytes < 0) return wrong("state");
  }
  return true;
}

bool read_statements(Words* words, const Functions& functions, BlockProgram* program) {
  program->instructions.resize(static_cast<size_t>(words->count(14)));
  for (BlockInstruction& instruction : program->instructions) {
    if (!read_instruction(words, functions, &instruction)) return false;
  }
  program->prologue = words->next();
  if (program->prologue < 0) return wrong("prologue");
  program->statements.resize(static_cast<size_t>(words->count(4)));
  for (BlockStatement& statement : program->statements) {
    statement.once = words->next() != 0;
    statement.before = words->next();
    statement.body = words->next();
    statement.end = words->next();
  }
  return true;
}

bool read_words(Words* words, const Functions& functions, BlockProgram* program) {
  if (words->next() != kVersion) return wrong("version");
  program->form = static_cast<BlockForm>(words->next());
  program->tiled = words->next() != 0;
  program->spans = words->next() != 0;
  program->sizes = words->next();
  program->scalars = words->next();
  program->fixed = words->next();
  program->inner = words->next();
  program->inner_moves = words->next() != 0;
  program->reduce = words->next();
  read_numbers(words, &program->rows);
  program->parameters.resize(static_cast<size_t>(words->count(2)));
  for (BlockParameter& parameter : program->parameters) {
    parameter.width = words->next();
    parameter.written = words->next() != 0;
  }
  program->code.inputs = program->sizes + static_cast<int32_t>(program->rows.size());
  read_sizes(words, &program->code);
  read_numbers(words, &program->registers);
  read_numbers(words, &program->kept);
  return read_states(words, functions, program) && read_statements(words, functions, program) &&
         (words->complete() || wrong("length"));
}

}  // namespace

std::shared_ptr<const BlockProgram> read_block_program(PyObject* record) {
  PyObject* names = record_field(record, "functions");
  PyObject* bytes = names ? record_field(record, "words") : nullptr;
  Functions functions;
  if (!bytes || !read_functions(names, &functions)) return nullptr;
  char* text;
  Py_ssize_t length;
  if (PyBytes_AsStringAndSize(bytes, &text, &length) < 0) return nullptr;
  auto program = std::make_shared<BlockProgram>();
  Words words(text, length);
  if (!read_words(&words, functions, program.get()) || !check_program(*program)) return nullptr;
  lay_out(program.get());
  return program;
}

}  // namespace fb
