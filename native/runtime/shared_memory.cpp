// Storages whose bytes are a file that several processes map: anonymous ones that travel as
// descriptors, and ones with a path, which count their users and are removed by the last one.
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <unordered_set>

#include "core.h"
#include "plan/prepacked.h"
#include "tensor/tensor_internal.h"

namespace fb {
namespace {

constexpr int64_t kCounterSpace = 64;  // behind the bytes of a file with a path

struct Mapping;
// Those with a path, of this process. Changed under the GIL; never destroyed.
std::unordered_set<Mapping*>& with_path() {
  static auto* set = new std::unordered_set<Mapping*>();
  return *set;
}

struct Mapping {
  char* at = nullptr;
  int64_t size = 0;  // counter included
  int descriptor = -1;
  std::string path;           // empty: anonymous
  pid_t owner = getpid();     // forked children do not count as users
  Storage* before = nullptr;  // the storage's former memory, where others have its address

  std::atomic<int64_t>* users() const {
    return reinterpret_cast<std::atomic<int64_t>*>(at + size - kCounterSpace);
  }
  // The last user removes the file.
  void leave() {
    if (with_path().erase(this) == 0 || owner != getpid()) return;
    if (users()->fetch_sub(1) == 1) unlink(path.c_str());
  }
  ~Mapping() {
    leave();
    if (at) munmap(at, static_cast<size_t>(size));
    if (descriptor >= 0) close(descriptor);
    if (before) storage_decref(before);
  }
};
void release_mapping(void* context) { delete static_cast<Mapping*>(context); }

Mapping* mapping_of(const Storage* storage) {
  if (storage->release != release_mapping) return nullptr;
  return static_cast<Mapping*>(storage->release_context);
}

// Maps a file, which is extended as needed; null and OSError where that fails.
std::unique_ptr<Mapping> map_file(int descriptor, int64_t nbytes, const char* path) {
  auto mapping = std::make_unique<Mapping>();
  const bool named = *path != 0;
  mapping->size = named ? (nbytes + 2 * kCounterSpace - 1) / kCounterSpace * kCounterSpace : nbytes;
  const off_t there = lseek(descriptor, 0, SEEK_END);
  const bool fits = there >= mapping->size || ftruncate(descriptor, mapping->size) == 0;
  void* at = fits ? mmap(nullptr, static_cast<size_t>(mapping->size), PROT_READ | PROT_WRITE,
                         MAP_SHARED, descriptor, 0)
                  : MAP_FAILED;
  if (at == MAP_FAILED) {
    PyErr_SetFromErrno(PyExc_OSError);
    return nullptr;
  }
  mapping->at = static_cast<char*>(at);
  mapping->path = path;
  if (named) with_path().insert(mapping.get());
  return mapping;
}

// A storage over the mapping; the descriptor is its own from now on.
Storage* over(std::unique_ptr<Mapping> mapping, int descriptor, int64_t nbytes) {
  Storage* storage = storage_foreign(mapping->at, nbytes, release_mapping, mapping.get());
  if (!storage) return nullptr;
  if (mapping->path.empty()) {
    mapping->descriptor = descriptor;
  } else {
    close(descriptor);
  }
  static_cast<void>(mapping.release());
  return storage;
}

PyObject* map_shared(PyObject*, PyObject* args) {
  int descriptor;
  long long nbytes;
  const char* path = "";
  if (!PyArg_ParseTuple(args, "iL|s", &descriptor, &nbytes, &path)) return nullptr;
  auto mapping = map_file(descriptor, nbytes, path);
  Storage* storage = mapping ? over(std::move(mapping), descriptor, nbytes) : nullptr;
  PyObject* face = storage ? untyped_storage(storage) : nullptr;
  if (storage) storage_decref(storage);
  return face;
}

PyObject* move_to_shared(PyObject*, PyObject* args) {
  PyObject* object;
  int descriptor;
  const char* path = "";
  if (!PyArg_ParseTuple(args, "Oi|s", &object, &descriptor, &path)) return nullptr;
  Storage* storage = untyped_storage_target(object);
  if (storage && !on_host(storage->device)) {
    PyErr_Format(PyExc_RuntimeError,
                 "[share_memory_] _share_fd_: only available on CPU\nhint: move it with .cpu()");
    return nullptr;
  }
  auto mapping = storage ? map_file(descriptor, storage->nbytes, path) : nullptr;
  if (!mapping) return nullptr;
  if (!mapping->path.empty()) mapping->users()->store(1);
  std::memcpy(mapping->at, storage->data, static_cast<size_t>(storage->nbytes));
  Storage* other = over(std::move(mapping), descriptor, storage->nbytes);
  if (!other) return nullptr;
  if (storage->packed) packed_forget(storage);
  const bool lent = !storage->resizable || storage->reached;
  std::swap(storage->data, other->data);
  std::swap(storage->release, other->release);
  std::swap(storage->release_context, other->release_context);
  storage->resizable = storage->alone = false;
  ++storage->writes;
  if (lent) {
    mapping_of(storage)->before = other;  // until the storage goes
  } else {
    storage_decref(other);
  }
  Py_RETURN_NONE;
}

PyObject* shared_file(PyObject*, PyObject* object) {
  Storage* storage = untyped_storage_target(object);
  if (!storage) return nullptr;
  const Mapping* mapping = mapping_of(storage);
  if (!mapping) Py_RETURN_NONE;
  return Py_BuildValue("(is)", mapping->descriptor, mapping->path.c_str());
}

PyObject* add_shared_user(PyObject*, PyObject* object) {
  Storage* storage = untyped_storage_target(object);
  Mapping* mapping = storage ? mapping_of(storage) : nullptr;
  if (mapping && !mapping->path.empty()) mapping->users()->fetch_add(1);
  return storage ? Py_NewRef(Py_None) : nullptr;
}

PyObject* leave_shared_files(PyObject*, PyObject*) {
  while (!with_path().empty()) (*with_path().begin())->leave();
  Py_RETURN_NONE;
}

PyMethodDef functions[] = {
    {"_map_shared", map_shared, METH_VARARGS,
     "_map_shared(descriptor, nbytes, path=''): a storage over a file, which it takes over."},
    {"_move_to_shared", move_to_shared, METH_VARARGS,
     "_move_to_shared(storage, descriptor, path=''): moves the bytes to a file, in place."},
    {"_shared_file", shared_file, METH_O,
     "_shared_file(storage): descriptor (-1: closed) and path of its file, or None."},
    {"_add_shared_user", add_shared_user, METH_O,
     "_add_shared_user(storage): a message holds a file with a path from now on."},
    {"_leave_shared_files", leave_shared_files, METH_NOARGS,
     "_leave_shared_files(): at the process's end, it uses no file with a path any more."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

bool storage_is_mapping(const Storage* storage) { return mapping_of(storage) != nullptr; }

bool init_shared_memory(PyObject* module) { return PyModule_AddFunctions(module, functions) == 0; }

}  // namespace fb
