// Attention, host side: which 64 positions of which segment a block takes.
#include "kernels/attention.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "kernels/gpu/attention.h"
#include "kernels/gpu/runtime.h"

namespace moraine::gpu {
namespace {

std::vector<AttentionTile> tiles_of(Segments segments) {
  std::vector<AttentionTile> tiles;
  for (const Segment& s : segments) {
    const int64_t end = s.position_begin + s.rows;
    int64_t position = s.position_begin / kAttentionRows * kAttentionRows;
    for (; position < end; position += kAttentionRows) {
      const int64_t begin = std::max(position, s.position_begin);
      tiles.push_back({.position = position,
                       .begin = begin,
                       .end = std::min(position + kAttentionRows, end),
                       .row_of_begin = s.row_begin + begin - s.position_begin,
                       .key_begin = s.key_begin});
    }
  }
  return tiles;
}

}  // namespace

void attention_forward(Gpu& gpu, const AttentionForward& a) {
  const int64_t T = a.q.dims[0], H = a.q.dims[1], d = a.q.dims[2];
  if (T == 0) return;
  MR_CHECK(d <= kAttentionWidest, "d=%ld", static_cast<long>(d));
  const std::vector<AttentionTile> tiles = tiles_of(a.segments);
  const void* const device_tiles =
      gpu.list(tiles.data(), static_cast<int64_t>(tiles.size() * sizeof(AttentionTile)));
  const void* const pages =
      gpu.list(a.pages.page.data(), static_cast<int64_t>(a.pages.page.size_bytes()));
  const AttentionArgs args = {.o = a.o.data,
                              .lse = a.lse.as<float>(),
                              .q = a.q.data,
                              .k = a.k.data,
                              .v = a.v.data,
                              .tiles = static_cast<const AttentionTile*>(device_tiles),
                              .pages = static_cast<const int32_t*>(pages),
                              .page_rows = a.pages.rows,
                              .window = a.window,
                              .H = H,
                              .K = a.k.dims[1],
                              .d = d,
                              .scale = a.scale};
  const auto count = static_cast<int64_t>(tiles.size());
  if (a.q.dtype == DType::kBF16 && d <= kAttentionWidestTiles) {
    gpu.launch(d <= 64 ? "attention_64" : "attention_128",
               {.blocks_x = count, .blocks_y = H, .threads = kAttentionWaves * gpu.wave()}, &args);
    return;
  }
  gpu.launch(a.q.dtype == DType::kBF16 ? "attention_rows_bf16" : "attention_rows_f32",
             {.blocks_x = count * kAttentionRows, .blocks_y = H, .threads = kAttentionRowThreads},
             &args);
}

}  // namespace moraine::gpu
