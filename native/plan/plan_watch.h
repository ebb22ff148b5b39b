// Launches that are watched: `compiler.step` (flambeau/compiler/stepping.py) sees each instruction
// of block programs, and the operands of all other launches.
#pragma once
#include <vector>

#include "core.h"

namespace fb {

// Of this thread, owned; null: its launches run as ever. While it is called it is null, too.
extern constinit FB_THREAD_LOCAL PyObject* launch_watcher;

// Notes where the operands and results of the present call are.
void watch_call(const Call& call, PyObject* const* outputs);

// Bytes of every buffer of a call, for profiles.
std::vector<int64_t> bytes_of_buffers(const Instance* instance, const Call& call,
                                      PyObject* const* outputs);

// A launch with its operands.
struct WatchedLaunch {
  const Instance* instance;
  const ReadyLaunch* ready;
  char* const* pointers;
  const Scalar* scalars;
};

// Runs it on this thread, chunk by chunk. Null or an error text. With or without the GIL.
const char* run_watched(const WatchedLaunch& launch, ErrorKind* kind);

bool init_plan_watch(PyObject* module);

}  // namespace fb
