// Loads OpenBLAS and looks up what the routines call. `flambeau/runtime/lapack.py` finds the file.
#include "linalg/lapack.h"

#include <dlfcn.h>

#include "runtime/fork.h"
#include "runtime/processor.h"

namespace fb {
namespace {

constexpr int kCount = static_cast<int>(Lapack::kCount);
// For real and for complex numbers, in the order of the enumeration.
constexpr const char* kNames[kCount][2] = {
    {"potrf", "potrf"}, {"getrf", "getrf"}, {"trsm", "trsm"},   {"trsv", "trsv"},
    {"trtri", "trtri"}, {"geqrf", "geqrf"}, {"orgqr", "ungqr"}, {"ormqr", "unmqr"},
    {"syevd", "heevd"}, {"geev", "geev"},   {"gesdd", "gesdd"}, {"gels", "gels"},
    {"gelsy", "gelsy"}, {"gelsd", "gelsd"}, {"gelss", "gelss"}, {"sytrf", "sytrf"},
    {"sytrf", "hetrf"}, {"sytrs", "sytrs"}, {"sytrs", "hetrs"}, {"gemm", "gemm"},
};
constexpr char kLetters[] = "sdcz";

struct Library {
  LapackFunction functions[4][kCount];
};

enum State : int { kUnknown, kAbsent, kPresent };
std::atomic<int> state{kUnknown};
std::atomic<const Library*> library{nullptr};

SharedLock& use_lock() {
  static auto* const lock = new SharedLock();
  return *lock;
}

// The functions of an open library; null where one is missing.
Library* look_up(void* handle) {
  auto made = std::make_unique<Library>();
  for (int letter = 0; letter < 4; ++letter) {
    for (int which = 0; which < kCount; ++which) {
      const std::string name =
          std::string("scipy_") + kLetters[letter] + kNames[which][letter / 2] + "_64_";
      void* address = dlsym(handle, name.c_str());
      if (!address) return nullptr;
      made->functions[letter][which] = reinterpret_cast<LapackFunction>(address);
    }
  }
  return made.release();
}

Library* open_library(const char* path) {
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!handle) return nullptr;
  const auto limit =
      reinterpret_cast<void (*)(int)>(dlsym(handle, "scipy_openblas_set_num_threads64_"));
  Library* opened = limit ? look_up(handle) : nullptr;
  if (!opened) {
    dlclose(handle);
    return nullptr;
  }
  limit(1);
  take_first_at_fork(&use_lock());
  return opened;
}

PyObject* load_lapack(PyObject*, PyObject* path) {
  if (path == Py_None) {
    state.store(kAbsent, std::memory_order_release);
    Py_RETURN_FALSE;
  }
  const char* text = PyUnicode_AsUTF8(path);
  if (!text) return nullptr;
  if (!library.load(std::memory_order_acquire)) {
    use_lock();
    library.store(open_library(text), std::memory_order_release);
  }
  const bool fine = library.load(std::memory_order_acquire) != nullptr;
  state.store(fine ? kPresent : kAbsent, std::memory_order_release);
  return PyBool_FromLong(fine);
}

PyObject* lapack_core(PyObject*, PyObject*) {
  return PyUnicode_FromString(vector_level() == 2 ? "SkylakeX" : "");
}

void ask_python() {
  const PyGILState_STATE held = PyGILState_Ensure();
  if (!steal(call_helper("flambeau.runtime.lapack", "load"))) {
    PyErr_Clear();
    state.store(kAbsent, std::memory_order_release);
  }
  PyGILState_Release(held);
}

PyMethodDef methods[] = {
    {"load_lapack", load_lapack, METH_O,
     "load_lapack(path or None): whether the library is there; None: compute without it."},
    {"lapack_core", lapack_core, METH_NOARGS,
     "The kernels OpenBLAS has to be told to use on this processor, or an empty text."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool lapack_ready() {
  if (state.load(std::memory_order_acquire) == kUnknown) ask_python();
  return state.load(std::memory_order_acquire) == kPresent;
}

LapackFunction lapack_function(Lapack which, int letter) {
  return library.load(std::memory_order_acquire)->functions[letter][static_cast<int>(which)];
}

LapackUse::LapackUse() { use_lock().lock_shared(); }
LapackUse::~LapackUse() { use_lock().unlock_shared(); }

bool init_lapack(PyObject* module) { return PyModule_AddFunctions(module, methods) == 0; }

}  // namespace fb
