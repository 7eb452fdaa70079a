// AttentionLaunch: which of an operation's kernels computes attention, by the type and width of its heads.
//
// On matrix tiles a block takes 64 positions of a head; without them, a row of these.
//
// Shapes: q [T, H, d].
// Errors: wider heads than kAttentionWidest are a bug in the caller (MR_CHECK).
#pragma once

#include "base/check.h"
#include "kernels/gpu/attention.h"
#include "kernels/gpu/runtime.h"
#include "tensor/tensor.h"

namespace moraine::gpu {

// By name: on tiles for heads of up to 64 and 128, by rows in bf16 and in f32. An operation that is asked for on tiles
// alone has no others.
struct AttentionKernels {
  const char *narrow, *wide, *rows_bf16 = nullptr, *rows_f32 = nullptr;
};

struct AttentionBlocks {
  int64_t tiles;  // of 64 positions
  int64_t heads;  // of q, or of k
};

inline bool on_tiles(const Tensor& q) {
  return q.dtype == DType::kBF16 && q.dims[2] <= kAttentionWidestTiles;
}

inline void launch_attention(Gpu& gpu, const AttentionKernels& kernels, const Tensor& q,
                             const AttentionBlocks& blocks, const void* args) {
  const int64_t d = q.dims[2];
  MR_CHECK(d <= kAttentionWidest, "d=%ld", static_cast<long>(d));
  if (on_tiles(q)) {
    gpu.launch(d <= 64 ? kernels.narrow : kernels.wide,
               {.blocks_x = blocks.tiles,
                .blocks_y = blocks.heads,
                .threads = kAttentionWaves * gpu.wave()},
               args);
    return;
  }
  gpu.launch(q.dtype == DType::kBF16 ? kernels.rows_bf16 : kernels.rows_f32,
             {.blocks_x = blocks.tiles * kAttentionRows,
              .blocks_y = blocks.heads,
              .threads = kAttentionRowThreads},
             args);
}

}  // namespace moraine::gpu
