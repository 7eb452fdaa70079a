// TreeAttention: rows that every rank has, over a cache whose keys lie on several ranks.
//
//   (o_r, lse_r) = attention over the keys of rank r            no key: o_r = 0, lse_r = -inf
//   m = max over ranks of lse_r ; w_r = exp(lse_r - m)
//   o = sum_r w_r o_r / sum_r w_r ; lse = m + log(sum_r w_r)
//
// For decoding: few rows, many keys. Bytes do not grow with the cache: T*H*(d+2) numbers, where a
// ring would move keys.
//
// Shapes: T rows, the same q on all ranks; Rr rows of k and v here (parallel/cache_share.h says which);
//         every row sees a key somewhere.
// Types:  q, k, v, o all f32 or all bf16; the rest f32.
// Order:  sums over ranks in the tree of collectives.h, so that all ranks have the same bits, and
//         the same again for the same mesh and cache layout.
// Cost:   attention over the own keys; an all_gather of T*H f32, a reduce_scatter and an all_gather
//         of T*H*(d+1) f32.
// Errors: kPeerLost (comm/transport.h).
// Source: Tree Attention, arXiv:2408.04093.
#pragma once

#include <span>

#include "comm/communicator.h"
#include "kernels/context.h"
#include "kernels/segment.h"
#include "tensor/arena.h"

namespace moraine {

struct TreeAttentionForward {
  Tensor o;    // [T, H, d] out, on every rank
  Tensor lse;  // [T, H] f32 out, on every rank
  Tensor q;    // [T, H, d] in
  Tensor k;    // [Rr, K, d] in: this rank's part of the cache
  Tensor v;    // [Rr, K, d] in
  // What rows see of the keys here, as attention_part.h; rows that see none here are left out.
  Segments segments;
  std::span<const int64_t> keys;
  float scale;
  KeyPages pages = {};
};

class TreeAttention {
 public:
  // For up to `tokens` rows of `heads` heads.
  TreeAttention(Arena& arena, int members, int64_t tokens, int64_t heads, int64_t head_dim);

  void forward(Context& ctx, Communicator& comm, const TreeAttentionForward& a);

 private:
  Tensor o_part_, lse_part_;  // [T, H, d], [T, H] f32
  Tensor all_lse_;            // [members, T*H] f32
  Tensor sums_;               // [T*H*(d+1)] f32: w o, then w
};

}  // namespace moraine
