// Versions of CPython whose frames are not explained yet: nothing has a version, so that no guard
// is ever built.
#include "frame/version.h"

namespace fb {

#if !(PY_VERSION_HEX >= 0x030b0000 && PY_VERSION_HEX < 0x030c0000)

uint64_t dict_version(PyObject*) { return 0; }
uint32_t type_version(PyTypeObject*) { return 0; }
PyObject* type_lookup(PyTypeObject*, PyObject*) { return nullptr; }
PyObject** dict_slot(PyObject*) { return nullptr; }
bool python_traced() { return true; }

#endif

}  // namespace fb
