// The CPU as a device: host memory, and work that is done when a call returns. Plans of the host
// alone do not come here (plan_run.cpp), nor do its storages (storage.cpp): they must be fast.
#include "core.h"
#include "device/devices.h"

namespace fb {
namespace {

void* allocate(int32_t, int64_t, int64_t nbytes) { return block_allocate(nbytes); }
void release(int32_t, void* address, int64_t nbytes) { block_free(address, nbytes); }

DeviceError copy(int32_t, int64_t, int32_t, void* to, int32_t, const void* from, int64_t nbytes) {
  std::memmove(to, from, static_cast<size_t>(nbytes));
  return nullptr;
}

DeviceError fill(int32_t, int64_t, void* to, const void* pattern, int64_t bytes, int64_t count) {
  char* at = static_cast<char*>(to);
  for (int64_t i = 0; i < count; ++i) std::memcpy(at + i * bytes, pattern, (size_t)bytes);
  return nullptr;
}

DeviceError launch(int32_t, int64_t, const DeviceLaunch& launch) {
  if (launch.routine) return run_routine(launch, launch.buffers);
  char* scratch = nullptr;
  if (launch.scratch > 0) {
    scratch = static_cast<char*>(worker_scratch(0, launch.scratch));
    if (!scratch) return "out of memory";
  }
  launch.kernel(launch.buffers, launch.sizes, launch.scalars, 0, launch.chunks, scratch);
  return nullptr;
}

char* generator(int32_t, void* host) { return static_cast<char*>(host); }

constexpr DeviceRuntime kRuntime = {
    .name = "cpu",
    .description = "the host",
    .memory = DeviceMemory::Host,
    .compiles = true,
    .launches = true,
    .count = 1,
    .allocate = allocate,
    .release = release,
    .copy = copy,
    .fill = fill,
    .launch = launch,
    .generator = generator,
};
const DeviceRegistration registration(&kRuntime);

}  // namespace
}  // namespace fb
