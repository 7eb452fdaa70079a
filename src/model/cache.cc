// Cache: copies between the rows of a batch and the pages that hold them.
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

void zero_row(const Tensor& to, int64_t row) {
  const Tensor target = to.rows(row, row + 1);
  std::memset(target.data, 0, static_cast<size_t>(target.bytes()));
}

int64_t page_of(const KeyPages& pages, const Segment& segment, int64_t position) {
  return pages.page[static_cast<size_t>(segment.key_begin + position / pages.rows)];
}

// The state after row `last` of a segment (counted from its first), which is in page `page`.
struct StateAfter {
  int64_t segment, last, page;
};

void store_state(LayerCache& layer, const ModelConfig& c, const LayerActs& acts,
                 const Segment& segment, const StateAfter& at) {
  const int64_t element = dtype_bytes(acts.qkv.dtype), C = c.conv_channels(),
                M = c.value_width() / 2;
  const auto bytes = static_cast<size_t>(C * element);
  const auto qkv_row = [&](int64_t row) {
    return static_cast<const char*>(acts.qkv.data) +
           (segment.row_begin + row) * c.qkv_width() * element;
  };
  char* conv = static_cast<char*>(layer.conv.rows(at.page, at.page + 1).data);
  const char* halo =
      static_cast<const char*>(layer.conv_halo.rows(at.segment, at.segment + 1).data);
  std::memcpy(conv, at.last == 0 ? halo + C * element : qkv_row(at.last - 1), bytes);
  std::memcpy(conv + C * element, qkv_row(at.last), bytes);
  std::memcpy(layer.value.rows(at.page, at.page + 1).data, qkv_row(at.last) + (C + M) * element,
              static_cast<size_t>(M * element));
}

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

void copy_page(Cache& cache, int32_t from, int32_t to) {
  for (LayerCache& layer : cache.layers) {
    const int64_t n = layer.share.block;
    copy_rows(layer.k, to * n, layer.k, from * n, n);
    copy_rows(layer.v, to * n, layer.v, from * n, n);
    if (layer.conv.empty()) continue;
    copy_rows(layer.conv, to, layer.conv, from, 1);
    copy_rows(layer.value, to, layer.value, from, 1);
  }
}

void gather_state(LayerCache& layer, Segments segments, const KeyPages& pages) {
  if (layer.conv.empty()) return;
  for (size_t s = 0; s < segments.size(); ++s) {
    const Segment& segment = segments[s];
    const auto row = static_cast<int64_t>(s);
    if (segment.position_begin == 0) {
      zero_row(layer.conv_halo, row);
      zero_row(layer.value_halo, row);
      continue;
    }
    const int64_t page = page_of(pages, segment, segment.position_begin - 1);
    copy_rows(layer.conv_halo, row, layer.conv, page, 1);
    copy_rows(layer.value_halo, row, layer.value, page, 1);
  }
}

void append_to_cache(LayerCache& layer, const ModelConfig& c, const LayerActs& acts,
                     Segments segments, const KeyPages& pages) {
  const int64_t block = layer.share.block;
  for (size_t s = 0; s < segments.size(); ++s) {
    const Segment& segment = segments[s];
    for (int64_t done = 0; done < segment.rows;) {
      const int64_t position = segment.position_begin + done, inside = position % block,
                    rows = std::min(segment.rows - done, block - inside),
                    from = segment.row_begin + done;
      if (layer.share.holds(position)) {
        const int64_t to = page_of(pages, segment, position) * block + inside;
        copy_rows(layer.k, to, acts.k, from, rows);
        copy_rows(layer.v, to, acts.v, from, rows);
      }
      done += rows;
      if (!c.cca()) continue;
      store_state(layer, c, acts, segment,
                  {.segment = static_cast<int64_t>(s),
                   .last = done - 1,
                   .page = page_of(pages, segment, position)});
    }
  }
}

}  // namespace moraine
