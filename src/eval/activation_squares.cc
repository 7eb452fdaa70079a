// ActivationSquares: sums of squares as a forward pass shows its rows.
#include "eval/activation_squares.h"

#include <algorithm>

#include "eval/observed_pass.h"

namespace moraine {
namespace {

double element(const Tensor& x, int64_t i) {
  return x.dtype == DType::kBF16 ? static_cast<double>(to_float(x.as<BF16>()[i]))
                                 : static_cast<double>(x.as<float>()[i]);
}

}  // namespace

ActivationSquares::ActivationSquares(const ModelConfig& config)
    : dense_(config.dense()), sums_(static_cast<size_t>((config.layers + 1) * kServedMatrices)) {}

const ActivationSquares::Sums& ActivationSquares::of(int64_t layer, ServedMatrix matrix) const {
  return sums_.at(static_cast<size_t>((layer + 1) * kServedMatrices) + static_cast<size_t>(matrix));
}
ActivationSquares::Sums& ActivationSquares::of(int64_t layer, ServedMatrix matrix) {
  return sums_.at(static_cast<size_t>((layer + 1) * kServedMatrices) + static_cast<size_t>(matrix));
}

void ActivationSquares::add(const EvalModel& model, std::span<const int32_t> ids) {
  if (ids.empty()) return;
  observed_pass(model, ids, *this);
  tokens_ += static_cast<int64_t>(ids.size());
}

void ActivationSquares::reads(int64_t layer, ServedMatrix matrix, const Tensor& x,
                              std::span<const int64_t> rows) {
  Sums& sums = of(layer, matrix);
  sums.k = x.dims[1];
  sums.rows.resize(rows.size() - 1);
  sums.squares.resize(sums.rows.size() * static_cast<size_t>(sums.k));
  for (size_t g = 0; g + 1 < rows.size(); ++g) {
    double* to = sums.squares.data() + static_cast<int64_t>(g) * sums.k;
    for (int64_t t = rows[g]; t < rows[g + 1]; ++t) {
      for (int64_t i = 0; i < sums.k; ++i) {
        const double v = element(x, t * sums.k + i);
        to[i] += v * v;
      }
    }
    sums.rows[g] += rows[g + 1] - rows[g];
  }
}

std::vector<float> ActivationSquares::importance(int64_t layer, ServedMatrix matrix) const {
  const Sums& sums = of(layer, matrix);
  const auto k = static_cast<size_t>(sums.k);
  std::vector<double> all(k);  // of all groups together
  int64_t rows = 0;
  for (size_t g = 0; g < sums.rows.size(); ++g) {
    rows += sums.rows[g];
    for (size_t i = 0; i < k; ++i) all[i] += sums.squares[g * k + i];
  }
  std::vector<float> mean(sums.squares.size(), 1.0f);
  for (size_t g = 0; rows > 0 && g < sums.rows.size(); ++g) {
    const bool enough = sums.rows[g] >= kEnoughRows;
    const double n = static_cast<double>(enough ? sums.rows[g] : rows);
    for (size_t i = 0; i < k; ++i)
      mean[g * k + i] = static_cast<float>((enough ? sums.squares[g * k + i] : all[i]) / n);
  }
  return mean;
}

ActivationSquares::Coverage ActivationSquares::coverage() const {
  Coverage coverage;
  if (dense_) return coverage;
  const auto layers = static_cast<int64_t>(sums_.size()) / kServedMatrices - 1;
  for (int64_t layer = 0; layer < layers; ++layer) {
    for (const int64_t rows : of(layer, ServedMatrix::kGateUp).rows) {
      coverage.fewest = coverage.all == 0 ? rows : std::min(coverage.fewest, rows);
      coverage.all += 1;
      coverage.enough += rows >= kEnoughRows ? 1 : 0;
    }
  }
  return coverage;
}

}  // namespace moraine
