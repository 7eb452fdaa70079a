// TreeAttention: rows that every rank has, over a cache whose keys lie on several ranks.
//
//   (o_r, lse_r) = attention over the keys of rank r            no key: o_r = 0, lse_r = -inf
//   m = max over ranks of lse_r ; w_r = exp(lse_r - m)
//   o = sum_r w_r o_r / sum_r w_r ; lse = m + log(sum_r w_r)
//
// For decoding: few rows, many keys. Bytes do not grow with the cache: T*H*(d+2) numbers, where a
// ring would move keys.
//
// Shapes: T rows, the same q on all ranks; Rr rows of k and v here; every row sees a key somewhere.
// Types:  q, k, v, o all f32 or all bf16; the rest f32.
// Order:  sums over ranks in the tree of collectives.h, so that all ranks have the same bits, and
//         the same again for the same mesh and cache layout.
// Cost:   attention over the own keys; an all_gather of T*H f32, a reduce_scatter and an all_gather
//         of T*H*(d+1) f32.
// Errors: kPeerLost (comm/transport.h).
// Source: Tree Attention, arXiv:2408.04093.
#pragma once

#include <span>
#include <vector>

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
  // What rows see of the keys here, as attention_part.h: positions counted from the part's first
  // key; rows that see none here are left out.
  Segments segments;
  std::span<const int64_t> keys;
  int64_t window;
  float scale;
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

// What `rows` rows of a document, the first at `position`, see of its positions [begin, end), which
// lie at `key_row` of a rank's k and v: appended to `segments` and `keys`, or nothing.
struct CachePart {
  int64_t row_begin, rows, position;  // of q
  int64_t begin, end, key_row;        // of the keys here
};
void add_cache_part(const CachePart& part, int64_t window, std::vector<Segment>& segments,
                    std::vector<int64_t>& keys);

}  // namespace moraine
