// Versions of CPython whose frames are not explained yet: nothing has a version, so that no guard
// is ever built.
#include "frame/version.h"

namespace fb {

#if !defined(FB_FRAMES_311) && !defined(FB_FRAMES_312)

const uint64_t* dict_watch(PyObject*) {
  PyErr_SetString(PyExc_RuntimeError, "dicts of this Python have no version");
  return nullptr;
}
void dict_unwatch(const uint64_t*) {}
bool dict_silent(PyObject*) { return true; }
uint32_t type_version(PyTypeObject*) { return 0; }
PyObject* type_lookup(PyTypeObject*, PyObject*) { return nullptr; }
PyObject** dict_slot(PyObject*) { return nullptr; }
bool python_traced() { return true; }

#endif

}  // namespace fb
