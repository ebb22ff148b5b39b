// Range checks of what Python says in a plan and in its execution.
#pragma once

#include <vector>

#include "core.h"

namespace fb {

// Sets a ValueError unless an exception is set; returns false.
bool bad_spec(const char* what, const char* details);

// False with a ValueError where a number is out of range.
bool check_plan(const Plan* plan);
bool check_execution(const Plan* plan, const SizeProgram& program,
                     const std::vector<BufferSpec>& buffers, const std::vector<Launch>& launches,
                     const std::vector<int32_t>& written);

}  // namespace fb
