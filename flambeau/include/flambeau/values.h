// Values that C++ code exchanges with the interpreter: objects, errors, dtypes, numbers, shapes.
#pragma once
#include <Python.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace c10 {

// An error of a check; `type` is the exception that Python sees.
class Error : public std::runtime_error {
 public:
  Error(PyObject* type, const std::string& text) : std::runtime_error(text), type(type) {}
  PyObject* type;
};
// The interpreter's error is set already.
struct PythonError {};

template <typename... Parts>
std::string str(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

template <typename T>
class ArrayRef {
 public:
  ArrayRef() = default;
  ArrayRef(const T* data, size_t size) : data_(data), size_(size) {}
  ArrayRef(const std::vector<T>& values) : ArrayRef(values.data(), values.size()) {}
  ArrayRef(const std::initializer_list<T>& values) : ArrayRef(values.begin(), values.size()) {}
  ArrayRef(const T& value) : ArrayRef(&value, 1) {}
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const T& operator[](size_t i) const { return data_[i]; }
  const T& front() const { return data_[0]; }
  const T& back() const { return data_[size_ - 1]; }
  std::vector<T> vec() const { return std::vector<T>(begin(), end()); }
  bool equals(ArrayRef other) const {
    if (size_ != other.size_) return false;
    for (size_t i = 0; i < size_; ++i)
      if (!(data_[i] == other[i])) return false;
    return true;
  }

 private:
  const T* data_ = nullptr;
  size_t size_ = 0;
};
template <typename T>
bool operator==(ArrayRef<T> a, ArrayRef<T> b) {
  return a.equals(b);
}
template <typename T>
bool operator!=(ArrayRef<T> a, ArrayRef<T> b) {
  return !a.equals(b);
}
template <typename T>
std::ostream& operator<<(std::ostream& out, ArrayRef<T> values) {
  out << "[";
  for (size_t i = 0; i < values.size(); ++i) out << (i ? ", " : "") << values[i];
  return out << "]";
}
using IntArrayRef = ArrayRef<int64_t>;

// The upper half of a float.
struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  BFloat16(float value) {
    uint32_t all;
    std::memcpy(&all, &value, 4);
    const uint32_t rounded = all + 0x7fff + ((all >> 16) & 1);
    bits = static_cast<uint16_t>(value != value ? 0x7fc0 : rounded >> 16);
  }
  operator float() const {
    const uint32_t all = static_cast<uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &all, 4);
    return value;
  }
};

// IEEE 754 binary16.
struct Half {
  uint16_t bits = 0;
  Half() = default;
  Half(float value) {
    uint32_t all;
    std::memcpy(&all, &value, 4);
    const uint32_t sign = (all >> 16) & 0x8000, magnitude = all & 0x7fffffff;
    if (magnitude > 0x7f800000) {
      bits = static_cast<uint16_t>(sign | 0x7e00);
    } else if (magnitude >= 0x477ff000) {
      bits = static_cast<uint16_t>(sign | 0x7c00);
    } else if (magnitude < 0x38800000) {  // subnormal: the sum rounds at its last bit
      float small;
      std::memcpy(&small, &magnitude, 4);
      small += 0.5F;
      uint32_t sum;
      std::memcpy(&sum, &small, 4);
      bits = static_cast<uint16_t>(sign | (sum - 0x3f000000));
    } else {
      const uint32_t rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
      bits = static_cast<uint16_t>(sign | ((rounded - 0x38000000) >> 13));
    }
  }
  operator float() const {
    const uint32_t exponent = (bits >> 10) & 31, fraction = bits & 1023;
    const float sign = bits & 0x8000 ? -1.0F : 1.0F;
    if (exponent == 0) return sign * static_cast<float>(fraction) * 5.9604644775390625e-8F;
    const uint32_t all = (exponent == 31 ? 0x7f800000 : (exponent + 112) << 23) | (fraction << 13);
    float value;
    std::memcpy(&value, &all, 4);
    return sign * value;
  }
};

#define FLAMBEAU_DTYPES(_)                                                               \
  _(uint8_t, Byte, "uint8")                                                              \
  _(int8_t, Char, "int8") _(int16_t, Short, "int16") _(int32_t, Int, "int32")            \
      _(int64_t, Long, "int64") _(c10::Half, Half, "float16") _(float, Float, "float32") \
          _(double, Double, "float64") _(bool, Bool, "bool")                             \
              _(c10::BFloat16, BFloat16, "bfloat16")

enum class ScalarType : int8_t {
#define FLAMBEAU_ENTRY(type, name, spelled) name,
  FLAMBEAU_DTYPES(FLAMBEAU_ENTRY)
#undef FLAMBEAU_ENTRY
      Undefined
};
inline const char* toString(ScalarType t) {
#define FLAMBEAU_ENTRY(type, name, spelled) \
  if (t == ScalarType::name) return #name;
  FLAMBEAU_DTYPES(FLAMBEAU_ENTRY)
#undef FLAMBEAU_ENTRY
  return "Undefined";
}
inline const char* dtype_name(ScalarType t) {
#define FLAMBEAU_ENTRY(type, name, spelled) \
  if (t == ScalarType::name) return spelled;
  FLAMBEAU_DTYPES(FLAMBEAU_ENTRY)
#undef FLAMBEAU_ENTRY
  return "undefined";
}
inline std::ostream& operator<<(std::ostream& out, ScalarType t) { return out << toString(t); }
inline bool isFloatingType(ScalarType t) {
  return t == ScalarType::Float || t == ScalarType::Double || t == ScalarType::Half ||
         t == ScalarType::BFloat16;
}
template <typename T>
struct CppTypeToScalarType;
#define FLAMBEAU_ENTRY(type, name, spelled)               \
  template <>                                             \
  struct CppTypeToScalarType<type> {                      \
    static constexpr ScalarType value = ScalarType::name; \
  };
FLAMBEAU_DTYPES(FLAMBEAU_ENTRY)
#undef FLAMBEAU_ENTRY

// A number: an integer, a float or a bool.
class Scalar {
 public:
  Scalar(double value) : kind_('f'), float_(value) {}
  Scalar(float value) : Scalar(static_cast<double>(value)) {}
  Scalar(int64_t value) : kind_('i'), int_(value) {}
  Scalar(int value) : Scalar(static_cast<int64_t>(value)) {}
  Scalar(bool value) : kind_('b'), int_(value) {}
  template <typename T>
  T to() const {
    return kind_ == 'f' ? static_cast<T>(float_) : static_cast<T>(int_);
  }
  double toDouble() const { return to<double>(); }
  float toFloat() const { return to<float>(); }
  int64_t toLong() const { return to<int64_t>(); }
  int toInt() const { return to<int>(); }
  bool isFloatingPoint() const { return kind_ == 'f'; }
  bool isIntegral(bool include_bool) const { return kind_ == 'i' || (include_bool && isBoolean()); }
  bool isBoolean() const { return kind_ == 'b'; }

 private:
  char kind_;
  double float_ = 0;
  int64_t int_ = 0;
};

enum class DeviceType : int8_t { CPU, CUDA };
constexpr DeviceType kCPU = DeviceType::CPU, kCUDA = DeviceType::CUDA;
struct Device {
  DeviceType type_ = DeviceType::CPU;
  Device() = default;
  Device(DeviceType type) : type_(type) {}
  bool is_cpu() const { return type_ == DeviceType::CPU; }
  bool is_cuda() const { return type_ == DeviceType::CUDA; }
  DeviceType type() const { return type_; }
};
template <typename T>
using optional = std::optional<T>;
constexpr std::nullopt_t nullopt = std::nullopt;

}  // namespace c10

namespace flambeau {

// A reference to an object of the interpreter.
class Object {
 public:
  Object() = default;
  Object(const Object& other) : object_(Py_XNewRef(other.object_)) {}
  Object(Object&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Object& operator=(Object other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Object() { Py_XDECREF(object_); }
  static Object borrowed(PyObject* object) { return stolen(Py_XNewRef(object)); }
  static Object stolen(PyObject* object) {
    Object result;
    result.object_ = object;
    return result;
  }
  // Of a call that returns null with the interpreter's error set.
  static Object checked(PyObject* object) {
    if (!object) throw c10::PythonError();
    return stolen(object);
  }
  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

inline Object attribute(PyObject* owner, const char* name) {
  return Object::checked(PyObject_GetAttrString(owner, name));
}
// The package; a module is never unloaded.
inline PyObject* package() {
  static PyObject* const module = Object::checked(PyImport_ImportModule("flambeau")).release();
  return module;
}
inline PyObject* dtype_object(c10::ScalarType t) {
  return attribute(package(), c10::dtype_name(t)).release();
}

}  // namespace flambeau

#define FLAMBEAU_CHECK(type, condition, ...)                                                    \
  do {                                                                                          \
    if (!(condition)) throw ::c10::Error(type, ::flambeau::message(#condition, ##__VA_ARGS__)); \
  } while (false)
#define TORCH_CHECK(condition, ...) FLAMBEAU_CHECK(PyExc_RuntimeError, condition, ##__VA_ARGS__)
#define TORCH_CHECK_INDEX(condition, ...) FLAMBEAU_CHECK(PyExc_IndexError, condition, ##__VA_ARGS__)
#define TORCH_CHECK_VALUE(condition, ...) FLAMBEAU_CHECK(PyExc_ValueError, condition, ##__VA_ARGS__)
#define TORCH_CHECK_TYPE(condition, ...) FLAMBEAU_CHECK(PyExc_TypeError, condition, ##__VA_ARGS__)
#define TORCH_CHECK_NOT_IMPLEMENTED(condition, ...) \
  FLAMBEAU_CHECK(PyExc_NotImplementedError, condition, ##__VA_ARGS__)
#define TORCH_INTERNAL_ASSERT TORCH_CHECK
#define AT_ASSERTM TORCH_CHECK
#define AT_ERROR(...) TORCH_CHECK(false, __VA_ARGS__)

namespace flambeau {
inline std::string message(const char* condition) {
  return c10::str("Expected ", condition, " to be true, but got false.");
}
template <typename... Parts>
std::string message(const char*, const Parts&... parts) {
  return c10::str(parts...);
}
}  // namespace flambeau
