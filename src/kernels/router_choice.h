// RouterChoice: softmax over the router's classes, biased choice, unbiased gate.
//
//   prob[t,:]   = softmax(logits[t,:])                  over C = E (+1 with a skip class, index E) classes
//   expert[t,j] = the j-th largest of prob[t,:] + bias  (ties: the lower index); after a skip every later
//                 choice is a skip too
//   gate[t,j]   = prob[t, expert[t,j]]                  0 for a choice forced by an earlier skip
//   backward    dlogits[t,c] = prob[t,c] * (dprob[t,c] - sum_c' dprob[t,c'] prob[t,c']),
//               dprob[t,c] = sum over j with expert[t,j] == c (not forced) of dgate[t,j].
//               The choice itself and the bias get no gradient.
//
// Shapes:   T rows, C classes, n choices (top-k).
// Types:    logits, prob, gate, dgate, bias: f32. expert: i32. dlogits: f32 or bf16.
// Order:    rows independent.
// Source:   docs/model.md, router.
#pragma once

#include "kernels/context.h"
#include "tensor/tensor.h"

namespace moraine {

struct RouterChoiceForward {
  Tensor prob;    // [T, C] out
  Tensor expert;  // [T, n] out
  Tensor gate;    // [T, n] out
  Tensor logits;  // [T, C] in
  Tensor bias;    // [C] in
  int32_t skip;   // the skip class (== C-1), or -1: none
};

struct RouterChoiceBackward {
  Tensor dlogits;  // [T, C] out
  Tensor dgate;    // [T, n] in
  Tensor prob;     // [T, C] in
  Tensor expert;   // [T, n] in
  int32_t skip;
};

void router_choice_forward(Context& ctx, const RouterChoiceForward& a);
void router_choice_backward(Context& ctx, const RouterChoiceBackward& a);

namespace ref {
void router_choice_forward(const RouterChoiceForward& a);
void router_choice_backward(const RouterChoiceBackward& a);
}  // namespace ref
namespace cpu {
void router_choice_forward(Context& ctx, const RouterChoiceForward& a);
void router_choice_backward(Context& ctx, const RouterChoiceBackward& a);
}  // namespace cpu

}  // namespace moraine
