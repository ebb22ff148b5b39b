// Methods and attributes of Tensor behind one question: does a mode or a subclass take over? A
// plain tensor answers it by its type. A method has no room for data of its own, so each gets its
// place in a table, and a function of that place's number.
#include <array>
#include <utility>

#include "call/override.h"
#include "tensor/tensor_internal.h"

namespace fb {
namespace {

struct Method {
  PyCFunction function = nullptr;
  PyObject* descriptor = nullptr;  // owned, for ever: `Tensor.size`
};
constexpr size_t kMethods = 96;
Method methods[kMethods];
PyMethodDef definitions[kMethods];
size_t method_count = 0;

// The call as `__torch_function__` gets it: the method, then the tensor and the arguments.
PyObject* override_method(const Method& method, PyObject* self, PyObject* given, PyObject* kwargs) {
  const bool packed = given && PyTuple_Check(given) && kwargs != Py_None;
  std::vector<PyObject*> values{self};
  if (packed) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(given); ++i) {
      values.push_back(PyTuple_GET_ITEM(given, i));
    }
  } else if (given) {
    values.push_back(given);
  }
  const auto count = static_cast<Py_ssize_t>(values.size());
  Ref<> names;
  if (kwargs && kwargs != Py_None && PyDict_GET_SIZE(kwargs) > 0) {
    PyObject *name, *value;
    names = steal(keyword_names(kwargs));
    if (!names) return nullptr;
    for (Py_ssize_t at = 0; PyDict_Next(kwargs, &at, &name, &value);) values.push_back(value);
  }
  return call_override(method.descriptor, values.data(), count, names.get());
}

template <size_t kPlace>
PyObject* checked(PyObject* self, PyObject* argument) {
  if (!asks_override(self)) [[likely]] {
    return methods[kPlace].function(self, argument);
  }
  // None marks a single argument, which may be a tuple.
  const bool single = definitions[kPlace].ml_flags & METH_O;
  return override_method(methods[kPlace], self, argument, single ? Py_None : nullptr);
}

template <size_t kPlace>
PyObject* checked_with_keywords(PyObject* self, PyObject* args, PyObject* kwargs) {
  if (!asks_override(self)) [[likely]] {
    auto* function = reinterpret_cast<void*>(methods[kPlace].function);
    return reinterpret_cast<PyCFunctionWithKeywords>(function)(self, args, kwargs);
  }
  return override_method(methods[kPlace], self, args, kwargs);
}

template <size_t... kPlaces>
constexpr std::array<PyCFunction, kMethods> simple_of(std::index_sequence<kPlaces...>) {
  return {checked<kPlaces>...};
}
template <size_t... kPlaces>
constexpr std::array<PyCFunctionWithKeywords, kMethods> keywords_of(
    std::index_sequence<kPlaces...>) {
  return {checked_with_keywords<kPlaces>...};
}
constexpr auto kSimple = simple_of(std::make_index_sequence<kMethods>{});
constexpr auto kKeywords = keywords_of(std::make_index_sequence<kMethods>{});

// Those through which a subclass itself is made or described are not asked about.
bool is_open(const PyMethodDef* method) { return std::strcmp(method->ml_name, "as_subclass") == 0; }

PyObject* new_descriptor(PyMethodDef* method) {
  if (method->ml_flags & METH_STATIC) {
    const auto function = steal(PyCFunction_NewEx(method, nullptr, nullptr));
    return function ? PyStaticMethod_New(function.get()) : nullptr;
  }
  if (is_open(method)) return PyDescr_NewMethod(TensorType, method);
  if (method_count == kMethods) {
    PyErr_SetString(PyExc_SystemError, "kMethods is too small");
    return nullptr;
  }
  const size_t place = method_count++;
  definitions[place] = *method;
  methods[place].function = method->ml_meth;
  definitions[place].ml_meth =
      method->ml_flags & METH_KEYWORDS
          ? reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(kKeywords[place]))
          : kSimple[place];
  PyObject* descriptor = PyDescr_NewMethod(TensorType, &definitions[place]);
  methods[place].descriptor = Py_XNewRef(descriptor);
  return descriptor;
}

// ---------------------------------------------------------------- attributes
struct Attribute {
  const PyGetSetDef* plain = nullptr;
  PyObject* descriptor = nullptr;  // owned, for ever: `Tensor.shape`
};

// `Tensor.shape.__get__` and its like is what is called.
PyObject* override_accessor(const Attribute* attribute, const char* name, PyObject* self,
                            PyObject* value) {
  const auto accessor = steal(PyObject_GetAttrString(attribute->descriptor, name));
  PyObject* values[2] = {self, value};
  return accessor ? call_override(accessor.get(), values, value ? 2 : 1, nullptr) : nullptr;
}

PyObject* get_attribute(PyObject* self, void* closure) {
  const auto* attribute = static_cast<const Attribute*>(closure);
  if (!asks_override(self)) [[likely]] {
    return attribute->plain->get(self, attribute->plain->closure);
  }
  return override_accessor(attribute, "__get__", self, nullptr);
}

int set_attribute(PyObject* self, PyObject* value, void* closure) {
  const auto* attribute = static_cast<const Attribute*>(closure);
  if (!asks_override(self)) [[likely]] {
    return attribute->plain->set(self, value, attribute->plain->closure);
  }
  const char* name = value ? "__set__" : "__delete__";
  return steal(override_accessor(attribute, name, self, value)) ? 0 : -1;
}

// Attributes that an operator computes: `T`, `real` ...
struct Computed {
  PyObject *read, *write;  // owned, for ever; write may be null
};
PyObject* get_computed(PyObject* self, void* closure) {
  return PyObject_CallOneArg(static_cast<Computed*>(closure)->read, self);
}
int set_computed(PyObject* self, PyObject* value, void* closure) {
  if (!value) {
    PyErr_SetString(PyExc_AttributeError, "[Tensor] the attribute cannot be deleted");
    return -1;
  }
  return steal(call_object(static_cast<Computed*>(closure)->write, self, value)) ? 0 : -1;
}

bool publish(const char* name, PyObject* stolen) {
  const auto descriptor = steal(stolen);
  auto* type = reinterpret_cast<PyObject*>(TensorType);
  return descriptor && PyObject_SetAttrString(type, name, stolen) == 0;
}

// CPython keeps a pointer to the definition: it lives as long as the process.
bool add_attribute(const PyGetSetDef* plain) {
  auto* attribute = new Attribute{plain, nullptr};
  auto* checked = new PyGetSetDef{plain->name, get_attribute, plain->set ? set_attribute : nullptr,
                                  plain->doc, attribute};
  attribute->descriptor = PyDescr_NewGetSet(TensorType, checked);
  return publish(plain->name, Py_XNewRef(attribute->descriptor));
}

}  // namespace

bool add_methods(PyMethodDef* added) {
  for (PyMethodDef* method = added; method->ml_name; ++method) {
    if (!publish(method->ml_name, new_descriptor(method))) return false;
  }
  return true;
}

bool add_getset(PyGetSetDef* added) {
  for (PyGetSetDef* plain = added; plain->name; ++plain) {
    if (!add_attribute(plain)) return false;
  }
  return true;
}

// add_attribute(name, read, write or None, doc)
PyObject* add_computed_attribute(PyObject*, PyObject* args) {
  const char *name, *doc;
  PyObject *read, *write;
  if (!PyArg_ParseTuple(args, "sOOz", &name, &read, &write, &doc)) return nullptr;
  auto* computed = new Computed{Py_NewRef(read), write == Py_None ? nullptr : Py_NewRef(write)};
  auto* plain =
      new PyGetSetDef{strdup(name), get_computed, computed->write ? set_computed : nullptr,
                      doc ? strdup(doc) : nullptr, computed};
  if (!add_attribute(plain)) return nullptr;
  Py_RETURN_NONE;
}

PyObject* override_slot(const char* name, PyObject* const* args, Py_ssize_t count) {
  const auto function =
      steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(TensorType), name));
  return function ? call_override(function.get(), args, count, nullptr) : nullptr;
}

}  // namespace fb
