// Descriptions of calls and recorded streams for Python: struct sequences, whose fields both sides
// read by name (docs/design.md § 7 and § 10).
#pragma once
#include <initializer_list>

#include "core.h"

namespace fb {

enum class Description : uint8_t {
  Tensor,
  Scalar,
  Integer,
  Generator,
  External,
  Record,
  Live,
  Stream,
  Held,
  Backward,
};
// A new struct sequence of these fields, which are stolen; null + exception where one is null.
PyObject* described(Description kind, std::initializer_list<PyObject*> fields);
PyObject* describe_tensor(const Tensor* t, bool requires_grad);

// How the dimensions of a tensor follow one another in memory. Dense: some order of them makes it
// contiguous (sizes of 1 may have any stride).
struct LayoutClass {
  bool dense = false;
  int order[kMaxDims];  // dimensions, outermost first, when dense
};
LayoutClass classify(int ndim, const int64_t* sizes, const int64_t* strides);

bool init_describe(PyObject* module);

}  // namespace fb
