// Numbers as users write them: Python's, NumPy's scalars and tensors of one element, told apart by
// the four number types that type promotion knows. Nothing here imports NumPy.
#include <cmath>
#include <limits>

#include "call/op_internal.h"
#include "tensor/tensor_internal.h"

namespace fb {
namespace {

// What is known about a Python type, keyed by its version: attributes may be added later.
struct TypeInfo {
  PyTypeObject* type = nullptr;
  unsigned int version = 0;
  bool is_tensor = false;
  bool dispatches = false;
  Override kind = Override::None;
};
constexpr size_t kTypeSlots = 64;
TypeInfo type_infos[kTypeSlots];
PyObject* torch_function_name = nullptr;
PyObject* plain_torch_function = nullptr;  // _core._disabled_torch_function, borrowed for ever

bool has_torch_dispatch(PyTypeObject* type) {
  auto* object = reinterpret_cast<PyObject*>(type);
  const auto handler = steal(PyObject_GetAttrString(object, "__torch_dispatch__"));
  if (!handler) PyErr_Clear();
  return handler && handler.get() != plain_torch_function && handler.get() != Py_None;
}

Override kind_of(PyTypeObject* type) {
  auto* object = reinterpret_cast<PyObject*>(type);
  const auto handler = steal(PyObject_GetAttr(object, torch_function_name));
  if (!handler) PyErr_Clear();
  if (!handler || handler.get() == plain_torch_function || handler.get() == Py_None) {
    return Override::None;
  }
  const auto ours = steal(PyObject_GetAttrString(object, "_operators_only"));
  if (!ours) PyErr_Clear();
  return ours ? Override::Internal : Override::Public;
}

void read_names() {
  torch_function_name = PyUnicode_InternFromString("__torch_function__");
  plain_torch_function = import_attribute("flambeau._core", "_disabled_torch_function");
  PyErr_Clear();
}

const TypeInfo& look_up(PyTypeObject* type) {
  const auto bits = reinterpret_cast<uintptr_t>(type);
  TypeInfo& info = type_infos[(bits >> 4 ^ bits >> 10) % kTypeSlots];
  const bool versioned = PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG);
  if (info.type == type && versioned && info.version == type->tp_version_tag) return info;
  if (!torch_function_name) read_names();
  info.type = type;
  info.is_tensor = PyType_IsSubtype(type, TensorType);
  info.dispatches = info.is_tensor && type != TensorType && has_torch_dispatch(type);
  info.kind = kind_of(type);  // gives the type a version
  info.version = type->tp_version_tag;
  return info;
}

bool named(PyTypeObject* type, const char* name) { return std::strcmp(type->tp_name, name) == 0; }

bool from_numpy_bool(PyObject* object) {
  return named(Py_TYPE(object), "numpy.bool") || named(Py_TYPE(object), "numpy.bool_");
}

// Integers are words of a call's key; wider ones are refused.
Outcome read_word(Frame* frame, PyObject* integer, int64_t* out) {
  int overflow = 0;
  *out = PyLong_AsLongLongAndOverflow(integer, &overflow);
  if (!overflow) return Outcome::Ok;
  frame->too_large = true;
  return Outcome::Failed;
}

Outcome read_long(Frame* frame, PyObject* object, Number* out) {
  out->type = NumberType::Int;
  const Outcome outcome = read_word(frame, object, &out->value.i);
  if (outcome == Outcome::Ok) return outcome;
  const unsigned long long bits = PyLong_AsUnsignedLongLong(object);
  if (PyErr_Occurred()) return PyErr_Clear(), outcome;
  frame->too_large = false;
  out->type = NumberType::Unsigned;
  out->value.i = static_cast<int64_t>(bits);
  return Outcome::Ok;
}

double real_of(const Number& number) {
  if (number.type == NumberType::Float || number.type == NumberType::Complex) return number.value.d;
  if (number.type != NumberType::Unsigned) return static_cast<double>(number.value.i);
  return static_cast<double>(static_cast<uint64_t>(number.value.i));
}

// The greatest finite number, in what a complex number is made of where that is meant.
double greatest(DType dtype) {
  switch (dtype) {
    case DType::F16:
    case DType::C32:
      return 65504.0;
    case DType::BF16:
      return 0x1.fep127;
    case DType::F32:
    case DType::C64:
      return std::numeric_limits<float>::max();
    default:
      return std::numeric_limits<double>::max();
  }
}

bool fits_real(double value, DType dtype) {
  return !std::isfinite(value) || std::abs(value) <= greatest(dtype);
}

// As a conversion in C would keep it; negative integers wrap into unsigned types.
bool fits(const Number& number, DType dtype) {
  if (number.type == NumberType::Complex && !is_complex(dtype) && number.imaginary != 0) {
    return false;
  }
  if (number.type == NumberType::Bool || dtype == DType::Bool) return true;
  if (!is_integral(dtype)) {
    return fits_real(real_of(number), dtype) &&
           (number.type != NumberType::Complex || fits_real(number.imaginary, dtype));
  }
  if (number.type == NumberType::Unsigned) return dtype == DType::U64;
  return number.type == NumberType::Int ? integer_fits(dtype, number.value.i)
                                        : real_fits(dtype, number.value.d);
}

Outcome read_complex(PyObject* object, Number* out) {
  const Py_complex value = PyComplex_AsCComplex(object);
  if (value.real == -1.0 && PyErr_Occurred()) return Outcome::Failed;
  out->type = NumberType::Complex;
  out->value.d = value.real;
  out->imaginary = value.imag;
  return Outcome::Ok;
}

// A tensor without dimensions is a number, unless that would lose its gradient.
Outcome read_item(Frame* frame, Tensor* t, Number* out) {
  if (t->numel != 1 || t->ndim != 0) return Outcome::Mismatch;
  if (t->autograd && tensor_requires_grad(t)) return Outcome::Mismatch;
  PyObject* item = PyObject_CallMethod(reinterpret_cast<PyObject*>(t), "item", nullptr);
  if (!frame->own(item)) return Outcome::Failed;
  return read_number(frame, item, out);
}

Outcome read_foreign(Frame* frame, PyObject* object, Number* out) {
  PyTypeObject* type = Py_TYPE(object);
  if (is_tensor(object)) return read_item(frame, reinterpret_cast<Tensor*>(object), out);
  if (from_numpy_bool(object)) {
    const int truth = PyObject_IsTrue(object);
    *out = {NumberType::Bool, {}, 0};
    out->value.i = truth;
    return truth < 0 ? Outcome::Failed : Outcome::Ok;
  }
  PyNumberMethods* number = type->tp_as_number;
  if (!number || named(type, "numpy.ndarray")) return Outcome::Mismatch;
  if (number->nb_index) {
    PyObject* integer = frame->own(PyNumber_Index(object));
    return integer ? read_long(frame, integer, out) : Outcome::Failed;
  }
  if (named(type, "numpy.complex64")) return read_complex(object, out);
  if (!number->nb_float) return Outcome::Mismatch;
  PyObject* real = frame->own(PyNumber_Float(object));
  if (!real) return Outcome::Failed;
  out->type = NumberType::Float;
  out->value.d = PyFloat_AS_DOUBLE(real);
  return Outcome::Ok;
}

}  // namespace

bool is_plain_tensor_type(PyTypeObject* type, Override* kind) {
  const TypeInfo& info = look_up(type);
  *kind = info.kind;
  return info.is_tensor;
}

Override override_of(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (PyType_Check(object) || PyLong_Check(object) || PyFloat_Check(object) ||
      PyUnicode_Check(object) || object == Py_None || PyTuple_CheckExact(object) ||
      PyList_CheckExact(object)) {
    return Override::None;
  }
  Override kind = Override::None;
  is_plain_tensor_type(type, &kind);
  return kind;
}

bool dispatches(PyObject* object) { return look_up(Py_TYPE(object)).dispatches; }

bool override_attribute(PyObject* self) {
  const TypeInfo& info = look_up(Py_TYPE(self));
  if (interceptors & kFunctionModes) return info.kind != Override::Internal;
  return !torch_function_disabled && info.kind == Override::Public;
}

Outcome read_number(Frame* frame, PyObject* object, Number* out) {
  if (PyLong_CheckExact(object)) return read_long(frame, object, out);
  if (PyFloat_Check(object)) {  // includes numpy.float64
    out->type = NumberType::Float;
    out->value.d = PyFloat_AS_DOUBLE(object);
    return Outcome::Ok;
  }
  if (PyBool_Check(object)) {
    out->type = NumberType::Bool;
    out->value.i = object == Py_True;
    return Outcome::Ok;
  }
  if (PyLong_Check(object)) return read_long(frame, object, out);
  if (PyComplex_Check(object)) return read_complex(object, out);
  return read_foreign(frame, object, out);
}

Outcome read_real(Frame* frame, PyObject* object, Number* out) {
  const Outcome outcome = read_number(frame, object, out);
  if (outcome == Outcome::Ok) {
    if (out->type == NumberType::Complex) return Outcome::Mismatch;
    out->value.d = real_of(*out);
  } else if (outcome == Outcome::Failed && frame->too_large && PyLong_Check(object)) {
    out->value.d = PyLong_AsDouble(object);
    if (out->value.d == -1.0 && PyErr_Occurred()) {  // no double is as large
      PyErr_Clear();
      return outcome;
    }
    frame->too_large = false;
  } else {
    return outcome;
  }
  out->type = NumberType::Float;
  return Outcome::Ok;
}

bool check_fits(const Op* op, const Frame& frame, DType dtype) {
  for (uint32_t i = 0; i < frame.fitting_count; ++i) {
    if (fits(frame.fitting[i], dtype)) continue;
    PyErr_Format(PyExc_RuntimeError,
                 "[%s] value cannot be converted to type %s without overflow\n"
                 "hint: give a number that the dtype holds, or convert the tensor first",
                 op->text.c_str(), dtype_name(dtype));
    return false;
  }
  return true;
}

Outcome read_integer(Frame* frame, PyObject* object, int64_t* out) {
  if (PyLong_Check(object)) return read_word(frame, object, out);
  if (is_tensor(object)) {
    const Tensor* t = reinterpret_cast<Tensor*>(object);
    if (t->numel != 1 || t->ndim != 0 || !is_integral(t->dtype)) return Outcome::Mismatch;
    PyObject* item = frame->own(PyObject_CallMethod(object, "item", nullptr));
    return item ? read_word(frame, item, out) : Outcome::Failed;
  }
  if (PyFloat_Check(object) || !PyIndex_Check(object)) return Outcome::Mismatch;
  const auto integer = steal(PyNumber_Index(object));
  if (integer) return read_word(frame, integer.get(), out);
  PyErr_Clear();  // a NumPy array of several elements has the slot, too
  return Outcome::Mismatch;
}

}  // namespace fb
