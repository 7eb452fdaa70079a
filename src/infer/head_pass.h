// HeadPass: logits of rows that draw a token, in one pass over the head or in two stages.
//
// Two stages: coarse logits of all words, from a copy of the head in half the bytes of bf16 (kernels/coarse.h); the
// tokens that each row could still draw (infer/candidates.h); exact logits of the panels of 32 words in which they
// stand. A draw among these tokens is the draw from all logits, to the bit: what this file decides changes no answer,
// only its time.
//
// One pass, for all rows of a call:
//   * if the model has no copy (Model::coarse_head);
//   * if a row wants all logits: a log-probability, or a draw that no set of tokens decides (has_candidates);
//   * if a row is not finite, or so large that nothing bounds it (has_reach);
//   * if a mask leaves nothing;
//   * after the first stage, if copy and panels have as many bytes as the head. The next kRest calls then do
//     not try: a model whose rows are like that pays for a sixteenth of them.
//
// Memory:  bounds of a row for each thread, from the arena of the caller; candidates beside it.
// Cost:    two stages: the bytes of the copy and of the panels, and a pass over V bounds for each row.
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "infer/sampler.h"
#include "model/model.h"

namespace moraine {

// What is wanted of one row.
struct HeadRow {
  bool all = false;      // every logit; what follows does not matter then
  int64_t position = 0;  // of the token that is drawn
  const SamplingOptions* sampling = nullptr;
  const TokenCounts* counts = nullptr;
  std::span<const uint64_t> mask = {};  // as mask_logits; empty: none
};

struct HeadStats {
  int64_t rows_full = 0, rows_two_stage = 0;
  int64_t full = 0, two_stage = 0;  // calls, and
  int64_t abandoned = 0;            // those of `full` that had made the first stage
  int64_t panels = 0;               // read in second stages, of
  int64_t panels_all = 0;           // as many as full passes would have read
  double panel_share() const {
    return panels_all == 0 ? 0 : static_cast<double>(panels) / static_cast<double>(panels_all);
  }
};

class HeadPass {
 public:
  HeadPass(Arena& arena, Context& ctx, Model& model);

  // Logits [rows, V] of hidden rows, valid until the next call. hidden: [rows, D], at most kHeadRows.
  Tensor run(const Tensor& hidden, std::span<const HeadRow> rows);
  // Of the last call: the tokens whose logits are exact and among which row i draws; empty: all are exact.
  std::span<const int32_t> candidates(int64_t i) const;
  const HeadStats& stats() const { return stats_; }

 private:
  static constexpr int64_t kRest = 15;

  bool try_two_stages(const Tensor& hidden, std::span<const HeadRow> rows, Tensor* logits);
  bool can_try(std::span<const HeadRow> rows) const;
  void find(const HeadRow& row, const RowLengths& lengths, const float* coarse, int64_t i,
            int worker);
  bool collect_panels();

  Context& ctx_;
  Model& model_;
  Tensor bounds_;                                 // [threads, 2, V] f32, if the head has a copy
  std::vector<std::vector<int32_t>> candidates_;  // of each row
  std::vector<int32_t> panels_;
  int64_t resting_ = 0;
  HeadStats stats_;
};

}  // namespace moraine
