// Head: runs blocks of rows through the tied head.
#include "model/head.h"

#include <algorithm>

#include "kernels/check_tensor.h"
#include "kernels/cross_entropy.h"

namespace moraine {

HeadScratch make_head_scratch(Arena& arena, int64_t vocab_size, DType compute, bool training) {
  HeadScratch scratch;
  scratch.logits =
      arena.take("head.logits", "scratch", wide_dtype(compute), {kHeadRows, vocab_size});
  if (training)
    scratch.dlogits = arena.take("head.dlogits", "scratch", compute, {kHeadRows, vocab_size});
  return scratch;
}

void head_loss(Context& ctx, const MatrixPack& head, const HeadScratch& scratch,
               const HeadLoss& a) {
  const int64_t T = a.x.dims[0];
  for (int64_t begin = 0; begin < T; begin += kHeadRows) {
    const int64_t end = std::min(T, begin + kHeadRows);
    const Tensor x = a.x.rows(begin, end), logits = head_logits(ctx, head, scratch, x);
    const Tensor dlogits = a.dx.empty() ? Tensor() : scratch.dlogits.rows(0, end - begin);
    cross_entropy(ctx, {.loss = a.loss.rows(begin, end),
                        .dlogits = dlogits,
                        .logits = logits,
                        .target = a.target.rows(begin, end)});
    if (a.dx.empty()) continue;
    linear_backward_input(ctx, {.dx = a.dx.rows(begin, end), .dy = dlogits, .w = head.backward});
    linear_backward_weight(ctx, {.dw = a.dembedding, .dbias = {}, .dy = dlogits, .x = x});
  }
}

Tensor head_logits(Context& ctx, const MatrixPack& head, const HeadScratch& scratch,
                   const Tensor& x) {
  const Tensor logits = scratch.logits.rows(0, x.dims[0]);
  linear_forward(ctx, {.y = logits, .x = x, .w = head.forward, .bias = {}});
  return logits;
}

Tensor head_coarse_logits(Context& ctx, const CoarseMatrix& coarse, const HeadScratch& scratch,
                          const Tensor& x) {
  const Tensor logits = scratch.logits.rows(0, x.dims[0]);
  linear_forward(ctx, {.y = logits, .x = x, .w = coarse.pack, .bias = {}});
  return logits;
}

void head_panel_logits(Context& ctx, const MatrixPack& head, const HeadPanels& a) {
  linear_forward_panels(ctx, {.y = a.logits, .x = a.x, .w = head.forward, .panels = a.panels});
}

}  // namespace moraine
