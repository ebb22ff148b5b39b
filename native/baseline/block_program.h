// A kernel as a flat program of block functions: the baseline tier (docs/design.md § 5b).
//
// A block has two axes, s and w, and at most kBlock elements. A register holds a value for one
// block; what it varies along is its level. `flambeau/compiler/baseline/lower.py` makes programs,
// block_program.cpp reads and checks them, block_run.cpp runs them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "baseline/functions.h"
#include "core.h"

namespace fb {

constexpr int64_t kBlock = 1024;        // elements
constexpr int64_t kReduceChunk = 512;   // elements whose sums start anew (ir/kernel.py)
constexpr int64_t kStateColumns = 64;   // of the state of a column or scan kernel
constexpr int64_t kRegisterBytes = 16;  // the widest element

enum class BlockForm : uint8_t { Map, Row, Column, Scan };

enum class BlockCode : uint8_t {
  Call,      // dst = f(a, b, c)
  Constant,  // dst = x[0..3], one element
  Scalar,    // dst = number x[0], as x[1]: 0 double, 1 integer, 2 mask
  Load,      // dst = buffer x[0] at x[1] + s x[2] + w x[3] (+ a, of a row); x[4]: see below
  Take,      // dst = buffer x[0] at positions a
  Store,     // buffer x[0] at x[1] + s x[2] + w x[3] = a
  Give,      // buffer x[0] at positions b = a
  Index,     // dst = x[1] + s x[2] + w x[3] (+ a x[4])
  AddIndex,  // dst = a + b x[1]
  Integer,   // dst = a (x[0]: a SizeOp) b
  Check,   // dst = a, an index of size x[1]; errors go to buffer x[0], dimension x[2], strict x[3]
  Expand,  // dst = a at level x[0], repeated; x[4]: all that read it are calls
  Retain,  // vector x[0] = a
  Resident,  // dst = vector x[0]
  Reduce,    // dst (s) = a (s, w) reduced along w; state x[0]
  Columns,   // dst (w) = a (s, w) reduced along s, over all blocks; state x[0]
  Scan,      // dst = running values of a (and b); state x[0]
};
constexpr int kBlockCodes = static_cast<int>(BlockCode::Scan) + 1;

// x[4] of a load: memory may be the register; one offset is that of all rows.
constexpr int32_t kDirect = 1, kSharedOffset = 2;

// What a register varies along; a count of elements follows.
enum BlockLevel : uint8_t { kAlongNone = 0, kAlongS = 1, kAlongW = 2, kAlongBoth = 3 };

struct BlockInstruction {
  BlockCode code;
  uint8_t level;          // of its result; of a store, of what it stores
  int16_t dst, a, b, c;   // registers; -1: none
  int32_t x[5];           // see BlockCode; size registers: -1 is 0
  BlockFunction f, g, h;  // see block_run.cpp
};

struct BlockStatement {
  bool once;  // its body is no loop: what it does happens once for every w, or every s
  int32_t before, body, end;  // its instructions: [before, body) before the loop
};

struct BlockParameter {
  int32_t width;  // bytes of an element
  bool written;
};

struct BlockProgram {
  BlockForm form;
  bool tiled;  // a map whose last row axis has blocks of 64 (ir/kernel.py)
  bool spans;  // blocks may have several rows
  int32_t sizes, scalars;
  SizeProgram code;  // inputs: sizes, then row axes
  int32_t fixed;     // instructions of it that depend on sizes alone
  std::vector<int32_t> rows;
  int32_t inner, reduce;
  bool inner_moves;  // it depends on rows
  // Elements of a chunk of a map without rows, columns of a block, edge of a tile (ir/kernel.py).
  int32_t map_chunk, column_block, tile_block;
  bool checks = false;  // some instruction is a Check
  std::vector<BlockParameter> parameters;
  std::vector<int32_t> registers;  // bytes of an element
  std::vector<int32_t> resident;   // vectors that a row retains: bytes of an element
  std::vector<int64_t> states;     // bytes
  std::vector<BlockInstruction> instructions;
  int32_t prologue = 0;  // instructions [0, prologue) do not depend on rows
  std::vector<BlockStatement> statements;
  // Offsets of the parts of scratch: size registers first, then the memory of block registers.
  std::vector<int64_t> register_offsets, state_offsets;
  int64_t pointers = 0, narrow = 0, staging = 0,
          fixed_bytes = 0;  // resident vectors begin at `fixed_bytes`

  // Words in front of the sizes of a launch, and behind them, which `prepare` writes once.
  static constexpr size_t kWordsBefore = 3;
  size_t words_behind() const { return static_cast<size_t>(code.registers()); }
  // Computes all that depends on sizes alone; returns the bytes of a worker's scratch.
  int64_t prepare(int64_t* n, int64_t* behind) const;

 private:
  int64_t resident_elements(const int64_t* numbers) const;
};

// A part of a program: "program", or a numbered "size", "instruction" or "statement".
struct BlockPlace {
  const char* part = "program";
  int32_t number = 0;
};

// Reads a BlockProgram of ir/plan.py. Null + exception; `place`, if any, is then what was refused.
std::shared_ptr<const BlockProgram> read_block_program(PyObject* record,
                                                       BlockPlace* place = nullptr);
bool init_block_programs(PyObject* module);
// Runs chunks [begin, end), as a kernel does, of sizes that were prepared: n[-1] is the address of
// the program, n[-2] that of its size registers, n[-3] the elements of its resident vectors.
void run_block_program(char* const* p, const int64_t* n, const Scalar* x, int64_t begin,
                       int64_t end, char* scratch);

// What an instruction computed or stored for a block, in value form.
struct BlockStep {
  int32_t instruction;
  const char* values;  // null: none yet, of a reduction that goes on
  int32_t width;       // bytes of an element
  int64_t count;       // elements; 1 where all of the block are equal
  int64_t rows, columns, first_row, first_column;
  const int64_t* axes;  // values of the row axes
};
struct BlockObserver {
  void (*step)(void* context, const BlockStep& step);
  void* context;
};
// The same, with a call after every instruction.
void step_block_program(char* const* p, const int64_t* n, const Scalar* x, int64_t begin,
                        int64_t end, char* scratch, const BlockObserver& observer);

}  // namespace fb
