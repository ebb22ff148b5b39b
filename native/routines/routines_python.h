// Launches that are Python functions: how what they raise gets out of a plan's run.
#pragma once
#include "routines/routines_internal.h"

namespace fb {

PyObject* set_python_routine(PyObject* module, PyObject* function);
// The error text of such a launch, and what raises its exception.
extern const char* const kRaisedInPython;
void raise_from_python();
const char* raised_in_python();  // the present exception, as such an error text

}  // namespace fb
