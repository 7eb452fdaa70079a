// Replaced ranks: the others keep their process and go on with who takes a lost one's place, or without, and the run
// ends in the hash of one that nothing happened to. Wherever it is lost: fault_matrix_test.cc.
//
// Breaks if survivors end, if a state is a mixture, if a second death on the way back is one too many, or if a group
// that has shrunk does not grow again.
#include "base/test_folder.h"
#include "tests/ranks/job.h"

namespace moraine {
namespace {

using namespace testing;

// For those who are left to come to where they meet.
constexpr double kShortReplaceSeconds = 3;

class Replaced : public ::testing::Test {
 protected:
  RunConfig config_of(int64_t checkpoint_every, int64_t memory_every) const {
    RunConfig config = tiny.config(tiny.rich("bf16"));
    config.parallel.expert = 2;
    config.parallel.placement = PlacementMode::kShuffled;
    config.parallel.deadline_seconds = 60;
    config.checkpoint.every_steps = checkpoint_every;
    config.checkpoint.memory_every_steps = memory_every;
    return config;
  }
  std::string quiet_hash() const {
    RunConfig config = config_of(100, 0);
    config.parallel.expert = 1;
    return tiny.train(config, tiny.out("quiet")).hash();
  }

  TestFolder folder;
  TinyRun tiny{folder.path()};
};

TEST_F(Replaced, WithoutCopiesInMemoryTheNewestCheckpointOrTheBeginningIsTaken) {
  const std::string hash = quiet_hash();
  for (const int64_t every : {3, 100}) {
    Job job(tiny, fmt::format("disk{}", every), config_of(every, 0), 2);
    job.start(0);
    job.start(1, {"step.optimizer", 6});
    ASSERT_EQ(job.wait(1), -SIGKILL);
    job.start(1);
    for (int m = 0; m < 2; ++m) EXPECT_EQ(job.wait(m), 0) << job.log(m);
    expect_same_end(job, 2, hash, 2);
  }
}

TEST_F(Replaced, ACopyInMemoryIsTakenWhereNothingOnDiskIsWhole) {
  const std::string hash = quiet_hash();
  Job job(tiny, "damaged", config_of(100, 1), 2);
  RunConfig alone = config_of(100, 0);
  alone.parallel.expert = 1;
  tiny.train_steps(alone, job.out(), 2);  // and a checkpoint
  job.start(0);
  job.start(1, {"step.optimizer", 5, Fate::kDiesOnceCopied});
  ASSERT_EQ(job.wait(1), -SIGKILL);
  int damaged = 0;
  for (const auto& entry : std::filesystem::directory_iterator(job.out())) {
    if (!entry.path().filename().string().starts_with("step-")) continue;
    const std::string manifest = entry.path() / "manifest.json";
    std::filesystem::resize_file(manifest, std::filesystem::file_size(manifest) / 2);
    ++damaged;
  }
  EXPECT_EQ(damaged, 1);
  job.start(1);
  for (int m = 0; m < 2; ++m) EXPECT_EQ(job.wait(m), 0) << job.log(m);
  expect_same_end(job, 2, hash, 2);
  EXPECT_NE(job.log(0).find("checkpoint.loaded directory=" + tiny.root() + "/memory"),
            std::string::npos)
      << job.log(0);
}

TEST_F(Replaced, SeveralAtOnceAndAllButOne) {
  const std::string hash = quiet_hash();
  Job job(tiny, "several", config_of(100, 1), 4);
  for (int m = 0; m < 4; ++m)
    job.start(m, m == 2 ? Death{} : Death{"step.weights_gather", 5, Fate::kStops});
  job.end_stopped({0, 1, 3});
  for (const int m : {0, 1, 3}) ASSERT_EQ(job.wait(m), -SIGKILL);
  for (const int m : {0, 1, 3}) job.start(m);
  for (int m = 0; m < 4; ++m) EXPECT_EQ(job.wait(m), 0) << job.log(m);
  expect_same_end(job, 4, hash, 2);
}

// Who comes for a lost rank has not moved with the others.
TEST_F(Replaced, InARunThatHasMovedToAnotherMesh) {
  const std::string hash = quiet_hash();
  for (const int nth : {4, 8}) {  // before the move, and after it
    RunConfig config = config_of(100, 1);
    config.phases[1].expert = 4;
    Job job(tiny, fmt::format("moved{}", nth), config, 4);
    for (int m = 0; m < 4; ++m) job.start(m, m == 1 ? Death{"step.optimizer", nth} : Death{});
    ASSERT_EQ(job.wait(1), -SIGKILL);
    job.start(1);
    for (int m = 0; m < 4; ++m) EXPECT_EQ(job.wait(m), 0) << job.log(m);
    expect_same_end(job, 4, hash, 2);
    EXPECT_NE(job.log(0).find(" mesh.moved "), std::string::npos) << job.log(0);
  }
}

// A stopped process looks alive: it is lost when a deadline says so, or when somebody ends it.
TEST_F(Replaced, AStoppedRankThatSomebodyEnds) {
  const std::string hash = quiet_hash();
  Job job(tiny, "stopped", config_of(100, 1), 2);
  job.start_all();
  const std::string metrics = job.out() + "/metrics.jsonl";
  while (!posix_file_system().exists(metrics) || posix_file_system().file_bytes(metrics) == 0)
    usleep(1000);
  job.signal(1, SIGSTOP);
  usleep(200'000);
  job.signal(1, SIGKILL);
  ASSERT_EQ(job.wait(1), -SIGKILL);
  job.start(1);
  for (int m = 0; m < 2; ++m) EXPECT_EQ(job.wait(m), 0) << job.log(m);
  EXPECT_EQ(job.said(0).substr(0, hash.size()), hash);
}

TEST_F(Replaced, WithoutAReplacementTheRunGoesOnWithFewerAndEndsTheSame) {
  const std::string hash = quiet_hash();
  Job job(tiny, "fewer", config_of(100, 1), 4);
  job.replace_seconds = kShortReplaceSeconds;
  for (int m = 0; m < 4; ++m) job.start(m, m == 1 ? Death{"step.optimizer", 4} : Death{});
  ASSERT_EQ(job.wait(1), -SIGKILL);
  EXPECT_EQ(job.wait(0), 0) << job.log(0);
  EXPECT_EQ(job.wait(2), 0) << job.log(2);
  EXPECT_EQ(job.wait(3), 0) << "who waits behind the door is told that the run is done";
  EXPECT_EQ(job.said(0), hash + " 2") << job.log(0);
  EXPECT_NE(job.log(0).find("group.formed generation=2 ranks=2"), std::string::npos) << job.log(0);
}

TEST_F(Replaced, AGroupThatHasShrunkGrowsAgain) {
  const std::string hash = quiet_hash();
  for (const int64_t memory_every : {1, 0}) {
    Job job(tiny, fmt::format("grows{}", memory_every), config_of(100, memory_every), 4);
    job.replace_seconds = kShortReplaceSeconds;
    for (int m = 0; m < 4; ++m)
      job.start(m, m == 1   ? Death{"step.optimizer", 4}
                   : m == 0 ? Death{"step.optimizer", 7, Fate::kWaits}
                            : Death{});
    ASSERT_EQ(job.wait(1), -SIGKILL);
    while (job.log(0).find("group.formed generation=2 ranks=2") == std::string::npos) usleep(1000);
    job.start(1);
    for (int m = 0; m < 4; ++m) EXPECT_EQ(job.wait(m), 0) << job.log(m);
    expect_same_end(job, 4, hash, 3);
  }
}

}  // namespace
}  // namespace moraine
