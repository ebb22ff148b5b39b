// The Op type: a callable that finds the Instance of a call and runs it, without Python unless the
// call's class is new. Also what surrounds a run: in-place bookkeeping, the tape, results.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <algorithm>

#include "call/lists.h"
#include "call/op_internal.h"
#include "runtime/profile.h"
#include "runtime/traceback.h"

namespace fb {

PyTypeObject* OpType = nullptr;

namespace {

constexpr size_t kInlineOutputs = 8;

PyObject* none() { return Py_NewRef(Py_None); }

// Visible outputs, stolen; null becomes None.
PyObject* take(PyObject** outputs, int32_t k) {
  PyObject* object = outputs[k];
  outputs[k] = nullptr;
  return object ? object : none();
}

PyObject* wrap_sequence(const Plan* plan, PyObject** outputs) {
  const Py_ssize_t count = plan->visible;
  const bool list = plan->returns == ReturnKind::List;
  PyObject* sequence = list ? PyList_New(count) : PyTuple_New(count);
  if (!sequence) return nullptr;
  for (Py_ssize_t k = 0; k < count; ++k) {
    PyObject* object = take(outputs, static_cast<int32_t>(k));
    if (list) {
      PyList_SET_ITEM(sequence, k, object);
    } else {
      PyTuple_SET_ITEM(sequence, k, object);
    }
  }
  if (plan->returns != ReturnKind::Structseq) return sequence;
  return PyObject_CallOneArg(plan->return_type, steal(sequence).get());
}

// Before an in-place run: may these tensors be written at all?
bool check_inplace(const Frame& frame) {
  for (size_t i = 0; i < frame.mutated.size(); ++i) {
    if (!tape_check_inplace(frame.tensors[frame.mutated[i]])) return false;
  }
  return true;
}

bool finish_inplace(const Frame& frame, const Instance* instance, const Call& call,
                    PyObject** outputs) {
  // A class of calls may leave alone what its schema says it writes (batch_norm in eval mode).
  for (int32_t slot : instance->plan->mutated) {
    Tensor* t = call.tensors[slot];
    if (!active_recorder || !record_notes_write(t)) tensor_bump_version(t);
  }
  if (!grad_mode.enabled) return true;
  for (size_t i = 0; i < frame.mutated.size(); ++i) {
    Tensor* target = frame.tensors[frame.mutated[i]];
    if (!tape_after_inplace(target, instance, call, outputs)) return false;
  }
  return true;
}

bool mark_views(const Overload* overload, const Plan* plan, const Call& call, PyObject** outputs) {
  for (int32_t k = 0; k < plan->visible; ++k) {
    const OutputSpec& spec = plan->outputs[k];
    if (spec.kind != OutputSpec::Alias) continue;
    Tensor* view = reinterpret_cast<Tensor*>(outputs[k]);
    if (!tape_mark_view(view, call.tensors[spec.input], overload->single_views)) {
      return false;
    }
  }
  return true;
}

// What autograd must know after a successful run.
bool finish(const Overload* overload, const Frame& frame, const Instance* instance,
            const Call& call, PyObject** outputs) {
  if (overload->mutates) return finish_inplace(frame, instance, call, outputs);
  const Plan* plan = instance->plan;
  if (!grad_mode.enabled) {  // a view made now still belongs to its base: writes to it are checked
    return !plan->has_views || grad_mode.inference || mark_views(overload, plan, call, outputs);
  }
  if (plan->backward && !tape_record(instance, call, outputs)) return false;
  return !plan->has_views || mark_views(overload, plan, call, outputs);
}

PyObject* run_instance(const Overload* overload, Frame* frame, Instance* instance, const Call& run,
                       const Call& record) {
  const Plan* plan = instance->plan;
  const size_t count = plan->outputs.size();
  PyObject* few[kInlineOutputs] = {};
  std::vector<PyObject*> many;
  if (count > kInlineOutputs) many.resize(count);
  PyObject** outputs = count > kInlineOutputs ? many.data() : few;
  bool fine =
      active_recorder ? record_call(instance, run, outputs) : plan_run(instance, run, outputs);
  fine = fine && finish(overload, *frame, instance, record, outputs);
  PyObject* result = fine ? wrap_outputs(plan, outputs) : nullptr;
  for (size_t k = 0; k < count; ++k) drop(outputs[k]);
  return result;
}

}  // namespace

PyObject* run_inplace(Op* op, Overload* overload, Frame* frame) {
  if (!check_inplace(*frame)) return nullptr;
  if (writes_repeated(*overload, *frame)) return run_repeated(op, overload, frame);
  StackVector<Tensor*, 16> originals;
  bool separated = false;
  if (!separate_overlaps(op, overload, frame, &originals, &separated)) return nullptr;
  const auto held = steal(find_instance(op, overload, frame));
  Instance* instance = held.get();
  if (!instance) return nullptr;
  const Call call = frame->call();
  if (!separated) return run_instance(overload, frame, instance, call, call);
  Call record = call;  // gradients flow to the tensors the user passed, not to their copies
  record.tensors = originals.data();
  return run_instance(overload, frame, instance, call, record);
}

namespace {

// The first element after a view; -1 where it overflows or a stride or offset is negative.
int64_t end_of_view(const int64_t* sizes, const int64_t* strides, size_t ndim, int64_t offset) {
  int64_t last = offset;
  for (size_t d = 0; d < ndim; ++d) {
    int64_t step;
    if (strides[d] < 0 || __builtin_mul_overflow(sizes[d] - 1, strides[d], &step)) return -1;
    if (sizes[d] > 0 && __builtin_add_overflow(last, step, &last)) return -1;
  }
  return offset < 0 || last == INT64_MAX ? -1 : last + 1;
}

// Views of any geometry (`as_strided`) must stay inside of their storage.
bool check_windows(const Op* op, const Instance* instance, const Call& call) {
  const int64_t* sizes = instance->geometry.data();
  for (const OutputSpec& spec : instance->plan->outputs) {
    const size_t ndim = spec.sizes.size();
    const int64_t* strides = sizes + ndim;
    if (spec.kind == OutputSpec::Alias) {
      const Tensor* source = call.tensors[spec.input];
      const int64_t offset = strides[ndim] + (spec.adds_offset ? source->offset : 0);
      const int64_t end = end_of_view(sizes, strides, ndim, offset);
      const bool empty = std::find(sizes, sizes + ndim, 0) != sizes + ndim;
      const int64_t held = source->storage->nbytes / item_size(spec.dtype);
      if (end < 0 || (!empty && end > held)) {
        PyErr_Format(
            PyExc_RuntimeError,
            "[%s] setStorage: sizes, strides and storage offset %lld require %lld elements "
            "and are out of bounds for a storage of %lld\nhint: strides and the offset are "
            "in elements, and not negative",
            op->text.c_str(), static_cast<long long>(offset), static_cast<long long>(end),
            static_cast<long long>(held));
        return false;
      }
    }
    sizes += 2 * ndim + 1;
  }
  return true;
}

PyObject* to_out(const Overload* overload, PyObject* stolen, const Frame* frame) {
  const auto result = steal(stolen);
  return result ? copy_to_out(overload->out, result.get(), frame->out) : nullptr;
}

inline __attribute__((always_inline)) PyObject* run_matched(Op* op, Overload* overload,
                                                            Frame* frame) {
  if (overload->python) return call_python(overload, frame);
  if (overload->list != ListRule::None) {
    PyObject* result = run_list(op, overload, frame);
    if (result || PyErr_Occurred()) return frame->out ? to_out(overload, result, frame) : result;
  }
  if (frame->out) return run_out(op, overload, frame);
  if (overload->mutates) return run_inplace(op, overload, frame);
  const auto held = steal(find_instance(op, overload, frame));
  Instance* instance = held.get();
  if (!instance) return nullptr;
  const Call call = frame->call();
  if (overload->any_window && !check_windows(op, instance, call)) return nullptr;
  return run_instance(overload, frame, instance, call, call);
}

__attribute__((noinline)) PyObject* run_profiled(Op* op, Overload* overload, Frame* frame) {
  const ProfileScope scope(active_recorder ? EventKind::Recorded : EventKind::Op, op->text.c_str());
  profile_note_arguments(scope.place(), frame->values.data(), overload->arguments.size());
  PyObject* result = run_matched(op, overload, frame);
  if (result && grad_mode.enabled) profile_note_result(scope.place(), result);
  return result;
}

[[gnu::always_inline]] inline PyObject* run(Op* op, Overload* overload, Frame* frame) {
  if (profiling()) [[unlikely]] {
    return run_profiled(op, overload, frame);
  }
  return run_matched(op, overload, frame);
}

// A number too large for a size may be right for another overload, which takes numbers.
bool try_others(const Op* op, const Frame& frame) {
  if (!frame.too_large || op->overloads.size() == 1) return false;
  if (PyErr_ExceptionMatches(PyExc_OverflowError)) return false;
  PyErr_Clear();
  return true;
}

// All overloads failed. The one that got furthest explains why.
__attribute__((noinline)) PyObject* no_match(Op* op, PyObject* const* args, Py_ssize_t count,
                                             PyObject* kwnames, bool binds = false) {
  PyObject* result;
  if (call_former(op, args, count, kwnames, binds, &result)) return result;
  Overload* best = nullptr;
  int furthest = -2;
  for (const auto& overload : op->overloads) {
    Frame frame;
    int reached = -1;
    if (bind_arguments(op, *overload, &frame, args, count, kwnames) == Outcome::Ok) {
      parse_arguments(op, *overload, &frame);
      reached = 2 * frame.bad_argument + frame.too_large;
    }
    if (reached > furthest) {
      furthest = reached;
      best = overload.get();
    }
    PyErr_Clear();
  }
  Frame frame;
  if (best && bind_arguments(op, *best, &frame, args, count, kwnames) == Outcome::Ok) {
    if (parse_arguments(op, *best, &frame) == Outcome::Failed) return nullptr;
  }
  if (best) {
    raise_mismatch(op, *best, frame, count);
  } else {
    PyErr_Format(PyExc_TypeError, "[%s] has no overloads", op->text.c_str());
  }
  return nullptr;
}

// An object with __torch_function__ may stand where no schema expects a tensor.
bool any_override(PyObject* const* args, Py_ssize_t count, bool nested) {
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* object = args[i];
    if (is_exact_tensor(object)) continue;
    if (nested && (PyTuple_CheckExact(object) || PyList_CheckExact(object))) {
      PyObject* const* items = PySequence_Fast_ITEMS(object);
      if (any_override(items, PySequence_Fast_GET_SIZE(object), false)) return true;
    } else if (overrides_op(override_of(object))) {
      return true;
    }
  }
  return false;
}

// A mode, or the type of an argument, takes over: first `__torch_function__`, then what is below.
__attribute__((noinline)) PyObject* taken_over(PyObject* self, PyObject* const* args,
                                               Py_ssize_t count, PyObject* kwnames) {
  const Py_ssize_t all = count + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
  const Autocast& autocast = reinterpret_cast<Op*>(self)->autocast;
  if (autocasts(autocast) && !(interceptors & kFunctionModes) &&
      !any_public_override(args, all, true)) {
    return call_autocast(autocast, self, args, count, kwnames);
  }
  if ((interceptors & (kWatcher | kFunctionModes)) || any_override(args, all, true)) {
    return call_override(self, args, count, kwnames);
  }
  return call_dispatch(self, args, count, kwnames);
}

bool is_lazy(PyObject* object) {
  return object && is_tensor(object) && (reinterpret_cast<Tensor*>(object)->flags & kLazy);
}

// Views of views of conjugates are such views themselves, unless memory has to be copied.
bool stays_lazy(Op* op, Overload* overload, Frame* frame, bool* fine) {
  *fine = true;
  if (!overload->is_view || overload->python || frame->out) return false;
  const Instance* instance = find_instance(op, overload, frame);
  *fine = instance != nullptr;
  if (!instance) return false;
  const Plan* plan = instance->plan;
  for (int32_t k = 0; k < plan->visible; ++k) {
    const OutputSpec& spec = plan->outputs[k];
    if (spec.kind == OutputSpec::Input || spec.kind == OutputSpec::None) continue;
    if (spec.kind != OutputSpec::Alias || spec.dtype != frame->tensors[spec.input]->dtype) {
      return false;
    }
  }
  return true;
}

// A call with views of conjugates: on resolved copies, written back where the call writes.
__attribute__((noinline)) PyObject* run_resolved(Op* op, Overload* overload, Frame* frame,
                                                 PyObject* const* args, Py_ssize_t count,
                                                 PyObject* kwnames) {
  bool fine;
  if (stays_lazy(op, overload, frame, &fine)) return run(op, overload, frame);
  if (!fine) return nullptr;
  const auto written = steal(PyList_New(0));
  const auto positional = steal(pack_positional(args, count));
  const auto named = steal(pack_keywords(args + count, kwnames));
  if (!written || !positional || !named) return nullptr;
  for (size_t i = 0; i < frame->mutated.size(); ++i) {
    PyObject* target = object_of(frame->tensors[frame->mutated[i]]);
    if (is_lazy(target) && PyList_Append(written.get(), target) < 0) return nullptr;
  }
  if (is_lazy(frame->out) && PyList_Append(written.get(), frame->out) < 0) return nullptr;
  const auto call = steal(PyTuple_Pack(4, op, positional.get(), named.get(), written.get()));
  return call ? call_conjugate("call_resolved", call.get()) : nullptr;
}

PyObject* op_vectorcall(PyObject* self, PyObject* const* args, size_t flags, PyObject* kwnames) {
  Op* op = reinterpret_cast<Op*>(self);
  const Py_ssize_t count = PyVectorcall_NARGS(flags);
  if (interceptors && (interceptors != kAutocast || autocasts(op->autocast))) [[unlikely]] {
    return taken_over(self, args, count, kwnames);
  }
  Frame frame;
  for (const auto& overload : op->overloads) {
    Outcome outcome = bind_arguments(op, *overload, &frame, args, count, kwnames);
    if (outcome == Outcome::Ok) outcome = parse_arguments(op, *overload, &frame);
    if (outcome == Outcome::Ok) [[likely]] {
      if (frame.overridden) [[unlikely]] {
        return taken_over(self, args, count, kwnames);
      }
      if ((frame.flags & kLazy) || (frame.out && is_lazy(frame.out))) [[unlikely]] {
        return run_resolved(op, overload.get(), &frame, args, count, kwnames);
      }
      return run(op, overload.get(), &frame);
    }
    if (outcome == Outcome::Failed && !try_others(op, frame)) return nullptr;
    frame.reset();
  }
  const Py_ssize_t all = count + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
  if (any_override(args, all, false)) return call_override(self, args, count, kwnames);
  return no_match(op, args, count, kwnames);
}

// A call that the gate may refuse, by raising. Whoever takes over a call calls the op again.
PyObject* gated_vectorcall(PyObject* self, PyObject* const* args, size_t flags, PyObject* kwnames) {
  const Py_ssize_t count = PyVectorcall_NARGS(flags);
  const Py_ssize_t all = count + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
  PyObject* gate = reinterpret_cast<Op*>(self)->gate;
  if (gate && !(interceptors & ~kAutocast) && !any_override(args, all, true)) {
    const auto held = share(gate);  // the call may remove it
    if (!steal(PyObject_Vectorcall(gate, args, static_cast<size_t>(count), kwnames))) {
      return nullptr;
    }
  }
  return op_vectorcall(self, args, flags, kwnames);
}

// ---- overloads, which may be asked for only when the op is first used

bool parse_overloads(PyObject* specs, std::vector<std::unique_ptr<Overload>>* overloads) {
  const auto list = steal(PySequence_List(specs));
  for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list.get()); ++i) {
    const auto spec = steal(PySequence_Tuple(PyList_GET_ITEM(list.get(), i)));
    overloads->push_back(std::make_unique<Overload>());
    if (!spec || !overload_parse_spec(spec.get(), overloads->back().get())) return false;
  }
  return static_cast<bool>(list);
}

void release_overload(Overload* overload) {
  overload->cache.clear();
  drop(overload->build);
  drop(overload->spec);
  for (Argument& argument : overload->arguments) {
    drop(argument.name);
    drop(argument.default_value);
  }
}

bool takes_tensor(const Overload& overload, PyObject* name) {
  for (const Argument& argument : overload.arguments) {
    const bool tensor = argument.kind == Kind::Tensor || argument.kind == Kind::TensorOrScalar;
    if (tensor && argument.name == name) return true;
  }
  return false;
}

// A tensor without dimensions keeps its gradient, and its batch, where an overload takes it.
void leave_tensors_to_later(const std::vector<std::unique_ptr<Overload>>& overloads) {
  for (size_t i = 0; i < overloads.size(); ++i) {
    for (Argument& argument : overloads[i]->arguments) {
      for (size_t k = i + 1; k < overloads.size(); ++k) {
        argument.no_tensor |= takes_tensor(*overloads[k], argument.name);
      }
    }
  }
}

bool set_overloads(Op* op, PyObject* specs) {
  std::vector<std::unique_ptr<Overload>> overloads;
  const bool fine = parse_overloads(specs, &overloads);
  leave_tensors_to_later(overloads);
  if (fine && op->overloads.empty()) {  // another thread may have been faster
    op->overloads.swap(overloads);
  }
  for (const auto& overload : overloads) release_overload(overload.get());
  return fine;
}

bool resolve(Op* op) {
  if (!op->pending) return true;
  const auto pending = share(op->pending);  // the call may let another thread resolve the op
  const auto specs = steal(PyObject_CallNoArgs(pending.get()));
  if (!specs || !set_overloads(op, specs.get())) return false;
  op->vectorcall = op->gate ? gated_vectorcall : op_vectorcall;
  drop(op->pending);
  return true;
}

PyObject* first_vectorcall(PyObject* self, PyObject* const* args, size_t flags, PyObject* kwnames) {
  if (!resolve(reinterpret_cast<Op*>(self))) return nullptr;
  return op_vectorcall(self, args, flags, kwnames);
}

// ---- the Python type

PyObject* op_create(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  PyObject *name, *specs;
  static const char* names[] = {"name", "overloads", nullptr};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "UO", const_cast<char**>(names), &name, &specs)) {
    return nullptr;
  }
  auto object = steal(type->tp_alloc(type, 0));
  if (!object) return nullptr;
  Op* op = reinterpret_cast<Op*>(object.get());
  new (&op->text) std::string(PyUnicode_AsUTF8(name));
  new (&op->overloads) std::vector<std::unique_ptr<Overload>>();
  op->vectorcall = op_vectorcall;
  op->name = Py_NewRef(name);
  if (PyCallable_Check(specs)) {
    op->pending = Py_NewRef(specs);
    op->vectorcall = first_vectorcall;
  } else if (!set_overloads(op, specs)) {
    return nullptr;
  }
  register_op(op);
  return object.release();
}

int op_traverse(PyObject* self, visitproc visit, void* arg) {
  Op* op = reinterpret_cast<Op*>(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(op->dict);
  Py_VISIT(op->pending);
  Py_VISIT(op->gate);
  Py_VISIT(op->autocast.parts);
  for (const auto& overload : op->overloads) {
    Py_VISIT(overload->build);
    Py_VISIT(overload->spec);
    if (const int stop = overload->cache.visit(visit, arg)) return stop;
  }
  return 0;
}

int op_clear(PyObject* self) {
  Op* op = reinterpret_cast<Op*>(self);
  drop(op->dict);
  drop(op->gate);
  op->autocast.rule = CastRule::None;
  drop(op->autocast.parts);
  if (op->pending) {  // stays callable: a cleared op raises, it does not crash
    op->vectorcall = op_vectorcall;
    drop(op->pending);
  }
  for (const auto& overload : op->overloads) {
    overload->cache.clear();
    assign(overload->build, share(Py_None));
    drop(overload->spec);
  }
  return 0;
}

void op_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  Op* op = reinterpret_cast<Op*>(self);
  unregister_op(op);  // first: code of users that runs from here on must not find it there
  if (op->weakrefs) PyObject_ClearWeakRefs(self);
  op_clear(self);
  for (const auto& overload : op->overloads) release_overload(overload.get());
  drop(op->name);
  op->overloads.~vector();
  op->text.~basic_string();
  free_instance(self);
}

PyObject* op_descr_get(PyObject* self, PyObject* object, PyObject*) {
  if (!object || object == Py_None) return Py_NewRef(self);
  return PyMethod_New(self, object);
}

PyObject* op_repr(PyObject* self) {
  return PyUnicode_FromFormat("<op %U>", reinterpret_cast<Op*>(self)->name);
}

PyObject* own_attribute(Op* op, const char* name) {  // new reference or null without exception
  PyObject* found = op->dict ? PyDict_GetItemString(op->dict, name) : nullptr;
  return Py_XNewRef(found);
}

PyObject* get_name(PyObject* self, void*) { return Py_NewRef(reinterpret_cast<Op*>(self)->name); }

int set_name(PyObject* self, PyObject* value, void*) {
  if (!value || !PyUnicode_Check(value)) {
    PyErr_SetString(PyExc_TypeError, "__name__ must be a str");
    return -1;
  }
  Op* op = reinterpret_cast<Op*>(self);
  Py_XSETREF(op->name, Py_NewRef(value));
  op->text = PyUnicode_AsUTF8(value);
  return 0;
}

PyObject* get_qualname(PyObject* self, void*) {
  Op* op = reinterpret_cast<Op*>(self);
  PyObject* own = own_attribute(op, "__qualname__");
  return own ? own : Py_NewRef(op->name);
}

int set_qualname(PyObject* self, PyObject* value, void*) {
  Op* op = reinterpret_cast<Op*>(self);
  if (!op->dict && !(op->dict = PyDict_New())) return -1;
  return value ? PyDict_SetItemString(op->dict, "__qualname__", value)
               : PyDict_DelItemString(op->dict, "__qualname__");
}

PyObject* get_gate(PyObject* self, void*) {
  PyObject* gate = reinterpret_cast<Op*>(self)->gate;
  return Py_NewRef(gate ? gate : Py_None);
}

int set_gate(PyObject* self, PyObject* value, void*) {
  Op* op = reinterpret_cast<Op*>(self);
  if (!resolve(op)) return -1;
  PyObject* gate = value == Py_None ? nullptr : Py_XNewRef(value);
  op->vectorcall = gate ? gated_vectorcall : op_vectorcall;
  Py_XSETREF(op->gate, gate);
  return 0;
}

PyObject* get_autocast(PyObject* self, void*) {
  return reinterpret_cast<Op*>(self)->autocast.get();
}

int set_autocast(PyObject* self, PyObject* value, void*) {
  return reinterpret_cast<Op*>(self)->autocast.set(value ? value : Py_None) ? 0 : -1;
}

PyObject* get_schemas(PyObject* self, void*) {
  Op* op = reinterpret_cast<Op*>(self);
  if (!resolve(op)) return nullptr;
  return build_tuple(op->overloads.size(), [op](size_t i) {
    return PyUnicode_FromString(signature_text(op, *op->overloads[i]).c_str());
  });
}

PyObject* get_overloads(PyObject* self, void*) {
  Op* op = reinterpret_cast<Op*>(self);
  if (!resolve(op)) return nullptr;
  return build_tuple(op->overloads.size(),
                     [op](size_t i) { return Py_NewRef(or_none(op->overloads[i]->spec)); });
}

// The values of all arguments in the order of the schema, of a call that matched.
PyObject* bound_values(const Overload& overload, Frame* frame, size_t index) {
  PyObject* values = build_tuple(overload.arguments.size(),
                                 [frame](size_t i) { return Py_NewRef(frame->values[i]); });
  if (!values) return nullptr;
  return Py_BuildValue("(nNO)", static_cast<Py_ssize_t>(index), values, or_none(frame->out));
}

PyObject* bind_call(Op* op, PyObject* const* args, Py_ssize_t count, PyObject* kwnames) {
  for (size_t i = 0; i < op->overloads.size(); ++i) {
    Frame frame;
    const Overload& overload = *op->overloads[i];
    Outcome outcome = bind_arguments(op, overload, &frame, args, count, kwnames);
    if (outcome == Outcome::Ok) outcome = parse_arguments(op, overload, &frame);
    if (outcome == Outcome::Ok) return bound_values(overload, &frame, i);
    if (outcome == Outcome::Failed) return nullptr;
  }
  return no_match(op, args, count, kwnames, true);
}

// bind(args, kwargs) -> (overload, values in schema order, out)
PyObject* op_bind(PyObject* self, PyObject* given) {
  Op* op = reinterpret_cast<Op*>(self);
  PyObject *args, *kwargs;
  if (!PyArg_ParseTuple(given, "O!O!", &PyTuple_Type, &args, &PyDict_Type, &kwargs) ||
      !resolve(op)) {
    return nullptr;
  }
  const Py_ssize_t count = PyTuple_GET_SIZE(args), named = PyDict_GET_SIZE(kwargs);
  StackVector<PyObject*, kUsualArguments> values;
  const auto names = steal(named ? keyword_names(kwargs) : nullptr);
  if ((named && !names) || !values.reserve(static_cast<size_t>(count + named))) return nullptr;
  for (Py_ssize_t i = 0; i < count; ++i) {
    values[static_cast<size_t>(i)] = PyTuple_GET_ITEM(args, i);
  }
  PyObject *name, *value;
  Py_ssize_t place = 0;
  for (Py_ssize_t k = 0; PyDict_Next(kwargs, &place, &name, &value); ++k) {
    values[static_cast<size_t>(count + k)] = value;
  }
  return bind_call(op, values.data(), count, names.get());
}

PyMethodDef op_methods[] = {
    {"bind", op_bind, METH_VARARGS,
     "bind(args, kwargs) -> (overload, values in the schema's order, out): nothing is called."},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef op_getset[] = {
    {"__name__", get_name, set_name, nullptr, nullptr},
    {"__qualname__", get_qualname, set_qualname, nullptr, nullptr},
    {"gate", get_gate, set_gate, "Called before each call on plain tensors; None: nothing.",
     nullptr},
    {"autocast", get_autocast, set_autocast,
     "How operands are cast under autocast: \"lower\", \"float32\", \"promote\", a function or "
     "None.",
     nullptr},
    {"overloads", get_overloads, nullptr, "What its overloads were made of.", nullptr},
    {"schemas", get_schemas, nullptr, "The signature of every overload.", nullptr},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyMemberDef op_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Op, vectorcall), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(Op, dict), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Op, weakrefs), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot op_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(op_create)},
    {Py_tp_dealloc, reinterpret_cast<void*>(op_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(op_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(op_clear)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_descr_get, reinterpret_cast<void*>(op_descr_get)},
    {Py_tp_repr, reinterpret_cast<void*>(op_repr)},
    {Py_tp_methods, op_methods},
    {Py_tp_getset, op_getset},
    {Py_tp_members, op_members},
    {0, nullptr},
};

PyType_Spec op_spec = {"flambeau._core.Op", sizeof(Op), 0,
                       Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                           Py_TPFLAGS_METHOD_DESCRIPTOR,
                       op_slots};

PyObject* make_structseq(PyObject*, PyObject* args) {
  PyObject *name, *fields;
  if (!PyArg_ParseTuple(args, "UO", &name, &fields)) return nullptr;
  const auto tuple = steal(PySequence_Tuple(fields));
  if (!tuple) return nullptr;
  const Py_ssize_t count = PyTuple_GET_SIZE(tuple.get());
  // CPython keeps pointers to these texts for as long as the type lives: for ever.
  auto* entries = new PyStructSequence_Field[static_cast<size_t>(count) + 1]();
  for (Py_ssize_t i = 0; i < count; ++i) {
    const char* text = PyUnicode_AsUTF8(PyTuple_GET_ITEM(tuple.get(), i));
    if (!text) {
      delete[] entries;
      return nullptr;
    }
    entries[i].name = strdup(text);
  }
  PyStructSequence_Desc description{strdup(PyUnicode_AsUTF8(name)), nullptr, entries,
                                    static_cast<int>(count)};
  return reinterpret_cast<PyObject*>(PyStructSequence_NewType(&description));
}

PyMethodDef functions[] = {
    {"make_structseq", make_structseq, METH_VARARGS,
     "make_structseq(name, fields): type of a result with named fields; call it with a tuple."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

PyObject* wrap_outputs(const Plan* plan, PyObject** outputs) {
  switch (plan->returns) {
    case ReturnKind::Single:
      return take(outputs, 0);
    case ReturnKind::Nothing:
      return none();
    default:
      return wrap_sequence(plan, outputs);
  }
}

PyObject* call_python(Overload* overload, Frame* frame) {
  // Keyword-only arguments are passed by name; lists are tuples even when an int was given.
  const size_t count = overload->arguments.size();
  PyObject* names = nullptr;
  size_t keywords = 0;
  for (const Argument& argument : overload->arguments) keywords += argument.keyword_only;
  if (keywords) {
    names = frame->own(PyTuple_New(static_cast<Py_ssize_t>(keywords)));
    if (!names) return nullptr;
  }
  StackVector<PyObject*, kUsualArguments> values;
  if (!values.reserve(count)) return nullptr;
  Py_ssize_t at = 0;
  for (size_t i = 0; i < count; ++i) {
    const Argument& argument = overload->arguments[i];
    values[i] = frame->values[i];
    const bool list = argument.kind == Kind::IntList || argument.kind == Kind::SymIntList;
    if (list && PyIndex_Check(values[i])) {
      values[i] = frame->own(PyTuple_Pack(1, values[i]));
      if (!values[i]) return nullptr;
    }
    if (argument.keyword_only) PyTuple_SET_ITEM(names, at++, Py_NewRef(argument.name));
  }
  PyObject* result = PyObject_Vectorcall(overload->build, values.data(), count - keywords, names);
  if (!result) hide_internals();
  return frame->out ? to_out(overload, result, frame) : result;
}

PyObject* op_call(PyObject* op, PyObject* const* args, Py_ssize_t count) {
  if (reinterpret_cast<Op*>(op)->pending) [[unlikely]] {
    if (!resolve(reinterpret_cast<Op*>(op))) return nullptr;
  }
  return op_vectorcall(op, args, static_cast<size_t>(count), nullptr);
}

bool init_op(PyObject* module) {
  OpType = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&op_spec));
  return OpType && PyModule_AddObjectRef(module, "Op", (PyObject*)OpType) == 0 &&
         PyModule_AddFunctions(module, functions) == 0 && init_op_cache(module) &&
         init_op_override(module) && init_lists(module) && init_autocast(module);
}

}  // namespace fb
