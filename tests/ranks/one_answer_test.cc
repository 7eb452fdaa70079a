// One answer: a run ends in the same checkpoint hash on any number of ranks and any division of
// them.
//
// The run has everything whose order of sums could depend on the mesh: packed documents, a batch
// ramp across a border, clipping in every step, Muon and AdamW, skipped tokens, balancing biases,
// two phases. Fails if one gradient is added in another order, one row is lost, sent twice or
// summed with another slot's, or one piece of state is saved or loaded wrong.
#include <gtest/gtest.h>

#include "base/test_folder.h"
#include "checkpoint/history.h"
#include "tests/ranks/random_parts.h"
#include "tests/tiny_run.h"

namespace moraine {
namespace {

using namespace testing;

class OneAnswer : public ::testing::TestWithParam<const char*> {
 protected:
  RunConfig on_mesh(int64_t expert, int64_t slots = 8) {
    RunConfig config = tiny.config(tiny.rich(GetParam(), slots));
    config.parallel.expert = expert;
    config.parallel.deadline_seconds = 60;
    return config;
  }
  std::string one_rank(int64_t slots = 8) {
    const Outcome whole = tiny.train(on_mesh(1, slots), tiny.out("one" + std::to_string(slots)));
    EXPECT_TRUE(whole.result) << whole.hash();
    return whole.hash();
  }

  TestFolder folder;
  TinyRun tiny{folder.path()};
};
INSTANTIATE_TEST_SUITE_P(Types, OneAnswer, ::testing::Values("f32", "bf16"));

TEST_P(OneAnswer, OnEveryFactorisation) {
  const std::string want = one_rank();
  for (const int ranks : {1, 2, 4, 8}) {
    for (int64_t expert = 1; expert <= std::min(ranks, 4); expert *= 2) {  // four experts
      const std::string name = std::to_string(ranks) + "x" + std::to_string(expert);
      const Outcome run = tiny.train_on(ranks, on_mesh(expert), tiny.out(name));
      EXPECT_EQ(run.hash(), want) << ranks << " ranks, experts over " << expert;
    }
  }
}

TEST_P(OneAnswer, ForAnySlotsThatTheRanksDivide) {
  for (const int64_t slots : {1, 2, 4}) {
    const std::string want = one_rank(slots);
    for (int ranks = 1; ranks <= slots; ranks *= 2) {
      const std::string name = std::to_string(slots) + "s" + std::to_string(ranks);
      const Outcome run = tiny.train_on(ranks, on_mesh(ranks, slots), tiny.out(name));
      EXPECT_EQ(run.hash(), want) << slots << " slots, " << ranks << " ranks";
    }
  }
}

// Three times a power of two: 12 slots, of which a rank has 4, 2 or 1, or all.
TEST_P(OneAnswer, OnThreeSixAndTwelveRanks) {
  const auto on = [&](int ranks, int64_t expert) {
    RunConfig config = on_mesh(expert);
    config.train.slots = 12, config.train.sequence = 8, config.train.batch_tokens = 384;
    config.train.ramp_batch_tokens = {192};
    config.phases[1].sequence = 16;
    return tiny.train_on(ranks, config, tiny.out("twelve" + std::to_string(ranks))).hash();
  };
  const std::string want = on(1, 1);
  EXPECT_EQ(on(6, 2), want);
  EXPECT_NE(on(4, 1).find("wanted 1, 3, 6, 12 ranks"), std::string::npos);
  if (std::string(GetParam()) != "f32") return;  // nothing of it depends on the type
  EXPECT_EQ(on(3, 1), want);
  EXPECT_EQ(on(12, 4), want);
}

// Every process of the run has another mesh; each resumes what the one before saved.
TEST_P(OneAnswer, WhenTheMeshChangesAtEveryCheckpoint) {
  const std::string want = one_rank(), out = tiny.out("changing");
  const std::vector<std::pair<int, int64_t>> meshes = {{2, 1}, {8, 4}, {1, 1}, {4, 2}, {2, 2},
                                                       {8, 1}, {4, 4}, {8, 2}, {4, 1}};
  for (const auto& [ranks, expert] : meshes) {
    const Outcome part = tiny.train_steps(on_mesh(expert), out, 1, ranks);
    if (part.result) {
      EXPECT_EQ(part.hash(), want);
      return;
    }
    ASSERT_EQ(part.error->code(), Code::kInterrupted) << part.error->what();
  }
  ADD_FAILURE() << "the run did not end";
}

// The same with meshes drawn at random; a seed that fails is in the message.
TEST_P(OneAnswer, WhenRandomMeshesTakeTurns) {
  const std::string want = one_rank();
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const RandomParts run = train_in_random_parts(
        tiny, seed, [&](int64_t expert, const Draw&) { return on_mesh(expert); });
    EXPECT_EQ(run.last.hash(), want) << run.story;
  }
}

// Batches of validation are dealt out unevenly: the last is shorter, and some ranks have none.
TEST_P(OneAnswer, OfValidationWhateverItsLength) {
  for (const int64_t tokens : {16, 128 + 16, 3 * 128 + 48}) {
    const auto losses = [&](int ranks, int64_t expert) {
      RunConfig config = on_mesh(expert);
      config.report.valid_tokens = tokens;
      const std::string out = tiny.out("v" + std::to_string(tokens) + std::to_string(ranks) + "x" +
                                       std::to_string(expert));
      EXPECT_TRUE(tiny.train_on(ranks, config, out).result);
      const std::string metrics = posix_file_system().read(out + "/metrics.jsonl");
      std::string found;
      for (size_t at = metrics.find("\"valid_loss\":"); at != std::string::npos;
           at = metrics.find("\"valid_loss\":", at + 1))
        found += metrics.substr(at, metrics.find(',', at) - at) + " ";
      return found;
    };
    const std::string want = losses(1, 1);
    EXPECT_GT(want.size(), 20u);
    EXPECT_EQ(losses(2, 2), want) << tokens;
    EXPECT_EQ(losses(4, 2), want) << tokens;
    EXPECT_EQ(losses(8, 4), want) << tokens;
  }
}

// Gradients that travel as bf16 are another answer, the same each time; a run may not change over.
TEST_P(OneAnswer, OfABf16ReduceDTypeIsAnotherAndStays) {
  const std::string want = one_rank();
  RunConfig config = on_mesh(2);
  config.parallel.reduce_dtype = ReduceDType::kBF16;
  const std::string rounded = tiny.train_on(4, config, tiny.out("a")).hash();
  EXPECT_NE(rounded, want);
  EXPECT_EQ(tiny.train_on(4, config, tiny.out("b")).hash(), rounded);
  const std::string out = tiny.out("change");
  EXPECT_FALSE(tiny.train_steps(config, out, 2, 4).result);
  const Outcome changed = tiny.train_on(4, on_mesh(2), out);
  ASSERT_TRUE(changed.error);
  EXPECT_NE(std::string(changed.error->what()).find("reduce_dtype"), std::string::npos)
      << changed.error->what();
  EXPECT_EQ(tiny.train_on(4, config, out).hash(), rounded);
}

TEST_P(OneAnswer, WithRecomputationThreadsAndSmallBuckets) {
  const std::string want = one_rank();
  RunConfig config = on_mesh(2);
  config.train.recompute = Recompute::kLayer;
  config.train.threads = 2;
  config.parallel.bucket_bytes = 1;
  EXPECT_EQ(tiny.train_on(4, config, tiny.out("small")).hash(), want);
  config.train.micro_sequences = 1;
  config.parallel.bucket_bytes = 1 << 30;
  RunConfig alone = config;
  alone.parallel.expert = 1;
  const std::string micro = tiny.train(alone, tiny.out("micro")).hash();
  EXPECT_EQ(tiny.train_on(4, config, tiny.out("large")).hash(), micro);
}

}  // namespace
}  // namespace moraine
