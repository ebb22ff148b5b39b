// The tape: one node per recorded call, views, in-place writes, saved tensors.
//
// Versions: every in-place write bumps the counter of the storage. A saved tensor remembers the
// counter; a view remembers the counter at which its history was right, and gets a new history
// (AsStrided of its base) when somebody wrote since.
#include "tape/tape.h"

#include <algorithm>
#include <utility>

#include "frame/effects.h"

namespace fb {

constinit FB_THREAD_LOCAL GradMode grad_mode;
PyObject* anomaly_recorder = nullptr;

namespace {

bool differentiable(DType t) { return is_floating(t) || is_complex(t); }

std::string sizes_text(const Tensor* t) {
  std::string text = "[";
  for (int i = 0; i < t->ndim; ++i) text += (i ? ", " : "") + std::to_string(t->sizes()[i]);
  return text + "]";
}

// ---------------------------------------------------------------- saving and unpacking
bool pack_tensor(Node* node, Saved* saved, Tensor* t, const SavedHooks& hooks) {
  NodeExtras* extras = node_extras(node);
  if (!extras) return false;
  // An output has no history yet: it will be that of this node.
  Packed packed{share(hooks.unpack), {}, 0, saved->output || tensor_requires_grad(t)};
  if (!saved->output && packed.requires_grad) {
    Edge edge;
    if (!gradient_edge(t, &edge)) return false;
    packed.node = steal(edge.node);
    packed.index = edge.index;
  }
  const uint32_t version = t->version();
  Ref<> object;
  if (auto plain = steal(tensor_detach(t))) {
    NoGrad guard;
    const auto pack = share(hooks.pack);
    const auto args = steal(PyTuple_Pack(1, object_of(plain)));
    object = steal(args ? record_call_user(pack.get(), args.get()) : nullptr);
  }
  if (!object) return false;
  if (t->version() != version) {
    PyErr_SetString(PyExc_RuntimeError,
                    "[saved_tensors_hooks] A saved tensor pack hook is modifying its input in "
                    "place. Tensors provided as input to pack hook cannot be modified by "
                    "in-place operations\nhint: work on a clone");
    return false;
  }
  extras->packed.push_back(std::move(packed));
  saved->packed = static_cast<uint16_t>(extras->packed.size());
  saved->object = object.release();
  return true;
}

void raise_second_time() {
  PyErr_SetString(
      PyExc_RuntimeError,
      "[backward] Trying to backward through the graph a second time (or directly access saved "
      "tensors after they have already been freed). Saved intermediate values of the graph are "
      "freed when you call .backward() or autograd.grad().\n"
      "hint: Specify retain_graph=True if you need to backward through the graph a second time or "
      "if you need to access saved tensors after calling backward.");
}

void raise_modified(Node* node, const Saved& saved, const Tensor* t) {
  std::string origin;
  if (saved.output) {
    origin =
        ", which is output " + std::to_string(saved.output - 1) + " of " + node_name(node) + ",";
  } else if (t->autograd && t->autograd->node) {
    origin = ", which is output " + std::to_string(t->autograd->output_index) + " of " +
             node_name(t->autograd->node) + ",";
  }
  PyErr_Format(PyExc_RuntimeError,
               "[backward] one of the variables needed for gradient computation has been modified "
               "by an inplace operation: [torch.%sTensor %s]%s is at version %u; expected version "
               "%u instead\n"
               "hint: use the out-of-place operation or clone() the value first; "
               "autograd.set_detect_anomaly(True) names the line that computed it (%s)",
               dtype_info(t->dtype).title, sizes_text(t).c_str(), origin.c_str(), t->version(),
               saved.version, node_name(node).c_str());
}

// An alias of a saved value that has the history of the original again.
Tensor* with_history(Tensor* data, Node* node, uint64_t index, bool leaf_requires_grad) {
  auto alias = steal(tensor_detach(data));
  if (!alias) return nullptr;
  if (node) {
    set_history(alias.get(), node, static_cast<uint32_t>(index));
  } else if (Autograd* a = tensor_autograd(alias.get())) {
    a->requires_grad = leaf_requires_grad;
  }
  return PyErr_Occurred() ? nullptr : alias.release();
}

// Whether a tensor is a leaf without its history: a stream has one of them as its operand.
bool shows_leaf(Tensor* t, const Node* history) {
  if (!history || history->kind != NodeKind::Accumulate) return false;
  const Tensor* leaf = tensor_of(history->object);
  return t->storage == leaf->storage && t->offset == leaf->offset && t->dtype == leaf->dtype &&
         t->ndim == leaf->ndim && std::equal(t->dims, t->dims + 2 * t->ndim, leaf->dims) &&
         is_exact_tensor(object_of(t)) && (t->flags & kLazy) == (leaf->flags & kLazy);
}

Tensor* unpack_hooked(Node* node, const Saved& saved) {
  const Packed packed = node->extras->packed[saved.packed - 1];
  const auto object = share(saved.object);
  const Ref<Node> history = saved.output ? share(node) : packed.node;
  const uint64_t index = saved.output ? saved.output - 1u : packed.index;
  Ref<> value;
  {
    NoGrad guard;
    const auto args = steal(PyTuple_Pack(1, object.get()));
    value = steal(args ? record_call_user(packed.unpack.get(), args.get()) : nullptr);
  }
  if (!value) return nullptr;
  if (!is_tensor(value.get())) {
    PyErr_Format(PyExc_TypeError,
                 "[saved_tensors_hooks] Output of saved tensor unpack_hook expected to be a Tensor "
                 "but got result of type %s\nhint: return what pack was given",
                 Py_TYPE(value.get())->tp_name);
    return nullptr;
  }
  Tensor* data = tensor_of(value.get());
  if (active_recorder && shows_leaf(data, history.get())) {
    return tensor_of(Py_NewRef(history->object));
  }
  // A leaf owns its accumulator, an interior tensor its node: both are an edge.
  if (!grad_mode.enabled || !packed.requires_grad || !differentiable(data->dtype)) {
    return tensor_of(value.release());
  }
  if (history && history->kind == NodeKind::Accumulate) {
    return tensor_of(Py_NewRef(history->object));
  }
  return with_history(data, history.get(), index, true);
}

// ---------------------------------------------------------------- views
bool through_base(const Tensor* t) {
  const Autograd* a = t->autograd;
  return a && a->base && tensor_requires_grad(a->base);
}
bool needs_gradient(const Tensor* t) { return tensor_requires_grad(t) || through_base(t); }

bool check_creation(const Tensor* view, bool indirect) {
  const Autograd* a = view->autograd;
  const auto creation = static_cast<ViewCreation>(a->view_creation);
  if (creation == ViewCreation::Default || creation == ViewCreation::Bits) return true;
  std::string prefix = "A view";
  if (a->node) {
    prefix = "Output " + std::to_string(a->output_index) + " of " + node_name(a->node) +
             " is a view and";
  } else if (creation == ViewCreation::NoGrad) {
    prefix = "A view was created in no_grad mode and";
  }
  const char* what = indirect ? "its base or another view of its base has been modified inplace"
                              : "is being modified inplace";
  const char* why =
      creation == ViewCreation::NoGrad
          ? " with grad mode enabled. Given that this use case is ambiguous and error-prone, it is "
            "forbidden.\nhint: move both the view and the inplace either both inside the no_grad "
            "block (if you don't want the inplace to be tracked) or both outside (if you want it "
            "to be tracked)"
      : creation == ViewCreation::MultiOutput
          ? ". This view is the output of a function that returns multiple views. Such functions "
            "do not allow the output views to be modified inplace.\nhint: replace the inplace "
            "operation by an out-of-place one"
          : ". This view was created inside a custom Function (or because an input was returned "
            "as-is) and the autograd logic to handle view+inplace would override the custom "
            "backward associated with the custom Function, leading to incorrect gradients. This "
            "behavior is forbidden.\nhint: clone() the output of the custom Function";
  PyErr_Format(PyExc_RuntimeError, "[inplace] %s %s%s", prefix.c_str(), what, why);
  return false;
}

uint8_t form_of(const Tensor* t) {
  const int bits = (t->flags & kConjugate ? 1 : 0) | (t->flags & kNegative ? 2 : 0);
  return static_cast<uint8_t>(bits | (is_complex(t->dtype) ? 4 : 0));
}

std::unique_ptr<ViewGeometry> view_geometry(const Tensor* base, const Tensor* view) {
  auto g = std::make_unique<ViewGeometry>();
  g->base = metadata_of(base);
  g->view = metadata_of(view);
  g->base_strides.assign(base->strides(), base->strides() + base->ndim);
  g->view_strides.assign(view->strides(), view->strides() + view->ndim);
  g->base_offset = base->offset;
  g->view_offset = view->offset;
  g->base_form = form_of(base);
  g->view_form = form_of(view);
  g->inner_output = 0;
  g->inner_target = SIZE_MAX;
  return g;
}

// Complex numbers and their parts are views of each other that gradients pass; bits are not.
bool same_parts(const Tensor* base, const Tensor* view) {
  if (base->dtype == view->dtype) return true;
  const auto creation = static_cast<ViewCreation>(view->autograd->view_creation);
  if (creation != ViewCreation::Bits && to_real(base->dtype) == to_real(view->dtype)) return true;
  PyErr_Format(PyExc_NotImplementedError,
               "[inplace] writing through a view of another dtype (%s of %s) has no gradient\n"
               "hint: write to the base, or clone() the view first",
               dtype_name(view->dtype), dtype_name(base->dtype));
  return false;
}

// The result of a dissolved region has the history that it had inside.
void settle_history(Autograd* a) {
  if (!a->node || !a->node->dissolved) return;
  const Edge front = front_of({a->node, a->output_index});
  assign(a->node, share(front.node));
  a->output_index = static_cast<uint32_t>(front.index);
}

void move_retained(Autograd* a, Node* to, uint32_t to_index) {
  settle_history(a);
  Node* from = a->node;
  const uint32_t index = a->output_index;
  if (!from || !from->extras) return;
  std::vector<RetainedOutput>& all = from->extras->retained;
  for (size_t i = 0; i < all.size();) {
    if (all[i].index != index || !node_extras(to)) {
      ++i;
      continue;
    }
    to->extras->retained.push_back({to_index, std::move(all[i].reference)});
    all.erase(all.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

// History of a view in terms of its base as it is now.
bool attach_strided_history(Tensor* view) {
  Autograd* a = view->autograd;
  Tensor* base = a->base;
  if (!same_parts(base, view)) return false;
  const auto node = steal(node_new(NodeKind::AsStrided, 1, 0, 0));
  if (!node || !node_extras(node.get()) || !gradient_edge(base, &node->edge(0))) return false;
  node->extras->view = view_geometry(base, view);
  if (a->retains_grad) move_retained(a, node.get(), 0);
  set_history(view, node.get(), 0);
  a->view_version = view->version();
  return true;
}

bool refresh_view(Tensor* view) {
  Autograd* a = view->autograd;
  if (a->view_version == view->version() || !tensor_requires_grad(a->base)) return true;
  return check_creation(view, true) && attach_strided_history(view);
}

// ---------------------------------------------------------------- recording
bool is_saved(const Source& s) {
  return s.kind == Source::SavedInput || s.kind == Source::SavedOutput;
}

bool fill_edges(Node* node, const BackwardSpec& backward, const Call& call) {
  for (size_t i = 0; i < backward.targets.size(); ++i) {
    Tensor* t = call.tensors[backward.targets[i]];
    if (t && !gradient_edge(t, &node->edge(i))) return false;
  }
  return true;
}

bool fill_saved(Node* node, const BackwardSpec& backward, const Call& call, PyObject** outputs) {
  size_t saved = 0, scalars = 0;
  const int32_t visible = node->instance->plan->visible;
  for (const Source& s : backward.arguments) {
    if (s.kind == Source::SavedInput) {
      Tensor* t = call.tensors[s.index];
      if (t && !save_tensor(node, saved, t, 0)) return false;
      ++saved;
    } else if (s.kind == Source::SavedOutput) {
      Tensor* t = tensor_of(outputs[s.index]);
      const bool linked = static_cast<uint32_t>(s.index) < node->output_count;
      const auto tag = static_cast<uint16_t>(linked ? s.index + 1 : 0);
      if (t && !save_tensor(node, saved, t, tag, s.index >= visible)) return false;
      ++saved;
    } else if (s.kind == Source::ScalarArgument) {
      node->scalar(scalars++) = {call.scalars[s.index], call.scalar_is_float[s.index]};
    }
  }
  return true;
}

Node* node_of_call(const Instance* instance, const Call& call, PyObject** outputs) {
  const BackwardSpec& backward = *instance->plan->backward;
  size_t saved = 0, scalars = 0;
  int32_t outputs_taken = instance->plan->visible;
  for (const Source& s : backward.arguments) {
    saved += is_saved(s);
    scalars += s.kind == Source::ScalarArgument;
    if (s.kind == Source::GradOutput && s.index >= outputs_taken) outputs_taken = s.index + 1;
  }
  auto node = steal(node_new(NodeKind::Plan, backward.targets.size(), saved, scalars));
  if (!node) return nullptr;
  node->instance = share(const_cast<Instance*>(instance)).release();
  if (active_recorder) node->recorded = record_place(instance);
  node->output_count = static_cast<uint32_t>(outputs_taken);
  node->visible_count = static_cast<uint32_t>(instance->plan->visible);
  const bool fine = fill_edges(node.get(), backward, call) &&
                    fill_saved(node.get(), backward, call, outputs) && note_anomaly(node.get());
  return fine ? node.release() : nullptr;
}

bool is_mutated(const Plan* plan, int32_t slot) {
  return std::find(plan->mutated.begin(), plan->mutated.end(), slot) != plan->mutated.end();
}

bool was_written(const Tensor* t, const Plan* plan, const Call& call) {
  return std::any_of(plan->mutated.begin(), plan->mutated.end(),
                     [&](int32_t slot) { return call.tensors[slot] == t; });
}

// While the node of an in-place call is built, its inputs count as not yet written.
class BeforeWrite {
 public:
  BeforeWrite(const Plan* plan, const Call& call) : plan_(plan), call_(call) { step(-1); }
  ~BeforeWrite() { step(1); }
  BeforeWrite(const BeforeWrite&) = delete;
  BeforeWrite& operator=(const BeforeWrite&) = delete;

 private:
  void step(int by) {
    for (int32_t slot : plan_->mutated) call_.tensors[slot]->version() += static_cast<uint32_t>(by);
  }
  const Plan* plan_;
  const Call& call_;
};

// Outputs saved by an in-place call were saved after the write.
void date_saved_outputs(Node* node) {
  for (size_t i = 0; i < node->saved_count; ++i) {
    Saved& s = node->saved(i);
    if (s.output && s.object && !s.packed) s.version = tensor_of(s.object)->version();
  }
}

size_t edge_of_slot(const BackwardSpec& backward, int32_t slot) {
  const auto found = std::find(backward.targets.begin(), backward.targets.end(), slot);
  return found == backward.targets.end() ? SIZE_MAX
                                         : static_cast<size_t>(found - backward.targets.begin());
}

bool attach_inplace_outputs(Node* node, const Call& call, PyObject** outputs) {
  const Plan* plan = node->instance->plan;
  for (int32_t k = 0; k < plan->visible; ++k) {
    const OutputSpec& spec = plan->outputs[k];
    Tensor* t = tensor_of(outputs[k]);
    const auto index = static_cast<uint32_t>(k);
    if (spec.kind == OutputSpec::Input) t = call.tensors[spec.input];
    if (!t || spec.kind == OutputSpec::None || !differentiable(t->dtype)) continue;
    if (spec.kind != OutputSpec::Input) {
      set_history(t, node, index);
      continue;
    }
    if (!is_mutated(plan, spec.input)) continue;
    NodeExtras* extras = node_extras(node);
    if (!extras) return false;
    extras->outputs.resize(static_cast<size_t>(plan->visible));
    extras->outputs[index] = metadata_of(t);
    if (!rebase_history(t, node, index, edge_of_slot(*plan->backward, spec.input))) return false;
  }
  return !PyErr_Occurred();
}

bool overwrite_history(Tensor* target, const Instance* instance) {
  if (!differentiable(target->dtype) || !needs_gradient(target)) return true;
  const auto node = steal(node_new(NodeKind::Constant, 1, 0, 0));
  if (!node) return false;
  node->instance = share(const_cast<Instance*>(instance)).release();
  --target->version();
  const bool fine = gradient_edge(target, &node->edge(0));
  ++target->version();
  return fine && rebase_history(target, node.get(), 0, 0);
}

// One node serves the call, however many tensors it wrote.
bool recorded_already(const Tensor* target, const Plan* plan, const Call& call,
                      PyObject** outputs) {
  if (!plan->mutated.empty()) return call.tensors[plan->mutated[0]] != target;
  for (int32_t k = 0; k < plan->visible; ++k) {
    if (plan->outputs[k].kind != OutputSpec::New || !outputs[k]) continue;
    const Autograd* a = tensor_of(outputs[k])->autograd;
    if (a && a->node) return true;
  }
  return false;
}

// The write went through a view: the base's gradient is split between the old base and `inner`.
bool rebase_base(Tensor* view, Node* inner, uint32_t index, size_t target_edge) {
  Tensor* base = view->autograd->base;
  if (!check_creation(view, false) || !same_parts(base, view)) return false;
  const size_t others = inner->edge_count - (target_edge != SIZE_MAX ? 1 : 0);
  const auto copy = steal(node_new(NodeKind::CopySlices, 1 + others, 0, 0));
  if (!copy || !node_extras(copy.get()) || !gradient_edge(base, &copy->edge(0))) return false;
  copy->extras->view = view_geometry(base, view);
  copy->extras->view->inner_output = index;
  copy->extras->view->inner_target = target_edge;
  copy->object = Py_NewRef(object_of(inner));
  // The inner node retains its edges: its saved tensors have a history in a second derivative.
  for (size_t i = 0, to = 1; i < inner->edge_count; ++i) {
    if (i == target_edge) continue;
    copy->edge(to++) = {share(inner->edge(i).node).release(), inner->edge(i).index};
  }
  Autograd* a = base->autograd ? base->autograd : tensor_autograd(base);
  if (!a || !note_anomaly(copy.get())) return false;
  if (a->retains_grad) move_retained(a, copy.get(), 0);
  set_history(base, copy.get(), 0);
  return attach_strided_history(view);
}

}  // namespace

// ---------------------------------------------------------------- shared with other files
bool note_anomaly(Node* node) {
  if (!anomaly_recorder) return true;
  NoGrad guard;
  return static_cast<bool>(steal(PyObject_CallOneArg(anomaly_recorder, object_of(node))));
}

constexpr int kSpareAutograds = 1024;
static void* spare_autograds[kSpareAutograds];
static int spare_autograd_count = 0;

void* Autograd::operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return spare_autograd_count > 0 ? spare_autograds[--spare_autograd_count] : PyMem_Malloc(bytes);
}
void Autograd::operator delete(void* block) noexcept {
  if (spare_autograd_count < kSpareAutograds) {
    spare_autograds[spare_autograd_count++] = block;
  } else {
    PyMem_Free(block);
  }
}

OutputMetadata metadata_of(const Tensor* t) {
  return {t->dtype, t->device, true, std::vector<int64_t>(t->sizes(), t->sizes() + t->ndim)};
}

Node* accumulator_of(Tensor* leaf) {
  Autograd* a = tensor_autograd(leaf);
  if (!a) return nullptr;
  if (a->accumulator) return share(a->accumulator).release();
  Node* node = node_new(NodeKind::Accumulate, 0, 0, 0);
  if (!node) return nullptr;
  node->object = Py_NewRef(object_of(leaf));
  a->accumulator = node;
  return node;
}

bool gradient_edge(Tensor* t, Edge* out) {
  *out = {nullptr, 0};
  Autograd* a = t->autograd;
  if (!a) return true;
  if (a->base && !refresh_view(t)) return false;
  settle_history(a);
  if (a->node) {
    *out = {share(a->node).release(), a->output_index};
    return true;
  }
  if (!needs_gradient(t)) return true;
  out->node = accumulator_of(t);
  return out->node != nullptr;
}

void set_history(Tensor* t, Node* node, uint32_t index) {
  Autograd* a = tensor_autograd(t);
  if (!a) return;
  a->output_index = index;
  a->requires_grad = false;
  assign(a->node, share(node));
  if (active_recorder) record_taped(t);
}

bool rebase_history(Tensor* target, Node* node, uint32_t index, size_t target_edge) {
  Autograd* a = target->autograd;
  if (a && a->base) return rebase_base(target, node, index, target_edge);
  if (a && a->retains_grad) move_retained(a, node, index);
  set_history(target, node, index);
  return !PyErr_Occurred();
}

bool save_tensor(Node* node, size_t position, Tensor* t, uint16_t output, bool hidden) {
  if ((t->flags & kInference) && !grad_mode.inference) {
    PyErr_SetString(PyExc_RuntimeError,
                    "[autograd] Inference tensors cannot be saved for backward. Please do not use "
                    "Tensors created in inference mode in computation tracked by autograd.\n"
                    "hint: clone() it to get a normal tensor, or use no_grad() instead of "
                    "inference_mode()");
    return false;
  }
  Saved& saved = node->saved(position);
  saved = {nullptr, t->version(), output, 0};
  SavedHooks hooks;
  if (saved_hooks_active(&hooks)) return pack_tensor(node, &saved, t, hooks);
  if (!output || hidden) {
    saved.object = Py_NewRef(object_of(t));
    return true;
  }
  saved.object = object_of(tensor_detach(t));
  return saved.object != nullptr;
}

Tensor* unpack_saved(Node* node, size_t position) {
  if (node->released) {
    raise_second_time();
    return nullptr;
  }
  const Saved& saved = node->saved(position);
  if (!saved.object) return nullptr;
  if (saved.packed) return unpack_hooked(node, saved);
  auto t = share(tensor_of(saved.object));  // another backward may release the node
  if (t->version() != saved.version) {
    raise_modified(node, saved, t.get());
    return nullptr;
  }
  if (!saved.output || !grad_mode.enabled || !differentiable(t->dtype)) return t.release();
  return with_history(t.get(), node, saved.output - 1u, false);
}

bool mark_view_as(Tensor* view, Tensor* base, ViewCreation creation) {
  if (!differentiable(base->dtype) || view == base) return true;
  const Autograd* from = base->autograd;
  Autograd* a = tensor_autograd(view);
  if (!a) return false;
  if (from && from->base && from->view_creation) {
    creation = static_cast<ViewCreation>(from->view_creation);
  }
  Tensor* root = from && from->base ? from->base : base;
  assign(a->base, share(root));
  a->view_version = view->version();
  a->view_creation = static_cast<uint8_t>(creation);
  view->flags |= kIsView;
  return true;
}

bool check_inplace_on(Tensor* target, bool will_record) {
  const Autograd* a = target->autograd;
  if (!will_record || !a) return true;
  if (a->base) {
    if (!check_creation(target, false)) return false;
    const Autograd* base = a->base->autograd;
    if (base && base->requires_grad && !base->node) {
      PyErr_SetString(PyExc_RuntimeError,
                      "[inplace] a view of a leaf Variable that requires grad is being used in an "
                      "in-place operation.\nhint: wrap it in no_grad(), or clone() the leaf first");
      return false;
    }
  } else if (a->requires_grad && !a->node) {
    PyErr_SetString(PyExc_RuntimeError,
                    "[inplace] a leaf Variable that requires grad is being used in an in-place "
                    "operation.\nhint: wrap it in no_grad(), or clone() it first");
    return false;
  }
  return true;
}

// ---------------------------------------------------------------- the interface of core.h
bool tape_record(const Instance* instance, const Call& call, PyObject** outputs) {
  const Plan* plan = instance->plan;
  bool any = false;
  for (int32_t k = 0; k < plan->visible && !any; ++k) {
    const OutputSpec& spec = plan->outputs[k];
    any = (spec.kind == OutputSpec::New || spec.kind == OutputSpec::Alias) &&
          differentiable(spec.dtype);
  }
  if (!any) return true;
  const auto node = steal(node_of_call(instance, call, outputs));
  if (!node) return false;
  for (int32_t k = 0; k < plan->visible; ++k) {
    const OutputSpec& spec = plan->outputs[k];
    if (spec.kind != OutputSpec::New && spec.kind != OutputSpec::Alias) continue;
    if (outputs[k] && spec.tracked && differentiable(spec.dtype)) {
      set_history(tensor_of(outputs[k]), node.get(), static_cast<uint32_t>(k));
    }
  }
  return !PyErr_Occurred();
}

bool tape_check_inference(const Tensor* target) {
  if (!(target->flags & kInference) || grad_mode.inference) return true;
  PyErr_SetString(PyExc_RuntimeError,
                  "[inplace] Inplace update to inference tensor outside InferenceMode is not "
                  "allowed.\nhint: clone() it to get a normal tensor before the inplace update");
  return false;
}

bool tape_check_inplace(Tensor* target) {
  if (!tape_check_inference(target)) return false;
  if (!grad_mode.enabled || !target->autograd) return true;
  return check_inplace_on(target, needs_gradient(target));
}

bool tape_after_inplace(Tensor* target, const Instance* instance, const Call& call,
                        PyObject** outputs) {
  const Plan* plan = instance->plan;
  if (!plan->backward) {
    return !was_written(target, plan, call) || overwrite_history(target, instance);
  }
  if (recorded_already(target, plan, call, outputs)) return true;
  Ref<Node> node;
  {
    BeforeWrite before(plan, call);
    node = steal(node_of_call(instance, call, outputs));
  }
  if (!node) return false;
  date_saved_outputs(node.get());
  return attach_inplace_outputs(node.get(), call, outputs);
}

// Whether a call gave several views of the tensor that output k is a view of.
static bool has_sibling(const Plan* plan, uint32_t k) {
  const int32_t base = plan->outputs[k].input;
  for (int32_t j = 0; j < plan->visible; ++j) {
    const OutputSpec& other = plan->outputs[static_cast<size_t>(j)];
    if (static_cast<uint32_t>(j) != k && other.kind == OutputSpec::Alias && other.input == base) {
      return true;
    }
  }
  return false;
}

bool tape_mark_view(Tensor* view, Tensor* base, bool single) {
  if (!grad_mode.enabled && !needs_gradient(base)) return true;
  ViewCreation creation = grad_mode.enabled ? ViewCreation::Default : ViewCreation::NoGrad;
  const Node* node = view->autograd ? view->autograd->node : nullptr;
  const bool many = node && node->kind == NodeKind::Plan &&
                    node->instance->plan->returns != ReturnKind::Single &&
                    has_sibling(node->instance->plan, view->autograd->output_index);
  const bool parts = node && node->kind == NodeKind::Parts;
  if (!single && (many || parts)) creation = ViewCreation::MultiOutput;
  const bool bits = view->dtype != base->dtype && view->ndim == base->ndim;  // no parts of numbers
  if (bits && creation == ViewCreation::Default) creation = ViewCreation::Bits;
  return mark_view_as(view, base, creation);
}

PyObject* tape_shown_node(Node* node, uint32_t output_index) {
  return node_shown_for(node, output_index);
}

Node* tape_gradient_node(Tensor* t, uint32_t* output_index) {
  *output_index = 0;
  Autograd* a = t->autograd;
  if (!a) return nullptr;
  if (a->base && !refresh_view(t)) return nullptr;
  settle_history(a);
  *output_index = a->output_index;
  return a->node;
}

}  // namespace fb
