// RouterState: depth-average the router's down-projection, then RMSNorm it.
//
//   forward   s[t,r]    = y[t,r] + gamma[r] * s_prev[t,r]        (without s_prev: s = y)
//             rstd[t]   = 1 / sqrt(mean_r(s[t,r]^2) + eps) ;  x[t,r] = s[t,r] * rstd[t] * norm[r]
//   backward  dx is the gradient of x, ds the gradient that reaches s from the next layer's depth average:
//             g = ds + rmsnorm backward of dx ;  dy = g ;  ds_prev = g * gamma ;
//             dgamma[r] += sum_t g * s_prev ;  dnorm[r] += sum_t dx * s * rstd
//
// The state handed to the next layer is s: after the average, before the norm.
// Shapes:   T rows, R router channels.
// Types:    x, dx, dy: f32 or bf16. y, s, s_prev, ds, ds_prev, rstd, weights: f32. Sums f32.
// Aliasing: ds_prev may be ds.
// Order:    rows independent; sums over t in fixed blocks.
// Source:   docs/model.md, router (EDA).
#pragma once

#include "kernels/context.h"
#include "tensor/tensor.h"

namespace moraine {

struct RouterStateForward {
  Tensor s;       // [T, R] out
  Tensor x;       // [T, R] out
  Tensor rstd;    // [T] out
  Tensor y;       // [T, R] in: down-projection with bias
  Tensor s_prev;  // [T, R] in, or empty on the first layer
  Tensor gamma;   // [R] in, or empty with s_prev
  Tensor norm;    // [R] in
  float eps;
};

struct RouterStateBackward {
  Tensor dy;       // [T, R] out
  Tensor ds_prev;  // [T, R] out, or empty with s_prev
  Tensor dgamma;   // [R] added to, or empty with s_prev
  Tensor dnorm;    // [R] added to
  Tensor dx;       // [T, R] in
  Tensor ds;       // [T, R] in, or empty: zero (last layer)
  Tensor s;        // [T, R] in
  Tensor rstd;     // [T] in
  Tensor s_prev;   // [T, R] in, or empty
  Tensor gamma;    // [R] in, or empty
  Tensor norm;     // [R] in
};

void router_state_forward(Context& ctx, const RouterStateForward& a);
void router_state_backward(Context& ctx, const RouterStateBackward& a);

namespace ref {
void router_state_forward(const RouterStateForward& a);
void router_state_backward(const RouterStateBackward& a);
}  // namespace ref
namespace cpu {
void router_state_forward(Context& ctx, const RouterStateForward& a);
void router_state_backward(Context& ctx, const RouterStateBackward& a);
}  // namespace cpu

}  // namespace moraine
