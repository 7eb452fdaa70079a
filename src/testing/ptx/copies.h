// PtxCopies: cp.async of PTX: chunks of 16 bytes from global to shared memory, which arrive when a lane waits for them.
//
//   cp.async.cg.shared.global [to], [from], 16, bytes    the first `bytes` of it, 0 to 16, then zeros
//   cp.async.commit_group                                what a lane asked for since the last one is a group
//   cp.async.wait_group n                                all groups of a lane but its last n are there
//
// Until then what lies there is rubbish. The asking and the arriving are a write each, of the lane's thread, to whoever
// else touches it: an access without a barrier between either and it is a race.
//
// Source:   PTX ISA, 9.7.9.25: asynchronous copy, non-bulk.
#pragma once

#include "testing/ptx/program.h"

namespace moraine::testing {

constexpr int kPtxChunk = 16;

// slots: to, from, bytes.
void ptx_copy_async(PtxWarp& warp, const PtxInstruction& in, uint32_t lanes);
void ptx_commit_group(PtxWarp& warp, const PtxInstruction& in, uint32_t lanes);
// slots: n.
void ptx_wait_group(PtxWarp& warp, const PtxInstruction& in, uint32_t lanes);

}  // namespace moraine::testing
