// Reads block programs (flambeau/compiler/baseline/program.py has their words).
#include "baseline/block_program.h"

#include <algorithm>

#include "baseline/block_check.h"
#include "call/op_internal.h"
#include "plan/plan_check.h"

namespace fb {
namespace {

constexpr int32_t kVersion = 2;
constexpr int64_t kMostRegisters = 4096;
constexpr int32_t kMostArguments = 1 << 16;

bool wrong(const char* details) { return bad_spec("block program", details); }

// The words of a program, one after the other. A word beyond the end is 0, and an error.
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

// The library of block functions is loaded by the first program.
bool load_functions() {
  static bool loaded = false;
  if (loaded) return true;
  return loaded = static_cast<bool>(steal(call_helper("flambeau.compiler.baseline", "load")));
}

bool read_functions(PyObject* names, BlockNames* out) {
  if (!load_functions()) return false;
  const auto list = steal(PySequence_Fast(names, "[Plan] expected a sequence"));
  if (!list) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(list.get()); ++i) {
    const char* name = PyUnicode_AsUTF8(PySequence_Fast_GET_ITEM(list.get(), i));
    if (!name) return false;
    const bool state = std::string_view(name).starts_with("state ");
    NamedFunction function{name, state ? nullptr : find_block_function(name),
                           state ? find_block_state(name) : -1};
    if (!function.address && function.state < 0) {
      PyErr_Format(PyExc_NotImplementedError,
                   "[baseline] no block function is called '%s'\nhint: build the package again",
                   name);
      return false;
    }
    out->functions.push_back(std::move(function));
  }
  return true;
}

// code level dst a b c x0 x1 x2 x3 x4 f g h
bool read_instruction(Words* words, BlockNames* names, BlockInstruction* out) {
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
  std::array<int32_t, 3> numbers;
  BlockFunction* const functions[] = {&out->f, &out->g, &out->h};
  for (size_t k = 0; k < numbers.size(); ++k) {
    const int32_t number = numbers[k] = words->next();
    if (number < -1 || number >= static_cast<int32_t>(names->functions.size())) {
      return wrong("function");
    }
    *functions[k] = number < 0 ? nullptr : names->functions[static_cast<size_t>(number)].address;
    if (number >= 0 && !*functions[k]) return wrong("function");
  }
  names->calls.push_back(numbers);
  return true;
}

// ---- scratch memory

int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

void assign_offsets(BlockProgram* program) {
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

bool read_states(Words* words, BlockNames* names, BlockProgram* program) {
  program->states.resize(static_cast<size_t>(words->count(1)));
  for (int64_t& bytes : program->states) {
    const int32_t number = words->next();
    if (number < 0 || static_cast<size_t>(number) >= names->functions.size()) return wrong("state");
    bytes = names->functions[static_cast<size_t>(number)].state;
    if (bytes < 0) return wrong("state");
    names->states.push_back(number);
  }
  return true;
}

bool read_statements(Words* words, BlockNames* names, BlockProgram* program, BlockPlace* place) {
  program->instructions.resize(static_cast<size_t>(words->count(14)));
  for (size_t k = 0; k < program->instructions.size(); ++k) {
    *place = {"instruction", static_cast<int32_t>(k)};
    if (!read_instruction(words, names, &program->instructions[k])) return false;
    program->checks |= program->instructions[k].code == BlockCode::Check;
  }
  *place = {};
  program->prologue = words->next();
  program->statements.resize(static_cast<size_t>(words->count(4)));
  for (BlockStatement& statement : program->statements) {
    statement.once = words->next() != 0;
    statement.before = words->next();
    statement.body = words->next();
    statement.end = words->next();
  }
  return true;
}

bool read_words(Words* words, BlockNames* names, BlockProgram* program, BlockPlace* place) {
  if (words->next() != kVersion) return wrong("version");
  program->form = static_cast<BlockForm>(words->next());
  program->tiled = words->next() != 0;
  program->spans = words->next() != 0;
  program->sizes = words->next();
  program->scalars = words->next();
  for (int32_t count : {program->sizes, program->scalars}) {
    if (count < 0 || count > kMostArguments) return wrong("counts");
  }
  program->fixed = words->next();
  program->inner = words->next();
  program->inner_moves = words->next() != 0;
  program->reduce = words->next();
  program->map_chunk = words->next();
  program->column_block = words->next();
  program->tile_block = words->next();
  read_numbers(words, &program->rows);
  program->parameters.resize(static_cast<size_t>(words->count(2)));
  for (BlockParameter& parameter : program->parameters) {
    parameter.width = words->next();
    parameter.written = words->next() != 0;
  }
  program->code.inputs = program->sizes + static_cast<int32_t>(program->rows.size());
  read_sizes(words, &program->code);
  read_numbers(words, &program->registers);
  read_numbers(words, &program->resident);
  return read_states(words, names, program) && read_statements(words, names, program, place) &&
         (words->complete() || wrong("length"));
}

// What is wrong with a program: (error, part, number); None: nothing.
PyObject* fault(PyObject*, PyObject* record) {
  BlockPlace place;
  if (read_block_program(record, &place)) Py_RETURN_NONE;
  if (!PyErr_ExceptionMatches(PyExc_ValueError)) return nullptr;
  PendingError error;
  return Py_BuildValue("(Osi)", error.value(), place.part, place.number);
}

PyMethodDef methods[] = {
    {"block_program_fault", fault, METH_O,
     "What is wrong with a block program: (error, part, number); None: nothing."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool init_block_programs(PyObject* module) { return PyModule_AddFunctions(module, methods) == 0; }

std::shared_ptr<const BlockProgram> read_block_program(PyObject* record, BlockPlace* place) {
  BlockPlace own;
  if (!place) place = &own;
  PyObject* names = record_field(record, "functions");
  PyObject* bytes = names ? record_field(record, "words") : nullptr;
  BlockNames table;
  if (!bytes || !read_functions(names, &table)) return nullptr;
  char* text;
  Py_ssize_t length;
  if (PyBytes_AsStringAndSize(bytes, &text, &length) < 0) return nullptr;
  auto program = std::make_shared<BlockProgram>();
  Words words(text, length);
  if (!read_words(&words, &table, program.get(), place) ||
      !check_block_program(*program, table, place)) {
    return nullptr;
  }
  assign_offsets(program.get());
  return program;
}

}  // namespace fb
