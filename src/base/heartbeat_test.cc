// Tests of heartbeat: what a watcher sees of a process that lives, that died, and of another one with its number.
#include "base/heartbeat.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "base/clock.h"
#include "base/error.h"
#include "base/process_stat.h"

namespace moraine {
namespace {

std::string test_path(const char* name) {
  return ::testing::TempDir() + "heartbeat_" + name + "_" + std::to_string(getpid());
}

// A child with its own page, as a rank has it: the page must be named before the first beat of the process.
pid_t start_child(const std::string& path, int ready) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  setenv(kHeartbeatVariable, path.c_str(), 1);
  heartbeat().step = 7;
  for (const Activity activity : {Activity::kStarting, Activity::kMeeting, Activity::kStarting})
    set_activity(activity);
  set_activity(Activity::kComputing);
  { const WaitsFor waits(3); }
  const char done = 'y';
  if (write(ready, &done, 1) != 1) _exit(1);
  pause();
  _exit(0);
}

TEST(Heartbeat, AWatcherReadsWhatAChildSaysAndWhetherItLives) {
  const std::string path = test_path("child");
  const auto file = HeartbeatFile::make(path);
  const double begin = now_seconds();
  EXPECT_FALSE(file->is_alive());
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t pid = start_child(path, ends[1]);
  char done = 0;
  ASSERT_EQ(read(ends[0], &done, 1), 1);
  EXPECT_TRUE(file->is_alive());
  EXPECT_EQ(file->page().pid, pid);
  EXPECT_EQ(file->page().step, 7);
  EXPECT_EQ(file->page().activity.load(), Activity::kComputing);
  EXPECT_EQ(file->page().waits_for, -1);
  EXPECT_EQ(file->page().beats, 6u);
  EXPECT_GE(file->page().met_at, begin);
  EXPECT_GE(file->page().loaded_at, file->page().met_at) << "it opened the run behind a meeting";
  EXPECT_GE(file->page().computed_at, file->page().loaded_at);
  EXPECT_LE(file->page().computed_at, now_seconds());
  kill(pid, SIGKILL);
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(file->is_alive()) << "a zombie is not alive";
  ASSERT_EQ(waitpid(pid, nullptr, 0), pid);
  EXPECT_FALSE(file->is_alive());
  EXPECT_EQ(HeartbeatFile::open(path)->page().step, 7) << "what it said stays";
  unlink(path.c_str());
  close(ends[0]);
  close(ends[1]);
}

TEST(Heartbeat, AFileThatIsCutUnderItsWatcherSaysNothing) {
  const std::string path = test_path("cut");
  const auto file = HeartbeatFile::make(path);
  file->ask_flip(7);
  EXPECT_EQ(file->page().asked_flip, 7u);
  for (const int64_t bytes : {100, 0}) {
    ASSERT_EQ(truncate(path.c_str(), bytes), 0);
    EXPECT_EQ(file->page().magic, 0u);
    EXPECT_EQ(file->page().asked_flip, 0u);
    EXPECT_FALSE(file->is_alive());
  }
  unlink(path.c_str());
}

TEST(Heartbeat, AFileThatIsMissingOrOfAnotherSizeIsNoPage) {
  EXPECT_EQ(HeartbeatFile::open(test_path("missing")), nullptr);
  const std::string path = test_path("short");
  std::ofstream(path) << "short";
  EXPECT_THROW(HeartbeatFile::open(path), Error);
  unlink(path.c_str());
}

TEST(Heartbeat, AProcessIsItsNumberAndItsStart) {
  EXPECT_GT(process_start(getpid()), 0);
  EXPECT_EQ(process_start(-1), -1);
}

// From one look at a process to the next: it was stopped all the time, or let go on between.
TEST(ProcessStat, AProcessThatWasLetGoOnHasAnotherNumber) {
  const pid_t pid = fork();
  if (pid == 0) {
    while (true) raise(SIGSTOP);
  }
  const auto wait_for_stop = [pid] {
    int status = 0;
    return waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status) &&
           read_process_stat(pid)->state == 'T';
  };
  ASSERT_TRUE(wait_for_stop());
  // It is told that it has stopped a moment before it gives up its core.
  int64_t first = -1;
  while (first != process_switches(pid)) {
    first = process_switches(pid);
    usleep(20000);
  }
  kill(pid, SIGCONT);
  ASSERT_TRUE(wait_for_stop());
  int64_t second = first;
  for (int times = 0; times < 1000 && first >= 0 && second == first; ++times) {
    usleep(10000);
    second = process_switches(pid);
  }
  kill(pid, SIGKILL);
  ASSERT_EQ(waitpid(pid, nullptr, 0), pid);
  EXPECT_EQ(process_switches(pid), -1);
  if (first < 0) GTEST_SKIP() << "this kernel does not show switches";
  EXPECT_GT(second, first);
}

}  // namespace
}  // namespace moraine
