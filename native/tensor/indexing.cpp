// Subscripts of integers, slices, None and Ellipsis, read without Python: `x[0]`, `x[:, 1:3]`.
//
// `_core.subscript(view, index, fill, copy, getitem, setitem)` makes the callable behind `x[key]`
// (two arguments) and `x[key] = value` (three). A basic key becomes a pattern and a tuple of
// numbers, already checked against the sizes, for the op `view` (`_basic_index` in
// flambeau/ops/indexing/indexing.py, which documents both); an int64 tensor goes to the op `index`.
// The ops `fill` and `copy` write numbers and tensors to the view. Any other key or value, and
// every error, goes to `getitem` and `setitem`, which are Python.
#include "tensor/indexing.h"

#include <structmember.h>

#include <string_view>
#include <unordered_map>

#include "runtime/traceback.h"
#include "tensor/tensor_internal.h"

namespace fb {
namespace {

struct Subscript {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* view;     // op: (tensor, pattern, numbers)
  PyObject* index;    // op: (tensor, [index tensor])
  PyObject* fill;     // op: (tensor, number)
  PyObject* copy;     // op: (tensor, tensor)
  PyObject* getitem;  // callable: (tensor, key)
  PyObject* setitem;  // callable: (tensor, key, value)
};
PyTypeObject* subscript_type;

// A key being read. Patterns are at most kMaxDims items: longer keys go to Python.
struct Reading {
  char pattern[2 * kMaxDims];
  int items = 0;
  int64_t numbers[3 * kMaxDims];
  int count = 0;
  int dim = 0;  // dimension of the tensor that the next item indexes
};

enum class Outcome { Basic, Other, Failed };

Outcome read_integer(const Tensor* t, PyObject* item, Reading* r) {
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(item, &overflow);
  if (overflow || r->dim >= t->ndim) return Outcome::Other;
  const int64_t size = t->sizes()[r->dim];
  if (value < -size || value >= size) return Outcome::Other;
  r->pattern[r->items++] = 'i';
  r->numbers[r->count++] = value < 0 ? value + size : value;
  ++r->dim;
  return Outcome::Basic;
}

bool plain_bound(PyObject* bound) { return bound == Py_None || PyLong_CheckExact(bound); }

Outcome read_slice(const Tensor* t, PyObject* item, Reading* r) {
  const auto* slice = reinterpret_cast<PySliceObject*>(item);
  if (r->dim >= t->ndim || !plain_bound(slice->start) || !plain_bound(slice->stop) ||
      !plain_bound(slice->step)) {
    return Outcome::Other;
  }
  Py_ssize_t start, stop, step;
  if (PySlice_Unpack(item, &start, &stop, &step) < 0) return Outcome::Failed;
  if (step <= 0) return Outcome::Other;
  const auto size = static_cast<Py_ssize_t>(t->sizes()[r->dim]);
  const Py_ssize_t length = PySlice_AdjustIndices(size, &start, &stop, step);
  ++r->dim;
  if (start == 0 && step == 1 && length == size) {
    r->pattern[r->items++] = ':';
    return Outcome::Basic;
  }
  r->pattern[r->items++] = 's';
  r->numbers[r->count++] = start;
  r->numbers[r->count++] = length;
  r->numbers[r->count++] = step;
  return Outcome::Basic;
}

Outcome read_item(const Tensor* t, PyObject* item, int skipped, Reading* r) {
  if (PyLong_CheckExact(item)) return read_integer(t, item, r);
  if (PySlice_Check(item)) return read_slice(t, item, r);
  if (item == Py_None) {
    r->pattern[r->items++] = 'n';
    return Outcome::Basic;
  }
  if (item != Py_Ellipsis) return Outcome::Other;
  for (int i = 0; i < skipped; ++i) r->pattern[r->items++] = ':';
  r->dim += skipped;
  return Outcome::Basic;
}

Outcome read_key(const Tensor* t, PyObject* key, Reading* r) {
  if (!PyTuple_CheckExact(key)) return read_item(t, key, t->ndim, r);
  const Py_ssize_t count = PyTuple_GET_SIZE(key);
  if (count > kMaxDims) return Outcome::Other;
  int used = 0, dots = 0;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* item = PyTuple_GET_ITEM(key, i);
    if (item == Py_Ellipsis) {
      ++dots;
    } else {
      used += item != Py_None;
    }
  }
  if (used > t->ndim || dots > 1) return Outcome::Other;
  for (Py_ssize_t i = 0; i < count; ++i) {
    const Outcome outcome = read_item(t, PyTuple_GET_ITEM(key, i), t->ndim - used, r);
    if (outcome != Outcome::Basic) return outcome;
  }
  return Outcome::Basic;
}

// The string object of a pattern, borrowed; few patterns occur in a program, all are cached.
PyObject* pattern_object(std::string_view text) {
  static auto& known = *new std::unordered_map<std::string, PyObject*>();
  static auto& last_text = *new std::string();
  static PyObject* last = nullptr;
  if (last && text == last_text) return last;
  auto found = known.find(std::string(text));
  if (found == known.end()) {
    PyObject* object =
        PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
    if (!object) return nullptr;
    found = known.emplace(std::string(text), object).first;
  }
  last_text = found->first;
  last = found->second;
  return last;
}

PyObject* view_of(Subscript* self, PyObject* tensor, Reading* r) {
  while (r->items > 0 && r->pattern[r->items - 1] == ':') --r->items;
  PyObject* pattern = pattern_object(std::string_view(r->pattern, static_cast<size_t>(r->items)));
  if (!pattern) return nullptr;
  const auto numbers = steal(int_tuple(r->numbers, r->count));
  if (!numbers) return nullptr;
  PyObject* args[3] = {tensor, pattern, numbers.get()};
  return op_call(self->view, args, 3);
}

bool is_index_tensor(PyObject* key) {
  const auto* t = reinterpret_cast<Tensor*>(key);
  return is_exact_tensor(key) && t->dtype == DType::I64 && t->ndim > 0;
}
PyObject* indexed(Subscript* self, PyObject* tensor, PyObject* key) {
  const auto list = steal(PyTuple_Pack(1, key));
  if (!list) return nullptr;
  PyObject* args[2] = {tensor, list.get()};
  return op_call(self->index, args, 2);
}

// Writes to the view of a basic key; null without exception when Python must do it.
PyObject* assigned(Subscript* self, PyObject* tensor, Reading* r, PyObject* value) {
  const bool number = PyFloat_CheckExact(value) || PyLong_CheckExact(value) || PyBool_Check(value);
  if (!number && !is_exact_tensor(value)) return nullptr;
  const auto part = steal(tensor_of(view_of(self, tensor, r)));
  if (!part || (!number && tensor_of(value)->ndim > part->ndim)) return nullptr;
  PyObject* args[2] = {object_of(part), value};
  return op_call(number ? self->fill : self->copy, args, 2);
}

PyObject* subscript_call(PyObject* callable, PyObject* const* args, size_t flags, PyObject* names) {
  auto* self = reinterpret_cast<Subscript*>(callable);
  const Py_ssize_t count = PyVectorcall_NARGS(flags);
  PyObject* other = count == 3 ? self->setitem : self->getitem;
  if (count >= 2 && !names && is_tensor(args[0])) {
    if (count == 2 && is_index_tensor(args[1])) return indexed(self, args[0], args[1]);
    Reading reading;
    const Outcome outcome = read_key(reinterpret_cast<Tensor*>(args[0]), args[1], &reading);
    if (outcome == Outcome::Failed) return nullptr;
    if (outcome == Outcome::Basic) {
      PyObject* result = count == 2 ? view_of(self, args[0], &reading)
                                    : assigned(self, args[0], &reading, args[2]);
      if (result || PyErr_Occurred() || count == 2) return result;
    }
  }
  PyObject* result = PyObject_Vectorcall(other, args, static_cast<size_t>(count), names);
  if (!result) hide_internals();
  return result;
}

void subscript_dealloc(PyObject* object) {
  auto* self = reinterpret_cast<Subscript*>(object);
  for (PyObject** slot :
       {&self->view, &self->index, &self->fill, &self->copy, &self->getitem, &self->setitem}) {
    drop(*slot);
  }
  free_instance(object);
}
PyMemberDef subscript_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Subscript, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};
PyType_Slot subscript_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(subscript_dealloc)},
                                 {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                                 {Py_tp_members, subscript_members},
                                 {0, nullptr}};
PyType_Spec subscript_spec = {
    "flambeau.subscript", sizeof(Subscript), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    subscript_slots};

PyObject* make_subscript(PyObject*, PyObject* args) {
  PyObject *view, *index, *fill, *copy, *getitem, *setitem;
  if (!PyArg_ParseTuple(args, "O!O!O!O!OO", OpType, &view, OpType, &index, OpType, &fill, OpType,
                        &copy, &getitem, &setitem)) {
    return nullptr;
  }
  auto* self = reinterpret_cast<Subscript*>(subscript_type->tp_alloc(subscript_type, 0));
  if (!self) return nullptr;
  self->vectorcall = subscript_call;
  self->view = Py_NewRef(view);
  self->index = Py_NewRef(index);
  self->fill = Py_NewRef(fill);
  self->copy = Py_NewRef(copy);
  self->getitem = Py_NewRef(getitem);
  self->setitem = Py_NewRef(setitem);
  return reinterpret_cast<PyObject*>(self);
}

// `x.unsqueeze_(0)`: x becomes what `x.unsqueeze(0)` is, in memory and in the autograd graph. That
// counts as a write, except where a new object replaces the other one (a fake tensor).
PyObject* tensor_take_over(PyObject*, PyObject* args) {
  PyObject *target_object, *source_object;
  int written = 1;
  if (!PyArg_ParseTuple(args, "O!O!|p", TensorType, &target_object, TensorType, &source_object,
                        &written)) {
    return nullptr;
  }
  auto* target = reinterpret_cast<Tensor*>(target_object);
  auto* source = reinterpret_cast<Tensor*>(source_object);
  if (!settle_stream("an in-place change of shape") || !tape_check_inplace(target)) return nullptr;
  target->value_id = -1;
  if (written) tensor_bump_version(target);
  Autograd* from = source->autograd;
  if (from && from->node) {
    Autograd* to = tensor_autograd(target);
    if (!to) return nullptr;
    to->output_index = from->output_index;
    to->view_version = target->version();
    assign(to->node, share(from->node));
  }
  storage_incref(source->storage);
  if (!tensor_fill(target, source->storage, source->dtype, source->device, source->ndim,
                   source->sizes(), source->strides(), source->offset)) {
    return nullptr;
  }
  return Py_NewRef(target_object);
}

// A hollow result becomes the one that was computed for it, in memory and in the autograd graph,
// whatever it was before. `source` stays as it is: its node may have saved it.
PyObject* tensor_become(PyObject*, PyObject* args) {
  PyObject *target_object, *source_object;
  if (!PyArg_ParseTuple(args, "O!O!", TensorType, &target_object, TensorType, &source_object)) {
    return nullptr;
  }
  auto* target = reinterpret_cast<Tensor*>(target_object);
  auto* source = reinterpret_cast<Tensor*>(source_object);
  if (active_recorder && !tensor_materialise(source, "a result of a backend")) return nullptr;
  Autograd* to = tensor_autograd(target);
  if (!to) return nullptr;
  storage_incref(source->storage);
  if (!tensor_fill(target, source->storage, source->dtype, source->device, source->ndim,
                   source->sizes(), source->strides(), source->offset)) {
    return nullptr;
  }
  constexpr uint8_t copied = kInference | kIsView | kLazy;
  target->flags = static_cast<uint8_t>((target->flags & ~copied) | (source->flags & copied));
  if (is_exact_tensor(target_object)) target->flags &= static_cast<uint8_t>(~kPythonType);
  tensor_share_count(target, source);
  const Autograd none, *from = source->autograd ? source->autograd : &none;
  auto node = share(from->node);
  auto base = share(from->base);
  std::swap(to->node, *node.slot());  // what was there goes at the end
  std::swap(to->base, *base.slot());
  to->output_index = from->output_index;
  to->requires_grad = from->requires_grad;
  to->view_version = from->view_version;
  to->view_creation = from->view_creation;
  Py_RETURN_NONE;
}

PyMethodDef functions[] = {
    {"subscript", make_subscript, METH_VARARGS,
     "subscript(view, index, fill, copy, getitem, setitem): what x[key] and x[key] = v call."},
    {"tensor_take_over", tensor_take_over, METH_VARARGS,
     "tensor_take_over(tensor, other, written=True): the tensor becomes what `other` is."},
    {"tensor_become", tensor_become, METH_VARARGS,
     "tensor_become(tensor, other): the tensor becomes what `other` is, with its history."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

bool init_indexing(PyObject* module) {
  subscript_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&subscript_spec));
  return subscript_type && PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace fb
