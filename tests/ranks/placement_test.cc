// Placement: who serves which experts is in no bit of the answer.
//
// The runs of one_answer_test (packed documents, a batch ramp, clipping in every step, Muon and AdamW, skipped
// tokens, balancing biases, two phases), with experts served at home, where a plan says, and at random, another way
// in each step. Fails if a guest computes with old weights, a gradient comes home to another expert or source,
// twice or not at all, a count lands in another class, or a placement outlives a change of mesh.
#include <gtest/gtest.h>

#include "base/test_folder.h"
#include "base/test_text.h"
#include "tests/ranks/random_parts.h"
#include "tests/tiny_run.h"

namespace moraine {
namespace {

using namespace testing;

struct Placed {
  PlacementMode mode = PlacementMode::kStatic;
  int64_t slots = 2;
};

class Placement : public ::testing::TestWithParam<const char*> {
 protected:
  RunConfig on_mesh(int64_t expert, const Placed& placed) {
    RunConfig config = tiny.config(tiny.rich(GetParam(), 8));
    config.parallel.expert = expert;
    config.parallel.deadline_seconds = 60;
    place(config, placed);
    return config;
  }
  static void place(RunConfig& config, const Placed& placed) {
    config.parallel.placement = placed.mode;
    config.parallel.expert_slots = placed.slots;
    config.parallel.placement_every_steps = 1;
    config.parallel.placement_gate = 0;
  }
  std::string one_rank() {
    const Outcome whole = tiny.train(on_mesh(1, {}), tiny.out("one"));
    EXPECT_TRUE(whole.result) << whole.hash();
    return whole.hash();
  }

  TestFolder folder;
  TinyRun tiny{folder.path()};
};
INSTANTIATE_TEST_SUITE_P(Types, Placement, ::testing::Values("f32", "bf16"));

TEST_P(Placement, OnEveryMesh) {
  const std::string want = one_rank();
  for (const auto& [ranks, expert] :
       std::vector<std::pair<int, int64_t>>{{2, 2}, {4, 2}, {4, 4}, {8, 4}, {8, 2}}) {
    for (const Placed& placed :
         {Placed{PlacementMode::kBalanced, 2}, Placed{PlacementMode::kShuffled, 1},
          Placed{PlacementMode::kShuffled, 3}}) {
      const std::string name = std::to_string(ranks) + "x" + std::to_string(expert) + "-" +
                               std::to_string(static_cast<int>(placed.mode)) +
                               std::to_string(placed.slots);
      const Outcome run = tiny.train_on(ranks, on_mesh(expert, placed), tiny.out(name));
      EXPECT_EQ(run.hash(), want) << name;
      if (placed.mode == PlacementMode::kShuffled) {
        EXPECT_EQ(count(run.log, "experts.placed"), 9 * ranks / expert) << name;
      }
    }
  }
}

// The plan is asked for what it is expected to do, not only for nothing being broken.
TEST_P(Placement, ABalancedPlanLevelsTheRanks) {
  RunConfig config = on_mesh(4, {PlacementMode::kBalanced, 3});
  const std::string out = tiny.out("level");
  const Outcome run = tiny.train_on(4, config, out);
  ASSERT_TRUE(run.result) << run.hash();
  EXPECT_GT(count(run.log, "experts.placed"), 0);
  double placed = 0, home = 0;
  for (const StepMetrics& m : read_metrics(posix_file_system(), out + "/metrics.jsonl")) {
    if (m.step < 3) continue;
    placed += m.rank_load_over_mean, home += m.home_load_over_mean;
  }
  EXPECT_GT(home / 7, 1.1) << "nothing to balance: the test shows nothing";
  EXPECT_LT(placed, home);
}

TEST_P(Placement, WhenMeshAndPlacementChangeAtRandomSteps) {
  const std::string want = one_rank();
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    std::string modes = " modes";
    const RandomParts run =
        train_in_random_parts(tiny, seed, [&](int64_t expert, const Draw& draw) {
          const Placed placed{static_cast<PlacementMode>(draw(3, 4)), 1 + draw(3, 5)};
          modes += " " + std::to_string(static_cast<int>(placed.mode));
          return on_mesh(expert, placed);
        });
    EXPECT_EQ(run.last.hash(), want) << run.story << modes;
  }
}

TEST_P(Placement, WithRecomputationThreadsAndSmallBuckets) {
  const std::string want = one_rank();
  RunConfig config = on_mesh(2, {PlacementMode::kShuffled, 2});
  config.train.recompute = Recompute::kLayer;
  config.train.threads = 2;
  config.parallel.bucket_bytes = 1;
  EXPECT_EQ(tiny.train_on(4, config, tiny.out("small")).hash(), want);
  config.train.micro_sequences = 1;
  config.parallel.bucket_bytes = 1 << 30;
  RunConfig alone = config;
  alone.parallel = ParallelConfig();
  const std::string micro = tiny.train(alone, tiny.out("micro")).hash();
  EXPECT_EQ(tiny.train_on(4, config, tiny.out("large")).hash(), micro);
}

// Ranks that share sequences are another answer than one rank; with them, too, it does not matter who serves.
TEST_P(Placement, WithSequencesOverRanks) {
  RunConfig config = on_mesh(4, {});
  config.parallel.context = 2;
  config.parallel.attention = AttentionExchange::kRing;
  const std::string want = tiny.train_on(4, config, tiny.out("home")).hash();
  for (const PlacementMode mode : {PlacementMode::kBalanced, PlacementMode::kShuffled}) {
    place(config, {mode, 2});
    const std::string out = tiny.out("context" + std::to_string(static_cast<int>(mode)));
    EXPECT_EQ(tiny.train_on(4, config, out).hash(), want);
  }
}

}  // namespace
}  // namespace moraine
