// Long lists of tensors in eager mode: many tensors joined into one (`cat`, `stack` ...), and one
// taken apart into many views (`split`, `unbind` ...).
//
// A Plan has a slot per tensor, so a list of another length is another program. Short lists run as
// Plans and fuse; longer ones run here, as one loop over the elements, whatever their number. What
// is not an ordinary call (an error, another device, a region being recorded) is left to the Plan.

#include "call/lists.h"

#include <algorithm>

#include "device/devices.h"
#include "tensor/tensor_internal.h"

namespace fb {
namespace {

constexpr size_t kShortList = 8;  // up to here a call is a Plan of its own
constexpr int64_t kParallelBytes = 256 << 10;
constexpr int64_t kReleaseBytes = 1 << 20;
constexpr int64_t kPieceBytes = 64 << 10;

struct RuleName {
  const char* name;
  ListRule rule;
};
constexpr RuleName kRules[] = {
    {"cat", ListRule::Cat},
    {"stack", ListRule::Stack},
    {"hstack", ListRule::HStack},
    {"vstack", ListRule::VStack},
    {"dstack", ListRule::DStack},
    {"column_stack", ListRule::ColumnStack},
    {"unbind", ListRule::Unbind},
    {"split", ListRule::Split},
    {"split_with_sizes", ListRule::SplitSizes},
    {"chunk", ListRule::Chunk},
    {"tensor_split", ListRule::TensorSplit},
    {"tensor_split.indices", ListRule::TensorSplitAt},
};

// Reads a dimension argument into [0, rank). False: leave the error to the Plan.
bool read_dim(PyObject* value, int rank, int* dim) {
  const long long given = PyLong_AsLongLong(value);
  if (given == -1 && PyErr_Occurred()) {
    PyErr_Clear();
    return false;
  }
  if (given < -rank || given >= rank) return false;
  *dim = static_cast<int>(given < 0 ? given + rank : given);
  return true;
}

bool same_device(const Frame& frame) {
  const Device first = frame.tensors[0]->device;
  for (size_t i = 0; i < frame.tensors.size(); ++i) {
    if (frame.tensors[i]->device.kind != first.kind) return false;
  }
  return on_host(first) || is_abstract(first);
}

// ---------------------------------------------------------------- joining
struct Join {
  ListRule rule;
  int dim = 0, ndim = 0;
  DType dtype;
  int64_t sizes[kMaxDims], strides[kMaxDims];
  std::vector<int64_t> starts;  // per source along `dim`; -1: left out
  std::vector<Tensor*> sources;
};

// The dtype of all; false where only Python knows it, or refuses.
bool common_dtype(const Frame& frame, DType* out) {
  const size_t count = frame.tensors.size();
  *out = frame.tensors[0]->dtype;
  size_t i = 0;
  while (i < count && frame.tensors[i]->dtype == *out) ++i;
  if (i == count) return true;
  std::vector<OperandCategory> categories;
  std::vector<DType> dtypes;
  for (i = 0; i < count; ++i) {
    const Tensor* t = frame.tensors[i];
    if (!can_promote(t->dtype, *out)) return false;
    dtypes.push_back(t->dtype);
    categories.push_back(t->ndim ? OperandCategory::Dimensioned : OperandCategory::ZeroDim);
  }
  *out = result_type(static_cast<int>(count), categories.data(), dtypes.data());
  return true;
}

bool left_out(const Join& join, const Tensor* t) {
  const bool may = join.rule == ListRule::Cat || join.rule == ListRule::HStack;
  return may && t->ndim == 1 && t->sizes()[0] == 0;
}

// Which dimension is joined, from the rank of the first source that counts.
bool find_dim(Join* join, const Frame& frame, int rank) {
  switch (join->rule) {
    case ListRule::Cat:
      return rank > 0 && read_dim(frame.values[1], rank, &join->dim);
    case ListRule::Stack:
      return rank < kMaxDims && read_dim(frame.values[1], rank + 1, &join->dim);
    case ListRule::HStack:
      join->dim = rank <= 1 ? 0 : 1;
      return true;
    case ListRule::VStack:
      join->dim = 0;
      return true;
    case ListRule::DStack:
      join->dim = 2;
      return true;
    default:
      join->dim = 1;
      return true;
  }
}

// Sizes and strides of a source among the dimensions of the result; false: wrong rank.
bool place_source(const Join& join, const Tensor* t, int64_t* sizes, int64_t* strides) {
  int places[kMaxDims];
  if (spread(join.rule, join.dim, t->ndim, places) != join.ndim) return false;
  std::fill(sizes, sizes + join.ndim, 1);
  std::fill(strides, strides + join.ndim, 0);
  for (int d = 0; d < t->ndim; ++d) {
    sizes[places[d]] = t->sizes()[d];
    strides[places[d]] = t->strides()[d];
  }
  return true;
}

bool is_channels_last(const Tensor* t) {
  if (t->flags & kContiguous) return false;
  int64_t step = 1;
  for (int i = 0; i < t->ndim; ++i) {  // innermost first: channels, then space backwards, batch
    const int d = i == 0 ? 1 : i == t->ndim - 1 ? 0 : t->ndim - i;
    if (t->strides()[d] != step) return false;
    if (t->sizes()[d] > 1) step *= t->sizes()[d];
  }
  return true;
}

void choose_strides(Join* join, const Frame& frame) {
  bool last = join->rule == ListRule::Cat && (join->ndim == 4 || join->ndim == 5);
  for (size_t i = 0; last && i < frame.tensors.size(); ++i) {
    last = frame.tensors[i]->ndim == join->ndim && is_channels_last(frame.tensors[i]);
  }
  int64_t step = 1;
  for (int i = 0; i < join->ndim; ++i) {
    const int plain = join->ndim - 1 - i;
    const int d = !last ? plain : i == 0 ? 1 : i == join->ndim - 1 ? 0 : join->ndim - i;
    join->strides[d] = step;
    if (join->sizes[d] > 1) step *= join->sizes[d];
  }
}

// Checks the call and fills the geometry; false without exception: leave it to the Plan.
bool plan_join(Join* join, const Frame& frame) {
  const size_t count = frame.tensors.size();
  if (!same_device(frame) || !common_dtype(frame, &join->dtype)) return false;
  size_t first = 0;
  while (first < count && left_out(*join, frame.tensors[first])) ++first;
  if (first == count) return false;
  const Tensor* model = frame.tensors[first];
  // The dimension of `hstack` is that of the very first tensor.
  const int rank = join->rule == ListRule::HStack ? frame.tensors[0]->ndim : model->ndim;
  int places[kMaxDims];
  if (!find_dim(join, frame, rank)) return false;
  join->ndim = spread(join->rule, join->dim, model->ndim, places);
  if (join->ndim <= join->dim || join->ndim > kMaxDims) return false;
  int64_t strides[kMaxDims], sizes[kMaxDims], total = 0;
  if (!place_source(*join, model, join->sizes, strides)) return false;
  join->starts.assign(count, -1);
  for (size_t i = 0; i < count; ++i) {
    const Tensor* t = frame.tensors[i];
    if (left_out(*join, t)) continue;
    if (!place_source(*join, t, sizes, strides)) return false;
    for (int d = 0; d < join->ndim; ++d) {
      const bool free = d == join->dim && join->rule != ListRule::Stack;
      if (!free && sizes[d] != join->sizes[d]) return false;
    }
    join->starts[i] = total;
    if (__builtin_add_overflow(total, sizes[join->dim], &total)) return false;
  }
  join->sizes[join->dim] = total;
  choose_strides(join, frame);
  return true;
}

// Sources in the result's dtype, with their memory there.
bool prepare_sources(Join* join, Frame* frame) {
  const NoGrad guard;
  for (size_t i = 0; i < frame->tensors.size(); ++i) {
    Tensor* t = frame->tensors[i];
    if (!tensor_materialise(t, "a long list of tensors")) return false;
    if (t->dtype != join->dtype && join->starts[i] >= 0) {
      t = converted(t, join->dtype);
      if (!frame->own(object_of(t))) return false;
    }
    join->sources.push_back(t);
  }
  return true;
}

struct CopyJob {
  const Join* join;
  char* to;
  int64_t item;
};

void copy_sources(void* context, int64_t begin, int64_t end, int) {
  const CopyJob& job = *static_cast<const CopyJob*>(context);
  const Join& join = *job.join;
  for (int64_t i = begin; i < end; ++i) {
    const Tensor* t = join.sources[static_cast<size_t>(i)];
    const int64_t start = join.starts[static_cast<size_t>(i)];
    if (start < 0 || t->numel == 0) continue;
    char* to = job.to + start * join.strides[join.dim] * job.item;
    const bool dense = (t->flags & kContiguous) && join.dim == 0 && join.ndim < 4;
    if (dense) {  // the usual case; the result has no other order of dimensions
      std::memcpy(to, t->data(), static_cast<size_t>(t->numel * job.item));
      continue;
    }
    Block b;
    b.ndim = join.ndim;
    std::copy(join.strides, join.strides + join.ndim, b.to);
    if (place_source(join, t, b.sizes, b.from)) copy_block(to, t->data(), job.item, b);
  }
}

void run_copies(CopyJob* job, int64_t count, int64_t bytes) {
  if (bytes < kParallelBytes) {
    copy_sources(job, 0, count, 0);
    return;
  }
  const int64_t grain = std::max<int64_t>(1, count * kPieceBytes / bytes);
  if (bytes < kReleaseBytes) {
    parallel_for(count, grain, copy_sources, job);
    return;
  }
  Py_BEGIN_ALLOW_THREADS parallel_for(count, grain, copy_sources, job);
  Py_END_ALLOW_THREADS
}

bool differentiable(DType t) { return is_floating(t) || is_complex(t); }

std::unique_ptr<ListGeometry> join_geometry(const Join& join, const Frame& frame,
                                            const Tensor* whole) {
  auto g = std::make_unique<ListGeometry>();
  g->rule = join.rule;
  g->dim = join.dim;
  g->whole = metadata_of(whole);
  g->starts = join.starts;
  for (size_t i = 0; i < frame.tensors.size(); ++i) {
    const Tensor* t = frame.tensors[i];
    int places[kMaxDims];
    int64_t length = 1;
    spread(join.rule, join.dim, t->ndim, places);
    for (int d = 0; d < t->ndim; ++d) {
      if (places[d] == join.dim) length = t->sizes()[d];
    }
    g->lengths.push_back(join.starts[i] < 0 ? 0 : length);
    g->ranks.push_back(t->ndim);
    g->dtypes.push_back(t->dtype);
  }
  return g;
}

bool attach_join(const Op* op, const Join& join, const Frame& frame, Tensor* result) {
  const auto node = steal(node_new(NodeKind::Join, frame.tensors.size(), 0, 0));
  if (!node || !node_extras(node.get())) return false;
  node->extras->list = join_geometry(join, frame, result);
  node->extras->list->name = op->text;
  for (size_t i = 0; i < frame.tensors.size(); ++i) {
    if (!gradient_edge(frame.tensors[i], &node->edge(i))) return false;
  }
  if (!note_anomaly(node.get())) return false;
  set_history(result, node.get(), 0);
  return !PyErr_Occurred();
}

// ---------------------------------------------------------------- in a region
PyObject* call_joined(PyObject* op, PyObject* list, const Join& join, bool with_dim) {
  return with_dim ? invoke(op, list, steal(PyLong_FromLong(join.dim))) : invoke(op, list);
}

// The tensors from `first` on, at most kShortList of them, as one.
PyObject* join_few(PyObject* op, PyObject* all, Py_ssize_t first, const Join& join, bool with_dim) {
  const Py_ssize_t end =
      std::min(PyList_GET_SIZE(all), first + static_cast<Py_ssize_t>(kShortList));
  const auto list = steal(PyList_GetSlice(all, first, end));
  return list ? call_joined(op, list.get(), join, with_dim) : nullptr;
}

// One level: groups of tensors joined. A new list, or null + exception.
PyObject* join_groups(PyObject* op, PyObject* all, const Join& join, bool with_dim) {
  auto joined = steal(PyList_New(0));
  for (Py_ssize_t i = 0; joined && i < PyList_GET_SIZE(all);
       i += static_cast<Py_ssize_t>(kShortList)) {
    if (!append_item(joined.get(), join_few(op, all, i, join, with_dim))) return nullptr;
  }
  return joined.release();
}

// A recorded join of many is a tree of short ones: programs whose size does not depend on the
// number, and a planning that is linear in it.
PyObject* record_join(Op* op, const Join& join, const Frame& frame) {
  const bool with_dim = join.rule == ListRule::Cat || join.rule == ListRule::Stack;
  auto list = steal(build_list(frame.tensors.size(),
                               [&](size_t i) { return Py_NewRef(object_of(frame.tensors[i])); }));
  auto callable = share(reinterpret_cast<PyObject*>(op));
  while (list && callable && PyList_GET_SIZE(list.get()) > 1) {
    list = steal(join_groups(callable.get(), list.get(), join, with_dim));
    if (join.rule == ListRule::Stack && list) {  // stacks are joined where they stack
      callable = steal(import_attribute("flambeau", "cat"));
    }
  }
  return list && callable ? Py_NewRef(PyList_GET_ITEM(list.get(), 0)) : nullptr;
}

bool one_dtype(const Frame& frame) {
  const DType first = frame.tensors[0]->dtype;
  for (size_t i = 0; i < frame.tensors.size(); ++i) {
    if (frame.tensors[i]->dtype != first) return false;
  }
  return true;
}

PyObject* run_join(Op* op, Overload* overload, Frame* frame) {
  if (frame->tensors.size() <= kShortList) return nullptr;
  Join join;
  join.rule = overload->list;
  if (!plan_join(&join, *frame)) return nullptr;
  if (active_recorder) {
    return one_dtype(*frame) && !frame->out ? record_join(op, join, *frame) : nullptr;
  }
  const int64_t numel = checked_numel(join.ndim, join.sizes);
  if (numel < 0 || !prepare_sources(&join, frame)) return nullptr;
  const int64_t item = item_size(join.dtype);
  const Device device = frame->tensors[0]->device;
  Storage* storage = storage_new(numel * item, device);
  if (!storage) return nullptr;
  auto result =
      steal(tensor_new(storage, join.dtype, device, join.ndim, join.sizes, join.strides, 0));
  if (!result) return nullptr;
  if (on_host(device) && numel > 0) {
    CopyJob job{&join, result->data(), item};
    run_copies(&job, static_cast<int64_t>(join.sources.size()), numel * item);
  }
  const bool taped = grad_mode.enabled && frame->any_requires_grad && differentiable(join.dtype);
  if (taped && !attach_join(op, join, *frame, result.get())) return nullptr;
  return object_of(result.release());
}

// ---------------------------------------------------------------- taking apart
struct Parts {
  int dim = 0;
  std::vector<int64_t> starts, lengths;
};

void even_parts(Parts* parts, int64_t extent, int64_t size) {
  for (int64_t start = 0; start < extent; start += size) {
    parts->starts.push_back(start);
    parts->lengths.push_back(std::min(size, extent - start));
  }
}

// A list of run-time or static integers, as the frame holds it.
bool read_integers(PyObject* given, std::vector<int64_t>* out) {
  if (!PyTuple_Check(given) && !PyList_Check(given)) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(given); ++i) {
    const long long value = PyLong_AsLongLong(PySequence_Fast_GET_ITEM(given, i));
    if (value == -1 && PyErr_Occurred()) {
      PyErr_Clear();
      return false;
    }
    out->push_back(value);
  }
  return true;
}

bool parts_between(Parts* parts, int64_t extent, const std::vector<int64_t>& indices) {
  int64_t start = 0;
  for (size_t i = 0; i <= indices.size(); ++i) {
    int64_t end = i < indices.size() ? indices[i] : extent;
    if (end < 0) end = std::max<int64_t>(0, end + extent);
    end = std::min(end, extent);
    if (end < start) return false;  // parts overlap
    parts->starts.push_back(start);
    parts->lengths.push_back(end - start);
    start = end;
  }
  return true;
}

bool parts_of_sizes(Parts* parts, int64_t extent, const std::vector<int64_t>& sizes) {
  int64_t start = 0;
  for (const int64_t size : sizes) {
    if (size < 0 || size > extent - start) return false;
    parts->starts.push_back(start);
    parts->lengths.push_back(size);
    start += size;
  }
  return start == extent;
}

void sections_of(Parts* parts, int64_t extent, int64_t sections) {
  int64_t start = 0;
  for (int64_t i = 0; i < sections; ++i) {
    const int64_t length = extent / sections + (i < extent % sections);
    parts->starts.push_back(start);
    parts->lengths.push_back(length);
    start += length;
  }
}

// The pieces of a call; false: few of them, or an error, which are the Plan's.
bool plan_parts(Parts* parts, const Overload& overload, const Frame& frame) {
  const Tensor* t = frame.tensors[0];
  const bool unbind = overload.list == ListRule::Unbind;
  constexpr auto least = static_cast<int64_t>(kShortList);
  if (t->ndim == 0 || !read_dim(frame.values[unbind ? 1 : 2], t->ndim, &parts->dim)) return false;
  const int64_t extent = t->sizes()[parts->dim];
  if (unbind) {
    if (extent > least) even_parts(parts, extent, 1);
    return extent > least;
  }
  if (overload.list == ListRule::SplitSizes || overload.list == ListRule::TensorSplitAt) {
    std::vector<int64_t> values;
    if (!read_integers(frame.values[1], &values) || values.size() <= kShortList) return false;
    return overload.list == ListRule::SplitSizes ? parts_of_sizes(parts, extent, values)
                                                 : parts_between(parts, extent, values);
  }
  const long long number = PyLong_AsLongLong(frame.values[1]);
  if (number == -1 && PyErr_Occurred()) {
    PyErr_Clear();
    return false;
  }
  if (number < 1) return false;
  if (overload.list == ListRule::TensorSplit) {
    if (number > least) sections_of(parts, extent, number);
    return number > least;
  }
  const int64_t size =
      overload.list == ListRule::Chunk ? extent / number + (extent % number != 0) : number;
  if (size < 1 || extent / size <= least) return false;
  even_parts(parts, extent, size);
  return true;
}

Tensor* part_view(Tensor* source, const Parts& parts, size_t i, bool drop) {
  int64_t sizes[kMaxDims], strides[kMaxDims];
  int ndim = 0;
  for (int d = 0; d < source->ndim; ++d) {
    if (drop && d == parts.dim) continue;
    sizes[ndim] = d == parts.dim ? parts.lengths[i] : source->sizes()[d];
    strides[ndim++] = source->strides()[d];
  }
  const int64_t offset = source->offset + parts.starts[i] * source->strides()[parts.dim];
  return tensor_alias(source, source->dtype, ndim, sizes, strides, offset);
}

Node* parts_node(const Op* op, ListRule rule, Parts* parts, Tensor* source) {
  auto node = steal(node_new(NodeKind::Parts, 1, 0, 0));
  if (!node || !node_extras(node.get()) || !gradient_edge(source, &node->edge(0)) ||
      !note_anomaly(node.get())) {
    return nullptr;
  }
  node->output_count = node->visible_count = static_cast<uint32_t>(parts->starts.size());
  auto g = std::make_unique<ListGeometry>();
  g->rule = rule;
  g->dim = parts->dim;
  g->name = op->text;
  g->whole = metadata_of(source);
  g->starts = parts->starts;
  g->lengths = parts->lengths;
  node->extras->list = std::move(g);
  return node.release();
}

PyObject* run_parts(const Op* op, Overload* overload, Frame* frame) {
  Tensor* source = frame->tensors[0];
  Parts parts;
  if (!plan_parts(&parts, *overload, *frame)) return nullptr;
  const bool taped = grad_mode.enabled && frame->any_requires_grad && differentiable(source->dtype);
  const auto node = steal(taped ? parts_node(op, overload->list, &parts, source) : nullptr);
  if (taped && !node) return nullptr;
  const bool marked = !grad_mode.inference || grad_mode.enabled;
  return build_tuple(parts.starts.size(), [&](size_t i) -> PyObject* {
    auto view = steal(part_view(source, parts, i, overload->list == ListRule::Unbind));
    if (view && node) set_history(view.get(), node.get(), static_cast<uint32_t>(i));
    if (!view || (marked && !tape_mark_view(view.get(), source, overload->single_views)) ||
        PyErr_Occurred()) {
      return nullptr;
    }
    return object_of(view.release());
  });
}

}  // namespace

ListRule list_rule(const char* flag) {
  for (const RuleName& row : kRules) {
    if (std::strncmp(flag, "list:", 5) == 0 && std::strcmp(flag + 5, row.name) == 0) {
      return row.rule;
    }
  }
  return ListRule::None;
}

PyObject* run_list(Op* op, Overload* overload, Frame* frame) {
  if (frame->tensors.size() == 0) return nullptr;
  if (overload->list < ListRule::Unbind) return run_join(op, overload, frame);
  return active_recorder ? nullptr : run_parts(op, overload, frame);
}

// ---------------------------------------------------------------- one call per element
namespace {

// The arguments of call `at`: elements of lists, everything else as it is. False: a list is
// shorter.
bool fill_arguments(PyObject* columns, Py_ssize_t at, std::vector<PyObject*>* args) {
  for (size_t i = 0; i < args->size(); ++i) {
    PyObject* column = PyTuple_GET_ITEM(columns, static_cast<Py_ssize_t>(i));
    if (PyList_CheckExact(column)) {
      if (at >= PyList_GET_SIZE(column)) return false;
      column = PyList_GET_ITEM(column, at);
    }
    (*args)[i] = column;
  }
  return true;
}

// call_each(function, count, columns, names): results of `count` calls.
PyObject* call_each(PyObject*, PyObject* given) {
  PyObject *function, *columns, *names;
  Py_ssize_t count;
  if (!PyArg_ParseTuple(given, "OnO!O!", &function, &count, &PyTuple_Type, &columns, &PyTuple_Type,
                        &names)) {
    return nullptr;
  }
  const Py_ssize_t named = PyTuple_GET_SIZE(names);
  std::vector<PyObject*> args(static_cast<size_t>(PyTuple_GET_SIZE(columns)));
  const size_t positional = args.size() - static_cast<size_t>(named);
  if (named > PyTuple_GET_SIZE(columns)) {
    PyErr_SetString(PyExc_ValueError, "[call_each] there are more names than columns");
    return nullptr;
  }
  return build_list(static_cast<size_t>(count), [&](size_t i) -> PyObject* {
    if (!fill_arguments(columns, static_cast<Py_ssize_t>(i), &args)) {
      PyErr_SetString(PyExc_ValueError, "[call_each] a list is shorter than the number of calls");
      return nullptr;
    }
    for (PyObject* argument : args) Py_INCREF(argument);  // the call may change the lists
    PyObject* result =
        PyObject_Vectorcall(function, args.data(), positional, named ? names : nullptr);
    for (PyObject*& argument : args) drop(argument);
    return result;
  });
}

PyMethodDef functions[] = {
    {"call_each", call_each, METH_VARARGS,
     "call_each(function, count, columns, names): the results of `count` calls. Columns that are "
     "lists give an argument to each call, others go to all; the last len(names) go by name."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool init_lists(PyObject* module) { return PyModule_AddFunctions(module, functions) == 0; }

}  // namespace fb
