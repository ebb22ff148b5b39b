// What Python is told about a stream that has no plan yet: external tensors, calls, live values.
#include "record/record.h"

namespace fb {

namespace {

PyObject* integers(const int64_t* begin, const int64_t* end) {
  PyObject* list = PyTuple_New(end - begin);
  for (Py_ssize_t i = 0; list != nullptr && i < end - begin; ++i)
    PyTuple_SET_ITEM(list, i, PyLong_FromLongLong(begin[i]));
  return list;
}
template <typename List>
PyObject* integers(const List& values) {
  std::vector<int64_t> wide(values.begin(), values.end());
  return integers(wide.data(), wide.data() + wide.size());
}

// (dtype number, sizes, strides, offset, is a leaf that requires grad, value)
PyObject* describe_external(const Tensor* t, int32_t value) {
  const bool leaf = t->autograd != nullptr && t->autograd->requires_grad;
  return Py_BuildValue("(iNNLii)", static_cast<int>(t->dtype), integers(t->dims, t->dims + t->ndim),
                       integers(t->dims + t->ndim, t->dims + 2 * t->ndim),
                       static_cast<long long>(t->offset), leaf ? 1 : 0, value);
}

// Registers (or numbers) of the forward call that the integers (numbers) of its backward are.
PyObject* forward_places(const Recorder* r, const Record& record, Source::Kind kind) {
  std::vector<int32_t> places;
  if (record.forward >= 0)
    for (const Source& s : r->records[record.forward].instance->plan->backward->arguments)
      if (s.kind == kind) places.push_back(s.index);
  return integers(places);
}

PyObject* numbers_of(const Record& record) {
  const auto count = static_cast<Py_ssize_t>(record.scalars.size());
  PyObject* tuple = PyTuple_New(count);
  for (Py_ssize_t i = 0; tuple != nullptr && i < count; ++i) {
    const Scalar value = record.scalars[static_cast<size_t>(i)];
    const bool is_float = record.scalar_is_float[static_cast<size_t>(i)] == 1;
    PyTuple_SET_ITEM(tuple, i,
                     is_float ? PyFloat_FromDouble(value.d) : PyLong_FromLongLong(value.i));
  }
  return tuple;
}

// (plan, operands, results, run-time integers, number types, generators, forward record or -1,
// its registers[, its numbers, own numbers])
PyObject* describe_record(const Recorder* r, const Record& record, bool with_numbers) {
  const int64_t* registers = record.instance->registers.data();
  const int32_t first = tensor_symbols(record, r);
  const int32_t last = record.instance->plan->metadata.inputs;
  std::vector<int32_t> types(record.scalar_is_float.begin(), record.scalar_is_float.end());
  PyObject* found = Py_BuildValue("(ONNNNiiN)", reinterpret_cast<PyObject*>(record.instance->plan),
                                  integers(record.operands), integers(record.results),
                                  integers(registers + first, registers + std::max(first, last)),
                                  integers(types), static_cast<int>(record.objects.size()),
                                  record.forward, forward_places(r, record, Source::Register));
  if (!with_numbers || found == nullptr) return found;
  PyObject* more =
      Py_BuildValue("(NN)", forward_places(r, record, Source::ScalarArgument), numbers_of(record));
  PyObject* all = more != nullptr ? PySequence_Concat(found, more) : nullptr;
  Py_DECREF(found);
  Py_XDECREF(more);
  return all;
}

// (external slot or -1, value, storage is fresh)
PyObject* describe_live(const Recorder* r, const std::vector<int32_t>& live) {
  PyObject* list = PyList_New(0);
  for (int32_t v : live) {
    const StorageState& state = r->states[r->values[v].state];
    int32_t origin = v;
    while (r->values[origin].kind == Value::Write) origin = r->values[origin].source;
    const int slot = state.fresh ? -1 : r->values[origin].source;
    PyObject* item = Py_BuildValue("(ii)", v, slot);
    if (item == nullptr || PyList_Append(list, item) < 0) {
      Py_XDECREF(item);
      Py_DECREF(list);
      return nullptr;
    }
    Py_DECREF(item);
  }
  return list;
}

template <typename T, typename F>
PyObject* list_of(const std::vector<T>& items, F&& describe) {
  PyObject* list = PyList_New(static_cast<Py_ssize_t>(items.size()));
  for (size_t i = 0; list != nullptr && i < items.size(); ++i) {
    PyObject* item = describe(items[i]);
    if (item == nullptr) {
      Py_DECREF(list);
      return nullptr;
    }
    PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), item);
  }
  return list;
}

}  // namespace

PyObject* describe_stream(const Recorder* r, const std::vector<int32_t>& live, bool with_numbers) {
  std::vector<int32_t> values(r->externals.size());
  for (size_t v = 0; v < r->values.size(); ++v)
    if (r->values[v].kind == Value::External) values[r->values[v].source] = static_cast<int32_t>(v);
  size_t slot = 0;
  PyObject* externals =
      list_of(r->externals, [&](const Tensor* t) { return describe_external(t, values[slot++]); });
  PyObject* records =
      list_of(r->records, [&](const Record& x) { return describe_record(r, x, with_numbers); });
  PyObject* outputs = describe_live(r, live);
  PyObject* found = nullptr;
  if (externals != nullptr && records != nullptr && outputs != nullptr)
    found = PyTuple_Pack(4, externals, records, outputs, r->tuned ? Py_True : Py_False);
  Py_XDECREF(externals);
  Py_XDECREF(records);
  Py_XDECREF(outputs);
  return found;
}

}  // namespace fb
