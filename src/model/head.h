// Head: the language-model head on blocks of rows: the loss and its gradient, or logits.
//
// Logits exist for kHeadRows rows at a time; [tokens, vocabulary] never does, neither in training nor scoring.
//
// In two stages, for who wants a few logits of a row and not all: coarse ones of all words, from a copy of the head in
// 8 bits (kernels/coarse.h), then in their place the exact ones of some panels of 32 words. The same bits as in one.
#pragma once

#include <span>

#include "kernels/coarse.h"
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

// The two stages: the first writes all of scratch.logits.rows(0, rows), the second the words of `panels` in it.
Tensor head_coarse_logits(Context& ctx, const CoarseMatrix& coarse, const HeadScratch& scratch,
                          const Tensor& x);
struct HeadPanels {
  Tensor logits;                    // [T, V] of the first stage
  Tensor x;                         // [T, D] in, the same rows
  std::span<const int32_t> panels;  // of kPackPanel words, ascending
};
void head_panel_logits(Context& ctx, const MatrixPack& head, const HeadPanels& a);

}  // namespace moraine
