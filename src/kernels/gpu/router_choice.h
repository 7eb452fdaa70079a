// RouterChoice on a GPU: a block of 64 threads takes a row.
//
//   scores are compared as integers in the order of the numbers, NaN below all of them; the next choice is the best
//   class after the last one in the order (score down, class up), so nothing is to be marked as taken
//
// Formulas, shapes and types: kernels/router_choice.h, forward; f32.
// Order:    thread i adds e^(logit - top) of classes i, i + 64, ... ascending; then block_sum.h. The same bits in waves
//           of 32 and 64, on every target.
// Cost:     n + 2 passes over a row's classes.
#pragma once

#include <cstdint>

namespace moraine {
struct RouterChoiceForward;  // kernels/router_choice.h
}

namespace moraine::gpu {

class Gpu;

constexpr int kChoiceThreads = 64;

struct RouterChoiceArgs {
  float* prob;          // [T, C] out
  int32_t* expert;      // [T, n] out
  float* gate;          // [T, n] out
  const float* logits;  // [T, C]
  const float* bias;    // [C]
  int64_t C, n;
  int32_t skip;  // C - 1, or -1
};

// Tensors in the memory of `gpu`.
void router_choice_forward(Gpu& gpu, const RouterChoiceForward& a);

}  // namespace moraine::gpu
