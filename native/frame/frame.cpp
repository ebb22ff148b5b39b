// The callable that `torch.compile` returns: it runs an explanation whose guards hold, and else
// calls the function under the recorder (tier 1), of which it learns explanations.
//
// Learning is paid for by calls that will be saved: only a call like an earlier one, whose streams
// were compiled, is tried, and after each trial of the same arguments twice as many calls pass.
#include "frame/frame.h"

#include <structmember.h>

#include <array>
#include <unordered_map>

#include "call/op_internal.h"
#include "record/record.h"
#include "runtime/profile.h"
#include "tape/tape.h"

namespace fb {

namespace {

constexpr size_t kMaxExplanations = 16;
constexpr size_t kMaxSignatures = 256;
constexpr int kMaxFailures = 8;

bool skipping = true;  // explanations may be run

struct Trials {
  uint32_t calls = 0, next = 2;  // the number of calls at which the next trial is
};

struct Compiled {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* function;  // owned: the user's
  PyObject* recorded;  // owned: calls it under the recorder
  PyObject* learn;     // owned: (self, args, kwargs) -> str | None, why it was not explained
  PyObject* reason;    // owned: the last such reason, or null
  PyObject* dict;
  PyObject* weakrefs;
  int failures;
  bool early;  // the next trial is before a call: the last one met what the call had changed
  int64_t hits;
  std::vector<Ref<Explanation>> explanations;  // the last used one first
  std::unordered_map<uint64_t, Trials> trials;
};
Compiled* as_compiled(PyObject* o) { return reinterpret_cast<Compiled*>(o); }

// A dry run makes nodes of autograd, which hooks and anomaly mode would see.
bool may_learn() {
  SavedHooks hooks;
  return skipping && !active_recorder && explains(interceptors) && !checkpoint_grouped() &&
         !saved_hooks_active(&hooks) && !anomaly_recorder && !python_traced();
}
bool may_skip() {
  return skipping && !active_recorder && !record_watched() && !checkpoint_grouped() &&
         !python_traced();
}

void drop_dead(Compiled* self) {
  std::vector<Ref<Explanation>> alive, dead;  // what ends may call this function
  for (Ref<Explanation>& x : self->explanations) {
    const bool over = x->pattern.dead() || x->changes != record_changes() || x->outlived();
    (over ? dead : alive).push_back(std::move(x));
  }
  self->explanations.swap(alive);
}

PyObject* run_explained(Compiled* self, const Arguments& arguments) {
  Inputs inputs;
  for (size_t i = 0; i < self->explanations.size(); ++i) {
    if (!self->explanations[i]->holds(arguments, &inputs)) continue;
    const Ref<Explanation> held = self->explanations[i];
    if (i > 0) std::swap(self->explanations[i], self->explanations[i / 2]);
    ++self->hits;
    return held->run(inputs);
  }
  // Gradients that were replaced are not owned any longer.
  if (std::any_of(self->explanations.begin(), self->explanations.end(),
                  [](const Ref<Explanation>& x) { return x->outlived(); })) {
    drop_dead(self);
  }
  return nullptr;
}

bool is_time(Compiled* self, const Arguments& arguments) {
  if (self->failures >= kMaxFailures) return false;
  if (self->trials.size() >= kMaxSignatures) self->trials.clear();
  Trials& trials = self->trials[signature_of(arguments)];
  if (++trials.calls < trials.next) return false;
  trials.next *= 2;
  return true;
}

// False + exception only where the program is to end.
bool learn(Compiled* self, const Arguments& arguments) {
  drop_dead(self);
  const auto args = steal(pack_positional(arguments.values, arguments.positional));
  const auto kwargs =
      steal(pack_keywords(arguments.values + arguments.positional, arguments.names));
  auto reason = steal(args && kwargs ? PyObject_CallFunctionObjArgs(self->learn, self, args.get(),
                                                                    kwargs.get(), nullptr)
                                     : nullptr);
  if (!reason) return false;
  const bool explained = reason.get() == Py_None;
  self->failures += !explained;
  assign(self->reason, explained ? Ref<>() : std::move(reason));
  return true;
}

PyObject* call_recorded(Compiled* self, PyObject* const* args, size_t flags, PyObject* names) {
  const Arguments arguments{args, PyVectorcall_NARGS(flags), names};
  const int64_t builds = record_builds(), flushes = record_flushes();
  const auto recorded = share(self->recorded);
  auto result = steal(PyObject_Vectorcall(recorded.get(), args, flags, names));
  if (!result || !may_learn() || builds != record_builds()) return result.release();
  if (!is_time(self, arguments)) return result.release();
  // The state that the call leaves may be explained, while the one before is not.
  Inputs inputs;
  self->early =
      std::any_of(self->explanations.begin(), self->explanations.end(),
                  [&](const Ref<Explanation>& x) { return x->holds(arguments, &inputs); });
  if (self->early) return result.release();
  if (!learn(self, arguments)) return nullptr;
  self->early = self->reason ? PyUnicode_CompareWithASCIIString(self->reason, kOtherProgram) == 0
                             : flushes != record_flushes() && !self->explanations.front()->instance;
  return result.release();
}

// A call may change what it reads (gradients that it adds to, or drops): then it is run dry before.
PyObject* call_learnt(Compiled* self, const Arguments& arguments) {
  self->early = false;
  if (self->failures >= kMaxFailures || !may_learn() || !learn(self, arguments)) return nullptr;
  return may_skip() ? run_explained(self, arguments) : nullptr;
}

PyObject* compiled_call(PyObject* object, PyObject* const* args, size_t flags, PyObject* names) {
  Compiled* self = as_compiled(object);
  if (!self->explanations.empty() && may_skip()) {
    PyObject* result = run_explained(self, {args, PyVectorcall_NARGS(flags), names});
    if (result || PyErr_Occurred()) return result;
  }
  if (self->early) {
    PyObject* result = call_learnt(self, {args, PyVectorcall_NARGS(flags), names});
    if (result || PyErr_Occurred()) return result;
  }
  return call_recorded(self, args, flags, names);
}

// ---------------------------------------------------------------- the Python type
PyObject* compiled_create(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject *function, *recorded, *learn;
  if (!PyArg_ParseTuple(args, "OOO", &function, &recorded, &learn)) return nullptr;
  auto* self = as_compiled(type->tp_alloc(type, 0));
  if (!self) return nullptr;
  new (&self->explanations) std::vector<Ref<Explanation>>();
  new (&self->trials) std::unordered_map<uint64_t, Trials>();
  self->vectorcall = compiled_call;
  self->function = Py_NewRef(function);
  self->recorded = Py_NewRef(recorded);
  self->learn = Py_NewRef(learn);
  return reinterpret_cast<PyObject*>(self);
}

int compiled_traverse(PyObject* object, visitproc visit, void* arg) {
  Compiled* self = as_compiled(object);
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->function);
  Py_VISIT(self->recorded);
  Py_VISIT(self->learn);
  Py_VISIT(self->dict);
  for (const Ref<Explanation>& x : self->explanations) {
    if (x->references > 1) continue;  // a run holds it, too
    Py_VISIT(x->guards.references.get());
    Py_VISIT(x->text.get());
    for (const Ref<Tensor>& t : x->constants) Py_VISIT(object_of(t));
    if (const int stop = x->pattern.visit(visit, arg)) return stop;
    for (const LeafGuard& guard : x->leaf_guards) Py_VISIT(guard.hooks.get());
    for (const Effect& effect : x->effects) Py_VISIT(effect.container.get());
    for (const NumberItem& item : x->numbers.items) Py_VISIT(item.container.get());
    for (const RecipeItem& item : x->recipe) {
      Py_VISIT(item.object.get());
      Py_VISIT(item.spent.get());
    }
  }
  return 0;
}

int compiled_clear(PyObject* object) {
  Compiled* self = as_compiled(object);
  std::vector<Ref<Explanation>> explanations;
  explanations.swap(self->explanations);
  assign(self->function, share(Py_None));  // stays callable: it raises, it does not crash
  assign(self->recorded, share(Py_None));
  assign(self->learn, share(Py_None));
  drop(self->dict);
  return 0;
}

void compiled_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  Compiled* self = as_compiled(object);
  if (self->weakrefs) PyObject_ClearWeakRefs(object);
  compiled_clear(object);
  drop(self->function);
  drop(self->recorded);
  drop(self->learn);
  drop(self->reason);
  std::destroy_at(&self->explanations);
  std::destroy_at(&self->trials);
  free_instance(object);
}

PyObject* compiled_bind(PyObject* self, PyObject* object, PyObject*) {
  if (!object || object == Py_None) return Py_NewRef(self);
  return PyMethod_New(self, object);
}

// What the function has: `__code__`, `__defaults__`, attributes of the user's.
PyObject* compiled_getattr(PyObject* self, PyObject* name) {
  PyObject* value = PyObject_GenericGetAttr(self, name);
  if (value || !PyErr_ExceptionMatches(PyExc_AttributeError)) return value;
  PyErr_Clear();
  return PyObject_GetAttr(as_compiled(self)->function, name);
}

PyObject* compiled_repr(PyObject* self) { return PyObject_Repr(as_compiled(self)->function); }

// As functions do: pickled by the name under which it can be imported.
PyObject* compiled_reduce(PyObject* self, PyObject*) {
  return PyObject_GetAttrString(self, "__qualname__");
}

// explain(args, kwargs, result, guards): of what the active dry run recorded.
PyObject* compiled_explain(PyObject* object, PyObject* parts) {
  PyObject *args, *kwargs, *result, *guards;
  if (!PyArg_ParseTuple(parts, "O!O!OO", &PyTuple_Type, &args, &PyDict_Type, &kwargs, &result,
                        &guards)) {
    return nullptr;
  }
  if (!active_recorder || !active_recorder->learning) {
    PyErr_SetString(PyExc_RuntimeError, "[compile] no dry run is active");
    return nullptr;
  }
  const auto names = steal(PyDict_GET_SIZE(kwargs) ? keyword_names(kwargs) : nullptr);
  std::vector<PyObject*> values(PySequence_Fast_ITEMS(args),
                                PySequence_Fast_ITEMS(args) + PyTuple_GET_SIZE(args));
  PyObject *key, *value;
  for (Py_ssize_t place = 0; PyDict_Next(kwargs, &place, &key, &value);) values.push_back(value);
  auto explanation =
      explain_recorded({values.data(), PyTuple_GET_SIZE(args), names.get()}, result, guards);
  if (!explanation) return nullptr;
  Compiled* self = as_compiled(object);
  Ref<Explanation> evicted;
  if (self->explanations.size() >= kMaxExplanations) {
    evicted = std::move(self->explanations.back());
    self->explanations.pop_back();
  }
  self->explanations.insert(self->explanations.begin(), std::move(explanation));
  Py_RETURN_NONE;
}

// forget(): the call is recorded again from now on.
PyObject* compiled_forget(PyObject* object, PyObject*) {
  Compiled* self = as_compiled(object);
  std::vector<Ref<Explanation>> explanations;
  explanations.swap(self->explanations);
  self->trials.clear();
  self->failures = 0;
  Py_RETURN_NONE;
}

PyObject* compiled_guards(PyObject* object, void*) {
  const auto& explanations = as_compiled(object)->explanations;
  return build_tuple(explanations.size(),
                     [&](size_t i) { return Py_NewRef(explanations[i]->text.get()); });
}

PyObject* compiled_hits(PyObject* object, void*) {
  return PyLong_FromLongLong(as_compiled(object)->hits);
}

PyMethodDef compiled_methods[] = {
    {"__reduce__", compiled_reduce, METH_NOARGS, nullptr},
    {"_explain", compiled_explain, METH_VARARGS,
     "_explain(args, kwargs, result, guards): adds the explanation of a call, which the active dry "
     "run recorded."},
    {"_forget", compiled_forget, METH_NOARGS, "Drops all explanations."},
    {nullptr, nullptr, 0, nullptr}};
PyGetSetDef compiled_attributes[] = {
    {"_explanations", compiled_guards, nullptr, "The guards of each explanation, as lines.",
     nullptr},
    {"_hits", compiled_hits, nullptr, "How many calls ran without Python.", nullptr},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyMemberDef compiled_members[] = {
    {"_function", T_OBJECT, offsetof(Compiled, function), READONLY, "The user's function."},
    {"_reason", T_OBJECT, offsetof(Compiled, reason), READONLY,
     "Why the last dry run gave no explanation, or None."},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Compiled, vectorcall), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(Compiled, dict), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Compiled, weakrefs), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};
PyType_Slot compiled_slots[] = {{Py_tp_new, reinterpret_cast<void*>(compiled_create)},
                                {Py_tp_traverse, reinterpret_cast<void*>(compiled_traverse)},
                                {Py_tp_clear, reinterpret_cast<void*>(compiled_clear)},
                                {Py_tp_dealloc, reinterpret_cast<void*>(compiled_dealloc)},
                                {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                                {Py_tp_descr_get, reinterpret_cast<void*>(compiled_bind)},
                                {Py_tp_getattro, reinterpret_cast<void*>(compiled_getattr)},
                                {Py_tp_repr, reinterpret_cast<void*>(compiled_repr)},
                                {Py_tp_methods, compiled_methods},
                                {Py_tp_getset, compiled_attributes},
                                {Py_tp_members, compiled_members},
                                {0, nullptr}};
PyType_Spec compiled_spec = {"flambeau._core.CompiledFunction", sizeof(Compiled), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                                 Py_TPFLAGS_METHOD_DESCRIPTOR,
                             compiled_slots};

PyObject* record_learn_now(PyObject*, PyObject*) {
  if (!may_learn()) {
    PyErr_SetString(PyExc_RuntimeError,
                    "[compile] a dry run would be seen: by a region, a mode, hooks of saved "
                    "tensors, anomaly mode or a tracer of Python");
    return nullptr;
  }
  record_learn();
  autocast_learn();
  const GradMode mode = grad_mode;
  return PyLong_FromLong((mode.enabled ? 1 : 0) + (mode.inference ? 2 : 0));
}

PyObject* record_unlearn(PyObject*, PyObject* before) {
  const long mode = PyLong_AsLong(before);
  if (mode < 0) return nullptr;
  record_undo_gradients();
  autocast_unlearn();
  saved_hooks_reset();
  record_forget_learnt();
  grad_mode.enabled = (mode & 1) != 0;
  grad_mode.inference = (mode & 2) != 0;
  Py_RETURN_NONE;
}

PyObject* set_skipping(PyObject*, PyObject* value) {
  const int skips = PyObject_IsTrue(value);
  if (skips < 0) return nullptr;
  return PyBool_FromLong(std::exchange(skipping, skips != 0));
}

PyMethodDef functions[] = {
    {"record_learn", record_learn_now, METH_NOARGS,
     "Begins a dry run: op calls are recorded and never run. Returns the gradient mode."},
    {"record_unlearn", record_unlearn, METH_O,
     "Ends a dry run, forgets its calls and restores the gradient mode."},
    {"record_gradients", record_gradients, METH_NOARGS,
     "The gradients that the active dry run reached: (tensor, what was there, whether it was read, "
     "what is there now) each. They are what they were from now on."},
    {"record_draws", record_draws, METH_NOARGS,
     "How many calls of the active stream draw random numbers."},
    {"record_leaves", record_leaves, METH_NOARGS,
     "The leaves that backwards of the active dry run reached."},
    {"record_calls", record_calls, METH_O,
     "Sets who is called, in dry runs of this thread, in place of functions that the engine calls: "
     "(function, arguments), and (hooks, None) before those of a dict; returns the old one."},
    {"record_pending", record_pending, METH_O,
     "Whether a tensor has no memory yet: a stream owes it."},
    {"set_skipping", set_skipping, METH_O,
     "Whether compiled functions may run without Python, in all threads; returns the old value."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

namespace {

PyObject* build_view(const ViewSpec& view, Tensor* base) {
  auto t = steal(tensor_alias(base, view.dtype, view.ndim, view.dims.data(),
                              view.dims.data() + view.ndim, view.offset));
  if (!t || (view.marked && !tape_mark_view(t.get(), base, true))) return nullptr;
  if (view.shown) t->flags |= kIsView;
  return object_of(t.release());
}

bool index_holds(const IndexGuard& guard, const Tensor* input) {
  Tensor view = *input;  // no object: read below, and forgotten
  view.ndim = static_cast<uint8_t>(guard.ndim);
  view.dims = const_cast<int64_t*>(guard.dims.data());
  view.offset = guard.offset;
  view.numel = guard.numel;
  return indices_inside(&view, guard.range);
}

}  // namespace

namespace {

bool mask_holds(const MaskGuard& guard, const Tensor* input) {
  Tensor view = *input;  // as above
  view.offset = guard.offset;
  view.numel = guard.numel;
  return true_elements(&view) == guard.count;
}

}  // namespace

bool Explanation::edges_hold(Tensor** tensors) const {
  std::vector<Tensor*> externals;
  for (int32_t source : sources) externals.push_back(input(source, tensors));
  return replay_fits(*replay.get(), externals.data());
}

// Constants have the memory that they had when it was learnt, where no two of a written one shared
// it; only arguments may have come to share it.
bool Explanation::writes_hold(Tensor** tensors) const {
  for (size_t i = 0; i < constants.size(); ++i) {
    if (constants[i]->storage != constant_storages[i]) return false;
  }
  const auto counts = [&](const Storage* storage) {
    return std::any_of(numbers.steps.begin(), numbers.steps.end(), [&](const NumberStep& step) {
      return step.kind == NumberStep::Count &&
             constants[static_cast<size_t>(step.left.step)]->storage == storage;
    });
  };
  const bool writes_argument = std::any_of(
      writes.begin(), writes.end(), [&](const WriteGuard& w) { return is_argument(w.source); });
  return std::none_of(sources.begin(), sources.end(), [&](int32_t source) {
    if (!is_argument(source) && !writes_argument) return false;
    const Storage* storage = input(source, tensors)->storage;
    if (is_argument(source) && counts(storage)) return true;
    return std::any_of(writes.begin(), writes.end(), [&](const WriteGuard& w) {
      return source != w.source && (is_argument(source) || is_argument(w.source)) &&
             input(w.source, tensors)->storage == storage;
    });
  });
}

bool Explanation::inputs_hold(Tensor** tensors) const {
  for (size_t i = 0; i < constants.size(); ++i) {
    if (constants[i]->storage != constant_storages[i]) return false;
  }
  std::vector<const Storage*> storages;
  storages.reserve(taken.size());
  for (size_t i = 0; i < taken.size(); ++i) {
    storages.push_back(tensors[static_cast<size_t>(arguments) + i]->storage);
    if (constant_memory.count(storages.back()) != 0) return false;
  }
  std::sort(storages.begin(), storages.end());
  if (std::adjacent_find(storages.begin(), storages.end()) != storages.end()) return false;
  return std::none_of(tensors, tensors + arguments, [&](const Tensor* t) {
    return std::binary_search(storages.begin(), storages.end(), t->storage);
  });
}

// A backward runs, which hooks of saved tensors and anomaly mode would see.
bool Explanation::gradients_hold(Tensor** tensors) const {
  SavedHooks hooks;
  if (saved_hooks_active(&hooks) || anomaly_recorder) return false;
  const auto observed = [](const RecipeItem& item) {
    return item.spent && node_observed(item.spent.get());
  };
  if (std::any_of(recipe.begin(), recipe.end(), observed)) return false;
  for (const GradientGuard& guard : gradient_guards) {
    const Tensor* t = input(guard.source, tensors);
    if (!guard.holds(t, *this)) return false;
    if (guard.kind == GradientGuard::Input) tensors[guard.index] = t->autograd->grad;
  }
  return true;
}

bool Explanation::casts_hold(Tensor** tensors) const {
  if (clears_casts && autocast_caches_any()) return false;
  return std::all_of(cast_guards.begin(), cast_guards.end(), [&](const CastGuard& guard) {
    Tensor* cached = autocast_cached(input(guard.source, tensors));
    if (guard.index < 0) return !cached;
    tensors[guard.index] = cached;
    return cached && taken[static_cast<size_t>(guard.index - arguments)].holds(cached);
  });
}

bool Explanation::make_aliases(Inputs* inputs) const {
  Tensor** at = inputs->tensors + static_cast<size_t>(arguments) + taken.size();
  inputs->owned.clear();
  for (const AliasSpec& alias : aliases) {
    auto made = steal(build_view(alias.view, input(alias.source, inputs->tensors)));
    if (!made) {
      PyErr_Clear();
      return false;
    }
    *at++ = tensor_of(made.get());
    inputs->owned.push_back(share(tensor_of(made.get())));
  }
  return true;
}

bool Explanation::holds(const Arguments& call, Inputs* inputs) {
  if (!modes.hold() || changes != record_changes()) return false;
  if (ranged && profiling()) return false;
  const size_t others = taken.size() + aliases.size();
  if (others > 0) inputs->many.resize(kMaxArgumentTensors + others);
  Tensor** tensors = inputs->tensors = others == 0 ? inputs->few : inputs->many.data();
  if (!pattern.matches(call, tensors) || !guards.hold()) return false;
  for (size_t i = 0; i < constants.size(); ++i) {
    if (!constant_guards[i].holds(constants[i].get())) return false;
  }
  if (!gradient_guards.empty() && !gradients_hold(tensors)) return false;
  if (!std::all_of(leaf_guards.begin(), leaf_guards.end(), [&](const LeafGuard& guard) {
        return guard.holds(input(guard.source, tensors));
      })) {
    return false;
  }
  if ((clears_casts || !cast_guards.empty()) && !casts_hold(tensors)) return false;
  if (!taken.empty() && !inputs_hold(tensors)) return false;
  if (!aliases.empty() && !make_aliases(inputs)) return false;
  const bool written = !writes.empty() || !numbers.steps.empty();
  if ((replay && !edges_hold(tensors)) || (written && !writes_hold(tensors))) return false;
  return std::all_of(indices.begin(), indices.end(),
                     [&](const IndexGuard& guard) {
                       return index_holds(guard, input(guard.source, tensors));
                     }) &&
         std::all_of(masks.begin(), masks.end(),
                     [&](const MaskGuard& guard) {
                       return mask_holds(guard, input(guard.source, tensors));
                     }) &&
         (numbers.steps.empty() || numbers.compute(constants, &inputs->numbers));
}

namespace {

struct Building {
  const Explanation& x;
  Tensor** tensors;
  const std::vector<NumberValue>& numbers;
  PyObject* const* outputs;
  Node* node;  // of the results that need a gradient; null: none does
  size_t at = 0;
};
PyObject* build(Building* b);

PyObject* build_dict(Building* b, const RecipeItem& item) {
  auto dict = steal(PyDict_New());
  for (Py_ssize_t i = 0; dict && i < item.index; ++i) {
    const auto value = steal(build(b));
    PyObject* key = PyTuple_GET_ITEM(item.object.get(), i);
    if (!value || PyDict_SetItem(dict.get(), key, value.get()) < 0) return nullptr;
  }
  return dict.release();
}

// Stolen; a result that needs a gradient gets its history.
PyObject* with_node(const Building* b, const RecipeItem& item, PyObject* object) {
  if (object) {
    uint8_t& flags = tensor_of(object)->flags;
    flags = static_cast<uint8_t>(item.inference ? flags | kInference : flags & ~kInference);
  }
  if (object && item.spent) set_history(tensor_of(object), item.spent.get(), item.spent_output);
  if (!object || item.root < 0) return object;
  set_history(tensor_of(object), b->node, static_cast<uint32_t>(item.root));
  return object;
}

PyObject* build(Building* b) {
  const RecipeItem& item = b->x.recipe[b->at++];
  const auto next = [&](size_t) { return build(b); };
  const auto index = static_cast<size_t>(item.index);
  switch (item.kind) {
    case RecipeItem::Output:
      return with_node(b, item, Py_NewRef(b->outputs[index]));
    case RecipeItem::View: {
      const ViewSpec& view = b->x.views[index];
      return with_node(b, item, build_view(view, tensor_of(b->outputs[view.output])));
    }
    case RecipeItem::Argument:
      return Py_NewRef(object_of(b->tensors[index]));
    case RecipeItem::Constant:
      return Py_NewRef(object_of(b->x.constants[index]));
    case RecipeItem::Object:
      return Py_NewRef(item.object.get());
    case RecipeItem::Number:
      return b->numbers[index].object();
    case RecipeItem::Tuple:
      return build_tuple(index, next);
    case RecipeItem::List:
      return build_list(index, next);
    case RecipeItem::Dict:
      return build_dict(b, item);
    case RecipeItem::Built: {
      const auto parts = steal(build_tuple(index, next));
      return parts ? PyObject_CallOneArg(item.object.get(), parts.get()) : nullptr;
    }
  }
  return nullptr;
}

// The result, and what else the call leaves.
PyObject* build_all(Building* b) {
  auto result = steal(build(b));
  for (int32_t source : b->x.gradients) {
    const auto value = steal(result ? build(b) : nullptr);
    if (!value || !set_gradient(b->x.input(source, b->tensors), value.get())) return nullptr;
  }
  for (int32_t source : b->x.casts) {
    const auto value = steal(result ? build(b) : nullptr);
    if (!value) return nullptr;
    autocast_store(b->x.input(source, b->tensors), tensor_of(value.get()));
  }
  for (const Effect& effect : b->x.effects) {
    const auto value = steal(result ? build(b) : nullptr);
    if (!value || !effect.apply(value.get())) return nullptr;
  }
  return result.release();
}

// A plan may have got other code: what was prepared for the old one is dropped.
Instance* current(Ref<Instance>* instance) {
  Instance* old = instance->get();
  if (old->code && old->code != old->plan->code) {
    auto renewed = steal(instance_renewed(old));
    if (renewed) *instance = std::move(renewed);
  }
  return instance->get();
}

}  // namespace

PyObject* Explanation::run(Inputs& inputs) {
  constexpr size_t kFew = 8;
  std::array<Tensor*, kFew> few{};
  std::array<PyObject*, kFew> few_outputs{};
  std::vector<Tensor*> many;
  std::vector<PyObject*> many_outputs;
  Tensor** tensors = inputs.tensors;
  Building building{*this, tensors, inputs.numbers, nullptr, nullptr};
  for (size_t i = 0; i < taken.size(); ++i) {
    inputs.owned.push_back(share(tensors[static_cast<size_t>(arguments) + i]));
  }
  std::vector<Scalar> varying;
  if (!numbers.uses.empty()) varying = scalars;
  for (const NumberUse& use : numbers.uses) {
    const NumberValue& value = inputs.numbers[use.step];
    if (value.integer) {
      varying[use.scalar].i = value.i;
    } else {
      varying[use.scalar].d = value.d;
    }
  }
  numbers.count(constants);
  if (!instance) return build_all(&building);
  const Ref<Instance> held = share(current(&instance));
  const size_t count = held->plan->outputs.size();
  if (sources.size() > kFew) many.resize(sources.size());
  if (count > kFew) many_outputs.resize(count);
  Tensor** operands = sources.size() > kFew ? many.data() : few.data();
  PyObject** outputs = count > kFew ? many_outputs.data() : few_outputs.data();
  for (size_t i = 0; i < sources.size(); ++i) {
    operands[i] = input(sources[i], tensors);
  }
  Scalar* scalar_values = numbers.uses.empty() ? scalars.data() : varying.data();
  Call call{operands,
            static_cast<int32_t>(sources.size()),
            scalar_values,
            scalar_is_float.data(),
            static_cast<int32_t>(scalars.size()),
            generators.data(),
            static_cast<int32_t>(generators.size())};
  const ProfileScope scope(EventKind::Region, held->plan->name.c_str());
  auto generator = replay && !generators.empty() ? steal(generator_copy(Py_None)) : Ref<>();
  if (PyErr_Occurred() || !plan_run(held.get(), call, outputs)) return nullptr;
  for (size_t k = 0; k < versions.size(); ++k) {
    if (held->plan->outputs[k].kind != OutputSpec::New) continue;
    tensor_of(outputs[k])->storage->version = versions[k];
  }
  for (const WriteGuard& write : writes) {
    input(write.source, tensors)->storage->version += write.counts;
  }
  Ref<Node> node;
  if (replay) {
    const RegionRun run{held.get(), operands,      scalar_values, scalar_is_float.data(),
                        outputs,    replay->shared};
    node = steal(replay_node(replay, run, std::move(generator)));
  }
  building.outputs = outputs;
  building.node = node.get();
  PyObject* result = replay && !node ? nullptr : build_all(&building);
  for (size_t k = 0; k < count; ++k) drop(outputs[k]);
  return result;
}

bool init_frame(PyObject* module) {
  const auto type = steal(PyType_FromSpec(&compiled_spec));
  return type && PyModule_AddObjectRef(module, "CompiledFunction", type.get()) == 0 &&
         PyModule_AddObjectRef(module, "frames_explained", kFramesExplained ? Py_True : Py_False) ==
             0 &&
         PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace fb
