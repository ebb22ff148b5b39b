// Runs launches under a watcher: a Python callable that gets what each instruction of a block
// program computed, and the operands of every other launch before and after it.
#include "plan/plan_watch.h"

#include "baseline/block_program.h"
#include "call/op_internal.h"
#include "routines/routines_python.h"
#include "runtime/profile.h"

namespace fb {

constinit FB_THREAD_LOCAL PyObject* launch_watcher = nullptr;

namespace {

constexpr int32_t kBefore = -2, kAfter = -1;  // instead of an instruction, of other launches
constexpr const char* kNoMemory = "out of memory";

struct Operands {
  const Call* call = nullptr;
  PyObject* const* outputs = nullptr;
};
constinit FB_THREAD_LOCAL Operands operands;
int watchers = 0;  // threads that watch

void assign_watcher(PyObject* callable) {
  const bool before = launch_watcher != nullptr, after = callable != nullptr;
  watchers += static_cast<int>(after) - static_cast<int>(before);
  assign(launch_watcher, share(callable));
  set_watching(watchers > 0);
}

// Bytes that a tensor's elements take; those that repeat (an expanded dimension) once.
int64_t distinct_bytes(const Tensor* t) {
  int64_t count = t->numel > 0 ? item_size(t->dtype) : 0;
  for (int d = 0; d < t->ndim && count > 0; ++d) {
    if (t->strides()[d] != 0) count *= t->sizes()[d];
  }
  return count;
}

// One launch while it runs. The watcher is away while it is called; `watcher` holds it meanwhile.
class Watch {
 public:
  explicit Watch(const WatchedLaunch& launch)
      : launch_(launch), number_(launch.ready->launch - launch.instance->code->launches.data()) {}

  const char* run_program();
  const char* run_other(ErrorKind* kind);

 private:
  void step(const BlockStep& step);
  bool note_buffers(int32_t when);
  Ref<> buffer(size_t position) const;
  bool notify(int32_t instruction, Ref<> details);
  bool ended() const { return error_ || !launch_watcher; }
  const Launch& launch() const { return *launch_.ready->launch; }

  const WatchedLaunch& launch_;
  ptrdiff_t number_;
  int64_t chunk_ = 0;
  const char* error_ = nullptr;
};

// watcher(plan, launch, chunk, instruction, details): False ends the watch.
bool Watch::notify(int32_t instruction, Ref<> details) {
  if (details) {
    PyObject* const watcher = std::exchange(launch_watcher, nullptr);
    const Operands held = operands;
    const auto head =
        steal(Py_BuildValue("(OnLiO)", launch_.instance->plan, static_cast<Py_ssize_t>(number_),
                            static_cast<long long>(chunk_), instruction, details.get()));
    const auto answer = head ? steal(PyObject_Call(watcher, head.get(), nullptr)) : Ref<>();
    operands = held;
    launch_watcher = watcher;
    if (answer.get() == Py_False) assign_watcher(nullptr);
    if (answer) return true;
  }
  error_ = raised_in_python();
  return false;
}

// (rows, columns, first row, first column, row axes, width, values: bytes or None)
void Watch::step(const BlockStep& step) {
  if (ended()) return;
  const PyGILState_STATE state = PyGILState_Ensure();
  const size_t axes = launch().program->rows.size();
  auto at =
      steal(build_tuple(axes, [&step](size_t i) { return PyLong_FromLongLong(step.axes[i]); }));
  auto values = steal(step.values ? PyBytes_FromStringAndSize(step.values, step.count * step.width)
                                  : Py_NewRef(Py_None));
  Ref<> details;
  if (at && values) {
    details = steal(Py_BuildValue(
        "(LLLLOiO)", static_cast<long long>(step.rows), static_cast<long long>(step.columns),
        static_cast<long long>(step.first_row), static_cast<long long>(step.first_column), at.get(),
        step.width, values.get()));
  }
  notify(step.instruction, std::move(details));
  PyGILState_Release(state);
}

const char* Watch::run_program() {
  const ReadyLaunch& ready = *launch_.ready;
  void* scratch = worker_scratch(0, ready.scratch);
  if (!scratch) return kNoMemory;
  const auto call = [](void* self, const BlockStep& step) {
    static_cast<Watch*>(self)->step(step);
  };
  const BlockObserver observer{call, this};
  for (chunk_ = 0; chunk_ < ready.chunks; ++chunk_) {
    step_block_program(launch_.pointers, ready.sizes, launch_.scalars, chunk_, chunk_ + 1,
                       static_cast<char*>(scratch), observer);
  }
  return error_;
}

// A tensor; the bytes of a temporary; None.
Ref<> Watch::buffer(size_t position) const {
  const int32_t number = launch().buffers[position];
  const BufferSpec& spec = launch_.instance->code->buffers[static_cast<size_t>(number)];
  if (spec.kind == BufferSpec::Input) {
    return share(object_of(operands.call->tensors[spec.index]));
  }
  if (spec.kind == BufferSpec::Output && operands.outputs[spec.index]) {
    return share(operands.outputs[spec.index]);
  }
  if (spec.kind != BufferSpec::Temporary || !launch_.pointers[position]) return share(Py_None);
  const int64_t offset = launch_.ready->offsets ? launch_.ready->offsets[position] : 0;
  const int64_t bytes = launch_.instance->registers[static_cast<size_t>(spec.nbytes)] - offset;
  return steal(PyBytes_FromStringAndSize(launch_.pointers[position], std::max<int64_t>(bytes, 0)));
}

bool Watch::note_buffers(int32_t when) {
  if (ended()) return !error_;
  const PyGILState_STATE state = PyGILState_Ensure();
  const bool fine = notify(when, steal(build_tuple(launch().buffers.size(), [this](size_t i) {
                             return buffer(i).release();
                           })));
  PyGILState_Release(state);
  return fine;
}

// A kernel of machine code runs all of its chunks at once.
const char* Watch::run_other(ErrorKind* kind) {
  const ReadyLaunch& ready = *launch_.ready;
  if (!note_buffers(kBefore)) return error_;
  if (launch().kernel) {
    char* scratch = nullptr;
    if (ready.scratch > 0) {
      scratch = static_cast<char*>(worker_scratch(0, ready.scratch));
      if (!scratch) return kNoMemory;
    }
    launch().kernel(launch_.pointers, ready.sizes, launch_.scalars, 0, ready.chunks, scratch);
  } else {
    const Operands held = operands;  // the routine may be Python
    const char* error = launch().routine({launch_.pointers, ready.sizes, launch_.scalars, kind});
    operands = held;
    if (error) return error;
  }
  note_buffers(kAfter);
  return error_;
}

PyObject* set_watcher(PyObject*, PyObject* callable) {
  assign_watcher(callable == Py_None ? nullptr : callable);
  Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"set_launch_watcher", set_watcher, METH_O,
     "Sets what sees the launches of this thread, step by step; None: nothing does."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

std::vector<int64_t> bytes_of_buffers(const Instance* instance, const Call& call,
                                      PyObject* const* outputs) {
  std::vector<int64_t> bytes;
  for (const BufferSpec& b : instance->code->buffers) {
    int64_t size = 0;
    if (b.kind == BufferSpec::Input) size = distinct_bytes(call.tensors[b.index]);
    if (b.kind == BufferSpec::Output && outputs[b.index]) {
      size = distinct_bytes(reinterpret_cast<const Tensor*>(outputs[b.index]));
    }
    if (b.kind == BufferSpec::Temporary) size = instance->registers[b.nbytes];
    bytes.push_back(size);
  }
  return bytes;
}

void watch_call(const Call& call, PyObject* const* outputs) {
  if (launch_watcher) operands = {&call, outputs};
}

const char* run_watched(const WatchedLaunch& launch, ErrorKind* kind) {
  Watch watch(launch);
  return launch.ready->launch->program ? watch.run_program() : watch.run_other(kind);
}

bool init_plan_watch(PyObject* module) { return PyModule_AddFunctions(module, methods) == 0; }

}  // namespace fb
