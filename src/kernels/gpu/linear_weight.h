// LinearWeight: gradients of weights on a GPU: a block takes outputs by inputs of a group, rows in stages.
//
//   dw[g,n,k] += sum_t dy[t,n] x[t,k] ; dbias[g,n] += sum_t dy[t,n], rows t of group g: rows[g] <= t < rows[g+1]
//
// Shapes:   as kernels/linear.h.
// Types:    dy, x both bf16, on tiles (tile.h), or both f32, by fused multiply-adds; dw, dbias f32.
// Order:    t ascending from the group's first row, zeros after its last; bf16 in steps of 16, each rounded as the
//           generation's unit does (matrix_rules.h); f32 one fused multiply-add each; dbias one addition each. What was
//           there is added last. A function of the group's rows only; f32 and dbias the same bits on every target.
// Cost:     2 T n k flops; blocks as linear.h has them, 128 by 128 or 64 by 64.
#pragma once

#include <cstdint>

#include "kernels/gpu/linear.h"

namespace moraine {
struct GroupedLinearBackwardWeight;  // kernels/linear.h
struct LinearBackwardWeight;
}  // namespace moraine

namespace moraine::gpu {

class Gpu;

struct LinearWeightArgs {
  float* dw;            // [G, n, k] added to
  float* dbias;         // [G, n] added to, or null
  const void* dy;       // [T, n]; f32 or bf16
  const void* x;        // [T, k]; as dy
  const int64_t* rows;  // [G+1]
  int64_t n, k;
};

// Tensors in the memory of `gpu`. `rows` are there too, as dispatch_plan left them, or in the host's memory: then they
// are a list of the GPU's.
void linear_backward_weight(Gpu& gpu, const LinearBackwardWeight& a);
void grouped_linear_backward_weight(Gpu& gpu, const GroupedLinearBackwardWeight& a);
// bf16; the function above chooses the size. kNarrow is taken for kMiddle.
void grouped_linear_backward_weight(Gpu& gpu, const GroupedLinearBackwardWeight& a,
                                    ProductSize size);

}  // namespace moraine::gpu
