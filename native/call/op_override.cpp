// `__torch_function__`: types and modes that take over functions. PyTorch's protocol: the newest
// mode, then the types of arguments, subclasses before their bases, else from left to right, until
// one does not return NotImplemented.
#include "call/op_internal.h"

namespace fb {

constinit FB_THREAD_LOCAL bool torch_function_disabled = false;
constinit FB_THREAD_LOCAL uint8_t interceptors = 0;

namespace {

constinit FB_THREAD_LOCAL PyObject* watcher = nullptr;         // owned
constinit FB_THREAD_LOCAL PyObject* function_modes = nullptr;  // owned list, the newest last

void set_interceptor(uint8_t bit, bool on) {
  interceptors = static_cast<uint8_t>(on ? interceptors | bit : interceptors & ~bit);
}

// Objects whose type overrides, one per type, in the order they are asked.
class Overriders {
 public:
  // operators: whether an op is called, which types of ours take over, too.
  explicit Overriders(bool operators) : operators_(operators) {}
  void add(PyObject* object, bool nested = true) {
    if (is_exact_tensor(object)) return;
    if (nested && (PyTuple_Check(object) || PyList_Check(object))) {
      for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i) {
        add(PySequence_Fast_GET_ITEM(object, i), false);
      }
      return;
    }
    const Override kind = override_of(object);
    if (kind == Override::None || (kind == Override::Public && torch_function_disabled)) return;
    if (kind == Override::Internal && !operators_) return;
    PyTypeObject* type = Py_TYPE(object);
    size_t at = objects_.size();
    for (size_t i = 0; i < objects_.size(); ++i) {
      PyTypeObject* other = Py_TYPE(objects_[i].get());
      if (other == type) return;
      if (at == objects_.size() && PyType_IsSubtype(type, other)) at = i;
    }
    objects_.insert(objects_.begin() + static_cast<std::ptrdiff_t>(at), share(object));
  }
  const std::vector<Ref<>>& objects() const { return objects_; }
  PyObject* types() const {
    return build_tuple(objects_.size(), [this](size_t i) {
      return Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(objects_[i].get())));
    });
  }

 private:
  bool operators_;
  std::vector<Ref<>> objects_;
};

// The watcher is off while it runs: ops inside of it are ordinary.
PyObject* ask_watcher(PyObject* func, PyObject* types, PyObject* args, PyObject* kwargs) {
  auto asked = steal(std::exchange(watcher, nullptr));
  set_interceptor(kWatcher, false);
  PyObject* result = call_object(asked.get(), func, types, args, kwargs);
  assign(watcher, std::move(asked));  // it may have set another one
  set_interceptor(kWatcher, true);
  return result;
}

// A mode is off the stack while it runs: functions inside of it go to the mode below.
PyObject* ask_function_mode(PyObject* func, PyObject* types, PyObject* args, PyObject* kwargs) {
  const Py_ssize_t last = PyList_GET_SIZE(function_modes) - 1;
  const auto mode = share(PyList_GET_ITEM(function_modes, last));
  if (PyList_SetSlice(function_modes, last, last + 1, nullptr) < 0) return nullptr;
  set_interceptor(kFunctionModes, last > 0);
  const auto handler = steal(PyObject_GetAttrString(mode.get(), "__torch_function__"));
  auto result = steal(call_object(handler.get(), func, types, args, kwargs));
  if (PyList_Append(function_modes, mode.get()) < 0) result = {};
  set_interceptor(kFunctionModes, true);
  return result.release();
}

PyObject* ask_objects(const Overriders& overriders, PyObject* func, PyObject* types, PyObject* args,
                      PyObject* kwargs) {
  for (const Ref<>& object : overriders.objects()) {
    PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(object.get()));
    const auto handler = steal(PyObject_GetAttrString(type, "__torch_function__"));
    auto result = steal(call_object(handler.get(), func, types, args, kwargs));
    if (result.get() != Py_NotImplemented) return result.release();
  }
  return Py_NewRef(Py_NotImplemented);
}

void raise_unhandled(PyObject* func, bool mode, PyObject* types) {
  const auto name = steal(PyObject_GetAttrString(func, "__name__"));
  if (!name) PyErr_Clear();
  PyErr_Format(PyExc_TypeError,
               "[%S] Multiple dispatch failed: all __torch_function__ handlers returned "
               "NotImplemented%s, of the types %R\n"
               "hint: handle the function there, or call super().__torch_function__",
               name ? name.get() : func, mode ? ", a mode's among them" : "", types);
}

PyObject* ask_all(const Overriders& overriders, PyObject* func, PyObject* args, PyObject* kwargs) {
  const auto types = steal(overriders.types());
  if (!types) return nullptr;
  auto result = share(Py_NotImplemented);
  const bool mode = interceptors & kFunctionModes;
  if (mode) {
    result = steal(ask_function_mode(func, types.get(), args, kwargs));
  } else if ((interceptors & kWatcher) && Py_TYPE(func) == OpType) {
    result = steal(ask_watcher(func, types.get(), args, kwargs));
  }
  if (result.get() == Py_NotImplemented) {
    result = steal(ask_objects(overriders, func, types.get(), args, kwargs));
  }
  if (result.get() != Py_NotImplemented) return result.release();
  raise_unhandled(func, mode, types.get());
  return nullptr;
}

PyObject* disabled_torch_function(PyObject*, PyObject* const* given, Py_ssize_t count) {
  if (count < 2 || count > 4) {
    PyErr_SetString(PyExc_TypeError, "expected (func, types, args=(), kwargs=None)");
    return nullptr;
  }
  const auto args = count > 2 ? share(given[2]) : steal(PyTuple_New(0));
  PyObject* kwargs = count > 3 && given[3] != Py_None ? given[3] : nullptr;
  if (!args) return nullptr;
  if (!PyTuple_Check(args.get())) {
    PyErr_SetString(PyExc_TypeError, "args must be a tuple");
    return nullptr;
  }
  const bool before = torch_function_disabled;
  torch_function_disabled = true;
  PyObject* result = PyObject_Call(given[0], args.get(), kwargs);
  torch_function_disabled = before;
  return result;
}

PyObject* set_torch_function_enabled(PyObject*, PyObject* value) {
  const int enabled = PyObject_IsTrue(value);
  if (enabled < 0) return nullptr;
  PyObject* before = PyBool_FromLong(!torch_function_disabled);
  torch_function_disabled = !enabled;
  return before;
}

PyObject* set_function_mode(PyObject*, PyObject* value) {
  PyObject* before = watcher ? watcher : Py_NewRef(Py_None);
  watcher = value == Py_None ? nullptr : Py_NewRef(value);
  set_interceptor(kWatcher, watcher != nullptr);
  return before;  // the reference this thread held
}

PyObject* push_function_mode(PyObject*, PyObject* mode) {
  if (!function_modes && !(function_modes = PyList_New(0))) return nullptr;
  if (PyList_Append(function_modes, mode) < 0) return nullptr;
  set_interceptor(kFunctionModes, true);
  Py_RETURN_NONE;
}

PyObject* pop_function_mode(PyObject*, PyObject*) {
  const Py_ssize_t count = function_modes ? PyList_GET_SIZE(function_modes) : 0;
  if (count == 0) {
    PyErr_SetString(PyExc_RuntimeError,
                    "[TorchFunctionMode] no mode is active\nhint: leave modes in order");
    return nullptr;
  }
  auto mode = share(PyList_GET_ITEM(function_modes, count - 1));
  if (PyList_SetSlice(function_modes, count - 1, count, nullptr) < 0) mode = {};
  set_interceptor(kFunctionModes, count > 1 && (interceptors & kFunctionModes));
  return mode.release();
}

PyObject* get_function_modes(PyObject*, PyObject*) {
  return function_modes ? PyList_AsTuple(function_modes) : PyTuple_New(0);
}

PyObject* set_function_modes_enabled(PyObject*, PyObject* value) {
  const int wanted = PyObject_IsTrue(value);
  if (wanted < 0) return nullptr;
  PyObject* before = PyBool_FromLong((interceptors & kFunctionModes) != 0);
  set_interceptor(kFunctionModes, wanted && function_modes && PyList_GET_SIZE(function_modes) > 0);
  return before;
}

PyObject* set_dispatch_modes_enabled(PyObject*, PyObject* value) {
  const int wanted = PyObject_IsTrue(value);
  if (wanted < 0) return nullptr;
  PyObject* before = PyBool_FromLong((interceptors & kDispatchModes) != 0);
  set_interceptor(kDispatchModes, wanted);
  return before;
}

PyObject* find_torch_function(PyObject*, PyObject* values) {
  if (interceptors & kFunctionModes) Py_RETURN_TRUE;
  const auto fast =
      steal(PySequence_Fast(values, "has_torch_function takes an iterable of arguments"));
  if (!fast) return nullptr;
  return PyBool_FromLong(
      any_public_override(PySequence_Fast_ITEMS(fast.get()), PySequence_Fast_GET_SIZE(fast.get())));
}

// handle_torch_function(function, relevant, args, kwargs)
PyObject* handle_torch_function(PyObject*, PyObject* given) {
  PyObject *func, *relevant, *args, *kwargs;
  if (!PyArg_ParseTuple(given, "OOO!O!", &func, &relevant, &PyTuple_Type, &args, &PyDict_Type,
                        &kwargs)) {
    return nullptr;
  }
  const auto fast = steal(PySequence_Fast(relevant, "the relevant arguments are an iterable"));
  if (!fast) return nullptr;
  Overriders overriders(false);
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast.get()); ++i) {
    overriders.add(PySequence_Fast_GET_ITEM(fast.get(), i), false);
  }
  return ask_all(overriders, func, args, kwargs);
}

PyMethodDef methods[] = {
    {"_disabled_torch_function",
     reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(disabled_torch_function)), METH_FASTCALL,
     "__torch_function__ of types whose tensors are plain tensors to every op."},
    {"set_torch_function_enabled", set_torch_function_enabled, METH_O,
     "Turns __torch_function__ of types on or off in this thread; returns what it was."},
    {"set_function_mode", set_function_mode, METH_O,
     "Callable(op, types, args, kwargs) that sees every op call of this thread below the modes, "
     "or None; returns the one before. It is off while it runs."},
    {"push_function_mode", push_function_mode, METH_O,
     "Makes an object with __torch_function__ the newest mode of this thread."},
    {"pop_function_mode", pop_function_mode, METH_NOARGS, "Takes the newest mode off the stack."},
    {"function_modes", get_function_modes, METH_NOARGS, "The modes of this thread, oldest first."},
    {"set_function_modes_enabled", set_function_modes_enabled, METH_O,
     "Turns the modes of this thread on or off; returns what it was."},
    {"set_dispatch_modes_enabled", set_dispatch_modes_enabled, METH_O,
     "Whether op calls of this thread go to the dispatch modes; returns what it was."},
    {"has_torch_function", find_torch_function, METH_O,
     "Whether a mode is active, or some of the values has a __torch_function__ of its own."},
    {"handle_torch_function", handle_torch_function, METH_VARARGS,
     "handle_torch_function(function, relevant, args, kwargs): what mode and types say."},
    {"add_attribute", add_computed_attribute, METH_VARARGS,
     "add_attribute(name, read, write | None, doc): Tensor's attribute that functions compute."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool any_public_override(PyObject* const* args, Py_ssize_t count, bool nested) {
  if (torch_function_disabled) return false;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* object = args[i];
    if (is_exact_tensor(object)) continue;
    if (nested && (PyTuple_CheckExact(object) || PyList_CheckExact(object))) {
      if (any_public_override(PySequence_Fast_ITEMS(object), PySequence_Fast_GET_SIZE(object))) {
        return true;
      }
    } else if (override_of(object) == Override::Public) {
      return true;
    }
  }
  return false;
}

PyObject* pack_positional(PyObject* const* args, Py_ssize_t count) {
  return build_tuple(static_cast<size_t>(count), [args](size_t i) { return Py_NewRef(args[i]); });
}

PyObject* pack_keywords(PyObject* const* values, PyObject* kwnames) {
  auto dict = steal(PyDict_New());
  for (Py_ssize_t k = 0; dict && kwnames && k < PyTuple_GET_SIZE(kwnames); ++k) {
    if (PyDict_SetItem(dict.get(), PyTuple_GET_ITEM(kwnames, k), values[k]) < 0) return nullptr;
  }
  return dict.release();
}

PyObject* keyword_names(PyObject* kwargs) {
  const auto keys = steal(PyDict_Keys(kwargs));
  return keys ? PyList_AsTuple(keys.get()) : nullptr;
}

PyObject* call_override(PyObject* func, PyObject* const* args, Py_ssize_t count,
                        PyObject* kwnames) {
  Overriders overriders(Py_TYPE(func) == OpType);
  const Py_ssize_t all = count + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
  for (Py_ssize_t i = 0; i < all; ++i) overriders.add(args[i]);
  const auto positional = steal(pack_positional(args, count));
  const auto keywords = steal(pack_keywords(args + count, kwnames));
  if (!positional || !keywords) return nullptr;
  return ask_all(overriders, func, positional.get(), keywords.get());
}

PyObject* call_dispatch(PyObject* func, PyObject* const* args, Py_ssize_t count,
                        PyObject* kwnames) {
  const auto positional = steal(pack_positional(args, count));
  const auto keywords = steal(pack_keywords(args + count, kwnames));
  return call_helper("flambeau.utils._python_dispatch", "_call", func, positional, keywords);
}

bool init_op_override(PyObject* module) { return PyModule_AddFunctions(module, methods) == 0; }

}  // namespace fb
