// The table of devices; copies among them.
#include "device/devices.h"

#include <algorithm>

#include "call/op_internal.h"

namespace fb {
namespace {

using StreamTable = int64_t[kMaxDevices][kMaxDevices];

// Of this thread; null until it leaves a default stream. (The dynamic linker has little memory for
// thread-local variables of libraries that are loaded late.)
thread_local std::unique_ptr<StreamTable[]> streams;

int index_of(Device device) { return device.index < 0 ? 0 : device.index; }

}  // namespace

constinit const DeviceRuntime* device_runtimes[kMaxDevices] = {};
constinit int device_count = 1;

int device_find(const char* name) {
  for (int kind = 0; kind < device_count; ++kind) {
    if (std::strcmp(device_runtimes[kind]->name, name) == 0) return kind;
  }
  return -1;
}

const char* device_register(const DeviceRuntime* runtime) {
  if (runtime->interface != kDeviceInterface) return "it was built for another interface";
  if (runtime->count > kMaxDevices) return "it has too many devices";
  if (runtime->memory == DeviceMemory::Host) {  // which may be registered after others
    if (device_runtimes[0]) return "there is one host";
    device_runtimes[0] = runtime;
    return nullptr;
  }
  if (device_count == kMaxDevices) return "there are too many kinds of devices";
  for (int kind = 1; kind < device_count; ++kind) {
    if (std::strcmp(device_runtimes[kind]->name, runtime->name) == 0) return "its name is taken";
  }
  device_runtimes[device_count++] = runtime;
  return nullptr;
}

int64_t current_stream(Device device) {
  return streams ? streams[0][device.kind][index_of(device)] : kDefaultStream;
}
void set_current_stream(Device device, int64_t stream) {
  if (!streams) streams = std::make_unique<StreamTable[]>(1);
  streams[0][device.kind][index_of(device)] = stream;
}

bool device_fine(const char* op, DeviceError error) {
  if (error) [[unlikely]]
    raise_routine_error(op, error.kind, error.text);
  return !error;
}

bool device_synchronize(Device device, int64_t stream, const char* op) {
  const DeviceRuntime& runtime = runtime_of(device);
  if (!runtime.synchronize) return true;
  DeviceError error;
  Py_BEGIN_ALLOW_THREADS error = runtime.synchronize(device.index, stream);
  Py_END_ALLOW_THREADS return device_fine(op, error);
}

bool device_copy(Device to, void* to_address, Device from, const void* from_address, int64_t nbytes,
                 const char* op) {
  if (nbytes == 0) return true;
  if (!on_host(to) && !on_host(from) && to.kind != from.kind) {  // by way of the host
    char* staged = static_cast<char*>(block_allocate(nbytes));
    if (!staged) return device_fine(op, "out of memory");
    const bool fine = device_copy(Device{}, staged, from, from_address, nbytes, op) &&
                      device_copy(to, to_address, Device{}, staged, nbytes, op);
    block_free(staged, nbytes);
    return fine;
  }
  const Device working = on_host(to) ? from : to;
  const int64_t stream = current_stream(working);
  const bool waits = on_host(to) || on_host(from);
  const auto index = [](Device d) { return on_host(d) ? kHostIndex : int32_t{d.index}; };
  if (!waits && from.index != to.index && !device_synchronize(from, current_stream(from), op))
    return false;
  return device_fine(op, runtime_of(working).copy(working.index, stream, index(to), to_address,
                                                  index(from), from_address, nbytes)) &&
         (!waits || device_synchronize(working, stream, op));
}

bool device_fill(Tensor* t, const void* element, const char* op) {
  if (t->numel == 0 || !has_memory(t->device)) return true;
  return device_fine(
      op, runtime_of(t->device).fill(t->device.index, current_stream(t->device), t->data(), element,
                                     item_size(t->dtype), t->numel));
}

int64_t span_of(const Tensor* t) {
  int64_t last = 0;
  for (int d = 0; d < t->ndim; ++d) last += (t->sizes()[d] - 1) * t->strides()[d];
  return t->numel == 0 ? 0 : (last + 1) * item_size(t->dtype);
}

bool tensor_copy_bytes(Tensor* to, const Tensor* from, const char* op) {
  const int64_t nbytes = span_of(from);
  return nbytes == 0 || device_copy(to->device, to->data(), from->device, from->data(), nbytes, op);
}

Tensor* tensor_placed(Tensor* t, Device device, const char* op) {
  if (!tensor_materialise(t, op)) return nullptr;
  if (t->device.kind == device.kind && t->device.index == device.index) {
    return share(t).release();
  }
  Storage* storage = storage_new(span_of(t), device);
  if (!storage) return nullptr;
  auto copy = steal(tensor_new(storage, t->dtype, device, t->ndim, t->sizes(), t->strides(), 0));
  return copy && tensor_copy_bytes(copy.get(), t, op) ? copy.release() : nullptr;
}

}  // namespace fb
