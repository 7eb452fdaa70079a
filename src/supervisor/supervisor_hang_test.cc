// The supervisor's decisions about ranks that do not move, on a clock that is a number.
//
// Breaks if who waits for a rank that hangs is killed as well, or who had no time to move, to save or to end.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>

#include "supervisor/supervisor.h"
#include "supervisor/test_run.h"
#include "supervisor/test_world.h"

namespace moraine {
namespace {

using testing::let_run;
using testing::options_of;
using testing::options_of_hosts;
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

// A machine that is paused, or whose cores are others' for a while: ranks could not move either.
TEST(SupervisorHang, WhileItDidNotLookItselfNobodyHangs) {
  TestWorld world(options_of(4, true), 1);
  let_run(world, 10);
  for (const double away : {6.0, 3600.0}) {
    world.now += away;
    let_run(world, world.step + 5);
  }
  EXPECT_EQ(world.starts, (std::vector<int>{0, 1, 2, 3}));
  world.ranks[3].hangs = true;  // and that is found though it looks too seldom
  constexpr double kGap = 2;
  const double began = world.now;
  // A second counts of each gap, five are too many with the sixth; then one look kills it, another starts it again.
  const double most = (6 + 2) * (kGap + TestWorld::kTick) + 1e-6;
  while (world.starts.size() == 4 && world.now < began + most - TestWorld::kTick) {
    world.now += kGap;
    world.pass();
  }
  EXPECT_EQ(world.starts, (std::vector<int>{0, 1, 2, 3, 3}));
  EXPECT_GE(world.now - began, 5 * (kGap + TestWorld::kTick));
  EXPECT_LE(world.now - began, most);
  world.pass_until_over(world.now + 2000);
  EXPECT_EQ(world.exit_code, 0);
  EXPECT_EQ(world.starts, (std::vector<int>{0, 1, 2, 3, 3}));
  ASSERT_EQ(world.ledger.size(), 1u);
  EXPECT_EQ(world.ledger[0].fault, RunFault::kHang);
}

void pass_for(TestWorld& world, double seconds) {
  for (const double end = world.now + seconds; world.now < end;) world.pass();
}

// The machine that stands still is that of ranks 2 and 3, with their agent, which is heard again before they move. Who
// waits for them does not hang either.
TEST(SupervisorHang, OnAHostThatIsNotHeardNobodyHangs) {
  TestWorld world(options_of_hosts({"one", "two"}, 0), 1);
  let_run(world, 10);
  for (const int r : {2, 3}) world.at(r).hangs = world.at(r).unheard = true;
  pass_for(world, 15);
  for (const int r : {2, 3}) world.at(r).unheard = false;
  pass_for(world, 2);
  EXPECT_EQ(world.ledger.size(), 0u);
  for (const int r : {2, 3}) world.at(r).hangs = false;
  let_run(world, 20);
  EXPECT_EQ(world.starts, (std::vector<int>{0, 1, 2, 3}));
  world.at(0).hangs = true;  // and that is found, though one is silent now and then
  for (int i = 0; i < 4; ++i) {
    for (const int r : {2, 3}) world.at(r).unheard = i % 2 == 0;
    pass_for(world, 3);
  }
  world.pass_until_over(2000);
  EXPECT_EQ(world.exit_code, 0);
  EXPECT_EQ(world.starts, (std::vector<int>{0, 1, 2, 3, 0}));
  ASSERT_EQ(world.ledger.size(), 1u);
  EXPECT_EQ(world.ledger[0].fault, RunFault::kHang);
}

bool any_killed(const TestWorld& world) {
  const auto& ranks = world.supervisor().run().ranks;
  return std::any_of(ranks.begin(), ranks.end(),
                     [](const RankStatus& r) { return r.told == SIGKILL || r.signal == SIGKILL; });
}

// Ranks that were to save, or to end, had no time to while the machine stood still.
TEST(SupervisorHang, WhileItDidNotLookItselfNobodyHadTimeToSave) {
  TestWorld world(options_of(2, true), 1);
  let_run(world, 3);
  for (const int r : {0, 1}) world.at(r).hangs = true;  // they write
  world.tell(StopAsked{SIGTERM});
  pass_for(world, 100);
  world.now += 360;
  pass_for(world, 190);
  EXPECT_FALSE(any_killed(world));
  world.end(0, 18);
  pass_for(world, 15);  // 300 in all, but for the second of the gap
  EXPECT_TRUE(any_killed(world));
  world.pass_until_over(world.now + 10);
  EXPECT_EQ(world.exit_code, 18);
}

TEST(SupervisorHang, WhileItDidNotLookItselfNobodyHadTimeToEnd) {
  TestWorld world(options_of(2, false), 1);
  let_run(world, 10);
  world.at(0).hangs = true;  // it is about to end, as its peer was lost
  world.end(1, 1);
  pass_for(world, 1);
  world.now += 60;
  pass_for(world, 2);
  ASSERT_EQ(world.supervisor().run().phase, RunPhase::kRestarting);
  EXPECT_FALSE(any_killed(world));
  pass_for(world, 3);
  EXPECT_TRUE(any_killed(world));
}

TEST(SupervisorHang, WhileItDidNotLookItselfNobodyWaitedForWhoIsDone) {
  TestWorld world(options_of(3, true), 1);
  let_run(world, 10);
  world.end(2, -1, SIGKILL);
  for (const int r : {0, 1}) world.end(r, 0);  // the successor of rank 2 waits for them
  pass_for(world, 2);
  ASSERT_GE(world.supervisor().run().left_since, 0);
  world.now += 60;
  pass_for(world, 2);
  EXPECT_EQ(world.starts, (std::vector<int>{0, 1, 2, 2}));
  world.pass_until_over(2000);
  EXPECT_EQ(world.exit_code, 0);
  EXPECT_EQ(world.starts, (std::vector<int>{0, 1, 2, 2, 0, 1, 2}));
}

// Steps of ranks that are not heard are known by those that are, which did none either.
TEST(SupervisorHang, WhileItDidNotLookItselfAHostThatIsNotHeardIsNotLost) {
  TestWorld world(options_of_hosts({"one", "two"}, 0), 1);
  let_run(world, 10);
  for (const int r : {2, 3}) world.at(r).unheard = true;
  const double silent = world.now;
  pass_for(world, 5);
  world.now += 360;
  world.tell(HostLost{1, "silence", silent});
  EXPECT_EQ(world.supervisor().run().ranks[2].phase, RankPhase::kRunning);
}

}  // namespace
}  // namespace moraine
