// CPython 3.12 to 3.14: dicts call a watcher before each change, and types have version tags, of
// which a class gets 1,000 from 3.13 on.
#include <unordered_map>

#include "frame/version.h"
#include "ref.h"

#ifdef FB_FRAMES_312
#include "frame/version_objects.h"

namespace fb {

namespace {

struct Watched {
  uint64_t changes;  // first: guards have its address
  int64_t users;
  PyObject* dict;  // null: it is gone, before its guards (a collection of garbage clears both)
};

// Never destroyed: a thread may change dicts until the process ends.
std::unordered_map<PyObject*, Watched*>& watched_dicts() {
  static auto* dicts = new std::unordered_map<PyObject*, Watched*>();
  return *dicts;
}

int count_change(PyDict_WatchEvent event, PyObject* dict, PyObject*, PyObject*) {
  const auto entry = watched_dicts().find(dict);
  if (entry == watched_dicts().end()) return 0;
  Watched* watched = entry->second;
  ++watched->changes;
  if (event == PyDict_EVENT_DEALLOCATED) {
    watched->dict = nullptr;
    watched_dicts().erase(entry);
  }
  return 0;
}

int watcher() {  // -1 + exception: all of the interpreter's watchers are taken
  static int id = -1;
  if (id < 0) id = PyDict_AddWatcher(count_change);
  return id;
}

// Whether the watcher is called for an attribute of an object that has a `__dict__`, while the
// values are stored in the object. CPython 3.13.0 does not call it.
bool attributes_are_watched() {
  const auto type = steal(PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyType_Type), "s(){}",
                                                "WatchedAttributes"));
  const auto object = steal(type ? PyObject_CallNoArgs(type.get()) : nullptr);
  const auto dict = steal(object ? PyObject_GenericGetDict(object.get(), nullptr) : nullptr);
  const uint64_t* version = dict ? dict_watch(dict.get()) : nullptr;
  const bool watched =
      version && PyObject_SetAttrString(object.get(), "attribute", Py_None) == 0 && *version != 0;
  if (version) dict_unwatch(version);
  PyErr_Clear();
  return watched;
}

}  // namespace

bool dict_silent(PyObject* dict) {
  static const bool attributes_watched = attributes_are_watched();
  return !attributes_watched && reinterpret_cast<PyDictObject*>(dict)->ma_values != nullptr;
}

const uint64_t* dict_watch(PyObject* dict) {
  Watched*& watched = watched_dicts()[dict];
  if (!watched) {
    if (watcher() < 0 || PyDict_Watch(watcher(), dict) < 0) {
      watched_dicts().erase(dict);
      return nullptr;
    }
    watched = new Watched{0, 0, dict};
  }
  ++watched->users;
  return &watched->changes;
}

void dict_unwatch(const uint64_t* version) {
  auto* watched = reinterpret_cast<Watched*>(const_cast<uint64_t*>(version));
  if (--watched->users > 0) return;
  if (watched->dict) {
    watched_dicts().erase(watched->dict);
    PyObject* error = PyErr_GetRaisedException();
    if (PyDict_Unwatch(watcher(), watched->dict) < 0) PyErr_Clear();  // the interpreter ends
    PyErr_SetRaisedException(error);
  }
  delete watched;
}

uint32_t type_version(PyTypeObject* type) {
  return PyUnstable_Type_AssignVersionTag(type) ? type->tp_version_tag : 0;
}

namespace {

constexpr long kTools = 6;  // of `sys.monitoring`, that programs may register

// `sys.monitoring.get_tool`, called as the C function that it is: every call of a compiled function
// asks for all tools. Events of one function alone change no number that is public.
struct GetTool {
  PyCFunction call = nullptr;  // null: it is no such function
  PyObject* self = nullptr;
  PyObject* ids[kTools] = {};

  GetTool() {
    PyObject* module = PySys_GetObject("monitoring");
    PyObject* function = module ? PyObject_GetAttrString(module, "get_tool") : nullptr;  // for good
    if (!function || !PyCFunction_CheckExact(function)) return;
    for (long id = 0; id < kTools; ++id) ids[id] = PyLong_FromLong(id);
    self = PyCFunction_GET_SELF(function);
    if (PyCFunction_GET_FLAGS(function) == METH_O) call = PyCFunction_GET_FUNCTION(function);
  }
};

// Whether a tool of `sys.monitoring` is registered, or may be.
bool monitored() {
  static const GetTool tool;
  bool registered = !tool.call;
  for (long id = 0; id < kTools && !registered; ++id) {
    registered = steal(tool.call(tool.self, tool.ids[id])).get() != Py_None;
  }
  if (registered) PyErr_Clear();
  return registered;
}

}  // namespace

bool python_traced() {
  const PyThreadState* thread = PyThreadState_Get();
  return thread->c_tracefunc || thread->c_profilefunc || monitored();
}

}  // namespace fb
#endif
