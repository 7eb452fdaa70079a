// Swiglu: the gated activation between an expert's two products.
//
//   forward   g = gate_up[t, :F], u = gate_up[t, F:] ;  y[t,f] = g sigmoid(g) * u
//   backward  dg = dy * u * sigmoid(g) (1 + g (1 - sigmoid(g))) ;  du = dy * g sigmoid(g)
//
// Shapes:   T rows (only the first `rows` are touched), F expert channels.
// Types:    all f32 or all bf16, computed in f32.
// Aliasing: dgate_up may be gate_up.
// Source:   arXiv:2002.05202; docs/model.md, experts.
#pragma once

#include "kernels/context.h"
#include "kernels/row_count.h"
#include "tensor/tensor.h"

namespace moraine {

struct SwigluForward {
  Tensor y;        // [T, F] out
  Tensor gate_up;  // [T, 2F] in
  RowCount rows;   // <= T
};

struct SwigluBackward {
  Tensor dgate_up;  // [T, 2F] out
  Tensor dy;        // [T, F] in
  Tensor gate_up;   // [T, 2F] in
  RowCount rows;    // <= T
};

void swiglu_forward(Context& ctx, const SwigluForward& a);
void swiglu_backward(Context& ctx, const SwigluBackward& a);

namespace ref {
void swiglu_forward(const SwigluForward& a);
void swiglu_backward(const SwigluBackward& a);
}  // namespace ref
namespace cpu {
void swiglu_forward(Context& ctx, const SwigluForward& a);
void swiglu_backward(Context& ctx, const SwigluBackward& a);
}  // namespace cpu

}  // namespace moraine
