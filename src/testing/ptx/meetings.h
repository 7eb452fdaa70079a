// PtxMeetings: what the lanes of a warp do together: shfl.sync, bar.warp.sync, mma.sync, ldmatrix.
//
//   shfl.sync.bfly.b32 d, a, b, c, 0xffffffff     d of lane l is a of lane j = l xor b, if j is not past the end of l's
//                                                 segment: (l & c[8..12]) | (c[0..4] & ~c[8..12]); else a of l
//   mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {d0..d3}, {a0..a3}, {b0, b1}, {c0..c3}
//
//   Of mma.m16n8k16 with bf16, group = lane >> 2, place = lane & 3, element i of a lane, two in a register, low first:
//     a  i = 0..7  row = group, of i = 2, 3, 6, 7 group + 8    column = 2 place + (i & 1), of i >= 4 8 more
//     b  i = 0..3  row = 2 place + (i & 1), of i >= 2 8 more   column = group
//     c  i = 0..3  row = group, of i >= 2 group + 8            column = 2 place + (i & 1)
//
//   ldmatrix.sync.aligned.m8n8.x4{.trans}.shared.b16 {d0..d3}, [a]
//     four matrices of 8 rows of 16 bytes; row i of matrix m begins at a of lane 8 m + i; d of lane l has of matrix m
//     the elements 2 (l & 3) and the next of row l >> 2, low first; with .trans those of rows 2 (l & 3) and the next,
//     at l >> 2
//
//   d = a b + c rounds as the generation's unit does (kernels/gpu/matrix_rules.h), which PTX leaves open.
//
// Source:   PTX ISA, 9.7.9 (shfl.sync), 9.7.14 (bar.warp.sync), 9.7.15: matrix fragments for mma.m16n8k16 with floating
//           point type. Written from there, not from kernels/gpu/tile.h.
#pragma once

#include "testing/ptx/program.h"

namespace moraine::testing {

// Each for all lanes at once.
void ptx_shuffle_bfly(PtxWarp& warp, const PtxInstruction& in, uint32_t lanes);
void ptx_meet_warp(PtxWarp& warp, const PtxInstruction& in, uint32_t lanes);
void ptx_multiply(PtxWarp& warp, const PtxInstruction& in, uint32_t lanes);
// slots: d0 to d3, a.
void ptx_load_matrices(PtxWarp& warp, const PtxInstruction& in, uint32_t lanes);
void ptx_load_transposed(PtxWarp& warp, const PtxInstruction& in, uint32_t lanes);

}  // namespace moraine::testing
