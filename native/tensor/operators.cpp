// Python's operators on tensors: each slot calls, through a C table, the callable that
// `_core.set_operator(name, callable)` registered. The definitions themselves live in Python.
//
// `2 - x` calls operator "rsub" with (x, 2). Where no reflected operator is registered, the plain
// one is called with (2, x), or with (x, 2) if it is commutative. NumPy arrays count as tensors
// over their memory. Operands that are neither tensors nor numbers give NotImplemented, so that
// Python tries the other side or reports the TypeError in its own words.
#include <iterator>

#include "call/override.h"
#include "core.h"
#include "tape/tape.h"
#include "tensor/tensor_internal.h"

namespace fb {
namespace {

constexpr int kOperators = static_cast<int>(Operator::Count);
constexpr const char* kNames[kOperators] = {
#define FB_NAME(id, name) name,
    FB_OPERATORS(FB_NAME)
#undef FB_NAME
};
PyObject* table[kOperators];
std::vector<PyTypeObject*>& scalar_types() {
  static auto& types = *new std::vector<PyTypeObject*>();
  return types;
}

Operator reflected(Operator which) { return static_cast<Operator>(static_cast<int>(which) + 1); }

// Converts a foreign operand of an op, a new reference: Python numbers are unchanged, NumPy scalars
// become Python numbers, arrays tensors over their memory. Null without exception: not an operand.
PyObject* operand(PyObject* object) {
  if (PyFloat_CheckExact(object) || PyLong_Check(object) || PyComplex_CheckExact(object) ||
      is_registered_scalar(object)) {
    return Py_NewRef(object);
  }
  if (is_numpy_scalar(object)) return PyObject_CallMethod(object, "item", nullptr);
  if (numpy_array(object)) {
    return reinterpret_cast<PyObject*>(tensor_from_numpy("as_tensor", object));
  }
  return is_number(object) ? Py_NewRef(object) : nullptr;
}
PyObject* not_an_operand() {
  if (PyErr_Occurred()) return nullptr;
  Py_RETURN_NOTIMPLEMENTED;
}

constexpr bool commutative(Operator which) {
  return which == Operator::Add || which == Operator::Mul || which == Operator::And ||
         which == Operator::Or || which == Operator::Xor;
}

// `tensor op foreign`, or `foreign op tensor` when `swapped`.
PyObject* mixed(Operator which, PyObject* tensor, PyObject* foreign, bool swapped) {
  const auto other = any_public_override(&foreign, 1) ? share(foreign) : steal(operand(foreign));
  if (!other) return not_an_operand();
  const bool is_plain_tensor = is_tensor(other.get());
  const bool plain = !swapped || is_plain_tensor || !operator_object(reflected(which));
  PyObject* callable = plain ? operator_required(which) : operator_object(reflected(which));
  const bool exchange = swapped && plain && (is_plain_tensor || !commutative(which));
  return exchange ? call_object(callable, other, tensor) : call_object(callable, tensor, other);
}

template <Operator which>
PyObject* binary(PyObject* a, PyObject* b) {
  if (!is_tensor(a)) return mixed(which, b, a, true);
  if (!is_tensor(b)) return mixed(which, a, b, false);
  PyObject* callable = operator_required(which);
  return call_object(callable, a, b);
}

template <Operator which>
PyObject* power(PyObject* a, PyObject* b, PyObject* modulus) {
  if (modulus != Py_None) Py_RETURN_NOTIMPLEMENTED;
  return binary<which>(a, b);
}

// `a += b`: without a registered in-place operator Python falls back to `a = a + b`.
template <Operator which>
PyObject* inplace(PyObject* a, PyObject* b) {
  PyObject* callable = operator_object(which);
  if (!callable) Py_RETURN_NOTIMPLEMENTED;
  return is_tensor(b) ? call_object(callable, a, b) : mixed(which, a, b, false);
}
PyObject* inplace_power(PyObject* a, PyObject* b, PyObject*) {
  return inplace<Operator::IPow>(a, b);
}

template <Operator which>
PyObject* unary(PyObject* a) {
  PyObject* callable = operator_required(which);
  return call_object(callable, a);
}

PyObject* invert(PyObject* a) {
  const DType dtype = reinterpret_cast<Tensor*>(a)->dtype;
  if (!asks_override(a) && (is_floating(dtype) || is_complex(dtype))) {
    PyErr_SetString(PyExc_TypeError,
                    "[bitwise_not] ~ (operator.invert) is only implemented on integer and "
                    "Boolean-type tensors\nhint: logical_not tells where elements are zero");
    return nullptr;
  }
  return unary<Operator::Invert>(a);
}

PyObject* compare(PyObject* a, PyObject* b, int op) {
  const auto which = static_cast<Operator>(static_cast<int>(Operator::Lt) + op);
  if (!is_tensor(b)) return mixed(which, a, b, false);
  PyObject* callable = operator_required(which);
  return call_object(callable, a, b);
}
static_assert(Py_LT == 0 && Py_LE == 1 && Py_EQ == 2 && Py_NE == 3 && Py_GT == 4 && Py_GE == 5);

// The address, as id(): programs compare the two.
Py_hash_t hash(PyObject* self) {
  const auto address = reinterpret_cast<Py_hash_t>(self);
  return address == -1 ? -2 : address;
}

Py_ssize_t length(PyObject* self) {
  if (asks_override(self)) [[unlikely]] {
    const auto count = steal(override_slot("__len__", &self, 1));
    return count ? PyNumber_AsSsize_t(count.get(), PyExc_OverflowError) : -1;
  }
  auto* t = tensor_of(self);
  if (t->ndim == 0) {
    PyErr_SetString(PyExc_TypeError, "[len] len() of a 0-d tensor\nhint: use numel()");
    return -1;
  }
  return static_cast<Py_ssize_t>(t->sizes()[0]);
}

// Whether a tensor, a key (or an element of it) or a value takes over.
bool asks_subscript(PyObject* const* args, Py_ssize_t count) {
  if (count == 2 && (PyLong_CheckExact(args[1]) || PySlice_Check(args[1])) &&
      is_exact_tensor(args[0]) && !(interceptors & ~kAutocast)) [[likely]] {
    return false;
  }
  return asks_override(args[0]) || any_public_override(args + 1, count - 1, true);
}

PyObject* subscript(PyObject* self, PyObject* key) {
  PyObject* given[2] = {self, key};
  if (asks_subscript(given, 2)) [[unlikely]] {
    return override_slot("__getitem__", given, 2);
  }
  PyObject* callable = operator_required(Operator::GetItem);
  return call_object(callable, self, key);
}
int assign_subscript(PyObject* self, PyObject* key, PyObject* value) {
  if (!value) {
    PyErr_SetString(PyExc_TypeError,
                    "[setitem] Tensor does not support deleting items\nhint: select what to keep");
    return -1;
  }
  PyObject* callable = operator_required(Operator::SetItem);
  if (!callable) return -1;
  PyObject* given[3] = {self, key, value};
  const auto result = steal(asks_subscript(given, 3) ? override_slot("__setitem__", given, 3)
                                                     : call_object(callable, self, key, value));
  return result ? 0 : -1;
}
int contains(PyObject* self, PyObject* value) {
  PyObject* given[2] = {self, value};
  PyObject* callable = operator_required(Operator::Contains);
  const auto result = steal(asks_override(self) ? override_slot("__contains__", given, 2)
                                                : call_object(callable, self, value));
  return result ? PyObject_IsTrue(result.get()) : -1;
}
PyObject* iterate(PyObject* self) {
  if (asks_override(self)) [[unlikely]] {
    return override_slot("__iter__", &self, 1);
  }
  if (reinterpret_cast<Tensor*>(self)->ndim == 0) {
    PyErr_SetString(PyExc_TypeError,
                    "[iter] iteration over a 0-d tensor\nhint: use item() for its value");
    return nullptr;
  }
  const auto parts = steal(call_object(operator_required(Operator::Unbind), self));
  return parts ? PyObject_GetIter(parts.get()) : nullptr;
}
PyObject* repr(PyObject* self) {
  if (asks_override(self)) [[unlikely]] {
    return override_slot("__repr__", &self, 1);
  }
  if (PyObject* callable = operator_object(Operator::Repr)) return call_object(callable, self);
  const Tensor* t = tensor_of(self);
  const auto shape = steal(size_object(t->ndim, t->sizes()));
  if (!shape) return nullptr;
  return PyUnicode_FromFormat("tensor(..., size=%R, dtype=%R)", shape.get(),
                              dtype_object(t->dtype));
}

// ---------------------------------------------------------------- conversion to Python numbers
PyObject* single(PyObject* self) {
  auto* t = reinterpret_cast<Tensor*>(self);
  if (t->numel != 1) {
    PyErr_Format(PyExc_ValueError,
                 "[item] only one element tensors can be converted to Python scalars: this one has "
                 "%lld\nhint: reduce it first, or use tolist()",
                 static_cast<long long>(t->numel));
    return nullptr;
  }
  return tensor_item_shown(t);
}
int truth(PyObject* self) {
  if (asks_override(self)) [[unlikely]] {
    const auto answer = steal(override_slot("__bool__", &self, 1));
    return answer ? PyObject_IsTrue(answer.get()) : -1;
  }
  auto* t = reinterpret_cast<Tensor*>(self);
  if (t->numel != 1) {
    PyErr_Format(PyExc_RuntimeError,
                 "[bool] Boolean value of Tensor with %s is ambiguous\n"
                 "hint: reduce it with any() or all()",
                 t->numel == 0 ? "no values" : "more than one value");
    return -1;
  }
  // A branch on data is named apart from a number that is read (flambeau/capture/breaks.py).
  if (t->storage && t->storage->pending && !tensor_materialise(t, "bool()")) return -1;
  const auto value = steal(tensor_item_shown(t));
  return value ? PyObject_IsTrue(value.get()) : -1;
}
// Warns, once, of a number that leaves the graph without detach(). False: the warning was raised.
bool notes_gradient(PyObject* self) {
  if (!grad_mode.enabled || !tensor_requires_grad(reinterpret_cast<Tensor*>(self))) [[likely]] {
    return true;
  }
  const auto text = steal(PyUnicode_FromString(
      "Converting a tensor with requires_grad=True to a scalar may lead to unexpected behavior.\n"
      "Consider using tensor.detach() first."));
  return static_cast<bool>(steal(call_helper("flambeau.core.warned", "warn_once", text)));
}
PyObject* to_float(PyObject* self) {
  if (asks_override(self)) [[unlikely]] {
    return override_slot("__float__", &self, 1);
  }
  if (!notes_gradient(self)) return nullptr;
  const auto value = steal(single(self));
  if (!value) return nullptr;
  if (!PyComplex_Check(value.get())) return PyNumber_Float(value.get());
  if (PyComplex_ImagAsDouble(value.get()) == 0.0) {
    return PyFloat_FromDouble(PyComplex_RealAsDouble(value.get()));
  }
  PyErr_SetString(PyExc_RuntimeError,
                  "[float] value cannot be converted to type double without overflow\n"
                  "hint: take .real");
  return nullptr;
}
PyObject* to_int(PyObject* self) {
  if (asks_override(self)) [[unlikely]] {
    return override_slot("__int__", &self, 1);
  }
  auto value = steal(single(self));
  if (value && PyComplex_Check(value.get())) value = steal(to_float(self));
  return value ? PyNumber_Long(value.get()) : nullptr;
}
PyObject* to_index(PyObject* self) {
  if (asks_override(self)) [[unlikely]] {
    return override_slot("__index__", &self, 1);
  }
  auto* t = reinterpret_cast<Tensor*>(self);
  if (t->numel != 1 || !is_integral(t->dtype)) {
    PyErr_Format(PyExc_TypeError,
                 "[index] only integer tensors of a single element can be converted to an index: "
                 "got dtype %s with %lld elements\nhint: convert with int()",
                 dtype_name(t->dtype), static_cast<long long>(t->numel));
    return nullptr;
  }
  return to_int(self);
}

template <typename F>
void* slot(F function) {
  return reinterpret_cast<void*>(function);
}

int operator_index(const char* name) {
  for (int i = 0; i < kOperators; ++i) {
    if (std::strcmp(kNames[i], name) == 0) return i;
  }
  PyErr_Format(PyExc_ValueError,
               "[set_operator] unknown operator name: '%s'\n"
               "hint: see _core.operator_names()",
               name);
  return -1;
}
PyObject* set_operator(PyObject*, PyObject* args) {
  const char* name;
  PyObject* callable;
  if (!PyArg_ParseTuple(args, "sO", &name, &callable)) return nullptr;
  const int index = operator_index(name);
  if (index < 0) return nullptr;
  if (callable != Py_None && !PyCallable_Check(callable)) {
    PyErr_Format(PyExc_TypeError, "[set_operator] '%s' needs a callable: got %s", name,
                 Py_TYPE(callable)->tp_name);
    return nullptr;
  }
  assign(table[index], share(callable == Py_None ? nullptr : callable));
  Py_RETURN_NONE;
}
PyObject* get_operator(PyObject*, PyObject* argument) {
  const char* name = PyUnicode_AsUTF8(argument);
  const int index = name ? operator_index(name) : -1;
  if (index < 0) return nullptr;
  return Py_NewRef(or_none(table[index]));
}
PyObject* operator_names(PyObject*, PyObject*) {
  return build_list(kOperators, [](size_t i) { return PyUnicode_FromString(kNames[i]); });
}
PyObject* register_scalar_type(PyObject*, PyObject* type) {
  if (!PyType_Check(type)) {
    PyErr_SetString(PyExc_TypeError, "[register_scalar_type] expected a type");
    return nullptr;
  }
  scalar_types().push_back(reinterpret_cast<PyTypeObject*>(Py_NewRef(type)));
  Py_RETURN_NONE;
}
PyMethodDef functions[] = {
    {"set_operator", set_operator, METH_VARARGS,
     "set_operator(name, callable | None): what an operator of Tensor calls."},
    {"get_operator", get_operator, METH_O, "The callable registered under a name, or None."},
    {"operator_names", operator_names, METH_NOARGS, "All names that set_operator knows."},
    {"register_scalar_type", register_scalar_type, METH_O,
     "Objects of this type count as numbers in operators (symbolic sizes)."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

PyType_Slot operator_slots[] = {
    {Py_nb_add, slot(binary<Operator::Add>)},
    {Py_nb_subtract, slot(binary<Operator::Sub>)},
    {Py_nb_multiply, slot(binary<Operator::Mul>)},
    {Py_nb_true_divide, slot(binary<Operator::TrueDiv>)},
    {Py_nb_floor_divide, slot(binary<Operator::FloorDiv>)},
    {Py_nb_remainder, slot(binary<Operator::Mod>)},
    {Py_nb_power, slot(power<Operator::Pow>)},
    {Py_nb_matrix_multiply, slot(binary<Operator::MatMul>)},
    {Py_nb_and, slot(binary<Operator::And>)},
    {Py_nb_or, slot(binary<Operator::Or>)},
    {Py_nb_xor, slot(binary<Operator::Xor>)},
    {Py_nb_lshift, slot(binary<Operator::LShift>)},
    {Py_nb_rshift, slot(binary<Operator::RShift>)},
    {Py_nb_inplace_add, slot(inplace<Operator::IAdd>)},
    {Py_nb_inplace_subtract, slot(inplace<Operator::ISub>)},
    {Py_nb_inplace_multiply, slot(inplace<Operator::IMul>)},
    {Py_nb_inplace_true_divide, slot(inplace<Operator::ITrueDiv>)},
    {Py_nb_inplace_floor_divide, slot(inplace<Operator::IFloorDiv>)},
    {Py_nb_inplace_remainder, slot(inplace<Operator::IMod>)},
    {Py_nb_inplace_power, slot(inplace_power)},
    {Py_nb_inplace_matrix_multiply, slot(inplace<Operator::IMatMul>)},
    {Py_nb_inplace_and, slot(inplace<Operator::IAnd>)},
    {Py_nb_inplace_or, slot(inplace<Operator::IOr>)},
    {Py_nb_inplace_xor, slot(inplace<Operator::IXor>)},
    {Py_nb_inplace_lshift, slot(inplace<Operator::ILShift>)},
    {Py_nb_inplace_rshift, slot(inplace<Operator::IRShift>)},
    {Py_nb_negative, slot(unary<Operator::Neg>)},
    {Py_nb_positive, slot(unary<Operator::Pos>)},
    {Py_nb_absolute, slot(unary<Operator::Abs>)},
    {Py_nb_invert, slot(invert)},
    {Py_nb_bool, slot(truth)},
    {Py_nb_float, slot(to_float)},
    {Py_nb_int, slot(to_int)},
    {Py_nb_index, slot(to_index)},
    {Py_tp_richcompare, slot(compare)},
    {Py_tp_hash, slot(hash)},
    {Py_tp_iter, slot(iterate)},
    {Py_tp_repr, slot(repr)},
    {Py_mp_length, slot(length)},
    {Py_sq_length, slot(length)},
    {Py_mp_subscript, slot(subscript)},
    {Py_mp_ass_subscript, slot(assign_subscript)},
    {Py_sq_contains, slot(contains)},
};
int operator_slot_count = static_cast<int>(std::size(operator_slots));

PyObject* operator_object(Operator which) { return table[static_cast<int>(which)]; }
PyObject* operator_required(Operator which) {
  PyObject* callable = operator_object(which);
  if (!callable) {
    const char* name = kNames[static_cast<int>(which)];
    PyErr_Format(PyExc_NotImplementedError,
                 "[%s] no operator is registered under this name\n"
                 "hint: import flambeau, which registers them with _core.set_operator",
                 name);
  }
  return callable;
}

bool is_registered_scalar(PyObject* object) {
  for (PyTypeObject* type : scalar_types()) {
    if (PyObject_TypeCheck(object, type)) return true;
  }
  return false;
}

bool is_number(PyObject* object) {
  if (PyFloat_Check(object) || PyLong_Check(object) || PyComplex_Check(object)) return true;
  return is_registered_scalar(object) || is_numpy_scalar(object);
}

bool init_operators(PyObject* module) { return PyModule_AddFunctions(module, functions) == 0; }

}  // namespace fb
