// The node of a compiled region's results, as its files see it: region.cpp makes it at the end of a
// recorded region, replay.cpp for a call that ran without its Python.
#pragma once
#include <memory>

#include "record/record.h"

namespace fb {

struct Region {
  std::vector<Node*> nodes;    // what the results depend on, oldest first
  std::vector<Tensor*> roots;  // results with a history, borrowed, in order of their values
  std::vector<Edge> outer;     // where gradients leave the region, distinct, borrowed
  std::vector<int32_t> live;
  PlanCache::Key words;  // what the stream's key does not tell
};

// False: the results get no node of their own.
bool region_examine(const Recorder* r, Region* region);
bool region_has_results(const Recorder* r);  // others hold a tensor with a history

// A call of a stream that is on the tape, and which of its edges lead nowhere.
struct TapedCall {
  uint32_t record;
  std::vector<bool> ends;
};

// A stream whose results have a node: what makes its tape anew, on other tensors.
struct Replay {
  int64_t references = 1;
  std::vector<Record> records;
  std::vector<Value> values;
  std::vector<TapedCall> taped;          // in the order of their records
  std::vector<int32_t> roots;            // values of the results that have the node
  std::vector<OutputMetadata> metadata;  // of these
  std::vector<int32_t> outer;            // externals at whose edges gradients leave
  size_t shared = 0;                     // outputs of the plan that are the user's, the first ones

  Replay() = default;
  ~Replay();
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;
  // Takes the stream of a recorder. False: gradients leave it where no external is.
  bool read(Recorder* r, const Region& region);
  void take_stream(Recorder* r);  // its records, last of all
};
template <>
struct Counting<Replay> {
  static void add(Replay* x) { ++x->references; }
  static void drop(Replay* x) {
    if (--x->references == 0) delete x;
  }
};

// What a call that ran without its Python leaves for its tape.
struct ReplayedCall {
  Ref<Replay> replay;
  Refs<Tensor> externals;
  std::vector<uint32_t> versions;  // of these, when it ran
  Ref<> generator;                 // a copy of the default one before it ran; null: it drew nothing
  uint64_t first_sequence;         // of its calls' nodes
};

struct RegionTape {
  Recorder* recorder;                  // owned; null: `call` builds it on demand
  std::vector<Edge> roots;             // owned: the results' nodes before
  std::vector<bool> spent;             // per root: a backward that released the node came from it
  uint64_t first_task = 0;             // backwards from this one on see them, once it is dissolved
  std::unique_ptr<ReplayedCall> call;  // null: the region was recorded
};

// Operands and results of a plan with a backward.
struct RegionRun {
  Instance* instance;
  Tensor* const* externals;
  const Scalar* scalars;
  const uint8_t* scalar_is_float;
  PyObject* const* outputs;
  size_t shared;  // so many first outputs are objects that others will have
};
// New reference; null + exception. outer: edges, borrowed.
Node* region_node(const RegionRun& run, const std::vector<Edge>& outer,
                  std::vector<OutputMetadata> roots);
bool region_put_behind(Node* node, std::unique_ptr<RegionTape> tape);
// The nodes of a stream's calls that lead to these edges' gradients, the edges' own included.
std::vector<Node*> nodes_of_tape(const Recorder* r, const std::vector<Edge>& roots);
// The recorder belongs to a tape from now on.
void region_hold(Recorder* r);

// replay.cpp
// The node of an explained call's results. generator: see ReplayedCall.
Node* replay_node(const Ref<Replay>& replay, const RegionRun& run, Ref<> generator);
// Whether gradients of a call leave it along as many edges as those of the one it was learnt of.
bool replay_fits(const Replay& replay, Tensor* const* externals);
bool replay_tape(RegionTape* tape);  // makes its recorder and roots; false + exception

}  // namespace fb
