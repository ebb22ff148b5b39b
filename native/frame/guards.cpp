// Guards on the state that a frame read: dicts, types, objects, functions, cells, lists.
//
// A check reads one number of each dict and type. Where it differs, what was read is compared item
// by item, and the new number is noted: a loop that assigns to a global does not fail its guards.
// Nothing here runs code of users, so no state changes while it is checked.
#include <bit>

#include "call/op_internal.h"
#include "device/devices.h"
#include "frame/frame.h"

namespace fb {

Modes Modes::now() {
  return {grad_mode,     fb::interceptors, torch_function_disabled, dry_run,
          autocast_mode, default_dtype(),  default_device()};
}

namespace {

bool has_attributes(const Tensor* t) { return t->dict && PyDict_GET_SIZE(t->dict) > 0; }

}  // namespace

TensorGuard TensorGuard::of(const Tensor* t) {
  const auto* object = reinterpret_cast<const PyObject*>(t);
  return {Py_TYPE(object),
          t->offset,
          t->offset * item_size(t->dtype) + span_of(t),
          t->dtype,
          t->device,
          t->ndim,
          t->flags,
          tensor_requires_grad(t),
          has_attributes(t),
          {t->dims, t->dims + 2 * t->ndim}};
}

bool TensorGuard::holds(const Tensor* t) const {
  constexpr uint8_t kSeen = kInference | kLazy;
  const Storage* storage = t->storage;
  return Py_TYPE(reinterpret_cast<const PyObject*>(t)) == type && t->dtype == dtype &&
         t->ndim == ndim && t->device.kind == device.kind && t->device.index == device.index &&
         ((t->flags ^ flags) & kSeen) == 0 && t->offset == offset &&
         (!storage->pending || storage->discarded) && !storage->writer &&
         storage->nbytes >= bytes && has_attributes(t) == attributes &&
         std::equal(dims.begin(), dims.end(), t->dims) &&
         (t->autograd ? tensor_requires_grad(t) : false) == requires_grad;
}

bool same_value(PyObject* a, PyObject* b) {
  if (a == b) return true;
  if (!a || !b || Py_TYPE(a) != Py_TYPE(b)) return false;
  if (PyFloat_CheckExact(a)) {
    const double x = PyFloat_AS_DOUBLE(a), y = PyFloat_AS_DOUBLE(b);
    return std::bit_cast<uint64_t>(x) == std::bit_cast<uint64_t>(y);
  }
  if (!PyLong_CheckExact(a) && !PyUnicode_CheckExact(a)) return false;
  const int equal = PyObject_RichCompareBool(a, b, Py_EQ);
  if (equal < 0) PyErr_Clear();
  return equal == 1;
}

namespace {

PyObject* item(PyObject* tuple, Py_ssize_t index) { return PyTuple_GET_ITEM(tuple, index); }

// Ellipsis says that there is nothing under a name: null here.
PyObject* value_of(PyObject* object) { return object == Py_Ellipsis ? nullptr : object; }

std::vector<DictItem> items_of(PyObject* tuple) {
  std::vector<DictItem> items;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
    PyObject* pair = item(tuple, i);
    items.push_back({item(pair, 0), value_of(item(pair, 1))});
  }
  return items;
}

bool same_items(const DictGuard& guard) {
  PyObject *key, *value;
  Py_ssize_t place = 0;
  size_t at = 0;
  if (PyDict_GET_SIZE(guard.dict) != static_cast<Py_ssize_t>(guard.items.size())) return false;
  for (; PyDict_Next(guard.dict, &place, &key, &value); ++at) {
    const DictItem& read = guard.items[at];
    if (!same_value(key, read.key) || !same_value(value, read.value)) return false;
  }
  return true;
}

bool same_reads(const DictGuard& guard) {
  for (const DictItem& read : guard.items) {
    PyObject* value = PyDict_GetItemWithError(guard.dict, read.key);
    if (!value) PyErr_Clear();
    if (!same_value(value, read.value)) return false;
  }
  return true;
}

__attribute__((noinline)) bool holds_still(DictGuard* guard) {
  if (guard->complete ? !same_items(*guard) : !same_reads(*guard)) return false;
  guard->version = *guard->now;
  guard->silent = dict_silent(guard->dict);
  return true;
}

__attribute__((noinline)) bool holds_still(TypeGuard* guard) {
  if (guard->strict || guard->type->tp_mro != guard->bases) return false;
  for (const DictItem& read : guard->items) {
    if (type_lookup(guard->type, read.key) != read.value) return false;
  }
  guard->version = type_version(guard->type);
  return true;
}

PyObject* type_title(PyTypeObject* type) {
  return reinterpret_cast<PyHeapTypeObject*>(type)->ht_name;
}

// A set or deque, in the order of its iterator.
bool same_iteration(const ListGuard& guard) {
  const Py_ssize_t count = PyTuple_GET_SIZE(guard.items);
  bool same = PyObject_Size(guard.list) == count;
  auto iterator = steal(same ? PyObject_GetIter(guard.list) : nullptr);
  for (Py_ssize_t i = 0; same && i < count; ++i) {
    const auto value = steal(iterator ? PyIter_Next(iterator.get()) : nullptr);
    same = value && same_value(value.get(), item(guard.items, i));
  }
  if (PyErr_Occurred()) PyErr_Clear();
  return same;
}

bool same_list(const ListGuard& guard) {
  if (!PyList_CheckExact(guard.list)) return same_iteration(guard);
  const Py_ssize_t count = PyTuple_GET_SIZE(guard.items);
  if (PyList_GET_SIZE(guard.list) != count) return false;
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!same_value(PyList_GET_ITEM(guard.list, i), item(guard.items, i))) return false;
  }
  return true;
}

}  // namespace

Guards::~Guards() {
  for (const DictGuard& guard : dicts_) dict_unwatch(guard.now);
}

bool Guards::read_dicts(PyObject* list) {
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
    PyObject* entry = PyList_GET_ITEM(list, i);
    PyObject* dict = item(entry, 0);
    const uint64_t* now = dict_watch(dict);
    if (!now) return false;
    dicts_.push_back({dict, now, *now, true, item(entry, 1) == Py_True, items_of(item(entry, 2))});
    if (!holds_still(&dicts_.back())) return false;
  }
  return true;
}

bool Guards::read_types(PyObject* list) {
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
    PyObject* entry = PyList_GET_ITEM(list, i);
    auto* type = reinterpret_cast<PyTypeObject*>(item(entry, 0));
    TypeGuard guard{
        type, 0, false, items_of(item(entry, 2)), item(entry, 3), value_of(item(entry, 4))};
    if (!holds_still(&guard)) return false;
    guard.strict = item(entry, 1) == Py_True;
    if (guard.strict && guard.version == 0) return false;
    types_.push_back(std::move(guard));
  }
  return true;
}

bool Guards::read_objects(PyObject* list) {
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
    PyObject* entry = PyList_GET_ITEM(list, i);
    PyObject *object = item(entry, 0), *dict = value_of(item(entry, 1));
    // An argument, which the pattern of arguments finds again before.
    if (PyWeakref_CheckRefExact(object)) object = PyWeakref_GET_OBJECT(object);
    PyObject** slot = dict ? dict_slot(object) : nullptr;
    if (dict && (!slot || *slot != dict)) return false;
    objects_.push_back({object, Py_TYPE(object), slot, dict});
  }
  return true;
}

bool Guards::read_others(PyObject* functions, PyObject* cells, PyObject* lists) {
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(functions); ++i) {
    auto* f = reinterpret_cast<PyFunctionObject*>(PyList_GET_ITEM(functions, i));
    functions_.push_back({f, f->func_code, f->func_defaults, f->func_kwdefaults});
  }
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(cells); ++i) {
    PyObject* entry = PyList_GET_ITEM(cells, i);
    cells_.push_back({item(entry, 0), value_of(item(entry, 1))});
    if (!same_value(PyCell_GET(item(entry, 0)), cells_.back().value)) return false;
  }
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(lists); ++i) {
    PyObject* entry = PyList_GET_ITEM(lists, i);
    lists_.push_back({item(entry, 0), item(entry, 1)});
    if (!same_list(lists_.back())) return false;
  }
  return true;
}

bool Guards::read_operators(PyObject* list) {
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
    operators_.push_back(reinterpret_cast<Op*>(PyList_GET_ITEM(list, i)));
    if (operators_.back()->gate) return false;
  }
  return true;
}

namespace {

PyObject* slot_value(const SlotGuard& guard) {
  return *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(guard.object) + guard.offset);
}

}  // namespace

bool Guards::read_slots(PyObject* list) {
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
    PyObject* entry = PyList_GET_ITEM(list, i);
    PyObject *object = item(entry, 0), *descriptor = item(entry, 1);
    if (PyWeakref_CheckRefExact(object)) object = PyWeakref_GET_OBJECT(object);
    if (!PyObject_TypeCheck(descriptor, &PyMemberDescr_Type)) return false;
    const auto* member = reinterpret_cast<PyMemberDescrObject*>(descriptor);
    if (member->d_member->type != T_OBJECT_EX && member->d_member->type != T_OBJECT) return false;
    slots_.push_back({object, member->d_member->offset, value_of(item(entry, 2))});
    if (!same_value(slot_value(slots_.back()), slots_.back().value)) return false;
  }
  return true;
}

bool Guards::read(PyObject* parts) {
  references = share(parts);
  PyObject *objects, *dicts, *types, *functions, *cells, *lists, *operators, *slots, *codes;
  if (!PyArg_ParseTuple(parts, "O!O!O!O!O!O!O!O!O!", &PyList_Type, &objects, &PyList_Type, &dicts,
                        &PyList_Type, &types, &PyList_Type, &functions, &PyList_Type, &cells,
                        &PyList_Type, &lists, &PyList_Type, &operators, &PyList_Type, &slots,
                        &PyTuple_Type, &codes)) {
    return false;
  }
  if (read_objects(objects) && read_dicts(dicts) && read_types(types) &&
      read_others(functions, cells, lists) && read_operators(operators) && read_slots(slots)) {
    return true;
  }
  if (!PyErr_Occurred()) {
    PyErr_SetString(PyExc_RuntimeError, "[compile] state that was read changed meanwhile");
  }
  return false;
}

bool Guards::hold() {
  for (const ObjectGuard& guard : objects_) {
    if (Py_TYPE(guard.object) != guard.type || (guard.slot && *guard.slot != guard.dict)) {
      return false;
    }
  }
  for (DictGuard& guard : dicts_) {
    const bool unchanged = !guard.silent && *guard.now == guard.version;
    if (!unchanged && !holds_still(&guard)) return false;
  }
  for (TypeGuard& guard : types_) {
    if (guard.title && type_title(guard.type) != guard.title) return false;
    const uint32_t version = type_version(guard.type);
    const bool unchanged = version != 0 && version == guard.version;
    if (!unchanged && !holds_still(&guard)) return false;
  }
  for (const FunctionGuard& guard : functions_) {
    const PyFunctionObject* f = guard.function;
    if (f->func_code != guard.code || f->func_defaults != guard.defaults ||
        f->func_kwdefaults != guard.named) {
      return false;
    }
  }
  for (const CellGuard& guard : cells_) {
    if (!same_value(PyCell_GET(guard.cell), guard.value)) return false;
  }
  for (const ListGuard& guard : lists_) {
    if (!same_list(guard)) return false;
  }
  for (const SlotGuard& guard : slots_) {
    if (!same_value(slot_value(guard), guard.value)) return false;
  }
  return std::none_of(operators_.begin(), operators_.end(), [](const Op* op) { return op->gate; });
}

}  // namespace fb
