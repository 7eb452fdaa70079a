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

}  // namespace moraine::testing
