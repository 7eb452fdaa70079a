// Moved: a run that goes to another mesh at the border of its phases, in the running job.
//
// Fails if the move is in the answer, starts the run anew, waits for a disk, or is lost by a stop or a full memory.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/test_folder.h"
#include "base/test_text.h"
#include "tests/program.h"
#include "tests/tiny_run.h"

namespace moraine {
namespace {

using namespace testing;

class Moved : public ::testing::Test {
 protected:
  // Four phases of two steps or more, with the layouts given.
  RunConfig config_of(const std::vector<int64_t>& experts) const {
    RunConfig config = tiny.config(tiny.rich("bf16", 8));
    config.phases = {config.phases[0], config.phases[1], config.phases[0], config.phases[1]};
    for (PhaseConfig& phase : config.phases) phase.tokens = 1024;
    for (size_t i = 0; i < config.phases.size(); ++i) {
      config.phases[i].expert = experts[i % experts.size()];
      config.phases[i].recompute = i % 2 == 1 ? PhaseRecompute::kLayer : PhaseRecompute::kAsTrain;
    }
    config.checkpoint.every_steps = 100;
    config.checkpoint.memory_folder = memory();
    return config;
  }
  std::string memory() const {
    std::filesystem::create_directories(tiny.root() + "/memory");
    return tiny.root() + "/memory";
  }
  std::string quiet_hash() const {
    RunConfig config = config_of({1});
    for (PhaseConfig& phase : config.phases) phase.recompute = PhaseRecompute::kAsTrain;
    return tiny.train(config, tiny.out("quiet")).hash();
  }
  TestFolder folder;
  TinyRun tiny{folder.path()};
};

TEST_F(Moved, EveryPhaseHasItsMeshAndTheAnswerIsTheSame) {
  const std::string hash = quiet_hash();
  const std::vector<std::pair<int, std::vector<int64_t>>> meshes = {
      {1, {1}}, {2, {1, 2}}, {4, {4, 1, 2, 4}}, {8, {2, 4, 1, 4}}};
  for (const auto& [ranks, experts] : meshes) {
    const std::string name = fmt::format("on{}", ranks);
    const Outcome run = tiny.train_on(ranks, config_of(experts), tiny.out(name));
    ASSERT_TRUE(run.result) << run.error->what();
    EXPECT_EQ(run.hash(), hash) << ranks;
    EXPECT_EQ(count(run.log, " mesh.moved "), 3) << run.log;
    EXPECT_EQ(count(run.log, "/memory/"), 3) << "loaded from memory: " << run.log;
    EXPECT_EQ(count(run.log, " checkpoint.saved "), 1) << "the last one: " << run.log;
    const std::string metrics = posix_file_system().read(tiny.out(name) + "/metrics.jsonl");
    EXPECT_EQ(count(metrics, "\n"), run.result->step);
    EXPECT_TRUE(std::filesystem::is_empty(memory())) << "nothing is left behind";
  }
}

TEST_F(Moved, AStopAfterAnyStepLosesNothing) {
  const std::string hash = quiet_hash();
  int parts = 0;
  for (; parts < 20; ++parts) {
    const Outcome part = tiny.train_steps(config_of({2, 1, 4, 2}), tiny.out("stops"), 1, 4);
    if (part.result) {
      EXPECT_EQ(part.hash(), hash);
      break;
    }
    ASSERT_EQ(part.error->code(), Code::kInterrupted) << part.error->what();
  }
  EXPECT_LT(parts, 20);
  EXPECT_GT(parts, 5);
}

TEST_F(Moved, ByDiskWhereMemoryIsRefused) {
  RunConfig config = config_of({1, 2});
  config.checkpoint.memory_folder = tiny.root() + "/none";  // there is no such folder
  const Outcome run = tiny.train_on(2, config, tiny.out("disk"));
  ASSERT_TRUE(run.result) << run.error->what();
  EXPECT_EQ(run.hash(), quiet_hash());
  EXPECT_EQ(count(run.log, " mesh.moved "), 3) << run.log;
}

TEST_F(Moved, AMeshThatNoRankCouldTakeIsRefusedAtTheStart) {
  RunConfig config = config_of({1, 1, 1, 8});  // of four experts
  const Outcome run = tiny.train_on(8, config, tiny.out("wrong"));
  ASSERT_TRUE(run.error);
  EXPECT_EQ(run.error->code(), Code::kInvalidArgument);
  EXPECT_FALSE(posix_file_system().exists(tiny.out("wrong") + "/metrics.jsonl"));
}

}  // namespace
}  // namespace moraine
