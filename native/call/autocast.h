// Automatic mixed precision: what an operator does with its operands' dtypes under `autocast`.
#pragma once
#include "call/override.h"

namespace fb {

// Lower: operands are cast to the dtype of the region; Float32: lower ones are cast to float32;
// Promote: to the widest among them; Parts: a function made of operators stands for the operator.
enum class CastRule : uint8_t { None, Lower, Float32, Promote, Parts };

struct Autocast {
  CastRule rule;
  PyObject* parts;  // owned; the function, or null
  // From "lower", "float32", "promote", a function or None; false + exception.
  bool set(PyObject* value);
  PyObject* get() const;  // new reference
};

inline bool autocasts(const Autocast& autocast) {
  return (interceptors & kAutocast) && autocast.rule != CastRule::None;
}
// The call with operands that are cast by the rule; autocast is off while it runs.
PyObject* call_autocast(const Autocast& autocast, PyObject* callable, PyObject* const* args,
                        Py_ssize_t count, PyObject* kwnames);
bool init_autocast(PyObject* module);

}  // namespace fb
