// From the records of Python (flambeau/ir/plan.py) to the arrays of a Plan: fields are read by
// name.
#include <utility>

#include "baseline/block_program.h"
#include "call/op_internal.h"
#include "plan/plan_check.h"

namespace fb {

namespace {

bool read_i64(PyObject* object, int64_t* out) {
  *out = object ? PyLong_AsLongLong(object) : -1;
  return object && !(*out == -1 && PyErr_Occurred());
}

bool read_i32(PyObject* object, int32_t* out) {
  int64_t wide;
  if (!read_i64(object, &wide)) return false;
  *out = static_cast<int32_t>(wide);
  return *out == wide || bad_spec("number", "does not fit 32 bits");
}

bool read_i32(PyObject* record, const char* name, int32_t* out) {
  return read_i32(record_field(record, name), out);
}

bool read_flag(PyObject* record, const char* name, bool* out) {
  PyObject* value = record_field(record, name);
  *out = value == Py_True;
  return value != nullptr;
}

// A str, or None: unchanged.
bool read_text(PyObject* record, const char* name, std::string* out) {
  PyObject* value = record_field(record, name);
  if (value == Py_None) return true;
  const char* text = value ? PyUnicode_AsUTF8(value) : nullptr;
  if (text) *out = text;
  return text != nullptr;
}

// The position of a text field in a list of names; false + ValueError where it is none of them.
template <typename Kind, size_t kCount>
bool read_kind(PyObject* record, const char* name, const char* const (&names)[kCount], Kind* out) {
  std::string text;
  if (!read_text(record, name, &text)) return false;
  for (size_t i = 0; i < kCount; ++i) {
    if (text == names[i]) {
      *out = static_cast<Kind>(i);
      return true;
    }
  }
  return bad_spec(name, text.c_str());
}

// A field that is a list or tuple.
class Items {
 public:
  Items(PyObject* record, const char* name) : Items(record_field(record, name)) {}
  explicit Items(PyObject* sequence) {
    if (sequence) fast_ = steal(PySequence_Fast(sequence, "[Plan] expected a sequence"));
  }
  bool failed() const { return !fast_; }
  Py_ssize_t size() const { return fast_ ? PySequence_Fast_GET_SIZE(fast_.get()) : 0; }
  PyObject* operator[](Py_ssize_t i) const { return PySequence_Fast_GET_ITEM(fast_.get(), i); }

 private:
  Ref<> fast_;
};

template <typename Record, typename Read>
bool read_records(PyObject* record, const char* name, std::vector<Record>* out, Read&& read) {
  const Items items(record, name);
  if (items.failed()) return false;
  out->resize(static_cast<size_t>(items.size()));
  for (Py_ssize_t i = 0; i < items.size(); ++i) {
    if (!read(items[i], &(*out)[static_cast<size_t>(i)])) return false;
  }
  return true;
}

bool read_list(PyObject* record, const char* name, std::vector<int32_t>* out) {
  return read_records(record, name, out,
                      [](PyObject* item, int32_t* number) { return read_i32(item, number); });
}

bool read_program(PyObject* record, SizeProgram* program) {
  const Items items(record, "program");
  if (items.failed()) return false;
  program->code.reserve(static_cast<size_t>(items.size()));
  for (Py_ssize_t i = 0; i < items.size(); ++i) {
    const Items triple(items[i]);
    int64_t op, a, b;
    if (triple.failed()) return false;
    if (triple.size() != 3) return bad_spec("instruction", "not (op, a, b)");
    if (!read_i64(triple[0], &op) || !read_i64(triple[1], &a) || !read_i64(triple[2], &b)) {
      return false;
    }
    if (op < 0 || op > static_cast<int64_t>(SizeOp::Not)) return bad_spec("instruction", "op");
    const int64_t here = program->registers();
    if (op != 0 && (a < 0 || a >= here || b < 0 || b >= here)) {
      return bad_spec("instruction", "operand is not an earlier register");
    }
    program->code.push_back({static_cast<SizeOp>(op), a, b});
  }
  return true;
}

// ---- the specification of a plan

bool read_output(PyObject* record, OutputSpec* out) {
  static constexpr const char* kKinds[] = {"new", "alias", "input", "none"};
  PyObject* dtype = record_field(record, "dtype");
  PyObject* device = dtype ? record_field(record, "device") : nullptr;
  if (!device || !read_kind(record, "kind", kKinds, &out->kind)) return false;
  out->own_device = device != Py_None;
  return dtype_from_ir(dtype, &out->dtype) && read_i32(record, "slot", &out->input) &&
         read_list(record, "sizes", &out->sizes) && read_list(record, "strides", &out->strides) &&
         read_i32(record, "offset", &out->offset) && read_i32(record, "nbytes", &out->nbytes) &&
         (!out->own_device || device_from_object(device, &out->device));
}

bool read_source(PyObject* record, Source* out) {
  static constexpr const char* kKinds[] = {"input", "output", "grad", "held", "register", "scalar"};
  return read_kind(record, "kind", kKinds, &out->kind) && read_i32(record, "position", &out->index);
}

bool read_backward(PyObject* record, PyObject* op, Plan* plan) {
  if (record == Py_None) return true;
  auto backward = std::make_unique<BackwardSpec>();
  if (!op) return bad_spec("backward", "has no op");
  if (!read_records(record, "arguments", &backward->arguments, read_source) ||
      !read_list(record, "targets", &backward->targets) ||
      !read_i32(record, "edges", &backward->edges) || !read_text(record, "name", &backward->name)) {
    return false;
  }
  backward->op = Py_NewRef(op);
  plan->backward = std::move(backward);
  return true;
}

bool read_check(PyObject* record, IndexCheck* out) {
  int32_t exempt = 0;
  if (!read_i32(record, "slot", &out->slot) || !read_i32(record, "size", &out->size) ||
      !read_flag(record, "strict", &out->strict) || !read_i32(record, "exempt", &exempt)) {
    return false;
  }
  if (exempt < IndexCheck::None || exempt > IndexCheck::Number) {
    return bad_spec("check", "unknown exemption");
  }
  out->exempt = static_cast<IndexCheck::Exempt>(exempt);
  return read_i64(record_field(record, "value"), &out->value);
}

bool read_bound(PyObject* record, IndexBound* out) {
  return read_i32(record, "output", &out->output) && read_i32(record, "size", &out->size) &&
         read_i32(record, "slot", &out->slot) && read_i32(record, "high", &out->high) &&
         read_i32(record, "low", &out->low);
}

// The type of results with named fields: a named tuple is constructed by `_make`, a struct sequence
// by calling the type. Both take a tuple.
bool read_structure(PyObject* structure, Plan* plan) {
  if (plan->returns != ReturnKind::Structseq) return true;
  if (!structure) return bad_spec("returns", "named, but there is no structure");
  plan->return_type = PyObject_GetAttrString(structure, "_make");
  if (!plan->return_type) {
    PyErr_Clear();
    plan->return_type = Py_NewRef(structure);
  }
  return true;
}

bool read_outputs(PyObject* spec, Plan* plan) {
  std::vector<int32_t> detached;
  if (!read_records(spec, "outputs", &plan->outputs, read_output) ||
      !read_i32(spec, "visible", &plan->visible) || !read_list(spec, "detached", &detached)) {
    return false;
  }
  const auto count = static_cast<int32_t>(plan->outputs.size());
  for (int32_t k : detached) {
    if (k < 0 || k >= count) return bad_spec("detached", "no such output");
    plan->outputs[static_cast<size_t>(k)].tracked = false;
  }
  for (int32_t k = 0; k < count; ++k) {
    const OutputSpec& out = plan->outputs[static_cast<size_t>(k)];
    plan->has_device |= out.own_device;
    plan->has_views |= k < plan->visible && out.kind == OutputSpec::Alias;
  }
  return true;
}

// ---- an execution

bool read_buffer(PyObject* record, BufferSpec* out) {
  static constexpr const char* kKinds[] = {"input", "output", "temporary", "generator", "error"};
  static constexpr const char* kErrors[] = {"index", "runtime", "value", "linalg"};
  return read_kind(record, "kind", kKinds, &out->kind) &&
         read_i32(record, "position", &out->index) && read_i32(record, "nbytes", &out->nbytes) &&
         read_i32(record, "first", &out->first) && read_i32(record, "last", &out->last) &&
         read_i32(record, "shares", &out->shares) &&
         read_kind(record, "error", kErrors, &out->error) &&
         read_text(record, "message", &out->message);
}

bool read_scalar(PyObject* record, ScalarSource* out) {
  static constexpr const char* kKinds[] = {"argument", "constant"};
  PyObject* value = record_field(record, "value");
  if (!value || !read_kind(record, "kind", kKinds, &out->kind) ||
      !read_flag(record, "as_float", &out->as_float)) {
    return false;
  }
  if (out->kind == ScalarSource::Argument) return read_i32(value, &out->index);
  if (!out->as_float) return read_i64(value, &out->constant.i);
  out->constant.d = PyFloat_AsDouble(value);
  return !(out->constant.d == -1.0 && PyErr_Occurred());
}

bool read_packing(PyObject* record, Launch* out) {
  if (!record || record == Py_None) return record != nullptr;
  return read_i32(record, "source", &out->packs_from) &&
         read_i32(record, "target", &out->packs_to) && read_i32(record, "spare", &out->spare) &&
         read_i64(record_field(record, "kernel"), &out->packing_kernel);
}

bool read_function(PyObject* record, Launch* out) {
  PyObject* kernel = record_field(record, "kernel");
  if (!kernel) return false;
  if (kernel != Py_None) {
    void* address = PyLong_AsVoidPtr(kernel);
    out->kernel = reinterpret_cast<KernelFunction>(address);
    return address || bad_spec("launch", "null kernel");
  }
  PyObject* program = record_field(record, "program");
  if (!program) return false;
  if (program != Py_None) {
    out->program = read_block_program(program);
    out->kernel = run_block_program;
    return out->program != nullptr;
  }
  std::string routine;
  if (!read_text(record, "routine", &routine)) return false;
  out->routine = find_routine(routine.c_str());
  if (out->routine) return true;
  PyErr_Format(PyExc_NotImplementedError, "[%s] no native routine is called '%s'",
               out->name.c_str(), routine.c_str());
  return false;
}

bool read_launch(PyObject* record, Launch* out) {
  if (!read_text(record, "name", &out->name) || !read_function(record, out) ||
      !read_list(record, "buffers", &out->buffers) ||
      !read_list(record, "offsets", &out->offsets) || !read_list(record, "sizes", &out->sizes) ||
      !read_list(record, "traffic", &out->traffic) ||
      !read_records(record, "scalars", &out->scalars, read_scalar) ||
      !read_packing(record_field(record, "packing"), out)) {
    return false;
  }
  const std::pair<const char*, int32_t*> registers[] = {
      {"chunks", &out->chunks}, {"work", &out->work},   {"scratch", &out->scratch},
      {"group", &out->group},   {"flops", &out->flops}, {"elements", &out->elements}};
  for (const auto& [name, number] : registers) {
    if (!read_i32(record, name, number)) return false;
  }
  if (out->offsets.empty()) out->offsets.assign(out->buffers.size(), -1);
  return true;
}

}  // namespace

PyObject* record_field(PyObject* record, const char* name) {
  if (!PyTuple_Check(record)) {  // which owns its fields
    PyErr_Format(PyExc_TypeError, "a named tuple is expected, got %s", Py_TYPE(record)->tp_name);
    return nullptr;
  }
  return steal(PyObject_GetAttrString(record, name)).get();
}

static bool read_place(PyObject* spec, Plan* plan) {
  std::string place;
  if (!read_text(spec, "place", &place)) return false;
  plan->elsewhere = !place.empty();
  if (place.empty()) return true;
  const auto text = steal(PyUnicode_FromString(place.c_str()));
  return text && device_from_object(text.get(), &plan->place);
}

bool read_plan(Plan* plan, PyObject* spec, PyObject* backward_op, PyObject* structure) {
  static constexpr const char* kReturns[] = {"single", "tuple", "list", "nothing", "named"};
  if (!read_text(spec, "name", &plan->name)) return false;
  if (!read_i32(spec, "symbols", &plan->metadata.inputs) ||
      !read_i32(spec, "tensors", &plan->tensors) || !read_i32(spec, "numbers", &plan->numbers) ||
      !read_i32(spec, "generators", &plan->generators) ||
      !read_i32(spec, "computed", &plan->computed)) {
    return false;
  }
  if (plan->metadata.inputs < 0 || plan->tensors < 0 || plan->numbers < 0 || plan->generators < 0 ||
      plan->computed < 0) {
    return bad_spec("count", "of symbols or slots is negative");
  }
  PyObject* backward = record_field(spec, "backward");
  return backward && read_program(spec, &plan->metadata) &&
         read_list(spec, "guards", &plan->guards) && read_list(spec, "mutated", &plan->mutated) &&
         read_outputs(spec, plan) && read_kind(spec, "returns", kReturns, &plan->returns) &&
         read_structure(structure, plan) && read_backward(backward, backward_op, plan) &&
         read_records(spec, "checks", &plan->checks, read_check) &&
         read_flag(spec, "faults", &plan->faults) &&
         read_records(spec, "bounds", &plan->bounds, read_bound) &&
         read_flag(spec, "copies_overlaps", &plan->copies_overlaps) &&
         read_flag(spec, "chooses", &plan->chooses) && read_place(spec, plan) && check_plan(plan);
}

PlanCode* read_code(const Plan* plan, PyObject* execution) {
  auto code = steal(new PlanCode());
  code->program.inputs = static_cast<int32_t>(plan->metadata.registers());
  PyObject* pending = record_field(execution, "pending");
  if (!pending || !read_program(execution, &code->program) ||
      !read_records(execution, "buffers", &code->buffers, read_buffer) ||
      !read_records(execution, "launches", &code->launches, read_launch) ||
      !read_list(execution, "written", &code->written) || !check_code(plan, *code.get())) {
    return nullptr;
  }
  code->awaits = pending != Py_None;
  code->record = Py_NewRef(execution);
  return code.release();
}

}  // namespace fb
