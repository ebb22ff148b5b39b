// Parts of a plan's run that are the same on every device.
#pragma once
#include "core.h"

namespace fb {

constexpr int64_t kAlignment = 64;  // of temporaries
constexpr int kErrorWords = 8;      // one cache line: flag, value, size, dimension

// arena.cpp: offsets of temporaries in their block. False + exception.
bool plan_arena(Instance* instance);
// The results of a run: new tensors, views and operands. False + exception.
bool make_outputs(const Instance* instance, const Call& call, Device device, PyObject** outputs);
void drop_outputs(const Plan* plan, PyObject** outputs);
// Raises what an error block says. True where it is empty.
bool check_error_block(const Plan* plan, const BufferSpec& buffer, const int64_t* block);
// After launches: their results have other data.
void note_inputs(const Instance* instance, const Call& call);
void note_outputs(const Plan* plan, PyObject* const* outputs);

inline Scalar read_scalar(const Scalar* scalars, const uint8_t* scalar_is_float,
                          const ScalarSource& source) {
  Scalar out;
  if (source.kind == ScalarSource::Constant) return source.constant;
  const Scalar argument = scalars[source.index];
  const bool is_float = scalar_is_float[source.index];
  if (source.as_float) {
    out.d = is_float ? argument.d : static_cast<double>(argument.i);
  } else {
    out.i = is_float ? static_cast<int64_t>(argument.d) : argument.i;
  }
  return out;
}

}  // namespace fb
