// The shape of a call's arguments: how they are compared with those of a call that was explained.
//
// Tensors are compared by class and geometry, numbers and texts by value, tuples, lists and dicts
// item by item, everything else by identity.
#include "frame/frame.h"

namespace fb {

namespace {

PyObject* const* items_of(PyObject* sequence) { return PySequence_Fast_ITEMS(sequence); }

bool is_value(PyObject* object) {
  return PyLong_CheckExact(object) || PyFloat_CheckExact(object) || PyUnicode_CheckExact(object);
}

PatternItem same_object(PyObject* object) {
  const bool weak = PyType_SUPPORTS_WEAKREFS(Py_TYPE(object)) && !PyType_Check(object) &&
                    !PyFunction_Check(object);
  auto reference = weak ? steal(PyWeakref_NewRef(object, nullptr)) : Ref<>();
  if (!reference) PyErr_Clear();
  return reference ? PatternItem{PatternItem::Weak, 0, std::move(reference)}
                   : PatternItem{PatternItem::Same, 0, share(object)};
}

bool same_names(PyObject* a, PyObject* b) {
  if (a == b) return true;
  if (!a || !b || PyTuple_GET_SIZE(a) != PyTuple_GET_SIZE(b)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(a); ++i) {
    if (!same_value(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i))) return false;
  }
  return true;
}

constexpr uint64_t kPrime = 0x9e3779b97f4a7c15;
uint64_t mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * kPrime;
  return hash ^ (hash >> 29);
}

uint64_t mix_pointer(uint64_t hash, const void* pointer) {
  return mix(hash, reinterpret_cast<uint64_t>(pointer));
}

uint64_t sign_value(uint64_t hash, PyObject* value);

uint64_t sign_items(uint64_t hash, PyObject* const* items, Py_ssize_t count) {
  hash = mix(hash, static_cast<uint64_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) hash = sign_value(hash, items[i]);
  return hash;
}

uint64_t sign_dict(uint64_t hash, PyObject* dict) {
  PyObject *key, *value;
  for (Py_ssize_t place = 0; PyDict_Next(dict, &place, &key, &value);) {
    hash = sign_value(sign_value(hash, key), value);
  }
  return hash;
}

uint64_t sign_value(uint64_t hash, PyObject* value) {
  hash = mix_pointer(hash, Py_TYPE(value));
  if (is_tensor(value)) {
    const Tensor* t = tensor_of(value);
    hash = mix(hash, static_cast<uint64_t>(t->dtype) << 8 | t->ndim);
    for (int i = 0; i < 2 * t->ndim; ++i) hash = mix(hash, static_cast<uint64_t>(t->dims[i]));
    return mix(hash, static_cast<uint64_t>(t->offset) * 2 + tensor_requires_grad(t));
  }
  if (is_value(value)) return mix(hash, static_cast<uint64_t>(PyObject_Hash(value)));
  if (PyTuple_CheckExact(value) || PyList_CheckExact(value)) {
    return sign_items(hash, items_of(value), PySequence_Fast_GET_SIZE(value));
  }
  return PyDict_CheckExact(value) ? sign_dict(hash, value) : mix_pointer(hash, value);
}

}  // namespace

uint64_t signature_of(const Arguments& arguments) {
  const uint64_t hash = mix(kPrime, grad_mode.enabled);
  return sign_items(hash, arguments.values, arguments.count());
}

bool Pattern::read_container(PatternItem::Kind kind, PyObject* const* items, Py_ssize_t count) {
  items_.push_back({kind, count, {}});
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!read_value(items[i])) return false;
  }
  return true;
}

bool Pattern::read_dict(PyObject* value) {
  PyObject *key, *entry;
  auto keys = steal(PySequence_Tuple(value));
  if (!keys) return false;
  items_.push_back({PatternItem::Dict, PyDict_GET_SIZE(value), std::move(keys)});
  for (Py_ssize_t place = 0; PyDict_Next(value, &place, &key, &entry);) {
    if (!PyUnicode_CheckExact(key) && !PyLong_CheckExact(key)) return false;
    if (!read_value(entry)) return false;
  }
  return true;
}

bool Pattern::read_value(PyObject* value) {
  if (items_.size() > 256) return false;
  if (is_tensor(value)) {
    if (tensors_.size() == kMaxArgumentTensors) return false;
    Tensor* t = tensor_of(value);
    const auto first = std::find(tensors_.begin(), tensors_.end(), t);
    firsts_.push_back(static_cast<int32_t>(first - tensors_.begin()));
    items_.push_back({PatternItem::Tensor, static_cast<Py_ssize_t>(tensors_.size()), {}});
    tensors_.push_back(t);
    guards_.push_back(TensorGuard::of(t));
    return true;
  }
  if (PyTuple_CheckExact(value) || PyList_CheckExact(value)) {
    const auto kind = PyTuple_CheckExact(value) ? PatternItem::Tuple : PatternItem::List;
    return read_container(kind, items_of(value), PySequence_Fast_GET_SIZE(value));
  }
  if (PyDict_CheckExact(value)) return read_dict(value);
  if (is_value(value)) {
    items_.push_back({PatternItem::Equal, 0, share(value)});
  } else {
    items_.push_back(same_object(value));
  }
  return true;
}

bool Pattern::read(const Arguments& arguments) {
  positional_ = arguments.positional;
  names_ = share(arguments.names);
  for (Py_ssize_t i = 0; i < arguments.count(); ++i) {
    if (!read_value(arguments.values[i])) return false;
  }
  return true;
}

bool Pattern::matches_dict(PyObject* value, size_t* at, Tensor** tensors) const {
  const PatternItem& dict = items_[*at - 1];
  if (!PyDict_CheckExact(value) || PyDict_GET_SIZE(value) != dict.count) return false;
  PyObject *key, *entry;
  Py_ssize_t place = 0, k = 0;
  for (; PyDict_Next(value, &place, &key, &entry); ++k) {
    if (!same_value(key, PyTuple_GET_ITEM(dict.object.get(), k))) return false;
    if (!matches_value(entry, at, tensors)) return false;
  }
  return true;
}

bool Pattern::matches_value(PyObject* value, size_t* at, Tensor** tensors) const {
  const PatternItem& item = items_[(*at)++];
  switch (item.kind) {
    case PatternItem::Tensor: {
      const auto number = static_cast<size_t>(item.count);
      if (Py_TYPE(value) != guards_[number].type) return false;
      tensors[number] = tensor_of(value);
      int32_t first = 0;
      while (tensors[first] != tensors[number]) ++first;
      return first == firsts_[number] && guards_[number].holds(tensors[number]);
    }
    case PatternItem::Same:
      return value == item.object.get();
    case PatternItem::Weak:
      return value == PyWeakref_GET_OBJECT(item.object.get());
    case PatternItem::Equal:
      return same_value(value, item.object.get());
    case PatternItem::Dict:
      return matches_dict(value, at, tensors);
    case PatternItem::Tuple:
    case PatternItem::List:
      break;
  }
  const bool tuple = item.kind == PatternItem::Tuple;
  if (tuple ? !PyTuple_CheckExact(value) : !PyList_CheckExact(value)) return false;
  if (PySequence_Fast_GET_SIZE(value) != item.count) return false;
  for (Py_ssize_t i = 0; i < item.count; ++i) {
    if (!matches_value(items_of(value)[i], at, tensors)) return false;
  }
  return true;
}

bool Pattern::matches(const Arguments& arguments, Tensor** tensors) const {
  if (arguments.positional != positional_ || !same_names(arguments.names, names_.get())) {
    return false;
  }
  size_t at = 0;
  for (Py_ssize_t i = 0; i < arguments.count(); ++i) {
    if (!matches_value(arguments.values[i], &at, tensors)) return false;
  }
  return true;
}

int Pattern::visit(visitproc visit, void* arg) const {
  for (const PatternItem& item : items_) Py_VISIT(item.object.get());
  return 0;
}

bool Pattern::dead() const {
  return std::any_of(items_.begin(), items_.end(), [](const PatternItem& item) {
    return item.kind == PatternItem::Weak && PyWeakref_GET_OBJECT(item.object.get()) == Py_None;
  });
}

}  // namespace fb
