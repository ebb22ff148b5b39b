// From Python's records of a plan and its execution (flambeau/ir/plan.py) to a Plan's arrays, and
// the range checks of every number in them.
#pragma once

#include <vector>

#include "core.h"

namespace fb {

// Sets a ValueError unless an exception is set; returns false.
bool bad_spec(const char* what, const char* details);

// plan_read.cpp. False, or null, + exception if a record is wrong.
bool read_plan(Plan* plan, PyObject* spec, PyObject* backward_op, PyObject* structure);
PlanCode* read_code(const Plan* plan, PyObject* execution);  // new reference

// False with a ValueError where a number is out of range.
bool check_plan(const Plan* plan);
bool check_code(const Plan* plan, const PlanCode& code);

}  // namespace fb
