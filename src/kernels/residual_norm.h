// ResidualNorm: merge a sub-layer's output into the residual stream, then RMSNorm the sum.
//
//   forward    r_out[t,d] = (h[t,d] + h_bias[d]) * h_scale[d] + (r[t,d] + r_bias[d]) * r_scale[d]
//              rstd[t]    = 1 / sqrt(mean_d(r_out[t,d]^2) + eps)
//              x[t,d]     = r_out[t,d] * rstd[t] * norm[d]
//              without r (the embedding merge): r_out = (h + h_bias) * h_scale
//              without scales (plain residual): scale 1 and bias 0
//   backward   dx is the gradient of x, dr_out the gradient that reaches r_out by the residual path:
//              g[t,d]      = dr_out[t,d] + rstd * (dx*norm - xhat * mean_d(dx*norm*xhat)), xhat = r_out*rstd
//              dh[t,d]     = g * h_scale ; dr[t,d] = g * r_scale
//              dh_bias[d] += sum_t g * h_scale ; dh_scale[d] += sum_t g * (h + h_bias) ; r alike
//              dnorm[d]   += sum_t dx * xhat
//
// Shapes:   T rows, D channels.
// Types:    h, x, dh: f32 or bf16 (the activation type). r, r_out, dx, dr_out, dr, rstd, weights
//           and their gradients: f32. Sums in f32. The ref backend takes f64 everywhere as well.
// Aliasing: dr may be dr_out. Nothing else overlaps.
// Order:    a row depends on its own inputs only. Sums over t run in fixed blocks of rows, then
//           over blocks in order: the same bits for any thread count.
// Cost:     memory-bound: forward reads h, r, writes r_out, x.
// Source:   docs/model.md, residual (code form: (x + b) * s); RMSNorm: arXiv:1910.07467.
#pragma once

#include "kernels/context.h"
#include "tensor/tensor.h"

namespace moraine {

struct ResidualScale {  // all [D] f32, or all empty: scale 1, bias 0
  Tensor h_scale, h_bias, r_scale, r_bias;
};

struct ResidualNormForward {
  Tensor r_out;         // [T, D] out
  Tensor x;             // [T, D] out
  Tensor rstd;          // [T] out
  Tensor h;             // [T, D] in
  Tensor r;             // [T, D] in, or empty
  ResidualScale scale;  // r_scale, r_bias are empty if r is
  Tensor norm;          // [D] in
  float eps;            // > 0
};

struct ResidualNormBackward {
  Tensor dh;             // [T, D] out
  Tensor dr;             // [T, D] out, or empty if r is
  ResidualScale dscale;  // added to; same fields present as in scale
  Tensor dnorm;          // [D] added to
  Tensor dx;             // [T, D] in
  Tensor dr_out;         // [T, D] in, or empty: zero
  Tensor r_out;          // [T, D] in, from forward
  Tensor rstd;           // [T] in, from forward
  Tensor h;              // [T, D] in
  Tensor r;              // [T, D] in, or empty
  ResidualScale scale;
  Tensor norm;  // [D] in
};

void residual_norm_forward(Context& ctx, const ResidualNormForward& a);
void residual_norm_backward(Context& ctx, const ResidualNormBackward& a);

namespace ref {
void residual_norm_forward(const ResidualNormForward& a);
void residual_norm_backward(const ResidualNormBackward& a);
}  // namespace ref
namespace cpu {
void residual_norm_forward(Context& ctx, const ResidualNormForward& a);
void residual_norm_backward(Context& ctx, const ResidualNormBackward& a);
}  // namespace cpu

}  // namespace moraine
