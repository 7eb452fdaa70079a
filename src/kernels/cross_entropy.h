// CrossEntropy: loss of a block of logit rows, and its gradient, one pass each.
//
//   lse[t]       = log sum_v exp(logits[t,v])
//   loss[t]      = lse[t] - logits[t, target[t]]          0 where target < 0
//                  rounded once, so that lse gives the loss of any other target to the bit
//   dlogits[t,v] = softmax(logits[t])[v] - (v == target[t])   0 where target < 0 (gradient of the SUM of losses)
//
// The caller makes logits for a bounded block of rows at a time (model/head.h): [tokens, vocabulary] never
// exists at once.
// Shapes:   T rows of a block, V vocabulary.
// Types:    logits, loss f32; lse f64; dlogits f32 or bf16 (or empty: loss only); target i32.
// Aliasing: none.
// Order:    rows independent; sums over v in an order fixed by V.
// Cost:     memory-bound: 2 reads of logits, 1 write of dlogits.
#pragma once

#include "kernels/context.h"
#include "tensor/tensor.h"

namespace moraine {

struct CrossEntropy {
  Tensor loss;      // [T] out
  Tensor dlogits;   // [T, V] out, or empty
  Tensor logits;    // [T, V] in
  Tensor target;    // [T] i32 in; < 0: no target
  Tensor lse = {};  // [T] out, also where there is no target; or empty
};

void cross_entropy(Context& ctx, const CrossEntropy& a);

namespace ref {
void cross_entropy(const CrossEntropy& a);
}  // namespace ref
namespace cpu {
void cross_entropy(Context& ctx, const CrossEntropy& a);
}  // namespace cpu

}  // namespace moraine
