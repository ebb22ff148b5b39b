// `__torch_function__`: types and modes that take over ops. PyTorch's protocol: subclasses before
// their bases, else from left to right, until one does not return NotImplemented.
#include "op_internal.h"

namespace fb {

constinit FB_THREAD_LOCAL bool torch_function_disabled = false;
constinit FB_THREAD_LOCAL PyObject* function_mode = nullptr;

namespace {

// Objects whose type overrides, one per type, in the order they are asked.
class Overriders {
 public:
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
    if (!has_torch_function(object)) return;
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

PyObject* ask_mode(PyObject* func, PyObject* types, PyObject* args, PyObject* kwargs) {
  PyObject* mode = function_mode;  // off while it runs: ops inside it are ordinary
  function_mode = nullptr;
  PyObject* result = PyObject_CallFunctionObjArgs(mode, func, types, args, kwargs, nullptr);
  PyObject* changed = function_mode;  // the mode may have set another one
  function_mode = mode;
  Py_XDECREF(changed);
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
  PyObject* before = function_mode ? function_mode : Py_NewRef(Py_None);
  function_mode = value == Py_None ? nullptr : Py_NewRef(value);
  return before;  // the reference this thread held
}

PyMethodDef methods[] = {
    {"_disabled_torch_function",
     reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(disabled_torch_function)), METH_FASTCALL,
     "__torch_function__ of types whose tensors are plain tensors to every op."},
    {"set_torch_function_enabled", set_torch_function_enabled, METH_O,
     "Turns __torch_function__ of types on or off in this thread; returns what it was."},
    {"set_function_mode", set_function_mode, METH_O,
     "Callable(op, types, args, kwargs) that takes over every op call of this thread, or None; "
     "returns the one before. It is off while it runs."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

PyObject* call_override(Op* op, PyObject* const* args, Py_ssize_t count, PyObject* kwnames) {
  Overriders overriders;
  const Py_ssize_t all = count + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
  if (!torch_function_disabled) {
    for (Py_ssize_t i = 0; i < all; ++i) overriders.add(args[i]);
  }
  PyObject* func = reinterpret_cast<PyObject*>(op);
  PyObject* types = overriders.types();
  PyObject* positional = pack_positional(args, count);
  PyObject* keywords = pack_keywords(args + count, kwnames);
  PyObject* result = nullptr;
  if (types && positional && keywords) {
    result =
        function_mode ? ask_mode(func, types, positional, keywords) : Py_NewRef(Py_NotImplemented);
    if (result == Py_NotImplemented) {
      Py_DECREF(result);
      result = ask_objects(overriders, func, types, positional, keywords);
    }
    if (result == Py_NotImplemented) {
      Py_CLEAR(result);
      PyErr_Format(PyExc_TypeError,
                   "[%s] no implementation for %R: every __torch_function__ returned "
                   "NotImplemented\nhint: handle the op there, or call super().__torch_function__",
                   op->text.c_str(), types);
    }
  }
  Py_XDECREF(types);
  Py_XDECREF(positional);
  Py_XDECREF(keywords);
  return result;
}

bool init_op_override(PyObject* module) { return PyModule_AddFunctions(module, methods) == 0; }

}  // namespace fb
