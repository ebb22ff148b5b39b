// Hiding of the package's own frames from the tracebacks of the user's errors.
#pragma once
#include "core.h"

namespace fb {

// Cuts our frames off the traceback of the exception that is set, unless FLAMBEAU_DEBUG asks for
// them or the message is not of the form "[op] ...". The causes go too: they are ours. `whole`: all
// frames below are ours, wherever their files are.
void hide_internals(bool whole = false);
bool init_traceback(PyObject* module);

}  // namespace fb
