// BadSteps: what the spike policy does about them is the same however often the run was stopped.
//
// Fails if a rollback depends on stops or marks, takes a damaged checkpoint or a later one, or reads again what an
// earlier one left out.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <mutex>
#include <thread>

#include "base/fault_point.h"
#include "base/test_folder.h"
#include "base/test_text.h"
#include "checkpoint/history.h"
#include "tests/tiny_run.h"

namespace moraine {
namespace {

using namespace testing;

// The real disk, which first does what a test says.
class SlowToMap : public WatchedFileSystem {
 public:
  explicit SlowToMap(std::function<void()> before_map)
      : WatchedFileSystem(posix_file_system(), [](const std::string&) {}),
        before_map_(std::move(before_map)) {}
  std::unique_ptr<MappedFile> map(const std::string& path) override {
    before_map_();
    return WatchedFileSystem::map(path);
  }

 private:
  const std::function<void()> before_map_;
};

class BadSteps : public ::testing::Test {
 protected:
  // The loss hardly falls, so that chance alone makes steps bad once the detector is warm (after
  // 32).
  RunConfig config(const std::string& spike, int64_t every,
                   const std::string& length = "steps = 44\n") const {
    return tiny.config(
        "[train]\nslots = 4\nsequence = 32\nbatch_tokens = 128\nthreads = 1\ndtype = \"f32\"\n" +
        (length.starts_with("[") ? "" : length) +
        "[optimizer]\nlearning_rate = 1e-7\n[spike]\nsigma = 0.3\n" + spike +
        "\n[checkpoint]\nevery_steps = " + std::to_string(every) + "\nkeep = 2\n" +
        (length.starts_with("[") ? length : ""));
  }
  TestFolder folder;
  TinyRun tiny{folder.path()};

  std::string in_parts(const RunConfig& c, const std::string& out, int64_t steps) const {
    for (int stops = 0; stops < 200; ++stops) {
      const Outcome part = tiny.train_steps(c, out, steps);
      if (part.result || part.error->code() != Code::kInterrupted) return part.hash();
    }
    return "never done";
  }
};

TEST_F(BadSteps, SkipLeavesTheStepOut) {
  const RunConfig c = config("policy = \"skip\"\npatience = 50", 10);
  const Outcome whole = tiny.train(c, tiny.out("whole"));
  ASSERT_TRUE(whole.result) << whole.hash();
  EXPECT_GE(count(whole.log, "step.bad"), 2) << whole.log;
  EXPECT_EQ(count(whole.log, "run.rolled_back"), 0);
  EXPECT_EQ(in_parts(c, tiny.out("parts"), 1), whole.hash());
}

TEST_F(BadSteps, RollbackIsTheSameInAnyNumberOfProcesses) {
  const RunConfig c = config("policy = \"rollback\"\nrollbacks_max = 100", 4);
  const Outcome whole = tiny.train(c, tiny.out("whole"));
  ASSERT_TRUE(whole.result) << whole.hash();
  EXPECT_GE(count(whole.log, "run.rolled_back"), 2) << whole.log;
  EXPECT_EQ(in_parts(c, tiny.out("ones"), 1), whole.hash());
  EXPECT_EQ(in_parts(c, tiny.out("threes"), 3), whole.hash());
  EXPECT_EQ(in_parts(c, tiny.out("fours"), 4), whole.hash());
}

// A rollback in the first phase, and one from the second back into it: what was left out stays so, and the second
// phase goes on behind it, whether or not the process had looked there before.
TEST_F(BadSteps, RollbacksAcrossPhasesAreTheSameInAnyNumberOfProcesses) {
  const RunConfig c = config("policy = \"rollback\"\nrollbacks_max = 100", 8,
                             "[[phase]]\ntokens = 4608\n[[phase]]\ntokens = 1024\n");
  const std::string out = tiny.out("whole");
  const Outcome whole = tiny.train(c, out);
  ASSERT_TRUE(whole.result) << whole.hash();
  const std::string skips =
      Checkpoint::open(posix_file_system(), out + "/step-44").info().values.at("skips");
  EXPECT_TRUE(skips.starts_with("0:") && skips.find(" 1:") != std::string::npos) << skips;
  EXPECT_EQ(in_parts(c, tiny.out("threes"), 3), whole.hash());
}

// Deaths between a checkpoint and its mark: whenever a process ends on a regular step, the mark is
// of the one before.
TEST_F(BadSteps, RollbackDoesNotNeedTheMarkOfTheLastProcess) {
  const RunConfig c = config("policy = \"rollback\"\nrollbacks_max = 100", 2);
  const Outcome whole = tiny.train(c, tiny.out("whole"));
  FileSystem& fs = posix_file_system();
  const std::string out = tiny.out("parts");
  int64_t late_marks = 0;
  for (int stops = 0; stops < 200; ++stops) {
    const Outcome part = tiny.train_steps(c, out, 1);
    if (part.result) {
      EXPECT_EQ(part.hash(), whole.hash());
      break;
    }
    ASSERT_EQ(part.error->code(), Code::kInterrupted) << part.error->what();
    const std::vector<int64_t> steps = list_checkpoints(fs, out);
    if (steps.back() % 2 == 0 && steps.size() > 1) {
      mark_last_good(fs, out, steps.front());
      ++late_marks;
    }
  }
  EXPECT_GT(late_marks, 5) << whole.log;
}

// The run goes on from a checkpoint of before its bad steps, put aside, beside those of after: the mark is of a step
// that it has not reached.
TEST_F(BadSteps, ARollbackNeverGoesForward) {
  RunConfig c = config("policy = \"rollback\"\nrollbacks_max = 100", 8);
  c.checkpoint.keep = 100;
  FileSystem& fs = posix_file_system();
  const std::string first = tiny.out("first"), out = tiny.out("run");
  const Outcome whole = tiny.train(c, out);
  ASSERT_FALSE(tiny.train_steps(c, first, 32).result);
  ASSERT_EQ(last_good(fs, out), 40);
  const Outcome again = tiny.train(fs, c, out, nullptr, first + "/step-32");
  EXPECT_NE(again.log.find("to_step=32"), std::string::npos) << again.log;
  EXPECT_EQ(again.log.find("skipped_sequences=-"), std::string::npos) << again.log;
  EXPECT_EQ(again.hash(), whole.hash());
}

// It has saved nothing yet when it must go back: to where it began.
TEST_F(BadSteps, ARunThatGoesOnElsewhereGoesBackToWhereItBegan) {
  const RunConfig c = config("policy = \"rollback\"\nrollbacks_max = 100", 8);
  const std::string first = tiny.out("first");
  const Outcome whole = tiny.train(c, tiny.out("whole"));
  ASSERT_FALSE(tiny.train_steps(c, first, 32).result);
  const Outcome elsewhere =
      tiny.train(posix_file_system(), c, tiny.out("elsewhere"), nullptr, first + "/step-32");
  EXPECT_NE(elsewhere.log.find("to_step=32"), std::string::npos) << elsewhere.log;
  EXPECT_EQ(elsewhere.hash(), whole.hash());
}

// Found by the first of two ranks; both go back further.
TEST_F(BadSteps, ARollbackPassesOverADamagedCheckpoint) {
  const RunConfig c = config("policy = \"rollback\"\nrollbacks_max = 100", 8);
  FileSystem& fs = posix_file_system();
  const std::string out = tiny.out("run");
  std::once_flag damaged;  // before either rank looks
  set_fault_handler([&](const char* name) {
    if (std::string(name) != "rollback.begun") return;
    std::call_once(damaged, [&] {
      while (!fs.exists(out + "/step-32")) std::this_thread::yield();  // it is being saved
      std::string file;
      for (const std::string& name : fs.list(out + "/step-32"))
        if (name.starts_with("data-")) file = out + "/step-32/" + name;
      std::string bytes = fs.read(file);
      bytes[bytes.size() - 5] ^= 1;
      write_file(file, bytes);
    });
  });
  const Outcome run = tiny.train_on(2, c, out);
  set_fault_handler({});
  ASSERT_TRUE(run.result) << run.hash();
  EXPECT_NE(run.log.find("checkpoint.bad directory=" + out + "/step-32"), std::string::npos)
      << run.log;
  EXPECT_NE(run.log.find("to_step=24"), std::string::npos) << run.log;
}

// The first rank verifies, and one restores, for longer than ranks wait for each other in a step.
TEST_F(BadSteps, ARollbackWaitsForTheDisk) {
  RunConfig c = config("policy = \"rollback\"\nrollbacks_max = 100", 8);
  const std::string want = tiny.train(c, tiny.out("whole")).hash();
  c.parallel.deadline_seconds = 3;
  // Threads of ranks that go back; a save may still be mapping files on its own.
  static thread_local bool goes_back;
  std::once_flag verified, restored;
  std::atomic<int> waits{0};
  const auto wait = [&] {
    ++waits;
    std::this_thread::sleep_for(std::chrono::seconds(5));
  };
  set_fault_handler([&](const char* name) {
    if (std::string(name) == "rollback.begun") goes_back = true;
    if (std::string(name) != "rollback.restored") return;
    bool mine = false;  // the other rank goes on
    std::call_once(restored, [&] { mine = true; });
    if (mine) wait();
  });
  SlowToMap disk([&] {
    if (goes_back) std::call_once(verified, wait);
  });
  RunOptions options;
  options.out = tiny.out("slow");
  const Outcome slow = tiny.train(disk, c, options, 2);
  set_fault_handler({});
  EXPECT_EQ(slow.hash(), want) << slow.log;
  EXPECT_EQ(waits, 2) << slow.log;
}

TEST_F(BadSteps, ADamagedMarkIsNoMark) {
  const RunConfig c = config("policy = \"rollback\"\nrollbacks_max = 100", 8);
  const std::string out = tiny.out("run"), want = tiny.train(c, tiny.out("whole")).hash();
  set_fault_handler([&](const char* name) {
    if (std::string(name) == "rollback.begun") write_file(out + "/last_good", "nonsense");
  });
  const Outcome run = tiny.train(c, out);
  set_fault_handler({});
  EXPECT_EQ(run.hash(), want);
}

TEST_F(BadSteps, RollbacksEnd) {
  const Outcome whole =
      tiny.train(config("policy = \"rollback\"\nrollbacks_max = 1", 4), tiny.out("run"));
  ASSERT_TRUE(whole.error);
  EXPECT_EQ(whole.error->code(), Code::kDiverged);
  EXPECT_NE(std::string(whole.error->what()).find("1 rollbacks are used up"), std::string::npos)
      << whole.error->what();
}

TEST_F(BadSteps, StopStops) {
  const Outcome whole = tiny.train(config("policy = \"stop\"", 4), tiny.out("run"));
  ASSERT_TRUE(whole.error);
  EXPECT_EQ(whole.error->code(), Code::kDiverged);
  EXPECT_NE(std::string(whole.error->what()).find("spike.policy is stop"), std::string::npos)
      << whole.error->what();
  EXPECT_FALSE(list_checkpoints(posix_file_system(), tiny.out("run")).empty());
}

// A model with one weight that is no number: every step is bad.
TEST_F(BadSteps, NotANumberDivergesUnderEveryPolicy) {
  RunConfig c = config("policy = \"skip\"\npatience = 3", 4);
  c.spike.sigma = 0;
  write_tiny_model(tiny.out("nan"), c.model,
                   [](const ParameterTable&, float* weights) { weights[100] = NAN; });
  c.train.init = tiny.out("nan");
  c.model = ModelConfig();  // the shape comes with the model
  for (const SpikePolicy policy :
       {SpikePolicy::kSkip, SpikePolicy::kRollback, SpikePolicy::kStop}) {
    c.spike.policy = policy;
    const std::string out = tiny.out("policy" + std::to_string(static_cast<int>(policy)));
    const Outcome whole = tiny.train(c, out);
    ASSERT_TRUE(whole.error) << out;
    EXPECT_EQ(whole.error->code(), Code::kDiverged) << whole.error->what();
    EXPECT_NE(std::string(whole.error->what()).find("loss nan") == std::string::npos,
              policy == SpikePolicy::kStop)
        << whole.error->what();
    EXPECT_EQ(count(whole.log, "step.bad"), policy == SpikePolicy::kSkip ? 3 : 1) << whole.log;
  }
}

}  // namespace
}  // namespace moraine
