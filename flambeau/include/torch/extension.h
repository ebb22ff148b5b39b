// Functions in C++ for programs that use Flambeau: `at::Tensor`, checks, dispatch by dtype,
// bindings.
#pragma once
#include "../flambeau/binding.h"

namespace at {
using c10::IntArrayRef;
}
namespace torch {
using namespace at;
using at::Tensor;
namespace indexing {}
template <typename F>
F wrap_pybind_function(F function) {
  return function;
}
}  // namespace torch
namespace py = pybind11;
