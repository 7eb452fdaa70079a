// PtxOperations: the arithmetic of PTX, lane by lane: one row of a table for each opcode with its modifiers.
//
// An opcode that is not in the table is not known: rows are what clang writes for our kernels. Values are as the
// specification has them: f32 and f64 round to nearest even, subnormals are kept (there is no .ftz row), a NaN that f32
// arithmetic makes is 0x7fffffff, shifts past the width give 0 or the sign, cvt.rzi keeps to the range of its type and
// makes 0 of NaN. Division of whole numbers by zero is an error: the specification leaves its result open.
//
// Source:   PTX ISA, sections 9.7.1 to 9.7.8.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "testing/ptx/program.h"

namespace moraine::testing {

struct PtxOperation {
  std::string_view name;
  PtxHandler run;
  int operands;                  // with the result
  std::array<int32_t, 5> bytes;  // of a lane of each; 0: a predicate
};

// Null: there is none of the name.
const PtxOperation* find_ptx_operation(std::string_view name);

// slots: low half, high half, whole; and whole, low half, high half.
void ptx_split_b32(PtxWarp& warp, const PtxInstruction& in, uint32_t lanes);
void ptx_join_b32(PtxWarp& warp, const PtxInstruction& in, uint32_t lanes);

}  // namespace moraine::testing
