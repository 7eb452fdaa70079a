// Gelu on a GPU: a thread takes an element.
//
//   Phi(-x) = e^(-x^2/2) R(x), x >= 0, as kernels/cpu/gelu.cc has it: the same polynomial for R, our own exp (exp.h)
//
// Formulas, shapes and types: kernels/gelu.h; f32 and bf16. y may be x, dx may be dy.
// Order:    no sums: the same bits on every target.
#pragma once

#include <cstdint>

namespace moraine {
struct GeluBackward;  // kernels/gelu.h
struct GeluForward;
}  // namespace moraine

namespace moraine::gpu {

class Gpu;

struct GeluArgs {
  void* y;        // [count] out; f32 or bf16
  const void* x;  // [count]; as y
  int64_t count;
};

struct GeluBackwardArgs {
  void* dx;        // [count] out; f32 or bf16
  const void* dy;  // [count]; as dx
  const void* x;   // [count]; as dx
  int64_t count;
};

// Tensors in the memory of `gpu`.
void gelu_forward(Gpu& gpu, const GeluForward& a);
void gelu_backward(Gpu& gpu, const GeluBackward& a);

}  // namespace moraine::gpu
