// Checks block programs before they run (block_check.cpp).
#pragma once

#include <array>
#include <string>
#include <vector>

#include "baseline/block_program.h"

namespace fb {

// A block function, or the bytes of a state (-1: it is no state), and its name.
struct NamedFunction {
  std::string name;
  BlockFunction address;
  int64_t state;
};

// What a program refers to by number.
struct BlockNames {
  std::vector<NamedFunction> functions;
  std::vector<std::array<int32_t, 3>> calls;  // per instruction: f, g, h; -1: none
  std::vector<int32_t> states;                // per state
};

// Whether a program stays inside its registers, states and resident vectors, whatever its sizes
// are. False + exception; `place` is then what was refused.
bool check_block_program(const BlockProgram& program, const BlockNames& names, BlockPlace* place);

}  // namespace fb
