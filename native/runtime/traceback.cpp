// Tracebacks that show the user's own lines, not ours. `hide_internals` removes the package's own
// frames from the end of a traceback; `shield` wraps a Python function in a callable that does so.
#include "runtime/traceback.h"

#include <structmember.h>

#include <cstdlib>

#include "call/op_internal.h"
#include "tape/tape.h"

namespace fb {
namespace {

// Directory of the package with a slash at the end, borrowed; null (no exception) when unknown.
PyObject* package_directory() {
  static PyObject* directory = nullptr;
  if (directory) return directory;
  PyObject* modules = PyImport_GetModuleDict();  // borrowed
  PyObject* package = modules ? PyDict_GetItemString(modules, "flambeau") : nullptr;
  const auto file = steal(package ? PyObject_GetAttrString(package, "__file__") : nullptr);
  const char* text = file && PyUnicode_Check(file.get()) ? PyUnicode_AsUTF8(file.get()) : nullptr;
  const char* slash = text ? std::strrchr(text, '/') : nullptr;
  if (slash) directory = PyUnicode_FromStringAndSize(text, slash - text + 1);
  if (!directory) PyErr_Clear();
  return directory;
}

bool is_internal(PyObject* traceback, PyObject* directory) {
  auto* frame = reinterpret_cast<PyTracebackObject*>(traceback)->tb_frame;
  const auto code = steal(PyFrame_GetCode(frame));
  const Py_ssize_t match = PyUnicode_Tailmatch(code->co_filename, directory, 0, PY_SSIZE_T_MAX, -1);
  if (match < 0) PyErr_Clear();
  return match == 1;
}

// The traceback up to the last frame that is not ours, as a new reference; null when all are.
PyObject* without_tail(PyObject* traceback, PyObject* directory) {
  PyObject* last = nullptr;
  for (PyObject* at = traceback; at;
       at = reinterpret_cast<PyObject*>(reinterpret_cast<PyTracebackObject*>(at)->tb_next)) {
    if (!is_internal(at, directory)) last = at;
  }
  if (!last) return nullptr;
  PyObject_SetAttrString(last, "tb_next", Py_None);
  PyErr_Clear();
  return Py_NewRef(traceback);
}

// Whether the message has the project's form, "[op] ...": any other is a bug of ours to be seen.
bool is_of_the_form(PyObject* value) {
  const auto arguments = steal(value ? PyObject_GetAttrString(value, "args") : nullptr);
  const bool any =
      arguments && PyTuple_Check(arguments.get()) && PyTuple_GET_SIZE(arguments.get()) > 0;
  PyObject* first = any ? PyTuple_GET_ITEM(arguments.get(), 0) : nullptr;
  const char* message = first && PyUnicode_Check(first) ? PyUnicode_AsUTF8(first) : nullptr;
  PyErr_Clear();
  return message && message[0] == '[';
}

struct Shield {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* function;
  PyObject* direct;  // owned; what serves its simplest calls without Python; or null
  PyObject* weakrefs;
  OutOption out;     // where there is one, `out=` is served here: the results are copied there
  Overlap overlap;   // what arguments may share with `out=`
  bool direct_dim;   // calls of `direct` have `dim=`
  bool is_operator;  // an operator composed in Python: dispatch modes apply
  bool overridable;  // modes and types with `__torch_function__` apply first
  Autocast autocast;
};

// The call without its argument `out`, whose results are then copied there.
PyObject* call_with_out(const Shield* shield, PyObject* const* args, size_t flags, PyObject* names,
                        Py_ssize_t at) {
  const Py_ssize_t given = PyVectorcall_NARGS(flags), named = PyTuple_GET_SIZE(names);
  PyObject* out = args[given + at];
  StackVector<PyObject*, 16> values;
  if (!check_outs_shared(shield->overlap, args, given, out)) return nullptr;
  const auto others = steal(build_tuple(static_cast<size_t>(named - 1), [&](size_t i) {
    const auto to = static_cast<Py_ssize_t>(i);
    return Py_NewRef(PyTuple_GET_ITEM(names, to + (to >= at)));
  }));
  if (!others || !values.reserve(static_cast<size_t>(given + named))) return nullptr;
  for (Py_ssize_t i = 0; i < given + named; ++i) {
    if (i != given + at) values.push(args[i]);
  }
  auto result = steal(PyObject_Vectorcall(shield->function, values.data(),
                                          static_cast<size_t>(given), others.get()));
  if (!result || out == Py_None) return result.release();
  return copy_to_out(shield->out, result.get(), out);
}

// Passes calls with the tensor and `dim=`, or with the tensor alone, to the operator behind the
// function, whose result is the same. `inplace=False`, which the operator lacks, is dropped.
PyObject* call_direct(const Shield* shield, PyObject* const* args, PyObject* names, bool* served) {
  static PyObject* const dim = PyUnicode_InternFromString("dim");
  static PyObject* const inplace = PyUnicode_InternFromString("inplace");
  PyObject* name = names && PyTuple_GET_SIZE(names) == 1 ? PyTuple_GET_ITEM(names, 0) : nullptr;
  const bool alone = !names || (name == inplace && args[1] == Py_False);
  *served = shield->direct_dim ? name == dim && args[1] != Py_None : alone;
  if (!*served) return nullptr;
  return PyObject_Vectorcall(shield->direct, args, 1, shield->direct_dim ? names : nullptr);
}

// A body in Python failed on an argument that is no tensor: the schema's TypeError, if it has one.
void explain_arguments(PyObject* self, PyObject* const* args, Py_ssize_t given, PyObject* names) {
  PendingError error;
  const auto positional = steal(
      build_tuple(static_cast<size_t>(given), [args](size_t i) { return Py_NewRef(args[i]); }));
  const auto keywords = steal(PyDict_New());
  for (Py_ssize_t i = 0; keywords && names && i < PyTuple_GET_SIZE(names); ++i) {
    PyDict_SetItem(keywords.get(), PyTuple_GET_ITEM(names, i), args[given + i]);
  }
  const auto text =
      steal(call_helper("flambeau.core.install", "wrong_argument", self, positional, keywords));
  if (text && PyUnicode_Check(text.get())) {
    PyErr_SetObject(PyExc_TypeError, text.get());
  } else {
    error.restore();
  }
}

PyObject* shield_call(PyObject* self, PyObject* const* args, size_t flags, PyObject* names) {
  const auto* shield = reinterpret_cast<Shield*>(self);
  if (shield->overridable) {
    const Py_ssize_t given = PyVectorcall_NARGS(flags);
    const Py_ssize_t all = given + (names ? PyTuple_GET_SIZE(names) : 0);
    if ((interceptors & kFunctionModes) || any_public_override(args, all, true)) [[unlikely]] {
      return call_override(self, args, given, names);
    }
    if (autocasts(shield->autocast)) [[unlikely]] {
      return call_autocast(shield->autocast, self, args, given, names);
    }
    if (shield->is_operator && (interceptors & kDispatchModes)) [[unlikely]] {
      return call_dispatch(self, args, given, names);
    }
    if (shield->direct && given == 1) {
      bool served;
      PyObject* result = call_direct(shield, args, names, &served);
      if (served) return result;
    }
  }
  Py_ssize_t at = -1;
  const bool takes_out = shield->out.rule != OutRule::None;
  for (Py_ssize_t i = 0; takes_out && names && i < PyTuple_GET_SIZE(names); ++i) {
    if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, i), "out") == 0) at = i;
  }
  PyObject* result = at < 0 ? PyObject_Vectorcall(shield->function, args, flags, names)
                            : call_with_out(shield, args, flags, names, at);
  if (!result && shield->is_operator && PyErr_ExceptionMatches(PyExc_AttributeError)) [[unlikely]] {
    explain_arguments(self, args, PyVectorcall_NARGS(flags), names);
  }
  if (!result) hide_internals();
  return result;
}

PyObject* shield_create(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject* function;
  PyObject* direct = Py_None;
  PyObject* out = Py_False;  // as the option of a definition
  const char* overlap = "copy";
  int overridable = 0, direct_dim = 0, is_operator = 0;
  if (!PyArg_ParseTuple(args, "O|OpOpps", &function, &out, &overridable, &direct, &direct_dim,
                        &is_operator, &overlap)) {
    return nullptr;
  }
  auto* self = reinterpret_cast<Shield*>(type->tp_alloc(type, 0));
  if (!self) return nullptr;
  self->vectorcall = shield_call;
  self->function = Py_NewRef(function);
  self->out = PyUnicode_Check(out) ? out_option(PyUnicode_AsUTF8(out))
                                   : OutOption{out == Py_True ? OutRule::Cast : OutRule::None};
  self->overlap = overlap_rule(overlap);
  self->overridable = overridable != 0;
  self->direct_dim = direct_dim != 0;
  self->is_operator = is_operator != 0;
  self->direct = direct == Py_None ? nullptr : Py_NewRef(direct);
  return reinterpret_cast<PyObject*>(self);
}

int shield_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(reinterpret_cast<Shield*>(self)->function);
  Py_VISIT(reinterpret_cast<Shield*>(self)->direct);
  Py_VISIT(reinterpret_cast<Shield*>(self)->autocast.parts);
  return 0;
}

int shield_clear(PyObject* self) {
  auto* shield = reinterpret_cast<Shield*>(self);
  assign(shield->function, share(Py_None));  // stays callable: it raises, it does not crash
  drop(shield->direct);
  shield->autocast.rule = CastRule::None;
  drop(shield->autocast.parts);
  return 0;
}

void shield_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  auto* shield = reinterpret_cast<Shield*>(self);
  if (shield->weakrefs) PyObject_ClearWeakRefs(self);
  drop(shield->function);
  drop(shield->direct);
  drop(shield->autocast.parts);
  free_instance(self);
}

PyObject* shield_bind(PyObject* self, PyObject* object, PyObject*) {
  if (!object || object == Py_None) return Py_NewRef(self);
  return PyMethod_New(self, object);
}

PyObject* shield_attribute(PyObject* self, void* name) {
  return PyObject_GetAttrString(reinterpret_cast<Shield*>(self)->function,
                                static_cast<const char*>(name));
}

PyObject* shield_getattr(PyObject* self, PyObject* name) {
  PyObject* found = PyObject_GenericGetAttr(self, name);
  if (found || !PyErr_ExceptionMatches(PyExc_AttributeError)) return found;
  PyErr_Clear();
  return PyObject_GetAttr(reinterpret_cast<Shield*>(self)->function, name);
}

PyObject* shield_repr(PyObject* self) {
  return PyObject_Repr(reinterpret_cast<Shield*>(self)->function);
}

// As functions do: pickled by the name under which it can be imported.
PyObject* shield_reduce(PyObject* self, PyObject*) {
  return PyObject_GetAttrString(reinterpret_cast<Shield*>(self)->function, "__qualname__");
}

PyObject* shield_autocast(PyObject* self, void*) {
  return reinterpret_cast<Shield*>(self)->autocast.get();
}

int set_shield_autocast(PyObject* self, PyObject* value, void*) {
  return reinterpret_cast<Shield*>(self)->autocast.set(value ? value : Py_None) ? 0 : -1;
}

char kDoc[] = "__doc__", kModule[] = "__module__";
PyGetSetDef shield_attributes[] = {{"__doc__", shield_attribute, nullptr, nullptr, kDoc},
                                   {"__module__", shield_attribute, nullptr, nullptr, kModule},
                                   {"autocast", shield_autocast, set_shield_autocast,
                                    "As of an op: how operands are cast.", nullptr},
                                   {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyMethodDef shield_methods[] = {{"__reduce__", shield_reduce, METH_NOARGS, nullptr},
                                {nullptr, nullptr, 0, nullptr}};
PyMemberDef shield_members[] = {
    {"__wrapped__", T_OBJECT, offsetof(Shield, function), READONLY, nullptr},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Shield, vectorcall), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Shield, weakrefs), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};
PyType_Slot shield_slots[] = {{Py_tp_new, reinterpret_cast<void*>(shield_create)},
                              {Py_tp_traverse, reinterpret_cast<void*>(shield_traverse)},
                              {Py_tp_clear, reinterpret_cast<void*>(shield_clear)},
                              {Py_tp_dealloc, reinterpret_cast<void*>(shield_dealloc)},
                              {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                              {Py_tp_descr_get, reinterpret_cast<void*>(shield_bind)},
                              {Py_tp_getattro, reinterpret_cast<void*>(shield_getattr)},
                              {Py_tp_repr, reinterpret_cast<void*>(shield_repr)},
                              {Py_tp_getset, shield_attributes},
                              {Py_tp_methods, shield_methods},
                              {Py_tp_members, shield_members},
                              {0, nullptr}};
PyType_Spec shield_spec = {"flambeau._core.shield", sizeof(Shield), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                               Py_TPFLAGS_METHOD_DESCRIPTOR,
                           shield_slots};

}  // namespace

void hide_internals(bool whole) {
  static const bool debugging = [] {
    const char* level = std::getenv("FLAMBEAU_DEBUG");
    return level && std::atoi(level) > 0;
  }();
  if (debugging) return;
  PendingError error;
  PyObject* value = error.value();
  PyObject* directory = is_of_the_form(value) ? package_directory() : nullptr;
  if (directory) {
    Ref<>& traceback = error.traceback();
    traceback = steal(traceback && !whole ? without_tail(traceback.get(), directory) : nullptr);
    PyException_SetTraceback(value, or_none(traceback));
    PyException_SetContext(value, nullptr);
    PyException_SetCause(value, nullptr);
  }
  error.restore();
}

bool init_traceback(PyObject* module) {
  const auto type = steal(PyType_FromSpec(&shield_spec));
  return type && PyModule_AddObjectRef(module, "shield", type.get()) == 0;
}

}  // namespace fb
