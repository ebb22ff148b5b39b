// Weights are packed once.
//
// A launch that packs an operand (docs/design.md section 5, "packing") computes a function of the
// operand's bytes, the kernel and its size arguments alone. If the operand is an input of the plan,
// the result may be cached and the launch skipped the next time. Each storage has a short list of
// entries: key, the storage's `writes` at that time, and maybe a copy. The first use of a key only
// adds an entry; the copy is stored when the same key is used again before any write. So
// activations, which are packed once, and weights that an optimizer changes at every step cost one
// look-up in a list. Weights of frozen programs (constants.cpp) are copied at once. A copy that was
// never used before the next write doubles the number of uses that its key needs.
//
// Never a wrong number:
// * `writes` counts every write that Flambeau makes, after it (core.h). A copy is valid while it
//   has the number of its creation; a new one is only published if the number is still the same
//   after the run, so bytes that another thread wrote meanwhile are never cached.
// * Memory that others may write to unseen is never cached: foreign and shared memory, and storages
//   whose address was handed out for good (data_ptr, NumPy, DLPack, the buffer protocol).
//
// Copies go with their storage, by `empty_cache()`, and when memory is exhausted. Together they
// take at most an eighth of the memory (`set_prepacked_limit`); copies beyond that are not stored.
//
// All calls come with the GIL, except `packed_clear`; a lock guards what that touches: blocks and
// which entry has which. Memory is released outside of the lock, so it never waits for another.
#include "plan/prepacked.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <utility>

#include "plan/constants.h"
#include "runtime/fork.h"

namespace fb {

constexpr int kKeyWords = 48;  // sizes of a launch that packs, and two other words
constexpr int kEntriesOfStorage = 8;
constexpr int32_t kFirstPatience = 2, kMostPatience = 64;

struct PackedEntry {
  PackedEntry* next = nullptr;  // of the same storage, latest first
  Storage* storage = nullptr;
  PackedBlock* block = nullptr;  // counted
  uint64_t writes = 0;           // of the storage, when last seen
  int32_t sights = 0;            // at that number
  int32_t patience = kFirstPatience;
  int32_t words = 0;
  int64_t key[kKeyWords];
};

struct PackedBlock {
  int32_t references = 1;  // the entry's, then those of runs
  bool filled = false;
  bool used = false;
  void* data = nullptr;
  int64_t nbytes = 0;
  PackedEntry* entry = nullptr;                      // null: dropped, lives on for runs that use it
  PackedBlock *previous = nullptr, *next = nullptr;  // of all that have an entry
};

namespace {

struct Table {
  ForkSafe<std::mutex> lock{1};
  PackedBlock* first = nullptr;
  PackedStats stats;
  int64_t limit = -1;
};
// Never destroyed: storages may be released while the interpreter shuts down.
Table& table() {
  static auto* const made = new Table();
  return *made;
}
using Guard = std::lock_guard<ForkSafe<std::mutex>>;

int64_t read_number(const char* path) {
  long long value = -1;
  FILE* file = std::fopen(path, "r");
  if (!file) return -1;
  if (std::fscanf(file, "%lld", &value) != 1) value = -1;
  std::fclose(file);
  return value;
}

int64_t default_limit() {
  int64_t memory = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  for (const char* path :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    const int64_t given = read_number(path);
    if (given > 0) memory = std::min(memory, given);
  }
  return memory / 8;
}

// ---- blocks; the lock is held. Blocks to free are returned.

PackedBlock* release(PackedBlock* block) { return --block->references == 0 ? block : nullptr; }

PackedBlock* detach(PackedEntry* entry) {
  PackedBlock* block = entry->block;
  if (!block) return nullptr;
  entry->block = nullptr;
  block->entry = nullptr;
  (block->previous ? block->previous->next : table().first) = block->next;
  if (block->next) block->next->previous = block->previous;
  block->previous = block->next = nullptr;
  return release(block);
}

void attach(PackedEntry* entry, PackedBlock* block) {
  entry->block = block;
  block->entry = entry;
  block->next = table().first;
  if (block->next) block->next->previous = block;
  table().first = block;
}

// ---- the lock is not held

void destroy(PackedBlock* block) {
  if (!block) return;
  {
    const Guard guard(table().lock);
    table().stats.current -= block->nbytes;
    --table().stats.blocks;
  }
  block_free(block->data, block->nbytes);
  delete block;
}

PackedBlock* create(int64_t nbytes) {
  Table& t = table();
  {
    const Guard guard(t.lock);
    if (t.limit < 0) t.limit = default_limit();
    if (nbytes > t.limit - t.stats.current) return nullptr;
    t.stats.current += nbytes;
    ++t.stats.blocks;
  }
  auto* block = new (std::nothrow) PackedBlock();
  void* data = block ? block_allocate(nbytes) : nullptr;
  const Guard guard(t.lock);
  if (!data) {
    t.stats.current -= nbytes;
    --t.stats.blocks;
    delete block;
    return nullptr;
  }
  t.stats.allocated += nbytes;
  t.stats.peak = std::max(t.stats.peak, t.stats.current);
  block->data = data;
  block->nbytes = nbytes;
  return block;
}

void drop(PackedEntry* entry) {
  if (!entry->block) return;
  PackedBlock* freed;
  {
    const Guard guard(table().lock);
    freed = detach(entry);
  }
  destroy(freed);
}

// ---- entries; under the GIL

bool same_key(const PackedEntry* entry, const int64_t* key, int32_t words) {
  return entry->words == words &&
         std::memcmp(entry->key, key, static_cast<size_t>(words) * sizeof(int64_t)) == 0;
}

// The entry of a key, or null.
PackedEntry* entry_of(const Storage* storage, const int64_t* key, int32_t words) {
  PackedEntry* entry = storage->packed;
  while (entry && !same_key(entry, key, words)) entry = entry->next;
  return entry;
}

// A new entry in front, in place of the last if there are many. Null without memory.
PackedEntry* entry_new(Storage* storage, const int64_t* key, int32_t words) {
  int count = 0;
  PackedEntry** last = nullptr;
  for (PackedEntry** link = &storage->packed; *link; link = &(*link)->next, ++count) last = link;
  PackedEntry* entry;
  if (count >= kEntriesOfStorage) {
    entry = *last;
    *last = nullptr;
    drop(entry);
  } else {
    entry = new (std::nothrow) PackedEntry;
    if (!entry) return nullptr;
  }
  entry->storage = storage;
  entry->writes = storage->writes;
  entry->sights = 0;
  entry->patience = kFirstPatience;
  entry->words = words;
  std::memcpy(entry->key, key, static_cast<size_t>(words) * sizeof(int64_t));
  entry->next = storage->packed;
  storage->packed = entry;
  return entry;
}

// A write happened since the entry was last seen.
void start_again(PackedEntry* entry) {
  if (entry->block && !entry->block->used) {
    entry->patience = std::min(2 * entry->patience, kMostPatience);
  }
  drop(entry);
  entry->writes = entry->storage->writes;
  entry->sights = 0;
}

// A finished copy that is up to date; the lock is held.
PackedUse hit(const PackedEntry* entry) {
  PackedBlock* block = entry->block;
  if (!block || !block->filled || entry->writes != entry->storage->writes) return {};
  ++block->references;
  block->used = true;
  ++table().stats.hits;
  return {block, true};
}

// No finished copy: one may begin.
PackedUse miss(PackedEntry* entry, int64_t nbytes) {
  if (entry->writes != entry->storage->writes) start_again(entry);
  {
    const Guard guard(table().lock);
    if (entry->block) return hit(entry);  // or another thread is at it
  }
  if (++entry->sights < entry->patience) return {};
  PackedBlock* block = create(nbytes);
  if (!block) return {};
  const Guard guard(table().lock);
  ++block->references;
  attach(entry, block);
  return {block, false};
}

bool keepable(const PlanCode* code, int32_t slot, const Storage* storage) {
  for (int32_t written : code->written) {
    if (written == slot) return false;
  }
  return storage_private(storage);
}

// A launch that packs an input, and where its result goes.
struct Packing {
  const Tensor* source = nullptr;
  int32_t slot = 0, result = 0;
  int64_t spare = 0, nbytes = 0;
  int32_t words = 0;  // of the key; 0: nothing may be cached
  int64_t key[kKeyWords];

  Packing(const Instance* instance, const Call& call, const ReadyLaunch& ready) {
    const Launch& launch = *ready.launch;
    const PlanCode* code = instance->code;
    slot = code->buffers[launch.buffers[launch.packs_from]].index;
    source = call.tensors[slot];
    result = launch.buffers[launch.packs_to];
    spare = launch.spare >= 0 ? instance->registers[launch.spare] : 0;
    nbytes = spare > 0 ? spare : instance->registers[code->buffers[result].nbytes];
    const auto sizes = static_cast<int32_t>(launch.sizes.size());
    if (sizes + 2 > kKeyWords || nbytes <= 0 || !keepable(code, slot, source->storage)) return;
    words = sizes + 2;
    key[0] = launch.packing_kernel;
    key[1] = source->offset * item_size(source->dtype) +
             (ready.offsets ? ready.offsets[launch.packs_from] : 0);
    std::copy(ready.sizes, ready.sizes + sizes, key + 2);
  }
};

PackedUse look_up(const Packing& packing, bool fixed) {
  PackedEntry* entry = entry_of(packing.source->storage, packing.key, packing.words);
  if (!entry) entry = entry_new(packing.source->storage, packing.key, packing.words);
  if (entry && fixed) entry->patience = 1;
  return entry ? miss(entry, packing.nbytes) : PackedUse{};
}

}  // namespace

void packed_bind(const Instance* instance, const Call& call, char** bases, PackedUse* uses) {
  const size_t count = instance->packings.size();
  {
    // Most copies are there: one lock for all of them.
    const Guard guard(table().lock);
    for (size_t i = 0; i < count; ++i) {
      const Packing packing(instance, call, instance->ready[instance->packings[i]]);
      if (!packing.words) continue;
      const PackedEntry* entry = entry_of(packing.source->storage, packing.key, packing.words);
      if (entry) uses[i] = hit(entry);
      if (uses[i].block) bases[packing.result] = static_cast<char*>(uses[i].block->data);
    }
  }
  for (size_t i = 0; i < count; ++i) {
    if (uses[i].block) continue;
    const Packing packing(instance, call, instance->ready[instance->packings[i]]);
    if (packing.words) uses[i] = look_up(packing, plan_fixes(instance->plan, packing.slot));
    if (uses[i].block) {
      bases[packing.result] = static_cast<char*>(uses[i].block->data);
    } else if (packing.spare > 0) {
      bases[packing.result] = nullptr;
      uses[i].filled = true;
    }
  }
}

void packed_finish(PackedUse* uses, size_t count, bool succeeded) {
  for (size_t i = 0; i < count;) {
    PackedBlock *freed = nullptr, *detached = nullptr;
    {
      const Guard guard(table().lock);
      for (; i < count && !freed && !detached; ++i) {
        PackedBlock* block = std::exchange(uses[i].block, nullptr);
        if (!block) continue;
        PackedEntry* entry = block->entry;
        if (!uses[i].filled && entry) {
          if (succeeded && entry->writes == entry->storage->writes) {
            block->filled = true;
          } else {
            detached = detach(entry);
          }
        }
        freed = release(block);
      }
    }
    destroy(detached);
    destroy(freed);
  }
}

void packed_forget(Storage* storage) {
  while (PackedEntry* entry = storage->packed) {
    storage->packed = entry->next;
    drop(entry);
    delete entry;
  }
}

int64_t packed_clear() {
  int64_t bytes = 0;
  for (;;) {
    PackedBlock* freed = nullptr;
    {
      const Guard guard(table().lock);
      PackedBlock* block = table().first;
      if (!block) return bytes;
      bytes += block->nbytes;
      freed = detach(block->entry);
    }
    destroy(freed);
  }
}

PackedStats packed_stats() {
  const Guard guard(table().lock);
  return table().stats;
}

void packed_reset_peak() {
  const Guard guard(table().lock);
  table().stats.peak = table().stats.current;
}

void packed_set_limit(int64_t nbytes) {
  {
    const Guard guard(table().lock);
    table().limit = nbytes < 0 ? default_limit() : nbytes;
    if (table().stats.current <= table().limit) return;
  }
  packed_clear();  // whoever is used again comes back, as far as the limit goes
}

int64_t packed_limit() {
  const Guard guard(table().lock);
  if (table().limit < 0) table().limit = default_limit();
  return table().limit;
}

std::vector<const void*> packed_addresses() {
  std::vector<const void*> found;
  const Guard guard(table().lock);
  for (const PackedBlock* block = table().first; block; block = block->next) {
    found.push_back(block->data);
  }
  return found;
}

void init_prepacked() { table(); }

}  // namespace fb
