// AttentionBackward, device side, on tiles: a wave's 16 positions meet keys, or its 16 keys meet positions.
#include "kernels/gpu/attention_slopes.h"
#include "kernels/gpu/chunk_lines.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

constexpr int kMetTiles = kAttentionKeys / kTile;
constexpr int kSlopeStride = kAttentionKeys + 8;    // of a row of P or dS: other banks for the next
constexpr int kSlopeShared = kTile * kSlopeStride;  // of a wave

static_assert(kAttentionRows == 2 * kAttentionKeys,
              "own rows are loaded where two matrices are met");

// The first of 16 own rows, and of 16 met rows.
struct TilePlace {
  int64_t own, met;
};
struct HeadAndPlace {
  int64_t head, first;
};

// kCount rows from `first` on; zeros where there is no row, or no channel. They are on their way.
template <int kWidth, bool kPart, int kCount>
MR_DEVICE void copy_head_rows(Shared<Chunk> to, const void* from, const HeadRows& rows,
                              int64_t first, bool aligned) {
  const auto within = [&](int64_t row) {
    return row < 0 ? 0 : row > kCount ? kCount : static_cast<int>(row);
  };
  const int low = kPart ? within(rows.first - first) : 0, high = within(rows.rows - first);
  const auto* const data = static_cast<const BF16*>(from);
  const BF16* const begin = data + rows.at(first, 0);
  copy_rows<kCount, kWidth / kChunk, kAttentionWaves * kWave>(
      to, rows.d, aligned, [&](int line) -> const BF16* {
        return line >= low && line < high ? begin + line * rows.stride : nullptr;
      });
}
MR_DEVICE bool rows_are_aligned(const AttentionBackwardArgs& a) {
  const auto bits = [](const void* p) { return reinterpret_cast<uintptr_t>(p); };
  return ((bits(a.q) | bits(a.k) | bits(a.v) | bits(a.do_) | 2 * static_cast<uint64_t>(a.d)) %
          sizeof(Chunk)) == 0;
}
MR_DEVICE void await_copies() {
  commit_copies();
  wait_copies<0>();
  sync_block();
}

// Sixteen channels of 16 rows, as a left operand.
template <int kWidth>
MR_DEVICE LeftTile own_tile(Shared<Chunk> own, int t) {
  return left_of_lines(tile_chunks<kWidth / kChunk>(own, 0, t * kTile));
}

struct OwnRows {
  int64_t first;
  bool aligned;  // rows_are_aligned()
};
// The wave's 16 of the block's rows from `first` on, by way of `room` for all of them.
template <int kWidth, bool kPart>
MR_DEVICE void load_own(LeftTile (&to)[kWidth / kTile], Shared<Chunk> room, const void* from,
                        const HeadRows& rows, const OwnRows& at) {
  sync_block();
  copy_head_rows<kWidth, kPart, kAttentionRows>(room, from, rows, at.first, at.aligned);
  await_copies();
  const Shared<Chunk> own = room + wave() * kTile * (kWidth / kChunk);
  MR_UNROLL for (int t = 0; t < kWidth / kTile; ++t) to[t] = own_tile<kWidth>(own, t);
}

// Own rows times 16 met rows; own(t): sixteen channels of the own ones.
template <int kWidth, class Own>
MR_DEVICE SumTile meet(const Own& own, Shared<Chunk> met) {
  SumTile sum = {};
  MR_UNROLL for (int t = 0; t < kWidth / kTile; ++t) {
    multiply_add(sum, own(t), right_of_lines(tile_chunks<kWidth / kChunk>(met, 0, t * kTile)));
  }
  return sum;
}

// sum += weights of own rows times met rows.
template <int kWidth>
MR_DEVICE void add_met(SumTile (&sum)[kWidth / kTile], Shared<BF16> weights, Shared<Chunk> met) {
  MR_ROLLED for (int t = 0; t < kMetTiles; ++t) {
    const LeftTile left =
        left_tile([&](int i, int k) { return load(weights + (i * kSlopeStride + t * kTile + k)); });
    MR_UNROLL for (int c = 0; c < kWidth / kTile; ++c) {
      multiply_add(sum[c], left,
                   right_of_columns(tile_chunks<kWidth / kChunk>(met, t * kTile, c * kTile)));
    }
  }
}

// scale * sum, to the rows from `first` on.
template <int kWidth, bool kPart>
MR_DEVICE void store_own(void* to, const SumTile (&sum)[kWidth / kTile], const HeadRows& rows,
                         int64_t first, float scale) {
  MR_UNROLL for (int t = 0; t < kWidth / kTile; ++t) {
    each_sum(sum[t], [&](int row, int column, float v) {
      const int64_t position = first + row, channel = t * kTile + column;
      if (!rows.template has<kPart>(position, channel)) return;
      put_gradient<BF16, kPart>(to, rows.at(position, channel), scale * v);
    });
  }
}

// ------------------------------------------------------------------------------------ dq

// Of the rows of a sum that a lane has cells of.
struct LaneStatistics {
  float lse[kLaneRows], delta[kLaneRows];
};
template <bool kPart>
MR_DEVICE LaneStatistics load_statistics(const AttentionBackwardArgs& a,
                                         const AttentionBackwardTile& tile, int64_t first) {
  LaneStatistics s = {};
  MR_UNROLL for (int e = 0; e < kHeld; ++e) {
    const int64_t position = first + sum_cell(lane(), e).row;
    if (position >= tile.rows || (kPart && position < tile.first)) continue;
    s.lse[row_slot(e)] = load(a.lse + statistic_at(a, tile, block_y(), position));
    s.delta[row_slot(e)] = load(a.delta + statistic_at(a, tile, block_y(), position));
  }
  return s;
}

// dS of 16 positions from `position` on and 16 keys from `key` on.
MR_DEVICE void store_query_slopes(const AttentionBackwardArgs& a, const LaneStatistics& known,
                                  Shared<BF16> slopes, const SumTile (&met)[2],
                                  const TilePlace& at) {
  const Sight near = sight(a, at.own, at.met);
  MR_UNROLL for (int e = 0; e < kHeld; ++e) {
    const TileCell c = sum_cell(lane(), e);
    const AttentionSlope s = attention_slope(met[0].v[e] * a.scale, met[1].v[e],
                                             known.lse[row_slot(e)], known.delta[row_slot(e)]);
    const bool seen = near.sees(c.row, c.column);
    store(slopes + (c.row * kSlopeStride + c.column), narrow(seen ? s.ds : 0.0f));
  }
}

template <int kWidth, bool kPart>
MR_DEVICE void query_gradient(const AttentionBackwardArgs& a) {
  constexpr int kChunks = kWidth / kChunk;
  MR_SHARED(Chunk, room, kAttentionRows * kChunks);
  MR_SHARED(BF16, slopes, kAttentionWaves * kSlopeShared);
  const Shared<Chunk> keys = room, values = keys + kAttentionKeys * kChunks;
  const Shared<BF16> mine = slopes + wave() * kSlopeShared;
  const AttentionBackwardTile tile = load(a.tiles + block_x());
  const HeadRows rows = query_head<kPart>(a, tile, block_y()),
                 key_rows = key_head<kPart>(a, tile, block_y() / (a.H / a.K));
  const int64_t own = tile.position + wave() * kTile, last = own + kTile - 1;
  const bool aligned = rows_are_aligned(a);
  LeftTile q[kWidth / kTile], slope[kWidth / kTile];
  load_own<kWidth, kPart>(q, keys, a.q, rows, {tile.position, aligned});
  load_own<kWidth, kPart>(slope, keys, a.do_, rows, {tile.position, aligned});
  const LaneStatistics known = load_statistics<kPart>(a, tile, own);
  SumTile dq[kWidth / kTile] = {};
  const int64_t block_end = tile.position + kAttentionRows;
  int64_t first = first_seen(a, tile.position) / kAttentionKeys * kAttentionKeys;
  for (; first < block_end && first < key_rows.rows; first += kAttentionKeys) {
    sync_block();
    copy_head_rows<kWidth, false, kAttentionKeys>(keys, a.k, key_rows, first, aligned);
    copy_head_rows<kWidth, false, kAttentionKeys>(values, a.v, key_rows, first, aligned);
    await_copies();
    // The wave's first position sees the farthest back, its last the farthest on.
    if (first > last || (a.window > 0 && first + kAttentionKeys <= own - a.window + 1)) continue;
    MR_UNROLL for (int t = 0; t < kMetTiles; ++t) {
      const int row = t * kTile * kChunks;
      const SumTile met[2] = {meet<kWidth>([&](int c) { return q[c]; }, keys + row),
                              meet<kWidth>([&](int c) { return slope[c]; }, values + row)};
      store_query_slopes(a, known, mine + t * kTile, met, {own, first + t * kTile});
    }
    sync_wave();
    add_met<kWidth>(dq, mine, keys);
  }
  store_own<kWidth, kPart>(a.dq, dq, rows, own, a.scale);
}

// ------------------------------------------------------------------------------------ dk, dv

// lse, then delta, of kAttentionKeys positions; zeros where there is none: its rows of q and do are zeros as well.
MR_DEVICE void load_met_statistics(Shared<float> to, const AttentionBackwardArgs& a,
                                   const AttentionBackwardTile& tile, const HeadAndPlace& at) {
  for (int i = thread(); i < kAttentionKeys; i += kAttentionWaves * kWave) {
    const int64_t position = at.first + i, from = statistic_at(a, tile, at.head, position);
    store(to + i, position < tile.rows ? load(a.lse + from) : 0.0f);
    store(to + (kAttentionKeys + i), position < tile.rows ? load(a.delta + from) : 0.0f);
  }
}

// The last position that sees the key `behind` the block's first, counted from there.
MR_DEVICE int seeing_behind(const AttentionBackwardArgs& a, const AttentionBackwardTile& tile,
                            int behind) {
  return static_cast<int>(last_seeing(a, tile, tile.position + behind) - tile.position);
}

// P of 16 keys and 16 positions, and behind it dS.
template <bool kKeys, bool kValues>
MR_DEVICE void store_key_slopes(const AttentionBackwardArgs& a, Shared<float> known,
                                Shared<BF16> to, const SumTile (&met)[2], const TilePlace& at) {
  const Sight near = sight(a, at.met, at.own);
  MR_UNROLL for (int e = 0; e < kHeld; ++e) {
    const TileCell c = sum_cell(lane(), e);
    const AttentionSlope s =
        attention_slope(met[0].v[e] * a.scale, met[1].v[e], load(known + c.column),
                        load(known + (kAttentionKeys + c.column)));
    const bool seen = near.sees(c.column, c.row);
    if (kValues) store(to + (c.row * kSlopeStride + c.column), narrow(seen ? s.p : 0.0f));
    if (kKeys)
      store(to + (kSlopeShared + c.row * kSlopeStride + c.column), narrow(seen ? s.ds : 0.0f));
  }
}

// Of a part, dk and dv are made one after the other: what both are added to would be too many registers.
template <int kWidth, bool kPart, bool kKeys, bool kValues>
MR_DEVICE void key_gradients(const AttentionBackwardArgs& a) {
  constexpr int kChunks = kWidth / kChunk;
  MR_SHARED(Chunk, room, kAttentionRows * kChunks);
  MR_SHARED(Chunk, v_rows, kAttentionRows * kChunks);  // in registers they would be too many
  MR_SHARED(BF16, weights, 2 * kAttentionWaves * kSlopeShared);
  MR_SHARED(float, known, 2 * kAttentionKeys);
  const Shared<BF16> mine = weights + wave() * 2 * kSlopeShared;
  const Shared<Chunk> queries = room, slopes = queries + kAttentionKeys * kChunks;  // q, do
  const Shared<Chunk> v = v_rows, own_v = v + wave() * kTile * kChunks;
  const AttentionBackwardTile tile = load(a.tiles + block_x());
  const HeadRows keys = key_head<kPart>(a, tile, block_y());
  // Counted from the block's first position, where 32 bits will do.
  const int own = wave() * kTile, heads = static_cast<int>(a.H / a.K);
  const bool aligned = rows_are_aligned(a);
  LeftTile k[kWidth / kTile];
  load_own<kWidth, false>(k, queries, a.k, keys, {tile.position, aligned});
  if (kKeys) copy_head_rows<kWidth, false, kAttentionRows>(v, a.v, keys, tile.position, aligned);
  SumTile dk[kWidth / kTile] = {}, dv[kWidth / kTile] = {};
  const int block_last = seeing_behind(a, tile, kAttentionRows - 1),
            own_last = seeing_behind(a, tile, own + kTile - 1),
            begin = static_cast<int>(first_met<kPart>(tile) - tile.position);
  for (int i = 0; i < heads; ++i) {
    const int64_t head = block_y() * heads + i;
    for (int first = begin; first <= block_last; first += kAttentionKeys) {
      sync_block();
      const HeadRows rows = query_head<kPart>(a, tile, head);
      copy_head_rows<kWidth, false, kAttentionKeys>(queries, a.q, rows, tile.position + first,
                                                    aligned);
      copy_head_rows<kWidth, false, kAttentionKeys>(slopes, a.do_, rows, tile.position + first,
                                                    aligned);
      load_met_statistics(known, a, tile, {head, tile.position + first});
      await_copies();
      if (first + kAttentionKeys <= own || first > own_last) continue;
      MR_ROLLED for (int t = 0; t < kMetTiles; ++t) {
        const int row = t * kTile * kChunks;
        const SumTile met[2] = {
            meet<kWidth>([&](int c) { return k[c]; }, queries + row),
            kKeys ? meet<kWidth>([&](int c) { return own_tile<kWidth>(own_v, c); }, slopes + row)
                  : SumTile{}};
        store_key_slopes<kKeys, kValues>(a, known + t * kTile, mine + t * kTile, met,
                                         {own, first + t * kTile});
      }
      sync_wave();
      if (kValues) add_met<kWidth>(dv, mine, slopes);
      if (kKeys) add_met<kWidth>(dk, mine + kSlopeShared, queries);
    }
  }
  // Read again: through the loop it would take registers.
  const AttentionBackwardTile again = load(a.tiles + block_x());
  const HeadRows to = key_head<kPart>(a, again, block_y());
  const int64_t to_own = again.position + wave() * kTile;
  if (kKeys) store_own<kWidth, kPart>(a.dk, dk, to, to_own, a.scale);
  if (kValues) store_own<kWidth, kPart>(a.dv, dv, to, to_own, 1.0f);
}

MR_KERNEL(attention_dq_64, kAttentionWaves* kWave, AttentionBackwardArgs a) {
  query_gradient<64, false>(a);
}
MR_KERNEL(attention_part_dq_64, kAttentionWaves* kWave, AttentionBackwardArgs a) {
  query_gradient<64, true>(a);
}
MR_KERNEL(attention_dq_128, kAttentionWaves* kWave, AttentionBackwardArgs a) {
  query_gradient<128, false>(a);
}
MR_KERNEL(attention_part_dq_128, kAttentionWaves* kWave, AttentionBackwardArgs a) {
  query_gradient<128, true>(a);
}
MR_KERNEL(attention_dkv_64, kAttentionWaves* kWave, AttentionBackwardArgs a) {
  key_gradients<64, false, true, true>(a);
}
MR_KERNEL(attention_part_dk_64, kAttentionWaves* kWave, AttentionBackwardArgs a) {
  key_gradients<64, true, true, false>(a);
}
MR_KERNEL(attention_part_dv_64, kAttentionWaves* kWave, AttentionBackwardArgs a) {
  key_gradients<64, true, false, true>(a);
}
MR_KERNEL(attention_dkv_128, kAttentionWaves* kWave, AttentionBackwardArgs a) {
  key_gradients<128, false, true, true>(a);
}
MR_KERNEL(attention_part_dk_128, kAttentionWaves* kWave, AttentionBackwardArgs a) {
  key_gradients<128, true, true, false>(a);
}
MR_KERNEL(attention_part_dv_128, kAttentionWaves* kWave, AttentionBackwardArgs a) {
  key_gradients<128, true, false, true>(a);
}

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
