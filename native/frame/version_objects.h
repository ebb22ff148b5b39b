// What types and objects of the versions that are explained have in common.
#pragma once
#include "frame/version.h"
#include "ref.h"

namespace fb {

PyObject* type_lookup(PyTypeObject* type, PyObject* name) { return _PyType_Lookup(type, name); }

PyObject** dict_slot(PyObject* object) {
  PyObject** slot = _PyObject_GetDictPtr(object);
  if (slot && !*slot) {
    if (!steal(PyObject_GenericGetDict(object, nullptr))) PyErr_Clear();
  }
  return slot && *slot ? slot : nullptr;
}

}  // namespace fb
