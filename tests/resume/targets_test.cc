// Targets: training where only marked tokens are to be learnt.
//
// Fails if a token that is only read moves a weight or counts, if a slot or a step without any target divides by
// nothing, or if the number of ranks changes a bit then.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/json.h"
#include "base/test_folder.h"
#include "parallel/ranks.h"
#include "tests/tiny_run.h"
#include "train/complete_config.h"
#include "train/trainer.h"

namespace moraine {
namespace {

using namespace testing;

class Targets : public ::testing::Test {
 protected:
  Targets() : tiny(folder.file("tiny")) {}
  RunConfig config(const std::string& data, int64_t steps) const {
    RunConfig c = tiny.config(
        "[train]\nslots = 4\nsequence = 16\nbatch_tokens = 64\nthreads = 1\n"
        "dtype = \"f32\"\nsteps = " +
        std::to_string(steps) +
        "\n[optimizer]\nlearning_rate = 0.01\n[checkpoint]\nevery_steps = 100\n");
    if (data.empty()) return c;
    c.data.train = {{data, 1}};
    for (PhaseConfig& phase : c.phases) phase.train = c.data.train;
    return c;
  }
  TestFolder folder;
  TinyRun tiny;
};

// Rows of four slots, one sequence each; `is_target(slot, row)`.
using IsTarget = std::function<bool(int64_t slot, int64_t row)>;

struct Stepped {
  StepResult result;
  std::vector<float> before, after, gradients;
  double z = 0;
};

Stepped step_once(const RunConfig& partial, const IsTarget& is_target) {
  const RunConfig config = complete_config(posix_file_system(), partial);
  const Timeline timeline(config);
  Pool pool(1);
  Arena arena(Arena::Mode::kReal);
  PlannedRanks alone;
  Trainer trainer(arena, pool, config, timeline, alone.ranks());
  trainer.initialize(7);
  trainer.refresh();
  const StepPlan plan = timeline.at(0);
  const auto read = [&](int64_t first, int64_t count, SequenceBatch* out) {
    out->tokens.clear(), out->targets.clear(), out->segment_begin.clear();
    out->num_targets = 0;
    for (int64_t s = first; s < first + count; ++s) {
      out->segment_begin.push_back(static_cast<int64_t>(out->tokens.size()));
      for (int64_t i = 0; i < plan.sequence; ++i) {
        const bool target = is_target(s, i);
        out->tokens.push_back(static_cast<int32_t>((s * 31 + i * 7) % 250));
        out->targets.push_back(target ? static_cast<int32_t>((s * 31 + i * 7 + 7) % 250) : -1);
        out->num_targets += target;
      }
    }
  };
  const auto copy = [](const Tensor& t) {
    return std::vector<float>(t.as<float>(), t.as<float>() + t.count());
  };
  SpikeDetector spike(3);
  Stepped s;
  s.before = copy(trainer.master());
  s.result = trainer.step(plan, 1, read, spike);
  s.after = copy(trainer.master());
  s.gradients = copy(trainer.gradients());
  return s;
}

TEST_F(Targets, TheMeanIsOverTargetsAlone) {
  const RunConfig c = config("", 4);
  const Stepped all = step_once(c, [](int64_t, int64_t) { return true; });
  EXPECT_EQ(all.result.targets, 64);
  // Each slot alone has the mean over its own; together they are the mean over all.
  double sum = 0;
  for (int64_t slot = 0; slot < 4; ++slot) {
    const Stepped one = step_once(c, [&](int64_t s, int64_t) { return s == slot; });
    EXPECT_EQ(one.result.targets, 16);
    EXPECT_TRUE(std::isfinite(one.result.loss));
    EXPECT_FALSE(one.result.bad);
    EXPECT_NE(one.before, one.after);
    sum += one.result.loss / 4;
  }
  EXPECT_NEAR(sum, all.result.loss, 1e-6);
  // What a row is not asked for, it does not pull at: gradients of targets add up.
  const Stepped even = step_once(c, [](int64_t, int64_t row) { return row % 2 == 0; }),
                odd = step_once(c, [](int64_t, int64_t row) { return row % 2 == 1; });
  EXPECT_EQ(even.result.targets + odd.result.targets, 64);
  double different = 0, size = 0;
  for (size_t i = 0; i < all.gradients.size(); ++i) {
    const double d =
        double{even.gradients[i]} + double{odd.gradients[i]} - double{all.gradients[i]};
    different += d * d;
    size += double{all.gradients[i]} * double{all.gradients[i]};
  }
  EXPECT_LT(std::sqrt(different), 1e-4 * std::sqrt(size));
}

TEST_F(Targets, AStepWithoutAnyMovesNothing) {
  const Stepped none = step_once(config("", 4), [](int64_t, int64_t) { return false; });
  EXPECT_EQ(none.result.targets, 0);
  EXPECT_TRUE(std::isnan(none.result.loss));
  EXPECT_FALSE(none.result.bad);
  EXPECT_EQ(none.before, none.after);
}

// Long documents whose last bytes alone are to be learnt: most sequences have no target, and some steps.
TEST_F(Targets, SparseMarksOnAnyNumberOfRanks) {
  std::string lines;
  for (int i = 0; i < 12; ++i)
    lines += std::string(90 + 7 * i, static_cast<char>('a' + i)) + "!?\n";
  write_file(folder.file("sparse.jsonl"), lines);
  BuildOptions options;
  options.inputs = {folder.file("sparse.jsonl")};
  options.out = folder.file("sparse");
  options.meaning = {
      .vocabulary_size = kByteVocabulary, .eos_id = 256, .tokenizer_hash = hash_bytes("bytes", 5)};
  options.encode_line = [](std::string_view line, EncodedLine* encoded) {
    for (const char c : line) {
      encoded->tokens.push_back(static_cast<uint8_t>(c));
      encoded->is_target.push_back(c == '!' || c == '?');
    }
    encoded->source_bytes = static_cast<int64_t>(line.size());
  };
  Pool pool(1);
  build_dataset(posix_file_system(), pool, options);
  const RunConfig c = config(folder.file("sparse"), 60);
  const Outcome one = tiny.train(c, tiny.out("one"));
  ASSERT_TRUE(one.result) << one.hash();
  EXPECT_NE(one.log.find("of them targets"), std::string::npos);
  for (const int ranks : {2, 4})
    EXPECT_EQ(tiny.train_on(ranks, c, tiny.out(std::to_string(ranks))).hash(), one.hash());
  // Stopped in the middle, gone on with.
  ASSERT_FALSE(tiny.train_steps(c, tiny.out("stopped"), 23).result);
  EXPECT_EQ(tiny.train(c, tiny.out("stopped")).hash(), one.hash());

  int64_t without = 0, last = -1, most = 0;
  double first_loss = NAN, last_loss = NAN;
  const std::string metrics = posix_file_system().read(tiny.out("one") + "/metrics.jsonl");
  for (size_t begin = 0; begin < metrics.size();) {
    const size_t end = metrics.find('\n', begin);
    const Json line = parse_json(metrics.substr(begin, end - begin));
    begin = end + 1;
    last = line["targets"].get<int64_t>();
    most = std::max(most, last);
    EXPECT_EQ(line["loss"].is_null(), last == 0);
    without += last == 0;
    if (last == 0) continue;
    if (std::isnan(first_loss)) first_loss = line["loss"].get<double>();
    last_loss = line["loss"].get<double>();
  }
  EXPECT_GT(without, 0);
  EXPECT_LE(most, 8);
  EXPECT_LT(last_loss, 0.5 * first_loss);  // "!" and "?" are soon learnt
}

}  // namespace
}  // namespace moraine
