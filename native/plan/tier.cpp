// When the compiler is called for a plan: after its runs on the baseline took long enough. Python
// decides what then happens (flambeau/compiler/tiers.py), in a thread of its own.
#include "plan/tier.h"

#include <unordered_set>
#include <utility>

namespace fb {
namespace {

PyObject* wake = nullptr;  // owned
int64_t threshold = INT64_MAX;

std::unordered_set<Plan*>& waiting() {
  static auto& plans = *new std::unordered_set<Plan*>();  // never destroyed
  return plans;
}

// Of a run that may have failed: its exception stays. What `wake` raises is nobody's.
void call_wake() {
  if (!wake) return;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  const auto function = share(wake);
  const auto result = steal(PyObject_CallNoArgs(function.get()));
  PyErr_Restore(type, value, traceback);
}

// set_baseline_wake(nanoseconds, function)
PyObject* py_set_wake(PyObject*, PyObject* args) {
  long long nanoseconds;
  PyObject* function;
  if (!PyArg_ParseTuple(args, "LO", &nanoseconds, &function)) return nullptr;
  threshold = nanoseconds;
  assign(wake, share(function));
  Py_RETURN_NONE;
}

PyObject* py_plans(PyObject*, PyObject*) {
  std::vector<Ref<Plan>> plans;
  for (Plan* plan : waiting()) plans.push_back(share(plan));
  return build_list(plans.size(), [&plans](size_t i) {
    return Py_NewRef(reinterpret_cast<PyObject*>(plans[i].get()));
  });
}

PyMethodDef methods[] = {
    {"set_baseline_wake", py_set_wake, METH_VARARGS,
     "Sets what is called when a plan has run on the baseline for so many nanoseconds."},
    {"baseline_plans", py_plans, METH_NOARGS, "The plans for which better code is awaited."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

void tier_note(Plan* plan) {
  if (plan->code->awaits) {
    waiting().insert(plan);
  } else {
    waiting().erase(plan);
  }
}

void tier_forget(Plan* plan) {
  if (plan->code && plan->code->awaits) waiting().erase(plan);
}

void tier_spent(PlanCode* code, int64_t nanoseconds) {
  code->nanoseconds += nanoseconds;
  if (code->hot || code->nanoseconds < threshold) return;
  code->hot = true;
  call_wake();
}

bool init_tier(PyObject* module) { return PyModule_AddFunctions(module, methods) == 0; }

}  // namespace fb
