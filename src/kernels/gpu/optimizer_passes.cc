// OptimizerPasses, host side.
#include "kernels/gpu/optimizer_passes.h"

#include "kernels/ceil_div.h"
#include "kernels/gpu/element_grid.h"
#include "kernels/gpu/runtime.h"
#include "kernels/gpu/squares.h"

namespace moraine::gpu {
void adamw_pass(Gpu& gpu, AdamWPassArgs a) {
  if (a.count == 0) return;
  const GpuMemory pieces(gpu, a.pieces, a.num_pieces * static_cast<int64_t>(sizeof(AdamWPiece)));
  a.pieces = pieces.as<AdamWPiece>();
  gpu.launch("adamw", element_grid(a.count), &a);
}

void momentum_pass(Gpu& gpu, const MomentumPassArgs& a, bool bf16) {
  if (a.n > 0) gpu.launch(bf16 ? "momentum_bf16" : "momentum_f32", element_grid(a.n), &a);
}

void decay_pass(Gpu& gpu, const DecayPassArgs& a) {
  if (a.n > 0) gpu.launch("decay", element_grid(a.n), &a);
}

void normalise_pass(Gpu& gpu, const NormalisePassArgs& a, double* sums) {
  if (a.n == 0) return;
  const SquaresArgs squares = {
      .sums = sums, .x = a.x, .ranges = nullptr, .length = kNormalisePiece, .count = a.n};
  gpu.launch(
      "squares_f32",
      {.blocks_x = ceil_div(a.n, kNormalisePiece), .blocks_y = 1, .threads = kSquaresThreads},
      &squares);
  NormalisePassArgs args = a;
  args.sums = sums;
  gpu.launch("normalise", element_grid(a.n), &args);
}

void transpose_pass(Gpu& gpu, const TransposePassArgs& a) {
  if (a.rows == 0 || a.cols == 0) return;
  gpu.launch("transpose",
             {.blocks_x = ceil_div(a.cols, kTransposeTile),
              .blocks_y = ceil_div(a.rows, kTransposeTile),
              .threads = kTransposeThreads},
             &a);
}

}  // namespace moraine::gpu
