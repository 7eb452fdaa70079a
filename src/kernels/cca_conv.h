// CcaConv: the depthwise half of CCA's two convolutions, written as pairs for the grouped half.
//
//   p_t = the first C columns of qkv row t (packed q | k before the convolutions)
//   u[t,c]            = w[c,0] * p[t-1,c] + w[c,1] * p[t,c] + b[c]
//   pair[g,t,2*j]     = u[t-1, g*d + j]          (tap 0 of the grouped convolution)
//   pair[g,t,2*j + 1] = u[t,   g*d + j]          (tap 1)
//   so that z[g,t,:] = pair[g,t,:] W1[g]^T + b1[g] is a grouped_linear with W1 as stored,
//   [C, d, 2].
//
// At the first row of a segment, p[t-1] and p[t-2] come from `halo` (zeros before the document's
// start). The input is padded once, before the first convolution: at position 0, u[t-1] = b, not 0.
//
//   backward   du[t] = dpair[.,t,tap 1] + dpair[.,t+1,tap 0]      (t+1 inside the segment)
//              du[-1] of each segment = dpair[.,first,tap 0]
//              dp[t] = w[:,1]*du[t] + w[:,0]*du[t+1]
//              dw[c,0] += sum_t du[t,c] p[t-1,c] ; dw[c,1] += sum_t du[t,c] p[t,c] ;
//              db[c] += sum_t du[t,c], t over every row and over -1 of each segment
//   halo       u[-1], p[-1] and p[-2] are of rows elsewhere, and so are their gradients:
//              dhalo[1] = w[:,1]*du[-1] + w[:,0]*du[first] ; dhalo[0] = w[:,0]*du[-1];
//              whoever holds those rows adds them to dp
//
// Shapes:   T rows, G = H + K heads of d channels, C = G*d, N >= C columns of qkv, S segments,
//           h rows of halo: segment s has row halo_row[s], none if that is -1; halo_row empty:
//           h = S and segment s has row s.
// Types:    qkv, pair, halo: f32 or bf16; w, b, their gradients and dhalo f32. Sums f32. A bf16
//           dqkv rounds twice: the mean's part when it was written, its sum with this part here.
// Aliasing: none. dqkv: columns [0, C) are ADDED TO (qk_norm_rope_backward, which runs before
//           because it makes dz and so dpair, wrote the q-k mean's part there), the rest is
//           untouched.
// Order:    each output depends on its own rows only; dw, db sum over t in fixed blocks.
// Cost:     memory-bound: reads C, writes 2C values per row.
// Source:   CCA, arXiv:2510.04476; docs/model.md, attention (one left pad of two columns).
#pragma once

#include <span>

#include "kernels/context.h"
#include "kernels/segment.h"
#include "tensor/tensor.h"

namespace moraine {

struct CcaConvForward {
  Tensor pair;        // [G, T, 2*d] out
  Tensor qkv;         // [T, N] in
  Tensor halo;        // [h, 2, C] in: p at the two positions before a segment; or empty: zeros
  Tensor w;           // [C, 2] in
  Tensor b;           // [C] in
  Segments segments;  // cover [0, T)
  std::span<const int64_t> halo_row;
};

struct CcaConvBackward {
  Tensor dqkv;   // [T, N] columns [0, C) added to
  Tensor dw;     // [C, 2] added to
  Tensor db;     // [C] added to
  Tensor dpair;  // [G, T, 2*d] in
  Tensor qkv;    // [T, N] in
  Tensor w;      // [C, 2] in
  Segments segments;
  Tensor dhalo;  // [h, 2, C] wide out, rows of segments; or empty
  Tensor halo;   // [h, 2, C] in; or empty: every document begins here
  std::span<const int64_t> halo_row;
};

void cca_conv_forward(Context& ctx, const CcaConvForward& a);
void cca_conv_backward(Context& ctx, const CcaConvBackward& a);

namespace ref {
void cca_conv_forward(const CcaConvForward& a);
void cca_conv_backward(const CcaConvBackward& a);
}  // namespace ref
namespace cpu {
void cca_conv_forward(Context& ctx, const CcaConvForward& a);
void cca_conv_backward(Context& ctx, const CcaConvBackward& a);
}  // namespace cpu

}  // namespace moraine
