// What a dry run must know of gradients: the engine and the attribute `grad` report here.
#pragma once
#include "tape/tape.h"

namespace fb {

// A dry run reads or writes the `.grad` of a tensor, which gets its old one back in the end.
void record_note_gradient(Tensor* t, bool reads);
void record_undo_gradients();
bool record_refuse(const char* why);   // the dry run explains nothing; false + exception
bool record_has(const Node* node);     // it is of a call of this stream
bool node_observed(const Node* node);  // hooks see its gradients

}  // namespace fb
