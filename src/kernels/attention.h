// Attention: causal grouped-query attention inside documents, never storing the score matrix.
//
//   row t of a segment has position i = position_begin + (t - row_begin); it sees positions j of its own
//   document with lo(i) <= j <= i, lo(i) = window > 0 ? max(0, i - window + 1) : 0; position j is row
//   key_begin + j of k and v, or lies in a page (KeyPages); head h uses key head g = h / (H/K).
//   s[t,h,j]  = scale * q[t,h] . k[j,g]
//   lse[t,h]  = log sum_j exp(s[t,h,j])
//   o[t,h]    = sum_j exp(s[t,h,j] - lse[t,h]) v[j,g]
//   backward  P = exp(s - lse); delta[t,h] = do[t,h] . o[t,h]; dS = P * (do . v[j] - delta)
//             dq[t,h] = scale * sum_j dS k[j] ; dk[j,g] = scale * sum_{h in g, t} dS q[t,h] ;
//             dv[j,g] = sum_{h in g, t} P do[t,h]
//
// Shapes:   T rows, R >= T rows of k and v (a cache, or R == T), H % K == 0, d any up to 1024 (16..256 fast).
// Types:    q, k, v, o and gradients: all f32 or all bf16; lse, delta f32. Scores, softmax and sums in f32;
//           with bf16, P and dS are rounded to bf16 for their products.
// Aliasing: none.
// Order:    keys are walked in blocks at fixed positions counted from the document's start (position 0), so a row
//           has the same bits alone, in any batch, cached, chunked or packed, on any thread count. Keys of its own
//           document that it does not see, up to 31 behind it, may meet weights of zero: they must be finite.
//           dk, dv sum over query rows ascending, then heads of the group, in an order fixed by the segment.
// Errors:   segments that do not cover [0, T), or keys outside [0, R), are the caller's bug.
// Cost:     forward 4*d flops and backward 10*d (or 14*d) for each (row, head, visible key).
// Source:   FlashAttention, arXiv:2205.14135; FlashAttention-2, arXiv:2307.08691 (backward).
#pragma once

#include <cstdint>

#include "kernels/context.h"
#include "kernels/segment.h"
#include "tensor/tensor.h"

namespace moraine {

struct AttentionForward {
  Tensor o;           // [T, H, d] out
  Tensor lse;         // [T, H] out
  Tensor q;           // [T, H, d] in
  Tensor k;           // [R, K, d] in
  Tensor v;           // [R, K, d] in
  Segments segments;  // cover [0, T)
  int64_t window;     // keys a row sees, itself included; 0: all
  float scale;        // 1/sqrt(d); > 0
  KeyPages pages = {};
};

struct AttentionBackward {
  Tensor dq;          // [T, H, d] out
  Tensor dk;          // [T, K, d] out
  Tensor dv;          // [T, K, d] out
  Tensor delta;       // [T, H] scratch
  Tensor do_;         // [T, H, d] in
  Tensor o;           // [T, H, d] in
  Tensor lse;         // [T, H] in
  Tensor q;           // [T, H, d] in
  Tensor k;           // [T, K, d] in
  Tensor v;           // [T, K, d] in
  Segments segments;  // position_begin == 0, key_begin == row_begin
  int64_t window;
  float scale;
};

void attention_forward(Context& ctx, const AttentionForward& a);
void attention_backward(Context& ctx, const AttentionBackward& a);

// (row, key) pairs that a batch's rows see, for flop counts: sum over rows of visible keys.
int64_t visible_pairs(Segments segments, int64_t window);

namespace ref {
void attention_forward(const AttentionForward& a);
void attention_backward(const AttentionBackward& a);
}  // namespace ref
namespace cpu {
void attention_forward(Context& ctx, const AttentionForward& a);
void attention_backward(Context& ctx, const AttentionBackward& a);

// What the batches of a run look like.
struct AttentionExtents {
  int64_t rows;       // of the longest document
  int64_t documents;  // of a batch, of so many rows each
  int64_t kv_heads, head_dim;
  DType dtype;  // of q, k and v
  int64_t threads;
};
// Bytes of scratch for each worker (make_context) with which the backward takes such documents whole, 10*d flops for
// each pair, where 14*d are needed else: kWorkerScratchBytes or more, up to 32 MiB.
int64_t attention_worker_bytes(const AttentionExtents& a);
}  // namespace cpu

}  // namespace moraine
