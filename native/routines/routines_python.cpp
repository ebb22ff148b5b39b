// The routine `python`: a launch that is a Python function, for operators that users define. The
// function sees memory as buffers and takes nothing with it; what it raises, the plan's run raises.
#include "routines/routines_python.h"

#include "call/op_internal.h"

namespace fb {
namespace {

PyObject* callback = nullptr;
// What the function raised in this thread, until its plan raises it.
constinit FB_THREAD_LOCAL PyObject* raised[3] = {nullptr, nullptr, nullptr};

PyObject* views_of(const RoutineContext& c, int64_t count) {
  PyObject* views = PyTuple_New(count);
  for (int64_t i = 0; views && i < count; ++i) {
    static char nothing[1];
    const int64_t bytes = c.n[2 + i];
    char* memory = bytes ? c.p[i] : nothing;
    PyObject* view = PyMemoryView_FromMemory(memory, bytes, PyBUF_WRITE);
    if (view)
      PyTuple_SET_ITEM(views, i, view);
    else
      Py_CLEAR(views);
  }
  return views;
}

const char* call_python_routine(const RoutineContext& c) {
  const PyGILState_STATE state = PyGILState_Ensure();
  PyObject* views = views_of(c, c.n[1]);
  PyObject* result = nullptr;
  if (views && callback)
    result = PyObject_CallFunction(callback, "LO", static_cast<long long>(c.n[0]), views);
  else if (views)
    PyErr_SetString(PyExc_RuntimeError, "[python] no function was set\nhint: set_python_routine");
  Py_XDECREF(views);
  const bool fine = result != nullptr;
  Py_XDECREF(result);
  if (!fine) {
    for (PyObject*& part : raised) Py_CLEAR(part);
    PyErr_Fetch(&raised[0], &raised[1], &raised[2]);
  }
  PyGILState_Release(state);
  return fine ? nullptr : kRaisedInPython;
}

}  // namespace

const char* const kRaisedInPython = "raised in Python";

void raise_from_python() {
  PyErr_Restore(raised[0], raised[1], raised[2]);
  raised[0] = raised[1] = raised[2] = nullptr;
}

PyObject* set_python_routine(PyObject*, PyObject* function) {
  Py_XSETREF(callback, Py_NewRef(function));
  Py_RETURN_NONE;
}

void add_python_routine(RoutineList* list) { list->push_back({"python", call_python_routine}); }

}  // namespace fb
