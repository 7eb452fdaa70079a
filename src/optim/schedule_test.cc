// Fails if a schedule's value at a border (first step, end of warm-up, start of decay, end) moves.
#include "optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

namespace moraine {
namespace {

using Shape = Schedule::Shape;
using Decay = Schedule::Decay;

double at(const Schedule& s, int64_t step) { return lr_multiplier(s, step, step + 1); }

TEST(Schedule, WarmUpIsLinearAndEndsAtOne) {
  for (const Shape shape : {Shape::kConstant, Shape::kLinear, Shape::kCosine, Shape::kWsd}) {
    const Schedule s = {.shape = shape, .warmup = 10, .total = 100};
    EXPECT_DOUBLE_EQ(at(s, 0), 0.1);
    EXPECT_DOUBLE_EQ(at(s, 4), 0.5);
    EXPECT_DOUBLE_EQ(at(s, 8), 0.9);
    EXPECT_DOUBLE_EQ(at(s, 9), 1);
    EXPECT_DOUBLE_EQ(at(s, 10), 1);
  }
}

TEST(Schedule, WsdDecaysOverTheLastFraction) {
  Schedule s = {.shape = Shape::kWsd,
                .decay = Decay::kLinear,
                .warmup = 10,
                .total = 100,
                .decay_fraction = 0.2};
  EXPECT_DOUBLE_EQ(at(s, 79), 1);
  EXPECT_DOUBLE_EQ(at(s, 80), 1);
  EXPECT_DOUBLE_EQ(at(s, 81), 0.95);
  EXPECT_DOUBLE_EQ(at(s, 90), 0.5);
  EXPECT_NEAR(at(s, 99), 0.05, 1e-12);  // the last step still learns
  EXPECT_DOUBLE_EQ(at(s, 100), 0);
  EXPECT_DOUBLE_EQ(at(s, 1000), 0);
  s.decay = Decay::kOneMinusSqrt;
  EXPECT_DOUBLE_EQ(at(s, 80), 1);
  EXPECT_DOUBLE_EQ(at(s, 85), 0.5);
  EXPECT_DOUBLE_EQ(at(s, 100), 0);
  s.floor = 0.1;
  EXPECT_DOUBLE_EQ(at(s, 50), 1);
  EXPECT_DOUBLE_EQ(at(s, 85), 0.1 + 0.9 * 0.5);
  EXPECT_DOUBLE_EQ(at(s, 100), 0.1);
}

TEST(Schedule, DecayLongerThanTheRunStartsAfterWarmUp) {
  const Schedule s = {.shape = Shape::kWsd,
                      .decay = Decay::kLinear,
                      .warmup = 50,
                      .total = 100,
                      .decay_fraction = 1};
  EXPECT_DOUBLE_EQ(at(s, 49), 1);
  EXPECT_DOUBLE_EQ(at(s, 75), 0.5);
  const Schedule none = {.shape = Shape::kWsd, .warmup = 0, .total = 100, .decay_fraction = 0};
  EXPECT_DOUBLE_EQ(at(none, 0), 1);
  EXPECT_DOUBLE_EQ(at(none, 99), 1);
}

TEST(Schedule, LinearAndCosineReachTheFloor) {
  const Schedule linear = {.shape = Shape::kLinear, .warmup = 20, .total = 120, .floor = 0.2};
  EXPECT_DOUBLE_EQ(at(linear, 20), 1);
  EXPECT_DOUBLE_EQ(at(linear, 70), 0.6);
  EXPECT_DOUBLE_EQ(at(linear, 120), 0.2);
  const Schedule cosine = {.shape = Shape::kCosine, .warmup = 20, .total = 120, .floor = 0.2};
  EXPECT_DOUBLE_EQ(at(cosine, 20), 1);
  EXPECT_DOUBLE_EQ(at(cosine, 70), 0.6);
  EXPECT_NEAR(at(cosine, 45), 0.2 + 0.8 * (1 + std::sqrt(0.5)) / 2, 1e-12);
  EXPECT_NEAR(at(cosine, 120), 0.2, 1e-12);
}

TEST(Schedule, CountsTokensAsWellAsSteps) {
  const Schedule s = {.shape = Shape::kLinear, .warmup = 1000, .total = 11000};
  EXPECT_DOUBLE_EQ(lr_multiplier(s, 0, 250), 0.25);
  EXPECT_DOUBLE_EQ(lr_multiplier(s, 250, 1000), 1);
  EXPECT_DOUBLE_EQ(lr_multiplier(s, 6000, 8000), 0.5);
}

TEST(Schedule, EmptyRunAndConstant) {
  for (const Shape shape : {Shape::kConstant, Shape::kLinear, Shape::kCosine, Shape::kWsd}) {
    const double value = at({.shape = shape, .total = 0}, 3);
    EXPECT_NEAR(value, shape == Shape::kConstant ? 1 : 0, 1e-12);
  }
}

}  // namespace
}  // namespace moraine
