// What guards read of CPython's own structures: one file per version (version_311.cpp).
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <cstdint>

#if PY_VERSION_HEX < 0x030c0000
#define FB_FRAMES_311
#elif PY_VERSION_HEX < 0x030f0000 && !defined(Py_GIL_DISABLED)
#define FB_FRAMES_312  // to 3.14
#endif

#pragma GCC visibility push(hidden)
namespace fb {

#if defined(FB_FRAMES_311) || defined(FB_FRAMES_312)
constexpr bool kFramesExplained = true;
#else
constexpr bool kFramesExplained = false;  // every call of a compiled function is recorded
#endif

// Where a number of a dict is that every change of the dict changes; null + exception. It may be
// read while the caller owns the dict, and until `dict_unwatch`, which each call needs.
const uint64_t* dict_watch(PyObject* dict);
void dict_unwatch(const uint64_t* version);
// Whether a dict may change, until it is changed as a dict, and its number stay the same.
bool dict_silent(PyObject* dict);
// A number that changes with a type's attributes and those of its bases; 0: it has none now.
uint32_t type_version(PyTypeObject* type);
// What a type and its bases have under a name; borrowed, or null without exception.
PyObject* type_lookup(PyTypeObject* type, PyObject* name);
// Where an object holds its `__dict__`; null: it has none. The dict is there afterwards.
PyObject** dict_slot(PyObject* object);
bool python_traced();  // a tracer, profiler or monitor sees what this thread runs

}  // namespace fb
#pragma GCC visibility pop
