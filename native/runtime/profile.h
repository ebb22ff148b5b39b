// Hooks of the profiler (profile.cpp). While no profile runs a hook is one relaxed load.
#pragma once
#include "core.h"

namespace fb {

enum ProfileFlag : uint32_t {
  kProfileOn = 1,
  kProfileShapes = 2,  // shapes and dtypes of an op's arguments
  kProfileStacks = 4,  // the Python frames of ops and ranges
  kProfileMemory = 8,  // blocks that are allocated and released
  kWatching = 16,      // no profile: a thread watches launches (plan/plan_watch.h)
};
extern std::atomic<uint32_t> profile_flags;
inline bool observing() { return profile_flags.load(std::memory_order_relaxed) != 0; }
inline bool profiling() {
  return (profile_flags.load(std::memory_order_relaxed) & ~uint32_t{kWatching}) != 0;
}
void set_watching(bool on);

// flambeau/autograd/profiler_collect.py uses the same numbers.
enum class EventKind : uint8_t {
  Op = 0,        // a call of an operator
  Recorded = 1,  // the same while `compile` records: it is run later, in a region
  Range = 2,     // record_function
  Backward = 3,  // a node of the tape
  Region = 4,    // the program that `compile` built from recorded calls
  Trace = 5,     // a plan is built: first call of a class of calls
  Compile = 6,   // its kernels are built
  Launch = 7,    // a kernel or a native routine
  Piece = 8,     // a worker's part of a launch
  Memory = 9,    // a block is allocated (bytes > 0) or released
};

// Where an open event is: in the log of the thread that began it.
struct EventPlace {
  int32_t log = -1;  // -1: none
  uint32_t session = 0, index = 0;
};

// The data of a launch when it is over.
struct LaunchRecord {
  const char* name;
  int64_t start, end, bytes, flops, work, busy;
  int32_t threads, group;
};

// Time that the threads spent on one launch; shared between them.
struct LaunchClock {
  std::atomic<int64_t> busy{0};
  std::atomic<uint64_t> workers{0};
  void add(int64_t nanoseconds, int worker) {
    busy.fetch_add(nanoseconds, std::memory_order_relaxed);
    workers.fetch_or(uint64_t{1} << (worker & 63), std::memory_order_relaxed);
  }
  int32_t threads() const {
    const int count = __builtin_popcountll(workers.load(std::memory_order_relaxed));
    return count < 1 ? 1 : count;
  }
};

// While it is set a thread's calls are none of the user's: names are looked up, say.
extern constinit FB_THREAD_LOCAL bool profile_muted;
int64_t profile_now();  // ns of the clock that Python's time.perf_counter_ns reads
EventPlace profile_begin(EventKind kind, const char* name);
void profile_end(const EventPlace& place);
void profile_note_arguments(const EventPlace& place, PyObject* const* values, size_t count);
void profile_note_result(const EventPlace& place, PyObject* result);
void profile_note_sequence(const EventPlace& place, uint64_t sequence);
void profile_launch(const LaunchRecord& launch);
void profile_piece(const char* name, int64_t start, int64_t end);
void profile_memory(int64_t nbytes, const void* block);  // negative: released

// A kernel's or routine's parallel pieces are timed on behalf of the launch that this names.
struct ProfiledBody {
  void (*body)(void* context, int64_t begin, int64_t end, int worker);
  void* context;
  const char* name;
  LaunchClock* clock;
};
extern constinit FB_THREAD_LOCAL ProfiledBody* profiled_routine;  // set around a routine's run
void profiled_body(void* context, int64_t begin, int64_t end, int worker);

// An event from construction to destruction, whichever way the scope is left.
class ProfileScope {
 public:
  ProfileScope(EventKind kind, const char* name) {
    if (profiling()) [[unlikely]] {
      place_ = profile_begin(kind, name);
    }
  }
  ~ProfileScope() {
    if (place_.log >= 0) [[unlikely]] {
      profile_end(place_);
    }
  }
  ProfileScope(const ProfileScope&) = delete;
  ProfileScope& operator=(const ProfileScope&) = delete;
  const EventPlace& place() const { return place_; }

 private:
  EventPlace place_;
};

bool init_profile(PyObject* module);

}  // namespace fb
