// The random routines of the table in routines.cpp ("random_..." and "randperm").
#pragma once
#include "core.h"

namespace fb {

RoutineFunction find_random_routine(const char* name);  // null when there is none of this name

}  // namespace fb
