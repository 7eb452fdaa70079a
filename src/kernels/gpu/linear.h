// Linear on a GPU: a block computes some rows by some outputs of one group, k in stages through shared memory.
//
//   y[t,n] = sum_k x[t,k] w[g,n,k] + bias[g,n], rows t of group g: rows[g] <= t < rows[g+1]
//
// A plain product is one group; a backward of the input is a forward with the transposed pack. Which rows are whose is
// read by the kernel: the grid has as many row tiles as there could be, G - 1 more than T needs, and a block beyond the
// last one ends. So the host need not know `rows`.
//
// Shapes:   as kernels/linear.h. A plain pack is row-major here: [G, n, k] of the rows' type. Of packs of integers:
//           linear_quantised.h.
// Types:    x f32 or bf16; y that or f32. bf16 on tiles (tile.h), f32 by fused multiply-adds.
// Order:    bf16: k ascending in steps of 16, each rounded as the generation's unit does (matrix_rules.h), zeros after
//           the last. f32: k ascending, one fused multiply-add each, the same bits on every target. Then the bias.
//           A row's bits do not depend on T, its place, its group or other rows: no split of k, tiles by constants.
// Cost:     2 T n k flops; a block reads its rows of x and of w once: 128 by 128 of them where that gives blocks
//           enough to fill a device, 16 by 32 of few rows, else 64 by 64. f32 and integers: 64 by 64, not tuned.
#pragma once

#include <cstdint>

#include "kernels/gpu/product_shape.h"

namespace moraine {
struct GroupedLinearBackwardInput;  // kernels/linear.h
struct GroupedLinearForward;
struct LinearBackwardInput;
struct LinearForward;
struct PackMatrix;
}  // namespace moraine

namespace moraine::gpu {

class Gpu;

// Of a block of f32 or integers; bf16: product_shape.h.
constexpr int kLinearRows = 64, kLinearOutputs = 64, kLinearDepth = 32;
constexpr int kLinearThreadsF32 = 256;  // each 4 by 4

struct LinearArgs {
  void* y;              // [T, n] out; f32 or as x
  const void* x;        // [T, k]; f32 or bf16
  const void* w;        // [G, n, k] as x; or a pack of integers
  const float* bias;    // [G, n] or null
  const int64_t* rows;  // [G+1], or null: every group has `group_rows`
  int64_t group_rows;
  int64_t groups, n, k;
};

struct PackArgs {
  void* packed;    // [G, n, k] out; f32 or bf16
  const float* w;  // [G*n, k]; of pack_transposed [G*k, n]
  int64_t groups, n, k;
};
constexpr int kPackThreads = 256, kPackSquare = 32;

// Tensors and packs in the memory of `gpu`. `rows` are there too, as dispatch_plan left them, or in the host's memory:
// then they are copied, unless all groups have as many.
void pack_matrix(Gpu& gpu, const PackMatrix& a);
void linear_forward(Gpu& gpu, const LinearForward& a);
void grouped_linear_forward(Gpu& gpu, const GroupedLinearForward& a);
// bf16 rows and pack; grouped_linear_forward chooses the size.
void grouped_linear_forward(Gpu& gpu, const GroupedLinearForward& a, ProductSize size);
void linear_backward_input(Gpu& gpu, const LinearBackwardInput& a);
void grouped_linear_backward_input(Gpu& gpu, const GroupedLinearBackwardInput& a);

}  // namespace moraine::gpu
