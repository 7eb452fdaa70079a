// Kill: the real program, killed at any instant and started again, ends in the hash of the
// undisturbed run.
//
// Fails if anything the answer depends on lives only in the process, or if a signal loses the run.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/clock.h"
#include "base/test_folder.h"
#include "tests/program.h"
#include "tests/tiny_run.h"

namespace moraine {
namespace {

using namespace testing;

class Kill : public ::testing::Test {
 protected:
  Kill() {
    write_file(folder.file("run.toml"),
               tiny.toml("[train]\nslots = 4\nsequence = 32\nbatch_tokens = 256\nthreads = "
                         "1\ndtype = \"bf16\"\nsteps = 60\n"
                         "[spike]\nsigma = 2.5\n[checkpoint]\nevery_steps = 3\nkeep = 2\n"));
  }
  std::vector<std::string> arguments(const std::string& out,
                                     const std::string& set = "train.threads=1") const {
    return {"train",
            "--config",
            folder.file("run.toml"),
            "--out",
            tiny.out(out),
            "--machine",
            tiny.root() + "/machine.json",
            "--set",
            set};
  }
  Ended finish(const std::string& out) const { return run_program(folder.path(), arguments(out)); }

  // Kills and restarts, `seeds` times, and compares the ends with the undisturbed one.
  void kill_and_go_on(uint64_t seeds) const {
    const double begin = now_seconds();
    const Ended whole = finish("whole");
    double seconds = now_seconds() - begin;  // at most: the machine may have had less to do since
    ASSERT_EQ(whole.exit_code, 0) << whole.err;
    const std::string want = value_of(whole.out, "hash");
    EXPECT_EQ(want.size(), 32u);
    uint64_t killed = 0, resumed = 0;
    for (uint64_t seed = 0; seed < seeds; ++seed) {
      const std::string out = "killed-" + std::to_string(seed);
      for (uint64_t attempt = 0; attempt < 3; ++attempt) {
        Program program(folder.path(), arguments(out));
        const double after = seconds * random_uniform(1, Stream::kTest, seed, attempt);
        std::this_thread::sleep_for(
            std::chrono::duration<double>(after));  // the fault itself, not a wait for it
        program.send(SIGKILL);
        const bool was_killed = program.wait().exit_code == -SIGKILL;
        killed += was_killed;
        if (!was_killed && attempt == 0) seconds = after;
      }
      const Ended end = finish(out);
      EXPECT_EQ(end.exit_code, 0) << end.err;
      EXPECT_EQ(value_of(end.out, "hash"), want) << "seed " << seed << "\n" << end.err;
      resumed += end.err.find("checkpoint.loaded") != std::string::npos;
      posix_file_system().remove_all(tiny.out(out));
    }
    EXPECT_GT(killed, seeds / 2);
    EXPECT_GT(resumed, seeds / 4);
  }

  TestFolder folder;
  TinyRun tiny{folder.path()};
};

TEST_F(Kill, AtRandomInstants) { kill_and_go_on(12); }

// A rollback rewrites history on disk: its steps, its marks, its checkpoints.
TEST_F(Kill, BetweenRollbacks) {
  write_file(folder.file("run.toml"),
             tiny.toml("[train]\nslots = 4\nsequence = 32\nbatch_tokens = 128\nthreads = 1\ndtype "
                       "= \"f32\"\nsteps = 60\n[optimizer]\nlearning_rate = 1e-7\n"
                       "[spike]\nsigma = 0.3\npolicy = \"rollback\"\nrollbacks_max = "
                       "1000\n[checkpoint]\nevery_steps = 3\nkeep = 2\n"));
  const Ended whole = finish("look");
  EXPECT_NE(whole.err.find("run.rolled_back"), std::string::npos) << whole.err;
  kill_and_go_on(6);
}

TEST_F(Kill, SignalsSaveAndExitWith18) {
  const std::string want = value_of(finish("whole").out, "hash");
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGXCPU}) {
    const std::string out = "signal-" + std::to_string(signal);
    Program program(folder.path(), arguments(out));
    // Once the first step is on disk the program surely listens.
    while (!posix_file_system().exists(tiny.out(out) + "/metrics.jsonl") ||
           posix_file_system().file_bytes(tiny.out(out) + "/metrics.jsonl") == 0) {
      std::this_thread::yield();
    }
    program.send(signal);
    const Ended stopped = program.wait();
    if (stopped.exit_code == 0) continue;  // it was faster
    EXPECT_EQ(stopped.exit_code, 18) << stopped.err;
    EXPECT_NE(stopped.err.find("moraine train: signal after step "), std::string::npos)
        << stopped.err;
    EXPECT_EQ(stopped.out, "");
    const Ended end = finish(out);
    EXPECT_EQ(value_of(end.out, "hash"), want) << end.err;
  }
}

// As from `timeout`, which signals its child, then the group in which the child is.
TEST_F(Kill, ASignalThatComesTwiceAtOnceIsOneRequest) {
  for (int round = 0; round < 4; ++round) {
    const std::string out = "twice-" + std::to_string(round);
    Program program(folder.path(), arguments(out));
    while (!posix_file_system().exists(tiny.out(out) + "/metrics.jsonl") ||
           posix_file_system().file_bytes(tiny.out(out) + "/metrics.jsonl") == 0) {
      std::this_thread::yield();
    }
    for (int i = 0; i < 2000; ++i) program.send(SIGTERM);  // milliseconds
    const Ended stopped = program.wait();
    EXPECT_TRUE(stopped.exit_code == 18 || stopped.exit_code == 0)  // it was faster
        << stopped.exit_code << "\n"
        << stopped.err;
  }
}

TEST_F(Kill, TimeLimitExitsWith18) {
  const std::string want = value_of(finish("whole").out, "hash");
  const Ended stopped =
      run_program(folder.path(), arguments("limit", "train.time_limit_seconds=0.000001"));
  EXPECT_EQ(stopped.exit_code, 18) << stopped.err;
  EXPECT_EQ(value_of(finish("limit").out, "hash"), want);
}

TEST_F(Kill, ThreadsDoNotChangeTheHash) {
  EXPECT_EQ(value_of(run_program(folder.path(), arguments("one", "train.threads=1")).out, "hash"),
            value_of(run_program(folder.path(), arguments("two", "train.threads=2")).out, "hash"));
}

}  // namespace
}  // namespace moraine
