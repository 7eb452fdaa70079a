// Cache: what sequences remember between calls, in pages: keys, values, and the small CCA state.
//
// A page holds `page_rows` consecutive positions of a sequence. With them it holds the CCA state after the
// last position that was written to it: the last two columns of packed q|k before the convolutions, and the
// last delayed value. So a full page is all that its positions leave behind: who has the pages of a prefix
// goes on from there with the bits of the one that computed them. A page that is not full has one writer.
//
// The cache knows no sequences: which page holds what is the caller's (infer/page_pool.h). A batch says it in
// a list of pages: position p of segment s is in page  pages[s.key_begin + p / page_rows].
//
// Several ranks may share it: keys and values of a page are then dealt to them in blocks (parallel/cache_share.h),
// but for sliding layers, whose window is soon full; the CCA state is on every rank, as the rows are.
//
// Memory: a page takes, in each layer, page_rows * 2 K d values and 2 C + M of state (+8 % at 64 rows of
//         the 8B shape).
#pragma once

#include <vector>

#include "kernels/context.h"
#include "kernels/segment.h"
#include "model/activations.h"
#include "parallel/cache_share.h"

namespace moraine {

constexpr int64_t kPageRows = 64;

struct CacheOptions {
  int64_t pages = 0;
  int64_t segments = 1;           // most documents of a batch
  int64_t page_rows = kPageRows;  // a multiple of 16 times the members that share the cache
  int64_t members = 1, member = 0;
};

struct LayerCache {
  Tensor k, v;        // [pages * page_rows, K, d]; of a shared layer a member's part
  CacheShare share;   // of k and v; one member: all are here
  Tensor conv;        // [pages, 2, C]: p at the last two positions that a page holds
  Tensor value;       // [pages, M]: delayed half of the value at the last one
  Tensor conv_halo;   // [segments, 2, C] scratch: the state before each segment of the batch
  Tensor value_halo;  // [segments, M] scratch
};

struct Cache {
  int64_t pages = 0, segments = 0, page_rows = kPageRows;
  std::vector<LayerCache> layers;

  int64_t positions() const { return pages * page_rows; }
  bool empty() const { return layers.empty(); }
};

Cache make_cache(Arena& arena, const ModelConfig& config, DType compute,
                 const CacheOptions& options);

// Bytes of one page, all layers, on one of so many members.
int64_t page_bytes(const ModelConfig& config, DType compute, int64_t page_rows,
                   int64_t members = 1);

// Everything that page `from` holds, to page `to`: a prefix that ends inside a page goes on in a copy.
void copy_page(Context& ctx, Cache& cache, int32_t from, int32_t to);

// The CCA state before each segment of a batch, gathered from the page of the position before it; zeros at a
// document's start.
void gather_state(Context& ctx, LayerCache& layer, Segments segments, const KeyPages& pages);

// After q|k|v of the batch are known: keys, values and the new CCA states go into their pages.
void append_to_cache(Context& ctx, LayerCache& layer, const LayerActs& acts, Segments segments,
                     const KeyPages& pages);

}  // namespace moraine
