// The size program: every number that a run needs, computed from a call's symbols.
#include "plan/size_run.h"

namespace fb {
namespace {

int64_t floor_divide(int64_t a, int64_t b) {
  const int64_t q = a / b;
  return q - ((a % b != 0) && ((a < 0) != (b < 0)));
}

}  // namespace

bool run_sizes(const SizeProgram& program, int64_t* r, size_t begin, size_t end) {
  size_t at = static_cast<size_t>(program.inputs) + begin;
  for (size_t i = begin; i < end; ++i) {
    const SizeInstruction& instruction = program.code[i];
    const SizeOp op = instruction.op;
    if (op == SizeOp::Const) {
      r[at++] = instruction.a;
      continue;
    }
    const int64_t a = r[instruction.a], b = r[instruction.b];
    int64_t value = 0;
    switch (op) {
      case SizeOp::Const:
        break;
      case SizeOp::Add:
        if (__builtin_add_overflow(a, b, &value)) return false;
        break;
      case SizeOp::Sub:
        if (__builtin_sub_overflow(a, b, &value)) return false;
        break;
      case SizeOp::Mul:
        if (__builtin_mul_overflow(a, b, &value)) return false;
        break;
      case SizeOp::FloorDiv:
      case SizeOp::Mod:
        if (b == 0 || (b == -1 && a == INT64_MIN)) return false;
        value = op == SizeOp::FloorDiv ? floor_divide(a, b) : a % b;
        if (op == SizeOp::Mod && value != 0 && (value < 0) != (b < 0)) value += b;
        break;
      case SizeOp::Min:
        value = a < b ? a : b;
        break;
      case SizeOp::Max:
        value = a > b ? a : b;
        break;
      case SizeOp::Eq:
        value = a == b;
        break;
      case SizeOp::Ne:
        value = a != b;
        break;
      case SizeOp::Lt:
        value = a < b;
        break;
      case SizeOp::Le:
        value = a <= b;
        break;
      case SizeOp::And:
        value = (a != 0) & (b != 0);
        break;
      case SizeOp::Or:
        value = (a != 0) | (b != 0);
        break;
      case SizeOp::Not:
        value = a == 0;
        break;
    }
    r[at++] = value;
  }
  return true;
}

bool SizeProgram::run(int64_t* registers) const {
  return run_sizes(*this, registers, 0, code.size());
}

}  // namespace fb
