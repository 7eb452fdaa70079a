// Watchdog: fails if a stuck call is waited for, or one that came back is punished.
#include "comm/watchdog.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace moraine {
namespace {

TEST(WatchdogDeathTest, EndsAStuckProcessWithItsReason) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const Watchdog watchdog(0.01, "start: a rank never came");
        std::this_thread::sleep_for(std::chrono::hours(1));
      },
      ::testing::ExitedWithCode(exit_code(Code::kPeerLost)), "a rank never came");
}

TEST(Watchdog, ACallThatCameBackIsFine) {
  for (int i = 0; i < 100; ++i) const Watchdog watchdog(3600, "never");
}

}  // namespace
}  // namespace moraine
