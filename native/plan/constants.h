// Values that a frozen program computes once: functions of tensors that it takes as constants.
// constants.cpp defines when they are computed again.
#pragma once
#include "core.h"

namespace fb {

// Whether values computed from this memory may be remembered: nobody else can write to it.
bool storage_private(const Storage* storage);

// Runs the plan of a frozen program: launches get the tensors of the call and, behind them, the
// remembered values. Needs the GIL. Like plan_run.
bool plan_run_frozen(Instance* instance, const Call& call, PyObject** outputs,
                     bool (*run)(Instance*, const Call&, PyObject**));
// Whether an operand of the plan's launches is a constant, or a value computed from constants.
bool plan_fixes(const Plan* plan, int32_t slot);

bool init_constants(PyObject* module);
bool is_constants(PyObject* object);
// Whether the plan's constants are tensors and numbers of its calls, on the host, and as many
// values as its launches read. False + exception.
bool constants_fit(const Plan* plan);

}  // namespace fb
