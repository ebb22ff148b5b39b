// The interface of a device: a table of functions. A device is one file that fills the table and
// registers it (native/device/<name>.cpp, or a library that is loaded later), and one Python module
// that builds its kernels (flambeau/compiler/target_<name>.py). No other file names a device.
//
// The header is self-contained: a device outside the core includes nothing else.
//
// Work is asynchronous and ordered within a stream. `launch`, `copy`, `fill` and `release` enqueue;
// their arguments are copied, the memory they name stays allocated until the stream has passed
// them. Functions are called with the GIL held and must not take it; `synchronize` and
// `event_synchronize` are called without it.
#pragma once
#include <cstddef>
#include <cstdint>

namespace fb {

union Scalar {
  double d;
  int64_t i;
};
// A compiled kernel: runs chunks [begin, end). p: buffers, n: sizes/strides, s: run-time scalars.
using KernelFunction = void (*)(char* const* p, const int64_t* n, const Scalar* s, int64_t begin,
                                int64_t end, char* scratch);
// A native routine does its own parallelism; returns null or a static error text.
enum class ErrorKind : uint8_t { Index, Runtime, Value, LinearAlgebra };
struct RoutineContext {
  char* const* p;
  const int64_t* n;
  const Scalar* s;
  ErrorKind* error;  // of the error text; Runtime on entry
  const char* fail(ErrorKind kind, const char* text) const {
    *error = kind;
    return text;
  }
};
using RoutineFunction = const char* (*)(const RoutineContext&);

constexpr uint32_t kDeviceInterface = 1;
constexpr int32_t kMaxDevices = 16;  // of all kinds, and of one kind

// Where the elements of a device's tensors are.
enum class DeviceMemory : uint8_t {
  None,  // nowhere: its tensors have a shape, a dtype and strides
  Host,  // in memory that the process reads and writes
  Own,   // behind addresses that only the device's functions accept
};

// A launch of a plan: one kernel or one routine with its operands.
struct DeviceLaunch {
  const char* name;
  KernelFunction kernel;    // the address that the target module returned; null for a routine
  RoutineFunction routine;  // null for a kernel
  char* const* buffers;     // addresses of the device; null for a tensor without elements
  const uint8_t* states;    // per buffer: 1 for an address that `generator` returned
  size_t buffer_count;
  const int64_t* sizes;
  size_t size_count;
  const Scalar* scalars;
  size_t scalar_count;
  int64_t chunks;   // of a kernel
  int64_t scratch;  // bytes of scratch memory that a kernel needs per worker
};

struct DeviceStatistics {
  int64_t allocated = 0, peak = 0;  // bytes in use now, and at most since the start
  int64_t allocations = 0;
};

// A static text with the kind of its exception; no text for success.
struct DeviceError {
  const char* text = nullptr;
  ErrorKind kind = ErrorKind::Runtime;
  DeviceError() = default;
  DeviceError(const char* error, ErrorKind error_kind = ErrorKind::Runtime)
      : text(error), kind(error_kind) {}
  explicit operator bool() const { return text != nullptr; }
};
// Runs the routine of a launch on buffers that it can read.
inline DeviceError run_routine(const DeviceLaunch& launch, char* const* buffers) {
  ErrorKind kind = ErrorKind::Runtime;
  const char* text = launch.routine({buffers, launch.sizes, launch.scalars, &kind});
  return {text, kind};
}
constexpr int32_t kHostIndex = -1;     // as the index of a copy's end: host memory
constexpr int64_t kAllStreams = -1;    // as the stream to synchronize with
constexpr int64_t kDefaultStream = 0;  // every device has it

struct DeviceRuntime {
  uint32_t interface = kDeviceInterface;
  const char* name = nullptr;         // "cpu": the `type` of torch.device
  const char* description = nullptr;  // of the hardware, for people
  DeviceMemory memory = DeviceMemory::None;
  bool compiles = false;  // whether plans are compiled for it
  bool launches = false;  // whether compiled launches run
  int32_t count = 0;      // devices of this kind; 0: an index means nothing

  // Memory, for work of `stream` from here on; null when it is exhausted.
  void* (*allocate)(int32_t index, int64_t stream, int64_t nbytes) = nullptr;
  void (*release)(int32_t index, void* address, int64_t nbytes) = nullptr;
  // `index`: of the device whose stream it is. A copy from or to the host is synchronized by the
  // caller.
  DeviceError (*copy)(int32_t index, int64_t stream, int32_t to_index, void* to, int32_t from_index,
                      const void* from, int64_t nbytes) = nullptr;
  // Repeats a pattern of 1 to 16 bytes.
  DeviceError (*fill)(int32_t index, int64_t stream, void* to, const void* pattern,
                      int64_t pattern_bytes, int64_t count) = nullptr;
  DeviceError (*launch)(int32_t index, int64_t stream, const DeviceLaunch& launch) = nullptr;

  // Streams. A failure of enqueued work is returned once, by the next synchronize or event.
  int64_t (*stream_new)(int32_t index) = nullptr;  // -1 when the limit is reached
  void (*stream_delete)(int32_t index, int64_t stream) = nullptr;
  bool (*stream_idle)(int32_t index, int64_t stream) = nullptr;
  DeviceError (*synchronize)(int32_t index, int64_t stream) = nullptr;

  // Events: points in the order of a stream.
  void* (*event_new)(int32_t index) = nullptr;
  void (*event_delete)(void* event) = nullptr;
  void (*event_record)(void* event, int32_t index, int64_t stream) = nullptr;
  void (*event_wait)(void* event, int32_t index, int64_t stream) = nullptr;  // the stream waits
  bool (*event_done)(void* event) = nullptr;
  void (*event_synchronize)(void* event) = nullptr;
  double (*event_milliseconds)(void* from, void* to) = nullptr;  // between two that are done

  // The address that launches get for a generator of the core; null: the device draws no numbers.
  char* (*generator)(int32_t index, void* generator) = nullptr;
  void (*statistics)(int32_t index, DeviceStatistics* statistics) = nullptr;
};

}  // namespace fb
