// Effects of a frame besides its result: gradients of leaves, items of dicts and lists, cells.
//
// A dry run writes `.grad` as the program does, and notes what was there before: it is restored
// when the dry run ends. An explained call compares what was read of it, and assigns what the
// program leaves there.
#include "frame/frame.h"

namespace fb {

// ---------------------------------------------------------------- in a dry run
namespace {

struct GradientNote {
  Ref<Tensor> tensor, before;  // before: null where there was none
  bool read;                   // it was read before it was written
};
constinit FB_THREAD_LOCAL std::vector<GradientNote>* dry_notes = nullptr;  // of this dry run
constinit FB_THREAD_LOCAL std::vector<Ref<Tensor>>* dry_leaves = nullptr;  // as well
constinit FB_THREAD_LOCAL PyObject* dry_caller = nullptr;  // owned: (function, args | None)

bool is_dry() { return active_recorder && active_recorder->learning; }

PyObject* call_dry(PyObject* function, PyObject* args) {
  if (dry_caller) return call_object(dry_caller, function, args);
  record_refuse("the engine calls a function");
  return nullptr;
}

}  // namespace

void record_note_leaf(Tensor* leaf) {
  if (leaf->storage->pending) return;  // of the dry run: its code alone holds it
  if (!dry_leaves) dry_leaves = new std::vector<Ref<Tensor>>();
  const auto same = [leaf](const Ref<Tensor>& t) { return t.get() == leaf; };
  if (std::any_of(dry_leaves->begin(), dry_leaves->end(), same)) return;
  dry_leaves->push_back(share(leaf));
}

PyObject* record_call_user(PyObject* function, PyObject* args) {
  return is_dry() ? call_dry(function, args) : PyObject_Call(function, args, nullptr);
}

bool record_read_hooks(PyObject* hooks) {
  return !is_dry() || static_cast<bool>(steal(call_dry(hooks, Py_None)));
}

// record_calls(caller | None) -> what it was; caller(function, arguments) is called by the engine
// in a dry run in place of a function of users, caller(hooks, None) before hooks are called.
PyObject* record_calls(PyObject*, PyObject* caller) {
  PyObject* before = Py_NewRef(or_none(dry_caller));
  assign(dry_caller, share(caller == Py_None ? nullptr : caller));
  return before;
}

// How many calls of the active stream draw random numbers.
PyObject* record_draws(PyObject*, PyObject*) {
  const auto draws = [](const Record& record) { return !record.objects.empty(); };
  if (!active_recorder) return PyLong_FromLong(0);
  const std::vector<Record>& records = active_recorder->records;
  return PyLong_FromSsize_t(std::count_if(records.begin(), records.end(), draws));
}

// The leaves that backwards of the active dry run reached.
PyObject* record_leaves(PyObject*, PyObject*) {
  return build_list(dry_leaves ? dry_leaves->size() : 0,
                    [](size_t i) { return Py_NewRef(object_of((*dry_leaves)[i])); });
}

void record_note_gradient(Tensor* t, bool reads) {
  if (t->storage->pending) return;  // a result of the dry run
  if (!dry_notes) dry_notes = new std::vector<GradientNote>();
  std::vector<GradientNote>& notes = *dry_notes;
  const bool noted = std::any_of(notes.begin(), notes.end(),
                                 [&](const GradientNote& note) { return note.tensor.get() == t; });
  if (noted) return;
  notes.push_back({share(t), share(t->autograd ? t->autograd->grad : nullptr), reads});
}

bool record_refuse(const char* why) {
  active_recorder->refused = true;
  PyErr_Format(PyExc_RuntimeError, "[compile] %s", why);
  return false;
}

bool record_has(const Node* node) {
  return active_recorder && node->recorded.epoch == active_recorder->epoch;
}

bool node_observed(const Node* node, bool interpreted) {
  const NodeExtras* x = node->extras;
  const auto hooked = [](const Ref<>& hooks) { return static_cast<bool>(hooks); };
  if (!x) return false;
  if (x->prehooks || x->posthooks || !x->retained.empty()) return true;
  return !interpreted && (!x->packed.empty() ||
                          std::any_of(x->tensor_hooks.begin(), x->tensor_hooks.end(), hooked));
}

void record_undo_gradients() {
  delete std::exchange(dry_leaves, nullptr);
  if (!dry_notes) return;
  std::vector<GradientNote>* notes = std::exchange(dry_notes, nullptr);
  for (GradientNote& note : *notes) {
    Autograd* a = note.tensor->autograd;
    if (a) assign(a->grad, std::move(note.before));
  }
  delete notes;
}

PyObject* record_gradients(PyObject*, PyObject*) {
  if (!active_recorder || !active_recorder->learning) {
    PyErr_SetString(PyExc_RuntimeError, "[compile] no dry run is active");
    return nullptr;
  }
  PyObject* list = build_list(dry_notes ? dry_notes->size() : 0, [&](size_t i) {
    const GradientNote& note = (*dry_notes)[i];
    const Autograd* a = note.tensor->autograd;
    return Py_BuildValue("(OOiO)", object_of(note.tensor), or_none(note.before), note.read ? 1 : 0,
                         or_none(a ? a->grad : nullptr));
  });
  record_undo_gradients();
  return list;
}

PyObject* record_pending(PyObject*, PyObject* tensor) {
  const Storage* storage = is_tensor(tensor) ? tensor_of(tensor)->storage : nullptr;
  return PyBool_FromLong(storage && storage->pending && !storage->discarded);
}

// ---------------------------------------------------------------- gradients
namespace {

PyObject* hooks_of(const Tensor* t) {
  PyObject* hooks = t->autograd ? t->autograd->hooks : nullptr;
  return hooks && PyObject_Length(hooks) > 0 ? hooks : nullptr;
}

}  // namespace

LeafGuard LeafGuard::of(int32_t source, const Tensor* t) { return {source, share(hooks_of(t))}; }

bool LeafGuard::holds(const Tensor* t) const {
  const Autograd* a = t->autograd;
  if (hooks_of(t) != hooks.get()) return false;
  return !a ||
         (!a->node && !a->post_accumulate_hooks && !(a->accumulator && a->accumulator->extras));
}

bool GradientGuard::holds(const Tensor* t, const Explanation& x) const {
  const Autograd* a = t->autograd;
  if (!a) return kind != Same && kind != Input;
  if (a->node) return false;  // of a tensor that is no leaf it goes on
  if (kind == Same) return a->grad == x.constants[static_cast<size_t>(index)].get();
  if (kind == Input) {
    return a->grad && x.taken[static_cast<size_t>(index - x.arguments)].holds(a->grad);
  }
  return kind == Any || !a->grad;
}

bool Explanation::outlived() const {
  return std::any_of(
      gradient_guards.begin(), gradient_guards.end(), [&](const GradientGuard& guard) {
        return guard.kind == GradientGuard::Same && guard.source < 0 &&
               !guard.holds(constants[static_cast<size_t>(~guard.source)].get(), *this);
      });
}

bool set_gradient(Tensor* t, PyObject* value) {
  if (value == Py_None && !t->autograd) return true;
  Autograd* a = tensor_autograd(t);
  if (!a) return false;
  assign(a->grad, value == Py_None ? Ref<Tensor>() : share(tensor_of(value)));
  return true;
}

bool Effect::apply(PyObject* value) const {
  PyObject* target = container.get();
  if (PyCell_Check(target)) return PyCell_Set(target, value) == 0;
  if (PyList_Check(target) && key.get() == Py_None) return PyList_Append(target, value) == 0;
  if (PyList_Check(target)) {
    return PyList_SetItem(target, PyLong_AsSsize_t(key.get()), Py_NewRef(value)) == 0;
  }
  return PyDict_SetItem(target, key.get(), value) == 0;
}

}  // namespace fb
