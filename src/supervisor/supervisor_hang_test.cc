// The supervisor's decisions about ranks that do not move, on a clock that is a number.
//
// Breaks if who waits for a rank that hangs is killed as well, or who had no time to move.
#include <gtest/gtest.h>

#include "supervisor/supervisor.h"
#include "supervisor/test_run.h"
#include "supervisor/test_world.h"

namespace moraine {
namespace {

using testing::let_run;
using testing::options_of;
using testing::TestWorld;

TEST(SupervisorHang, KillsTheOneThatHangsAndNotThoseThatWait) {
  TestWorld world(options_of(4, true), 1);
  let_run(world, 10);
  world.ranks[3].hangs = true;
  world.pass_until_over(2000);
  EXPECT_EQ(world.exit_code, 0);
  EXPECT_EQ(world.starts, (std::vector<int>{0, 1, 2, 3, 3}));
  ASSERT_EQ(world.ledger.size(), 1u);
  EXPECT_EQ(world.ledger[0].fault, RunFault::kHang);
  EXPECT_GE(world.ledger[0].phases[0].seconds, 5);  // detection
  EXPECT_LE(world.ledger[0].phases[0].seconds, 6);
}

// A suspended machine, or one whose cores are others' for a while: ranks could not move either.
TEST(SupervisorHang, WhileItDidNotLookItselfNobodyHangs) {
  TestWorld world(options_of(4, true), 1);
  let_run(world, 10);
  for (const double away : {6.0, 3600.0}) {
    world.now += away;
    let_run(world, world.step + 5);
  }
  EXPECT_EQ(world.starts, (std::vector<int>{0, 1, 2, 3}));
  world.ranks[3].hangs = true;  // and that is found though it looks too seldom
  while (world.starts.size() == 4 && world.now < 1e6) {
    world.now += 2;
    world.pass();
  }
  world.pass_until_over(world.now + 2000);
  EXPECT_EQ(world.exit_code, 0);
  EXPECT_EQ(world.starts, (std::vector<int>{0, 1, 2, 3, 3}));
  ASSERT_EQ(world.ledger.size(), 1u);
  EXPECT_EQ(world.ledger[0].fault, RunFault::kHang);
}

}  // namespace
}  // namespace moraine
