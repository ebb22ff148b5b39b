// Python values and tensors: scalars, nested sequences, lists, raw bytes. NumPy and the buffer
// protocol are in numpy.cpp, DLPack in dlpack.cpp, half conversions in elements.cpp.
#include <algorithm>

#include "call/lists.h"
#include "core.h"
#include "device/devices.h"
#include "tensor/tensor_internal.h"

namespace fb {
namespace {

// ---------------------------------------------------------------- nested data -> tensor
struct Shape {
  int ndim = 0;
  int64_t sizes[kMaxDims];
};

bool is_text(PyObject* o) { return PyUnicode_Check(o) || PyBytes_Check(o); }
bool is_scalar(PyObject* o) {
  return PyFloat_Check(o) || PyLong_Check(o) || PyComplex_Check(o) || is_registered_scalar(o);
}
// Lists, tuples, ranges, bytearrays, arrays, user-defined sequences.
bool is_sequence(PyObject* o) {
  if (PyList_Check(o) || PyTuple_Check(o)) return true;
  return !is_scalar(o) && !is_text(o) && !PyDict_Check(o) && PySequence_Check(o);
}

// The shape along the first elements; consistency is checked while the data is read.
bool find_shape(const char* op, PyObject* data, Shape* shape) {
  auto at = share(data);
  while (is_sequence(at.get()) && !is_tensor(at.get()) && !is_numpy_scalar(at.get())) {
    const Py_ssize_t count = PySequence_Size(at.get());
    if (count < 0 && numpy_array(at.get())) {  // a 0-dim array has no len()
      PyErr_Clear();
      break;
    }
    if (count >= 0 && shape->ndim == kMaxDims) {
      PyErr_Format(PyExc_ValueError,
                   "[%s] too many dimensions: the limit is %d\nhint: a list inside itself?", op,
                   kMaxDims);
      return false;
    }
    if (count < 0) return false;
    shape->sizes[shape->ndim++] = count;
    if (count == 0) break;
    at = steal(PySequence_GetItem(at.get(), 0));
    if (!at) return false;
  }
  if (shape->ndim == 0 || !is_text(at.get())) return true;
  PyErr_Format(PyExc_ValueError, "[%s] too many dimensions '%s'\nhint: pass numbers", op,
               Py_TYPE(at.get())->tp_name);
  return false;
}

bool cannot_infer(const char* op, PyObject* object) {
  if (is_text(object)) {
    PyErr_Format(PyExc_TypeError, "[%s] new(): invalid data type '%s'\nhint: pass numbers", op,
                 Py_TYPE(object)->tp_name);
  } else {
    PyErr_Format(PyExc_RuntimeError, "[%s] Could not infer dtype of %s\nhint: pass numbers", op,
                 Py_TYPE(object)->tp_name);
  }
  return false;
}

bool infer_dtype(const char* op, PyObject* o, DType* out, int depth) {
  if (PyBool_Check(o)) return *out = DType::Bool, true;
  if (PyLong_Check(o)) return *out = DType::I64, true;
  if (PyFloat_CheckExact(o)) return *out = default_dtype(), true;
  if (is_tensor(o)) return *out = tensor_of(o)->dtype, true;
  if (is_numpy_scalar(o) || numpy_array(o)) return numpy_dtype_of(op, o, out);
  if (PyFloat_Check(o)) return *out = default_dtype(), true;
  if (PyComplex_Check(o)) return *out = to_complex(default_dtype()), true;
  if (is_registered_scalar(o)) return *out = DType::I64, true;
  if (!is_sequence(o)) return cannot_infer(op, o);
  if (depth >= kMaxDims) {
    PyErr_Format(PyExc_ValueError,
                 "[%s] too many dimensions: the limit is %d\n"
                 "hint: a list inside itself?",
                 op, kMaxDims);
    return false;
  }
  const auto items = steal(PySequence_Fast(o, "not a sequence"));
  if (!items) return false;
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(items.get());
  DType result = default_dtype();
  for (Py_ssize_t i = 0; i < count; ++i) {
    DType item;
    if (!infer_dtype(op, PySequence_Fast_GET_ITEM(items.get(), i), &item, depth + 1)) return false;
    result = i == 0 ? item : promote_types(result, item);
  }
  *out = result;
  return true;
}

struct Reader {
  const char* op;
  DType dtype;
  const Shape* shape;
  char* at;
  int64_t step;

  bool leaf(PyObject* o) {
    if (is_sequence(o) && !is_tensor(o) && !is_numpy_scalar(o) && !numpy_array(o)) {
      PyErr_Format(PyExc_TypeError,
                   "[%s] '%s' object cannot be interpreted as a number: some items are sequences, "
                   "others are not\nhint: all items of a list need the same shape",
                   op, Py_TYPE(o)->tp_name);
      return false;
    }
    if (!store_scalar(at, dtype, o)) return false;
    at += step;
    return true;
  }

  bool read(PyObject* o, int dim) {
    if (dim == shape->ndim) return leaf(o);
    if (!is_sequence(o)) {
      PyErr_Format(PyExc_TypeError,
                   "[%s] not a sequence: expected %lld items at dim %d (got %s)\n"
                   "hint: all items of a list need the same shape",
                   op, static_cast<long long>(shape->sizes[dim]), dim, Py_TYPE(o)->tp_name);
      return false;
    }
    const auto items = steal(PySequence_Fast(o, "not a sequence"));
    if (!items) return false;
    const Py_ssize_t count = PySequence_Fast_GET_SIZE(items.get());
    if (count != shape->sizes[dim]) {
      PyErr_Format(PyExc_ValueError,
                   "[%s] expected sequence of length %lld at dim %d (got %zd)\n"
                   "hint: all items of a list need the same shape",
                   op, static_cast<long long>(shape->sizes[dim]), dim, count);
      return false;
    }
    // The size is read again each time: converting an item may run code that changes the list.
    for (Py_ssize_t i = 0; i < count; ++i) {
      if (i >= PySequence_Fast_GET_SIZE(items.get())) {
        PyErr_Format(PyExc_RuntimeError, "[%s] the list changed while it was read", op);
        return false;
      }
      const auto item = share(PySequence_Fast_GET_ITEM(items.get(), i));
      if (!read(item.get(), dim + 1)) return false;
    }
    return true;
  }
};

// A copy in row-major order, converted to `dtype`.
Tensor* copy_converted(Tensor* source, DType dtype) {
  if (!tensor_materialise(source, "tensor(tensor)")) return nullptr;
  auto result = steal(tensor_empty(dtype, source->device, source->ndim, source->sizes()));
  if (!result || !has_memory(source->device)) return result.release();
  if (!on_host(source->device)) return copy_cast(result.get(), source) ? result.release() : nullptr;
  char* to = result->data();
  const int64_t step = item_size(dtype);
  if (dtype == source->dtype) {
    copy_block(to, source->data(), step, block_of(source, result->strides(), source->strides()));
    return result.release();
  }
  bool good = true;
  for_each_element(source, [&](const char* from) {
    good = good && convert_element(to, dtype, from, source->dtype);
    to += step;
  });
  return good ? result.release() : nullptr;
}

PyObject* list_of(const Tensor* t, int dim, const char* at) {
  if (dim == t->ndim) return load_scalar(at, t->dtype);
  // A stride that nobody walks along may be any number.
  const bool walked = t->numel != 0 && t->sizes()[dim] > 1;
  const int64_t step = walked ? t->strides()[dim] * item_size(t->dtype) : 0;
  return build_list(static_cast<size_t>(t->sizes()[dim]), [&](size_t i) {
    return list_of(t, dim + 1, at + static_cast<int64_t>(i) * step);
  });
}

// ---------------------------------------------------------------- methods
PyObject* method_item(PyObject* self, PyObject*) {
  Tensor* t = tensor_of(self);
  if (t->numel != 1) {
    PyErr_Format(PyExc_RuntimeError,
                 "[item] a Tensor with %lld elements cannot be converted to Scalar\n"
                 "hint: use tolist(), or reduce it first",
                 static_cast<long long>(t->numel));
    return nullptr;
  }
  return tensor_item_shown(t);
}
PyObject* method_tolist(PyObject* self, PyObject*) { return tensor_to_list(tensor_of(self)); }
PyObject* method_complex(PyObject* self, PyObject*) {
  if (tensor_of(self)->numel != 1) {
    PyErr_Format(PyExc_ValueError,
                 "[complex] only one element tensors can be converted to Python scalars: this one "
                 "has %lld\nhint: use tolist()",
                 static_cast<long long>(tensor_of(self)->numel));
    return nullptr;
  }
  const auto value = steal(tensor_item_shown(tensor_of(self)));
  if (!value) return nullptr;
  const Py_complex number = PyComplex_AsCComplex(value.get());
  return PyErr_Occurred() ? nullptr : PyComplex_FromCComplex(number);
}

// ---------------------------------------------------------------- module functions
bool optional_dtype(PyObject* object, DType* value, const DType** out) {
  *out = nullptr;
  if (!object || object == Py_None) return true;
  *out = value;
  return dtype_from_object(object, value);
}
bool finish_requires_grad(Tensor** t, int requires_grad) {
  if (!*t || !requires_grad) return *t != nullptr;
  if (steal(PyObject_CallMethod(object_of(*t), "requires_grad_", nullptr))) return true;
  drop(*t);
  return false;
}

PyObject* py_tensor_from_python(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"data", "dtype", "requires_grad", nullptr};
  PyObject *data, *dtype_argument = nullptr;
  int requires_grad = 0;
  DType dtype;
  const DType* wanted;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|Op", const_cast<char**>(names), &data,
                                   &dtype_argument, &requires_grad) ||
      !optional_dtype(dtype_argument, &dtype, &wanted)) {
    return nullptr;
  }
  Tensor* t = tensor_from_python("tensor", data, wanted);
  finish_requires_grad(&t, requires_grad);
  return object_of(t);
}

// Parses (dtype, device) with the defaults of new tensors.
bool options(PyObject* dtype_argument, PyObject* device_argument, DType* dtype, Device* device) {
  *dtype = default_dtype();
  *device = default_device();
  if (dtype_argument && dtype_argument != Py_None && !dtype_from_object(dtype_argument, dtype)) {
    return false;
  }
  return !device_argument || device_argument == Py_None ||
         device_from_object(device_argument, device);
}
PyObject* py_tensor_empty(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"sizes", "dtype", "device", nullptr};
  PyObject *sizes_argument, *dtype_argument = nullptr, *device_argument = nullptr;
  DType dtype;
  Device device;
  int64_t sizes[kMaxDims];
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OO", const_cast<char**>(names), &sizes_argument,
                                   &dtype_argument, &device_argument) ||
      !options(dtype_argument, device_argument, &dtype, &device)) {
    return nullptr;
  }
  const int ndim = parse_sizes("empty", sizes_argument, sizes);
  return ndim < 0 ? nullptr : object_of(tensor_empty(dtype, device, ndim, sizes));
}

bool parse_geometry(const char* op, PyObject* sizes_argument, PyObject* strides_argument, int* ndim,
                    int64_t* sizes, int64_t* strides) {
  *ndim = parse_sizes(op, sizes_argument, sizes);
  const int count = *ndim < 0 ? -1 : parse_sizes(op, strides_argument, strides);
  if (count < 0) return false;
  if (count == *ndim) return true;
  PyErr_Format(PyExc_RuntimeError,
               "[%s] mismatch in length of strides and shape: %d strides, %d sizes\n"
               "hint: one stride for each size",
               op, count, *ndim);
  return false;
}
PyObject* py_tensor_empty_strided(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"sizes", "strides", "dtype", "device", nullptr};
  PyObject *sizes_argument, *strides_argument, *dtype_argument = nullptr,
                                               *device_argument = nullptr;
  DType dtype;
  Device device;
  int64_t sizes[kMaxDims], strides[kMaxDims];
  int ndim;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|OO", const_cast<char**>(names),
                                   &sizes_argument, &strides_argument, &dtype_argument,
                                   &device_argument) ||
      !options(dtype_argument, device_argument, &dtype, &device) ||
      !parse_geometry("empty_strided", sizes_argument, strides_argument, &ndim, sizes, strides)) {
    return nullptr;
  }
  const int64_t bytes = required_bytes("empty_strided", dtype, ndim, sizes, strides, 0);
  Storage* storage = bytes < 0 ? nullptr : storage_new(bytes, device);
  if (!storage) return nullptr;
  return object_of(tensor_new(storage, dtype, device, ndim, sizes, strides, 0));
}

bool fits(const char* op, const Storage* storage, DType dtype, int ndim, const int64_t* sizes,
          const int64_t* strides, int64_t offset) {
  const int64_t bytes = required_bytes(op, dtype, ndim, sizes, strides, offset);
  if (bytes < 0) return false;
  if (bytes <= storage->nbytes) return true;
  PyErr_Format(PyExc_RuntimeError,
               "[%s] sizes, strides and storage offset %lld, and itemsize %lld requiring a storage "
               "size of %lld are out of bounds for storage of size %lld\n"
               "hint: the view must stay inside the memory of its tensor",
               op, static_cast<long long>(offset), static_cast<long long>(item_size(dtype)),
               static_cast<long long>(bytes), static_cast<long long>(storage->nbytes));
  return false;
}
PyObject* py_tensor_alias(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"tensor", "sizes", "strides", "offset", nullptr};
  PyObject *source, *sizes_argument, *strides_argument, *offset_argument = Py_None;
  int64_t sizes[kMaxDims], strides[kMaxDims];
  int ndim;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!OO|O", const_cast<char**>(names), TensorType,
                                   &source, &sizes_argument, &strides_argument, &offset_argument) ||
      !parse_geometry("as_strided", sizes_argument, strides_argument, &ndim, sizes, strides)) {
    return nullptr;
  }
  Tensor* t = tensor_of(source);
  int64_t offset = t->offset;
  if (offset_argument != Py_None) {
    offset = PyLong_AsLongLong(offset_argument);
    if (offset == -1 && PyErr_Occurred()) return nullptr;
  }
  if (!fits("as_strided", t->storage, t->dtype, ndim, sizes, strides, offset)) return nullptr;
  Tensor* alias = tensor_alias(t, t->dtype, ndim, sizes, strides, offset);
  if (alias) alias->flags |= kIsView;
  return object_of(alias);
}
PyObject* py_tensor_from_storage(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"storage", "dtype", "sizes", "strides", "offset", nullptr};
  PyObject *storage_argument, *dtype_argument, *sizes_argument, *strides_argument;
  long long offset = 0;
  int64_t sizes[kMaxDims], strides[kMaxDims];
  int ndim;
  DType dtype;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOO|L", const_cast<char**>(names),
                                   &storage_argument, &dtype_argument, &sizes_argument,
                                   &strides_argument, &offset) ||
      !dtype_from_object(dtype_argument, &dtype) ||
      !parse_geometry("tensor_from_storage", sizes_argument, strides_argument, &ndim, sizes,
                      strides)) {
    return nullptr;
  }
  Storage* storage = untyped_storage_target(storage_argument);
  if (!storage || !fits("tensor_from_storage", storage, dtype, ndim, sizes, strides, offset)) {
    return nullptr;
  }
  storage_incref(storage);
  return object_of(tensor_new(storage, dtype, storage->device, ndim, sizes, strides, offset));
}
// t.set_(): the tensor looks at other memory from now on.
PyObject* py_tensor_set(PyObject*, PyObject* args) {
  PyObject *tensor, *storage_argument, *sizes_argument, *strides_argument, *offset_argument;
  int64_t offset;
  int64_t sizes[kMaxDims], strides[kMaxDims];
  int ndim;
  if (!PyArg_ParseTuple(args, "O!OOOO", TensorType, &tensor, &storage_argument, &sizes_argument,
                        &strides_argument, &offset_argument) ||
      !parse_int64("set_", offset_argument, &offset) ||
      !parse_geometry("set_", sizes_argument, strides_argument, &ndim, sizes, strides)) {
    return nullptr;
  }
  Tensor* t = tensor_of(tensor);
  Storage* storage = untyped_storage_target(storage_argument);
  if (!storage || !settle_stream("set_") ||
      !fits("set_", storage, t->dtype, ndim, sizes, strides, offset)) {
    return nullptr;
  }
  if (storage->device.kind != t->device.kind) {
    PyErr_SetString(PyExc_RuntimeError,
                    "[set_] Attempted to set the storage of a tensor to a storage on a different "
                    "device\nhint: move one of them with .to(device) first");
    return nullptr;
  }
  if (storage == t->storage) {
    tensor_bump_version(t);
  } else if (!tensor_count_on(t, t->version() + 1)) {
    return nullptr;
  }
  storage_incref(storage);
  t->value_id = -1;
  if (!tensor_fill(t, storage, t->dtype, storage->device, ndim, sizes, strides, offset)) {
    return nullptr;
  }
  return Py_NewRef(tensor);
}

// Marks the exception of a data-dependent query: its attribute `asked_by` names the operator of
// PyTorch's inner library, which is always the same for reads of numbers.
void mark_as_no_data() {
  PendingError error;
  const auto name = steal(PyUnicode_FromString("_local_scalar_dense"));
  if (!name || PyObject_SetAttrString(error.value(), "asked_by", name.get()) < 0) PyErr_Clear();
  error.restore();
}

bool has_data(const char* op, Tensor* t) {
  if (!tensor_materialise(t, op)) return false;
  if (t->numel == 0 || t->storage->data) return true;
  PyErr_Format(PyExc_NotImplementedError,
               "[%s] the tensor has no data: it is on device %s\nhint: make it on cpu", op,
               runtime_of(t->device).name);
  mark_as_no_data();
  return false;
}
PyObject* py_tensor_bytes(PyObject*, PyObject* argument) {
  if (!is_tensor(argument)) {
    PyErr_Format(PyExc_TypeError, "[tensor_bytes] expected a tensor: got %s",
                 Py_TYPE(argument)->tp_name);
    return nullptr;
  }
  Tensor* t = tensor_of(argument);
  if (!has_data("tensor_bytes", t)) return nullptr;
  if (!on_host(t->device)) {
    const auto copy = steal(tensor_placed(t, Device{}, "tensor_bytes"));
    return copy ? py_tensor_bytes(nullptr, object_of(copy)) : nullptr;
  }
  const int64_t step = item_size(t->dtype);
  PyObject* bytes = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(t->numel * step));
  if (!bytes || t->numel == 0) return bytes;
  char* to = PyBytes_AS_STRING(bytes);
  if (tensor_contiguous(t)) {
    std::memcpy(to, t->data(), static_cast<size_t>(t->numel * step));
  } else {
    for_each_element(t, [&](const char* from) {
      std::memcpy(to, from, static_cast<size_t>(step));
      to += step;
    });
  }
  return bytes;
}
PyObject* py_tensor_fill_bytes(PyObject*, PyObject* args) {
  PyObject* tensor;
  Py_buffer view;
  if (!PyArg_ParseTuple(args, "O!y*", TensorType, &tensor, &view)) return nullptr;
  Tensor* t = tensor_of(tensor);
  const int64_t step = item_size(t->dtype);
  bool good =
      record_settle_reads(t->storage, "tensor_fill_bytes") && has_data("tensor_fill_bytes", t);
  if (good && view.len != t->numel * step) {
    PyErr_Format(
        PyExc_ValueError,
        "[tensor_fill_bytes] the tensor has %lld bytes: got %zd\nhint: check dtype and shape",
        static_cast<long long>(t->numel * step), view.len);
    good = false;
  }
  if (good && t->numel > 0) {
    const char* from = static_cast<const char*>(view.buf);
    if (tensor_contiguous(t)) {
      std::memcpy(t->data(), from, static_cast<size_t>(view.len));
    } else {
      for_each_element(t, [&](char* to) {
        std::memcpy(to, from, static_cast<size_t>(step));
        from += step;
      });
    }
    tensor_bump_version(t);
  }
  PyBuffer_Release(&view);
  return good ? Py_NewRef(tensor) : nullptr;
}

PyCFunction with_keywords(PyObject* (*function)(PyObject*, PyObject*, PyObject*)) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(function));
}
constexpr int kKeywords = METH_VARARGS | METH_KEYWORDS;
PyMethodDef functions[] = {
    {"tensor_from_python", with_keywords(py_tensor_from_python), kKeywords,
     "tensor_from_python(data, dtype=None, requires_grad=False): a copy of any data."},
    {"tensor_empty", with_keywords(py_tensor_empty), kKeywords,
     "tensor_empty(sizes, dtype=None, device=None): uninitialised."},
    {"tensor_empty_strided", with_keywords(py_tensor_empty_strided), kKeywords,
     "tensor_empty_strided(sizes, strides, dtype=None, device=None): uninitialised."},
    {"tensor_alias", with_keywords(py_tensor_alias), kKeywords,
     "tensor_alias(tensor, sizes, strides, offset=None): bounds-checked as_strided, no autograd."},
    {"tensor_from_storage", with_keywords(py_tensor_from_storage), kKeywords,
     "tensor_from_storage(storage, dtype, sizes, strides, offset=0)."},
    {"tensor_set", py_tensor_set, METH_VARARGS,
     "tensor_set(tensor, storage, sizes, strides, offset)."},
    {"tensor_bytes", py_tensor_bytes, METH_O, "The elements in row-major order, as bytes."},
    {"tensor_fill_bytes", py_tensor_fill_bytes, METH_VARARGS,
     "tensor_fill_bytes(tensor, bytes): the reverse of tensor_bytes."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

PyMethodDef interop_methods[] = {
    {"item", method_item, METH_NOARGS, "The only element as a Python number."},
    {"tolist", method_tolist, METH_NOARGS, "Nested lists of Python numbers."},
    {"__complex__", method_complex, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr}};

namespace {

// The function of a tensor's values, of a view of conjugates: of its resolved copy.
template <typename F>
auto of_resolved(Tensor* t, F function) -> decltype(function(t)) {
  const auto copy = steal(tensor_of(call_conjugate("resolved", object_of(t))));
  return copy ? function(copy.get()) : nullptr;
}

// The function of a copy of the tensor in host memory.
template <typename F>
auto of_host_copy(Tensor* t, const char* op, F function) -> decltype(function(t)) {
  const auto copy = steal(tensor_placed(t, Device{}, op));
  return copy ? function(copy.get()) : nullptr;
}

}  // namespace

PyObject* tensor_item(Tensor* t) {
  if (t->flags & kLazy) [[unlikely]] {
    return of_resolved(t, tensor_item);
  }
  if (!on_host(t->device)) {
    if (has_memory(t->device)) return of_host_copy(t, "item()", tensor_item);
    PyErr_SetString(PyExc_RuntimeError,
                    "[item] Tensor.item() cannot be called on meta tensors\n"
                    "hint: a meta tensor has a shape but no values");
    mark_as_no_data();
    return nullptr;
  }
  if (!tensor_materialise(t, "item()")) return nullptr;
  return load_scalar(t->data(), t->dtype);
}

PyObject* tensor_to_list(Tensor* t) {
  if (t->flags & kLazy) [[unlikely]] {
    return of_resolved(t, tensor_to_list);
  }
  if (!has_data("tolist", t)) return nullptr;
  if (!on_host(t->device)) return of_host_copy(t, "tolist()", tensor_to_list);
  return list_of(t, 0, t->numel == 0 ? nullptr : t->data());
}

Tensor* tensor_from_python(const char* op, PyObject* data, const DType* dtype) {
  if (is_tensor(data)) {
    if (tensor_of(data)->flags & kLazy) [[unlikely]] {
      return of_resolved(tensor_of(data), [&](Tensor* copy) {
        return tensor_from_python(op, reinterpret_cast<PyObject*>(copy), dtype);
      });
    }
    return copy_converted(tensor_of(data), dtype ? *dtype : tensor_of(data)->dtype);
  }
  if (numpy_array(data)) {
    const auto shared = steal(tensor_from_numpy(op, data));
    return shared ? copy_converted(shared.get(), dtype ? *dtype : shared->dtype) : nullptr;
  }
  if (is_text(data)) return cannot_infer(op, data), nullptr;
  Shape shape;
  DType type;
  if (!find_shape(op, data, &shape)) return nullptr;
  if (dtype) {
    type = *dtype;
  } else if (!infer_dtype(op, data, &type, 0)) {
    return nullptr;
  }
  auto t = steal(tensor_empty(type, Device{}, shape.ndim, shape.sizes));
  if (!t) return nullptr;
  Reader reader{op, type, &shape, t->numel > 0 ? t->data() : nullptr, item_size(type)};
  return reader.read(data, 0) ? t.release() : nullptr;
}

bool init_interop(PyObject* module) {
  return PyModule_AddFunctions(module, functions) == 0 && init_numpy(module) && init_dlpack(module);
}

}  // namespace fb
