// What the files of plans, ops and routines share among themselves and nobody else needs.
#pragma once
#include <algorithm>
#include <unordered_map>

#include "call/autocast.h"
#include "call/override.h"
#include "core.h"
#include "plan/plan_cache.h"

namespace fb {

// ---------------------------------------------------------------- plan.cpp, plan_read.cpp
// A field of a named tuple, borrowed from it; null + exception.
PyObject* record_field(PyObject* record, const char* name);
const char* ir_dtype_name(DType t);                // "f32"
bool dtype_from_ir(PyObject* object, DType* out);  // IR name or dtype object

// ---------------------------------------------------------------- plan_run.cpp
void raise_routine_error(const char* op, ErrorKind kind, const char* text);
// Whether a call has the slots of a plan's calls; else a RuntimeError.
bool plan_takes(const Plan* plan, size_t tensors, size_t numbers, size_t generators);
// Whether its backward's results go to this many tensors or edges; else a RuntimeError.
bool takes_edges(const Plan* plan, size_t edges);

// ---------------------------------------------------------------- schema
enum class Kind : uint8_t {
  Tensor,
  TensorList,
  Scalar,
  TensorOrScalar,
  SymInt,
  SymIntList,
  Int,
  IntList,
  Float,
  FloatList,
  Bool,
  BoolList,
  Str,
  DType,
  Device,
  Generator,
  MemoryFormat,
  Layout,
  Object,
};

struct Argument {
  PyObject* name = nullptr;           // owned, interned
  PyObject* default_value = nullptr;  // owned; null: required
  Kind kind = Kind::Object;
  bool optional = false;           // None is allowed
  bool optional_elements = false;  // Tensor?[]
  bool keyword_only = false;
  bool runtime = false;  // a number that is not part of the key
  bool mutated = false;
  bool fits = false;       // a number that the result's dtype must be able to hold
  bool no_tensor = false;  // a number, of which a later overload takes the tensor
};

constexpr int kUsualArguments = 48;  // more of them (the backward of many views) go to the heap

// ---------------------------------------------------------------- keys and caches
// A key is a row of 64-bit words. Each value starts with a word whose top byte is its tag, so that
// the class key and the description handed to Python can be derived by walking the exact key.
enum class Tag : uint8_t {
  Header = 1,  // default dtype
  None,
  Tensor,      // then sizes, strides unless contiguous, offset if flagged
  TensorList,  // low 32 bits: length; then Tensor or None each
  Bool,        // low bit
  Int,         // one payload word
  Float,       // one
  Complex,     // two
  Str,         // low 32 bits: bytes; then the bytes
  DType,       // low 8 bits
  Device,      // kind, index
  IntList,     // low 32 bits: length; then the values
  FloatList,
  BoolList,
  SymInt,      // one payload word, not part of the class
  SymIntList,  // length, then values that are not part of the class
  Runtime,     // low 8 bits: NumberType
  Generator,
  Pointer,   // one payload word: identity of a Python object
  Object,    // low 32 bits: words of its value, which follow
  Sequence,  // inside an Object: low 32 bits: elements, which follow
  Unsigned,  // one payload word: an integer from 2^63 on
};
inline uint64_t tag_word(Tag tag, uint64_t low = 0) {
  return static_cast<uint64_t>(tag) << 56 | low;
}
inline Tag tag_of(uint64_t word) { return static_cast<Tag>(word >> 56); }
constexpr uint64_t kKeyRequiresGrad = uint64_t{1} << 32;
constexpr uint64_t kKeyContiguous = uint64_t{1} << 33;
constexpr uint64_t kKeyOffset = uint64_t{1} << 34;
enum class NumberType : uint8_t { Bool = 0, Int = 1, Float = 2, Complex = 3, Unsigned = 4 };

struct Number {
  NumberType type;
  Scalar value;  // Unsigned: the bits
  double imaginary;
};

// A growing array that starts on the stack.
template <typename T, int kInline>
class StackVector {
 public:
  StackVector() = default;
  ~StackVector() {
    if (data_ != inline_) PyMem_Free(data_);
  }
  StackVector(const StackVector&) = delete;
  StackVector& operator=(const StackVector&) = delete;
  // Room for n more; false + MemoryError.
  bool reserve(size_t n) { return size_ + n <= capacity_ || grow(n); }
  void push(T value) { data_[size_++] = value; }  // after reserve
  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }
  void clear() { size_ = 0; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }

 private:
  __attribute__((noinline)) bool grow(size_t n) {
    const size_t wanted = (size_ + n) * 2;
    T* bigger = static_cast<T*>(PyMem_Malloc(wanted * sizeof(T)));
    if (!bigger) {
      PyErr_NoMemory();
      return false;
    }
    std::memcpy(bigger, data_, size_ * sizeof(T));
    if (data_ != inline_) PyMem_Free(data_);
    data_ = bigger;
    capacity_ = wanted;
    return true;
  }
  size_t size_ = 0, capacity_ = kInline;
  T* data_ = inline_;
  T inline_[kInline];
};

// What may be given as `out=` (docs/design.md § 8): None where the call takes none.
enum class OutRule : uint8_t { None, Cast, Kind, Join, Truth, Any, Dtype, Exact, Separate };
// The strides of one that is resized: the result's, or a contiguous tensor's, or the result's where
// it was empty and a contiguous tensor's else.
enum class Resized : uint8_t { Result, Contiguous, ResultIfEmpty };
struct OutOption {
  OutRule rule = OutRule::None;
  Resized resized = Resized::Result;
};
OutOption out_option(const char* text);  // the option's value; OutRule::None: not one

// Ops over lists that may be long (lists.cpp): first those that join tensors, then those that take
// one apart.
enum class ListRule : uint8_t {
  None,
  Cat,
  Stack,
  HStack,
  VStack,
  DStack,
  ColumnStack,
  Unbind,
  Split,
  SplitSizes,
  Chunk,
  TensorSplit,
  TensorSplitAt,
};
ListRule list_rule(const char* flag);  // "list:<name>"

// What operands may share with what an in-place call, or one with `out=`, writes. Copy: anything,
// they are copied first; Fill: also the target may repeat its memory; Partial: all or nothing; Any:
// nothing. Memory with gaps is not compared, as in PyTorch.
enum class Overlap : uint8_t { Copy, Fill, Partial, Any };
Overlap overlap_rule(const char* name);  // of the option's value
// Raises where one of the values shares memory with a tensor `out` that the rule forbids.
bool check_outs_shared(Overlap rule, PyObject* const* values, Py_ssize_t count, PyObject* out);

struct Overload {
  std::vector<Argument> arguments;
  int positional = 0;         // arguments that may be given by position
  int required = 0;           // position after the last argument without a default
  PyObject* build = nullptr;  // owned
  PyObject* spec = nullptr;   // owned: (arguments, build, flags), as given
  bool python = false;        // `build` is the implementation
  OutOption out;
  ListRule list = ListRule::None;
  int result_dtype = -1;      // the argument that `out` answers for where its dtype is computed in
  bool is_view = false;       // takes views of conjugates as they are
  bool any_window = false;    // its views may have any geometry: their bounds are checked
  bool single_views = false;  // each of its views may be written in place
  Overlap overlap = Overlap::Copy;
  int overlap_special = -1;   // an argument that is compared as expanded to the target
  bool overlap_only = false;  // the rule applies to no other one
  bool repeats = false;       // what is written may refer to one element several times
  bool varargs = false;       // the last positional argument takes the rest
  bool mutates = false;
  bool offsets_in_key = false;
  PlanCache cache{{8192, 1024, 256}};
};

struct Op {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* dict;
  PyObject* weakrefs;
  PyObject* name;    // owned str
  std::string text;  // the same, for messages
  std::vector<std::unique_ptr<Overload>> overloads;
  PyObject* pending;  // callable that gives the overloads, until the op is first used; or null
  PyObject* gate;     // asked before each call of users on plain tensors; or null
  Autocast autocast;  // what happens to its operands under `autocast`
};

// ---------------------------------------------------------------- one call
enum class Outcome : uint8_t { Ok, Mismatch, Failed };

struct Frame {
  // Per argument: given or default; borrowed. Only reserved: its size() stays 0.
  StackVector<PyObject*, kUsualArguments> values;
  StackVector<uint64_t, 128> key;
  StackVector<Tensor*, 16> tensors;  // borrowed
  StackVector<Scalar, 8> scalars;
  StackVector<uint8_t, 8> scalar_is_float;
  StackVector<uint8_t, 8> scalar_types;  // NumberType
  StackVector<int64_t, 16> integers;     // run-time integers, in order
  StackVector<PyObject*, 4> objects;     // generators; borrowed
  StackVector<int32_t, 4> mutated;       // tensor slots
  StackVector<PyObject*, 8> owned;       // temporaries
  PyObject* out = nullptr;               // the `out=` argument
  bool any_requires_grad = false;
  bool overridden = false;      // some argument has its own __torch_function__
  bool offsets_in_key = false;  // what the overload said when the key was begun
  uint8_t flags = 0;            // TensorFlags of any tensor
  int bad_argument = -1;        // of a mismatch
  PyObject* bad_value = nullptr;
  const char* problem = nullptr;  // instead of a bad argument
  bool too_large = false;         // an integer needs more than 64 bits; no exception is set yet
  static constexpr uint32_t kMaxFitting = 4;
  uint32_t fitting_count = 0;
  Number fitting[kMaxFitting];  // numbers of arguments that must fit the result's dtype

  ~Frame() {
    for (size_t i = 0; i < owned.size(); ++i) drop(owned[i]);
  }
  // Keeps a new reference until the call ends; null on failure.
  PyObject* own(PyObject* stolen) {
    auto object = steal(stolen);
    if (!object || !owned.reserve(1)) return nullptr;
    owned.push(object.release());
    return stolen;
  }
  void reset() {
    key.clear(), tensors.clear(), scalars.clear(), scalar_is_float.clear(), scalar_types.clear();
    integers.clear(), objects.clear(), mutated.clear();
    any_requires_grad = overridden = false;
    flags = 0;
    bad_argument = -1, bad_value = nullptr, problem = nullptr, out = nullptr, too_large = false;
    fitting_count = 0;
  }
  Call call() {
    return {tensors.data(),
            static_cast<int32_t>(tensors.size()),
            scalars.data(),
            scalar_is_float.data(),
            static_cast<int32_t>(scalars.size()),
            objects.data(),
            static_cast<int32_t>(objects.size())};
  }
};

// op_arguments.cpp
bool overload_parse_spec(PyObject* spec, Overload* overload);
// Distributes a call's arguments over the schema. Mismatch: frame says why.
Outcome bind_any(const Op* op, const Overload& overload, Frame* frame, PyObject* const* args,
                 Py_ssize_t count, PyObject* kwnames);
inline Outcome bind_arguments(const Op* op, const Overload& overload, Frame* frame,
                              PyObject* const* args, Py_ssize_t count, PyObject* kwnames) {
  if (kwnames || count < overload.required || count > overload.positional) [[unlikely]] {
    return bind_any(op, overload, frame, args, count, kwnames);
  }
  const Argument* arguments = overload.arguments.data();
  const Py_ssize_t total = static_cast<Py_ssize_t>(overload.arguments.size());
  if (!frame->values.reserve(static_cast<size_t>(total))) [[unlikely]] {
    return Outcome::Failed;
  }
  for (Py_ssize_t i = 0; i < count; ++i) frame->values[i] = args[i];
  for (Py_ssize_t i = count; i < total; ++i) frame->values[i] = arguments[i].default_value;
  return Outcome::Ok;
}
// Checks kinds, converts, and writes the key.
Outcome parse_arguments(const Op* op, const Overload& overload, Frame* frame);
void raise_mismatch(const Op* op, const Overload& overload, const Frame& frame,
                    Py_ssize_t positional);
std::string signature_text(const Op* op, const Overload& overload);

// op_former.cpp: whether a call that fits no overload has a former order of arguments; what the
// call (or, where it only binds, `bind`) returns in today's order.
bool call_former(Op* op, PyObject* const* args, Py_ssize_t count, PyObject* kwnames, bool binds,
                 PyObject** result);

// op_values.cpp: numbers and lists of Python
// Failed where the frame says too_large: whoever knows the argument raises.
Outcome read_number(Frame* frame, PyObject* object, Number* out);  // no text, no list
Outcome read_real(Frame* frame, PyObject* object, Number* out);    // of any size, not complex
Outcome read_integer(Frame* frame, PyObject* object, int64_t* out);
bool check_fits(const Op* op, const Frame& frame, DType dtype);  // its numbers; else RuntimeError
bool is_plain_tensor_type(PyTypeObject* type, Override* kind);   // Tensor or subclass

// op_cache.cpp
// The instance of a call: exact cache, class cache, or built by Python. A new reference, for what
// runs next may empty the caches; null + exception.
Instance* find_instance(Op* op, Overload* overload, Frame* frame);
// The call as `build` sees it.
PyObject* describe_call(const Overload& overload, Frame* frame);
bool init_op_cache(PyObject* module);
void register_op(Op* op);
void unregister_op(Op* op);

// op_override.cpp
// The same below `__torch_function__`: dispatch modes, types with `__torch_dispatch__`.
PyObject* call_dispatch(PyObject* func, PyObject* const* args, Py_ssize_t count, PyObject* kwnames);
bool init_op_override(PyObject* module);

// op_out.cpp
PyObject* run_out(Op* op, Overload* overload, Frame* frame);
PyObject* copy_to_out(OutOption option, PyObject* result, PyObject* out);  // new reference to out
// Whether a tensor's elements have no gaps, and each has a place of its own.
bool is_dense(const Tensor* t);
bool copy_cast(Tensor* target, Tensor* source);  // same sizes; converts
// An in-place call whose target refers to one element several times, where the op allows that: the
// elements that change are written, the last one of several stays.
bool writes_repeated(const Overload& overload, const Frame& frame);
PyObject* run_repeated(Op* op, Overload* overload, Frame* frame);
PyObject* run_inplace(Op* op, Overload* overload, Frame* frame);  // op.cpp
bool separate_overlaps(const Op* op, Overload* overload, Frame* frame,
                       StackVector<Tensor*, 16>* originals, bool* changed);

// lists.cpp
bool init_lists(PyObject* module);

// op.cpp
PyObject* call_python(Overload* overload, Frame* frame);
PyObject* wrap_outputs(const Plan* plan, PyObject** outputs);  // steals the outputs

}  // namespace fb
