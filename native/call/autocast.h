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

// The state of a thread besides the interceptor.
struct AutocastMode {
  DType lower = DType::BF16;  // of operators of lower precision
  bool caches = true;         // casts of parameters are reused within a region
  int32_t nesting = 0;        // regions that were entered

  bool operator==(const AutocastMode& other) const {
    return lower == other.lower && caches == other.caches && nesting == other.nesting;
  }
};
extern constinit FB_THREAD_LOCAL AutocastMode autocast_mode;

inline bool autocasts(const Autocast& autocast) {
  return (interceptors & kAutocast) && autocast.rule != CastRule::None;
}
// The call with operands that are cast by the rule; autocast is off while it runs.
PyObject* call_autocast(const Autocast& autocast, PyObject* callable, PyObject* const* args,
                        Py_ssize_t count, PyObject* kwnames);
bool init_autocast(PyObject* module);

// Cached casts of parameters, to any dtype, with a history or without. The tensor may be any; a
// borrowed reference, null: there is none of what it holds now.
Tensor* autocast_cached(const Tensor* t);
void autocast_store(Tensor* t, Tensor* cast);
bool autocast_caches_any();
// A dry run (native/frame) begins and ends: it leaves the state of the thread as it was.
void autocast_learn();
void autocast_unlearn();

}  // namespace fb
