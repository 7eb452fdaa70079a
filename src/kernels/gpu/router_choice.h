// RouterChoice on a GPU: a block of 64 threads takes a row.
//
//   scores are compared as integers in the order of the numbers, NaN below all of them; the next choice is the best
//   class after the last one in the order (score down, class up), so nothing is to be marked as taken
//   the gradient: a thread takes a class of a row
//
// Formulas, shapes and types: kernels/router_choice.h; f32, dlogits f32 or bf16.
// Order:    thread i adds e^(logit - top) of classes i, i + 64, ... ascending; then block_sum.h. The gradient's sums
//           add choices ascending. The same bits in waves of 32 and 64, on every target.
// Errors:   a choice outside [0, C) is the caller's bug, and is not looked for.
// Cost:     n + 2 passes over a row's classes; of the gradient n loads of a choice and its probability for each class.
#pragma once

#include <cstdint>

namespace moraine {
struct RouterChoiceBackward;  // kernels/router_choice.h
struct RouterChoiceForward;
}  // namespace moraine

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

struct RouterChoiceBackwardArgs {
  void* dlogits;          // [T, C] out; f32 or bf16
  const float* dgate;     // [T, n]
  const float* prob;      // [T, C]
  const int32_t* expert;  // [T, n]
  int64_t T, C, n;
  int32_t skip;  // C - 1, or -1
};

// Tensors in the memory of `gpu`.
void router_choice_forward(Gpu& gpu, const RouterChoiceForward& a);
void router_choice_backward(Gpu& gpu, const RouterChoiceBackward& a);

}  // namespace moraine::gpu
