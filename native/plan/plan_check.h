// From Python's records of a plan and its execution (flambeau/ir/plan.py) to a Plan's arrays, and
// the range checks of every number in them.
#pragma once

#include <vector>

#include "core.h"

namespace fb {

// Sets a ValueError unless an exception is set; returns false.
bool bad_spec(const char* what, const char* details);

// plan_read.cpp. False + exception if a record is wrong; `executed` does not change.
bool read_plan(Plan* plan, PyObject* spec, PyObject* backward_op, PyObject* structure);
bool read_execution(Plan* plan, PyObject* record);

// False with a ValueError where a number is out of range.
bool check_plan(const Plan* plan);
bool check_execution(const Plan* plan, const SizeProgram& program,
                     const std::vector<BufferSpec>& buffers, const std::vector<Launch>& launches,
                     const std::vector<int32_t>& written);

}  // namespace fb
