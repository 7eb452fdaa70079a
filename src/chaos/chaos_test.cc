// Chaos: the plan of faults, what is done to files, and whose incident is whose.
// Breaks if a seed gives another plan, if damage is none, or if the table blames the wrong fault.
#include "chaos/chaos_table.h"
#include "chaos/damage.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/heartbeat.h"
#include "base/test_folder.h"

namespace moraine {
namespace {

using testing::TestFolder;

std::string text_of(const std::vector<PlannedFault>& plan) {
  std::string text;
  for (const PlannedFault& f : plan)
    text += fmt::format("{:.3f} {} {} {:.3f} {:.6f}\n", f.after, chaos_name(f.fault), f.rank,
                        f.seconds, f.place);
  return text;
}

std::vector<ChaosFault> all_faults() {
  std::vector<ChaosFault> all;
  for (const ChaosKind& kind : chaos_kinds()) all.push_back(kind.fault);
  return all;
}

TEST(FaultPlan, IsAFunctionOfItsSeed) {
  FaultPlanOptions options{
      .seed = 7, .faults = 2000, .mean_seconds = 5, .ranks = 4, .kinds = all_faults()};
  const std::vector<PlannedFault> plan = plan_faults(options);
  EXPECT_EQ(text_of(plan), text_of(plan_faults(options)));
  double sum = 0;
  std::set<int> ranks;
  std::set<ChaosFault> kinds;
  for (const PlannedFault& f : plan) {
    sum += f.after;
    ranks.insert(f.rank);
    kinds.insert(f.fault);
    EXPECT_TRUE(f.after >= 0 && f.place >= 0 && f.place < 1 && f.seconds >= 1 && f.seconds <= 3);
  }
  // The mean of n exponential times has a deviation of mean / sqrt(n).
  EXPECT_NEAR(sum / 2000, 5, 5 * 5 / std::sqrt(2000.0));
  EXPECT_EQ(ranks, (std::set<int>{0, 1, 2, 3}));
  EXPECT_EQ(kinds.size(), chaos_kinds().size());
  // A longer plan begins with the shorter one.
  options.faults = 10;
  EXPECT_TRUE(text_of(plan).starts_with(text_of(plan_faults(options))));
  options.seed = 8;
  EXPECT_FALSE(text_of(plan).starts_with(text_of(plan_faults(options))));
}

TEST(FaultPlan, NamesAreReadBackAndWrongOnesAreRefused) {
  for (const ChaosKind& kind : chaos_kinds()) {
    EXPECT_EQ(chaos_fault(kind.name), kind.fault);
    EXPECT_STREQ(chaos_name(kind.fault), kind.name);
  }
  EXPECT_THROW(chaos_fault("kil"), Error);
}

InjectedFault done_at(double time, ChaosFault fault, int rank) {
  InjectedFault f;
  f.planned.fault = fault;
  f.planned.rank = rank;
  f.unix_time = time;
  f.was_done = true;
  return f;
}

LedgerEntry incident(double time, int rank, RecoveryLevel level, double lost) {
  LedgerEntry e;
  e.begin_unix = time;
  e.rank = rank;
  e.level = level;
  e.seconds_lost = lost;
  return e;
}

TEST(ChaosTable, AnIncidentBelongsToTheLastFaultThatCouldHaveCausedIt) {
  std::vector<InjectedFault> faults = {
      done_at(100, ChaosFault::kKill, 1), done_at(110, ChaosFault::kSlow, 0),
      done_at(120, ChaosFault::kStop, 1), done_at(121, ChaosFault::kMemoryPressure, 0)};
  faults.push_back(done_at(130, ChaosFault::kFillDisk, 0));
  faults.back().was_done = false;
  const std::vector<ChaosRow> rows =
      chaos_rows(faults, {incident(100.01, 1, RecoveryLevel::kReplace, 2),
                          incident(119.8, 1, RecoveryLevel::kReplace, 4),
                          incident(120.2, 1, RecoveryLevel::kRestart, 1),
                          incident(131, 0, RecoveryLevel::kHost, 3)});
  ASSERT_EQ(rows.size(), 5u);
  const auto row = [&](ChaosFault fault) {
    for (const ChaosRow& r : rows) {
      if (r.fault != fault) continue;
      std::string levels;
      for (const auto& [level, count] : r.levels) levels += fmt::format(" {}:{}", level, count);
      return fmt::format("{}/{} {} {}{}", r.done, r.planned, r.seconds_lost, r.seconds_most,
                         levels);
    }
    return std::string("none");
  };
  EXPECT_EQ(row(ChaosFault::kKill), "1/1 2 2 replace:1");
  EXPECT_EQ(row(ChaosFault::kSlow), "1/1 0 0 run:1");
  // The last beat of a process that is stopped comes before the signal.
  EXPECT_EQ(row(ChaosFault::kStop), "1/1 5 5 restart:1");
  EXPECT_EQ(row(ChaosFault::kMemoryPressure), "1/1 3 3 host:1");
  EXPECT_EQ(row(ChaosFault::kFillDisk), "0/1 0 0");
}

TEST(ChaosTable, WhatIsSaidOfLinksIsOfLinks) {
  std::vector<InjectedFault> faults = {done_at(100, ChaosFault::kLinkDown, 0),
                                       done_at(101, ChaosFault::kKill, 1)};
  LedgerEntry lost = incident(101.5, 1, RecoveryLevel::kLink, 0);
  lost.fault = RunFault::kLinkLost;
  LedgerEntry killed = incident(101.1, 1, RecoveryLevel::kReplace, 2);
  killed.fault = RunFault::kKilled;
  const std::vector<ChaosRow> rows = chaos_rows(faults, {killed, lost});
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].levels.at(0).first, "replace");
  EXPECT_EQ(rows[1].levels.at(0).first, "link");
  EXPECT_EQ(rows[1].seconds_lost, 0);
}

// A process that looks like rank 0 of a run in `folder`.
pid_t start_rank(const TestFolder& folder) {
  std::filesystem::create_directories(folder.file("supervise"));
  const std::string page = folder.file("supervise/rank-0.beat");
  const auto file = HeartbeatFile::make(page);
  const pid_t pid = fork();
  if (pid == 0) {
    setenv(kHeartbeatVariable, page.c_str(), 1);
    set_activity(Activity::kComputing);
    for (;;) pause();
  }
  while (!file->is_alive()) std::this_thread::yield();
  return pid;
}

PlannedFault fault_of(ChaosFault kind, double place = 0) {
  PlannedFault f;
  f.fault = kind;
  f.place = place;
  f.seconds = 1;
  return f;
}

TEST(Damage, ARankIsFoundByItsPageAndKilledOnce) {
  const TestFolder folder;
  FileSystem& fs = posix_file_system();
  Damage damage(fs, {.run = folder.path()});
  EXPECT_FALSE(damage.inject(fault_of(ChaosFault::kKill)).was_done);
  const pid_t pid = start_rank(folder);
  EXPECT_EQ(damage.pid_of(0), pid);
  const InjectedFault done = damage.inject(fault_of(ChaosFault::kKill));
  EXPECT_TRUE(done.was_done) << done.note;
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  EXPECT_FALSE(damage.inject(fault_of(ChaosFault::kStop)).was_done);
}

TEST(Damage, FilesOfTheNewestCheckpointAreFlippedOrCut) {
  const TestFolder folder;
  FileSystem& fs = posix_file_system();
  const std::string old_text(100, 'o'), new_text(100, 'n');
  for (const auto& [step, text] : {std::pair{"step-8", old_text}, {"step-16", new_text}}) {
    std::filesystem::create_directories(folder.file(step));
    fs.write_atomic(folder.file(std::string(step) + "/data"), text);
    fs.write_atomic(folder.file(std::string(step) + "/manifest.json"), text);
  }
  Damage damage(fs, {.run = folder.path()});
  for (const ChaosFault kind : {ChaosFault::kFlip, ChaosFault::kTruncate}) {
    const pid_t pid = start_rank(folder);
    const InjectedFault done =
        damage.inject(fault_of(kind, kind == ChaosFault::kFlip ? 0.05 : 0.9));
    EXPECT_TRUE(done.was_done) << done.note;
    ASSERT_EQ(waitpid(pid, nullptr, 0), pid);
  }
  const std::string flipped = fs.read(folder.file("step-16/data"));
  EXPECT_EQ(flipped.size(), 100u);
  EXPECT_EQ(std::count(flipped.begin(), flipped.end(), 'n'), 99);
  EXPECT_EQ(fs.file_bytes(folder.file("step-16/manifest.json")), 50);
  EXPECT_EQ(fs.read(folder.file("step-8/data")), old_text);
}

TEST(Damage, WhatLastsEnds) {
  const TestFolder folder;
  const pid_t pid = start_rank(folder);
  {
    Damage damage(posix_file_system(), {.run = folder.path()});
    EXPECT_TRUE(damage.inject(fault_of(ChaosFault::kFailWrites)).was_done);
    rlimit limit = {};
    prlimit(pid, RLIMIT_FSIZE, nullptr, &limit);
    EXPECT_EQ(limit.rlim_cur, 4096u);
    EXPECT_TRUE(damage.inject(fault_of(ChaosFault::kSlow)).was_done);
    damage.tick();
  }
  rlimit limit = {};
  prlimit(pid, RLIMIT_FSIZE, nullptr, &limit);
  EXPECT_EQ(limit.rlim_cur, limit.rlim_max);
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

}  // namespace
}  // namespace moraine
