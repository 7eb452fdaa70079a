// Matmul: the optimizer's product of two f32 matrices on a GPU: blocks as linear.h has them.
//
//   c[i,j] = alpha * sum_l a[i,l] b[j,l] + beta * c0[i,j], operands rounded to `compute`
//
// Shapes, symmetric, b_is_kn and aliasing: MatmulNT of kernels/linear.h. b is packed into the scratch first, row-major;
// so it may be c; of bf16 a is rounded into `rounded_a`, unless it is b. A symmetric product's blocks below the
// diagonal end at once; those above write both sides.
// Order:    the sums as linear.h has them, then alpha, then one fused multiply-add for beta. A function of k alone.
// Cost:     2 m n k flops, or half of it; b, and a of bf16, are rounded and written once.
#pragma once

#include <cstdint>

#include "kernels/gpu/product_shape.h"

namespace moraine {
struct MatmulNT;  // kernels/linear.h
}

namespace moraine::gpu {

class Gpu;

struct MatmulArgs {
  float* c;         // [m, n] out
  const float* c0;  // [m, n] or null; may be c
  const void* a;    // [m, k]; f32 or bf16
  const void* b;    // [n, k]; as a
  int64_t m, n, k;
  float alpha, beta;
  bool symmetric;
};

// Tensors in the memory of `gpu`.
void matmul_nt(Gpu& gpu, const MatmulNT& a);
// bf16; the function above chooses the size. kNarrow is taken for kMiddle.
void matmul_nt(Gpu& gpu, const MatmulNT& a, ProductSize size);

}  // namespace moraine::gpu
