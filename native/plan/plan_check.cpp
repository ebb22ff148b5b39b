// Range checks of a plan: every register, slot and position in it, before anything runs by it.
#include "plan/plan_check.h"

#include "baseline/block_program.h"
#include "call/op_internal.h"

namespace fb {

bool bad_spec(const char* what, const char* details) {
  if (!PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "[Plan] %s: %s", what, details);
  return false;
}

namespace {

bool check_registers(const std::vector<int32_t>& registers, int64_t limit, bool absent = false) {
  for (int32_t r : registers) {
    if (r >= limit || r < (absent ? -1 : 0)) return bad_spec("register", "number out of range");
  }
  return true;
}

bool check_source(const Plan* plan, const Source& source) {
  int64_t limit = 0;
  switch (source.kind) {
    case Source::SavedInput:
      limit = plan->tensors;
      break;
    case Source::SavedOutput:
    case Source::GradOutput:
      limit = static_cast<int64_t>(plan->outputs.size());
      break;
    case Source::HeldGradient:
      limit = static_cast<int64_t>(plan->backward->targets.size());
      break;
    case Source::Register:
      limit = plan->metadata.registers();
      break;
    case Source::ScalarArgument:
      limit = plan->numbers;
      break;
  }
  return check_registers({source.index}, limit);
}

bool check_backward(const Plan* plan) {
  if (!plan->backward) return true;
  if (!check_registers(plan->backward->targets, plan->backward->edges)) return false;
  for (const Source& source : plan->backward->arguments) {
    if (!check_source(plan, source)) return false;
  }
  return true;
}

bool check_faults(const Plan* plan) {
  const int64_t limit = plan->metadata.registers();
  for (const IndexCheck& check : plan->checks) {
    const bool number = check.slot == -1;
    if (!check_registers({check.slot}, plan->tensors, true)) return false;
    if (check.size < 0 || check.size >= (number ? 65 : limit) || (number && check.size == 0)) {
      return bad_spec("check", "size out of range");
    }
    if (number && check.exempt != IndexCheck::Number) {
      return bad_spec("check", "a divisor without its number");
    }
    if (check.exempt == IndexCheck::Number && (check.value < 0 || check.value >= plan->numbers)) {
      return bad_spec("check", "number out of range");
    }
  }
  for (const IndexBound& bound : plan->bounds) {
    const bool of_input = bound.size == -1 && bound.high == -1;
    if (!check_registers({bound.output}, static_cast<int64_t>(plan->outputs.size())) ||
        !check_registers({bound.size}, limit, true) ||
        !check_registers({bound.slot}, plan->tensors, !of_input) ||
        !check_registers({bound.high, bound.low}, plan->numbers, true)) {
      return false;
    }
  }
  return true;
}

bool check_output(const Plan* plan, const OutputSpec& out) {
  const int64_t limit = plan->metadata.registers();
  const bool alias = out.kind == OutputSpec::Alias;
  if (!check_registers(out.sizes, limit) || !check_registers(out.strides, limit)) return false;
  if (out.sizes.size() != out.strides.size()) return bad_spec("output", "sizes and strides");
  if (!check_registers({out.nbytes}, limit, out.kind != OutputSpec::New)) return false;
  if (!check_registers({out.offset}, limit, !alias)) return false;
  if (!check_registers({out.input}, plan->tensors, !alias && out.kind != OutputSpec::Input)) {
    return false;
  }
  if (out.sizes.size() <= kMaxDims) return true;
  PyErr_Format(PyExc_RuntimeError, "[Plan] only tensors with up to %d dims are supported",
               kMaxDims);
  return false;
}

bool check_packing(const Launch& launch, const std::vector<BufferSpec>& buffers) {
  const auto count = static_cast<int32_t>(launch.buffers.size());
  const bool fine = launch.packs_from >= 0 && launch.packs_from < count && launch.packs_to >= 0 &&
                    launch.packs_to < count && launch.kernel && launch.scalars.empty() &&
                    launch.group < 0 &&
                    buffers[launch.buffers[launch.packs_from]].kind == BufferSpec::Input &&
                    buffers[launch.buffers[launch.packs_to]].kind == BufferSpec::Temporary;
  return fine || bad_spec("packing", "must be of a kernel alone, from an input to a temporary");
}

// A chain of temporaries that share memory goes back in time, so it ends.
bool check_sharing(const BufferSpec& buffer, const std::vector<BufferSpec>& buffers) {
  if (buffer.shares == -1) return true;
  if (!check_registers({buffer.shares}, static_cast<int64_t>(buffers.size()))) return false;
  const BufferSpec& owner = buffers[buffer.shares];
  const bool fits = owner.kind == BufferSpec::Temporary && owner.first < buffer.first &&
                    buffer.first <= owner.last && owner.last <= buffer.last;
  return fits || bad_spec("temporary", "memory of one that ends as it begins");
}

bool check_buffer(const Plan* plan, const BufferSpec& buffer, int64_t registers, int64_t launches) {
  switch (buffer.kind) {
    case BufferSpec::Input:
      return check_registers({buffer.index}, int64_t{plan->tensors} + plan->computed);
    case BufferSpec::Output:
      return check_registers({buffer.index}, static_cast<int64_t>(plan->outputs.size()));
    case BufferSpec::Generator:
      return check_registers({buffer.index}, plan->generators, true);
    case BufferSpec::Error:
      return true;
    case BufferSpec::Temporary:
      break;
  }
  if (!check_registers({buffer.nbytes}, registers)) return false;
  const bool lives = buffer.first >= 0 && buffer.last >= buffer.first && buffer.last < launches;
  return lives || bad_spec("temporary", "first and last launch");
}

bool takes_arguments(const BlockProgram& program, const Launch& launch) {
  return program.parameters.size() == launch.buffers.size() &&
         static_cast<size_t>(program.sizes) == launch.sizes.size() &&
         static_cast<size_t>(program.scalars) == launch.scalars.size();
}

bool check_launch(const Plan* plan, const Launch& launch, const std::vector<BufferSpec>& buffers,
                  int64_t registers) {
  const size_t count = launch.buffers.size();
  if (!check_registers(launch.buffers, static_cast<int64_t>(buffers.size())) ||
      !check_registers(launch.offsets, registers, true) ||
      !check_registers(launch.sizes, registers)) {
    return false;
  }
  const std::vector<int32_t> single = {launch.chunks, launch.work,     launch.scratch,
                                       launch.flops,  launch.elements, launch.spare};
  if (!check_registers(single, registers, true)) return false;
  if (launch.offsets.size() != count) return bad_spec("launch", "offsets");
  if (!launch.traffic.empty() && launch.traffic.size() != 2 * count) {
    return bad_spec("launch", "traffic");
  }
  if (launch.kernel && launch.chunks < 0) return bad_spec("launch", "a kernel needs chunks");
  if (launch.program && !takes_arguments(*launch.program, launch)) {
    return bad_spec("launch", "arguments of a block program");
  }
  for (const ScalarSource& s : launch.scalars) {
    if (s.kind == ScalarSource::Argument && !check_registers({s.index}, plan->numbers)) {
      return false;
    }
  }
  return launch.packs_from == -1 || check_packing(launch, buffers);
}

}  // namespace

bool check_plan(const Plan* plan) {
  if (!check_registers(plan->guards, plan->metadata.registers()) ||
      !check_registers(plan->mutated, plan->tensors) || !check_backward(plan) ||
      !check_faults(plan)) {
    return false;
  }
  for (const OutputSpec& out : plan->outputs) {
    if (!check_output(plan, out)) return false;
  }
  if (plan->visible < 0 || plan->visible > static_cast<int64_t>(plan->outputs.size())) {
    return bad_spec("visible", "more than there are outputs");
  }
  if (plan->returns == ReturnKind::Single && plan->visible < 1) {
    return bad_spec("returns", "single, but no visible output");
  }
  return true;
}

bool check_code(const Plan* plan, const PlanCode& code) {
  if (!check_registers(code.written, plan->tensors)) return false;
  const int64_t limit = code.program.registers();
  const auto launches = static_cast<int64_t>(code.launches.size());
  for (const BufferSpec& buffer : code.buffers) {
    if (!check_buffer(plan, buffer, limit, launches)) return false;
    if (buffer.kind == BufferSpec::Temporary && !check_sharing(buffer, code.buffers)) return false;
  }
  for (const Launch& launch : code.launches) {
    if (!check_launch(plan, launch, code.buffers, limit)) return false;
  }
  return true;
}

bool plan_takes(const Plan* plan, size_t tensors, size_t numbers, size_t generators) {
  if (static_cast<size_t>(plan->tensors) == tensors &&
      static_cast<size_t>(plan->numbers) == numbers &&
      static_cast<size_t>(plan->generators) == generators) {
    return true;
  }
  PyErr_Format(PyExc_RuntimeError,
               "[%s] the plan takes %d tensors, %d numbers and %d generators; the call has %zu, "
               "%zu and %zu",
               plan->name.c_str(), plan->tensors, plan->numbers, plan->generators, tensors, numbers,
               generators);
  return false;
}

bool takes_edges(const Plan* plan, size_t edges) {
  if (static_cast<size_t>(plan->backward->edges) == edges) return true;
  PyErr_Format(PyExc_RuntimeError, "[%s] gradients of %d tensors; the call has %zu",
               plan->name.c_str(), plan->backward->edges, edges);
  return false;
}

}  // namespace fb
