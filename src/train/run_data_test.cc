// RunData: fails if a phase does not go on where the one before left a dataset, rollbacks or not, if starting a run
// counts its epochs, or if a dataset that changed before its phase is trained on.
#include "train/run_data.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "base/test_folder.h"
#include "data/test_dataset.h"

namespace moraine {
namespace {

constexpr TokenMeaning kMeaning{.vocabulary_size = 1000, .eos_id = 0, .tokenizer_hash = {1, 2}};

class RunDataTest : public ::testing::Test {
 protected:
  std::string make(const std::string& name, int32_t first) {
    const std::string path = folder_.file(name);
    testing::write_dataset(fs_, path, kMeaning, {{40, 9, 33}, 2, [&](int64_t d, int64_t t) {
                                                   return first + static_cast<int32_t>(100 * d + t);
                                                 }});
    return path;
  }
  static RunConfig config(const std::vector<PhaseConfig>& phases) {
    RunConfig c;
    c.train.slots = 1;
    c.train.sequence = 8;
    c.train.batch_tokens = 16;
    c.phases = phases;
    return c;
  }

  FileSystem& fs_ = posix_file_system();
  testing::TestFolder folder_;
};

TEST_F(RunDataTest, APhaseGoesOnWhereADatasetWasLeft) {
  const std::string a = make("a", 1), b = make("b", 500);
  const RunConfig c = config({{.tokens = 160, .train = {{a, 1}}},
                              {.tokens = 160, .train = {{b, 1}, {a, 2}}},
                              {.tokens = 160, .train = {{b, 1}}},
                              {.tokens = 160, .train = {{a, 1}}}});
  const Timeline timeline(c);
  const auto ends = [&](const RunData& data, int64_t phase) {
    return data.loader(phase).epochs_at(timeline.phase_sequences(phase));
  };
  const RunData data(fs_, c, timeline);
  EXPECT_EQ(data.loader(0).epochs_at(0), std::vector<double>{0});
  EXPECT_EQ(data.loader(1).epochs_at(0), (std::vector<double>{0, ends(data, 0)[0]}));
  EXPECT_EQ(data.loader(2).epochs_at(0), std::vector<double>{ends(data, 1)[0]});
  EXPECT_EQ(data.loader(3).epochs_at(0), std::vector<double>{ends(data, 1)[1]});
  EXPECT_GT(ends(data, 1)[1], ends(data, 0)[0]);
  // Whoever begins with the last phase, as a resumed run does, is at the same place.
  const RunData late(fs_, c, timeline);
  EXPECT_EQ(late.loader(3).epochs_at(20), data.loader(3).epochs_at(20));
  EXPECT_EQ(late.hash(), data.hash());
  // A dataset is what is in it, wherever it lies: a run that goes on may find a later phase's copy elsewhere.
  std::filesystem::copy(a, folder_.file("copy"), std::filesystem::copy_options::recursive);
  RunConfig moved = c;
  moved.phases[3].train[0].path = folder_.file("copy");
  const RunData elsewhere(fs_, moved, timeline);
  EXPECT_EQ(elsewhere.hash(), data.hash());
  EXPECT_EQ(elsewhere.loader(3).epochs_at(20), data.loader(3).epochs_at(20));
}

// Also if the later phase was looked at before the rollback, as a step looks ahead.
TEST_F(RunDataTest, WhatRollbacksLeftOutIsBehindTheNextPhaseToo) {
  const std::string a = make("a", 1);
  const RunConfig c = config({{.tokens = 160, .train = {{a, 1}}},
                              {.tokens = 160, .train = {{a, 1}}},
                              {.tokens = 160, .train = {{a, 1}}}});
  const Timeline timeline(c);
  RunData data(fs_, c, timeline);
  const double quiet = data.loader(2).epochs_at(0)[0];
  const auto tokens = [&](int64_t step) {
    SequenceBatch batch;
    data.read(timeline.at(step), 0, 2, &batch);
    return batch.tokens;
  };
  const std::vector<int32_t> third = tokens(2), first_of_next = tokens(10);
  data.skip({{0, 4}, {1, 6}});
  EXPECT_EQ(tokens(0), third);  // a step has two sequences
  EXPECT_EQ(data.loader(1).epochs_at(0), data.loader(0).epochs_at(24));
  EXPECT_EQ(data.loader(2).epochs_at(0), data.loader(1).epochs_at(26));
  EXPECT_GT(data.loader(2).epochs_at(0)[0], quiet);
  data.skip({});
  EXPECT_EQ(data.loader(2).epochs_at(0)[0], quiet);
  EXPECT_EQ(tokens(10), first_of_next);
}

// The run went from the second phase back into the first, and then had to go back there too: the first now ends
// later, but not with what the second left out.
TEST_F(RunDataTest, WhatALaterPhaseLeftOutIsNotReadByAnEarlierOne) {
  const std::string a = folder_.file("a");
  const std::vector<int64_t> lengths(40, 20);
  testing::write_dataset(fs_, a, kMeaning, {lengths, 10, [&](int64_t d, int64_t t) {
                                              return static_cast<int32_t>(1 + 20 * d + t);
                                            }});
  const auto sequences = [&](const RunData& data, const Timeline& timeline) {
    std::vector<std::vector<int32_t>> all;
    SequenceBatch batch;
    for (int64_t step = 0; step < timeline.steps(); ++step) {
      for (int64_t i = 0; i < 2; ++i) {
        data.read(timeline.at(step), i, 1, &batch);
        all.push_back(batch.tokens);
      }
    }
    return all;
  };
  const RunConfig one = config({{.tokens = 640, .train = {{a, 1}}}});
  const RunConfig three = config({{.tokens = 160, .train = {{a, 1}}},
                                  {.tokens = 160, .train = {{a, 1}}},
                                  {.tokens = 160, .train = {{a, 1}}}});
  const Timeline of_one(one), of_three(three);
  const auto stream = sequences(RunData(fs_, one, of_one), of_one);
  RunData data(fs_, three, of_three);
  // Numbers in `stream` of what is read: from each of these on, 60 in all.
  const auto expect_read = [&](const Skips& skips,
                               const std::vector<std::pair<size_t, size_t>>& parts) {
    data.skip(skips);
    std::vector<std::vector<int32_t>> expected;
    for (const auto& [from, count] : parts)
      for (size_t i = from; i < from + count; ++i) expected.push_back(stream[i]);
    EXPECT_EQ(sequences(data, of_three), expected);
  };
  expect_read({}, {{0, 60}});
  expect_read({{1, 6}}, {{0, 20}, {26, 40}});          // it left out 20 to 25
  expect_read({{1, 6}, {0, 4}}, {{4, 16}, {26, 44}});  // and 0 to 3
  expect_read({{0, 4}, {1, 6}}, {{4, 20}, {30, 40}});  // in this order 24 to 29
  expect_read({{1, 6}, {0, 4}, {1, 2}}, {{4, 16}, {26, 4}, {32, 40}});
  expect_read({{1, 6}, {0, 4}, {1, 2}, {0, 2}}, {{6, 14}, {26, 4}, {32, 42}});
  expect_read({{2, 6}, {1, 4}, {0, 2}}, {{2, 18}, {24, 16}, {46, 26}});
  expect_read({}, {{0, 60}});
}

// Of a mixture each dataset keeps what was left out of it.
TEST_F(RunDataTest, WhatALaterPhaseLeftOutOfAMixtureIsNotReadEither) {
  const std::string a = make("a", 1), b = make("b", 500);
  const RunConfig c =
      config({{.tokens = 64, .train = {{a, 1}}}, {.tokens = 160, .train = {{b, 1}, {a, 1}}}});
  const Timeline timeline(c);
  RunData data(fs_, c, timeline);
  const double first_end = data.loader(0).epochs_at(8)[0];
  const std::vector<double> second_end = data.loader(1).epochs_at(6);
  data.skip({{1, 6}, {0, 3}});
  EXPECT_EQ(data.loader(0).epochs_at(7)[0], RunData(fs_, c, timeline).loader(0).epochs_at(7)[0]);
  EXPECT_LT(data.loader(0).epochs_at(7)[0], first_end);
  EXPECT_EQ(data.loader(0).epochs_at(8)[0], second_end[1]);
  EXPECT_GT(data.loader(0).epochs_at(11)[0], second_end[1]);
  EXPECT_EQ(data.loader(1).epochs_at(0),
            (std::vector<double>{second_end[0], data.loader(0).epochs_at(11)[0]}));
}

// Ten thousand million epochs before the second phase: nobody counts them before they are read.
TEST_F(RunDataTest, ARunOfManyEpochsStarts) {
  const std::string a = make("a", 1);
  const RunConfig c = config(
      {{.tokens = 1'000'000'000'000, .train = {{a, 1}}}, {.tokens = 160, .train = {{a, 1}}}});
  const Timeline timeline(c);
  const RunData data(fs_, c, timeline);
  SequenceBatch batch;
  data.read(timeline.at(0), 0, 2, &batch);
  EXPECT_EQ(batch.tokens.size(), 16u);
}

TEST_F(RunDataTest, ADatasetThatChangedBeforeItsPhaseIsRefused) {
  const std::string a = make("a", 1);
  const RunConfig c =
      config({{.tokens = 160, .train = {{a, 1}}}, {.tokens = 160, .train = {{a, 1}}}});
  const Timeline timeline(c);
  const RunData data(fs_, c, timeline);
  fs_.remove_all(a);
  make("a", 2);
  try {
    data.loader(1);
    ADD_FAILURE() << "no Error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kCorrupt);
    EXPECT_NE(std::string(error.what()).find(a), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace moraine
