// Loads libraries of block functions, and finds functions by name in a hash table.
#include "baseline/functions.h"

#include <dlfcn.h>

#include <cstring>

#include "core.h"

namespace fb {
namespace {

struct Entry {
  const char* name;
  const void* address;
};

std::vector<Entry> table;  // open addressing; its size is a power of two, or 0

size_t slot_of(const std::vector<Entry>& entries, std::string_view name) {
  const size_t mask = entries.size() - 1;
  size_t slot = std::hash<std::string_view>{}(name)&mask;
  while (entries[slot].name && name != entries[slot].name) slot = (slot + 1) & mask;
  return slot;
}

const void* find(std::string_view name) {
  return table.empty() ? nullptr : table[slot_of(table, name)].address;
}

// The table of a library, as flambeau/compiler/baseline/functions.c.in defines it.
class Table {
 public:
  explicit Table(void* handle)
      : names_(static_cast<const char*>(dlsym(handle, "fb_block_names"))),
        offsets_(static_cast<const int32_t*>(dlsym(handle, "fb_block_offsets"))) {}

  bool exists() const { return names_ && offsets_; }

  // The interface of the library, its first entry; -1: it has none.
  int64_t interface() const {
    const bool stated = std::string_view(names_) == "interface";
    return stated ? *static_cast<const int64_t*>(address(0)) : -1;
  }

  size_t count() const {
    size_t count = 0;
    each([&](Entry) { ++count; });
    return count;
  }

  // Calls a function with every entry but that of the interface.
  template <class Function>
  void each(Function function) const {
    const char* name = names_ + strlen(names_) + 1;
    for (size_t i = 1; *name; ++i, name += strlen(name) + 1) function(Entry{name, address(i)});
  }

 private:
  const void* address(size_t i) const {
    return reinterpret_cast<const void*>(reinterpret_cast<intptr_t>(offsets_) + offsets_[i]);
  }

  const char* names_;
  const int32_t* offsets_;
};

bool fail(const char* path, const char* reason) {
  PyErr_Format(PyExc_RuntimeError,
               "[baseline] cannot load the block functions %s: %s\n"
               "hint: run `./go build`, or install the package again",
               path, reason);
  return false;
}

PyObject* load(PyObject*, PyObject* path) {
  const char* text = PyUnicode_AsUTF8(path);
  if (!text || !load_block_functions(text)) return nullptr;
  Py_RETURN_NONE;
}

PyObject* names(PyObject*, PyObject*) {
  auto list = steal(PyList_New(0));
  for (const Entry& entry : table) {
    if (!entry.name) continue;
    auto name = steal(PyUnicode_FromString(entry.name));
    if (!name || !list || PyList_Append(list.get(), name.get()) < 0) return nullptr;
  }
  return list.release();
}

PyMethodDef methods[] = {
    {"load_block_functions", load, METH_O,
     "load_block_functions(path): loads the library of block functions of a target."},
    {"block_function_names", names, METH_NOARGS,
     "The names of the loaded block functions, and of the sizes of their states."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool load_block_functions(const char* path) {
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!handle) return fail(path, dlerror());
  const Table entries(handle);
  if (!entries.exists()) {
    dlclose(handle);
    return fail(path, "it has no table");
  }
  if (entries.interface() != kBlockInterface) {
    dlclose(handle);
    return fail(path, "they were built for another version of the core");
  }
  const size_t count = entries.count();
  size_t size = 16;
  while (size < 2 * count) size *= 2;
  std::vector<Entry> loaded;
  if (!grow([&] { loaded.resize(size); })) {
    PyErr_NoMemory();
    return false;
  }
  entries.each([&](Entry entry) { loaded[slot_of(loaded, entry.name)] = entry; });
  table.swap(loaded);  // the library stays: programs hold addresses
  return true;
}

BlockFunction find_block_function(std::string_view name) {
  return reinterpret_cast<BlockFunction>(const_cast<void*>(find(name)));
}

int64_t find_block_state(std::string_view name) {
  const void* bytes = find(name);
  return bytes ? *static_cast<const int64_t*>(bytes) : -1;
}

bool init_block_functions(PyObject* module) { return PyModule_AddFunctions(module, methods) == 0; }

}  // namespace fb
