// AutoPlan: the planner's mesh is one that runs, and is not in the answer.
//
// Fails if ranks take different meshes, if what auto takes changes a bit, or if a plan that does not fit in memory
// goes before one that does.
#include "train/auto_plan.h"

#include <gtest/gtest.h>

#include "base/test_folder.h"
#include "base/test_text.h"
#include "checkpoint/history.h"
#include "tests/tiny_run.h"

namespace moraine {
namespace {

using namespace testing;

TEST(AutoPlan, IsNotInTheAnswer) {
  const TestFolder folder;
  TinyRun tiny{folder.path()};
  RunConfig config = tiny.config(tiny.rich("f32", 8));
  const Outcome given = tiny.train(config, tiny.out("given"));
  ASSERT_TRUE(given.result) << given.hash();
  config.parallel.plan = PlanChoice::kAuto;
  config.parallel.deadline_seconds = 60;
  for (const int ranks : {1, 2, 4, 8}) {
    const std::string name = "auto" + std::to_string(ranks);
    EXPECT_EQ(tiny.train_on(ranks, config, tiny.out(name)).hash(), given.hash()) << ranks;
  }
}

// Another plan after every step, of those that there are; and where what was measured says so.
TEST(AutoPlan, ChangesWhileItRunsAndIsNotInTheAnswer) {
  const TestFolder folder;
  TinyRun tiny{folder.path()};
  RunConfig config = tiny.config(tiny.rich("bf16", 8));
  const std::string want = tiny.train(config, tiny.out("given")).hash();
  config.parallel.plan = PlanChoice::kShuffled;
  config.parallel.replan_every_steps = 1;
  config.parallel.deadline_seconds = 60;
  for (const int ranks : {1, 2, 8}) {
    const std::string name = "shuffled" + std::to_string(ranks);
    const Outcome run = tiny.train_on(ranks, config, tiny.out(name));
    EXPECT_EQ(run.hash(), want) << name;
    const int64_t steps = run.result ? run.result->step : 0;
    EXPECT_EQ(count(run.log, " mesh.moved ") > steps / 2, ranks > 1) << name;
  }
  config.parallel.placement = PlacementMode::kShuffled;
  config.parallel.placement_every_steps = 1;
  EXPECT_EQ(tiny.train_on(4, config, tiny.out("placed")).hash(), want);
  config.parallel.plan = PlanChoice::kAuto;
  config.parallel.replan_gate = 0;
  EXPECT_EQ(tiny.train_on(4, config, tiny.out("measured")).hash(), want);
}

// A plan is made for the last phase, whose batches are small: experts over both ranks, for gradients are dear there.
// Rows are, in the large batches before it. Rates are given, so the planner says so whatever steps take.
TEST(AutoPlan, MovesInAPhaseThatItsFirstPlanWasNotMadeFor) {
  const TestFolder folder;
  TinyRun tiny{folder.path()};
  RunConfig config = tiny.config(
      "[train]\nslots = 4\nsequence = 32\nbatch_tokens = 128\nthreads = 1\ndtype = \"f32\"\n"
      "[[phase]]\ntokens = 16384\nbatch_tokens = 2048\n[[phase]]\ntokens = 512\n");
  const std::string want = tiny.train(config, tiny.out("given")).hash();
  config.parallel.plan = PlanChoice::kAuto;
  config.parallel.replan_every_steps = 2;
  config.parallel.replan_gate = 0;
  config.parallel.deadline_seconds = 60;
  Machine machine = nominal_machine(1);
  machine.comm = {.ranks = 2,
                  .message_latency_us = 0.01,
                  .message_gb_s = 1e-3,
                  .bucket_latency_us = 0.01,
                  .bucket_gb_s = 1e-3,
                  .messages = {},
                  .buckets = {}};
  save_machine(posix_file_system(), tiny.root() + "/machine.json", machine);
  const Outcome run = tiny.train_on(2, config, tiny.out("auto"));
  EXPECT_EQ(run.hash(), want);
  EXPECT_EQ(count(run.log, "run.plan"), 1) << run.log;
  const size_t moved = run.log.find("mesh.moved");
  ASSERT_NE(moved, std::string::npos) << run.log;
  const std::string line = run.log.substr(moved, run.log.find('\n', moved) - moved);
  EXPECT_NE(line.find("step=2 from=\"experts over 2"), std::string::npos) << line;
  EXPECT_NE(line.find("to=\"experts over 1"), std::string::npos) << line;
  EXPECT_NE(line.find("reason=\"the planner: "), std::string::npos) << line;
}

// Rates under which sending gradients is dear and rows cheap: experts over all ranks; and the other way round.
TEST(AutoPlan, FollowsTheRates) {
  const TestFolder folder;
  TinyRun tiny{folder.path()};
  RunConfig config = tiny.config(tiny.rich("f32", 8));
  config.model.vocab_size = kByteVocabulary;
  const Machine machine = nominal_machine(4);
  Place place = place_on_machine(machine, 4);
  place.bucket = {.latency_seconds = 0, .bytes_per_second = 1e3};
  const MeshPlan dear_gradients = choose_plan(config, place, machine, 4, 0);
  EXPECT_EQ(dear_gradients.mesh.expert, 4);
  place = place_on_machine(machine, 4);
  place.near.latency_seconds = 1;  // a message for each layer and direction
  EXPECT_EQ(choose_plan(config, place, machine, 4, 0).mesh.expert, 1);
}

TEST(AutoPlan, RecomputesOnlyWhereItMust) {
  const TestFolder folder;
  TinyRun tiny{folder.path()};
  RunConfig config = tiny.config(tiny.rich("f32", 8));
  config.model.vocab_size = kByteVocabulary;
  const Machine machine = nominal_machine(4);
  const Place place = place_on_machine(machine, 2);
  const MeshPlan roomy = choose_plan(config, place, machine, 2, 0);
  EXPECT_EQ(roomy.recompute, Recompute::kNone);
  int64_t least = INT64_MAX;
  for (const MeshPlan& plan : plan_meshes(config, place, machine, 2, {.context = false}))
    least = std::min(least, plan.bytes);
  ASSERT_LT(least, roomy.bytes);
  const MeshPlan tight = choose_plan(config, place, machine, 2, 2 * least);
  EXPECT_EQ(tight.bytes, least);
  EXPECT_TRUE(tight.fits);
  const MeshPlan none = choose_plan(config, place, machine, 2, 1);
  EXPECT_EQ(none.bytes, least);
  EXPECT_FALSE(none.fits);
}

// The context degree changes bits: it stays as given.
TEST(AutoPlan, LeavesTheContextDegreeAlone) {
  const TestFolder folder;
  TinyRun tiny{folder.path()};
  RunConfig config = tiny.config(tiny.rich("f32", 8));
  config.model.vocab_size = kByteVocabulary;
  const Machine machine = nominal_machine(4);
  for (const int64_t context : {1, 2, 4}) {
    config.parallel.context = context;
    EXPECT_EQ(choose_plan(config, place_on_machine(machine, 4), machine, 4, 0).mesh.context,
              context);
  }
}

}  // namespace
}  // namespace moraine
