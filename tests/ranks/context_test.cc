// Context: training with sequences on several ranks is training on one, within rounding, and
// repeats to the bit.
//
// Fails if a rank reads other rows than its own, a halo or a gradient is lost, targets are counted
// twice, a phase border leaves the old mesh in place, or a resumed run differs.
#include <gtest/gtest.h>

#include <cmath>

#include "base/test_folder.h"
#include "checkpoint/history.h"
#include "model/model_directory.h"
#include "tests/tiny_run.h"

namespace moraine {
namespace {

using namespace testing;

class Context : public ::testing::TestWithParam<AttentionExchange> {
 protected:
  // Three phases of growing length: 16 positions on one rank each, 32 on two, 64 on four.
  RunConfig phases(AttentionExchange attention, int64_t expert, const std::string& dtype = "f32") {
    const std::string text =
        "[train]\ninit = \"" + tiny.root() +
        "/start\"\nslots = 4\nsequence = 16\nbatch_tokens = 512\nthreads = 1\ndtype = \"" + dtype +
        "\"\n[optimizer]\nlearning_rate = 0.01\n"
        "[checkpoint]\nevery_steps = 1\nkeep = 100\n"
        "[[phase]]\ntokens = 1024\n"
        "[[phase]]\ntokens = 1024\nsequence = 32\nrope_theta = 40000.0\ncontext = 2\n"
        "[[phase]]\ntokens = 1024\nsequence = 64\nrope_theta = 160000.0\ncontext = 4\n";
    RunConfig config = tiny.config(text);
    config.parallel.attention = attention;
    config.parallel.expert = expert;
    config.parallel.deadline_seconds = 60;
    return config;
  }
  RunConfig alone(RunConfig config) {
    config.parallel = ParallelConfig();
    for (PhaseConfig& phase : config.phases) phase.context = 0;
    return config;
  }

  TestFolder folder;
  TinyRun tiny{folder.path()};
};
INSTANTIATE_TEST_SUITE_P(Variants, Context,
                         ::testing::Values(AttentionExchange::kRing, AttentionExchange::kGather));

std::vector<float> weights(const std::string& out, int64_t step) {
  const ModelDirectory model =
      ModelDirectory::open(posix_file_system(), checkpoint_path(posix_file_system(), out, step));
  std::vector<float> all(static_cast<size_t>(build_parameters(model.config()).total_count));
  model.read_weights(make_tensor(all.data(), DType::kF32, {static_cast<int64_t>(all.size())}));
  return all;
}

TEST_P(Context, PhasesOfGrowingLengthAreThoseOfOneRank) {
  const RunConfig config = phases(GetParam(), 1);
  const std::string one = tiny.out("one");
  const Outcome whole = tiny.train(alone(config), one);
  ASSERT_TRUE(whole.result) << whole.hash();
  for (const int64_t expert : {1, 2}) {
    const std::string out = tiny.out("four" + std::to_string(expert));
    const Outcome shared = tiny.train_on(4, phases(GetParam(), expert), out);
    ASSERT_TRUE(shared.result) << shared.hash();
    // Gradients differ by rounding (2^-24 of f32, sums of some thousand terms); AdamW and Muon turn
    // a difference into at most one learning rate where a gradient is near zero. A lost halo or
    // a wrong row moves the loss in its third digit.
    EXPECT_NEAR(shared.result->loss, whole.result->loss, 2e-4 * whole.result->loss);
    // The first two steps have whole sequences: the same bits.
    EXPECT_EQ(weights(out, 2), weights(one, 2));
    const std::vector<float> a = weights(one, whole.result->step),
                             b = weights(out, whole.result->step);
    double difference = 0, norm = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      difference += std::pow(double(a[i]) - double(b[i]), 2);
      norm += std::pow(double(a[i]), 2);
    }
    EXPECT_LT(std::sqrt(difference / norm), 1e-3);
    EXPECT_GT(difference, 0);
  }
}

// Chunks of 33 and 34 positions: ranks of one expert group have unequal rows.
TEST_P(Context, UnevenChunksWithExpertsElsewhere) {
  const std::string text = "[train]\ninit = \"" + tiny.root() +
                           "/start\"\nslots = 2\nsequence = 67\nbatch_tokens = 268\nthreads = "
                           "1\ndtype = \"f32\"\nsteps = 2\n";
  RunConfig config = tiny.config(text);
  const Outcome whole = tiny.train(config, tiny.out("one"));
  config.parallel = {.expert = 2, .context = 2, .attention = GetParam()};
  for (const int ranks : {2, 4}) {
    const Outcome shared = tiny.train_on(ranks, config, tiny.out(std::to_string(ranks)));
    ASSERT_TRUE(whole.result && shared.result) << whole.hash() << shared.hash();
    EXPECT_NEAR(shared.result->loss, whole.result->loss, 2e-4 * whole.result->loss);
  }
}

TEST_P(Context, TheSameMeshHasTheSameBitsAndResumesOnThem) {
  const RunConfig config = phases(GetParam(), 2, "bf16");
  const Outcome whole = tiny.train_on(4, config, tiny.out("whole"));
  ASSERT_TRUE(whole.result) << whole.hash();
  EXPECT_EQ(tiny.train_on(4, config, tiny.out("again")).hash(), whole.hash());
  RunConfig recomputed = config;
  recomputed.train.recompute = Recompute::kLayer;
  EXPECT_EQ(tiny.train_on(4, recomputed, tiny.out("recomputed")).hash(), whole.hash());
  const std::string out = tiny.out("stopped");
  for (const int64_t steps : {1, 1, 2})
    EXPECT_FALSE(tiny.train_steps(config, out, steps, 4).result);
  EXPECT_EQ(tiny.train_on(4, config, out).hash(), whole.hash());
}

// Documents of 40,000 bytes; 4K positions on one rank each, then 32K shared by two, with another
// base.
TEST_P(Context, From4KTo32KPositions) {
  const std::string data = tiny.out("long");
  build_tiny_dataset(data, 3, 4, 9000);
  const std::string text =
      "[model]\nhidden = 32\nlayers = 1\nheads = 1\nkv_heads = 1\nhead_dim = 16\nexperts = 4\n"
      "expert_hidden = 24\nrouter_hidden = 16\nmax_positions = 32768\n[data]\ntrain = \"" +
      data +
      "\"\n[train]\nslots = 2\nsequence = 4096\nbatch_tokens = 8192\nthreads = 1\ndtype = "
      "\"f32\"\n[report]\nvalid_every_steps = 0\n"
      "[[phase]]\ntokens = 16384\n"
      "[[phase]]\ntokens = 65536\nsequence = 32768\nbatch_tokens = 65536\nrope_theta = 1e6\n"
      "context = 2\n";
  RunConfig config = read_run_config(SettingsTable::parse(text, "long.toml"));
  config.parallel.attention = GetParam();
  const Outcome shared = tiny.train_on(2, config, tiny.out("shared"));
  const Outcome whole = tiny.train(alone(config), tiny.out("whole"));
  ASSERT_TRUE(shared.result && whole.result) << shared.hash() << whole.hash();
  EXPECT_EQ(shared.result->step, 3);
  // The last loss is of the 32K step: the same weights (the phase before is of whole sequences),
  // and per row the rounding of one more merge.
  EXPECT_NEAR(shared.result->loss, whole.result->loss, 1e-5 * whole.result->loss);
}

TEST_P(Context, DegreesThatDoNotFitAreNamed) {
  const auto error = [&](int ranks, const RunConfig& config) {
    const Outcome outcome = tiny.train_on(ranks, config, tiny.out("bad"));
    return outcome.error ? std::string(outcome.error->what()) : "no error";
  };
  EXPECT_NE(error(2, phases(GetParam(), 1)).find("parallel.context = 4 on 2 ranks"),
            std::string::npos);
  RunConfig tight = phases(GetParam(), 1);
  tight.phases[0].context = 8;  // 16 positions in 16 chunks
  tight.phases[1].context = tight.phases[2].context = 8;
  const std::string why = error(8, tight);
  EXPECT_NE(why.find("16"), std::string::npos) << why;
}

}  // namespace
}  // namespace moraine
