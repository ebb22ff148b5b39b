// Calls whose arguments stand in a former order: flambeau/core/former_order.py knows them.
#include "call/op_internal.h"

namespace fb {

namespace {

// The arguments in today's order (a new pair), None, or null with an exception.
PyObject* reordered(const Op* op, PyObject* const* args, Py_ssize_t count, PyObject* kwnames) {
  const auto positional = steal(pack_positional(args, count));
  const auto named = steal(pack_keywords(args + count, kwnames));
  return call_helper("flambeau.core.former_order", "reordered", op->name, positional, named);
}

bool has_former_order(const std::string& name) {
  for (const char* each : {"add", "sub", "addcmul", "addcdiv", "addmm", "addmv", "addr", "addbmm",
                           "baddbmm", "sspaddmm"}) {
    const size_t size = std::strlen(each);
    if (name.compare(0, size, each) == 0 && (name.size() == size || name.substr(size) == "_")) {
      return true;
    }
  }
  return false;
}

}  // namespace

bool call_former(Op* op, PyObject* const* args, Py_ssize_t count, PyObject* kwnames, bool binds,
                 PyObject** result) {
  *result = nullptr;
  if (!has_former_order(op->text)) return false;
  const auto call = steal(reordered(op, args, count, kwnames));
  if (!call) return true;
  if (call.get() == Py_None) return false;
  auto* self = reinterpret_cast<PyObject*>(op);
  PyObject* positional = PyTuple_GET_ITEM(call.get(), 0);
  PyObject* named = PyTuple_GET_ITEM(call.get(), 1);
  *result = binds ? PyObject_CallMethod(self, "bind", "OO", positional, named)
                  : PyObject_Call(self, positional, named);
  return true;
}

}  // namespace fb
