// The Tensor type: life cycle, geometry, aliases. Attributes and methods are in
// tensor_attributes.cpp, operators in operators.cpp, Python values in interop.cpp.
//
// Tensors of the exact type are recycled through a free list and tracked by the cycle collector
// only once they can be part of a cycle (autograd state or a __dict__), so making one costs about
// as much as making a Python float.
#include "core.h"  // first: it includes Python.h, which structmember.h needs

// clang-format off
#include <structmember.h>
// clang-format on

#include <algorithm>
#include <new>

#include "call/override.h"
#include "tensor/tensor_internal.h"

namespace fb {

PyTypeObject* TensorType = nullptr;

namespace {

constexpr int kSpareTensors = 512;
PyObject* spare[kSpareTensors];
int spare_count = 0;

void autograd_release(Autograd* a) {
  drop(a->grad);
  drop(a->base);
  drop(a->hooks);
  drop(a->post_accumulate_hooks);
  drop(a->node);
  delete a;
}

void count_release(Tensor* t) {
  if (t->count && --t->count->references == 0) delete t->count;
  t->count = nullptr;
}

int tensor_traverse(PyObject* self, visitproc visit, void* arg) {
  Tensor* t = tensor_of(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(t->dict);
  if (t->autograd) {
    Py_VISIT(reinterpret_cast<PyObject*>(t->autograd->grad));
    Py_VISIT(reinterpret_cast<PyObject*>(t->autograd->base));
    Py_VISIT(reinterpret_cast<PyObject*>(t->autograd->node));
    Py_VISIT(t->autograd->hooks);
    Py_VISIT(t->autograd->post_accumulate_hooks);
  }
  return 0;
}

int tensor_clear(PyObject* self) {
  Tensor* t = tensor_of(self);
  drop(t->dict);
  Autograd* a = t->autograd;
  t->autograd = nullptr;
  if (a) autograd_release(a);
  return 0;
}

void tensor_dealloc(PyObject* self) {
  Tensor* t = tensor_of(self);
  const auto type = steal(Py_TYPE(self));
  PyObject_GC_UnTrack(self);
  if (t->weakrefs) PyObject_ClearWeakRefs(self);
  tensor_clear(self);
  count_release(t);
  if (t->dims && t->dims != t->inline_dims) PyMem_Free(t->dims);
  if (t->storage) storage_decref(t->storage);
  if (type.get() == TensorType && spare_count < kSpareTensors) {
    spare[spare_count++] = self;
  } else {
    type->tp_free(self);
  }
}

// A __dict__ can hold a reference back: from then on the collector has to look.
int tensor_setattro(PyObject* self, PyObject* name, PyObject* value) {
  const int status = PyObject_GenericSetAttr(self, name, value);
  if (tensor_of(self)->dict) tensor_track(tensor_of(self));
  return status;
}
PyObject* tensor_get_dict(PyObject* self, void*) {
  PyObject* dict = PyObject_GenericGetDict(self, nullptr);
  tensor_track(tensor_of(self));
  return dict;
}
int tensor_set_dict(PyObject* self, PyObject* value, void*) {
  const int status = PyObject_GenericSetDict(self, value, nullptr);
  tensor_track(tensor_of(self));
  return status;
}

// torch.Tensor(...), which old code uses often: the result of Python's definition, as an object of
// this class.
PyObject* tensor_legacy_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  PyObject* definition = operator_required(Operator::New);
  auto tensor = steal(definition ? PyObject_Call(definition, args, kwargs) : nullptr);
  if (!tensor || Py_TYPE(tensor.get()) == type) return tensor.release();
  return object_of(tensor_alias_as(type, tensor_of(tensor.get())));
}

PyMemberDef members[] = {
    {"__dictoffset__", T_PYSSIZET, offsetof(Tensor, dict), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Tensor, weakrefs), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};
PyGetSetDef dict_getset[] = {{"__dict__", tensor_get_dict, tensor_set_dict, nullptr, nullptr},
                             {nullptr, nullptr, nullptr, nullptr, nullptr}};

constexpr char kTensorDoc[] =
    "An array of one dtype on one device: a view (sizes, strides, offset) of a storage.\n\n"
    "Make one with torch.tensor, torch.zeros, torch.randn ...; the constructor itself gives\n"
    "uninitialised memory, or a copy of a sequence, in the default dtype.";

PyTypeObject* make_type() {
  std::vector<PyType_Slot> slots = {
      {Py_tp_doc, const_cast<char*>(kTensorDoc)},
      {Py_tp_dealloc, reinterpret_cast<void*>(tensor_dealloc)},
      {Py_tp_traverse, reinterpret_cast<void*>(tensor_traverse)},
      {Py_tp_clear, reinterpret_cast<void*>(tensor_clear)},
      {Py_tp_new, reinterpret_cast<void*>(tensor_legacy_new)},
      {Py_tp_setattro, reinterpret_cast<void*>(tensor_setattro)},
      {Py_tp_members, members},
      {Py_tp_getset, dict_getset},
  };
  slots.insert(slots.end(), operator_slots, operator_slots + operator_slot_count);
  slots.push_back({0, nullptr});
  PyType_Spec spec = {"flambeau.Tensor", sizeof(Tensor), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots.data()};
  return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
}

bool overflow_error(const char* op, int ndim, const int64_t* sizes) {
  std::string text;
  for (int i = 0; i < ndim; ++i) text += (i ? ", " : "") + std::to_string(sizes[i]);
  PyErr_Format(PyExc_RuntimeError,
               "[%s] Storage size calculation overflowed with sizes=[%s]\nhint: check the sizes",
               op, text.c_str());
  return false;
}

}  // namespace

bool is_tensor(PyObject* o) {
  return Py_TYPE(o) == TensorType || PyObject_TypeCheck(o, TensorType);
}

void tensor_track(Tensor* t) {
  auto* object = reinterpret_cast<PyObject*>(t);
  if (!PyObject_GC_IsTracked(object)) PyObject_GC_Track(object);
}

PyObject* tensor_alloc(PyTypeObject* type) {
  PyObject* object;
  if (type == TensorType && spare_count > 0) {
    object = spare[--spare_count];
    PyObject_Init(object, type);
  } else if (type == TensorType) {
    object = reinterpret_cast<PyObject*>(PyObject_GC_New(Tensor, type));
  } else {
    object = type->tp_alloc(type, 0);  // zeroed and tracked
  }
  if (!object) return nullptr;
  Tensor* t = tensor_of(object);
  t->storage = nullptr;
  t->dims = nullptr;
  t->autograd = nullptr;
  t->count = nullptr;
  t->value_id = -1;
  t->record_epoch = 0;
  t->dict = nullptr;
  t->weakrefs = nullptr;
  t->flags = type == TensorType ? 0 : kPythonType;
  return object;
}

bool tensor_fill(Tensor* t, Storage* storage, DType dtype, Device device, int ndim,
                 const int64_t* sizes, const int64_t* strides, int64_t offset) {
  // dense: the row-major stride, where a size of 0 counts as 1. A tensor without elements may have
  // sizes whose product does not fit.
  int64_t numel = 1, dense = 1;
  bool contiguous = true, fits = true;
  for (int i = ndim - 1; i >= 0; --i) {
    const int64_t size = sizes[i];
    contiguous = contiguous && (size == 1 || !strides || strides[i] == dense);
    fits = !__builtin_mul_overflow(dense, size > 0 ? size : 1, &dense) && fits;
    numel = size == 0 ? 0 : numel;
  }
  if (!fits && (numel != 0 || !strides)) {
    storage_decref(storage);
    PyErr_SetString(PyExc_RuntimeError,
                    "[tensor] numel: integer multiplication overflow\n"
                    "hint: the product of the sizes must fit in 64 bits");
    return false;
  }
  if (numel != 0) numel = dense;
  int64_t* dims = t->inline_dims;
  if (ndim > kInlineDims) {
    dims = static_cast<int64_t*>(PyMem_Malloc(sizeof(int64_t) * 2 * static_cast<size_t>(ndim)));
    if (!dims) {
      storage_decref(storage);
      PyErr_NoMemory();
      return false;
    }
  }
  if (t->dims && t->dims != t->inline_dims) PyMem_Free(t->dims);
  if (t->storage) storage_decref(t->storage);
  t->storage = storage;
  t->dtype = dtype;
  t->device = device;
  t->ndim = static_cast<uint8_t>(ndim);
  t->offset = offset;
  t->dims = dims;
  for (int64_t i = ndim - 1, stride = 1; i >= 0; --i) {
    dims[i] = sizes[i];
    dims[ndim + i] = strides ? strides[i] : stride;
    if (!strides) stride *= sizes[i] > 0 ? sizes[i] : 1;
  }
  t->numel = numel;
  if (contiguous || numel == 0) {
    t->flags |= kContiguous;
  } else {
    t->flags = static_cast<uint8_t>(t->flags & ~kContiguous);
  }
  return true;
}

Tensor* tensor_new(Storage* storage, DType dtype, Device device, int ndim, const int64_t* sizes,
                   const int64_t* strides, int64_t offset) {
  auto t = steal(tensor_of(tensor_alloc(TensorType)));
  if (!t) {
    storage_decref(storage);
    return nullptr;
  }
  if (!tensor_fill(t.get(), storage, dtype, device, ndim, sizes, strides, offset)) return nullptr;
  if (grad_mode.inference) t->flags |= kInference;
  return t.release();
}

int64_t checked_numel(int ndim, const int64_t* sizes) {
  int64_t numel = 1;
  bool overflow = false, empty = false;
  for (int i = 0; i < ndim; ++i) {
    if (sizes[i] < 0) {
      PyErr_Format(PyExc_RuntimeError,
                   "[empty] Trying to create tensor with negative dimension %lld\n"
                   "hint: sizes are zero or more",
                   static_cast<long long>(sizes[i]));
      return -1;
    }
    empty = empty || sizes[i] == 0;
    // A size of 0 does not end the count: the strides of an empty tensor must fit as well.
    overflow = overflow || __builtin_mul_overflow(numel, sizes[i] > 0 ? sizes[i] : 1, &numel);
  }
  if (overflow) {
    overflow_error("empty", ndim, sizes);
    return -1;
  }
  return empty ? 0 : numel;
}

bool check_sizes(const char* op, DType dtype, int ndim, const int64_t* sizes) {
  if (ndim > kMaxDims) {
    PyErr_Format(PyExc_RuntimeError,
                 "[%s] too many dimensions: got %d, the limit is %d\n"
                 "hint: merge some dimensions",
                 op, ndim, kMaxDims);
    return false;
  }
  const int64_t numel = checked_numel(ndim, sizes);
  int64_t bytes;
  if (numel < 0) return false;
  if (__builtin_mul_overflow(numel, item_size(dtype), &bytes)) {
    return overflow_error(op, ndim, sizes);
  }
  return true;
}

Tensor* tensor_empty(DType dtype, Device device, int ndim, const int64_t* sizes) {
  if (!check_sizes("empty", dtype, ndim, sizes)) return nullptr;
  int64_t numel = 1;
  for (int i = 0; i < ndim; ++i) numel *= sizes[i];
  Storage* storage = storage_new(numel * item_size(dtype), device);
  if (!storage) return nullptr;
  return tensor_new(storage, dtype, device, ndim, sizes, nullptr, 0);
}

int64_t required_bytes(const char* op, DType dtype, int ndim, const int64_t* sizes,
                       const int64_t* strides, int64_t offset) {
  if (!check_sizes(op, dtype, ndim, sizes)) return -1;
  if (offset < 0) {
    PyErr_Format(PyExc_RuntimeError,
                 "[%s] negative storage offset: %lld\nhint: offsets are zero or more", op,
                 static_cast<long long>(offset));
    return -1;
  }
  int64_t last = offset;
  bool overflow = false, empty = false;
  for (int i = 0; i < ndim; ++i) {
    if (strides[i] < 0) {
      PyErr_Format(PyExc_RuntimeError,
                   "[%s] Negative strides are not supported at the moment, got stride %lld at "
                   "dimension %d\nhint: use flip() to reverse a dimension",
                   op, static_cast<long long>(strides[i]), i);
      return -1;
    }
    int64_t reach = 0;
    if (sizes[i] == 0) empty = true;
    overflow = overflow ||
               __builtin_mul_overflow(std::max<int64_t>(sizes[i] - 1, 0), strides[i], &reach) ||
               __builtin_add_overflow(last, reach, &last);
  }
  if (empty) return 0;
  int64_t bytes;
  overflow = overflow || __builtin_add_overflow(last, 1, &last) ||
             __builtin_mul_overflow(last, item_size(dtype), &bytes);
  if (overflow) {
    overflow_error(op, ndim, sizes);
    return -1;
  }
  return bytes;
}

Tensor* tensor_alias(Tensor* source, DType dtype, int ndim, const int64_t* sizes,
                     const int64_t* strides, int64_t offset) {
  storage_incref(source->storage);
  Tensor* alias = tensor_new(source->storage, dtype, source->device, ndim, sizes, strides, offset);
  // A view created under inference mode is what its base is.
  if (!alias) return nullptr;
  alias->flags = static_cast<uint8_t>((alias->flags & ~kInference) | (source->flags & kInference));
  if (source->flags & kLazy && dtype == source->dtype) alias->flags |= source->flags & kLazy;
  tensor_share_count(alias, source);
  return alias;
}

void tensor_share_count(Tensor* t, const Tensor* source) {
  count_release(t);
  t->count = source->count;
  if (t->count) ++t->count->references;
}

bool tensor_count_on(Tensor* t, uint32_t version) {
  count_release(t);
  t->count = new (std::nothrow) WriteCount{1, version};
  if (!t->count) PyErr_NoMemory();
  return t->count != nullptr;
}

Tensor* tensor_alias_as(PyTypeObject* type, Tensor* source) {
  auto t = steal(tensor_of(tensor_alloc(type)));
  if (!t || !tensor_fill(t.get(), share(source->storage).release(), source->dtype, source->device,
                         source->ndim, source->sizes(), source->strides(), source->offset)) {
    return nullptr;
  }
  t->flags |= source->flags & (kInference | kLazy);
  tensor_share_count(t.get(), source);
  return t.release();
}

static PyObject* ask_dispatch(const char* function, Tensor* t) {
  return call_helper("flambeau.utils._python_dispatch", function, t);
}

static bool answers_below(const Tensor* t) {
  return (t->flags & kPythonType) &&
         dispatches(reinterpret_cast<PyObject*>(const_cast<Tensor*>(t)));
}

// Dispatch modes and types that answer for their data make the alias themselves, below gradients.
Tensor* tensor_detach_shown(Tensor* source) {
  if ((interceptors & kDispatchModes) || answers_below(source)) [[unlikely]] {
    return tensor_of(ask_dispatch("_detach", source));
  }
  return tensor_alias_as(TensorType, source);
}

PyObject* tensor_item_shown(Tensor* t) {
  if (interceptors & kDispatchModes) [[unlikely]] {
    return ask_dispatch("_item", t);
  }
  return tensor_item(t);
}

Tensor* tensor_detach(Tensor* source) {
  if (answers_below(source)) [[unlikely]] {
    return tensor_of(ask_dispatch("_detach", source));
  }
  return tensor_alias_as(TensorType, source);
}

PyObject* call_conjugate(const char* name, PyObject* object) {
  return call_helper("flambeau.ops.indexing.pending", name, object);
}

bool tensor_contiguous(const Tensor* t) { return (t->flags & kContiguous) != 0; }

bool tensor_materialise(Tensor* t, const char* reason) {
  Storage* storage = t->storage;
  if (active_recorder && record_learning()) [[unlikely]] {
    return record_flush(active_recorder, reason);  // refuses: guards say nothing about data
  }
  if (!storage->pending) return !storage->writer || record_flush(storage->writer, reason);
  if (storage->discarded) {
    PyErr_Format(
        PyExc_RuntimeError,
        "[%s] Trying to run Pytorch Eager Module after Dynamo Freezing. The original "
        "parameters have been discarded for memory efficiency.\nhint: a compiled function "
        "with freezing_discard_parameters=True owns them; it runs the programs that it has",
        reason);
    return false;
  }
  if (storage->recorder && !record_settle(storage, reason)) return false;
  if (!storage->pending) return true;
  PyErr_SetString(
      PyExc_RuntimeError,
      "[flush] a recorded tensor was not computed\nhint: the recording that owes it was "
      "dropped; compute the value inside the compiled region");
  return false;
}

bool settle_stream(const char* reason) {
  return !active_recorder || record_flush(active_recorder, reason);
}

Autograd* tensor_autograd(Tensor* t) {
  if (!t->autograd) {
    t->autograd = new (std::nothrow) Autograd();
    if (!t->autograd) {
      PyErr_NoMemory();
      return nullptr;
    }
    tensor_track(t);
  }
  return t->autograd;
}

// A view without history of its own needs a gradient when its base does.
bool tensor_requires_grad(const Tensor* t) {
  const Autograd* a = t->autograd;
  if (!a) return false;
  if (a->requires_grad || a->node) return true;
  const Autograd* base = a->base ? a->base->autograd : nullptr;
  return base && (base->requires_grad || base->node);
}

void tensor_bump_version(Tensor* t) {
  ++t->version();
  ++t->storage->writes;
}

bool init_tensor(PyObject* module) {
  TensorType = make_type();
  if (!TensorType) return false;
  for (PyMethodDef* methods : {attribute_methods, interop_methods, numpy_methods, dlpack_methods}) {
    if (!add_methods(methods)) return false;
  }
  return add_getset(attribute_getset) && init_operators(module) && init_size(module) &&
         init_untyped_storage(module) && init_shared_memory(module) &&
         PyModule_AddObjectRef(module, "Tensor", reinterpret_cast<PyObject*>(TensorType)) == 0;
}

}  // namespace fb
