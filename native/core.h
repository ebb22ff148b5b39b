// The interface of Flambeau's native core: every structure that more than one file touches.
//
// Data flows:  Op::call -> key -> Instance (exact cache) -> run -> Tensor(s) + one tape Node.
// On a miss:   class key -> Plan candidates -> guards -> Instance;  else Python builds a Plan.
//
// Files:  storage.cpp (allocator) · tensor.cpp, tensor_attributes.cpp (the type) · interop.cpp
//   (NumPy, DLPack, Python values) · plan.cpp (size program, instances, execution) · op.cpp
//   (argument parsing, keys, caches) · threads.cpp (pool) · routines.cpp (native routines: sort,
//   search, ...) · random.cpp · tape.cpp, engine.cpp (autograd) · record.cpp (op stream) ·
//   outside.cpp (memory that others reach) · module.cpp.
// All functions require the GIL unless they say otherwise. Errors: Python exception set, then
// nullptr / false / -1 returned (no C++ exceptions cross a file boundary).
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "device/device_runtime.h"
#include "ref.h"
#include "tensor/dtypes.h"

// Declarations are hidden too, not only definitions: calls between files then need no PLT.
#pragma GCC visibility push(hidden)
namespace fb {

// ---------------------------------------------------------------- dtypes and devices
// The numbers are frozen: they are written to keys, caches and files.
enum class DType : uint8_t {
#define FB_ENUMERATOR(id, ...) id,
  FB_DTYPES(FB_ENUMERATOR)
#undef FB_ENUMERATOR
};
enum class NumberKind : uint8_t { Bool = 0, Integer = 1, Floating = 2, Complex = 3 };
struct DTypeInfo {
  const char* name;
  const char* alias;  // second public name, or null
  const char* ir_name;
  const char* abbreviation;
  const char* title;  // in messages: "ComplexFloat"
  NumberKind kind;
  int64_t item_size;
  const char* array_type;  // of the array protocol, without byte order; null: NumPy has none
  uint8_t dlpack_code;
  bool is_signed;
};
inline constexpr DTypeInfo kDTypes[] = {
#define FB_ROW(id, name, alias, ir, abbreviation, title, kind, size, array, code, is_signed) \
  {name, alias, ir,   abbreviation, title, static_cast<NumberKind>(kind),                    \
   size, array, code, is_signed},
    FB_DTYPES(FB_ROW)
#undef FB_ROW
};
constexpr int kDTypeCount = static_cast<int>(sizeof kDTypes / sizeof kDTypes[0]);
constexpr const DTypeInfo& dtype_info(DType t) { return kDTypes[static_cast<int>(t)]; }
inline int64_t item_size(DType t) { return dtype_info(t).item_size; }
// Python object of a dtype (`flambeau.float32`), borrowed; module.cpp/tensor.cpp own the table.
PyObject* dtype_object(DType t);
// An int that fits in 64 bits; else ValueError. (size.cpp)
bool parse_int64(const char* op, PyObject* object, int64_t* out);
// Parses a Python dtype object; false + TypeError when it is none.
bool dtype_from_object(PyObject* object, DType* out);

// constinit and the initial-exec model make an access one instruction instead of a function call.
#define FB_THREAD_LOCAL __attribute__((tls_model("initial-exec"))) thread_local

struct Device {
  uint8_t kind = 0;   // number in the table of devices (device/devices.h); 0: host memory
  int8_t index = -1;  // -1: no index
};
constexpr bool on_host(Device device) { return device.kind == 0; }
PyObject* device_object(Device device);                  // new reference
bool device_from_object(PyObject* object, Device* out);  // device, str or int
extern constinit FB_THREAD_LOCAL Device default_device_value;
inline Device default_device() { return default_device_value; }  // where new tensors are allocated
extern DType default_dtype_value;
inline DType default_dtype() { return default_dtype_value; }           // what Python floats become
inline const char* dtype_name(DType t) { return dtype_info(t).name; }  // "float32"
inline bool is_complex(DType t) { return dtype_info(t).kind == NumberKind::Complex; }
inline bool is_floating(DType t) { return dtype_info(t).kind == NumberKind::Floating; }
inline bool is_integral(DType t) { return dtype_info(t).kind <= NumberKind::Integer; }  // and Bool
DType to_real(DType t);
DType to_complex(DType t);
DType promote_types(DType a, DType b);
// Whether there is a dtype for both: not for the float8 types and the wide unsigned integers.
bool can_promote(DType a, DType b);
// Type promotion over operands: a lower category only matters when its kind (bool, integral,
// floating, complex) is higher. A Python number has the dtype of its type (int -> I64,
// float -> default dtype, ...).
enum class OperandCategory : uint8_t { Dimensioned = 0, ZeroDim = 1, Number = 2 };
DType result_type(int count, const OperandCategory* categories, const DType* dtypes);

// ---------------------------------------------------------------- storage and its allocator
struct Recorder;
struct PackedEntry;
struct Storage {
  std::atomic<int64_t> references{1};
  void* data = nullptr;  // 64-byte aligned when allocated here; null while pending or empty
  int64_t nbytes = 0;
  uint32_t version = 0;  // bumped by every in-place write; shared by all views
  Device device;
  bool pending = false;  // recorded by a Recorder, not computed yet: data is null
  bool resizable = true;
  bool alone = false;            // foreign memory, but nobody else can reach it
  bool parameter = false;        // of a parameter
  bool discarded = false;        // `pending` for good: a frozen program has what was here
  bool reached = false;          // its address was handed out, see outside.cpp
  int32_t exports = 0;           // objects of others that read and write `data` whenever they like
  uint64_t writes = 0;           // after every write to `data`, also those that no version counts
  Recorder* recorder = nullptr;  // set while pending
  Recorder* writer = nullptr;    // not pending: set while a recorded write has not run
  void (*release)(void* context) = nullptr;  // foreign memory (NumPy, DLPack, shared memory)
  void* release_context = nullptr;
  PackedEntry* packed = nullptr;  // prepacked.cpp
};
Storage* storage_new(int64_t nbytes, Device device);  // caching allocator; null + MemoryError
// Dry run: plans are compiled and give their outputs, but nothing is launched; fresh memory is
// zero, so that what reads it meets valid indices and the same values every time.
extern bool dry_run;
Storage* storage_pending(int64_t nbytes, Device device, Recorder* recorder);  // no memory yet
Storage* storage_foreign(void* data, int64_t nbytes, void (*release)(void*), void* context);
void storage_incref(Storage* storage);
void storage_decref(Storage* storage);
template <>
struct Counting<Storage> {
  static void add(Storage* storage) { storage_incref(storage); }
  static void drop(Storage* storage) { storage_decref(storage); }
};
bool storage_allocate(Storage* storage);  // gives a pending/empty storage its memory
// Raw blocks from the same caching allocator (plan arenas). No GIL needed.
void* block_allocate(int64_t nbytes);  // null when memory is exhausted (no exception set)
void block_free(void* block, int64_t nbytes);
// Fresh memory from the system, in huge pages where they exist, so that it is physically
// contiguous. `nbytes`: a multiple of kHugePage. Null when memory is exhausted.
constexpr int64_t kHugePage = int64_t{2} << 20;
char* map_huge_pages(int64_t nbytes);
PyObject* memory_stats(PyObject*, PyObject*);
PyObject* memory_snapshot(PyObject*, PyObject*);

// ---------------------------------------------------------------- tensors
struct Node;
struct Tensor;
struct Autograd {             // only for tensors that autograd has touched
  Tensor* grad = nullptr;     // owned
  Node* node = nullptr;       // owned: grad_fn; null for leaves
  uint32_t output_index = 0;  // which output of node this tensor is
  Node* accumulator =
      nullptr;  // borrowed: AccumulateGrad node of a leaf (it clears this when it dies)
  bool requires_grad = false;  // leaves
  bool retains_grad = false;
  Tensor* base = nullptr;     // owned: differentiable views know their base
  uint32_t view_version = 0;  // storage version at which `node` is valid for a view
  uint8_t view_creation = 0;  // ViewCreation (tape.h): how a differentiable view came about
  PyObject* hooks = nullptr;  // owned dict id -> callable, tensor hooks
  PyObject* post_accumulate_hooks = nullptr;
  // Recycled (tape.cpp): every recorded result gets one.
  static void* operator new(size_t bytes, const std::nothrow_t&) noexcept;
  static void operator delete(void* block) noexcept;
};

enum TensorFlags : uint8_t {
  kInference = 1,   // created under inference_mode
  kIsView = 2,      // result of a view op
  kContiguous = 4,  // cached: row-major dense (size-1 dimensions ignored)
  kPythonType = 8,  // exact type is not the base Tensor type
  kConjugate = 16,  // the elements are the conjugates of what memory holds
  kNegative = 32,   // the elements are the negatives of what memory holds
};
constexpr uint8_t kLazy = kConjugate | kNegative;

// Counts the writes to tensors that share memory with others, but not their history: `x.data` and
// its views, a tensor that was set to memory of another.
struct WriteCount {
  int64_t references = 1;
  uint32_t version = 0;
};

constexpr int kInlineDims = 5;
constexpr int kMaxDims = 64;
struct Tensor {
  PyObject_HEAD Storage* storage;
  int64_t offset;  // in elements
  int64_t numel;
  DType dtype;
  Device device;
  uint8_t ndim;
  uint8_t flags;
  int64_t* dims;  // sizes[ndim], then strides[ndim]; points at inline_dims when ndim <= kInlineDims
  int64_t inline_dims[2 * kInlineDims];
  Autograd* autograd;
  WriteCount* count;  // owned; null: the storage's `version` counts
  int32_t value_id;   // identity inside storage->recorder / the active Recorder, -1 when none
  uint32_t record_epoch;
  PyObject* dict;
  PyObject* weakrefs;

  const int64_t* sizes() const { return dims; }
  const int64_t* strides() const { return dims + ndim; }
  char* data() const { return static_cast<char*>(storage->data) + offset * item_size(dtype); }
  uint32_t& version() const { return count ? count->version : storage->version; }
};
extern PyTypeObject* TensorType;  // heap type: Python installs methods as attributes
inline bool is_exact_tensor(PyObject* o) { return Py_TYPE(o) == TensorType; }
bool is_tensor(PyObject* o);  // exact or subclass
inline PyObject* object_of(Tensor* t) { return reinterpret_cast<PyObject*>(t); }
inline Tensor* tensor_of(PyObject* o) { return reinterpret_cast<Tensor*>(o); }
// New tensor over `storage` (reference stolen). sizes/strides are copied. strides may be null:
// contiguous. Never touches autograd.
Tensor* tensor_new(Storage* storage, DType dtype, Device device, int ndim, const int64_t* sizes,
                   const int64_t* strides, int64_t offset);
Tensor* tensor_empty(DType dtype, Device device, int ndim, const int64_t* sizes);
// Alias with its own geometry (storage shared), no autograd.
Tensor* tensor_alias(Tensor* source, DType dtype, int ndim, const int64_t* sizes,
                     const int64_t* strides, int64_t offset);
Tensor* tensor_detach(Tensor* source);
// The same for calls of users: dispatch modes see them.
Tensor* tensor_detach_shown(Tensor* source);
PyObject* tensor_item_shown(Tensor* t);
// `flambeau.ops.indexing.pending.<name>(object)`, which resolves views of conjugates and negatives.
PyObject* call_conjugate(const char* name, PyObject* object);
// Writes to either are counted for both; or t's own are, from `version` on (false + MemoryError).
void tensor_share_count(Tensor* t, const Tensor* source);
bool tensor_count_on(Tensor* t, uint32_t version);
PyObject* size_object(int ndim, const int64_t* sizes);  // new `Size` tuple
bool tensor_contiguous(const Tensor* t);
// Makes sure storage->data is there and what it should be: flushes the recorder that owes it, or a
// write to it. False + exception.
bool tensor_materialise(Tensor* t, const char* reason);
// Runs what is recorded, before a tensor becomes another one: records hold operands by reference.
bool settle_stream(const char* reason);
Autograd* tensor_autograd(Tensor* t);        // creates on demand
bool tensor_requires_grad(const Tensor* t);  // leaf flag, or has a node
void tensor_bump_version(Tensor* t);
// Checked size arithmetic: -1 + RuntimeError on overflow or negative size.
int64_t checked_numel(int ndim, const int64_t* sizes);
// IEEE conversions of the half types, round to nearest even (interop.cpp).
uint16_t float_to_half(float value);
inline float half_to_float(uint16_t bits) {
  // The exponent moves by a multiplication, which also normalises subnormals.
  const float moved = std::bit_cast<float>((bits & 0x7fffu) << 13) * 0x1p112f;
  const uint32_t infinite = (bits & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0u;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(moved) | infinite | (bits & 0x8000u) << 16);
}
uint16_t float_to_bfloat16(float value);
inline float bfloat16_to_float(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}
// The floating-point types of eight bits; other dtypes give 0.
uint8_t float_to_minifloat(DType t, float value);
float minifloat_to_float(DType t, uint8_t code);
// Python scalar -> element and back (interop.cpp).
bool store_scalar(void* at, DType dtype, PyObject* value);
PyObject* load_scalar(const void* at, DType dtype);

// Runs a body that may grow containers; false when memory is exhausted (no exception is set).
bool run_growth(void (*body)(void*), void* context);
template <typename Body>
bool grow(Body body) {
  return run_growth([](void* context) { (*static_cast<Body*>(context))(); }, &body);
}

// ---------------------------------------------------------------- threads
int get_num_threads();
void set_num_threads(int n);
// Calls body(context, begin, end, worker) over [0, count) in pieces of >= grain; worker indices are
// < get_num_threads(). Runs inline when count <= grain, one thread, or already inside a worker.
// No GIL needed; never throws.
void parallel_for(int64_t count, int64_t grain,
                  void (*body)(void* context, int64_t begin, int64_t end, int worker),
                  void* context);
// 64-byte aligned scratch of this worker, reused between calls; null when memory is exhausted.
void* worker_scratch(int worker, int64_t nbytes);

// ---------------------------------------------------------------- random generators
class Generator;  // random.h
// Generator behind a Python generator object; null or None: the default one. null + TypeError.
Generator* generator_of(PyObject* object);

// ---------------------------------------------------------------- size program
enum class SizeOp : uint8_t {
  Const = 0,
  Add = 1,
  Sub = 2,
  Mul = 3,
  FloorDiv = 4,
  Mod = 5,
  Min = 6,
  Max = 7,
  Eq = 8,
  Ne = 9,
  Lt = 10,
  Le = 11,
  And = 12,
  Or = 13,
  Not = 14,
};
struct SizeInstruction {
  SizeOp op;
  int64_t a, b;
};
// Registers [0, inputs) are the inputs; each instruction appends one.
struct SizeProgram {
  int32_t inputs = 0;
  std::vector<SizeInstruction> code;
  int64_t registers() const { return inputs + static_cast<int64_t>(code.size()); }
  // False when a division by zero or an overflow happens (values are then unspecified).
  bool run(int64_t* registers_inout) const;
};

// ---------------------------------------------------------------- kernels and plans
RoutineFunction find_routine(const char* name);

struct BufferSpec {
  enum Kind : uint8_t { Input, Output, Temporary, Generator, Error } kind;
  int32_t index;        // Input: tensor slot; Output: output number; Generator: object slot or -1
  int32_t nbytes;       // Temporary: register of the byte count (execution program)
  int32_t first, last;  // Temporary: first and last launch that touches it (arena planning)
  int32_t shares;       // Temporary: the one whose memory it takes over if it is as large; or -1
  ErrorKind error;      // Error: its exception
  std::string message;  // Error: text with {value} {size} {dimension}
};
struct ScalarSource {
  enum Kind : uint8_t { Argument, Constant } kind;
  bool as_float;  // convert the argument to double, else to int64
  int32_t index;  // Argument: scalar slot
  Scalar constant;
};
struct BlockProgram;  // baseline/block_program.h
struct Launch {
  KernelFunction kernel = nullptr;              // of a program: what runs block programs
  std::shared_ptr<const BlockProgram> program;  // on the baseline tier
  RoutineFunction routine = nullptr;
  std::string name;
  std::vector<int32_t> buffers;  // indices into Plan::buffers
  std::vector<int32_t> offsets;  // per buffer: register of a byte offset, or -1
  std::vector<int32_t> sizes;    // registers
  std::vector<ScalarSource> scalars;
  int32_t chunks = -1;           // register: number of chunks (kernels)
  int32_t work = -1;             // register: estimated nanoseconds of the whole launch, -1 unknown
  int32_t scratch = -1;          // register: scratch bytes per worker, -1 none
  int32_t group = -1;            // launches of equal group >= 0 in a row are independent
  int32_t flops = -1;            // register: floating-point operations, -1 none (for profiles)
  int32_t elements = -1;         // register: points of the loops, -1 unknown (for profiles)
  std::vector<int32_t> traffic;  // per buffer: bytes per point at most, 1 (read) + 2 (written)
  // A launch that packs an input: positions in `buffers`, a register (bytes that are written for
  // the cache only), a number for the kernel. -1: another launch; no such bytes
  int32_t packs_from = -1, packs_to = -1, spare = -1;
  int64_t packing_kernel = 0;
};
struct OutputSpec {
  enum Kind : uint8_t { New, Alias, Input, None } kind;
  int32_t input;  // Alias, Input: tensor slot
  DType dtype;
  Device device;
  bool own_device = false;   // New: `device` was given; else that of the first tensor
  bool tracked = true;       // what it depends on may require a gradient
  bool adds_offset = false;  // Alias: registers hold it without the input's storage offset
  std::vector<int32_t> sizes, strides;  // registers (metadata program)
  int32_t offset = -1;  // Alias: register, elements (absolute, includes the input's offset)
  int32_t nbytes = -1;  // New: register
};
struct Source {  // where an argument of the backward op comes from
  enum Kind : uint8_t {
    SavedInput,
    SavedOutput,
    GradOutput,
    HeldGradient,  // the gradient accumulated so far for edge `index`, to which a result is added
    Register,
    ScalarArgument
  } kind;
  int32_t index;
};
struct BackwardSpec {
  PyObject* op = nullptr;         // owned: the derived _core.Op
  std::vector<Source> arguments;  // in the order of op's schema
  std::vector<int32_t> targets;   // tensor slots, or edges, that its results go to
  int32_t edges = 0;              // how many of these there are
  std::string name;               // "SoftplusBackward"
};
// A `check_index` whose indices are an argument as it is: see driver/faults.py.
struct IndexCheck {
  enum Exempt : uint8_t { None, Constant, Number };
  // Tensor slot, metadata register; -1: the last `size` bits of number `value` must not be 0.
  int32_t slot, size;
  bool strict;    // negative ones are wrong, too
  Exempt exempt;  // which value is right in any case: `value`, or the number in that slot
  int64_t value;
};
// Of an integer output: its elements are below register `size` and not negative, or (-1) they are
// elements of the tensor in `slot`, or (-1, too) they are below number `high` and not below number
// `low` (-1: 0).
struct IndexBound {
  int32_t output, size, slot, high, low;
};
enum class ReturnKind : uint8_t { Single, Tuple, List, Nothing, Structseq };

// The code of a Plan, read from an Execution: immutable, counted (under the GIL). A Plan holds it,
// and each Instance that is prepared for it: a Plan may get other code while runs of this go on.
struct PlanCode {
  int64_t references = 1;
  PyObject* record = nullptr;  // owned: the Execution; it holds the objects behind addresses
  SizeProgram program;         // inputs: all registers of `Plan::metadata`
  std::vector<BufferSpec> buffers;
  std::vector<Launch> launches;
  std::vector<int32_t> written;  // tensor slots that launches write to
  bool awaits = false;           // other code for it is awaited: see plan/tier.h
  bool hot = false;              // it took so long that it was reported
  int64_t nanoseconds = 0;       // that its runs took, if other code is awaited
};
template <>
struct Counting<PlanCode> {
  static void add(PlanCode* code) { ++code->references; }
  static void drop(PlanCode* code) {
    if (--code->references > 0) return;
    fb::drop(code->record);
    delete code;
  }
};

class PlanCache;  // plan/plan_cache.h

struct Plan {  // one class of calls; immutable but for its code
  PyObject_HEAD std::string name;
  int32_t tensors = 0, numbers = 0, generators = 0;  // slots of its calls
  int32_t computed = 0;             // slots of its launches behind `tensors`: values of `constants`
  SizeProgram metadata;             // inputs: the call's symbols (see op.cpp)
  std::vector<int32_t> guards;      // metadata registers that must be non-zero
  std::vector<OutputSpec> outputs;  // visible ones first, then those saved only for backward
  int32_t visible = 0;
  std::vector<int32_t> mutated;  // tensor slots written in place
  ReturnKind returns = ReturnKind::Single;
  PyObject* return_type = nullptr;  // structseq type
  std::unique_ptr<BackwardSpec> backward;
  PlanCode* code = nullptr;        // owned: null until it is compiled
  PyObject* spec = nullptr;        // owned: the PlanSpec it was read from
  PyObject* compile = nullptr;     // owned: () -> Execution, called before the first run
  PyObject* graph = nullptr;       // owned: the Python Graph, or what traces it
  PyObject* origin = nullptr;      // owned: what Python knows of it, which goes with it
  PyObject* constants = nullptr;   // owned: of a frozen program, see plan/constants.cpp
  PyObject* call = nullptr;        // owned: whose call it is of, for the names of its nodes
  PyObject* view = nullptr;        // owned: how Python sees its nodes, see node_view.cpp
  PlanCache* cache = nullptr;      // what leads to its Instances
  std::vector<IndexCheck> checks;  // bounds of index arguments' data; `faults`: other errors
  bool faults = false;
  std::vector<IndexBound> bounds;
  uint64_t id = 0;                // unique; recorded streams refer to it
  bool offset_sensitive = false;  // uses a storage offset other than by adding it to an alias's
  bool has_device = false;        // some output names its own device
  bool has_views = false;         // some visible output is an Alias
  bool copies_overlaps = false;   // with `out=` whatever the operator's rule says
  int64_t arena_bytes = 0, arena_least = 0;  // of the Instance that was prepared last
  bool chooses = false;    // its one result has elements of the first tensor alone
  bool elsewhere = false;  // it runs, or an operand is, on a device other than the host
  Device place;            // where it runs
};
extern PyTypeObject* PlanType;

struct ReadyLaunch {  // a launch with its registers read
  const Launch* launch;
  const int64_t* sizes;           // what the kernel gets as n
  const int64_t* offsets;         // byte offset per buffer; null: all 0
  int64_t chunks, work, scratch;  // work: nanoseconds, never -1
  int32_t packing = -1;           // number in Instance::packings
};

struct Instance {  // a plan at concrete sizes; counted (under the GIL)
  int64_t references = 1;
  Plan* plan;                      // owned
  PlanCode* code = nullptr;        // owned: what it is prepared for; null until then
  std::vector<int64_t> registers;  // metadata registers, then (after prepare) execution registers
  std::vector<int64_t> arena_offsets;  // per buffer
  int64_t arena_bytes = 0;
  int64_t arena_least = 0;  // bytes alive at once: no layout needs fewer
  uint64_t id = 0;
  std::vector<int64_t> geometry;   // per output: sizes, strides, then offset (Alias) or bytes (New)
  std::vector<ReadyLaunch> ready;  // those that have something to do
  std::vector<size_t> packings;    // which of them pack an input
  std::vector<int64_t> launch_values;  // what ReadyLaunch points into
  int64_t total_work = 0;
  bool simple = false;  // few short kernels: no threads, no allocation
};
// Runs the metadata program on `symbols`; null without exception when it overflows or a guard
// fails.
Instance* instance_new(Plan* plan, const int64_t* symbols, int32_t count);
// The same at the same sizes, to be prepared for the plan's present code.
Instance* instance_renewed(const Instance* instance);
// Finds out how a freshly built plan uses the symbols of its tensors' storage offsets (one symbol
// number per tensor slot): sets adds_offset of outputs and offset_sensitive.
void plan_analyse_offsets(Plan* plan, const int32_t* offset_symbols, int32_t slots);
inline void instance_incref(Instance* instance) { ++instance->references; }
void instance_decref(Instance* instance);
template <>
struct Counting<Instance> {
  static void add(Instance* instance) { instance_incref(instance); }
  static void drop(Instance* instance) { instance_decref(instance); }
};

struct Call {        // one normalised call, on the stack of Op::call
  Tensor** tensors;  // flattened tensor slots (lists expanded); null: absent optional
  int32_t tensor_count;
  Scalar* scalars;  // run-time scalars; `scalar_is_float` selects the member
  uint8_t* scalar_is_float;
  int32_t scalar_count;
  PyObject** objects;  // generators
  int32_t object_count;
};
// Executes: allocates, launches. outputs: plan.outputs.size() entries, null on entry, new
// references after it (null for None). A New output that is set on entry (`out=`) is written where
// it is.
bool plan_run(Instance* instance, const Call& call, PyObject** outputs);
bool plan_compile(Plan* plan);              // runs plan->compile once
bool instance_prepare(Instance* instance);  // execution registers and arena

// ---------------------------------------------------------------- ops
struct Op;  // op.cpp; a Python callable
extern PyTypeObject* OpType;
// Calls an op with an argument vector (borrowed), no keyword arguments; new reference.
PyObject* op_call(PyObject* op, PyObject* const* args, Py_ssize_t count);
void plan_cache_counts(int64_t* exact_hits, int64_t* class_hits, int64_t* builds, int64_t* entries,
                       int64_t* plans);

// ---------------------------------------------------------------- autograd
struct GradMode {
  bool enabled = true;
  bool inference = false;
};
extern constinit FB_THREAD_LOCAL GradMode grad_mode;
// Records one node for a call whose plan has a backward and mutates nothing; sets autograd of
// outputs.
bool tape_record(const Instance* instance, const Call& call, PyObject** outputs);
// In-place bookkeeping: checks before the call; history rewrite after it, in place of tape_record
// (op.cpp has bumped the version, and calls the second one under grad mode only).
bool tape_check_inplace(Tensor* target);
bool tape_check_inference(const Tensor* target);  // of anything that is written
bool tape_after_inplace(Tensor* target, const Instance* instance, const Call& call,
                        PyObject** outputs);
// Marks `view` as differentiable view of `base` (called for Alias outputs in grad mode).
// single: the call gave no other view that a write to this one must not reach (`tensor_split`).
bool tape_mark_view(Tensor* view, Tensor* base, bool single);
// The node (grad_fn) that produces t's gradient edge; regenerated for stale views. Borrowed or
// null.
Node* tape_gradient_node(Tensor* t, uint32_t* output_index);
// That node as `grad_fn` shows it; new reference.
PyObject* tape_shown_node(Node* node, uint32_t output_index);

// ---------------------------------------------------------------- recording (capture)
extern constinit FB_THREAD_LOCAL Recorder* active_recorder;
// Appends a call to the active recorder instead of running it; fills outputs with pending tensors.
bool record_call(Instance* instance, const Call& call, PyObject** outputs);
bool record_learning();  // a dry run is active
// In a dry run a write to memory from outside is only noted; false: it is one to be counted.
bool record_notes_write(const Tensor* t);
bool record_flush(Recorder* recorder, const char* reason);
// Whether records since the last flush draw random numbers.
bool record_draws(const Recorder* recorder);
// Makes sure that a pending storage is computed, if need be by waiting for another thread.
bool record_settle(Storage* storage, const char* reason);
// Memory that is shared with the outside (outside.cpp). Others may write there (read there) at any
// time: a recorded op reads it (writes to it) when it is called.
bool others_reach(Storage* storage);
// Runs what this thread has recorded over a storage. False + exception.
bool record_settle_reads(Storage* storage, const char* reason);
// Exports the memory, until storage_take_back, or its address: the calls that this thread has
// recorded on it run first. False + exception.
bool storage_export(Storage* storage, const char* reason);
void storage_take_back(Storage* storage, bool written);
bool storage_give_address(Storage* storage);
// Records the calls of a scope of native code (backward of a compiled forward) of its own.
void record_enter();
bool record_leave(const char* reason);  // preserves an exception that is set

// ---------------------------------------------------------------- module initialisation
bool init_dtype(PyObject* module);
bool init_storage(PyObject* module);
bool init_tensor(PyObject* module);
bool init_interop(PyObject* module);
bool init_threads(PyObject* module);
bool init_plan(PyObject* module);
bool init_op(PyObject* module);
bool init_routines(PyObject* module);
bool init_lapack(PyObject* module);
bool init_random(PyObject* module);
bool init_tape(PyObject* module);
bool init_record(PyObject* module);
bool init_block_functions(PyObject* module);

}  // namespace fb
#pragma GCC visibility pop
