// CrossEntropy on a GPU: a block of threads takes a row of logits.
//
//   top = largest logit ;  sum = sum_v e^(logit - top), f32 ;  lse = top + log sum, f64 from here on, rounded once
//
// Formulas, shapes and types: kernels/cross_entropy.h, loss and gradient; dlogits f32 or bf16.
// Order:    thread i adds terms i, i + 256, ... ascending; then block_sum.h. The same bits in waves of 32 and 64, on
//           every target: f64 + - * / are IEEE, and log is ours (to 1e-12 of what it takes).
#pragma once

#include <cstdint>

namespace moraine {
struct CrossEntropy;  // kernels/cross_entropy.h
}

namespace moraine::gpu {

class Gpu;

constexpr int kEntropyThreads = 256;

struct CrossEntropyArgs {
  float* loss;            // [T] out
  void* dlogits;          // [T, V] out; f32 or bf16, or null
  double* lse;            // [T] out, or null
  const float* logits;    // [T, V]
  const int32_t* target;  // [T]
  int64_t V;
};

// Tensors in the memory of `gpu`.
void cross_entropy(Gpu& gpu, const CrossEntropy& a);

}  // namespace moraine::gpu
