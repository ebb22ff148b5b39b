// CPython 3.11: dicts and types have version tags.
#include "frame/version.h"
#include "ref.h"

#ifdef FB_FRAMES_311
#include "frame/version_objects.h"

namespace fb {

const uint64_t* dict_watch(PyObject* dict) {
  return &reinterpret_cast<PyDictObject*>(dict)->ma_version_tag;
}
void dict_unwatch(const uint64_t*) {}
bool dict_silent(PyObject*) { return false; }

uint32_t type_version(PyTypeObject* type) {
  return PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG) ? type->tp_version_tag : 0;
}

bool python_traced() { return PyThreadState_Get()->cframe->use_tracing != 0; }

}  // namespace fb
#endif
