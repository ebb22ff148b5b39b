// Shared declarations of autograd: the Node type and its parts.
//
// A Node is one recorded call. It owns the Instance (hence the Plan and every integer of the call),
// the tensors its backward reads, and edges to the nodes of its inputs. Nothing in it
// points at an output of its own call, so a graph is freed by counting; outputs that backward needs
// are saved as aliases and get their history back when they are unpacked.
#pragma once
#include "core.h"
#include "tensor/tensor_internal.h"

namespace fb {

// A scope in which nothing is recorded for backward: Python called from inside an operation,
// copies.
class NoGrad {
 public:
  NoGrad() : before_(grad_mode.enabled) { grad_mode.enabled = false; }
  ~NoGrad() { grad_mode.enabled = before_; }
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool before_;
};

enum class NodeKind : uint8_t {
  Plan,        // backward of an op: calls BackwardSpec::op
  Accumulate,  // adds into the .grad of a leaf
  Function,    // autograd.Function: a Python subclass of Node with `apply`
  CopySlices,  // in-place write through a view: splits the base's gradient
  AsStrided,   // history of a view whose base was written
  Join,        // a long list of tensors joined into one (lists.cpp)
  Parts,       // a tensor taken apart into many views
  Constant,    // overwritten without reading (zero_, copy_ of a constant): passes no gradient
};

enum class ViewCreation : uint8_t {
  Default = 0,
  NoGrad = 1,
  MultiOutput = 2,
  InFunction = 3,
  Bits = 4
};

struct Edge {
  Node* node;      // owned; null: no gradient required
  uint64_t index;  // which output of `node`
};

struct Saved {
  PyObject* object;  // owned: a Tensor, or what the pack hook returned; null: absent or released
  uint32_t version;
  uint16_t output;  // 1 + number of the node's own output, 0: an input
  uint16_t packed;  // 1 + index into NodeExtras::packed, 0: `object` is the tensor
};

struct SavedScalar {
  Scalar value;
  uint64_t is_float;
};

union Cell {  // edges first, then saved tensors, then scalars
  Edge edge;
  Saved saved;
  SavedScalar scalar;
};
static_assert(sizeof(Cell) == 16);

struct Packed {  // a tensor that went through saved_tensors_hooks
  Ref<> unpack;
  Ref<Node> node;  // history of the tensor (its own node for outputs: null, restored on unpack)
  uint64_t index;
  bool requires_grad;
};

struct OutputMetadata {
  DType dtype;
  Device device;
  bool differentiable;
  std::vector<int64_t> sizes;
};

struct ViewGeometry {  // CopySlices, AsStrided
  OutputMetadata base, view;
  std::vector<int64_t> base_strides, view_strides;
  int64_t base_offset, view_offset;
  uint8_t base_form, view_form;  // 1: conjugates, 2: negatives of what memory holds, 4: complex
  uint32_t inner_output;         // CopySlices: which output of the inner node the view was
  size_t inner_target;           // and which of its results belongs to the overwritten value
};

struct RetainedOutput {
  uint32_t index;
  Ref<> reference;  // a weak one, to the tensor
};

struct ListGeometry;  // lists.h

struct NodeExtras {                 // what few nodes have
  Ref<> metadata;                   // dict
  Ref<> prehooks;                   // OrderedDict: before the node, on output gradients
  Ref<> posthooks;                  // OrderedDict: after the node
  Ref<> inner;                      // (inputs, node per result): see node_view.cpp
  std::vector<Ref<>> tensor_hooks;  // per output: OrderedDict or null
  std::vector<RetainedOutput> retained;
  std::vector<Packed> packed;
  std::vector<OutputMetadata> outputs;  // where the Plan does not tell
  std::unique_ptr<ViewGeometry> view;
  std::unique_ptr<ListGeometry> list;  // Join, Parts
  NodeExtras();
  ~NodeExtras();
};

// A call in the stream being recorded; epoch 0: none.
struct RecordPlace {
  uint32_t epoch = 0, index = 0;
};
// The newest call of the stream, if it is one of this instance.
RecordPlace record_place(const Instance* instance);
// Where a node that is created now belongs; record_place returns the call.
RecordPlace record_scope();
void record_taped(Tensor* t);  // t got a history while recording
// The next call to be recorded is the backward of `forward`'s: its integers are registers of that.
void record_backward_of(RecordPlace forward);

struct GraphTask;
constexpr int kInlineCells = 8;

struct Node {
  PyObject_HEAD NodeKind kind;
  bool released;       // its saved tensors were freed
  bool wide;           // cells on the heap
  bool captured : 1;   // created while `compile` recorded: its backward is recorded, too
  bool dissolved : 1;  // a region's: see region_dissolve
  bool goes_on : 1;    // takes HeldGradients: results that are sums with what their edges hold
  bool partly : 1;     // a region's: no gradient came to some results before it was released
  uint16_t saved_count, scalar_count;
  uint32_t edge_count;
  uint32_t output_count;   // gradients it takes: of visible results, then of saved ones
  uint32_t visible_count;  // those that hooks see
  uint32_t task_index;     // its place in `task`
  uint64_t sequence;
  RecordPlace recorded;  // its forward call in the stream of `compile` that has it
  Instance* instance;    // owned; Plan and Constant nodes
  PyObject* object;      // owned; Accumulate: the leaf; CopySlices: the inner node
  NodeExtras* extras;
  uint64_t task;    // number of the running backward that uses task_index; 0: none
  Node* next_dead;  // see node_dealloc
  PyObject* weakrefs;
  Cell* cells;
  Cell inline_cells[kInlineCells];

  Edge& edge(size_t i) { return cells[i].edge; }
  Saved& saved(size_t i) { return cells[edge_count + i].saved; }
  SavedScalar& scalar(size_t i) { return cells[edge_count + saved_count + i].scalar; }
};

extern PyTypeObject* NodeType;

inline PyObject* object_of(Node* n) { return reinterpret_cast<PyObject*>(n); }
inline Node* node_of(PyObject* o) { return reinterpret_cast<Node*>(o); }
inline bool is_node(PyObject* o) { return PyObject_TypeCheck(o, NodeType); }

// ---------------------------------------------------------------- node.cpp
constexpr uint64_t kAccumulateSequence = UINT64_MAX;
// Cells are zeroed. The collector sees the node at once. Null + exception on failure.
Node* node_new(NodeKind kind, size_t edges, size_t saved, size_t scalars);
bool node_reserve(Node* node, size_t edges, size_t saved, size_t scalars);  // only while empty
NodeExtras* node_extras(Node* node);  // creates on demand; null + MemoryError
std::string node_name(const Node* node);
// Numbers that no other node gets, so many one behind the other: the first.
uint64_t node_sequences(uint64_t count);
uint64_t node_sequences_from(uint64_t next);  // the next node's; returns what it would have been
PyObject* node_hooks_dict(PyObject** slot);   // borrowed OrderedDict, created on demand
// Shape and dtype that the gradient of output `index` must have. False: unknown (no exception).
bool node_output_metadata(const Node* node, uint32_t index, OutputMetadata* out);
void node_release_saved(Node* node);  // frees saved tensors (and the inner node's)
bool init_node(PyObject* module);

// ---------------------------------------------------------------- node_view.cpp
// A node as Python gets it, of PyTorch's class for it; new reference.
PyObject* node_shown(Node* node);
PyObject* node_shown_for(Node* node, uint32_t output);  // `grad_fn` of a result
PyObject* node_inputs(Node* node);                      // `next_functions`
// Numbers of edges in the order in which PyTorch releases what they lead to; borrowed, or null.
PyObject* node_release_order(Node* node);
std::string node_view_name(const Node* node);  // PyTorch's; empty: unknown
// Gradients of a node's edges as tuples in the order of `next_functions`, and back.
PyObject* node_arranged_gradients(Node* node, PyObject* gradients);
PyObject* node_restored_gradients(Node* node, PyObject* gradients);
// Attributes `_saved_*` by name: ("input", slot), ("output", number) or ("value", object).
PyObject* node_saved_places(Node* node);

// ---------------------------------------------------------------- tape.cpp
// The edge along which a tensor's gradient flows; out->node is a new reference or null.
bool gradient_edge(Tensor* t, Edge* out);
Node* accumulator_of(Tensor* leaf);                       // new reference
void set_history(Tensor* t, Node* node, uint32_t index);  // takes its own reference
bool rebase_history(Tensor* target, Node* node, uint32_t index, size_t target_edge);
// output: 1 + number of the node's result that t is, 0: none. Results that nobody else sees
// (`hidden`) are saved directly, others through an alias.
bool save_tensor(Node* node, size_t position, Tensor* t, uint16_t output, bool hidden = false);
Tensor* unpack_saved(Node* node, size_t position);  // new reference; null + exception
OutputMetadata metadata_of(const Tensor* t);
bool mark_view_as(Tensor* view, Tensor* base, ViewCreation creation);
bool note_anomaly(Node* node);  // a new node, where anomaly mode is on
bool check_inplace_on(Tensor* target, bool will_record);
extern PyObject* anomaly_recorder;  // called with each new node, or null

// ---------------------------------------------------------------- engine.cpp
extern PyMethodDef engine_functions[];
// run_backward that ends at its inputs, GradientEdges, even where one leads to another: their nodes
// do not run and their hooks are not called, both are the business of an outer run.
// parts: unless null, the summands of each input's gradient in the order of the sum.
PyObject* engine_gradients(PyObject* args, std::vector<std::vector<Ref<Tensor>>>* parts);
// ---------------------------------------------------------------- region.cpp
// The node of a compiled region replaces the tape of its calls. Derivatives of its gradient add
// to gradients of values inside of it, so a backward with create_graph, and all that begin later,
// see the calls' own nodes instead. `task`: of the backward. False + exception.
bool region_dissolve(Node* node, uint64_t task);
// The node is about to be released, after a backward with these gradients of its results. Results
// without one can still be differentiated: the tape of their calls stays.
void region_spend(Node* node, Tensor* const* grads);
// The edge that replaces a dissolved region's output in this backward; borrowed.
Edge region_front(Edge edge, uint64_t task);
constexpr uint64_t kLatestTask = UINT64_MAX;
inline Edge front_of(const Edge& edge, uint64_t task = kLatestTask) {
  return edge.node && edge.node->dissolved ? region_front(edge, task) : edge;
}
// Its tape as one step: for create_graph where hooks of its own prevent the node from dissolving,
// for results that another backward left when it released the node meanwhile, and for sums that its
// backward op cannot continue. results: see call_node.
bool region_apply_tape(Node* node, Tensor** grads, Tensor** results);
// A public op or helper by name: attribute of Tensor ("clone") or of a module ("module:name").
PyObject* tensor_method(const char* name);  // borrowed, cached; null + exception
PyObject* call_helper(const char* module, const char* name, PyObject* const* args,
                      Py_ssize_t count);

// ---------------------------------------------------------------- engine_nodes.cpp
// While a recorder in Python sees the engine's calls: the type of the tensors that stand for their
// results until they run; else null.
extern constinit FB_THREAD_LOCAL PyTypeObject* delayed_type;
PyObject* invoke(PyObject* callable, PyObject* const* args, Py_ssize_t count);
template <typename... T>
  requires Objects<T...>
PyObject* invoke(PyObject* callable, const T&... arguments) {
  if (!callable || (missing(arguments) || ...)) return nullptr;
  PyObject* const values[] = {object_of(arguments)...};
  return invoke(callable, values, sizeof...(arguments));
}
// *slot = value (stolen); false when value is null.
bool replace_tensor(Tensor** slot, PyObject* value);
bool add_gradient(Tensor** slot, Tensor* grad);  // *slot += grad (stolen)
bool run_pre_hooks(Node* node, Tensor** grads);  // tensor hooks, then retained gradients
// Hooks, backward, checks. grads: output_count entries, results: edge_count entries. Before, those
// of HeldGradients are what their edges hold (owned), the others null.
bool call_node(Node* node, Tensor** grads, Tensor** results, bool keep_graph);
// What a node gives for these gradients, whose data it still has: for anomaly mode. New reference.
PyObject* node_apply_again(PyObject* node, PyObject* gradients);
bool fit_gradient(const std::string& who, size_t index, const OutputMetadata& wanted,
                  Tensor** grad);
std::string sizes_text(const int64_t* sizes, size_t ndim);
bool same_shape(const Tensor* a, const Tensor* b);
void report_failure(Node* node);  // anomaly mode: names the forward line

// ---------------------------------------------------------------- modes.cpp, function.cpp
struct SavedHooks {
  PyObject *pack, *unpack;  // borrowed from the thread's stack
};
bool saved_hooks_active(SavedHooks* out);
// Until they are resumed no hooks are active; `depth` is what suspend returned.
uint32_t saved_hooks_suspend();
void saved_hooks_resume(uint32_t depth);
void saved_hooks_reset();                                     // no hooks are active
extern constinit FB_THREAD_LOCAL PyObject* checkpoint_group;  // owned: a GraphExecGroup, or null
// Whether backwards of this thread share what checkpoints compute again.
inline bool checkpoint_grouped() { return checkpoint_group != nullptr; }
bool init_modes(PyObject* module);
bool init_function(PyObject* module);

}  // namespace fb
