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
#include <array>
#include <bit>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <thread>

#include "base/asked_flip.h"
#include "base/error.h"
#include "base/fault_point.h"
#include "base/heartbeat.h"
#include "base/test_folder.h"
#include "checkpoint/test_checkpoint.h"

namespace moraine {
namespace {

using testing::TestCheckpoint;
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
  LedgerEntry held = incident(111, 0, RecoveryLevel::kOperation, 1.5);
  held.fault = RunFault::kPeerSilent;
  faults.push_back(done_at(110, ChaosFault::kLinksAll, 0));
  LedgerEntry killed = incident(101.1, 1, RecoveryLevel::kReplace, 2);
  killed.fault = RunFault::kKilled;
  const std::vector<ChaosRow> rows = chaos_rows(faults, {killed, lost, held});
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].levels.at(0).first, "replace");
  EXPECT_EQ(rows[1].levels.at(0).first, "link");
  EXPECT_EQ(rows[1].seconds_lost, 0);
  EXPECT_EQ(rows[2].levels.at(0).first, "operation");
  EXPECT_EQ(rows[2].seconds_lost, 1.5);
}

// A process that looks like rank 0 of a run in `folder`, and then does what `body` says.
pid_t start_rank(const TestFolder& folder, const std::function<void()>& body) {
  std::filesystem::create_directories(folder.file("supervise"));
  const std::string page = folder.file("supervise/rank-0.beat");
  const auto file = HeartbeatFile::make(page);
  const pid_t pid = fork();
  if (pid == 0) {
    setenv(kHeartbeatVariable, page.c_str(), 1);
    set_activity(Activity::kComputing);
    body();
    _exit(0);
  }
  while (!file->is_alive()) std::this_thread::yield();
  return pid;
}

pid_t start_rank(const TestFolder& folder) {
  return start_rank(folder, [] {
    for (;;) pause();
  });
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

// Of every file of a folder, by name.
std::map<std::string, std::string> content_of(const std::string& folder) {
  FileSystem& fs = posix_file_system();
  std::map<std::string, std::string> content;
  for (const std::string& name : fs.list(folder)) content[name] = fs.read(join_path(folder, name));
  return content;
}

bool is_whole(const std::string& folder) {
  try {
    Checkpoint::open(posix_file_system(), folder);
    return true;
  } catch (const Error&) {
    return false;
  }
}

TEST(Damage, FilesOfTheNewestCheckpointAreFlippedOrCut) {
  for (const ChaosFault kind : {ChaosFault::kFlip, ChaosFault::kTruncate}) {
    const TestFolder folder;
    FileSystem& fs = posix_file_system();
    for (const int64_t step : {8, 16}) TestCheckpoint(step, 1).write(fs, folder.path());
    const auto old = content_of(folder.file("step-8")), before = content_of(folder.file("step-16"));
    Damage damage(fs, {.run = folder.path()});
    const pid_t pid = start_rank(folder);
    const InjectedFault done = damage.inject(fault_of(kind, 0.05));
    if (!done.was_done) kill(pid, SIGKILL);
    ASSERT_EQ(waitpid(pid, nullptr, 0), pid);
    ASSERT_TRUE(done.was_done) << done.note;
    EXPECT_EQ(content_of(folder.file("step-8")), old);
    const auto after = content_of(folder.file("step-16"));
    int other_files = 0, other_bytes = 0, missing_bytes = 0;
    for (const auto& [name, text] : before) {
      const std::string& now = after.at(name);
      other_files += now != text;
      missing_bytes += static_cast<int>(text.size() - now.size());
      for (size_t i = 0; i < now.size(); ++i) other_bytes += now[i] != text[i];
    }
    EXPECT_EQ(other_files, 1);
    EXPECT_EQ(other_bytes, kind == ChaosFault::kFlip ? 1 : 0);
    EXPECT_EQ(missing_bytes > 0, kind == ChaosFault::kTruncate);
    EXPECT_FALSE(is_whole(folder.file("step-16")));
  }
}

// Whatever the order of saves and faults: something to go on from is left, and who damages nothing kills nobody.
TEST(Damage, OneCheckpointOnDiskStaysWhole) {
  const TestFolder folder;
  FileSystem& fs = posix_file_system();
  Damage damage(fs, {.run = folder.path()});
  const auto damages = [&](ChaosFault kind) {
    const pid_t pid = start_rank(folder);
    const InjectedFault done = damage.inject(fault_of(kind, 0.3));
    kill(pid, SIGTERM);
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(WTERMSIG(status), done.was_done ? SIGKILL : SIGTERM) << done.note;
    return done.was_done;
  };
  EXPECT_FALSE(damages(ChaosFault::kFlip));
  TestCheckpoint(8, 1).write(fs, folder.path());
  EXPECT_FALSE(damages(ChaosFault::kTruncate)) << "it is the only one";
  TestCheckpoint(16, 1).write(fs, folder.path());
  EXPECT_TRUE(damages(ChaosFault::kTruncate));
  EXPECT_FALSE(is_whole(folder.file("step-16")));
  TestCheckpoint(24, 1).write(fs, folder.path());
  EXPECT_FALSE(damages(ChaosFault::kFlip)) << "step-8 is whole, but is the next that goes";
  TestCheckpoint(32, 1).write(fs, folder.path());
  EXPECT_TRUE(damages(ChaosFault::kFlip));
  EXPECT_TRUE(is_whole(folder.file("step-8")) && is_whole(folder.file("step-24")));
}

// Comes to `point` again and again, and ends with the number of bits that are changed in its memory.
pid_t start_flipped(const TestFolder& folder, bool obeys, const char* point) {
  return start_rank(folder, [&] {
    if (obeys) setenv(kFlipsVariable, "1", 1);
    obey_flips();
    std::array<std::byte, 100> memory = {};
    int bits = 0;
    for (; bits == 0; usleep(1000)) {
      fault_bytes(point, memory);
      for (const std::byte b : memory) bits += std::popcount(static_cast<unsigned>(b));
    }
    _exit(bits);
  });
}

TEST(Damage, ABitOfAProcessIsFlippedWhereItSaysSo) {
  const struct {
    ChaosFault fault;
    const char* point;
    bool obeys, is_done;
  } cases[] = {
      {ChaosFault::kFlipWeights, "step.weights", true, true},
      {ChaosFault::kFlipGradients, "step.slot_gradients", true, true},
      {ChaosFault::kFlipGradients, "step.weights", true, false},
      {ChaosFault::kFlipWeights, "step.weights", false, false},
  };
  for (const auto& c : cases) {
    const TestFolder folder;
    Damage damage(posix_file_system(), {.run = folder.path()});
    const pid_t pid = start_flipped(folder, c.obeys, c.point);
    const InjectedFault done = damage.inject(fault_of(c.fault, 0.999));
    EXPECT_EQ(done.was_done, c.is_done) << done.note;
    if (!c.is_done) kill(pid, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(WIFEXITED(status) && WEXITSTATUS(status) == 1, c.is_done);
  }
}

// A link with a fault may let some traffic through, or be back early: then not all are cut.
TEST(Damage, AllLinksAreCutTogetherOrNone) {
  constexpr int kLinks = 2;
  CutLinks links(kLinks);
  if (!links.problem().empty()) GTEST_SKIP() << "NOT TESTED: cut links: " << links.problem();
  const TestFolder folder;
  const auto inject = [](Damage& damage, ChaosFault fault, double seconds) {
    PlannedFault f = fault_of(fault, 0.7);
    f.seconds = seconds;
    return damage.inject(f);
  };
  const Damage::Place place = {.run = folder.path(), .links = &links, .link_count = kLinks};
  for (const ChaosFault fault : {ChaosFault::kLinkOneWay, ChaosFault::kLinkDrop,
                                 ChaosFault::kLinkFlap, ChaosFault::kLinkSilent}) {
    Damage damage(posix_file_system(), place);
    ASSERT_TRUE(inject(damage, fault, 1e6).was_done) << links.problem();
    const InjectedFault refused = inject(damage, ChaosFault::kLinksAll, 0);
    EXPECT_FALSE(refused.was_done) << chaos_name(fault);
    EXPECT_EQ(refused.note, "link 1 has a fault already");
  }
  Damage damage(posix_file_system(), place);
  ASSERT_TRUE(inject(damage, ChaosFault::kLinksAll, 0).was_done) << links.problem();
  EXPECT_EQ(inject(damage, ChaosFault::kLinkOneWay, 0).note, "link 1 has a fault already");
  damage.tick();  // after no seconds at all
  EXPECT_TRUE(inject(damage, ChaosFault::kLinksAll, 0).was_done) << links.problem();
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
