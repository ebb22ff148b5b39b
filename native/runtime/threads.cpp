// The thread pool of kernels: workers that park, never spin for long.
//
// A pool that spins while idle starves every other process of the machine, so a worker looks for
// its next job for at most some microseconds and then sleeps on a futex. A job is a range that the
// caller and the workers eat in pieces; the caller never waits for a worker that has not joined
// in, so an oversubscribed machine costs parallelism, not latency. Results never depend on who
// runs which piece: bodies own that promise.
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "runtime/fork.h"
#include "runtime/poison.h"
#include "runtime/profile.h"

namespace fb {
namespace {

constexpr int kMaxThreads = 256;
constexpr int64_t kSpinNanoseconds = 15000;
constexpr int64_t kPiecesPerThread = 4;  // fewer: poor balance; beyond: contention on the counter

using Body = void (*)(void*, int64_t, int64_t, int);

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Everything workers share. Never destroyed: parked workers outlive static destructors, and a
// forked child simply forgets its parent's pool.
struct Pool {
  ForkSafe<std::mutex> owner{kReset};  // held by the one thread whose job runs
  ForkSafe<std::mutex> starting{kReset};
  int started = 0;  // workers alive, indices 1..started
  // The job. `gate` packs (sequence << 16 | open bit << 15 | workers inside): joining is one
  // compare-and-swap that fails once the job is closed.
  std::atomic<uint64_t> gate{0};
  std::atomic<uint32_t> bell{0};  // workers park on this word
  std::atomic<uint32_t> done{0};  // the caller parks on this word
  std::atomic<int> parked{0};
  alignas(64) std::atomic<int64_t> next{0};
  alignas(64) int64_t count = 0;
  int64_t piece = 1;
  int limit = 1;
  Body body = nullptr;
  void* context = nullptr;
};

constexpr uint64_t kOpen = uint64_t{1} << 15;
constexpr uint64_t kInside = kOpen - 1;
constexpr uint64_t kSequence = uint64_t{1} << 16;

std::atomic<Pool*> the_pool{nullptr};
std::atomic<int> thread_limit{0};  // 0: not queried yet
thread_local bool inside_parallel = false;

int available_cores() {
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    const int cores = CPU_COUNT(&set);
    if (cores > 0) return cores < kMaxThreads ? cores : kMaxThreads;
  }
#endif
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return cores < 1 ? 1 : (cores < kMaxThreads ? cores : kMaxThreads);
}

void eat(Pool* pool, int worker) {
  const int64_t count = pool->count, piece = pool->piece;
  for (;;) {
    const int64_t begin = pool->next.fetch_add(piece, std::memory_order_relaxed);
    if (begin >= count) return;
    pool->body(pool->context, begin, begin + piece < count ? begin + piece : count, worker);
  }
}

bool join(Pool* pool) {
  uint64_t gate = pool->gate.load(std::memory_order_acquire);
  while (gate & kOpen) {
    if (pool->gate.compare_exchange_weak(gate, gate + 1, std::memory_order_acq_rel)) return true;
  }
  return false;
}

void leave(Pool* pool) {
  const uint64_t before = pool->gate.fetch_sub(1, std::memory_order_acq_rel);
  if ((before & kInside) == 1 && !(before & kOpen)) {
    pool->done.fetch_add(1, std::memory_order_release);
    pool->done.notify_one();
  }
}

void worker_main(Pool* pool, int worker) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);  // Python's handlers belong to the main thread
  inside_parallel = true;
  uint32_t seen = 0;
  for (;;) {
    const uint32_t rung = pool->bell.load(std::memory_order_acquire);
    if (rung == seen) {
      const int64_t until = now() + kSpinNanoseconds;
      bool again = false;
      while (!again && now() < until) {
        for (int i = 0; i < 16; ++i) relax();
        again = pool->bell.load(std::memory_order_acquire) != seen;
      }
      if (!again) {
        pool->parked.fetch_add(1, std::memory_order_seq_cst);
        pool->bell.wait(seen, std::memory_order_seq_cst);
        pool->parked.fetch_sub(1, std::memory_order_seq_cst);
      }
      continue;
    }
    seen = rung;
    if (!join(pool)) continue;
    if (worker < pool->limit) eat(pool, worker);
    leave(pool);
  }
}

// A forked child has the memory of the pool but none of its threads.
void forget_pool() {
  the_pool.store(nullptr, std::memory_order_relaxed);
  inside_parallel = false;
}

Pool* pool() {
  Pool* existing = the_pool.load(std::memory_order_acquire);
  if (existing) return existing;
  Pool* fresh = new Pool();
  if (the_pool.compare_exchange_strong(existing, fresh, std::memory_order_acq_rel)) return fresh;
  delete fresh;
  return existing;
}

// Starts missing workers; fewer than requested is not an error.
void ensure_workers(Pool* pool, int wanted) {
  if (pool->started >= wanted) return;
  std::lock_guard<ForkSafe<std::mutex>> guard(pool->starting);
  while (pool->started < wanted) {
    const int index = pool->started + 1;
    try {
      std::thread(worker_main, pool, index).detach();
    } catch (...) {
      return;
    }
    pool->started = index;
  }
}

void wait_for_workers(Pool* pool) {
  const int64_t until = now() + kSpinNanoseconds;
  for (;;) {
    const uint32_t ticket = pool->done.load(std::memory_order_acquire);
    if (!(pool->gate.load(std::memory_order_acquire) & kInside)) return;
    if (now() < until) {
      relax();
    } else {
      pool->done.wait(ticket, std::memory_order_acquire);
    }
  }
}

#if defined(__SANITIZE_ADDRESS__)
constexpr int64_t kPagedScratch = INT64_MAX;  // detects accesses past its end
#else
constexpr int64_t kPagedScratch = kHugePage / 8;
#endif

// A thread's scratch, freed when the thread ends. Tiles are sized to fill a cache, which they only
// do if their pages do not happen to lie in the same sets of it: a large scratch has huge pages.
struct Scratch {
  void* block = nullptr;
  int64_t nbytes = 0;

  ~Scratch() { release(); }

  void grow(int64_t wanted) {
    release();
    const bool paged = wanted >= kPagedScratch;
    const int64_t step = paged ? kHugePage : 4096;
    const int64_t rounded = (wanted + step - 1) / step * step;
    block = paged ? map_huge_pages(rounded) : std::aligned_alloc(64, static_cast<size_t>(rounded));
    nbytes = block ? rounded : 0;
  }

 private:
  void release() {
    unpoison(block, nbytes);
    if (nbytes >= kPagedScratch) {
      munmap(block, static_cast<size_t>(nbytes));
    } else {
      std::free(block);
    }
    block = nullptr;
    nbytes = 0;
  }
};
thread_local Scratch scratch;

}  // namespace

int get_num_threads() {
  int limit = thread_limit.load(std::memory_order_relaxed);
  if (limit == 0) {
    limit = available_cores();
    thread_limit.store(limit, std::memory_order_relaxed);
  }
  return limit;
}

void set_num_threads(int n) {
  thread_limit.store(n < 1 ? 1 : (n > kMaxThreads ? kMaxThreads : n), std::memory_order_relaxed);
}

void parallel_for(int64_t count, int64_t grain, Body body, void* context) {
  if (count <= 0) return;
  if (grain < 1) grain = 1;
  ProfiledBody wrapped;
  if (profiled_routine) [[unlikely]] {
    wrapped = {body, context, profiled_routine->name, profiled_routine->clock};
    body = profiled_body;
    context = &wrapped;
  }
  const int threads = get_num_threads();
  if (threads == 1 || count <= grain || inside_parallel) {
    body(context, 0, count, 0);
    return;
  }
  Pool* const p = pool();
  if (!p->owner.try_lock()) {  // another Python thread has the pool: the machine is busy anyway
    body(context, 0, count, 0);
    return;
  }
  const int64_t pieces = (count + grain - 1) / grain;
  const int helpers = static_cast<int>(pieces < threads ? pieces : threads) - 1;
  ensure_workers(p, helpers);
  const int64_t even = count / (int64_t{threads} * kPiecesPerThread);
  p->count = count;
  p->piece = even > grain ? even : grain;
  p->limit = threads;
  p->body = body;
  p->context = context;
  p->next.store(0, std::memory_order_relaxed);
  const uint64_t sequence = (p->gate.load(std::memory_order_relaxed) / kSequence + 1) * kSequence;
  p->gate.store(sequence | kOpen, std::memory_order_release);
  p->bell.fetch_add(1, std::memory_order_seq_cst);
  const int asleep = p->parked.load(std::memory_order_seq_cst);
  for (int i = 0; i < helpers && i < asleep; ++i) p->bell.notify_one();
  inside_parallel = true;
  eat(p, 0);
  inside_parallel = false;
  p->gate.fetch_and(~kOpen, std::memory_order_acq_rel);
  wait_for_workers(p);
  p->owner.unlock();
}

void* worker_scratch(int, int64_t nbytes) {
  // Per thread rather than per index: two Python threads may both run inline as worker 0.
  if (nbytes > scratch.nbytes) scratch.grow(nbytes);
  poison(scratch.block, scratch.nbytes);
  unpoison(scratch.block, std::min(nbytes, scratch.nbytes));
  return scratch.block;
}

namespace {

PyObject* py_get_num_threads(PyObject*, PyObject*) { return PyLong_FromLong(get_num_threads()); }

PyObject* py_set_num_threads(PyObject*, PyObject* value) {
  int64_t n;
  if (!parse_int64("set_num_threads", value, &n)) return nullptr;
  if (n < 1) {
    PyErr_Format(PyExc_RuntimeError,
                 "[set_num_threads] expected a positive number, got %lld\n"
                 "hint: 1 turns parallel kernels off",
                 static_cast<long long>(n));
    return nullptr;
  }
  set_num_threads(n > kMaxThreads ? kMaxThreads : static_cast<int>(n));
  Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"get_num_threads", py_get_num_threads, METH_NOARGS, "Number of threads kernels may use."},
    {"set_num_threads", py_set_num_threads, METH_O, "Sets the number of threads kernels may use."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool init_threads(PyObject* module) {
  in_forked_child(forget_pool);
  return PyModule_AddFunctions(module, methods) == 0;
}

}  // namespace fb
