// run_ptx: a launch of an interpreted kernel: blocks one after the other, warps in turn from barrier to barrier.
//
//   The lanes of a warp that stand at the same instruction go on together; of those that do not, the ones furthest
//   behind go first, so that they meet again where their ways join. Lanes wait for each other at shfl.sync,
//   bar.warp.sync, mma.sync and bar.sync, and nowhere else: nothing is taken from running in step.
//
//   found                                    said
//   an access outside of all buffers or      which thread of which block, at which line, how far from what
//   arrays, or not aligned
//   two threads at one place of shared       "race on byte 68 of shared x: thread 3 wrote it at line 90, ..."
//   memory without a barrier (memory.h)
//   shared memory that nobody wrote          named
//   lanes or warps that wait for ones that   "threads do not meet: ..."
//   wait elsewhere or have ended
//
// Registers hold 0xff in every byte until they are written.
//
// Errors:   kDevice, as above; kInvalidArgument: a grid or arguments that the kernel does not take.
// Order:    one result; warps ascending or descending.
// Cost:     about 1 ns for an instruction of a lane, 3 to 10 for an access to memory.
#pragma once

#include "kernels/gpu/emulate.h"
#include "testing/ptx/memory.h"
#include "testing/ptx/program.h"

namespace moraine::testing {

struct PtxLaunch {
  gpu::Grid grid;
  const void* arguments;  // PtxProgram::parameter_bytes
  gpu::MatrixRule rule;
  bool descending;  // the last warp first
};

void run_ptx(const PtxProgram& program, const PtxLaunch& launch, PtxMemory& memory);

}  // namespace moraine::testing
