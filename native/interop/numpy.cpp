// NumPy arrays and buffers, sharing memory both ways. Built without NumPy's headers: arrays arrive
// through the buffer protocol and leave as numpy.ndarray(buffer=storage), so the package neither
// needs NumPy nor depends on its binary interface. NumPy is imported only by `Tensor.numpy()`.
#include <algorithm>

#include "core.h"
#include "device/devices.h"
#include "tensor/tensor_internal.h"

namespace fb {
namespace {

// An attribute of the numpy module if the program has imported it; borrowed from a cache.
PyTypeObject* numpy_type(const char* name, PyTypeObject** cache) {
  if (*cache) return *cache;
  static PyObject* key = PyUnicode_InternFromString("numpy");
  PyObject* numpy = key ? PyDict_GetItemWithError(PyImport_GetModuleDict(), key) : nullptr;
  if (!numpy) return nullptr;
  auto type = steal(PyObject_GetAttrString(numpy, name));
  if (!type || !PyType_Check(type.get())) {  // a half-initialised module has no such attribute yet
    PyErr_Clear();
    return nullptr;
  }
  *cache = reinterpret_cast<PyTypeObject*>(type.release());
  return *cache;
}
PyTypeObject* ndarray_cache;
PyTypeObject* generic_cache;

// The array-protocol type string without its byte order.
const char* numpy_name(DType dtype) { return dtype_info(dtype).array_type; }

void release_buffer(void* context) {
  auto* view = static_cast<Py_buffer*>(context);
  PyBuffer_Release(view);
  delete view;
}

bool check_strides(const char* op, const Py_buffer* view) {
  const char* problem = nullptr;
  for (int i = 0; i < view->ndim; ++i) {
    if (view->strides && view->strides[i] < 0) {
      problem =
          "At least one stride in the given numpy array is negative, and tensors with "
          "negative strides are not currently supported. (You can probably work around this "
          "by making a copy of your array with array.copy().)";
    } else if (view->strides && view->strides[i] % view->itemsize != 0) {
      problem =
          "given numpy array strides not a multiple of the element byte size. Copy the numpy "
          "array to reallocate the memory.";
    }
  }
  if (reinterpret_cast<uintptr_t>(view->buf) %
              static_cast<uintptr_t>(view->itemsize > 8 ? 8 : view->itemsize) !=
          0 &&
      view->len > 0) {
    problem = "the data of the given numpy array is not aligned to its element size.";
  }
  if (!problem) return true;
  PyErr_Format(PyExc_ValueError, "[%s] %s\nhint: pass array.copy()", op, problem);
  return false;
}

// ---------------------------------------------------------------- out to NumPy
PyObject* numpy_module() {
  static PyObject* numpy;
  if (!numpy) numpy = PyImport_ImportModule("numpy");
  if (!numpy && PyErr_ExceptionMatches(PyExc_ImportError)) {
    PyErr_Clear();
    PyErr_SetString(PyExc_RuntimeError,
                    "[numpy] Numpy is not available\nhint: install numpy, or use tolist()");
  }
  return numpy;
}

bool exportable(Tensor* t, bool force) {
  if (tensor_requires_grad(t) && !force) {
    PyErr_SetString(PyExc_RuntimeError,
                    "[numpy] Can't call numpy() on Tensor that requires grad. Use "
                    "tensor.detach().numpy() instead.\nhint: or numpy(force=True)");
    return false;
  }
  if (!has_memory(t->device)) {
    PyErr_SetString(PyExc_TypeError,
                    "[numpy] can't convert a meta tensor to numpy: it has no data\n"
                    "hint: make the tensor on cpu");
    return false;
  }
  if (!on_host(t->device)) {
    PyErr_Format(
        PyExc_TypeError,
        "[numpy] can't convert %s:%d device type tensor to numpy. Use Tensor.cpu() to copy "
        "the tensor to host memory first.\nhint: tensor.cpu().numpy()",
        runtime_of(t->device).name, int{t->device.index});
    return false;
  }
  if (!numpy_name(t->dtype)) {
    PyErr_Format(
        PyExc_TypeError,
        "[numpy] Got unsupported ScalarType %s\nhint: NumPy has no such dtype; use float()",
        dtype_info(t->dtype).title);
    return false;
  }
  return tensor_materialise(t, "numpy()");
}

PyObject* to_numpy(Tensor* t, bool force) {
  if (t->flags & kLazy) [[unlikely]] {
    if (!force) {
      const bool conjugate = t->flags & kConjugate;
      PyErr_Format(PyExc_RuntimeError,
                   "[numpy] Can't call numpy() on Tensor that has %s bit set.\n"
                   "hint: use tensor.resolve_%s().numpy() instead",
                   conjugate ? "conjugate" : "negative", conjugate ? "conj" : "neg");
      return nullptr;
    }
    const auto copy = steal(tensor_of(call_conjugate("resolved", object_of(t))));
    return copy ? to_numpy(copy.get(), true) : nullptr;
  }
  if (!exportable(t, force)) return nullptr;
  PyObject* numpy = numpy_module();
  if (!numpy) return nullptr;
  const int64_t item = item_size(t->dtype);
  const auto shape = steal(int_tuple(t->sizes(), t->ndim));
  if (!shape) return nullptr;
  if (t->numel == 0) {  // no memory to share
    return PyObject_CallMethod(numpy, "empty", "Os", shape.get(), numpy_name(t->dtype));
  }
  const auto strides = steal(
      build_tuple(t->ndim, [&](size_t i) { return PyLong_FromLongLong(t->strides()[i] * item); }));
  const auto owner = steal(strides ? untyped_storage(t->storage) : nullptr);
  if (!owner) return nullptr;
  return PyObject_CallMethod(numpy, "ndarray", "OsOLO", shape.get(), numpy_name(t->dtype),
                             owner.get(), static_cast<long long>(t->offset * item), strides.get());
}

PyObject* method_numpy(PyObject* self, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"force", nullptr};
  int force = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$p", const_cast<char**>(names), &force)) {
    return nullptr;
  }
  return to_numpy(tensor_of(self), force != 0);
}
PyObject* method_array(PyObject* self, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"dtype", "copy", nullptr};
  PyObject *dtype = Py_None, *copy = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OO", const_cast<char**>(names), &dtype, &copy)) {
    return nullptr;
  }
  PyObject* array = to_numpy(tensor_of(self), false);
  if (array && dtype != Py_None) {  // positional: dtype, order, casting, subok, copy
    PyObject* converted =
        PyObject_CallMethod(array, "astype", "OssOO", dtype, "K", "unsafe", Py_True, Py_False);
    Py_SETREF(array, converted);
  }
  if (array && copy == Py_True) Py_SETREF(array, PyObject_CallMethod(array, "copy", nullptr));
  return array;
}

// ---------------------------------------------------------------- module functions
PyObject* py_from_numpy(PyObject*, PyObject* array) {
  if (!numpy_array(array)) {
    PyErr_Format(PyExc_TypeError, "[from_numpy] expected np.ndarray (got %s)\nhint: use tensor()",
                 Py_TYPE(array)->tp_name);
    return nullptr;
  }
  return object_of(tensor_from_numpy("from_numpy", array));
}

bool check_range(Py_ssize_t length, int64_t item, long long count, long long offset) {
  if (length == 0 || count == 0) {
    PyErr_Format(PyExc_ValueError,
                 "[frombuffer] both buffer length (%zd) and count (%lld) must not be 0\n"
                 "hint: use empty(0)",
                 length, count);
  } else if (offset < 0 || offset >= length) {
    PyErr_Format(PyExc_ValueError,
                 "[frombuffer] offset (%lld bytes) must be non-negative and no greater than buffer "
                 "length (%zd bytes) minus 1\nhint: offset counts bytes",
                 offset, length);
  } else if (count < 0 && (length - offset) % item != 0) {
    PyErr_Format(
        PyExc_ValueError,
        "[frombuffer] buffer length (%zd bytes) after offset (%lld bytes) must be a multiple "
        "of element size (%lld)\nhint: pass count",
        length, offset, static_cast<long long>(item));
  } else if (count > 0 && count > (length - offset) / item) {
    PyErr_Format(
        PyExc_ValueError,
        "[frombuffer] requested buffer length (%lld * %lld bytes) after offset (%lld bytes) "
        "must not be greater than actual buffer length (%zd bytes)\nhint: lower count",
        count, static_cast<long long>(item), offset, length);
  } else {
    return true;
  }
  return false;
}

PyObject* py_frombuffer(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"buffer", "dtype", "count", "offset", "requires_grad", nullptr};
  PyObject *buffer, *dtype_argument = nullptr, *number = nullptr, *start = nullptr;
  int64_t count = -1, offset = 0;
  int requires_grad = 0;
  DType dtype;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$OOOp", const_cast<char**>(names), &buffer,
                                   &dtype_argument, &number, &start, &requires_grad) ||
      (number && !parse_int64("frombuffer", number, &count)) ||
      (start && !parse_int64("frombuffer", start, &offset))) {
    return nullptr;
  }
  if (!dtype_argument) {
    PyErr_SetString(PyExc_TypeError,
                    "[frombuffer] missing required keyword argument 'dtype'\n"
                    "hint: frombuffer(data, dtype=torch.uint8)");
    return nullptr;
  }
  if (!dtype_from_object(dtype_argument, &dtype)) return nullptr;
  auto view = std::make_unique<Py_buffer>();
  if (PyObject_GetBuffer(buffer, view.get(), PyBUF_SIMPLE) < 0) {
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) return nullptr;
    PyErr_Clear();
    PyErr_Format(PyExc_ValueError,
                 "[frombuffer] could not retrieve buffer from object: '%s' does not implement the "
                 "Python buffer protocol.\nhint: pass bytes, bytearray, memoryview or mmap",
                 Py_TYPE(buffer)->tp_name);
    return nullptr;
  }
  const int64_t item = item_size(dtype);
  bool good = check_range(view->len, item, count, offset);
  if (good && view->readonly &&
      PyErr_WarnEx(PyExc_UserWarning,
                   "The given buffer is not writable, and flambeau does not support non-writable "
                   "tensors. Writing to this tensor is undefined behaviour: copy the buffer first.",
                   1) < 0) {
    good = false;
  }
  char* data = static_cast<char*>(view->buf) + offset;
  if (good &&
      reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(item > 8 ? 8 : item) != 0) {
    PyErr_Format(PyExc_ValueError,
                 "[frombuffer] the data at offset %lld is not aligned for %s\n"
                 "hint: copy the bytes that follow the offset",
                 offset, dtype_name(dtype));
    good = false;
  }
  if (!good) {
    PyBuffer_Release(view.get());
    return nullptr;
  }
  const int64_t size = count > 0 ? count : (view->len - offset) / item;
  Storage* storage = storage_foreign(data, size * item, release_buffer, view.get());
  if (!storage) {
    PyBuffer_Release(view.get());
    return nullptr;
  }
  static_cast<void>(view.release());
  auto result = steal(object_of(tensor_new(storage, dtype, Device{}, 1, &size, nullptr, 0)));
  if (result && requires_grad &&
      !steal(PyObject_CallMethod(result.get(), "requires_grad_", nullptr))) {
    return nullptr;
  }
  return result.release();
}

// Shares memory where it can: the same tensor, or the memory of an array.
PyObject* py_as_tensor(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"data", "dtype", nullptr};
  PyObject *data, *dtype_argument = Py_None;
  DType dtype = DType::F32;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O", const_cast<char**>(names), &data,
                                   &dtype_argument)) {
    return nullptr;
  }
  const bool wanted = dtype_argument != Py_None;
  if (wanted && !dtype_from_object(dtype_argument, &dtype)) return nullptr;
  if (is_tensor(data)) {
    if (!wanted || tensor_of(data)->dtype == dtype) return Py_NewRef(data);
    PyObject* convert = operator_object(Operator::ToDType);  // preserves the autograd history
    if (convert) return PyObject_CallFunctionObjArgs(convert, data, dtype_argument, nullptr);
  } else if (numpy_array(data)) {
    auto shared = steal(tensor_from_numpy("as_tensor", data));
    if (!shared || !wanted || shared->dtype == dtype) return object_of(shared.release());
  }
  return object_of(tensor_from_python("as_tensor", data, wanted ? &dtype : nullptr));
}

PyCFunction with_keywords(PyObject* (*function)(PyObject*, PyObject*, PyObject*)) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(function));
}
PyMethodDef functions[] = {
    {"from_numpy", py_from_numpy, METH_O, "from_numpy(array): a tensor that shares its memory."},
    {"frombuffer", with_keywords(py_frombuffer), METH_VARARGS | METH_KEYWORDS,
     "frombuffer(buffer, *, dtype, count=-1, offset=0, requires_grad=False): shares the memory."},
    {"as_tensor", with_keywords(py_as_tensor), METH_VARARGS | METH_KEYWORDS,
     "tensor_of(data, dtype=None): shares memory with tensors and arrays of that dtype."},
    {nullptr, nullptr, 0, nullptr}};

// Whether nobody but the buffer `view` can reach its memory.
bool reached_alone(const Py_buffer* view) {
  PyObject* object = view->obj;
  if (object && PyBytes_CheckExact(object)) return true;  // nobody can write to it
  if (!object || Py_REFCNT(object) != 1) return false;
  if (PyByteArray_CheckExact(object)) return true;
  if (Py_TYPE(object) != numpy_type("ndarray", &ndarray_cache)) return false;
  const auto base = steal(PyObject_GetAttrString(object, "base"));
  if (!base) PyErr_Clear();
  return base.get() == Py_None;
}

}  // namespace

bool buffer_alone(const Storage* storage) {
  return storage->release == release_buffer &&
         reached_alone(static_cast<Py_buffer*>(storage->release_context));
}

PyMethodDef numpy_methods[] = {
    {"numpy", with_keywords(method_numpy), METH_VARARGS | METH_KEYWORDS,
     "numpy(*, force=False) -> ndarray that shares the memory."},
    {"__array__", with_keywords(method_array), METH_VARARGS | METH_KEYWORDS, nullptr},
    {nullptr, nullptr, 0, nullptr}};

bool numpy_array(PyObject* object) {
  PyTypeObject* type = numpy_type("ndarray", &ndarray_cache);
  return type && PyObject_TypeCheck(object, type);
}
bool is_numpy_scalar(PyObject* object) {
  PyTypeObject* type = numpy_type("generic", &generic_cache);
  return type && PyObject_TypeCheck(object, type);
}

bool numpy_dtype_of(const char* op, PyObject* object, DType* out) {
  const auto dtype = steal(PyObject_GetAttrString(object, "dtype"));
  const auto text = steal(dtype ? PyObject_GetAttrString(dtype.get(), "str") : nullptr);
  const char* name = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  if (!name) return false;
  const auto* info = std::find_if(kDTypes, kDTypes + kDTypeCount, [name](const DTypeInfo& i) {
    return i.array_type && std::strcmp(name + 1, i.array_type) == 0;
  });
  if (info == kDTypes + kDTypeCount) {
    PyErr_Format(PyExc_TypeError,
                 "[%s] can't convert np.ndarray of type %S. The only supported types are: float64, "
                 "float32, float16, complex64, complex128, int64, int32, int16, int8, uint8, and "
                 "bool.\nhint: convert with array.astype",
                 op, dtype.get());
    return false;
  }
  *out = static_cast<DType>(info - kDTypes);
  if (name[0] != '>') return true;
  PyErr_Format(PyExc_ValueError,
               "[%s] given numpy array has byte order different from the native byte order. "
               "Conversion between byte orders is currently not supported.\n"
               "hint: array.astype(array.dtype.newbyteorder('='))",
               op);
  return false;
}

Tensor* tensor_from_numpy(const char* op, PyObject* array) {
  DType dtype;
  if (!numpy_dtype_of(op, array, &dtype)) return nullptr;
  auto view = std::make_unique<Py_buffer>();
  if (PyObject_GetBuffer(array, view.get(), PyBUF_STRIDES | PyBUF_FORMAT) < 0) return nullptr;
  bool good = check_strides(op, view.get());
  if (good && view->readonly && std::strcmp(op, "tensor") != 0 &&
      PyErr_WarnEx(PyExc_UserWarning,
                   "The given NumPy array is not writable, and flambeau does not support "
                   "non-writable tensors. Writing to this tensor is undefined behaviour: copy the "
                   "array first.",
                   1) < 0) {
    good = false;
  }
  if (good && view->ndim > kMaxDims) {
    PyErr_Format(PyExc_ValueError, "[%s] too many dimensions: the limit is %d", op, kMaxDims);
    good = false;
  }
  int64_t sizes[kMaxDims], strides[kMaxDims], bytes = -1;
  if (good) {
    for (int i = 0; i < view->ndim; ++i) {
      sizes[i] = view->shape[i];
      strides[i] = view->strides[i] / view->itemsize;
    }
    bytes = required_bytes(op, dtype, view->ndim, sizes, strides, 0);
  }
  Storage* storage =
      bytes < 0 ? nullptr : storage_foreign(view->buf, bytes, release_buffer, view.get());
  if (!storage) {
    PyBuffer_Release(view.get());
    return nullptr;
  }
  const int ndim = view.release()->ndim;
  return tensor_new(storage, dtype, Device{}, ndim, sizes, strides, 0);
}

bool init_numpy(PyObject* module) { return PyModule_AddFunctions(module, functions) == 0; }

}  // namespace fb
