// The caching allocator of CPU memory.
//
// Two pools, after the usual design of device allocators:
//
// * small (up to 1 MiB): size classes with four steps per power of two (at most 25 % waste), each a
//   free list. Classes are filled from slabs taken out of the large pool.
// * large: blocks split from segments of at least 2 MiB, in huge pages unless those prove slow. A
//   request takes the best fitting free block; a remainder of useful size is split off, so that a
//   block is never more than 1.25x its request; neighbours coalesce when they are freed.
//
// Memory goes back to the system only through `empty_cache()`, or when the bytes held in reserve
// exceed the limit set by `set_memory_cache_limit` (default: no limit), or when the system refuses
// a request. Fresh mmaps cost page faults that made pointwise chains 3.5x slower, hence the cache.
//
// One spin lock per pool: an uncontended pair of allocate and free costs about 10 ns, and all
// counters, peaks included, stay exact. fork() takes both locks, so a child finds them free.
#include <sched.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <bit>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <unordered_map>

#include "core.h"
#include "plan/prepacked.h"
#include "runtime/fork.h"
#include "runtime/poison.h"
#include "runtime/profile.h"
#include "tensor/tensor_internal.h"

namespace fb {
namespace {

constexpr int64_t kSmallLimit = int64_t{1} << 20;
constexpr int64_t kSegmentStep = kHugePage;
constexpr int64_t kMinimumSegment = int64_t{16} << 20;  // shared by several blocks and slabs
constexpr int64_t kLargeStep = 4096;
constexpr int64_t kRequestLimit = int64_t{1} << 47;  // beyond the address space

class SpinLock {
 public:
  void lock() {
    for (int spins = 0; taken_.exchange(true, std::memory_order_acquire);) {
      // The holder may have been descheduled: do not burn the core it needs.
      if (++spins > 64) sched_yield();
    }
  }
  bool try_lock() { return !taken_.exchange(true, std::memory_order_acquire); }
  void unlock() { taken_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> taken_{false};
};
using Guard = std::lock_guard<ForkSafe<SpinLock>>;

struct Counter {
  int64_t current = 0, peak = 0, allocated = 0;
  void add(int64_t n) {
    current += n;
    allocated += n;
    if (current > peak) peak = current;
  }
  void remove(int64_t n) { current -= n; }
};
struct PoolStats {
  Counter allocated, requested, reserved, count, segments;
  void use(int64_t size, int64_t wanted) {
    allocated.add(size);
    requested.add(wanted);
    count.add(1);
  }
  void drop(int64_t size, int64_t wanted) {
    allocated.remove(size);
    requested.remove(wanted);
    count.remove(1);
  }
};

// ---------------------------------------------------------------- pages
// Fresh memory of the system that begins at a huge page's boundary; null when it is exhausted.
char* map_aligned(int64_t nbytes) {
  // Over-allocate by one page to align the memory, then give the ends back.
  const auto total = static_cast<size_t>(nbytes + kHugePage);
  void* raw = mmap(nullptr, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  const auto address = reinterpret_cast<uintptr_t>(raw);
  const auto step = static_cast<uintptr_t>(kHugePage);
  const uintptr_t aligned = (address + step - 1) / step * step;
  if (aligned > address) munmap(raw, aligned - address);
  const uintptr_t end = aligned + static_cast<uintptr_t>(nbytes);
  if (address + total > end) munmap(reinterpret_cast<void*>(end), address + total - end);
  return reinterpret_cast<char*>(aligned);
}

void request_huge_pages(char* at, int64_t nbytes, bool huge) {
#ifdef MADV_HUGEPAGE
  madvise(at, static_cast<size_t>(nbytes), huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
#else
  static_cast<void>(at), static_cast<void>(nbytes), static_cast<void>(huge);
#endif
}

// Processor time of the thread for the first write to a page, in nanoseconds.
int64_t touch(char* page) {
  timespec before, after;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
  *const_cast<volatile char*>(page) = 0;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
  return (after.tv_sec - before.tv_sec) * 1'000'000'000 + (after.tv_nsec - before.tv_nsec);
}

// A huge page is written for the first time in 0.1 ms, the same bytes in ordinary pages in 0.8 ms.
// In a virtual machine whose host supplies memory when it is first used, free huge pages are often
// ones that the host has taken back: 5 ms each, where ordinary pages were used a moment ago.
constexpr int64_t kSlowTouch = 1'000'000;
constexpr int64_t kTouchedShare = 16;               // at most this part is written ahead of use
constexpr int64_t kUntested = int64_t{16} << 20;    // small programs have huge pages in any case
constexpr int64_t kOrdinaryRun = int64_t{2} << 30;  // bytes in ordinary pages until the next test

// A segment in huge pages, or in ordinary ones where the first huge pages turn out to be slow.
// `ordinary`: bytes left that are mapped without a test.
char* map_segment(int64_t nbytes, int64_t mapped, int64_t* ordinary) {
  char* at = map_aligned(nbytes);
  if (!at) return nullptr;
  bool huge = *ordinary <= 0;
  request_huge_pages(at, nbytes, huge);
  if (!huge) {
    *ordinary -= nbytes;
  } else if (mapped + nbytes > kUntested) {
    const int64_t pages = std::max<int64_t>(2, nbytes / kHugePage / kTouchedShare);
    int slow = 0;
    for (int64_t i = 0; i < pages && slow < 2; ++i) slow += touch(at + i * kHugePage) > kSlowTouch;
    if (slow == 2) {
      request_huge_pages(at, nbytes, false);
      *ordinary = kOrdinaryRun;
    }
  }
  return at;
}

// ---------------------------------------------------------------- large pool
struct Segment;
struct Block {
  char* at;
  int64_t size;
  Segment* segment;
  Block* previous;  // neighbours inside the segment
  Block* next;
  int64_t requested;  // by the caller
  bool used;
  bool slab;  // handed to the small pool
};
struct Segment {
  char* at;
  int64_t size;
};
struct BySize {
  bool operator()(const Block* a, const Block* b) const {
    return a->size != b->size ? a->size < b->size : a->at < b->at;
  }
};

struct LargePool {
  ForkSafe<SpinLock> lock{3};
  std::set<Block*, BySize> free;
  std::unordered_map<char*, Block*> used;
  std::map<char*, Block*> segments;  // segment start -> its first block
  PoolStats stats;
  Counter mapped, mappings;  // of both pools: what the system gave
  int64_t slab_bytes = 0;    // the part of it that the small pool reserved
  int64_t cached = 0;        // bytes of free blocks
  int64_t ordinary = 0;      // bytes to map in ordinary pages: huge ones were slow
  int64_t retries = 0, failures = 0;
  std::atomic<int64_t> cache_limit{INT64_MAX};

  char* allocate(int64_t nbytes, bool slab, int64_t* size);
  int64_t release(char* at);  // bytes of the block
  int64_t trim(int64_t keep);

 private:
  Block* take_free(int64_t size);
  Block* grow(int64_t size);
  void split(Block* block, int64_t size);
  void merge_next(Block* block);
  void update_reserved();
};
// Never destroyed: storages may be released while the interpreter shuts down.
LargePool& large() {
  static auto* pool = new LargePool();
  return *pool;
}

int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

Block* LargePool::take_free(int64_t size) {
  Block key{};
  key.size = size;
  auto it = free.lower_bound(&key);
  if (it == free.end()) return nullptr;
  Block* block = *it;
  free.erase(it);
  cached -= block->size;
  return block;
}

void LargePool::split(Block* block, int64_t size) {
  auto* rest = new Block{
      block->at + size, block->size - size, block->segment, block, block->next, 0, false, false};
  if (rest->next) rest->next->previous = rest;
  block->next = rest;
  block->size = size;
  free.insert(rest);
  cached += rest->size;
}

void LargePool::merge_next(Block* block) {
  Block* next = block->next;
  block->size += next->size;
  block->next = next->next;
  if (next->next) next->next->previous = block;
  delete next;
}

Block* LargePool::grow(int64_t size) {
  const int64_t bytes =
      round_up(std::max(size, size < kMinimumSegment / 2 ? kMinimumSegment : size), kSegmentStep);
  char* at = map_segment(bytes, mapped.current, &ordinary);
  if (!at) return nullptr;
  poison(at, bytes);
  auto* block = new Block{at, bytes, new Segment{at, bytes}, nullptr, nullptr, 0, false, false};
  segments.emplace(at, block);
  mapped.add(bytes);
  mappings.add(1);
  return block;
}

void LargePool::update_reserved() {
  Counter& c = stats.reserved;
  const int64_t now = mapped.current - slab_bytes;
  c.allocated += std::max<int64_t>(0, now - c.current);
  c.current = now;
  c.peak = std::max(c.peak, now);
}

char* LargePool::allocate(int64_t nbytes, bool slab, int64_t* taken) {
  const int64_t size = round_up(nbytes, kLargeStep);
  Guard guard(lock);
  Block* block = take_free(size);
  if (!block) block = grow(size);
  if (!block && cached > 0) {
    ++retries;
    trim(0);
    block = grow(size);
  }
  if (!block) {
    ++failures;
    return nullptr;
  }
  const int64_t rest = block->size - size;
  if (rest > 0 && (rest > size / 4 || rest >= kSmallLimit)) split(block, size);
  block->used = true;
  block->slab = slab;
  block->requested = nbytes;
  used.emplace(block->at, block);
  if (slab) {
    slab_bytes += block->size;
  } else {
    stats.use(block->size, nbytes);
  }
  update_reserved();
  *taken = block->size;
  unpoison(block->at, nbytes);
  return block->at;
}

int64_t LargePool::release(char* at) {
  Guard guard(lock);
  auto it = used.find(at);
  if (it == used.end()) return 0;
  Block* block = it->second;
  const int64_t size = block->size;
  used.erase(it);
  if (block->slab) {
    slab_bytes -= size;
  } else {
    stats.drop(size, block->requested);
  }
  poison(block->at, size);
  cached += size;
  block->used = block->slab = false;
  if (block->next && !block->next->used) {
    free.erase(block->next);
    merge_next(block);
  }
  if (block->previous && !block->previous->used) {
    block = block->previous;
    free.erase(block);
    merge_next(block);
  }
  free.insert(block);
  update_reserved();
  if (cached > cache_limit.load(std::memory_order_relaxed)) trim(cache_limit);
  return size;
}

// Unmaps entirely free segments, largest first, until at most `keep` bytes are cached. Lock held.
int64_t LargePool::trim(int64_t keep) {
  int64_t given_back = 0;
  for (auto it = free.end(); it != free.begin() && cached > keep;) {
    Block* block = *--it;
    if (block->previous || block->next) continue;
    it = free.erase(it);
    unpoison(block->at, block->size);
    munmap(block->at, static_cast<size_t>(block->size));
    segments.erase(block->at);
    cached -= block->size;
    given_back += block->size;
    mapped.remove(block->size);
    mappings.remove(1);
    delete block->segment;
    delete block;
  }
  update_reserved();
  return given_back;
}

// ---------------------------------------------------------------- small pool
// Classes: 64, 128, ..., 512 in steps of 64; then four per power of two up to 1 MiB.
constexpr int kFineClasses = 8;
constexpr int kClassCount = kFineClasses + 4 * 11 + (kRedZone > 0);

int class_of(int64_t nbytes) {
  if (nbytes <= 512) return static_cast<int>((nbytes + 63) >> 6) - 1;
  const auto last = static_cast<uint64_t>(nbytes - 1);
  const int exponent = std::bit_width(last) - 1;  // 2^exponent <= last
  const int quarter = static_cast<int>(last >> (exponent - 2)) & 3;
  return kFineClasses + 4 * (exponent - 9) + quarter;
}
constexpr int64_t class_bytes(int index) {
  if (index < kFineClasses) return 64 * (index + 1);
  const int exponent = 9 + (index - kFineClasses) / 4;
  const int quarter = (index - kFineClasses) % 4;
  return (int64_t{1} << exponent) + (int64_t{quarter} + 1) * (int64_t{1} << (exponent - 2));
}

struct FreeBlock {
  FreeBlock* next;
};
struct SizeClass {
  FreeBlock* free = nullptr;
  char* fresh = nullptr;  // never used part of the newest slab
  char* fresh_end = nullptr;
  std::vector<char*> slabs;
};
struct SmallPool {
  ForkSafe<SpinLock> lock{2};
  PoolStats stats;
  PoolStats both;  // of the two pools together, so that peaks of the sum are exact
  SizeClass classes[kClassCount];

  void* allocate(int64_t nbytes);
  void release(void* at, int64_t nbytes);
  void empty();

 private:
  bool refill(SizeClass& c, int64_t size);
};
SmallPool& small() {
  static auto* pool = new SmallPool();
  return *pool;
}

int64_t slab_size(int64_t block) {
  return std::clamp<int64_t>(round_up(32 * block, 1 << 16), 1 << 16, 4 << 20);
}

// Slow path, lock held.
bool SmallPool::refill(SizeClass& c, int64_t size) {
  const int64_t bytes = slab_size(size);
  // Operations that may throw come first, while nothing can be lost.
  if (c.slabs.size() == c.slabs.capacity()) c.slabs.reserve(2 * c.slabs.size() + 4);
  int64_t taken;
  char* slab = large().allocate(bytes, true, &taken);
  if (!slab) return false;
  c.slabs.push_back(slab);
  c.fresh = slab;
  c.fresh_end = slab + bytes / size * size;
  poison(slab, bytes);
  stats.reserved.add(bytes);
  stats.segments.add(1);
  return true;
}

inline void* SmallPool::allocate(int64_t nbytes) {
  const int index = class_of(nbytes + kRedZone);
  const int64_t size = class_bytes(index);
  SizeClass& c = classes[index];
  Guard guard(lock);
  void* at;
  if (c.free) {
    at = c.free;
    c.free = c.free->next;
  } else {
    if (c.fresh == c.fresh_end && !refill(c, size)) return nullptr;
    at = c.fresh;
    c.fresh += size;
  }
  stats.use(size, nbytes);
  both.use(size, nbytes);
  unpoison(at, nbytes);
  return at;
}

inline void SmallPool::release(void* at, int64_t nbytes) {
  const int index = class_of(nbytes + kRedZone);
  SizeClass& c = classes[index];
  auto* block = static_cast<FreeBlock*>(at);
  Guard guard(lock);
  unpoison(at, sizeof(FreeBlock));
  block->next = c.free;
  c.free = block;
  stats.drop(class_bytes(index), nbytes);
  both.drop(class_bytes(index), nbytes);
  poison(static_cast<char*>(at) + sizeof(FreeBlock),
         class_bytes(index) - static_cast<int64_t>(sizeof(FreeBlock)));
}

// Gives slabs without a block in use back to the large pool.
void SmallPool::empty() {
  Guard guard(lock);
  for (int index = 0; index < kClassCount; ++index) {
    SizeClass& c = classes[index];
    if (c.slabs.empty()) continue;
    const int64_t size = class_bytes(index);
    const int64_t bytes = slab_size(size);
    std::sort(c.slabs.begin(), c.slabs.end());
    auto slab_of = [&](void* at) {
      auto it = std::upper_bound(c.slabs.begin(), c.slabs.end(), static_cast<char*>(at));
      return static_cast<size_t>(it - c.slabs.begin()) - 1;
    };
    std::vector<int64_t> unused(c.slabs.size(), 0);
    std::vector<char*> kept;
    kept.reserve(c.slabs.size());  // throws, if at all, before anything is released
    for (FreeBlock* b = c.free; b; b = b->next) ++unused[slab_of(b)];
    if (c.fresh < c.fresh_end) unused[slab_of(c.fresh)] += (c.fresh_end - c.fresh) / size;
    for (FreeBlock** link = &c.free; *link;) {
      if (unused[slab_of(*link)] == bytes / size) {
        *link = (*link)->next;
      } else {
        link = &(*link)->next;
      }
    }
    for (size_t i = 0; i < c.slabs.size(); ++i) {
      if (unused[i] != bytes / size) {
        kept.push_back(c.slabs[i]);
        continue;
      }
      // The unused part of another slab stays, also of one that begins where this one ends.
      if (c.fresh >= c.slabs[i] && c.fresh < c.slabs[i] + bytes) c.fresh = c.fresh_end = nullptr;
      large().release(c.slabs[i]);
      stats.reserved.remove(bytes);
      stats.segments.remove(1);
    }
    c.slabs.swap(kept);
  }
}

// ---------------------------------------------------------------- Python side
PyObject* oom_error;

bool put(PyObject* dict, const std::string& key, int64_t value) {
  PyObject* number = PyLong_FromLongLong(value);
  if (!number) return false;
  const int status = PyDict_SetItemString(dict, key.c_str(), number);
  Py_DECREF(number);
  return status == 0;
}

bool put_counter(PyObject* dict, const char* what, const char* pool, const Counter& c) {
  const std::string prefix = std::string(what) + "." + pool + ".";
  return put(dict, prefix + "current", c.current) && put(dict, prefix + "peak", c.peak) &&
         put(dict, prefix + "allocated", c.allocated) &&
         put(dict, prefix + "freed", c.allocated - c.current);
}

struct NamedCounter {
  const char* name;
  Counter PoolStats::* member;
};
constexpr NamedCounter kCounters[] = {{"allocated_bytes", &PoolStats::allocated},
                                      {"requested_bytes", &PoolStats::requested},
                                      {"reserved_bytes", &PoolStats::reserved},
                                      {"allocation", &PoolStats::count},
                                      {"segment", &PoolStats::segments}};

void reset_peaks(PoolStats* stats) {
  for (const NamedCounter& c : kCounters) (stats->*c.member).peak = (stats->*c.member).current;
}

PyObject* py_reset_peak(PyObject*, PyObject*) {
  packed_reset_peak();
  {
    Guard guard(small().lock);
    reset_peaks(&small().stats);
    reset_peaks(&small().both);
  }
  Guard guard(large().lock);
  reset_peaks(&large().stats);
  large().mapped.peak = large().mapped.current;
  large().mappings.peak = large().mappings.current;
  Py_RETURN_NONE;
}

PyObject* py_empty_cache(PyObject*, PyObject*) {
  packed_clear();
  small().empty();
  Guard guard(large().lock);
  return PyLong_FromLongLong(large().trim(0));
}

// A number of bytes, `none` for None; false, with an error set, where it is neither.
bool read_limit(PyObject* object, int64_t none, const char* negative, int64_t* limit) {
  *limit = none;
  if (object == Py_None) return true;
  *limit = PyLong_AsLongLong(object);
  if (*limit == -1 && PyErr_Occurred()) return false;
  if (*limit >= 0) return true;
  PyErr_SetString(PyExc_ValueError, negative);
  return false;
}

PyObject* py_set_cache_limit(PyObject*, PyObject* object) {
  int64_t limit;
  const char* const negative =
      "[set_memory_cache_limit] the limit is negative\nhint: pass None for no limit";
  if (!read_limit(object, INT64_MAX, negative, &limit)) return nullptr;
  large().cache_limit = limit;
  Py_RETURN_NONE;
}

PyObject* py_set_prepacked_limit(PyObject*, PyObject* object) {
  int64_t limit;
  const char* const negative =
      "[set_prepacked_limit] the limit is negative\nhint: pass 0 to keep no copies";
  if (!read_limit(object, -1, negative, &limit)) return nullptr;
  packed_set_limit(limit);
  Py_RETURN_NONE;
}

PyObject* py_prepacked_limit(PyObject*, PyObject*) { return PyLong_FromLongLong(packed_limit()); }

struct BlockRecord {
  char* at;
  int64_t size, requested;
  bool used, slab, first;
  bool packed = false;
};

PyObject* block_dict(const BlockRecord& b) {
  return Py_BuildValue("{s:K,s:L,s:L,s:s}", "address",
                       static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(b.at)), "size",
                       static_cast<long long>(b.size), "requested_size",
                       static_cast<long long>(b.requested), "state",
                       !b.used    ? "inactive"
                       : b.slab   ? "slab"
                       : b.packed ? "prepacked"
                                  : "active_allocated");
}

PyObject* py_malloc_trim_probe(PyObject*, PyObject* object) {
  const long long nbytes = PyLong_AsLongLong(object);
  if (nbytes == -1 && PyErr_Occurred()) return nullptr;
  void* block = block_allocate(nbytes);
  if (!block) Py_RETURN_NONE;
  const auto address = reinterpret_cast<uintptr_t>(block);
  block_free(block, nbytes);
  return PyLong_FromUnsignedLongLong(address);
}

PyMethodDef functions[] = {
    {"memory_stats", memory_stats, METH_NOARGS,
     "Counters of the caching allocator: {'allocated_bytes.all.current': ...}."},
    {"memory_snapshot", memory_snapshot, METH_NOARGS,
     "Segments of the caching allocator, each with its blocks in address order."},
    {"reset_peak_memory_stats", py_reset_peak, METH_NOARGS, "Peaks restart at the current values."},
    {"empty_cache", py_empty_cache, METH_NOARGS,
     "Returns unused cached memory to the system; gives the number of bytes."},
    {"set_memory_cache_limit", py_set_cache_limit, METH_O,
     "Upper bound in bytes on unused memory kept for reuse; None: no bound."},
    {"_probe_block", py_malloc_trim_probe, METH_O,
     "Allocates and frees a block; its address (test of the allocator)."},
    {"set_prepacked_limit", py_set_prepacked_limit, METH_O,
     "Upper bound in bytes on packed copies of weights; None: an eighth of the memory."},
    {"prepacked_limit", py_prepacked_limit, METH_NOARGS, "The bound on packed copies in bytes."},
    {nullptr, nullptr, 0, nullptr}};

void* allocate(int64_t nbytes) {
  if (nbytes > kRequestLimit) return nullptr;
  try {
    if (nbytes <= kSmallLimit) return small().allocate(nbytes > 0 ? nbytes : 1);
    int64_t size;
    char* block = large().allocate(nbytes, false, &size);
    if (!block) return nullptr;
    Guard guard(small().lock);
    small().both.use(size, nbytes);
    return block;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

}  // namespace

namespace {

// Packed copies of weights are released before an allocation fails.
void* allocate_again(int64_t nbytes) {
  if (packed_clear() == 0) return nullptr;
  {
    Guard guard(large().lock);
    --large().failures;  // it is one request
    if (large().retries > 0) --large().retries;
  }
  return allocate(nbytes);
}

}  // namespace

char* map_huge_pages(int64_t nbytes) {
  char* at = map_aligned(nbytes);
  if (at) request_huge_pages(at, nbytes, true);
  return at;
}

void* block_allocate(int64_t nbytes) {
  void* block = allocate(nbytes);
  if (!block && nbytes <= kRequestLimit) [[unlikely]] {
    block = allocate_again(nbytes);
  }
  if (block && profiling()) [[unlikely]] {
    profile_memory(nbytes, block);
  }
  return block;
}

void block_free(void* block, int64_t nbytes) {
  if (!block) return;
  if (profiling()) [[unlikely]] {
    profile_memory(-nbytes, block);
  }
  if (nbytes <= kSmallLimit) {
    small().release(block, nbytes > 0 ? nbytes : 1);
  } else {
    const int64_t size = large().release(static_cast<char*>(block));
    if (size == 0) return;
    Guard guard(small().lock);
    small().both.drop(size, nbytes);
  }
}

PyObject* memory_stats(PyObject*, PyObject*) {
  PoolStats all, s, l;
  int64_t retries, failures, cached;
  {
    Guard guard(small().lock);
    s = small().stats;
    all = small().both;
  }
  {
    Guard guard(large().lock);
    l = large().stats;
    all.reserved = large().mapped;
    all.segments = l.segments = large().mappings;
    retries = large().retries;
    failures = large().failures;
    cached = large().cached;
  }
  PyObject* dict = PyDict_New();
  if (!dict) return nullptr;
  bool good = true;
  for (const NamedCounter& c : kCounters) {
    good = good && put_counter(dict, c.name, "all", all.*c.member) &&
           put_counter(dict, c.name, "small_pool", s.*c.member) &&
           put_counter(dict, c.name, "large_pool", l.*c.member);
  }
  const PackedStats packed = packed_stats();
  const Counter prepacked{packed.current, packed.peak, packed.allocated};
  good = good && put_counter(dict, "prepacked_bytes", "all", prepacked) &&
         put(dict, "num_prepacked", packed.blocks) && put(dict, "num_prepacked_hits", packed.hits);
  good = good && put(dict, "num_alloc_retries", retries) && put(dict, "num_ooms", failures) &&
         put(dict, "cached_bytes", cached);
  if (!good) Py_CLEAR(dict);
  return dict;
}

PyObject* memory_snapshot(PyObject*, PyObject*) {
  std::vector<BlockRecord> records;  // copied under the lock: making Python objects may allocate
  const std::vector<const void*> packed = packed_addresses();
  {
    Guard guard(large().lock);
    for (auto& [at, first] : large().segments) {
      for (Block* b = first; b; b = b->next) {
        records.push_back({b->at, b->size, b->requested, b->used, b->slab, b == first});
      }
    }
  }
  for (const void* address : packed) {
    for (BlockRecord& record : records) record.packed |= record.at == address;
  }
  PyObject* list = PyList_New(0);
  PyObject* blocks = nullptr;  // of the segment being filled, borrowed from it
  for (const BlockRecord& record : records) {
    if (!list) break;
    if (record.first) {
      blocks = PyList_New(0);
      PyObject* segment =
          blocks ? Py_BuildValue(
                       "{s:K,s:s,s:O}", "address",
                       static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(record.at)),
                       "device", "cpu", "blocks", blocks)
                 : nullptr;
      Py_XDECREF(blocks);
      if (!segment || PyList_Append(list, segment) < 0) Py_CLEAR(list);
      Py_XDECREF(segment);
      if (!list) break;
    }
    PyObject* block = block_dict(record);
    if (!block || PyList_Append(blocks, block) < 0) Py_CLEAR(list);
    Py_XDECREF(block);
  }
  return list;
}

PyObject* out_of_memory_error() { return oom_error; }

bool init_allocator(PyObject* module) {
  small();
  large();
  init_prepacked();
  PyObject* bases = PyTuple_Pack(2, PyExc_RuntimeError, PyExc_MemoryError);
  if (!bases) return false;
  oom_error = PyErr_NewExceptionWithDoc("flambeau.OutOfMemoryError",
                                        "Memory for a tensor could not be had.", bases, nullptr);
  Py_DECREF(bases);
  return oom_error && PyModule_AddObjectRef(module, "OutOfMemoryError", oom_error) == 0 &&
         PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace fb
