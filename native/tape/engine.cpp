// Backward: walks the graph from the roots, newest node first, and sums what meets at a node.
//
// A run (GraphTask) numbers the nodes it can reach; a node remembers its number for one task at a
// time, so runs that overlap (a backward inside a hook, several threads) fall back to a map. The
// order is by sequence number, hence the same in every run: sums have one order and their bits
// do not change.
#include <algorithm>
#include <unordered_map>
#include <utility>

#include "call/override.h"
#include "device/devices.h"
#include "frame/effects.h"
#include "runtime/profile.h"
#include "tape/tape.h"

namespace fb {

namespace {

uint64_t next_task = 1;

struct NodeState {
  Node* node;  // alive: the roots hold the graph
  int32_t dependencies = 0;
  uint32_t first_grad = 0;  // into GraphTask::grads
  int32_t capture = -1;     // first entry of GraphTask::captures
  bool needed = true;       // must be executed
  bool is_end = false;      // its gradients are captured; the search does not go on behind it
};

struct Capture {
  uint32_t output;  // which gradient of the node
  int32_t next;     // further captures of the same node
  Ref<Tensor> value;
};

}  // namespace

struct GraphTask {
  std::vector<NodeState> states;
  std::vector<Tensor*> grads;  // owned
  std::vector<uint32_t> heap;
  std::vector<Capture> captures;
  std::unordered_map<Node*, uint32_t> contested;  // nodes that another run has numbered
  std::vector<Ref<>> callbacks;
  bool keep_graph = false;
  bool raw = false;  // see engine_gradients
  bool has_inputs = false;
  bool opens = false;  // regions of `compile` that it meets dissolve
  bool collects = false;
  bool hooked = false;                          // a leaf has hooks, so the order of leaves shows
  std::vector<std::vector<Ref<Tensor>>> parts;  // per capture, where `collects`
  uint64_t id = next_task++;
  GraphTask* outer = nullptr;

  GraphTask() = default;
  GraphTask(const GraphTask&) = delete;
  GraphTask& operator=(const GraphTask&) = delete;
  ~GraphTask() {
    for (NodeState& s : states) {
      if (s.node->task == id) s.node->task = 0;
    }
    for (Tensor*& t : grads) drop(t);
  }
};

namespace {

constinit FB_THREAD_LOCAL GraphTask* current_task = nullptr;
constinit FB_THREAD_LOCAL Node* current_node = nullptr;
constinit FB_THREAD_LOCAL bool next_is_raw = false;
constinit FB_THREAD_LOCAL std::vector<std::vector<Ref<Tensor>>>* next_parts = nullptr;
constinit FB_THREAD_LOCAL PyObject* backward_compiler = nullptr;  // owned

// ---------------------------------------------------------------- the graph of a run
uint32_t number_of(GraphTask* task, Node* node, bool* is_new) {
  *is_new = false;
  if (node->task == task->id) return node->task_index;
  const auto index = static_cast<uint32_t>(task->states.size());
  if (!task->contested.empty()) {  // also nodes that the other run has left since
    const auto found = task->contested.find(node);
    if (found != task->contested.end()) return found->second;
  }
  if (node->task) {
    task->contested.emplace(node, index);
  } else {
    node->task = task->id;
    node->task_index = index;
  }
  *is_new = true;
  NodeState state;
  state.node = node;
  state.first_grad = static_cast<uint32_t>(task->grads.size());
  task->grads.resize(task->grads.size() + node->output_count, nullptr);
  task->states.push_back(state);
  return index;
}
uint32_t number_of(GraphTask* task, Node* node) {
  bool is_new;
  return number_of(task, node, &is_new);
}

// Where an edge leads in this run.
bool meet(GraphTask* task, Edge* edge) {
  const bool opens = task->opens || (edge->node->partly && !record_learning());  // it ends dry runs
  if (opens && !region_dissolve(edge->node, task->id)) return false;
  *edge = front_of(*edge, task->id);
  return true;
}

bool has_leaf_hooks(Node* node) {
  if (node->kind != NodeKind::Accumulate) return false;
  const Autograd* a = tensor_of(node->object)->autograd;
  return node->extras || (a && (a->hooks || a->post_accumulate_hooks));
}

// Whether a dry run may execute a node: what it reads is of its stream. Code of users, Functions
// and hooks of tensors, is interpreted.
bool runs_dry(Node* node) {
  if (node->kind == NodeKind::Accumulate) {
    Tensor* leaf = tensor_of(node->object);
    record_note_leaf(leaf);
    return !node->extras && !(leaf->autograd && leaf->autograd->post_accumulate_hooks);
  }
  return record_has(node) && !node_observed(node, true);
}

bool discover(GraphTask* task) {
  for (size_t at = 0; at < task->states.size(); ++at) {  // grows while it is walked
    if (task->states[at].is_end) continue;
    Node* node = task->states[at].node;
    task->hooked = task->hooked || has_leaf_hooks(node);
    for (size_t i = 0; i < node->edge_count; ++i) {
      if (!node->edge(i).node) continue;
      Edge next = node->edge(i);
      if (!meet(task, &next)) return false;
      ++task->states[number_of(task, next.node)].dependencies;
    }
  }
  return true;
}

// With `inputs`, only nodes on the way to them run. Earlier nodes come first: a node's edges lead
// to nodes that existed before it.
void mark_needed(GraphTask* task, bool accumulate) {
  std::vector<uint32_t> order(task->states.size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto rank = [&](uint32_t i) {
    return task->states[i].node->sequence + 1;  // accumulators wrap to 0: they are the ends
  };
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return rank(a) < rank(b); });
  for (uint32_t i : order) {
    NodeState& state = task->states[i];
    state.needed = accumulate && state.capture >= 0 && state.node->kind == NodeKind::Accumulate;
    if (state.is_end) continue;
    for (size_t k = 0; k < state.node->edge_count && !state.needed; ++k) {
      Node* next = front_of(state.node->edge(k), task->id).node;
      if (!next) continue;
      const NodeState& below = task->states[number_of(task, next)];
      state.needed = below.needed || below.capture >= 0;
    }
  }
}

struct Later {
  const GraphTask* task;
  bool operator()(uint32_t a, uint32_t b) const {
    return task->states[a].node->sequence < task->states[b].node->sequence;  // leaves are equal
  }
};
void push_ready(GraphTask* task, uint32_t index) {
  task->heap.push_back(index);
  std::push_heap(task->heap.begin(), task->heap.end(), Later{task});
}
uint32_t pop_ready(GraphTask* task) {
  std::pop_heap(task->heap.begin(), task->heap.end(), Later{task});
  const uint32_t index = task->heap.back();
  task->heap.pop_back();
  return index;
}

// ---------------------------------------------------------------- the loop
void note_part(GraphTask* task, const NodeState& state, uint64_t output, Tensor* grad) {
  for (int32_t c = state.capture; c >= 0; c = task->captures[c].next) {
    if (task->captures[c].output == output) {
      task->parts[static_cast<size_t>(c)].push_back(share(grad));
    }
  }
}

// Sums that the node goes on from are moved to its results.
void take_sums(GraphTask* task, Node* node, Tensor** results) {
  for (const Source& source : node->instance->plan->backward->arguments) {
    if (source.kind != Source::HeldGradient) continue;
    const auto i = static_cast<size_t>(source.index);
    const Edge edge = front_of(node->edge(i), task->id);
    const NodeState& state = task->states[number_of(task, edge.node)];
    results[i] = std::exchange(task->grads[state.first_grad + edge.index], nullptr);
  }
}

using Released = std::vector<std::pair<uint32_t, uint32_t>>;  // (edge, number of its node)

// PyTorch's order of the leaves of a call, which is the order in which their hooks run.
bool push_in_order(GraphTask* task, Node* node, Released* released) {
  PyObject* order = node_release_order(node);
  if (!order && PyErr_Occurred()) return false;
  const auto rank = [&](uint32_t edge) {
    const Py_ssize_t count = order ? PyTuple_GET_SIZE(order) : 0;
    for (Py_ssize_t i = 0; i < count; ++i) {
      if (PyLong_AsUnsignedLong(PyTuple_GET_ITEM(order, i)) == edge) return i;
    }
    return count;
  };
  std::stable_sort(released->begin(), released->end(),
                   [&](const auto& a, const auto& b) { return rank(a.first) < rank(b.first); });
  for (const auto& [edge, index] : *released) push_ready(task, index);
  return true;
}

// Passes results on; nodes that have everything become ready.
bool distribute(GraphTask* task, Node* node, Tensor** results) {
  const bool orders = task->hooked && node->kind == NodeKind::Plan && node->edge_count > 1;
  Released released;
  for (size_t i = 0; i < node->edge_count; ++i) {
    const Edge edge = front_of(node->edge(i), task->id);
    if (!edge.node) continue;
    const uint32_t index = number_of(task, edge.node);
    NodeState& state = task->states[index];
    if (!state.needed && state.capture < 0) continue;
    if (results[i]) {
      Tensor* grad = results[i];
      results[i] = nullptr;
      if (task->collects) note_part(task, state, edge.index, grad);
      if (!add_gradient(&task->grads[state.first_grad + edge.index], grad)) return false;
    }
    if (--state.dependencies > 0) continue;
    if (orders) [[unlikely]] {
      released.emplace_back(static_cast<uint32_t>(i), index);
    } else {
      push_ready(task, index);
    }
  }
  return released.empty() || push_in_order(task, node, &released);
}

__attribute__((noinline)) EventPlace profile_node(const Node* node) {
  const EventPlace place = profile_begin(EventKind::Backward, node_name(node).c_str());
  if (node->kind != NodeKind::Accumulate) profile_note_sequence(place, node->sequence);
  return place;
}

bool execute(GraphTask* task, uint32_t index) {
  Node* node = task->states[index].node;
  const uint32_t first = task->states[index].first_grad;
  Tensor** grads = &task->grads[first];  // fixed: discovery is over
  const bool input_only = task->raw && !task->states[index].needed;
  if (!input_only && !run_pre_hooks(node, grads)) {
    report_failure(node);
    return false;
  }
  for (int32_t c = task->states[index].capture; c >= 0; c = task->captures[c].next) {
    Capture& capture = task->captures[c];
    capture.value = share(grads[capture.output]);
  }
  if (!task->states[index].needed) return true;  // nothing below it is needed either
  Tensor* few[kInlineCells] = {};
  std::vector<Tensor*> many;
  if (node->edge_count > kInlineCells) many.resize(node->edge_count, nullptr);
  Tensor** results = node->edge_count > kInlineCells ? many.data() : few;
  if (node->goes_on) take_sums(task, node, results);
  Node* outer = std::exchange(current_node, node);
  const EventPlace event = profiling() ? profile_node(node) : EventPlace();
  bool fine = call_node(node, grads, results, task->keep_graph);
  if (event.log >= 0) [[unlikely]] {
    profile_end(event);
  }
  current_node = outer;
  for (uint32_t i = 0; i < node->output_count; ++i) drop(grads[i]);
  fine = fine && distribute(task, node, results);
  for (size_t i = 0; i < node->edge_count; ++i) drop(results[i]);
  return fine;
}

bool run_task(GraphTask* task) {
  while (!task->heap.empty()) {
    if (!execute(task, pop_ready(task))) return false;
    if (PyErr_CheckSignals() < 0) return false;
  }
  for (size_t i = 0; i < task->callbacks.size(); ++i) {  // one may queue others
    const auto callback = task->callbacks[i];
    const auto none = steal(PyTuple_New(0));
    if (!none || !steal(record_call_user(callback.get(), none.get()))) return false;
  }
  return true;
}

// ---------------------------------------------------------------- roots and inputs
Tensor* filled(const OutputMetadata& m, double value) {
  auto t = steal(tensor_empty(m.dtype, m.device, static_cast<int>(m.sizes.size()), m.sizes.data()));
  if (!t || t->numel == 0 || !has_memory(m.device)) return t.release();
  if (value == 0.0 && on_host(m.device)) {
    std::memset(t->data(), 0, static_cast<size_t>(t->numel * item_size(t->dtype)));
    return t.release();
  }
  char element[16];
  const auto number = steal(PyFloat_FromDouble(value));
  const bool fine = number && store_scalar(element, t->dtype, number.get()) &&
                    device_fill(t.get(), element, "backward");
  return fine ? t.release() : nullptr;
}

Tensor* implicit_gradient(Tensor* root) {
  if (root->numel != 1) {
    PyErr_SetString(PyExc_RuntimeError,
                    "[backward] grad can be implicitly created only for scalar outputs\n"
                    "hint: pass gradient=, or reduce the output to one element");
    return nullptr;
  }
  if (is_complex(root->dtype)) {
    PyErr_Format(
        PyExc_RuntimeError,
        "[backward] grad can be implicitly created only for real scalar outputs but got %s\n"
        "hint: pass gradient=",
        dtype_name(root->dtype));
    return nullptr;
  }
  if (dispatches(object_of(root)) || (interceptors & kDispatchModes)) {
    return tensor_of(call_helper("flambeau", "ones_like", root));
  }
  if (active_recorder || root->storage->pending) {
    const auto sizes = steal(size_object(root->ndim, root->sizes()));
    return tensor_of(invoke(tensor_method("new_ones"), root, sizes));
  }
  return filled(metadata_of(root), 1.0);
}

// A root is a tensor or a GradientEdge, a named tuple (node, output_nr).
bool edge_of(PyObject* item, const char* what, Py_ssize_t i, Edge* out) {
  if (is_tensor(item)) {
    if (!gradient_edge(tensor_of(item), out)) return false;
    if (out->node) return true;
    PyErr_Format(PyExc_RuntimeError,
                 "[backward] element %zd of %s does not require grad and does not have a grad_fn\n"
                 "hint: compute it from tensors with requires_grad=True, outside no_grad()",
                 i, what);
    return false;
  }
  if (PyTuple_Check(item) && PyTuple_GET_SIZE(item) >= 2 && is_node(PyTuple_GET_ITEM(item, 0))) {
    out->index = PyLong_AsUnsignedLong(PyTuple_GET_ITEM(item, 1));
    if (PyErr_Occurred()) return false;
    out->node = node_of(Py_NewRef(PyTuple_GET_ITEM(item, 0)));
    return true;
  }
  PyErr_Format(PyExc_TypeError,
               "[backward] element %zd of %s must be a Tensor or GradientEdge: got %s\n"
               "hint: pass tensors",
               i, what, Py_TYPE(item)->tp_name);
  return false;
}

bool check_root_gradient(Tensor* root, Tensor** grad, Py_ssize_t i) {
  const OutputMetadata wanted = metadata_of(root);
  const Tensor* t = *grad;
  if (!same_shape(t, root)) {
    PyErr_Format(
        PyExc_RuntimeError,
        "[backward] Mismatch in shape: grad_output[%zd] has a shape of torch.Size(%s) and "
        "output[%zd] has a shape of torch.Size(%s).\nhint: a gradient has its output's shape",
        i, sizes_text(t->sizes(), t->ndim).c_str(), i,
        sizes_text(root->sizes(), root->ndim).c_str());
    return false;
  }
  if (is_complex(root->dtype) != is_complex(t->dtype)) {
    PyErr_Format(PyExc_RuntimeError,
                 "[backward] For complex Tensors, both grad_output and output are required to have "
                 "the same dtype. Mismatch in dtype: grad_output[%zd] has a dtype of %s and "
                 "output[%zd] has a dtype of %s.\nhint: convert the gradient",
                 i, dtype_name(t->dtype), i, dtype_name(root->dtype));
    return false;
  }
  return fit_gradient("backward", static_cast<size_t>(i), wanted, grad);
}

class Backward {  // one call of run_backward
 public:
  Backward(bool keep, bool create) : mode_(grad_mode) {
    task_.keep_graph = keep;
    task_.outer = current_task;
    task_.raw = std::exchange(next_is_raw, false);
    wanted_parts_ = std::exchange(next_parts, nullptr);
    task_.collects = wanted_parts_ != nullptr;
    task_.opens = create && !task_.raw;
    current_task = &task_;
    grad_mode.enabled = create;
  }
  ~Backward() {
    grad_mode = mode_;
    current_task = task_.outer;
  }
  Backward(const Backward&) = delete;
  Backward& operator=(const Backward&) = delete;

  bool add_root(PyObject* item, PyObject* gradient, Py_ssize_t i) {
    Edge edge;
    if (!edge_of(item, "tensors", i, &edge)) return false;
    held_.push_back(steal(edge.node));
    Tensor* root = is_tensor(item) ? tensor_of(item) : nullptr;
    Ref<Tensor> grad;
    if (gradient != Py_None) {
      grad = share(tensor_of(gradient));
      if (root && !check_root_gradient(root, grad.slot(), i)) return false;
    } else if (root) {
      grad = steal(implicit_gradient(root));
    } else {
      OutputMetadata m;
      const bool known = node_output_metadata(edge.node, static_cast<uint32_t>(edge.index), &m);
      if (!known || !m.sizes.empty()) {
        PyErr_SetString(PyExc_RuntimeError,
                        "[backward] grad can be implicitly created only for scalar outputs\n"
                        "hint: pass a gradient for each GradientEdge");
      } else {
        grad = steal(filled(m, 1.0));
      }
    }
    if (!grad || !meet(&task_, &edge)) return false;
    const uint32_t index = number_of(&task_, edge.node);
    roots_.push_back(index);
    if (edge.index >= edge.node->output_count) {
      PyErr_SetString(PyExc_IndexError,
                      "[backward] output_nr of a GradientEdge is out of range\n"
                      "hint: use get_gradient_edge");
      return false;
    }
    Tensor** slot = &task_.grads[task_.states[index].first_grad + edge.index];
    return add_gradient(slot, grad.release());
  }

  bool add_input(PyObject* item, Py_ssize_t i, bool accumulate) {
    Edge edge{nullptr, 0};
    if (is_tensor(item) && !tensor_requires_grad(tensor_of(item))) {
      PyErr_Format(
          PyExc_RuntimeError,
          "[backward] One of the differentiated Tensors does not require grad (input %zd)\n"
          "hint: set requires_grad before the forward pass",
          i);
      return false;
    }
    if (!edge_of(item, "inputs", i, &edge)) return false;
    held_.push_back(steal(edge.node));
    if (!meet(&task_, &edge)) return false;
    inputs_.push_back(edge);
    task_.has_inputs = true;
    accumulate_ = accumulate;
    if (task_.raw) task_.states[number_of(&task_, edge.node)].is_end = true;
    return true;
  }

  // Whether nodes of a region of `compile` will run: then the backward is one program, too.
  bool captured_forward() const {
    return std::any_of(task_.states.begin(), task_.states.end(),
                       [](const NodeState& s) { return s.node->captured; });
  }

  // Call it before run().
  bool find_nodes() {
    if (!discover(&task_)) return false;
    if (!active_recorder || !record_learning()) return true;
    return std::all_of(task_.states.begin(), task_.states.end(),
                       [](const NodeState& s) { return runs_dry(s.node); }) ||
           record_refuse("a backward has hooks, or began outside");
  }

  bool run() {
    attach_captures();
    if (task_.collects) task_.parts.resize(task_.captures.size());
    if (!inputs_.empty()) mark_needed(&task_, accumulate_);
    std::sort(roots_.begin(), roots_.end());
    roots_.erase(std::unique(roots_.begin(), roots_.end()), roots_.end());
    for (uint32_t root : roots_) {
      if (task_.states[root].dependencies == 0 && wanted(root)) push_ready(&task_, root);
    }
    if (!run_task(&task_)) return false;
    if (wanted_parts_) {
      for (int32_t c : capture_of_) {
        wanted_parts_->push_back(c < 0 ? std::vector<Ref<Tensor>>() : std::move(task_.parts[c]));
      }
    }
    return true;
  }

  // Captured gradients, in the order of the inputs; null entries were unreachable.
  PyObject* captured(bool allow_unused) {
    return build_tuple(inputs_.size(), [&](size_t i) -> PyObject* {
      Tensor* value = capture_of_[i] < 0 ? nullptr : task_.captures[capture_of_[i]].value.get();
      if (!value && !allow_unused) {
        PyErr_Format(PyExc_RuntimeError,
                     "[grad] The differentiated Tensor at index %zu appears to not have been used "
                     "in the graph. Set allow_unused=True if this is the desired behavior.\n"
                     "hint: or materialize_grads=True for zeros",
                     i);
        return nullptr;
      }
      return Py_NewRef(or_none(value));
    });
  }

 private:
  bool wanted(uint32_t index) const {
    return task_.states[index].needed || task_.states[index].capture >= 0;
  }
  void attach_captures() {
    for (const Edge& edge : inputs_) {
      const auto contested = task_.contested.find(edge.node);
      const bool reached = edge.node->task == task_.id || contested != task_.contested.end();
      if (!reached) {
        capture_of_.push_back(-1);
        continue;
      }
      NodeState& state = task_.states[number_of(&task_, edge.node)];
      const auto index = static_cast<int32_t>(task_.captures.size());
      task_.captures.push_back({static_cast<uint32_t>(edge.index), state.capture, {}});
      state.capture = index;
      capture_of_.push_back(index);
    }
  }
  std::vector<Ref<Node>> held_;  // declared first: freed after the task
  GraphTask task_;
  GradMode mode_;
  std::vector<uint32_t> roots_;
  std::vector<Edge> inputs_;
  std::vector<int32_t> capture_of_;
  std::vector<std::vector<Ref<Tensor>>>* wanted_parts_ = nullptr;
  bool accumulate_ = false;
};

// Python calls run_backward again; backwards inside of that one are part of it.
PyObject* run_compiled(PyObject* args) {
  auto compiler = steal(std::exchange(backward_compiler, nullptr));
  PyObject* result = PyObject_CallOneArg(compiler.get(), args);
  assign(backward_compiler, std::move(compiler));
  return result;
}

// run_backward(tensors, gradients, keep_graph, create_graph, inputs | None, allow_unused,
// accumulate)
PyObject* run_backward(PyObject*, PyObject* args) {
  if (backward_compiler && !next_is_raw && !anomaly_recorder) {
    const bool dry = active_recorder && record_learning();
    return dry && !record_refuse("a backward is compiled by itself") ? nullptr : run_compiled(args);
  }
  PyObject *tensors, *gradients, *inputs;
  int keep, create, allow_unused, accumulate;
  if (!PyArg_ParseTuple(args, "O!O!ppOpp", &PyTuple_Type, &tensors, &PyTuple_Type, &gradients,
                        &keep, &create, &inputs, &allow_unused, &accumulate)) {
    return nullptr;
  }
  if (PyTuple_GET_SIZE(gradients) != PyTuple_GET_SIZE(tensors)) {
    PyErr_Format(PyExc_RuntimeError,
                 "[backward] got %zd tensors and %zd gradients\n"
                 "hint: give one gradient (or None) per tensor",
                 PyTuple_GET_SIZE(tensors), PyTuple_GET_SIZE(gradients));
    return nullptr;
  }
  if (Py_EnterRecursiveCall(" in backward")) return nullptr;
  Ref<> result;
  bool recording = false;
  {
    Backward backward(keep, create);
    bool fine = true;
    for (Py_ssize_t i = 0; fine && i < PyTuple_GET_SIZE(tensors); ++i) {
      fine = backward.add_root(PyTuple_GET_ITEM(tensors, i), PyTuple_GET_ITEM(gradients, i), i);
    }
    const Py_ssize_t count = inputs == Py_None ? 0 : PyTuple_Size(inputs);
    for (Py_ssize_t i = 0; fine && i < count; ++i) {
      fine = backward.add_input(PyTuple_GET_ITEM(inputs, i), i, accumulate);
    }
    fine = fine && backward.find_nodes();
    if (fine) {
      recording = !active_recorder && !anomaly_recorder && backward.captured_forward();
      if (recording) record_enter();
      fine = backward.run();
    }
    if (fine && (accumulate || inputs == Py_None)) {
      result = share(Py_None);
    } else if (fine) {
      result = steal(backward.captured(allow_unused));
    }
  }
  // Gradients that only the engine held are dead by now: they stay in registers.
  if (recording && !record_leave("end of backward")) result = {};
  Py_LeaveRecursiveCall();
  return result.release();
}

// set_backward_compiler(callable | None) -> what it was; callable(arguments of run_backward).
PyObject* set_backward_compiler(PyObject*, PyObject* callable) {
  PyObject* before = Py_NewRef(or_none(backward_compiler));
  assign(backward_compiler, share(callable == Py_None ? nullptr : callable));
  return before;
}

// set_delayed_type(type | None) -> what it was.
PyObject* set_delayed_type(PyObject*, PyObject* type) {
  PyObject* before = Py_NewRef(or_none(reinterpret_cast<PyObject*>(delayed_type)));
  delayed_type = type == Py_None ? nullptr : reinterpret_cast<PyTypeObject*>(type);
  return before;
}

PyObject* queue_callback(PyObject*, PyObject* callback) {
  if (!current_task) {
    PyErr_SetString(PyExc_RuntimeError,
                    "[queue_callback] Final callbacks can only be installed during backward pass.\n"
                    "hint: call it from a hook");
    return nullptr;
  }
  GraphTask* outermost = current_task;
  outermost->callbacks.push_back(share(callback));
  Py_RETURN_NONE;
}

PyObject* current_graph_task_id(PyObject*, PyObject*) {
  if (!current_task) return PyLong_FromLong(-1);
  return PyLong_FromUnsignedLongLong(current_task->id);
}

// What names the running backward in tables that live no longer than it; None: no one runs.
PyObject* backward_key(PyObject*, PyObject*) {
  if (!current_task) Py_RETURN_NONE;
  return PyLong_FromUnsignedLongLong(current_task->id);
}

// Whether the running backward adds to the `.grad` of all leaves: none of those that it is part of
// has inputs. Runs that `compile` starts do not count.
PyObject* accumulates_gradients(PyObject*, PyObject*) {
  for (const GraphTask* task = current_task; task; task = task->outer) {
    if (!task->raw && task->has_inputs) Py_RETURN_FALSE;
  }
  Py_RETURN_TRUE;
}

PyObject* current_autograd_node(PyObject*, PyObject*) { return Py_NewRef(or_none(current_node)); }

// Whether the running backward will reach this node.
PyObject* will_execute_node(PyObject*, PyObject* object) {
  if (!current_task || !is_node(object)) {
    PyErr_SetString(PyExc_RuntimeError,
                    "[will_execute_node] expects a node while a backward is running\n"
                    "hint: call it from a hook");
    return nullptr;
  }
  Node* node = front_of({node_of(object), 0}, current_task->id).node;
  uint32_t index = node->task_index;
  if (node->task != current_task->id) {
    const auto found = current_task->contested.find(node);
    if (found == current_task->contested.end()) Py_RETURN_FALSE;
    index = found->second;
  }
  const NodeState& state = current_task->states[index];
  return PyBool_FromLong(state.needed || state.capture >= 0);
}

// Zeros like output `index` of a node, for autograd.Function's materialised gradients.
PyObject* node_zeros(PyObject*, PyObject* call) {
  PyObject* node;
  unsigned int index;
  if (!PyArg_ParseTuple(call, "O!I", NodeType, &node, &index)) return nullptr;
  OutputMetadata m;
  if (!node_output_metadata(node_of(node), index, &m)) Py_RETURN_NONE;
  if (!active_recorder) return object_of(filled(m, 0.0));
  const auto zeros = steal(import_attribute("flambeau", "zeros"));  // of the stream, as others are
  const auto sizes = steal(size_object(static_cast<int>(m.sizes.size()), m.sizes.data()));
  const auto args = steal(sizes ? PyTuple_Pack(1, sizes.get()) : nullptr);
  const auto options = steal(
      Py_BuildValue("{sOsN}", "dtype", dtype_object(m.dtype), "device", device_object(m.device)));
  return zeros && args && options ? PyObject_Call(zeros.get(), args.get(), options.get()) : nullptr;
}

}  // namespace

PyObject* engine_gradients(PyObject* args, std::vector<std::vector<Ref<Tensor>>>* parts) {
  next_is_raw = true;
  next_parts = parts;
  PyObject* found = run_backward(nullptr, args);
  next_is_raw = false;
  next_parts = nullptr;
  return found;
}

PyMethodDef engine_functions[] = {
    {"run_backward", run_backward, METH_VARARGS,
     "run_backward(tensors, gradients, keep_graph, create_graph, inputs, allow_unused, "
     "accumulate)."},
    {"set_backward_compiler", set_backward_compiler, METH_O,
     "Sets the function that runs backwards of this thread, or None; it takes the arguments of "
     "run_backward. Returns the one before."},
    {"set_delayed_type", set_delayed_type, METH_O,
     "Shows this thread's function modes what the engine calls, whose results are of this type "
     "until they run; None: no longer. Returns what it was."},
    {"queue_callback", queue_callback, METH_O, "Calls it when the running backward is done."},
    {"backward_key", backward_key, METH_NOARGS,
     "What names the running backward in tables that live no longer than it, or None."},
    {"current_graph_task_id", current_graph_task_id, METH_NOARGS,
     "Id of the running backward; -1."},
    {"accumulates_gradients", accumulates_gradients, METH_NOARGS,
     "Whether the running backward adds to the .grad of all leaves: it was given no inputs."},
    {"current_autograd_node", current_autograd_node, METH_NOARGS, "The node being run, or None."},
    {"will_execute_node", will_execute_node, METH_O, "Whether the running backward reaches it."},
    {"node_zeros", node_zeros, METH_VARARGS, "Zeros like an output of a node, or None."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace fb
