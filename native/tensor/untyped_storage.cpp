// `UntypedStorage`: the Python face of a Storage. It exports the buffer protocol, which is how
// NumPy arrays and memoryviews share a tensor's memory and own a reference to it.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <string>
#include <unordered_map>

#include "core.h"
#include "device/devices.h"
#include "tensor/tensor_internal.h"

namespace fb {
namespace {

struct StorageObject {
  PyObject_HEAD Storage* storage;  // owned
  bool lent;                       // a buffer was exported, which owns this object
};
PyTypeObject* storage_type;
Storage* target(PyObject* self) { return reinterpret_cast<StorageObject*>(self)->storage; }

// One Python object per storage while it lives, so that pickle sees that two views share memory.
std::unordered_map<Storage*, PyObject*>& faces() {
  static auto* map = new std::unordered_map<Storage*, PyObject*>();
  return *map;
}

void dealloc(PyObject* self) {
  if (target(self)) {
    faces().erase(target(self));
    storage_take_back(target(self), reinterpret_cast<StorageObject*>(self)->lent);
    storage_decref(target(self));
  }
  free_instance(self);
}

PyObject* wrap(Storage* stolen) {
  auto storage = steal(stolen);
  if (!storage) return nullptr;
  auto found = faces().find(stolen);
  if (found != faces().end()) return Py_NewRef(found->second);
  PyObject* self = storage_type->tp_alloc(storage_type, 0);
  if (!self) return nullptr;
  faces().emplace(stolen, self);
  ++storage->exports;
  reinterpret_cast<StorageObject*>(self)->storage = storage.release();
  return self;
}

// The low byte of an int; false (with the exception set) where the object is none.
bool byte_from_object(PyObject* value, const char* where, unsigned char* byte) {
  if (!PyLong_Check(value)) {
    PyErr_Format(PyExc_RuntimeError, "[%s] bytes are set by an int: got %s\nhint: 0 to 255", where,
                 Py_TYPE(value)->tp_name);
    return false;
  }
  int overflow;
  const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
  if (overflow) {
    PyErr_SetString(PyExc_OverflowError, "[storage] the int does not fit\nhint: 0 to 255");
    return false;
  }
  *byte = static_cast<unsigned char>(number);
  return true;
}

PyObject* storage_from_sequence(PyObject* values) {
  if (!PySequence_Check(values) || is_tensor(values)) {
    PyErr_Format(PyExc_RuntimeError,
                 "[UntypedStorage] Expected a sequence type, but got %s\nhint: a size, or ints",
                 Py_TYPE(values)->tp_name);
    return nullptr;
  }
  const auto items = steal(PySequence_Fast(values, "[UntypedStorage] Expected a sequence"));
  if (!items) return nullptr;
  auto storage = steal(storage_new(PySequence_Fast_GET_SIZE(items.get()), Device{}));
  for (int64_t i = 0; storage && i < storage->nbytes; ++i) {
    auto* byte = static_cast<unsigned char*>(storage->data) + i;
    PyObject* item = PySequence_Fast_GET_ITEM(items.get(), i);
    if (!byte_from_object(item, "UntypedStorage", byte)) return nullptr;
  }
  return wrap(storage.release());
}

PyObject* storage_python_new(PyTypeObject*, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"size", "device", nullptr};
  PyObject* size = nullptr;
  PyObject* device_argument = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O$O", const_cast<char**>(names), &size,
                                   &device_argument)) {
    return nullptr;
  }
  if (size && (!PyIndex_Check(size) || is_tensor(size))) return storage_from_sequence(size);
  const Py_ssize_t nbytes = size ? PyNumber_AsSsize_t(size, PyExc_OverflowError) : 0;
  if (nbytes == -1 && PyErr_Occurred()) return nullptr;
  Device device;
  if (device_argument && device_argument != Py_None &&
      !device_from_object(device_argument, &device)) {
    return nullptr;
  }
  return wrap(storage_new(nbytes, device));
}

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  static char nothing;  // consumers expect an address even for zero bytes
  Storage* s = target(self);
  if (s->pending) {
    PyErr_SetString(PyExc_BufferError,
                    "[buffer] the data is not computed yet\nhint: read it first");
    return -1;
  }
  if (s->nbytes > 0 && !s->data) {
    PyErr_SetString(PyExc_BufferError, "[buffer] this storage has no data\nhint: it is on meta");
    return -1;
  }
  if (!on_host(s->device)) {
    PyErr_SetString(PyExc_BufferError, "[buffer] the bytes are on a device\nhint: storage.cpu()");
    return -1;
  }
  s->resizable = false;  // the consumer has the address from now on
  reinterpret_cast<StorageObject*>(self)->lent = true;
  return PyBuffer_FillInfo(view, self, s->data ? s->data : &nothing, s->nbytes, 0, flags);
}

PyObject* method_nbytes(PyObject* self, PyObject*) {
  return PyLong_FromLongLong(target(self)->nbytes);
}
Py_ssize_t length(PyObject* self) { return static_cast<Py_ssize_t>(target(self)->nbytes); }
PyObject* method_data_ptr(PyObject* self, PyObject*) {
  if (!storage_give_address(target(self))) return nullptr;
  return PyLong_FromUnsignedLongLong(reinterpret_cast<uintptr_t>(target(self)->data));
}
PyObject* method_resizable(PyObject* self, PyObject*) {
  return PyBool_FromLong(target(self)->resizable);
}
PyObject* method_is_shared(PyObject* self, PyObject*) {
  return PyBool_FromLong(storage_is_shared(target(self)));
}
PyObject* method_resize(PyObject* self, PyObject* argument) {
  const long long nbytes = PyLong_AsLongLong(argument);
  if (nbytes == -1 && PyErr_Occurred()) return nullptr;
  if (!storage_resize(target(self), nbytes)) return nullptr;
  return Py_NewRef(self);
}
PyObject* method_bytes(PyObject* self, PyObject*) {
  const Storage* s = target(self);
  auto bytes =
      steal(PyBytes_FromStringAndSize(nullptr, s->data ? static_cast<Py_ssize_t>(s->nbytes) : 0));
  if (!bytes || !s->data) return bytes.release();
  char* to = PyBytes_AS_STRING(bytes.get());
  const bool fine = device_copy(Device{}, to, s->device, s->data, s->nbytes, "bytes");
  return fine ? bytes.release() : nullptr;
}
PyObject* method_tolist(PyObject* self, PyObject*) {
  const auto bytes = steal(method_bytes(self, nullptr));
  return bytes ? PySequence_List(bytes.get()) : nullptr;
}
PyObject* method_view(PyObject* self, PyObject*) {
  auto* face = reinterpret_cast<StorageObject*>(self);
  const bool before = face->lent;  // the package's own reads and first writes are over when it ends
  PyObject* view = PyMemoryView_FromObject(self);
  face->lent = before;
  return view;
}
PyObject* copy_on(const Storage* s, Device device) {
  Storage* copy = storage_new(s->nbytes, device);
  const bool fine = !copy || !s->data ||
                    device_copy(device, copy->data, s->device, s->data, s->nbytes, "storage");
  auto face = steal(wrap(copy));
  return fine ? face.release() : nullptr;
}
PyObject* method_clone(PyObject* self, PyObject*) {
  return copy_on(target(self), target(self)->device);
}
PyObject* method_cpu(PyObject* self, PyObject*) {
  const Storage* s = target(self);
  const bool copies = has_memory(s->device) && !on_host(s->device);
  return copies ? copy_on(s, Device{}) : Py_NewRef(self);
}
PyObject* method_fill(PyObject* self, PyObject* argument) {
  Py_buffer view;
  if (PyObject_GetBuffer(argument, &view, PyBUF_SIMPLE) < 0) return nullptr;
  Storage* s = target(self);
  bool good = view.len == s->nbytes && (s->data || s->nbytes == 0);
  if (good && s->data) {
    good = device_copy(s->device, s->data, Device{}, view.buf, s->nbytes, "fill_bytes");
  }
  if (!good && !PyErr_Occurred()) {
    PyErr_Format(PyExc_ValueError, "[storage] expected %lld bytes: got %zd\nhint: check the file",
                 static_cast<long long>(s->nbytes), view.len);
  }
  PyBuffer_Release(&view);
  if (good) {
    ++s->version;
    ++s->writes;
  }
  return good ? Py_NewRef(self) : nullptr;
}
// Pickles as (_storage_from_bytes, (bytes,)); writers of checkpoints use persistent ids instead.
PyObject* storage_from_bytes(PyObject*, PyObject* bytes) {
  if (!PyBytes_Check(bytes)) {
    PyErr_SetString(PyExc_TypeError, "[storage] expected bytes\nhint: the file is damaged");
    return nullptr;
  }
  Storage* storage = storage_new(PyBytes_GET_SIZE(bytes), Device{});
  if (storage && storage->data) {
    std::memcpy(storage->data, PyBytes_AS_STRING(bytes), static_cast<size_t>(storage->nbytes));
  }
  return wrap(storage);
}
PyObject* method_reduce(PyObject* self, PyObject*) {
  auto rebuild = steal(import_attribute("flambeau._core", "_storage_from_bytes"));
  PyObject* bytes = rebuild ? method_bytes(self, nullptr) : nullptr;
  return bytes ? Py_BuildValue("(N(N))", rebuild.release(), bytes) : nullptr;
}
PyObject* get_device(PyObject* self, void*) { return device_object(target(self)->device); }
PyObject* get_identity(PyObject* self, void*) {
  return PyLong_FromUnsignedLongLong(reinterpret_cast<uintptr_t>(target(self)));
}
PyObject* compare(PyObject* a, PyObject* b, int op) {
  if (Py_TYPE(a) != Py_TYPE(b) || (op != Py_EQ && op != Py_NE)) Py_RETURN_NOTIMPLEMENTED;
  return PyBool_FromLong((target(a) == target(b)) == (op == Py_EQ));
}
Py_hash_t hash(PyObject* self) {
  return static_cast<Py_hash_t>(reinterpret_cast<uintptr_t>(target(self)) >> 4);
}

// A storage over any writable buffer (shared memory, a mapped file, a bytearray), which is held
// for as long as the storage lives.
struct Held {
  Py_buffer view;
  bool shared;
};
void release_held(void* context) {
  auto* held = static_cast<Held*>(context);
  PyBuffer_Release(&held->view);
  delete held;
}
PyObject* storage_from_buffer(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"buffer", "shared", "alone", nullptr};
  PyObject* object;
  int shared = 0, alone = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|pp", const_cast<char**>(names), &object,
                                   &shared, &alone)) {
    return nullptr;
  }
  auto held = std::make_unique<Held>();
  held->shared = shared != 0;
  if (PyObject_GetBuffer(object, &held->view, PyBUF_SIMPLE | PyBUF_WRITABLE) < 0) {
    PyErr_Clear();
    if (PyObject_GetBuffer(object, &held->view, PyBUF_SIMPLE) < 0) return nullptr;
  }
  Storage* storage = storage_foreign(held->view.buf, held->view.len, release_held, held.get());
  if (!storage) {
    PyBuffer_Release(&held->view);
    return nullptr;
  }
  held.release();
  storage->alone = alone != 0;
  return wrap(storage);
}

// Whether the host can read the bytes: not on meta, and computed.
bool has_bytes(const Storage* s) {
  if (s->nbytes == 0 || (s->data && on_host(s->device))) return true;
  if (s->data) {
    PyErr_Format(PyExc_NotImplementedError,
                 "[storage] the bytes are on device %s, not in host memory\nhint: storage.cpu()",
                 runtime_of(s->device).name);
    return false;
  }
  PyErr_SetString(PyExc_NotImplementedError,
                  "[storage] bytes are not available here\nhint: meta tensors have no data");
  return false;
}
bool bad_key(PyObject* key, PyObject* error) {
  if (PySlice_Check(key) || (PyIndex_Check(key) && !PyBool_Check(key))) return false;
  PyErr_Format(error, "[storage] can't index an UntypedStorage with %s\nhint: an int or a slice",
               Py_TYPE(key)->tp_name);
  return true;
}
// The bytes a slice names, as (start, length).
bool slice_bounds(const Storage* s, PyObject* key, Py_ssize_t* start, Py_ssize_t* count) {
  Py_ssize_t stop;
  Py_ssize_t step;
  if (PySlice_Unpack(key, start, &stop, &step) < 0) return false;
  *count = PySlice_AdjustIndices(static_cast<Py_ssize_t>(s->nbytes), start, &stop, step);
  if (step == 1) return true;
  PyErr_Format(PyExc_RuntimeError,
               "[storage] Trying to slice with a step of %zd, but only a step of 1 is supported\n"
               "hint: list(storage)[a:b:c]",
               step);
  return false;
}
PyObject* item(PyObject* self, Py_ssize_t place) {
  const Storage* s = target(self);
  if (place < 0 || place >= s->nbytes) {
    PyErr_Format(PyExc_IndexError,
                 "[storage] index %zd out of range for storage of size %lld\n"
                 "hint: check the index",
                 place, static_cast<long long>(s->nbytes));
    return nullptr;
  }
  return has_bytes(s) ? PyLong_FromLong(static_cast<const unsigned char*>(s->data)[place])
                      : nullptr;
}
void release_whole(void* whole) { storage_decref(static_cast<Storage*>(whole)); }
// An int for a place, a storage over the same memory for a slice.
PyObject* subscript(PyObject* self, PyObject* key) {
  Storage* s = target(self);
  if (bad_key(key, PyExc_TypeError)) return nullptr;
  if (!PySlice_Check(key)) {
    const Py_ssize_t place = PyNumber_AsSsize_t(key, PyExc_IndexError);
    if (place == -1 && PyErr_Occurred()) return nullptr;
    return item(self, place < 0 ? place + static_cast<Py_ssize_t>(s->nbytes) : place);
  }
  Py_ssize_t start;
  Py_ssize_t count;
  if (!slice_bounds(s, key, &start, &count) || !has_bytes(s)) return nullptr;
  Storage* part = storage_foreign(static_cast<char*>(s->data) + start, count, release_whole, s);
  if (part) {
    storage_incref(s);
    s->resizable = false;  // the part has the address, and writes that nobody sees, from now on
    s->reached = true;
  }
  return wrap(part);
}
int assign(PyObject* self, PyObject* key, PyObject* value) {
  Storage* s = target(self);
  if (!value) {
    PyErr_SetString(PyExc_TypeError, "[storage] bytes can't be deleted\nhint: resize_");
    return -1;
  }
  unsigned char byte;
  if (bad_key(key, PyExc_RuntimeError) || !byte_from_object(value, "storage", &byte)) return -1;
  Py_ssize_t start = 0;
  Py_ssize_t count = 1;
  if (PySlice_Check(key)) {
    if (!slice_bounds(s, key, &start, &count)) return -1;
  } else {
    start = PyNumber_AsSsize_t(key, PyExc_RuntimeError);
    if (start == -1 && PyErr_Occurred()) return -1;
    if (start < 0 || start >= s->nbytes) {
      PyErr_Format(PyExc_RuntimeError,
                   "[storage] place %zd is out of bounds of %lld bytes\n"
                   "hint: places are counted from 0",
                   start, static_cast<long long>(s->nbytes));
      return -1;
    }
  }
  if (!has_bytes(s)) return -1;
  if (count > 0) std::memset(static_cast<char*>(s->data) + start, byte, static_cast<size_t>(count));
  ++s->version;
  ++s->writes;
  return 0;
}
// Part of a file being read into memory, by several threads.
struct Reading {
  char* data;
  int descriptor;
  int64_t position;
  std::atomic<int> error{0};     // errno of the first failure
  std::atomic<bool> cut{false};  // the file ends too early
};
constexpr int64_t kReadAtOnce = int64_t{4} << 20;
void read_part(void* context, int64_t begin, int64_t end, int) {
  auto* reading = static_cast<Reading*>(context);
  while (begin < end && !reading->error && !reading->cut) {
    const auto size = static_cast<size_t>(std::min(end - begin, kReadAtOnce));
    const ssize_t count =
        pread(reading->descriptor, reading->data + begin, size, reading->position + begin);
    if (count > 0) {
      begin += count;
    } else if (count == 0) {
      reading->cut = true;
    } else if (errno != EINTR) {
      reading->error = errno;
    }
  }
}
PyObject* method_read(PyObject* self, PyObject* args) {
  Storage* s = target(self);
  int descriptor;
  long long position;
  if (!PyArg_ParseTuple(args, "iL", &descriptor, &position) || !has_bytes(s)) return nullptr;
  Reading reading{static_cast<char*>(s->data), descriptor, position};
  Py_BEGIN_ALLOW_THREADS;
  parallel_for(s->nbytes, kReadAtOnce, read_part, &reading);
  Py_END_ALLOW_THREADS;
  ++s->version;
  ++s->writes;
  if (reading.error) {
    errno = reading.error;
    return PyErr_SetFromErrno(PyExc_OSError);
  }
  return PyBool_FromLong(!reading.cut);
}
PyObject* method_fill_byte(PyObject* self, PyObject* value) {
  const auto all = steal(PySlice_New(nullptr, nullptr, nullptr));
  return all && assign(self, all.get(), value) == 0 ? Py_NewRef(self) : nullptr;
}
PyObject* text(PyObject* self) {
  const Storage* s = target(self);
  const bool readable = s->data && on_host(s->device);
  std::string lines = s->nbytes > 0 && !readable ? "..." : "";
  for (int64_t i = 0; readable && i < s->nbytes; ++i) {
    lines += (i ? "\n " : " ") + std::to_string(static_cast<const unsigned char*>(s->data)[i]);
  }
  const auto device = steal(get_device(self, nullptr));
  if (!device) return nullptr;
  return PyUnicode_FromFormat("%s\n[torch.storage.UntypedStorage(device=%S) of size %lld]",
                              lines.empty() ? " " : lines.c_str(), device.get(),
                              static_cast<long long>(s->nbytes));
}

PyObject* method_itself(PyObject* self, PyObject*) { return Py_NewRef(self); }
PyObject* method_new(PyObject*, PyObject*) { return wrap(storage_new(0, Device{})); }
PyObject* method_one(PyObject*, PyObject*) { return PyLong_FromLong(1); }
PyObject* method_no(PyObject*, PyObject*) { return Py_NewRef(Py_False); }
PyObject* method_sizeof(PyObject* self, PyObject*) {  // the object, and the bytes that it holds
  return PyLong_FromSsize_t(Py_TYPE(self)->tp_basicsize +
                            static_cast<Py_ssize_t>(target(self)->nbytes));
}
PyObject* get_no(PyObject*, void*) { return Py_NewRef(Py_False); }
PyObject* get_none(PyObject*, void*) { return Py_NewRef(Py_None); }

PyMethodDef methods[] = {
    {"nbytes", method_nbytes, METH_NOARGS, "Number of bytes."},
    {"size", method_nbytes, METH_NOARGS, "Number of bytes."},
    {"data_ptr", method_data_ptr, METH_NOARGS, "Address of the first byte."},
    {"resizable", method_resizable, METH_NOARGS, "False for foreign memory."},
    {"resize_", method_resize, METH_O, "Changes the number of bytes, keeping what fits."},
    {"is_shared", method_is_shared, METH_NOARGS, "True if the bytes are in shared memory."},
    {"bytes", method_bytes, METH_NOARGS, "A copy of the bytes."},
    {"_view", method_view, METH_NOARGS,
     "A memoryview that the caller gives up before anybody else uses the storage."},
    {"clone", method_clone, METH_NOARGS, "A storage with the same bytes."},
    {"fill_bytes", method_fill, METH_O, "Overwrites all bytes from a buffer of the same length."},
    {"_read", method_read, METH_VARARGS,
     "_read(descriptor, position): overwrites all bytes from a file; False: it ends too early."},
    {"fill_", method_fill_byte, METH_O, "Sets all bytes to the low byte of an int."},
    {"cpu", method_cpu, METH_NOARGS, "Itself, or a copy in host memory."},
    {"untyped", method_itself, METH_NOARGS, "Itself."},
    {"new", method_new, METH_NOARGS, "A storage without bytes."},
    {"element_size", method_one, METH_NOARGS, "Bytes of an element: one."},
    {"is_pinned", method_no, METH_VARARGS, "False: memory is never pinned."},
    {"__sizeof__", method_sizeof, METH_NOARGS, "Bytes of the object and of what it holds."},
    {"__reduce__", method_reduce, METH_NOARGS, nullptr},
    {"tolist", method_tolist, METH_NOARGS, "The bytes as a list of ints."},
    {nullptr, nullptr, 0, nullptr}};
PyGetSetDef attributes[] = {
    {"device", get_device, nullptr, "Where the bytes are.", nullptr},
    {"filename", get_none, nullptr, "None: no file is mapped under a name.", nullptr},
    {"is_cuda", get_no, nullptr, "False.", nullptr},
    {"is_hpu", get_no, nullptr, "False.", nullptr},
    {"is_sparse", get_no, nullptr, "False.", nullptr},
    {"is_sparse_csr", get_no, nullptr, "False.", nullptr},
    {"_cdata", get_identity, nullptr, "Identity of the memory: equal for views.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};
constexpr char kStorageDoc[] = "The bytes behind tensors; supports the buffer protocol.";
PyType_Slot slots[] = {{Py_tp_doc, const_cast<char*>(kStorageDoc)},
                       {Py_tp_new, reinterpret_cast<void*>(storage_python_new)},
                       {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
                       {Py_tp_methods, methods},
                       {Py_tp_getset, attributes},
                       {Py_tp_richcompare, reinterpret_cast<void*>(compare)},
                       {Py_tp_hash, reinterpret_cast<void*>(hash)},
                       {Py_tp_repr, reinterpret_cast<void*>(text)},
                       {Py_sq_length, reinterpret_cast<void*>(length)},
                       {Py_sq_item, reinterpret_cast<void*>(item)},
                       {Py_mp_length, reinterpret_cast<void*>(length)},
                       {Py_mp_subscript, reinterpret_cast<void*>(subscript)},
                       {Py_mp_ass_subscript, reinterpret_cast<void*>(assign)},
                       {Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
                       {0, nullptr}};
PyType_Spec spec = {"flambeau.UntypedStorage", sizeof(StorageObject), 0, Py_TPFLAGS_DEFAULT, slots};
PyMethodDef functions[] = {
    {"storage_from_buffer",
     reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(storage_from_buffer)),
     METH_VARARGS | METH_KEYWORDS,
     "storage_from_buffer(buffer, shared=False, alone=False): a storage over foreign memory, not a "
     "copy; alone: nobody else can reach the buffer."},
    {"_storage_from_bytes", storage_from_bytes, METH_O, "Rebuilds a pickled storage."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

bool storage_is_shared(const Storage* storage) {
  if (storage_is_mapping(storage)) return true;
  return storage->release == release_held && static_cast<Held*>(storage->release_context)->shared;
}

bool storage_resize(Storage* storage, int64_t nbytes) {
  if (nbytes < 0 || !storage->resizable || storage->pending) {
    PyErr_Format(PyExc_RuntimeError,
                 "[resize_] Trying to resize storage that is not resizable (to %lld bytes)\n"
                 "hint: copy foreign or recorded data first",
                 static_cast<long long>(nbytes));
    return false;
  }
  if (nbytes == storage->nbytes) return true;
  Storage* fresh = storage_new(nbytes, storage->device);
  if (!fresh) return false;
  const int64_t kept = std::min(nbytes, storage->nbytes);
  if (storage->data && fresh->data &&
      !device_copy(storage->device, fresh->data, storage->device, storage->data, kept, "resize_")) {
    storage_decref(fresh);
    return false;
  }
  std::swap(storage->data, fresh->data);
  std::swap(storage->nbytes, fresh->nbytes);
  ++storage->writes;
  storage_decref(fresh);
  return true;
}

PyObject* untyped_storage(Storage* storage) {
  if (!record_settle_reads(storage, "untyped_storage()")) return nullptr;
  storage_incref(storage);
  return wrap(storage);
}

Storage* untyped_storage_target(PyObject* object) {
  if (Py_TYPE(object) == storage_type) return target(object);
  PyErr_Format(PyExc_TypeError,
               "[storage] expected an UntypedStorage: got %s\nhint: "
               "t.untyped_storage()",
               Py_TYPE(object)->tp_name);
  return nullptr;
}

bool init_untyped_storage(PyObject* module) {
  storage_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return storage_type &&
         PyModule_AddObjectRef(module, "UntypedStorage",
                               reinterpret_cast<PyObject*>(storage_type)) == 0 &&
         PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace fb
