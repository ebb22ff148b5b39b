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
  ~Overriders() {
    for (PyObject* object : objects_) Py_DECREF(object);
  }
  void add(PyObject* object, bool nested = true) {
    if (is_exact_tensor(object)) return;
    if (nested && (PyTuple_Check(object) || PyList_Check(object))) {
      PyObject* fast = PySequence_Fast(object, "");
      for (Py_ssize_t i = 0; fast && i < PySequence_Fast_GET_SIZE(fast); ++i) {
        add(PySequence_Fast_GET_ITEM(fast, i), false);
      }
      Py_XDECREF(fast);
      return;
    }
    const Override kind = override_of(object);
    if (kind == Override::None || (kind == Override::Public && torch_function_disabled)) return;
    if (kind == Override::Internal && !operators_) return;
    PyTypeObject* type = Py_TYPE(object);
    size_t at = objects_.size();
    for (size_t i = 0; i < objects_.size(); ++i) {
      if (Py_TYPE(objects_[i]) == type) return;
      if (at == objects_.size() && PyType_IsSubtype(type, Py_TYPE(objects_[i]))) at = i;
    }
    objects_.insert(objects_.begin() + static_cast<std::ptrdiff_t>(at), Py_NewRef(object));
  }
  const std::vector<PyObject*>& objects() const { return objects_; }
  PyObject* types() const {
    PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(objects_.size()));
    for (size_t i = 0; tuple && i < objects_.size(); ++i) {
      PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(objects_[i]));
      PyTuple_SET_ITEM(tuple, static_cast<Py_ssize_t>(i), Py_NewRef(type));
    }
    return tuple;
  }

 private:
  bool operators_;
  std::vector<PyObject*> objects_;
};

PyObject* pack_positional(PyObject* const* args, Py_ssize_t count) {
  PyObject* tuple = PyTuple_New(count);
  for (Py_ssize_t i = 0; tuple && i < count; ++i) PyTuple_SET_ITEM(tuple, i, Py_NewRef(args[i]));
  return tuple;
}

PyObject* pack_keywords(PyObject* const* values, PyObject* kwnames) {
  PyObject* dict = PyDict_New();
  for (Py_ssize_t k = 0; dict && kwnames && k < PyTuple_GET_SIZE(kwnames); ++k) {
    if (PyDict_SetItem(dict, PyTuple_GET_ITEM(kwnames, k), values[k]) < 0) Py_CLEAR(dict);
  }
  return dict;
}

// The watcher is off while it runs: ops inside of it are ordinary.
PyObject* ask_watcher(PyObject* func, PyObject* types, PyObject* args, PyObject* kwargs) {
  PyObject* asked = watcher;
  watcher = nullptr;
  set_interceptor(kWatcher, false);
  PyObject* result = PyObject_CallFunctionObjArgs(asked, func, types, args, kwargs, nullptr);
  PyObject* changed = watcher;  // it may have set another one
  watcher = asked;
  set_interceptor(kWatcher, true);
  Py_XDECREF(changed);
  return result;
}

// A mode is off the stack while it runs: functions inside of it go to the mode below.
PyObject* ask_function_mode(PyObject* func, PyObject* types, PyObject* args, PyObject* kwargs) {
  const Py_ssize_t last = PyList_GET_SIZE(function_modes) - 1;
  PyObject* mode = Py_NewRef(PyList_GET_ITEM(function_modes, last));
  PyObject* result = nullptr;
  if (PyList_SetSlice(function_modes, last, last + 1, nullptr) == 0) {
    set_interceptor(kFunctionModes, last > 0);
    PyObject* handler = PyObject_GetAttrString(mode, "__torch_function__");
    if (handler) {
      result = PyObject_CallFunctionObjArgs(handler, func, types, args, kwargs, nullptr);
      Py_DECREF(handler);
    }
    if (PyList_Append(function_modes, mode) < 0) Py_CLEAR(result);
    set_interceptor(kFunctionModes, true);
  }
  Py_DECREF(mode);
  return result;
}

PyObject* ask_objects(const Overriders& overriders, PyObject* func, PyObject* types, PyObject* args,
                      PyObject* kwargs) {
  for (PyObject* object : overriders.objects()) {
    PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(object));
    PyObject* handler = PyObject_GetAttrString(type, "__torch_function__");
    if (!handler) return nullptr;
    PyObject* result = PyObject_CallFunctionObjArgs(handler, func, types, args, kwargs, nullptr);
    Py_DECREF(handler);
    if (result != Py_NotImplemented) return result;
    Py_DECREF(result);
  }
  return Py_NewRef(Py_NotImplemented);
}

void raise_unhandled(PyObject* func, bool mode, PyObject* types) {
  PyObject* name = PyObject_GetAttrString(func, "__name__");
  if (!name) PyErr_Clear();
  PyErr_Format(PyExc_TypeError,
               "[%S] Multiple dispatch failed: all __torch_function__ handlers returned "
               "NotImplemented%s, of the types %R\n"
               "hint: handle the function there, or call super().__torch_function__",
               name ? name : func, mode ? ", a mode's among them" : "", types);
  Py_XDECREF(name);
}

PyObject* ask_all(const Overriders& overriders, PyObject* func, PyObject* args, PyObject* kwargs) {
  PyObject* types = overriders.types();
  if (!types) return nullptr;
  PyObject* result = Py_NewRef(Py_NotImplemented);
  const bool mode = interceptors & kFunctionModes;
  if (mode) {
    Py_SETREF(result, ask_function_mode(func, types, args, kwargs));
  } else if ((interceptors & kWatcher) && Py_TYPE(func) == OpType) {
    Py_SETREF(result, ask_watcher(func, types, args, kwargs));
  }
  if (result == Py_NotImplemented) {
    Py_SETREF(result, ask_objects(overriders, func, types, args, kwargs));
  }
  if (result == Py_NotImplemented) {
    Py_CLEAR(result);
    raise_unhandled(func, mode, types);
  }
  Py_DECREF(types);
  return result;
}

PyObject* disabled_torch_function(PyObject*, PyObject* const* given, Py_ssize_t count) {
  if (count < 2 || count > 4) {
    PyErr_SetString(PyExc_TypeError, "expected (func, types, args=(), kwargs=None)");
    return nullptr;
  }
  PyObject* args = count > 2 ? Py_NewRef(given[2]) : PyTuple_New(0);
  PyObject* kwargs = count > 3 && given[3] != Py_None ? given[3] : nullptr;
  if (!args || !PyTuple_Check(args)) {
    Py_XDECREF(args);
    PyErr_SetString(PyExc_TypeError, "args must be a tuple");
    return nullptr;
  }
  const bool before = torch_function_disabled;
  torch_function_disabled = true;
  PyObject* result = PyObject_Call(given[0], args, kwargs);
  torch_function_disabled = before;
  Py_DECREF(args);
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
  PyObject* mode = Py_NewRef(PyList_GET_ITEM(function_modes, count - 1));
  if (PyList_SetSlice(function_modes, count - 1, count, nullptr) < 0) Py_CLEAR(mode);
  set_interceptor(kFunctionModes, count > 1 && (interceptors & kFunctionModes));
  return mode;
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
  PyObject* fast = PySequence_Fast(values, "has_torch_function takes an iterable of arguments");
  if (!fast) return nullptr;
  const bool found =
      any_public_override(PySequence_Fast_ITEMS(fast), PySequence_Fast_GET_SIZE(fast));
  Py_DECREF(fast);
  return PyBool_FromLong(found);
}

// handle_torch_function(function, relevant, args, kwargs)
PyObject* handle_torch_function(PyObject*, PyObject* given) {
  PyObject *func, *relevant, *args, *kwargs;
  if (!PyArg_ParseTuple(given, "OOO!O!", &func, &relevant, &PyTuple_Type, &args, &PyDict_Type,
                        &kwargs))
    return nullptr;
  PyObject* fast = PySequence_Fast(relevant, "the relevant arguments are an iterable");
  if (!fast) return nullptr;
  Overriders overriders(false);
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast); ++i) {
    overriders.add(PySequence_Fast_GET_ITEM(fast, i), false);
  }
  Py_DECREF(fast);
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
      if (any_public_override(PySequence_Fast_ITEMS(object), PySequence_Fast_GET_SIZE(object)))
        return true;
    } else if (override_of(object) == Override::Public) {
      return true;
    }
  }
  return false;
}

PyObject* call_override(PyObject* func, PyObject* const* args, Py_ssize_t count,
                        PyObject* kwnames) {
  Overriders overriders(Py_TYPE(func) == OpType);
  const Py_ssize_t all = count + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
  for (Py_ssize_t i = 0; i < all; ++i) overriders.add(args[i]);
  PyObject* positional = pack_positional(args, count);
  PyObject* keywords = pack_keywords(args + count, kwnames);
  PyObject* result =
      positional && keywords ? ask_all(overriders, func, positional, keywords) : nullptr;
  Py_XDECREF(positional);
  Py_XDECREF(keywords);
  return result;
}

PyObject* call_dispatch(PyObject* func, PyObject* const* args, Py_ssize_t count,
                        PyObject* kwnames) {
  PyObject* module = PyImport_ImportModule("flambeau.utils._python_dispatch");
  PyObject* call = module ? PyObject_GetAttrString(module, "_call") : nullptr;
  PyObject* positional = pack_positional(args, count);
  PyObject* keywords = pack_keywords(args + count, kwnames);
  PyObject* result = call && positional && keywords
                         ? PyObject_CallFunctionObjArgs(call, func, positional, keywords, nullptr)
                         : nullptr;
  Py_XDECREF(module);
  Py_XDECREF(call);
  Py_XDECREF(positional);
  Py_XDECREF(keywords);
  return result;
}

bool init_op_override(PyObject* module) { return PyModule_AddFunctions(module, methods) == 0; }

}  // namespace fb
