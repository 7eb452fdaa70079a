// RouterState on a GPU: a block of threads takes a row.
//
// Formulas, shapes and types: kernels/router_state.h, forward; x f32 or bf16.
// Order:    as residual_norm.h's: thread i adds the squares of channels i, i + 256, ... ascending; then block_sum.h.
//           The same bits in waves of 32 and 64, on every target.
#pragma once

#include <cstdint>

namespace moraine {
struct RouterStateForward;  // kernels/router_state.h
}

namespace moraine::gpu {

class Gpu;

constexpr int kStateThreads = 256;

struct RouterStateArgs {
  float* s;             // [T, R] out
  void* x;              // [T, R] out; f32 or bf16
  float* rstd;          // [T] out
  const float* y;       // [T, R]
  const float* s_prev;  // [T, R] or null
  const float* gamma;   // [R] or null
  const float* norm;    // [R]
  float eps;
  int64_t R;
};

// Tensors in the memory of `gpu`.
void router_state_forward(Gpu& gpu, const RouterStateForward& a);

}  // namespace moraine::gpu
