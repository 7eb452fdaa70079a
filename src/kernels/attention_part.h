// AttentionPart: attention over a part of the keys, and how parts become the whole.
//
// Keys of a long document lie on several ranks, or arrive one block after another. A part is a run
// of consecutive keys of one document. Positions are counted from the part's first key:
//
//   row t of a segment has position i = position_begin + (t - row_begin); it sees positions j of
//   the part with lo(i) <= j <= min(i, keys - 1), lo(i) = window > 0 ? max(0, i - window + 1) : 0;
//   position j is row key_begin + j of k and v, or lies in a page (KeyPages, forward only); head h
//   uses key head g = h / (H/K).
//   o, lse     as attention_forward's over these keys alone; a row that sees none: o 0, lse -inf
//   merge      m = max(lse, lse_part), sum = exp(lse - m) + exp(lse_part - m):
//              o = (exp(lse - m) o + exp(lse_part - m) o_part) / sum, lse = m + log(sum); a part
//              that saw nothing changes nothing. (Not o + w (o_part - o): that cancels where the
//              first parts weigh little.)
//   backward   P = exp(s - lse) with the lse and delta of the WHOLE; dS = P * (do . v[j] - delta)
//              dq[t,h] += scale * sum_j dS k[j] ; dk[j,g] += scale * sum_{h in g, t} dS q[t,h] ;
//              dv[j,g] += sum_{h in g, t} P do[t,h]
//
// A row of a chunk that lies at position p of its document sees the part that begins at position b
// with position_begin = p - b; a gathered document is the part with b = 0. Rows of several segments
// may see the same keys.
//
// Shapes:   T rows, R rows of k and v, H % K == 0, d any up to 1024.
// Types:    q, k, v, do, o of delta: all f32 or all bf16; everything else f32. Products as
//           attention.h: with bf16, P and dS are rounded to bf16.
// Segments: ascending rows without overlap, not necessarily all; rows outside stay as they are and
//           add nothing.
// Aliasing: none.
// Order:    keys of a part are walked in blocks at fixed positions counted from its first key, so a
//           row's bits depend on the part and on nothing else in the batch; dk, dv sum over
//           segments in order, then heads of the group, then rows ascending. Any thread count.
// Errors:   keys outside [0, R) are the caller's bug.
// Cost:     forward 4*d flops and backward 14*d for each (row, head, visible key); merge is
//           memory-bound.
// Source:   FlashAttention-2, arXiv:2307.08691; ring attention, arXiv:2310.01889 (merge).
#pragma once

#include <cstdint>
#include <span>

#include "kernels/context.h"
#include "kernels/segment.h"
#include "tensor/tensor.h"

namespace moraine {

struct AttentionPartForward {
  Tensor o;                       // [T, H, d] wide, out on rows of the segments
  Tensor lse;                     // [T, H] wide, out on them
  Tensor q;                       // [T, H, d] in
  Tensor k;                       // [R, K, d] in
  Tensor v;                       // [R, K, d] in
  Segments segments;              // positions counted from the part's first key
  std::span<const int64_t> keys;  // by segment: how many keys its part has, > 0
  int64_t window;                 // keys a row sees, itself included; 0: all
  float scale;                    // 1/sqrt(d); > 0
  KeyPages pages = {};
};

struct AttentionMerge {
  Tensor o;           // [T, H, d] wide, in and out: all zero and
  Tensor lse;         // [T, H] wide, in and out: all -inf before the first part
  Tensor o_part;      // [T, H, d] wide in
  Tensor lse_part;    // [T, H] wide in
  Segments segments;  // only their rows are merged
};

// delta[t,h] = do[t,h] . o[t,h], as attention_backward makes it.
struct AttentionDelta {
  Tensor delta;  // [T, H] wide out
  Tensor do_;    // [T, H, d] in
  Tensor o;      // [T, H, d] in
};

struct AttentionPartBackward {
  Tensor dq;     // [T, H, d] wide, added to
  Tensor dk;     // [R, K, d] wide, added to
  Tensor dv;     // [R, K, d] wide, added to
  Tensor do_;    // [T, H, d] in
  Tensor q;      // [T, H, d] in
  Tensor k;      // [R, K, d] in
  Tensor v;      // [R, K, d] in
  Tensor lse;    // [T, H] wide in, of the whole
  Tensor delta;  // [T, H] wide in, of the whole
  Segments segments;
  std::span<const int64_t> keys;
  int64_t window;
  float scale;
};

void attention_part_forward(Context& ctx, const AttentionPartForward& a);
void attention_merge(Context& ctx, const AttentionMerge& a);
void attention_delta(Context& ctx, const AttentionDelta& a);
void attention_part_backward(Context& ctx, const AttentionPartBackward& a);

// (row, key) pairs that the rows see of their parts.
int64_t visible_pairs(Segments segments, std::span<const int64_t> keys, int64_t window);

namespace ref {
void attention_part_forward(const AttentionPartForward& a);
void attention_merge(const AttentionMerge& a);
void attention_delta(const AttentionDelta& a);
void attention_part_backward(const AttentionPartBackward& a);
}  // namespace ref
namespace cpu {
void attention_part_forward(Context& ctx, const AttentionPartForward& a);
void attention_merge(Context& ctx, const AttentionMerge& a);
void attention_delta(Context& ctx, const AttentionDelta& a);
void attention_part_backward(Context& ctx, const AttentionPartBackward& a);
}  // namespace cpu

}  // namespace moraine
