// Block functions: primitives on blocks, in libraries that are built with the package. The names
// and what a function takes: docs/design.md § 5b.
#pragma once

#include <cstdint>
#include <string_view>

#include "ref.h"

#pragma GCC visibility push(hidden)
namespace fb {

// p: result, then operands; n[0]: elements.
using BlockFunction = void (*)(char* const* p, const int64_t* n);

// The interface of block functions: a change of names, operands or numbers raises it here and in
// flambeau/compiler/baseline/functions.py. Another core's libraries are not loaded.
constexpr int64_t kBlockInterface = 3;

// Loads a library and replaces the table by its functions. False + exception. Needs the GIL.
bool load_block_functions(const char* path);
// The function of a name; null if no loaded library has it.
BlockFunction find_block_function(std::string_view name);
// The bytes of a state, `state <kind> <operation> <dtype>`; -1 if there is none.
int64_t find_block_state(std::string_view name);

bool init_block_functions(PyObject* module);

}  // namespace fb
#pragma GCC visibility pop
