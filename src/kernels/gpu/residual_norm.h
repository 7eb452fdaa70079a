// ResidualNorm on a GPU: a block of threads takes a row.
//
// Formulas, shapes and types: kernels/residual_norm.h; f32 and bf16, no f64.
// Order:    thread i of 256 adds the squares of channels i, i + 256, ... ascending; then block_sum.h. The same bits in
//           waves of 32 and 64, on every target.
// Cost:     memory-bound: r_out is written and read again by the thread that wrote it.
#pragma once

#include <cstdint>

namespace moraine {
struct ResidualNormForward;  // kernels/residual_norm.h
}

namespace moraine::gpu {

class Gpu;

constexpr int kNormThreads = 256;

struct ResidualNormArgs {
  float* r_out;          // [T, D] out
  void* x;               // [T, D] out; f32 or bf16
  float* rstd;           // [T] out
  const void* h;         // [T, D]; as x
  const float* r;        // [T, D] or null
  const float* h_scale;  // [D] or null, as the three below
  const float* h_bias;
  const float* r_scale;
  const float* r_bias;
  const float* norm;  // [D]
  float eps;
  int64_t D;
};

// Tensors in the memory of `gpu`.
void residual_norm_forward(Gpu& gpu, const ResidualNormForward& a);

}  // namespace moraine::gpu
