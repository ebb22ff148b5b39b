// Range checks of a plan: every register and output that it names, before anything runs by it.
// A plan does not say how many tensors and numbers its calls have: slots must not be negative.
#include "plan/plan_check.h"

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

// Slots of tensors and numbers; callers know how many there are.
bool check_slots(const std::vector<int32_t>& slots) { return check_registers(slots, INT64_MAX); }

bool check_source(const Plan* plan, const Source& source) {
  int64_t limit = INT64_MAX;  // of slots: a plan does not say how many its calls have
  if (source.kind == Source::None) return true;
  if (source.kind == Source::Register) limit = plan->metadata.registers();
  if (source.kind == Source::SavedOutput || source.kind == Source::GradOutput)
    limit = static_cast<int64_t>(plan->outputs.size());
  if (source.kind == Source::HeldGradient)
    limit = static_cast<int64_t>(plan->backward->targets.size());
  return check_registers({source.index}, limit);
}

bool check_backward(const Plan* plan) {
  if (!plan->backward) return true;
  if (!check_slots(plan->backward->targets)) return false;
  for (const Source& source : plan->backward->arguments) {
    if (!check_source(plan, source)) return false;
  }
  return true;
}

bool check_faults(const Plan* plan) {
  const int64_t limit = plan->metadata.registers();
  for (const IndexCheck& check : plan->checks) {
    const bool number = check.slot == -1;
    if (check.slot < -1 || check.size < 0 || check.size >= (number ? 65 : limit))
      return bad_spec("check", "number out of range");
    if (check.exempt > IndexCheck::Number || (number && check.exempt != IndexCheck::Number))
      return bad_spec("check", "unknown exemption");
    if (check.exempt == IndexCheck::Number && check.value < 0)
      return bad_spec("check", "number out of range");
  }
  for (const IndexBound& bound : plan->bounds) {
    if (!check_registers({bound.output}, static_cast<int64_t>(plan->outputs.size()))) return false;
    if (!check_registers({bound.size}, limit, true) || bound.slot < -1)
      return bad_spec("bound", "number out of range");
  }
  return true;
}

bool check_packing(const Launch& launch, const std::vector<BufferSpec>& buffers) {
  const auto count = static_cast<int32_t>(launch.buffers.size());
  const bool fine = launch.packs_from < count && launch.packs_to >= 0 && launch.packs_to < count &&
                    launch.kernel && launch.scalars.empty() && launch.group < 0 &&
                    buffers[launch.buffers[launch.packs_from]].kind == BufferSpec::Input &&
                    buffers[launch.buffers[launch.packs_to]].kind == BufferSpec::Temporary;
  return fine || bad_spec("packing", "must be of a kernel alone, from an input to a temporary");
}

}  // namespace

bool check_plan(const Plan* plan) {
  const int64_t limit = plan->metadata.registers();
  if (!check_registers(plan->guards, limit) || !check_slots(plan->mutated)) return false;
  if (!check_backward(plan) || !check_faults(plan)) return false;
  for (const OutputSpec& out : plan->outputs) {
    if (!check_registers(out.sizes, limit) || !check_registers(out.strides, limit)) return false;
    if (!check_registers({out.offset, out.nbytes}, limit, true)) return false;
    if (out.kind == OutputSpec::New && out.nbytes < 0) return bad_spec("output", "nbytes");
    if (out.kind == OutputSpec::Alias && out.offset < 0) return bad_spec("output", "offset");
    const bool of_input = out.kind == OutputSpec::Alias || out.kind == OutputSpec::Input;
    if (of_input && !check_slots({out.input})) return false;
    if (out.sizes.size() > kMaxDims) {
      PyErr_Format(PyExc_RuntimeError, "[Plan] only tensors with up to %d dims are supported",
                   kMaxDims);
      return false;
    }
  }
  if (plan->visible < 0 || plan->visible > static_cast<int64_t>(plan->outputs.size())) {
    return bad_spec("visible", "more than there are outputs");
  }
  if (plan->returns == ReturnKind::Single && plan->visible < 1) {
    return bad_spec("returns", "single, but no visible output");
  }
  return true;
}

bool check_execution(const Plan* plan, const SizeProgram& program,
                     const std::vector<BufferSpec>& buffers, const std::vector<Launch>& launches,
                     const std::vector<int32_t>& written) {
  if (!check_slots(written)) return false;
  const int64_t limit = program.registers();
  const int64_t launch_count = static_cast<int64_t>(launches.size());
  for (const BufferSpec& b : buffers) {
    const bool temporary = b.kind == BufferSpec::Temporary;
    if (temporary && !check_registers({b.nbytes}, limit)) return false;
    if (temporary && (b.first < 0 || b.last < b.first || b.last >= launch_count)) {
      return bad_spec("temporary", "first and last launch");
    }
    if (b.kind == BufferSpec::Output && (b.index < 0 || b.index >= (int64_t)plan->outputs.size())) {
      return bad_spec("buffer", "no such output");
    }
    if (b.kind == BufferSpec::Input && !check_slots({b.index})) return false;
  }
  for (const Launch& launch : launches) {
    if (!check_registers(launch.buffers, static_cast<int64_t>(buffers.size()))) return false;
    if (!check_registers(launch.offsets, limit, true)) return false;
    if (!check_registers(launch.sizes, limit)) return false;
    const std::vector<int32_t> single = {launch.chunks, launch.work,     launch.scratch,
                                         launch.flops,  launch.elements, launch.spare};
    if (!check_registers(single, limit, true)) return false;
    if (launch.packs_from >= 0 && !check_packing(launch, buffers)) return false;
    for (const ScalarSource& s : launch.scalars) {
      if (s.kind == ScalarSource::Argument && !check_slots({s.index})) return false;
    }
  }
  return true;
}

}  // namespace fb
