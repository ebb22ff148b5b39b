// Nodes as Python sees them: a class per operator, and inputs, under PyTorch's names.
//
// The tape holds one node per call of a public operator. PyTorch has classes of nodes, and several
// nodes where an operator is composed of others. A node gets its class when Python first sees it;
// `decompositions/nodes.py`, which is called once per Plan, makes the nodes of the operators inside
// of it.
#include <map>
#include <utility>

#include "runtime/profile.h"
#include "tape/tape.h"

namespace fb {

namespace {

PyObject* target_slots(const Plan* plan) {
  const std::vector<int32_t>& targets = plan->backward->targets;
  return build_tuple(targets.size(), [&](size_t i) { return PyLong_FromLong(targets[i]); });
}

template <typename... T>
PyObject* ask(const char* question, const T&... arguments) {
  const bool before = std::exchange(profile_muted, true);
  PyObject* answer = call_helper("flambeau.decompositions.nodes", question, arguments...);
  profile_muted = before;
  return answer;
}

// (class name, edge per input or None, whether each result has a node of its own, the order of
// edges in which what they lead to is released); borrowed. Null: unknown, or an exception.
PyObject* plan_view(Plan* plan) {
  if (plan->view || !plan->call || !plan->backward) return plan->view;
  const auto slots = steal(target_slots(plan));
  PyObject* mutates = plan->mutated.empty() ? Py_False : Py_True;
  auto view = steal(ask("view_of", plan->call, slots, mutates));
  if (!plan->view) plan->view = view.release();  // else another thread was faster
  return plan->view;
}

PyObject* view_of(Node* n) {
  return n->kind == NodeKind::Plan && n->instance ? plan_view(n->instance->plan) : nullptr;
}

PyTypeObject* class_named(const std::string& name) {
  static std::map<std::string, PyTypeObject*> classes;
  const auto known = classes.find(name);
  if (known != classes.end()) return known->second;
  const auto entry = classes.emplace(name, nullptr).first;
  static std::map<std::string, std::string> full_names;  // types point at theirs
  const std::string& full = full_names[name] = "builtins." + name;
  PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(NodeType->tp_dealloc)},
                         {Py_tp_traverse, reinterpret_cast<void*>(NodeType->tp_traverse)},
                         {Py_tp_clear, reinterpret_cast<void*>(NodeType->tp_clear)},
                         {0, nullptr}};
  PyType_Spec spec = {full.c_str(), sizeof(Node), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                      slots};
  PyObject* type = PyType_FromSpecWithBases(&spec, reinterpret_cast<PyObject*>(NodeType));
  if (!type) {
    classes.erase(entry);
    return nullptr;
  }
  entry->second = reinterpret_cast<PyTypeObject*>(type);
  entry->second->tp_name = entry->first.c_str();  // what its repr shows
  return entry->second;
}

PyObject* edge_pair(const Edge& edge) {
  PyObject* next = edge.node ? node_shown(edge.node) : Py_NewRef(Py_None);
  if (!next) return nullptr;
  return Py_BuildValue("(NK)", next, static_cast<unsigned long long>(edge.index));
}

PyObject* raw_inputs(Node* n) {
  return build_tuple(n->edge_count, [n](size_t i) { return edge_pair(n->edge(i)); });
}

// Entries of `raw` in the order of `order`; what has no edge is `absent`.
PyObject* arranged(PyObject* raw, PyObject* order, PyObject* absent) {
  return build_tuple(static_cast<size_t>(PyTuple_GET_SIZE(order)), [&](size_t i) {
    PyObject* place = PyTuple_GET_ITEM(order, static_cast<Py_ssize_t>(i));
    return Py_NewRef(place == Py_None ? absent : PyTuple_GET_ITEM(raw, PyLong_AsSsize_t(place)));
  });
}

// Nodes of the operators inside of one node are created together, once.
PyObject* inner_nodes(Node* n) {
  NodeExtras* extras = node_extras(n);
  if (!extras) return nullptr;
  if (extras->inner) return extras->inner.get();
  const Plan* plan = n->instance->plan;
  const auto raw = steal(raw_inputs(n));
  const auto slots = steal(target_slots(plan));
  auto inner = steal(ask("inner_nodes", plan->call, n, raw, slots));
  if (!extras->inner) extras->inner = std::move(inner);
  return extras->inner.get();
}

bool has_inner_nodes(PyObject* view) { return PyTuple_GET_ITEM(view, 1) == Py_None; }

}  // namespace

std::string node_view_name(const Node* n) {
  PendingError error;  // names are needed for errors, too
  PyObject* view = view_of(const_cast<Node*>(n));
  const char* name = view ? PyUnicode_AsUTF8(PyTuple_GET_ITEM(view, 0)) : nullptr;
  const std::string result = name ? name : "";
  error.restore();
  return result;
}

PyObject* node_release_order(Node* n) {
  PyObject* view = view_of(n);
  return view ? PyTuple_GET_ITEM(view, 3) : nullptr;
}

PyObject* node_shown(Node* n) {
  PyObject* self = object_of(n);
  if (Py_TYPE(self) == NodeType) {
    PyTypeObject* type = class_named(node_name(n));
    if (!type) return nullptr;
    assign(self->ob_type, share(type));
  }
  return Py_NewRef(self);
}

PyObject* node_shown_for(Node* n, uint32_t output) {
  PyObject* view = view_of(n);
  if (!view && PyErr_Occurred()) return nullptr;
  if (!view || output == 0 || PyTuple_GET_ITEM(view, 2) != Py_True) return node_shown(n);
  PyObject* inner = inner_nodes(n);
  if (!inner) return nullptr;
  return Py_NewRef(PyTuple_GET_ITEM(PyTuple_GET_ITEM(inner, 1), output));
}

PyObject* node_inputs(Node* n) {
  PyObject* view = view_of(n);
  if (!view) return PyErr_Occurred() ? nullptr : raw_inputs(n);
  if (has_inner_nodes(view)) {
    PyObject* inner = inner_nodes(n);
    return inner ? Py_NewRef(PyTuple_GET_ITEM(inner, 0)) : nullptr;
  }
  const auto raw = steal(raw_inputs(n));
  const auto absent = steal(raw ? Py_BuildValue("(Oi)", Py_None, 0) : nullptr);
  return absent ? arranged(raw.get(), PyTuple_GET_ITEM(view, 1), absent.get()) : nullptr;
}

PyObject* node_arranged_gradients(Node* n, PyObject* gradients) {
  PyObject* view = view_of(n);
  if (!view && PyErr_Occurred()) return nullptr;
  if (!view || has_inner_nodes(view)) return Py_NewRef(gradients);
  return arranged(gradients, PyTuple_GET_ITEM(view, 1), Py_None);
}

PyObject* node_restored_gradients(Node* n, PyObject* gradients) {
  PyObject* view = view_of(n);
  if (!view && PyErr_Occurred()) return nullptr;
  if (!view || has_inner_nodes(view)) return Py_NewRef(gradients);
  PyObject* order = PyTuple_GET_ITEM(view, 1);
  if (!PyTuple_Check(gradients) || PyTuple_GET_SIZE(gradients) != PyTuple_GET_SIZE(order)) {
    return Py_NewRef(gradients);  // an error, raised where they are read
  }
  std::vector<PyObject*> by_edge(n->edge_count, Py_None);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(order); ++i) {
    PyObject* place = PyTuple_GET_ITEM(order, i);
    if (place != Py_None) by_edge[PyLong_AsSize_t(place)] = PyTuple_GET_ITEM(gradients, i);
  }
  return build_tuple(n->edge_count, [&](size_t i) { return Py_NewRef(by_edge[i]); });
}

PyObject* node_saved_places(Node* n) {
  if (n->kind != NodeKind::Plan || !n->instance || !n->instance->plan->call) return PyDict_New();
  PyObject* args[1] = {n->instance->plan->call};
  return ask("saved_places", args, 1);
}

}  // namespace fb
