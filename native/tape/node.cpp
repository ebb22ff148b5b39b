// The Node type: life cycle and what Python sees of it (`tensor.grad_fn`).
//
// Nodes of the exact type come from a free list. Freeing one may free the graph behind it, whose
// depth has no bound, so nested frees are put off: only the outermost one works, in a loop.
#include "call/lists.h"
#include "runtime/fork.h"
#include "tape/tape.h"

// clang-format off
#include <structmember.h>  // needs Python.h before it
// clang-format on

#include <new>

namespace fb {

PyTypeObject* NodeType = nullptr;

namespace {

constexpr int kSpareNodes = 512;
PyObject* spare[kSpareNodes];
int spare_count = 0;
uint64_t next_sequence = 0;

Node* dead_nodes = nullptr;  // put off, linked by next_dead
bool burying = false;

int extras_traverse(NodeExtras* e, visitproc visit, void* arg) {
  Py_VISIT(e->metadata.get());
  Py_VISIT(e->prehooks.get());
  Py_VISIT(e->posthooks.get());
  Py_VISIT(e->inner.get());
  for (const Ref<>& hooks : e->tensor_hooks) Py_VISIT(hooks.get());
  for (const RetainedOutput& r : e->retained) Py_VISIT(r.reference.get());
  for (const Packed& p : e->packed) {
    Py_VISIT(p.unpack.get());
    Py_VISIT(object_of(p.node));
  }
  return 0;
}

int node_traverse(PyObject* self, visitproc visit, void* arg) {
  Node* n = node_of(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(n->object);
  for (size_t i = 0; i < n->edge_count; ++i) Py_VISIT(object_of(n->edge(i).node));
  for (size_t i = 0; i < n->saved_count; ++i) Py_VISIT(n->saved(i).object);
  return n->extras ? extras_traverse(n->extras, visit, arg) : 0;
}

void release_saved(Node* n) {
  for (size_t i = 0; i < n->saved_count; ++i) drop(n->saved(i).object);
}

// The leaf must forget its accumulator before the accumulator is gone.
void detach_accumulator(Node* n) {
  if (n->kind != NodeKind::Accumulate || !n->object) return;
  Autograd* a = tensor_of(n->object)->autograd;
  if (a && a->accumulator == n) a->accumulator = nullptr;
}

void release(Node* n) {
  detach_accumulator(n);
  drop(n->object);
  release_saved(n);
  for (size_t i = 0; i < n->edge_count; ++i) drop(n->edge(i).node);
  delete std::exchange(n->extras, nullptr);
}

// The collector does not see that a leaf points at its accumulator: between the moment when it
// finds the accumulator dead and this call, another graph may have taken it up from a leaf that is
// alive. So an accumulator is never cleared; a cycle through it is broken at its other objects.
int node_clear(PyObject* self) {
  if (node_of(self)->kind != NodeKind::Accumulate) release(node_of(self));
  return 0;
}

void node_dealloc(PyObject* self);

// In a forked child: the thread that was burying is gone.
void stop_burying() { burying = false; }

void bury(Node* n) {
  PyObject* self = object_of(n);
  const auto type = steal(Py_TYPE(self));
  release(n);
  if (n->instance) instance_decref(n->instance);
  if (n->wide) PyMem_Free(n->cells);
  if (type->tp_dealloc == node_dealloc && spare_count < kSpareNodes) {
    spare[spare_count++] = self;
  } else {
    type->tp_free(self);
  }
}

void node_dealloc(PyObject* self) {
  Node* n = node_of(self);
  PyObject_GC_UnTrack(self);
  detach_accumulator(n);  // first: callbacks of weak references may begin another backward
  if (n->weakrefs) PyObject_ClearWeakRefs(self);
  n->next_dead = dead_nodes;
  dead_nodes = n;
  if (burying) return;
  burying = true;
  while (Node* next = dead_nodes) {
    dead_nodes = next->next_dead;
    bury(next);
  }
  burying = false;
}

void initialise(Node* n, NodeKind kind) {
  n->kind = kind;
  n->released = n->wide = false;
  n->captured = active_recorder && kind != NodeKind::Accumulate;
  n->dissolved = n->goes_on = n->partly = false;
  n->saved_count = n->scalar_count = 0;
  n->edge_count = 0;
  n->output_count = n->visible_count = 1;
  n->task_index = 0;
  n->recorded = n->captured ? record_scope() : RecordPlace{};
  n->sequence = kind == NodeKind::Accumulate ? kAccumulateSequence : next_sequence++;
  n->instance = nullptr;
  n->object = nullptr;
  n->extras = nullptr;
  n->task = 0;
  n->next_dead = nullptr;
  n->weakrefs = nullptr;
  n->cells = n->inline_cells;
}

PyObject* function_node_new(PyTypeObject* type, PyObject*, PyObject*) {
  if (type == NodeType) {
    PyErr_SetString(PyExc_TypeError,
                    "[Node] nodes are made by operations\nhint: derive from autograd.Function");
    return nullptr;
  }
  PyObject* self = type->tp_alloc(type, 0);
  if (self) {
    initialise(node_of(self), NodeKind::Function);
    node_of(self)->output_count = node_of(self)->visible_count = 0;
  }
  return self;
}

// ---------------------------------------------------------------- Python view of a node
PyObject* unicode(const std::string& text) {
  return PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
}
PyObject* method_name(PyObject* self, PyObject*) {
  const Node* n = node_of(self);
  const bool own = n->kind == NodeKind::Accumulate || n->kind == NodeKind::CopySlices;
  return unicode((own ? "torch::autograd::" : "") + node_name(n));  // the two without a formula
}

PyObject* node_repr(PyObject* self) {
  return PyUnicode_FromFormat("<%s object at %p>", node_name(node_of(self)).c_str(), self);
}

PyObject* get_next_functions(PyObject* self, void*) { return node_inputs(node_of(self)); }

PyObject* get_metadata(PyObject* self, void*) {
  NodeExtras* extras = node_extras(node_of(self));
  if (!extras) return nullptr;
  if (!extras->metadata) extras->metadata = steal(PyDict_New());
  return Py_XNewRef(extras->metadata.get());
}

PyObject* unpacked_or_none(Node* n, size_t position) {
  Tensor* t = unpack_saved(n, position);
  return t || PyErr_Occurred() ? object_of(t) : Py_NewRef(Py_None);
}
PyObject* get_saved(PyObject* self, void*) {
  Node* n = node_of(self);
  return build_tuple(n->saved_count, [n](size_t i) { return unpacked_or_none(n, i); });
}

// The position of an input or a result of its call in a node's saved tensors; -1: not saved.
Py_ssize_t saved_position(const Node* n, bool input, int32_t index) {
  Py_ssize_t position = 0;
  for (const Source& s : n->instance->plan->backward->arguments) {
    if (s.kind != Source::SavedInput && s.kind != Source::SavedOutput) continue;
    if ((s.kind == Source::SavedInput) == input && s.index == index) return position;
    ++position;
  }
  return -1;
}

// A saved value by its source. *position: where it is saved; null: a value, returned borrowed.
PyObject* saved_value(const Node* n, PyObject* place, Py_ssize_t* position) {
  const char* kind = PyUnicode_AsUTF8(PyTuple_GET_ITEM(place, 0));
  PyObject* value = PyTuple_GET_ITEM(place, 1);
  if (!kind || std::strcmp(kind, "value") == 0) return value;
  const auto index = static_cast<int32_t>(PyLong_AsLong(value));
  *position = saved_position(n, std::strcmp(kind, "input") == 0, index);
  return nullptr;
}

// `_saved_self`, `_saved_result`, `_saved_dim`: what nodes of the operator have in PyTorch.
PyObject* saved_by_name(Node* n, PyObject* name) {
  const auto places = steal(node_saved_places(n));
  PyObject* place = places ? PyDict_GetItemWithError(places.get(), name) : nullptr;
  Py_ssize_t position = -1;
  PyObject* value = place ? saved_value(n, place, &position) : nullptr;
  return position < 0 ? Py_XNewRef(value) : unpacked_or_none(n, static_cast<size_t>(position));
}

// Names of the saved values that there are.
PyObject* saved_names(Node* n) {
  const auto places = steal(node_saved_places(n));
  auto names = steal(places ? PyList_New(0) : nullptr);
  PyObject *name, *place;
  for (Py_ssize_t i = 0; names && PyDict_Next(places.get(), &i, &name, &place);) {
    Py_ssize_t position = -1;
    const bool there = saved_value(n, place, &position) || position >= 0;
    if (there && PyList_Append(names.get(), name) < 0) return nullptr;
  }
  return names.release();
}
PyObject* node_getattro(PyObject* self, PyObject* name) {
  PyObject* found = PyObject_GenericGetAttr(self, name);
  Node* n = node_of(self);
  if (found || n->kind == NodeKind::Function || !PyErr_ExceptionMatches(PyExc_AttributeError)) {
    return found;
  }
  const char* text = PyUnicode_AsUTF8(name);
  if (n->kind == NodeKind::Accumulate && n->object && text && !std::strcmp(text, "variable")) {
    PyErr_Clear();
    return Py_NewRef(n->object);
  }
  if (n->kind != NodeKind::Plan) return nullptr;
  if (!text || std::strncmp(text, "_saved_", 7) != 0 || !n->instance->plan->backward) {
    return nullptr;
  }
  PendingError error;
  found = saved_by_name(n, name);
  if (!found && !PyErr_Occurred()) error.restore();
  return found;
}

PyObject* add_hook(Ref<>* hooks, PyObject* hook) {
  node_hooks_dict(hooks->slot());
  return call_helper("flambeau.autograd.graph", "_add_hook", *hooks, hook);
}
PyObject* method_register_hook(PyObject* self, PyObject* hook) {
  NodeExtras* extras = node_extras(node_of(self));
  return extras ? add_hook(&extras->posthooks, hook) : nullptr;
}
PyObject* method_register_prehook(PyObject* self, PyObject* hook) {
  NodeExtras* extras = node_extras(node_of(self));
  return extras ? add_hook(&extras->prehooks, hook) : nullptr;
}

PyObject* method_sequence(PyObject* self, PyObject*) {
  return PyLong_FromUnsignedLongLong(node_of(self)->sequence);
}
PyObject* method_set_sequence(PyObject* self, PyObject* value) {
  const unsigned long long sequence = PyLong_AsUnsignedLongLong(value);
  if (PyErr_Occurred()) return nullptr;
  node_of(self)->sequence = sequence;
  Py_RETURN_NONE;
}
PyObject* method_dir(PyObject* self, PyObject*) {
  const auto names = steal(
      PyObject_CallMethod(reinterpret_cast<PyObject*>(&PyBaseObject_Type), "__dir__", "O", self));
  const auto list = steal(names ? PySequence_List(names.get()) : nullptr);
  if (!list) return nullptr;
  if (node_of(self)->kind == NodeKind::Plan) {  // `_saved_tensors` is of Functions alone
    const auto own = steal(PyUnicode_InternFromString("_saved_tensors"));
    const Py_ssize_t at = own ? PySequence_Index(list.get(), own.get()) : -1;
    if (at >= 0) PySequence_DelItem(list.get(), at);
    if (own && at < 0) PyErr_Clear();
  }
  const auto saved = steal(saved_names(node_of(self)));
  return saved ? PySequence_InPlaceConcat(list.get(), saved.get()) : nullptr;
}
PyObject* get_output_count(PyObject* self, void*) {
  return PyLong_FromUnsignedLong(node_of(self)->output_count);
}
PyObject* get_released(PyObject* self, void*) { return PyBool_FromLong(node_of(self)->released); }

// (shape, dtype) per gradient that the node takes; None where it is unknown.
PyObject* get_input_metadata(PyObject* self, void*) {
  Node* n = node_of(self);
  return build_tuple(n->output_count, [n](size_t i) {
    OutputMetadata m;
    if (!node_output_metadata(n, static_cast<uint32_t>(i), &m)) return Py_NewRef(Py_None);
    const auto shape = steal(size_object(static_cast<int>(m.sizes.size()), m.sizes.data()));
    return shape ? PyTuple_Pack(2, shape.get(), dtype_object(m.dtype)) : nullptr;
  });
}

PyMethodDef methods[] = {
    {"name", method_name, METH_NOARGS, "name() -> str: what the node is called."},
    {"register_hook", method_register_hook, METH_O,
     "register_hook(hook): hook(grad_inputs, grad_outputs) runs after the node."},
    {"register_prehook", method_register_prehook, METH_O,
     "register_prehook(hook): hook(grad_outputs) runs before the node."},
    {"__dir__", method_dir, METH_NOARGS, "Names of attributes, those of saved values too."},
    {"_sequence_nr", method_sequence, METH_NOARGS, "Later calls have larger numbers."},
    {"_set_sequence_nr", method_set_sequence, METH_O, "Changes the order of execution."},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef getset[] = {
    {"next_functions", get_next_functions, nullptr, "((node | None, input number), ...).", nullptr},
    {"metadata", get_metadata, nullptr, "A dict for whatever users want to attach.", nullptr},
    {"_saved_tensors", get_saved, nullptr, "The tensors kept for backward.", nullptr},
    {"_input_metadata", get_input_metadata, nullptr, "(shape, dtype) per gradient taken.", nullptr},
    {"_output_count", get_output_count, nullptr, "Number of gradients it takes.", nullptr},
    {"_released", get_released, nullptr, "Whether its saved tensors were freed.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyMemberDef members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Node, weakrefs), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(function_node_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(node_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(node_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(node_clear)},
    {Py_tp_repr, reinterpret_cast<void*>(node_repr)},
    {Py_tp_getattro, reinterpret_cast<void*>(node_getattro)},
    {Py_tp_methods, methods},
    {Py_tp_getset, getset},
    {Py_tp_members, members},
    {Py_tp_doc, const_cast<char*>("One recorded operation of the autograd graph.")},
    {0, nullptr}};
PyType_Spec spec = {"flambeau._core.Node", sizeof(Node), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};

}  // namespace

Node* node_new(NodeKind kind, size_t edges, size_t saved, size_t scalars) {
  PyObject* object;
  if (spare_count > 0) {
    object = spare[--spare_count];
    PyObject_Init(object, NodeType);
  } else {
    object = reinterpret_cast<PyObject*>(PyObject_GC_New(Node, NodeType));
    if (!object) return nullptr;
  }
  Node* n = node_of(object);
  initialise(n, kind);
  const bool fine = node_reserve(n, edges, saved, scalars);
  PyObject_GC_Track(object);
  if (!fine) drop(n);
  return n;
}

bool node_reserve(Node* n, size_t edges, size_t saved, size_t scalars) {
  const size_t count = edges + saved + scalars;
  if (saved > UINT16_MAX || scalars > UINT16_MAX) {
    PyErr_SetString(PyExc_RuntimeError,
                    "[autograd] too many saved values in one operation\n"
                    "hint: split the operation");
    return false;
  }
  if (count > kInlineCells) {
    n->cells = static_cast<Cell*>(PyMem_Calloc(count, sizeof(Cell)));
    if (!n->cells) {
      n->cells = n->inline_cells;
      PyErr_NoMemory();
      return false;
    }
    n->wide = true;
  } else {
    std::memset(static_cast<void*>(n->cells), 0, count * sizeof(Cell));
  }
  n->edge_count = static_cast<uint32_t>(edges);
  n->saved_count = static_cast<uint16_t>(saved);
  n->scalar_count = static_cast<uint16_t>(scalars);
  return true;
}

NodeExtras::NodeExtras() = default;
NodeExtras::~NodeExtras() = default;

NodeExtras* node_extras(Node* n) {
  if (!n->extras) n->extras = new (std::nothrow) NodeExtras();
  if (!n->extras) PyErr_NoMemory();
  return n->extras;
}

std::string node_name(const Node* n) {
  if (n->kind == NodeKind::Plan && !n->instance) return "unfinished";  // seen by gc.get_objects()
  switch (n->kind) {
    case NodeKind::Accumulate:
      return "AccumulateGrad";
    case NodeKind::CopySlices:
      return "CopySlices";
    case NodeKind::AsStrided:
      return "AsStridedBackward0";
    case NodeKind::Function: {
      const std::string full = Py_TYPE(n)->tp_name;
      return full.substr(full.rfind('.') + 1);
    }
    case NodeKind::Join:
    case NodeKind::Parts:
      return list_node_name(n);
    case NodeKind::Constant: {
      std::string name = n->instance ? n->instance->plan->name : "constant";
      while (!name.empty() && name.back() == '_') name.pop_back();
      if (!name.empty()) name[0] = static_cast<char>(Py_TOUPPER(name[0]));
      return name + "Backward0";
    }
    case NodeKind::Plan:
      break;
  }
  const std::string name = node_view_name(n);
  if (!name.empty()) return name;
  const BackwardSpec* backward = n->instance->plan->backward.get();
  return backward ? backward->name : n->instance->plan->name;
}

PyObject* node_hooks_dict(PyObject** slot) {
  if (*slot) return *slot;
  static PyObject* ordered = nullptr;
  if (!ordered) {
    ordered = import_attribute("collections", "OrderedDict");
    if (!ordered) return nullptr;
  }
  *slot = PyObject_CallNoArgs(ordered);
  return *slot;
}

bool node_output_metadata(const Node* n, uint32_t index, OutputMetadata* out) {
  if (n->kind == NodeKind::Accumulate) {
    *out = metadata_of(tensor_of(n->object));
    return true;
  }
  if (n->extras && index < n->extras->outputs.size()) {
    *out = n->extras->outputs[index];
    return out->differentiable;
  }
  if (n->extras && n->extras->list) return list_output_metadata(n, index, out);
  if (n->extras && n->extras->view) {
    *out = n->kind == NodeKind::CopySlices ? n->extras->view->base : n->extras->view->view;
    return true;
  }
  if (n->kind != NodeKind::Plan || index >= n->instance->plan->outputs.size()) return false;
  const OutputSpec& spec = n->instance->plan->outputs[index];
  if (spec.kind != OutputSpec::New && spec.kind != OutputSpec::Alias) return false;
  out->dtype = spec.dtype;
  out->device = Device{};
  out->differentiable = true;
  out->sizes.clear();
  for (int32_t r : spec.sizes) out->sizes.push_back(n->instance->registers[r]);
  return true;
}

void node_release_saved(Node* n) {
  if (n->saved_count > 0) n->released = true;
  release_saved(n);
  if (n->extras) {
    std::vector<Packed> packed;
    packed.swap(n->extras->packed);
  }
  if (n->kind == NodeKind::Plan && n->released && !n->partly) drop(n->object);  // a region's tape
  if (n->kind != NodeKind::CopySlices || !n->object) return;
  Node* inner = node_of(n->object);
  if (!inner->task) node_release_saved(inner);  // else a backward still comes to it by itself
}

uint64_t node_sequences(uint64_t count) {
  return std::exchange(next_sequence, next_sequence + count);
}
uint64_t node_sequences_from(uint64_t next) { return std::exchange(next_sequence, next); }

bool init_node(PyObject* module) {
  in_forked_child(stop_burying);
  NodeType = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return NodeType &&
         PyModule_AddObjectRef(module, "Node", reinterpret_cast<PyObject*>(NodeType)) == 0;
}

}  // namespace fb
