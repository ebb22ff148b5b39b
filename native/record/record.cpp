// The op stream of `compile` (tier 1): calls are appended instead of run; a flush looks the whole
// stream up, runs its one Plan, and gives the pending storages their memory.
//
// A stream is a list of records (instance, operand values, numbers). Values are SSA: an external
// tensor, a fresh result, a view of a value, or a tensor after an in-place write. What must be
// computed at a flush follows from reference counts: a pending storage that somebody else still
// holds. Writes are tracked per storage; whatever could observe a write through another tensor of
// the same storage flushes first, so memory is always right (note "stale reads" below).
#include "record/record.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <thread>
#include <unordered_map>
#include <utility>

#include "call/op_internal.h"
#include "runtime/fork.h"
#include "runtime/profile.h"
#include "runtime/traceback.h"

namespace fb {

constinit FB_THREAD_LOCAL Recorder* active_recorder = nullptr;

namespace {

int64_t recorders = 0;  // that there are
// These are never destroyed: daemon threads outlive static destructors.
std::vector<Recorder*>& spare_recorders = *new std::vector<Recorder*>();  // of all threads
constexpr size_t kSpareRecorders = 4;
constexpr size_t kSpareRecords = 4096;  // longer ones give their memory back
constexpr size_t kMaxStreams = 4096;
constexpr size_t kMaxInClass = 64;  // sizes that vary where they are constants

PyObject* stream_compiler = nullptr;  // (description) -> Plan | None (run record by record)
PyObject* flush_observer = nullptr;   // (reason, records, was_known) -> None, may raise

PlanCache& streams = *new PlanCache({kMaxStreams, kMaxStreams, kMaxInClass});
int64_t stream_hits = 0, stream_class_hits = 0, stream_builds = 0, stream_flushes = 0;
uint32_t next_epoch = 1;

}  // namespace

bool flush_watched = false;
int64_t stream_changes = 0;
bool record_learning() { return active_recorder && active_recorder->learning; }
int64_t record_builds() { return stream_builds; }
int64_t record_flushes() { return stream_flushes; }

void record_drop_taped(Recorder* r) {
  std::vector<Tensor*> taped;
  taped.swap(r->taped);
  for (Tensor*& t : taped) drop(t);
}

void record_forget(Recorder* r) {
  record_drop_taped(r);
  std::vector<Record> records;
  std::vector<StorageState> states;
  std::vector<Tensor*> externals;
  records.swap(r->records);
  states.swap(r->states);
  externals.swap(r->externals);
  r->values.clear();
  r->copies.clear();
  r->looked.clear();
  r->counted.clear();
  r->writes.clear();
  r->state_of.clear();
  r->appended = r->written = r->interrupted = false;
  r->epoch = next_epoch++;
  for (Record& record : records) {
    instance_decref(record.instance);
    for (PyObject*& object : record.objects) drop(object);
  }
  for (StorageState& state : states) {
    // What stays pending here was never computed (an error): reading it later must fail.
    if (state.storage->pending) state.storage->recorder = nullptr;
    if (state.storage->writer == r) state.storage->writer = nullptr;
    storage_decref(state.storage);
  }
  for (Tensor*& t : externals) drop(t);
  // Their memory serves the next stream, unless what was freed has begun one.
  records.clear();
  states.clear();
  externals.clear();
  if (!r->records.empty() || !r->states.empty()) return;
  records.swap(r->records);
  states.swap(r->states);
  externals.swap(r->externals);
}

// Fresh values somebody else still holds, and external ones that were written.
std::vector<int32_t> record_live(const Recorder* r) {
  std::vector<int32_t> live;
  for (const StorageState& state : r->states) {
    const bool held = state.storage->pending && state.storage->references.load() > 1;
    if ((state.fresh && held) || (!state.fresh && state.written)) live.push_back(state.latest);
  }
  return live;
}

namespace {

PlanCache::Key stream_key(const Recorder* r, const std::vector<int32_t>& live, bool exact,
                          const PlanCache::Key& more) {
  PlanCache::Key key;
  key.reserve(r->records.size() * 5 + live.size() + more.size() + 3);
  key.push_back(r->tuned | r->frozen << 1);
  key.push_back(std::bit_cast<uint64_t>(r->budget));
  for (const Record& record : r->records) {
    key.push_back(exact ? record.instance->id : record.instance->plan->id);
    for (int32_t v : record.operands) key.push_back(static_cast<uint64_t>(v) + 1);
    for (uint8_t f : record.scalar_is_float) key.push_back(0x100u + f);
  }
  key.push_back(~0ull);
  for (int32_t v : live) key.push_back(static_cast<uint64_t>(v));
  if (!r->copies.empty()) key.push_back(~3ull);
  for (const OutsideCopy& copy : r->copies) {
    key.push_back(static_cast<uint64_t>(copy.value) << 32 | static_cast<uint32_t>(copy.original));
  }
  key.insert(key.end(), more.begin(), more.end());
  return key;
}

}  // namespace

int32_t tensor_symbols(const Record& record, const Recorder* r) {
  int32_t count = 0;
  for (int32_t v : record.operands) {
    if (v >= 0) count += static_cast<int32_t>(r->values[v].geometry.size()) + 1;
  }
  return count;
}

namespace {

std::vector<int64_t> stream_symbols(const Recorder* r) {
  std::vector<int64_t> symbols;
  for (const Tensor* t : r->externals) {
    symbols.insert(symbols.end(), t->dims, t->dims + 2 * t->ndim);
    symbols.push_back(t->offset);
  }
  for (const Record& record : r->records) {
    const int32_t first = tensor_symbols(record, r);
    const int32_t last = record.instance->plan->metadata.inputs;
    for (int32_t i = first; i < last; ++i) symbols.push_back(record.instance->registers[i]);
  }
  return symbols;
}

}  // namespace

namespace {

// Asks Python for the stream's Plan: new reference, None to run record by record, null on error.
PyObject* build_plan(const Recorder* r, const std::vector<int32_t>& live) {
  if (!stream_compiler) Py_RETURN_NONE;
  PyObject* plan = call_object(stream_compiler, steal(describe_stream(r, live, false)));
  if (!plan) hide_internals(true);
  return plan;
}

Ref<> checked_plan(Ref<> plan) {
  if (!plan || plan.get() == Py_None || Py_TYPE(plan.get()) == PlanType) return plan;
  PyErr_SetString(PyExc_TypeError, "[compile] the stream compiler must return a Plan or None");
  return {};
}

size_t number_count(const Recorder* r) {
  size_t count = 0;
  for (const Record& record : r->records) count += record.scalars.size();
  return count;
}
size_t object_count(const Recorder* r) {
  size_t count = 0;
  for (const Record& record : r->records) count += record.objects.size();
  return count;
}

// A new plan at the sizes it was made for.
Ref<Instance> instance_of(const Recorder* r, Plan* plan, const std::vector<int64_t>& symbols) {
  if (!plan_takes(plan, r->externals.size(), number_count(r), object_count(r))) return {};
  auto instance = steal(instance_new(plan, symbols.data(), static_cast<int32_t>(symbols.size())));
  if (!instance && !PyErr_Occurred()) {
    PyErr_SetString(PyExc_RuntimeError, "[compile] a new plan refuses the sizes it was made for");
  }
  return instance;
}

// Makes a plan, known from now on. *refused: there is none.
Ref<Instance> build_instance(const Recorder* r, const Ref<>& built, PlanCache::Key key,
                             const std::vector<int64_t>& symbols, bool* refused) {
  *refused = built.get() == Py_None;
  if (!built || *refused) return {};
  ++stream_builds;
  auto plan = share(reinterpret_cast<Plan*>(built.get()));
  Ref<Instance> instance = instance_of(r, plan.get(), symbols);
  if (instance) streams.know(std::move(key), std::move(plan));
  return instance;
}

}  // namespace

Instance* record_instance(const Recorder* r, const std::vector<int32_t>& live,
                          const PlanCache::Key& more, PyObject* (*build)(void* context),
                          void* context) {
  PlanCache::Key exact = stream_key(r, live, true, more);
  const uint64_t hash = hash_words(exact.data(), exact.size());
  if (const PlanCache::Entry* hit = streams.find(exact.data(), exact.size(), hash)) {
    ++stream_hits;
    return Ref<Instance>(hit->instance).release();
  }
  const std::vector<int64_t> symbols = stream_symbols(r);
  const auto count = static_cast<int32_t>(symbols.size());
  PlanCache::Key key = stream_key(r, live, false, more);
  auto instance = steal(streams.find_in_class(
      key, [&](Plan* plan) { return instance_new(plan, symbols.data(), count); }));
  bool refused = false;
  if (instance) {
    ++stream_class_hits;
  } else {
    const auto built = checked_plan(steal(build ? build(context) : build_plan(r, live)));
    instance = build_instance(r, built, std::move(key), symbols, &refused);
  }
  // Keeps a reference of its own. Another thread may have built the same stream meanwhile.
  if (instance || refused) {
    streams.remember(std::make_unique<PlanCache::Entry>(hash, std::move(exact), instance));
  }
  return instance.release();
}

Instance* record_lookup(const Recorder* r, const std::vector<int32_t>& live,
                        const PlanCache::Key& words) {
  const PlanCache::Key exact = stream_key(r, live, true, words);
  const uint64_t hash = hash_words(exact.data(), exact.size());
  const PlanCache::Entry* hit = streams.find(exact.data(), exact.size(), hash);
  return hit ? Ref<Instance>(hit->instance).release() : nullptr;
}

void record_release(Recorder* r) {
  if (r->references == 1) record_forget(r);  // code of users may flush it meanwhile
  if (--r->references > 0) return;
  if (!r->kept && spare_recorders.size() < kSpareRecorders &&
      r->records.capacity() <= kSpareRecords) {
    r->references = 1;
    r->depth = 0;
    r->forward = {};
    spare_recorders.push_back(r);
  } else {
    delete r;
    --recorders;
  }
}

namespace {

bool allocate(Storage* storage) {
  return !storage->pending || storage->data || storage_allocate(storage);
}

void settle(Storage* storage) {
  storage->pending = false;
  storage->recorder = nullptr;
}

// A tensor for a value, over memory that is the state's storage or stands for it.
Tensor* tensor_over(Storage* storage, const Value& v) {
  storage_incref(storage);
  const int ndim = static_cast<int>(v.geometry.size() / 2);
  return tensor_new(storage, v.dtype, v.device, ndim, v.geometry.data(), v.geometry.data() + ndim,
                    v.offset);
}

}  // namespace

bool record_run(Recorder* r, Instance* instance, const std::vector<int32_t>& live,
                std::vector<PyObject*>* results) {
  std::vector<Scalar> scalars;
  std::vector<uint8_t> is_float;
  std::vector<PyObject*> objects;
  for (const Record& record : r->records) {
    scalars.insert(scalars.end(), record.scalars.begin(), record.scalars.end());
    is_float.insert(is_float.end(), record.scalar_is_float.begin(), record.scalar_is_float.end());
    objects.insert(objects.end(), record.objects.begin(), record.objects.end());
  }
  std::vector<PyObject*>& outputs = *results;
  std::vector<Ref<>> given;
  outputs.assign(std::max(live.size(), instance->plan->outputs.size()), nullptr);
  bool ok = true;
  for (size_t k = 0; k < live.size() && ok; ++k) {
    const StorageState& state = r->states[r->values[live[k]].state];
    if (!state.fresh) continue;
    ok = allocate(state.storage);
    if (ok) {
      outputs[k] = reinterpret_cast<PyObject*>(tensor_over(state.storage, r->values[live[k]]));
      ok = outputs[k] != nullptr;
      given.push_back(steal(outputs[k]));
    }
  }
  if (ok) {
    Call call{r->externals.data(),
              static_cast<int32_t>(r->externals.size()),
              scalars.data(),
              is_float.data(),
              static_cast<int32_t>(scalars.size()),
              objects.data(),
              static_cast<int32_t>(objects.size())};
    const ProfileScope scope(EventKind::Region, instance->plan->name.c_str());
    ok = plan_run(instance, call, outputs.data());  // takes references of its own
  }
  if (!ok) outputs.clear();  // what is left there is in `given`
  // Only now: other threads must not see values that are still being computed.
  for (size_t k = 0; k < live.size() && ok; ++k) {
    settle(r->states[r->values[live[k]].state].storage);
  }
  return ok;
}

bool record_draws(const Recorder* r) {
  return std::any_of(r->records.begin(), r->records.end(),
                     [](const Record& record) { return !record.objects.empty(); });
}

namespace {

bool run_fused(Recorder* r, Instance* instance, const std::vector<int32_t>& live) {
  Refs<> outputs;
  return record_run(r, instance, live, &outputs.values);
}

// Memory of the stream's fresh storages while its records run one by one. Others see none of it
// until the end: they would read values that later records still write.
class PrivateMemory {
 public:
  explicit PrivateMemory(const Recorder* r) : r_(r), storages_(r->states.size()) {}

  // New reference; null + exception.
  Tensor* tensor(const Value& v) {
    Storage* shared = r_->states[v.state].storage;
    if (!r_->states[v.state].fresh) return tensor_over(shared, v);
    Ref<Storage>& own = storages_[v.state];
    if (!own) own = steal(storage_new(shared->nbytes, shared->device));
    return own ? tensor_over(own.get(), v) : nullptr;
  }
  // What a record made belongs to the storages that others hold.
  void publish(const Record& record) {
    for (int32_t id : record.results) {
      if (id < 0 || r_->values[id].kind != Value::New) continue;
      const int32_t state = r_->values[id].state;
      Storage* shared = r_->states[state].storage;
      if (!shared->pending) continue;
      std::swap(shared->data, storages_[state]->data);
      settle(shared);
    }
  }

 private:
  const Recorder* r_;
  std::vector<Ref<Storage>> storages_;  // by state; null: not of this stream, or not used yet
};

bool run_record(Recorder* r, size_t number, const std::vector<Tensor*>& tensors) {
  Record& record = r->records[number];
  std::vector<Tensor*> operands;
  for (int32_t v : record.operands) operands.push_back(v < 0 ? nullptr : tensors[v]);
  Refs<> outputs(record.results.size());
  for (size_t k = 0; k < outputs.values.size(); ++k) {
    if (record.instance->plan->outputs[k].kind != OutputSpec::New) continue;
    outputs.values[k] = object_of(tensors[record.results[k]]);
  }
  Call call{operands.data(),
            static_cast<int32_t>(operands.size()),
            record.scalars.data(),
            record.scalar_is_float.data(),
            static_cast<int32_t>(record.scalars.size()),
            record.objects.data(),
            static_cast<int32_t>(record.objects.size())};
  return plan_run(record.instance, call, outputs.values.data());
}

// Record by record, exactly as eager mode would: the fallback, and the check of the fused form.
// *done: how many ran.
bool run_records(Recorder* r, size_t* done) {
  PrivateMemory memory(r);
  Refs<Tensor> tensors(r->values.size());
  bool ok = true;
  for (size_t v = 0; v < r->values.size() && ok; ++v) {
    ok = (tensors.values[v] = memory.tensor(r->values[v])) != nullptr;
  }
  for (size_t i = *done = 0; i < r->records.size() && ok; *done = i += ok) {
    ok = run_record(r, i, tensors.values);
  }
  for (size_t i = 0; i < *done; ++i) memory.publish(r->records[i]);
  return ok;
}

// After an error what the records from `first` on would have made stays pending without a recorder:
// reading it raises.
void abandon(Recorder* r, size_t first) {
  for (size_t i = first; i < r->records.size(); ++i) {
    for (int32_t id : r->records[i].results) {
      if (id < 0 || r->values[id].kind != Value::New) continue;
      Storage* storage = r->states[r->values[id].state].storage;
      storage->pending = true;
      storage->recorder = nullptr;
    }
  }
}

bool run_whole(Recorder* r) {
  size_t done = 0;
  const bool ok = run_records(r, &done);
  if (!ok) abandon(r, done);
  return ok;
}

bool run_stream(Recorder* r, const std::vector<int32_t>& live) {
  if (live.empty()) {  // nobody reads what was drawn, but the generators must move on
    return !record_draws(r) || run_whole(r);
  }
  Instance* instance = record_instance(r, live, {}, nullptr, nullptr);
  if (!instance) {
    if (!PyErr_Occurred()) return run_whole(r);
    abandon(r, 0);
    return false;
  }
  const bool ok = run_fused(r, instance, live);
  if (!ok) abandon(r, 0);
  instance_decref(instance);
  return ok;
}

bool observe(const char* reason, size_t records, bool known) {
  if (!flush_observer) return true;
  return static_cast<bool>(steal(PyObject_CallFunction(
      flush_observer, "sni", reason, static_cast<Py_ssize_t>(records), known ? 1 : 0)));
}

}  // namespace

bool record_flush(Recorder* r, const char* reason) {
  if (!r) {
    PyErr_SetString(PyExc_RuntimeError,
                    "[compile] this tensor was never computed: an error ended its program\n"
                    "hint: see the first error");
    return false;
  }
  if (r->learning) {
    r->refused = true;
    PyErr_Format(PyExc_RuntimeError, "[compile] a value is needed in a dry run: %s", reason);
    return false;
  }
  record_wait(r);
  if (r->interrupted && !record_resume_flush(r)) return false;
  if (r->kept) return region_recompute(r, reason);
  if (r->flusher != 0) {
    return true;  // its own flush wants a value that is not there: the caller says so
  }
  if (r->records.empty()) {
    record_forget(r);
    return true;
  }
  const Flushing flushing(r);  // compiling and running must not record
  ++stream_flushes;
  record_drop_taped(r);
  const std::vector<int32_t> live = record_live(r);
  const int64_t builds = stream_builds;
  const bool ok = run_stream(r, live);
  const size_t records = r->records.size();
  record_forget(r);
  return ok && observe(reason, records, builds == stream_builds);
}

namespace {

Recorder* first_flushed = nullptr;

// In a forked child, where the other threads are not.
void interrupt_flushes() {
  Recorder** at = &first_flushed;
  while (Recorder* r = *at) {
    if (r->flusher == PyThread_get_thread_ident()) {
      at = &r->next_flushed;
      continue;
    }
    r->flusher = 0;
    r->interrupted = true;
    *at = r->next_flushed;
  }
}

}  // namespace

Flushing::Flushing(Recorder* r) : r_(r), previous_(std::exchange(active_recorder, nullptr)) {
  r->flusher = PyThread_get_thread_ident();
  ++r->references;
  r->next_flushed = std::exchange(first_flushed, r);
}

Flushing::~Flushing() {
  active_recorder = previous_;
  Recorder** at = &first_flushed;
  while (*at != r_) at = &(*at)->next_flushed;
  *at = r_->next_flushed;
  r_->flusher = 0;
  record_release(r_);
}

bool record_resume_flush(Recorder* r) {
  if (!r->symbolic && !r->written && !record_draws(r)) {
    r->interrupted = false;
    return true;
  }
  PyErr_SetString(PyExc_RuntimeError,
                  "[compile] this tensor was being computed by another thread when the process "
                  "forked, and cannot be computed again: its program writes to memory from "
                  "outside, draws random numbers, or was being differentiated\n"
                  "hint: read the tensor before the fork, or let the thread finish its call");
  return false;
}

bool record_flushed_elsewhere(const Recorder* r) {
  return r->flusher != 0 && r->flusher != PyThread_get_thread_ident();
}

namespace {

void let_others_run() {
  Py_BEGIN_ALLOW_THREADS std::this_thread::sleep_for(std::chrono::microseconds(20));
  Py_END_ALLOW_THREADS
}

}  // namespace

void record_wait(const Recorder* r) {
  while (record_flushed_elsewhere(r)) [[unlikely]] {
    let_others_run();
  }
}

bool record_settle(Storage* storage, const char* reason) {
  while (storage->pending && storage->recorder && record_flushed_elsewhere(storage->recorder)) {
    let_others_run();  // another thread is computing it
  }
  return !storage->pending || !storage->recorder || record_flush(storage->recorder, reason);
}

namespace {

RegionEnd finish_region(Recorder* r, const char* reason) {
  record_wait(r);
  if (r->interrupted) return RegionEnd::Plain;  // its history is dropped
  const int64_t builds = stream_builds;
  const size_t records = r->records.size();
  const RegionEnd end = region_finish(r);
  if (end == RegionEnd::Plain) return end;
  ++stream_flushes;
  if (end == RegionEnd::Failed) {
    abandon(r, 0);
  } else {
    observe(reason, records, builds == stream_builds);  // may raise; Done stays Done
  }
  return end;
}

}  // namespace

void record_enter() {
  if (active_recorder) {
    ++active_recorder->depth;
    active_recorder->sealed += active_recorder->sealed > 0;
    return;
  }
  if (spare_recorders.empty()) {
    active_recorder = new Recorder();
    ++recorders;
  } else {
    active_recorder = spare_recorders.back();
    spare_recorders.pop_back();
  }
  active_recorder->epoch = next_epoch++;
  active_recorder->tuned = false;
  active_recorder->frozen = 0;
  active_recorder->budget = -1;
  active_recorder->lasting = active_recorder->learning = false;
  active_recorder->sealed = active_recorder->rereads = 0;
}

void record_learn() {
  record_enter();
  active_recorder->learning = true;
  active_recorder->refused = active_recorder->outside = false;
}

void record_forget_learnt() {
  Recorder* r = std::exchange(active_recorder, nullptr);
  record_forget(r);
  r->learning = false;
  record_release(r);
}

// Flushes at the end of the outermost region, also after an error, which stays set.
bool record_leave(const char* reason) {
  Recorder* r = active_recorder;
  if (!r) return true;
  r->sealed -= r->sealed > 0;
  if (r->depth > 0) {
    --r->depth;
    return r->sealed > 0 || !std::exchange(r->lasting, false) ||
           record_flush(r, "memory that is shared with the outside");
  }
  PendingError error;
  bool ok = true, owned = true;
  const RegionEnd end = error ? RegionEnd::Plain : finish_region(r, reason);
  if (end == RegionEnd::Plain) ok = record_flush(r, reason);
  if (end == RegionEnd::Done) owned = false;  // its node has it
  if (end != RegionEnd::Plain) ok = !PyErr_Occurred();
  active_recorder = nullptr;
  if (owned) record_release(r);
  if (!error) return ok;
  error.restore();
  return false;
}

namespace {

PyObject* record_begin(PyObject*, PyObject*) {
  record_enter();
  Py_RETURN_NONE;
}

PyObject* record_begin_sealed(PyObject*, PyObject*) {
  record_enter();
  active_recorder->sealed += active_recorder->sealed == 0;
  Py_RETURN_NONE;
}

// record_end(reason): flushes; the outermost one also stops recording.
PyObject* record_end(PyObject*, PyObject* argument) {
  const char* reason = PyUnicode_Check(argument) ? PyUnicode_AsUTF8(argument) : "end of region";
  if (!record_leave(reason)) return nullptr;
  Py_RETURN_NONE;
}

// record_tune(): from now on, till the end of the outermost region.
PyObject* record_tune(PyObject*, PyObject*) {
  if (active_recorder) active_recorder->tuned = true;
  Py_RETURN_NONE;
}

// record_freeze(discards): from now on, where no gradients are recorded.
PyObject* record_freeze(PyObject*, PyObject* discards) {
  if (active_recorder && !grad_mode.enabled) active_recorder->frozen = 1 + (discards == Py_True);
  Py_RETURN_NONE;
}

// record_budget(fraction): of the streams till the end of the outermost region.
PyObject* record_budget(PyObject*, PyObject* argument) {
  const double budget = PyFloat_AsDouble(argument);
  if (budget == -1 && PyErr_Occurred()) return nullptr;
  if (!active_recorder) Py_RETURN_NONE;
  if (active_recorder->budget >= 0 && active_recorder->budget != budget) {
    PyErr_SetString(PyExc_RuntimeError,
                    "[region_activation_memory_budget] conflicting budgets in one compiled region\n"
                    "hint: compile the parts apart");
    return nullptr;
  }
  active_recorder->budget = budget;
  Py_RETURN_NONE;
}

PyObject* record_flush_now(PyObject*, PyObject* argument) {
  if (!active_recorder) Py_RETURN_NONE;
  const char* reason = PyUnicode_Check(argument) ? PyUnicode_AsUTF8(argument) : "asked for";
  if (!record_flush(active_recorder, reason)) return nullptr;
  Py_RETURN_NONE;
}

// record_suspend() -> capsule of the recorder (or None); record_resume(capsule).
PyObject* record_suspend(PyObject*, PyObject*) {
  if (!active_recorder) Py_RETURN_NONE;
  PyObject* capsule = PyCapsule_New(active_recorder, "flambeau.recorder", nullptr);
  if (capsule) active_recorder = nullptr;
  return capsule;
}

PyObject* record_resume(PyObject*, PyObject* capsule) {
  if (capsule == Py_None) Py_RETURN_NONE;
  void* recorder = PyCapsule_GetPointer(capsule, "flambeau.recorder");
  if (!recorder) return nullptr;
  active_recorder = static_cast<Recorder*>(recorder);
  Py_RETURN_NONE;
}

PyObject* is_recording(PyObject*, PyObject*) { return PyBool_FromLong(active_recorder != nullptr); }

PyObject* set_stream_compiler(PyObject*, PyObject* callable) {
  assign(stream_compiler, share(callable == Py_None ? nullptr : callable));
  Py_RETURN_NONE;
}

PyObject* set_flush_observer(PyObject*, PyObject* args) {
  PyObject* callable;
  int watched;
  if (!PyArg_ParseTuple(args, "Op", &callable, &watched)) return nullptr;
  flush_watched = watched != 0;
  assign(flush_observer, share(callable == Py_None ? nullptr : callable));
  Py_RETURN_NONE;
}

PyObject* stream_stats(PyObject*, PyObject*) {
  return Py_BuildValue("{s:L,s:L,s:L,s:L,s:n,s:n,s:L}", "flushes", stream_flushes, "exact_hits",
                       stream_hits, "class_hits", stream_class_hits, "builds", stream_builds,
                       "entries", static_cast<Py_ssize_t>(streams.entries()), "plans",
                       static_cast<Py_ssize_t>(streams.plans()), "recorders", recorders);
}

PyObject* set_stream_limit(PyObject*, PyObject* argument) {
  const Py_ssize_t limit = PyNumber_AsSsize_t(argument, PyExc_OverflowError);
  if (limit < 2) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "[compile] at least two streams");
    return nullptr;
  }
  streams.set_limits({static_cast<size_t>(limit), static_cast<size_t>(limit), kMaxInClass});
  Py_RETURN_NONE;
}

PyObject* stream_clear(PyObject*, PyObject*) {
  streams.clear();
  ++stream_changes;
  stream_flushes = stream_hits = stream_class_hits = stream_builds = 0;
  Py_RETURN_NONE;
}

PyObject* forget_explanations(PyObject*, PyObject*) {
  ++stream_changes;
  Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"forget_explanations", forget_explanations, METH_NOARGS,
     "Ends the explanations of calls: something that no guard compares has changed."},
    {"count_true", record_count_true, METH_O,
     "The number of true elements of a mask whose memory can be read while calls are recorded, "
     "without a flush; None: operators count them."},
    {"record_begin", record_begin, METH_NOARGS, "Starts recording op calls (nests)."},
    {"record_begin_sealed", record_begin_sealed, METH_NOARGS,
     "Starts recording calls among which no code of users runs: memory that others reach is read "
     "and written at their end."},
    {"record_end", record_end, METH_O, "Flushes and ends the innermost region."},
    {"record_tune", record_tune, METH_NOARGS, "The recorded streams' plans are autotuned."},
    {"record_freeze", record_freeze, METH_O,
     "Weights are constants of the recorded streams' plans, where no gradients are recorded; True: "
     "which own them."},
    {"record_budget", record_budget, METH_O,
     "The fraction of activations that backwards of the recorded streams may save."},
    {"record_flush", record_flush_now, METH_O, "Runs what was recorded so far."},
    {"record_suspend", record_suspend, METH_NOARGS, "Stops recording for a while."},
    {"record_resume", record_resume, METH_O, "Undoes record_suspend."},
    {"is_recording", is_recording, METH_NOARGS, "Whether op calls are recorded in this thread."},
    {"set_stream_compiler", set_stream_compiler, METH_O, "Sets the builder of stream plans."},
    {"set_flush_observer", set_flush_observer, METH_VARARGS,
     "set_flush_observer(callable, watched): sets the callback of flushes; watched: compiled "
     "functions record every call, so that it sees all."},
    {"stream_stats", stream_stats, METH_NOARGS, "Counters of recorded streams."},
    {"set_stream_limit", set_stream_limit, METH_O, "How many streams are known at a time."},
    {"stream_clear", stream_clear, METH_NOARGS, "Forgets all streams."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool init_record(PyObject* module) {
  in_forked_child(interrupt_flushes);
  return PyModule_AddFunctions(module, methods) == 0 && init_region(module);
}

}  // namespace fb
