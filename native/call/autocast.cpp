// `torch.autocast` below Python: the state of a thread, casts of operands, copies of weights that
// are cast once per region. Casts are calls of the operator `to`, so gradients, modes, recorded
// regions and transformations see them as any call.
#include "call/autocast.h"

#include <unordered_map>

#include "call/op_internal.h"
#include "tensor/tensor_internal.h"

namespace fb {

namespace {

struct CachedCast {
  Ref<> source;  // keeps its address from being reused
  Ref<Tensor> result;
  Storage* storage;  // what the source had when it was cast
  uint64_t writes;
  uint32_t version;
};
using CastCache = std::unordered_map<PyObject*, CachedCast>;

constinit FB_THREAD_LOCAL DType lower_dtype = DType::BF16;
constinit FB_THREAD_LOCAL bool cache_enabled = true;
constinit FB_THREAD_LOCAL CastCache* cache = nullptr;

void set_enabled(bool on) {
  interceptors = static_cast<uint8_t>(on ? interceptors | kAutocast : interceptors & ~kAutocast);
}

class WithoutAutocast {
 public:
  WithoutAutocast() : enabled_(interceptors & kAutocast) { set_enabled(false); }
  ~WithoutAutocast() { set_enabled(enabled_); }
  WithoutAutocast(const WithoutAutocast&) = delete;
  WithoutAutocast& operator=(const WithoutAutocast&) = delete;

 private:
  bool enabled_;
};

// Fake tensors are on the meta device natively, and name another one in Python.
bool is_on_cpu(PyObject* object, const Tensor* t) {
  if (on_host(t->device)) return true;
  if (!(t->flags & kPythonType)) return false;
  const auto name = steal(PyObject_GetAttrString(object, "device"));
  Device device;
  const bool fine = name && device_from_object(name.get(), &device) && on_host(device);
  if (PyErr_Occurred()) PyErr_Clear();
  return fine;
}

// Floating-point tensors of the CPU take part, but for float64.
bool takes_part(PyObject* object) {
  if (!is_tensor(object)) return false;
  const auto* t = reinterpret_cast<const Tensor*>(object);
  return is_floating(t->dtype) && t->dtype != DType::F64 && is_on_cpu(object, t);
}

bool may_be_cached(PyObject* object, const Tensor* t, DType target) {
  const Autograd* autograd = t->autograd;
  return cache_enabled && target == lower_dtype && t->dtype == DType::F32 && autograd &&
         autograd->requires_grad && !autograd->node && !(t->flags & kIsView) &&
         interceptors == kAutocast && override_of(object) != Override::Internal;
}

PyObject* cast(PyObject* object, DType target) {
  PyObject* callable = operator_required(Operator::ToDType);
  PyObject* args[3] = {nullptr, object, dtype_object(target)};
  if (!callable) return nullptr;
  return PyObject_Vectorcall(callable, args + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
}

bool is_current(const CachedCast& entry, const Tensor* t, DType target) {
  const Ref<Tensor>& result = entry.result;
  return result->dtype == target && entry.storage == t->storage &&
         entry.writes == t->storage->writes && entry.version == t->version() &&
         (!grad_mode.enabled || tensor_requires_grad(result.get()));
}

PyObject* cached_cast(PyObject* object, DType target) {
  const auto* t = reinterpret_cast<const Tensor*>(object);
  if (!may_be_cached(object, t, target)) return cast(object, target);
  if (cache) {
    const auto place = cache->find(object);
    if (place != cache->end() && is_current(place->second, t, target)) {
      return Py_NewRef(object_of(place->second.result));
    }
  }
  PyObject* result = cast(object, target);
  if (!result) return nullptr;
  if (!cache) cache = new CastCache();  // the cast may have run code that cleared the cache
  CachedCast entry{share(object), share(tensor_of(result)), t->storage, t->storage->writes,
                   t->version()};
  std::swap((*cache)[object], entry);  // what was there goes at the end
  return result;
}

// One operand; a new reference.
PyObject* cast_operand(PyObject* object, DType target) {
  if (!takes_part(object) || reinterpret_cast<Tensor*>(object)->dtype == target) {
    return Py_NewRef(object);
  }
  return cached_cast(object, target);
}

bool is_list(PyObject* object) { return PyTuple_CheckExact(object) || PyList_CheckExact(object); }

// An argument: an operand, a list of them, or anything else.
PyObject* cast_argument(PyObject* object, DType target) {
  if (!is_list(object)) return cast_operand(object, target);
  if (PySequence_Fast_GET_SIZE(object) == 0 || !is_tensor(PySequence_Fast_ITEMS(object)[0])) {
    return Py_NewRef(object);
  }
  const auto items = steal(PySequence_Tuple(object));  // casts may run code that changes the list
  if (!items) return nullptr;
  return build_list(static_cast<size_t>(PyTuple_GET_SIZE(items.get())), [&](size_t i) {
    return cast_operand(PyTuple_GET_ITEM(items.get(), static_cast<Py_ssize_t>(i)), target);
  });
}

// Joins the dtype of an operand to what was seen before it.
bool widen(PyObject* object, DType* widest) {
  if (!is_tensor(object)) return true;
  const DType dtype = reinterpret_cast<Tensor*>(object)->dtype;
  if (!takes_part(object)) return true;
  if (*widest == DType::F32 || dtype == DType::F32) {
    *widest = DType::F32;
    return true;
  }
  if (dtype == lower_dtype) return true;
  PyErr_Format(PyExc_RuntimeError,
               "[autocast] Unexpected floating ScalarType in at::autocast::prioritize: "
               "torch.%s beside torch.%s\n"
               "hint: operands are float32, or of the dtype of the autocast region",
               dtype_name(dtype), dtype_name(lower_dtype));
  return false;
}

bool widest_dtype(PyObject* const* args, Py_ssize_t count, DType* widest) {
  *widest = lower_dtype;
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!is_list(args[i])) {
      if (!widen(args[i], widest)) return false;
      continue;
    }
    for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(args[i]); ++k) {
      if (!widen(PySequence_Fast_ITEMS(args[i])[k], widest)) return false;
    }
  }
  return true;
}

// Calls with `out=` are not cast.
bool has_out(PyObject* const* args, Py_ssize_t count, PyObject* kwnames) {
  for (Py_ssize_t k = 0; kwnames && k < PyTuple_GET_SIZE(kwnames); ++k) {
    if (args[count + k] != Py_None &&
        PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, k), "out") == 0) {
      return true;
    }
  }
  return false;
}

PyObject* is_enabled(PyObject*, PyObject*) { return PyBool_FromLong(interceptors & kAutocast); }

PyObject* enable(PyObject*, PyObject* value) {
  const int on = PyObject_IsTrue(value);
  if (on < 0) return nullptr;
  set_enabled(on);
  Py_RETURN_NONE;
}

PyObject* get_dtype(PyObject*, PyObject*) { return Py_NewRef(dtype_object(lower_dtype)); }

PyObject* set_dtype(PyObject*, PyObject* value) {
  if (!dtype_from_object(value, &lower_dtype)) return nullptr;
  Py_RETURN_NONE;
}

PyObject* is_cache_enabled(PyObject*, PyObject*) { return PyBool_FromLong(cache_enabled); }

PyObject* enable_cache(PyObject*, PyObject* value) {
  const int on = PyObject_IsTrue(value);
  if (on < 0) return nullptr;
  cache_enabled = on;
  Py_RETURN_NONE;
}

PyObject* clear_cache(PyObject*, PyObject*) {
  delete std::exchange(cache, nullptr);  // first null: releasing tensors may run code of users
  Py_RETURN_NONE;
}

// autocast_call(rule, callable, args, kwargs)
PyObject* call_by_rule(PyObject*, PyObject* given) {
  PyObject *rule, *callable, *args, *kwargs;
  if (!PyArg_ParseTuple(given, "OOO!O!", &rule, &callable, &PyTuple_Type, &args, &PyDict_Type,
                        &kwargs)) {
    return nullptr;
  }
  Autocast autocast{};
  const Py_ssize_t count = PyTuple_GET_SIZE(args), named = PyDict_GET_SIZE(kwargs);
  StackVector<PyObject*, kUsualArguments> values;
  if (!values.reserve(static_cast<size_t>(count + named)) || !autocast.set(rule)) return nullptr;
  const auto parts = steal(autocast.parts);
  const auto names = steal(named ? keyword_names(kwargs) : nullptr);
  if (named && !names) return nullptr;
  for (Py_ssize_t i = 0; i < count; ++i) values.push(PyTuple_GET_ITEM(args, i));
  PyObject *name, *value;
  Py_ssize_t place = 0;
  while (PyDict_Next(kwargs, &place, &name, &value)) values.push(value);
  return call_autocast(autocast, callable, values.data(), count, names.get());
}

PyMethodDef methods[] = {
    {"autocast_call", call_by_rule, METH_VARARGS,
     "autocast_call(rule, callable, args, kwargs): a call whose operands are cast by a rule, "
     "without autocast inside."},
    {"is_autocast_enabled", is_enabled, METH_NOARGS, "Whether operands on the CPU are cast."},
    {"set_autocast_enabled", enable, METH_O, "Turns casts of operands on the CPU on or off."},
    {"get_autocast_dtype", get_dtype, METH_NOARGS, "The dtype of operators of lower precision."},
    {"set_autocast_dtype", set_dtype, METH_O, "Sets the dtype of operators of lower precision."},
    {"is_autocast_cache_enabled", is_cache_enabled, METH_NOARGS,
     "Whether casts of parameters are reused within a region."},
    {"set_autocast_cache_enabled", enable_cache, METH_O,
     "Whether casts of parameters are reused within a region."},
    {"clear_autocast_cache", clear_cache, METH_NOARGS, "Forgets the casts of parameters."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool Autocast::set(PyObject* value) {
  CastRule next = CastRule::None;
  if (PyUnicode_Check(value)) {
    const char* text = PyUnicode_AsUTF8(value);
    if (!text) return false;
    const std::string name = text;
    next = name == "lower"     ? CastRule::Lower
           : name == "float32" ? CastRule::Float32
           : name == "promote" ? CastRule::Promote
                               : CastRule::None;
    if (next == CastRule::None) {
      PyErr_Format(PyExc_ValueError, "[autocast] unknown rule %R\nhint: lower, float32 or promote",
                   value);
      return false;
    }
  } else if (value != Py_None) {
    next = CastRule::Parts;
  }
  rule = next;
  assign(parts, share(next == CastRule::Parts ? value : nullptr));
  return true;
}

PyObject* Autocast::get() const {
  constexpr const char* names[] = {nullptr, "lower", "float32", "promote"};
  if (parts) return Py_NewRef(parts);
  if (rule == CastRule::None) Py_RETURN_NONE;
  return PyUnicode_FromString(names[static_cast<int>(rule)]);
}

PyObject* call_autocast(const Autocast& autocast, PyObject* callable, PyObject* const* args,
                        Py_ssize_t count, PyObject* kwnames) {
  const Py_ssize_t all = count + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
  const bool plain = autocast.rule == CastRule::None || has_out(args, count, kwnames);
  if (autocast.rule == CastRule::Parts && !plain) {
    const auto parts = share(autocast.parts);
    return PyObject_Vectorcall(parts.get(), args, static_cast<size_t>(count), kwnames);
  }
  DType target = autocast.rule == CastRule::Lower ? lower_dtype : DType::F32;
  if (!plain && autocast.rule == CastRule::Promote && !widest_dtype(args, all, &target)) {
    return nullptr;
  }
  StackVector<PyObject*, kUsualArguments> values;
  if (!values.reserve(static_cast<size_t>(all))) return nullptr;
  for (Py_ssize_t i = 0; i < all; ++i) {
    PyObject* value = plain ? Py_NewRef(args[i]) : cast_argument(args[i], target);
    if (!value) break;
    values.push(value);
  }
  PyObject* result = nullptr;
  if (values.size() == static_cast<size_t>(all)) {
    const WithoutAutocast guard;
    result = PyObject_Vectorcall(callable, values.data(), static_cast<size_t>(count), kwnames);
  }
  for (size_t i = 0; i < values.size(); ++i) drop(values[i]);
  return result;
}

bool init_autocast(PyObject* module) { return PyModule_AddFunctions(module, methods) == 0; }

}  // namespace fb
