// A call is appended to the stream: which values its operands are, which its results become.
//
// Values are SSA: an external tensor, a fresh result, a view of a value, or a tensor after an
// in-place write. Writes are tracked per storage; whatever could observe a write through another
// tensor of the same storage flushes first, so memory is always right (note "stale reads" below).
// Memory that others may write to is copied when it is read, so that the stream computes with what
// was there; what others may read is written at once.
//
// Another thread may flush the stream between any two steps that let go of the GIL. So a call first
// does everything that may (`Draft`), then sees that the stream is still its own, and appends
// itself without calling Python.
#include <algorithm>
#include <cstring>
#include <utility>

#include "device/devices.h"
#include "record/record.h"

namespace fb {

namespace {

constexpr size_t kMaxRecords = 20000;
// Longer memory of others is not copied, nor are parameters, which are many and read repeatedly:
// the op runs at once, fused with what was recorded.
constexpr int64_t kMaxCopy = int64_t{64} << 20;
// A backward that reads so much of it again runs at once instead of comparing it with the copy.
constexpr int64_t kMinReread = 256 << 10;
constexpr int kMaxRereads = 4;  // of a region
constexpr char kRead[] = "memory that others may write to is read";

bool same_geometry(const Value& v, const Tensor* t) {
  return v.dtype == t->dtype && v.offset == t->offset && v.geometry.size() == 2u * t->ndim &&
         std::equal(v.geometry.begin(), v.geometry.end(), t->dims);
}

int32_t add_value(Recorder* r, Value::Kind kind, int32_t state, int32_t source, const Tensor* t) {
  Value v;
  v.kind = kind;
  v.state = state;
  v.source = source;
  v.dtype = t->dtype;
  v.device = t->device;
  v.geometry.assign(t->dims, t->dims + 2 * t->ndim);
  v.offset = t->offset;
  r->values.push_back(std::move(v));
  return static_cast<int32_t>(r->values.size()) - 1;
}

int32_t add_state(Recorder* r, Storage* storage, bool fresh) {
  storage_incref(storage);
  StorageState state;
  state.storage = storage;
  state.latest = -1;
  state.fresh = fresh;
  r->states.push_back(state);
  const int32_t index = static_cast<int32_t>(r->states.size()) - 1;
  r->state_of.emplace(storage, index);
  return index;
}

int32_t state_of(Recorder* r, Storage* storage) {
  const auto found = r->state_of.find(storage);
  return found != r->state_of.end() ? found->second : add_state(r, storage, false);
}

int32_t add_external(Recorder* r, Tensor* t) {
  const int32_t state = state_of(r, t->storage);
  const auto slot = static_cast<int32_t>(r->externals.size());
  const int32_t id = add_value(r, Value::External, state, slot, t);
  r->states[state].slots += 1;
  r->states[state].latest = id;
  r->externals.push_back(reinterpret_cast<Tensor*>(Py_NewRef(reinterpret_cast<PyObject*>(t))));
  return id;
}

enum class Resolve { Ok, MustFlush, Again };

// Whether `id` is the newest value of its storage, or a view of that value.
bool is_current(const Recorder* r, int32_t id, int32_t latest) {
  while (id != latest && r->values[id].kind == Value::Alias) id = r->values[id].source;
  return id == latest;
}

// The value a tensor stands for in this stream. Note "stale reads": when its storage was written
// through another tensor after it was viewed, only memory knows its value: flush. Again: it is
// pending elsewhere.
Resolve resolve(Recorder* r, Tensor* t, int32_t* id) {
  if (t->record_epoch == r->epoch && t->value_id >= 0) {
    const StorageState& state = r->states[r->values[t->value_id].state];
    if (state.written && !is_current(r, t->value_id, state.latest)) return Resolve::MustFlush;
    if (state.storage == t->storage) {
      *id = t->value_id;
      return Resolve::Ok;
    }
  }
  *id = -1;
  auto found = r->state_of.find(t->storage);
  if (found != r->state_of.end()) {
    StorageState& state = r->states[found->second];
    if (state.written || state.fresh) {
      if (state.latest < 0 || !same_geometry(r->values[state.latest], t)) return Resolve::MustFlush;
      *id = state.latest;  // e.g. a detached alias
    } else if (state.copies >= 0 && state.latest >= 0 &&
               same_geometry(r->values[state.latest], t)) {
      *id = state.latest;  // a copy's original
    }
  } else if (t->storage->pending && !(t->storage->discarded && r->frozen)) {
    return Resolve::Again;
  }
  if (*id < 0) *id = add_external(r, t);
  t->value_id = *id;
  t->record_epoch = r->epoch;
  return Resolve::Ok;
}

// ---------------------------------------------------------------- memory that others may write to
bool same_tensor(const Tensor* a, const Tensor* b) {
  return a->storage == b->storage && a->dtype == b->dtype && a->offset == b->offset &&
         a->ndim == b->ndim && std::equal(a->dims, a->dims + 2 * a->ndim, b->dims);
}

// From the end: whoever filled the memory just now went the other way, so the end is in the cache.
void copy_backwards(char* to, const char* from, int64_t bytes) {
  constexpr int64_t kBlock = 64 << 10;
  for (int64_t end = bytes; end > 0;) {
    const int64_t begin = (end - 1) / kBlock * kBlock;
    std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
    end = begin;
  }
}

Tensor* copy_of(const Tensor* t) {
  const int64_t bytes = span_of(t);
  Storage* storage = storage_new(bytes, t->device);
  if (!storage) return nullptr;
  copy_backwards(static_cast<char*>(storage->data), static_cast<const char*>(t->data()), bytes);
  return tensor_new(storage, t->dtype, t->device, t->ndim, t->sizes(), t->strides(), 0);
}

// A copy's place in its storage is 0: only `original`, or who else reads the tensor, knows t's.
bool is_copy_of(const Recorder* r, const Value& v, const Tensor* t) {
  return v.dtype == t->dtype && v.geometry.size() == 2u * t->ndim &&
         std::equal(v.geometry.begin(), v.geometry.end(), t->dims) &&
         std::memcmp(r->states[v.state].storage->data, t->data(),
                     static_cast<size_t>(span_of(t))) == 0;
}

// A copy in the stream that has the bytes that are in `t` now; -1: none.
int32_t find_copy(const Recorder* r, const Tensor* t) {
  const auto found = r->state_of.find(t->storage);
  if (found == r->state_of.end()) return -1;
  for (int32_t i = r->states[found->second].copies; i >= 0; i = r->copies[i].next) {
    if (is_copy_of(r, r->values[r->copies[i].value], t)) return i;
  }
  return -1;
}

// The tensor itself, as a later backward will find it.
int32_t find_original(const Recorder* r, const Tensor* t) {
  const auto found = r->state_of.find(t->storage);
  if (found == r->state_of.end()) return -1;
  for (int32_t i = r->states[found->second].copies; i >= 0; i = r->copies[i].next) {
    const int32_t id = r->copies[i].original;
    if (id >= 0 && same_geometry(r->values[id], t)) return id;
  }
  return -1;
}

void add_link(Recorder* r, const Tensor* t, int32_t value, int32_t original) {
  StorageState& state = r->states[state_of(r, t->storage)];
  const auto newest = static_cast<int32_t>(r->copies.size());
  r->copies.push_back({value, original, std::exchange(state.copies, newest)});
}

int32_t add_copy(Recorder* r, Tensor* copy, Tensor* t) {
  const int32_t value = add_external(r, copy);
  int32_t original = find_original(r, t);
  if (original < 0 && grad_mode.enabled) original = add_external(r, t);
  add_link(r, t, value, original);
  return value;
}

// ---------------------------------------------------------------- what a call needs
enum class Way : uint8_t {
  Record,       // as it is
  WriteAtOnce,  // and flush
  ReadAtOnce,   // and flush
  Eagerly,      // not at all: a view of memory that others may write to has to stay one
  Later,        // after a flush
  Alone,        // after a flush, and where that answers no question, not at all
};

// How the stream goes on after a call that was appended; null: without a flush.
const char* flush_reason(Way way) {
  if (way == Way::WriteAtOnce) return "memory that is shared with the outside";
  return way == Way::ReadAtOnce ? kRead : nullptr;
}

bool only_views(const Plan* plan) {
  return plan->mutated.empty() &&
         std::none_of(plan->outputs.begin(), plan->outputs.end(),
                      [](const OutputSpec& o) { return o.kind == OutputSpec::New; });
}

bool written_here(const Recorder* r, Storage* storage) {
  const auto found = r->state_of.find(storage);
  return found != r->state_of.end() && r->states[found->second].written;
}

// Whether others may write to what an op reads of `t`.
bool reads_outside(const Recorder* r, const Tensor* t) {
  if (t->numel == 0 || t->storage->pending || !t->storage->data) return false;
  return others_reach(t->storage) && !written_here(r, t->storage);
}

// Whether it has to read a copy: nobody's code runs in a scope that is sealed, nor while an
// explained call runs, which reads what is there when it begins.
bool reads_copy(const Recorder* r, const Tensor* t) {
  return !r->sealed && !r->learning && reads_outside(r, t);
}

bool writes_outside(const Plan* plan, const Call& call) {
  return std::any_of(plan->mutated.begin(), plan->mutated.end(),
                     [&](int32_t slot) { return !call.tensors[slot]->storage->pending; });
}

const int64_t* geometry_of(const Instance* instance, size_t output) {
  const int64_t* at = instance->geometry.data();
  for (size_t k = 0; k < output; ++k) at += 2 * instance->plan->outputs[k].sizes.size() + 1;
  return at;
}

// Bytes of the results that have memory of their own.
int64_t new_bytes(const Instance* instance) {
  int64_t bytes = 0;
  const auto& outputs = instance->plan->outputs;
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (outputs[k].kind == OutputSpec::New) {
      bytes += geometry_of(instance, k)[2 * outputs[k].sizes.size()];
    }
  }
  return bytes;
}

// A backward reads its forward's input last, so a flush there separates little: it costs less than
// comparing the input's bytes, unless results have to be stored that fusion would have left out.
bool cheaper_at_once(const Recorder* r, const Instance* instance, RecordPlace forward,
                     const Tensor* t) {
  return forward.epoch != 0 && r->rereads < kMaxRereads && span_of(t) >= kMinReread &&
         new_bytes(instance) <= span_of(t);
}

Way way_of(Recorder* r, const Instance* instance, const Call& call, RecordPlace forward) {
  const Plan* plan = instance->plan;
  if (r->symbolic) return Way::Record;
  if (plan->elsewhere) return Way::Eagerly;  // a stream is of the host
  if (!plan->checks.empty() || plan->faults) {
    const Certainty certainty = certainty_of(r, instance, call);
    if (certainty == Certainty::Pending && !r->records.empty()) return Way::Later;
    if (certainty != Certainty::Right) return Way::Alone;
  }
  for (int32_t slot : plan->mutated) {
    if (!others_reach(call.tensors[slot]->storage)) continue;
    if (!r->sealed) return Way::WriteAtOnce;
    r->lasting = true;
  }
  Way way = Way::Record;
  for (int32_t i = 0; i < call.tensor_count; ++i) {
    const Tensor* t = call.tensors[i];
    if (!t || !reads_outside(r, t)) continue;
    if (r->learning) {
      r->outside = true;
      continue;
    }
    if (r->sealed) {
      r->lasting = true;
      continue;
    }
    if (only_views(plan)) return Way::Eagerly;
    if (plan->offset_sensitive || plan->has_views || t->storage->parameter ||
        span_of(t) > kMaxCopy || cheaper_at_once(r, instance, forward, t)) {
      way = Way::ReadAtOnce;
    }
  }
  return way;
}

Tensor* make_output(Recorder* r, const Instance* instance, const Call& call, size_t k) {
  const OutputSpec& spec = instance->plan->outputs[k];
  if (spec.kind == OutputSpec::Input) {
    Py_INCREF(call.tensors[spec.input]);
    return call.tensors[spec.input];
  }
  const int64_t* g = geometry_of(instance, k);
  const int ndim = static_cast<int>(spec.sizes.size());
  if (spec.kind == OutputSpec::Alias) {
    Tensor* base = call.tensors[spec.input];
    const int64_t offset = g[2 * ndim] + (spec.adds_offset ? base->offset : 0);
    return tensor_alias(base, spec.dtype, ndim, g, g + ndim, offset);
  }
  Device device = spec.device;
  if (!spec.own_device && call.tensor_count > 0 && call.tensors[0]) {
    device = call.tensors[0]->device;
  }
  Storage* storage = storage_pending(g[2 * ndim], device, r);
  return storage ? tensor_new(storage, spec.dtype, device, ndim, g, g + ndim, 0) : nullptr;
}

// All that a call needs of Python: results, and copies of operands that others may write to.
class Draft {
 public:
  Draft(Recorder* r, Instance* instance, const Call& call, PyObject** outputs)
      : r_(r), instance_(instance), call_(call), outputs_(outputs) {}
  ~Draft() { drop(); }
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;

  void drop() {
    for (Ref<Tensor>& copy : copies_) copy = {};
    known_.assign(known_.size(), -1);
    for (size_t k = 0; k < made_; ++k) fb::drop(outputs_[k]);
    made_ = 0;
  }
  bool make(Way way) {
    drop();
    const Plan* plan = instance_->plan;
    epoch_ = r_->epoch;
    for (; made_ < plan->outputs.size(); ++made_) {
      if (plan->outputs[made_].kind == OutputSpec::None) continue;
      Tensor* t = make_output(r_, instance_, call_, made_);
      if (!t) return false;
      outputs_[made_] = reinterpret_cast<PyObject*>(t);
    }
    return r_->symbolic || flush_reason(way) || copy_operands();
  }
  // From here on Python is not called.
  Resolve operand(int32_t i, int32_t* id) {
    Tensor* t = call_.tensors[i];
    if (r_->symbolic && others_reach(t->storage)) {
      *id = find_original(r_, t);
      if (*id >= 0) return Resolve::Ok;
    }
    if (copies_.empty() || !reads_copy(r_, t)) return resolve(r_, t, id);
    if (const Ref<Tensor>& copy = copies_[static_cast<size_t>(i)]) {
      *id = add_copy(r_, copy.get(), t);
      return Resolve::Ok;
    }
    // Compared once: bytes of any moment of the call are right. A stream that was run has none.
    int32_t found = known_[static_cast<size_t>(i)];
    if (found < 0) found = find_copy(r_, t);  // of an operand before this one
    if (found < 0 || r_->epoch != epoch_) return Resolve::Again;
    *id = r_->copies[found].value;
    if (grad_mode.enabled && find_original(r_, t) < 0) add_link(r_, t, *id, add_external(r_, t));
    return Resolve::Ok;
  }
  void keep() { made_ = 0; }  // the outputs are the caller's

 private:
  bool copy_operands() {
    for (int32_t i = 0; i < call_.tensor_count; ++i) {
      const Tensor* t = call_.tensors[i];
      if (!t || !reads_copy(r_, t)) continue;
      copies_.resize(static_cast<size_t>(call_.tensor_count));
      known_.resize(copies_.size(), -1);
      const bool before = std::any_of(call_.tensors, call_.tensors + i, [&](const Tensor* other) {
        return other && same_tensor(other, t);
      });
      if (before || (known_[static_cast<size_t>(i)] = find_copy(r_, t)) >= 0) continue;
      if (!(copies_[static_cast<size_t>(i)] = steal(copy_of(t)))) return false;
    }
    return true;
  }

  Recorder* r_;
  Instance* instance_;
  const Call& call_;
  PyObject** outputs_;
  size_t made_ = 0;
  uint32_t epoch_ = 0;
  std::vector<Ref<Tensor>> copies_;  // empty: none
  std::vector<int32_t> known_;       // by operand: the copy that the stream has already, or -1
};

// ---------------------------------------------------------------- appending
// Whether writing `id` in place can be part of the stream.
bool writable(const Recorder* r, int32_t id) {
  const Value& v = r->values[id];
  const StorageState& state = r->states[v.state];
  if (v.kind == Value::Alias) return false;
  return state.fresh || state.slots == 1;
}

Resolve resolve_operands(Recorder* r, Draft* draft, const Plan* plan, const Call& call,
                         Record* record) {
  record->operands.assign(static_cast<size_t>(call.tensor_count), -1);
  Resolve state = Resolve::Ok;
  for (int32_t i = 0; i < call.tensor_count && state == Resolve::Ok; ++i) {
    if (call.tensors[i]) state = draft->operand(i, &record->operands[i]);
  }
  for (int32_t slot : plan->mutated) {
    if (state == Resolve::Ok && !writable(r, record->operands[slot])) state = Resolve::MustFlush;
  }
  return state;
}

void define_outputs(Recorder* r, const Plan* plan, PyObject** outputs, Record* record) {
  record->results.assign(plan->outputs.size(), -1);
  for (size_t k = 0; k < plan->outputs.size(); ++k) {
    const OutputSpec& spec = plan->outputs[k];
    auto* out = reinterpret_cast<Tensor*>(outputs[k]);
    int32_t* result = &record->results[k];
    if (spec.kind == OutputSpec::None) continue;
    if (spec.kind == OutputSpec::Input) {
      *result = record->operands[spec.input];
      continue;
    }
    if (spec.kind == OutputSpec::Alias) {
      const int32_t from = record->operands[spec.input];
      *result = add_value(r, Value::Alias, r->values[from].state, from, out);
    } else {
      const int32_t state = add_state(r, out->storage, true);
      *result = add_value(r, Value::New, state, -1, out);
      r->states[state].latest = *result;
    }
    out->value_id = *result;
    out->record_epoch = r->epoch;
  }
}

void note_writes(Recorder* r, Record* record, const Call& call) {
  const Plan* plan = record->instance->plan;
  for (int32_t slot : plan->mutated) {
    Tensor* t = call.tensors[slot];
    const int32_t before = record->operands[slot];
    const int32_t state = r->values[before].state;
    const int32_t id = add_value(r, Value::Write, state, before, t);
    r->states[state].written = true;
    if (!t->storage->pending && !r->learning) t->storage->writer = r;
    r->states[state].latest = id;
    t->value_id = id;
    t->record_epoch = r->epoch;
    for (size_t k = 0; k < plan->outputs.size(); ++k) {
      if (plan->outputs[k].kind == OutputSpec::Input && plan->outputs[k].input == slot) {
        record->results[k] = id;
      }
    }
  }
}

void append(Recorder* r, Instance* instance, const Call& call, RecordPlace forward,
            PyObject** outputs, Record* record) {
  define_outputs(r, instance->plan, outputs, record);
  instance_incref(instance);
  record->instance = instance;
  if (forward.epoch == r->epoch && forward.index < r->records.size()) {
    record->forward = static_cast<int32_t>(forward.index);
  }
  record->scalars.assign(call.scalars, call.scalars + call.scalar_count);
  record->scalar_is_float.assign(call.scalar_is_float, call.scalar_is_float + call.scalar_count);
  record->objects.assign(call.objects, call.objects + call.object_count);
  for (PyObject* object : record->objects) Py_XINCREF(object);
  if (!instance->plan->mutated.empty()) note_writes(r, record, call);
  r->records.push_back(std::move(*record));
  r->appended = true;
}

bool run_eagerly(Instance* instance, const Call& call, PyObject** outputs) {
  for (int32_t i = 0; i < call.tensor_count; ++i) {
    if (call.tensors[i] && !tensor_materialise(call.tensors[i], "aliased write")) {
      return false;
    }
  }
  Recorder* recorder = std::exchange(active_recorder, nullptr);
  recorder->appended = false;
  const bool fine = plan_run(instance, call, outputs);
  active_recorder = recorder;
  return fine;
}

// Runs what other streams still compute or write of the operands; true: nothing was left.
bool settle_others(const Recorder* r, const Call& call, bool* fine) {
  bool settled = true;
  for (int32_t i = 0; i < call.tensor_count && *fine; ++i) {
    Tensor* t = call.tensors[i];
    if (!t) continue;
    const Recorder* owner = t->storage->pending ? t->storage->recorder : t->storage->writer;
    if (owner == r || (!owner && !t->storage->pending)) continue;
    if (t->storage->discarded && r->frozen) continue;
    settled = false;
    *fine = tensor_materialise(t, "value of another stream");
  }
  return settled;
}

// Whether a dry run may go on after a call: it fails for no data, and others see no write of it.
bool explains(Recorder* r, const Instance* instance, const Call& call, Way way) {
  const Plan* plan = instance->plan;
  if (way == Way::Record && record_note_indices(r, instance, call)) return true;
  r->refused = true;
  PyErr_Format(PyExc_RuntimeError,
               "[compile] %s may fail for reasons of data, or writes to memory of others",
               plan->name.c_str());
  return false;
}

}  // namespace

bool record_resolve(Recorder* r, Tensor* t, int32_t* id) {
  return resolve(r, t, id) == Resolve::Ok;
}

bool record_settle_reads(Storage* storage, const char* reason) {
  Recorder* r = active_recorder;
  if (!r) return true;
  record_wait(r);
  return !r->state_of.count(storage) || record_flush(r, reason);
}

bool record_call(Instance* instance, const Call& call, PyObject** outputs) {
  Recorder* r = active_recorder;
  const RecordPlace forward = std::exchange(r->forward, RecordPlace{});
  record_wait(r);
  if (r->records.size() >= kMaxRecords && !record_flush(r, "the stream is very long")) return false;
  Draft draft(r, instance, call, outputs);
  bool flushed = false, fine = true;
  while (fine) {
    record_wait(r);
    if (r->interrupted && !record_flush(r, "a fork")) return false;
    if (!settle_others(r, call, &fine)) continue;
    const Way way = way_of(r, instance, call, forward);
    if (r->learning && !explains(r, instance, call, way)) return false;
    const bool first = way == Way::Later || (way == Way::Alone && !r->records.empty());
    if (first) {
      draft.drop();
      fine = record_flush(r, "an error must not come later");
      continue;
    }
    if (way == Way::Eagerly || way == Way::Alone) {
      draft.drop();
      return run_eagerly(instance, call, outputs);
    }
    if (!draft.make(way)) return false;
    if (record_flushed_elsewhere(r)) continue;
    Record record;
    const Resolve state = resolve_operands(r, &draft, instance->plan, call, &record);
    if (state == Resolve::Ok) {
      r->written |= writes_outside(instance->plan, call);
      append(r, instance, call, forward, outputs, &record);
      draft.keep();
      r->rereads += way == Way::ReadAtOnce && forward.epoch != 0;
      const char* reason = flush_reason(way);
      return !reason || record_flush(r, reason);
    }
    if (state == Resolve::Again) continue;
    draft.drop();
    fine = record_flush(r, "a tensor that shares memory with another one is written");
    if (fine && std::exchange(flushed, true)) return run_eagerly(instance, call, outputs);
  }
  return false;
}

bool record_notes_write(const Tensor* t) {
  Recorder* r = active_recorder;
  if (!r->learning || t->storage->pending) return false;
  r->writes.push_back(t->storage);
  return true;
}

RecordPlace record_place(const Instance* instance) {
  const Recorder* r = active_recorder;
  if (!r->appended) return {};  // it ran: what it made comes from outside of the stream
  if (r->records.empty() || r->records.back().instance != instance) return {r->epoch, UINT32_MAX};
  return {r->epoch, static_cast<uint32_t>(r->records.size()) - 1};
}

RecordPlace record_scope() {
  return active_recorder ? RecordPlace{active_recorder->epoch, UINT32_MAX} : RecordPlace{};
}

void record_taped(Tensor* t) {
  if (t->record_epoch != active_recorder->epoch) return;  // it was computed
  Py_INCREF(t);
  active_recorder->taped.push_back(t);
}

void record_backward_of(RecordPlace forward) { active_recorder->forward = forward; }

}  // namespace fb
