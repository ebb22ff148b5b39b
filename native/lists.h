// Long lists of tensors: calls that run as a loop instead of a Plan, and their backward.
#pragma once
#include "op_internal.h"
#include "tape.h"

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

// The result of a call with a long list. Null without exception: the call is for its Plan.
PyObject* run_list(const Op* op, Overload* overload, Frame* frame);
bool apply_join(Node* node, Tensor** grads, Tensor** results);
bool apply_parts(Node* node, Tensor** grads, Tensor** results);
std::string list_node_name(const Node* node);
bool list_output_metadata(const Node* node, uint32_t index, OutputMetadata* out);

}  // namespace fb
