// The Plan type: what Python built at trace time, parsed once into plain arrays, and the size
// program of every number a run (plan_run.cpp) needs. Dictionaries: docs/design.md, sections 5, 6.
#include <utility>

#include "call/op_internal.h"
#include "plan/plan_check.h"
#include "runtime/traceback.h"

namespace fb {

PyTypeObject* PlanType = nullptr;

namespace {

std::atomic<uint64_t> next_plan_id{1};

int64_t floor_divide(int64_t a, int64_t b) {
  const int64_t q = a / b;
  return q - ((a % b != 0) && ((a < 0) != (b < 0)));
}

// ---- reading Python values

bool read_i64(PyObject* object, int64_t* out) {
  *out = PyLong_AsLongLong(object);
  return !(*out == -1 && PyErr_Occurred());
}

bool read_i32(PyObject* object, int32_t* out) {
  int64_t wide;
  if (!read_i64(object, &wide)) return false;
  *out = static_cast<int32_t>(wide);
  return *out == wide || bad_spec("number", "does not fit 32 bits");
}

// Borrowed item of a dict or null (no exception): absent and None are the same.
PyObject* item(PyObject* dict, const char* name) {
  PyObject* found = PyDict_GetItemString(dict, name);
  return found == Py_None ? nullptr : found;
}

// A list or tuple, or absent (empty).
class Items {
 public:
  explicit Items(PyObject* object, const char* what) {
    if (!object) return;
    fast_ = steal(PySequence_Fast(object, what));
    failed_ = !fast_;
  }
  bool failed() const { return failed_; }
  Py_ssize_t size() const { return fast_ ? PySequence_Fast_GET_SIZE(fast_.get()) : 0; }
  PyObject* operator[](Py_ssize_t i) const { return PySequence_Fast_GET_ITEM(fast_.get(), i); }

 private:
  Ref<> fast_;
  bool failed_ = false;
};

bool read_list(PyObject* object, std::vector<int32_t>* out) {
  Items items(object, "[Plan] expected a sequence of numbers");
  if (items.failed()) return false;
  out->resize(static_cast<size_t>(items.size()));
  for (Py_ssize_t i = 0; i < items.size(); ++i) {
    if (!read_i32(items[i], &(*out)[i])) return false;
  }
  return true;
}

bool read_program(PyObject* object, SizeProgram* program) {
  Items items(object, "[Plan] program must be a sequence");
  if (items.failed()) return false;
  program->code.reserve(static_cast<size_t>(items.size()));
  for (Py_ssize_t i = 0; i < items.size(); ++i) {
    Items triple(items[i], "[Plan] an instruction must be (op, a, b)");
    if (triple.failed()) return false;
    int64_t op, a, b = 0;
    if (triple.size() < 2 || triple.size() > 3) return bad_spec("instruction", "not (op, a, b)");
    if (!read_i64(triple[0], &op) || !read_i64(triple[1], &a)) return false;
    if (triple.size() == 3 && triple[2] != Py_None && !read_i64(triple[2], &b)) return false;
    if (op < 0 || op > static_cast<int64_t>(SizeOp::Not)) return bad_spec("instruction", "op");
    const int64_t here = program->registers();
    if (op != 0 && (a < 0 || a >= here || b < 0 || b >= here)) {
      return bad_spec("instruction", "operand is not an earlier register");
    }
    program->code.push_back({static_cast<SizeOp>(op), a, b});
  }
  return true;
}

const char* kind_of(const Items& entry) {
  return entry.size() && PyUnicode_Check(entry[0]) ? PyUnicode_AsUTF8(entry[0]) : "";
}

bool read_geometry(const Items& entry, Py_ssize_t at, OutputSpec* out) {
  return dtype_from_ir(entry[at], &out->dtype) && read_list(entry[at + 1], &out->sizes) &&
         read_list(entry[at + 2], &out->strides) &&
         (out->sizes.size() == out->strides.size() || bad_spec("output", "sizes and strides"));
}

bool read_output(PyObject* object, OutputSpec* out) {
  Items entry(object, "[Plan] an output must be a tuple");
  if (entry.failed()) return false;
  const std::string kind = kind_of(entry);
  *out = OutputSpec{};
  out->kind = OutputSpec::None;
  out->input = -1;
  if (kind == "none") return true;
  if (kind == "input" && entry.size() == 2) {
    out->kind = OutputSpec::Input;
    return read_i32(entry[1], &out->input);
  }
  if (kind == "alias" && entry.size() == 6) {
    out->kind = OutputSpec::Alias;
    return read_i32(entry[1], &out->input) && read_geometry(entry, 2, out) &&
           read_i32(entry[5], &out->offset);
  }
  if (kind == "new" && (entry.size() == 5 || entry.size() == 6)) {
    out->kind = OutputSpec::New;
    if (!read_geometry(entry, 1, out) || !read_i32(entry[4], &out->nbytes)) return false;
    if (entry.size() == 6 && entry[5] != Py_None) {
      out->own_device = true;
      return device_from_object(entry[5], &out->device);
    }
    return true;
  }
  return bad_spec("output", "must be (\"new\"|\"alias\"|\"input\"|\"none\", ...)");
}

bool read_source(PyObject* object, Source* out) {
  *out = {Source::None, -1};
  if (object == Py_None) return true;
  Items entry(object, "[Plan] a backward argument must be a tuple");
  if (entry.failed()) return false;
  const std::string kind = kind_of(entry);
  if (entry.size() != 2) return bad_spec("backward argument", "must be (kind, number)");
  if (kind == "input")
    out->kind = Source::SavedInput;
  else if (kind == "output")
    out->kind = Source::SavedOutput;
  else if (kind == "grad")
    out->kind = Source::GradOutput;
  else if (kind == "held")
    out->kind = Source::HeldGradient;
  else if (kind == "register")
    out->kind = Source::Register;
  else if (kind == "scalar")
    out->kind = Source::ScalarArgument;
  else
    return bad_spec("backward argument", kind.c_str());
  return read_i32(entry[1], &out->index);
}

bool read_text(PyObject* dict, const char* name, std::string* out) {
  PyObject* object = item(dict, name);
  if (!object) return true;
  const char* text = PyUnicode_AsUTF8(object);
  if (!text) return false;
  *out = text;
  return true;
}

bool read_backward(PyObject* dict, Plan* plan) {
  if (!dict) return true;
  if (!PyDict_Check(dict)) return bad_spec("backward", "must be a dict");
  auto backward = std::make_unique<BackwardSpec>();
  Items arguments(item(dict, "arguments"), "[Plan] backward arguments must be a sequence");
  if (arguments.failed()) return false;
  backward->arguments.resize(static_cast<size_t>(arguments.size()));
  for (Py_ssize_t i = 0; i < arguments.size(); ++i) {
    if (!read_source(arguments[i], &backward->arguments[i])) return false;
  }
  if (!read_list(item(dict, "targets"), &backward->targets)) return false;
  if (!read_text(dict, "name", &backward->name)) return false;
  PyObject* op = item(dict, "op");
  if (!op) return bad_spec("backward", "has no op");
  backward->op = Py_NewRef(op);
  plan->backward = std::move(backward);
  return true;
}

bool read_returns(PyObject* object, Plan* plan) {
  if (!object) return true;
  if (PyUnicode_Check(object)) {
    const std::string name = PyUnicode_AsUTF8(object);
    if (name == "single")
      plan->returns = ReturnKind::Single;
    else if (name == "tuple")
      plan->returns = ReturnKind::Tuple;
    else if (name == "list")
      plan->returns = ReturnKind::List;
    else if (name == "nothing")
      plan->returns = ReturnKind::Nothing;
    else
      return bad_spec("returns", name.c_str());
    return true;
  }
  plan->returns = ReturnKind::Structseq;
  // A named tuple is made by `_make`, a struct sequence by calling the type: both take a tuple.
  PyObject* make = PyObject_GetAttrString(object, "_make");
  if (!make) {
    PyErr_Clear();
    make = Py_NewRef(object);
  }
  plan->return_type = make;
  return true;
}

// How many registers a program may refer to is only known once its inputs are: the number of
// symbols, which the specification may state ("symbols") or leave to the largest operand.
int64_t count_symbols(PyObject* spec, PyObject* program) {
  int64_t count = 0;
  PyObject* given = item(spec, "symbols");
  if (!given) {
    PyObject* graph = item(spec, "graph");
    const auto names = steal(graph ? PyObject_GetAttrString(graph, "symbols") : nullptr);
    if (names)
      count = PyObject_Length(names.get());
    else if (program)
      count = -1;
    if (count < 0 || !names) PyErr_Clear();
    return names ? count : -1;
  }
  return read_i64(given, &count) ? count : -1;
}

bool read_bounds(PyObject* list, Plan* plan) {
  Items bounds(list, "[Plan] bounds must be a sequence");
  for (Py_ssize_t i = 0; !bounds.failed() && i < bounds.size(); ++i) {
    IndexBound bound;
    const auto entry = steal(PySequence_Tuple(bounds[i]));
    if (!entry || !PyArg_ParseTuple(entry.get(), "iii", &bound.output, &bound.size, &bound.slot)) {
      return false;
    }
    plan->bounds.push_back(bound);
  }
  return !bounds.failed();
}

// ([(slot, size, strict, exempt, value) ...], whether there is more, [(output, size, slot) ...]),
// or None
bool read_faults(PyObject* object, Plan* plan) {
  if (!object || object == Py_None) return true;
  PyObject *list = nullptr, *bounds = nullptr;
  int more = 0;
  if (!PyArg_ParseTuple(object, "OpO", &list, &more, &bounds) || !read_bounds(bounds, plan))
    return false;
  plan->faults = more != 0;
  Items checks(list, "[Plan] checks must be a sequence");
  for (Py_ssize_t i = 0; !checks.failed() && i < checks.size(); ++i) {
    int slot, size, strict, exempt;
    long long value;
    const auto check = steal(PySequence_Tuple(checks[i]));
    if (!check || !PyArg_ParseTuple(check.get(), "iipiL", &slot, &size, &strict, &exempt, &value)) {
      return false;
    }
    plan->checks.push_back(
        {slot, size, strict != 0, static_cast<IndexCheck::Exempt>(exempt), value});
  }
  return !checks.failed();
}

bool read_plan(Plan* plan, PyObject* spec) {
  if (!read_text(spec, "name", &plan->name)) return false;
  PyObject* program = item(spec, "program");
  const int64_t symbols = count_symbols(spec, program);
  if (symbols < 0 || symbols > INT32_MAX) {
    return bad_spec("symbols", "give \"symbols\": count, or a graph with symbols");
  }
  plan->metadata.inputs = static_cast<int32_t>(symbols);
  if (!read_program(program, &plan->metadata)) return false;
  if (!read_list(item(spec, "guards"), &plan->guards)) return false;
  if (!read_list(item(spec, "mutated"), &plan->mutated)) return false;
  Items outputs(item(spec, "outputs"), "[Plan] outputs must be a sequence");
  if (outputs.failed()) return false;
  plan->outputs.resize(static_cast<size_t>(outputs.size()));
  for (Py_ssize_t i = 0; i < outputs.size(); ++i) {
    if (!read_output(outputs[i], &plan->outputs[i])) return false;
    plan->has_device |= plan->outputs[i].own_device;
  }
  std::vector<int32_t> detached;
  if (!read_list(item(spec, "detached"), &detached)) return false;
  for (int32_t k : detached) {
    if (k < 0 || k >= (int32_t)plan->outputs.size()) return bad_spec("detached", "no such output");
    plan->outputs[k].tracked = false;
  }
  PyObject* visible = item(spec, "visible");
  plan->visible = static_cast<int32_t>(plan->outputs.size());
  if (visible && !read_i32(visible, &plan->visible)) return false;
  for (int32_t k = 0; k < plan->visible && k < (int32_t)plan->outputs.size(); ++k) {
    plan->has_views |= plan->outputs[k].kind == OutputSpec::Alias;
  }
  if (!read_returns(item(spec, "returns"), plan)) return false;
  if (!read_backward(item(spec, "backward"), plan)) return false;
  if (!read_faults(item(spec, "faults"), plan)) return false;
  plan->copies_overlaps = item(spec, "copies_overlaps") != nullptr;
  plan->graph = Py_XNewRef(item(spec, "graph"));
  plan->origin = Py_XNewRef(item(spec, "origin"));
  plan->compile = Py_XNewRef(item(spec, "compile"));
  return check_plan(plan);
}

// ---- the dictionary of an execution
bool read_buffer(PyObject* object, BufferSpec* out) {
  Items entry(object, "[Plan] a buffer must be a tuple");
  if (entry.failed()) return false;
  const std::string kind = kind_of(entry);
  *out = BufferSpec{BufferSpec::Input, -1, -1, 0, 0, {}};
  if (kind == "temporary" && entry.size() == 4) {
    out->kind = BufferSpec::Temporary;
    return read_i32(entry[1], &out->nbytes) && read_i32(entry[2], &out->first) &&
           read_i32(entry[3], &out->last);
  }
  if (entry.size() != 2) return bad_spec("buffer", "wrong number of entries");
  if (kind == "error") {
    out->kind = BufferSpec::Error;
    const char* text = PyUnicode_AsUTF8(entry[1]);
    if (text) out->message = text;
    return text != nullptr;
  }
  if (kind == "input")
    out->kind = BufferSpec::Input;
  else if (kind == "output")
    out->kind = BufferSpec::Output;
  else if (kind == "generator")
    out->kind = BufferSpec::Generator;
  else
    return bad_spec("buffer", kind.c_str());
  return read_i32(entry[1], &out->index);
}

bool read_scalar(PyObject* object, ScalarSource* out) {
  Items entry(object, "[Plan] a scalar must be a tuple");
  if (entry.failed()) return false;
  const std::string kind = kind_of(entry);
  if (entry.size() != 3) return bad_spec("scalar", "must be (kind, value, as_float)");
  *out = ScalarSource{};
  const int as_float = PyObject_IsTrue(entry[2]);
  if (as_float < 0) return false;
  out->as_float = as_float == 1;
  if (kind == "argument") {
    out->kind = ScalarSource::Argument;
    return read_i32(entry[1], &out->index);
  }
  if (kind != "constant") return bad_spec("scalar", kind.c_str());
  out->kind = ScalarSource::Constant;
  if (!out->as_float) return read_i64(entry[1], &out->constant.i);
  out->constant.d = PyFloat_AsDouble(entry[1]);
  return !(out->constant.d == -1.0 && PyErr_Occurred());
}

bool read_register(PyObject* dict, const char* name, int32_t* out) {
  PyObject* object = item(dict, name);
  return !object || read_i32(object, out);
}

bool read_packing(PyObject* object, Launch* out) {
  if (!object) return true;
  Items entry(object, "[Plan] packing must be a tuple");
  if (entry.failed()) return false;
  if (entry.size() != 4) return bad_spec("packing", "must be (from, to, spare, kernel)");
  return read_i32(entry[0], &out->packs_from) && read_i32(entry[1], &out->packs_to) &&
         read_i32(entry[2], &out->spare) && read_i64(entry[3], &out->packing_kernel);
}

bool read_launch(PyObject* dict, Launch* out) {
  if (!PyDict_Check(dict)) return bad_spec("launch", "must be a dict");
  if (PyObject* kernel = item(dict, "kernel")) {
    void* address = PyLong_AsVoidPtr(kernel);
    if (!address) return bad_spec("launch", "null kernel");
    out->kernel = reinterpret_cast<KernelFunction>(address);
  }
  std::string routine;
  if (!read_text(dict, "name", &out->name) || !read_text(dict, "routine", &routine)) return false;
  if (!out->kernel) {
    out->routine = find_routine(routine.c_str());
    if (!out->routine) {
      PyErr_Format(PyExc_NotImplementedError, "[%s] no native routine is called '%s'",
                   out->name.c_str(), routine.c_str());
      return false;
    }
  }
  if (!read_list(item(dict, "buffers"), &out->buffers)) return false;
  if (!read_list(item(dict, "offsets"), &out->offsets)) return false;
  if (!read_list(item(dict, "sizes"), &out->sizes)) return false;
  if (out->offsets.empty()) out->offsets.assign(out->buffers.size(), -1);
  if (out->offsets.size() != out->buffers.size()) return bad_spec("launch", "offsets");
  Items scalars(item(dict, "scalars"), "[Plan] scalars must be a sequence");
  if (scalars.failed()) return false;
  out->scalars.resize(static_cast<size_t>(scalars.size()));
  for (Py_ssize_t i = 0; i < scalars.size(); ++i) {
    if (!read_scalar(scalars[i], &out->scalars[i])) return false;
  }
  if (out->kernel && !item(dict, "chunks")) return bad_spec("launch", "a kernel needs chunks");
  if (!read_list(item(dict, "traffic"), &out->traffic)) return false;
  if (!out->traffic.empty() && out->traffic.size() != 2 * out->buffers.size())
    return bad_spec("launch", "traffic");
  if (!read_packing(item(dict, "packing"), out)) return false;
  return read_register(dict, "chunks", &out->chunks) && read_register(dict, "work", &out->work) &&
         read_register(dict, "scratch", &out->scratch) &&
         read_register(dict, "group", &out->group) && read_register(dict, "flops", &out->flops) &&
         read_register(dict, "elements", &out->elements);
}

bool read_execution(Plan* plan, PyObject* dict) {
  if (!PyDict_Check(dict)) return bad_spec("execution", "must be a dict");
  SizeProgram program;
  program.inputs = static_cast<int32_t>(plan->metadata.registers());
  std::vector<BufferSpec> buffers;
  std::vector<Launch> launches;
  if (!read_program(item(dict, "program"), &program)) return false;
  Items buffer_items(item(dict, "buffers"), "[Plan] buffers must be a sequence");
  Items launch_items(item(dict, "launches"), "[Plan] launches must be a sequence");
  Items keep(item(dict, "keepalive"), "[Plan] keepalive must be a sequence");
  if (buffer_items.failed() || launch_items.failed() || keep.failed()) return false;
  buffers.resize(static_cast<size_t>(buffer_items.size()));
  launches.resize(static_cast<size_t>(launch_items.size()));
  for (Py_ssize_t i = 0; i < buffer_items.size(); ++i) {
    if (!read_buffer(buffer_items[i], &buffers[i])) return false;
  }
  for (Py_ssize_t i = 0; i < launch_items.size(); ++i) {
    if (!read_launch(launch_items[i], &launches[i])) return false;
  }
  std::vector<int32_t> written;
  if (!read_list(item(dict, "written"), &written)) return false;
  if (!check_execution(plan, program, buffers, launches, written)) return false;
  if (plan->compiled) return true;  // another thread was faster while Python ran
  plan->execution = std::move(program);
  plan->buffers = std::move(buffers);
  plan->launches = std::move(launches);
  plan->written = std::move(written);
  for (Py_ssize_t i = 0; i < keep.size(); ++i) plan->keepalive.push_back(Py_NewRef(keep[i]));
  plan->compiled = true;
  return true;
}

// ---- the Python type

PyObject* plan_create(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  PyObject* spec = nullptr;
  static const char* names[] = {"spec", nullptr};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!", const_cast<char**>(names), &PyDict_Type,
                                   &spec)) {
    return nullptr;
  }
  auto object = steal(type->tp_alloc(type, 0));
  if (!object) return nullptr;
  Plan* plan = reinterpret_cast<Plan*>(object.get());
  const PyObject head = plan->ob_base;
  new (plan) Plan();
  plan->ob_base = head;
  plan->id = next_plan_id.fetch_add(1);
  return read_plan(plan, spec) ? object.release() : nullptr;
}

int plan_traverse(PyObject* self, visitproc visit, void* arg) {
  Plan* plan = reinterpret_cast<Plan*>(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(plan->return_type);
  Py_VISIT(plan->compile);
  Py_VISIT(plan->graph);
  Py_VISIT(plan->origin);
  if (plan->backward) Py_VISIT(plan->backward->op);
  for (PyObject* object : plan->keepalive) Py_VISIT(object);
  return 0;
}

int plan_clear(PyObject* self) {
  Plan* plan = reinterpret_cast<Plan*>(self);
  drop(plan->compile);
  drop(plan->graph);
  drop(plan->origin);
  drop(plan->view);
  if (plan->backward) drop(plan->backward->op);
  return 0;
}

void plan_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  Plan* plan = reinterpret_cast<Plan*>(self);
  plan_clear(self);
  drop(plan->return_type);
  for (PyObject*& object : plan->keepalive) drop(object);
  plan->~Plan();
  free_instance(self);
}

PyObject* plan_repr(PyObject* self) {
  Plan* plan = reinterpret_cast<Plan*>(self);
  return PyUnicode_FromFormat("<Plan %s: %zd outputs, %zd launches%s>", plan->name.c_str(),
                              static_cast<Py_ssize_t>(plan->outputs.size()),
                              static_cast<Py_ssize_t>(plan->launches.size()),
                              plan->compiled ? "" : ", not compiled");
}

PyObject* get_graph(PyObject* self, void*) {
  PyObject* graph = reinterpret_cast<Plan*>(self)->graph;
  return Py_NewRef(graph ? graph : Py_None);
}
PyObject* get_name(PyObject* self, void*) {
  return PyUnicode_FromString(reinterpret_cast<Plan*>(self)->name.c_str());
}
PyObject* get_id(PyObject* self, void*) {
  return PyLong_FromUnsignedLongLong(reinterpret_cast<Plan*>(self)->id);
}
PyObject* get_compiled(PyObject* self, void*) {
  return PyBool_FromLong(reinterpret_cast<Plan*>(self)->compiled);
}
PyObject* get_backward(PyObject* self, void*) {
  const Plan* plan = reinterpret_cast<Plan*>(self);
  return Py_NewRef(plan->backward && plan->backward->op ? plan->backward->op : Py_None);
}
PyObject* get_launches(PyObject* self, void*) {
  const Plan* plan = reinterpret_cast<Plan*>(self);
  return build_tuple(plan->launches.size(), [plan](size_t i) {
    return PyUnicode_FromString(plan->launches[i].name.c_str());
  });
}

PyObject* py_compile(PyObject* self, PyObject*) {
  if (!plan_compile(reinterpret_cast<Plan*>(self))) return nullptr;
  Py_RETURN_NONE;
}

PyGetSetDef plan_getset[] = {
    {"graph", get_graph, nullptr, "The Graph this plan computes, or None.", nullptr},
    {"name", get_name, nullptr, "What the plan is called in profiles and errors.", nullptr},
    {"id", get_id, nullptr, "Number that no other plan of this process has.", nullptr},
    {"compiled", get_compiled, nullptr, "Whether its kernels exist already.", nullptr},
    {"backward", get_backward, nullptr, "The op that computes its gradients, or None.", nullptr},
    {"launches", get_launches, nullptr, "Names of its launches, once compiled.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyMethodDef plan_methods[] = {
    {"prepare", py_compile, METH_NOARGS, "Compiles the kernels now instead of at the first run."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot plan_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(plan_create)},
    {Py_tp_dealloc, reinterpret_cast<void*>(plan_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(plan_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(plan_clear)},
    {Py_tp_repr, reinterpret_cast<void*>(plan_repr)},
    {Py_tp_getset, plan_getset},
    {Py_tp_methods, plan_methods},
    {Py_tp_doc, const_cast<char*>("One class of calls, compiled: guards, sizes, launches.")},
    {0, nullptr},
};

PyType_Spec plan_spec = {"flambeau._core.Plan", sizeof(Plan), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, plan_slots};

}  // namespace

const char* ir_dtype_name(DType t) { return dtype_info(t).ir_name; }

bool dtype_from_ir(PyObject* object, DType* out) {
  if (!PyUnicode_Check(object)) return dtype_from_object(object, out);
  for (int i = 0; i < kDTypeCount; ++i) {
    if (PyUnicode_CompareWithASCIIString(object, kDTypes[i].ir_name) == 0) {
      *out = static_cast<DType>(i);
      return true;
    }
  }
  PyErr_Format(PyExc_ValueError, "[Plan] unknown dtype %R", object);
  return false;
}

bool SizeProgram::run(int64_t* r) const {
  int64_t at = inputs;
  for (const SizeInstruction& instruction : code) {
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

bool plan_compile(Plan* plan) {
  if (plan->compiled) return true;
  if (!plan->compile) {  // nothing to launch: views
    plan->execution.inputs = static_cast<int32_t>(plan->metadata.registers());
    plan->compiled = true;
    return true;
  }
  const auto held = share(plan);
  const auto callback = share(plan->compile);
  const auto dict = steal(PyObject_CallNoArgs(callback.get()));
  if (!dict) hide_internals(true);
  if (!dict || !read_execution(plan, dict.get())) return false;
  drop(plan->compile);
  return true;
}

void plan_analyse_offsets(Plan* plan, const int32_t* offset_symbols, int32_t slots) {
  // Per register: -1 no offset in it, slot: that slot's offset added once, -2 anything else.
  std::vector<int32_t> uses(static_cast<size_t>(plan->metadata.registers()), -1);
  for (int32_t slot = 0; slot < slots; ++slot) uses[offset_symbols[slot]] = slot;
  size_t at = static_cast<size_t>(plan->metadata.inputs);
  for (const SizeInstruction& step : plan->metadata.code) {
    int32_t use = -1;
    if (step.op != SizeOp::Const) {
      const int32_t a = uses[step.a], b = uses[step.b];
      if (a == -1 && (b == -1 || step.op == SizeOp::Not))
        use = -1;
      else if (step.op == SizeOp::Add && (a == -1 || b == -1))
        use = a == -1 ? b : a;
      else if (step.op == SizeOp::Sub && b == -1)
        use = a;
      else
        use = -2;
    }
    uses[at++] = use;
  }
  bool sensitive = false;
  auto check = [&](const std::vector<int32_t>& registers) {
    for (int32_t r : registers) sensitive |= r >= 0 && uses[r] != -1;
  };
  check(plan->guards);
  for (OutputSpec& out : plan->outputs) {
    check(out.sizes);
    check(out.strides);
    check({out.nbytes});
    if (out.kind != OutputSpec::Alias) continue;
    const int32_t use = uses[out.offset];
    out.adds_offset = use >= 0 && use == out.input;
    sensitive |= use != -1 && !out.adds_offset;
  }
  if (plan->backward) {
    for (const Source& s : plan->backward->arguments) {
      if (s.kind == Source::Register) check({s.index});
    }
  }
  plan->offset_sensitive = sensitive;
  if (sensitive) {
    for (OutputSpec& out : plan->outputs) out.adds_offset = false;
  }
}

static PyObject* py_set_rehearsing(PyObject*, PyObject* value) {
  const int chosen = PyObject_IsTrue(value);
  if (chosen < 0) return nullptr;
  return PyBool_FromLong(std::exchange(rehearsing, chosen != 0));
}

bool init_plan(PyObject* module) {
  PlanType = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&plan_spec));
  static PyMethodDef methods[] = {
      {"set_rehearsing", py_set_rehearsing, METH_O,
       "Whether plans are only compiled, and fresh memory is zero; returns what held before."},
      {nullptr, nullptr, 0, nullptr},
  };
  return PlanType && PyModule_AddFunctions(module, methods) == 0 &&
         PyModule_AddObjectRef(module, "Plan", (PyObject*)PlanType) == 0;
}

}  // namespace fb
