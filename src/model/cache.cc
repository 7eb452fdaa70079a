// Cache: copies between the rows of a batch and the pages that hold them.
#include "model/cache.h"

#include <algorithm>

#include "kernels/move_rows.h"

namespace moraine {
namespace {

int64_t page_of(const KeyPages& pages, const Segment& segment, int64_t position) {
  return pages.page[static_cast<size_t>(segment.key_begin + position / pages.rows)];
}

// What moves of one tensor into another.
using Moves = std::vector<RowMove>;

}  // namespace

Cache make_cache(Arena& arena, const ModelConfig& c, DType X, const CacheOptions& o) {
  MR_CHECK(o.page_rows > 0 && o.page_rows % (16 * o.members) == 0, "pages of %ld rows",
           long(o.page_rows));
  Cache cache{.pages = o.pages, .segments = o.segments, .page_rows = o.page_rows, .layers = {}};
  const int64_t C = c.conv_channels(), M = c.value_width() / 2;
  const auto take = [&](const char* name, std::initializer_list<int64_t> dims) {
    return arena.take(std::string("cache.") + name, "cache", X, dims);
  };
  for (int64_t i = 0; i < c.layers; ++i) {
    LayerCache layer;
    layer.share.block = o.page_rows;
    if (c.window(i) == 0)
      layer.share = {.members = o.members, .member = o.member, .block = o.page_rows / o.members};
    const int64_t rows = o.pages * layer.share.block;
    layer.k = take("k", {rows, c.kv_heads, c.head_dim});
    layer.v = take("v", {rows, c.kv_heads, c.head_dim});
    if (c.cca()) {
      layer.conv = take("conv_state", {o.pages, 2, C});
      layer.value = take("value_state", {o.pages, M});
      layer.conv_halo = take("conv_halo", {o.segments, 2, C});
      layer.value_halo = take("value_halo", {o.segments, M});
    }
    cache.layers.push_back(layer);
  }
  return cache;
}

int64_t page_bytes(const ModelConfig& c, DType compute, int64_t page_rows, int64_t members) {
  const int64_t state = c.cca() ? 2 * c.conv_channels() + c.value_width() / 2 : 0;
  int64_t values = 0;
  for (int64_t i = 0; i < c.layers; ++i) {
    const int64_t rows = c.window(i) == 0 ? page_rows / members : page_rows;
    values += 2 * rows * c.kv_heads * c.head_dim + state;
  }
  return values * dtype_bytes(compute);
}

void copy_page(Context& ctx, Cache& cache, int32_t from, int32_t to) {
  const auto copy = [&](const Tensor& t, int64_t rows) {
    if (t.empty()) return;
    const int64_t count = t.count() / t.dims[0] * rows;
    const RowMove move = {.to = to * count, .from = from * count, .count = count};
    move_rows(ctx, {.to = t, .from = t, .moves = {&move, 1}});
  };
  for (LayerCache& layer : cache.layers) {
    copy(layer.k, layer.share.block);
    copy(layer.v, layer.share.block);
    copy(layer.conv, 1);
    copy(layer.value, 1);
  }
}

void gather_state(Context& ctx, LayerCache& layer, Segments segments, const KeyPages& pages) {
  if (layer.conv.empty()) return;
  const int64_t C2 = 2 * layer.conv.dims[2], M = layer.value.dims[1];
  Moves conv, value;
  for (size_t s = 0; s < segments.size(); ++s) {
    const Segment& segment = segments[s];
    const auto row = static_cast<int64_t>(s);
    const bool first = segment.position_begin == 0;
    const int64_t page = first ? -1 : page_of(pages, segment, segment.position_begin - 1);
    conv.push_back({.to = row * C2, .from = page * C2, .count = C2});
    value.push_back({.to = row * M, .from = page * M, .count = M});
  }
  move_rows(ctx, {.to = layer.conv_halo, .from = layer.conv, .moves = conv});
  move_rows(ctx, {.to = layer.value_halo, .from = layer.value, .moves = value});
}

void append_to_cache(Context& ctx, LayerCache& layer, const LayerActs& acts, Segments segments,
                     const KeyPages& pages) {
  const bool cca = !layer.conv.empty();
  const int64_t block = layer.share.block, width = layer.k.dims[1] * layer.k.dims[2];
  const int64_t C = cca ? layer.conv.dims[2] : 0, M = cca ? layer.value.dims[1] : 0,
                N = acts.qkv.dims[1];
  // Keys and values; the CCA state from rows of the batch, and from the state before a segment of one row.
  Moves keys, conv, conv_before, value;
  for (size_t s = 0; s < segments.size(); ++s) {
    const Segment& segment = segments[s];
    for (int64_t done = 0; done < segment.rows;) {
      const int64_t position = segment.position_begin + done, inside = position % block,
                    rows = std::min(segment.rows - done, block - inside),
                    from = segment.row_begin + done, page = page_of(pages, segment, position);
      if (layer.share.holds(position)) {
        const int64_t to = page * block + inside;
        keys.push_back({.to = to * width, .from = from * width, .count = rows * width});
      }
      done += rows;
      if (!cca) continue;
      const int64_t last = segment.row_begin + done - 1;
      conv.push_back({.to = (2 * page + 1) * C, .from = last * N, .count = C});
      if (done == 1) {
        conv_before.push_back(
            {.to = 2 * page * C, .from = (2 * static_cast<int64_t>(s) + 1) * C, .count = C});
      } else {
        conv.push_back({.to = 2 * page * C, .from = (last - 1) * N, .count = C});
      }
      value.push_back({.to = page * M, .from = last * N + C + M, .count = M});
    }
  }
  move_rows(ctx, {.to = layer.k, .from = acts.k, .moves = keys});
  move_rows(ctx, {.to = layer.v, .from = acts.v, .moves = keys});
  if (!cca) return;
  move_rows(ctx, {.to = layer.conv, .from = acts.qkv, .moves = conv});
  move_rows(ctx, {.to = layer.conv, .from = layer.conv_halo, .moves = conv_before});
  move_rows(ctx, {.to = layer.value, .from = acts.qkv, .moves = value});
}

}  // namespace moraine
