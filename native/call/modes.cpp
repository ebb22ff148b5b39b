// Gradient modes as context managers and decorators, and the stack of saved_tensors_hooks.
//
// Entering and leaving is on the path of every optimizer step and evaluation loop, so the guards
// are native. A guard keeps the modes it replaced in a bit stack: it may be entered again while it
// is active.
#include "tape/tape.h"

namespace fb {

namespace {

enum class GuardKind : uint8_t { NoGrad, EnableGrad, SetGrad, Inference };

struct Guard {
  PyObject_HEAD GuardKind kind;
  bool target;       // what the kind is set to
  GradMode before;   // SetGrad: as it was when the guard was made
  uint64_t history;  // two bits (enabled, inference) per level, newest lowest
};

Guard* as_guard(PyObject* o) { return reinterpret_cast<Guard*>(o); }

void apply(const Guard* guard) {
  if (guard->kind == GuardKind::Inference) {
    grad_mode.inference = guard->target;
    grad_mode.enabled = !guard->target;
  } else {
    grad_mode.enabled = guard->target;
  }
}

PyObject* decorate(PyObject* guard, PyObject* function) {
  return call_helper("flambeau.autograd.grad_mode", "_decorate", guard, function);
}

PyObject* make_guard(PyTypeObject* type, GuardKind kind, bool target) {
  PyObject* self = type->tp_alloc(type, 0);
  if (!self) return nullptr;
  as_guard(self)->kind = kind;
  as_guard(self)->target = target;
  as_guard(self)->before = grad_mode;
  as_guard(self)->history = 0;
  return self;
}

// no_grad() is a guard; no_grad(function), as in a bare `@no_grad`, decorates.
template <GuardKind kind>
PyObject* plain_new(PyTypeObject* type, PyObject* args, PyObject*) {
  auto self = steal(make_guard(type, kind, kind == GuardKind::EnableGrad));
  if (!self || PyTuple_GET_SIZE(args) == 0) return self.release();
  return decorate(self.get(), PyTuple_GET_ITEM(args, 0));
}

// set_grad_enabled(mode) takes effect at once, also without `with`.
PyObject* set_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"mode", nullptr};
  PyObject* value;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O", const_cast<char**>(names), &value)) {
    return nullptr;
  }
  if (!PyBool_Check(value)) {
    PyErr_Format(PyExc_TypeError,
                 "[set_grad_enabled] mode must be a bool (got %s)\nhint: bool(mode)",
                 Py_TYPE(value)->tp_name);
    return nullptr;
  }
  const int mode = value == Py_True;
  PyObject* self = make_guard(type, GuardKind::SetGrad, mode != 0);
  if (self) grad_mode.enabled = mode != 0;
  return self;
}

PyObject* inference_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"mode", nullptr};
  PyObject* mode = Py_True;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O", const_cast<char**>(names), &mode)) {
    return nullptr;
  }
  if (PyCallable_Check(mode) && !PyBool_Check(mode)) {
    const auto self = steal(make_guard(type, GuardKind::Inference, true));
    return self ? decorate(self.get(), mode) : nullptr;
  }
  const int target = PyObject_IsTrue(mode);
  return target < 0 ? nullptr : make_guard(type, GuardKind::Inference, target != 0);
}

int guard_init(PyObject*, PyObject*, PyObject*) { return 0; }  // __new__ read the arguments

PyObject* guard_enter(PyObject* self, PyObject*) {
  Guard* guard = as_guard(self);
  // The mode to go back to is the one before set_grad_enabled(...) was called.
  const GradMode mode = guard->kind == GuardKind::SetGrad ? guard->before : grad_mode;
  guard->history = guard->history << 2 | (mode.enabled ? 1u : 0u) | (mode.inference ? 2u : 0u);
  apply(guard);
  if (guard->kind == GuardKind::SetGrad) guard->before = grad_mode;
  Py_RETURN_NONE;
}

PyObject* guard_exit(PyObject* self, PyObject* const*, Py_ssize_t) {
  Guard* guard = as_guard(self);
  grad_mode.enabled = (guard->history & 1u) != 0;
  if (guard->kind == GuardKind::Inference) grad_mode.inference = (guard->history & 2u) != 0;
  if (guard->kind == GuardKind::SetGrad) guard->before = grad_mode;
  guard->history >>= 2;
  Py_RETURN_NONE;
}

// As a decorator set_grad_enabled must not leave its own mode behind.
PyObject* guard_call(PyObject* self, PyObject* args, PyObject* kwargs) {
  PyObject* function;
  if (kwargs && PyDict_GET_SIZE(kwargs) > 0) {
    PyErr_SetString(PyExc_TypeError,
                    "[grad_mode] the decorator takes one function\n"
                    "hint: @no_grad() or with no_grad():");
    return nullptr;
  }
  if (!PyArg_ParseTuple(args, "O", &function)) return nullptr;
  if (as_guard(self)->kind == GuardKind::SetGrad) {
    grad_mode.enabled = as_guard(self)->before.enabled;
  }
  return decorate(self, function);
}

PyObject* guard_clone(PyObject* self, PyObject*) {
  PyObject* copy = make_guard(Py_TYPE(self), as_guard(self)->kind, as_guard(self)->target);
  if (copy && as_guard(copy)->kind == GuardKind::SetGrad) grad_mode = as_guard(copy)->before;
  return copy;
}
PyObject* guard_mode(PyObject* self, void*) { return PyBool_FromLong(as_guard(self)->target); }

template <typename F>
PyCFunction fast(F function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(function));
}
PyMethodDef guard_methods[] = {
    {"__enter__", guard_enter, METH_NOARGS, nullptr},
    {"__exit__", fast(guard_exit), METH_FASTCALL, nullptr},
    {"clone", guard_clone, METH_NOARGS, "A fresh guard of the same mode."},
    {nullptr, nullptr, 0, nullptr}};
PyGetSetDef guard_getset[] = {{"mode", guard_mode, nullptr, "The mode it sets.", nullptr},
                              {nullptr, nullptr, nullptr, nullptr, nullptr}};

bool add_guard(PyObject* module, const char* name, newfunc create, const char* doc) {
  PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(create)},
                         {Py_tp_init, reinterpret_cast<void*>(guard_init)},
                         {Py_tp_dealloc, reinterpret_cast<void*>(free_instance)},
                         {Py_tp_call, reinterpret_cast<void*>(guard_call)},
                         {Py_tp_methods, guard_methods},
                         {Py_tp_getset, guard_getset},
                         {Py_tp_doc, const_cast<char*>(doc)},
                         {0, nullptr}};
  const std::string full = std::string("flambeau.") + name;
  PyType_Spec spec = {full.c_str(), sizeof(Guard), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                      slots};
  const auto type = steal(PyType_FromSpec(&spec));
  return type && PyModule_AddObjectRef(module, name, type.get()) == 0;
}

PyObject* is_grad_enabled(PyObject*, PyObject*) { return PyBool_FromLong(grad_mode.enabled); }
PyObject* is_inference_mode_enabled(PyObject*, PyObject*) {
  return PyBool_FromLong(grad_mode.inference);
}
PyObject* set_grad_mode(PyObject*, PyObject* value) {
  const int enabled = PyObject_IsTrue(value);
  if (enabled < 0) return nullptr;
  grad_mode.enabled = enabled != 0;
  Py_RETURN_NONE;
}

// ---------------------------------------------------------------- saved_tensors_hooks
struct HookStack {
  std::vector<std::pair<PyObject*, PyObject*>> hooks;  // owned; the thread's end has no GIL
  std::string disabled;                                // message; empty: allowed
};
HookStack& hook_stack() {
  static thread_local HookStack stack;
  return stack;
}
// The common case, no hooks, must not pay for a thread-local object with a constructor.
constinit FB_THREAD_LOCAL uint32_t hook_depth = 0;

PyObject* push_saved_hooks(PyObject*, PyObject* args) {
  PyObject *pack, *unpack;
  if (!PyArg_ParseTuple(args, "OO", &pack, &unpack)) return nullptr;
  HookStack& stack = hook_stack();
  if (!stack.disabled.empty()) {
    PyErr_SetString(PyExc_RuntimeError, stack.disabled.c_str());
    return nullptr;
  }
  stack.hooks.emplace_back(Py_NewRef(pack), Py_NewRef(unpack));
  ++hook_depth;
  Py_RETURN_NONE;
}

PyObject* pop_saved_hooks(PyObject*, PyObject*) {
  HookStack& stack = hook_stack();
  if (stack.hooks.empty()) {
    PyErr_SetString(PyExc_RuntimeError,
                    "[saved_tensors_hooks] no hooks are active\n"
                    "hint: leave each context once");
    return nullptr;
  }
  const auto pack = steal(stack.hooks.back().first), unpack = steal(stack.hooks.back().second);
  stack.hooks.pop_back();
  --hook_depth;
  Py_RETURN_NONE;
}

PyObject* saved_hooks_depth(PyObject*, PyObject*) { return PyLong_FromUnsignedLong(hook_depth); }

PyObject* get_checkpoint_group(PyObject*, PyObject*) {
  return Py_NewRef(or_none(checkpoint_group));
}
PyObject* set_checkpoint_group(PyObject*, PyObject* group) {
  assign(checkpoint_group, share(group == Py_None ? nullptr : group));
  Py_RETURN_NONE;
}

// Returns the message that was set before, or None.
PyObject* disable_saved_hooks(PyObject*, PyObject* message) {
  HookStack& stack = hook_stack();
  auto before =
      stack.disabled.empty() ? share(Py_None) : steal(PyUnicode_FromString(stack.disabled.c_str()));
  if (message == Py_None) {
    stack.disabled.clear();
  } else {
    const char* text = PyUnicode_AsUTF8(message);
    if (!text) return nullptr;
    if (!stack.hooks.empty()) {
      PyErr_SetString(PyExc_RuntimeError, text);
      return nullptr;
    }
    stack.disabled = text;
  }
  return before.release();
}

PyMethodDef functions[] = {
    {"is_grad_enabled", is_grad_enabled, METH_NOARGS,
     "is_grad_enabled() -> bool: whether operations are recorded for backward."},
    {"is_inference_mode_enabled", is_inference_mode_enabled, METH_NOARGS,
     "is_inference_mode_enabled() -> bool."},
    {"set_grad_mode", set_grad_mode, METH_O, "Sets the gradient mode of this thread."},
    {"push_saved_hooks", push_saved_hooks, METH_VARARGS, "push_saved_hooks(pack, unpack)."},
    {"pop_saved_hooks", pop_saved_hooks, METH_NOARGS, "Undoes the latest push."},
    {"saved_hooks_depth", saved_hooks_depth, METH_NOARGS, "How many hooks are active."},
    {"checkpoint_group", get_checkpoint_group, METH_NOARGS,
     "The GraphExecGroup of this thread, or None."},
    {"set_checkpoint_group", set_checkpoint_group, METH_O, "Sets the GraphExecGroup, or None."},
    {"disable_saved_hooks", disable_saved_hooks, METH_O,
     "Forbids saved tensor hooks with a message (None allows them); returns the old one."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

bool saved_hooks_active(SavedHooks* out) {
  if (!hook_depth) return false;
  const auto& [pack, unpack] = hook_stack().hooks.back();
  *out = {pack, unpack};
  return true;
}

uint32_t saved_hooks_suspend() { return std::exchange(hook_depth, 0u); }
void saved_hooks_resume(uint32_t depth) { hook_depth = depth; }
void saved_hooks_reset() {
  if (!hook_depth) return;
  std::vector<std::pair<PyObject*, PyObject*>> hooks;
  hooks.swap(hook_stack().hooks);
  hook_depth = 0;
  for (auto& [pack, unpack] : hooks) {
    drop(pack);
    drop(unpack);
  }
}
constinit FB_THREAD_LOCAL PyObject* checkpoint_group = nullptr;

bool init_modes(PyObject* module) {
  return add_guard(module, "no_grad", plain_new<GuardKind::NoGrad>,
                   "Operations inside are not recorded for backward.") &&
         add_guard(module, "enable_grad", plain_new<GuardKind::EnableGrad>,
                   "Operations inside are recorded, also within no_grad.") &&
         add_guard(module, "set_grad_enabled", set_new,
                   "set_grad_enabled(mode): sets the mode, for good or for a `with` block.") &&
         add_guard(module, "inference_mode", inference_new,
                   "inference_mode(mode=True): no_grad whose tensors never enter a graph.") &&
         PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace fb
