// The device "sim": an accelerator in host memory, so that the core's device support is tested on
// machines without one. Its kernels are those of the CPU.
//
// Addresses are reserved and never mapped: the host that reads one of them is stopped by the
// processor. An address maps to a block of host memory, its shadow; only work on a stream resolves
// it, and work on a released or foreign address fails. Addresses are not reused before all of them
// were used. Each stream is a thread that runs its jobs in order; the error of a failed job is
// reported to the next thread that waits for the stream. A forked child cannot use the device.
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "core.h"
#include "device/devices.h"
#include "runtime/fork.h"

namespace fb {
namespace {

constexpr int32_t kCount = 2;
constexpr int64_t kAddresses = int64_t{1} << 40;
constexpr int64_t kGap = 4096;  // between two blocks: an address beyond the end is of none
constexpr const char* kForked = "the device cannot be used in a forked process";
constexpr const char* kForeign = "an address is not in the device's memory";

using Mutex = ForkSafe<std::mutex>;
using Guard = std::lock_guard<Mutex>;
using Job = std::function<DeviceError()>;

struct Block {
  char* shadow;
  int64_t nbytes;
  int32_t index;
  int64_t stream;
};

struct Event {
  std::atomic<uint64_t> recorded{0}, reached{0};  // how often
  std::atomic<int64_t> nanoseconds{0};
};
using EventHandle = std::shared_ptr<Event>;

struct Stream {
  std::deque<Job> jobs;  // under Sim::mutex
  uint64_t submitted = 0;
  std::atomic<uint64_t> bell{0}, completed{0};
  DeviceError error;  // the first one; under Sim::mutex
};

struct Sim {
  Mutex mutex{kReset};
  std::map<char*, Block> blocks;
  std::deque<Stream> streams[kCount];
  DeviceStatistics statistics[kCount];
  char *begin = nullptr, *next = nullptr;
  bool forked = false;
};
std::atomic<Sim*> used{nullptr};
Sim& sim() {
  static auto* state = new Sim;
  used = state;
  return *state;
}
void forget_threads() {
  if (Sim* state = used) state->forked = true;
}

// ---------------------------------------------------------------- addresses
bool reserve(Sim& s) {
  if (s.begin) return true;
  void* at =
      mmap(nullptr, kAddresses, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return false;
  s.begin = s.next = static_cast<char*>(at);
  return true;
}

// Unused addresses, mutex held; null when there are none.
char* unused(Sim& s, int64_t nbytes) {
  const int64_t step = (nbytes + kGap - 1) / kGap * kGap + kGap;
  for (bool again = false;;) {
    if (s.next + step > s.begin + kAddresses) {
      if (again) return nullptr;
      again = true;
      s.next = s.begin;
    }
    auto after = s.blocks.upper_bound(s.next);
    if (after != s.blocks.begin()) {
      const auto& [at, block] = *std::prev(after);
      if (at + block.nbytes + kGap > s.next) {  // it was allocated before the addresses ran out
        s.next = at + (block.nbytes + kGap - 1) / kGap * kGap + kGap;
        continue;
      }
    }
    if (after == s.blocks.end() || s.next + step <= after->first)
      return std::exchange(s.next, s.next + step);
    s.next = after->first;
  }
}

// The host memory behind an address of the device; null for another address.
char* shadow_of(const void* address) {
  auto* at = static_cast<char*>(const_cast<void*>(address));
  const Guard guard(sim().mutex);
  auto after = sim().blocks.upper_bound(at);
  if (after == sim().blocks.begin()) return nullptr;
  const auto& [begin, block] = *std::prev(after);
  return at <= begin + block.nbytes ? block.shadow + (at - begin) : nullptr;
}

// ---------------------------------------------------------------- streams
void work(Stream* stream) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);  // Python's handlers belong to the main thread
  for (uint64_t seen = 0;; ++seen) {
    stream->bell.wait(seen);
    Job job;
    {
      const Guard guard(sim().mutex);
      job = std::move(stream->jobs.front());
      stream->jobs.pop_front();
    }
    if (const DeviceError error = job()) {
      const Guard guard(sim().mutex);
      if (!stream->error) stream->error = error;
    }
    job = nullptr;  // what it holds goes before anybody sees that it is done
    stream->completed.fetch_add(1);
    stream->completed.notify_all();
  }
}

// A stream of a device, mutex held. The default one is created on first use.
Stream& stream_at(int32_t index, int64_t stream) {
  std::deque<Stream>& streams = sim().streams[index];
  while (stream >= static_cast<int64_t>(streams.size())) {
    streams.emplace_back();
    std::thread(work, &streams.back()).detach();
  }
  return streams[static_cast<size_t>(stream)];
}

DeviceError enqueue(int32_t index, int64_t stream, Job job) {
  if (sim().forked) return kForked;
  Stream* target;
  {
    const Guard guard(sim().mutex);
    target = &stream_at(index, stream);
    target->jobs.push_back(std::move(job));
    ++target->submitted;
  }
  target->bell.fetch_add(1);
  target->bell.notify_one();
  return nullptr;
}

int64_t stream_new(int32_t index) {
  if (sim().forked) return -1;
  const Guard guard(sim().mutex);
  const auto count = static_cast<int64_t>(sim().streams[index].size());
  const int64_t fresh = std::max<int64_t>(count, 1);
  stream_at(index, fresh);
  return fresh;
}

// The streams to wait for, each with the number of its last job.
std::vector<std::pair<Stream*, uint64_t>> submitted(int32_t index, int64_t stream) {
  std::vector<std::pair<Stream*, uint64_t>> targets;
  const Guard guard(sim().mutex);
  if (stream != kAllStreams) {
    Stream& one = stream_at(index, stream);
    targets.emplace_back(&one, one.submitted);
  } else {
    for (Stream& one : sim().streams[index]) targets.emplace_back(&one, one.submitted);
  }
  return targets;
}

bool stream_idle(int32_t index, int64_t stream) {
  if (sim().forked) return true;
  for (auto [target, jobs] : submitted(index, stream)) {
    if (target->completed.load() < jobs) return false;
  }
  return true;
}

DeviceError synchronize(int32_t index, int64_t stream) {
  if (sim().forked) return kForked;
  DeviceError error;
  for (auto [target, jobs] : submitted(index, stream)) {
    for (uint64_t done; (done = target->completed.load()) < jobs;) target->completed.wait(done);
    const Guard guard(sim().mutex);
    const DeviceError last = std::exchange(target->error, {});
    if (!error) error = last;
  }
  return error;
}

// ---------------------------------------------------------------- memory
void* allocate(int32_t index, int64_t stream, int64_t nbytes) {
  Sim& s = sim();
  char* shadow = s.forked ? nullptr : static_cast<char*>(block_allocate(nbytes));
  if (!shadow) return nullptr;
  const Guard guard(s.mutex);
  char* address = reserve(s) ? unused(s, nbytes) : nullptr;
  if (!address) {
    block_free(shadow, nbytes);
    return nullptr;
  }
  s.blocks.emplace(address, Block{shadow, nbytes, index, stream});
  DeviceStatistics& statistics = s.statistics[index];
  ++statistics.allocations;
  statistics.allocated += nbytes;
  statistics.peak = std::max(statistics.peak, statistics.allocated);
  return address;
}

DeviceError remove_block(void* address) {
  Block block;
  {
    const Guard guard(sim().mutex);
    const auto entry = sim().blocks.find(static_cast<char*>(address));
    if (entry == sim().blocks.end()) return kForeign;
    block = entry->second;
    sim().blocks.erase(entry);
    sim().statistics[block.index].allocated -= block.nbytes;
  }
  block_free(block.shadow, block.nbytes);
  return nullptr;
}

// When the stream for which it was allocated comes to it.
void release(int32_t index, void* address, int64_t) {
  int64_t stream = kDefaultStream;
  {
    const Guard guard(sim().mutex);
    const auto entry = sim().blocks.find(static_cast<char*>(address));
    if (entry != sim().blocks.end()) stream = entry->second.stream;
  }
  enqueue(index, stream, [address] { return remove_block(address); });
}

DeviceError copy(int32_t index, int64_t stream, int32_t to_index, void* to, int32_t from_index,
                 const void* from, int64_t nbytes) {
  return enqueue(index, stream, [=]() -> DeviceError {
    void* target = to_index == kHostIndex ? to : shadow_of(to);
    const void* source = from_index == kHostIndex ? from : shadow_of(from);
    if (!target || !source) return kForeign;
    std::memmove(target, source, static_cast<size_t>(nbytes));
    return nullptr;
  });
}

DeviceError fill(int32_t index, int64_t stream, void* to, const void* pattern, int64_t bytes,
                 int64_t count) {
  std::string element(static_cast<const char*>(pattern), static_cast<size_t>(bytes));
  return enqueue(index, stream, [=]() -> DeviceError {
    char* target = shadow_of(to);
    if (!target) return kForeign;
    for (int64_t i = 0; i < count; ++i)
      std::memcpy(target + i * bytes, element.data(), (size_t)bytes);
    return nullptr;
  });
}

// ---------------------------------------------------------------- launches
struct OwnedLaunch {  // a launch with its arguments
  explicit OwnedLaunch(const DeviceLaunch& launch)
      : launch(launch),
        buffers(launch.buffers, launch.buffers + launch.buffer_count),
        states(launch.states, launch.states + launch.buffer_count),
        sizes(launch.sizes, launch.sizes + launch.size_count),
        scalars(launch.scalars, launch.scalars + launch.scalar_count) {}
  DeviceLaunch launch;
  std::vector<char*> buffers;
  std::vector<uint8_t> states;
  std::vector<int64_t> sizes;
  std::vector<Scalar> scalars;

  DeviceError run() {
    for (size_t i = 0; i < buffers.size(); ++i) {
      if (!buffers[i] || states[i]) continue;
      buffers[i] = shadow_of(buffers[i]);
      if (!buffers[i]) return kForeign;
    }
    if (launch.routine) {
      launch.sizes = sizes.data();
      launch.scalars = scalars.data();
      return run_routine(launch, buffers.data());
    }
    char* scratch = nullptr;
    if (launch.scratch > 0 && !(scratch = static_cast<char*>(worker_scratch(0, launch.scratch))))
      return "out of memory";
    launch.kernel(buffers.data(), sizes.data(), scalars.data(), 0, launch.chunks, scratch);
    return nullptr;
  }
};

DeviceError launch(int32_t index, int64_t stream, const DeviceLaunch& launch) {
  auto owned = std::make_shared<OwnedLaunch>(launch);
  return enqueue(index, stream, [owned] { return owned->run(); });
}

char* generator(int32_t, void* host) { return static_cast<char*>(host); }

void statistics(int32_t index, DeviceStatistics* statistics) {
  const Guard guard(sim().mutex);
  *statistics = sim().statistics[index];
}

// ---------------------------------------------------------------- events
int64_t now() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}
EventHandle& handle(void* event) { return *static_cast<EventHandle*>(event); }

void* event_new(int32_t) { return new EventHandle(std::make_shared<Event>()); }
void event_delete(void* event) { delete static_cast<EventHandle*>(event); }

void event_record(void* event, int32_t index, int64_t stream) {
  const uint64_t time = handle(event)->recorded.fetch_add(1) + 1;
  enqueue(index, stream, [state = handle(event), time]() -> DeviceError {
    state->nanoseconds = now();
    state->reached = time;
    state->reached.notify_all();
    return nullptr;
  });
}

void await(const EventHandle& state, uint64_t time) {
  for (uint64_t reached; (reached = state->reached.load()) < time;) state->reached.wait(reached);
}

void event_wait(void* event, int32_t index, int64_t stream) {
  enqueue(index, stream,
          [state = handle(event), time = handle(event)->recorded.load()]() -> DeviceError {
            await(state, time);
            return nullptr;
          });
}

bool event_done(void* event) { return handle(event)->reached.load() == handle(event)->recorded; }
void event_synchronize(void* event) { await(handle(event), handle(event)->recorded); }
double event_milliseconds(void* from, void* to) {
  return static_cast<double>(handle(to)->nanoseconds - handle(from)->nanoseconds) * 1e-6;
}

constexpr DeviceRuntime kRuntime = {
    .name = "sim",
    .description = "an accelerator simulated on the host",
    .memory = DeviceMemory::Own,
    .compiles = true,
    .launches = true,
    .count = kCount,
    .allocate = allocate,
    .release = release,
    .copy = copy,
    .fill = fill,
    .launch = launch,
    .stream_new = stream_new,
    .stream_delete = [](int32_t, int64_t) {},  // its thread sleeps
    .stream_idle = stream_idle,
    .synchronize = synchronize,
    .event_new = event_new,
    .event_delete = event_delete,
    .event_record = event_record,
    .event_wait = event_wait,
    .event_done = event_done,
    .event_synchronize = event_synchronize,
    .event_milliseconds = event_milliseconds,
    .generator = generator,
    .statistics = statistics,
};
const DeviceRegistration registration(&kRuntime);
[[maybe_unused]] const bool forgets = (in_forked_child(forget_threads), true);

}  // namespace
}  // namespace fb
