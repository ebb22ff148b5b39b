// Owning handles and checked builders for the objects that the core counts.
//
// A Ref holds one reference and drops it at the end of its scope, so every exit of a function is
// right without being written. Functions still return raw pointers as CPython does (a new
// reference, or null with an exception set): `steal` takes such a result, `release` gives one.
// Slots of C structs that no destructor ends are emptied with `drop` and written with `assign`.
//
// The core is built without exceptions: a thread that the interpreter's end unwinds runs no
// destructor (tools/build_native.py). Everything here needs the GIL.
//
// Style of the core: `!x` and `x`, not comparisons with nullptr; braces unless the statement stands
// on the line of its condition (.clang-tidy checks both).
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <utility>
#include <vector>

#pragma GCC visibility push(hidden)
namespace fb {

// How a type is counted: as a Python object, unless it says otherwise (core.h).
template <typename T>
struct Counting {
  static void add(T* object) { Py_INCREF(reinterpret_cast<PyObject*>(object)); }
  static void drop(T* object) { Py_DECREF(reinterpret_cast<PyObject*>(object)); }
};

template <typename T = PyObject>
class Ref {
 public:
  constexpr Ref() = default;
  Ref(const Ref& other) : pointer_(other.pointer_) {
    if (pointer_) Counting<T>::add(pointer_);
  }
  Ref(Ref&& other) noexcept : pointer_(other.release()) {}
  // The old object goes last: its end may run anything, this handle's owner included.
  Ref& operator=(Ref other) noexcept {
    std::swap(pointer_, other.pointer_);
    return *this;
  }
  ~Ref() {
    if (pointer_) Counting<T>::drop(pointer_);
  }
  static Ref steal(T* pointer) {
    Ref result;
    result.pointer_ = pointer;
    return result;
  }
  T* get() const { return pointer_; }
  T* operator->() const { return pointer_; }
  explicit operator bool() const { return pointer_ != nullptr; }
  T** slot() { return &pointer_; }  // for functions that replace what it holds
  [[nodiscard]] T* release() { return std::exchange(pointer_, nullptr); }

 private:
  T* pointer_ = nullptr;
};

// Takes over a reference; null stays null.
template <typename T>
Ref<T> steal(T* pointer) {
  return Ref<T>::steal(pointer);
}
// Adds a reference.
template <typename T>
Ref<T> share(T* pointer) {
  if (pointer) Counting<T>::add(pointer);
  return Ref<T>::steal(pointer);
}
template <typename T>
void drop(T*& slot) {
  if (slot) steal(std::exchange(slot, nullptr));
}
template <typename T>
void assign(T*& slot, Ref<T> value) {
  steal(std::exchange(slot, value.release()));
}

// Owned pointers in a row, some of them null, for interfaces that take or fill an array.
template <typename T = PyObject>
struct Refs {
  std::vector<T*> values;

  explicit Refs(size_t count = 0) : values(count, nullptr) {}
  Refs(T* const* from, size_t count) : values(from, from + count) {
    for (T* pointer : values) {
      if (pointer) Counting<T>::add(pointer);
    }
  }
  ~Refs() {
    for (T*& pointer : values) drop(pointer);
  }
  Refs(const Refs&) = delete;
  Refs& operator=(const Refs&) = delete;
};

// Fills a fresh tuple (stolen) with new references, entry(i) each. Null + exception if one is null.
template <typename Entry>
PyObject* fill_tuple(PyObject* fresh, Entry entry) {
  auto tuple = steal(fresh);
  const Py_ssize_t count = tuple ? PyTuple_GET_SIZE(fresh) : 0;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* object = entry(static_cast<size_t>(i));
    if (!object) return nullptr;
    PyTuple_SET_ITEM(fresh, i, object);
  }
  return tuple.release();
}
template <typename Entry>
PyObject* build_tuple(size_t count, Entry entry) {
  return fill_tuple(PyTuple_New(static_cast<Py_ssize_t>(count)), entry);
}
template <typename Entry>
PyObject* build_list(size_t count, Entry entry) {
  auto list = steal(PyList_New(static_cast<Py_ssize_t>(count)));
  for (size_t i = 0; list && i < count; ++i) {
    PyObject* object = entry(i);
    if (!object) return nullptr;
    PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), object);
  }
  return list.release();
}

inline PyObject* int_tuple(const int64_t* values, Py_ssize_t count) {
  return build_tuple(static_cast<size_t>(count),
                     [values](size_t i) { return PyLong_FromLongLong(values[i]); });
}

// Appends a new reference, which is stolen; false when it is null.
inline bool append_item(PyObject* list, PyObject* entry) {
  const auto item = steal(entry);
  return item && PyList_Append(list, entry) == 0;
}

// A pointer or handle as a borrowed object; others of the core's types have overloads of their own.
inline PyObject* object_of(PyObject* object) { return object; }
template <typename T>
PyObject* object_of(const Ref<T>& ref) {
  return reinterpret_cast<PyObject*>(ref.get());
}
template <typename T>
PyObject* or_none(const T& object) {
  return object ? object_of(object) : Py_None;
}
template <typename... T>
concept Objects = requires(const T&... objects) { (object_of(objects), ...); };

template <typename T>
constexpr bool missing(const T&) {
  return false;
}
template <typename T>
bool missing(const Ref<T>& argument) {
  return !argument;
}
// Calls with borrowed arguments. Null when the callable or a handle is: its exception is set.
template <typename... T>
  requires Objects<T...>
PyObject* call_object(PyObject* callable, const T&... arguments) {
  if (!callable || (missing(arguments) || ...)) return nullptr;
  PyObject* values[] = {nullptr, object_of(arguments)...};
  constexpr size_t count = sizeof...(arguments) | PY_VECTORCALL_ARGUMENTS_OFFSET;
  return PyObject_Vectorcall(callable, values + 1, count, nullptr);
}
// A module's attribute; new reference.
inline PyObject* import_attribute(const char* module, const char* name) {
  const auto loaded = steal(PyImport_ImportModule(module));
  return loaded ? PyObject_GetAttrString(loaded.get(), name) : nullptr;
}
// Calls a function of a Python module in the same way.
template <typename... T>
  requires Objects<T...>
PyObject* call_helper(const char* module, const char* name, const T&... arguments) {
  if ((missing(arguments) || ...)) return nullptr;
  return call_object(steal(import_attribute(module, name)).get(), arguments...);
}

// Sets the current exception aside; drops it unless it is restored.
class PendingError {
 public:
  PendingError() { PyErr_Fetch(type_.slot(), value_.slot(), traceback_.slot()); }
  PendingError(const PendingError&) = delete;
  PendingError& operator=(const PendingError&) = delete;
  explicit operator bool() const { return static_cast<bool>(type_); }
  // The exception object, borrowed.
  PyObject* value() {
    PyErr_NormalizeException(type_.slot(), value_.slot(), traceback_.slot());
    return value_.get();
  }
  Ref<>& traceback() { return traceback_; }
  void restore() { PyErr_Restore(type_.release(), value_.release(), traceback_.release()); }

 private:
  Ref<> type_, value_, traceback_;
};

// Frees the memory of a dead instance of a heap type, and its reference to the type.
inline void free_instance(PyObject* self) {
  const auto type = steal(Py_TYPE(self));
  type->tp_free(self);
}

}  // namespace fb
#pragma GCC visibility pop
