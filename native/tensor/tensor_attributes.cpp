// Attributes and small methods of Tensor: geometry, dtype, device, autograd flags, data, grad.
#include "core.h"
#include "device/devices.h"
#include "frame/effects.h"
#include "tape/tape.h"
#include "tensor/tensor_internal.h"

namespace fb {
namespace {

// ---------------------------------------------------------------- geometry
bool wrap_dim(PyObject* argument, int ndim, int* out) {
  int64_t dim;
  if (!parse_int64("dim", argument, &dim)) return false;
  const int limit = ndim > 0 ? ndim : 1;
  if (dim < -limit || dim >= limit || ndim == 0) {
    PyErr_Format(
        PyExc_IndexError,
        "[dim] Dimension out of range (expected to be in range of [%d, %d], but got %lld)\n"
        "hint: the tensor has %d dimensions",
        -limit, limit - 1, static_cast<long long>(dim), ndim);
    return false;
  }
  *out = static_cast<int>(dim < 0 ? dim + ndim : dim);
  return true;
}

PyObject* geometry(PyObject* self, PyObject* args, PyObject* kwargs, bool strides) {
  static const char* names[] = {"dim", nullptr};
  PyObject* dim = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O", const_cast<char**>(names), &dim)) {
    return nullptr;
  }
  Tensor* t = tensor_of(self);
  const int64_t* values = strides ? t->strides() : t->sizes();
  if (dim != Py_None) {
    int d;
    return wrap_dim(dim, t->ndim, &d) ? PyLong_FromLongLong(values[d]) : nullptr;
  }
  if (!strides) return size_object(t->ndim, values);
  return int_tuple(values, t->ndim);
}
PyObject* method_size(PyObject* self, PyObject* args, PyObject* kwargs) {
  return geometry(self, args, kwargs, false);
}
PyObject* method_stride(PyObject* self, PyObject* args, PyObject* kwargs) {
  return geometry(self, args, kwargs, true);
}
PyObject* get_shape(PyObject* self, void*) {
  return size_object(tensor_of(self)->ndim, tensor_of(self)->sizes());
}
PyObject* get_ndim(PyObject* self, void*) { return PyLong_FromLong(tensor_of(self)->ndim); }
PyObject* method_dim(PyObject* self, PyObject*) { return get_ndim(self, nullptr); }
PyObject* method_numel(PyObject* self, PyObject*) {
  return PyLong_FromLongLong(tensor_of(self)->numel);
}
PyObject* get_itemsize(PyObject* self, void*) {
  return PyLong_FromLongLong(item_size(tensor_of(self)->dtype));
}
PyObject* method_element_size(PyObject* self, PyObject*) { return get_itemsize(self, nullptr); }
PyObject* get_nbytes(PyObject* self, void*) {
  return PyLong_FromLongLong(tensor_of(self)->numel * item_size(tensor_of(self)->dtype));
}
PyObject* method_storage_offset(PyObject* self, PyObject*) {
  return PyLong_FromLongLong(tensor_of(self)->offset);
}

// Dense in the order batch, spatial..., channel: what `channels_last` promises.
bool channels_last(const Tensor* t, int ndim) {
  if (t->ndim != ndim) return false;
  int64_t expected = 1;
  for (int step = 0; step < ndim; ++step) {
    const int d = step == 0 ? 1 : (step == ndim - 1 ? 0 : ndim - step);
    if (t->sizes()[d] == 0) return true;
    if (t->sizes()[d] != 1) {
      if (t->strides()[d] != expected) return false;
      expected *= t->sizes()[d];
    }
  }
  return true;
}
PyObject* method_is_contiguous(PyObject* self, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"memory_format", nullptr};
  PyObject* format = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O", const_cast<char**>(names), &format)) {
    return nullptr;
  }
  const int number = format ? memory_format_number(format) : 0;
  if (number < 0) {
    PyErr_Format(PyExc_TypeError,
                 "[is_contiguous] memory_format must be contiguous_format, channels_last or "
                 "channels_last_3d: got %R\nhint: leave it out for row-major",
                 format);
    return nullptr;
  }
  const Tensor* t = tensor_of(self);
  return PyBool_FromLong(number < 2 ? tensor_contiguous(t) : channels_last(t, number + 2));
}

// ---------------------------------------------------------------- kind of tensor
PyObject* get_dtype(PyObject* self, void*) {
  return Py_NewRef(dtype_object(tensor_of(self)->dtype));
}
// A wrapper has no memory, and says that it is where what it wraps is.
PyObject* claimed_device(PyObject* self) {
  const Tensor* t = tensor_of(self);
  if (!(t->flags & kPythonType) || !t->dict) return nullptr;
  return PyDict_GetItemString(t->dict, "_claimed_device");
}
PyObject* get_device(PyObject* self, void*) {
  PyObject* claimed = claimed_device(self);
  return claimed ? Py_NewRef(claimed) : device_object(tensor_of(self)->device);
}
PyObject* get_layout(PyObject*, void*) { return Py_NewRef(strided_layout()); }
PyObject* get_is_meta(PyObject* self, void*) {
  Device claimed;
  if (PyObject* object = claimed_device(self)) {
    if (!device_from_object(object, &claimed)) return nullptr;
    return PyBool_FromLong(is_abstract(claimed));
  }
  return PyBool_FromLong(is_abstract(tensor_of(self)->device));
}
PyObject* get_is_cpu(PyObject* self, void*) {
  Device claimed;
  if (PyObject* object = claimed_device(self)) {
    if (!device_from_object(object, &claimed)) return nullptr;
    return PyBool_FromLong(on_host(claimed));
  }
  return PyBool_FromLong(on_host(tensor_of(self)->device));
}
PyObject* get_false(PyObject*, void*) { Py_RETURN_FALSE; }
PyObject* method_false(PyObject*, PyObject*) { Py_RETURN_FALSE; }
PyObject* method_is_floating_point(PyObject* self, PyObject*) {
  return PyBool_FromLong(is_floating(tensor_of(self)->dtype));
}
PyObject* method_is_complex(PyObject* self, PyObject*) {
  return PyBool_FromLong(is_complex(tensor_of(self)->dtype));
}
PyObject* method_is_signed(PyObject* self, PyObject*) {
  return PyBool_FromLong(dtype_info(tensor_of(self)->dtype).is_signed);
}
PyObject* method_get_device(PyObject* self, PyObject*) {
  const Device device = tensor_of(self)->device;
  return PyLong_FromLong(has_memory(device) ? device.index : -1);
}
PyObject* method_is_inference(PyObject* self, PyObject*) {
  return PyBool_FromLong((tensor_of(self)->flags & kInference) != 0);
}
PyObject* method_data_ptr(PyObject* self, PyObject*) {
  Tensor* t = tensor_of(self);
  if (!tensor_materialise(t, "data_ptr()")) return nullptr;
  if (!t->storage->data) return PyLong_FromLong(0);
  if (!storage_give_address(t->storage)) return nullptr;
  return PyLong_FromUnsignedLongLong(reinterpret_cast<uintptr_t>(t->data()));
}
PyObject* method_untyped_storage(PyObject* self, PyObject*) {
  if (!tensor_materialise(tensor_of(self), "untyped_storage()")) return nullptr;
  return untyped_storage(tensor_of(self)->storage);
}
PyObject* method_is_set_to(PyObject* self, PyObject* other) {
  if (!is_tensor(other)) {
    PyErr_SetString(PyExc_TypeError, "[is_set_to] expected a tensor\nhint: pass a tensor");
    return nullptr;
  }
  const Tensor *a = tensor_of(self), *b = tensor_of(other);
  const bool same = a->storage == b->storage && ((a->flags ^ b->flags) & kLazy) == 0 &&
                    a->offset == b->offset && a->ndim == b->ndim &&
                    std::memcmp(a->dims, b->dims, sizeof(int64_t) * 2 * a->ndim) == 0;
  return PyBool_FromLong(same);
}
PyObject* method_pin_memory(PyObject*, PyObject*, PyObject*) {
  PyErr_SetString(PyExc_RuntimeError,
                  "[pin_memory] cannot access accelerator device when none is available\n"
                  "hint: tensors on the CPU need no pinned memory; leave the call out");
  return nullptr;
}
template <TensorFlags flag>
PyObject* method_resolve(PyObject* self, PyObject*) {
  return tensor_of(self)->flags & flag ? call_conjugate("resolved", self) : Py_NewRef(self);
}
constexpr auto method_resolve_conj = method_resolve<kConjugate>;
constexpr auto method_resolve_neg = method_resolve<kNegative>;
PyObject* method_is_conj(PyObject* self, PyObject*) {
  return PyBool_FromLong((tensor_of(self)->flags & kConjugate) != 0);
}
PyObject* method_is_neg(PyObject* self, PyObject*) {
  return PyBool_FromLong((tensor_of(self)->flags & kNegative) != 0);
}
// _toggle(bits): a fresh alias becomes a view of conjugates (1) or negatives (2), or ends to be.
PyObject* method_toggle(PyObject* self, PyObject* bits) {
  const long value = PyLong_AsLong(bits);
  if (value == -1 && PyErr_Occurred()) return nullptr;
  Tensor* t = tensor_of(self);
  if (value & 1) t->flags ^= kConjugate;
  if (value & 2) t->flags ^= kNegative;
  return Py_NewRef(self);
}
PyObject* method_share_memory(PyObject* self, PyObject*) {
  PyObject* callable = operator_required(Operator::ShareMemory);
  return callable ? PyObject_CallOneArg(callable, self) : nullptr;
}
PyObject* method_is_shared(PyObject* self, PyObject*) {
  return PyBool_FromLong(storage_is_shared(tensor_of(self)->storage));
}

// ---------------------------------------------------------------- autograd
PyObject* get_requires_grad(PyObject* self, void*) {
  return PyBool_FromLong(tensor_requires_grad(tensor_of(self)));
}
bool change_requires_grad(Tensor* t, bool value) {
  Autograd* a = t->autograd;
  if (a && a->node) {
    PyErr_Format(PyExc_RuntimeError,
                 "[requires_grad] you can only change requires_grad flags of leaf variables.%s\n"
                 "hint: detach() gives a tensor outside the graph",
                 value ? ""
                       : " If you want to use a computed variable in a subgraph that doesn't "
                         "require differentiation use var_no_grad = var.detach().");
    return false;
  }
  if (value && !is_floating(t->dtype) && !is_complex(t->dtype)) {
    PyErr_Format(PyExc_RuntimeError,
                 "[requires_grad] only Tensors of floating point and complex dtype can require "
                 "gradients: this one is %s\nhint: convert it first",
                 dtype_name(t->dtype));
    return false;
  }
  if (value && (t->flags & kInference) && !grad_mode.inference) {
    PyErr_SetString(PyExc_RuntimeError,
                    "[requires_grad] Setting requires_grad=True on inference tensor outside "
                    "InferenceMode is not allowed.\nhint: clone() it outside inference mode");
    return false;
  }
  if (!value && !a) return true;
  a = tensor_autograd(t);
  if (!a) return false;
  a->requires_grad = value;
  return true;
}
int set_requires_grad(PyObject* self, PyObject* value, void*) {
  if (!value || !PyBool_Check(value)) {
    PyErr_SetString(PyExc_RuntimeError,
                    "[requires_grad] requires_grad must be a bool\nhint: assign True or False");
    return -1;
  }
  return change_requires_grad(tensor_of(self), value == Py_True) ? 0 : -1;
}
PyObject* method_requires_grad(PyObject* self, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"requires_grad", nullptr};
  PyObject* value = Py_True;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O", const_cast<char**>(names), &value)) {
    return nullptr;
  }
  if (!PyBool_Check(value)) {
    PyErr_Format(PyExc_TypeError,
                 "[requires_grad_] requires_grad must be bool, not %s\nhint: True or False",
                 Py_TYPE(value)->tp_name);
    return nullptr;
  }
  const Autograd* a = tensor_of(self)->autograd;
  if (value == Py_True && a && a->node) return Py_NewRef(self);  // it does
  return change_requires_grad(tensor_of(self), value == Py_True) ? Py_NewRef(self) : nullptr;
}
PyObject* get_is_leaf(PyObject* self, void*) {
  const Autograd* a = tensor_of(self)->autograd;
  if (!a || (!a->node && !a->base)) Py_RETURN_TRUE;
  if (a->node) Py_RETURN_FALSE;
  uint32_t index;  // a view of what was written to may have got a history
  const Node* node = tape_gradient_node(tensor_of(self), &index);
  if (!node && PyErr_Occurred()) return nullptr;
  return PyBool_FromLong(!tensor_of(self)->autograd->node);
}
PyObject* get_retains_grad(PyObject* self, void*) {
  const Autograd* a = tensor_of(self)->autograd;
  return PyBool_FromLong(a && a->retains_grad);
}
PyObject* get_grad_fn(PyObject* self, void*) {
  const Autograd* a = tensor_of(self)->autograd;
  if (!a || (!a->node && !a->base)) Py_RETURN_NONE;
  uint32_t index;
  Node* node = tape_gradient_node(tensor_of(self), &index);  // a stale view gets a new one
  if (!node && PyErr_Occurred()) return nullptr;
  return node ? tape_shown_node(node, index) : Py_NewRef(Py_None);
}
PyObject* get_output_nr(PyObject* self, void*) {
  const Autograd* a = tensor_of(self)->autograd;
  return PyLong_FromUnsignedLong(a ? a->output_index : 0);
}
PyObject* get_base(PyObject* self, void*) {
  const Autograd* a = tensor_of(self)->autograd;
  return Py_NewRef(a && a->base ? object_of(a->base) : Py_None);
}
PyObject* get_backward_hooks(PyObject* self, void*) {
  const Autograd* a = tensor_of(self)->autograd;
  PyObject* hooks = a ? a->hooks : nullptr;
  const NodeExtras* extras = a && a->node ? a->node->extras : nullptr;
  if (extras && a->output_index < extras->tensor_hooks.size()) {
    hooks = extras->tensor_hooks[a->output_index].get();
  }
  return Py_NewRef(hooks ? hooks : Py_None);
}
PyObject* method_is_view(PyObject* self, PyObject*) {
  const Tensor* t = tensor_of(self);
  return PyBool_FromLong((t->flags & kIsView) || (t->autograd && t->autograd->base));
}
PyObject* get_version(PyObject* self, void*) {
  if (tensor_of(self)->flags & kInference) {
    PyErr_SetString(PyExc_RuntimeError,
                    "[_version] Inference tensors do not track version counter.\n"
                    "hint: clone() it outside inference mode");
    return nullptr;
  }
  return PyLong_FromUnsignedLong(tensor_of(self)->version());
}
PyObject* method_bump_version(PyObject* self, PyObject*) {
  tensor_bump_version(tensor_of(self));
  Py_RETURN_NONE;
}

PyObject* get_grad(PyObject* self, void*) {
  if (active_recorder && record_learning()) record_note_gradient(tensor_of(self), true);
  const Autograd* a = tensor_of(self)->autograd;
  if (a && a->node && !a->retains_grad && !a->grad &&
      PyErr_WarnEx(PyExc_UserWarning,
                   "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. "
                   "Its .grad attribute won't be populated during autograd.backward(). If you "
                   "indeed want the .grad field to be populated for a non-leaf Tensor, use "
                   ".retain_grad() on the non-leaf Tensor.",
                   1) < 0) {
    return nullptr;
  }
  return Py_NewRef(a && a->grad ? object_of(a->grad) : Py_None);
}
const char* grad_mismatch(const Tensor* t, const Tensor* grad) {
  if (t == grad) return "can't assign Variable as its own grad";
  if (t->dtype != grad->dtype) return "assigned grad has data of a different type";
  if (t->device.kind != grad->device.kind) {
    return "assigned grad has data located on a different device";
  }
  if (t->ndim != grad->ndim ||
      std::memcmp(t->sizes(), grad->sizes(), sizeof(int64_t) * t->ndim) != 0) {
    return "assigned grad has data of a different size";
  }
  return nullptr;
}
int set_grad(PyObject* self, PyObject* value, void*) {
  Tensor* t = tensor_of(self);
  if (active_recorder && record_learning()) record_note_gradient(t, false);
  if (!value || value == Py_None) {
    if (t->autograd) drop(t->autograd->grad);
    return 0;
  }
  if (!is_tensor(value)) {
    PyErr_Format(PyExc_TypeError,
                 "[grad] assigned grad expected to be a Tensor or None but got grad of type %s\n"
                 "hint: assign a tensor like the data",
                 Py_TYPE(value)->tp_name);
    return -1;
  }
  if (const char* problem = grad_mismatch(t, tensor_of(value))) {
    PyErr_Format(PyExc_RuntimeError,
                 "[grad] %s\nhint: the gradient must match its tensor in "
                 "dtype, device and shape",
                 problem);
    return -1;
  }
  Autograd* a = tensor_autograd(t);
  if (!a) return -1;
  assign(a->grad, share(tensor_of(value)));
  return 0;
}

// ---------------------------------------------------------------- data, detach, subclasses
PyObject* method_detach(PyObject* self, PyObject*) {
  Tensor* alias = tensor_detach_shown(tensor_of(self));
  if (alias) alias->flags |= kIsView;
  return object_of(alias);
}
PyObject* method_detach_inplace(PyObject* self, PyObject*) {
  Autograd* a = tensor_of(self)->autograd;
  if (a && a->base) {
    PyErr_SetString(PyExc_RuntimeError,
                    "[detach_] Can't detach views in-place. Use detach() instead.\n"
                    "hint: y = view.detach()");
    return nullptr;
  }
  if (a) {
    a->output_index = 0;
    a->requires_grad = a->retains_grad = false;
    drop(a->node);
  }
  return Py_NewRef(self);
}
// Writes to x.data are hidden from autograd: a value saved for backward may be changed by them.
PyObject* get_data(PyObject* self, void*) {
  auto alias = steal(method_detach(self, nullptr));
  return alias && tensor_count_on(tensor_of(alias.get()), 0) ? alias.release() : nullptr;
}
int set_data(PyObject* self, PyObject* value, void*) {
  if (!value || !is_tensor(value)) {
    PyErr_Format(PyExc_TypeError,
                 "[data] Variable data has to be a tensor, but got %s\nhint: assign a tensor",
                 value ? Py_TYPE(value)->tp_name : "nothing");
    return -1;
  }
  Tensor *t = tensor_of(self), *source = tensor_of(value);
  if (t == source) return 0;
  if (tensor_requires_grad(t) && !is_floating(source->dtype) && !is_complex(source->dtype)) {
    PyErr_Format(PyExc_RuntimeError,
                 "[data] data set to a tensor that requires gradients must be floating point or "
                 "complex dtype: got %s\nhint: set requires_grad to False first",
                 dtype_name(source->dtype));
    return -1;
  }
  if (!settle_stream("assignment to .data")) return -1;
  if (!tensor_count_on(t, t->version())) return -1;
  t->value_id = -1;
  source->storage->parameter |= t->storage->parameter;
  storage_incref(source->storage);
  return tensor_fill(t, source->storage, source->dtype, source->device, source->ndim,
                     source->sizes(), source->strides(), source->offset)
             ? 0
             : -1;
}

bool subclass_argument(const char* op, PyObject* cls) {
  if (PyType_Check(cls) && PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(cls), TensorType)) {
    return true;
  }
  PyErr_Format(PyExc_TypeError,
               "[%s] cls must be a type that inherits from Tensor\nhint: class MyTensor(Tensor)",
               op);
  return false;
}
PyObject* make_subclass(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"cls", "data", "require_grad", nullptr};
  PyObject *cls, *data;
  int requires_grad = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|p", const_cast<char**>(names), &cls, &data,
                                   &requires_grad) ||
      !subclass_argument("_make_subclass", cls)) {
    return nullptr;
  }
  if (!is_tensor(data)) {
    PyErr_Format(PyExc_TypeError, "[_make_subclass] data must be a tensor: got %s\nhint: tensor(x)",
                 Py_TYPE(data)->tp_name);
    return nullptr;
  }
  auto t = steal(tensor_alias_as(reinterpret_cast<PyTypeObject*>(cls), tensor_of(data)));
  if (t) t->storage->parameter = true;  // of Parameter, or of what takes its place
  if (t && requires_grad && !change_requires_grad(t.get(), true)) return nullptr;
  return object_of(t.release());
}

// The result shares the data and stays in the graph: the alias op records the history, which then
// moves to an object of the requested type.
PyObject* method_as_subclass(PyObject* self, PyObject* cls) {
  if (!subclass_argument("as_subclass", cls)) return nullptr;
  auto* type = reinterpret_cast<PyTypeObject*>(cls);
  Tensor* source = tensor_of(self);
  PyObject* op = operator_object(Operator::Alias);
  const bool tracked = tensor_requires_grad(source) && grad_mode.enabled;
  if (!tracked || !op) return object_of(tensor_alias_as(type, source));
  const auto alias = steal(tensor_of(PyObject_CallOneArg(op, self)));
  if (!alias) return nullptr;
  auto result = steal(tensor_alias_as(type, alias.get()));
  if (result && alias->autograd) {
    const Autograd* from = alias->autograd;
    Autograd* to = tensor_autograd(result.get());
    if (!to) return nullptr;
    to->node = share(from->node).release();
    to->output_index = from->output_index;
    to->base = share(from->base).release();
    to->view_version = from->view_version;
    to->view_creation = from->view_creation;
  }
  return object_of(result.release());
}

PyObject* method_reduce_ex(PyObject* self, PyObject* protocol) {
  PyObject* callable = operator_required(Operator::Reduce);
  return callable ? PyObject_CallFunctionObjArgs(callable, self, protocol, nullptr) : nullptr;
}
PyObject* method_format(PyObject* self, PyObject* spec) {
  if (tensor_of(self)->ndim == 0 && has_memory(tensor_of(self)->device)) {
    const auto value = steal(tensor_item(tensor_of(self)));
    return value ? PyObject_Format(value.get(), spec) : nullptr;
  }
  if (PyUnicode_Check(spec) && PyUnicode_GET_LENGTH(spec) == 0) return PyObject_Str(self);
  PyErr_Format(PyExc_TypeError,
               "[format] unsupported format string passed to Tensor.__format__: %R\n"
               "hint: only a tensor without dimensions can be formatted; use item() or tolist()",
               spec);
  return nullptr;
}

template <typename F>
PyCFunction with_keywords(F function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(function));
}
constexpr int kKeywords = METH_VARARGS | METH_KEYWORDS;

}  // namespace

PyMethodDef attribute_methods[] = {
    {"size", with_keywords(method_size), kKeywords, "size(dim=None) -> Size or int."},
    {"stride", with_keywords(method_stride), kKeywords, "stride(dim=None) -> tuple or int."},
    {"dim", method_dim, METH_NOARGS, "Number of dimensions."},
    {"ndimension", method_dim, METH_NOARGS, "Number of dimensions."},
    {"numel", method_numel, METH_NOARGS, "Number of elements."},
    {"nelement", method_numel, METH_NOARGS, "Number of elements."},
    {"element_size", method_element_size, METH_NOARGS, "Bytes of one element."},
    {"storage_offset", method_storage_offset, METH_NOARGS, "First element, in elements."},
    {"is_contiguous", with_keywords(method_is_contiguous), kKeywords,
     "is_contiguous(memory_format=contiguous_format) -> bool."},
    {"is_floating_point", method_is_floating_point, METH_NOARGS, "True for real floating dtypes."},
    {"is_complex", method_is_complex, METH_NOARGS, "True for complex dtypes."},
    {"is_signed", method_is_signed, METH_NOARGS, "True if the dtype holds negative values."},
    {"is_inference", method_is_inference, METH_NOARGS, "True if made under inference_mode."},
    {"is_conj", method_is_conj, METH_NOARGS, "True for a view of conjugates (`conj`)."},
    {"is_neg", method_is_neg, METH_NOARGS, "True for a view of negatives (`imag` of a `conj`)."},
    {"is_pinned", with_keywords(method_false), METH_VARARGS, "False: there is no pinned memory."},
    {"get_device", method_get_device, METH_NOARGS, "The index of its device; -1 on the CPU."},
    {"data_ptr", method_data_ptr, METH_NOARGS, "Address of the first element."},
    {"untyped_storage", method_untyped_storage, METH_NOARGS, "The bytes under this tensor."},
    {"is_set_to", method_is_set_to, METH_O, "Same storage and geometry as the other tensor."},
    {"pin_memory", with_keywords(method_pin_memory), kKeywords,
     "Raises RuntimeError: there is no accelerator."},
    {"resolve_conj", method_resolve_conj, METH_NOARGS, "Itself; a copy of a view of conjugates."},
    {"resolve_neg", method_resolve_neg, METH_NOARGS, "Itself; a copy of a view of negatives."},
    {"_toggle", method_toggle, METH_O, nullptr},
    {"share_memory_", method_share_memory, METH_NOARGS, "Moves the data to shared memory."},
    {"is_shared", method_is_shared, METH_NOARGS, "True if the data is in shared memory."},
    {"requires_grad_", with_keywords(method_requires_grad), kKeywords,
     "requires_grad_(requires_grad=True) -> self."},
    {"_is_view", method_is_view, METH_NOARGS, "True if it is a view of another tensor."},
    {"_bump_version", method_bump_version, METH_NOARGS, "Marks the data as written."},
    {"detach", method_detach, METH_NOARGS, "The same data outside the autograd graph."},
    {"detach_", method_detach_inplace, METH_NOARGS, "Leaves the autograd graph."},
    {"_make_subclass", with_keywords(make_subclass), kKeywords | METH_STATIC,
     "_make_subclass(cls, data, require_grad=False) -> cls over the same data."},
    {"as_subclass", method_as_subclass, METH_O, "The same tensor as an object of class cls."},
    {"__reduce_ex__", method_reduce_ex, METH_O, nullptr},
    {"__format__", method_format, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef attribute_getset[] = {
    {"shape", get_shape, nullptr, "Sizes of the dimensions.", nullptr},
    {"ndim", get_ndim, nullptr, "Number of dimensions.", nullptr},
    {"itemsize", get_itemsize, nullptr, "Bytes of one element.", nullptr},
    {"nbytes", get_nbytes, nullptr, "Bytes of all elements.", nullptr},
    {"dtype", get_dtype, nullptr, "Type of the elements.", nullptr},
    {"device", get_device, nullptr, "Where the data is.", nullptr},
    {"layout", get_layout, nullptr, "torch.strided.", nullptr},
    {"is_cpu", get_is_cpu, nullptr, "True on the CPU.", nullptr},
    {"is_cuda", get_false, nullptr, "False.", nullptr},
    {"is_mps", get_false, nullptr, "False.", nullptr},
    {"is_xpu", get_false, nullptr, "False.", nullptr},
    {"is_sparse", get_false, nullptr, "False.", nullptr},
    {"is_sparse_csr", get_false, nullptr, "False.", nullptr},
    {"is_quantized", get_false, nullptr, "False.", nullptr},
    {"is_mkldnn", get_false, nullptr, "False.", nullptr},
    {"is_nested", get_false, nullptr, "False.", nullptr},
    {"is_meta", get_is_meta, nullptr, "True without data.", nullptr},
    {"requires_grad", get_requires_grad, set_requires_grad, "Gradients are wanted.", nullptr},
    {"is_leaf", get_is_leaf, nullptr, "Not computed from a tensor that needs gradients.", nullptr},
    {"retains_grad", get_retains_grad, nullptr, "retain_grad() was called.", nullptr},
    {"grad_fn", get_grad_fn, nullptr, "The node that computed it, or None.", nullptr},
    {"output_nr", get_output_nr, nullptr, "Which output of grad_fn it is.", nullptr},
    {"_backward_hooks", get_backward_hooks, nullptr, "What register_hook added; None: nothing.",
     nullptr},
    {"_base", get_base, nullptr, "The tensor this one is a differentiable view of.", nullptr},
    {"_version", get_version, nullptr, "Number of in-place writes to the data.", nullptr},
    {"grad", get_grad, set_grad, "The accumulated gradient, or None.", nullptr},
    {"data", get_data, set_data, "The data outside the autograd graph.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

}  // namespace fb
