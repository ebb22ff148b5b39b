// The core's functions for the Python side of autograd: autograd.Function's bookkeeping, hooks of
// tensors, gradient edges, strided views.
#include <algorithm>
#include <utility>

#include "tape/tape.h"

namespace fb {

namespace {

// ---------------------------------------------------------------- autograd.Function
Tensor* tensor_at(PyObject* tuple, Py_ssize_t i) {
  PyObject* item = PyTuple_GET_ITEM(tuple, i);
  return is_tensor(item) ? tensor_of(item) : nullptr;
}

bool contains(PyObject* tuple, const Tensor* t) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
    if (tensor_at(tuple, i) == t) return true;
  }
  return false;
}

// function_begin(ctx, inputs) -> needs_input_grad: takes the edges before the forward runs.
PyObject* function_begin(PyObject*, PyObject* args) {
  PyObject *self, *inputs;
  if (!PyArg_ParseTuple(args, "O!O!", NodeType, &self, &PyTuple_Type, &inputs)) return nullptr;
  Node* node = node_of(self);
  const Py_ssize_t count = PyTuple_GET_SIZE(inputs);
  if (node->edge_count || node->kind != NodeKind::Function) {
    PyErr_SetString(PyExc_RuntimeError,
                    "[Function] a context serves one call\n"
                    "hint: call apply again");
    return nullptr;
  }
  if (!node_reserve(node, static_cast<size_t>(count), 0, 0)) return nullptr;
  return build_tuple(static_cast<size_t>(count), [&](size_t i) {
    Tensor* t = tensor_at(inputs, static_cast<Py_ssize_t>(i));
    const bool needed = t && grad_mode.enabled && tensor_requires_grad(t);
    return needed && !gradient_edge(t, &node->edge(i)) ? nullptr : PyBool_FromLong(needed);
  });
}

bool grow_saved(Node* node, size_t saved) {
  const size_t edges = node->edge_count;
  if (edges + saved <= kInlineCells || node->wide) {
    if (node->wide) {
      void* cells = PyMem_Realloc(node->cells, (edges + saved + 1) * sizeof(Cell));
      if (!cells) return PyErr_NoMemory() != nullptr;
      node->cells = static_cast<Cell*>(cells);
    }
  } else {
    auto* cells = static_cast<Cell*>(PyMem_Malloc((edges + saved) * sizeof(Cell)));
    if (!cells) return PyErr_NoMemory() != nullptr;
    std::memcpy(static_cast<void*>(cells), node->cells, edges * sizeof(Cell));
    node->cells = cells;
    node->wide = true;
  }
  std::memset(static_cast<void*>(node->cells + edges), 0, saved * sizeof(Cell));
  node->saved_count = static_cast<uint16_t>(saved);
  return true;
}

bool save_all(Node* node, PyObject* saved, PyObject* outputs) {
  const Py_ssize_t count = PyTuple_GET_SIZE(saved);
  if (count > UINT16_MAX) {
    PyErr_SetString(PyExc_RuntimeError,
                    "[save_for_backward] too many tensors\n"
                    "hint: keep them in a list on ctx");
    return false;
  }
  if (!grow_saved(node, static_cast<size_t>(count))) return false;
  for (Py_ssize_t i = 0; i < count; ++i) {
    Tensor* t = tensor_at(saved, i);
    if (!t) {
      if (PyTuple_GET_ITEM(saved, i) == Py_None) continue;
      PyErr_Format(
          PyExc_TypeError,
          "[save_for_backward] save_for_backward can only save variables, but argument %zd "
          "is of type %s\nhint: store other objects as attributes of ctx",
          i, Py_TYPE(PyTuple_GET_ITEM(saved, i))->tp_name);
      return false;
    }
    uint16_t output = 0;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(outputs) && !output; ++k) {
      if (tensor_at(outputs, k) == t && t->autograd && t->autograd->node == node) {
        output = static_cast<uint16_t>(k + 1);
      }
    }
    if (!save_tensor(node, static_cast<size_t>(i), t, output)) return false;
  }
  return true;
}

bool check_dirty(PyObject* dirty, PyObject* inputs, PyObject* outputs) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(dirty); ++i) {
    const Tensor* t = tensor_at(dirty, i);
    if (!t || !contains(inputs, t)) {
      PyErr_SetString(PyExc_RuntimeError,
                      "[mark_dirty] only input Tensors should be given to ctx.mark_dirty(). If a "
                      "Tensor is not an input, there is no need to pass it to mark_dirty().\n"
                      "hint: mark the inputs that forward writes");
      return false;
    }
    if (!contains(outputs, t)) {
      PyErr_SetString(PyExc_RuntimeError,
                      "[mark_dirty] Some elements marked as dirty during the forward method were "
                      "not returned as output. The inputs that are modified inplace must all be "
                      "outputs of the Function.\nhint: return them");
      return false;
    }
  }
  return true;
}

void drop_history(Tensor* t) {
  Autograd* a = t->autograd;
  if (!a) return;
  a->output_index = 0;
  a->requires_grad = false;
  drop(a->node);
}

struct FunctionCall {
  Node* node;
  PyObject *inputs, *outputs, *dirty, *constant;
  bool tracked;
};

// One output: what apply returns in its place (new reference), with its history.
PyObject* finish_output(const FunctionCall& call, Py_ssize_t k) {
  PyObject* item = PyTuple_GET_ITEM(call.outputs, k);
  Tensor* t = tensor_at(call.outputs, k);
  if (!t) return Py_NewRef(item);
  const bool is_input = contains(call.inputs, t), is_dirty = contains(call.dirty, t);
  OutputMetadata m = metadata_of(t);
  m.differentiable = (is_floating(t->dtype) || is_complex(t->dtype)) && !contains(call.constant, t);
  const bool differentiable = call.tracked && m.differentiable;
  const auto index = static_cast<uint32_t>(k);
  call.node->extras->outputs[index] = std::move(m);
  if (is_dirty) {
    if (differentiable &&
        (!check_inplace_on(t, true) || !rebase_history(t, call.node, index, SIZE_MAX))) {
      return nullptr;
    }
    return Py_NewRef(item);
  }
  if (is_input) {  // returned unchanged: an alias gets the history, the input retains its own
    auto alias = steal(tensor_alias_as(Py_TYPE(item), t));
    if (!alias) return nullptr;
    alias->flags |= kIsView;
    if (differentiable) {  // else it stays detached
      set_history(alias.get(), call.node, index);
      if (PyErr_Occurred() || !mark_view_as(alias.get(), t, ViewCreation::InFunction)) {
        return nullptr;
      }
    }
    return object_of(alias.release());
  }
  if (differentiable) {
    set_history(t, call.node, index);
    if (t->autograd && t->autograd->base) {
      t->autograd->view_creation = static_cast<uint8_t>(ViewCreation::InFunction);
    }
  } else if (call.tracked) {
    drop_history(t);
  }
  return PyErr_Occurred() ? nullptr : Py_NewRef(item);
}

// function_finish(ctx, inputs, outputs, saved, dirty, non_differentiable, tracked) -> outputs
PyObject* function_finish(PyObject*, PyObject* args) {
  PyObject *self, *saved;
  int tracked;
  FunctionCall call;
  if (!PyArg_ParseTuple(args, "O!O!O!O!O!O!p", NodeType, &self, &PyTuple_Type, &call.inputs,
                        &PyTuple_Type, &call.outputs, &PyTuple_Type, &saved, &PyTuple_Type,
                        &call.dirty, &PyTuple_Type, &call.constant, &tracked)) {
    return nullptr;
  }
  call.node = node_of(self);
  call.tracked = tracked != 0;
  const Py_ssize_t count = PyTuple_GET_SIZE(call.outputs);
  NodeExtras* extras = node_extras(call.node);
  if (!extras || !check_dirty(call.dirty, call.inputs, call.outputs)) return nullptr;
  call.node->output_count = call.node->visible_count = static_cast<uint32_t>(count);
  extras->outputs.assign(static_cast<size_t>(count), OutputMetadata{DType::F32, {}, false, {}});
  auto results = steal(build_tuple(static_cast<size_t>(count), [&](size_t k) {
    return finish_output(call, static_cast<Py_ssize_t>(k));
  }));
  if (results && call.tracked &&
      (!save_all(call.node, saved, results.get()) || !note_anomaly(call.node))) {
    return nullptr;
  }
  return results.release();
}

// ---------------------------------------------------------------- hooks and edges of tensors
Tensor* tensor_argument(const char* name, PyObject* object) {
  if (is_tensor(object)) return tensor_of(object);
  PyErr_Format(PyExc_TypeError, "[%s] expected a Tensor: got %s\nhint: pass a tensor", name,
               Py_TYPE(object)->tp_name);
  return nullptr;
}

PyObject* tensor_hooks(PyObject*, PyObject* object) {
  Tensor* t = tensor_argument("register_hook", object);
  if (!t) return nullptr;
  if (!tensor_requires_grad(t)) {
    PyErr_SetString(PyExc_RuntimeError,
                    "[register_hook] cannot register a hook on a tensor that doesn't require "
                    "gradient\nhint: call requires_grad_() first");
    return nullptr;
  }
  uint32_t index;
  Node* node = tape_gradient_node(t, &index);
  if (!node && PyErr_Occurred()) return nullptr;
  if (!node) return Py_XNewRef(node_hooks_dict(&tensor_autograd(t)->hooks));
  NodeExtras* extras = node_extras(node);
  if (!extras) return nullptr;
  if (extras->tensor_hooks.size() <= index) extras->tensor_hooks.resize(index + 1u);
  return Py_XNewRef(node_hooks_dict(extras->tensor_hooks[index].slot()));
}

// is_referenced(reference): whether the object of a weak reference may be used again.
PyObject* is_referenced(PyObject*, PyObject* reference) {
  return PyBool_FromLong(PyWeakref_Check(reference) && PyWeakref_GetObject(reference) != Py_None);
}

long long next_hook = 0;

// Numbers of hooks: a new one for each, but for copies of handles, which have their own.
PyObject* hook_number(PyObject*, PyObject*) { return PyLong_FromLongLong(next_hook++); }
PyObject* set_hook_number(PyObject*, PyObject* next) {
  const long long number = PyLong_AsLongLong(next);
  if (number == -1 && PyErr_Occurred()) return nullptr;
  return PyLong_FromLongLong(std::exchange(next_hook, number));
}

PyObject* post_accumulate_hooks(PyObject*, PyObject* object) {
  Tensor* t = tensor_argument("register_post_accumulate_grad_hook", object);
  if (!t) return nullptr;
  const Autograd* a = t->autograd;
  if (!tensor_requires_grad(t) || (a && a->node)) {
    PyErr_Format(PyExc_RuntimeError,
                 "[register_post_accumulate_grad_hook] %s\nhint: use register_hook on interior "
                 "tensors",
                 a && a->node
                     ? "post accumulate grad hooks cannot be registered on non-leaf tensors"
                     : "cannot register a hook on a tensor that doesn't require gradient");
    return nullptr;
  }
  return Py_XNewRef(node_hooks_dict(&tensor_autograd(t)->post_accumulate_hooks));
}

PyObject* retain_grad(PyObject*, PyObject* object) {
  Tensor* t = tensor_argument("retain_grad", object);
  if (!t) return nullptr;
  if (!tensor_requires_grad(t)) {
    PyErr_SetString(PyExc_RuntimeError,
                    "[retain_grad] can't retain_grad on Tensor that has requires_grad=False\n"
                    "hint: call requires_grad_() first");
    return nullptr;
  }
  uint32_t index;
  Node* node = tape_gradient_node(t, &index);
  if (!node && PyErr_Occurred()) return nullptr;
  if (!node || t->autograd->retains_grad) Py_RETURN_NONE;  // leaves always store theirs
  NodeExtras* extras = node_extras(node);
  PyObject* reference = extras ? PyWeakref_NewRef(object, nullptr) : nullptr;
  if (!reference) return nullptr;
  extras->retained.push_back({index, steal(reference)});
  t->autograd->retains_grad = true;
  Py_RETURN_NONE;
}

// plain_view(tensor, keep): a view that an operator returned, which may be written as any view of
// its base; keep False: a tensor of its own.
PyObject* plain_view(PyObject*, PyObject* args) {
  PyObject* object;
  int keep;
  if (!PyArg_ParseTuple(args, "Op", &object, &keep)) return nullptr;
  Tensor* t = tensor_argument("plain_view", object);
  if (!t) return nullptr;
  Autograd* a = t->autograd;
  if (a && a->base && keep) {
    a->view_creation = static_cast<uint8_t>(ViewCreation::Default);
    a->view_version = t->version();
  } else if (a && a->base) {
    drop(a->base);
    t->flags &= static_cast<decltype(t->flags)>(~kIsView);
  }
  Py_RETURN_NONE;
}

PyObject* gradient_edge_of(PyObject*, PyObject* object) {
  Tensor* t = tensor_argument("get_gradient_edge", object);
  Edge edge;
  if (!t || !gradient_edge(t, &edge)) return nullptr;
  if (!edge.node) {
    PyErr_SetString(PyExc_RuntimeError,
                    "[get_gradient_edge] It is not possible to get the gradient edge for a Tensor "
                    "that does not require gradients\nhint: call requires_grad_() first");
    return nullptr;
  }
  const auto node = steal(edge.node);
  PyObject* shown = node_shown(node.get());
  if (!shown) return nullptr;
  return Py_BuildValue("(NK)", shown, static_cast<unsigned long long>(edge.index));
}

// as_strided_view(base, sizes, strides, offset): an alias with strided history. Unlike the public
// as_strided it works in the base's own history, so that views can be rebuilt while
// differentiating.
PyObject* as_strided_view(PyObject*, PyObject* args) {
  PyObject *object, *sizes, *strides;
  long long offset;
  if (!PyArg_ParseTuple(args, "OOOL", &object, &sizes, &strides, &offset)) return nullptr;
  Tensor* base = tensor_argument("as_strided", object);
  int64_t size[kMaxDims], stride[kMaxDims];
  const int ndim = base ? parse_sizes("as_strided", sizes, size) : -1;
  if (ndim < 0 || parse_sizes("as_strided", strides, stride) != ndim) return nullptr;
  Ref<Tensor> view;
  if (active_recorder || base->storage->pending) {
    const GradMode before = grad_mode;
    grad_mode.enabled = false;
    const auto number = steal(PyLong_FromLongLong(offset));
    PyObject* method = tensor_method("as_strided");
    view = steal(tensor_of(call_object(method, object, sizes, strides, number)));
    grad_mode = before;
  } else {
    view = steal(tensor_alias(base, base->dtype, ndim, size, stride, base->offset + offset));
  }
  if (!view || !grad_mode.enabled) return object_of(view.release());
  if (!mark_view_as(view.get(), base, ViewCreation::Default)) return nullptr;
  if (tensor_requires_grad(base)) {
    view->autograd->view_version = view->version() - 1;  // stale: history is created on demand
    uint32_t index;
    if (!tape_gradient_node(view.get(), &index)) return nullptr;
  }
  return object_of(view.release());
}

PyObject* set_anomaly_recorder(PyObject*, PyObject* callable) {
  assign(anomaly_recorder, share(callable == Py_None ? nullptr : callable));
  Py_RETURN_NONE;
}

PyObject* apply_again(PyObject*, PyObject* args) {
  PyObject *node, *gradients;
  return PyArg_ParseTuple(args, "OO", &node, &gradients) ? node_apply_again(node, gradients)
                                                         : nullptr;
}

PyMethodDef functions[] = {
    {"function_begin", function_begin, METH_VARARGS, "function_begin(ctx, inputs)."},
    {"function_finish", function_finish, METH_VARARGS,
     "function_finish(ctx, inputs, outputs, saved, dirty, non_differentiable, tracked)."},
    {"tensor_hooks", tensor_hooks, METH_O, "The OrderedDict of a tensor's gradient hooks."},
    {"is_referenced", is_referenced, METH_O,
     "Whether the object of a weak reference may be used again."},
    {"hook_number", hook_number, METH_NOARGS, "A number that no hook has had."},
    {"set_hook_number", set_hook_number, METH_O,
     "Sets the number of the next hook; returns what it would have been."},
    {"post_accumulate_hooks", post_accumulate_hooks, METH_O,
     "The OrderedDict of a leaf's post-accumulate hooks."},
    {"retain_grad", retain_grad, METH_O, "Keeps the gradient of an interior tensor in .grad."},
    {"plain_view", plain_view, METH_VARARGS, "plain_view(tensor, keep): of an operator."},
    {"gradient_edge", gradient_edge_of, METH_O, "(node, output number) of a tensor."},
    {"as_strided_view", as_strided_view, METH_VARARGS,
     "as_strided_view(base, sizes, strides, offset relative to base)."},
    {"set_anomaly_recorder", set_anomaly_recorder, METH_O, "Called with each new node; or None."},
    {"apply_again", apply_again, METH_VARARGS,
     "apply_again(node, gradients): a node's results, while it has what it saved."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

bool init_function(PyObject* module) { return PyModule_AddFunctions(module, functions) == 0; }

bool init_tape(PyObject* module) {
  return init_node(module) && init_modes(module) && init_function(module) &&
         PyModule_AddFunctions(module, engine_functions) == 0;
}

}  // namespace fb
