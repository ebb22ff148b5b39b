// The recorded stream, as the files of `compile` see it: record.cpp appends and runs it, region.cpp
// gives its results a history of their own.
#pragma once
#include <unordered_map>

#include "tape.h"

namespace fb {

struct Value {
  enum Kind : uint8_t { External, New, Alias, Write } kind;
  int32_t state;   // index into Recorder::states
  int32_t source;  // External: slot; Alias: viewed value; Write: value before
  DType dtype;
  Device device;
  std::vector<int64_t> geometry;  // sizes, strides
  int64_t offset;
};

struct StorageState {
  Storage* storage;     // owned
  int32_t latest;       // newest value that covers what was written
  int32_t slots = 0;    // external tensors over it
  bool written = false;
  bool fresh = false;   // made by this stream
};

struct Record {
  Instance* instance;  // owned
  std::vector<int32_t> operands, results;
  std::vector<Scalar> scalars;
  std::vector<uint8_t> scalar_is_float;
  std::vector<PyObject*> objects;  // owned
  int32_t forward = -1;            // a backward: the record whose registers its integers are
};

struct Words {
  std::vector<uint64_t> words;
  bool operator==(const Words& other) const { return words == other.words; }
};
struct WordsHash {
  size_t operator()(const Words& key) const {
    uint64_t h = 0x9E3779B97F4A7C15ull;
    for (uint64_t w : key.words) h = (h ^ w) * 0xff51afd7ed558ccdull, h ^= h >> 32;
    return h;
  }
};

struct Recorder {
  std::vector<Record> records;
  std::vector<Value> values;
  std::vector<StorageState> states;
  std::vector<Tensor*> externals;  // owned
  std::unordered_map<Storage*, int32_t> state_of;
  uint32_t epoch = 0;
  int depth = 0;
  RecordPlace forward;        // of the next call, see record_backward_of
  std::vector<Tensor*> taped;  // owned: results that got a history, see region.cpp
  uint64_t first_sequence = 0;  // nodes from this one on are of this stream
  bool kept = false;          // a region is over, but its tape may ask for inner values
  std::vector<uint32_t> versions;  // of the externals, when it was kept
  unsigned long flusher = 0;  // the thread that is flushing it now
};

// record.cpp
bool record_resolve(Recorder* r, Tensor* t, int32_t* id);  // false: not part of the stream
void record_forget(Recorder* r);                           // ends the stream; runs nothing
void record_drop_taped(Recorder* r);
// (externals, records, live values); with_numbers: each record also tells its numbers' values.
PyObject* describe_stream(const Recorder* r, const std::vector<int32_t>& live, bool with_numbers);
// Exact key of the stream; `more` distinguishes plans of the same stream.
Words record_key(const Recorder* r, const std::vector<int32_t>& live, const Words& more);
// The stream's plan at its sizes, made by `build` (null: as usual) where there is none. New
// reference; null without exception: there is no plan.
Instance* record_instance(const Recorder* r, const std::vector<int32_t>& live, const Words& more,
                          PyObject* (*build)(void* context), void* context);
// Runs it; *outputs: all its results, owned, also after a failure.
bool record_run(Recorder* r, Instance* instance, const std::vector<int32_t>& live,
                std::vector<PyObject*>* outputs);

// region.cpp
enum class RegionEnd { Plain, Done, Failed };
// Runs the stream of a region whose results need a gradient, and gives them one node. Plain: the
// stream has to be run as it is. After Done the recorder belongs to the node.
RegionEnd region_finish(Recorder* r);
bool region_recompute(Recorder* r, const char* reason);
void region_forget_refusals();
bool init_region(PyObject* module);

}  // namespace fb
