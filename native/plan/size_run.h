// Runs parts of size programs: those of Plans, and of block programs.
#pragma once
#include "core.h"

namespace fb {

// Instructions [begin, end). False when a division by zero or an overflow happens (values are then
// unspecified).
bool run_sizes(const SizeProgram& program, int64_t* registers, size_t begin, size_t end);

}  // namespace fb
