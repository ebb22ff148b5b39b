// Errors that only data show. Eager mode raises them at the call, so a recorded call must not leave
// them to its region's end where somebody could tell the difference:
//
// - An index tensor whose values are there, or easy to have, is looked at when the call is
//   recorded; a wrong one runs, and raises, at once.
// - A call that may still fail (`Certainty::Unknown`) runs at once where an exception may be caught
//   on its way out of the region: some frame of the user's code between the call and the region's
//   beginning is inside of a `try` or `with`.
// - A stream never holds a write to memory from outside together with a call that may fail: what
//   was written before such a call is there, and what would be written after it is not.
#include <opcode.h>

#include <algorithm>
#include <string>

#include "record.h"

namespace fb {

namespace {

// ---------------------------------------------------------------- indices
constexpr int64_t kMaxAside = 1 << 16;  // elements of an index that is computed to be looked at

struct Range {
  int64_t low, high;  // [low, high)
  bool exempts;
  int64_t exempt;
};

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
    if (!(dim + 1 == t->ndim ? inside(here, range) : all_inside(here, t, dim + 1, range)))
      return false;
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
    if (v.kind == Value::External) return held(r_->externals[static_cast<size_t>(v.source)]);
    if (v.kind == Value::New) return result(id);
    if (v.kind != Value::Alias) return nullptr;
    Tensor* base = value(v.source);
    Tensor* view = base && r_->epoch == epoch_ ? view_of(base, id) : nullptr;
    drop(base);
    return view;
  }

 private:
  static Tensor* held(Tensor* t) {
    Py_INCREF(reinterpret_cast<PyObject*>(t));
    return t;
  }
  static void drop(Tensor* t) { Py_XDECREF(reinterpret_cast<PyObject*>(t)); }
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
    for (size_t i = r_->records.size(); i-- > 0;) {
      const auto& results = r_->records[i].results;
      const auto* found = std::find(results.begin(), results.end(), id);
      if (found == results.end()) continue;
      return easy(r_->records[i]) ? run(i, static_cast<size_t>(found - results.begin())) : nullptr;
    }
    return nullptr;
  }
  Tensor* run(size_t number, size_t output) {
    const auto& ids = r_->records[number].operands;
    const std::vector<int32_t> wanted(ids.begin(), ids.end());
    std::vector<Tensor*> operands;
    bool fine = true;
    for (size_t i = 0; fine && i < wanted.size(); ++i) {
      operands.push_back(wanted[i] < 0 ? nullptr : value(wanted[i]));
      fine = (wanted[i] < 0 || operands.back()) && r_->epoch == epoch_;
    }
    Tensor* made = fine ? run(r_->records[number], &operands, output) : nullptr;
    for (Tensor* t : operands) drop(t);
    if (r_->epoch == epoch_) return made;
    drop(made);
    return nullptr;
  }
  // The GIL may go: nothing of `record` is used after the run began.
  static Tensor* run(const Record& record, std::vector<Tensor*>* operands, size_t output) {
    Instance* instance = record.instance;
    std::vector<Scalar> scalars(record.scalars.begin(), record.scalars.end());
    std::vector<uint8_t> kinds(record.scalar_is_float.begin(), record.scalar_is_float.end());
    std::vector<PyObject*> outputs(instance->plan->outputs.size(), nullptr);
    const Call call{operands->data(),
                    static_cast<int32_t>(operands->size()),
                    scalars.data(),
                    kinds.data(),
                    static_cast<int32_t>(scalars.size()),
                    nullptr,
                    0};
    Recorder* recorder = std::exchange(active_recorder, nullptr);
    instance_incref(instance);
    if (!plan_run(instance, call, outputs.data())) PyErr_Clear();
    instance_decref(instance);
    active_recorder = recorder;
    PyObject* made = Py_XNewRef(outputs[output]);
    for (PyObject* t : outputs) Py_XDECREF(t);
    return reinterpret_cast<Tensor*>(made);
  }

  static constexpr int kMaxCalls = 8;
  Recorder* r_;
  uint32_t epoch_;
  int calls_ = 0;
};

// A tensor whose values can be looked at, or null. New reference.
PyObject* looked_at(Recorder* r, Tensor* t) {
  if (readable(r, t)) return Py_NewRef(reinterpret_cast<PyObject*>(t));
  const bool here = t && t->record_epoch == r->epoch && t->value_id >= 0 && t->numel <= kMaxAside;
  return here ? reinterpret_cast<PyObject*>(Aside(r).value(t->value_id)) : nullptr;
}

// ---------------------------------------------------------------- handlers
// CPython's exception tables: runs of instructions and where an exception in them goes.
class ExceptionTable {
 public:
  explicit ExceptionTable(PyCodeObject* code)
      : at_(reinterpret_cast<const unsigned char*>(PyBytes_AS_STRING(code->co_exceptiontable))),
        end_(at_ + PyBytes_GET_SIZE(code->co_exceptiontable)) {}
  // The instruction where an exception at `instruction` goes; -1: out of the frame.
  int target(int instruction) const {
    for (const unsigned char* at = at_; at < end_;) {
      const int start = number(&at), length = number(&at), target = number(&at);
      number(&at);  // depth of the stack
      if (instruction >= start && instruction < start + length) return target;
    }
    return -1;
  }
  bool empty() const { return at_ == end_; }

 private:
  int number(const unsigned char** at) const {
    int value = **at & 63;
    while (*(*at)++ & 64) value = value << 6 | (**at & 63);
    return value;
  }
  const unsigned char* at_;
  const unsigned char* end_;
};

// Whether an exception at this place meets `except`, `finally` or `with`. Clean-up that only raises
// again is followed.
bool caught(PyCodeObject* code, int instruction) {
  const ExceptionTable table(code);
  if (table.empty()) return false;
  PyObject* bytes = PyCode_GetCode(code);
  if (!bytes) {
    PyErr_Clear();
    return true;
  }
  const auto* text = reinterpret_cast<const unsigned char*>(PyBytes_AS_STRING(bytes));
  const auto count = static_cast<int>(PyBytes_GET_SIZE(bytes) / 2);
  bool found = false;
  for (int at = table.target(instruction); at >= 0 && at < count && !found;) {
    found = text[2 * at] == PUSH_EXC_INFO;
    while (!found && at < count && text[2 * at] != RERAISE) ++at;
    if (!found) at = table.target(at);
  }
  Py_DECREF(bytes);
  return found;
}

// Frames of the package itself only put things back, whenever the exception comes.
bool of_package(PyCodeObject* code) {
  static PyObject* folder = nullptr;
  if (!folder) {
    PyObject* package = PyImport_ImportModule("flambeau");
    PyObject* file = package ? PyObject_GetAttrString(package, "__file__") : nullptr;
    const char* text = file ? PyUnicode_AsUTF8(file) : nullptr;
    const std::string path = text ? text : "";
    folder = PyUnicode_FromString(path.substr(0, path.rfind('/') + 1).c_str());
    Py_XDECREF(package);
    Py_XDECREF(file);
    PyErr_Clear();
  }
  return folder && PyUnicode_GET_LENGTH(folder) > 0 &&
         PyUnicode_Tailmatch(code->co_filename, folder, 0, PY_SSIZE_T_MAX, -1) == 1;
}

}  // namespace

bool exception_may_be_caught(const Recorder* r) {
  PyFrameObject* frame = PyEval_GetFrame();
  Py_XINCREF(frame);
  bool found = false;
  while (frame && frame != r->entry && !found) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    found = PyBytes_GET_SIZE(code->co_exceptiontable) > 0 && !of_package(code) &&
            caught(code, PyFrame_GetLasti(frame) / 2);
    Py_DECREF(code);
    PyFrameObject* back = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = back;
  }
  Py_XDECREF(frame);
  return found;
}

Certainty certainty_of(Recorder* r, const Instance* instance, const Call& call) {
  const Plan* plan = instance->plan;
  bool known = !plan->faults;
  for (const IndexCheck& check : plan->checks) {
    PyObject* t = looked_at(r, call.tensors[check.slot]);
    const bool right =
        t && all_inside(reinterpret_cast<Tensor*>(t), range_of(check, instance, call));
    Py_XDECREF(t);
    if (t && !right) return Certainty::Wrong;
    known &= t != nullptr;
  }
  return known ? Certainty::Right : Certainty::Unknown;
}

}  // namespace fb
