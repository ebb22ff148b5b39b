// What a user sees of an error: their own lines, not ours. `hide_internals` cuts the package's own
// frames off the end of a traceback; `shield` makes a callable of a Python function that does so.
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
  PyObject* file = package ? PyObject_GetAttrString(package, "__file__") : nullptr;
  const char* text = file && PyUnicode_Check(file) ? PyUnicode_AsUTF8(file) : nullptr;
  const char* slash = text ? std::strrchr(text, '/') : nullptr;
  if (slash) directory = PyUnicode_FromStringAndSize(text, slash - text + 1);
  Py_XDECREF(file);
  if (!directory) PyErr_Clear();
  return directory;
}

bool is_internal(PyObject* traceback, PyObject* directory) {
  auto* frame = reinterpret_cast<PyTracebackObject*>(traceback)->tb_frame;
  PyCodeObject* code = PyFrame_GetCode(frame);
  const Py_ssize_t found = PyUnicode_Tailmatch(code->co_filename, directory, 0, PY_SSIZE_T_MAX, -1);
  Py_DECREF(code);
  if (found < 0) PyErr_Clear();
  return found == 1;
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
  PyObject* arguments = value ? PyObject_GetAttrString(value, "args") : nullptr;
  PyObject* first = arguments && PyTuple_Check(arguments) && PyTuple_GET_SIZE(arguments) > 0
                        ? PyTuple_GET_ITEM(arguments, 0)
                        : nullptr;
  const char* message = first && PyUnicode_Check(first) ? PyUnicode_AsUTF8(first) : nullptr;
  const bool fits = message && message[0] == '[';
  Py_XDECREF(arguments);
  PyErr_Clear();
  return fits;
}

struct Shield {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* function;
  PyObject* direct;  // owned; what serves its simplest calls without Python; or null
  PyObject* weakrefs;
  OutOption out;     // where there is one, `out=` is served here: the results are copied there
  Overlap overlap;   // what arguments may share with `out=`
  bool direct_dim;   // calls of `direct` have `dim=`
  bool is_operator;  // an operator composed in Python: dispatch modes are asked
  bool overridable;  // modes and types with `__torch_function__` are asked first
  Autocast autocast;
};

// The call without its argument `out`, whose results are then copied there.
PyObject* call_with_out(const Shield* shield, PyObject* const* args, size_t flags, PyObject* names,
                        Py_ssize_t at) {
  const Py_ssize_t given = PyVectorcall_NARGS(flags), named = PyTuple_GET_SIZE(names);
  PyObject* out = args[given + at];
  PyObject* rest = PyTuple_New(named - 1);
  StackVector<PyObject*, 16> values;
  if (!check_outs_shared(shield->overlap, args, given, out)) {
    Py_XDECREF(rest);
    return nullptr;
  }
  if (!rest || !values.reserve(static_cast<size_t>(given + named))) {
    Py_XDECREF(rest);
    return nullptr;
  }
  for (Py_ssize_t i = 0, to = 0; i < given + named; ++i) {
    if (i == given + at) continue;
    if (i >= given) {
      PyTuple_SET_ITEM(rest, to - given, Py_NewRef(PyTuple_GET_ITEM(names, i - given)));
    }
    values[static_cast<size_t>(to++)] = args[i];
  }
  PyObject* result =
      PyObject_Vectorcall(shield->function, values.data(), static_cast<size_t>(given), rest);
  Py_DECREF(rest);
  if (!result || out == Py_None) return result;
  PyObject* copied = copy_to_out(shield->out, result, out);
  Py_DECREF(result);
  return copied;
}

// What the operator behind the function makes the same of: calls with the tensor and `dim=`, else
// with the tensor alone, where `inplace=False`, which the operator does not have, changes nothing.
PyObject* call_direct(const Shield* shield, PyObject* const* args, PyObject* names, bool* served) {
  static PyObject* const dim = PyUnicode_InternFromString("dim");
  static PyObject* const inplace = PyUnicode_InternFromString("inplace");
  PyObject* name = names && PyTuple_GET_SIZE(names) == 1 ? PyTuple_GET_ITEM(names, 0) : nullptr;
  const bool alone = !names || (name == inplace && args[1] == Py_False);
  *served = shield->direct_dim ? name == dim && args[1] != Py_None : alone;
  if (!*served) return nullptr;
  return PyObject_Vectorcall(shield->direct, args, 1, shield->direct_dim ? names : nullptr);
}

// A body in Python asked something that is no tensor: its TypeError, where the schema knows.
void explain_arguments(PyObject* self, PyObject* const* args, Py_ssize_t given, PyObject* names) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyObject* positional = PyTuple_New(given);
  for (Py_ssize_t i = 0; positional && i < given; ++i)
    PyTuple_SET_ITEM(positional, i, Py_NewRef(args[i]));
  PyObject* keywords = PyDict_New();
  for (Py_ssize_t i = 0; keywords && names && i < PyTuple_GET_SIZE(names); ++i)
    PyDict_SetItem(keywords, PyTuple_GET_ITEM(names, i), args[given + i]);
  PyObject* pair[3] = {self, positional, keywords};
  PyObject* text = positional && keywords
                       ? call_helper("flambeau.core.install", "wrong_argument", pair, 3)
                       : nullptr;
  Py_XDECREF(positional);
  Py_XDECREF(keywords);
  if (text && PyUnicode_Check(text)) {
    PyErr_SetObject(PyExc_TypeError, text);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
  } else {
    PyErr_Restore(type, value, traceback);
  }
  Py_XDECREF(text);
}

PyObject* shield_call(PyObject* self, PyObject* const* args, size_t flags, PyObject* names) {
  const auto* shield = reinterpret_cast<Shield*>(self);
  if (shield->overridable) {
    const Py_ssize_t given = PyVectorcall_NARGS(flags);
    const Py_ssize_t all = given + (names ? PyTuple_GET_SIZE(names) : 0);
    if ((interceptors & kFunctionModes) || any_public_override(args, all, true)) [[unlikely]]
      return call_override(self, args, given, names);
    if (autocasts(shield->autocast)) [[unlikely]]
      return call_autocast(shield->autocast, self, args, given, names);
    if (shield->is_operator && (interceptors & kDispatchModes)) [[unlikely]]
      return call_dispatch(self, args, given, names);
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
  if (!result && shield->is_operator && PyErr_ExceptionMatches(PyExc_AttributeError)) [[unlikely]]
    explain_arguments(self, args, PyVectorcall_NARGS(flags), names);
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
                        &is_operator, &overlap))
    return nullptr;
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
  PyObject* old = shield->function;  // stays callable: it raises, it does not crash
  shield->function = Py_NewRef(Py_None);
  Py_XDECREF(old);
  Py_CLEAR(shield->direct);
  shield->autocast.rule = CastRule::None;
  Py_CLEAR(shield->autocast.parts);
  return 0;
}

void shield_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  auto* shield = reinterpret_cast<Shield*>(self);
  if (shield->weakrefs) PyObject_ClearWeakRefs(self);
  Py_XDECREF(shield->function);
  Py_XDECREF(shield->direct);
  Py_XDECREF(shield->autocast.parts);
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
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
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  PyObject* directory = is_of_the_form(value) ? package_directory() : nullptr;
  if (directory) {
    PyObject* kept = traceback && !whole ? without_tail(traceback, directory) : nullptr;
    Py_XDECREF(traceback);
    traceback = kept;
    PyException_SetTraceback(value, traceback ? traceback : Py_None);
    PyException_SetContext(value, nullptr);
    PyException_SetCause(value, nullptr);
  }
  PyErr_Restore(type, value, traceback);
}

bool init_traceback(PyObject* module) {
  PyObject* type = PyType_FromSpec(&shield_spec);
  const bool fine = type && PyModule_AddObjectRef(module, "shield", type) == 0;
  Py_XDECREF(type);
  return fine;
}

}  // namespace fb
