// Conversions between C++ values and objects of the interpreter: `Cast<T>::load`, `Cast<T>::make`.
#pragma once
#include "values.h"

namespace flambeau {

template <typename T, typename = void>
struct Cast;

[[noreturn]] inline void wrong_type(const char* expected, PyObject* object) {
  throw c10::Error(PyExc_TypeError, c10::str("incompatible function arguments: expected ", expected,
                                             ", got ", Py_TYPE(object)->tp_name));
}

template <>
struct Cast<Object> {
  static constexpr const char* schema = "Any";
  static Object load(PyObject* object) { return Object::borrowed(object); }
  static Object make(const Object& value) { return value; }
};
template <>
struct Cast<bool> {
  static constexpr const char* schema = "bool";
  static bool load(PyObject* object) {
    if (!PyBool_Check(object)) wrong_type("bool", object);
    return object == Py_True;
  }
  static Object make(bool value) { return Object::borrowed(value ? Py_True : Py_False); }
};
template <typename T>
struct Cast<T, std::enable_if_t<std::is_integral_v<T>>> {
  static constexpr const char* schema = "int";
  static T load(PyObject* object) {
    if (PyFloat_Check(object)) wrong_type("int", object);
    const Object index = Object::checked(PyNumber_Index(object));
    const long long value = PyLong_AsLongLong(index.get());
    if (value == -1 && PyErr_Occurred()) throw c10::PythonError();
    return static_cast<T>(value);
  }
  static Object make(T value) {
    return Object::checked(PyLong_FromLongLong(static_cast<long long>(value)));
  }
};
template <typename T>
struct Cast<T, std::enable_if_t<std::is_floating_point_v<T>>> {
  static constexpr const char* schema = "float";
  static T load(PyObject* object) {
    const double value = PyFloat_AsDouble(object);
    if (value == -1 && PyErr_Occurred()) throw c10::PythonError();
    return static_cast<T>(value);
  }
  static Object make(T value) { return Object::checked(PyFloat_FromDouble(value)); }
};
template <>
struct Cast<std::string> {
  static constexpr const char* schema = "str";
  static std::string load(PyObject* object) {
    Py_ssize_t size;
    const char* text = PyUnicode_Check(object) ? PyUnicode_AsUTF8AndSize(object, &size) : nullptr;
    if (!text) wrong_type("str", object);
    return std::string(text, static_cast<size_t>(size));
  }
  static Object make(const std::string& value) {
    return Object::checked(PyUnicode_FromStringAndSize(value.data(), value.size()));
  }
};
template <>
struct Cast<const char*> {
  static Object make(const char* value) { return Cast<std::string>::make(value); }
};
template <>
struct Cast<c10::Scalar> {
  static constexpr const char* schema = "Scalar";
  static c10::Scalar load(PyObject* object) {
    if (PyBool_Check(object)) return c10::Scalar(object == Py_True);
    if (PyLong_Check(object)) return c10::Scalar(Cast<int64_t>::load(object));
    return c10::Scalar(Cast<double>::load(object));
  }
  static Object make(const c10::Scalar& value) {
    if (value.isBoolean()) return Cast<bool>::make(value.toLong() != 0);
    return value.isFloatingPoint() ? Cast<double>::make(value.toDouble())
                                   : Cast<int64_t>::make(value.toLong());
  }
};
template <>
struct Cast<c10::ScalarType> {
  static constexpr const char* schema = "ScalarType";
  static c10::ScalarType load(PyObject* object) {
#define FLAMBEAU_ENTRY(type, name, spelled)                             \
  {                                                                     \
    static PyObject* const known = dtype_object(c10::ScalarType::name); \
    if (object == known) return c10::ScalarType::name;                  \
  }
    FLAMBEAU_DTYPES(FLAMBEAU_ENTRY)
#undef FLAMBEAU_ENTRY
    wrong_type("a dtype that C++ code may have", object);
  }
  static Object make(c10::ScalarType value) { return attribute(package(), c10::dtype_name(value)); }
};
template <>
struct Cast<c10::Device> {
  static Object make(const c10::Device& value) {
    return Cast<const char*>::make(value.is_cpu() ? "cpu" : "cuda");
  }
};
template <>
struct Cast<std::nullopt_t> {
  static Object make(std::nullopt_t) { return Object::borrowed(Py_None); }
};
template <typename T>
struct Cast<std::optional<T>> {
  static inline const std::string schema = std::string(Cast<T>::schema) + "?";
  static std::optional<T> load(PyObject* object) {
    if (object == Py_None) return std::nullopt;
    return Cast<T>::load(object);
  }
  static Object make(const std::optional<T>& value) {
    return value ? Cast<T>::make(*value) : Object::borrowed(Py_None);
  }
};
template <typename T>
struct Cast<std::vector<T>> {
  static inline const std::string schema = std::string(Cast<T>::schema) + "[]";
  static std::vector<T> load(PyObject* object) {
    const Object items = Object::stolen(PySequence_Fast(object, "expected a sequence"));
    if (!items) throw c10::PythonError();
    std::vector<T> values;
    const Py_ssize_t size = PySequence_Fast_GET_SIZE(items.get());
    for (Py_ssize_t i = 0; i < size; ++i)
      values.push_back(Cast<T>::load(PySequence_Fast_GET_ITEM(items.get(), i)));
    return values;
  }
  static Object make(c10::ArrayRef<T> values) {
    Object list = Object::checked(PyList_New(static_cast<Py_ssize_t>(values.size())));
    for (size_t i = 0; i < values.size(); ++i)
      PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), Cast<T>::make(values[i]).release());
    return list;
  }
};
template <>
struct Cast<std::vector<bool>>;
// An argument of this type refers to a vector that lives as long as the call; see `Argument`.
template <typename T>
struct Cast<c10::ArrayRef<T>> : Cast<std::vector<T>> {};
template <typename... T>
struct Cast<std::tuple<T...>> {
  static inline const std::string schema = [] {
    std::string text;
    ((text += (text.empty() ? "" : ", ") + std::string(Cast<T>::schema)), ...);
    return "(" + text + ")";
  }();
  static Object make(const std::tuple<T...>& values) {
    Object tuple = Object::checked(PyTuple_New(sizeof...(T)));
    Py_ssize_t at = 0;
    std::apply(
        [&](const T&... each) {
          (PyTuple_SET_ITEM(tuple.get(), at++, Cast<T>::make(each).release()), ...);
        },
        values);
    return tuple;
  }
};
template <typename A, typename B>
struct Cast<std::pair<A, B>> : Cast<std::tuple<A, B>> {};

// Options of a call by name.
using Options = std::vector<std::pair<const char*, Object>>;

inline Object call(const Object& function, std::vector<Object> args, const Options& options = {}) {
  const Object positional = Object::checked(PyTuple_New(static_cast<Py_ssize_t>(args.size())));
  for (size_t i = 0; i < args.size(); ++i)
    PyTuple_SET_ITEM(positional.get(), static_cast<Py_ssize_t>(i), args[i].release());
  Object named;
  if (!options.empty()) {
    named = Object::checked(PyDict_New());
    for (const auto& [name, value] : options)
      if (PyDict_SetItemString(named.get(), name, value.get())) throw c10::PythonError();
  }
  return Object::checked(PyObject_Call(function.get(), positional.get(), named.get()));
}
template <typename T>
Object object_of(const T& value) {
  return Cast<std::decay_t<T>>::make(value);
}

}  // namespace flambeau
