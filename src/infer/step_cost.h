// StepCost: what a step of the engine will cost, learnt from the steps before.
//
//   seconds = a + b * rows + c * keys        rows of the batch; keys: (row, key) pairs that attention visits
//
// Fitted by least squares over the steps so far, each weighing 1 % less with every step after it, so that it
// follows a machine that changes its mind. A bound adds what the slowest twentieth of recent steps took beyond
// the fit. Nothing that is computed depends on it, only when.
// Threads: one at a time.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace moraine {

class StepCost {
 public:
  struct Work {
    int64_t rows = 0;
    double keys = 0;
  };
  void add(const Work& work, double seconds);
  bool known() const { return steps_ >= kFirstSteps; }
  double expected(const Work& work) const;
  double bound(const Work& work) const;  // what nineteen of twenty steps stay under

 private:
  static constexpr int64_t kFirstSteps = 8, kRecent = 128;
  void fit();

  int64_t steps_ = 0;
  std::array<std::array<double, 3>, 3> xx_ =
      {};  // sums of x x^T, x = (1, rows, keys) in their units
  std::array<double, 3> xy_ = {};
  std::array<double, 3> cost_ = {};
  std::vector<double> excess_;  // measured over expected, of recent steps
};

// LatencyMargin: how far below a latency target steps are planned, so that at most a twentieth of them passes it.
//
// A bound is right on average, and a machine is not the same for long: what steps do is held against the target, one
// that passes it widens the margin as much as 39 that stay under it narrow it. So one in 40 passes in the long run,
// whatever the noise, while there is less work to choose from.
class LatencyMargin {
 public:
  void add(bool passed) {
    factor_ = std::clamp(factor_ * (passed ? kWider : kNarrower), 1.0, kMost);
  }
  double factor() const { return factor_; }  // of a step's bound; 1 to 2

 private:
  static constexpr double kWider = 1.04, kNarrower = 0.999, kMost = 2;
  double factor_ = 1;
};

}  // namespace moraine
