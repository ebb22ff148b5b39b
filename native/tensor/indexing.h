// Reading of subscripts and in-place changes of geometry, for the operators written in Python.
#pragma once
#include "core.h"

namespace fb {

bool init_indexing(PyObject* module);

}  // namespace fb
