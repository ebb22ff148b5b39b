// From Python arguments to a normalised call: binding to the schema, kind checks, conversions, and
// the key of the call, in one pass over the arguments. This is the hottest file of the core: a
// cached call of two tensors spends about a third of its time here.
#include "call/op_internal.h"

namespace fb {
namespace {

struct KindName {
  const char* schema;
  Kind kind;
  bool optional, optional_elements;
  const char* human;
};
constexpr KindName kKinds[] = {
    {"Tensor", Kind::Tensor, false, false, "Tensor"},
    {"Tensor?", Kind::Tensor, true, false, "Tensor"},
    {"Tensor[]", Kind::TensorList, false, false, "tuple of Tensors"},
    {"Tensor[]?", Kind::TensorList, true, false, "tuple of Tensors"},
    {"Tensor?[]", Kind::TensorList, false, true, "tuple of Tensors or None"},
    {"Scalar", Kind::Scalar, false, false, "Number"},
    {"Scalar?", Kind::Scalar, true, false, "Number"},
    {"TensorOrScalar", Kind::TensorOrScalar, false, false, "Tensor or Number"},
    {"TensorOrScalar?", Kind::TensorOrScalar, true, false, "Tensor, Number"},
    {"SymInt", Kind::SymInt, false, false, "int"},
    {"SymInt?", Kind::SymInt, true, false, "int"},
    {"SymInt[]", Kind::SymIntList, false, false, "tuple of ints"},
    {"SymInt[]?", Kind::SymIntList, true, false, "tuple of ints"},
    {"int", Kind::Int, false, false, "int"},
    {"int?", Kind::Int, true, false, "int"},
    {"int[]", Kind::IntList, false, false, "tuple of ints"},
    {"int[]?", Kind::IntList, true, false, "tuple of ints"},
    {"float", Kind::Float, false, false, "float"},
    {"float?", Kind::Float, true, false, "float"},
    {"float[]", Kind::FloatList, false, false, "tuple of floats"},
    {"float[]?", Kind::FloatList, true, false, "tuple of floats"},
    {"bool", Kind::Bool, false, false, "bool"},
    {"bool?", Kind::Bool, true, false, "bool"},
    {"bool[]", Kind::BoolList, false, false, "tuple of bools"},
    {"bool[]?", Kind::BoolList, true, false, "tuple of bools"},
    {"str", Kind::Str, false, false, "str"},
    {"str?", Kind::Str, true, false, "str"},
    {"dtype", Kind::DType, false, false, "dtype"},
    {"dtype?", Kind::DType, true, false, "dtype"},
    {"device", Kind::Device, false, false, "device"},
    {"device?", Kind::Device, true, false, "device"},
    {"generator?", Kind::Generator, true, false, "Generator"},
    {"memory_format", Kind::MemoryFormat, false, false, "memory_format"},
    {"memory_format?", Kind::MemoryFormat, true, false, "memory_format"},
    {"layout", Kind::Layout, false, false, "layout"},
    {"layout?", Kind::Layout, true, false, "layout"},
    {"object", Kind::Object, true, false, "object"},
};

// Names that NumPy users write, and `input` for what schemas call `self`, or `A` where an operator
// of `linalg` is one of `torch`, too.
struct Alias {
  const char* given;
  const char* schema;
};
constexpr Alias kAliases[] = {
    {"input", "self"}, {"axis", "dim"},  {"keepdims", "keepdim"}, {"x", "self"},  {"a", "self"},
    {"x1", "self"},    {"x2", "other"},  {"self", "input"},       {"x", "input"}, {"a", "input"},
    {"x1", "input"},   {"axis", "dims"}, {"input", "A"},
};

const KindName* kind_name(const Argument& argument) {
  for (const KindName& k : kKinds) {
    if (k.kind == argument.kind && k.optional == argument.optional &&
        k.optional_elements == argument.optional_elements) {
      return &k;
    }
  }
  return nullptr;
}

bool read_kind(PyObject* kind, PyObject* name, Argument* out) {
  for (const KindName& k : kKinds) {
    if (!PyUnicode_Check(kind) || PyUnicode_CompareWithASCIIString(kind, k.schema) != 0) continue;
    out->kind = k.kind;
    out->optional = k.optional;
    out->optional_elements = k.optional_elements;
    return true;
  }
  PyErr_Format(PyExc_ValueError, "[Op] unknown kind '%S' of argument '%S'", kind, name);
  return false;
}

// A named tuple `language/schema.py: ArgumentSpec`.
bool read_argument(PyObject* spec, Argument* out) {
  PyObject* name = record_field(spec, "name");
  PyObject* kind = name ? record_field(spec, "kind") : nullptr;
  PyObject* default_value = kind ? record_field(spec, "default") : nullptr;
  if (!default_value || !read_kind(kind, name, out)) return false;
  if (!PyUnicode_Check(name) || !PyTuple_Check(default_value)) {
    PyErr_Format(PyExc_TypeError, "[Op] the name and default of %R must be a str and a tuple",
                 spec);
    return false;
  }
  const std::pair<const char*, bool*> flags[] = {{"keyword_only", &out->keyword_only},
                                                 {"runtime", &out->runtime},
                                                 {"mutated", &out->mutated},
                                                 {"fits", &out->fits}};
  for (const auto& [text, flag] : flags) {
    PyObject* value = record_field(spec, text);
    if (!value) return false;
    *flag = value == Py_True;
  }
  out->name = Py_NewRef(name);
  PyUnicode_InternInPlace(&out->name);
  if (PyTuple_GET_SIZE(default_value) == 0) return true;  // the argument is required
  out->default_value = Py_NewRef(PyTuple_GET_ITEM(default_value, 0));
  return true;
}

bool read_flag(Overload* overload, PyObject* flag) {
  const char* text = PyUnicode_AsUTF8(flag);
  if (!text) return false;
  if (std::strcmp(text, "python") == 0) overload->python = true;
  const OutOption out = out_option(text);
  if (out.rule != OutRule::None) overload->out = out;
  if (std::strncmp(text, "list:", 5) == 0) overload->list = list_rule(text);
  if (std::strcmp(text, "storage") == 0) overload->any_window = true;
  if (std::strcmp(text, "single_views") == 0) overload->single_views = true;
  if (std::strncmp(text, "overlap:", 8) == 0) overload->overlap = overlap_rule(text + 8);
  if (std::strncmp(text, "overlap_of:", 11) == 0) overload->overlap_special = std::atoi(text + 11);
  if (std::strcmp(text, "overlap_only") == 0) overload->overlap_only = true;
  if (std::strcmp(text, "repeats") == 0) overload->repeats = true;
  if (std::strcmp(text, "view") == 0) overload->is_view = true;
  return true;  // other flags concern the Python side
}

bool read_flags(Overload* overload, PyObject* flags) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(flags); ++i) {
    if (!read_flag(overload, PyTuple_GET_ITEM(flags, i))) return false;
  }
  return true;
}

// ---- parsing of single kinds

Outcome mismatch(Frame* frame, int position, PyObject* object) {
  frame->bad_argument = position;
  frame->bad_value = object;
  return Outcome::Mismatch;
}

__attribute__((always_inline)) inline bool add_tensor(Frame* frame, Tensor* t, bool mutated) {
  const size_t ndim = t->ndim;
  if (!frame->tensors.reserve(1) || !frame->key.reserve(2 * ndim + 2)) return false;
  uint64_t word = tag_word(Tag::Tensor) | static_cast<uint64_t>(t->dtype) |
                  static_cast<uint64_t>(ndim) << 8 | static_cast<uint64_t>(t->device.kind) << 16 |
                  static_cast<uint64_t>(static_cast<uint8_t>(t->device.index)) << 24;
  if (t->autograd && grad_mode.enabled && tensor_requires_grad(t)) {
    word |= kKeyRequiresGrad;
    frame->any_requires_grad = true;
  }
  size_t words = 2 * ndim;
  frame->flags |= t->flags;
  if (t->flags & kContiguous) {
    word |= kKeyContiguous;
    words = ndim;
  }
  if (frame->offsets_in_key) word |= kKeyOffset;
  frame->key.push(word);
  for (size_t i = 0; i < words; ++i) frame->key.push(static_cast<uint64_t>(t->dims[i]));
  if (frame->offsets_in_key) frame->key.push(static_cast<uint64_t>(t->offset));
  if (mutated) {
    if (!frame->mutated.reserve(1)) return false;
    frame->mutated.push(static_cast<int32_t>(frame->tensors.size()));
  }
  frame->tensors.push(t);
  return true;
}

// A tensor of a subclass, or an object that brings its own __torch_function__.
Outcome add_other(Frame* frame, PyObject* object, bool mutated) {
  Override kind = Override::None;
  if (is_plain_tensor_type(Py_TYPE(object), &kind)) {
    if (overrides_op(kind) || dispatches(object)) frame->overridden = true;
    return add_tensor(frame, reinterpret_cast<Tensor*>(object), mutated) ? Outcome::Ok
                                                                         : Outcome::Failed;
  }
  if (overrides_op(override_of(object))) {
    frame->overridden = true;  // never run: the object takes over
    return Outcome::Ok;
  }
  return Outcome::Mismatch;
}

bool push_word(Frame* frame, uint64_t word) {
  if (!frame->key.reserve(1)) return false;
  frame->key.push(word);
  return true;
}

bool push_words(Frame* frame, uint64_t tag, uint64_t payload) {
  if (!frame->key.reserve(2)) return false;
  frame->key.push(tag);
  frame->key.push(payload);
  return true;
}

uint64_t bits_of(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

Outcome done(bool fine) { return fine ? Outcome::Ok : Outcome::Failed; }

Outcome push_static_number(Frame* frame, const Number& number) {
  switch (number.type) {
    case NumberType::Bool:
      return done(push_word(frame, tag_word(Tag::Bool, number.value.i)));
    case NumberType::Int:
      return done(push_words(frame, tag_word(Tag::Int), static_cast<uint64_t>(number.value.i)));
    case NumberType::Unsigned:
      return done(
          push_words(frame, tag_word(Tag::Unsigned), static_cast<uint64_t>(number.value.i)));
    case NumberType::Float:
      return done(push_words(frame, tag_word(Tag::Float), bits_of(number.value.d)));
    case NumberType::Complex:
      break;
  }
  return done(push_words(frame, tag_word(Tag::Complex), bits_of(number.value.d)) &&
              push_word(frame, bits_of(number.imaginary)));
}

// A run-time number travels beside the key, which holds its type alone.
Outcome push_number(const Argument& argument, Frame* frame, const Number& number) {
  if (argument.fits && frame->fitting_count < Frame::kMaxFitting) {
    frame->fitting[frame->fitting_count++] = number;
  }
  if (!argument.runtime || number.type >= NumberType::Complex) {
    return push_static_number(frame, number);
  }
  if (!frame->scalars.reserve(1) || !frame->scalar_is_float.reserve(1) ||
      !frame->scalar_types.reserve(1)) {
    return Outcome::Failed;
  }
  frame->scalars.push(number.value);
  frame->scalar_is_float.push(number.type == NumberType::Float);
  frame->scalar_types.push(static_cast<uint8_t>(number.type));
  return done(push_word(frame, tag_word(Tag::Runtime, static_cast<uint64_t>(number.type))));
}

Outcome parse_number(const Argument& argument, Frame* frame, PyObject* object) {
  if (argument.no_tensor && is_tensor(object)) return Outcome::Mismatch;
  Number number;
  const Outcome outcome = read_number(frame, object, &number);
  return outcome == Outcome::Ok ? push_number(argument, frame, number) : outcome;
}

Outcome parse_tensor_list(const Argument& argument, int position, Frame* frame) {
  PyObject* object = frame->values[position];
  if (PyList_Check(object)) {  // a copy: the list may change while the call runs
    object = frame->own(PyList_AsTuple(object));
    if (!object) return Outcome::Failed;
  }
  if (!PyTuple_Check(object)) return Outcome::Mismatch;
  const Py_ssize_t length = PyTuple_GET_SIZE(object);
  if (!push_word(frame, tag_word(Tag::TensorList, static_cast<uint64_t>(length)))) {
    return Outcome::Failed;
  }
  for (Py_ssize_t i = 0; i < length; ++i) {
    PyObject* element = PyTuple_GET_ITEM(object, i);
    Outcome outcome = Outcome::Mismatch;
    if (is_exact_tensor(element)) {
      outcome = done(add_tensor(frame, reinterpret_cast<Tensor*>(element), argument.mutated));
    } else if (element == Py_None && argument.optional_elements) {
      outcome = done(push_word(frame, tag_word(Tag::None)));
    } else {
      outcome = add_other(frame, element, argument.mutated);
    }
    if (outcome == Outcome::Mismatch) frame->bad_value = element;
    if (outcome != Outcome::Ok) return outcome;
  }
  return Outcome::Ok;
}

Outcome parse_integer(const Argument& argument, Frame* frame, PyObject* object) {
  const Kind kind = argument.kind;
  int64_t value;
  if (PyBool_Check(object)) return Outcome::Mismatch;
  if (kind == Kind::SymInt && is_tensor(object) &&
      reinterpret_cast<Tensor*>(object)->dtype == DType::Bool) {
    return Outcome::Mismatch;
  }
  const Outcome outcome = read_integer(frame, object, &value);
  if (outcome != Outcome::Ok) return outcome;
  const bool symbolic = kind == Kind::SymInt;
  if (argument.runtime) {
    Number number;
    number.type = NumberType::Int;
    number.value.i = value;
    return push_number(argument, frame, number);
  }
  if (symbolic) {
    if (!frame->integers.reserve(1)) return Outcome::Failed;
    frame->integers.push(value);
  }
  const Tag tag = symbolic ? Tag::SymInt : Tag::Int;
  return done(push_words(frame, tag_word(tag), static_cast<uint64_t>(value)));
}

// Tuple of the elements: an int stands for a list of one. Null without exception: not a list.
PyObject* as_tuple(Frame* frame, PyObject* object, bool single) {
  if (PyTuple_Check(object)) return object;
  if (PyList_Check(object)) return frame->own(PyList_AsTuple(object));
  return single ? frame->own(PyTuple_Pack(1, object)) : nullptr;
}

Outcome parse_integers(Frame* frame, Kind kind, PyObject* object) {
  const bool symbolic = kind == Kind::SymIntList;
  const bool single = PyIndex_Check(object) && !PyBool_Check(object);
  PyObject* tuple = as_tuple(frame, object, single);
  if (!tuple) return PyErr_Occurred() ? Outcome::Failed : Outcome::Mismatch;
  const size_t length = static_cast<size_t>(PyTuple_GET_SIZE(tuple));
  if (!frame->key.reserve(length + 1) || !frame->integers.reserve(length)) return Outcome::Failed;
  frame->key.push(tag_word(symbolic ? Tag::SymIntList : Tag::IntList, length));
  for (size_t i = 0; i < length; ++i) {
    int64_t value;
    PyObject* element = PyTuple_GET_ITEM(tuple, static_cast<Py_ssize_t>(i));
    const Outcome outcome = read_integer(frame, element, &value);
    if (outcome != Outcome::Ok) {
      frame->bad_value = element;
      return outcome;
    }
    frame->key.push(static_cast<uint64_t>(value));
    if (symbolic) frame->integers.push(value);
  }
  return Outcome::Ok;
}

Outcome parse_floats(Frame* frame, PyObject* object) {
  PyObject* tuple = as_tuple(frame, object, PyFloat_Check(object) || PyLong_Check(object));
  if (!tuple) return PyErr_Occurred() ? Outcome::Failed : Outcome::Mismatch;
  const size_t length = static_cast<size_t>(PyTuple_GET_SIZE(tuple));
  if (!frame->key.reserve(length + 1)) return Outcome::Failed;
  frame->key.push(tag_word(Tag::FloatList, length));
  for (size_t i = 0; i < length; ++i) {
    Number number;
    PyObject* element = PyTuple_GET_ITEM(tuple, static_cast<Py_ssize_t>(i));
    const Outcome outcome = read_real(frame, element, &number);
    if (outcome != Outcome::Ok) return outcome;
    frame->key.push(bits_of(number.value.d));
  }
  return Outcome::Ok;
}

Outcome parse_bools(Frame* frame, PyObject* object) {
  PyObject* tuple = as_tuple(frame, object, PyBool_Check(object));
  if (!tuple) return PyErr_Occurred() ? Outcome::Failed : Outcome::Mismatch;
  const size_t length = static_cast<size_t>(PyTuple_GET_SIZE(tuple));
  if (!frame->key.reserve(length + 1)) return Outcome::Failed;
  frame->key.push(tag_word(Tag::BoolList, length));
  for (size_t i = 0; i < length; ++i) {
    PyObject* element = PyTuple_GET_ITEM(tuple, static_cast<Py_ssize_t>(i));
    if (!PyBool_Check(element)) return Outcome::Mismatch;
    frame->key.push(element == Py_True);
  }
  return Outcome::Ok;
}

Outcome parse_float(const Argument& argument, Frame* frame, PyObject* object) {
  if (argument.no_tensor && is_tensor(object)) return Outcome::Mismatch;
  Number number;
  const Outcome outcome = read_real(frame, object, &number);
  return outcome == Outcome::Ok ? push_number(argument, frame, number) : outcome;
}

Outcome parse_bool(Frame* frame, PyObject* object) {
  if (PyBool_Check(object)) return done(push_word(frame, tag_word(Tag::Bool, object == Py_True)));
  if (PyLong_Check(object) || PyFloat_Check(object)) return Outcome::Mismatch;
  Number number;  // numpy.bool, or a bool tensor without dimensions
  const Outcome outcome = read_number(frame, object, &number);
  if (outcome != Outcome::Ok) return outcome;
  if (number.type != NumberType::Bool) return Outcome::Mismatch;
  return push_static_number(frame, number);
}

Outcome parse_str(Frame* frame, PyObject* object) {
  if (!PyUnicode_Check(object)) return Outcome::Mismatch;
  Py_ssize_t length;
  const char* text = PyUnicode_AsUTF8AndSize(object, &length);
  if (!text) return Outcome::Failed;
  const size_t words = (static_cast<size_t>(length) + 7) / 8;
  if (!frame->key.reserve(words + 1)) return Outcome::Failed;
  frame->key.push(tag_word(Tag::Str, static_cast<uint64_t>(length)));
  for (size_t i = 0; i < words; ++i) {
    uint64_t word = 0;
    const size_t rest = static_cast<size_t>(length) - i * 8;
    std::memcpy(&word, text + i * 8, rest < 8 ? rest : 8);
    frame->key.push(word);
  }
  return Outcome::Ok;
}

Outcome parse_dtype(Frame* frame, PyObject* object) {
  DType dtype;
  if (object == reinterpret_cast<PyObject*>(&PyFloat_Type)) {
    dtype = DType::F64;
  } else if (object == reinterpret_cast<PyObject*>(&PyLong_Type)) {
    dtype = DType::I64;
  } else if (object == reinterpret_cast<PyObject*>(&PyBool_Type)) {
    dtype = DType::Bool;
  } else if (object == reinterpret_cast<PyObject*>(&PyComplex_Type)) {
    dtype = DType::C128;
  } else if (!dtype_from_object(object, &dtype)) {
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) return Outcome::Failed;
    PyErr_Clear();
    return Outcome::Mismatch;
  }
  return done(push_word(frame, tag_word(Tag::DType, static_cast<uint64_t>(dtype))));
}

Outcome parse_device(Frame* frame, PyObject* object) {
  Device device;
  if (!device_from_object(object, &device)) {
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) return Outcome::Failed;
    PyErr_Clear();
    return Outcome::Mismatch;
  }
  return done(push_word(
      frame, tag_word(Tag::Device, static_cast<uint64_t>(device.kind) |
                                       static_cast<uint64_t>((uint8_t)device.index) << 8)));
}

Outcome parse_generator(Frame* frame, PyObject* object) {
  if (!frame->objects.reserve(1)) return Outcome::Failed;
  frame->objects.push(object == Py_None ? nullptr : object);
  return done(push_word(frame, tag_word(Tag::Generator)));
}

constexpr int kMaxNesting = 4;  // of an object that is keyed by its value

// Whether a value is nothing but None, bools, ints of 64 bits, floats, strings and tuples or lists
// of them.
bool is_plain(PyObject* object, int depth) {
  if (object == Py_None || PyBool_Check(object) || PyFloat_CheckExact(object) ||
      PyUnicode_CheckExact(object)) {
    return true;
  }
  if (PyLong_CheckExact(object)) {
    int overflow = 0;
    PyLong_AsLongLongAndOverflow(object, &overflow);
    return overflow == 0;
  }
  if (depth == kMaxNesting || !(PyTuple_Check(object) || PyList_CheckExact(object))) {
    return false;
  }
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i) {
    if (!is_plain(PySequence_Fast_GET_ITEM(object, i), depth + 1)) return false;
  }
  return true;
}

Outcome push_plain(Frame* frame, PyObject* object) {
  if (object == Py_None) return done(push_word(frame, tag_word(Tag::None)));
  if (PyUnicode_Check(object)) return parse_str(frame, object);
  if (!PyTuple_Check(object) && !PyList_Check(object)) {
    Number number;
    const Outcome outcome = read_number(frame, object, &number);
    return outcome == Outcome::Ok ? push_static_number(frame, number) : outcome;
  }
  const Py_ssize_t length = PySequence_Fast_GET_SIZE(object);
  const uint64_t list = uint64_t{1} << 32;
  const uint64_t low = static_cast<uint64_t>(length) | (PyList_Check(object) ? list : 0);
  if (!push_word(frame, tag_word(Tag::Sequence, low))) return Outcome::Failed;
  for (Py_ssize_t i = 0; i < length; ++i) {
    const Outcome outcome = push_plain(frame, PySequence_Fast_GET_ITEM(object, i));
    if (outcome != Outcome::Ok) return outcome;
  }
  return Outcome::Ok;
}

// Keyed by its value where that is plain: a list may change, and equal ones are one call. The rest
// is keyed by identity.
Outcome parse_object(Frame* frame, PyObject* object) {
  if (!is_plain(object, 0)) {
    return done(push_words(frame, tag_word(Tag::Pointer), reinterpret_cast<uintptr_t>(object)));
  }
  const size_t head = frame->key.size();
  if (!push_word(frame, 0)) return Outcome::Failed;
  const Outcome outcome = push_plain(frame, object);
  frame->key[head] = tag_word(Tag::Object, frame->key.size() - head - 1);
  return outcome;
}

Outcome parse_rare(const Overload& overload, int position, Frame* frame) {
  const Argument& argument = overload.arguments[position];
  PyObject* object = frame->values[position];
  if (argument.kind == Kind::Generator) return parse_generator(frame, object);
  if (object == Py_None && argument.optional) return done(push_word(frame, tag_word(Tag::None)));
  switch (argument.kind) {
    case Kind::TensorList:
      return parse_tensor_list(argument, position, frame);
    case Kind::SymInt:
    case Kind::Int:
      return parse_integer(argument, frame, object);
    case Kind::SymIntList:
    case Kind::IntList:
      return parse_integers(frame, argument.kind, object);
    case Kind::Float:
      return parse_float(argument, frame, object);
    case Kind::FloatList:
      return parse_floats(frame, object);
    case Kind::Bool:
      return parse_bool(frame, object);
    case Kind::BoolList:
      return parse_bools(frame, object);
    case Kind::Str:
      return parse_str(frame, object);
    case Kind::DType:
      return parse_dtype(frame, object);
    case Kind::Device:
      return parse_device(frame, object);
    default:
      break;
  }
  return parse_object(frame, object);
}

// ---- binding

int find_name(const Overload& overload, PyObject* name) {
  const int count = static_cast<int>(overload.arguments.size());
  for (int i = 0; i < count; ++i) {
    if (overload.arguments[i].name == name) return i;
  }
  for (int i = 0; i < count; ++i) {
    if (PyUnicode_Compare(overload.arguments[i].name, name) == 0) return i;
  }
  for (const Alias& alias : kAliases) {
    if (PyUnicode_CompareWithASCIIString(name, alias.given) != 0) continue;
    for (int i = 0; i < count; ++i) {
      if (PyUnicode_CompareWithASCIIString(overload.arguments[i].name, alias.schema) == 0) {
        return i;
      }
    }
  }
  return -1;
}

Outcome bind_keywords(const Overload& overload, Frame* frame, PyObject* const* values,
                      PyObject* kwnames, Py_ssize_t given) {
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(kwnames); ++k) {
    PyObject* name = PyTuple_GET_ITEM(kwnames, k);
    const int position = find_name(overload, name);
    if (position < 0) {
      if (overload.out.rule != OutRule::None &&
          PyUnicode_CompareWithASCIIString(name, "out") == 0) {
        if (values[k] != Py_None) frame->out = values[k];
        continue;
      }
      frame->problem = "got an unexpected keyword argument";
      frame->bad_value = name;
      return Outcome::Mismatch;
    }
    if (position < given) {
      frame->problem = "got several values for argument";
      frame->bad_value = name;
      return Outcome::Mismatch;
    }
    frame->values[position] = values[k];
  }
  return Outcome::Ok;
}

Outcome bind_varargs(const Overload& overload, Frame* frame, PyObject* const* args,
                     Py_ssize_t count) {
  const int last = overload.positional - 1;
  PyObject* tuple = frame->own(pack_positional(args + last, count - last));
  if (!tuple) return Outcome::Failed;
  frame->values[last] = tuple;
  return Outcome::Ok;
}

// PyTorch's exception types: they depend on what the integer is for, and how it is written.
void raise_too_large(const Op* op, const Overload& overload, int position, PyObject* object) {
  const Argument& argument = overload.arguments[position];
  PyObject* type = PyExc_OverflowError;
  if (argument.kind == Kind::Int || argument.kind == Kind::SymInt) type = PyExc_ValueError;
  if (argument.kind == Kind::IntList || argument.kind == Kind::SymIntList) {
    const bool one_of_many =
        overload.varargs && position == overload.positional - 1 && !argument.default_value;
    type = one_of_many || !PyIndex_Check(object) ? PyExc_TypeError : PyExc_ValueError;
  }
  const bool number = type == PyExc_OverflowError;
  PyErr_Format(type, "[%s] argument '%U' holds an integer that does not fit in 64 bits\nhint: %s",
               op->text.c_str(), argument.name,
               number ? "write it as a float, such as 1e20" : "integers lie in [-2**63, 2**63)");
}

// What makes a tensor from nothing, or sums, computes in the dtype of `out`.
Outcome take_dtype_of_out(const Op* op, const Overload& overload, Frame* frame) {
  PyObject** place = &frame->values[overload.result_dtype];
  PyObject* dtype = dtype_object(reinterpret_cast<Tensor*>(frame->out)->dtype);
  if (*place == Py_None) *place = dtype;
  DType given;
  if (*place == dtype || !dtype_from_object(*place, &given)) {
    PyErr_Clear();  // not a dtype: the parser says so
    return Outcome::Ok;
  }
  if (given == reinterpret_cast<Tensor*>(frame->out)->dtype) return Outcome::Ok;
  PyErr_Format(PyExc_RuntimeError,
               "[%s] dtype %S does not match dtype of out parameter (%S)\n"
               "hint: leave out the dtype, or give an out tensor of it",
               op->text.c_str(), *place, dtype);
  return Outcome::Failed;
}

}  // namespace

Outcome bind_any(const Op* op, const Overload& overload, Frame* frame, PyObject* const* args,
                 Py_ssize_t count, PyObject* kwnames) {
  const int total = static_cast<int>(overload.arguments.size());
  Py_ssize_t given = count;
  if (count > overload.positional) {
    if (!overload.varargs || !PyIndex_Check(args[overload.positional - 1])) {
      frame->problem = "too many";
      return Outcome::Mismatch;
    }
    given = overload.positional;
  }
  if (!frame->values.reserve(static_cast<size_t>(total))) return Outcome::Failed;
  for (Py_ssize_t i = 0; i < given; ++i) frame->values[i] = args[i];
  for (int i = static_cast<int>(given); i < total; ++i) {
    frame->values[i] = overload.arguments[i].default_value;
  }
  if (count > given) {
    const Outcome outcome = bind_varargs(overload, frame, args, count);
    if (outcome != Outcome::Ok) return outcome;
  }
  if (kwnames) {
    const Outcome outcome = bind_keywords(overload, frame, args + count, kwnames, given);
    if (outcome != Outcome::Ok) return outcome;
  }
  for (int i = static_cast<int>(given); i < total; ++i) {
    if (frame->values[i]) continue;
    frame->problem = "missing a required argument";
    frame->bad_value = overload.arguments[i].name;
    return Outcome::Mismatch;
  }
  if (frame->out && overload.result_dtype >= 0 && is_tensor(frame->out)) {
    return take_dtype_of_out(op, overload, frame);
  }
  return Outcome::Ok;
}

Outcome parse_arguments(const Op* op, const Overload& overload, Frame* frame) {
  const int total = static_cast<int>(overload.arguments.size());
  const Device place = default_device();  // where results of calls without tensors go
  frame->offsets_in_key = overload.offsets_in_key;
  frame->key.push(tag_word(Tag::Header, static_cast<uint64_t>(default_dtype()) |
                                            static_cast<uint64_t>(place.kind) << 8));
  for (int i = 0; i < total; ++i) {
    const Argument& argument = overload.arguments[i];
    PyObject* object = frame->values[i];
    Outcome outcome;
    if (argument.kind == Kind::Tensor || argument.kind == Kind::TensorOrScalar) {
      if (is_exact_tensor(object)) {
        Tensor* t = reinterpret_cast<Tensor*>(object);
        outcome = done(add_tensor(frame, t, argument.mutated));
      } else if (object == Py_None && argument.optional) {
        outcome = done(push_word(frame, tag_word(Tag::None)));
      } else {
        outcome = add_other(frame, object, argument.mutated);
        if (outcome == Outcome::Mismatch && argument.kind == Kind::TensorOrScalar) {
          outcome = parse_number(argument, frame, object);
        }
      }
    } else if (argument.kind == Kind::Scalar) {
      outcome = object == Py_None && argument.optional ? done(push_word(frame, tag_word(Tag::None)))
                                                       : parse_number(argument, frame, object);
    } else {
      outcome = parse_rare(overload, i, frame);
    }
    if (outcome == Outcome::Ok) continue;
    if (outcome == Outcome::Mismatch) {
      return mismatch(frame, i, frame->bad_value ? frame->bad_value : object);
    }
    if (frame->too_large) {
      frame->bad_argument = i;
      raise_too_large(op, overload, i, object);
    }
    return outcome;
  }
  if (frame->tensors.size() == 0) {  // a factory: where it makes tensors is part of its key
    frame->key[0] |= static_cast<uint64_t>(static_cast<uint8_t>(place.index)) << 16;
  }
  return Outcome::Ok;
}

bool overload_parse_spec(PyObject* spec, Overload* overload) {
  PyObject *arguments, *build, *flags = nullptr;
  if (!PyArg_ParseTuple(spec, "O!O|O!", &PyTuple_Type, &arguments, &build, &PyTuple_Type, &flags)) {
    return false;
  }
  const Py_ssize_t count = PyTuple_GET_SIZE(arguments);
  overload->arguments.resize(static_cast<size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    Argument& argument = overload->arguments[i];
    if (!read_argument(PyTuple_GET_ITEM(arguments, i), &argument)) return false;
    if (!argument.keyword_only) overload->positional = static_cast<int>(i) + 1;
    if (!argument.default_value) overload->required = static_cast<int>(i) + 1;
    overload->mutates |= argument.mutated;
  }
  if (overload->positional > 0) {
    const Kind last = overload->arguments[overload->positional - 1].kind;
    overload->varargs = last == Kind::IntList || last == Kind::SymIntList;
  }
  bool from_nothing = true;
  uint32_t fitting = 0;
  for (int i = 0; i < static_cast<int>(count); ++i) {
    const Argument& argument = overload->arguments[i];
    fitting += argument.fits;
    from_nothing &= argument.kind != Kind::Tensor && argument.kind != Kind::TensorList;
    if (argument.kind == Kind::DType) overload->result_dtype = i;
  }
  if (fitting > Frame::kMaxFitting) {
    PyErr_Format(PyExc_TypeError, "[op] fits= names %u arguments\nhint: %u at most", fitting,
                 Frame::kMaxFitting);
    return false;
  }
  overload->build = Py_NewRef(build);
  overload->spec = Py_NewRef(spec);
  if (flags && !read_flags(overload, flags)) return false;
  if (!from_nothing && overload->out.rule != OutRule::Dtype) overload->result_dtype = -1;
  return true;
}

std::string signature_text(const Op* op, const Overload& overload) {
  std::string text = op->text + "(";
  bool keyword = false, first = true;
  for (const Argument& argument : overload.arguments) {
    if (!first) text += ", ";
    first = false;
    if (argument.keyword_only && !keyword) {
      text += "*, ";
      keyword = true;
    }
    const KindName* kind = kind_name(argument);
    text += std::string(kind ? kind->schema : "object") + " " + PyUnicode_AsUTF8(argument.name);
    if (!argument.default_value) continue;
    const auto shown = steal(PyObject_Repr(argument.default_value));
    if (shown) text += std::string("=") + PyUnicode_AsUTF8(shown.get());
    PyErr_Clear();
  }
  return text + ")";
}

// The signature that a call came nearest to, then those of the other overloads.
std::string signatures_text(const Op* op, const Overload& nearest) {
  std::string text = signature_text(op, nearest);
  for (const auto& overload : op->overloads) {
    if (overload.get() != &nearest) text += "\n   or " + signature_text(op, *overload);
  }
  return text;
}

void raise_mismatch(const Op* op, const Overload& overload, const Frame& frame,
                    Py_ssize_t positional) {
  const std::string hint = signatures_text(op, overload);
  const char* name = op->text.c_str();
  if (frame.bad_argument >= 0) {
    const Argument& argument = overload.arguments[frame.bad_argument];
    const KindName* kind = kind_name(argument);
    PyErr_Format(PyExc_TypeError, "[%s] argument '%U' must be %s%s, got %s\nhint: %s", name,
                 argument.name, kind ? kind->human : "something else",
                 argument.optional ? " or None" : "", Py_TYPE(frame.bad_value)->tp_name,
                 hint.c_str());
  } else if (frame.problem && frame.bad_value) {
    PyErr_Format(PyExc_TypeError, "[%s] %s: '%U'\nhint: %s", name, frame.problem, frame.bad_value,
                 hint.c_str());
  } else {
    PyErr_Format(PyExc_TypeError, "[%s] takes at most %d positional arguments, got %zd\nhint: %s",
                 name, overload.positional, positional, hint.c_str());
  }
}

}  // namespace fb
