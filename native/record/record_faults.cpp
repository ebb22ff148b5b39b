// Errors that only data show. Eager mode raises them at the call, so a recorded call must not leave
// them to its region's end: Python's own effects, and handlers of exceptions, would tell the
// difference.
//
// - An index tensor whose values are there, or easy to have, is looked at when the call is
//   recorded; a wrong one runs, and raises, at once. Places that `topk` and its kind found are
//   known to be right. For other computed indices the stream runs first.
// - A call that nothing but its run can judge (`Certainty::Unknown`) runs at once.
#include <algorithm>
#include <bit>
#include <cstring>

#include "call/override.h"
#include "record/record.h"

namespace fb {

namespace {

// ---------------------------------------------------------------- indices
constexpr int64_t kMaxAside = 1 << 16;  // elements of an index that is computed to be looked at

using Range = IndexRange;

template <typename T>
bool inside(const T* at, const Range& range) {
  const auto value = static_cast<int64_t>(*at);
  return (value >= range.low && value < range.high) || (range.exempts && value == range.exempt);
}

template <typename T>
bool all_inside(const T* at, const Tensor* t, int dim, const Range& range) {
  if (dim == t->ndim) return inside(at, range);
  const int64_t count = t->sizes()[dim], step = t->strides()[dim];
  for (int64_t i = 0; i < count; ++i) {
    const T* here = at + i * step;
    if (!(dim + 1 == t->ndim ? inside(here, range) : all_inside(here, t, dim + 1, range))) {
      return false;
    }
  }
  return true;
}

template <typename T>
bool all_inside(const Tensor* t, const Range& range) {
  return t->numel == 0 || all_inside(reinterpret_cast<const T*>(t->data()), t, 0, range);
}

bool all_inside(const Tensor* t, const Range& range) {
  switch (t->dtype) {
    case DType::I64:
      return all_inside<int64_t>(t, range);
    case DType::I32:
      return all_inside<int32_t>(t, range);
    case DType::I16:
      return all_inside<int16_t>(t, range);
    case DType::I8:
      return all_inside<int8_t>(t, range);
    default:
      return all_inside<uint8_t>(t, range);
  }
}

// Whether a tensor's memory holds its value now: it is computed, and the stream does not write it.
bool readable(const Recorder* r, const Tensor* t) {
  if (!t || t->storage->pending || (t->numel > 0 && !t->storage->data)) return false;
  const auto state = r->state_of.find(t->storage);
  return state == r->state_of.end() || !r->states[state->second].written;
}

Range range_of(const IndexCheck& check, const Instance* instance, const Call& call) {
  const int64_t size = instance->registers[static_cast<size_t>(check.size)];
  Range range{check.strict ? 0 : -size, size, check.exempt != IndexCheck::None, check.value};
  if (check.exempt == IndexCheck::Number) range.exempt = call.scalars[check.value].i;
  return range;
}

bool zero_divisor(const IndexCheck& check, const Call& call) {
  return static_cast<uint64_t>(call.scalars[check.value].i) << (64 - check.size) == 0;
}

// Whether a call returns a value as it took it: `contiguous` of what is contiguous.
bool passes(const Record& record, int32_t id) {
  const auto& operands = record.operands;
  return record.instance->plan->mutated.empty() &&
         std::find(operands.begin(), operands.end(), id) != operands.end();
}

// The call of the stream that makes a value, and which of its results it is.
struct Maker {
  const Record* record;
  size_t output;
};
Maker maker_of(const Recorder* r, int32_t id) {
  for (size_t i = r->records.size(); i-- > 0;) {
    const auto& results = r->records[i].results;
    const auto* place = std::find(results.begin(), results.end(), id);
    if (place != results.end() && !passes(r->records[i], id)) {
      return {&r->records[i], static_cast<size_t>(place - results.begin())};
    }
  }
  return {nullptr, 0};
}

// Whether a pending tensor is known to hold places of something that is no longer than what it
// indexes: results of `topk`, `argsort`, `argmax`.
bool bounded(const Recorder* r, const Tensor* t, const Range& range) {
  if (!t || t->record_epoch != r->epoch || t->value_id < 0 || range.low > 0) return false;
  for (int32_t id = t->value_id;;) {
    const Value& v = r->values[static_cast<size_t>(id)];
    if (r->states[static_cast<size_t>(v.state)].written) return false;
    if (v.kind == Value::Alias) {
      id = v.source;
      continue;
    }
    const Maker maker = v.kind == Value::New ? maker_of(r, id) : Maker{nullptr, 0};
    if (!maker.record) return false;
    const Instance* instance = maker.record->instance;
    const auto& bounds = instance->plan->bounds;
    const auto bound = std::find_if(bounds.begin(), bounds.end(), [&](const IndexBound& b) {
      return b.output == static_cast<int32_t>(maker.output);
    });
    if (bound == bounds.end()) return false;
    if (bound->size >= 0) {
      return instance->registers[static_cast<size_t>(bound->size)] <= range.high;
    }
    if (bound->high >= 0) {
      const auto& numbers = maker.record->scalars;
      return numbers[static_cast<size_t>(bound->high)].i <= range.high &&
             (bound->low < 0 || numbers[static_cast<size_t>(bound->low)].i >= 0);
    }
    id = maker.record->operands[static_cast<size_t>(bound->slot)];
  }
}

// Indices that a few recorded calls make of integers (positions, shifted classes) are computed
// beside the stream, to be looked at.
class Aside {
 public:
  explicit Aside(Recorder* r) : r_(r), epoch_(r->epoch) {}
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;

  // New reference; null: not to be had so easily. Never an exception.
  Tensor* value(int32_t id) {
    const Value& v = r_->values[static_cast<size_t>(id)];
    if (!is_integral(v.dtype)) return nullptr;
    if (v.kind == Value::External) {
      return share(r_->externals[static_cast<size_t>(v.source)]).release();
    }
    if (v.kind == Value::New) return result(id);
    if (v.kind != Value::Alias) return nullptr;
    const auto base = steal(value(v.source));
    return base && r_->epoch == epoch_ ? view_of(base.get(), id) : nullptr;
  }

 private:
  Tensor* view_of(Tensor* base, int32_t id) const {
    const Value& v = r_->values[static_cast<size_t>(id)];
    const auto ndim = static_cast<int>(v.geometry.size() / 2);
    return tensor_alias(base, v.dtype, ndim, v.geometry.data(), v.geometry.data() + ndim, v.offset);
  }
  static bool easy(const Record& record) {
    const Plan* plan = record.instance->plan;
    return record.objects.empty() && plan->mutated.empty() && !plan->faults && plan->checks.empty();
  }
  Tensor* result(int32_t id) {
    if (++calls_ > kMaxCalls) return nullptr;
    const Maker maker = maker_of(r_, id);
    if (!maker.record || !easy(*maker.record)) return nullptr;
    return run(static_cast<size_t>(maker.record - r_->records.data()), maker.output);
  }
  Tensor* run(size_t number, size_t output) {
    const auto& ids = r_->records[number].operands;
    const std::vector<int32_t> wanted(ids.begin(), ids.end());
    Ref<Tensor> result;
    {
      Refs<Tensor> operands;
      bool fine = true;
      for (size_t i = 0; fine && i < wanted.size(); ++i) {
        operands.values.push_back(wanted[i] < 0 ? nullptr : value(wanted[i]));
        fine = (wanted[i] < 0 || operands.values.back()) && r_->epoch == epoch_;
      }
      if (fine) result = steal(run(r_->records[number], &operands.values, output));
    }
    return r_->epoch == epoch_ ? result.release() : nullptr;
  }
  // The GIL may go: nothing of `record` is used after the run began.
  static Tensor* run(const Record& record, std::vector<Tensor*>* operands, size_t output) {
    Instance* instance = record.instance;
    std::vector<Scalar> scalars(record.scalars.begin(), record.scalars.end());
    std::vector<uint8_t> kinds(record.scalar_is_float.begin(), record.scalar_is_float.end());
    Refs<> outputs(instance->plan->outputs.size());
    const Call call{operands->data(),
                    static_cast<int32_t>(operands->size()),
                    scalars.data(),
                    kinds.data(),
                    static_cast<int32_t>(scalars.size()),
                    nullptr,
                    0};
    Recorder* recorder = std::exchange(active_recorder, nullptr);
    auto held = share(instance);
    if (!plan_run(instance, call, outputs.values.data())) PyErr_Clear();
    held = {};
    active_recorder = recorder;
    return tensor_of(std::exchange(outputs.values[output], nullptr));
  }

  static constexpr int kMaxCalls = 8;
  Recorder* r_;
  uint32_t epoch_;
  int calls_ = 0;
};

// A tensor whose values can be looked at, or null. New reference.
Tensor* looked_at(Recorder* r, Tensor* t) {
  if (readable(r, t)) return share(t).release();
  const bool here = t && t->record_epoch == r->epoch && t->value_id >= 0 && t->numel <= kMaxAside;
  return here ? Aside(r).value(t->value_id) : nullptr;
}

}  // namespace

Certainty certainty_of(Recorder* r, const Instance* instance, const Call& call) {
  const Plan* plan = instance->plan;
  Certainty known = plan->faults ? Certainty::Unknown : Certainty::Right;
  for (const IndexCheck& check : plan->checks) {
    if (check.slot < 0) {
      if (zero_divisor(check, call)) return Certainty::Wrong;
      continue;
    }
    const Range range = range_of(check, instance, call);
    if (bounded(r, call.tensors[check.slot], range)) continue;
    const auto t = steal(looked_at(r, call.tensors[check.slot]));
    const bool right = t && all_inside(t.get(), range);
    if (t && !right) return Certainty::Wrong;
    if (!t && known == Certainty::Right) known = Certainty::Pending;
  }
  return known;
}

bool record_note_indices(Recorder* r, const Instance* instance, const Call& call) {
  if (instance->plan->faults) return false;
  for (const IndexCheck& check : instance->plan->checks) {
    if (check.slot < 0) continue;
    const Range range = range_of(check, instance, call);
    if (bounded(r, call.tensors[check.slot], range)) continue;
    r->looked.push_back({r->records.size(), check.slot, range});
  }
  return true;
}

int64_t true_elements(const Tensor* mask) {
  const auto* flags = reinterpret_cast<const uint8_t*>(mask->data());
  constexpr uint64_t kLow = 0x7f7f7f7f7f7f7f7f;
  int64_t count = 0, i = 0;
  for (; i + 8 <= mask->numel; i += 8) {
    uint64_t eight;
    std::memcpy(&eight, flags + i, sizeof eight);
    count += std::popcount((((eight & kLow) + kLow) | eight) & ~kLow);  // a bit of each true one
  }
  for (; i < mask->numel; ++i) count += flags[i] != 0;
  return count;
}

PyObject* record_count_true(PyObject*, PyObject* object) {
  Recorder* r = active_recorder;
  if (!r || r->symbolic || interceptors || !is_exact_tensor(object)) Py_RETURN_NONE;
  Tensor* t = tensor_of(object);
  if (t->dtype != DType::Bool || !on_host(t->device) || !(t->flags & kContiguous) ||
      (t->flags & kLazy) || t->storage->writer || !readable(r, t)) {
    Py_RETURN_NONE;
  }
  const int64_t count = true_elements(t);
  if (r->learning) r->counted.push_back({share(t), count});
  return PyLong_FromLongLong(count);
}

bool indices_inside(const Tensor* t, const IndexRange& range) { return all_inside(t, range); }

}  // namespace fb
