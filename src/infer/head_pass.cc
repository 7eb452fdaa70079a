// HeadPass: tries two stages, else computes all logits.
#include "infer/head_pass.h"

#include <algorithm>

#include "infer/candidates.h"

namespace moraine {

HeadPass::HeadPass(Arena& arena, Context& ctx, Model& model) : ctx_(ctx), model_(model) {
  if (model.coarse_head().empty()) return;
  bounds_ = arena.take_host("head.bounds", "scratch", DType::kF32,
                            {ctx.pool->threads(), 2, model.config().vocab_size});
}

Tensor HeadPass::run(const Tensor& hidden, std::span<const HeadRow> rows) {
  const auto count = static_cast<int64_t>(rows.size());
  Tensor logits;
  if (can_try(rows) && try_two_stages(hidden, rows, &logits)) {
    ++stats_.two_stage;
    stats_.rows_two_stage += count;
    return logits;
  }
  if (resting_ > 0) --resting_;
  candidates_.clear();
  ++stats_.full;
  stats_.rows_full += count;
  return model_.logits(ctx_, hidden);
}

std::span<const int32_t> HeadPass::candidates(int64_t i) const {
  if (candidates_.empty()) return {};
  return candidates_[static_cast<size_t>(i)];
}

bool HeadPass::can_try(std::span<const HeadRow> rows) const {
  if (model_.coarse_head().empty() || resting_ > 0) return false;
  const int64_t V = model_.config().vocab_size;
  return std::all_of(rows.begin(), rows.end(), [&](const HeadRow& row) {
    return !row.all && has_candidates(*row.sampling, V);
  });
}

bool HeadPass::try_two_stages(const Tensor& hidden, std::span<const HeadRow> rows, Tensor* logits) {
  const auto count = static_cast<int64_t>(rows.size());
  std::vector<RowLengths> lengths;
  for (int64_t i = 0; i < count; ++i) {
    lengths.push_back(row_lengths(hidden, i));
    if (!has_reach(model_.coarse_head(), lengths.back())) return false;
  }
  *logits = model_.coarse_logits(ctx_, hidden);
  const int64_t V = logits->dims[1];
  candidates_.resize(rows.size());
  ctx_.pool->parallel_for(count, [&](int64_t i, int worker) {
    const auto at = static_cast<size_t>(i);
    find(rows[at], lengths[at], logits->as<float>() + i * V, i, worker);
  });
  if (!collect_panels()) {
    ++stats_.abandoned;
    return false;
  }
  stats_.panels += static_cast<int64_t>(panels_.size());
  stats_.panels_all += (V + kPackPanel - 1) / kPackPanel;
  model_.panel_logits(ctx_, {.logits = *logits, .x = hidden, .panels = panels_});
  return true;
}

void HeadPass::find(const HeadRow& row, const RowLengths& lengths, const float* coarse, int64_t i,
                    int worker) {
  const int64_t V = bounds_.dims[2];
  float *lower = bounds_.as<float>() + worker * 2 * V, *upper = lower + V;
  coarse_interval(model_.coarse_head(), lengths,
                  {.lower = lower, .upper = upper, .coarse = coarse});
  for (float* bound : {lower, upper}) {
    const std::span<float> logits(bound, static_cast<size_t>(V));
    if (row.sampling->adjusts()) adjust_logits(logits, *row.sampling, *row.counts);
    if (!row.mask.empty()) mask_logits(logits, row.mask);
  }
  const auto size = static_cast<size_t>(V);
  candidates_[static_cast<size_t>(i)] = find_candidates(
      {.lower = {lower, size}, .upper = {upper, size}}, *row.sampling, row.position);
}

// Panels of all rows. False: there is a row without a token, or they are too many.
bool HeadPass::collect_panels() {
  const PackedMatrix& head = model_.weights().head.forward;
  const int64_t all = (head.n + kPackPanel - 1) / kPackPanel;
  std::vector<bool> wanted(static_cast<size_t>(all));
  for (const std::vector<int32_t>& ids : candidates_) {
    if (ids.empty()) return false;
    for (const int32_t id : ids) wanted[static_cast<size_t>(id / kPackPanel)] = true;
  }
  panels_.clear();
  for (int64_t p = 0; p < all; ++p) {
    if (wanted[static_cast<size_t>(p)]) panels_.push_back(static_cast<int32_t>(p));
  }
  const int64_t bytes = packed_bytes(head), copy = packed_bytes(model_.coarse_head().pack);
  if (copy + bytes / all * static_cast<int64_t>(panels_.size()) < bytes) return true;
  resting_ = kRest + 1;  // this call is the first of them
  return false;
}

}  // namespace moraine
