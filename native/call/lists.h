// Long lists of tensors: calls that run as a loop instead of a Plan, and their backward.
#pragma once
#include "call/op_internal.h"
#include "tape/tape.h"

namespace fb {

struct ListGeometry {  // of a Join or Parts node
  ListRule rule;
  int dim;
  std::string name;                      // of the op
  OutputMetadata whole;                  // the joined tensor
  std::vector<int64_t> starts, lengths;  // of each part along `dim`; start -1: left out
  std::vector<uint8_t> ranks;            // Join: of the sources, before dimensions were added
  std::vector<DType> dtypes;             // Join: of the sources
};

// ---------------------------------------------------------------- lists_backward.cpp
struct Block {  // elements of equal size at two places
  int ndim = 0;
  int64_t sizes[kMaxDims], to[kMaxDims], from[kMaxDims];  // strides count elements
};
Block block_of(const Tensor* shape, const int64_t* to, const int64_t* from);
void copy_block(char* to, const char* from, int64_t item, Block b);
// The dimension of the result in which each dimension of a source lies; the others have size 1.
// Returns the rank of the result, -1 where the rule has none for this rank.
int spread(ListRule rule, int dim, int rank, int* places);
Tensor* converted(Tensor* t, DType dtype);  // new reference
bool apply_join(Node* node, Tensor** grads, Tensor** results);
bool apply_parts(Node* node, Tensor** grads, Tensor** results);
std::string list_node_name(const Node* node);
bool list_output_metadata(const Node* node, uint32_t index, OutputMetadata* out);

// ---------------------------------------------------------------- lists.cpp
// The result of a call with a long list. Null without exception: the call is for its Plan.
PyObject* run_list(Op* op, Overload* overload, Frame* frame);

}  // namespace fb
