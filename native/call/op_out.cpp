// Where an op writes to memory that the user owns: `out=`, and in-place targets that overlap the
// other operands.
//
// `out=` computes straight into the given tensor when its geometry is what the plan makes anyway
// and no operand shares its memory; otherwise the result is computed aside, then copied with
// PyTorch's rules: resize with a warning, and only casts that lose no kind of number.
#include <algorithm>
#include <complex>
#include <string_view>

#include "call/op_internal.h"
#include "device/devices.h"
#include "tensor/tensor_internal.h"

namespace fb {
namespace {

bool can_cast(DType from, DType to) {
  if (is_complex(from) && !is_complex(to)) return false;
  if (is_floating(from) && is_integral(to)) return false;
  return from == DType::Bool || to != DType::Bool;
}

// ---- overlapping operands

struct Extent {
  const char *begin, *end;
};

Extent extent(const Tensor* t) {
  int64_t low = 0, high = 0;
  for (int d = 0; d < t->ndim; ++d) {
    const int64_t reach = (t->sizes()[d] - 1) * t->strides()[d];
    (reach < 0 ? low : high) += reach;
  }
  const int64_t item = item_size(t->dtype);
  return {t->data() + low * item, t->data() + (high + 1) * item};
}

bool same_geometry(const Tensor* a, const Tensor* b) {
  return a->offset == b->offset && a->ndim == b->ndim && a->dtype == b->dtype &&
         std::equal(a->dims, a->dims + 2 * a->ndim, b->dims);
}

bool overlaps(const Tensor* target, const Tensor* other) {
  if (target == other || target->storage != other->storage) return false;
  if (target->numel == 0 || other->numel == 0 || same_geometry(target, other)) return false;
  const Extent a = extent(target), b = extent(other);
  return a.begin < b.end && b.begin < a.end;
}

enum class Shared : uint8_t { Nothing, Part, All };

// Whether strides agree, counted from the last dimension; dimensions of size 1 have none.
bool same_strides(const Tensor* a, const Tensor* b) {
  for (int i = 1; i <= std::max(a->ndim, b->ndim); ++i) {
    const int64_t m = i <= a->ndim ? a->sizes()[a->ndim - i] : 1;
    const int64_t n = i <= b->ndim ? b->sizes()[b->ndim - i] : 1;
    if (m != n) return false;
    if (m != 1 && a->strides()[a->ndim - i] != b->strides()[b->ndim - i]) return false;
  }
  return true;
}

// What two tensors share; Nothing where one of them has gaps, as in PyTorch.
Shared shared_memory(const Tensor* a, const Tensor* b) {
  if (a->storage != b->storage || a->numel == 0 || b->numel == 0) return Shared::Nothing;
  if (a == b) return Shared::All;
  if (!is_dense(a) || !is_dense(b)) return Shared::Nothing;
  const Extent x = extent(a), y = extent(b);
  if (x.begin >= y.end || y.begin >= x.end) return Shared::Nothing;
  return x.begin == y.begin && x.end == y.end && same_strides(a, b) ? Shared::All : Shared::Part;
}

// Whether a tensor repeats its elements where it is expanded to the sizes of another.
bool is_expanded(const Tensor* read, const Tensor* target) {
  if (read->ndim > target->ndim) return false;
  for (int i = 1; i <= target->ndim; ++i) {
    const int64_t size = i <= read->ndim ? read->sizes()[read->ndim - i] : 1;
    if (size == 1 && target->sizes()[target->ndim - i] != 1) return true;
  }
  return false;
}

bool check_shared(const char* name, Overlap rule, const Tensor* target, const Tensor* read) {
  if (target->storage != read->storage || rule < Overlap::Partial) return true;
  const Shared shared = shared_memory(target, read);
  if (shared == Shared::Nothing) return true;
  if (shared == Shared::All && rule == Overlap::Partial) return true;
  PyErr_Format(PyExc_RuntimeError,
               "[%s] unsupported operation: some elements of the input tensor and the written-to "
               "tensor refer to a single memory location\nhint: clone() the tensor first",
               name);
  return false;
}

bool repeats_memory(const Tensor* target) {
  if (target->flags & kContiguous) return false;
  for (int d = 0; d < target->ndim; ++d) {
    if (target->sizes()[d] > 1 && target->strides()[d] == 0) return true;
  }
  return false;
}

bool check_target(const char* name, const Tensor* target) {
  if (!repeats_memory(target)) return true;
  PyErr_Format(PyExc_RuntimeError,
               "[%s] unsupported operation: more than one element of the written-to tensor "
               "refers to a single memory location\nhint: clone() the tensor first",
               name);
  return false;
}

Tensor* contiguous_copy(Tensor* source) {
  auto copy = steal(tensor_empty(source->dtype, source->device, source->ndim, source->sizes()));
  return copy && copy_cast(copy.get(), source) ? copy.release() : nullptr;
}

// ---- out=

bool takes(OutRule rule, DType result, DType out) {
  switch (rule) {
    case OutRule::Exact:
    case OutRule::Separate:
      return result == out;
    case OutRule::Truth:
      return out == DType::Bool || out == DType::U8;
    case OutRule::Kind:
      return can_cast(result, out) && is_complex(result) == is_complex(out);
    case OutRule::Any:
      return true;
    default:
      return can_cast(result, out);
  }
}

bool check_dtype(OutRule rule, DType result, DType out) {
  if (takes(rule, result, out)) return true;
  const bool exact = rule == OutRule::Exact || rule == OutRule::Separate;
  PyErr_Format(rule == OutRule::Join ? PyExc_TypeError : PyExc_RuntimeError,
               "[out] result type %s can't be %s type %s\n"
               "hint: give an out tensor of the result's dtype",
               dtype_info(result).title,
               exact ? "written to an out tensor of" : "cast to the desired output",
               dtype_info(out).title);
  return false;
}

bool resize_out(Tensor* out, const Tensor* result, Resized resized) {
  if (out->ndim == result->ndim && std::equal(out->dims, out->dims + out->ndim, result->dims)) {
    return true;
  }
  const bool empty = out->numel == 0;
  if (!empty &&
      PyErr_WarnEx(PyExc_UserWarning,
                   "An output with one or more elements was resized since its shape is not the "
                   "result's. This is deprecated: outputs should be empty or have the right "
                   "shape. Reuse an out tensor by out.resize_(0) first.",
                   1) < 0) {
    return false;
  }
  if (!settle_stream("out=") || !tensor_materialise(out, "out=")) return false;
  out->value_id = -1;
  const int64_t nbytes = (out->offset + result->numel) * item_size(out->dtype);
  if (nbytes > out->storage->nbytes && !storage_resize(out->storage, nbytes)) return false;
  storage_incref(out->storage);  // tensor_fill takes one
  const bool follows = resized == Resized::Result || (resized == Resized::ResultIfEmpty && empty);
  return tensor_fill(out, out->storage, out->dtype, out->device, result->ndim, result->sizes(),
                     follows && is_dense(result) ? result->strides() : nullptr, out->offset);
}

// `repeats`: the target may refer to one element several times; the last one written stays.
bool deliver(Tensor* result, Tensor* out, Resized resized, bool repeats) {
  if (result == out) return true;
  if (!resize_out(out, result, resized)) return false;
  if (!repeats && !check_target("out", out)) return false;
  if (!tensor_materialise(result, "out=") || !tensor_materialise(out, "out=")) return false;
  if (!copy_cast(out, result)) return false;
  return true;
}

// The tensors of `out`: itself, or the elements of a tuple or list. -1 + exception.
Py_ssize_t collect_outs(const Op* op, PyObject* out, std::vector<Tensor*>* outs) {
  if (is_tensor(out)) {
    outs->push_back(tensor_of(out));
    return 1;
  }
  bool fine = PyTuple_Check(out) || PyList_Check(out);
  for (Py_ssize_t i = 0; fine && i < PySequence_Fast_GET_SIZE(out); ++i) {
    PyObject* element = PySequence_Fast_GET_ITEM(out, i);
    fine = is_tensor(element);
    outs->push_back(tensor_of(element));
  }
  if (fine) return static_cast<Py_ssize_t>(outs->size());
  PyErr_Format(PyExc_TypeError,
               "[%s] argument 'out' must be Tensor or tuple of Tensors, got %s\nhint: out=tensor",
               op->text.c_str(), Py_TYPE(out)->tp_name);
  return -1;
}

bool check_no_grad(const char* name, bool wanted) {
  if (!grad_mode.enabled || !wanted) return true;
  PyErr_Format(PyExc_RuntimeError,
               "[%s] functions with out=... arguments don't support automatic differentiation, "
               "but one of the arguments requires grad\nhint: call it under torch.no_grad()",
               name);
  return false;
}

bool any_requires_grad(const Frame& frame, const std::vector<Tensor*>& outs) {
  bool wanted = frame.any_requires_grad;
  for (const Tensor* out : outs) wanted |= tensor_requires_grad(out);
  return wanted;
}

bool shares_memory(const Frame& frame, const Tensor* out) {
  for (size_t i = 0; i < frame.tensors.size(); ++i) {
    if (frame.tensors[i]->storage == out->storage) return true;
  }
  return false;
}

// Results are written where they are computed: the tensors of `out` must be there.
bool check_device(Device from, Device to) {
  if (from.kind == to.kind) return true;
  const auto a = steal(device_object(from)), b = steal(device_object(to));
  if (a && b) {
    PyErr_Format(
        PyExc_RuntimeError,
        "[out] Attempting to copy from device %S to device %S, but cross-device copies are "
        "not allowed!\nhint: make out= on device %S",
        a.get(), b.get(), a.get());
  }
  return false;
}

bool check_separate(const Op* op, const Frame& frame, const Tensor* out) {
  if (!check_target(op->text.c_str(), out)) return false;
  for (size_t i = 0; i < frame.tensors.size(); ++i) {
    const Tensor* read = frame.tensors[i];
    if (!overlaps(out, read) && !(out->storage == read->storage && same_geometry(out, read))) {
      continue;
    }
    if (out->numel == 0) continue;
    PyErr_Format(PyExc_RuntimeError,
                 "[%s] unsupported operation: some elements of the input tensor and the written-to "
                 "tensor refer to a single memory location\nhint: clone() the tensor first",
                 op->text.c_str());
    return false;
  }
  return true;
}

// The first tensor is what others change: it may be `out` itself.
bool check_out_shared(const char* name, const Overload& overload, const Frame& frame,
                      const Tensor* out) {
  const Tensor* special = nullptr;
  if (overload.overlap_special >= 0) {
    PyObject* value = frame.values[static_cast<size_t>(overload.overlap_special)];
    if (value && is_tensor(value)) special = reinterpret_cast<Tensor*>(value);
    if (special && !is_expanded(special, out) &&
        !check_shared(name, overload.overlap, out, special)) {
      return false;
    }
    if (overload.overlap_only) return true;
  }
  const bool list = !overload.arguments.empty() && overload.arguments[0].kind == Kind::TensorList;
  for (size_t i = 0; i < frame.tensors.size(); ++i) {
    if (frame.tensors[i] == special) continue;
    const bool first = i == 0 && !list && overload.overlap == Overlap::Any;
    const Overlap rule = first ? Overlap::Partial : overload.overlap;
    if (!check_shared(name, rule, out, frame.tensors[i])) return false;
  }
  return true;
}

bool check_outs(const Op* op, const Overload& overload, const Frame& frame, const Plan* plan,
                const std::vector<Tensor*>& outs) {
  const char* name = op->text.c_str();
  if (static_cast<int32_t>(outs.size()) != plan->visible) {
    PyErr_Format(PyExc_TypeError,
                 "[%s] argument 'out' needs %d tensors, got %zd\nhint: one for each result", name,
                 static_cast<int>(plan->visible), static_cast<Py_ssize_t>(outs.size()));
    return false;
  }
  if (plan->returns == ReturnKind::Single && !is_tensor(frame.out)) {
    PyErr_Format(PyExc_TypeError, "[%s] argument 'out' must be Tensor, not %s\nhint: out=tensor",
                 name, Py_TYPE(frame.out)->tp_name);
    return false;
  }
  for (size_t k = 0; k < outs.size(); ++k) {
    const OutputSpec& made = plan->outputs[k];
    const bool given = made.kind != OutputSpec::None;
    if (!tape_check_inference(outs[k])) return false;
    if (given && !check_dtype(overload.out.rule, made.dtype, outs[k]->dtype)) return false;
    if (overload.out.rule == OutRule::Separate && !check_separate(op, frame, outs[k])) return false;
    if (!plan->copies_overlaps && !check_out_shared(name, overload, frame, outs[k])) return false;
  }
  return true;
}

bool run_into(const Plan* plan, Instance* instance, Frame* frame, const std::vector<Tensor*>& outs,
              PyObject** outputs) {
  const bool any = frame->tensors.size() > 0;
  const Device place = any ? frame->tensors[0]->device : default_device();
  for (size_t k = 0; k < outs.size(); ++k) {
    const OutputSpec& spec = plan->outputs[k];
    if (!check_device(spec.own_device ? spec.device : place, outs[k]->device)) return false;
    const bool direct = spec.kind == OutputSpec::New && !outs[k]->storage->pending &&
                        !shares_memory(*frame, outs[k]) && !repeats_memory(outs[k]);
    if (direct) outputs[k] = reinterpret_cast<PyObject*>(outs[k]);
  }
  Recorder* recorder = active_recorder;  // memory of the user's is written now, not later
  if (recorder && !record_flush(recorder, "out=")) {
    std::fill(outputs, outputs + outs.size(), nullptr);
    return false;
  }
  active_recorder = nullptr;
  const bool fine = plan_run(instance, frame->call(), outputs);
  active_recorder = recorder;
  return fine;
}

}  // namespace

bool is_dense(const Tensor* t) {
  if (t->flags & kContiguous) return true;
  int order[kMaxDims];
  int count = 0;
  for (int d = 0; d < t->ndim; ++d) {
    if (t->sizes()[d] > 1) order[count++] = d;
  }
  std::sort(order, order + count, [t](int a, int b) { return t->strides()[a] < t->strides()[b]; });
  int64_t step = 1;
  for (int k = 0; k < count; ++k) {
    if (t->strides()[order[k]] != step) return false;
    step *= t->sizes()[order[k]];
  }
  return true;
}

// Calls write(copy of the target in host memory, ...copies of others) and copies the target back.
template <typename Write, typename... Others>
static bool write_by_host(Write write, Tensor* target, Others*... others) {
  Refs<Tensor> copies;
  for (Tensor* t : {target, others...}) {
    copies.values.push_back(tensor_placed(t, Device{}, "copy"));
    if (!copies.values.back()) return false;
  }
  Tensor** hosts = copies.values.data();
  return write(hosts) && tensor_copy_bytes(target, hosts[0], "copy");
}
static bool copy_changes(Tensor* target, Tensor* before, Tensor* after);
static bool copy_changes_elsewhere(Tensor* target, Tensor* before, Tensor* after) {
  return write_by_host([](Tensor** t) { return copy_changes(t[0], t[1], t[2]); }, target, before,
                       after);
}
static bool copy_cast_elsewhere(Tensor* target, Tensor* source) {
  return write_by_host([](Tensor** t) { return copy_cast(t[0], t[1]); }, target, source);
}

// Writes the elements of `after`, a contiguous tensor, that differ from those of `before`.
static bool copy_changes(Tensor* target, Tensor* before, Tensor* after) {
  if (!tensor_materialise(after, "copy") || !tensor_materialise(target, "copy")) return false;
  if (!has_memory(target->device)) return true;
  if (!on_host(target->device)) return copy_changes_elsewhere(target, before, after);
  const auto size = static_cast<size_t>(item_size(target->dtype));
  int64_t index[kMaxDims] = {};
  char* to = target->data();
  for (int64_t i = 0; i < target->numel; ++i) {
    const int64_t at = i * static_cast<int64_t>(size);
    if (std::memcmp(before->data() + at, after->data() + at, size) != 0) {
      std::memcpy(to, after->data() + at, size);
    }
    for (int d = target->ndim - 1; d >= 0; --d) {
      const int64_t step = target->strides()[d] * static_cast<int64_t>(size);
      to += step;
      if (++index[d] < target->sizes()[d]) break;
      to -= step * index[d];
      index[d] = 0;
    }
  }
  return true;
}

bool copy_cast(Tensor* target, Tensor* source) {
  if (!tensor_materialise(source, "copy") || !tensor_materialise(target, "copy")) return false;
  const int64_t numel = target->numel;
  if (numel == 0 || !has_memory(target->device)) return true;
  if (!on_host(target->device)) return copy_cast_elsewhere(target, source);
  const int64_t to_size = item_size(target->dtype), from_size = item_size(source->dtype);
  const bool same = target->dtype == source->dtype;
  if (same && (target->flags & kContiguous) && (source->flags & kContiguous)) {
    std::memmove(target->data(), source->data(), static_cast<size_t>(numel * to_size));
    return true;
  }
  int64_t index[kMaxDims] = {};
  char* to = target->data();
  const char* from = source->data();
  for (int64_t i = 0; i < numel; ++i) {
    if (same) {
      std::memcpy(to, from, static_cast<size_t>(to_size));
    } else {
      convert_element(to, target->dtype, from, source->dtype);
    }
    for (int d = target->ndim - 1; d >= 0; --d) {
      to += target->strides()[d] * to_size;
      from += source->strides()[d] * from_size;
      if (++index[d] < target->sizes()[d]) break;
      to -= target->strides()[d] * to_size * index[d];
      from -= source->strides()[d] * from_size * index[d];
      index[d] = 0;
    }
  }
  return true;
}

bool writes_repeated(const Overload& overload, const Frame& frame) {
  return overload.repeats && frame.mutated.size() == 1 &&
         repeats_memory(frame.tensors[frame.mutated[0]]) &&
         !(grad_mode.enabled && frame.any_requires_grad);
}

static PyObject* run_repeated_now(Op* op, Overload* overload, Frame* frame) {
  Tensor* target = frame->tensors[frame->mutated[0]];
  size_t place = 0;
  while (!overload->arguments[place].mutated) ++place;
  Tensor* before = contiguous_copy(target);
  Tensor* after = before ? contiguous_copy(before) : nullptr;
  if (!frame->own(reinterpret_cast<PyObject*>(before)) ||
      !frame->own(reinterpret_cast<PyObject*>(after))) {
    return nullptr;
  }
  frame->values[place] = reinterpret_cast<PyObject*>(after);
  frame->reset();
  if (parse_arguments(op, *overload, frame) != Outcome::Ok) return nullptr;
  const auto result = steal(run_inplace(op, overload, frame));
  if (!result || !copy_changes(target, before, after)) return nullptr;
  tensor_bump_version(target);
  return Py_NewRef(reinterpret_cast<PyObject*>(target));
}

PyObject* run_repeated(Op* op, Overload* overload, Frame* frame) {
  Recorder* recorder = active_recorder;  // as for `out=`: written now, not later
  if (recorder && !record_flush(recorder, "a tensor that is expanded")) return nullptr;
  active_recorder = nullptr;
  PyObject* result = run_repeated_now(op, overload, frame);
  active_recorder = recorder;
  return result;
}

bool separate_overlaps(const Op* op, Overload* overload, Frame* frame,
                       StackVector<Tensor*, 16>* originals, bool* changed) {
  for (size_t m = 0; m < frame->mutated.size(); ++m) {
    const Tensor* target = frame->tensors[frame->mutated[m]];
    const char* name = op->text.c_str();
    if (overload->overlap != Overlap::Fill && !check_target(name, target)) return false;
    for (size_t i = 0; i < overload->arguments.size(); ++i) {
      PyObject* value = frame->values[i];
      if (overload->arguments[i].mutated || !value || !is_tensor(value)) continue;
      Tensor* other = reinterpret_cast<Tensor*>(value);
      const bool ruled =
          !overload->overlap_only || overload->overlap_special == static_cast<int>(i);
      if (ruled && !check_shared(name, overload->overlap, target, other)) return false;
      if (!overlaps(target, other)) continue;
      PyObject* copy = frame->own(reinterpret_cast<PyObject*>(contiguous_copy(other)));
      if (!copy) return false;
      if (grad_mode.enabled && tensor_requires_grad(other)) {  // so that the plan has its gradient
        Autograd* a = tensor_autograd(reinterpret_cast<Tensor*>(copy));
        if (!a) return false;
        a->requires_grad = true;
      }
      frame->values[i] = copy;
      *changed = true;
    }
  }
  if (!*changed) return true;
  if (!originals->reserve(frame->tensors.size())) return false;
  for (size_t i = 0; i < frame->tensors.size(); ++i) originals->push(frame->tensors[i]);
  frame->reset();
  return parse_arguments(op, *overload, frame) == Outcome::Ok;
}

Overlap overlap_rule(const char* name) {
  constexpr const char* kNames[] = {"copy", "fill", "partial", "any"};
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (std::strcmp(name, kNames[i]) == 0) return static_cast<Overlap>(i);
  }
  return Overlap::Copy;
}

bool check_outs_shared(Overlap rule, PyObject* const* values, Py_ssize_t count, PyObject* out) {
  if (rule < Overlap::Partial || !is_tensor(out)) return true;
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (values[i] == out && rule == Overlap::Partial) continue;
    if (is_tensor(values[i]) && !check_shared("out", rule, reinterpret_cast<Tensor*>(out),
                                              reinterpret_cast<Tensor*>(values[i]))) {
      return false;
    }
  }
  return true;
}

OutOption out_option(const char* text) {
  constexpr const char* kNames[] = {"",    "cast",  "kind",  "join",    "truth",
                                    "any", "dtype", "exact", "separate"};
  const char* second = std::strchr(text, ' ');
  const std::string_view name = second ? std::string_view(text, second - text) : text;
  OutOption option;
  for (size_t i = 1; i < std::size(kNames); ++i) {
    if (name == kNames[i]) option.rule = static_cast<OutRule>(i);
  }
  if (second && std::strcmp(second, " contiguous") == 0) option.resized = Resized::Contiguous;
  if (second && std::strcmp(second, " empty") == 0) option.resized = Resized::ResultIfEmpty;
  return option;
}

PyObject* copy_to_out(OutOption option, PyObject* result, PyObject* out) {
  if (is_tensor(result) && is_tensor(out)) {
    Tensor *source = reinterpret_cast<Tensor*>(result), *target = reinterpret_cast<Tensor*>(out);
    if (!check_no_grad("out", tensor_requires_grad(source) || tensor_requires_grad(target)) ||
        !check_dtype(option.rule, source->dtype, target->dtype) ||
        !check_shared("out", Overlap::Partial, target, source) ||
        !deliver(source, target, option.resized, false)) {
      return nullptr;
    }
    tensor_bump_version(target);
    return Py_NewRef(out);
  }
  if (is_tensor(result) || is_tensor(out)) {
    PyErr_Format(PyExc_TypeError, "[out] argument 'out' must be %s, got %s\nhint: %s",
                 is_tensor(result) ? "Tensor" : "tuple of Tensors", Py_TYPE(out)->tp_name,
                 is_tensor(result) ? "out=tensor" : "one for each result");
    return nullptr;
  }
  const auto results = steal(PySequence_Fast(result, "[out] the op returned no sequence"));
  if (!results) return nullptr;
  const auto outs = steal(PySequence_Fast(out, "[out] must be a tuple of Tensors"));
  if (!outs) return nullptr;
  if (PySequence_Fast_GET_SIZE(results.get()) != PySequence_Fast_GET_SIZE(outs.get())) {
    PyErr_SetString(PyExc_TypeError, "[out] wrong number of tensors\nhint: one for each result");
    return nullptr;
  }
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(outs.get()); ++i) {
    if (!steal(copy_to_out(option, PySequence_Fast_GET_ITEM(results.get(), i),
                           PySequence_Fast_GET_ITEM(outs.get(), i)))) {
      return nullptr;
    }
  }
  return Py_NewRef(out);
}

PyObject* run_out(Op* op, Overload* overload, Frame* frame) {
  std::vector<Tensor*> outs;
  const bool separate = overload->out.rule == OutRule::Separate;
  if (collect_outs(op, frame->out, &outs) < 0) return nullptr;
  if (!check_no_grad(op->text.c_str(), any_requires_grad(*frame, outs))) return nullptr;
  const auto held = steal(find_instance(op, overload, frame));
  Instance* instance = held.get();
  if (!instance) return nullptr;
  const Plan* plan = instance->plan;
  if (!check_outs(op, *overload, *frame, plan, outs)) return nullptr;
  std::vector<PyObject*> outputs(plan->outputs.size());
  const bool repeats = overload->repeats && frame->tensors.size() == 0;
  bool fine = run_into(plan, instance, frame, outs, outputs.data());
  if (!fine) std::fill(outputs.begin(), outputs.end(), nullptr);
  for (size_t k = 0; fine && k < outs.size(); ++k) {
    if (outputs[k]) {
      fine =
          deliver(reinterpret_cast<Tensor*>(outputs[k]), outs[k], overload->out.resized, repeats);
    }
    // A tensor that grew may have grown over an operand.
    if (fine && separate) fine = check_separate(op, *frame, outs[k]);
    if (fine) tensor_bump_version(outs[k]);
  }
  PyObject* result = nullptr;
  if (fine && plan->returns != ReturnKind::Structseq) {
    result = Py_NewRef(frame->out);
  } else if (fine) {
    for (size_t k = 0; k < outs.size(); ++k) assign(outputs[k], share(object_of(outs[k])));
    result = wrap_outputs(plan, outputs.data());
  }
  for (PyObject*& output : outputs) drop(output);
  return result;
}

}  // namespace fb
