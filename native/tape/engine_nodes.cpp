// The work of a node when backward reaches it: hooks, the backward of its kind, checks of the
// results of user code, sums into leaves.
#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "call/lists.h"
#include "call/op_internal.h"
#include "call/override.h"
#include "device/devices.h"
#include "frame/effects.h"
#include "runtime/fork.h"
#include "tape/tape.h"

namespace fb {

constinit FB_THREAD_LOCAL PyTypeObject* delayed_type = nullptr;

namespace {

// ---------------------------------------------------------------- sums
bool writable_alone(const Tensor* t) {
  return t->ob_base.ob_refcnt == 1 && t->storage->references.load() == 1 && !t->autograd &&
         tensor_contiguous(t) && !t->storage->pending;
}

// Gradient layout: that of a dense leaf, else row-major.
bool layout_matches(const Tensor* leaf, const Tensor* grad) {
  if (leaf->dtype != grad->dtype || !same_shape(leaf, grad)) return false;
  if (!is_dense(leaf)) return tensor_contiguous(grad);
  for (int i = 0; i < leaf->ndim; ++i) {
    if (leaf->sizes()[i] > 1 && leaf->strides()[i] != grad->strides()[i]) return false;
  }
  return true;
}

// A result of a call that a recorder in Python delays: it will be a plain tensor.
bool is_delayed(const Tensor* t) { return t->ob_base.ob_type == delayed_type; }

// A gradient of a type that overrides operators (a sparse one). It is stored unchanged, and is the
// second operand of a sum with a dense one: such sums are dense, so not computed in place.
bool answers_itself(Tensor* grad) {
  PyObject* object = object_of(grad);
  return !is_exact_tensor(object) && !is_delayed(grad) &&
         (override_of(object) != Override::None || dispatches(object));
}

// A copy of the gradient with the leaf's layout, by operators: a value like others while recording,
// and part of the graph under create_graph.
Tensor* laid_out(Tensor* leaf, Tensor* grad) {
  const auto strides =
      steal(is_dense(leaf) ? size_object(leaf->ndim, leaf->strides()) : Py_NewRef(Py_None));
  return tensor_of(call_helper("flambeau.autograd.views", "clone_with_order", grad, strides));
}

Tensor* clone_gradient(Tensor* leaf, Tensor* grad) {
  const bool other = leaf->dtype != grad->dtype || !same_shape(leaf, grad);
  if (other || layout_matches(leaf, grad) || answers_itself(grad)) {
    return tensor_of(invoke(tensor_method("clone"), grad));
  }
  if (grad_mode.enabled || active_recorder || delayed_type) return laid_out(leaf, grad);
  PyObject* copy = tensor_method("copy_");
  Storage* storage =
      copy ? storage_new(leaf->numel * item_size(leaf->dtype), leaf->device) : nullptr;
  if (!storage) return nullptr;
  const int64_t* strides = is_dense(leaf) ? leaf->strides() : nullptr;
  auto clone =
      steal(tensor_new(storage, leaf->dtype, leaf->device, leaf->ndim, leaf->sizes(), strides, 0));
  return steal(invoke(copy, clone, grad)) ? clone.release() : nullptr;
}

// Two threads may add to one leaf while a kernel runs without the GIL; a striped lock serialises
// the sums. It is not held while hooks run.
class LeafLock {
 public:
  explicit LeafLock(const Tensor* leaf) : lock_(lock_of(leaf)) {
    if (lock_->try_lock()) return;
    Py_BEGIN_ALLOW_THREADS lock_->lock();
    Py_END_ALLOW_THREADS
  }
  ~LeafLock() { lock_->unlock(); }
  LeafLock(const LeafLock&) = delete;
  LeafLock& operator=(const LeafLock&) = delete;

 private:
  static constexpr int kLocks = 32;

  static ForkSafe<std::mutex>* lock_of(const Tensor* leaf) {
    static ForkSafe<std::mutex>* locks[kLocks];
    ForkSafe<std::mutex>*& lock = locks[(reinterpret_cast<uintptr_t>(leaf) >> 6) % kLocks];
    if (!lock) lock = new ForkSafe<std::mutex>(kReset);
    return lock;
  }

  ForkSafe<std::mutex>* lock_;
};

bool add_to_leaf(Tensor* leaf, Tensor* grad) {
  LeafLock lock(leaf);
  if (active_recorder && record_learning()) record_note_gradient(leaf, true);
  Autograd* a = tensor_autograd(leaf);
  if (!a) return false;
  if (a->grad) {
    auto held = share(a->grad);
    const bool fresh = grad_mode.enabled || answers_itself(held.get());
    PyObject* add = operator_required(fresh ? Operator::Add : Operator::IAdd);
    const bool swapped = answers_itself(held.get()) && !answers_itself(grad);
    PyObject* sum = swapped ? invoke(add, grad, held) : invoke(add, held, grad);
    held = {};
    return replace_tensor(&leaf->autograd->grad, sum);
  }
  const bool moves = !grad_mode.enabled && grad->ob_base.ob_refcnt == 1 && !grad->autograd &&
                     grad->storage->references.load() == 1 && layout_matches(leaf, grad);
  const uint8_t before = interceptors;  // keeping a gradient is no operator that modes see
  if (is_exact_tensor(object_of(grad))) interceptors &= static_cast<uint8_t>(~kDispatchModes);
  auto stored = moves ? share(grad) : steal(clone_gradient(leaf, grad));
  interceptors = before;
  // PyTorch detaches a gradient that nobody else has, which also may be a view of others' memory.
  const bool alone = grad->ob_base.ob_refcnt <= (moves ? 2 : 1) && !grad_mode.enabled;
  if (stored && alone && layout_matches(leaf, grad) &&
      (before & kDispatchModes || answers_itself(stored.get()))) {
    stored = steal(tensor_detach_shown(stored.get()));
  }
  return replace_tensor(&leaf->autograd->grad, object_of(stored.release()));
}

// ---------------------------------------------------------------- hooks
PyObject* values_of(PyObject* hooks) {  // list: hooks may remove themselves
  return PyMapping_Values(hooks);
}

bool check_hook_result(const Tensor* before, PyObject* after) {
  if (!is_tensor(after)) {
    PyErr_Format(PyExc_TypeError,
                 "[hook] expected Variable, but hook returned '%s'\nhint: return a tensor or None",
                 Py_TYPE(after)->tp_name);
    return false;
  }
  const Tensor* t = tensor_of(after);
  const bool moved = t->device.kind != before->device.kind && !is_delayed(t) && !is_delayed(before);
  const char* problem = t->dtype != before->dtype ? "type"
                        : !same_shape(t, before)  ? "size"
                        : moved                   ? "device"
                                                  : nullptr;
  if (!problem) return true;
  PyErr_Format(PyExc_RuntimeError,
               "[hook] hook '%s' has changed the %s of value\n"
               "hint: return a gradient like the one it was given",
               "tensor hook", problem);
  return false;
}

bool run_tensor_hooks(PyObject* hooks, Tensor** grad) {
  if (!hooks || PyObject_Length(hooks) == 0) return true;
  if (!record_read_hooks(hooks)) return false;
  const auto list = steal(values_of(hooks));
  for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list.get()); ++i) {
    const auto args = steal(PyTuple_Pack(1, object_of(*grad)));
    auto result =
        steal(args ? record_call_user(PyList_GET_ITEM(list.get(), i), args.get()) : nullptr);
    if (!result) return false;
    if (result.get() == Py_None) continue;
    if (!check_hook_result(*grad, result.get())) return false;
    replace_tensor(grad, result.release());
  }
  return static_cast<bool>(list);
}

bool store_retained(const RetainedOutput& retained, Tensor* grad) {
  PyObject* target = PyWeakref_GetObject(retained.reference.get());
  if (!target || target == Py_None) return true;
  const auto owner = share(tensor_of(target));
  Autograd* a = tensor_autograd(owner.get());
  if (!a) return false;
  auto held = share(a->grad);  // while the sum runs, others may put something else there
  auto value = steal(held ? invoke(operator_required(Operator::Add), held, grad)
                          : invoke(tensor_method("clone"), grad));
  held = {};
  a = tensor_autograd(owner.get());
  return a && replace_tensor(&a->grad, value.release());
}

PyObject* tuple_of(Tensor* const* values, size_t count) {
  return build_tuple(count, [&](size_t i) { return Py_NewRef(or_none(values[i])); });
}

// Takes what a hook or an autograd.Function returned into `values`.
bool replace_values(PyObject* returned, const char* who, Tensor** values, size_t count) {
  const auto tuple = PyTuple_Check(returned) ? share(returned) : steal(PyTuple_Pack(1, returned));
  if (!tuple) return false;
  if (PyTuple_GET_SIZE(tuple.get()) != static_cast<Py_ssize_t>(count)) {
    PyErr_Format(PyExc_RuntimeError,
                 "[hook] %s has returned an incorrect number of values: got %zd, but expected %zu\n"
                 "hint: return as many as it was given, or None",
                 who, PyTuple_GET_SIZE(tuple.get()), count);
    return false;
  }
  for (size_t i = 0; i < count; ++i) {
    PyObject* item = PyTuple_GET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i));
    if (item != Py_None && !is_tensor(item)) {
      PyErr_Format(PyExc_TypeError,
                   "[hook] expected a Tensor or None from %s: got %s\n"
                   "hint: return gradients",
                   who, Py_TYPE(item)->tp_name);
      return false;
    }
    assign(values[i], share(item == Py_None ? nullptr : tensor_of(item)));
  }
  return true;
}

bool run_node_prehooks(Node* node, Tensor** grads) {
  const auto list = steal(values_of(node->extras->prehooks.get()));
  for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list.get()); ++i) {
    const auto tuple = steal(tuple_of(grads, node->visible_count));
    const auto result = steal(call_object(PyList_GET_ITEM(list.get(), i), tuple));
    if (!result) return false;
    if (result.get() != Py_None &&
        !replace_values(result.get(), "a node prehook", grads, node->visible_count)) {
      return false;
    }
  }
  return static_cast<bool>(list);
}

bool run_node_posthooks(Node* node, Tensor** results, PyObject* grads_before) {
  const auto list = steal(values_of(node->extras->posthooks.get()));
  for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list.get()); ++i) {
    const auto tuple = steal(tuple_of(results, node->edge_count));
    const auto shown = steal(tuple ? node_arranged_gradients(node, tuple.get()) : nullptr);
    auto result = steal(call_object(PyList_GET_ITEM(list.get(), i), shown, grads_before));
    if (!result) return false;
    if (result.get() == Py_None) continue;
    result = steal(node_restored_gradients(node, result.get()));
    if (!result || !replace_values(result.get(), "a node hook", results, node->edge_count)) {
      return false;
    }
  }
  return static_cast<bool>(list);
}

bool apply_node(Node* node, Tensor** grads, Tensor** results);

// ---------------------------------------------------------------- kinds of nodes
// Arguments of a backward op: what is owned here is released at the end.
class Arguments {
 public:
  explicit Arguments(size_t count) {
    if (count > kInline) many_.resize(count);
    values_ = count > kInline ? many_.data() : few_;
  }
  ~Arguments() {
    for (size_t i = 0; i < count_; ++i) drop(values_[i]);
  }
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;
  bool push(PyObject* owned) {
    values_[count_++] = owned;
    return owned != nullptr;
  }
  PyObject* const* data() const { return values_; }
  Py_ssize_t count() const { return static_cast<Py_ssize_t>(count_); }

 private:
  static constexpr size_t kInline = 16;
  PyObject* few_[kInline];
  std::vector<PyObject*> many_;
  PyObject** values_;
  size_t count_ = 0;
};

bool push_saved(Arguments* args, Node* node, size_t position) {
  Tensor* t = unpack_saved(node, position);
  if (!t && PyErr_Occurred()) return false;
  return args->push(t ? object_of(t) : Py_NewRef(Py_None));
}

bool push_arguments(Arguments* args, Node* node, Tensor** grads, Tensor** results) {
  size_t saved = 0, scalars = 0;
  for (const Source& source : node->instance->plan->backward->arguments) {
    bool fine = true;
    switch (source.kind) {
      case Source::SavedInput:
      case Source::SavedOutput:
        fine = push_saved(args, node, saved++);
        break;
      case Source::GradOutput: {
        fine = args->push(Py_NewRef(or_none(grads[source.index])));
        break;
      }
      case Source::HeldGradient: {
        fine = args->push(Py_NewRef(or_none(results[source.index])));
        break;
      }
      case Source::Register:
        fine = args->push(PyLong_FromLongLong(node->instance->registers[source.index]));
        break;
      case Source::ScalarArgument: {
        const SavedScalar& scalar = node->scalar(scalars++);
        fine = args->push(scalar.is_float ? PyFloat_FromDouble(scalar.value.d)
                                          : PyLong_FromLongLong(scalar.value.i));
        break;
      }
    }
    if (!fine) return false;
  }
  return true;
}

bool has_sizes(const Tensor* t, const OutputMetadata& m) {
  return t->ndim == m.sizes.size() && std::equal(m.sizes.begin(), m.sizes.end(), t->sizes());
}

bool all_absent(Tensor* const* grads, size_t count) {
  return std::all_of(grads, grads + count, [](Tensor* t) { return !t; });
}

// Whether the backward op can go on from the sums in `results`: they are of the gradients' kind.
bool takes_sums(Node* node, Tensor** results) {
  for (size_t i = 0; node->goes_on && i < node->edge_count; ++i) {
    OutputMetadata wanted;
    const Edge& edge = node->edge(i);
    if (!results[i]) continue;
    if (answers_itself(results[i])) return false;
    if (!node_output_metadata(edge.node, static_cast<uint32_t>(edge.index), &wanted)) continue;
    if (results[i]->dtype != wanted.dtype || !has_sizes(results[i], wanted)) return false;
  }
  return true;
}

// A tensor whose gradient flows along an edge: the leaf, or `data` with that history.
Tensor* tensor_at_edge(const Edge& edge, Tensor* data) {
  if (edge.node->kind == NodeKind::Accumulate) return tensor_of(Py_NewRef(edge.node->object));
  Tensor* alias = tensor_detach(data);
  if (alias) set_history(alias, edge.node, static_cast<uint32_t>(edge.index));
  return alias;
}

// Under create_graph, gradients without a derivative of their own raise when it is computed.
bool mark_once(const BackwardSpec& backward, Node* node, Tensor** results) {
  if (!PyObject_HasAttrString(backward.op, "once_differentiable")) return true;
  const auto name = steal(PyUnicode_FromString(backward.name.c_str()));
  for (size_t i = 0; name && i < node->edge_count; ++i) {
    if (!results[i] || !node->edge(i).node) continue;
    const auto operand = steal(tensor_at_edge(node->edge(i), results[i]));
    if (!replace_tensor(&results[i], call_helper("flambeau.autograd.function", "refuse_again",
                                                 results[i], name, operand))) {
      return false;
    }
  }
  return static_cast<bool>(name);
}

bool apply_plan(Node* node, Tensor** grads, Tensor** results) {
  if (all_absent(grads, node->output_count)) return true;
  const bool behind = node->released && node->partly;
  if (node->object && (grad_mode.enabled || behind || !takes_sums(node, results))) {
    return region_apply_tape(node, grads, results);
  }
  const BackwardSpec& backward = *node->instance->plan->backward;
  Arguments args(backward.arguments.size());
  if (!push_arguments(&args, node, grads, results)) return false;
  if (active_recorder) record_backward_of(node->recorded);
  {
    const auto returned = steal(invoke(backward.op, args.data(), args.count()));
    if (!returned ||
        !replace_values(returned.get(), backward.name.c_str(), results, node->edge_count)) {
      return false;
    }
  }
  return !grad_mode.enabled || mark_once(backward, node, results);
}

bool apply_function(Node* node, Tensor** grads, Tensor** results) {
  static PyObject* name = nullptr;
  if (!name) name = PyUnicode_InternFromString("apply");
  if (active_recorder && record_learning()) {
    const auto gradients = steal(tuple_of(grads, node->output_count));
    const auto returned =
        steal(gradients ? record_call_user(object_of(node), gradients.get()) : nullptr);
    return returned &&
           replace_values(returned.get(), Py_TYPE(node)->tp_name, results, node->edge_count);
  }
  Arguments args(node->output_count + 1u);
  args.push(Py_NewRef(object_of(node)));
  for (uint32_t i = 0; i < node->output_count; ++i) args.push(Py_NewRef(or_none(grads[i])));
  const auto returned = steal(
      PyObject_VectorcallMethod(name, args.data(), static_cast<size_t>(args.count()), nullptr));
  return returned &&
         replace_values(returned.get(), Py_TYPE(node)->tp_name, results, node->edge_count);
}

PyObject* geometry_argument(const std::vector<int64_t>& values) {
  return size_object(static_cast<int>(values.size()), values.data());
}

// helper(grad, base sizes, strides, offset, form, and the same of the view)
PyObject* call_view_helper(const char* name, Node* node, Tensor* grad) {
  const ViewGeometry& g = *node->extras->view;
  const auto base_sizes = steal(geometry_argument(g.base.sizes));
  const auto base_strides = steal(geometry_argument(g.base_strides));
  const auto base_offset = steal(PyLong_FromLongLong(g.base_offset));
  const auto base_form = steal(PyLong_FromLong(g.base_form));
  const auto sizes = steal(geometry_argument(g.view.sizes));
  const auto strides = steal(geometry_argument(g.view_strides));
  const auto offset = steal(PyLong_FromLongLong(g.view_offset));
  const auto form = steal(PyLong_FromLong(g.view_form));
  return call_helper("flambeau.autograd.views", name, grad, base_sizes, base_strides, base_offset,
                     base_form, sizes, strides, offset, form);
}

bool apply_strided(Node* node, Tensor** grads, Tensor** results) {
  if (!grads[0]) return true;
  results[0] = tensor_of(call_view_helper("scatter_to_base", node, grads[0]));
  return results[0] != nullptr;
}

// The gradient of written elements goes through the inner node, that of others to the old base.
bool apply_copy_slices(Node* node, Tensor** grads, Tensor** results) {
  if (!grads[0]) return true;
  Node* inner = node_of(node->object);
  const ViewGeometry& g = *node->extras->view;
  const auto opened = steal(call_view_helper("open_window", node, grads[0]));
  PyObject *whole, *window, *slice;
  if (!opened || !PyArg_ParseTuple(opened.get(), "OOO", &whole, &window, &slice)) return false;
  Refs<Tensor> inner_grads(inner->output_count);
  Refs<Tensor> inner_results(inner->edge_count);
  inner_grads.values[g.inner_output] = tensor_of(Py_NewRef(slice));
  if (!apply_node(inner, inner_grads.values.data(), inner_results.values.data())) return false;
  Tensor* below = g.inner_target == SIZE_MAX ? nullptr : inner_results.values[g.inner_target];
  results[0] = tensor_of(
      call_helper("flambeau.autograd.views", "close_window", whole, window, or_none(below)));
  if (!results[0]) return false;
  for (size_t i = 0, to = 1; i < inner_results.values.size(); ++i) {
    if (i != g.inner_target) results[to++] = std::exchange(inner_results.values[i], nullptr);
  }
  return true;
}

bool apply_constant(Tensor* grad, Tensor** results) {
  const auto sizes = steal(size_object(grad->ndim, grad->sizes()));
  results[0] = tensor_of(invoke(tensor_method("new_zeros"), grad, sizes));
  return results[0] != nullptr;
}

// Whether a gradient must move to where its value is.
bool must_move(Device from, Device to) {
  return (from.kind != to.kind || from.index != to.index) && has_memory(from) && has_memory(to);
}

// A number on the CPU may join operands on another device; so its gradient comes from there.
bool move_gradient(Tensor** grad, Device device) {
  const auto place = steal(device_object(device));
  PyObject* args[2] = {object_of(*grad), place.get()};
  PyObject* to = place ? tensor_method("to") : nullptr;
  return to && replace_tensor(grad, invoke(to, args, 2));
}

bool run_post_accumulate(Tensor* leaf) {
  const Autograd* a = leaf->autograd;
  if (!a || !a->post_accumulate_hooks || PyObject_Length(a->post_accumulate_hooks) == 0) {
    return true;
  }
  const auto list = steal(values_of(a->post_accumulate_hooks));
  for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list.get()); ++i) {
    const auto result = steal(PyObject_CallOneArg(PyList_GET_ITEM(list.get(), i), object_of(leaf)));
    if (result.get() == Py_None) continue;
    if (result) {
      PyErr_SetString(PyExc_RuntimeError,
                      "[hook] Tensor post accumulate grad hooks should return None.\n"
                      "hint: assign to tensor.grad instead");
    }
    return false;
  }
  return static_cast<bool>(list);
}

bool apply_node(Node* node, Tensor** grads, Tensor** results) {
  switch (node->kind) {
    case NodeKind::Plan:
      return apply_plan(node, grads, results);
    case NodeKind::Function:
      return apply_function(node, grads, results);
    case NodeKind::CopySlices:
      return apply_copy_slices(node, grads, results);
    case NodeKind::AsStrided:
      return apply_strided(node, grads, results);
    case NodeKind::Join:
      return apply_join(node, grads, results);
    case NodeKind::Parts:
      return apply_parts(node, grads, results);
    case NodeKind::Constant:
      return !grads[0] || apply_constant(grads[0], results);
    case NodeKind::Accumulate: {
      if (!grads[0]) return true;
      Tensor* leaf = tensor_of(node->object);
      if (!tensor_requires_grad(leaf)) return true;  // detach_() since
      if (must_move(grads[0]->device, leaf->device) && !move_gradient(grads, leaf->device))
        return false;
      return add_to_leaf(leaf, grads[0]) && run_post_accumulate(leaf);
    }
  }
  return true;
}

// ---------------------------------------------------------------- validation
bool expandable(const Tensor* grad, const OutputMetadata& to) {
  if (to.sizes.size() > grad->ndim) return false;
  const size_t lead = grad->ndim - to.sizes.size();
  for (size_t i = 0; i < to.sizes.size(); ++i) {
    if (to.sizes[i] != 1 && to.sizes[i] != grad->sizes()[lead + i]) return false;
  }
  return true;
}

bool fit_results(Node* node, Tensor** results) {
  const bool hooked = node->extras && node->extras->posthooks;
  if (node->kind != NodeKind::Function && !hooked) return true;  // derived: fits by construction
  for (size_t i = 0; i < node->edge_count; ++i) {
    const Edge& edge = node->edge(i);
    OutputMetadata wanted;
    if (!results[i] || !edge.node) continue;
    if (!node_output_metadata(edge.node, static_cast<uint32_t>(edge.index), &wanted)) continue;
    if (!fit_gradient(node_name(node), i, wanted, &results[i])) return false;
  }
  return true;
}

// ---------------------------------------------------------------- results that hooks see
// The sums again, on from `held`, but for results that a hook has changed since they were `own`.
bool go_on(Node* node, Tensor** grads, Tensor** results, const Refs<Tensor>& own,
           Refs<Tensor>* held) {
  Refs<Tensor> sums(held->values.data(), node->edge_count);
  if (!apply_node(node, grads, sums.values.data())) return false;
  for (size_t i = 0; i < node->edge_count; ++i) {
    if (!held->values[i]) continue;
    if (results[i] == own.values[i]) {
      std::swap(results[i], sums.values[i]);
    } else {
      Tensor* changed = std::exchange(results[i], nullptr);
      if (changed && !add_gradient(&held->values[i], changed)) return false;
      results[i] = std::exchange(held->values[i], nullptr);
    }
  }
  return true;
}

// Hooks see what the node itself adds, not the sums that it goes on from.
bool apply_observed(Node* node, Tensor** grads, Tensor** results) {
  Refs<Tensor> held(results, node->edge_count);
  for (size_t i = 0; i < node->edge_count; ++i) drop(results[i]);
  auto before = steal(tuple_of(grads, node->visible_count));
  bool fine = before && apply_node(node, grads, results);
  const Refs<Tensor> own(results, node->edge_count);
  fine = fine && run_node_posthooks(node, results, before.get());
  before = {};
  if (!fine || all_absent(held.values.data(), node->edge_count)) return fine;
  return go_on(node, grads, results, own, &held);
}

// ---------------------------------------------------------------- anomaly mode
bool check_gradients(Node* node, Tensor** grads, Tensor** results) {
  if (!anomaly_recorder) return true;
  const auto after = steal(tuple_of(results, node->edge_count));
  const auto before = steal(tuple_of(grads, node->output_count));
  return static_cast<bool>(
      steal(call_helper("flambeau.autograd.anomaly", "check_gradients", node, after, before)));
}

}  // namespace

bool same_shape(const Tensor* a, const Tensor* b) {
  return a->ndim == b->ndim && std::equal(a->sizes(), a->sizes() + a->ndim, b->sizes());
}

// *slot += grad; `grad` is stolen. In place where nobody can see it: the bits are the same.
bool add_gradient(Tensor** slot, Tensor* grad) {
  if (!*slot) {
    *slot = grad;
    return true;
  }
  const bool inplace = !grad_mode.enabled && !active_recorder && !(interceptors & kDispatchModes) &&
                       writable_alone(*slot) && (*slot)->dtype == grad->dtype &&
                       same_shape(*slot, grad) && is_exact_tensor(object_of(*slot)) &&
                       is_exact_tensor(object_of(grad)) && operator_object(Operator::IAdd);
  PyObject* add = operator_required(inplace ? Operator::IAdd : Operator::Add);
  const bool swapped = answers_itself(*slot) && !answers_itself(grad);
  PyObject* sum = swapped ? invoke(add, grad, *slot) : invoke(add, *slot, grad);
  drop(grad);
  return replace_tensor(slot, sum);
}

bool run_pre_hooks(Node* node, Tensor** grads) {
  if (node->kind == NodeKind::Accumulate) {
    const Autograd* a = tensor_of(node->object)->autograd;
    return !grads[0] || !a || run_tensor_hooks(a->hooks, grads);
  }
  NodeExtras* extras = node->extras;
  if (!extras) return true;
  for (size_t i = 0; i < extras->tensor_hooks.size() && i < node->output_count; ++i) {
    if (grads[i] && !run_tensor_hooks(extras->tensor_hooks[i].get(), &grads[i])) return false;
  }
  for (size_t i = 0; i < extras->retained.size(); ++i) {
    const RetainedOutput retained = extras->retained[i];
    if (grads[retained.index] && !store_retained(retained, grads[retained.index])) return false;
  }
  return true;
}

std::string sizes_text(const int64_t* sizes, size_t ndim) {
  std::string text = "[";
  for (size_t i = 0; i < ndim; ++i) text += (i ? ", " : "") + std::to_string(sizes[i]);
  return text + "]";
}

// A gradient from user code must fit the value it belongs to; broadcast ones are summed back.
bool fit_gradient(const std::string& who, size_t index, const OutputMetadata& wanted,
                  Tensor** grad) {
  const Tensor* t = *grad;
  if (must_move(t->device, wanted.device)) {
    if (!move_gradient(grad, wanted.device)) return false;
    t = *grad;
  }
  if (!has_sizes(t, wanted)) {
    if (!expandable(t, wanted)) {
      PyErr_Format(PyExc_RuntimeError,
                   "[backward] Function %s returned an invalid gradient at index %zu - got %s but "
                   "expected shape compatible with %s\n"
                   "hint: a gradient has the shape of its input",
                   who.c_str(), index, sizes_text(t->sizes(), t->ndim).c_str(),
                   sizes_text(wanted.sizes.data(), wanted.sizes.size()).c_str());
      return false;
    }
    const auto sizes = steal(geometry_argument(wanted.sizes));
    if (!replace_tensor(grad, call_helper("flambeau.autograd.views", "reduce_to", *grad, sizes))) {
      return false;
    }
    t = *grad;
  }
  if (t->dtype == wanted.dtype) return true;
  if (is_integral(t->dtype)) {
    PyErr_Format(
        PyExc_RuntimeError,
        "[backward] Function %s returned a gradient of dtype %s at index %zu: expected %s\n"
        "hint: gradients are floating point or complex",
        who.c_str(), dtype_name(t->dtype), index, dtype_name(wanted.dtype));
    return false;
  }
  PyObject* to = tensor_method("to");
  if (!to) return false;
  if (is_complex(t->dtype) && !is_complex(wanted.dtype)) {
    PyObject* part = PyObject_GetAttrString(object_of(*grad), "real");
    if (!replace_tensor(grad, part)) return false;
  }
  return replace_tensor(grad, invoke(to, *grad, dtype_object(wanted.dtype)));
}

void report_failure(Node* node) {
  if (!anomaly_recorder) return;
  PendingError error;
  if (!steal(call_helper("flambeau.autograd.anomaly", "report_error", node))) PyErr_Clear();
  error.restore();
}

bool call_node(Node* node, Tensor** grads, Tensor** results, bool keep_graph) {
  NodeExtras* extras = node->extras;
  if (extras && extras->prehooks && !run_node_prehooks(node, grads)) return false;
  const bool post = extras && extras->posthooks && PyObject_Length(extras->posthooks.get()) > 0;
  bool fine = post ? apply_observed(node, grads, results) : apply_node(node, grads, results);
  fine = fine && fit_results(node, results) && check_gradients(node, grads, results);
  if (!fine) {
    report_failure(node);
    return false;
  }
  if (keep_graph) return true;
  if (node->object && node->kind == NodeKind::Plan && node->saved_count > 0) {
    region_spend(node, grads);
  }
  node_release_saved(node);
  return true;
}

PyObject* node_apply_again(PyObject* object, PyObject* gradients) {
  Node* node = node_of(object);
  if (!is_node(object) || node->kind == NodeKind::Accumulate || !PyTuple_Check(gradients) ||
      PyTuple_GET_SIZE(gradients) != static_cast<Py_ssize_t>(node->output_count)) {
    PyErr_SetString(PyExc_ValueError, "[backward] expected a node and its gradients");
    return nullptr;
  }
  std::vector<Tensor*> grads(node->output_count), results(node->edge_count);
  for (size_t i = 0; i < grads.size(); ++i) {
    PyObject* gradient = PyTuple_GET_ITEM(gradients, static_cast<Py_ssize_t>(i));
    if (gradient != Py_None && !PyObject_TypeCheck(gradient, TensorType)) {
      PyErr_SetString(PyExc_TypeError, "[backward] a gradient is a Tensor, or None");
      return nullptr;
    }
    grads[i] = gradient == Py_None ? nullptr : tensor_of(gradient);
  }
  const bool fine = apply_node(node, grads.data(), results.data());
  auto tuple = fine ? steal(tuple_of(results.data(), results.size())) : Ref<>();
  for (Tensor*& result : results) drop(result);
  return tuple.release();
}

bool replace_tensor(Tensor** slot, PyObject* value) {
  if (!value) return false;
  assign(*slot, steal(tensor_of(value)));
  return true;
}

PyObject* invoke(PyObject* callable, PyObject* const* args, Py_ssize_t count) {
  const bool shown = delayed_type && (interceptors & kFunctionModes);
  if (Py_TYPE(callable) == OpType && !shown) {
    const BelowFunctions guard;
    return op_call(callable, args, count);
  }
  return PyObject_Vectorcall(callable, args, static_cast<size_t>(count), nullptr);
}

PyObject* tensor_method(const char* name) {
  static auto& cache = *new std::unordered_map<std::string, PyObject*>();
  const auto found = cache.find(name);
  if (found != cache.end()) return found->second;
  PyObject* method = PyObject_GetAttrString(reinterpret_cast<PyObject*>(TensorType), name);
  if (method) cache.emplace(name, method);
  return method;
}

PyObject* call_helper(const char* module, const char* name, PyObject* const* args,
                      Py_ssize_t count) {
  const auto function = steal(import_attribute(module, name));
  return function ? PyObject_Vectorcall(function.get(), args, static_cast<size_t>(count), nullptr)
                  : nullptr;
}

}  // namespace fb
