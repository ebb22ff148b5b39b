// Calls whose arguments stand in a former order: flambeau/core/former_order.py knows them.
#include "call/op_internal.h"

namespace fb {

namespace {

// The arguments in today's order (a new pair), None, or null with an exception.
PyObject* reordered(const Op* op, PyObject* const* args, Py_ssize_t count, PyObject* kwnames) {
  PyObject* module = PyImport_ImportModule("flambeau.core.former_order");
  PyObject* positional = PyTuple_New(count);
  PyObject* named = PyDict_New();
  bool fine = module && positional && named;
  for (Py_ssize_t i = 0; fine && i < count; ++i)
    PyTuple_SET_ITEM(positional, i, Py_NewRef(args[i]));
  for (Py_ssize_t i = 0; fine && kwnames && i < PyTuple_GET_SIZE(kwnames); ++i)
    fine = PyDict_SetItem(named, PyTuple_GET_ITEM(kwnames, i), args[count + i]) == 0;
  PyObject* result =
      fine ? PyObject_CallMethod(module, "reordered", "OOO", op->name, positional, named) : nullptr;
  Py_XDECREF(module);
  Py_XDECREF(positional);
  Py_XDECREF(named);
  return result;
}

bool has_former_order(const std::string& name) {
  for (const char* each : {"add", "sub", "addcmul", "addcdiv", "addmm", "addmv", "addr", "addbmm",
                           "baddbmm", "sspaddmm"}) {
    const size_t size = std::strlen(each);
    if (name.compare(0, size, each) == 0 && (name.size() == size || name.substr(size) == "_"))
      return true;
  }
  return false;
}

}  // namespace

bool call_former(Op* op, PyObject* const* args, Py_ssize_t count, PyObject* kwnames, bool binds,
                 PyObject** result) {
  *result = nullptr;
  if (!has_former_order(op->text)) return false;
  PyObject* call = reordered(op, args, count, kwnames);
  if (!call) return true;
  const bool fits = call != Py_None;
  auto* self = reinterpret_cast<PyObject*>(op);
  if (fits && binds)
    *result = PyObject_CallMethod(self, "bind", "OO", PyTuple_GET_ITEM(call, 0),
                                  PyTuple_GET_ITEM(call, 1));
  else if (fits)
    *result = PyObject_Call(self, PyTuple_GET_ITEM(call, 0), PyTuple_GET_ITEM(call, 1));
  Py_DECREF(call);
  return fits;
}

}  // namespace fb
