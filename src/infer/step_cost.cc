// StepCost: three normal equations, solved again after each step.
#include "infer/step_cost.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace moraine {
namespace {

using Vector = std::array<double, 3>;

// Units in which the three numbers of a usual step are near 1.
Vector features(const StepCost::Work& work) {
  constexpr double kRows = 64, kKeys = 16384;
  return {1, static_cast<double>(work.rows) / kRows, work.keys / kKeys};
}

double dot(const Vector& a, const Vector& b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }

}  // namespace

void StepCost::add(const Work& work, double seconds) {
  if (known()) {
    const double ratio = seconds / std::max(1e-9, expected(work));
    if (static_cast<int64_t>(excess_.size()) == kRecent) excess_.erase(excess_.begin());
    excess_.push_back(ratio);
  }
  constexpr double kMemory = 0.99;
  const Vector x = features(work);
  for (size_t i = 0; i < 3; ++i) {
    for (size_t j = 0; j < 3; ++j) xx_[i][j] = kMemory * xx_[i][j] + x[i] * x[j];
    xy_[i] = kMemory * xy_[i] + x[i] * seconds;
  }
  ++steps_;
  fit();
}

// Coordinate by coordinate, none below zero: a step does not get cheaper with more work. The small diagonal
// settles what steps that were all alike leave open.
void StepCost::fit() {
  constexpr double kRidge = 1e-6;
  constexpr int kRounds = 50;
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < 3; ++i) {
      double rest = xy_[i];
      for (size_t j = 0; j < 3; ++j) {
        if (j != i) rest -= xx_[i][j] * cost_[j];
      }
      cost_[i] = std::max(0.0, rest / (xx_[i][i] + kRidge));
    }
  }
}

double StepCost::expected(const Work& work) const { return dot(cost_, features(work)); }

double StepCost::bound(const Work& work) const {
  if (excess_.empty()) return expected(work);
  std::vector<double> sorted = excess_;
  const size_t at = sorted.size() * 19 / 20;
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(at), sorted.end());
  return expected(work) * std::max(1.0, sorted[at]);
}

}  // namespace moraine
