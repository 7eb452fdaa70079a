// AttentionBackward: gradients of attention on a GPU: one kernel owns positions and makes dq, one owns keys and makes
// dk and dv, so that no sum is shared between blocks.
//
//   P = exp(scale * (q . k) - lse), 0 where a position does not see a key, at most 1 ;  dS = P * (do . v - delta)
//   dq   a block takes a head and 64 positions, each wave 16, keys by 32:   dq = scale * sum_keys bf16(dS) k
//   dkv  a block takes a key head and 64 keys, each wave 16; for each of its heads, ascending, positions by 32:
//        dk = scale * sum bf16(dS) q ;  dv = sum bf16(P) do
//
// So for bf16 with d up to 128, in kernels for 64 and 128 whose last channels are zeros, products on tiles (tile.h).
// f32 and wider heads take a block for each position and head, or key and key head, the others by 64, sums by fused
// multiply-adds. delta = do . o, channels ascending, a thread to each.
//
// Formulas and shapes: kernels/attention.h. There dk and dv add rows before heads; here heads are outside.
// Types:    q, k, v, o and gradients all bf16 or all f32; lse, delta and sums f32.
// Order:    positions and keys are cut at multiples of 64, 32 and 16 counted from the document's start, ascending: a
//           document has the same bits alone and in any batch. On tiles by the generation's rule (matrix_rules.h): one
//           result per generation. Else channels, then keys or positions ascending: one result.
// Cost:     14 d flops for each head and visible pair, S and dP being computed by both kernels. Rows come in chunks of
//           16 bytes, on tiles; nothing else overlaps.
#pragma once

#include "kernels/gpu/attention.h"

namespace moraine {
struct AttentionBackward;  // kernels/attention.h
struct AttentionDelta;     // kernels/attention_part.h
}  // namespace moraine

namespace moraine::gpu {

// 64 positions, or keys, of a document or of a part of one.
struct AttentionBackwardTile {
  int64_t position;  // the first, a multiple of 64
  int64_t rows;      // positions end there
  int64_t
      row_begin;  // row of position 0 in the batch; of a part less than 0, where its rows begin later
  // Of a part (attention_part.h):
  int64_t first;      // positions begin there
  int64_t keys;       // there are keys at positions [0, keys)
  int64_t key_begin;  // row of k and v of position 0
};

struct AttentionBackwardArgs {
  void*
      dq;  // [T, H, d] out; f32 or bf16, as all without a type; dq, dk, dv of a part f32, added to
  void* dk;            // [T, K, d] out
  void* dv;            // [T, K, d] out
  const void* do_;     // [T, H, d]
  const float* lse;    // [T, H]
  const float* delta;  // [T, H]
  const void* q;       // [T, H, d]
  const void* k;       // [T, K, d]
  const void* v;       // [T, K, d]
  const AttentionBackwardTile* tiles;
  int64_t window, H, K, d;
  float scale;
};

struct AttentionDeltaArgs {
  float* delta;      // [T, H] out
  const void* do_;   // [T, H, d]; f32 or bf16
  const void* o;     // [T, H, d]; as do_
  int64_t count, d;  // T H
};

// Tensors in the memory of `gpu`; segments in the host's, a list of the GPU's.
void attention_delta(Gpu& gpu, const AttentionDelta& a);
void attention_backward(Gpu& gpu, const AttentionBackward& a);

}  // namespace moraine::gpu
