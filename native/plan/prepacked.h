// Packed copies of operands that are used again unchanged: weights. prepacked.cpp defines which are
// cached, and when; the executor (plan_run.cpp) looks them up before a run and reports after it.
#pragma once
#include <vector>

#include "core.h"

namespace fb {

struct PackedBlock;  // counted

// The decision of a run about one of its launches that pack an input.
struct PackedUse {
  PackedBlock* block = nullptr;  // held; null: the launch writes its temporary, as ever
  bool filled = false;           // the launch is skipped: the block is, or nobody needs it
};

// Looks for copies on behalf of every launch of the instance that may have one, and makes `bases`
// point at them. `uses`: instance->packings entries. Needs the GIL.
void packed_bind(const Instance* instance, const Call& call, char** bases, PackedUse* uses);
// After the run: new copies may be used if it succeeded and nobody wrote meanwhile. Needs the GIL.
void packed_finish(PackedUse* uses, size_t count, bool succeeded);

// The storage dies: so do its copies.
void packed_forget(Storage* storage);
// Drops all copies; gives their bytes. Those in use go when their run ends. No GIL needed.
int64_t packed_clear();

struct PackedStats {
  int64_t current = 0, peak = 0, allocated = 0;  // bytes
  int64_t blocks = 0, hits = 0;                  // copies now; launches skipped so far
};
PackedStats packed_stats();
void packed_reset_peak();
void packed_set_limit(int64_t nbytes);  // -1: the default
int64_t packed_limit();
// Where the copies lie.
std::vector<const void*> packed_addresses();
void init_prepacked();

}  // namespace fb
