// Cache: what a sequence remembers between calls: keys, values, and the small CCA state.
//
// A cache has slots; a slot is one sequence with room for `positions` keys. The CCA state of a layer is the
// last two columns of packed q|k before the convolutions and the last delayed value; zeros at a document's
// start, so a fresh slot needs no special case.
#pragma once

#include <vector>

#include "kernels/segment.h"
#include "model/activations.h"

namespace moraine {

struct LayerCache {
  Tensor k, v;        // [slots * positions, K, d]
  Tensor conv;        // [slots, 2, C]: p at the two positions before the next
  Tensor value;       // [slots, M]: delayed half of the value before the next
  Tensor conv_halo;   // [slots, 2, C] scratch: the same by segment of the batch
  Tensor value_halo;  // [slots, M] scratch
};

struct Cache {
  int64_t slots = 0, positions = 0;
  std::vector<LayerCache> layers;
  std::vector<int64_t> lengths;  // [slots] positions in use

  int64_t key_begin(int64_t slot) const { return slot * positions; }
};

Cache make_cache(Arena& arena, const ModelConfig& config, DType compute, int64_t slots,
                 int64_t positions);

// Forgets a slot: length 0, CCA state zero.
void clear_slot(Cache& cache, int64_t slot);

// For a batch whose segment i continues slot slot_of[i]: gathers the CCA state by segment.
void gather_state(LayerCache& layer, std::span<const int64_t> slot_of);

// After q|k|v of the batch are known: appends keys and values, and stores the new CCA state.
void append_to_cache(LayerCache& layer, const ModelConfig& config, const LayerActs& acts,
                     Segments segments, std::span<const int64_t> slot_of);

}  // namespace moraine
