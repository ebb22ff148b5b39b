// Running a Plan: an Instance is a plan at concrete sizes, with every number a run needs already
// computed, so that a run is allocations, pointer arithmetic and the kernels themselves.
#include "plan/plan_run.h"

#include <algorithm>
#include <atomic>
#include <new>

#include "baseline/block_program.h"
#include "call/op_internal.h"
#include "device/devices.h"
#include "plan/constants.h"
#include "plan/plan_watch.h"
#include "plan/prepacked.h"
#include "plan/tier.h"
#include "routines/routines_python.h"
#include "runtime/poison.h"
#include "runtime/profile.h"

namespace fb {
namespace {

constexpr int64_t kParallelWork = 15000;  // ns: below, waking a worker does not pay
constexpr int64_t kReleaseWork = 50000;   // ns: above, other Python threads may run meanwhile
constexpr int64_t kChunkWork = 2000;      // ns: assumed when a plan does not say
constexpr int64_t kRoutineWork = 100000;
constexpr int64_t kMostWork = int64_t{1} << 50;  // sums of estimates stay far from overflow
constexpr int64_t kPieceWork = 5000;             // ns: smallest piece worth handing to a worker
constexpr int kInlineBuffers = 24;
constexpr int kInlineScalars = 8;
constexpr int kInlinePackings = 4;
constexpr int64_t kStackArena = 2048;  // bytes of temporaries that live on the stack
constexpr const char* kNoMemory = "out of memory";

std::atomic<uint64_t> next_instance_id{1};

// An array on the stack unless it is unusually long.
template <typename T, int kInline>
class SmallArray {
 public:
  explicit SmallArray(size_t n) : data_(n <= kInline ? inline_ : new (std::nothrow) T[n]) {}
  ~SmallArray() {
    if (data_ != inline_) delete[] data_;
  }
  SmallArray(const SmallArray&) = delete;
  SmallArray& operator=(const SmallArray&) = delete;
  T* get() { return data_; }

 private:
  T inline_[kInline];
  T* data_;
};

// ---- preparing

bool prepare_geometry(Instance* instance) {
  const Plan* plan = instance->plan;
  const int64_t* r = instance->registers.data();
  size_t words = 0;
  for (const OutputSpec& out : plan->outputs) words += out.sizes.size() * 2 + 1;
  instance->geometry.reserve(words);
  for (const OutputSpec& out : plan->outputs) {
    for (int32_t s : out.sizes) {
      if (r[s] < 0) return false;
      instance->geometry.push_back(r[s]);
    }
    for (int32_t s : out.strides) instance->geometry.push_back(r[s]);
    const int32_t last = out.kind == OutputSpec::Alias ? out.offset : out.nbytes;
    instance->geometry.push_back(last >= 0 ? r[last] : 0);
  }
  return true;
}

// Computes what follows from a program's sizes, around them; returns its bytes of scratch.
int64_t prepare_program(const BlockProgram& program, std::vector<int64_t>* values,
                        const int64_t* sizes) {
  const auto first = static_cast<size_t>(sizes - values->data()), behind = values->size();
  values->resize(behind + program.words_behind());
  return program.prepare(values->data() + first, values->data() + behind);
}

void resolve_launches(Instance* instance) {
  const std::vector<Launch>& launches = instance->code->launches;
  const int64_t* r = instance->registers.data();
  size_t words = 0;
  for (const Launch& launch : launches) {
    words += launch.sizes.size() + launch.offsets.size() + BlockProgram::kWordsBefore;
    if (launch.program) words += launch.program->words_behind();
  }
  std::vector<int64_t>& values = instance->launch_values;
  values.reserve(words);  // pointers into it are handed out below: it must not grow again
  for (const Launch& launch : launches) {
    if (launch.program) values.insert(values.end(), BlockProgram::kWordsBefore, 0);
    ReadyLaunch ready{&launch, values.data() + values.size(), nullptr, 0, 0, 0};
    for (int32_t s : launch.sizes) values.push_back(r[s]);
    const bool moved =
        std::any_of(launch.offsets.begin(), launch.offsets.end(), [](int32_t o) { return o >= 0; });
    if (moved) {
      ready.offsets = values.data() + values.size();
      for (int32_t o : launch.offsets) values.push_back(o >= 0 ? r[o] : 0);
    }
    ready.chunks = launch.chunks >= 0 ? r[launch.chunks] : 1;
    if (launch.program) {
      ready.scratch = prepare_program(*launch.program, &values, ready.sizes);
    } else if (launch.scratch >= 0) {
      ready.scratch = r[launch.scratch];
    }
    const int64_t chunks = std::clamp<int64_t>(ready.chunks, 0, kMostWork / kChunkWork);
    ready.work = launch.work >= 0 ? std::clamp<int64_t>(r[launch.work], 0, kMostWork)
                 : launch.kernel  ? chunks * kChunkWork
                                  : kRoutineWork;
    if (launch.kernel && ready.chunks <= 0) continue;  // nothing to do at these sizes
    if (launch.packs_from >= 0) {
      ready.packing = static_cast<int32_t>(instance->packings.size());
      instance->packings.push_back(instance->ready.size());
    }
    instance->total_work = std::min(instance->total_work + ready.work, kMostWork);
    instance->ready.push_back(ready);
  }
}

// Most eager calls are one or a few short kernels: plan_run has a straight path for them, without
// threads, groups or allocations beside the outputs.
bool is_simple(const Instance* instance) {
  if (instance->code->awaits) return false;  // its runs are timed
  const std::vector<BufferSpec>& buffers = instance->code->buffers;
  const int64_t arena_limit = kRedZone > 0 ? 0 : kStackArena;  // the stack has no red zones
  if (instance->total_work >= kParallelWork || instance->arena_bytes > arena_limit) return false;
  if (instance->packings.size() > kInlinePackings) return false;
  if (buffers.size() > kInlineBuffers) return false;
  for (const BufferSpec& b : buffers) {
    if (b.kind == BufferSpec::Generator || b.kind == BufferSpec::Error) return false;
  }
  for (const ReadyLaunch& ready : instance->ready) {
    if (!ready.launch->kernel || ready.launch->buffers.size() > kInlineBuffers) return false;
    if (ready.launch->scalars.size() > kInlineScalars) return false;
  }
  return true;
}

// ---- running (nothing below this line until `run_all` needs the GIL)

struct Execution {
  const Instance* instance;
  char* const* bases;  // per plan buffer
  const Scalar* scalars;
  const uint8_t* scalar_is_float;
  const int64_t* errors;  // error blocks
  size_t error_count;
  const int64_t* buffer_bytes;  // while a profile runs: what each buffer holds; else null
  const PackedUse* packed;      // per launch that packs an input
};

// After a bad index nothing may run that relies on it.
bool flagged(const Execution& run) {
  for (size_t i = 0; i < run.error_count; ++i) {
    if (run.errors[i * kErrorWords]) return true;
  }
  return false;
}

// A launch with its pointers and scalars, ready to be called on any thread.
struct BoundLaunch {
  const ReadyLaunch* ready;
  char** pointers;
  Scalar* scalars;
};

void bind_launch(const Execution& run, const ReadyLaunch& ready, BoundLaunch* bound) {
  const Launch& launch = *ready.launch;
  const size_t count = launch.buffers.size();
  for (size_t i = 0; i < count; ++i) {
    char* base = run.bases[launch.buffers[i]];
    bound->pointers[i] = ready.offsets ? base + ready.offsets[i] : base;
  }
  for (size_t i = 0; i < launch.scalars.size(); ++i) {
    bound->scalars[i] = read_scalar(run.scalars, run.scalar_is_float, launch.scalars[i]);
  }
  bound->ready = &ready;
}

struct Region {  // launches that share one parallel region
  const BoundLaunch* launches;
  size_t count;
  LaunchClock* clocks;  // per launch, while a profile runs; else null
  std::atomic<bool> failed{false};
};

void run_chunks(const BoundLaunch& bound, int64_t begin, int64_t end, int worker, Region* region) {
  const ReadyLaunch& ready = *bound.ready;
  char* scratch = nullptr;
  if (ready.scratch > 0) {
    scratch = static_cast<char*>(worker_scratch(worker, ready.scratch));
    if (!scratch) {
      region->failed = true;
      return;
    }
  }
  const int64_t start = region->clocks ? profile_now() : 0;
  ready.launch->kernel(bound.pointers, ready.sizes, bound.scalars, begin, end, scratch);
  if (!region->clocks) [[likely]] {
    return;
  }
  const int64_t finish = profile_now();
  region->clocks[&bound - region->launches].add(finish - start, worker);
  if (worker > 0) profile_piece(ready.launch->name.c_str(), start, finish);
}

void region_body(void* context, int64_t begin, int64_t end, int worker) {
  Region* region = static_cast<Region*>(context);
  int64_t start = 0;
  for (size_t i = 0; i < region->count && start < end; ++i) {
    const int64_t chunks = region->launches[i].ready->chunks;
    const int64_t from = std::max(begin, start), to = std::min(end, start + chunks);
    if (from < to) run_chunks(region->launches[i], from - start, to - start, worker, region);
    start += chunks;
  }
}

const char* run_region(const BoundLaunch* launches, size_t count, LaunchClock* clocks) {
  Region region{launches, count, clocks, {}};
  int64_t chunks = 0, work = 0;
  for (size_t i = 0; i < count; ++i) {
    chunks += launches[i].ready->chunks;
    work += launches[i].ready->work;
  }
  if (chunks <= 0) return nullptr;
  if (work < kParallelWork || chunks == 1) {
    region_body(&region, 0, chunks, 0);
  } else {
    const int64_t grain = std::max<int64_t>(1, chunks * kPieceWork / work);
    parallel_for(chunks, grain, region_body, &region);
  }
  return region.failed ? kNoMemory : nullptr;
}

const char* run_routine(const BoundLaunch& bound, ErrorKind* error) {
  return bound.ready->launch->routine({bound.pointers, bound.ready->sizes, bound.scalars, error});
}

// How many launches from `at` on form one region.
size_t region_length(const std::vector<ReadyLaunch>& ready, size_t at) {
  const int32_t group = ready[at].launch->group;
  size_t length = 1;
  if (group < 0) return length;
  while (at + length < ready.size() && ready[at + length].launch->group == group &&
         ready[at + length].launch->kernel) {
    ++length;
  }
  return length;
}

// ---- profile

// Bytes that a launch reads and writes: of each buffer all, but not more than its loops can touch.
int64_t bytes_of(const Execution& run, const Launch& launch) {
  const int64_t* registers = run.instance->registers.data();
  const int64_t points = launch.elements >= 0 ? registers[launch.elements] : -1;
  int64_t total = 0;
  for (size_t i = 0; i < launch.buffers.size(); ++i) {
    const int32_t* const begin = launch.buffers.data();
    if (std::find(begin, begin + i, launch.buffers[i]) != begin + i) continue;
    int64_t bytes = run.buffer_bytes[launch.buffers[i]];
    if (!launch.traffic.empty()) {
      if (points >= 0) bytes = std::min(bytes, points * launch.traffic[2 * i]);
      bytes *= (launch.traffic[2 * i + 1] & 1) + (launch.traffic[2 * i + 1] >> 1 & 1);
    }
    total += bytes;
  }
  return total;
}

// The name of a launch in profiles, which says that it ran on the baseline.
std::string profiled_name(const Launch& launch) {
  return launch.program ? launch.name + " (baseline)" : launch.name;
}

// Launches that share a region also share its wall time, in proportion to the time that the threads
// spent on each: so the parts add up, and one follows the other in a trace.
void note_region(const Execution& run, const BoundLaunch* bound, size_t count,
                 const LaunchClock* clocks, int64_t start, int64_t end) {
  int64_t all = 0, before = 0;
  for (size_t i = 0; i < count; ++i) all += clocks[i].busy.load(std::memory_order_relaxed);
  int64_t from = start;
  for (size_t i = 0; i < count; ++i) {
    const ReadyLaunch& ready = *bound[i].ready;
    if (ready.launch->kernel && ready.chunks <= 0) continue;  // nothing to do at these sizes
    const int64_t busy = clocks[i].busy.load(std::memory_order_relaxed);
    before += busy;
    const double share = all > 0 ? static_cast<double>(before) / static_cast<double>(all) : 1.0;
    const int64_t to = i + 1 == count ? end : start + static_cast<int64_t>(share * (end - start));
    const int32_t flops = ready.launch->flops;
    const std::string name = profiled_name(*ready.launch);
    profile_launch({name.c_str(), from, to, bytes_of(run, *ready.launch),
                    flops >= 0 ? run.instance->registers[flops] : 0, ready.work,
                    busy > 0 ? busy : to - from, clocks[i].threads(), static_cast<int32_t>(count)});
    from = to;
  }
}

const char* run_launches(const BoundLaunch* bound, size_t count, LaunchClock* clocks,
                         ErrorKind* error) {
  return bound->ready->launch->kernel ? run_region(bound, count, clocks)
                                      : run_routine(*bound, error);
}

__attribute__((noinline)) const char* run_profiled(const Execution& run, const BoundLaunch* bound,
                                                   size_t count, ErrorKind* kind) {
  if (launch_watcher) {
    const char* error = nullptr;
    for (size_t i = 0; i < count && !error; ++i) {
      error =
          run_watched({run.instance, bound[i].ready, bound[i].pointers, bound[i].scalars}, kind);
    }
    return error;
  }
  if (!profiling()) return run_launches(bound, count, nullptr, kind);  // another thread watches
  SmallArray<LaunchClock, 4> clocks(count);
  if (!clocks.get()) return kNoMemory;
  ProfiledBody routine{nullptr, nullptr, bound->ready->launch->name.c_str(), clocks.get()};
  profiled_routine = bound->ready->launch->routine ? &routine : nullptr;
  const int64_t start = profile_now();
  const char* error = run_launches(bound, count, clocks.get(), kind);
  const int64_t end = profile_now();
  profiled_routine = nullptr;
  note_region(run, bound, count, clocks.get(), start, end);
  return error;
}

// The name of the failed launch, and the kind of error.
struct Failure {
  const char* name;
  ErrorKind kind = ErrorKind::Runtime;
};

// Null or an error text.
const char* run_all(const Execution& run, Failure* failure) {
  const std::vector<ReadyLaunch>& ready = run.instance->ready;
  for (size_t at = 0; at < ready.size();) {
    if (ready[at].packing >= 0 && run.packed[ready[at].packing].filled) {
      ++at;
      continue;
    }
    const size_t length = ready[at].launch->kernel ? region_length(ready, at) : 1;
    size_t pointer_count = 0, scalar_count = 0;
    for (size_t i = at; i < at + length; ++i) {
      pointer_count += ready[i].launch->buffers.size();
      scalar_count += ready[i].launch->scalars.size();
    }
    SmallArray<char*, kInlineBuffers> pointers(pointer_count);
    SmallArray<Scalar, kInlineScalars> scalars(scalar_count);
    SmallArray<BoundLaunch, 4> bound(length);
    if (!pointers.get() || !scalars.get() || !bound.get()) return kNoMemory;
    char** p = pointers.get();
    Scalar* s = scalars.get();
    for (size_t i = 0; i < length; ++i) {
      const Launch& launch = *ready[at + i].launch;
      bound.get()[i] = {nullptr, p, s};
      bind_launch(run, ready[at + i], &bound.get()[i]);
      p += launch.buffers.size();
      s += launch.scalars.size();
    }
    const char* error = run.buffer_bytes
                            ? run_profiled(run, bound.get(), length, &failure->kind)
                            : run_launches(bound.get(), length, nullptr, &failure->kind);
    if (error) {
      failure->name = ready[at].launch->name.c_str();
      return error;
    }
    if (run.error_count && flagged(run)) return nullptr;
    at += length;
  }
  return nullptr;
}

// ---- errors

void replace_all(std::string* text, const char* name, int64_t value) {
  const std::string number = std::to_string(value);
  for (size_t at; (at = text->find(name)) != std::string::npos;) {
    text->replace(at, std::strlen(name), number);
  }
}

// New reference; null + exception.
PyObject* error_type(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::Index:
      return Py_NewRef(PyExc_IndexError);
    case ErrorKind::Runtime:
      return Py_NewRef(PyExc_RuntimeError);
    case ErrorKind::Value:
      return Py_NewRef(PyExc_ValueError);
    case ErrorKind::LinearAlgebra:
      break;
  }
  return import_attribute("flambeau.ops.linear.factorisations", "LinAlgError");
}

}  // namespace

bool check_error_block(const Plan* plan, const BufferSpec& buffer, const int64_t* block) {
  if (block[0] == 0) return true;
  std::string text = buffer.message;
  const auto type = steal(error_type(buffer.error));
  if (!type) return false;
  replace_all(&text, "{value}", block[1]);
  replace_all(&text, "{size}", block[2]);
  replace_all(&text, "{dimension}", block[3]);
  if (text.empty() || text[0] != '[') text = "[" + plan->name + "] " + text;
  PyErr_SetString(type.get(), text.c_str());
  return false;
}

namespace {

// ---- tensors

bool matches(const Tensor* t, DType dtype, size_t ndim, const int64_t* geometry) {
  return t->dtype == dtype && t->ndim == ndim &&
         std::memcmp(t->dims, geometry, 2 * ndim * sizeof(int64_t)) == 0;
}

// Drops the owned outputs that exist so far; the presets that follow are only borrowed.
bool abandon_outputs(size_t made, size_t count, PyObject** outputs) {
  for (size_t k = 0; k < count; ++k) {
    if (k < made) drop(outputs[k]);
    outputs[k] = nullptr;
  }
  return false;
}

// In line: a call on the host makes its results without another call.
[[gnu::always_inline]] inline bool make_outputs_at(const Instance* instance, const Call& call,
                                                   Device device, PyObject** outputs) {
  const Plan* plan = instance->plan;
  const int64_t* geometry = instance->geometry.data();
  for (size_t k = 0; k < plan->outputs.size(); ++k) {
    const OutputSpec& spec = plan->outputs[k];
    const size_t ndim = spec.sizes.size();
    const int rank = static_cast<int>(ndim);
    Tensor* made = nullptr;
    switch (spec.kind) {
      case OutputSpec::New: {
        if (outputs[k]) {
          if (matches(reinterpret_cast<Tensor*>(outputs[k]), spec.dtype, ndim, geometry)) {
            Py_INCREF(outputs[k]);
            geometry += 2 * ndim + 1;
            continue;
          }
          outputs[k] = nullptr;
        }
        const Device where = spec.own_device ? spec.device : device;
        Storage* storage = storage_new(geometry[2 * ndim], where);
        if (!storage) return abandon_outputs(k, plan->outputs.size(), outputs);
        made = tensor_new(storage, spec.dtype, where, rank, geometry, geometry + ndim, 0);
        break;
      }
      case OutputSpec::Alias: {
        Tensor* source = call.tensors[spec.input];
        const int64_t offset = geometry[2 * ndim] + (spec.adds_offset ? source->offset : 0);
        made = tensor_alias(source, spec.dtype, rank, geometry, geometry + ndim, offset);
        break;
      }
      case OutputSpec::Input:
        made = call.tensors[spec.input];
        Py_INCREF(made);
        break;
      case OutputSpec::None:
        geometry += 2 * ndim + 1;
        continue;
    }
    if (!made) return abandon_outputs(k, plan->outputs.size(), outputs);
    outputs[k] = reinterpret_cast<PyObject*>(made);
    geometry += 2 * ndim + 1;
  }
  return true;
}

// Also after an error: part of it may be written.
[[gnu::always_inline]] inline void note_new(const Plan* plan, PyObject* const* outputs) {
  for (size_t k = 0; k < plan->outputs.size(); ++k) {
    if (plan->outputs[k].kind == OutputSpec::New)
      ++reinterpret_cast<Tensor*>(outputs[k])->storage->writes;
  }
}

}  // namespace

bool make_outputs(const Instance* instance, const Call& call, Device device, PyObject** outputs) {
  return make_outputs_at(instance, call, device, outputs);
}

void note_outputs(const Plan* plan, PyObject* const* outputs) { note_new(plan, outputs); }

void note_inputs(const Instance* instance, const Call& call) {
  for (int32_t slot : instance->code->written) ++call.tensors[slot]->storage->writes;
}

void drop_outputs(const Plan* plan, PyObject** outputs) {
  for (size_t k = 0; k < plan->outputs.size(); ++k) drop(outputs[k]);
}

namespace {

// Base pointer of every buffer; the error blocks are zeroed.
bool locate_buffers(const Instance* instance, const Call& call, PyObject* const* outputs,
                    char* arena, int64_t* errors, char** bases) {
  const std::vector<BufferSpec>& buffers = instance->code->buffers;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const BufferSpec& buffer = buffers[i];
    switch (buffer.kind) {
      case BufferSpec::Input: {
        Tensor* t = call.tensors[buffer.index];
        if ((t->storage->pending || t->storage->writer) &&
            !tensor_materialise(t, instance->plan->name.c_str())) {
          return false;
        }
        bases[i] = t->data();
        break;
      }
      case BufferSpec::Output: {
        Tensor* t = reinterpret_cast<Tensor*>(outputs[buffer.index]);
        bases[i] = t ? t->data() : nullptr;
        break;
      }
      case BufferSpec::Temporary:
        bases[i] = arena + instance->arena_offsets[i];
        break;
      case BufferSpec::Generator: {
        PyObject* object = buffer.index >= 0 ? call.objects[buffer.index] : nullptr;
        bases[i] = reinterpret_cast<char*>(generator_of(object));
        if (!bases[i]) return false;
        break;
      }
      case BufferSpec::Error:
        std::memset(errors, 0, kErrorWords * sizeof(int64_t));
        bases[i] = reinterpret_cast<char*>(errors);
        errors += kErrorWords;
        break;
    }
  }
  return true;
}

// In a sanitizer build the memory between temporaries is poisoned. (Temporaries with disjoint
// lifetimes share memory: each may access all of it.)
void fence_temporaries(const Instance* instance, const char* arena) {
  if (kRedZone == 0 || !arena) return;
  poison(arena, instance->arena_bytes);
  for (size_t i = 0; i < instance->code->buffers.size(); ++i) {
    const BufferSpec& buffer = instance->code->buffers[i];
    if (buffer.kind != BufferSpec::Temporary) continue;
    unpoison(arena + instance->arena_offsets[i], instance->registers[buffer.nbytes]);
  }
}

// Runs with or without the GIL. Without it the inputs' storages are held: another thread may drop
// a list that was passed to the call, or resize a tensor.
const char* run_released(const Execution& run, const Call& call, Failure* failure) {
  SmallArray<Storage*, kInlineBuffers> held(static_cast<size_t>(call.tensor_count));
  if (!held.get()) return kNoMemory;
  for (int32_t i = 0; i < call.tensor_count; ++i) {
    held.get()[i] = call.tensors[i]->storage;
    storage_incref(held.get()[i]);
  }
  const char* error;
  Py_BEGIN_ALLOW_THREADS error = run_all(run, failure);
  Py_END_ALLOW_THREADS for (int32_t slot : run.instance->code->written)++ held.get()[slot]->writes;
  for (int32_t i = 0; i < call.tensor_count; ++i) storage_decref(held.get()[i]);
  return error;
}

const char* run_held(const Execution& run, const Call& call, Failure* failure) {
  const char* error = run_all(run, failure);
  note_inputs(run.instance, call);
  return error;
}

bool check_errors(const Instance* instance, char* const* bases) {
  const std::vector<BufferSpec>& buffers = instance->code->buffers;
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i].kind != BufferSpec::Error) continue;
    const int64_t* block = reinterpret_cast<const int64_t*>(bases[i]);
    if (!check_error_block(instance->plan, buffers[i], block)) return false;
  }
  return true;
}

bool execute(Instance* instance, const Call& call, PyObject* const* outputs) {
  const Plan* plan = instance->plan;
  const PlanCode* code = instance->code;
  std::vector<int64_t> buffer_bytes;
  if (observing()) [[unlikely]] {
    watch_call(call, outputs);
    buffer_bytes = bytes_of_buffers(instance, call, outputs);
  }
  size_t error_count = 0;
  for (const BufferSpec& b : code->buffers) error_count += b.kind == BufferSpec::Error;
  SmallArray<char*, kInlineBuffers> bases(code->buffers.size());
  SmallArray<PackedUse, kInlinePackings> packed(instance->packings.size());
  alignas(kAlignment) int64_t few_errors[2 * kErrorWords];
  std::vector<int64_t> many_errors;
  if (error_count > 2) many_errors.resize(error_count * kErrorWords);
  int64_t* errors = error_count > 2 ? many_errors.data() : few_errors;
  char* arena = nullptr;
  if (instance->arena_bytes > 0) {
    arena = static_cast<char*>(block_allocate(instance->arena_bytes));
    fence_temporaries(instance, arena);
  }
  const char* error = nullptr;
  Failure failure{plan->name.c_str()};
  bool fine = true;
  if (!bases.get() || !packed.get() || (instance->arena_bytes > 0 && !arena)) {
    error = kNoMemory;
  } else {
    fine = locate_buffers(instance, call, outputs, arena, errors, bases.get());
    if (fine) {
      packed_bind(instance, call, bases.get(), packed.get());
      const Execution run{instance,
                          bases.get(),
                          call.scalars,
                          call.scalar_is_float,
                          errors,
                          error_count,
                          buffer_bytes.empty() ? nullptr : buffer_bytes.data(),
                          packed.get()};
      error = instance->total_work > kReleaseWork ? run_released(run, call, &failure)
                                                  : run_held(run, call, &failure);
      note_outputs(plan, outputs);
      packed_finish(packed.get(), instance->packings.size(), !error && !flagged(run));
    }
  }
  if (arena) block_free(arena, instance->arena_bytes);
  if (error) raise_routine_error(plan->name.c_str(), failure.kind, error);
  return fine && !error && (error_count == 0 || check_errors(instance, bases.get()));
}

// The time of runs on the baseline decides when the compiler is called.
[[gnu::noinline]] bool execute_timed(Instance* instance, const Call& call,
                                     PyObject* const* outputs) {
  const int64_t start = profile_now();
  const bool fine = execute(instance, call, outputs);
  tier_spent(instance->code, profile_now() - start);
  return fine;
}

bool run_general(Instance* instance, const Call& call, PyObject* const* outputs) {
  const bool timed = instance->code->awaits;
  return timed ? execute_timed(instance, call, outputs) : execute(instance, call, outputs);
}

bool run_simple(const Instance* instance, const Call& call, PyObject* const* outputs) {
  alignas(kAlignment) char arena[kStackArena];
  char *bases[kInlineBuffers], *pointers[kInlineBuffers];
  Scalar scalars[kInlineScalars];
  if (!locate_buffers(instance, call, outputs, arena, nullptr, bases)) return false;
  const size_t packings = instance->packings.size();
  PackedUse packed[kInlinePackings];
  if (packings) packed_bind(instance, call, bases, packed);
  for (const ReadyLaunch& ready : instance->ready) {
    if (ready.packing >= 0 && packed[ready.packing].filled) continue;
    const Launch& launch = *ready.launch;
    const int32_t* buffers = launch.buffers.data();
    const size_t count = launch.buffers.size();
    for (size_t i = 0; i < count; ++i) pointers[i] = bases[buffers[i]];
    if (ready.offsets) {
      for (size_t i = 0; i < count; ++i) pointers[i] += ready.offsets[i];
    }
    for (size_t i = 0; i < launch.scalars.size(); ++i) {
      scalars[i] = read_scalar(call.scalars, call.scalar_is_float, launch.scalars[i]);
    }
    char* scratch = nullptr;
    if (ready.scratch > 0) {
      scratch = static_cast<char*>(worker_scratch(0, ready.scratch));
      if (!scratch) {
        packed_finish(packed, packings, false);
        PyErr_NoMemory();
        return false;
      }
    }
    launch.kernel(pointers, ready.sizes, scalars, 0, ready.chunks, scratch);
  }
  note_inputs(instance, call);
  note_new(instance->plan, outputs);
  if (packings) packed_finish(packed, packings, true);
  return true;
}

}  // namespace

void raise_routine_error(const char* op, ErrorKind kind, const char* text) {
  if (text == kRaisedInPython) return raise_from_python();
  const bool memory = std::strncmp(text, kNoMemory, std::strlen(kNoMemory)) == 0;
  const auto type = steal(memory ? Py_NewRef(PyExc_MemoryError) : error_type(kind));
  if (!type) return;
  if (text[0] == '[') {
    PyErr_SetString(type.get(), text);
  } else {
    PyErr_Format(type.get(), "[%s] %s", op, text);
  }
}

Instance* instance_new(Plan* plan, const int64_t* symbols, int32_t count) {
  if (count != plan->metadata.inputs) return nullptr;
  auto instance = std::make_unique<Instance>();
  instance->registers.resize(static_cast<size_t>(plan->metadata.registers()));
  std::copy(symbols, symbols + count, instance->registers.begin());
  if (!plan->metadata.run(instance->registers.data())) return nullptr;
  for (int32_t guard : plan->guards) {
    if (!instance->registers[guard]) return nullptr;
  }
  instance->plan = plan;
  if (!prepare_geometry(instance.get())) return nullptr;
  Py_INCREF(plan);
  instance->id = next_instance_id.fetch_add(1);
  return instance.release();
}

Instance* instance_renewed(const Instance* instance) {
  Plan* plan = instance->plan;
  Instance* fresh = instance_new(plan, instance->registers.data(), plan->metadata.inputs);
  if (fresh) fresh->id = instance->id;  // keys of streams name it
  return fresh;
}

void instance_decref(Instance* instance) {
  if (--instance->references > 0) return;
  drop(instance->code);
  drop(instance->plan);
  delete instance;
}

bool instance_prepare(Instance* instance) {
  if (instance->code) return true;
  Plan* plan = instance->plan;
  if (!plan->code) {
    const ProfileScope scope(EventKind::Compile, plan->name.c_str());
    if (!plan_compile(plan)) return false;
  }
  if (instance->code) return true;  // while Python compiled
  const auto code = share(plan->code);
  instance->registers.resize(static_cast<size_t>(code->program.registers()));
  if (!code->program.run(instance->registers.data())) {
    PyErr_Format(PyExc_RuntimeError,
                 "[%s] a size overflows 64 bits\nhint: the result would not fit in memory",
                 plan->name.c_str());
    return false;
  }
  instance->code = share(code.get()).release();
  if (!plan_arena(instance)) {
    drop(instance->code);
    return false;
  }
  plan->arena_bytes = instance->arena_bytes;
  plan->arena_least = instance->arena_least;
  resolve_launches(instance);
  instance->simple = is_simple(instance);
  return true;
}

static bool run_on_host(Instance* instance, const Call& call, PyObject** outputs) {
  const Plan* plan = instance->plan;
  if (!instance->code && !instance_prepare(instance)) return false;
  if (!make_outputs_at(instance, call, Device{}, outputs)) return false;
  if (dry_run || instance->ready.empty()) return true;
  const bool simple = instance->simple && !observing();  // the straight path takes no times
  if (simple ? run_simple(instance, call, outputs) : run_general(instance, call, outputs)) {
    return true;
  }
  drop_outputs(plan, outputs);
  return false;
}

bool plan_run(Instance* instance, const Call& call, PyObject** outputs) {
  const Plan* plan = instance->plan;
  if (plan->elsewhere) [[unlikely]] {
    return plan_run_elsewhere(instance, call, outputs);
  }
  if (plan->constants) [[unlikely]]
    return plan_run_frozen(instance, call, outputs, run_on_host);
  return run_on_host(instance, call, outputs);
}

}  // namespace fb
