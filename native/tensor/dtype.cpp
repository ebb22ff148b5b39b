// dtypes, devices, layouts, memory formats, finfo/iinfo and type promotion.
//
// A dtype, layout or memory format is an interned object: identity is equality. A device is a
// value. `device("cuda")` can be written, compared and pickled here like in PyTorch; what cannot
// run is refused where memory would be needed (device_from_object).
#include <cfloat>
#include <cstddef>

#include "core.h"
#include "tensor/tensor_internal.h"

namespace fb {
DType default_dtype_value = DType::F32;

namespace {

// Dtypes that PyTorch has for quantized and packed numbers: objects with a name and a size, which
// no operator takes. Their value is kBare.
constexpr DType kBare = static_cast<DType>(255);
constexpr DTypeInfo bare(const char* name, int64_t size, bool is_signed, bool integral) {
  return {name, nullptr, name, name,     name, integral ? NumberKind::Integer : NumberKind::Bool,
          size, nullptr, 0,    is_signed};
}
constexpr DTypeInfo kBareDTypes[] = {
    bare("int1", 1, true, true),       bare("int2", 1, true, true),
    bare("int3", 1, true, true),       bare("int4", 1, true, true),
    bare("int5", 1, true, true),       bare("int6", 1, true, true),
    bare("int7", 1, true, true),       bare("uint1", 1, false, true),
    bare("uint2", 1, false, true),     bare("uint3", 1, false, true),
    bare("uint4", 1, false, true),     bare("uint5", 1, false, true),
    bare("uint6", 1, false, true),     bare("uint7", 1, false, true),
    bare("bits1x8", 1, false, false),  bare("bits2x4", 1, false, false),
    bare("bits4x2", 1, false, false),  bare("bits8", 1, false, false),
    bare("bits16", 2, false, false),   bare("quint8", 1, false, false),
    bare("qint8", 1, true, false),     bare("qint32", 4, true, false),
    bare("quint4x2", 1, false, false), bare("quint2x4", 1, false, false),
};

struct DTypeObject {
  PyObject_HEAD DType value;
  const DTypeInfo* row;
};
DTypeObject* dtype_table[kDTypeCount];
PyTypeObject* dtype_type;

DType self_dtype(PyObject* self) { return reinterpret_cast<DTypeObject*>(self)->value; }
const DTypeInfo& info(DType t) { return dtype_info(t); }
const DTypeInfo& row(PyObject* self) { return *reinterpret_cast<DTypeObject*>(self)->row; }
bool refuse_bare(PyObject* self) {
  if (self_dtype(self) != kBare) return false;
  PyErr_Format(PyExc_NotImplementedError,
               "[dtype] no operator is implemented for torch.%s\nhint: torch.int8 or torch.uint8",
               row(self).name);
  return true;
}
bool is_minifloat(DType t) { return is_floating(t) && item_size(t) == 1; }
bool is_wide_unsigned(DType t) { return t == DType::U16 || t == DType::U32 || t == DType::U64; }

PyObject* dtype_repr(PyObject* self) { return PyUnicode_FromFormat("torch.%s", row(self).name); }
PyObject* dtype_reduce(PyObject* self, PyObject*) { return PyUnicode_FromString(row(self).name); }
PyObject* dtype_to_real(PyObject* self, PyObject*) {
  if (refuse_bare(self)) return nullptr;
  return Py_NewRef(dtype_object(to_real(self_dtype(self))));
}
PyObject* dtype_to_complex(PyObject* self, PyObject*) {
  if (refuse_bare(self)) return nullptr;
  if (is_integral(self_dtype(self)) || is_minifloat(self_dtype(self))) {
    PyErr_Format(
        PyExc_RuntimeError,
        "[to_complex] Unknown Complex ScalarType for %s\nhint: convert to a floating dtype",
        row(self).title);
    return nullptr;
  }
  return Py_NewRef(dtype_object(to_complex(self_dtype(self))));
}
PyObject* dtype_get_itemsize(PyObject* self, void*) {
  return PyLong_FromLongLong(row(self).item_size);
}
PyObject* dtype_get_floating(PyObject* self, void*) {
  return PyBool_FromLong(row(self).kind == NumberKind::Floating);
}
PyObject* dtype_get_complex(PyObject* self, void*) {
  return PyBool_FromLong(row(self).kind == NumberKind::Complex);
}
PyObject* dtype_get_signed(PyObject* self, void*) { return PyBool_FromLong(row(self).is_signed); }
PyObject* dtype_get_abbreviation(PyObject* self, void*) {
  return PyUnicode_FromString(row(self).abbreviation);
}
PyObject* dtype_get_name(PyObject* self, void*) { return PyUnicode_FromString(row(self).name); }
PyObject* dtype_get_number(PyObject* self, void*) {
  return PyLong_FromLong(static_cast<long>(self_dtype(self)));
}

PyMethodDef dtype_methods[] = {
    {"__reduce__", dtype_reduce, METH_NOARGS, nullptr},
    {"to_real", dtype_to_real, METH_NOARGS, "The real dtype of a complex one; itself otherwise."},
    {"to_complex", dtype_to_complex, METH_NOARGS, "The complex dtype that holds this one."},
    {nullptr, nullptr, 0, nullptr}};
PyGetSetDef dtype_attributes[] = {
    {"itemsize", dtype_get_itemsize, nullptr, "Bytes of one element.", nullptr},
    {"is_floating_point", dtype_get_floating, nullptr, "True for real floating dtypes.", nullptr},
    {"is_complex", dtype_get_complex, nullptr, "True for complex dtypes.", nullptr},
    {"is_signed", dtype_get_signed, nullptr, "True if it holds negative values.", nullptr},
    {"abbr", dtype_get_abbreviation, nullptr, "Short name: 'f32'.", nullptr},
    {"name", dtype_get_name, nullptr, "Plain name: 'float32'.", nullptr},
    {"number", dtype_get_number, nullptr, "Stable number of the dtype in keys and files.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};
constexpr char kDtypeDoc[] = "An element type: torch.float32, torch.int64 ... One object each.";
PyType_Slot dtype_slots[] = {{Py_tp_doc, const_cast<char*>(kDtypeDoc)},
                             {Py_tp_repr, reinterpret_cast<void*>(dtype_repr)},
                             {Py_tp_methods, dtype_methods},
                             {Py_tp_getset, dtype_attributes},
                             {0, nullptr}};
PyType_Spec dtype_spec = {
    "flambeau.dtype", sizeof(DTypeObject), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE, dtype_slots};

// ---------------------------------------------------------------- layouts and memory formats
struct NamedObject {  // an interned constant that is only its name
  PyObject_HEAD const char* name;
};
const char* named_name(PyObject* self) { return reinterpret_cast<NamedObject*>(self)->name; }
PyObject* named_repr(PyObject* self) { return PyUnicode_FromFormat("torch.%s", named_name(self)); }
PyObject* named_reduce(PyObject* self, PyObject*) { return PyUnicode_FromString(named_name(self)); }
PyMethodDef named_methods[] = {{"__reduce__", named_reduce, METH_NOARGS, nullptr},
                               {nullptr, nullptr, 0, nullptr}};
constexpr char kNamedDoc[] = "A layout or memory format: a constant that is known by its name.";
PyType_Slot named_slots[] = {{Py_tp_doc, const_cast<char*>(kNamedDoc)},
                             {Py_tp_repr, reinterpret_cast<void*>(named_repr)},
                             {Py_tp_methods, named_methods},
                             {0, nullptr}};
PyType_Spec layout_spec = {
    "flambeau.layout", sizeof(NamedObject), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE, named_slots};
PyType_Spec memory_format_spec = {
    "flambeau.memory_format", sizeof(NamedObject), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE, named_slots};

constexpr const char* kLayouts[] = {"strided",    "sparse_coo", "sparse_csr", "sparse_csc",
                                    "sparse_bsr", "sparse_bsc", "jagged",     "_mkldnn"};
constexpr const char* kMemoryFormats[] = {"contiguous_format", "preserve_format", "channels_last",
                                          "channels_last_3d"};
PyObject* memory_formats[4];
PyObject* strided;

PyObject* add_named(PyObject* module, PyTypeObject* type, const char* name) {
  auto* object = reinterpret_cast<NamedObject*>(type->tp_alloc(type, 0));
  if (!object) return nullptr;
  object->name = name;
  if (PyModule_AddObjectRef(module, name, reinterpret_cast<PyObject*>(object)) < 0) return nullptr;
  return reinterpret_cast<PyObject*>(object);
}

bool init_named(PyObject* module) {
  auto* layout_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&layout_spec));
  auto* format_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&memory_format_spec));
  if (!layout_type || !format_type) return false;
  for (const char* name : kLayouts) {
    PyObject* object = add_named(module, layout_type, name);
    if (!object) return false;
    if (!strided) strided = object;
  }
  for (int i = 0; i < 4; ++i) {
    memory_formats[i] = add_named(module, format_type, kMemoryFormats[i]);
    if (!memory_formats[i]) return false;
  }
  return PyModule_AddObjectRef(module, "layout", reinterpret_cast<PyObject*>(layout_type)) == 0 &&
         PyModule_AddObjectRef(module, "memory_format", reinterpret_cast<PyObject*>(format_type)) ==
             0;
}

// ---------------------------------------------------------------- finfo and iinfo
struct FloatLimits {
  double eps, max, tiny, resolution;
  double min = -max;
};
FloatLimits float_limits(DType t) {
  switch (t) {
    case DType::E4M3FN:
      return {0.125, 448.0, 0x1p-6, 1.0};
    case DType::E5M2:
      return {0.25, 57344.0, 0x1p-14, 1.0};
    case DType::E4M3FNUZ:
      return {0.125, 240.0, 0x1p-7, 1.0};
    case DType::E5M2FNUZ:
      return {0.125, 57344.0, 0x1p-15, 1.0};
    case DType::E8M0FNU:
      return {1.0, 0x1p127, 0x1p-127, 1.0, 0x1p-127};
    case DType::F16:
      return {9.765625e-4, 65504.0, 6.103515625e-05, 1e-3};
    case DType::BF16:
      return {7.8125e-3, 3.3895313892515355e38, FLT_MIN, 1e-2};
    case DType::F64:
      return {DBL_EPSILON, DBL_MAX, DBL_MIN, 1e-15};
    default:
      return {FLT_EPSILON, FLT_MAX, FLT_MIN, 1e-6};
  }
}
struct LimitsObject {
  PyObject_HEAD DType value;
};
DType limits_dtype(PyObject* self) { return reinterpret_cast<LimitsObject*>(self)->value; }

PyObject* limits_new(PyTypeObject* type, PyObject* args, PyObject* kwargs, bool floating) {
  static const char* names[] = {"type", nullptr};
  PyObject* object = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O", const_cast<char**>(names), &object)) {
    return nullptr;
  }
  DType dtype = default_dtype_value;
  const char* op = floating ? "finfo" : "iinfo";
  if (!object && !floating) {
    PyErr_SetString(PyExc_TypeError,
                    "[iinfo] iinfo() missing 1 required positional argument: 'type'\n"
                    "hint: pass an integer dtype");
    return nullptr;
  }
  if (object && !dtype_from_object(object, &dtype)) return nullptr;
  if (floating) dtype = to_real(dtype);
  if (floating ? !is_floating(dtype) || dtype == DType::E2M1FNX2
               : (!is_integral(dtype) || dtype == DType::Bool)) {
    PyErr_Format(PyExc_TypeError, "[%s] %s() requires %s input type: got torch.%s\nhint: use %s",
                 op, op, floating ? "a floating point" : "an integer", info(dtype).name,
                 floating ? "iinfo for integers" : "finfo for floating point dtypes");
    return nullptr;
  }
  auto* self = reinterpret_cast<LimitsObject*>(type->tp_alloc(type, 0));
  if (self) self->value = dtype;
  return reinterpret_cast<PyObject*>(self);
}
PyObject* finfo_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  return limits_new(type, args, kwargs, true);
}
PyObject* iinfo_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  return limits_new(type, args, kwargs, false);
}
PyObject* limits_bits(PyObject* self, void*) {
  return PyLong_FromLongLong(8 * item_size(limits_dtype(self)));
}
PyObject* limits_name(PyObject* self, void*) {
  return PyUnicode_FromString(info(limits_dtype(self)).name);
}
// The closure is the byte offset of the member in FloatLimits.
PyObject* finfo_member(PyObject* self, void* closure) {
  const FloatLimits limits = float_limits(limits_dtype(self));
  const auto* at = reinterpret_cast<const char*>(&limits) + reinterpret_cast<size_t>(closure);
  double value;
  std::memcpy(&value, at, sizeof value);
  return PyFloat_FromDouble(value);
}
PyObject* finfo_repr(PyObject* self) {
  const FloatLimits limits = float_limits(limits_dtype(self));
  char text[320];
  PyOS_snprintf(text, sizeof text,
                "finfo(resolution=%g, min=%g, max=%g, eps=%g, smallest_normal=%g, tiny=%g, "
                "dtype=%s)",
                limits.resolution, limits.min, limits.max, limits.eps, limits.tiny, limits.tiny,
                info(limits_dtype(self)).name);
  return PyUnicode_FromString(text);
}
unsigned long long integer_max(DType t) {
  const int bits = static_cast<int>(8 * item_size(t)) - (info(t).is_signed ? 1 : 0);
  return ~0ull >> (64 - bits);
}
long long integer_min(DType t) {
  return info(t).is_signed ? -static_cast<long long>(integer_max(t)) - 1 : 0;
}
PyObject* iinfo_max(PyObject* self, void*) {
  return PyLong_FromUnsignedLongLong(integer_max(limits_dtype(self)));
}
PyObject* iinfo_min(PyObject* self, void*) {
  return PyLong_FromLongLong(integer_min(limits_dtype(self)));
}
PyObject* iinfo_repr(PyObject* self) {
  const DType t = limits_dtype(self);
  char text[96];
  PyOS_snprintf(text, sizeof text, "iinfo(min=%g, max=%g, dtype=%s)",
                static_cast<double>(integer_min(t)), static_cast<double>(integer_max(t)),
                info(t).name);
  return PyUnicode_FromString(text);
}
PyObject* limits_compare(PyObject* a, PyObject* b, int op) {
  if (Py_TYPE(a) != Py_TYPE(b) || (op != Py_EQ && op != Py_NE)) Py_RETURN_NOTIMPLEMENTED;
  return PyBool_FromLong((limits_dtype(a) == limits_dtype(b)) == (op == Py_EQ));
}
Py_hash_t limits_hash(PyObject* self) { return static_cast<Py_hash_t>(limits_dtype(self)) + 1; }

void* offset_closure(size_t offset) { return reinterpret_cast<void*>(offset); }
PyGetSetDef finfo_attributes[] = {
    {"bits", limits_bits, nullptr, "Bits of one element.", nullptr},
    {"dtype", limits_name, nullptr, "Name of the dtype.", nullptr},
    {"min", finfo_member, nullptr, "Smallest finite value.",
     offset_closure(offsetof(FloatLimits, min))},
    {"max", finfo_member, nullptr, "Largest finite value.",
     offset_closure(offsetof(FloatLimits, max))},
    {"eps", finfo_member, nullptr, "1.0 + eps is the next value after 1.0.",
     offset_closure(offsetof(FloatLimits, eps))},
    {"tiny", finfo_member, nullptr, "Smallest positive normal value.",
     offset_closure(offsetof(FloatLimits, tiny))},
    {"smallest_normal", finfo_member, nullptr, "Smallest positive normal value.",
     offset_closure(offsetof(FloatLimits, tiny))},
    {"resolution", finfo_member, nullptr, "Decimal resolution.",
     offset_closure(offsetof(FloatLimits, resolution))},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyGetSetDef iinfo_attributes[] = {{"bits", limits_bits, nullptr, "Bits of one element.", nullptr},
                                  {"dtype", limits_name, nullptr, "Name of the dtype.", nullptr},
                                  {"min", iinfo_min, nullptr, "Smallest value.", nullptr},
                                  {"max", iinfo_max, nullptr, "Largest value.", nullptr},
                                  {nullptr, nullptr, nullptr, nullptr, nullptr}};
constexpr char kFinfoDoc[] = "finfo(dtype=None): limits and precision of a floating dtype.";
constexpr char kIinfoDoc[] = "iinfo(dtype): limits of an integer dtype.";
PyType_Slot finfo_slots[] = {{Py_tp_doc, const_cast<char*>(kFinfoDoc)},
                             {Py_tp_new, reinterpret_cast<void*>(finfo_new)},
                             {Py_tp_repr, reinterpret_cast<void*>(finfo_repr)},
                             {Py_tp_richcompare, reinterpret_cast<void*>(limits_compare)},
                             {Py_tp_hash, reinterpret_cast<void*>(limits_hash)},
                             {Py_tp_getset, finfo_attributes},
                             {0, nullptr}};
PyType_Slot iinfo_slots[] = {{Py_tp_doc, const_cast<char*>(kIinfoDoc)},
                             {Py_tp_new, reinterpret_cast<void*>(iinfo_new)},
                             {Py_tp_repr, reinterpret_cast<void*>(iinfo_repr)},
                             {Py_tp_richcompare, reinterpret_cast<void*>(limits_compare)},
                             {Py_tp_hash, reinterpret_cast<void*>(limits_hash)},
                             {Py_tp_getset, iinfo_attributes},
                             {0, nullptr}};
PyType_Spec finfo_spec = {"flambeau.finfo", sizeof(LimitsObject), 0, Py_TPFLAGS_DEFAULT,
                          finfo_slots};
PyType_Spec iinfo_spec = {"flambeau.iinfo", sizeof(LimitsObject), 0, Py_TPFLAGS_DEFAULT,
                          iinfo_slots};

// ---------------------------------------------------------------- promotion
int kind_of(DType t) { return static_cast<int>(info(t).kind); }

// Parses one operand of the Python-level result_type: tensor, number, dtype or
// (category, dtype) pair.
bool parse_operand(PyObject* object, OperandCategory* category, DType* dtype) {
  if (is_tensor(object)) {
    auto* t = reinterpret_cast<Tensor*>(object);
    *category = t->ndim == 0 ? OperandCategory::ZeroDim : OperandCategory::Dimensioned;
    *dtype = t->dtype;
    return true;
  }
  if (PyTuple_Check(object) && PyTuple_GET_SIZE(object) == 2) {
    const long value = PyLong_AsLong(PyTuple_GET_ITEM(object, 0));
    if (value == -1 && PyErr_Occurred()) return false;
    if (value < 0 || value > 2) {
      PyErr_SetString(PyExc_ValueError, "[result_type] operand category must be 0, 1 or 2");
      return false;
    }
    *category = static_cast<OperandCategory>(value);
    return dtype_from_object(PyTuple_GET_ITEM(object, 1), dtype);
  }
  *category = OperandCategory::Number;
  if (PyBool_Check(object)) return *dtype = DType::Bool, true;
  if (PyLong_Check(object)) return *dtype = DType::I64, true;
  if (PyFloat_Check(object)) return *dtype = default_dtype_value, true;
  if (PyComplex_Check(object)) return *dtype = to_complex(default_dtype_value), true;
  *category = OperandCategory::Dimensioned;
  return dtype_from_object(object, dtype);
}

PyObject* py_result_type(PyObject*, PyObject* const* args, Py_ssize_t count) {
  std::vector<OperandCategory> categories(static_cast<size_t>(count));
  std::vector<DType> dtypes(static_cast<size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    const auto k = static_cast<size_t>(i);
    if (!parse_operand(args[i], &categories[k], &dtypes[k])) return nullptr;
  }
  if (count == 0) {
    PyErr_SetString(PyExc_TypeError, "[result_type] at least one operand is needed");
    return nullptr;
  }
  return Py_NewRef(
      dtype_object(result_type(static_cast<int>(count), categories.data(), dtypes.data())));
}

bool two_dtypes(const char* op, PyObject* const* args, Py_ssize_t count, DType* a, DType* b) {
  if (count != 2) {
    PyErr_Format(PyExc_TypeError, "[%s] expected 2 dtypes: got %zd arguments", op, count);
    return false;
  }
  return dtype_from_object(args[0], a) && dtype_from_object(args[1], b);
}
PyObject* py_promote_types(PyObject*, PyObject* const* args, Py_ssize_t count) {
  DType a, b;
  if (!two_dtypes("promote_types", args, count, &a, &b)) return nullptr;
  if (!can_promote(a, b)) {
    PyErr_Format(PyExc_RuntimeError,
                 "[promote_types] promotion of %s and %s is not supported\n"
                 "hint: convert one of them",
                 info(a).title, info(b).title);
    return nullptr;
  }
  return Py_NewRef(dtype_object(promote_types(a, b)));
}
PyObject* py_can_cast(PyObject*, PyObject* const* args, Py_ssize_t count) {
  DType from, to;
  if (!two_dtypes("can_cast", args, count, &from, &to)) return nullptr;
  return PyBool_FromLong(kind_of(from) <= kind_of(to));
}
PyObject* py_get_default_dtype(PyObject*, PyObject*) {
  return Py_NewRef(dtype_object(default_dtype_value));
}
PyObject* py_set_default_dtype(PyObject*, PyObject* object) {
  DType t;
  if (!dtype_from_object(object, &t)) return nullptr;
  if (!is_floating(t)) {
    PyErr_Format(PyExc_TypeError,
                 "[set_default_dtype] only floating-point types are supported as the default type: "
                 "got torch.%s\nhint: use float32, float64, float16 or bfloat16",
                 info(t).name);
    return nullptr;
  }
  default_dtype_value = t;
  Py_RETURN_NONE;
}

PyMethodDef functions[] = {
    {"result_type", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(py_result_type)),
     METH_FASTCALL,
     "result_type(*operands) -> dtype. Operands: tensors, numbers, dtypes (dimensioned) or "
     "(category, dtype) with category 0 dimensioned, 1 zero-dim, 2 number."},
    {"promote_types", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(py_promote_types)),
     METH_FASTCALL, "promote_types(a, b) -> smallest dtype that both convert to."},
    {"can_cast", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(py_can_cast)), METH_FASTCALL,
     "can_cast(from, to) -> True if type promotion may convert from to to."},
    {"get_default_dtype", py_get_default_dtype, METH_NOARGS, "The dtype of Python floats."},
    {"set_default_dtype", py_set_default_dtype, METH_O, "Sets the dtype of Python floats."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

PyObject* dtype_object(DType t) {
  return reinterpret_cast<PyObject*>(dtype_table[static_cast<int>(t)]);
}
PyObject* strided_layout() { return strided; }
int memory_format_number(PyObject* object) {
  for (int i = 0; i < 4; ++i) {
    if (memory_formats[i] == object) return i;
  }
  return -1;
}

bool dtype_from_object(PyObject* object, DType* out) {
  if (Py_TYPE(object) == dtype_type) {
    if (refuse_bare(object)) return false;
    *out = self_dtype(object);
    return true;
  }
  // Python's own types name dtypes too: torch.zeros(2, dtype=float).
  if (object == reinterpret_cast<PyObject*>(&PyFloat_Type)) return *out = DType::F64, true;
  if (object == reinterpret_cast<PyObject*>(&PyLong_Type)) return *out = DType::I64, true;
  if (object == reinterpret_cast<PyObject*>(&PyBool_Type)) return *out = DType::Bool, true;
  if (object == reinterpret_cast<PyObject*>(&PyComplex_Type)) return *out = DType::C128, true;
  PyErr_Format(PyExc_TypeError,
               "[dtype] expected a dtype: got %s\nhint: pass for example torch.float32",
               Py_TYPE(object)->tp_name);
  return false;
}

DType to_real(DType t) {
  if (t == DType::C32) return DType::F16;
  if (t == DType::C64) return DType::F32;
  return t == DType::C128 ? DType::F64 : t;
}
DType to_complex(DType t) {
  if (is_complex(t)) return t;
  if (t == DType::F16) return DType::C32;
  return t == DType::F64 ? DType::C128 : DType::C64;
}

bool can_promote(DType a, DType b) {
  if (a == b) return true;
  if (is_minifloat(a) || is_minifloat(b)) return false;
  if (is_wide_unsigned(a)) return is_floating(b);
  return !is_wide_unsigned(b) || is_floating(a);
}

DType promote_types(DType a, DType b) {
  if (a == b) return a;
  const int ka = kind_of(a), kb = kind_of(b);
  if (ka == 3 || kb == 3) {
    const auto either = [&](DType t) { return a == t || b == t; };
    if (either(DType::C128) || either(DType::F64)) return DType::C128;
    const bool wide = either(DType::C64) || either(DType::F32) || either(DType::BF16);
    return wide ? DType::C64 : DType::C32;
  }
  if (ka != kb) return ka > kb ? a : b;
  if (ka == 2) {  // float16 and bfloat16 hold neither each other's range nor precision
    const bool halves = item_size(a) == 2 && item_size(b) == 2;
    return halves ? DType::F32 : (item_size(a) > item_size(b) ? a : b);
  }
  if ((a == DType::U8 && b == DType::I8) || (a == DType::I8 && b == DType::U8)) return DType::I16;
  return item_size(a) > item_size(b) ? a : b;
}

DType result_type(int count, const OperandCategory* categories, const DType* dtypes) {
  bool have[3] = {false, false, false};
  DType best[3] = {DType::Bool, DType::Bool, DType::Bool};
  for (int i = 0; i < count; ++i) {
    const int c = static_cast<int>(categories[i]);
    best[c] = have[c] ? promote_types(best[c], dtypes[i]) : dtypes[i];
    have[c] = true;
  }
  bool any = false;
  DType result = DType::Bool;
  for (int c = 2; c >= 0; --c) {  // from the weakest category to the strongest
    if (!have[c]) continue;
    const DType higher = best[c];
    if (!any || kind_of(higher) == 3) {
      result = higher;
    } else if (kind_of(higher) == 2) {
      result = kind_of(result) == 3 ? to_complex(higher) : higher;
    } else if (higher == DType::Bool || kind_of(result) >= 2) {
      result = promote_types(higher, result);
    } else {
      result = higher;
    }
    any = true;
  }
  return result;
}

bool init_dtype(PyObject* module) {
  dtype_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&dtype_spec));
  if (!dtype_type) return false;
  if (PyModule_AddObjectRef(module, "dtype", reinterpret_cast<PyObject*>(dtype_type)) < 0) {
    return false;
  }
  for (int i = 0; i < kDTypeCount; ++i) {
    auto* object = reinterpret_cast<DTypeObject*>(dtype_type->tp_alloc(dtype_type, 0));
    if (!object) return false;
    object->value = static_cast<DType>(i);
    object->row = &kDTypes[i];
    dtype_table[i] = object;
    auto* as_object = reinterpret_cast<PyObject*>(object);
    if (PyModule_AddObjectRef(module, kDTypes[i].name, as_object) < 0) return false;
    if (kDTypes[i].alias && PyModule_AddObjectRef(module, kDTypes[i].alias, as_object) < 0) {
      return false;
    }
  }
  for (const DTypeInfo& each : kBareDTypes) {
    auto* object = reinterpret_cast<DTypeObject*>(dtype_type->tp_alloc(dtype_type, 0));
    if (!object) return false;
    object->value = kBare;
    object->row = &each;
    if (PyModule_AddObjectRef(module, each.name, reinterpret_cast<PyObject*>(object)) < 0) {
      return false;
    }
  }
  PyObject* finfo = PyType_FromSpec(&finfo_spec);
  PyObject* iinfo = PyType_FromSpec(&iinfo_spec);
  if (!finfo || !iinfo || PyModule_AddObjectRef(module, "finfo", finfo) < 0 ||
      PyModule_AddObjectRef(module, "iinfo", iinfo) < 0) {
    return false;
  }
  return init_named(module) && init_device(module) && PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace fb
