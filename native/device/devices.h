// The table of devices, and what the core does with tensors that are not in host memory.
#pragma once
#include "core.h"
#include "device/device_runtime.h"

namespace fb {

// By Device::kind; the first one is the host. Entries are added and never change.
extern const DeviceRuntime* device_runtimes[kMaxDevices];
extern int device_count;
inline const DeviceRuntime& runtime_of(Device device) { return *device_runtimes[device.kind]; }
inline bool has_memory(Device device) {
  return on_host(device) || runtime_of(device).memory != DeviceMemory::None;
}
// Whether plans for the device stop after their results' shapes are computed.
inline bool is_abstract(Device device) { return !runtime_of(device).compiles; }

// Adds a device; null or an error text. The table must outlive the process.
const char* device_register(const DeviceRuntime* runtime);
// Of a file of the core: `const DeviceRegistration registration(&runtime);`
struct DeviceRegistration {
  explicit DeviceRegistration(const DeviceRuntime* runtime) { device_register(runtime); }
};
int device_find(const char* name);  // Device::kind, or -1

// The stream of this thread's work on a device that has streams.
int64_t current_stream(Device device);
void set_current_stream(Device device, int64_t stream);
// Waits for a stream without the GIL. False + exception where its work failed.
bool device_synchronize(Device device, int64_t stream, const char* op);
bool device_fine(const char* op, DeviceError error);  // false + exception for an error

// Copies `nbytes` between two memories; waits if one of them is the host's.
bool device_copy(Device to, void* to_address, Device from, const void* from_address, int64_t nbytes,
                 const char* op);
// Sets every element of a tensor without gaps to the bytes at `element`.
bool device_fill(Tensor* t, const void* element, const char* op);
// Bytes from a tensor's first element to the end of its last one.
int64_t span_of(const Tensor* t);
// A tensor of the same strides on another device: itself if it is there, else a copy of its bytes
// with the gaps. Null + exception. (New reference.)
Tensor* tensor_placed(Tensor* t, Device device, const char* op);
// Copies a tensor's bytes with the gaps to one of the same geometry.
bool tensor_copy_bytes(Tensor* to, const Tensor* from, const char* op);

// Runs a plan that is not for the host alone (see plan_run).
bool plan_run_elsewhere(Instance* instance, const Call& call, PyObject** outputs);
// A generator as launches on a device get it, or null + exception.
char* generator_address(PyObject* generator, Device device);

bool init_devices(PyObject* module);

}  // namespace fb
