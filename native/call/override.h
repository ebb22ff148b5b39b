// Who may take over a call: what an op, a function in Python and an attribute of Tensor ask.
#pragma once
#include "core.h"

namespace fb {

// A thread's interceptors, one byte: an op call reads it once, and is ordinary where it is 0.
enum Interceptor : uint8_t {
  kWatcher = 1,        // a callable of ours that sees ops (`vmap` looks for draws)
  kFunctionModes = 2,  // TorchFunctionMode
  kDispatchModes = 4,  // TorchDispatchMode
  kAutocast = 8,       // operands are cast by the operator's rule
};
extern constinit FB_THREAD_LOCAL uint8_t interceptors;
extern constinit FB_THREAD_LOCAL bool torch_function_disabled;

// How a type takes over. Types of ours (`_operators_only`: samples of `vmap`, sparse tensors) do so
// for ops alone, and also where users turned `__torch_function__` off.
enum class Override : uint8_t { None, Public, Internal };
Override override_of(PyObject* object);
inline bool overrides_op(Override kind) {
  return kind == Override::Internal || (kind == Override::Public && !torch_function_disabled);
}
// Whether tensors of its type answer below gradients: `__torch_dispatch__`.
bool dispatches(PyObject* object);
// Whether some value (or element of a list or tuple) is of a type that users wrote to take over.
bool any_public_override(PyObject* const* args, Py_ssize_t count, bool nested = false);
// The engine's own calls: `__torch_function__` is about what users call.
class BelowFunctions {
 public:
  BelowFunctions() : disabled_(torch_function_disabled), interceptors_(interceptors) {
    torch_function_disabled = true;
    interceptors = static_cast<uint8_t>(interceptors & ~(kFunctionModes | kAutocast));
  }
  ~BelowFunctions() {
    torch_function_disabled = disabled_;
    interceptors = interceptors_;
  }
  BelowFunctions(const BelowFunctions&) = delete;
  BelowFunctions& operator=(const BelowFunctions&) = delete;

 private:
  bool disabled_;
  uint8_t interceptors_;
};
// What an attribute or a method of a tensor asks first.
bool override_attribute(PyObject* self);
inline bool asks_override(PyObject* self) {
  if (is_exact_tensor(self) && !(interceptors & kFunctionModes)) [[likely]] {
    return false;
  }
  return override_attribute(self);
}
// Arguments as a tuple and, of those after them, a dict; new references.
PyObject* pack_positional(PyObject* const* args, Py_ssize_t count);
PyObject* pack_keywords(PyObject* const* values, PyObject* kwnames);
PyObject* keyword_names(PyObject* kwargs);  // of a dict that is not empty; a new tuple
PyObject* call_override(PyObject* func, PyObject* const* args, Py_ssize_t count, PyObject* kwnames);

// attribute_override.cpp: methods and attributes of Tensor, each behind that question
bool add_methods(PyMethodDef* methods);
bool add_getset(PyGetSetDef* getset);
PyObject* add_computed_attribute(PyObject*, PyObject* args);  // a function of the module
// A slot of the type: calls what modes and types say to Tensor's `name`. New reference.
PyObject* override_slot(const char* name, PyObject* const* args, Py_ssize_t count);

}  // namespace fb
