// Attention, host side: which 64 positions of which segment a block takes, and which keys there are for them.
#include "kernels/attention.h"

#include <algorithm>
#include <span>
#include <vector>

#include "kernels/attention_part.h"
#include "kernels/gpu/attention.h"
#include "kernels/gpu/attention_launch.h"
#include "kernels/gpu/attention_part.h"
#include "kernels/gpu/runtime.h"

namespace moraine::gpu {
namespace {

// `parts`: how many keys each has; empty: whole documents.
std::vector<AttentionTile> tiles_of(Segments segments, std::span<const int64_t> parts) {
  std::vector<AttentionTile> tiles;
  for (size_t i = 0; i < segments.size(); ++i) {
    const Segment& s = segments[i];
    const int64_t end = s.position_begin + s.rows, keys = parts.empty() ? end : parts[i];
    int64_t position = s.position_begin / kAttentionRows * kAttentionRows;
    for (; position < end; position += kAttentionRows) {
      const int64_t begin = std::max(position, s.position_begin);
      tiles.push_back({.position = position,
                       .begin = begin,
                       .end = std::min(position + kAttentionRows, end),
                       .row_of_begin = s.row_begin + begin - s.position_begin,
                       .key_begin = s.key_begin,
                       .keys = std::min(std::min(position + kAttentionRows, end), keys)});
    }
  }
  return tiles;
}

// Call: AttentionForward or AttentionPartForward.
template <class Call>
void launch_forward(Gpu& gpu, const Call& a, const std::vector<AttentionTile>& tiles,
                    const AttentionKernels& kernels) {
  const int64_t H = a.q.dims[1];
  const void* const device_tiles =
      gpu.list(tiles.data(), static_cast<int64_t>(tiles.size() * sizeof(AttentionTile)));
  const void* const pages =
      gpu.list(a.pages.page.data(), static_cast<int64_t>(a.pages.page.size_bytes()));
  const AttentionArgs args = {.o = a.o.data,
                              .lse = a.lse.template as<float>(),
                              .q = a.q.data,
                              .k = a.k.data,
                              .v = a.v.data,
                              .tiles = static_cast<const AttentionTile*>(device_tiles),
                              .pages = static_cast<const int32_t*>(pages),
                              .page_rows = a.pages.rows,
                              .window = a.window,
                              .H = H,
                              .K = a.k.dims[1],
                              .d = a.q.dims[2],
                              .scale = a.scale};
  launch_attention(gpu, kernels, a.q, {.tiles = static_cast<int64_t>(tiles.size()), .heads = H},
                   &args);
}

}  // namespace

void attention_forward(Gpu& gpu, const AttentionForward& a) {
  if (a.q.dims[0] == 0) return;
  launch_forward(gpu, a, tiles_of(a.segments, {}),
                 {"attention_64", "attention_128", "attention_rows_bf16", "attention_rows_f32"});
}

void attention_part_forward(Gpu& gpu, const AttentionPartForward& a) {
  launch_forward(gpu, a, tiles_of(a.segments, a.keys),
                 {"attention_part_64", "attention_part_128", "attention_part_rows_bf16",
                  "attention_part_rows_f32"});
}

}  // namespace moraine::gpu
