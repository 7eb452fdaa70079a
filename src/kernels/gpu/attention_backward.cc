// AttentionBackward, host side: which 64 positions of which document a block takes.
#include "kernels/gpu/attention_backward.h"

#include <vector>

#include "base/check.h"
#include "kernels/attention.h"
#include "kernels/attention_part.h"
#include "kernels/gpu/element_grid.h"
#include "kernels/gpu/runtime.h"

namespace moraine::gpu {
namespace {

std::vector<AttentionBackwardTile> tiles_of(Segments segments) {
  std::vector<AttentionBackwardTile> tiles;
  for (const Segment& s : segments) {
    for (int64_t position = 0; position < s.rows; position += kAttentionRows) {
      tiles.push_back({.position = position, .rows = s.rows, .row_begin = s.row_begin});
    }
  }
  return tiles;
}

}  // namespace

void attention_delta(Gpu& gpu, const AttentionDelta& a) {
  const int64_t count = a.delta.count(), d = a.o.dims[2];
  if (count == 0) return;
  const AttentionDeltaArgs args = {
      .delta = a.delta.as<float>(), .do_ = a.do_.data, .o = a.o.data, .count = count, .d = d};
  gpu.launch(a.o.dtype == DType::kBF16 ? "attention_delta_bf16" : "attention_delta_f32",
             element_grid(count), &args);
}

void attention_backward(Gpu& gpu, const AttentionBackward& a) {
  const int64_t T = a.q.dims[0], H = a.q.dims[1], d = a.q.dims[2], K = a.k.dims[1];
  if (T == 0) return;
  MR_CHECK(d <= kAttentionWidest, "d=%ld", static_cast<long>(d));
  attention_delta(gpu, {.delta = a.delta, .do_ = a.do_, .o = a.o});
  const std::vector<AttentionBackwardTile> tiles = tiles_of(a.segments);
  const void* const device_tiles =
      gpu.list(tiles.data(), static_cast<int64_t>(tiles.size() * sizeof(AttentionBackwardTile)));
  const AttentionBackwardArgs args = {
      .dq = a.dq.data,
      .dk = a.dk.data,
      .dv = a.dv.data,
      .do_ = a.do_.data,
      .lse = a.lse.as<float>(),
      .delta = a.delta.as<float>(),
      .q = a.q.data,
      .k = a.k.data,
      .v = a.v.data,
      .tiles = static_cast<const AttentionBackwardTile*>(device_tiles),
      .window = a.window,
      .H = H,
      .K = K,
      .d = d,
      .scale = a.scale};
  const auto count = static_cast<int64_t>(tiles.size());
  const bool bf16 = a.q.dtype == DType::kBF16, narrow = d <= 64;
  if (bf16 && d <= kAttentionWidestTiles) {
    const int threads = kAttentionWaves * gpu.wave();
    gpu.launch(narrow ? "attention_dq_64" : "attention_dq_128",
               {.blocks_x = count, .blocks_y = H, .threads = threads}, &args);
    gpu.launch(narrow ? "attention_dkv_64" : "attention_dkv_128",
               {.blocks_x = count, .blocks_y = K, .threads = threads}, &args);
    return;
  }
  const int64_t blocks = count * kAttentionRows;
  gpu.launch(bf16 ? "attention_dq_rows_bf16" : "attention_dq_rows_f32",
             {.blocks_x = blocks, .blocks_y = H, .threads = kAttentionRowThreads}, &args);
  gpu.launch(bf16 ? "attention_dkv_rows_bf16" : "attention_dkv_rows_f32",
             {.blocks_x = blocks, .blocks_y = K, .threads = kAttentionRowThreads}, &args);
}

}  // namespace moraine::gpu
