// RouterStateBackward: gradients of RouterState on a GPU: rows first, then channels down 64 rows, then those sums.
//
//   along[t]   = rstd[t]^3 mean_r(dx norm s)                              a block of threads takes a row
//   dy[t,r]    = g = dx rstd norm - s along[t] + ds[t,r]                  a thread takes a channel of 64 rows, and has
//   sums[b,.]  = of dx rstd s, g s_prev                                   their sums; writes ds_prev on the way
//   dnorm[r]  += sum_b sums[b,r] ; dgamma[r] likewise                     row_sums.h
//
// Formulas, shapes and types: kernels/router_state.h; f32 and bf16, no f64. ds_prev may be ds.
// Order:    a row's dot by threads and block_sum.h as router_state.h has it. Sums over t: rows of a block ascending,
//           then blocks ascending, then what was there. The same bits in waves of 32 and 64, on every target. A row's
//           dy and ds_prev do not depend on other rows.
// Cost:     memory-bound; dx and s are read twice. Takes 4 T bytes and 8 R for each 64 rows.
#pragma once

#include "kernels/gpu/router_state.h"

namespace moraine {
struct RouterStateBackward;  // kernels/router_state.h
}

namespace moraine::gpu {

struct RouterStateBackwardArgs {
  void* dy;             // [T, R] out; f32 or bf16
  float* ds_prev;       // [T, R] out, or null with s_prev; may be ds
  float* along;         // [T] scratch
  float* sums;          // [ceil(T / 64), 2, R] scratch
  const void* dx;       // [T, R]; as dy
  const float* ds;      // [T, R] or null
  const float* s;       // [T, R]
  const float* rstd;    // [T]
  const float* s_prev;  // [T, R] or null
  const float* gamma;   // [R] or null with s_prev
  const float* norm;    // [R]
  int64_t T, R;
};

// Tensors in the memory of `gpu`.
void router_state_backward(Gpu& gpu, const RouterStateBackward& a);

}  // namespace moraine::gpu
