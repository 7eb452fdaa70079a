// Fails if the factor misses the limit or a gradient that is not finite gets through.
#include "optim/clip.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace moraine {
namespace {

TEST(Clip, FactorScalesToTheLimit) {
  const Clip free = clip_factor(16, 0.25, 0);
  EXPECT_EQ(free.norm, 1);
  EXPECT_EQ(free.factor, 0.25);
  EXPECT_FALSE(free.skip);
  EXPECT_EQ(clip_factor(16, 0.25, 1).factor, 0.25);  // exactly at the limit
  const Clip clipped = clip_factor(16, 0.25, 0.5);
  EXPECT_EQ(clipped.norm, 1);
  EXPECT_EQ(clipped.factor, 0.125);
  EXPECT_EQ(clip_factor(0, 1, 1).factor, 1);
}

TEST(Clip, NonFiniteGradientsSaySkip) {
  for (const double bad : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    const Clip clip = clip_factor(bad, 0.1, 1);
    EXPECT_TRUE(clip.skip);
    EXPECT_EQ(clip.factor, 0);
    EXPECT_TRUE(clip_factor(1, bad, 1).skip);
  }
  EXPECT_FALSE(clip_factor(1e76, 1, 1).skip);  // the square of a large float
}

}  // namespace
}  // namespace moraine
