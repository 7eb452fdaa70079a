// Cache: copies between the rows of a batch and the slots that they continue.
#include "model/cache.h"

#include <algorithm>
#include <cstring>

namespace moraine {
namespace {

void copy_rows(const Tensor& to, int64_t to_row, const Tensor& from, int64_t from_row,
               int64_t rows) {
  const Tensor source = from.rows(from_row, from_row + rows),
               target = to.rows(to_row, to_row + rows);
  MR_CHECK(source.bytes() == target.bytes());
  std::memcpy(target.data, source.data, static_cast<size_t>(source.bytes()));
}

}  // namespace

Cache make_cache(Arena& arena, const ModelConfig& c, DType X, int64_t slots, int64_t positions) {
  Cache cache{.slots = slots,
              .positions = positions,
              .layers = {},
              .lengths = std::vector<int64_t>(static_cast<size_t>(slots), 0)};
  const int64_t C = c.conv_channels(), M = c.value_width() / 2;
  const auto take = [&](const char* name, std::initializer_list<int64_t> dims) {
    return arena.take(std::string("cache.") + name, "cache", X, dims);
  };
  for (int64_t i = 0; i < c.layers; ++i) {
    LayerCache layer;
    layer.k = take("k", {slots * positions, c.kv_heads, c.head_dim});
    layer.v = take("v", {slots * positions, c.kv_heads, c.head_dim});
    if (c.cca()) {
      layer.conv = take("conv_state", {slots, 2, C});
      layer.value = take("value_state", {slots, M});
      layer.conv_halo = take("conv_halo", {slots, 2, C});
      layer.value_halo = take("value_halo", {slots, M});
    }
    cache.layers.push_back(layer);
  }
  return cache;
}

void clear_slot(Cache& cache, int64_t slot) {
  cache.lengths[static_cast<size_t>(slot)] = 0;
  for (LayerCache& layer : cache.layers) {
    for (const Tensor& state : {layer.conv, layer.value}) {
      if (state.empty()) continue;
      const Tensor row = state.rows(slot, slot + 1);
      std::memset(row.data, 0, static_cast<size_t>(row.bytes()));
    }
  }
}

void gather_state(LayerCache& layer, std::span<const int64_t> slot_of) {
  if (layer.conv.empty()) return;
  for (size_t s = 0; s < slot_of.size(); ++s) {
    copy_rows(layer.conv_halo, static_cast<int64_t>(s), layer.conv, slot_of[s], 1);
    copy_rows(layer.value_halo, static_cast<int64_t>(s), layer.value, slot_of[s], 1);
  }
}

void append_to_cache(LayerCache& layer, const ModelConfig& c, const LayerActs& acts,
                     Segments segments, std::span<const int64_t> slot_of) {
  for (size_t s = 0; s < segments.size(); ++s) {
    const Segment& segment = segments[s];
    const int64_t key_row = segment.key_begin + segment.position_begin;
    copy_rows(layer.k, key_row, acts.k, segment.row_begin, segment.rows);
    copy_rows(layer.v, key_row, acts.v, segment.row_begin, segment.rows);
    if (!c.cca()) continue;
    const int64_t element = dtype_bytes(acts.qkv.dtype), C = c.conv_channels(),
                  M = c.value_width() / 2;
    const auto qkv_row = [&](int64_t t) {
      return static_cast<const char*>(acts.qkv.data) + t * c.qkv_width() * element;
    };
    char* conv = static_cast<char*>(layer.conv.rows(slot_of[s], slot_of[s] + 1).data);
    const int64_t last = segment.row_begin + segment.rows - 1;
    if (segment.rows == 1) std::memmove(conv, conv + C * element, static_cast<size_t>(C * element));
    if (segment.rows > 1) std::memcpy(conv, qkv_row(last - 1), static_cast<size_t>(C * element));
    std::memcpy(conv + C * element, qkv_row(last), static_cast<size_t>(C * element));
    std::memcpy(layer.value.rows(slot_of[s], slot_of[s] + 1).data,
                qkv_row(last) + (C + M) * element, static_cast<size_t>(M * element));
  }
}

}  // namespace moraine
