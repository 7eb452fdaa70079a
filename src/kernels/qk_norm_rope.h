// QkNormRope: CCA's q-k mean, normalisation with key temperature, and partial rotary embedding.
//
//   p = the first (H+K)*d columns of qkv; z = output of both convolutions; group(h) = h / (H/K)
//   mq[h] = (p_q[h] + p_k[group(h)]) / 2 ;  mk[g] = mean over h in group g of mq[h]
//   a_q[h] = z[h] + mq[h] ;  a_k[g] = z[H+g] + mk[g]
//   nq[h] = sqrt(d) / max(|a_q[h]|, tiny) ;  n_q = a_q * nq ; n_k[g] = a_k[g] * nk[g] * temp[g]
//   q, k = rotate the first `rotary` channels of n_q, n_k by position (rotate-half inside them):
//     angle(i) = position * theta^(-2i/rotary), i < rotary/2, computed in double, cos and sin rounded to f32
//     out[i] = in[i] cos - in[i+rotary/2] sin ; out[i+rotary/2] = in[i+rotary/2] cos + in[i] sin
//
//   plain form (gqa baseline): z is empty: no mean, no norm, no temperature; q, k = rope(p).
//
//   backward  the transposed rotation, then dx = n * (dy - xhat (xhat . dy)),
//             dtemp[g] += sum_t dn_k . a_k nk, then dz (out),
//             and the mean's gradient into dqkv columns [0, (H+K)*d) (OUT in both forms;
//             cca_conv_backward runs after this one and ADDS its part to the same columns).
//
// Shapes:   T rows, H query heads, K key heads (H % K == 0), d channels, G = H+K.
// Types:    qkv, z, q, k and their gradients: f32 or bf16. temp, dtemp, inverse norms f32. position
//           i32. Everything between is computed in f32. tiny = 1e-12.
// Aliasing: none.
// Order:    a row depends on its own inputs only; dtemp sums over t in fixed blocks.
// Cost:     memory-bound.
// Source:   docs/model.md, attention; RoPE arXiv:2104.09864, NEOX rotate-half form.
#pragma once

#include "kernels/context.h"
#include "tensor/tensor.h"

namespace moraine {

// cos and sin for positions [0, P): table [P, rotary/2, 2] f32 (cos, sin interleaved).
struct RopeTable {
  Tensor table;  // [P, rotary/2, 2] out
  double theta;  // base
};
void rope_table(Context& ctx, const RopeTable& a);

struct QkNormRopeForward {
  Tensor q;         // [T, H, d] out
  Tensor k;         // [T, K, d] out
  Tensor nq;        // [T, H] out: inverse norms, for backward (empty in the plain form)
  Tensor nk;        // [T, K] out
  Tensor qkv;       // [T, N] in
  Tensor z;         // [G, T, d] in, or empty: plain form
  Tensor temp;      // [K] in, or empty in the plain form
  Tensor position;  // [T] i32 in, < P
  Tensor rope;      // [P, rotary/2, 2] in
};

struct QkNormRopeBackward {
  Tensor dqkv;      // [T, N] columns [0, G*d) out
  Tensor dz;        // [G, T, d] out, or empty
  Tensor dtemp;     // [K] added to, or empty
  Tensor dq;        // [T, H, d] in
  Tensor dk;        // [T, K, d] in
  Tensor nq;        // [T, H] in
  Tensor nk;        // [T, K] in
  Tensor qkv;       // [T, N] in
  Tensor z;         // [G, T, d] in, or empty
  Tensor temp;      // [K] in, or empty
  Tensor position;  // [T] i32 in
  Tensor rope;      // [P, rotary/2, 2] in
};

void qk_norm_rope_forward(Context& ctx, const QkNormRopeForward& a);
void qk_norm_rope_backward(Context& ctx, const QkNormRopeBackward& a);

namespace ref {
void rope_table(const RopeTable& a);
void qk_norm_rope_forward(const QkNormRopeForward& a);
void qk_norm_rope_backward(const QkNormRopeBackward& a);
}  // namespace ref
namespace cpu {
void rope_table(Context& ctx, const RopeTable& a);
void qk_norm_rope_forward(Context& ctx, const QkNormRopeForward& a);
void qk_norm_rope_backward(Context& ctx, const QkNormRopeBackward& a);
}  // namespace cpu

}  // namespace moraine
