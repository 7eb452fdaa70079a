// AttentionSlopes: what the kernels of attention's gradients share: whose rows are where, P and dS of one pair.
#pragma once

#include "kernels/gpu/attention_backward.h"
#include "kernels/gpu/attention_keys.h"
#include "kernels/gpu/exp.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

// One head of q, do and dq, or of k, v, dk and dv, in a document: element `channel` of a position's row.
struct HeadRows {
  int64_t begin, stride, first, rows, d;  // `first`: of a part; else 0
  MR_DEVICE int64_t at(int64_t position, int64_t channel) const {
    return begin + position * stride + channel;
  }
  template <bool kPart>
  MR_DEVICE bool has(int64_t position, int64_t channel) const {
    return position < rows && channel < d && (!kPart || position >= first);
  }
};
template <bool kPart>
MR_DEVICE HeadRows query_head(const AttentionBackwardArgs& a, const AttentionBackwardTile& tile,
                              int64_t head) {
  return {(tile.row_begin * a.H + head) * a.d, a.H * a.d, kPart ? tile.first : 0, tile.rows, a.d};
}
template <bool kPart>
MR_DEVICE HeadRows key_head(const AttentionBackwardArgs& a, const AttentionBackwardTile& tile,
                            int64_t head) {
  const int64_t row = kPart ? tile.key_begin : tile.row_begin;
  return {(row * a.K + head) * a.d, a.K * a.d, 0, kPart ? tile.keys : tile.rows, a.d};
}

// A gradient: the whole's is written in its type, a part's is added in f32.
template <class E, bool kPart>
MR_DEVICE void put_gradient(void* to, int64_t at, float v) {
  if (kPart) {
    float* const sum = static_cast<float*>(to) + at;
    store(sum, load(sum) + v);
  } else {
    store(static_cast<E*>(to) + at, narrow_to<E>(v));
  }
}

// Where a position's lse and delta are.
MR_DEVICE int64_t statistic_at(const AttentionBackwardArgs& a, const AttentionBackwardTile& tile,
                               int64_t head, int64_t position) {
  return (tile.row_begin + position) * a.H + head;
}

// Where positions that meet the keys of a tile begin.
template <bool kPart>
MR_DEVICE int64_t first_met(const AttentionBackwardTile& tile) {
  return kPart && tile.first > tile.position ? tile.first : tile.position;
}

// The last position that sees a key.
MR_DEVICE int64_t last_seeing(const AttentionBackwardArgs& a, const AttentionBackwardTile& tile,
                              int64_t key) {
  const int64_t last = tile.rows - 1;
  return a.window == 0 || key + a.window - 1 > last ? last : key + a.window - 1;
}

struct AttentionSlope {
  float p, ds;
};
// score: scale * (q . k); value: do . v. A weight is at most 1: what is more is the rounding of lse.
MR_DEVICE AttentionSlope attention_slope(float score, float value, float lse, float delta) {
  const float v = score - lse, p = exp_nonpositive(v > 0 ? 0.0f : v);
  return {p, p * (value - delta)};
}

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
