// The tape of a call that ran without its Python (native/frame), built on demand.
//
// Such a call gives its results the node of a region (region.cpp), with nothing behind it: that is
// needed under create_graph only. Then its stream is recorded again, on the tensors that the call
// had: each record as an op call makes it, with the tape node that it had when the call was learnt.
// Nothing runs; values that a backward reads are computed as those of any region are.
#include <algorithm>
#include <unordered_map>
#include <utility>

#include "record/region.h"

namespace fb {

namespace {

// Where the gradient of a tensor flows to.
struct OwnEdge {
  Ref<Node> owner;  // of a leaf's node there is no other one
  Edge edge{};      // borrowed

  bool read(Tensor* t) {
    if (!gradient_edge(t, &edge)) return false;
    owner = steal(edge.node);
    edge = front_of(edge);
    return true;
  }
  bool is(const Edge& other) const { return edge.node == other.node && edge.index == other.index; }
};

bool is_leaf(const Tensor* t) { return !t->autograd || !t->autograd->node; }

// The only external that an edge belongs to; -1: none, or several.
int32_t external_at(const Recorder* r, const Edge& edge) {
  int32_t slot = -1;
  for (size_t i = 0; i < r->externals.size(); ++i) {
    OwnEdge own;
    if (!own.read(r->externals[i])) return -1;
    if (!own.edge.node || !own.is(edge)) continue;
    if (slot >= 0) return -1;
    slot = static_cast<int32_t>(i);
  }
  return slot;
}

TapedCall taped_call(Node* node) {
  TapedCall call{node->recorded.index, {}};
  for (size_t k = 0; k < node->edge_count; ++k) call.ends.push_back(!node->edge(k).node);
  return call;
}

}  // namespace

Replay::~Replay() {
  for (Record& record : records) {
    instance_decref(record.instance);
    for (PyObject*& object : record.objects) drop(object);
  }
}

bool Replay::read(Recorder* r, const Region& region) {
  for (const Edge& edge : region.outer) {
    outer.push_back(external_at(r, edge));
    if (outer.back() < 0) return false;
  }
  for (Node* node : region.nodes) taped.push_back(taped_call(node));
  std::sort(taped.begin(), taped.end(),
            [](const TapedCall& a, const TapedCall& b) { return a.record < b.record; });
  for (const Tensor* t : region.roots) {
    roots.push_back(t->value_id);
    metadata.push_back(metadata_of(t));
  }
  shared = region.live.size();
  return true;
}

void Replay::take_stream(Recorder* r) {
  records.swap(r->records);
  values.swap(r->values);
}

bool replay_fits(const Replay& replay, Tensor* const* externals) {
  SavedHooks hooks;
  if (saved_hooks_active(&hooks) || anomaly_recorder) return false;
  for (size_t i = 0; i < replay.outer.size(); ++i) {  // leaves have an edge each
    Tensor* t = externals[replay.outer[i]];
    OwnEdge own, other;
    if (is_leaf(t)) continue;
    if (!own.read(t)) return false;
    for (size_t j = 0; j < replay.outer.size(); ++j) {
      Tensor* before = externals[replay.outer[j]];
      if (j == i || is_leaf(before)) continue;
      if (!other.read(before) || own.is(other.edge)) return false;
    }
  }
  return true;
}

Node* replay_node(const Ref<Replay>& replay, const RegionRun& run, Ref<> generator) {
  auto tape = std::make_unique<RegionTape>();
  tape->call = std::make_unique<ReplayedCall>();
  ReplayedCall* call = tape->call.get();
  call->replay = replay;
  call->generator = std::move(generator);
  const auto count = static_cast<size_t>(run.instance->plan->tensors);
  for (size_t i = 0; i < count; ++i) {
    call->externals.values.push_back(share(run.externals[i]).release());
    call->versions.push_back(run.externals[i]->storage->version);
  }
  call->first_sequence = node_sequences(replay->records.size());
  std::vector<OwnEdge> owned(replay->outer.size());
  std::vector<Edge> outer;
  for (size_t i = 0; i < owned.size(); ++i) {
    if (!owned[i].read(run.externals[replay->outer[i]])) return nullptr;
    outer.push_back(owned[i].edge);
  }
  auto node = steal(region_node(run, outer, replay->metadata));
  return node && region_put_behind(node.get(), std::move(tape)) ? node.release() : nullptr;
}

namespace {

// Nothing of the thread's shows in the tape that is built inside; nodes get the numbers that they
// had. Hooks of saved tensors see what an op saves in the user's program only.
class Apart {
 public:
  explicit Apart(uint64_t first_sequence)
      : sequence_(node_sequences_from(first_sequence)),
        grad_(grad_mode),
        hooks_(saved_hooks_suspend()),
        before_(std::exchange(active_recorder, nullptr)) {
    grad_mode = {};
    record_enter();
  }
  ~Apart() {
    active_recorder = before_;
    saved_hooks_resume(hooks_);
    grad_mode = grad_;
    node_sequences_from(sequence_);
  }
  Apart(const Apart&) = delete;
  Apart& operator=(const Apart&) = delete;

 private:
  uint64_t sequence_;
  GradMode grad_;
  uint32_t hooks_;
  Recorder* before_;
};

class Replaying {
 public:
  Replaying(Recorder* r, ReplayedCall& call)
      : r_(r), call_(call), stream_(*call.replay.get()), tensors_(stream_.values.size()) {}

  bool run() {
    auto taped = stream_.taped.begin();
    for (size_t i = 0; i < stream_.records.size(); ++i) {
      const bool on_tape = taped != stream_.taped.end() && taped->record == i;
      if (!record(stream_.records[i], on_tape ? &*taped : nullptr)) return false;
      taped += on_tape;
    }
    return true;
  }

  bool find_roots(std::vector<Edge>* roots) {
    for (int32_t value : stream_.roots) {
      const Tensor* t = tensors_[static_cast<size_t>(value)].get();
      if (!t || !t->autograd || !t->autograd->node) return refuse();
      roots->push_back({share(t->autograd->node).release(), t->autograd->output_index});
    }
    return true;
  }

 private:
  static bool refuse() {
    if (!PyErr_Occurred()) {
      PyErr_SetString(PyExc_RuntimeError, "[compile] the tape of a call cannot be built again");
    }
    return false;
  }

  Tensor* tensor(int32_t value) {
    Ref<Tensor>& t = tensors_[static_cast<size_t>(value)];
    const Value& v = stream_.values[static_cast<size_t>(value)];
    if (!t && v.kind == Value::External) {
      t = share(call_.externals.values[static_cast<size_t>(v.source)]);
    } else if (!t && v.kind == Value::Alias) {  // by no operator
      const int ndim = static_cast<int>(v.geometry.size() / 2);
      Tensor* source = tensor(v.source);
      if (source) {
        t = steal(tensor_alias(source, v.dtype, ndim, v.geometry.data(), v.geometry.data() + ndim,
                               v.offset));
      }
    }
    return t.get();
  }

  bool record(Record& record, const TapedCall* taped) {
    std::vector<Tensor*> operands;
    for (int32_t value : record.operands) {
      operands.push_back(value < 0 ? nullptr : tensor(value));
      if (value >= 0 && !operands.back()) return refuse();
    }
    const Call call{operands.data(),
                    static_cast<int32_t>(operands.size()),
                    record.scalars.data(),
                    record.scalar_is_float.data(),
                    static_cast<int32_t>(record.scalars.size()),
                    record.objects.data(),
                    static_cast<int32_t>(record.objects.size())};
    Refs<> outputs(record.instance->plan->outputs.size());
    const uint32_t epoch = r_->epoch;
    if (!record_call(record.instance, call, outputs.values.data()) || r_->epoch != epoch) {
      return refuse();
    }
    if (!finish(record, call, outputs.values.data(), taped)) return refuse();
    for (size_t k = 0; k < record.results.size(); ++k) {
      if (record.results[k] < 0 || !outputs.values[k]) continue;
      tensors_[static_cast<size_t>(record.results[k])] = share(tensor_of(outputs.values[k]));
    }
    return true;
  }

  // What an op does after its run.
  static bool finish(const Record& record, const Call& call, PyObject** outputs,
                     const TapedCall* taped) {
    const Plan* plan = record.instance->plan;
    for (int32_t slot : plan->mutated) {  // memory from outside was written by the call itself
      if (call.tensors[slot]->storage->pending) tensor_bump_version(call.tensors[slot]);
    }
    if (!taped) return true;
    if (plan->mutated.empty()) {
      if (!tape_record(record.instance, call, outputs)) return false;
    } else {
      for (int32_t slot : plan->mutated) {
        if (!tape_after_inplace(call.tensors[slot], record.instance, call, outputs)) return false;
      }
    }
    Node* node = new_node(plan, outputs);
    if (!node || node->edge_count != taped->ends.size()) return false;
    for (size_t k = 0; k < taped->ends.size(); ++k) {  // operands that were detached
      if (taped->ends[k]) drop(node->edge(k).node);
    }
    return true;
  }

  static Node* new_node(const Plan* plan, PyObject* const* outputs) {
    for (int32_t k = 0; k < plan->visible; ++k) {
      const Tensor* t = tensor_of(outputs[k]);
      if (t && t->autograd && t->autograd->node) return t->autograd->node;
    }
    return nullptr;
  }

  Recorder* r_;
  const ReplayedCall& call_;
  Replay& stream_;
  std::vector<Ref<Tensor>> tensors_;  // by value
};

// The versions of memory from outside are those of the call: what was written since is not read.
void set_versions(Recorder* r, const ReplayedCall& call, const std::vector<Edge>& roots) {
  std::unordered_map<const Storage*, uint32_t> versions;
  for (size_t i = 0; i < call.versions.size(); ++i) {
    versions.emplace(call.externals.values[i]->storage, call.versions[i]);
  }
  for (size_t i = 0; i < r->externals.size(); ++i) {
    const auto before = versions.find(r->externals[i]->storage);
    if (before != versions.end()) r->versions[i] = before->second;
  }
  for (Node* node : nodes_of_tape(r, roots)) {
    for (size_t k = 0; k < node->saved_count; ++k) {
      Saved& saved = node->saved(k);
      if (!saved.object || saved.packed) continue;
      const auto before = versions.find(tensor_of(saved.object)->storage);
      if (before != versions.end()) saved.version = before->second;
    }
  }
}

void set_generators(Recorder* r, const Ref<>& generator) {
  for (Record& record : r->records) {
    for (PyObject*& object : record.objects) {
      if (generator) Py_XSETREF(object, Py_NewRef(generator.get()));
    }
  }
}

}  // namespace

bool replay_tape(RegionTape* tape) {
  ReplayedCall& call = *tape->call;
  const Apart apart(call.first_sequence);
  Recorder* r = active_recorder;
  std::vector<Edge> roots;
  bool fine;
  {
    Replaying replaying(r, call);
    fine = replaying.run() && replaying.find_roots(&roots);
  }
  record_drop_taped(r);
  if (!fine) {
    for (Edge& edge : roots) drop(edge.node);
    record_release(r);
    return false;
  }
  set_generators(r, call.generator);
  region_hold(r);
  set_versions(r, call, roots);
  tape->recorder = r;
  tape->roots = std::move(roots);
  return true;
}

}  // namespace fb
