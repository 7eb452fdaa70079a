// PtxProgram: a kernel of a module made ready to run: opcodes are functions, registers are places.
//
// A register is a row of 32 lanes in the memory of a warp, as wide as its type; a predicate is a word of 32 bits.
// Numbers, addresses of variables and special registers are rows too, which no instruction writes. A variable of shared
// memory has an address of its own with kSharedGap bytes behind it, so that an index past its end is seen.
//
// Errors:   kInvalidArgument, with the kernel, the line and the opcode: an opcode, a modifier or an operand that is not
//           known, a register of another width, a branch to nowhere.
// Source:   PTX ISA, chapter 9; what has no exact definition there (ex2.approx and others) is not known here.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "testing/ptx/syntax.h"

namespace moraine::testing {

struct PtxWarp;
struct PtxInstruction;

constexpr int kPtxLanes = 32;
constexpr uint32_t kAllLanes = 0xffffffffu;

// Where the spaces begin. A global address is one of the host; no host has memory this low.
constexpr uint64_t kSharedBase = 0x100000, kParameterBase = 0x200000;
constexpr int64_t kSharedGap = 256;

// Does it for the lanes of `lanes`, which are not none.
using PtxHandler = void (*)(PtxWarp& warp, const PtxInstruction& in, uint32_t lanes);

enum class PtxFlow : uint8_t {
  kNext,
  kBranch,  // to `target`
  kReturn,
  kMeetWarp,   // all lanes of the warp come here; then `run`
  kMeetBlock,  // all threads of the block come to a barrier of this number
};

struct PtxInstruction {
  PtxHandler run = nullptr;
  PtxFlow flow = PtxFlow::kNext;
  bool guard_negated = false;
  int32_t guard = -1;                  // slot of a predicate
  std::array<int32_t, 14> slots = {};  // outputs first; of a store the address first
  int32_t count = 1;                   // elements of a vector
  int64_t offset = 0;                  // added to the address
  int32_t target = 0;                  // index of an instruction
  const PtxStatement* from = nullptr;
};

// A row of lanes that holds the same for the whole launch or block.
enum class PtxFixed : uint8_t { kNumber, kThread, kBlockX, kBlockY };
struct PtxFixedRow {
  PtxFixed what;
  int32_t slot, bytes;  // bytes of a lane; 0: a predicate
  uint64_t value;       // of kNumber
};

struct PtxSharedVariable {
  std::string name;
  uint64_t address;
  int64_t bytes;
};

struct PtxProgram {
  PtxProgram() = default;
  PtxProgram(PtxProgram&&) = default;  // not copied: instructions point to statements
  PtxProgram& operator=(PtxProgram&&) = default;

  PtxKernel kernel;  // what instructions came from
  std::vector<PtxInstruction> code;
  std::vector<PtxFixedRow> fixed;  // at the end of a warp's memory
  std::vector<PtxSharedVariable> shared;
  int64_t parameter_bytes = 0;
  int64_t register_bytes = 0, warp_bytes = 0;  // of a warp: what instructions write, and all
};

PtxProgram make_ptx_program(const PtxModule& module, const std::string& kernel);

}  // namespace moraine::testing
