// Running a plan on a device: its launches go to the current stream, in order. Operands that are on
// another device are copied first. A launch that may find an error in data, a routine and a draw of
// random numbers are waited for; all else runs while the host goes on.
#include "call/op_internal.h"
#include "device/devices.h"
#include "plan/plan_run.h"
#include "plan/prepacked.h"

namespace fb {
namespace {

class DeviceRun {
 public:
  DeviceRun(const Instance* instance, const Call& call, PyObject* const* outputs)
      : instance_(instance),
        plan_(instance->plan),
        code_(instance->code),
        call_(call),
        outputs_(outputs),
        name_(plan_->name.c_str()),
        device_(plan_->place),
        runtime_(runtime_of(device_)),
        stream_(current_stream(device_)) {}
  DeviceRun(const DeviceRun&) = delete;
  DeviceRun& operator=(const DeviceRun&) = delete;
  ~DeviceRun() {
    for (auto [address, nbytes] : temporary_) runtime_.release(device_.index, address, nbytes);
  }

  bool run() {
    bases_.resize(code_->buffers.size());
    if (!locate()) return false;
    std::vector<PackedUse> packed(instance_->packings.size());
    packed_bind(instance_, call_, bases_.data(), packed.data());
    for (const ReadyLaunch& ready : instance_->ready) {
      if (ready.packing >= 0 && packed[static_cast<size_t>(ready.packing)].filled) continue;
      if (!launch(ready)) return packed_finish(packed.data(), packed.size(), false), false;
    }
    packed_finish(packed.data(), packed.size(), true);
    return true;
  }

 private:
  char* allocate(int64_t nbytes) {
    auto* address = static_cast<char*>(runtime_.allocate(device_.index, stream_, nbytes));
    if (address) {
      temporary_.emplace_back(address, nbytes);
    } else {
      device_fine(name_, "out of memory");
    }
    return address;
  }

  bool locate_input(Tensor* t, char** base) {
    if (!has_memory(t->device)) {
      PyErr_Format(PyExc_NotImplementedError,
                   "[%s] Cannot copy out of %s tensor; no data!\nhint: make it on cpu", name_,
                   runtime_of(t->device).name);
      return false;
    }
    auto here = steal(tensor_placed(t, device_, name_));
    if (!here) return false;
    *base = here->storage->data ? here->data() : nullptr;
    placed_.push_back(std::move(here));
    return true;
  }

  bool locate_error(char** base) {
    const int64_t zero = 0;
    *base = allocate(kErrorWords * sizeof zero);
    return *base && device_fine(name_, runtime_.fill(device_.index, stream_, *base, &zero,
                                                     sizeof zero, kErrorWords));
  }

  bool locate() {
    char* arena = nullptr;
    if (instance_->arena_bytes > 0 && !(arena = allocate(instance_->arena_bytes))) return false;
    for (size_t i = 0; i < bases_.size(); ++i) {
      const BufferSpec& buffer = code_->buffers[i];
      bool fine = true;
      if (buffer.kind == BufferSpec::Input) {
        fine = locate_input(call_.tensors[buffer.index], &bases_[i]);
      } else if (buffer.kind == BufferSpec::Output) {
        const auto* t = reinterpret_cast<const Tensor*>(outputs_[buffer.index]);
        bases_[i] = t && t->storage->data ? t->data() : nullptr;
      } else if (buffer.kind == BufferSpec::Temporary) {
        bases_[i] = arena + instance_->arena_offsets[i];
      } else if (buffer.kind == BufferSpec::Generator) {
        const bool present = buffer.index >= 0 && buffer.index < call_.object_count;
        bases_[i] = generator_address(present ? call_.objects[buffer.index] : nullptr, device_);
        fine = bases_[i] != nullptr;
      } else {
        fine = locate_error(&bases_[i]);
      }
      if (!fine) return false;
    }
    return true;
  }

  bool launch(const ReadyLaunch& ready) {
    const Launch& launch = *ready.launch;
    const size_t count = launch.buffers.size();
    std::vector<char*> buffers(count);
    std::vector<uint8_t> states(count);
    std::vector<Scalar> scalars(launch.scalars.size());
    bool waits = launch.routine != nullptr;
    for (size_t i = 0; i < count; ++i) {
      char* base = bases_[static_cast<size_t>(launch.buffers[i])];
      buffers[i] = base && ready.offsets ? base + ready.offsets[i] : base;
      states[i] = code_->buffers[launch.buffers[i]].kind == BufferSpec::Generator;
      waits |= states[i] != 0;
    }
    for (size_t i = 0; i < scalars.size(); ++i)
      scalars[i] = read_scalar(call_.scalars, call_.scalar_is_float, launch.scalars[i]);
    const DeviceLaunch work{launch.name.c_str(), launch.kernel,       launch.routine,
                            buffers.data(),      states.data(),       count,
                            ready.sizes,         launch.sizes.size(), scalars.data(),
                            scalars.size(),      ready.chunks,        ready.scratch};
    return device_fine(name_, runtime_.launch(device_.index, stream_, work)) &&
           (!waits || device_synchronize(device_, stream_, name_)) && check_errors(launch);
  }

  // After a bad index nothing may run that relies on it.
  bool check_errors(const Launch& launch) {
    for (const int32_t number : launch.buffers) {
      const BufferSpec& buffer = code_->buffers[static_cast<size_t>(number)];
      if (buffer.kind != BufferSpec::Error) continue;
      int64_t block[kErrorWords];
      if (!device_copy(Device{}, block, device_, bases_[static_cast<size_t>(number)], sizeof block,
                       name_) ||
          !check_error_block(plan_, buffer, block))
        return false;
    }
    return true;
  }

  const Instance* instance_;
  const Plan* plan_;
  const PlanCode* code_;
  const Call& call_;
  PyObject* const* outputs_;
  const char* name_;
  const Device device_;
  const DeviceRuntime& runtime_;
  const int64_t stream_;
  std::vector<char*> bases_;
  std::vector<std::pair<char*, int64_t>> temporary_;
  std::vector<Ref<Tensor>> placed_;
};

}  // namespace

bool plan_run_elsewhere(Instance* instance, const Call& call, PyObject** outputs) {
  const Plan* plan = instance->plan;
  const Device first = call.tensor_count > 0 ? call.tensors[0]->device : Device{};
  const bool dry = is_abstract(plan->place);
  if (!dry && !instance->code && !instance_prepare(instance)) return false;
  if (!make_outputs(instance, call, first, outputs)) return false;
  if (dry || !runtime_of(plan->place).launches || dry_run || instance->ready.empty()) return true;
  const bool fine = DeviceRun(instance, call, outputs).run();
  note_inputs(instance, call);
  note_outputs(plan, outputs);
  if (!fine) drop_outputs(plan, outputs);
  return fine;
}

}  // namespace fb
