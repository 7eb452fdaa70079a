// AttentionBackward, host side: which 64 positions of which document a block takes.
#include "kernels/gpu/attention_backward.h"

#include <algorithm>
#include <span>
#include <vector>

#include "base/check.h"
#include "kernels/attention.h"
#include "kernels/attention_part.h"
#include "kernels/gpu/attention_part.h"
#include "kernels/gpu/element_grid.h"
#include "kernels/gpu/runtime.h"

namespace moraine::gpu {
namespace {

using Tiles = std::vector<AttentionBackwardTile>;

Tiles tiles_of(Segments segments) {
  Tiles tiles;
  for (const Segment& s : segments) {
    for (int64_t position = 0; position < s.rows; position += kAttentionRows) {
      tiles.push_back({.position = position,
                       .rows = s.rows,
                       .row_begin = s.row_begin,
                       .first = 0,
                       .keys = s.rows,
                       .key_begin = s.row_begin});
    }
  }
  return tiles;
}

// Of a part: `position` is the tile's first.
AttentionBackwardTile part_tile(const Segment& s, int64_t keys, int64_t position) {
  return {.position = position,
          .rows = s.position_begin + s.rows,
          .row_begin = s.row_begin - s.position_begin,
          .first = s.position_begin,
          .keys = keys,
          .key_begin = s.key_begin};
}

Tiles part_positions(Segments segments, std::span<const int64_t> keys) {
  Tiles tiles;
  for (size_t i = 0; i < segments.size(); ++i) {
    const Segment& s = segments[i];
    int64_t position = s.position_begin / kAttentionRows * kAttentionRows;
    for (; position < s.position_begin + s.rows; position += kAttentionRows)
      tiles.push_back(part_tile(s, keys[i], position));
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
      lists[list].push_back(part_tile(s, keys[i], position));
  }
  return lists;
}

// By name: on tiles for heads of up to 64 and 128, by rows in bf16 and in f32.
struct BackwardKernels {
  const char *narrow, *wide, *rows_bf16, *rows_f32;
};

// Call: AttentionBackward or AttentionPartBackward. heads: those of q, or of k.
template <class Call>
void launch_backward(Gpu& gpu, const Call& a, const Tiles& tiles, int64_t heads,
                     const BackwardKernels& kernels) {
  if (tiles.empty()) return;
  const int64_t d = a.q.dims[2];
  MR_CHECK(d <= kAttentionWidest, "d=%ld", static_cast<long>(d));
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
      .d = d,
      .scale = a.scale};
  const auto count = static_cast<int64_t>(tiles.size());
  const bool bf16 = a.q.dtype == DType::kBF16;
  if (bf16 && d <= kAttentionWidestTiles) {
    gpu.launch(d <= 64 ? kernels.narrow : kernels.wide,
               {.blocks_x = count, .blocks_y = heads, .threads = kAttentionWaves * gpu.wave()},
               &args);
    return;
  }
  gpu.launch(
      bf16 ? kernels.rows_bf16 : kernels.rows_f32,
      {.blocks_x = count * kAttentionRows, .blocks_y = heads, .threads = kAttentionRowThreads},
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
  const Tiles tiles = tiles_of(a.segments);
  launch_backward(
      gpu, a, tiles, a.q.dims[1],
      {"attention_dq_64", "attention_dq_128", "attention_dq_rows_bf16", "attention_dq_rows_f32"});
  launch_backward(gpu, a, tiles, a.k.dims[1],
                  {"attention_dkv_64", "attention_dkv_128", "attention_dkv_rows_bf16",
                   "attention_dkv_rows_f32"});
}

void attention_part_backward(Gpu& gpu, const AttentionPartBackward& a) {
  launch_backward(gpu, a, part_positions(a.segments, a.keys), a.q.dims[1],
                  {"attention_part_dq_64", "attention_part_dq_128", "attention_part_dq_rows_bf16",
                   "attention_part_dq_rows_f32"});
  // Without tiles one kernel makes both.
  const bool tiled = a.q.dtype == DType::kBF16 && a.q.dims[2] <= kAttentionWidestTiles;
  for (const Tiles& tiles : part_keys(a.segments, a.keys)) {
    launch_backward(gpu, a, tiles, a.k.dims[1],
                    {"attention_part_dk_64", "attention_part_dk_128",
                     "attention_part_dkv_rows_bf16", "attention_part_dkv_rows_f32"});
    if (tiled)
      launch_backward(gpu, a, tiles, a.k.dims[1],
                      {"attention_part_dv_64", "attention_part_dv_128", nullptr, nullptr});
  }
}

}  // namespace moraine::gpu
