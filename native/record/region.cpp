// The end of a compiled region whose results need a gradient: differentiation ahead of time.
//
// While the region was recorded, every op made its tape node as in eager mode. At the end the real
// engine runs backward over them once, symbolically: its op calls are appended to the stream. The
// joint program is cut in two by Python (capture/joint.py): a forward Plan that also returns what
// is dear to compute again, and a backward op. The results then get ONE node. A known stream skips
// all of that: its Plan is found by key.
//
// The old tape stays behind the node, with the recorder that owes its values (`kept`): reading one
// of them runs the stream again, with the same draws. A backward with create_graph makes the node
// dissolve: from then on the engine sees the old tape, for gradients of gradients meet those of
// results inside of the region, where eager mode adds them. So does a backward from results that
// the one which freed the node did not come from. A node whose own hooks have no place in the old
// tape stays, and runs it as one step.
#include "record/region.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "call/describe.h"
#include "call/op_internal.h"

namespace fb {

namespace {

PyObject* joint_compiler = nullptr;
// Gradients that meet at an edge out of the region are added in the order of eager mode, which has
// those from outside that were there before as the first summands. Few are handed on one by one. A
// sum of more than this is made inside, and goes on from what the edge holds by then: a gradient
// that the backward op takes (HeldGradient).
constexpr size_t kSummands = 4;
using Parts = std::vector<std::vector<Ref<Tensor>>>;
constexpr const char* kTapeName = "flambeau.region_tape";

// Null + exception: its tape cannot be built again.
RegionTape* tape_of(const Node* node) {
  auto* tape = static_cast<RegionTape*>(PyCapsule_GetPointer(node->object, kTapeName));
  return tape && !tape->recorder && !replay_tape(tape) ? nullptr : tape;
}

void free_tape(PyObject* capsule) {
  auto* tape = static_cast<RegionTape*>(PyCapsule_GetPointer(capsule, kTapeName));
  for (Edge& edge : tape->roots) drop(edge.node);
  if (tape->recorder) record_release(tape->recorder);
  delete tape;
}

// ---------------------------------------------------------------- who holds what
// References to tensors that only the tape has. A tensor with more of them is a result.
struct Census {
  const Recorder* recorder;
  std::unordered_map<Tensor*, Py_ssize_t> inside;
  std::unordered_set<Node*> seen;
  std::vector<Node*> nodes;

  bool inner(const Node* node) const { return node->recorded.epoch == recorder->epoch; }
  void visit(Node* node) {
    if (node && inner(node) && seen.insert(node).second) nodes.push_back(node);
  }
  void hold(Tensor* t) {
    if (++inside[t] > 1 || !t->autograd) return;
    visit(t->autograd->node);
    if (t->autograd->base) hold(t->autograd->base);
  }
  bool is_result(Tensor* t) const { return object_of(t)->ob_refcnt > inside.at(t); }
};

void take_census(Census* census) {
  for (Tensor* t : census->recorder->taped) census->hold(t);
  for (size_t i = 0; i < census->nodes.size(); ++i) {  // grows while it is walked
    Node* node = census->nodes[i];
    for (size_t k = 0; k < node->saved_count; ++k) {
      const Saved& saved = node->saved(k);
      if (saved.object && !saved.packed) census->hold(tensor_of(saved.object));
    }
    for (size_t k = 0; k < node->edge_count; ++k) census->visit(node->edge(k).node);
  }
}

std::vector<int32_t> live_outside(const Recorder* r, const Census& census) {
  std::vector<int64_t> inside(r->states.size(), 1);
  for (const auto& [t, count] : census.inside) {
    if (object_of(t)->ob_refcnt > count) continue;
    const auto found = r->state_of.find(t->storage);
    if (found != r->state_of.end()) ++inside[found->second];
  }
  std::vector<int32_t> live;
  for (size_t i = 0; i < r->states.size(); ++i) {
    const StorageState& state = r->states[i];
    const bool held = state.storage->references.load() > inside[i];
    if ((state.fresh && held) || (!state.fresh && state.written)) live.push_back(state.latest);
  }
  return live;
}

// ---------------------------------------------------------------- can it be done?
bool fit_root(const Recorder* r, const Census& census, const Tensor* t) {
  const Autograd* a = t->autograd;
  if (!a || !a->node || a->retains_grad || !census.inner(a->node)) return false;
  if (t->record_epoch != r->epoch || t->value_id < 0) return false;
  const StorageState& state = r->states[r->values[t->value_id].state];
  if (!state.fresh || (state.written && state.latest != t->value_id)) return false;
  return !a->base || (a->base->storage == t->storage && !census.is_result(a->base));
}

bool find_roots(const Recorder* r, const Census& census, Region* region) {
  std::unordered_set<const Storage*> storages;
  for (Tensor* t : r->taped) {
    if (!census.is_result(t)) continue;
    if (std::find(region->roots.begin(), region->roots.end(), t) != region->roots.end()) continue;
    if (!fit_root(r, census, t) || !storages.insert(t->storage).second) return false;
    region->roots.push_back(t);
  }
  std::sort(region->roots.begin(), region->roots.end(),
            [](const Tensor* a, const Tensor* b) { return a->value_id < b->value_id; });
  return !region->roots.empty();
}

// Whether nobody has added to what the node does. (An in-place op's has metadata of its results.)
bool untouched(const NodeExtras* extras) {
  return !extras || (!extras->metadata && !extras->prehooks && !extras->posthooks &&
                     !extras->inner && extras->tensor_hooks.empty() && extras->retained.empty() &&
                     extras->packed.empty() && !extras->view && !extras->list);
}

bool fit_node(const Recorder* r, Node* node) {
  if (node->kind != NodeKind::Plan || !untouched(node->extras) || node->released) return false;
  if (node->recorded.index >= r->records.size()) return false;
  for (size_t k = 0; k < node->saved_count; ++k) {
    const Saved& saved = node->saved(k);
    if (saved.object && tensor_of(saved.object)->version() != saved.version) return false;
  }
  return true;
}

uint64_t number_outer(Region* region, const Edge& edge) {
  const Edge end = front_of(edge);
  for (size_t i = 0; i < region->outer.size(); ++i) {
    if (region->outer[i].node == end.node && region->outer[i].index == end.index) return i;
  }
  region->outer.push_back(end);
  return region->outer.size() - 1;
}

bool walk_nodes(const Recorder* r, const Census& census, Region* region) {
  std::unordered_set<Node*> seen;
  for (const Tensor* t : region->roots) {
    if (seen.insert(t->autograd->node).second) region->nodes.push_back(t->autograd->node);
  }
  for (size_t i = 0; i < region->nodes.size(); ++i) {
    Node* node = region->nodes[i];
    if (!fit_node(r, node)) return false;
    for (size_t k = 0; k < node->edge_count; ++k) {
      Node* next = node->edge(k).node;
      if (next && census.inner(next) && seen.insert(next).second) region->nodes.push_back(next);
    }
  }
  std::sort(region->nodes.begin(), region->nodes.end(),
            [](const Node* a, const Node* b) { return a->sequence < b->sequence; });
  return true;
}

// Key: the nodes, and where their edges that leave the region go.
void describe_region(const Census& census, Region* region) {
  PlanCache::Key& words = region->words;
  words.push_back(~1ull);
  for (const Tensor* t : region->roots) words.push_back(static_cast<uint64_t>(t->value_id));
  for (Node* node : region->nodes) {
    words.push_back(~2ull - node->recorded.index);
    for (size_t k = 0; k < node->edge_count; ++k) {
      const Edge& edge = node->edge(k);
      const bool leaves = edge.node && !census.inner(edge.node);
      words.push_back(leaves ? number_outer(region, edge) : ~0ull);
    }
  }
}

}  // namespace

bool region_examine(const Recorder* r, Region* region) {
  Census census{r, {}, {}, {}};
  take_census(&census);
  if (!find_roots(r, census, region) || !walk_nodes(r, census, region)) return false;
  describe_region(census, region);
  region->live = live_outside(r, census);
  return !region->outer.empty();
}

bool region_has_results(const Recorder* r) {
  Census census{r, {}, {}, {}};
  take_census(&census);
  return std::any_of(r->taped.begin(), r->taped.end(),
                     [&](Tensor* t) { return census.is_result(t); });
}

namespace {

// ---------------------------------------------------------------- the first time
struct Snapshot {  // of the stream before the symbolic backward
  size_t records, values, externals;
  std::vector<StorageState> states;
};

void restore(Recorder* r, const Snapshot& before) {
  for (size_t i = before.records; i < r->records.size(); ++i) {
    instance_decref(r->records[i].instance);
    for (PyObject*& object : r->records[i].objects) drop(object);
  }
  r->records.resize(before.records);
  r->values.resize(before.values);
  for (size_t i = before.states.size(); i < r->states.size(); ++i) {
    Storage* storage = r->states[i].storage;
    r->state_of.erase(storage);
    if (storage->pending) storage->recorder = nullptr;
    storage_decref(storage);
  }
  r->states = before.states;
  for (size_t i = before.externals; i < r->externals.size(); ++i) drop(r->externals[i]);
  r->externals.resize(before.externals);
}

PyObject* edge_tuple(const Edge& edge) {
  return Py_BuildValue("(OK)", object_of(edge.node), static_cast<unsigned long long>(edge.index));
}

// Gradients of the outer edges; null entries of `grads` are left out. New reference to a tuple.
PyObject* run_engine(const std::vector<Edge>& roots, Tensor* const* grads,
                     const std::vector<Edge>& outer, bool create, Parts* parts) {
  const auto tensors = steal(PyList_New(0)), gradients = steal(PyList_New(0));
  if (!tensors || !gradients) return nullptr;
  for (size_t i = 0; i < roots.size(); ++i) {
    if (!grads[i]) continue;
    if (!append_item(tensors.get(), edge_tuple(roots[i])) ||
        PyList_Append(gradients.get(), object_of(grads[i])) < 0) {
      return nullptr;
    }
  }
  PyObject* inputs = build_tuple(outer.size(), [&](size_t i) { return edge_tuple(outer[i]); });
  if (!inputs) return nullptr;
  const auto args =
      steal(Py_BuildValue("(NNiiNii)", PyList_AsTuple(tensors.get()),
                          PyList_AsTuple(gradients.get()), 1, create ? 1 : 0, inputs, 1, 0));
  return args ? engine_gradients(args.get(), parts) : nullptr;
}

// (value of the root, external slot of its gradient) each; null + exception.
PyObject* seed_roots(Recorder* r, const Region& region, Refs<Tensor>* seeds) {
  return build_list(region.roots.size(), [&](size_t i) -> PyObject* {
    const Tensor* root = region.roots[i];
    Tensor* seed = tensor_empty(root->dtype, root->device, root->ndim, root->sizes());
    if (!seed) return nullptr;
    seeds->values.push_back(seed);
    int32_t id = -1;
    if (!record_resolve(r, seed, &id)) return nullptr;
    return described(Description::Live,
                     {PyLong_FromLong(root->value_id), PyLong_FromLong(r->values[id].source)});
  });
}

// What the symbolic backward found: lists for Python, see capture/joint.py.
struct Found {
  Ref<> grads = steal(PyList_New(0));  // (value, number of the edge)
  Ref<> held = steal(PyList_New(0));   // (value of the first summand, external slot, of `grads`)
  size_t sums = 0;                     // first record of the sums that go on from what edges hold
};

bool append_gradient(Recorder* r, PyObject* list, Tensor* grad, size_t edge) {
  int32_t id = -1;
  return record_resolve(r, grad, &id) &&
         append_item(list, Py_BuildValue("(in)", id, static_cast<Py_ssize_t>(edge)));
}

// The sum as the engine makes it, after what the edge holds.
bool append_sum(Recorder* r, Found* found, const std::vector<Ref<Tensor>>& parts, size_t edge) {
  const Ref<Tensor>& like = parts.front();
  auto sum = steal(tensor_empty(like->dtype, like->device, like->ndim, like->sizes()));
  int32_t first = -1, held = -1;
  if (!sum || !record_resolve(r, like.get(), &first) || !record_resolve(r, sum.get(), &held) ||
      !append_item(found->held.get(),
                   described(Description::Held,
                             {PyLong_FromLong(first), PyLong_FromLong(r->values[held].source),
                              PyLong_FromSsize_t(PyList_GET_SIZE(found->grads.get()))}))) {
    return false;
  }
  for (Ref<Tensor> part : parts) {
    if (!add_gradient(sum.slot(), part.release())) return false;
  }
  return append_gradient(r, found->grads.get(), sum.get(), edge);
}

// False: they are not part of the stream.
bool find_gradients(Recorder* r, const Parts& parts, Found* found) {
  bool fine = found->grads && found->held;
  found->sums = r->records.size();
  for (size_t i = 0; fine && i < parts.size(); ++i) {
    if (parts[i].size() > kSummands) {
      fine = append_sum(r, found, parts[i], i);
      continue;
    }
    for (const auto& part : parts[i]) {
      fine = fine && append_gradient(r, found->grads.get(), part.get(), i);
    }
  }
  return fine;
}

bool writes(const Recorder* r, size_t from) {
  return std::any_of(r->records.begin() + static_cast<std::ptrdiff_t>(from), r->records.end(),
                     [](const Record& x) { return !x.instance->plan->mutated.empty(); });
}

struct Building {
  Recorder* recorder;
  const Region* region;
};

PyObject* compile_joint(Recorder* r, const Region& region, const Snapshot& before, PyObject* seeds,
                        const Parts& parts) {
  Found found;
  if (writes(r, before.records) || !find_gradients(r, parts, &found)) return nullptr;
  active_recorder = nullptr;
  const auto stream = steal(describe_stream(r, region.live, true));
  const auto backward = steal(
      described(Description::Backward,
                {PyLong_FromSize_t(before.records), PyLong_FromSize_t(before.externals),
                 PyLong_FromSize_t(region.outer.size()), Py_NewRef(seeds), found.grads.release(),
                 PyLong_FromSize_t(found.sums), found.held.release()}));
  return call_object(joint_compiler, stream, backward);
}

// The joint Plan, or None where this stream has to do without.
PyObject* build_joint(void* context) {
  const auto* building = static_cast<Building*>(context);
  Recorder* r = building->recorder;
  const Region& region = *building->region;
  const Snapshot before{r->records.size(), r->values.size(), r->externals.size(), r->states};
  const uint32_t epoch = r->epoch;
  Refs<Tensor> seeds;
  std::vector<Edge> roots;
  for (const Tensor* t : region.roots) {
    roots.push_back({t->autograd->node, t->autograd->output_index});
  }
  active_recorder = r;
  r->symbolic = true;
  PyObject* plan = nullptr;
  bool derived = false;
  {
    Parts parts;
    const auto pairs = steal(seed_roots(r, region, &seeds));
    const auto gradients = steal(
        pairs ? run_engine(roots, seeds.values.data(), region.outer, false, &parts) : nullptr);
    derived = gradients && r->epoch == epoch;
    if (derived) plan = compile_joint(r, region, before, pairs.get(), parts);
    active_recorder = nullptr;
  }
  if (r->epoch == epoch) restore(r, before);
  r->symbolic = false;
  if (plan) return plan;
  if (PyErr_Occurred()) {
    // What is wrong with a gradient shows when it is asked for. Interrupts, and errors of the
    // compiler, show here.
    if (derived || !PyErr_ExceptionMatches(PyExc_Exception)) return nullptr;
    PyErr_Clear();
  }
  Py_RETURN_NONE;
}

// ---------------------------------------------------------------- the node
bool save_value(Node* node, size_t position, const RegionRun& run, const Source& s) {
  const auto index = static_cast<size_t>(s.index);
  if (s.kind == Source::SavedInput) {
    Tensor* t = run.externals[index];
    return !t || save_tensor(node, position, t, 0);
  }
  Tensor* t = tensor_of(run.outputs[index]);
  if (!t || index >= run.shared) return !t || save_tensor(node, position, t, 0);
  const auto alias = steal(tensor_detach(t));  // the node would own itself
  return alias && save_tensor(node, position, alias.get(), 0);
}

bool fill_saved(Node* node, const RegionRun& run) {
  size_t saved = 0, scalars = 0;
  for (const Source& s : run.instance->plan->backward->arguments) {
    if (s.kind == Source::SavedInput || s.kind == Source::SavedOutput) {
      if (!save_value(node, saved++, run, s)) return false;
    } else if (s.kind == Source::ScalarArgument) {
      const auto index = static_cast<size_t>(s.index);
      node->scalar(scalars++) = {run.scalars[index], run.scalar_is_float[index]};
    }
  }
  return true;
}

}  // namespace

Node* region_node(const RegionRun& run, const std::vector<Edge>& outer,
                  std::vector<OutputMetadata> roots) {
  Instance* instance = run.instance;
  size_t saved = 0, scalars = 0;
  bool goes_on = false;
  for (const Source& s : instance->plan->backward->arguments) {
    saved += s.kind == Source::SavedInput || s.kind == Source::SavedOutput;
    scalars += s.kind == Source::ScalarArgument;
    goes_on |= s.kind == Source::HeldGradient;
  }
  // Edges that get no gradient are left out: targets are numbers of edges here.
  const std::vector<int32_t>& targets = instance->plan->backward->targets;
  if (!takes_edges(instance->plan, outer.size())) return nullptr;
  auto node = steal(node_new(NodeKind::Plan, targets.size(), saved, scalars));
  if (!node) return nullptr;
  node->instance = share(instance).release();
  node->goes_on = goes_on;
  node->output_count = node->visible_count = static_cast<uint32_t>(roots.size());
  for (size_t i = 0; i < targets.size(); ++i) {
    const Edge& edge = outer[static_cast<size_t>(targets[i])];
    node->edge(i) = {share(edge.node).release(), edge.index};
  }
  if (!node_extras(node.get()) || !fill_saved(node.get(), run)) return nullptr;
  node->extras->outputs = std::move(roots);
  return node.release();
}

bool region_put_behind(Node* node, std::unique_ptr<RegionTape> tape) {
  node->object = PyCapsule_New(tape.get(), kTapeName, free_tape);
  if (node->object) tape.release();
  return node->object != nullptr;
}

std::vector<Node*> nodes_of_tape(const Recorder* r, const std::vector<Edge>& roots) {
  std::vector<Node*> nodes;
  std::unordered_set<Node*> seen;
  const auto visit = [&](Node* node) {
    const bool inner = node && node->recorded.epoch == r->epoch;
    if (inner && seen.insert(node).second) nodes.push_back(node);
  };
  for (const Edge& root : roots) visit(root.node);
  for (size_t i = 0; i < nodes.size(); ++i) {  // grows while it is walked
    for (size_t k = 0; k < nodes[i]->edge_count; ++k) visit(nodes[i]->edge(k).node);
  }
  return nodes;
}

void region_hold(Recorder* r) {
  r->kept = true;
  for (const StorageState& state : r->states) {
    if (state.storage->writer == r) state.storage->writer = nullptr;
  }
  r->versions.clear();
  for (const Tensor* t : r->externals) r->versions.push_back(t->storage->version);
}

namespace {

// The results' history becomes the node; the old one goes behind it.
bool attach(Recorder* r, Node* node, const Region& region) {
  auto owner = std::make_unique<RegionTape>();
  RegionTape* tape = owner.get();
  if (!region_put_behind(node, std::move(owner))) return false;
  tape->recorder = r;
  for (size_t k = 0; k < region.roots.size(); ++k) {
    Tensor* root = region.roots[k];
    Autograd* a = root->autograd;
    tape->roots.push_back({node_of(Py_NewRef(object_of(a->node))), a->output_index});
    set_history(root, node, static_cast<uint32_t>(k));
    drop(a->base);
    root->flags &= static_cast<uint8_t>(~kIsView);
  }
  region_hold(r);
  return true;
}

// Generators that stand where those of the stream's calls do, to draw the same numbers again.
class Generators {
 public:
  Generators() = default;
  bool copy(const Recorder* r) {
    std::unordered_map<Generator*, PyObject*> known;
    for (const Record& record : r->records) {
      for (PyObject* object : record.objects) {
        Generator* generator = generator_of(object);
        if (!generator) return false;
        PyObject*& first = known[generator];
        auto copy = first ? share(first) : steal(generator_copy(object));
        if (!copy) return false;
        first = copy.get();
        copies_.push_back(std::move(copy));
      }
    }
    return true;
  }
  void exchange(Recorder* r) {  // with what the calls have
    size_t at = 0;
    for (Record& record : r->records) {
      for (PyObject*& object : record.objects) {
        if (!object) object = Py_NewRef(Py_None);
        std::swap(object, *copies_[at++].slot());
      }
    }
  }

 private:
  std::vector<Ref<>> copies_;  // one per use
};

Node* node_of_region(const Recorder* r, Instance* instance, const Region& region,
                     const std::vector<PyObject*>& outputs) {
  std::vector<Scalar> scalars;
  std::vector<uint8_t> is_float;
  for (const Record& record : r->records) {
    scalars.insert(scalars.end(), record.scalars.begin(), record.scalars.end());
    is_float.insert(is_float.end(), record.scalar_is_float.begin(), record.scalar_is_float.end());
  }
  std::vector<OutputMetadata> roots;
  for (const Tensor* t : region.roots) roots.push_back(metadata_of(t));
  return region_node(
      {instance, r->externals.data(), scalars.data(), is_float.data(), outputs.data(), 0},
      region.outer, std::move(roots));
}

bool run_region(Recorder* r, Instance* instance, const Region& region) {
  Ref<Node> node;
  Refs<> outputs;
  Generators before;
  if (before.copy(r) && record_run(r, instance, region.live, &outputs.values)) {
    node = steal(node_of_region(r, instance, region, outputs.values));
  }
  const bool fine = node && attach(r, node.get(), region);
  if (fine) before.exchange(r);
  for (PyObject*& output : outputs.values) drop(output);
  record_drop_taped(r);
  return fine;
}

}  // namespace

RegionEnd region_finish(Recorder* r) {
  if (r->taped.empty() || !joint_compiler || anomaly_recorder) return RegionEnd::Plain;
  Region region;
  if (!region_examine(r, &region)) return RegionEnd::Plain;
  const Flushing flushing(r);  // other threads wait for its values
  Building building{r, &region};
  Instance* instance = record_instance(r, region.live, region.words, build_joint, &building);
  if (!instance) return PyErr_Occurred() ? RegionEnd::Failed : RegionEnd::Plain;
  const bool fine = run_region(r, instance, region);
  instance_decref(instance);
  return fine ? RegionEnd::Done : RegionEnd::Failed;
}

namespace {

// Whether the externals that a plan reads are what they were.
bool repeatable(const Recorder* r, const Plan* plan) {
  return std::all_of(
      plan->code->buffers.begin(), plan->code->buffers.end(), [&](const BufferSpec& buffer) {
        if (buffer.kind != BufferSpec::Input) return true;
        const auto slot = static_cast<size_t>(buffer.index);
        const Storage* storage = r->externals[slot]->storage;
        const auto state = r->state_of.find(r->externals[slot]->storage);
        return storage->version == r->versions[slot] && !r->states[state->second].written;
      });
}

bool run_again(Recorder* r, const std::vector<int32_t>& live, const char* reason) {
  Refs<> outputs;
  const auto instance = steal(record_instance(r, live, {}, nullptr, nullptr));
  Plan* plan = instance ? instance->plan : nullptr;
  if (PyErr_Occurred() || (plan && !plan->code && !plan_compile(plan))) return false;
  if (!plan || !repeatable(r, plan)) {
    PyErr_Format(PyExc_NotImplementedError,
                 "[compile] a value inside a compiled function is wanted after its end (%s), and "
                 "cannot be computed again: the function wrote to what it is computed of, or that "
                 "was written since\n"
                 "hint: call backward inside the compiled function",
                 reason);
    return false;
  }
  Generators again;
  if (!again.copy(r)) return false;
  again.exchange(r);
  const bool fine = record_run(r, instance.get(), live, &outputs.values);
  again.exchange(r);
  return fine;
}

}  // namespace

// A value behind a region's node is wanted after all: what is still pending is computed.
bool region_recompute(Recorder* r, const char* reason) {
  record_wait(r);
  if (r->flusher != 0) return true;  // it wants a value of its own: the caller says so
  if (r->interrupted && !record_resume_flush(r)) return false;
  std::vector<int32_t> live;
  for (const StorageState& state : r->states) {
    if (state.fresh && state.storage->pending && state.storage->references.load() > 1) {
      live.push_back(state.latest);
    }
  }
  if (live.empty()) return true;
  const Flushing flushing(r);
  return run_again(r, live, reason);
}

namespace {

// What observes a result goes over to the node that made it, which nobody could reach till now.
bool hand_over(NodeExtras* from, size_t k, const Edge& root) {
  NodeExtras* to = node_extras(root.node);
  if (!to) return false;
  if (k < from->tensor_hooks.size() && from->tensor_hooks[k]) {
    if (to->tensor_hooks.size() <= root.index) to->tensor_hooks.resize(root.index + 1u);
    to->tensor_hooks[root.index] = from->tensor_hooks[k];
  }
  for (const RetainedOutput& kept : from->retained) {
    if (kept.index == k) {
      to->retained.push_back({static_cast<uint32_t>(root.index), kept.reference});
    }
  }
  return true;
}

// Frees what the backwards before freed in eager mode: of nodes that lead to spent results.
void release_spent(const RegionTape* tape) {
  std::vector<Edge> spent;
  for (size_t k = 0; k < tape->spent.size(); ++k) {
    if (tape->spent[k]) spent.push_back(tape->roots[k]);
  }
  for (Node* node : nodes_of_tape(tape->recorder, spent)) node_release_saved(node);
}

// Hooks of a region's node are those of the node that its results have in eager mode, if it is one.
bool hooks_fit(const RegionTape* tape) {
  return std::all_of(tape->roots.begin(), tape->roots.end(),
                     [&](const Edge& e) { return e.node == tape->roots.front().node; });
}

bool hand_over_hooks(NodeExtras* from, Node* root) {
  NodeExtras* to = node_extras(root);
  if (!to) return false;
  if (from->prehooks) to->prehooks = from->prehooks;
  if (from->posthooks) to->posthooks = from->posthooks;
  return true;
}

}  // namespace

void region_spend(Node* node, Tensor* const* grads) {
  auto* tape = static_cast<RegionTape*>(PyCapsule_GetPointer(node->object, kTapeName));
  tape->spent.resize(node->output_count);
  for (uint32_t k = 0; k < node->output_count; ++k) {
    if (grads[k]) tape->spent[k] = true;
  }
  node->partly = std::find(tape->spent.begin(), tape->spent.end(), false) != tape->spent.end();
}

bool region_dissolve(Node* node, uint64_t task) {
  if (node->kind != NodeKind::Plan || !node->object || node->dissolved) return true;
  NodeExtras* extras = node->extras;
  RegionTape* tape = tape_of(node);
  if (!tape) return false;
  const bool hooked = extras->prehooks || extras->posthooks;
  if (hooked && !hooks_fit(tape)) return true;
  release_spent(tape);
  // The calls' nodes may outlive this one, whose recorder owes the values that they saved.
  if (!region_recompute(tape->recorder, "create_graph")) return false;
  if (hooked && !hand_over_hooks(extras, tape->roots.front().node)) return false;
  for (size_t k = 0; k < tape->roots.size(); ++k) {
    if (!hand_over(extras, k, tape->roots[k])) return false;
  }
  tape->first_task = task;
  node->dissolved = true;
  return true;
}

Edge region_front(Edge edge, uint64_t task) {
  while (edge.node->dissolved) {
    const RegionTape* tape = tape_of(edge.node);
    if (tape->first_task > task) break;
    edge = tape->roots[edge.index];
  }
  return edge;
}

namespace {

// The summands of each edge's gradient, in order: one for each edge that leads there, what is left
// for the last of them.
bool hand_on(const std::vector<Edge>& edges, const Parts& parts, Tensor** results) {
  for (size_t i = 0; i < edges.size(); ++i) {
    const auto same = [&](const Edge& e) {
      return e.node == edges[i].node && e.index == edges[i].index;
    };
    const auto here = edges.begin() + static_cast<std::ptrdiff_t>(i);
    const auto first = static_cast<size_t>(std::count_if(edges.begin(), here, same));
    const bool last = std::none_of(here + 1, edges.end(), same);
    const size_t end = last ? parts[i].size() : std::min(first + 1, parts[i].size());
    for (size_t k = first; k < end; ++k) {
      if (!add_gradient(&results[i], Ref<Tensor>(parts[i][k]).release())) return false;
    }
  }
  return true;
}

}  // namespace

bool region_apply_tape(Node* node, Tensor** grads, Tensor** results) {
  if (node->released && !node->partly) return unpack_saved(node, 0) != nullptr;  // raises
  RegionTape* tape = tape_of(node);
  if (!tape) return false;
  release_spent(tape);
  std::vector<Edge> outer;
  for (size_t i = 0; i < node->edge_count; ++i) outer.push_back(node->edge(i));
  Parts parts;
  const auto gradients = steal(run_engine(tape->roots, grads, outer, grad_mode.enabled, &parts));
  return gradients && hand_on(outer, parts, results);
}

namespace {

PyObject* set_joint_compiler(PyObject*, PyObject* callable) {
  assign(joint_compiler, share(callable == Py_None ? nullptr : callable));
  Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"set_joint_compiler", set_joint_compiler, METH_O,
     "Sets the builder of plans that are differentiated ahead of time."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool init_region(PyObject* module) { return PyModule_AddFunctions(module, methods) == 0; }

}  // namespace fb
