// PtxWarp: the registers of 32 threads, and where each of them is.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/gpu/matrix_rules.h"
#include "testing/ptx/memory.h"
#include "testing/ptx/program.h"

namespace moraine::testing {

// What the warps of a block share.
struct PtxBlock {
  const PtxProgram* program = nullptr;
  PtxMemory* memory = nullptr;
  PtxSharedMemory shared;
  std::vector<uint8_t> parameters;
  gpu::MatrixRule rule = gpu::MatrixRule::kPlain;
  int64_t x = 0, y = 0;
};

// A chunk on its way to shared memory.
struct PtxLateCopy {
  const PtxInstruction* in;
  int lane;
  uint64_t to, from;
  uint32_t bytes;  // that are read; zeros behind them
  uint32_t group;
};

struct PtxWarp {
  PtxBlock* block = nullptr;
  int index = 0;                    // of the block
  std::vector<uint64_t> registers;  // PtxProgram::warp_bytes
  uint32_t running = 0;             // lanes that can go on at pc
  uint32_t waiting = 0;             // that wait for the warp at pc
  uint32_t at_barrier = 0;          // all or none: that wait for the block
  std::array<int32_t, kPtxLanes> pc = {};
  int32_t barrier_line = 0;
  uint32_t epoch = 0;  // bar.warp.sync so far
  std::vector<PtxLateCopy> copies;
  std::array<uint32_t, kPtxLanes> copy_groups = {};  // that a lane has committed

  template <class T>
  T* row(int32_t slot) {
    return reinterpret_cast<T*>(reinterpret_cast<uint8_t*>(registers.data()) + slot);
  }
  uint32_t& predicate(int32_t slot) { return *row<uint32_t>(slot); }
  int thread(int lane) const { return index * kPtxLanes + lane; }
};

// Throws kDevice: "kernel K, ptx line 12 `ld.global.f32`: thread 5 of block (1, 0): TEXT".
[[noreturn]] void fail_ptx(const PtxWarp& warp, const PtxInstruction& in, int lane,
                           const std::string& text);

}  // namespace moraine::testing
