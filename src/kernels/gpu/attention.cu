// Attention, device side: a wave's scores, its weights, and what they make of the values.
#include "kernels/gpu/attention_keys.h"
#include "kernels/gpu/chunk_lines.h"
#include "kernels/gpu/exp.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

constexpr int kKeyTiles = kAttentionKeys / kTile;
constexpr int kWeightStride = kAttentionKeys + 8;  // of a row: other banks for the next

// What a wave knows of its 16 positions: of each row that a lane has cells of, or of its cells.
template <int kWidth>
struct AttentionRows {
  int64_t position;  // the first
  float largest[kLaneRows], total[kLaneRows];
  LeftTile q[kWidth / kTile];
  SumTile o[kWidth / kTile];
};

template <int kWidth>
MR_DEVICE AttentionRows<kWidth> start_rows(const AttentionArgs& a, const AttentionTile& tile) {
  AttentionRows<kWidth> r = {};
  r.position = tile.position + wave() * kTile;
  MR_UNROLL for (int i = 0; i < kLaneRows; ++i) r.largest[i] = from_bits(0xff800000u);
  MR_UNROLL for (int t = 0; t < kWidth / kTile; ++t) {
    r.q[t] = left_tile([&](int i, int c) {
      const int64_t begin = query_begin(a, tile, r.position + i), channel = t * kTile + c;
      return begin < 0 || channel >= a.d ? BF16{}
                                         : load(static_cast<const BF16*>(a.q) + (begin + channel));
    });
  }
  return r;
}

// Keys [first, first + kAttentionKeys) of the `end` that there are.
struct KeyStep {
  int64_t first, end;
};

// Keys and values of a step; zeros where there is no key, or no channel.
template <int kWidth>
MR_DEVICE void copy_keys(Shared<Chunk> keys, Shared<Chunk> values, const AttentionArgs& a,
                         const AttentionTile& tile, int64_t first) {
  constexpr int kChunks = kWidth / kChunk;
  const int64_t g = block_y() / (a.H / a.K);
  const auto *const k = static_cast<const BF16*>(a.k), *const v = static_cast<const BF16*>(a.v);
  const auto copy = [&](Shared<Chunk> to, const BF16* from) {
    copy_rows<kAttentionKeys, kChunks, kAttentionWaves * kWave>(
        to, a.d, lines_are_aligned<Chunk>(from, a.d), [&](int line) -> const BF16* {
          const int64_t position = first + line;
          if (position >= tile.keys) return nullptr;
          return from + (key_row(a, tile, position) * a.K + g) * a.d;
        });
  };
  copy(keys, k);
  copy(values, v);
}

template <int kWidth>
MR_DEVICE void scores(SumTile (&s)[kKeyTiles], const AttentionRows<kWidth>& r, Shared<Chunk> keys) {
  MR_UNROLL for (int t = 0; t < kKeyTiles; ++t) {
    MR_UNROLL for (int c = 0; c < kWidth / kTile; ++c) {
      multiply_add(s[t], r.q[c],
                   right_of_lines(tile_chunks<kWidth / kChunk>(keys, t * kTile, c * kTile)));
    }
  }
}

// Scores become weights, written to `weights` in bf16; largest, total and o move to the new largest.
template <int kWidth, bool kPart>
MR_DEVICE void weigh(SumTile (&s)[kKeyTiles], AttentionRows<kWidth>& r, Shared<BF16> weights,
                     const AttentionArgs& a, const KeyStep& step) {
  float largest[kLaneRows], shrink[kLaneRows], total[kLaneRows] = {};
  const Sight near = sight(a, r.position, step.first);
  const int64_t left = step.end - step.first;
  const int end = left < kAttentionKeys ? static_cast<int>(left) : kAttentionKeys;
  MR_UNROLL for (int i = 0; i < kLaneRows; ++i) largest[i] = r.largest[i];
  MR_UNROLL for (int t = 0; t < kKeyTiles; ++t) {
    MR_UNROLL for (int e = 0; e < kHeld; ++e) {
      const TileCell c = sum_cell(lane(), e);
      const int key = t * kTile + c.column;
      const bool seen = near.sees(c.row, key) && (!kPart || key < end);
      s[t].v[e] = seen ? s[t].v[e] * a.scale : from_bits(0xff800000u);
      float& most = largest[row_slot(e)];
      most = s[t].v[e] > most ? s[t].v[e] : most;
    }
  }
  MR_UNROLL for (int i = 0; i < kLaneRows; ++i) {
    largest[i] = row_max(largest[i]);
    // A row that has seen nothing yet keeps nothing: its largest is -inf, and stays out of the differences.
    const bool none = largest[i] < -3e38f;
    shrink[i] = none ? 1.0f : exp_nonpositive(r.largest[i] - largest[i]);
    r.largest[i] = largest[i];
    largest[i] = none ? 0.0f : largest[i];
  }
  MR_UNROLL for (int t = 0; t < kKeyTiles; ++t) {
    MR_UNROLL for (int e = 0; e < kHeld; ++e) {
      const TileCell c = sum_cell(lane(), e);
      const float p = exp_nonpositive(s[t].v[e] - largest[row_slot(e)]);
      total[row_slot(e)] += p;
      store(weights + (c.row * kWeightStride + t * kTile + c.column), narrow(p));
    }
  }
  MR_UNROLL for (int i = 0; i < kLaneRows; ++i) {
    r.total[i] = r.total[i] * shrink[i] + row_sum(total[i]);
  }
  MR_UNROLL for (int c = 0; c < kWidth / kTile; ++c) {
    MR_UNROLL for (int e = 0; e < kHeld; ++e) r.o[c].v[e] *= shrink[row_slot(e)];
  }
}

template <int kWidth>
MR_DEVICE void add_values(AttentionRows<kWidth>& r, Shared<BF16> weights, Shared<Chunk> values) {
  MR_ROLLED for (int t = 0; t < kKeyTiles; ++t) {
    const LeftTile left = left_tile(
        [&](int i, int k) { return load(weights + (i * kWeightStride + t * kTile + k)); });
    MR_UNROLL for (int c = 0; c < kWidth / kTile; ++c) {
      multiply_add(r.o[c], left,
                   right_of_columns(tile_chunks<kWidth / kChunk>(values, t * kTile, c * kTile)));
    }
  }
}

// Of a part wide, and of a row that saw no key zeros and -inf.
template <int kWidth, bool kPart>
MR_DEVICE void store_rows(const AttentionArgs& a, const AttentionTile& tile,
                          const AttentionRows<kWidth>& r) {
  MR_UNROLL for (int t = 0; t < kWidth / kTile; ++t) {
    MR_UNROLL for (int e = 0; e < kHeld; ++e) {
      const TileCell c = sum_cell(lane(), e);
      const int64_t begin = query_begin(a, tile, r.position + c.row),
                    channel = t * kTile + c.column;
      if (begin < 0 || channel >= a.d) continue;
      const float total = r.total[row_slot(e)];
      if (kPart) {
        store(static_cast<float*>(a.o) + (begin + channel), total > 0 ? r.o[t].v[e] / total : 0.0f);
      } else {
        store(static_cast<BF16*>(a.o) + (begin + channel), narrow(r.o[t].v[e] / total));
      }
      if (channel == 0)
        store(a.lse + begin / a.d, attention_lse<kPart>(r.largest[row_slot(e)], total));
    }
  }
}

// The next step's keys and values are on their way while this one's are weighed.
template <int kWidth, bool kPart>
MR_DEVICE void attention_tile(const AttentionArgs& a) {
  constexpr int kStep = kAttentionKeys * kWidth / kChunk;
  MR_SHARED(Chunk, steps, 2 * 2 * kStep);
  MR_SHARED(BF16, weights, kAttentionWaves * kTile * kWeightStride);
  const Shared<Chunk> keys = steps;
  const Shared<BF16> mine = weights + wave() * kTile * kWeightStride;
  const AttentionTile tile = load(a.tiles + block_x());
  int64_t first = first_seen(a, tile.position) / kAttentionKeys * kAttentionKeys;
  int now = 0;
  if (first < tile.keys) copy_keys<kWidth>(keys, keys + kStep, a, tile, first);
  commit_copies();
  AttentionRows<kWidth> r = start_rows<kWidth>(a, tile);
  for (; first < tile.keys; first += kAttentionKeys) {
    wait_copies<0>();
    sync_block();  // all see the step, and all are done with the one before it, which is filled anew
    const int64_t next = first + kAttentionKeys;
    const Shared<Chunk> step = keys + now, other = keys + (2 * kStep - now);
    now = 2 * kStep - now;
    if (next < tile.keys) copy_keys<kWidth>(other, other + kStep, a, tile, next);
    commit_copies();
    // The wave's first position sees the farthest back, its last the farthest on.
    const int64_t last = r.position + kTile - 1;
    if (first > last || (a.window > 0 && next <= r.position - a.window + 1)) continue;
    SumTile s[kKeyTiles] = {};
    scores<kWidth>(s, r, step);
    weigh<kWidth, kPart>(s, r, mine, a, {first, tile.keys});
    sync_wave();
    add_values<kWidth>(r, mine, step + kStep);
  }
  store_rows<kWidth, kPart>(a, tile, r);
}

MR_KERNEL(attention_64, kAttentionWaves* kWave, AttentionArgs a) { attention_tile<64, false>(a); }
MR_KERNEL(attention_128, kAttentionWaves* kWave, AttentionArgs a) { attention_tile<128, false>(a); }
MR_KERNEL(attention_part_64, kAttentionWaves* kWave, AttentionArgs a) {
  attention_tile<64, true>(a);
}
MR_KERNEL(attention_part_128, kAttentionWaves* kWave, AttentionArgs a) {
  attention_tile<128, true>(a);
}

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
