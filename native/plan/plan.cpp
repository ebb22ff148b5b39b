// The Plan type.
#include <utility>

#include "call/op_internal.h"
#include "plan/constants.h"
#include "plan/plan_cache.h"
#include "plan/plan_check.h"
#include "plan/tier.h"
#include "runtime/traceback.h"

namespace fb {

PyTypeObject* PlanType = nullptr;

namespace {

std::atomic<uint64_t> next_plan_id{1};

// ---- the Python type

PyObject* or_null(PyObject* object) { return object == Py_None ? nullptr : object; }

PyObject* record_of(const Plan* plan) { return plan->code ? plan->code->record : nullptr; }

// Returns the former code, for the caller to drop in the end.
Ref<PlanCode> install(Plan* plan, Ref<PlanCode> code) {
  auto before = steal(std::exchange(plan->code, code.release()));
  tier_note(plan);
  return before;
}

// Plan(spec, *, compile, graph, origin, call, backward, structure, constants)
PyObject* plan_create(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  PyObject *spec, *compile = Py_None, *graph = Py_None, *origin = Py_None, *call = Py_None,
                  *backward = Py_None, *structure = Py_None, *constants = Py_None;
  static const char* names[] = {"spec",     "compile",   "graph",     "origin", "call",
                                "backward", "structure", "constants", nullptr};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$OOOOOOO", const_cast<char**>(names), &spec,
                                   &compile, &graph, &origin, &call, &backward, &structure,
                                   &constants)) {
    return nullptr;
  }
  if (constants != Py_None && !is_constants(constants)) {
    return PyErr_Format(PyExc_TypeError, "[Plan] constants: %R", constants);
  }
  auto object = steal(type->tp_alloc(type, 0));
  if (!object) return nullptr;
  Plan* plan = reinterpret_cast<Plan*>(object.get());
  const PyObject head = plan->ob_base;
  new (plan) Plan();
  plan->ob_base = head;
  plan->id = next_plan_id.fetch_add(1);
  plan->spec = Py_NewRef(spec);
  plan->compile = Py_XNewRef(or_null(compile));
  plan->graph = Py_XNewRef(or_null(graph));
  plan->origin = Py_XNewRef(or_null(origin));
  plan->call = Py_XNewRef(or_null(call));
  plan->constants = Py_XNewRef(or_null(constants));
  const bool fine = read_plan(plan, spec, or_null(backward), or_null(structure)) &&
                    (!plan->constants || constants_fit(plan));
  return fine ? object.release() : nullptr;
}

int plan_traverse(PyObject* self, visitproc visit, void* arg) {
  Plan* plan = reinterpret_cast<Plan*>(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(plan->return_type);
  Py_VISIT(plan->compile);
  Py_VISIT(plan->graph);
  Py_VISIT(plan->origin);
  Py_VISIT(plan->call);
  Py_VISIT(plan->constants);
  if (plan->backward) Py_VISIT(plan->backward->op);
  Py_VISIT(plan->spec);
  if (plan->code) Py_VISIT(plan->code->record);  // who else holds the code holds the plan
  return 0;
}

int plan_clear(PyObject* self) {
  Plan* plan = reinterpret_cast<Plan*>(self);
  drop(plan->compile);
  drop(plan->graph);
  drop(plan->origin);
  drop(plan->call);
  drop(plan->constants);
  drop(plan->view);
  if (plan->backward) drop(plan->backward->op);
  return 0;
}

void plan_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  Plan* plan = reinterpret_cast<Plan*>(self);
  tier_forget(plan);
  plan_clear(self);
  drop(plan->return_type);
  drop(plan->spec);
  drop(plan->code);
  const auto type = steal(Py_TYPE(self));  // of which nothing may be read after its end
  plan->~Plan();
  type->tp_free(self);
}

PyObject* plan_repr(PyObject* self) {
  Plan* plan = reinterpret_cast<Plan*>(self);
  const size_t launches = plan->code ? plan->code->launches.size() : 0;
  return PyUnicode_FromFormat("<Plan %s: %zd outputs, %zd launches%s>", plan->name.c_str(),
                              static_cast<Py_ssize_t>(plan->outputs.size()),
                              static_cast<Py_ssize_t>(launches),
                              plan->code ? "" : ", not compiled");
}

// The Graph, which is traced where it was not needed before.
PyObject* py_graph(PyObject* self, PyObject*) {
  Plan* plan = reinterpret_cast<Plan*>(self);
  if (plan->graph && PyCallable_Check(plan->graph)) {
    const auto trace = share(plan->graph);
    auto graph = steal(PyObject_CallNoArgs(trace.get()));
    if (!graph) return nullptr;
    assign(plan->graph, std::move(graph));
  }
  return Py_NewRef(or_none(plan->graph));
}
PyObject* get_spec(PyObject* self, void*) { return Py_NewRef(reinterpret_cast<Plan*>(self)->spec); }
PyObject* get_execution(PyObject* self, void*) {
  return Py_NewRef(or_none(record_of(reinterpret_cast<Plan*>(self))));
}
PyObject* get_origin(PyObject* self, void*) {
  return Py_NewRef(or_none(reinterpret_cast<Plan*>(self)->origin));
}
PyObject* get_constants(PyObject* self, void*) {
  return Py_NewRef(or_none(reinterpret_cast<Plan*>(self)->constants));
}
PyObject* get_name(PyObject* self, void*) {
  return PyUnicode_FromString(reinterpret_cast<Plan*>(self)->name.c_str());
}
PyObject* get_id(PyObject* self, void*) {
  return PyLong_FromUnsignedLongLong(reinterpret_cast<Plan*>(self)->id);
}
PyObject* get_compiled(PyObject* self, void*) {
  return PyBool_FromLong(reinterpret_cast<Plan*>(self)->code != nullptr);
}
PyObject* get_baseline_time(PyObject* self, void*) {
  const PlanCode* code = reinterpret_cast<Plan*>(self)->code;
  if (!code || !code->awaits) Py_RETURN_NONE;
  return PyLong_FromLongLong(code->nanoseconds);
}
PyObject* get_backward(PyObject* self, void*) {
  const Plan* plan = reinterpret_cast<Plan*>(self);
  return Py_NewRef(plan->backward && plan->backward->op ? plan->backward->op : Py_None);
}
PyObject* get_memory(PyObject* self, void*) {
  const Plan* plan = reinterpret_cast<Plan*>(self);
  return Py_BuildValue("(LL)", static_cast<long long>(plan->arena_bytes),
                       static_cast<long long>(plan->arena_least));
}
PyObject* get_launches(PyObject* self, void*) {
  const PlanCode* code = reinterpret_cast<Plan*>(self)->code;
  return build_tuple(code ? code->launches.size() : 0, [code](size_t i) {
    return PyUnicode_FromString(code->launches[i].name.c_str());
  });
}

PyObject* py_text(PyObject* self, PyObject*) {
  const Plan* plan = reinterpret_cast<Plan*>(self);
  return call_helper("flambeau.compiler.baseline.text", "plan_text", plan->spec,
                     or_none(record_of(plan)));
}

PyObject* py_compile(PyObject* self, PyObject*) {
  if (!plan_compile(reinterpret_cast<Plan*>(self))) return nullptr;
  Py_RETURN_NONE;
}

// Plan.replace(execution)
PyObject* py_replace(PyObject* self, PyObject* execution) {
  Plan* plan = reinterpret_cast<Plan*>(self);
  auto code = steal(read_code(plan, execution));
  if (!code) return nullptr;
  const auto held = share(plan);
  const auto compile = steal(std::exchange(plan->compile, nullptr));
  const auto before = install(plan, std::move(code));
  const auto stale = plan->cache ? plan->cache->renew(plan) : std::vector<Ref<Instance>>();
  Py_RETURN_NONE;
}

PyGetSetDef plan_getset[] = {
    {"spec", get_spec, nullptr, "What it was made of: a PlanSpec.", nullptr},
    {"execution", get_execution, nullptr, "What it was compiled to, or None.", nullptr},
    {"origin", get_origin, nullptr, "What Python knows of it, or None.", nullptr},
    {"constants", get_constants, nullptr, "What a frozen program computes once, or None.", nullptr},
    {"name", get_name, nullptr, "What the plan is called in profiles and errors.", nullptr},
    {"id", get_id, nullptr, "Number that no other plan of this process has.", nullptr},
    {"compiled", get_compiled, nullptr, "Whether its kernels exist already.", nullptr},
    {"baseline_time", get_baseline_time, nullptr,
     "Nanoseconds that runs took while other code for it is awaited; None: it is not.", nullptr},
    {"backward", get_backward, nullptr, "The op that computes its gradients, or None.", nullptr},
    {"launches", get_launches, nullptr, "Names of its launches, once compiled.", nullptr},
    {"memory", get_memory, nullptr,
     "Bytes of its temporaries, and those alive at once, at the sizes of its newest instance.",
     nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyMethodDef plan_methods[] = {
    {"graph", py_graph, METH_NOARGS, "The Graph this plan computes, or None."},
    {"text", py_text, METH_NOARGS, "The plan as text, see flambeau/ir/plan_grammar.py."},
    {"prepare", py_compile, METH_NOARGS, "Compiles the kernels now instead of at the first run."},
    {"replace", py_replace, METH_O,
     "Runs another Execution from now on; present runs end with the former one."},
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

bool plan_compile(Plan* plan) {
  if (plan->code) return true;
  if (!plan->compile) {  // nothing to launch: views
    plan->code = new PlanCode();
    plan->code->program.inputs = static_cast<int32_t>(plan->metadata.registers());
    return true;
  }
  const auto held = share(plan);
  const auto callback = share(plan->compile);
  const auto record = steal(PyObject_CallNoArgs(callback.get()));
  if (!record) hide_internals(true);
  auto code = steal(record ? read_code(plan, record.get()) : nullptr);
  if (!code) return false;
  if (plan->code) return true;  // another thread was faster while Python ran
  install(plan, std::move(code));
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
      if (a == -1 && (b == -1 || step.op == SizeOp::Not)) {
        use = -1;
      } else if (step.op == SizeOp::Add && (a == -1 || b == -1)) {
        use = a == -1 ? b : a;
      } else if (step.op == SizeOp::Sub && b == -1) {
        use = a;
      } else {
        use = -2;
      }
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

static PyObject* py_set_dry_run(PyObject*, PyObject* value) {
  const int chosen = PyObject_IsTrue(value);
  if (chosen < 0) return nullptr;
  return PyBool_FromLong(std::exchange(dry_run, chosen != 0));
}

bool init_plan(PyObject* module) {
  PlanType = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&plan_spec));
  static PyMethodDef methods[] = {
      {"set_dry_run", py_set_dry_run, METH_O,
       "Whether plans are only compiled, and fresh memory is zero; returns what held before."},
      {nullptr, nullptr, 0, nullptr},
  };
  return PlanType && PyModule_AddFunctions(module, methods) == 0 && init_tier(module) &&
         init_constants(module) && PyModule_AddObjectRef(module, "Plan", (PyObject*)PlanType) == 0;
}

}  // namespace fb
