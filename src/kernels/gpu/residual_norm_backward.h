// ResidualNormBackward: gradients of ResidualNorm on a GPU: rows first, then channels down 64 rows, then those sums.
//
//   along[t]   = rstd[t]^3 mean_d(dx norm r_out)                          a block of threads takes a row
//   g[t,d]     = dx rstd norm - r_out along[t] + dr_out[t,d]              a thread takes a channel of 64 rows, and has
//   sums[b,d]  = of dx rstd r_out, g, g (h + h_bias), g (r + r_bias)      their sums; writes dh and dr on the way
//   dnorm[d]  += sum_b sums[b,d] ; dh_bias[d] += h_scale[d] sum_b .. ; the others alike
//
// Formulas, shapes and types: kernels/residual_norm.h; f32 and bf16, no f64.
// Order:    a row's dot by threads and block_sum.h as residual_norm.h has it. Sums over t: rows of a block ascending,
//           then blocks ascending, then what was there. The same bits in waves of 32 and 64, on every target. A row's
//           dh and dr do not depend on other rows; the sums on no grid.
// Cost:     memory-bound; h, r, dx, r_out are read once, dx and r_out once more for the rows. Takes 4 T bytes and 16 D
//           for each 64 rows.
#pragma once

#include "kernels/gpu/residual_norm.h"

namespace moraine {
struct ResidualNormBackward;  // kernels/residual_norm.h
}

namespace moraine::gpu {

constexpr int kNormSumRows = 64;  // as on the CPU; part of the answer
constexpr int kNormSums = 4;

struct ResidualNormBackwardArgs {
  void* dh;         // [T, D] out; f32 or bf16
  float* dr;        // [T, D] out, or null; may be dr_out
  float* dh_scale;  // [D] added to, or null, as the three below
  float* dh_bias;
  float* dr_scale;
  float* dr_bias;
  float* dnorm;         // [D] added to
  float* along;         // [T] scratch
  float* sums;          // [ceil(T / 64), 4, D] scratch
  const float* dx;      // [T, D]
  const float* dr_out;  // [T, D] or null
  const float* r_out;   // [T, D]
  const float* rstd;    // [T]
  const void* h;        // [T, D]; as dh
  const float* r;       // [T, D] or null
  const float* h_scale;
  const float* h_bias;
  const float* r_scale;
  const float* r_bias;
  const float* norm;  // [D]
  int64_t T, D;
};

// Tensors in the memory of `gpu`.
void residual_norm_backward(Gpu& gpu, const ResidualNormBackward& a);

}  // namespace moraine::gpu
