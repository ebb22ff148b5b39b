// `Constants`: what a frozen program computes once, and remembers.
//
// The program comes in two parts. The first one is a function in Python of some of the tensors and
// numbers of a call; it gives tensors. The second one is the plan, whose launches read these behind
// the tensors of the call. Values are remembered for the memory they were computed from: the
// storages, offsets into them, and how often they were written (`Storage::writes` counts every
// write that Flambeau makes, after it). Where one of them differs the first part runs again, so a
// weight that is changed or replaced is noticed. Memory that others may write to unseen is never
// remembered: the first part runs at every call.
//
// The storages are held while values are remembered, so that no other storage is taken for one of
// them. `Constants.clear` gives them up: capture/freezing.py calls it when the function dies.
//
// Weights may be *discarded* when the values are there: the module gets other parameters, without
// memory (`discarded_like`), and `Constants.adopt` takes these for the former ones. Reading one
// raises (tensor.cpp), so their values cannot be computed again: they stay until their function
// dies, whatever else is forgotten.
#include "plan/constants.h"

#include <algorithm>
#include <utility>

#include "call/op_internal.h"

namespace fb {
namespace {

constexpr size_t kMostSets = 8;  // of remembered values of one program: of models that share it

PyTypeObject* ConstantsType = nullptr;

// The memory of one constant.
struct Origin {
  Ref<Storage> storage;
  int64_t offset = 0;
  uint64_t writes = 0;
};

// Remembered values, and what they were computed from.
struct Remembered {
  std::vector<Origin> origins;
  std::vector<Scalar> numbers;
  Ref<> values;       // a tuple of tensors
  int64_t owner = 0;  // of the function whose weights were discarded; 0: none were
};

struct Constants {
  PyObject_HEAD PyObject* compute;     // owned: (tensors, numbers) -> tuple of tensors
  std::vector<int32_t> slots;          // of the call, which it gets
  std::vector<int32_t> numbers;        // likewise
  int32_t count = 0;                   // of its results
  std::vector<Remembered> remembered;  // the last used one first
  int64_t runs = 0;
};

Constants* constants_of(PyObject* object) { return reinterpret_cast<Constants*>(object); }

// ---- running

bool same_origin(const Origin& origin, const Tensor* t) {
  return origin.storage.get() == t->storage && origin.offset == t->offset &&
         origin.writes == t->storage->writes &&
         (t->storage->discarded || storage_private(t->storage));
}

bool same_inputs(const Constants* c, const Remembered& set, const Call& call) {
  for (size_t i = 0; i < c->slots.size(); ++i) {
    if (!same_origin(set.origins[i], call.tensors[c->slots[i]])) return false;
  }
  for (size_t i = 0; i < c->numbers.size(); ++i) {
    if (set.numbers[i].i != call.scalars[c->numbers[i]].i) return false;  // the same bits
  }
  return true;
}

// Borrowed; null: there are none.
PyObject* find(Constants* c, const Call& call) {
  for (size_t i = 0; i < c->remembered.size(); ++i) {
    if (!same_inputs(c, c->remembered[i], call)) continue;
    std::rotate(c->remembered.begin(), c->remembered.begin() + i, c->remembered.begin() + i + 1);
    return c->remembered.front().values.get();
  }
  return nullptr;
}

// Gives up values of memory that was written to since: they can never be right again.
void drop_stale(Constants* c) {
  const auto stale = [](const Remembered& set) {
    return !set.owner &&
           std::any_of(set.origins.begin(), set.origins.end(), [](const auto& origin) {
             return origin.writes != origin.storage.get()->writes;
           });
  };
  std::vector<Remembered> present, before;
  before.swap(c->remembered);
  for (Remembered& set : before) {
    if (!stale(set)) present.push_back(std::move(set));
  }
  c->remembered = std::move(present);  // what is left of `before` goes last: it may run anything
}

Remembered present_inputs(const Constants* c, const Call& call) {
  Remembered set;
  for (int32_t slot : c->slots) {
    Tensor* t = call.tensors[slot];
    set.origins.push_back({share(t->storage), t->offset, t->storage->writes});
  }
  for (int32_t number : c->numbers) set.numbers.push_back(call.scalars[number]);
  return set;
}

// New reference: what Python computes.
PyObject* computed(const Constants* c, const Call& call) {
  const auto tensors = steal(build_tuple(
      c->slots.size(), [&](size_t i) { return Py_NewRef(object_of(call.tensors[c->slots[i]])); }));
  const auto numbers = steal(build_tuple(c->numbers.size(), [&](size_t i) {
    const Scalar value = call.scalars[c->numbers[i]];
    return call.scalar_is_float[c->numbers[i]] ? PyFloat_FromDouble(value.d)
                                               : PyLong_FromLongLong(value.i);
  }));
  if (!tensors || !numbers) return nullptr;
  const auto compute = share(c->compute);
  PyObject* arguments[] = {tensors.get(), numbers.get()};
  auto values = steal(PyObject_Vectorcall(compute.get(), arguments, 2, nullptr));
  if (!values) return nullptr;
  bool fine = PyTuple_Check(values.get()) && PyTuple_GET_SIZE(values.get()) == c->count;
  for (int32_t i = 0; fine && i < c->count; ++i)
    fine = is_tensor(PyTuple_GET_ITEM(values.get(), i));
  if (fine) return values.release();
  PyErr_SetString(PyExc_TypeError, "[freezing] constants are a tuple of as many tensors");
  return nullptr;
}

// The values of a call: new reference, null + exception.
PyObject* values_of(Constants* c, const Call& call) {
  if (PyObject* values = find(c, call)) return Py_NewRef(values);
  for (int32_t slot : c->slots) {  // writes to them that are recorded would count later
    Tensor* t = call.tensors[slot];
    const bool waits = t->storage->pending || t->storage->writer;
    if (waits && !tensor_materialise(t, "a constant of a frozen program")) return nullptr;
  }
  Remembered set = present_inputs(c, call);
  set.values = steal(computed(c, call));
  if (!set.values) return nullptr;
  ++c->runs;
  Ref<> values = set.values;
  if (same_inputs(c, set, call)) {  // nobody wrote meanwhile
    drop_stale(c);
    Remembered oldest;  // goes last, too
    const auto last = std::find_if(c->remembered.rbegin(), c->remembered.rend(),
                                   [](const Remembered& each) { return !each.owner; });
    if (c->remembered.size() >= kMostSets && last != c->remembered.rend()) {
      oldest = std::move(*last);
      c->remembered.erase(std::next(last).base());
    }
    c->remembered.insert(c->remembered.begin(), std::move(set));
  }
  return values.release();
}

// ---- the Python type

// Constants(compute, slots, numbers, count)
PyObject* constants_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  PyObject *compute, *slots, *numbers;
  int count;
  static const char* names[] = {"compute", "slots", "numbers", "count", nullptr};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO!O!i", const_cast<char**>(names), &compute,
                                   &PyTuple_Type, &slots, &PyTuple_Type, &numbers, &count)) {
    return nullptr;
  }
  auto object = steal(type->tp_alloc(type, 0));
  if (!object) return nullptr;
  Constants* c = constants_of(object.get());
  const PyObject head = c->ob_base;
  new (c) Constants();
  c->ob_base = head;
  c->compute = Py_NewRef(compute);
  c->count = count;
  for (const auto& [from, to] : {std::pair(slots, &c->slots), std::pair(numbers, &c->numbers)}) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(from); ++i) {
      const long position = PyLong_AsLong(PyTuple_GET_ITEM(from, i));
      if (position == -1 && PyErr_Occurred()) return nullptr;
      to->push_back(static_cast<int32_t>(position));
    }
  }
  return object.release();
}

int constants_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(constants_of(self)->compute);
  for (const Remembered& set : constants_of(self)->remembered) Py_VISIT(set.values.get());
  return 0;
}

void forget(Constants* c) {
  std::vector<Remembered> before;
  before.swap(c->remembered);  // code of users may run while they go
}

// The same of those that can be computed again, and of those whose function dies.
void forget_for(Constants* c, int64_t owner) {
  std::vector<Remembered> present, before;
  before.swap(c->remembered);
  for (Remembered& set : before) {
    if (set.owner && set.owner != owner) present.push_back(std::move(set));
  }
  c->remembered = std::move(present);
}

// adopt(former, discarded, owner): values of the memory of a tensor become those of another.
PyObject* py_adopt(PyObject* self, PyObject* args) {
  PyObject *former, *discarded;
  long long owner;
  if (!PyArg_ParseTuple(args, "OOL", &former, &discarded, &owner)) return nullptr;
  bool adopted = false;
  Storage* from = is_tensor(former) ? tensor_of(former)->storage : nullptr;
  Storage* to = is_tensor(discarded) ? tensor_of(discarded)->storage : nullptr;
  for (Remembered& set : constants_of(self)->remembered) {
    for (Origin& origin : set.origins) {
      if (!from || !to || origin.storage.get() != from) continue;
      if (origin.writes != from->writes) continue;  // it was written since
      origin.storage = share(to);
      origin.writes = to->writes;
      set.owner = owner;
      adopted = true;
    }
  }
  return PyBool_FromLong(adopted);
}

int constants_clear(PyObject* self) {
  drop(constants_of(self)->compute);
  forget(constants_of(self));
  return 0;
}

void constants_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  constants_clear(self);
  const auto type = steal(Py_TYPE(self));  // of which nothing may be read after its end
  constants_of(self)->~Constants();
  type->tp_free(self);
}

PyObject* py_clear(PyObject* self, PyObject* owner) {
  const long long number = PyLong_AsLongLong(owner);
  if (number == -1 && PyErr_Occurred()) return nullptr;
  forget_for(constants_of(self), number);
  Py_RETURN_NONE;
}

PyObject* get_runs(PyObject* self, void*) { return PyLong_FromLongLong(constants_of(self)->runs); }
PyObject* get_values(PyObject* self, void*) {
  const auto& sets = constants_of(self)->remembered;
  return build_tuple(sets.size(), [&sets](size_t i) { return Py_NewRef(sets[i].values.get()); });
}

PyMethodDef constants_methods[] = {
    {"clear", py_clear, METH_O,
     "Forgets values, and the tensors they are of: all but those of discarded weights that another "
     "owner has."},
    {"adopt", py_adopt, METH_VARARGS,
     "adopt(former, discarded, owner): takes a tensor without memory for the one that values were "
     "computed from; False: none was."},
    {nullptr, nullptr, 0, nullptr},
};
PyGetSetDef constants_getset[] = {
    {"runs", get_runs, nullptr, "How often the values were computed.", nullptr},
    {"values", get_values, nullptr, "The remembered values, a tuple for each set of constants.",
     nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyType_Slot constants_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(constants_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(constants_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(constants_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(constants_clear)},
    {Py_tp_methods, constants_methods},
    {Py_tp_getset, constants_getset},
    {Py_tp_doc, const_cast<char*>("Constants(compute, slots, numbers, count): what a frozen "
                                  "program computes once.")},
    {0, nullptr},
};
PyType_Spec constants_spec = {"flambeau._core.Constants", sizeof(Constants), 0,
                              Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, constants_slots};

PyObject* can_freeze(PyObject*, PyObject* object) {
  if (!is_tensor(object)) return PyBool_FromLong(0);
  const Storage* storage = tensor_of(object)->storage;
  return PyBool_FromLong(storage->pending || storage_private(storage));
}

// A tensor like another one whose memory cannot be read: reading it raises.
PyObject* discarded_like(PyObject*, PyObject* object) {
  if (!is_tensor(object)) {
    PyErr_SetString(PyExc_TypeError, "[freezing] a tensor is expected");
    return nullptr;
  }
  const Tensor* t = tensor_of(object);
  auto storage = steal(storage_pending(t->storage->nbytes, t->device, nullptr));
  if (!storage) return nullptr;
  storage.get()->discarded = true;
  storage.get()->resizable = false;
  return object_of(tensor_new(storage.release(), t->dtype, t->device, t->ndim, t->dims,
                              t->dims + t->ndim, t->offset));
}

PyMethodDef functions[] = {
    {"discarded_like", discarded_like, METH_O,
     "A tensor with the geometry of another one, and without memory: reading it raises."},
    {"can_freeze", can_freeze, METH_O,
     "Whether a tensor's memory is written by Flambeau alone, so that writes are noticed."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool storage_private(const Storage* storage) {
  return !storage->reached && storage->exports == 0 && (!storage->release || storage->alone) &&
         storage->data && on_host(storage->device);
}

bool is_constants(PyObject* object) { return Py_IS_TYPE(object, ConstantsType); }

bool constants_fit(const Plan* plan) {
  const Constants* c = constants_of(plan->constants);
  const auto inside = [](const std::vector<int32_t>& positions, int32_t limit) {
    return std::all_of(positions.begin(), positions.end(),
                       [limit](int32_t at) { return at >= 0 && at < limit; });
  };
  const bool fits = inside(c->slots, plan->tensors) && inside(c->numbers, plan->numbers) &&
                    c->count == plan->computed && !plan->elsewhere;
  if (!fits) PyErr_SetString(PyExc_ValueError, "[Plan] constants do not fit its calls");
  return fits;
}

bool plan_fixes(const Plan* plan, int32_t slot) {
  if (!plan->constants) return false;
  const std::vector<int32_t>& slots = constants_of(plan->constants)->slots;
  return slot >= plan->tensors || std::find(slots.begin(), slots.end(), slot) != slots.end();
}

bool plan_run_frozen(Instance* instance, const Call& call, PyObject** outputs,
                     bool (*run)(Instance*, const Call&, PyObject**)) {
  const auto held = share(instance->plan->constants);
  Constants* c = constants_of(held.get());
  if (c->count == 0) return run(instance, call, outputs);
  const auto values = steal(values_of(c, call));
  if (!values) return false;
  std::vector<Tensor*> tensors(call.tensors, call.tensors + call.tensor_count);
  for (int32_t i = 0; i < c->count; ++i) {
    tensors.push_back(tensor_of(PyTuple_GET_ITEM(values.get(), i)));
  }
  Call extended = call;
  extended.tensors = tensors.data();
  extended.tensor_count = static_cast<int32_t>(tensors.size());
  return run(instance, extended, outputs);
}

bool init_constants(PyObject* module) {
  ConstantsType = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&constants_spec));
  return ConstantsType && PyModule_AddFunctions(module, functions) == 0 &&
         PyModule_AddObjectRef(module, "Constants", (PyObject*)ConstantsType) == 0;
}

}  // namespace fb
