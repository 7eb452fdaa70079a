// PtxAccesses: ld and st of PTX: which bytes of which space a lane reads or writes.
//
//   ld{.global|.shared|.param|}{.v2|.v4}.type   st{.global|.shared|}{.v2|.v4}.type
//
// Without a space an address is generic: here a global one. A register may be wider than the type: what is read gets
// zeros or its sign in front. Addresses are multiples of what is read or written.
//
// Source:   PTX ISA, section 9.7.9 (ld, st), and 9.4.1 for registers that are wider.
#pragma once

#include <cstdint>
#include <string_view>

#include "testing/ptx/program.h"

namespace moraine::testing {

struct PtxAccessKind {
  bool is_load = false;
  int32_t count = 1;  // elements
  int32_t bytes = 0;  // of an element
  bool is_signed = false;
  enum Space : uint8_t { kGlobal, kShared, kParameter } space = kGlobal;
};

// False: no such opcode here.
bool read_ptx_access(std::string_view opcode, PtxAccessKind& kind);

// For registers of so many bytes; null: they are narrower than the type.
PtxHandler ptx_access(const PtxAccessKind& kind, int32_t register_bytes);

// What other instructions that touch memory share with these. The address of a lane in a row of addresses, with the
// instruction's offset: a multiple of `bytes`.
uint64_t ptx_address(PtxWarp& warp, const PtxInstruction& in, int lane, int32_t slot,
                     int64_t bytes);
// The bytes there. Errors: kDevice, with the lane's thread and what is wrong.
const uint8_t* read_global(PtxWarp& warp, const PtxInstruction& in, int lane, uint64_t address,
                           int bytes);
const uint8_t* read_shared(PtxWarp& warp, const PtxInstruction& in, int lane, uint64_t address,
                           int bytes);
uint8_t* write_shared(PtxWarp& warp, const PtxInstruction& in, int lane, uint64_t address,
                      int bytes);

}  // namespace moraine::testing
