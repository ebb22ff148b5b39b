// Backward of long lists, and the copies of blocks that both directions use.
#include <algorithm>

#include "call/lists.h"
#include "tensor/tensor_internal.h"

namespace fb {
namespace {

// ---------------------------------------------------------------- copying
// Dimensions that are contiguous in both memories become one; those of size 1 vanish.
void merge_dimensions(Block* b) {
  int kept = 0;
  for (int d = 0; d < b->ndim; ++d) {
    if (b->sizes[d] == 1) continue;
    const int last = kept - 1;
    if (kept > 0 && b->to[last] == b->to[d] * b->sizes[d] &&
        b->from[last] == b->from[d] * b->sizes[d]) {
      b->sizes[last] *= b->sizes[d];
      b->to[last] = b->to[d];
      b->from[last] = b->from[d];
      continue;
    }
    b->sizes[kept] = b->sizes[d];
    b->to[kept] = b->to[d];
    b->from[kept++] = b->from[d];
  }
  b->ndim = kept;
}

template <typename T>
void copy_row(char* to, const char* from, int64_t count, int64_t to_step, int64_t from_step) {
  T* target = reinterpret_cast<T*>(to);
  const T* source = reinterpret_cast<const T*>(from);
  for (int64_t i = 0; i < count; ++i) target[i * to_step] = source[i * from_step];
}

struct Pair {  // a complex number of 16 bytes
  uint64_t a, b;
};

void copy_elements(char* to, const char* from, int64_t item, int64_t count, int64_t to_step,
                   int64_t from_step) {
  if (to_step == 1 && from_step == 1) {
    std::memcpy(to, from, static_cast<size_t>(count * item));
    return;
  }
  switch (item) {
    case 1:
      return copy_row<uint8_t>(to, from, count, to_step, from_step);
    case 2:
      return copy_row<uint16_t>(to, from, count, to_step, from_step);
    case 4:
      return copy_row<uint32_t>(to, from, count, to_step, from_step);
    case 8:
      return copy_row<uint64_t>(to, from, count, to_step, from_step);
    default:
      return copy_row<Pair>(to, from, count, to_step, from_step);
  }
}

}  // namespace

void copy_block(char* to, const char* from, int64_t item, Block b) {
  if (std::find(b.sizes, b.sizes + b.ndim, 0) != b.sizes + b.ndim) return;
  merge_dimensions(&b);
  if (b.ndim == 0) {
    std::memcpy(to, from, static_cast<size_t>(item));
    return;
  }
  const int inner = b.ndim - 1;
  int64_t index[kMaxDims] = {0};
  for (;;) {
    copy_elements(to, from, item, b.sizes[inner], b.to[inner], b.from[inner]);
    int d = inner - 1;
    for (; d >= 0; --d) {
      to += b.to[d] * item;
      from += b.from[d] * item;
      if (++index[d] < b.sizes[d]) break;
      to -= b.to[d] * item * b.sizes[d];
      from -= b.from[d] * item * b.sizes[d];
      index[d] = 0;
    }
    if (d < 0) return;
  }
}

Block block_of(const Tensor* shape, const int64_t* to, const int64_t* from) {
  Block b;
  b.ndim = shape->ndim;
  std::copy(shape->sizes(), shape->sizes() + b.ndim, b.sizes);
  std::copy(to, to + b.ndim, b.to);
  std::copy(from, from + b.ndim, b.from);
  return b;
}

// ---------------------------------------------------------------- dimensions
int spread(ListRule rule, int dim, int rank, int* places) {
  int result = rank;
  for (int d = 0; d < rank; ++d) places[d] = d;
  switch (rule) {
    case ListRule::Stack:
      for (int d = dim; d < rank; ++d) places[d] = d + 1;
      return rank + 1;
    case ListRule::HStack:
      return std::max(rank, 1);
    case ListRule::VStack:
      if (rank == 1) places[0] = 1;
      return std::max(rank, 2);
    case ListRule::DStack:
      if (rank == 1) places[0] = 1;
      return std::max(rank, 3);
    case ListRule::ColumnStack:
      return std::max(rank, 2);
    default:
      return result > 0 ? result : -1;
  }
}

Tensor* converted(Tensor* t, DType dtype) {  // new reference
  PyObject* to = tensor_method("to");
  PyObject* args[2] = {object_of(t), dtype_object(dtype)};
  return to ? tensor_of(invoke(to, args, 2)) : nullptr;
}

// ---------------------------------------------------------------- backward
namespace {

bool plain(const Tensor* t, const ListGeometry& g) {
  return is_exact_tensor(reinterpret_cast<PyObject*>(const_cast<Tensor*>(t))) &&
         t->dtype == g.whole.dtype && on_host(t->device);
}

bool runs_native() {
  return !grad_mode.enabled && !active_recorder && !(interceptors & ~kAutocast);
}

// Sizes of source `i`, and the dimension of the result to which each belongs.
int source_sizes(const ListGeometry& g, size_t i, int64_t* sizes, int* places) {
  const int rank = g.ranks[i];
  spread(g.rule, g.dim, rank, places);
  for (int d = 0; d < rank; ++d) {
    const auto place = static_cast<size_t>(places[d]);
    sizes[d] = places[d] == g.dim ? g.lengths[i] : g.whole.sizes[place];
  }
  if (g.starts[i] < 0) sizes[0] = 0;
  return rank;
}

// The gradient of source `i`, a view; a leaf's is a copy, which the leaf owns.
Tensor* part_of_gradient(Tensor* grad, const ListGeometry& g, size_t i, bool own) {
  int64_t sizes[kMaxDims], strides[kMaxDims];
  int places[kMaxDims];
  const int rank = source_sizes(g, i, sizes, places);
  for (int d = 0; d < rank; ++d) strides[d] = grad->strides()[places[d]];
  const int64_t start = std::max<int64_t>(g.starts[i], 0);
  const int64_t offset = grad->offset + start * grad->strides()[g.dim];
  if (!own) return tensor_alias(grad, grad->dtype, rank, sizes, strides, offset);
  Tensor* copy = tensor_empty(grad->dtype, grad->device, rank, sizes);
  if (!copy) return nullptr;
  const int64_t item = item_size(grad->dtype);
  const char* from = static_cast<char*>(grad->storage->data) + offset * item;
  if (copy->numel > 0) {
    copy_block(copy->data(), from, item, block_of(copy, copy->strides(), strides));
  }
  return copy;
}

bool split_natively(Node* node, Tensor* grad, Tensor** results) {
  const ListGeometry& g = *node->extras->list;
  for (size_t i = 0; i < node->edge_count; ++i) {
    Node* next = node->edge(i).node;
    if (!next) continue;
    const bool leaf = next->kind == NodeKind::Accumulate;
    auto part = steal(part_of_gradient(grad, g, i, leaf && g.dtypes[i] == g.whole.dtype));
    if (part && g.dtypes[i] != g.whole.dtype) part = steal(converted(part.get(), g.dtypes[i]));
    if (!part) return false;
    results[i] = part.release();
  }
  return true;
}

// [(dtype, sizes)] of the sources.
PyObject* describe_sources(const ListGeometry& g) {
  return build_list(g.ranks.size(), [&](size_t i) {
    int64_t sizes[kMaxDims];
    int places[kMaxDims];
    const int rank = source_sizes(g, i, sizes, places);
    return Py_BuildValue("(ON)", dtype_object(g.dtypes[i]), size_object(rank, sizes));
  });
}

// helper(first, second, third, dim); the arguments are stolen.
PyObject* call_with(const char* helper, PyObject* first, PyObject* second, PyObject* third,
                    int dim) {
  return call_helper("flambeau.autograd.lists", helper, steal(first), steal(second), steal(third),
                     steal(PyLong_FromLong(dim)));
}

}  // namespace

bool apply_join(Node* node, Tensor** grads, Tensor** results) {
  Tensor* grad = grads[0];
  if (!grad) return true;
  const ListGeometry& g = *node->extras->list;
  if (runs_native() && plain(grad, g)) {
    return tensor_materialise(grad, "backward") && split_natively(node, grad, results);
  }
  PyObject* lengths = int_tuple(g.lengths.data(), static_cast<Py_ssize_t>(g.lengths.size()));
  const auto parts = steal(
      call_with("split_gradient", Py_NewRef(object_of(grad)), lengths, describe_sources(g), g.dim));
  for (size_t i = 0; parts && i < node->edge_count; ++i) {
    if (!node->edge(i).node) continue;
    results[i] = tensor_of(Py_NewRef(PyList_GET_ITEM(parts.get(), static_cast<Py_ssize_t>(i))));
  }
  return static_cast<bool>(parts);
}

bool apply_parts(Node* node, Tensor** grads, Tensor** results) {
  const ListGeometry& g = *node->extras->list;
  const size_t count = node->output_count;
  bool native = runs_native();
  size_t present = 0;
  for (size_t i = 0; i < count; ++i) {
    if (!grads[i]) continue;
    ++present;
    native = native && plain(grads[i], g);
    if (native && !tensor_materialise(grads[i], "backward")) return false;
  }
  if (present == 0) return true;
  const int ndim = static_cast<int>(g.whole.sizes.size());
  if (!native) {
    PyObject* list = build_list(count, [&](size_t i) { return Py_NewRef(or_none(grads[i])); });
    PyObject* lengths = g.rule == ListRule::Unbind
                            ? Py_NewRef(Py_None)
                            : int_tuple(g.lengths.data(), static_cast<Py_ssize_t>(count));
    results[0] = tensor_of(
        call_with("join_gradients", list, size_object(ndim, g.whole.sizes.data()), lengths, g.dim));
    return results[0] != nullptr;
  }
  Tensor* whole = tensor_empty(g.whole.dtype, g.whole.device, ndim, g.whole.sizes.data());
  if (!whole) return false;
  results[0] = whole;
  const int64_t item = item_size(g.whole.dtype);
  if (present < count) std::memset(whole->data(), 0, static_cast<size_t>(whole->numel * item));
  const bool drop = g.rule == ListRule::Unbind;
  for (size_t i = 0; i < count; ++i) {
    const Tensor* part = grads[i];
    if (!part || part->numel == 0) continue;
    int64_t strides[kMaxDims];
    for (int d = 0, k = 0; d < ndim; ++d) {
      if (!drop || d != g.dim) strides[k++] = whole->strides()[d];
    }
    char* to = whole->data() + g.starts[i] * whole->strides()[g.dim] * item;
    copy_block(to, part->data(), item, block_of(part, strides, part->strides()));
  }
  return true;
}

std::string list_node_name(const Node* node) {
  std::string name;
  bool upper = true;
  for (const char c : node->extras ? node->extras->list->name : std::string("list")) {
    if (c != '_') name += static_cast<char>(upper ? Py_TOUPPER(c) : c);
    upper = c == '_';
  }
  return name + "Backward0";
}

bool list_output_metadata(const Node* node, uint32_t index, OutputMetadata* out) {
  const ListGeometry& g = *node->extras->list;
  *out = g.whole;
  if (node->kind == NodeKind::Join) return index == 0;
  if (index >= g.starts.size()) return false;
  const auto dim = static_cast<size_t>(g.dim);
  if (g.rule == ListRule::Unbind) {
    out->sizes.erase(out->sizes.begin() + g.dim);
  } else {
    out->sizes[dim] = g.lengths[index];
  }
  return true;
}

}  // namespace fb
