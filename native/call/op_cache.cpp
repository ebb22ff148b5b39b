// From the key of a call to its Instance, by the overload's PlanCache: the exact key (all sizes)
// first, then the class of the call (ranks, which sizes are 0 or 1, layouts) and its Plans' guards;
// behind that stands Python.
#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "call/describe.h"
#include "call/op_internal.h"
#include "runtime/profile.h"
#include "runtime/traceback.h"

namespace fb {
namespace {

int64_t exact_hits = 0, class_hits = 0, builds = 0;
std::set<Op*>& all_ops() {
  static auto& ops = *new std::set<Op*>();  // never destroyed
  return ops;
}

// ---- walking a key

// Number of words after the tag word that belong to the value (TensorList: none, elements follow).
size_t payload_words(uint64_t word) {
  const size_t length = static_cast<uint32_t>(word);
  switch (tag_of(word)) {
    case Tag::Tensor: {
      const size_t ndim = word >> 8 & 0xff;
      return (word & kKeyContiguous ? ndim : 2 * ndim) + (word & kKeyOffset ? 1 : 0);
    }
    case Tag::Int:
    case Tag::Unsigned:
    case Tag::Float:
    case Tag::SymInt:
    case Tag::Pointer:
      return 1;
    case Tag::Complex:
      return 2;
    case Tag::Str:
      return (length + 7) / 8;
    case Tag::IntList:
    case Tag::FloatList:
    case Tag::BoolList:
    case Tag::SymIntList:
    case Tag::Object:
      return length;
    default:
      return 0;
  }
}

uint64_t small_class(int64_t value) { return value == 0 ? 0 : value == 1 ? 1 : 2; }

// Two bits per dimension, appended to `out`.
void push_classes(std::vector<uint64_t>* out, const int64_t* values, int count) {
  for (int at = 0; at < count; at += 32) {
    uint64_t word = 0;
    for (int d = at; d < std::min(count, at + 32); ++d) {
      word |= small_class(values[d]) << (2 * (d - at));
    }
    out->push_back(word);
  }
}

void push_tensor_class(std::vector<uint64_t>* out, const uint64_t* at) {
  const int ndim = static_cast<int>(at[0] >> 8 & 0xff);
  const int64_t* sizes = reinterpret_cast<const int64_t*>(at + 1);
  out->push_back(at[0]);
  push_classes(out, sizes, ndim);
  if (at[0] & kKeyContiguous) return;
  const int64_t* strides = sizes + ndim;
  const LayoutClass layout = classify(ndim, sizes, strides);
  out->push_back(layout.dense);
  if (!layout.dense) {
    push_classes(out, strides, ndim);
    return;
  }
  for (int d = 0; d < ndim; ++d) out->push_back(static_cast<uint64_t>(layout.order[d]));
}

std::vector<uint64_t> class_key(const StackVector<uint64_t, 128>& key) {
  std::vector<uint64_t> out;
  out.reserve(key.size());
  for (size_t at = 0; at < key.size();) {
    const uint64_t word = key[at];
    const size_t payload = payload_words(word);
    const Tag tag = tag_of(word);
    if (tag == Tag::Tensor) {
      push_tensor_class(&out, key.data() + at);
    } else if (tag == Tag::SymInt || tag == Tag::SymIntList) {
      out.push_back(word);
    } else {
      out.insert(out.end(), key.data() + at, key.data() + at + payload + 1);
    }
    at += payload + 1;
  }
  return out;
}

// ---- symbols of a call

struct Symbols {
  std::vector<int64_t> values;          // storage offsets are 0
  std::vector<int32_t> offset_symbols;  // per tensor slot
};

Symbols collect_symbols(const Frame& frame) {
  Symbols symbols;
  for (size_t slot = 0; slot < frame.tensors.size(); ++slot) {
    const Tensor* t = frame.tensors[slot];
    const int ndim = t->ndim;
    symbols.values.insert(symbols.values.end(), t->sizes(), t->sizes() + ndim);
    const size_t strides = symbols.values.size();
    symbols.values.insert(symbols.values.end(), t->strides(), t->strides() + ndim);
    if (t->flags & kContiguous) {  // strides of sizes 1 and 0 are not in the key: canonical ones
      int64_t step = 1;
      for (int d = ndim - 1; d >= 0; --d) {
        symbols.values[strides + d] = step;
        if (t->sizes()[d] > 1) step *= t->sizes()[d];
      }
    }
    symbols.offset_symbols.push_back(static_cast<int32_t>(symbols.values.size()));
    symbols.values.push_back(0);
  }
  symbols.values.insert(symbols.values.end(), frame.integers.data(),
                        frame.integers.data() + frame.integers.size());
  return symbols;
}

Instance* instantiate(Plan* plan, const Frame& frame, Symbols* symbols) {
  for (size_t slot = 0; slot < frame.tensors.size(); ++slot) {
    symbols->values[symbols->offset_symbols[slot]] =
        plan->offset_sensitive ? frame.tensors[slot]->offset : 0;
  }
  return instance_new(plan, symbols->values.data(), static_cast<int32_t>(symbols->values.size()));
}

// ---- describing a call to Python

struct Cursor {  // where the walk over a call has come to
  const uint64_t* word;
  size_t tensor = 0, scalar = 0, object = 0;
};

PyObject* describe_tensor(Frame* frame, Cursor* cursor) {
  const Tensor* t = frame->tensors[cursor->tensor++];
  const bool requires_grad = *cursor->word & kKeyRequiresGrad;
  cursor->word += payload_words(*cursor->word) + 1;
  return describe_tensor(t, requires_grad);
}

PyObject* describe_value(Frame* frame, Cursor* cursor, PyObject* given);

PyObject* describe_tensors(Frame* frame, Cursor* cursor) {
  const size_t length = static_cast<uint32_t>(*cursor->word++);
  return build_list(length, [&](size_t) { return describe_value(frame, cursor, Py_None); });
}

PyObject* describe_integer(uint64_t word) {
  return described(Description::Integer, {PyLong_FromLongLong(static_cast<int64_t>(word))});
}

PyObject* describe_integers(Cursor* cursor) {
  const size_t length = static_cast<uint32_t>(*cursor->word++);
  return build_list(length, [cursor](size_t) { return describe_integer(*cursor->word++); });
}

double double_of(uint64_t bits) {
  double value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

PyObject* describe_runtime(Frame* frame, Cursor* cursor) {
  static PyTypeObject* const types[] = {&PyBool_Type, &PyLong_Type, &PyFloat_Type};
  const uint8_t type = static_cast<uint8_t>(*cursor->word++);
  const size_t slot = cursor->scalar++;
  const Scalar value = frame->scalars[slot];
  PyObject* number = type == 2   ? PyFloat_FromDouble(value.d)
                     : type == 1 ? PyLong_FromLongLong(value.i)
                                 : PyBool_FromLong(value.i != 0);
  return described(
      Description::Scalar,
      {PyLong_FromSize_t(slot), Py_NewRef(reinterpret_cast<PyObject*>(types[type])), number});
}

PyObject* describe_list(Tag tag, const uint64_t* payload, size_t length) {
  return build_tuple(length, [=](size_t i) {
    return tag == Tag::FloatList  ? PyFloat_FromDouble(double_of(payload[i]))
           : tag == Tag::BoolList ? PyBool_FromLong(payload[i] != 0)
                                  : PyLong_FromLongLong(static_cast<int64_t>(payload[i]));
  });
}

PyObject* describe_static(const uint64_t* at, PyObject* given) {
  const uint64_t word = *at;
  switch (tag_of(word)) {
    case Tag::None:
      return Py_NewRef(Py_None);
    case Tag::Bool:
      return PyBool_FromLong(word & 1);
    case Tag::Int:
      return PyLong_FromLongLong(static_cast<int64_t>(at[1]));
    case Tag::Unsigned:
      return PyLong_FromUnsignedLongLong(at[1]);
    case Tag::Float:
      return PyFloat_FromDouble(double_of(at[1]));
    case Tag::Complex:
      return PyComplex_FromDoubles(double_of(at[1]), double_of(at[2]));
    case Tag::DType:
      return Py_NewRef(dtype_object(static_cast<DType>(word & 0xff)));
    case Tag::Device: {
      Device device;
      device.kind = static_cast<uint8_t>(word & 0xff);
      device.index = static_cast<int8_t>(word >> 8 & 0xff);
      return device_object(device);
    }
    case Tag::IntList:
    case Tag::FloatList:
    case Tag::BoolList:
      return describe_list(tag_of(word), at + 1, static_cast<uint32_t>(word));
    default:
      return Py_NewRef(given);
  }
}

PyObject* describe_value(Frame* frame, Cursor* cursor, PyObject* given) {
  switch (tag_of(*cursor->word)) {
    case Tag::Tensor:
      return describe_tensor(frame, cursor);
    case Tag::TensorList:
      return describe_tensors(frame, cursor);
    case Tag::SymInt:
      cursor->word += 2;
      return describe_integer(cursor->word[-1]);
    case Tag::SymIntList:
      return describe_integers(cursor);
    case Tag::Runtime:
      return describe_runtime(frame, cursor);
    case Tag::Generator:
      ++cursor->word;
      return described(Description::Generator, {PyLong_FromSize_t(cursor->object++)});
    default:
      break;
  }
  const uint64_t* at = cursor->word;
  cursor->word += payload_words(*at) + 1;
  return describe_static(at, given);
}

// ---- the slow path

Plan* build_plan(const Op* op, Overload* overload, Frame* frame, Symbols* symbols) {
  const ProfileScope scope(EventKind::Trace, op->text.c_str());
  // Building may release the GIL: state of this call that others could see is none.
  auto plan = steal(reinterpret_cast<Plan*>(
      call_object(overload->build, steal(describe_call(*overload, frame)))));
  if (!plan) {
    hide_internals(true);
    return nullptr;
  }
  if (!Py_IS_TYPE(object_of(plan), PlanType)) {
    PyErr_Format(PyExc_TypeError, "[%s] build returned %s, not a Plan", op->text.c_str(),
                 Py_TYPE(object_of(plan))->tp_name);
    return nullptr;
  }
  if (plan->metadata.inputs != static_cast<int32_t>(symbols->values.size())) {
    PyErr_Format(PyExc_RuntimeError, "[%s] the plan has %d symbols, the call %zd", op->text.c_str(),
                 static_cast<int>(plan->metadata.inputs),
                 static_cast<Py_ssize_t>(symbols->values.size()));
    return nullptr;
  }
  const size_t tensors = frame->tensors.size();
  if (!plan_takes(plan.get(), tensors, frame->scalars.size(), frame->objects.size()) ||
      (plan->backward && !takes_edges(plan.get(), tensors))) {
    return nullptr;
  }
  plan_analyse_offsets(plan.get(), symbols->offset_symbols.data(),
                       static_cast<int32_t>(symbols->offset_symbols.size()));
  return plan.release();
}

// Whether a key tells calls apart: not one that was begun without offsets, before another thread
// found that they matter.
bool distinct(const Overload& overload, const Frame& frame) {
  return frame.offsets_in_key == overload.offsets_in_key;
}

// Objects whose address is in the key must live as long as the entry.
void keep_pointers(const Overload& overload, const Frame& frame, PlanCache::Entry* entry) {
  for (size_t i = 0; i < overload.arguments.size(); ++i) {
    const Kind kind = overload.arguments[i].kind;
    if (kind == Kind::Object || kind == Kind::MemoryFormat || kind == Kind::Layout) {
      entry->keep.push_back(share(frame.values[i]));
    }
  }
}

// The entry has a reference of its own: what it displaces may run Python, which drops it again.
void remember(Overload* overload, const Frame& frame, uint64_t hash, Instance* instance) {
  PlanCache::Key words(frame.key.data(), frame.key.data() + frame.key.size());
  auto entry = std::make_unique<PlanCache::Entry>(hash, std::move(words), share(instance));
  keep_pointers(*overload, frame, entry.get());
  overload->cache.remember(std::move(entry));
}

__attribute__((noinline)) Instance* miss(Op* op, Overload* overload, Frame* frame, uint64_t hash) {
  Symbols symbols = collect_symbols(*frame);
  PlanCache::Key key = class_key(frame->key);
  auto instance = steal(overload->cache.find_in_class(
      key, [&](Plan* plan) { return instantiate(plan, *frame, &symbols); }));
  if (instance) {
    ++class_hits;
  } else {
    auto plan = steal(build_plan(op, overload, frame, &symbols));
    if (!plan) return nullptr;
    ++builds;
    instance = steal(instantiate(plan.get(), *frame, &symbols));
    if (!instance) {
      PyErr_Format(PyExc_RuntimeError,
                   "[%s] sizes overflow, or are negative, where the call computes them\n"
                   "hint: sizes count elements: all together must fit in 64 bits",
                   op->text.c_str());
      return nullptr;
    }
    overload->offsets_in_key |= plan->offset_sensitive;
    overload->cache.know(std::move(key), std::move(plan));
  }
  if (distinct(*overload, *frame)) remember(overload, *frame, hash, instance.get());
  return instance.release();
}

}  // namespace

PyObject* describe_call(const Overload& overload, Frame* frame) {
  Cursor cursor{frame->key.data() + 1};
  return build_tuple(overload.arguments.size(),
                     [&](size_t i) { return describe_value(frame, &cursor, frame->values[i]); });
}

namespace {

// What the numbers of a call must fit: a tensor that it changes, or its first result.
DType dtype_of_numbers(const Overload* overload, const Frame* frame, const Instance* instance) {
  if (overload->mutates) return frame->tensors[frame->mutated[0]]->dtype;
  return instance->plan->outputs[0].dtype;
}

Instance* find_any(Op* op, Overload* overload, Frame* frame) {
  const uint64_t hash = hash_words(frame->key.data(), frame->key.size());
  const PlanCache::Entry* found = overload->cache.find(frame->key.data(), frame->key.size(), hash);
  if (found && distinct(*overload, *frame)) [[likely]] {
    ++exact_hits;
    instance_incref(found->instance.get());
    return found->instance.get();
  }
  return miss(op, overload, frame, hash);
}

}  // namespace

Instance* find_instance(Op* op, Overload* overload, Frame* frame) {
  Instance* instance = find_any(op, overload, frame);
  if (!instance || frame->fitting_count == 0) [[likely]] {
    return instance;
  }
  auto held = steal(instance);
  const bool fits = check_fits(op, *frame, dtype_of_numbers(overload, frame, instance));
  return fits ? held.release() : nullptr;
}

void register_op(Op* op) { all_ops().insert(op); }
void unregister_op(Op* op) { all_ops().erase(op); }

void plan_cache_counts(int64_t* exact, int64_t* classes, int64_t* built, int64_t* entries,
                       int64_t* plans) {
  *exact = exact_hits;
  *classes = class_hits;
  *built = builds;
  *entries = *plans = 0;
  for (const Op* op : all_ops()) {
    for (const auto& overload : op->overloads) {
      *entries += static_cast<int64_t>(overload->cache.entries());
      *plans += static_cast<int64_t>(overload->cache.plans());
    }
  }
}

namespace {

PyObject* py_stats(PyObject*, PyObject*) {
  int64_t exact, classes, built, entries, plans;
  plan_cache_counts(&exact, &classes, &built, &entries, &plans);
  return Py_BuildValue("{sLsLsLsLsL}", "exact_hits", static_cast<long long>(exact), "class_hits",
                       static_cast<long long>(classes), "builds", static_cast<long long>(built),
                       "entries", static_cast<long long>(entries), "plans",
                       static_cast<long long>(plans));
}

PyObject* py_clear(PyObject*, PyObject*) {
  std::vector<Ref<Op>> ops;
  for (Op* op : all_ops()) ops.push_back(share(op));
  for (const auto& op : ops) {
    for (const auto& overload : op->overloads) overload->cache.clear();
  }
  exact_hits = class_hits = builds = 0;
  Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"plan_cache_stats", py_stats, METH_NOARGS,
     "Counts since the last clear: exact_hits, class_hits, builds; and entries and plans "
     "held now."},
    {"plan_cache_clear", py_clear, METH_NOARGS, "Forgets every plan of every op."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool init_op_cache(PyObject* module) {
  return init_describe(module) && PyModule_AddFunctions(module, methods) == 0;
}

}  // namespace fb
