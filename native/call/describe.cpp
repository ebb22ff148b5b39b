// The struct sequences that describe calls and streams, and what makes them.
#include "call/describe.h"

#include <algorithm>

#include "call/op_internal.h"

namespace fb {
namespace {

PyStructSequence_Field tensor_fields[] = {
    {"dtype", "name in the IR"},
    {"sizes", nullptr},
    {"strides", "in elements"},
    {"offset", "into the storage, in elements"},
    {"requires_grad", "under the grad mode of the call"},
    {"layout", "'contiguous', the order of a dense tensor's dimensions, or 'strided'"},
    {"device", nullptr},
    {nullptr, nullptr},
};
PyStructSequence_Field scalar_fields[] = {
    {"slot", nullptr}, {"type", "bool, int or float"}, {"value", nullptr}, {nullptr, nullptr}};
PyStructSequence_Field integer_fields[] = {{"value", nullptr}, {nullptr, nullptr}};
PyStructSequence_Field generator_fields[] = {{"slot", nullptr}, {nullptr, nullptr}};
PyStructSequence_Field external_fields[] = {
    {"tensor", "a TensorArgument"},
    {"parameter", "whether it is a leaf that requires a gradient"},
    {"value", "number of its value"},
    {"source", "the tensor itself, if the stream is frozen, or None"},
    {nullptr, nullptr},
};
PyStructSequence_Field record_fields[] = {
    {"plan", "of the call"},
    {"operands", "values of its tensor slots; -1: absent"},
    {"results", "values of its outputs; -1: none"},
    {"integers", "run-time integers"},
    {"number_types", "of its run-time numbers: 0 integer, 1 float, 2 bool"},
    {"generators", "how many generators it takes"},
    {"forward", "of a backward: the record of its forward call, or -1"},
    {"registers", "of that call's plan, whose values the integers are"},
    {"forward_numbers", "slots of that call's numbers, which its own are"},
    {"numbers", "values of its run-time numbers"},
    {nullptr, nullptr},
};
PyStructSequence_Field live_fields[] = {{"value", nullptr},
                                        {"slot", "of the external tensor it overwrites, or -1"},
                                        {nullptr, nullptr}};
PyStructSequence_Field stream_fields[] = {
    {"externals", nullptr},
    {"records", nullptr},
    {"live", "what must reach memory"},
    {"tuned", "whether candidates are measured"},
    {"frozen", "whether weights are constants"},
    {"budget", "fraction of activations to save; negative: the setting's"},
    {nullptr, nullptr},
};
PyStructSequence_Field held_fields[] = {
    {"value", "of the first summand"},
    {"slot", "external tensor that stands for what the edge holds"},
    {"gradient", "position of the sum among the gradients"},
    {nullptr, nullptr},
};
PyStructSequence_Field backward_fields[] = {
    {"records", "number of the forward's records"},
    {"externals", "number of the forward's external tensors"},
    {"edges", "number of edges along which gradients leave the region"},
    {"seeds", "(value of a result, external slot of its gradient) each"},
    {"gradients", "(value, number of the edge along which it goes) each"},
    {"sums", "first record of the sums that go on from what their edge holds"},
    {"held", "a HeldSum for each of these"},
    {nullptr, nullptr},
};

struct Form {
  PyStructSequence_Desc description;
  PyTypeObject* type = nullptr;
};
// In the order of `Description`.
Form forms[] = {
    {{"flambeau._core.TensorArgument", "A tensor of a call or stream.", tensor_fields, 7}},
    {{"flambeau._core.ScalarArgument", "A number that is no part of a call's class.", scalar_fields,
      3}},
    {{"flambeau._core.IntegerArgument", "A run-time integer of a call.", integer_fields, 1}},
    {{"flambeau._core.GeneratorArgument", "A random generator of a call.", generator_fields, 1}},
    {{"flambeau._core.ExternalTensor", "A tensor that a stream reads.", external_fields, 4}},
    {{"flambeau._core.OpRecord", "A recorded call.", record_fields, 10}},
    {{"flambeau._core.LiveValue", "A value that a stream computes for others.", live_fields, 2}},
    {{"flambeau._core.RecordedStream", "A recorded stream.", stream_fields, 6}},
    {{"flambeau._core.HeldSum", "A sum that goes on from a held gradient.", held_fields, 3}},
    {{"flambeau._core.RecordedBackward", "What the symbolic backward appended to a stream.",
      backward_fields, 7}},
};

// description._replace(**fields)
PyObject* replace(PyObject* self, PyObject*, PyObject* changes) {
  PyTypeObject* type = Py_TYPE(self);
  const auto names =
      steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "__match_args__"));
  auto copy = steal(names ? PyStructSequence_New(type) : nullptr);
  Py_ssize_t used = 0;
  for (Py_ssize_t i = 0; copy && i < PyTuple_GET_SIZE(names.get()); ++i) {
    PyObject* name = PyTuple_GET_ITEM(names.get(), i);
    PyObject* change = changes ? PyDict_GetItem(changes, name) : nullptr;
    used += change != nullptr;
    PyObject* field = change ? change : PyTuple_GET_ITEM(self, i);
    PyStructSequence_SetItem(copy.get(), i, Py_NewRef(field));
  }
  if (!copy || !changes || used == PyDict_GET_SIZE(changes)) return copy.release();
  PyErr_Format(PyExc_TypeError, "%s has no field of such a name: %R", type->tp_name, changes);
  return nullptr;
}

PyMethodDef replace_method = {
    "_replace", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(replace)),
    METH_VARARGS | METH_KEYWORDS, "A copy with other values of the named fields."};

bool add_type(PyObject* module, Form* form) {
  form->type = PyStructSequence_NewType(&form->description);
  if (!form->type) return false;
  auto* type = reinterpret_cast<PyObject*>(form->type);
  const auto method = steal(PyDescr_NewMethod(form->type, &replace_method));
  return method && PyObject_SetAttrString(type, "_replace", method.get()) == 0 &&
         PyModule_AddObjectRef(module, std::strrchr(form->description.name, '.') + 1, type) == 0;
}

PyObject* layout_object(const Tensor* t) {
  if (t->flags & kContiguous) return PyUnicode_InternFromString("contiguous");
  const LayoutClass layout = classify(t->ndim, t->sizes(), t->strides());
  if (!layout.dense) return PyUnicode_InternFromString("strided");
  int64_t order[kMaxDims];
  std::copy(layout.order, layout.order + t->ndim, order);
  return int_tuple(order, t->ndim);
}

}  // namespace

PyObject* described(Description kind, std::initializer_list<PyObject*> fields) {
  const bool complete = std::find(fields.begin(), fields.end(), nullptr) == fields.end();
  PyObject* description =
      complete ? PyStructSequence_New(forms[static_cast<size_t>(kind)].type) : nullptr;
  Py_ssize_t i = 0;
  for (PyObject* field : fields) {
    if (description) {
      PyStructSequence_SetItem(description, i++, field);
    } else {
      drop(field);
    }
  }
  return description;
}

PyObject* describe_tensor(const Tensor* t, bool requires_grad) {
  return described(
      Description::Tensor,
      {PyUnicode_InternFromString(ir_dtype_name(t->dtype)), int_tuple(t->sizes(), t->ndim),
       int_tuple(t->strides(), t->ndim), PyLong_FromLongLong(t->offset),
       PyBool_FromLong(requires_grad), layout_object(t), device_object(t->device)});
}

LayoutClass classify(int ndim, const int64_t* sizes, const int64_t* strides) {
  LayoutClass layout;
  for (int d = 0; d < ndim; ++d) layout.order[d] = d;
  std::stable_sort(layout.order, layout.order + ndim,
                   [&](int a, int b) { return strides[a] > strides[b]; });
  int64_t step = 1;
  for (int i = ndim - 1; i >= 0; --i) {
    const int d = layout.order[i];
    if (sizes[d] == 1) continue;
    if (strides[d] != step) return layout;
    step *= sizes[d];
  }
  layout.dense = true;
  return layout;
}

bool init_describe(PyObject* module) {
  return std::all_of(std::begin(forms), std::end(forms),
                     [&](Form& form) { return add_type(module, &form); });
}

}  // namespace fb
