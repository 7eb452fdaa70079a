// StepCost: fails if a learnt cost leaves more than one step of twenty over its bound, or if steps that pass a
// latency target make the next ones no smaller.
#include "infer/step_cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/random.h"

namespace moraine {
namespace {

TEST(StepCost, LearnsWhatStepsCostAndBoundsNineteenOfTwenty) {
  StepCost cost;
  int64_t under = 0, all = 0;
  for (uint64_t i = 0; i < 400; ++i) {
    const StepCost::Work work = {
        .rows = 1 + static_cast<int64_t>(random_below(200, 1, Stream::kTest, i, 0)),
        .keys = 50000 * random_uniform(1, Stream::kTest, i, 1)};
    const double truth = 2e-3 + 3e-5 * static_cast<double>(work.rows) + 1e-8 * work.keys;
    const double seconds = truth * (1 + 0.3 * random_uniform(1, Stream::kTest, i, 2));
    if (i >= 100) {
      EXPECT_NEAR(cost.expected(work), 1.15 * truth, 0.15 * truth);
      under += seconds <= cost.bound(work);
      ++all;
    }
    cost.add(work, seconds);
  }
  EXPECT_GT(static_cast<double>(under), 0.9 * static_cast<double>(all));
}

// Steps are filled up to the target by what their bound says; bursts of a neighbour make a tenth of them a half slower.
// Returns the share that passes the target.
double share_over_target(bool with_margin) {
  constexpr double kTarget = 30e-3;
  constexpr uint64_t kSteps = 2000, kBurst = 8;
  const auto draw = [](uint64_t i, uint64_t what) {
    return random_uniform(2, Stream::kTest, i, what);
  };
  StepCost cost;
  LatencyMargin margin;
  int64_t over = 0;
  for (uint64_t i = 0; i < kSteps; ++i) {
    StepCost::Work work = {.rows = 16, .keys = 16.0 * 400};
    const double factor = with_margin ? margin.factor() : 1;
    while (cost.known() && cost.bound({work.rows + 2, work.keys + 800}) * factor <= kTarget)
      work.rows += 2, work.keys += 800;
    const double truth = 4e-3 + 1e-4 * static_cast<double>(work.rows) + 1e-8 * work.keys;
    const bool burst = draw(i / kBurst, 0) < 0.1;
    const double seconds = truth * (1 + 0.1 * draw(i, 1)) * (burst ? 1.5 : 1);
    if (cost.known()) margin.add(seconds > kTarget);
    over += i >= kSteps / 4 && seconds > kTarget;
    cost.add(work, seconds);
  }
  return static_cast<double>(over) / (0.75 * kSteps);
}

TEST(LatencyMargin, KeepsNineteenOfTwentyUnderWhereTheBoundAloneDoesNot) {
  EXPECT_GT(share_over_target(false), 0.05);
  EXPECT_LT(share_over_target(true), 0.04);
}

}  // namespace
}  // namespace moraine
