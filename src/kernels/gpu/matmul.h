// Matmul: the optimizer's product of two f32 matrices on a GPU: a block computes 64 rows by 64 columns, k by 32.
//
//   c[i,j] = alpha * sum_l a[i,l] b[j,l] + beta * c0[i,j], operands rounded to `compute`
//
// Shapes, symmetric, b_is_kn and aliasing: MatmulNT of kernels/linear.h. b is packed into the scratch first, row-major;
// so it may be c. A symmetric product's blocks below the diagonal end at once; those above write both sides.
// Order:    the sums as linear.h has them, then alpha, then one fused multiply-add for beta. A function of k alone.
// Cost:     2 m n k flops, or half of it; b is rounded and written once.
#pragma once

#include <cstdint>

namespace moraine {
struct MatmulNT;  // kernels/linear.h
}

namespace moraine::gpu {

class Gpu;

struct MatmulArgs {
  float* c;         // [m, n] out
  const float* c0;  // [m, n] or null; may be c
  const float* a;   // [m, k]
  const void* b;    // [n, k]; f32 or bf16
  int64_t m, n, k;
  float alpha, beta;
  bool symmetric;
};

// Tensors in the memory of `gpu`.
void matmul_nt(Gpu& gpu, const MatmulNT& a);

}  // namespace moraine::gpu
