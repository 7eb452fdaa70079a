// AttentionBackward, host side: which 64 positions of which document or part a block takes.
#include "kernels/gpu/attention_backward.h"

#include <algorithm>
#include <span>
#include <vector>

#include "kernels/attention.h"
#include "kernels/attention_part.h"
#include "kernels/gpu/attention_launch.h"
#include "kernels/gpu/attention_part.h"
#include "kernels/gpu/element_grid.h"
#include "kernels/gpu/runtime.h"

namespace moraine::gpu {
namespace {

using Tiles = std::vector<AttentionBackwardTile>;

// Of keys that a segment has: `position` is the tile's first.
AttentionBackwardTile tile_of(const Segment& s, int64_t keys, int64_t position) {
  return {.position = position,
          .rows = s.position_begin + s.rows,
          .row_begin = s.row_begin - s.position_begin,
          .first = s.position_begin,
          .keys = keys,
          .key_begin = s.key_begin};
}

// `parts`: how many keys each has; empty: whole documents.
Tiles backward_tiles(Segments segments, std::span<const int64_t> parts) {
  Tiles tiles;
  for (size_t i = 0; i < segments.size(); ++i) {
    const Segment& s = segments[i];
    const int64_t end = s.position_begin + s.rows, keys = parts.empty() ? end : parts[i];
    int64_t position = s.position_begin / kAttentionRows * kAttentionRows;
    for (; position < end; position += kAttentionRows) tiles.push_back(tile_of(s, keys, position));
  }
  return tiles;
}

// Keys that somebody may see, in lists: no two of one list share a row, and of those that do, the earlier segment's
// are in the earlier list.
std::vector<Tiles> part_keys(Segments segments, std::span<const int64_t> keys) {
  std::vector<Tiles> lists;
  std::vector<size_t> list_of;
  for (size_t i = 0; i < segments.size(); ++i) {
    const Segment& s = segments[i];
    size_t list = 0;
    for (size_t before = 0; before < i; ++before) {
      const Segment& other = segments[before];
      if (other.key_begin < s.key_begin + keys[i] && s.key_begin < other.key_begin + keys[before])
        list = std::max(list, list_of[before] + 1);
    }
    list_of.push_back(list);
    if (lists.size() <= list) lists.resize(list + 1);
    const int64_t end = std::min(keys[i], s.position_begin + s.rows);
    for (int64_t position = 0; position < end; position += kAttentionRows)
      lists[list].push_back(tile_of(s, keys[i], position));
  }
  return lists;
}

// Call: AttentionBackward or AttentionPartBackward. heads: those of q, or of k.
template <class Call>
void launch_backward(Gpu& gpu, const Call& a, const Tiles& tiles, int64_t heads,
                     const AttentionKernels& kernels) {
  if (tiles.empty()) return;
  const void* const device_tiles =
      gpu.list(tiles.data(), static_cast<int64_t>(tiles.size() * sizeof(AttentionBackwardTile)));
  const AttentionBackwardArgs args = {
      .dq = a.dq.data,
      .dk = a.dk.data,
      .dv = a.dv.data,
      .do_ = a.do_.data,
      .lse = a.lse.template as<float>(),
      .delta = a.delta.template as<float>(),
      .q = a.q.data,
      .k = a.k.data,
      .v = a.v.data,
      .tiles = static_cast<const AttentionBackwardTile*>(device_tiles),
      .window = a.window,
      .H = a.q.dims[1],
      .K = a.k.dims[1],
      .d = a.q.dims[2],
      .scale = a.scale};
  launch_attention(gpu, kernels, a.q, {.tiles = static_cast<int64_t>(tiles.size()), .heads = heads},
                   &args);
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
  if (a.q.dims[0] == 0) return;
  attention_delta(gpu, {.delta = a.delta, .do_ = a.do_, .o = a.o});
  const Tiles tiles = backward_tiles(a.segments, {});
  launch_backward(
      gpu, a, tiles, a.q.dims[1],
      {"attention_dq_64", "attention_dq_128", "attention_dq_rows_bf16", "attention_dq_rows_f32"});
  launch_backward(gpu, a, tiles, a.k.dims[1],
                  {"attention_dkv_64", "attention_dkv_128", "attention_dkv_rows_bf16",
                   "attention_dkv_rows_f32"});
}

void attention_part_backward(Gpu& gpu, const AttentionPartBackward& a) {
  launch_backward(gpu, a, backward_tiles(a.segments, a.keys), a.q.dims[1],
                  {"attention_part_dq_64", "attention_part_dq_128", "attention_part_dq_rows_bf16",
                   "attention_part_dq_rows_f32"});
  for (const Tiles& tiles : part_keys(a.segments, a.keys)) {
    launch_backward(gpu, a, tiles, a.k.dims[1],
                    {"attention_part_dk_64", "attention_part_dk_128",
                     "attention_part_dkv_rows_bf16", "attention_part_dkv_rows_f32"});
    if (on_tiles(a.q))  // without tiles one kernel has made both
      launch_backward(gpu, a, tiles, a.k.dims[1],
                      {"attention_part_dv_64", "attention_part_dv_128"});
  }
}

}  // namespace moraine::gpu
