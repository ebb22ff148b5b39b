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

constinit FB_THREAD_LOCAL CastCache* cache = nullptr;

// A region that was entered, and the state before it. Owned: the thread's end has no GIL.
struct Entered {
  Ref<> region, before;
  bool operator==(const Entered& other) const {
    return region.get() == other.region.get() && before.get() == other.before.get();
  }
};
constinit FB_THREAD_LOCAL std::vector<Entered>* entered = nullptr;

// The state of the thread before a dry run, and what that reads of the cached casts.
struct DryAutocast {
  struct Lookup {
    Ref<Tensor> source, cached;  // cached: null where there is no current cast
  };
  AutocastMode mode;
  bool enabled;
  CastCache* cache;  // owned
  std::vector<Entered> entered;
  std::vector<Lookup> lookups;  // each source once, before it is cast
  bool cleared = false;
};
constinit FB_THREAD_LOCAL DryAutocast* dry = nullptr;

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
  return autocast_mode.caches && target == autocast_mode.lower && t->dtype == DType::F32 &&
         autograd && autograd->requires_grad && !autograd->node && !(t->flags & kIsView) &&
         interceptors == kAutocast && override_of(object) != Override::Internal;
}

PyObject* cast(PyObject* object, DType target) {
  PyObject* callable = operator_required(Operator::ToDType);
  PyObject* args[3] = {nullptr, object, dtype_object(target)};
  if (!callable) return nullptr;
  return PyObject_Vectorcall(callable, args + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
}

bool is_current(const CachedCast& entry, const Tensor* t) {
  return entry.storage == t->storage && entry.writes == t->storage->writes &&
         entry.version == t->version();
}

void note_lookup(PyObject* object, Tensor* cached) {
  Tensor* t = tensor_of(object);
  const auto same = [t](const DryAutocast::Lookup& lookup) { return lookup.source.get() == t; };
  if (dry->cleared || std::any_of(dry->lookups.begin(), dry->lookups.end(), same)) return;
  dry->lookups.push_back({share(t), share(cached)});
}

PyObject* cached_cast(PyObject* object, DType target) {
  const auto* t = reinterpret_cast<const Tensor*>(object);
  if (!may_be_cached(object, t, target)) return cast(object, target);
  Tensor* cached = autocast_cached(t);
  if (dry) note_lookup(object, cached);
  const bool serves =
      cached && cached->dtype == target && (!grad_mode.enabled || tensor_requires_grad(cached));
  if (serves) return Py_NewRef(object_of(cached));
  PyObject* result = cast(object, target);
  if (result) autocast_store(tensor_of(object), tensor_of(result));
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
  if (dtype == autocast_mode.lower) return true;
  PyErr_Format(PyExc_RuntimeError,
               "[autocast] Unexpected floating ScalarType in at::autocast::prioritize: "
               "torch.%s beside torch.%s\n"
               "hint: operands are float32, or of the dtype of the autocast region",
               dtype_name(dtype), dtype_name(autocast_mode.lower));
  return false;
}

bool widest_dtype(PyObject* const* args, Py_ssize_t count, DType* widest) {
  *widest = autocast_mode.lower;
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

PyObject* get_dtype(PyObject*, PyObject*) { return Py_NewRef(dtype_object(autocast_mode.lower)); }

PyObject* set_dtype(PyObject*, PyObject* value) {
  if (!dtype_from_object(value, &autocast_mode.lower)) return nullptr;
  Py_RETURN_NONE;
}

PyObject* is_cache_enabled(PyObject*, PyObject*) { return PyBool_FromLong(autocast_mode.caches); }

PyObject* enable_cache(PyObject*, PyObject* value) {
  const int on = PyObject_IsTrue(value);
  if (on < 0) return nullptr;
  autocast_mode.caches = on;
  Py_RETURN_NONE;
}

// autocast_nesting(change) -> the depth of regions after it
PyObject* change_nesting(PyObject*, PyObject* value) {
  const long change = PyLong_AsLong(value);
  if (change == -1 && PyErr_Occurred()) return nullptr;
  autocast_mode.nesting += static_cast<int32_t>(change);
  return PyLong_FromLong(autocast_mode.nesting);
}

// autocast_push(region, before), autocast_pop(region) -> before: a region may be entered again
// while it is active, and left before others that were entered later.
PyObject* push_region(PyObject*, PyObject* args) {
  PyObject *region, *before;
  if (!PyArg_ParseTuple(args, "OO", &region, &before)) return nullptr;
  if (!entered) entered = new std::vector<Entered>();
  entered->push_back({share(region), share(before)});
  Py_RETURN_NONE;
}

PyObject* pop_region(PyObject*, PyObject* region) {
  for (size_t i = entered ? entered->size() : 0; i-- > 0;) {
    if ((*entered)[i].region.get() != region) continue;
    const Entered last = std::move((*entered)[i]);
    entered->erase(entered->begin() + static_cast<std::ptrdiff_t>(i));
    return Py_NewRef(last.before.get());
  }
  PyErr_SetString(PyExc_RuntimeError,
                  "[autocast] this region was not entered in this thread\n"
                  "hint: leave it as often as it was entered");
  return nullptr;
}

// autocast_learnt() -> (changed, cleared, lookups, casts): what a dry run did so far. Lookups are
// (parameter, its cached cast or None), casts are (parameter, cast) that it leaves in the cache.
PyObject* learnt(PyObject*, PyObject*) {
  if (!dry) {
    PyErr_SetString(PyExc_RuntimeError, "[compile] no dry run is active");
    return nullptr;
  }
  const bool changed = !(autocast_mode == dry->mode) ||
                       ((interceptors & kAutocast) != 0) != dry->enabled ||
                       (entered ? *entered != dry->entered : !dry->entered.empty());
  const auto lookups = steal(build_list(dry->lookups.size(), [&](size_t i) {
    const DryAutocast::Lookup& lookup = dry->lookups[i];
    return PyTuple_Pack(2, object_of(lookup.source), or_none(lookup.cached));
  }));
  const auto casts = steal(PyList_New(0));
  if (!lookups || !casts) return nullptr;
  const CastCache none, &before = dry->cache ? *dry->cache : none;
  for (const auto& [source, entry] : cache ? *cache : none) {
    const auto old = before.find(source);
    if (old != before.end() && old->second.result.get() == entry.result.get()) continue;
    const auto pair = steal(PyTuple_Pack(2, source, object_of(entry.result)));
    if (!pair || PyList_Append(casts.get(), pair.get()) < 0) return nullptr;
  }
  return Py_BuildValue("(OOOO)", changed ? Py_True : Py_False, dry->cleared ? Py_True : Py_False,
                       lookups.get(), casts.get());
}

PyObject* clear_cache(PyObject*, PyObject*) {
  if (dry) dry->cleared = true;
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
    {"autocast_nesting", change_nesting, METH_O,
     "autocast_nesting(change) -> int: the depth of regions of this thread after a change."},
    {"autocast_push", push_region, METH_VARARGS,
     "autocast_push(region, before): a region is entered, in a state that it replaces."},
    {"autocast_pop", pop_region, METH_O,
     "autocast_pop(region): a region is left; returns the state that it replaced."},
    {"autocast_learnt", learnt, METH_NOARGS,
     "(changed, cleared, lookups, casts): what the active dry run did to autocast's state."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

constinit FB_THREAD_LOCAL AutocastMode autocast_mode;

Tensor* autocast_cached(const Tensor* t) {
  if (!cache) return nullptr;
  const auto place = cache->find(const_cast<PyObject*>(reinterpret_cast<const PyObject*>(t)));
  const bool current = place != cache->end() && is_current(place->second, t);
  return current ? place->second.result.get() : nullptr;
}

void autocast_store(Tensor* t, Tensor* cast) {
  PyObject* object = object_of(t);
  if (!cache) cache = new CastCache();  // the cast may have run code that cleared the cache
  CachedCast entry{share(object), share(cast), t->storage, t->storage->writes, t->version()};
  std::swap((*cache)[object], entry);  // what was there goes at the end
}

bool autocast_caches_any() { return cache && !cache->empty(); }

void autocast_learn() {
  dry = new DryAutocast{autocast_mode, (interceptors & kAutocast) != 0, cache, {}, {}};
  if (entered) dry->entered = *entered;
  cache = cache ? new CastCache(*cache) : nullptr;
}

void autocast_unlearn() {
  DryAutocast* ended = std::exchange(dry, nullptr);
  if (!ended) return;
  autocast_mode = ended->mode;
  set_enabled(ended->enabled);
  const CastCache* casts = std::exchange(cache, ended->cache);
  if (entered) entered->swap(ended->entered);
  delete casts;  // last: releasing tensors may run code of users
  delete ended;
}

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
  DType target = autocast.rule == CastRule::Lower ? autocast_mode.lower : DType::F32;
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
