// Waited: breaks if time counts in which nobody looked, or if a deadline never comes for who looks too seldom.
#include "comm/waited.h"

#include <gtest/gtest.h>

namespace moraine {
namespace {

TEST(Waited, TimeInWhichNobodyLookedIsNotWaited) {
  constexpr double kLook = 1 / 128.0;  // exact, added to a clock too
  Waited waited(100);
  EXPECT_DOUBLE_EQ(waited.look(100 + kLook), kLook);
  EXPECT_DOUBLE_EQ(waited.look(3700), kLook + Waited::kMostBetweenLooks);
  EXPECT_DOUBLE_EQ(waited.look(3700 + kLook), 2 * kLook + Waited::kMostBetweenLooks);
}

TEST(Waited, ADeadlineComesAlsoForWhoLooksTooSeldom) {
  Waited waited(0);
  double seconds = 0;
  for (int i = 1; i <= 100; ++i) seconds = waited.look(i);
  EXPECT_NEAR(seconds, 100 * Waited::kMostBetweenLooks, 1e-9);
}

}  // namespace
}  // namespace moraine
