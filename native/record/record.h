// The recorded stream, as the files of `compile` see it: record.cpp appends and runs it, region.cpp
// gives its results a history of their own.
#pragma once
#include <algorithm>
#include <unordered_map>
#include <utility>

#include "plan/plan_cache.h"
#include "tape/tape.h"

namespace fb {

// A vector whose first N elements need no allocation: a region makes thousands of short lists.
template <typename T, int N>
class ShortList {
 public:
  ShortList() = default;
  ShortList(ShortList&& other) noexcept { take(&other); }
  ShortList& operator=(ShortList&& other) noexcept {
    if (this != &other) {
      release();
      take(&other);
    }
    return *this;
  }
  ~ShortList() { release(); }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  const T* data() const { return data_; }
  T* data() { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  void assign(size_t count, T value) {
    reserve(count);
    std::fill(data_, data_ + count, value);
  }
  template <typename Iterator>
  void assign(const Iterator* first, const Iterator* last) {
    reserve(static_cast<size_t>(last - first));
    std::copy(first, last, data_);
  }

 private:
  void reserve(size_t count) {
    if (count > N && count > size_) {
      release();
      data_ = new T[count];
    }
    size_ = count;
  }
  void release() {
    if (data_ != few_) delete[] data_;
    data_ = few_;
  }
  void take(ShortList* other) {
    size_ = other->size_;
    if (other->data_ == other->few_) {
      std::copy(other->few_, other->few_ + size_, few_);
    } else {
      data_ = std::exchange(other->data_, other->few_);
    }
    other->size_ = 0;
  }
  T few_[N];
  T* data_ = few_;
  size_t size_ = 0;
};

struct Value {
  enum Kind : uint8_t { External, New, Alias, Write } kind;
  int32_t state;   // index into Recorder::states
  int32_t source;  // External: slot; Alias: viewed value; Write: value before
  DType dtype;
  Device device;
  ShortList<int64_t, 8> geometry;  // sizes, strides
  int64_t offset;
};

struct StorageState {
  Storage* storage;     // owned
  int32_t latest;       // newest value that covers what was written
  int32_t slots = 0;    // external tensors over it
  int32_t copies = -1;  // newest of Recorder::copies of it
  bool written = false;
  bool fresh = false;  // made by this stream
};

struct Record {
  Instance* instance;  // owned
  ShortList<int32_t, 6> operands;
  ShortList<int32_t, 2> results;
  ShortList<Scalar, 2> scalars;
  ShortList<uint8_t, 8> scalar_is_float;
  ShortList<PyObject*, 1> objects;  // owned
  int32_t forward = -1;             // a backward: the record whose registers its integers are
};

// What memory that others may write to held when an op read it: an external of the stream.
struct OutsideCopy {
  int32_t value;
  int32_t
      original;  // value of the tensor itself, which a later backward reads; -1 without gradient
  int32_t next;  // another copy of the same storage, -1: none
};

// Elements of an index that are right: [low, high), and perhaps one value.
struct IndexRange {
  int64_t low, high;
  bool exempts;
  int64_t exempt;
};
// An index that was looked at in a dry run: whose operand it is.
struct LookedAt {
  size_t record;
  int32_t slot;
  IndexRange range;
};
// A mask whose true elements were counted in a dry run.
struct CountedMask {
  Ref<Tensor> mask;
  int64_t count;
};
int64_t true_elements(const Tensor* mask);  // of a contiguous mask in host memory
PyObject* record_count_true(PyObject*, PyObject* mask);

struct Recorder {
  std::vector<Record> records;
  std::vector<Value> values;
  std::vector<StorageState> states;
  std::vector<Tensor*> externals;  // owned
  std::vector<OutsideCopy> copies;
  std::vector<LookedAt> looked;      // in a dry run
  std::vector<CountedMask> counted;  // as well
  std::vector<Storage*> writes;      // in a dry run: memory from outside, once per write, borrowed
  std::unordered_map<Storage*, int32_t> state_of;
  uint32_t epoch = 0;
  int depth = 0;
  RecordPlace forward;               // of the next call, see record_backward_of
  std::vector<Tensor*> taped;        // owned: results that got a history, see region.cpp
  uint64_t first_sequence = 0;       // nodes from this one on are of this stream
  bool tuned = false;                // its plans' candidates are measured
  uint8_t frozen = 0;                // 1: weights are constants of its plans; 2: and discarded
  double budget = -1;                // of memory for activations; negative: the setting's
  bool kept = false;                 // a region is over, but its tape may ask for inner values
  std::vector<uint32_t> versions;    // of the externals, when it was kept
  unsigned long flusher = 0;         // the thread that is flushing it now
  Recorder* next_flushed = nullptr;  // another one that is being flushed
  bool interrupted = false;  // forked while it was being flushed, by a thread that is not here
  int32_t references = 1;    // its region, or the node that has it; whoever flushes it
  bool symbolic = false;     // what is called now is the backward of what was recorded
  bool appended = false;     // the newest call is its last record
  bool written = false;      // a call writes to memory from outside of the stream
  bool outside = false;      // in a dry run: it reads memory of others, which calls read as copies
  bool lasting = false;      // calls of sealed scopes reach memory of others: run at their end
  int rereads = 0;           // flushes of this region that reads of memory of others asked for
  int sealed = 0;            // scopes without code of users, see recording.record_sealed
  bool learning = false;     // a dry run of a frame (native/frame): nothing of it may run
  bool refused = false;      // something had to: the dry run explains nothing
};

// record_call.cpp
bool record_resolve(Recorder* r, Tensor* t, int32_t* id);  // false: not part of the stream
// record_faults.cpp
enum class Certainty : uint8_t { Right, Pending, Unknown, Wrong };
// Whether the data of a call let it run, as far as can be told without running it.
Certainty certainty_of(Recorder* r, const Instance* instance, const Call& call);
// Notes the indices of a call of a dry run, which is appended next. False: its run decides.
bool record_note_indices(Recorder* r, const Instance* instance, const Call& call);
bool indices_inside(const Tensor* t, const IndexRange& range);  // t is of integers, and computed

// record.cpp
void record_forget(Recorder* r);   // ends the stream; runs nothing
void record_release(Recorder* r);  // gives up a reference
// Waits while another thread flushes it.
void record_wait(const Recorder* r);
bool record_flushed_elsewhere(const Recorder* r);
// Whether an interrupted flush can be made again: nothing outside of the stream was changed by it.
// Else an exception is set.
bool record_resume_flush(Recorder* r);

// Its values are being computed by this thread: others wait, nothing is recorded, and it lives on.
class Flushing {
 public:
  explicit Flushing(Recorder* r);
  ~Flushing();
  Flushing(const Flushing&) = delete;
  Flushing& operator=(const Flushing&) = delete;

 private:
  Recorder* r_;
  Recorder* previous_;
};

void record_drop_taped(Recorder* r);
int32_t tensor_symbols(const Record& record, const Recorder* r);  // how many its tensors have
// record_describe.cpp: a RecordedStream; with_numbers: records have their numbers' values, too.
PyObject* describe_stream(const Recorder* r, const std::vector<int32_t>& live, bool with_numbers);
// The stream's plan at its sizes, made by `build` (null: as usual) where there is none; `more`
// tells plans of the same stream apart. New reference; null without exception: there is no plan,
// which is remembered, too.
Instance* record_instance(const Recorder* r, const std::vector<int32_t>& live,
                          const PlanCache::Key& more, PyObject* (*build)(void* context),
                          void* context);
// Runs it; *outputs: all its results, owned, also after a failure.
bool record_run(Recorder* r, Instance* instance, const std::vector<int32_t>& live,
                std::vector<PyObject*>* outputs);

// Values that must reach memory, in the order of their storages.
std::vector<int32_t> record_live(const Recorder* r);
// The stream's plan at its sizes where it was run before; new reference, or null without exception.
Instance* record_lookup(const Recorder* r, const std::vector<int32_t>& live,
                        const PlanCache::Key& words);
// Begins a dry run, whose calls are appended and never run; ends it, and forgets what it recorded.
void record_learn();
void record_forget_learnt();
extern bool flush_watched;
inline bool record_watched() { return flush_watched; }  // somebody counts on every flush
extern int64_t stream_changes;
// How often all streams, or explanations of calls, were forgotten.
inline int64_t record_changes() { return stream_changes; }
int64_t record_builds();   // streams compiled so far
int64_t record_flushes();  // how often streams ran

// A generator of its own that stands where this one does (None: the default one). New reference;
// null + exception. random_binding.cpp
PyObject* generator_copy(PyObject* object);

// region.cpp
enum class RegionEnd { Plain, Done, Failed };
// Runs the stream of a region whose results need a gradient, and gives them one node. Plain: the
// stream has to be run as it is. After Done the recorder belongs to the node.
RegionEnd region_finish(Recorder* r);
bool region_recompute(Recorder* r, const char* reason);
bool init_region(PyObject* module);

}  // namespace fb
