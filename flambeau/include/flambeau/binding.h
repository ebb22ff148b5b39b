// Functions for Python: `PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("f", &f, "text"); }`, and
// operators: `TORCH_LIBRARY`. Written anew with the few names of pybind11 that extensions use.
#pragma once
#include <deque>

#include "tensor.h"

namespace flambeau {

// An argument while a call runs; an ArrayRef needs somebody who owns the numbers.
template <typename T>
struct Argument {
  T value;
  explicit Argument(PyObject* object) : value(Cast<T>::load(object)) {}
  T& get() { return value; }
};
template <typename T>
struct Argument<c10::ArrayRef<T>> {
  std::vector<T> owner;
  c10::ArrayRef<T> value;
  explicit Argument(PyObject* object) : owner(Cast<std::vector<T>>::load(object)), value(owner) {}
  c10::ArrayRef<T>& get() { return value; }
};

struct Parameter {
  std::string name;
  Object value;
  template <typename T>
  Parameter operator=(const T& standard) const {
    return {name, object_of(standard)};
  }
};

// Sets the interpreter's error for the exception that is being handled; returns null.
inline PyObject* failed() {
  try {
    throw;
  } catch (const c10::PythonError&) {
  } catch (const c10::Error& error) {
    PyErr_SetString(error.type, error.what());
  } catch (const std::invalid_argument& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const std::out_of_range& error) {
    PyErr_SetString(PyExc_IndexError, error.what());
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "Caught an unknown exception!");
  }
  return nullptr;
}

template <typename F>
struct Signature : Signature<decltype(&F::operator())> {};
template <typename R, typename... A>
struct Signature<R (*)(A...)> {
  using Result = R;
  using Arguments = std::tuple<std::decay_t<A>...>;
};
template <typename C, typename R, typename... A>
struct Signature<R (C::*)(A...) const> : Signature<R (*)(A...)> {};

struct Function {
  std::string name, text;
  std::vector<Parameter> parameters;
  std::function<Object(const std::vector<Object>&)> run;
  size_t count = 0;
  PyMethodDef method{};
};

template <typename F, size_t... I>
Object run(const F& function, const std::vector<Object>& values, std::index_sequence<I...>) {
  using S = Signature<F>;
  [[maybe_unused]] std::tuple<Argument<std::tuple_element_t<I, typename S::Arguments>>...> held{
      Argument<std::tuple_element_t<I, typename S::Arguments>>(values[I].get())...};
  if constexpr (std::is_void_v<typename S::Result>) {
    function(std::get<I>(held).get()...);
    return Object::borrowed(Py_None);
  } else {
    return object_of(function(std::get<I>(held).get()...));
  }
}

// The arguments of a call in the order of the parameters.
inline std::vector<Object> bound(const Function& f, PyObject* args, PyObject* kwargs) {
  const auto refuse = [&](const std::string& what) -> c10::Error {
    return {PyExc_TypeError, c10::str(f.name, "(): incompatible function arguments: ", what)};
  };
  std::vector<Object> values(f.count);
  const auto given = static_cast<size_t>(PyTuple_GET_SIZE(args));
  if (given > f.count) throw refuse(c10::str(given, " arguments, expected ", f.count));
  for (size_t i = 0; i < given; ++i)
    values[i] = Object::borrowed(PyTuple_GET_ITEM(args, static_cast<Py_ssize_t>(i)));
  PyObject *key, *value;
  for (Py_ssize_t at = 0; kwargs && PyDict_Next(kwargs, &at, &key, &value);) {
    const std::string name = Cast<std::string>::load(key);
    size_t i = 0;
    while (i < f.parameters.size() && f.parameters[i].name != name) ++i;
    if (i == f.parameters.size() || values[i]) throw refuse(c10::str("keyword '", name, "'"));
    values[i] = Object::borrowed(value);
  }
  for (size_t i = 0; i < f.count; ++i) {
    if (!values[i] && i < f.parameters.size()) values[i] = f.parameters[i].value;
    if (!values[i]) throw refuse(c10::str("argument ", i, " is missing"));
  }
  return values;
}

inline PyObject* call_function(PyObject* capsule, PyObject* args, PyObject* kwargs) {
  try {
    auto* f = static_cast<Function*>(PyCapsule_GetPointer(capsule, "flambeau.function"));
    return f->run(bound(*f, args, kwargs)).release();
  } catch (...) {
    return failed();
  }
}

inline void describe(Function& f, const char* text) { f.text = text; }
inline void describe(Function& f, const Parameter& parameter) { f.parameters.push_back(parameter); }

// A function object; what it needs lives as long as the process.
template <typename F, typename... Extra>
Object make_function(const std::string& name, F function, const Extra&... extra) {
  static auto& functions = *new std::deque<Function>();  // outlives the interpreter
  Function& f = functions.emplace_back();
  f.name = name;
  (describe(f, extra), ...);
  f.count = std::tuple_size_v<typename Signature<F>::Arguments>;
  if (!f.parameters.empty() && f.parameters.size() != f.count)
    throw c10::Error(PyExc_RuntimeError, c10::str(name, ": not every argument has a name"));
  f.run = [function](const std::vector<Object>& values) {
    using Arguments = typename Signature<F>::Arguments;
    return run(function, values, std::make_index_sequence<std::tuple_size_v<Arguments>>());
  };
  f.method = {f.name.c_str(), reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(call_function)),
              METH_VARARGS | METH_KEYWORDS, f.text.c_str()};
  const Object capsule = Object::checked(PyCapsule_New(&f, "flambeau.function", nullptr));
  return Object::checked(PyCFunction_New(&f.method, capsule.get()));
}

template <typename T>
std::string schema_of() {
  return Cast<T>::schema;
}
template <typename F, size_t... I>
std::string schema(const std::string& name, std::index_sequence<I...>) {
  using S = Signature<F>;
  std::string text = name + "(";
  ((text += (I ? ", " : "") + schema_of<std::tuple_element_t<I, typename S::Arguments>>() + " _" +
            std::to_string(I)),
   ...);
  text += ") -> ";
  if constexpr (std::is_void_v<typename S::Result>)
    return text + "()";
  else
    return text + schema_of<std::decay_t<typename S::Result>>();
}

}  // namespace flambeau

namespace pybind11 {

using object = flambeau::Object;
using error_already_set = c10::PythonError;
struct arg : flambeau::Parameter {
  explicit arg(const char* name) : Parameter{name, {}} {}
  using Parameter::operator=;
};
namespace literals {
inline arg operator""_a(const char* name, size_t) { return arg(name); }
}  // namespace literals

class module_ {
 public:
  explicit module_(PyObject* module) : object_(module) {}
  template <typename F, typename... Extra>
  module_& def(const char* name, F function, const Extra&... extra) {
    add(name, flambeau::make_function(name, function, extra...));
    return *this;
  }
  template <typename T>
  void attr(const char* name, const T& value) {
    add(name, flambeau::object_of(value));
  }
  std::string& doc() { return doc_; }
  void finish() {
    if (!doc_.empty()) add("__doc__", flambeau::object_of(doc_));
  }

 private:
  void add(const char* name, const flambeau::Object& value) {
    if (PyObject_SetAttrString(object_, name, value.get())) throw c10::PythonError();
  }
  PyObject* object_;
  std::string doc_;
};
using module = module_;

// A block without the interpreter's lock: it may use memory, but no tensor.
class gil_scoped_release {
 public:
  gil_scoped_release() : state_(PyEval_SaveThread()) {}
  ~gil_scoped_release() { PyEval_RestoreThread(state_); }
  gil_scoped_release(const gil_scoped_release&) = delete;

 private:
  PyThreadState* state_;
};

}  // namespace pybind11

#define FLAMBEAU_JOIN(a, b) a##b
#define FLAMBEAU_INIT(name) FLAMBEAU_JOIN(PyInit_, name)
#define FLAMBEAU_TEXT(name) #name
#define FLAMBEAU_NAME(name) FLAMBEAU_TEXT(name)
#define PYBIND11_MODULE(name, variable)                                                   \
  static void flambeau_fill_module(::pybind11::module_&);                                 \
  extern "C" __attribute__((visibility("default"))) PyObject* FLAMBEAU_INIT(name)(void) { \
    static PyModuleDef definition = {PyModuleDef_HEAD_INIT,                               \
                                     FLAMBEAU_NAME(name),                                 \
                                     nullptr,                                             \
                                     -1,                                                  \
                                     nullptr,                                             \
                                     nullptr,                                             \
                                     nullptr,                                             \
                                     nullptr,                                             \
                                     nullptr};                                            \
    PyObject* module = PyModule_Create(&definition);                                      \
    if (!module) return nullptr;                                                          \
    try {                                                                                 \
      ::pybind11::module_ filled(module);                                                 \
      flambeau_fill_module(filled);                                                       \
      filled.finish();                                                                    \
      return module;                                                                      \
    } catch (...) {                                                                       \
      Py_DECREF(module);                                                                  \
      return ::flambeau::failed();                                                        \
    }                                                                                     \
  }                                                                                       \
  void flambeau_fill_module(::pybind11::module_& variable)

namespace torch {

// Operators of a namespace: `m.def("f(Tensor x) -> Tensor")`, `m.impl("f", &f)`.
class Library {
 public:
  Library(const char* space, const char* kind, const char* key)
      : library_(flambeau::call(
            flambeau::attribute(flambeau::attribute(flambeau::package(), "library").get(),
                                "Library"),
            {flambeau::object_of(space), flambeau::object_of(kind), flambeau::object_of(key)})) {}
  void def(const char* schema) { call("define", {flambeau::object_of(schema)}); }
  template <typename F>
  void def(const char* signature, F function) {
    const std::string text = signature, name = text.substr(0, text.find('('));
    using Arguments = typename flambeau::Signature<F>::Arguments;
    constexpr auto count = std::make_index_sequence<std::tuple_size_v<Arguments>>();
    const bool complete = text.size() > name.size();
    def((complete ? text : flambeau::schema<F>(name, count)).c_str());
    register_as(name, function, "CompositeImplicitAutograd");
  }
  template <typename F>
  void impl(const char* name, F function) {
    call("impl", {flambeau::object_of(name), flambeau::make_function(name, function)});
  }
  void keep() { library_.release(); }  // a library that is collected takes its operators with it

 private:
  template <typename F>
  void register_as(const std::string& name, F function, const char* key) {
    call("impl", {flambeau::object_of(name), flambeau::make_function(name, function),
                  flambeau::object_of(key)});
  }
  void call(const char* method, std::vector<flambeau::Object> args) {
    flambeau::call(flambeau::attribute(library_.get(), method), std::move(args));
  }
  flambeau::Object library_;
};

struct LibraryInit {
  LibraryInit(const char* space, const char* kind, const char* key, void (*fill)(Library&)) {
    const PyGILState_STATE state = PyGILState_Ensure();
    try {
      Library library(space, kind, key);
      fill(library);
      library.keep();
    } catch (...) {
      flambeau::failed();
      PyErr_WriteUnraisable(nullptr);
    }
    PyGILState_Release(state);
  }
};

}  // namespace torch

#define FLAMBEAU_LIBRARY(space, kind, key, variable, unique)                       \
  static void FLAMBEAU_JOIN(flambeau_library_, unique)(::torch::Library&);         \
  static const ::torch::LibraryInit FLAMBEAU_JOIN(flambeau_library_init_, unique)( \
      #space, kind, key, FLAMBEAU_JOIN(flambeau_library_, unique));                \
  void FLAMBEAU_JOIN(flambeau_library_, unique)(::torch::Library & variable)
#define TORCH_LIBRARY(space, variable) FLAMBEAU_LIBRARY(space, "DEF", "", variable, space)
#define TORCH_LIBRARY_FRAGMENT(space, variable) \
  FLAMBEAU_LIBRARY(space, "FRAGMENT", "", variable, space##_fragment)
#define TORCH_LIBRARY_IMPL(space, key, variable) \
  FLAMBEAU_LIBRARY(space, "IMPL", #key, variable, space##_##key)
#define TORCH_FN(function) &function
