// What Python is told about a stream that has no plan yet: external tensors, calls, live values.
#include "call/describe.h"
#include "record/record.h"

namespace fb {

namespace {

template <typename List>
PyObject* integers(const List& values) {
  const std::vector<int64_t> wide(values.begin(), values.end());
  return int_tuple(wide.data(), static_cast<Py_ssize_t>(wide.size()));
}

PyObject* describe_external(Tensor* t, int32_t value, bool frozen) {
  const bool leaf = t->autograd && t->autograd->requires_grad;
  return described(Description::External,
                   {describe_tensor(t, tensor_requires_grad(t)), PyBool_FromLong(leaf),
                    PyLong_FromLong(value), Py_NewRef(frozen ? object_of(t) : Py_None)});
}

// Registers (or numbers) of the forward call that the integers (numbers) of its backward are.
PyObject* forward_places(const Recorder* r, const Record& record, Source::Kind kind) {
  std::vector<int32_t> places;
  if (record.forward >= 0) {
    for (const Source& s : r->records[record.forward].instance->plan->backward->arguments) {
      if (s.kind == kind) places.push_back(s.index);
    }
  }
  return integers(places);
}

PyObject* numbers_of(const Record& record) {
  return build_tuple(record.scalars.size(), [&record](size_t i) {
    const Scalar value = record.scalars[i];
    return record.scalar_is_float[i] == 1 ? PyFloat_FromDouble(value.d)
                                          : PyLong_FromLongLong(value.i);
  });
}

PyObject* describe_record(const Recorder* r, const Record& record, bool with_numbers) {
  const int64_t* registers = record.instance->registers.data();
  const int32_t first = tensor_symbols(record, r);
  const int32_t last = std::max(first, record.instance->plan->metadata.inputs);
  return described(
      Description::Record,
      {Py_NewRef(reinterpret_cast<PyObject*>(record.instance->plan)), integers(record.operands),
       integers(record.results), int_tuple(registers + first, last - first),
       integers(record.scalar_is_float), PyLong_FromSize_t(record.objects.size()),
       PyLong_FromLong(record.forward), forward_places(r, record, Source::Register),
       with_numbers ? forward_places(r, record, Source::ScalarArgument) : PyTuple_New(0),
       with_numbers ? numbers_of(record) : PyTuple_New(0)});
}

PyObject* describe_live(const Recorder* r, int32_t value) {
  const StorageState& state = r->states[r->values[value].state];
  int32_t origin = value;
  while (r->values[origin].kind == Value::Write) origin = r->values[origin].source;
  const int32_t slot = state.fresh ? -1 : r->values[origin].source;
  return described(Description::Live, {PyLong_FromLong(value), PyLong_FromLong(slot)});
}

template <typename T, typename F>
PyObject* list_of(const std::vector<T>& items, F&& describe) {
  return build_list(items.size(), [&](size_t i) { return describe(items[i]); });
}

}  // namespace

PyObject* describe_stream(const Recorder* r, const std::vector<int32_t>& live, bool with_numbers) {
  std::vector<int32_t> values(r->externals.size());
  for (size_t v = 0; v < r->values.size(); ++v) {
    if (r->values[v].kind == Value::External) values[r->values[v].source] = static_cast<int32_t>(v);
  }
  size_t slot = 0;
  PyObject* externals = list_of(
      r->externals, [&](Tensor* t) { return describe_external(t, values[slot++], r->frozen); });
  PyObject* records =
      list_of(r->records, [&](const Record& x) { return describe_record(r, x, with_numbers); });
  PyObject* outputs = list_of(live, [&](int32_t value) { return describe_live(r, value); });
  return described(Description::Stream,
                   {externals, records, outputs, PyBool_FromLong(r->tuned),
                    PyLong_FromLong(r->frozen), PyFloat_FromDouble(r->budget)});
}

}  // namespace fb
