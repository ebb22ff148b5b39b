// Compiled functions whose Python is skipped (tier 2 of `compile`): what their files share.
//
// A frame is explained when a dry run of it (capture/frame) read nothing but what guards can
// check. Its explanation holds these guards, the Instance that tier 1 runs for its stream, where
// that takes its tensors from, and how the result is built.
#pragma once
#include <algorithm>
#include <unordered_set>

#include "call/autocast.h"
#include "core.h"
#include "frame/effects.h"
#include "frame/numbers.h"
#include "frame/version.h"
#include "record/region.h"

namespace fb {

struct Explanation;

// What the thread does to all calls.
struct Modes {
  GradMode grad;
  uint8_t interceptors;
  bool functions_disabled, dry;
  AutocastMode autocast;
  DType dtype;
  Device device;

  static Modes now();
  bool hold() const {
    return grad.enabled == grad_mode.enabled && grad.inference == grad_mode.inference &&
           interceptors == fb::interceptors && functions_disabled == torch_function_disabled &&
           dry == dry_run && autocast == autocast_mode && dtype == default_dtype() &&
           device.kind == default_device().kind && device.index == default_device().index;
  }
};

// A tensor's class and geometry; everything of it that a stream depends on, but for its data.
// attributes: users gave it some.
struct TensorGuard {
  PyTypeObject* type;  // owned by `Explanation::references`
  int64_t offset, bytes;
  DType dtype;
  Device device;
  uint8_t ndim, flags;
  bool requires_grad, attributes;
  std::vector<int64_t> dims;

  static TensorGuard of(const Tensor* t);
  bool holds(const Tensor* t) const;
};

struct DictItem {
  PyObject* key;    // borrowed from `references`, like all objects of guards
  PyObject* value;  // null: there is none
};
struct DictGuard {
  PyObject* dict;
  const uint64_t* now;  // its version: of `dict_watch`
  uint64_t version;     // when it was compared
  bool silent;          // it may have changed since then all the same: it is compared again
  bool complete;        // all its items, in order
  std::vector<DictItem> items;
};
struct TypeGuard {
  PyTypeObject* type;
  uint32_t version;
  bool strict;  // no other version will do
  std::vector<DictItem> items;
  PyObject* bases;  // its method resolution order
  PyObject* title;  // its name, which changes without a new version; null: it is not read
};
struct ObjectGuard {
  PyObject* object;
  PyTypeObject* type;
  PyObject** slot;  // of its dict; null: it is not read
  PyObject* dict;
};
struct FunctionGuard {
  PyFunctionObject* function;
  PyObject *code, *defaults, *named;
};
struct CellGuard {
  PyObject *cell, *value;
};
struct ListGuard {
  PyObject* list;   // or a set or deque
  PyObject* items;  // a tuple
};
struct SlotGuard {
  PyObject* object;
  Py_ssize_t offset;
  PyObject* value;
};

// The state outside of a call's arguments.
class Guards {
 public:
  Guards() = default;
  Guards(const Guards&) = delete;
  Guards& operator=(const Guards&) = delete;
  ~Guards();
  // `parts`: the lists that capture/frame/evidence.py describes. False + exception.
  bool read(PyObject* parts);
  bool hold();  // may note that another version of a dict or type says the same
  Ref<> references;

 private:
  bool read_dicts(PyObject* list);
  bool read_types(PyObject* list);
  bool read_objects(PyObject* list);
  bool read_others(PyObject* functions, PyObject* cells, PyObject* lists);
  bool read_operators(PyObject* list);
  bool read_slots(PyObject* list);
  std::vector<ObjectGuard> objects_;
  std::vector<DictGuard> dicts_;
  std::vector<TypeGuard> types_;
  std::vector<FunctionGuard> functions_;
  std::vector<CellGuard> cells_;
  std::vector<ListGuard> lists_;
  std::vector<SlotGuard> slots_;
  std::vector<Op*> operators_;  // none of them has a gate
};

constexpr int kMaxArgumentTensors = 32;

// The shape of a call's arguments, depth first.
struct PatternItem {
  enum Kind : uint8_t { Tensor, Same, Weak, Equal, Tuple, List, Dict } kind;
  Py_ssize_t count;  // of a container's items; Tensor: its number
  Ref<> object;      // Same, Equal: it; Weak: a reference to it; Dict: its keys; Tensor: unused
};
struct Arguments {
  PyObject* const* values;
  Py_ssize_t positional;
  PyObject* names;  // a tuple or null
  Py_ssize_t count() const { return positional + (names ? PyTuple_GET_SIZE(names) : 0); }
};
class Pattern {
 public:
  bool read(const Arguments& arguments);  // false: there are too many tensors
  // tensors: room for kMaxArgumentTensors; filled with borrowed references.
  bool matches(const Arguments& arguments, Tensor** tensors) const;
  bool dead() const;  // some object that it names is gone
  int visit(visitproc visit, void* arg) const;
  const std::vector<Tensor*>& tensors() const { return tensors_; }  // while it is built
  void forget_tensors() { tensors_.clear(); }

 private:
  bool read_value(PyObject* value);
  bool read_container(PatternItem::Kind kind, PyObject* const* items, Py_ssize_t count);
  bool read_dict(PyObject* value);
  bool matches_value(PyObject* value, size_t* at, Tensor** tensors) const;
  bool matches_dict(PyObject* value, size_t* at, Tensor** tensors) const;
  std::vector<PatternItem> items_;
  std::vector<Tensor*> tensors_;
  std::vector<TensorGuard> guards_;
  std::vector<int32_t> firsts_;  // per tensor: the first one that is the same object
  Py_ssize_t positional_ = 0;
  Ref<> names_;
};
// A number of a call's arguments; calls with equal patterns have equal ones.
uint64_t signature_of(const Arguments& arguments);
// Whether two values are the same to a guard: identical, or equal numbers or texts of one type.
bool same_value(PyObject* a, PyObject* b);

// An index whose elements are looked at: a view of an input.
struct IndexGuard {
  int32_t source;
  int ndim;
  std::vector<int64_t> dims;
  int64_t offset, numel;
  IndexRange range;
};

// A contiguous mask over the memory of an input, and how many elements of it are true.
struct MaskGuard {
  int32_t source;
  int64_t offset, numel, count;
};

// Memory from outside that the calls write.
struct WriteGuard {
  int32_t source;   // as of `Explanation::sources`
  uint32_t counts;  // by how much its version grows
};

// The `.grad` of a tensor before a call. No hook sees what a backward adds to it. One that is an
// input may be another tensor in each call, which shares its memory with no other input.
struct GradientGuard {
  enum Kind : uint8_t { None, Same, Any, Input } kind;
  int32_t source;  // whose it is, as of `Explanation::sources`
  int32_t index;   // Same: which constant it is; Input: of `Explanation::inputs`

  bool holds(const Tensor* t, const Explanation& x) const;
};
// What autocast has cached of a parameter before a call: nothing, or an input.
struct CastGuard {
  int32_t source;  // of the parameter
  int32_t index;   // of `Explanation::inputs`; -1: nothing that is current
};
// A leaf that a backward reaches: it stays one, with these hooks.
struct LeafGuard {
  int32_t source;
  Ref<> hooks;  // a dict, whose items `Guards` compares; null: there are none

  static LeafGuard of(int32_t source, const Tensor* t);
  bool holds(const Tensor* t) const;
};
bool set_gradient(Tensor* t, PyObject* value);  // a tensor or None; false + exception

// A dict from outside that gets an item, a list that gets an element, or a cell.
struct Effect {
  Ref<> container, key;  // key: of a dict; an index; None: one more element, or a cell

  bool apply(PyObject* value) const;
};

// A result that is a view of an output.
struct ViewSpec {
  Py_ssize_t output;
  DType dtype;
  int ndim;
  std::vector<int64_t> dims;
  int64_t offset;
  bool marked;  // autograd knows that it is one
  bool shown;   // it is one without a history: what `detach` gives
};

// An input of the plan that a call makes itself: a tensor over the memory of another input, without
// its history (`detach`).
struct AliasSpec {
  int32_t source;
  ViewSpec view;
};

// How a result is built, depth first.
struct RecipeItem {
  enum Kind : uint8_t {
    Output,
    View,
    Argument,
    Constant,
    Object,
    Number,
    Tuple,
    List,
    Dict,
    Built
  } kind;
  Py_ssize_t index;   // of a tensor, view or number; containers: how many items follow
  Ref<> object;       // Object: it; Dict: its keys; Built: what makes it of a tuple of its parts
  int32_t root = -1;  // Output, View: which of the node's results it is; -1: of none
  Ref<Node> spent{};  // Output: its history, of which a backward left nothing to run
  uint32_t spent_output = 0;
  bool inference = false;  // Output, View: of inference_mode
};

// What a call passes to an explanation, besides what that owns.
struct Inputs {
  Tensor* few[kMaxArgumentTensors];
  std::vector<Tensor*> many;
  Tensor** tensors = few;          // borrowed references: of arguments, of gradients, of aliases
  std::vector<Ref<Tensor>> owned;  // gradients, which the call may replace, and aliases
  std::vector<NumberValue> numbers;
};

struct Explanation {
  int64_t references = 1;
  Modes modes;
  Guards guards;
  Pattern pattern;
  int64_t changes;  // record_changes() when it was explained
  Ref<Instance> instance;
  std::vector<int32_t> sources;    // per tensor of the plan: of an input, or ~ of a constant
  int32_t arguments = 0;           // the first inputs are arguments, then gradients and casts
  std::vector<AliasSpec> aliases;  // the last inputs
  std::vector<TensorGuard> taken;  // of these gradients, and of cached casts
  std::vector<Ref<Tensor>> constants;
  std::vector<TensorGuard> constant_guards;
  std::vector<Scalar> scalars;
  std::vector<uint8_t> scalar_is_float;
  std::vector<PyObject*> generators;  // None each: the default one
  std::vector<IndexGuard> indices;
  std::vector<MaskGuard> masks;
  std::vector<WriteGuard> writes;
  std::vector<const Storage*> constant_storages;       // only compared, like `constant_memory`
  std::unordered_set<const Storage*> constant_memory;  // where `taken` is not empty
  std::vector<GradientGuard> gradient_guards;
  std::vector<int32_t> gradients;  // sources of tensors whose `.grad` calls set
  std::vector<LeafGuard> leaf_guards;
  std::vector<CastGuard> cast_guards;
  bool clears_casts = false;   // of parameters: there are none before
  std::vector<int32_t> casts;  // sources of parameters whose casts calls leave cached
  Numbers numbers;
  bool ranged = false;  // names a part of itself for profiles
  std::vector<Effect> effects;
  std::vector<RecipeItem> recipe;  // of the result, `gradients`, `casts` and `effects`
  std::vector<ViewSpec> views;
  std::vector<uint32_t> versions;  // of the outputs' memory, which calls wrote in place
  Ref<Replay> replay;              // null: no result needs a gradient
  Ref<> text;                      // its guards as lines

  bool holds(const Arguments& arguments, Inputs* inputs);  // fills them in
  bool edges_hold(Tensor** tensors) const;      // gradients leave it as where it was learnt
  bool writes_hold(Tensor** tensors) const;     // what is written is one tensor's only
  bool gradients_hold(Tensor** tensors) const;  // fills in those that are inputs
  bool casts_hold(Tensor** tensors) const;      // as well
  bool inputs_hold(Tensor** tensors) const;     // none shares its memory
  bool make_aliases(Inputs* inputs) const;      // false: there is no memory for them
  bool is_argument(int32_t source) const { return source >= 0 && source < arguments; }
  bool outlived() const;  // it owns gradients that are no longer those of their tensors
  Tensor* input(int32_t source, Tensor** tensors) const {
    return source >= 0 ? tensors[source] : constants[static_cast<size_t>(~source)].get();
  }
  PyObject* run(Inputs& inputs);  // new reference; null + exception
};
template <>
struct Counting<Explanation> {
  static void add(Explanation* x) { ++x->references; }
  static void drop(Explanation* x) {
    if (--x->references == 0) delete x;
  }
};

constexpr char kOtherProgram[] = "another program was recorded";
// learn.cpp: what the active dry run recorded, as the explanation of a call. Null + exception,
// whose text says why there is none.
Ref<Explanation> explain_recorded(const Arguments& arguments, PyObject* result, PyObject* guards);

// Interceptors under which calls may be explained.
constexpr bool explains(uint8_t interceptors) { return (interceptors & ~kAutocast) == 0; }

PyObject* record_gradients(PyObject*, PyObject*);
PyObject* record_pending(PyObject*, PyObject* tensor);
PyObject* record_draws(PyObject*, PyObject*);
PyObject* record_leaves(PyObject*, PyObject*);
PyObject* record_calls(PyObject*, PyObject* caller);

bool init_frame(PyObject* module);

}  // namespace fb
