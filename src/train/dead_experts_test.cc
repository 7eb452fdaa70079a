// DeadExperts: fails if a collapse is not told, is told more than once, or is told of experts without tokens by chance.
#include "train/dead_experts.h"

#include <gtest/gtest.h>

namespace moraine {
namespace {

TEST(DeadExperts, ThatStayDeadAreToldOnce) {
  constexpr int64_t kLayers = 3, kExperts = 8, kTokens = 16 * kExperts;
  constexpr int64_t dead = 6, alive = 5;
  DeadExperts watch(kLayers, kExperts);
  const auto told = [&](int64_t without, int64_t steps, int64_t tokens) {
    int64_t times = 0;
    for (int64_t i = 0; i < steps; ++i) times += watch.add(without, tokens);
    return times;
  };
  EXPECT_EQ(told(dead, 99, kTokens), 0);
  EXPECT_EQ(told(alive, 1, kTokens), 0);
  EXPECT_EQ(told(dead, 99, kTokens), 0);
  EXPECT_EQ(told(dead, 1, kTokens), 1);
  EXPECT_EQ(told(dead, 1000, kTokens), 0);
  EXPECT_EQ(told(alive, 1, kTokens), 0);
  EXPECT_EQ(told(dead, 100, kTokens), 1);
  EXPECT_EQ(told(dead, 300, kTokens - 1), 0);  // some have none by chance
}

}  // namespace
}  // namespace moraine
