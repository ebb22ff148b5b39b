// The routine `python`: a launch that is a Python function, for operators that users define. The
// function sees memory as buffers and takes nothing with it; what it raises, the plan's run raises.
#include "routines/routines_python.h"

#include "call/op_internal.h"

namespace fb {
namespace {

PyObject* callback = nullptr;
// The function's exception in this thread, until its plan raises it.
constinit FB_THREAD_LOCAL PyObject* raised[3] = {nullptr, nullptr, nullptr};

PyObject* views_of(const RoutineContext& c, int64_t count) {
  return build_tuple(static_cast<size_t>(count), [&c](size_t i) {
    static char nothing[1];
    const int64_t bytes = c.n[2 + i];
    return PyMemoryView_FromMemory(bytes ? c.p[i] : nothing, bytes, PyBUF_WRITE);
  });
}

bool call_with_views(const RoutineContext& c) {
  if (!callback) {
    PyErr_SetString(PyExc_RuntimeError, "[python] no function was set\nhint: set_python_routine");
    return false;
  }
  const auto number = steal(PyLong_FromLongLong(c.n[0]));
  return static_cast<bool>(steal(call_object(callback, number, steal(views_of(c, c.n[1])))));
}
const char* call_python_routine(const RoutineContext& c) {
  const PyGILState_STATE state = PyGILState_Ensure();
  const char* error = call_with_views(c) ? nullptr : raised_in_python();
  PyGILState_Release(state);
  return error;
}

const RoutineRegistration registration{
    [](RoutineList* list) { list->push_back({"python", call_python_routine}); }};

}  // namespace

const char* const kRaisedInPython = "raised in Python";

const char* raised_in_python() {
  for (PyObject*& part : raised) drop(part);
  PyErr_Fetch(&raised[0], &raised[1], &raised[2]);
  return kRaisedInPython;
}

void raise_from_python() {
  PyErr_Restore(raised[0], raised[1], raised[2]);
  raised[0] = raised[1] = raised[2] = nullptr;
}

PyObject* set_python_routine(PyObject*, PyObject* function) {
  Py_XSETREF(callback, Py_NewRef(function));
  Py_RETURN_NONE;
}

}  // namespace fb
