// InputMoments: moments are a weight's gradient whose rows are their own gradients.
#include "eval/input_moments.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/linear.h"

namespace moraine {
namespace {

void count_rows(std::span<const int64_t> rows, std::vector<int64_t>& counts) {
  counts.resize(rows.size() - 1);
  for (size_t g = 0; g + 1 < rows.size(); ++g) counts[g] += rows[g + 1] - rows[g];
}

}  // namespace

InputMoments::InputMoments(const ModelConfig& config, std::span<const WatchedGroups> watched)
    : dense_(config.dense()),
      expert_rows_(static_cast<size_t>(config.layers)),
      arena_(Arena::Mode::kReal) {
  for (const WatchedGroups& w : watched) {
    const PackSource& source = w.source;
    MR_CHECK(source.served && 0 <= w.begin && w.begin < w.end && w.end <= source.groups, "%s",
             source.name.c_str());
    const int64_t groups = w.end - w.begin;
    sums_.push_back({.watched = w,
                     .moments = arena_.take("moments." + source.name, "scratch", DType::kF32,
                                            {groups, source.k, source.k}),
                     .rows = std::vector<int64_t>(static_cast<size_t>(groups))});
  }
}

void InputMoments::add(const EvalModel& model, Documents documents) {
  ctx_ = &model.ctx;
  tokens_ += observed_pass(model, documents, *this).dims[0];
}

void InputMoments::reads(int64_t layer, ServedMatrix matrix, const Tensor& x,
                         std::span<const int64_t> rows) {
  if (matrix == ServedMatrix::kGateUp) count_rows(rows, expert_rows_[static_cast<size_t>(layer)]);
  for (Sums& sums : sums_) {
    const WatchedGroups& w = sums.watched;
    if (w.source.layer != layer || *w.source.served != matrix) continue;
    std::vector<int64_t> bounds(rows.begin() + w.begin, rows.begin() + w.end + 1);
    count_rows(bounds, sums.rows);
    const Tensor own = x.rows(bounds.front(), bounds.back());
    const int64_t first = bounds.front();
    for (int64_t& bound : bounds) bound -= first;
    grouped_linear_backward_weight(
        *ctx_, {.dw = sums.moments, .dbias = {}, .dy = own, .x = own, .rows = bounds});
  }
}

InputMoments::Moments InputMoments::of(const PackSource& source, int64_t group) const {
  const auto found = std::find_if(sums_.begin(), sums_.end(), [&](const Sums& sums) {
    return sums.watched.has(source, group);
  });
  MR_CHECK(found != sums_.end(), "%s is not watched", source.name.c_str());
  const int64_t at = group - found->watched.begin;
  return {found->moments.rows(at, at + 1).reshaped({source.k, source.k}),
          found->rows[static_cast<size_t>(at)]};
}

InputMoments::Coverage InputMoments::coverage() const {
  Coverage coverage;
  if (dense_) return coverage;
  for (const std::vector<int64_t>& layer : expert_rows_) {
    for (const int64_t rows : layer) {
      coverage.fewest = coverage.all == 0 ? rows : std::min(coverage.fewest, rows);
      coverage.all += 1;
      coverage.enough += rows >= kEnoughRows ? 1 : 0;
    }
  }
  return coverage;
}

}  // namespace moraine
