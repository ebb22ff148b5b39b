// Temporary: lets the module link while other files of the core are being written. Every function
// here is weak, so a real definition wins; the file goes away when all are there.
#include "core.h"

#define FB_WEAK __attribute__((weak))
namespace fb {

FB_WEAK FB_THREAD_LOCAL Recorder* active_recorder = nullptr;
FB_WEAK bool record_flush(Recorder*, const char*) {
  PyErr_SetString(PyExc_NotImplementedError, "[flush] recording is not built in");
  return false;
}
FB_WEAK void record_tensor_dead(Tensor*) {}
FB_WEAK bool record_call(Instance*, const Call&, PyObject**) {
  PyErr_SetString(PyExc_NotImplementedError, "[record] recording is not built in");
  return false;
}
FB_WEAK Generator* generator_of(PyObject*) {
  PyErr_SetString(PyExc_NotImplementedError, "[random] generators are not built in");
  return nullptr;
}
FB_WEAK RoutineFunction find_routine(const char*) { return nullptr; }
FB_WEAK bool init_threads(PyObject*) { return true; }
FB_WEAK bool init_plan(PyObject*) { return true; }
FB_WEAK bool init_op(PyObject*) { return true; }
FB_WEAK bool init_routines(PyObject*) { return true; }
FB_WEAK bool init_random(PyObject*) { return true; }
FB_WEAK bool init_record(PyObject*) { return true; }

}  // namespace fb
