// Attention, device side, for f32 and wide heads: a block to a position and head, a thread to a key, then to channels.
#include "kernels/gpu/attention_keys.h"
#include "kernels/gpu/block_sum.h"
#include "kernels/gpu/exp.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

// A key's score: channels ascending.
template <class E>
MR_DEVICE float row_score(const AttentionArgs& a, Shared<float> q, const E* key) {
  float sum = 0;
  for (int64_t c = 0; c < a.d; ++c) sum = fused(load(q + c), widen(load(key + c)), sum);
  return sum * a.scale;
}

// `kPart`: of a part; wide, and of a row that sees no key zeros and -inf.
template <class E, bool kPart>
MR_DEVICE void attention_row(const AttentionArgs& a) {
  MR_SHARED(float, q, kAttentionWidest);
  MR_SHARED(float, o, kAttentionWidest);
  MR_SHARED(float, weights, kAttentionRowThreads);
  const AttentionTile tile = load(a.tiles + block_x() / kAttentionRows);
  const int64_t position = tile.position + block_x() % kAttentionRows, g = block_y() / (a.H / a.K);
  const int64_t begin = query_begin(a, tile, position), seen = first_seen(a, position);
  if (begin < 0) return;
  const int64_t last = !kPart || position < tile.keys ? position : tile.keys - 1;
  const auto row_of = [&](const void* from, int64_t key) {
    return static_cast<const E*>(from) + (key_row(a, tile, key) * a.K + g) * a.d;
  };
  for (int64_t c = thread(); c < a.d; c += kAttentionRowThreads) {
    store(q + c, widen(load(static_cast<const E*>(a.q) + (begin + c))));
    store(o + c, 0.0f);
  }
  sync_block();
  float largest = from_bits(0xff800000u), total = 0;
  int64_t first = seen / kAttentionRowThreads * kAttentionRowThreads;
  for (; first <= last; first += kAttentionRowThreads) {
    const int64_t key = first + thread();
    const float score = key <= last && sees(a, position, key) ? row_score(a, q, row_of(a.k, key))
                                                              : from_bits(0xff800000u);
    const float step = block_max<kAttentionRowThreads>(score),
                most = step > largest ? step : largest;
    const float p = exp_nonpositive(score - most), shrink = exp_nonpositive(largest - most);
    largest = most;
    total = total * shrink + block_sum<kAttentionRowThreads>(p);
    store(weights + thread(), widen(narrow_to<E>(p)));
    sync_block();
    const int64_t low = seen > first ? seen : first, high = first + kAttentionRowThreads;
    for (int64_t c = thread(); c < a.d; c += kAttentionRowThreads) {
      float sum = load(o + c) * shrink;
      for (int64_t j = low; j < high && j <= last; ++j) {
        sum = fused(load(weights + (j - first)), widen(load(row_of(a.v, j) + c)), sum);
      }
      store(o + c, sum);
    }
  }
  for (int64_t c = thread(); c < a.d; c += kAttentionRowThreads) {
    if (kPart) {
      store(static_cast<float*>(a.o) + (begin + c), total > 0 ? load(o + c) / total : 0.0f);
    } else {
      store(static_cast<E*>(a.o) + (begin + c), narrow_to<E>(load(o + c) / total));
    }
  }
  if (thread() == 0) store(a.lse + begin / a.d, attention_lse<kPart>(largest, total));
}

MR_KERNEL(attention_rows_f32, kAttentionRowThreads, AttentionArgs a) {
  attention_row<float, false>(a);
}
MR_KERNEL(attention_rows_bf16, kAttentionRowThreads, AttentionArgs a) {
  attention_row<BF16, false>(a);
}
MR_KERNEL(attention_part_rows_f32, kAttentionRowThreads, AttentionArgs a) {
  attention_row<float, true>(a);
}
MR_KERNEL(attention_part_rows_bf16, kAttentionRowThreads, AttentionArgs a) {
  attention_row<BF16, true>(a);
}

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
