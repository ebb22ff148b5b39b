// What a dry run must know of gradients: the engine and the attribute `grad` report here.
#pragma once
#include "tape/tape.h"

namespace fb {

// A dry run reads or writes the `.grad` of a tensor, which gets its old one back in the end.
void record_note_gradient(Tensor* t, bool reads);
void record_undo_gradients();
// A backward of a dry run reaches a leaf, whose hooks each call compares.
void record_note_leaf(Tensor* leaf);
// Calls a function of users: in a dry run it is interpreted. args: a tuple. New reference.
PyObject* record_call_user(PyObject* function, PyObject* args);
// The hooks in a dict are read, which is guarded in a dry run. False + exception.
bool record_read_hooks(PyObject* hooks);
bool record_refuse(const char* why);  // the dry run explains nothing; false + exception
bool record_has(const Node* node);    // it is of a call of this stream
// Hooks see its gradients or what it saved. `interpreted`: those that a dry run calls do not count.
bool node_observed(const Node* node, bool interpreted = false);

}  // namespace fb
