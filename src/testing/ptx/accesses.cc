// One function for each space, type in memory and width of register.
#include "testing/ptx/accesses.h"

#include <fmt/core.h>

#include <cstring>
#include <string>
#include <type_traits>

#include "testing/ptx/warp.h"

namespace moraine::testing {
namespace {

using Space = PtxAccessKind::Space;

PtxAccess asker(const PtxWarp& w, const PtxInstruction& in, int lane) {
  return {.thread = w.thread(lane), .warp = w.index, .warp_epoch = w.epoch, .line = in.from->line};
}

const uint8_t* parameter(PtxBlock& b, uint64_t address, int64_t bytes) {
  const uint64_t at = address - kParameterBase;
  if (address < kParameterBase || at + static_cast<uint64_t>(bytes) > b.parameters.size())
    return nullptr;
  return b.parameters.data() + at;
}

std::string outside_text(PtxBlock& b, Space space, uint64_t address, int64_t bytes) {
  if (space == Space::kParameter)
    return fmt::format("{} bytes at {} of the parameters, which have {}", bytes,
                       static_cast<int64_t>(address - kParameterBase), b.parameters.size());
  return fmt::format("{} bytes of global memory at {:#x}: {}", bytes, address,
                     b.memory->nearest_text(address));
}

template <Space kSpace>
const uint8_t* source(PtxWarp& w, const PtxInstruction& in, int lane, uint64_t address, int bytes) {
  PtxBlock& b = *w.block;
  std::string wrong;
  const uint8_t* from = nullptr;
  if constexpr (kSpace == Space::kGlobal) from = b.memory->find(address, bytes);
  if constexpr (kSpace == Space::kParameter) from = parameter(b, address, bytes);
  if constexpr (kSpace == Space::kShared)
    from = b.shared.read(address, bytes, asker(w, in, lane), wrong);
  if (from == nullptr)
    fail_ptx(w, in, lane, wrong.empty() ? outside_text(b, kSpace, address, bytes) : wrong);
  return from;
}

template <Space kSpace>
uint8_t* destination(PtxWarp& w, const PtxInstruction& in, int lane, uint64_t address, int bytes) {
  PtxBlock& b = *w.block;
  std::string wrong;
  uint8_t* to = nullptr;
  if constexpr (kSpace == Space::kGlobal) to = b.memory->find_for_store(address, bytes);
  if constexpr (kSpace == Space::kShared)
    to = b.shared.write(address, bytes, asker(w, in, lane), wrong);
  if (to == nullptr)
    fail_ptx(w, in, lane, wrong.empty() ? outside_text(b, kSpace, address, bytes) : wrong);
  return to;
}

template <Space kSpace, class M, class R>
void load_lanes(PtxWarp& w, const PtxInstruction& in, uint32_t lanes) {
  constexpr int kBytes = sizeof(M);
  using Wide = std::conditional_t<std::is_signed_v<M>, std::make_signed_t<R>, R>;
  for (int lane = 0; lane < kPtxLanes; ++lane) {
    if (!(lanes >> lane & 1u)) continue;
    // The base may be one of the outputs.
    uint64_t at =
        ptx_address(w, in, lane, in.slots[static_cast<size_t>(in.count)], kBytes * in.count);
    for (int32_t i = 0; i < in.count; ++i, at += kBytes) {
      M v;
      std::memcpy(&v, source<kSpace>(w, in, lane, at, kBytes), kBytes);
      w.row<R>(in.slots[static_cast<size_t>(i)])[lane] = static_cast<R>(static_cast<Wide>(v));
    }
  }
}

template <Space kSpace, class M, class R>
void store_lanes(PtxWarp& w, const PtxInstruction& in, uint32_t lanes) {
  constexpr int kBytes = sizeof(M);
  for (int lane = 0; lane < kPtxLanes; ++lane) {
    if (!(lanes >> lane & 1u)) continue;
    uint64_t at = ptx_address(w, in, lane, in.slots[0], kBytes * in.count);
    for (int32_t i = 0; i < in.count; ++i, at += kBytes) {
      const M v = static_cast<M>(w.row<R>(in.slots[static_cast<size_t>(1 + i)])[lane]);
      std::memcpy(destination<kSpace>(w, in, lane, at, kBytes), &v, kBytes);
    }
  }
}

template <Space kSpace, class M, class R>
PtxHandler handler(bool is_load) {
  if constexpr (sizeof(M) > sizeof(R)) {
    return nullptr;
  } else if constexpr (kSpace == Space::kParameter) {
    return is_load ? load_lanes<kSpace, M, R> : nullptr;
  } else {
    return is_load ? load_lanes<kSpace, M, R> : store_lanes<kSpace, M, R>;
  }
}
template <Space kSpace, class M>
PtxHandler for_register(bool is_load, int32_t bytes) {
  if (bytes == 2) return handler<kSpace, M, uint16_t>(is_load);
  if (bytes == 4) return handler<kSpace, M, uint32_t>(is_load);
  return bytes == 8 ? handler<kSpace, M, uint64_t>(is_load) : nullptr;
}
template <Space kSpace>
PtxHandler for_type(const PtxAccessKind& k, int32_t bytes) {
  switch (k.bytes * (k.is_signed ? -1 : 1)) {
    case 1:
      return for_register<kSpace, uint8_t>(k.is_load, bytes);
    case 2:
      return for_register<kSpace, uint16_t>(k.is_load, bytes);
    case 4:
      return for_register<kSpace, uint32_t>(k.is_load, bytes);
    case 8:
      return for_register<kSpace, uint64_t>(k.is_load, bytes);
    case -1:
      return for_register<kSpace, int8_t>(k.is_load, bytes);
    case -2:
      return for_register<kSpace, int16_t>(k.is_load, bytes);
    case -4:
      return for_register<kSpace, int32_t>(k.is_load, bytes);
    case -8:
      return for_register<kSpace, int64_t>(k.is_load, bytes);
    default:
      return nullptr;
  }
}

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (text.substr(0, prefix.size()) != prefix) return false;
  text.remove_prefix(prefix.size());
  return true;
}

}  // namespace

bool read_ptx_access(std::string_view opcode, PtxAccessKind& kind) {
  if (take_prefix(opcode, "ld.")) {
    kind.is_load = true;
  } else if (!take_prefix(opcode, "st.")) {
    return false;
  }
  if (take_prefix(opcode, "shared.")) {
    kind.space = Space::kShared;
  } else if (take_prefix(opcode, "param.")) {
    kind.space = Space::kParameter;
  } else {
    take_prefix(opcode, "global.");
  }
  if (take_prefix(opcode, "v2.")) kind.count = 2;
  if (take_prefix(opcode, "v4.")) kind.count = 4;
  if (opcode.size() < 2) return false;
  const std::string_view bits = opcode.substr(1);
  kind.bytes = bits == "8" ? 1 : bits == "16" ? 2 : bits == "32" ? 4 : bits == "64" ? 8 : 0;
  kind.is_signed = opcode[0] == 's';
  const bool is_float = opcode[0] == 'f' && kind.bytes >= 4;
  return kind.bytes != 0 && (is_float || opcode[0] == 'u' || opcode[0] == 's' || opcode[0] == 'b');
}

PtxHandler ptx_access(const PtxAccessKind& kind, int32_t register_bytes) {
  switch (kind.space) {
    case Space::kGlobal:
      return for_type<Space::kGlobal>(kind, register_bytes);
    case Space::kShared:
      return for_type<Space::kShared>(kind, register_bytes);
    case Space::kParameter:
      return for_type<Space::kParameter>(kind, register_bytes);
  }
  return nullptr;
}

uint64_t ptx_address(PtxWarp& w, const PtxInstruction& in, int lane, int32_t slot, int64_t bytes) {
  const uint64_t at = w.row<uint64_t>(slot)[lane] + static_cast<uint64_t>(in.offset);
  if (at % static_cast<uint64_t>(bytes) != 0)
    fail_ptx(w, in, lane, fmt::format("{:#x} is not a multiple of {}", at, bytes));
  return at;
}

const uint8_t* read_global(PtxWarp& w, const PtxInstruction& in, int lane, uint64_t address,
                           int bytes) {
  return source<Space::kGlobal>(w, in, lane, address, bytes);
}
const uint8_t* read_shared(PtxWarp& w, const PtxInstruction& in, int lane, uint64_t address,
                           int bytes) {
  return source<Space::kShared>(w, in, lane, address, bytes);
}
uint8_t* write_shared(PtxWarp& w, const PtxInstruction& in, int lane, uint64_t address, int bytes) {
  return destination<Space::kShared>(w, in, lane, address, bytes);
}

}  // namespace moraine::testing
