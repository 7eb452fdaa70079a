// AttentionBackward, device side, for f32 and wide heads: a block to a position or key of a head, a thread to each that
// it meets, then to channels.
#include "kernels/gpu/attention_slopes.h"
#include "kernels/gpu/element.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

// A row in shared memory times one in global memory: channels ascending.
template <class E>
MR_DEVICE float row_product(Shared<float> own, const E* met, int64_t d) {
  float sum = 0;
  for (int64_t c = 0; c < d; ++c) sum = fused(load(own + c), widen(load(met + c)), sum);
  return sum;
}

template <class E>
MR_DEVICE void load_row(Shared<float> to, const void* from, int64_t begin, int64_t d) {
  for (int64_t c = thread(); c < d; c += kAttentionRowThreads) {
    store(to + c, widen(load(static_cast<const E*>(from) + (begin + c))));
  }
}

// sum[c] += weights of the met rows [low, high) of the step that begins at `first`, ascending; a thread's channels.
struct MetRows {
  int64_t first, low, high;
};
template <class E>
MR_DEVICE void add_rows(Shared<float> sum, Shared<float> weights, const void* from,
                        const HeadRows& rows, const MetRows& met) {
  for (int64_t c = thread(); c < rows.d; c += kAttentionRowThreads) {
    float v = load(sum + c);
    for (int64_t j = met.low; j < met.high; ++j) {
      v = fused(load(weights + (j - met.first)),
                widen(load(static_cast<const E*>(from) + rows.at(j, c))), v);
    }
    store(sum + c, v);
  }
}

template <class E, bool kPart>
MR_DEVICE void store_row(void* to, int64_t begin, Shared<float> sum, int64_t d, float scale) {
  for (int64_t c = thread(); c < d; c += kAttentionRowThreads) {
    put_gradient<E, kPart>(to, begin + c, scale * load(sum + c));
  }
}

MR_DEVICE void clear_row(Shared<float> sum, int64_t d) {
  for (int64_t c = thread(); c < d; c += kAttentionRowThreads) store(sum + c, 0.0f);
}

template <class E, bool kPart>
MR_DEVICE void query_row_gradient(const AttentionBackwardArgs& a) {
  MR_SHARED(float, q, kAttentionWidest);
  MR_SHARED(float, slope, kAttentionWidest);  // do
  MR_SHARED(float, dq, kAttentionWidest);
  MR_SHARED(float, weights, kAttentionRowThreads);
  const AttentionBackwardTile tile = load(a.tiles + block_x() / kAttentionRows);
  const int64_t position = tile.position + block_x() % kAttentionRows;
  const HeadRows rows = query_head<kPart>(a, tile, block_y()),
                 keys = key_head<kPart>(a, tile, block_y() / (a.H / a.K));
  if (!rows.template has<kPart>(position, 0)) return;
  const int64_t last = !kPart || position < tile.keys ? position : tile.keys - 1;
  const int64_t known = statistic_at(a, tile, block_y(), position), seen = first_seen(a, position);
  const float lse = load(a.lse + known), delta = load(a.delta + known);
  load_row<E>(q, a.q, rows.at(position, 0), a.d);
  load_row<E>(slope, a.do_, rows.at(position, 0), a.d);
  clear_row(dq, a.d);
  int64_t first = seen / kAttentionRowThreads * kAttentionRowThreads;
  for (; first <= last; first += kAttentionRowThreads) {
    const int64_t key = first + thread(), end = first + kAttentionRowThreads;
    sync_block();
    float ds = 0;
    if (key <= last && sees(a, position, key)) {
      const int64_t at = keys.at(key, 0);
      const float score = a.scale * row_product(q, static_cast<const E*>(a.k) + at, a.d),
                  value = row_product(slope, static_cast<const E*>(a.v) + at, a.d);
      ds = attention_slope(score, value, lse, delta).ds;
    }
    store(weights + thread(), widen(narrow_to<E>(ds)));
    sync_block();
    add_rows<E>(dq, weights, a.k, keys,
                {first, seen > first ? seen : first, end > last ? last + 1 : end});
  }
  store_row<E, kPart>(a.dq, rows.at(position, 0), dq, a.d, a.scale);
}

// What a key keeps in shared memory.
struct KeyRow {
  Shared<float> k, v, dk, dv, weights, slopes;
};

// The positions of one head that see `key`, by kAttentionRowThreads.
template <class E, bool kPart>
MR_DEVICE void meet_positions(const AttentionBackwardArgs& a, const AttentionBackwardTile& tile,
                              const KeyRow& own, int64_t key, int64_t head) {
  const HeadRows rows = query_head<kPart>(a, tile, head);
  const int64_t last = last_seeing(a, tile, key),
                begin = kPart && tile.first > key ? tile.first : key;
  int64_t first = begin / kAttentionRowThreads * kAttentionRowThreads;
  for (; first <= last; first += kAttentionRowThreads) {
    const int64_t position = first + thread(), end = first + kAttentionRowThreads;
    sync_block();
    AttentionSlope s = {0, 0};
    if (position >= begin && position <= last) {
      const int64_t at = rows.at(position, 0), known = statistic_at(a, tile, head, position);
      const float score = a.scale * row_product(own.k, static_cast<const E*>(a.q) + at, a.d),
                  value = row_product(own.v, static_cast<const E*>(a.do_) + at, a.d);
      s = attention_slope(score, value, load(a.lse + known), load(a.delta + known));
    }
    store(own.weights + thread(), widen(narrow_to<E>(s.p)));
    store(own.slopes + thread(), widen(narrow_to<E>(s.ds)));
    sync_block();
    const MetRows met = {first, begin > first ? begin : first, end > last ? last + 1 : end};
    add_rows<E>(own.dv, own.weights, a.do_, rows, met);
    add_rows<E>(own.dk, own.slopes, a.q, rows, met);
  }
}

template <class E, bool kPart>
MR_DEVICE void key_row_gradients(const AttentionBackwardArgs& a) {
  MR_SHARED(float, k, kAttentionWidest);
  MR_SHARED(float, v, kAttentionWidest);
  MR_SHARED(float, dk, kAttentionWidest);
  MR_SHARED(float, dv, kAttentionWidest);
  MR_SHARED(float, weights, kAttentionRowThreads);
  MR_SHARED(float, slopes, kAttentionRowThreads);
  const AttentionBackwardTile tile = load(a.tiles + block_x() / kAttentionRows);
  const int64_t key = tile.position + block_x() % kAttentionRows, heads = a.H / a.K;
  const HeadRows keys = key_head<kPart>(a, tile, block_y());
  if (key >= keys.rows) return;
  const int64_t row = keys.at(key, 0);
  load_row<E>(k, a.k, row, a.d);
  load_row<E>(v, a.v, row, a.d);
  clear_row(dk, a.d);
  clear_row(dv, a.d);
  const KeyRow own = {k, v, dk, dv, weights, slopes};
  for (int64_t head = block_y() * heads; head < (block_y() + 1) * heads; ++head) {
    meet_positions<E, kPart>(a, tile, own, key, head);
  }
  store_row<E, kPart>(a.dk, row, dk, a.d, a.scale);
  store_row<E, kPart>(a.dv, row, dv, a.d, 1.0f);
}

MR_KERNEL(attention_dq_rows_f32, kAttentionRowThreads, AttentionBackwardArgs a) {
  query_row_gradient<float, false>(a);
}
MR_KERNEL(attention_part_dq_rows_f32, kAttentionRowThreads, AttentionBackwardArgs a) {
  query_row_gradient<float, true>(a);
}
MR_KERNEL(attention_dq_rows_bf16, kAttentionRowThreads, AttentionBackwardArgs a) {
  query_row_gradient<BF16, false>(a);
}
MR_KERNEL(attention_part_dq_rows_bf16, kAttentionRowThreads, AttentionBackwardArgs a) {
  query_row_gradient<BF16, true>(a);
}
MR_KERNEL(attention_dkv_rows_f32, kAttentionRowThreads, AttentionBackwardArgs a) {
  key_row_gradients<float, false>(a);
}
MR_KERNEL(attention_part_dkv_rows_f32, kAttentionRowThreads, AttentionBackwardArgs a) {
  key_row_gradients<float, true>(a);
}
MR_KERNEL(attention_dkv_rows_bf16, kAttentionRowThreads, AttentionBackwardArgs a) {
  key_row_gradients<BF16, false>(a);
}
MR_KERNEL(attention_part_dkv_rows_bf16, kAttentionRowThreads, AttentionBackwardArgs a) {
  key_row_gradients<BF16, true>(a);
}

template <class E>
MR_DEVICE void delta_of(const AttentionDeltaArgs& a) {
  const int64_t i = element();
  if (i >= a.count) return;
  float sum = 0;
  for (int64_t c = 0; c < a.d; ++c) {
    sum = fused(widen(load(static_cast<const E*>(a.do_) + (i * a.d + c))),
                widen(load(static_cast<const E*>(a.o) + (i * a.d + c))), sum);
  }
  store(a.delta + i, sum);
}

MR_KERNEL(attention_delta_f32, kElementThreads, AttentionDeltaArgs a) { delta_of<float>(a); }
MR_KERNEL(attention_delta_bf16, kElementThreads, AttentionDeltaArgs a) { delta_of<BF16>(a); }

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
