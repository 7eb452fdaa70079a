// MemberSpeed: fails if one disturbed time makes a member slow, or if twice the time of the others does not.
#include "parallel/member_speed.h"

#include <gtest/gtest.h>

namespace moraine {
namespace {

TEST(RowTime, TheLeastOfTheLastFourCounts) {
  RowTime time;
  EXPECT_EQ(time.nanoseconds(), 0);
  time.add(1, 0);
  EXPECT_EQ(time.nanoseconds(), 0);
  time.add(1e-6, 10);
  for (int i = 0; i < 3; ++i) time.add(5e-6, 10);
  EXPECT_DOUBLE_EQ(time.nanoseconds(), 100);
  time.add(5e-6, 10);
  EXPECT_DOUBLE_EQ(time.nanoseconds(), 500);
}

TEST(FindSlow, IsAgainstTheMedianAndKeepsWhatIsNotKnown) {
  std::vector<double> slowness = {1, 1, 1, 2};
  EXPECT_EQ(find_slow(std::vector<double>{100, 140, 210, 0}, slowness), 140);
  EXPECT_EQ(slowness, (std::vector<double>{1, 1, 1.5, 2}));
  EXPECT_EQ(find_slow(std::vector<double>{0, 0, 0, 0}, slowness), 1);
  EXPECT_EQ(slowness, (std::vector<double>{1, 1, 1.5, 2}));
  find_slow(std::vector<double>{100, 140, 140, 100}, slowness);
  EXPECT_EQ(slowness, (std::vector<double>{1, 1, 1, 1}));
}

}  // namespace
}  // namespace moraine
