// QkNormRopeBackward: gradients of QkNormRope on a GPU: a number or two for each head, then its channels.
//
//   dn           the transposed rotation of dq and dk, made where it is needed
//   scale, along of a head: da = (dn - a along) scale; a block of 64 threads takes a head of a row, for a . dn
//   dz, dqkv     a thread takes a channel of a key head and of its query heads
//   dtemp[g]    += sum_b sums[b,g], sums of (a_k . dn) nk over 64 rows: a thread each, then row_sums.h
//   plain form   a thread takes a channel
//
// Formulas, shapes and types: kernels/qk_norm_rope.h, both forms; f32 and bf16.
// Order:    a dot as the forward's: thread i adds channels i, i + 64, ... ascending; then block_sum.h. A key head's
//           gradient adds its own, then its query heads' ascending. Sums over t: rows of a block ascending, then
//           blocks ascending, then what was there. The same bits in waves of 32 and 64, on every target. A row's dz
//           and dqkv do not depend on other rows.
// Cost:     memory-bound: a head is read a few times, from caches. Takes 4 T (2 H + 3 K) bytes, and 4 K for each 64
//           rows.
#pragma once

#include "kernels/gpu/qk_norm_rope.h"

namespace moraine {
struct QkNormRopeBackward;  // kernels/qk_norm_rope.h
}

namespace moraine::gpu {

struct QkNormRopeBackwardArgs {
  void* dqkv;         // [T, N] columns [0, (H+K)*d) out; f32 or bf16
  void* dz;           // [H+K, T, d] out; as dqkv, or null: plain form, and all of the next four
  float* scale;       // [T, H+K] scratch
  float* along;       // [T, H+K] scratch
  float* temp_terms;  // [T, K] scratch
  float* sums;        // [ceil(T / 64), K] scratch
  const void* dq;     // [T, H, d]; as dqkv
  const void* dk;     // [T, K, d]; as dqkv
  const float* nq;    // [T, H] or null
  const float* nk;    // [T, K] or null
  const void* qkv;    // [T, N]; as dqkv
  const void* z;      // [H+K, T, d]; as dqkv, or null
  const float* temp;  // [K] or null
  const int32_t* position;  // [T]
  const float* rope;        // [P, half, 2]
  int64_t T, H, K, d, N, half;
};

// Tensors in the memory of `gpu`.
void qk_norm_rope_backward(Gpu& gpu, const QkNormRopeBackward& a);

}  // namespace moraine::gpu
