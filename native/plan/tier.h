// The tier of Plans: what runs of those take for which better code is awaited. Compiled plans are
// not timed, and never come here.
#pragma once
#include "core.h"

namespace fb {

// A plan's code changed.
void tier_note(Plan* plan);
void tier_forget(Plan* plan);
// A run of such code took so long. The first time that the sum is above the threshold, the function
// is called that `_core.set_baseline_wake` registered.
void tier_spent(PlanCode* code, int64_t nanoseconds);
bool init_tier(PyObject* module);

}  // namespace fb
