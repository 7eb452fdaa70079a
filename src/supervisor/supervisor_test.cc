// The supervisor's decisions, on a clock that is a number.
#include "supervisor/supervisor.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <set>

#include "supervisor/test_run.h"
#include "supervisor/test_world.h"

namespace moraine {
namespace {

using testing::let_run;
using testing::options_of;
using testing::options_of_hosts;
using testing::TestWorld;

TEST(Supervisor, StartsAllRanksAndEndsWithThem) {
  TestWorld world(options_of(4, false), 1);
  world.pass_until_over(2000);
  EXPECT_EQ(world.exit_code, 0);
  EXPECT_EQ(world.starts, (std::vector<int>{0, 1, 2, 3}));
  EXPECT_TRUE(world.ledger.empty());
}

TEST(Supervisor, ReplacesOneRankWhereTheOthersWait) {
  TestWorld world(options_of(4, true), 1);
  let_run(world, 10);
  world.end(2, -1, SIGKILL);
  world.pass_until_over(2000);
  EXPECT_EQ(world.exit_code, 0);
  EXPECT_EQ(world.starts, (std::vector<int>{0, 1, 2, 3, 2}));
  ASSERT_EQ(world.ledger.size(), 1u);
  const LedgerEntry& e = world.ledger[0];
  EXPECT_EQ(e.fault, RunFault::kKilled);
  EXPECT_EQ(e.level, RecoveryLevel::kReplace);
  EXPECT_EQ(e.rank, 2);
  EXPECT_EQ(e.step, 10);
  ASSERT_EQ(e.phases.size(), 6u);
  double sum = 0;
  for (const LedgerPhase& phase : e.phases) {
    EXPECT_GE(phase.seconds, 0) << phase.name;
    sum += phase.seconds;
  }
  EXPECT_NEAR(sum, e.seconds_lost, 1e-9);
  EXPECT_NEAR(e.phases[2].seconds, 0.4, 0.11);  // respawn: 0.3 and a tick or two
}

// Every rank was replaced, so no process knows of the groups before.
TEST(Supervisor, AnIncidentEndsAlsoWhereGenerationsBeginAnew) {
  Supervisor supervisor(0, options_of(2, true));
  int closed = 0, starts = 0;
  const auto tell = [&](double now, const RunEvent& event) {
    for (const RunEffect& effect : supervisor.handle(now, event)) {
      closed += std::holds_alternative<WriteLedger>(effect);
      starts += std::holds_alternative<StartRank>(effect);
    }
  };
  const auto step = [&](double now, int64_t generation, int64_t at) {
    for (int r = 0; r < 2; ++r)
      tell(now, RankBeat{r,
                         {.generation = generation,
                          .activity = Activity::kComputing,
                          .beats = at,
                          .step = at}});
  };
  tell(0, TimePassed{});
  for (int r = 0; r < 2; ++r) tell(0.1, RankStarted{r, 100 + r});
  for (int64_t s = 1; s <= 5; ++s) step(1.0 * static_cast<double>(s), 3, s);
  for (int r = 0; r < 2; ++r)
    tell(10, RankEnded{.rank = r, .exit_code = -1, .signal = SIGKILL, .last_lines = {}});
  double now = 10;
  while (starts < 4 && now < 100) tell(now += 0.5, TimePassed{});
  for (int r = 0; r < 2; ++r) tell(now, RankStarted{r, 200 + r});
  step(now + 1, 1, 5);  // taken up
  EXPECT_EQ(closed, 0);
  step(now + 2, 1, 6);
  tell(now + 5, TimePassed{});  // no word came of the new processes' moments
  EXPECT_EQ(closed, 2);
}

TEST(Supervisor, WhoIsLostAsTheOthersEndDoesNotWaitForThem) {
  TestWorld world(options_of(4, true), 1);
  let_run(world, 10);
  world.end(2, -1, SIGKILL);  // its successor starts, and then all others are done
  for (const int r : {0, 1}) world.end(r, 0);
  world.at(3).activity = Activity::kEnding;
  const double begin = world.now;
  while (world.now < begin + 20) world.pass();
  EXPECT_EQ(world.starts, (std::vector<int>{0, 1, 2, 3, 2})) << "rank 3 is about to tell";
  world.end(3, 0);
  world.pass_until_over(2000);
  EXPECT_EQ(world.exit_code, 0);
  EXPECT_EQ(world.starts, (std::vector<int>{0, 1, 2, 3, 2, 0, 1, 2, 3}));
  ASSERT_EQ(world.ledger.size(), 1u);
  EXPECT_EQ(world.ledger[0].level, RecoveryLevel::kRestart);
}

// They wait for one that does not come: not for `grace_seconds`, in which others would end by themselves.
TEST(Supervisor, WhoWaitsToMeetIsNotWaitedForWhereAllStartAgain) {
  SuperviseOptions options = options_of(3, true);
  options.grace_seconds = 50;
  TestWorld world(options, 1);
  let_run(world, 10);
  world.end(1, 13);
  world.pass_until_over(2000);
  EXPECT_EQ(world.exit_code, 0);
  EXPECT_EQ(world.starts, (std::vector<int>{0, 1, 2, 0, 1, 2}));
  ASSERT_EQ(world.ledger.size(), 1u);
  EXPECT_EQ(world.ledger[0].fault, RunFault::kDisk);
  EXPECT_EQ(world.ledger[0].level, RecoveryLevel::kRestart);
  EXPECT_LT(world.ledger[0].seconds_lost, 10);
}

TEST(Supervisor, ReplacesARankThatDivergedUntilItIsOneTooMany) {
  TestWorld world(options_of(4, true), 1);
  world.steps_total = 1000;
  for (int times = 1; times <= 5 && !world.finished; ++times) {
    let_run(world, 5 * times);
    world.end(2, 20);
    while (!world.finished && !world.ranks[2].alive) world.pass();
  }
  EXPECT_TRUE(world.finished);
  EXPECT_EQ(world.exit_code, 20);
  EXPECT_EQ(world.starts, (std::vector<int>{0, 1, 2, 3, 2, 2, 2, 2}));
  ASSERT_EQ(world.ledger.size(), 5u);
  EXPECT_EQ(world.ledger[0].fault, RunFault::kRankDiverged);
  EXPECT_EQ(world.ledger[0].level, RecoveryLevel::kReplace);
  EXPECT_EQ(world.ledger[4].level, RecoveryLevel::kStop);
}

TEST(Supervisor, StartsAllRanksAgainWhereTheyCannotWait) {
  TestWorld world(options_of(3, false), 1);
  let_run(world, 10);
  world.end(1, -1, SIGSEGV);
  world.pass_until_over(2000);
  EXPECT_EQ(world.exit_code, 0);
  EXPECT_EQ(world.starts, (std::vector<int>{0, 1, 2, 0, 1, 2}));
  ASSERT_EQ(world.ledger.size(), 1u);
  EXPECT_EQ(world.ledger[0].fault, RunFault::kCrash);
  EXPECT_EQ(world.ledger[0].level, RecoveryLevel::kRestart);
  EXPECT_GE(world.ledger[0].evidence.size(), 3u);  // its own, its last line, and who lost it
}

TEST(Supervisor, ALostPeerBelongsToItsCauseThatIsHeardOfLater) {
  TestWorld world(options_of(2, true), 1);
  let_run(world, 10);
  world.end(0, 15);
  world.end(1, -1, SIGKILL);
  world.pass_until_over(2000);
  EXPECT_EQ(world.exit_code, 0);
  ASSERT_EQ(world.ledger.size(), 1u);
  EXPECT_EQ(world.ledger[0].fault, RunFault::kKilled);
  EXPECT_EQ(world.ledger[0].rank, 1);
}

TEST(Supervisor, TheKernelsCounterTellsOutOfMemoryFromAKill) {
  TestWorld world(options_of(1, true), 1);
  world.tell(HostRead{{.host = 0, .oom_kills = 3}});
  let_run(world, 10);
  world.tell(HostRead{{.host = 0, .oom_kills = 4}});
  world.end(0, -1, SIGKILL);
  world.pass_until_over(2000);
  ASSERT_EQ(world.ledger.size(), 1u);
  EXPECT_EQ(world.ledger[0].fault, RunFault::kOutOfMemory);
}

TEST(Supervisor, ARankThatDiesBeforeEveryStepStopsTheRunWithItsLastWords) {
  for (const bool can_replace : {false, true}) {
    TestWorld world(options_of(2, can_replace), 1);
    while (!world.finished && world.now < 5000) {
      world.pass();
      if (world.ranks[1].alive && world.ranks[1].activity == Activity::kMeeting)
        world.end(1, -1, SIGSEGV);
    }
    EXPECT_EQ(world.exit_code, 15);
    EXPECT_NE(world.reason.find("without a step"), std::string::npos) << world.reason;
    EXPECT_NE(world.reason.find("last words"), std::string::npos) << world.reason;
    EXPECT_EQ(std::count(world.starts.begin(), world.starts.end(), 1), 6);
  }
}

TEST(Supervisor, MoreInAnHourThanTheTableAllowsStopsTheRun) {
  SuperviseOptions options = options_of(2, true);
  options.restarts = 4;
  TestWorld world(options, 1);
  world.steps_total = 1000;
  for (int64_t kill = 1; kill < 10 && !world.finished; ++kill) {
    let_run(world, 5 * kill);
    if (!world.finished) world.end(1, -1, SIGKILL);
    while (!world.finished && !world.ranks[1].alive && world.now < 1e5) world.pass();
  }
  EXPECT_TRUE(world.finished);
  EXPECT_NE(world.reason.find("the 5th time in an hour"), std::string::npos) << world.reason;
}

TEST(Supervisor, CodesThatAPersonMustLookAtStop) {
  struct Expect {
    int code;
    RunFault fault;
  };
  for (const Expect& e : {Expect{10, RunFault::kInvalid}, Expect{11, RunFault::kInvalid},
                          Expect{2, RunFault::kUsage}, Expect{14, RunFault::kDiverged},
                          Expect{17, RunFault::kDevice}, Expect{18, RunFault::kInterrupted}}) {
    TestWorld world(options_of(2, false), 1);
    let_run(world, 3);
    world.end(0, e.code);
    world.end(1, e.code);
    world.pass_until_over(2000);
    EXPECT_EQ(world.exit_code, e.code);
    EXPECT_EQ(world.starts.size(), 2u) << e.code;
    ASSERT_EQ(world.ledger.size(), 1u) << e.code;
    EXPECT_EQ(world.ledger[0].fault, e.fault);
    EXPECT_EQ(world.ledger[0].level, RecoveryLevel::kStop);
  }
}

TEST(Supervisor, AFullDiskIsWaitedFor) {
  TestWorld world(options_of(1, false), 1);
  let_run(world, 3);
  for (int i = 0; i < 12; ++i) {
    world.end(0, 13);
    const double ended = world.now;
    while (!world.ranks[0].alive && !world.finished) world.pass();
    ASSERT_FALSE(world.finished) << world.reason;
    EXPECT_GE(world.now - ended, std::min(60, 1 << i));
  }
  world.pass_until_over(1e4);
  EXPECT_EQ(world.exit_code, 0);
}

TEST(Supervisor, ASignalIsPassedOnAndEndsWithEighteen) {
  TestWorld world(options_of(3, true), 1);
  let_run(world, 3);
  world.tell(StopAsked{SIGTERM});
  world.pass_until_over(2000);
  EXPECT_EQ(world.exit_code, 18);
  EXPECT_EQ(world.starts.size(), 3u);
}

TEST(Supervisor, ASecondSignalKills) {
  TestWorld world(options_of(2, true), 1);
  let_run(world, 3);
  world.ranks[1].hangs = true;
  world.tell(StopAsked{SIGTERM});
  for (int i = 0; i < 20; ++i) world.pass();
  EXPECT_FALSE(world.finished);
  world.tell(StopAsked{SIGTERM});
  world.pass();
  EXPECT_TRUE(world.finished);
  EXPECT_EQ(world.exit_code, 18);
}

TEST(Supervisor, RanksOfALostHostGoToTheSpareOrStayAway) {
  SuperviseOptions options = options_of(4, true);
  options.hosts = {"a", "b", "c"};
  options.spares = 1;
  TestWorld world(options, 1);
  let_run(world, 3);
  const auto lose = [&](int host, int first) {
    world.ranks[static_cast<size_t>(first)].alive = false;
    world.ranks[static_cast<size_t>(first + 1)].alive = false;
    world.tell(HostLost{host, "no answer"});
  };
  lose(1, 2);
  let_run(world, 6);
  ASSERT_FALSE(world.finished) << world.reason;
  EXPECT_EQ(world.supervisor().run().ranks[2].host, 2);
  lose(2, 2);
  world.pass_until_over(2000);
  EXPECT_EQ(world.exit_code, 0);
  EXPECT_EQ(world.supervisor().run().ranks[2].phase, RankPhase::kAbsent);
  ASSERT_EQ(world.ledger.size(), 2u);
  EXPECT_EQ(world.ledger[0].level, RecoveryLevel::kHost);
}

void lose_host(TestWorld& world, int host) {
  for (int r = 0; r < world.size(); ++r)
    if (world.supervisor().run().ranks[static_cast<size_t>(r)].host == host)
      world.at(r).alive = false;
  world.tell(HostLost{host, "no answer"});
}

TEST(Supervisor, ALostHostThatComesBackTakesItsRanksOrIsASpare) {
  TestWorld world(options_of_hosts({"a", "b", "c"}, 1), 1);
  let_run(world, 3);
  lose_host(world, 1);
  let_run(world, 6);
  world.tell(HostBack{1});
  lose_host(world, 2);
  let_run(world, 9);
  EXPECT_EQ(world.supervisor().run().ranks[2].host, 1);
  lose_host(world, 1);
  let_run(world, 12);
  EXPECT_EQ(world.supervisor().run().ranks[2].phase, RankPhase::kAbsent);
  world.tell(HostBack{1});
  world.pass_until_over(2000);
  EXPECT_EQ(world.exit_code, 0);
  EXPECT_EQ(world.supervisor().run().ranks[2].phase, RankPhase::kDone);
}

TEST(Supervisor, WithoutTheHostOfRankZeroNobodyMeets) {
  TestWorld world(options_of_hosts({"a", "b"}, 0), 1);
  let_run(world, 3);
  lose_host(world, 0);
  world.pass_until_over(2000);
  EXPECT_EQ(world.exit_code, 15);
  EXPECT_NE(world.reason.find("host a: no answer; no other host has room"), std::string::npos)
      << world.reason;
}

TEST(Supervisor, AllRanksStartAgainWhereTheRendezvousMovesWithRankZero) {
  for (const std::string rendezvous : {"a:1", "{host}:1"}) {
    SuperviseOptions options = options_of_hosts({"a", "b", "c"}, 1);
    options.rendezvous = rendezvous;
    TestWorld world(options, 1);
    let_run(world, 3);
    lose_host(world, 0);
    world.pass_until_over(2000);
    EXPECT_EQ(world.exit_code, 0) << world.reason;
    EXPECT_EQ(world.starts.size(), rendezvous == "a:1" ? 6u : 8u) << rendezvous;
    EXPECT_EQ(world.supervisor().run().ranks[0].host, 2);
  }
}

TEST(Supervisor, AHostWhoseRanksGoOnUnheardIsNotLost) {
  TestWorld world(options_of_hosts({"a", "b", "c"}, 1), 1);
  let_run(world, 10);
  world.tell(HostLost{1, "silence", world.now - 3});
  EXPECT_FALSE(world.supervisor().run().hosts[1].lost);
  for (int r : {2, 3}) world.at(r).alive = false;
  const double died = world.now;
  while (!world.supervisor().run().hosts[1].lost && world.now < died + 100) {
    world.pass();
    world.tell(HostLost{1, "silence", died - 3});
  }
  EXPECT_GT(world.now, died + 9);  // half of host_seconds
  world.pass_until_over(2000);
  EXPECT_EQ(world.exit_code, 0);
  ASSERT_EQ(world.ledger.size(), 1u);
  EXPECT_LE(world.ledger[0].begin, died);  // lost is what was not done since
  EXPECT_GT(world.ledger[0].begin, died - 1);
  EXPECT_EQ(world.supervisor().run().ranks[2].host, 2);
}

TEST(Supervisor, ARankOfAFailingHostEndsThereAndStartsOnTheSpare) {
  TestWorld world(options_of_hosts({"a", "b", "c"}, 1), 1);
  let_run(world, 3);
  world.end(2, 17);
  EXPECT_EQ(world.supervisor().run().ranks[2].host, 2);
  EXPECT_EQ(world.supervisor().run().ranks[3].host, 1);  // its process is there still
  world.pass_until_over(2000);
  EXPECT_EQ(world.exit_code, 0);
  EXPECT_EQ(world.supervisor().run().ranks[3].host, 2);
  world.tell(HostBack{1});
  EXPECT_TRUE(world.supervisor().run().hosts[1].lost);  // it was not silent: it fails
}

TEST(Supervisor, EventsOfARankAreNoted) {
  TestWorld world(options_of(2, true), 1);
  let_run(world, 3);
  for (const char* name : {"rails.lost", "step.bad", "run.rolled_back", "checkpoint.saved"})
    world.tell(
        RankLogged{0, {.level = Level::kWarning, .name = name, .fields = {}, .text = "x=1"}});
  std::vector<RunFault> faults;
  for (const LedgerEntry& e : world.ledger) faults.push_back(e.fault);
  EXPECT_EQ(faults,
            (std::vector<RunFault>{RunFault::kLinkLost, RunFault::kBadStep, RunFault::kRollback}));
  EXPECT_EQ(world.ledger[0].level, RecoveryLevel::kLink);
}

// Both ends tell of it, in any order and not at once.
TEST(Supervisor, AnOperationThatWasHeldIsCountedOnce) {
  TestWorld world(options_of(2, true), 1);
  let_run(world, 20);
  const auto resume = [&](int r, const std::string& seconds) {
    world.tell(RankLogged{r,
                          {.level = Level::kInfo,
                           .name = "rails.resumed",
                           .fields = {{"peer", "1"}, {"seconds", seconds}},
                           .text = "peer=1 seconds=" + seconds}});
  };
  resume(0, "4.0");
  resume(1, "4.1");
  ASSERT_EQ(world.ledger.size(), 1u);
  EXPECT_EQ(world.ledger[0].fault, RunFault::kPeerSilent);
  EXPECT_EQ(world.ledger[0].level, RecoveryLevel::kOperation);
  EXPECT_EQ(world.ledger[0].rank, 0);
  EXPECT_NEAR(world.ledger[0].seconds_lost, 4, 1e-9);
  EXPECT_NEAR(world.ledger[0].end - world.ledger[0].begin, 4, 1e-9);
  for (const char* bad : {"", "x", "-1", "nan", "1e99"}) resume(0, bad);
  let_run(world, 50);
  resume(0, "5");
  ASSERT_EQ(world.ledger.size(), 2u);
  EXPECT_NEAR(world.ledger[1].seconds_lost, 5, 1e-9);
}

TEST(Supervisor, SensorsAreComparedWithWhatTheySaidBefore) {
  TestWorld world(options_of(1, true), 1);
  let_run(world, 3);
  HostReading reading = {.host = 0,
                         .memory_total = int64_t{100} << 30,
                         .memory_available = int64_t{50} << 30,
                         .disk_free = int64_t{500} << 30,
                         .edac_corrected = 7,
                         .nics = {{.name = "eth0", .errors = 5, .carrier = true}}};
  world.tell(HostRead{reading});
  EXPECT_TRUE(world.ledger.empty());  // counters of before we came
  reading.memory_available = int64_t{1} << 30;
  reading.disk_free = int64_t{100} << 20;
  reading.edac_corrected = 8;
  reading.nics[0] = {.name = "eth0", .errors = 6, .carrier = false};
  world.tell(HostRead{reading});
  world.tell(HostRead{reading});
  std::set<RunFault> faults;
  for (const LedgerEntry& e : world.ledger) faults.insert(e.fault);
  EXPECT_EQ(faults,
            (std::set<RunFault>{RunFault::kMemoryLow, RunFault::kDiskLow, RunFault::kEdacCorrected,
                                RunFault::kNicErrors, RunFault::kCarrierLost}));
  EXPECT_EQ(world.ledger.size(), 5u);
}

// What came and went between two readings is in the counters only.
TEST(Supervisor, AFlappingCarrierAndThrottledCoresAreTold) {
  TestWorld world(options_of(1, true), 1);
  let_run(world, 3);
  HostReading reading = {.throttles = 3, .nics = {{.name = "eth0", .carrier_changes = 4}}};
  world.tell(HostRead{reading});
  reading.throttles = 5;
  reading.nics[0].carrier_changes = 6;
  world.tell(HostRead{{.oom_kills = 0}});  // a reading of less forgets nothing
  world.tell(HostRead{reading});
  world.tell(HostRead{reading});
  ASSERT_EQ(world.ledger.size(), 2u);
  EXPECT_EQ(world.ledger[0].fault, RunFault::kHot);
  EXPECT_EQ(world.ledger[1].fault, RunFault::kCarrierLost);
}

TEST(Supervisor, AnyProgramIsStartedAgainByItsExitCode) {
  SuperviseOptions options = options_of(1, false);
  options.speaks_codes = options.tells_steps = false;
  Supervisor supervisor(0, options);
  int started = 0, heard = 0, finished = -1;
  const auto take = [&](const std::vector<RunEffect>& effects) {
    for (const RunEffect& effect : effects) {
      if (std::holds_alternative<StartRank>(effect)) ++started;
      if (const auto* e = std::get_if<FinishRun>(&effect)) finished = e->exit_code;
    }
  };
  for (double now = 1; now < 100 && finished < 0; ++now) {
    take(supervisor.handle(now, TimePassed{}));
    if (started == heard) continue;
    heard = started;
    take(supervisor.handle(now, RankStarted{0, 7}));
    take(supervisor.handle(now, RankEnded{.rank = 0, .exit_code = 10}));
  }
  EXPECT_EQ(started, 6);  // five attempts more
  EXPECT_EQ(finished, 10);
}

TEST(Supervisor, AProgramThatRanForAWhileBeginsToCountAnew) {
  SuperviseOptions options = options_of(1, false);
  options.speaks_codes = options.tells_steps = false;
  Supervisor supervisor(0, options);
  double now = 0;
  supervisor.handle(now, TimePassed{});
  for (int end = 0; end < 12; ++end) {
    supervisor.handle(now, RankStarted{0, 7});
    now += 61;
    supervisor.handle(now, RankEnded{.rank = 0, .exit_code = 1, .last_lines = {}});
    ASSERT_EQ(supervisor.run().ranks[0].phase, RankPhase::kStarting) << end;
  }
  EXPECT_FALSE(supervisor.is_over());
}

// Seeded schedules of faults, and a supervisor that dies at any moment: the world checks that no rank has two
// processes, and that who was restored decides as who was not.
struct Schedule {
  int64_t faults = 0;
};

void play(TestWorld& world, Schedule& schedule) {
  world.pass();
  if (world.draw(40) == 0) world.crash_supervisor();
  if (world.finished || world.draw(60) != 0) return;
  const int r = static_cast<int>(world.draw(static_cast<uint64_t>(world.size())));
  auto& process = world.ranks[static_cast<size_t>(r)];
  if (!process.alive) return;
  ++schedule.faults;
  switch (world.draw(6)) {
    case 0:
      process.hangs = true;
      return;
    case 1:
      return world.end(r, -1, SIGSEGV);
    case 2:
      return world.end(r, 13);
    case 3:
      return world.end(r, 1);
    case 4:
      world.tell(RankLogged{
          r, {.level = Level::kWarning, .name = "rails.lost", .fields = {}, .text = ""}});
      return;
    default:
      return world.end(r, -1, SIGKILL);
  }
}

// How often something was done for a cause; the runs are shorter than an hour.
void expect_budgets(const TestWorld& world, const SuperviseOptions& options) {
  ASSERT_LT(world.now, 1000 + 3600);
  for (const PolicyRow& row : policy_table()) {
    const std::string of_fault = fmt::format(" fault={} ", row.name);
    const auto times =
        std::count_if(world.log.begin(), world.log.end(), [&](const std::string& line) {
          return line.starts_with("supervise.decided") &&
                 line.find(of_fault) != std::string::npos &&
                 line.find("action=\"stop\"") == std::string::npos;
        });
    EXPECT_LE(times, row.per_hour == kPerSetting ? options.restarts : row.per_hour) << row.name;
  }
}

TEST(Supervisor, SchedulesOfFaultsEndWithAResultOrAReason) {
  int64_t done = 0, stopped = 0, faults = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SuperviseOptions options = options_of(1 + static_cast<int64_t>(seed % 4), seed % 2 == 0);
    options.restarts = seed % 5 == 0 ? 2 : 30;
    TestWorld world(options, seed);
    Schedule schedule;
    while (!world.finished && world.now < 50000 && !HasFatalFailure()) play(world, schedule);
    ASSERT_FALSE(HasFatalFailure()) << "seed " << seed;
    ASSERT_TRUE(world.finished) << "seed " << seed;
    EXPECT_FALSE(world.reason.empty()) << "seed " << seed;
    ++(world.exit_code == 0 ? done : stopped);
    if (world.exit_code == 0) {
      EXPECT_EQ(world.step, world.steps_total) << "seed " << seed;
    }
    faults += schedule.faults;
    expect_budgets(world, options);
    // Every incident that was opened was closed, once, and what was lost adds up.
    std::set<int64_t> ids;
    double lost = 0;
    for (const LedgerEntry& e : world.ledger) {
      EXPECT_TRUE(ids.insert(e.id).second) << "seed " << seed << " incident " << e.id;
      EXPECT_GE(e.seconds_lost, 0);
      EXPECT_GE(e.end, e.begin);
      EXPECT_FALSE(e.decision.empty()) << "seed " << seed << " " << ledger_line(e);
      lost += e.seconds_lost;
    }
    EXPECT_EQ(static_cast<int64_t>(ids.size()), world.supervisor().run().next_incident - 1);
    EXPECT_TRUE(world.supervisor().run().open.empty());
    EXPECT_LE(lost, world.now - 1000 + 1e-6) << "seed " << seed;
  }
  EXPECT_GT(done, 100);
  EXPECT_GT(stopped, 0);
  EXPECT_GT(faults, 1000);
}

}  // namespace
}  // namespace moraine
