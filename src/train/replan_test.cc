// Replan: breaks if a run moves for less than the gate, towards what was slower when it was tried, for steps that are
// nearly over, or to a plan that does not fit; or if the rows of ranks are counted otherwise than experts are divided.
#include "train/replan.h"

#include <gtest/gtest.h>

namespace moraine {
namespace {

MeshChoice over(int64_t expert) { return {expert, Recompute::kNone}; }

// 10 ms measured where 5 were predicted, so twice what is predicted of the others.
ReplanCase three_plans() {
  return {.options = {{over(4), 0.004}, {over(1), 0.005}, {over(2), 0.006}},
          .now = over(1),
          .seconds = 0.010,
          .tried = {},
          .steps_left = 100000,
          .move_seconds = 1,
          .gate = 0.1};
}

TEST(Replan, GoesToTheBestPlanBeyondTheGate) {
  ReplanCase c = three_plans();
  const auto better = better_plan(c);
  ASSERT_TRUE(better);
  EXPECT_EQ(better->choice, over(4));
  EXPECT_DOUBLE_EQ(better->seconds, 0.008);
  c.gate = 0.2;  // not more than that
  EXPECT_FALSE(better_plan(c));
  c.gate = 0.19;
  EXPECT_TRUE(better_plan(c));
}

TEST(Replan, StaysWithTheBest) {
  ReplanCase c = three_plans();
  c.now = over(4);
  c.gate = 0;
  EXPECT_FALSE(better_plan(c));
}

TEST(Replan, BelievesWhatWasMeasuredOverWhatIsPredicted) {
  ReplanCase c = three_plans();
  const std::vector<TriedPlan> slow = {{over(4), 0, 0, 0.011}};
  c.tried = slow;
  EXPECT_FALSE(better_plan(c));
  const std::vector<TriedPlan> both = {{over(4), 0, 0, 0.011}, {over(2), 0, 0, 0.007}};
  c.tried = both;
  ASSERT_TRUE(better_plan(c));
  EXPECT_EQ(better_plan(c)->choice, over(2));
}

TEST(Replan, WhatIsLeftMustRepayTheMove) {
  ReplanCase c = three_plans();  // 2 ms a step, eight seconds
  c.steps_left = 3999;
  EXPECT_FALSE(better_plan(c));
  c.steps_left = 4001;
  EXPECT_TRUE(better_plan(c));
}

TEST(Replan, WithoutAGateAnyGainWillDo) {
  ReplanCase c = three_plans();
  c.gate = 0, c.steps_left = 1;
  ASSERT_TRUE(better_plan(c));
  EXPECT_EQ(better_plan(c)->choice, over(4));
}

TEST(Replan, NeverToWhatDoesNotFit) {
  ReplanCase c = three_plans();
  c.options[0].fits = false;
  EXPECT_FALSE(better_plan(c));
}

TEST(Replan, ARunWhosePlanIsNoneOfThemStays) {
  ReplanCase c = three_plans();
  c.now = over(8);
  EXPECT_FALSE(better_plan(c));
}

// Two layers of four experts and tokens that skip all.
TEST(Replan, RowsAreThoseOfTheBusiestRank) {
  const std::vector<double> rows = {6, 2, 1, 1, 90, 0, 0, 2, 2, 90};
  EXPECT_DOUBLE_EQ(rows_over_mean(rows, 5, 4, 1), 1);
  EXPECT_DOUBLE_EQ(rows_over_mean(rows, 5, 4, 2), (8.0 / 5 + 4.0 / 2) / 2);
  EXPECT_DOUBLE_EQ(rows_over_mean(rows, 5, 4, 4), (6.0 / 2.5 + 2.0 / 1) / 2);
  EXPECT_DOUBLE_EQ(rows_over_mean(std::vector<double>(5), 5, 4, 4), 1);
  EXPECT_DOUBLE_EQ(rows_over_mean({}, 5, 4, 4), 1);
}

// All rows at one rank in one step, at the other in the next.
TEST(Replan, RowsThatChangeTheirRankAreNotLevel) {
  RowsOverMean seen;
  EXPECT_EQ(seen.on(2), 1);
  seen.add(std::vector<double>{8, 0, 0, 0}, 4, 4, 2);
  seen.add(std::vector<double>{0, 0, 4, 4}, 4, 4, 2);
  EXPECT_EQ(seen.on(1), 1);
  EXPECT_EQ(seen.on(2), 2);
  seen.add(std::vector<double>{2, 2, 2, 2}, 4, 4, 2);
  EXPECT_DOUBLE_EQ(seen.on(2), 5.0 / 3);
}

}  // namespace
}  // namespace moraine
