// InputMoments: moments are a weight's gradient whose rows are their own gradients.
#include "eval/input_moments.h"

#include <algorithm>

#include "base/check.h"
#include "eval/observed_pass.h"
#include "kernels/linear.h"

namespace moraine {
namespace {

double element(const Tensor& x, int64_t i) {
  return x.dtype == DType::kBF16 ? static_cast<double>(to_float(x.as<BF16>()[i]))
                                 : static_cast<double>(x.as<float>()[i]);
}

void count_rows(std::span<const int64_t> rows, std::vector<int64_t>& counts) {
  counts.resize(rows.size() - 1);
  for (size_t g = 0; g + 1 < rows.size(); ++g) counts[g] += rows[g + 1] - rows[g];
}

}  // namespace

InputMoments::InputMoments(const ModelConfig& config, std::span<const PackSource> sources)
    : dense_(config.dense()),
      head_(static_cast<size_t>(config.hidden)),
      expert_rows_(static_cast<size_t>(config.layers)),
      arena_(std::make_unique<Arena>(Arena::Mode::kReal)) {
  size_t largest = 0;
  for (const PackSource& source : sources) {
    MR_CHECK(source.layer >= 0 && source.served, "%s", source.name.c_str());
    sums_.push_back({source,
                     arena_->take("moments." + source.name, "scratch", DType::kF32,
                                  {source.groups, source.k, source.k}),
                     std::vector<int64_t>(static_cast<size_t>(source.groups))});
    if (source.groups > 1) largest = std::max(largest, static_cast<size_t>(source.k * source.k));
  }
  pooled_.resize(largest);
}

InputMoments::~InputMoments() = default;

int64_t InputMoments::bytes(const PackSource& source) {
  return 4 * (source.groups + (source.groups > 1 ? 1 : 0)) * source.k * source.k;
}

void InputMoments::add(const EvalModel& model, std::span<const int32_t> ids) {
  if (ids.empty()) return;
  ctx_ = &model.ctx;
  observed_pass(model, ids, *this);
  tokens_ += static_cast<int64_t>(ids.size());
}

void InputMoments::add_head(const Tensor& x, int64_t rows) {
  const auto k = static_cast<int64_t>(head_.size());
  for (int64_t t = 0; t < rows; ++t) {
    for (int64_t i = 0; i < k; ++i) {
      const double v = element(x, t * k + i);
      head_[static_cast<size_t>(i)] += v * v;
    }
  }
}

void InputMoments::reads(int64_t layer, ServedMatrix matrix, const Tensor& x,
                         std::span<const int64_t> rows) {
  if (matrix == ServedMatrix::kHead) return add_head(x, rows.back());
  if (matrix == ServedMatrix::kGateUp) count_rows(rows, expert_rows_[static_cast<size_t>(layer)]);
  for (Sums& sums : sums_) {
    if (sums.source.layer != layer || *sums.source.served != matrix) continue;
    grouped_linear_backward_weight(
        *ctx_, {.dw = sums.moments, .dbias = {}, .dy = x, .x = x, .rows = rows});
    count_rows(rows, sums.rows);
  }
}

InputMoments::Moments InputMoments::of(int64_t source, int64_t group) {
  const Sums& sums = sums_.at(static_cast<size_t>(source));
  const int64_t k = sums.source.k, count = k * k;
  const int64_t rows = sums.rows.at(static_cast<size_t>(group));
  const float* moments = sums.moments.as<float>();
  if (rows >= kEnoughRows || sums.rows.size() == 1)
    return {make_tensor(sums.moments.as<float>() + group * count, DType::kF32, {k, k}), rows};
  std::fill_n(pooled_.begin(), count, 0.0f);
  int64_t all = 0;
  for (size_t g = 0; g < sums.rows.size(); ++g) {
    all += sums.rows[g];
    for (int64_t i = 0; i < count; ++i)
      pooled_[static_cast<size_t>(i)] += moments[static_cast<int64_t>(g) * count + i];
  }
  return {make_tensor(pooled_.data(), DType::kF32, {k, k}), all};
}

std::vector<float> InputMoments::head_squares() const {
  std::vector<float> means;
  for (const double sum : head_)
    means.push_back(tokens_ > 0 ? static_cast<float>(sum / static_cast<double>(tokens_)) : 1.0f);
  return means;
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
