// Hiding of the package's own frames from the tracebacks of the user's errors.
#pragma once
#include "core.h"

namespace fb {

// Removes our frames from the traceback of the exception that is set, unless FLAMBEAU_DEBUG shows
// them or the message is not of the form "[op] ...", and our exceptions from its causes. `whole`:
// all frames below are ours, wherever their files are.
void hide_internals(bool whole = false);
bool init_traceback(PyObject* module);

}  // namespace fb
