// Head: the language-model head on blocks of rows: the loss, its gradient, or log-probabilities.
//
// Logits exist for kHeadRows rows at a time; [tokens, vocabulary] never does, neither in training nor scoring.
#pragma once

#include "kernels/context.h"
#include "model/weights.h"

namespace moraine {

constexpr int64_t kHeadRows = 256;  // fixed: the order of the head's weight sum depends on it

struct HeadScratch {
  Tensor logits;   // [kHeadRows, V] wide
  Tensor dlogits;  // [kHeadRows, V], empty if not training
};

HeadScratch make_head_scratch(Arena& arena, int64_t vocab_size, DType compute, bool training);

struct HeadLoss {
  Tensor loss;        // [T] wide out: -log p(target), 0 where target < 0
  Tensor dx;          // [T, D] wide out: gradient of the SUM of losses; empty: loss only
  Tensor dembedding;  // [V, D] added to; empty with dx
  Tensor x;           // [T, D] in: after the final norm
  Tensor target;      // [T] i32 in
};
void head_loss(Context& ctx, const MatrixPack& head, const HeadScratch& scratch, const HeadLoss& a);

// Logits of `rows` <= kHeadRows rows of x into scratch.logits.rows(0, rows), which is returned.
Tensor head_logits(Context& ctx, const MatrixPack& head, const HeadScratch& scratch,
                   const Tensor& x);

}  // namespace moraine
