// Gelu: the exact (erf) Gaussian error linear unit.
//
//   forward   y = x * Phi(x),  Phi(x) = (1 + erf(x / sqrt 2)) / 2
//   backward  dx = dy * (Phi(x) + x * phi(x)),  phi the standard normal density
//
// Shapes:   any, the same for all.
// Types:    all f32 or all bf16, computed in f32 (erf to 1e-6 relative of y or better).
// Aliasing: y may be x; dx may be dy.
// Source:   arXiv:1606.08415; docs/model.md, router (exact form).
#pragma once

#include "kernels/context.h"
#include "tensor/tensor.h"

namespace moraine {

struct GeluForward {
  Tensor y;  // out
  Tensor x;  // in
};

struct GeluBackward {
  Tensor dx;  // out
  Tensor dy;  // in
  Tensor x;   // in
};

void gelu_forward(Context& ctx, const GeluForward& a);
void gelu_backward(Context& ctx, const GeluBackward& a);

namespace ref {
void gelu_forward(const GeluForward& a);
void gelu_backward(const GeluBackward& a);
}  // namespace ref
namespace cpu {
void gelu_forward(Context& ctx, const GeluForward& a);
void gelu_backward(Context& ctx, const GeluBackward& a);
}  // namespace cpu

}  // namespace moraine
