// One element at a time: Python number <-> element, and conversions among dtypes.
#include <bit>
#include <cmath>
#include <limits>

#include "core.h"
#include "tensor/tensor_internal.h"

namespace fb {

// Values from minus the maximum wrap into unsigned types, as in C and in PyTorch.
bool integer_fits(DType dtype, int64_t v) {
  const int64_t bits = 8 * item_size(dtype);
  if (dtype == DType::Bool || bits == 64) return true;
  const int64_t end = int64_t{1} << bits;
  return dtype_info(dtype).is_signed ? v >= -end / 2 && v < end / 2 : v > -end && v < end;
}

// Compared before truncation, as PyTorch does; 2^63 is no int64; NaN fails every comparison.
bool real_fits(DType dtype, double v) {
  const int bits = static_cast<int>(8 * item_size(dtype));
  const bool is_signed = dtype_info(dtype).is_signed;
  const double end = std::ldexp(1.0, is_signed ? bits - 1 : bits);
  return (bits == 64 ? v < end : v <= end - 1) && v >= (is_signed ? -end : 0.0);
}

namespace {

template <typename T>
void put(void* at, T value) {
  std::memcpy(at, &value, sizeof value);
}
template <typename T>
T get(const void* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

bool overflow(DType dtype) {
  PyErr_Format(PyExc_RuntimeError,
               "[tensor] value cannot be converted to type %s without overflow\n"
               "hint: use a wider dtype",
               dtype_name(dtype));
  return false;
}

// An integer as 64 bits; of uint64 the bits. Little endian: the low bytes come first.
int64_t load_integer(const void* at, DType dtype) {
  if (dtype == DType::Bool) return get<uint8_t>(at) != 0;
  const auto bytes = static_cast<size_t>(item_size(dtype));
  uint64_t bits = 0;
  std::memcpy(&bits, at, bytes);
  const auto unused = static_cast<int>(8 * (sizeof bits - bytes));
  const auto value = static_cast<int64_t>(bits << unused);
  return dtype_info(dtype).is_signed ? value >> unused : static_cast<int64_t>(bits);
}

// Wraps: a cast between tensors never fails.
void cast_integer(void* at, DType dtype, int64_t v) {
  if (dtype == DType::Bool) return put<uint8_t>(at, v != 0);
  std::memcpy(at, &v, static_cast<size_t>(item_size(dtype)));
}

bool store_integer(void* at, DType dtype, int64_t v) {
  if (!integer_fits(dtype, v)) return overflow(dtype);
  cast_integer(at, dtype, v);
  return true;
}

void store_complex(void* at, DType dtype, double real, double imaginary) {
  char* c = static_cast<char*>(at);
  switch (dtype) {
    case DType::F16:
      put(at, float_to_half(static_cast<float>(real)));
      break;
    case DType::BF16:
      put(at, float_to_bfloat16(static_cast<float>(real)));
      break;
    case DType::F32:
      put(at, static_cast<float>(real));
      break;
    case DType::F64:
      put(at, real);
      break;
    case DType::E4M3FN:
    case DType::E5M2:
    case DType::E4M3FNUZ:
    case DType::E5M2FNUZ:
    case DType::E8M0FNU:
    case DType::E2M1FNX2:
      put(at, float_to_minifloat(dtype, static_cast<float>(real)));
      break;
    case DType::C32:
      put(c, float_to_half(static_cast<float>(real)));
      put(c + 2, float_to_half(static_cast<float>(imaginary)));
      break;
    case DType::C64:
      put(c, static_cast<float>(real));
      put(c + 4, static_cast<float>(imaginary));
      break;
    default:
      put(c, real);
      put(c + 8, imaginary);
  }
}

bool store_real(void* at, DType dtype, double v) {
  if (dtype == DType::Bool) return put<uint8_t>(at, v != 0), true;
  if (!is_integral(dtype)) return store_complex(at, dtype, v, 0.0), true;
  if (!real_fits(dtype, v)) return overflow(dtype);
  if (dtype == DType::U64) return put(at, static_cast<uint64_t>(v)), true;
  return store_integer(at, dtype, static_cast<int64_t>(v));
}

// Unboxes an element; integers in `integer` (of uint64 the bits), everything else in real and
// imaginary.
struct Value {
  int64_t integer = 0;
  double real = 0, imaginary = 0;
};
Value load_value(const void* at, DType dtype) {
  Value v;
  const char* c = static_cast<const char*>(at);
  if (is_integral(dtype)) {
    v.integer = load_integer(at, dtype);
    return v;
  }
  switch (dtype) {
    case DType::F16:
      v.real = static_cast<double>(half_to_float(get<uint16_t>(at)));
      break;
    case DType::BF16:
      v.real = static_cast<double>(bfloat16_to_float(get<uint16_t>(at)));
      break;
    case DType::F32:
      v.real = static_cast<double>(get<float>(at));
      break;
    case DType::F64:
      v.real = get<double>(at);
      break;
    case DType::E4M3FN:
    case DType::E5M2:
    case DType::E4M3FNUZ:
    case DType::E5M2FNUZ:
    case DType::E8M0FNU:
    case DType::E2M1FNX2:
      v.real = static_cast<double>(minifloat_to_float(dtype, get<uint8_t>(at)));
      break;
    case DType::C32:
      v.real = static_cast<double>(half_to_float(get<uint16_t>(c)));
      v.imaginary = static_cast<double>(half_to_float(get<uint16_t>(c + 2)));
      break;
    case DType::C64:
      v.real = static_cast<double>(get<float>(c));
      v.imaginary = static_cast<double>(get<float>(c + 4));
      break;
    default:
      v.real = get<double>(c);
      v.imaginary = get<double>(c + 8);
  }
  return v;
}

// Conversions to wide unsigned types take the upper half of their range apart, as x86 does.
uint64_t truncate_unsigned(double v, double half) {
  const auto fit = [&](double x) {
    return x >= -half && x < half ? static_cast<int64_t>(x) : -static_cast<int64_t>(half / 2) * 2;
  };
  const auto top = static_cast<uint64_t>(half);
  return v >= half ? static_cast<uint64_t>(fit(v - half)) ^ top : static_cast<uint64_t>(fit(v));
}
int64_t truncate(double v) {
  if (v >= -9223372036854775808.0 && v < 9223372036854775808.0) return static_cast<int64_t>(v);
  return std::numeric_limits<int64_t>::min();  // what x86 conversions give, NaN included
}

bool store_unsigned_long(void* at, PyObject* number) {
  const unsigned long long v = PyLong_AsUnsignedLongLong(number);
  if (v == ~0ull && PyErr_Occurred()) return false;
  put(at, static_cast<uint64_t>(v));
  return true;
}

bool store_long(void* at, DType dtype, PyObject* number) {
  if (dtype == DType::U64) return store_unsigned_long(at, number);
  if (!is_integral(dtype)) {
    const double v = PyLong_AsDouble(number);
    if (v == -1.0 && PyErr_Occurred()) return false;
    store_complex(at, dtype, v, 0.0);
    return true;
  }
  int failed = 0;
  const long long v = PyLong_AsLongLongAndOverflow(number, &failed);
  if (v == -1 && !failed && PyErr_Occurred()) return false;
  if (failed && dtype == DType::Bool) return put<uint8_t>(at, 1), true;
  if (failed) {
    PyErr_SetString(PyExc_ValueError,
                    "[tensor] Overflow when unpacking long long\nhint: use dtype=torch.float64");
    return false;
  }
  return store_integer(at, dtype, v);
}

bool store_element(void* at, DType dtype, Tensor* t) {
  if (t->numel != 1) {
    PyErr_SetString(PyExc_ValueError,
                    "[tensor] only one element tensors can be converted to Python scalars\n"
                    "hint: use stack() to join tensors");
    return false;
  }
  PyObject* value = tensor_item(t);
  if (!value) return false;
  const bool good = store_scalar(at, dtype, value);
  Py_DECREF(value);
  return good;
}

}  // namespace

uint16_t float_to_bfloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {  // NaN: stays quiet, with its sign
    return static_cast<uint16_t>((bits >> 16) | 0x40u);
  }
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
namespace {

struct Minifloat {
  int mantissa, bias;
  uint8_t largest;   // code of the largest finite number
  uint8_t overflow;  // what is larger becomes
  bool one_zero;     // no -0: its code is the only NaN
};
constexpr Minifloat minifloat(DType t) {
  switch (t) {
    case DType::E4M3FN:
      return {3, 7, 0x7e, 0x7e, false};
    case DType::E5M2:
      return {2, 15, 0x7b, 0x7c, false};
    case DType::E4M3FNUZ:
      return {3, 8, 0x7f, 0x80, true};
    default:
      return {2, 16, 0x7f, 0x80, true};
  }
}

// A power of two; ties go up.
uint8_t float_to_exponent(uint32_t bits) {
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude >= 0x7f800000u) return 0xff;
  const uint32_t half = magnitude < 0x800000u ? 0x3fffffu : 0x400000u;
  return static_cast<uint8_t>((magnitude + half) >> 23);
}

}  // namespace

uint8_t float_to_minifloat(DType t, float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (t == DType::E2M1FNX2) return 0;
  if (t == DType::E8M0FNU) return float_to_exponent(bits);
  const Minifloat m = minifloat(t);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const auto sign = static_cast<uint8_t>((bits >> 24) & 0x80u);
  if (magnitude > 0x7f800000u) return m.one_zero ? 0x80 : static_cast<uint8_t>(sign | 0x7f);
  uint32_t code;
  if (magnitude < static_cast<uint32_t>(128 - m.bias) << 23) {  // subnormal: as in float_to_half
    const float unit = std::ldexp(1.0f, 24 - m.bias - m.mantissa);
    const float shifted = std::bit_cast<float>(magnitude) + unit;
    code = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(unit);
  } else {
    const int drop = 23 - m.mantissa;
    const uint32_t rounded = magnitude + ((1u << (drop - 1)) - 1) + ((magnitude >> drop) & 1u);
    code = (rounded - (static_cast<uint32_t>(127 - m.bias) << 23)) >> drop;
    if (code > m.largest) code = m.overflow;
  }
  if (m.one_zero && (code == 0 || code == 0x80)) return static_cast<uint8_t>(code);
  return static_cast<uint8_t>(sign | code);
}

float minifloat_to_float(DType t, uint8_t code) {
  if (t == DType::E2M1FNX2) return static_cast<float>(code);  // two numbers: only storage
  if (t == DType::E8M0FNU) {
    if (code == 0xff) return std::numeric_limits<float>::quiet_NaN();
    return std::ldexp(1.0f, code - 127);
  }
  const Minifloat m = minifloat(t);
  const uint32_t magnitude = code & 0x7fu;
  const uint32_t sign = (code & 0x80u) << 24;
  if (m.one_zero && code == 0x80) return std::numeric_limits<float>::quiet_NaN();
  if (!m.one_zero && magnitude > m.largest) {
    const uint32_t rest = magnitude << (23 - m.mantissa);
    const uint32_t quiet = magnitude > m.overflow ? 0x400000u : 0;
    return std::bit_cast<float>(sign | 0x7f800000u | rest | quiet);
  }
  const float value = std::bit_cast<float>(magnitude << (23 - m.mantissa));
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(std::ldexp(value, 127 - m.bias)));
}

uint16_t float_to_half(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  }
  if (magnitude >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 2^16 and beyond
  if (magnitude < 0x38800000u) {  // below 2^-14: the result is subnormal, in units of 2^-24
    // Adding 0.5 puts the unit at the last bit of the sum, so the FPU rounds to even for us.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}
bool convert_element(void* to, DType to_type, const void* from, DType from_type) {
  const Value v = load_value(from, from_type);
  if (is_integral(from_type)) {
    const auto whole = static_cast<uint64_t>(v.integer);
    if (is_integral(to_type)) {
      cast_integer(to, to_type, v.integer);
    } else if (from_type == DType::U64 && item_size(to_real(to_type)) < 8) {
      store_complex(to, to_type, static_cast<double>(static_cast<float>(whole)), 0.0);
    } else if (from_type == DType::U64) {
      store_complex(to, to_type, static_cast<double>(whole), 0.0);
    } else if (to_type == DType::F32 || to_type == DType::C64) {
      // Straight from the integer: by way of double it would be rounded twice.
      put(to, static_cast<float>(v.integer));
      if (to_type == DType::C64) put(static_cast<char*>(to) + 4, 0.0f);
    } else if (item_size(to_real(to_type)) < 4) {
      store_complex(to, to_type, static_cast<double>(static_cast<float>(v.integer)), 0.0);
    } else {
      store_complex(to, to_type, static_cast<double>(v.integer), 0.0);
    }
  } else if (to_type == DType::Bool) {
    put<uint8_t>(to, v.real != 0 || v.imaginary != 0);
  } else if (to_type == DType::U32) {
    put(to, static_cast<uint32_t>(truncate_unsigned(v.real, 0x1p31)));
  } else if (to_type == DType::U64) {
    put(to, truncate_unsigned(v.real, 0x1p63));
  } else if (to_type == DType::U16) {
    const bool inside = v.real >= -0x1p31 && v.real < 0x1p31;
    put(to, static_cast<uint16_t>(inside ? static_cast<int32_t>(v.real) : 0));
  } else if (is_integral(to_type)) {
    cast_integer(to, to_type, truncate(v.real));
  } else {
    store_complex(to, to_type, v.real, v.imaginary);
  }
  return true;
}

bool store_scalar(void* at, DType dtype, PyObject* value) {
  if (PyFloat_Check(value)) return store_real(at, dtype, PyFloat_AS_DOUBLE(value));
  if (PyLong_Check(value)) return store_long(at, dtype, value);
  if (is_tensor(value)) return store_element(at, dtype, reinterpret_cast<Tensor*>(value));
  if (PyComplex_Check(value)) {
    const Py_complex c = PyComplex_AsCComplex(value);
    if (dtype == DType::Bool) return put<uint8_t>(at, c.real != 0 || c.imag != 0), true;
    if (!is_complex(dtype)) {
      PyErr_Format(PyExc_TypeError,
                   "[tensor] must be real number, not complex\n"
                   "hint: dtype %s has no imaginary part",
                   dtype_name(dtype));
      return false;
    }
    store_complex(at, dtype, c.real, c.imag);
    return true;
  }
  // NumPy scalars and 0-dim arrays, symbolic sizes: anything with item() or __index__.
  if (PyObject_HasAttrString(value, "item")) {
    PyObject* item = PyObject_CallMethod(value, "item", nullptr);
    if (!item) return false;
    const bool good = Py_TYPE(item) != Py_TYPE(value) && store_scalar(at, dtype, item);
    Py_DECREF(item);
    if (good || PyErr_Occurred()) return good;
  } else if (PyIndex_Check(value)) {
    PyObject* number = PyNumber_Index(value);
    const bool good = number && store_long(at, dtype, number);
    Py_XDECREF(number);
    return good;
  }
  PyErr_Format(PyExc_TypeError,
               "[tensor] '%s' object cannot be interpreted as a number of dtype %s\n"
               "hint: pass numbers",
               Py_TYPE(value)->tp_name, dtype_name(dtype));
  return false;
}

PyObject* load_scalar(const void* at, DType dtype) {
  const Value v = load_value(at, dtype);
  if (dtype == DType::Bool) return PyBool_FromLong(v.integer != 0);
  if (dtype == DType::U64) return PyLong_FromUnsignedLongLong(static_cast<uint64_t>(v.integer));
  if (is_integral(dtype)) return PyLong_FromLongLong(v.integer);
  if (is_complex(dtype)) return PyComplex_FromDoubles(v.real, v.imaginary);
  return PyFloat_FromDouble(v.real);
}

}  // namespace fb
