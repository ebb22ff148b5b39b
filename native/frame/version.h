// What guards read of CPython's own structures: one file per version (version_311.cpp).
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <cstdint>

#pragma GCC visibility push(hidden)
namespace fb {

#if PY_VERSION_HEX >= 0x030b0000 && PY_VERSION_HEX < 0x030c0000
constexpr bool kFramesExplained = true;
#else
constexpr bool kFramesExplained = false;  // every call of a compiled function is recorded
#endif

// A number that no other state of any dict has.
uint64_t dict_version(PyObject* dict);
// A number that changes with a type's attributes and those of its bases; 0: it has none now.
uint32_t type_version(PyTypeObject* type);
// What a type and its bases have under a name; borrowed, or null without exception.
PyObject* type_lookup(PyTypeObject* type, PyObject* name);
// Where an object holds its `__dict__`; null: it has none. The dict is there afterwards.
PyObject** dict_slot(PyObject* object);
bool python_traced();  // sys.settrace or sys.setprofile sees what this thread runs

}  // namespace fb
#pragma GCC visibility pop
