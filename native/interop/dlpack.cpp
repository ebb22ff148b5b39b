// DLPack: exchange of memory with other array libraries, without a copy and without knowing them.
// The structures below are the ABI of https://dmlc.github.io/dlpack/latest/ (version 1), which
// every library declares for itself; version 0 capsules are read and written too.
#include <new>

#include "core.h"
#include "device/devices.h"
#include "tensor/tensor_internal.h"

namespace fb {
namespace {

struct DLDevice {
  int32_t device_type;
  int32_t device_id;
};
struct DLDataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};
struct DLManagedTensor {
  DLTensor tensor;
  void* context;
  void (*deleter)(DLManagedTensor*);
};
struct DLManagedTensorVersioned {
  uint32_t major, minor;
  void* context;
  void (*deleter)(DLManagedTensorVersioned*);
  uint64_t flags;
  DLTensor tensor;
};
constexpr int kCpu = 1;
constexpr uint64_t kReadOnly = 1, kCopied = 2;
constexpr const char* kName = "dltensor";
constexpr const char* kUsedName = "used_dltensor";
constexpr const char* kVersionedName = "dltensor_versioned";
constexpr const char* kUsedVersionedName = "used_dltensor_versioned";

DLDataType to_dl(DType t) {
  const auto bits = static_cast<uint8_t>(8 * item_size(t));
  if (t == DType::E2M1FNX2) return {dtype_info(t).dlpack_code, 4, 2};
  return {dtype_info(t).dlpack_code, bits, 1};
}
bool from_dl(DLDataType d, DType* out) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const DLDataType candidate = to_dl(static_cast<DType>(i));
    if (d.lanes == candidate.lanes && candidate.code == d.code && candidate.bits == d.bits) {
      *out = static_cast<DType>(i);
      return true;
    }
  }
  PyErr_Format(PyExc_BufferError,
               "[from_dlpack] unsupported element type: code %d, %d bits, %d lanes\n"
               "hint: convert it in the other library first",
               int{d.code}, int{d.bits}, int{d.lanes});
  return false;
}

// ---------------------------------------------------------------- export
struct Exported {
  Storage* storage;  // owned
  int64_t dims[2 * kMaxDims];
  DLManagedTensor plain;
  DLManagedTensorVersioned versioned;
};

// The consumer may call the deleter from any thread, without the GIL.
void release_exported(Exported* exported) {
  const PyGILState_STATE state = PyGILState_Ensure();
  storage_take_back(exported->storage, true);
  storage_decref(exported->storage);
  PyGILState_Release(state);
  delete exported;
}
void delete_plain(DLManagedTensor* managed) {
  release_exported(static_cast<Exported*>(managed->context));
}
void delete_versioned(DLManagedTensorVersioned* managed) {
  release_exported(static_cast<Exported*>(managed->context));
}

// A capsule that nobody consumed still owns its tensor.
void capsule_destructor(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, kName)) {
    auto* m = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, kName));
    m->deleter(m);
  } else if (PyCapsule_IsValid(capsule, kVersionedName)) {
    auto* m = static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(capsule, kVersionedName));
    m->deleter(m);
  }
}

PyObject* export_capsule(Tensor* t, bool versioned, bool copied) {
  if (!storage_export(t->storage, "__dlpack__")) return nullptr;
  auto* exported = new (std::nothrow) Exported();
  if (!exported) return PyErr_NoMemory();
  std::memcpy(exported->dims, t->dims, sizeof(int64_t) * 2 * t->ndim);
  for (int i = 0; i < t->ndim; ++i) {  // consumers expect a plain stride where it cannot matter
    if (t->sizes()[i] == 1) exported->dims[t->ndim + i] = 1;
  }
  const DLTensor tensor = {t->storage->data ? t->data() : nullptr,
                           {kCpu, 0},
                           t->ndim,
                           to_dl(t->dtype),
                           exported->dims,
                           exported->dims + t->ndim,
                           0};
  exported->plain = {tensor, exported, delete_plain};
  exported->versioned = {1, 0, exported, delete_versioned, copied ? kCopied : 0, tensor};
  void* pointer =
      versioned ? static_cast<void*>(&exported->versioned) : static_cast<void*>(&exported->plain);
  PyObject* capsule =
      PyCapsule_New(pointer, versioned ? kVersionedName : kName, capsule_destructor);
  if (!capsule) {
    storage_take_back(t->storage, false);
    delete exported;
    return nullptr;
  }
  storage_incref(t->storage);
  exported->storage = t->storage;
  return capsule;
}

bool exportable(Tensor* t) {
  if (tensor_requires_grad(t)) {
    PyErr_SetString(PyExc_BufferError,
                    "[__dlpack__] Can't export tensors that require gradient, use tensor.detach()\n"
                    "hint: x.detach().__dlpack__()");
    return false;
  }
  if (t->flags & kLazy) {
    PyErr_SetString(PyExc_BufferError,
                    "[__dlpack__] Can't export tensors with the conjugate bit set\n"
                    "hint: x.resolve_conj().__dlpack__()");
    return false;
  }
  if (!on_host(t->device)) {
    PyErr_SetString(PyExc_BufferError,
                    has_memory(t->device)
                        ? "[__dlpack__] DLPack has no number for the device\nhint: tensor.cpu()"
                        : "[__dlpack__] a meta tensor has no data to export\n"
                          "hint: make it on cpu");
    return false;
  }
  return tensor_materialise(t, "__dlpack__");
}

bool check_device(PyObject* device) {
  if (device == Py_None) return true;
  int type, index;
  if (!PyArg_ParseTuple(device, "ii", &type, &index)) return false;
  if (type == kCpu && index == 0) return true;
  PyErr_Format(PyExc_BufferError,
               "[__dlpack__] cannot export a cpu tensor to device (%d, %d)\nhint: copy it there",
               type, index);
  return false;
}

PyObject* method_dlpack(PyObject* self, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"stream", "max_version", "dl_device", "copy", nullptr};
  PyObject *stream = Py_None, *max_version = Py_None, *device = Py_None, *copy = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOO", const_cast<char**>(names), &stream,
                                   &max_version, &device, &copy)) {
    return nullptr;
  }
  Tensor* t = tensor_of(self);
  if (stream != Py_None && !(PyLong_Check(stream) && PyLong_AsLong(stream) == -1)) {
    PyErr_SetString(PyExc_BufferError,
                    "[__dlpack__] stream must be None on cpu\nhint: leave it out");
    return nullptr;
  }
  if (!exportable(t) || !check_device(device)) return nullptr;
  bool versioned = false;
  if (max_version != Py_None) {
    int major, minor;
    if (!PyArg_ParseTuple(max_version, "ii", &major, &minor)) return nullptr;
    versioned = major >= 1;
  }
  if (copy != Py_True) return export_capsule(t, versioned, false);
  const auto duplicate = steal(tensor_from_python("__dlpack__", self, nullptr));
  return duplicate ? export_capsule(duplicate.get(), versioned, true) : nullptr;
}
PyObject* method_dlpack_device(PyObject* self, PyObject*) {
  if (!on_host(tensor_of(self)->device)) {
    PyErr_SetString(
        PyExc_ValueError,
        "[__dlpack_device__] DLPack knows no meta device\nhint: make the tensor on cpu");
    return nullptr;
  }
  return Py_BuildValue("(ii)", kCpu, 0);
}

// ---------------------------------------------------------------- import
void release_plain(void* context) {
  auto* m = static_cast<DLManagedTensor*>(context);
  if (m->deleter) m->deleter(m);
}
void release_versioned(void* context) {
  auto* m = static_cast<DLManagedTensorVersioned*>(context);
  if (m->deleter) m->deleter(m);
}

bool describe(const DLTensor& source, DType* dtype, int64_t* strides, int64_t* bytes) {
  if (source.device.device_type != kCpu) {
    PyErr_Format(PyExc_BufferError,
                 "[from_dlpack] the data is on device type %d, only cpu (1) can be read\n"
                 "hint: copy it to the host in the other library",
                 source.device.device_type);
    return false;
  }
  if (source.ndim < 0 || source.ndim > kMaxDims) {
    PyErr_Format(PyExc_BufferError,
                 "[from_dlpack] %d dimensions: the limit is %d\n"
                 "hint: merge some dimensions",
                 source.ndim, kMaxDims);
    return false;
  }
  if (!from_dl(source.dtype, dtype) ||
      !check_sizes("from_dlpack", *dtype, source.ndim, source.shape)) {
    return false;
  }
  int64_t dense = 1;
  for (int i = source.ndim - 1; i >= 0; --i) {
    strides[i] = source.strides ? source.strides[i] : dense;
    if (source.shape[i] <= 1 && strides[i] < 0) strides[i] = dense;
    dense *= source.shape[i] > 0 ? source.shape[i] : 1;
  }
  *bytes = required_bytes("from_dlpack", *dtype, source.ndim, source.shape, strides, 0);
  return *bytes >= 0;
}

PyObject* import_capsule(PyObject* capsule) {
  const bool versioned = PyCapsule_IsValid(capsule, kVersionedName);
  if (!versioned && !PyCapsule_IsValid(capsule, kName)) {
    PyErr_SetString(PyExc_RuntimeError,
                    "[from_dlpack] expected an unused DLPack capsule: a capsule can be read once\n"
                    "hint: call __dlpack__() again");
    return nullptr;
  }
  void* pointer = PyCapsule_GetPointer(capsule, versioned ? kVersionedName : kName);
  auto* modern = static_cast<DLManagedTensorVersioned*>(pointer);
  if (versioned && modern->major > 1) {
    PyErr_Format(PyExc_BufferError,
                 "[from_dlpack] DLPack version %u.%u is newer than the supported 1.x\n"
                 "hint: ask for max_version=(1, 0)",
                 modern->major, modern->minor);
    return nullptr;
  }
  const DLTensor source =
      versioned ? modern->tensor : static_cast<DLManagedTensor*>(pointer)->tensor;
  if (versioned && (modern->flags & kReadOnly) &&
      PyErr_WarnEx(PyExc_UserWarning,
                   "The given DLPack tensor is not writable, and flambeau does not support "
                   "non-writable tensors. Writing to this tensor is undefined behaviour.",
                   1) < 0) {
    return nullptr;
  }
  DType dtype;
  int64_t strides[kMaxDims], bytes;
  if (!describe(source, &dtype, strides, &bytes)) return nullptr;
  Storage* storage = storage_foreign(static_cast<char*>(source.data) + source.byte_offset, bytes,
                                     versioned ? release_versioned : release_plain, pointer);
  if (!storage) return nullptr;
  // From here on the storage owns the producer's tensor; the capsule must not free it.
  if (PyCapsule_SetName(capsule, versioned ? kUsedVersionedName : kUsedName) < 0) {
    storage->release = nullptr;
    storage->data = nullptr;
    storage_decref(storage);
    return nullptr;
  }
  return reinterpret_cast<PyObject*>(
      tensor_new(storage, dtype, Device{}, source.ndim, source.shape, strides, 0));
}

PyObject* request_capsule(PyObject* object, PyObject* copy) {
  const auto method = steal(PyObject_GetAttrString(object, "__dlpack__"));
  if (!method) {
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError,
                 "[from_dlpack] '%s' object has no __dlpack__ method\nhint: use tensor_of()",
                 Py_TYPE(object)->tp_name);
    return nullptr;
  }
  const auto kwargs = steal(Py_BuildValue("{s:(ii)}", "max_version", 1, 0));
  if (!kwargs) return nullptr;
  if (copy != Py_None && PyDict_SetItemString(kwargs.get(), "copy", copy) < 0) return nullptr;
  PyObject* capsule = PyObject_VectorcallDict(method.get(), nullptr, 0, kwargs.get());
  if (!capsule && copy == Py_None && PyErr_ExceptionMatches(PyExc_TypeError)) {
    PyErr_Clear();  // a producer of before version 1 takes no max_version
    capsule = PyObject_CallNoArgs(method.get());
  }
  return capsule;
}

PyObject* py_from_dlpack(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"ext_tensor", "device", "copy", nullptr};
  PyObject *object, *device_argument = Py_None, *copy = Py_None;
  Device device;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$OO", const_cast<char**>(names), &object,
                                   &device_argument, &copy) ||
      (device_argument != Py_None && !device_from_object(device_argument, &device))) {
    return nullptr;
  }
  if (PyCapsule_CheckExact(object)) return import_capsule(object);
  const auto capsule = steal(request_capsule(object, copy));
  return capsule ? import_capsule(capsule.get()) : nullptr;
}
PyObject* py_to_dlpack(PyObject*, PyObject* tensor) {
  if (!is_tensor(tensor)) {
    PyErr_Format(PyExc_TypeError, "[to_dlpack] expected a tensor: got %s\nhint: tensor(data)",
                 Py_TYPE(tensor)->tp_name);
    return nullptr;
  }
  return exportable(tensor_of(tensor)) ? export_capsule(tensor_of(tensor), false, false) : nullptr;
}

PyCFunction with_keywords(PyObject* (*function)(PyObject*, PyObject*, PyObject*)) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(function));
}
PyMethodDef functions[] = {
    {"from_dlpack", with_keywords(py_from_dlpack), METH_VARARGS | METH_KEYWORDS,
     "from_dlpack(ext_tensor, *, device=None, copy=None): shares the memory."},
    {"to_dlpack", py_to_dlpack, METH_O, "to_dlpack(tensor) -> capsule of version 0."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

PyMethodDef dlpack_methods[] = {
    {"__dlpack__", with_keywords(method_dlpack), METH_VARARGS | METH_KEYWORDS, nullptr},
    {"__dlpack_device__", method_dlpack_device, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr}};

bool init_dlpack(PyObject* module) { return PyModule_AddFunctions(module, functions) == 0; }

}  // namespace fb
