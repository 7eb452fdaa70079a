// Epoch plans: every target once, dense sequences, another order each epoch, the same order each
// time.
#include "data/epoch_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/heartbeat.h"
#include "base/random.h"

namespace moraine {
namespace {

enum class Lengths { kMixed, kLong, kShort, kAwkward, kTiny };

std::vector<int64_t> begins_of(Lengths kind, uint64_t seed, int64_t documents, int64_t S) {
  std::vector<int64_t> begins = {0};
  for (int64_t d = 0; d < documents; ++d) {
    const double u = random_uniform(seed, Stream::kTest, 0, static_cast<uint64_t>(d));
    const double z = random_normal(seed, Stream::kTest, 1, static_cast<uint64_t>(d));
    const double s = static_cast<double>(S);
    double n = 0;
    switch (kind) {
      case Lengths::kMixed:
        n = s * 0.3 * std::exp(1.2 * z);
        break;  // log-normal, as web pages are
      case Lengths::kLong:
        n = s * (1 + 20 * u);
        break;
      case Lengths::kShort:
        n = s * 0.05 * u;
        break;
      case Lengths::kAwkward:
        n = s * (0.51 + 0.2 * u);
        break;  // no two fit together
      case Lengths::kTiny:
        n = 3 * u;
        break;  // 0, 1 and 2 tokens
    }
    begins.push_back(begins.back() + static_cast<int64_t>(n));
  }
  return begins;
}

// The property everything rests on. Returns the targets as sorted (token) positions.
void expect_partition(const EpochPlan& plan, const std::vector<int64_t>& begins, int64_t S) {
  std::vector<uint8_t> is_target(static_cast<size_t>(begins.back()) + 1, 0);
  int64_t positions = 0;
  for (int64_t i = 0; i < plan.num_sequences(); ++i) {
    int64_t filled = 0;
    for (const Piece& piece : plan.pieces_of(i)) {
      ASSERT_GT(piece.positions, 0);
      filled += piece.positions;
      // All covered tokens lie in one document.
      const auto after = std::upper_bound(begins.begin(), begins.end(), piece.token_begin);
      ASSERT_NE(after, begins.end());
      ASSERT_LE(piece.token_begin + piece.positions + 1, *after);
      for (int64_t t = 1; t <= piece.positions; ++t) {
        ASSERT_EQ(is_target[static_cast<size_t>(piece.token_begin + t)]++, 0);
      }
    }
    ASSERT_LE(filled, S);
    ASSERT_GT(filled, 0);
    positions += filled;
  }
  for (size_t d = 0; d + 1 < begins.size(); ++d) {
    for (int64_t t = begins[d]; t < begins[d + 1]; ++t) {
      ASSERT_EQ(is_target[static_cast<size_t>(t)], t == begins[d] ? 0 : 1) << "token " << t;
    }
  }
  EXPECT_EQ(plan.positions, positions);
}

TEST(EpochPlanTest, EveryTargetExactlyOnce) {
  for (const Lengths kind :
       {Lengths::kMixed, Lengths::kLong, Lengths::kShort, Lengths::kAwkward, Lengths::kTiny}) {
    for (uint64_t seed = 0; seed < 6; ++seed) {
      for (const int64_t S : {1, 2, 7, 64, 256}) {
        const std::vector<int64_t> begins = begins_of(kind, seed, 200, S);
        for (const bool pack : {true, false}) {
          SCOPED_TRACE(::testing::Message()
                       << "kind " << int(kind) << " seed " << seed << " S " << S);
          expect_partition(plan_epoch(begins, {.sequence = S, .seed = seed, .pack = pack}, 3),
                           begins, S);
        }
      }
    }
  }
}

TEST(EpochPlanTest, SequencesAreDenseWhateverTheLengths) {
  for (const Lengths kind : {Lengths::kMixed, Lengths::kLong, Lengths::kShort, Lengths::kAwkward}) {
    const int64_t S = 512;
    const std::vector<int64_t> begins = begins_of(kind, 1, 20000, S);
    const EpochPlan plan = plan_epoch(begins, {.sequence = S, .seed = 1}, 0);
    EXPECT_GT(plan.efficiency(), 0.97) << "kind " << int(kind);
    const std::string name = "kind" + std::to_string(int(kind));
    RecordProperty(name + "_efficiency", std::to_string(plan.efficiency()));
    RecordProperty(name + "_packing_cuts", std::to_string(plan.packing_cuts));
    // Mixed lengths hardly need cutting: far fewer cuts than one per sequence, which plain
    // concatenation makes.
    if (kind == Lengths::kMixed || kind == Lengths::kShort) {
      EXPECT_LT(plan.packing_cuts, plan.num_sequences() / 20);
    }
    int64_t sparse = 0;
    for (int64_t i = 0; i < plan.num_sequences(); ++i) {
      int64_t filled = 0;
      for (const Piece& piece : plan.pieces_of(i)) filled += piece.positions;
      sparse += (S - filled) * kHoleShare > S;
    }
    EXPECT_LE(sparse, 1);  // the epoch's last
  }
}

TEST(EpochPlanTest, AFunctionOfSeedAndEpoch) {
  const std::vector<int64_t> begins = begins_of(Lengths::kMixed, 2, 500, 64);
  const auto tokens = [&](uint64_t seed, int64_t epoch) {
    std::vector<int64_t> order;
    for (const Piece& p : plan_epoch(begins, {.sequence = 64, .seed = seed}, epoch).pieces) {
      order.push_back(p.token_begin);
    }
    return order;
  };
  EXPECT_EQ(tokens(5, 7), tokens(5, 7));
  EXPECT_NE(tokens(5, 7), tokens(5, 8));
  EXPECT_NE(tokens(5, 7), tokens(6, 7));
}

TEST(EpochPlanTest, LongDocumentsAreCutElsewhereEachEpoch) {
  const std::vector<int64_t> begins = {0, 1001};
  std::vector<int64_t> first_cuts;
  for (int64_t epoch = 0; epoch < 200; ++epoch) {
    const EpochPlan plan = plan_epoch(begins, {.sequence = 100, .seed = 1, .pack = false}, epoch);
    for (const Piece& piece : plan.pieces) {
      if (piece.token_begin == 0) first_cuts.push_back(piece.positions);
    }
  }
  ASSERT_EQ(first_cuts.size(), 200u);
  std::sort(first_cuts.begin(), first_cuts.end());
  EXPECT_GE(first_cuts.front(), 1);
  EXPECT_LE(first_cuts.back(), 100);
  const auto different = std::unique(first_cuts.begin(), first_cuts.end()) - first_cuts.begin();
  EXPECT_GT(different, 70);  // 200 draws of 100 leave 87 different ones on average, deviation 3
}

TEST(EpochPlanTest, OrderIsWellMixed) {
  // Sequences of one document each: the place of document d must not correlate with d.
  const int64_t D = 4000;
  std::vector<int64_t> begins;
  for (int64_t d = 0; d <= D; ++d) begins.push_back(d * 65);
  const EpochPlan plan = plan_epoch(begins, {.sequence = 64, .seed = 3}, 0);
  ASSERT_EQ(plan.num_sequences(), D);
  double covariance = 0;
  for (int64_t i = 0; i < D; ++i) {
    const double d =
        static_cast<double>(plan.pieces_of(i)[0].token_begin / 65) - 0.5 * double(D - 1);
    covariance += d * (static_cast<double>(i) - 0.5 * double(D - 1));
  }
  const double n = static_cast<double>(D), correlation = covariance / (n * (n * n - 1) / 12);
  EXPECT_LT(std::abs(correlation), 5 / std::sqrt(n));  // five standard deviations
}

TEST(EpochPlanTest, DocumentsMeetOthersEachEpoch) {
  // 64 short documents to a sequence: neighbours in the dataset must not stay together.
  std::vector<int64_t> begins;
  for (int64_t d = 0; d <= 3200; ++d) begins.push_back(d * 5);
  const auto together = [&](int64_t epoch) {  // pairs (d, d + 1) in one sequence
    const EpochPlan plan = plan_epoch(begins, {.sequence = 256, .seed = 1}, epoch);
    std::vector<int64_t> home(3200);
    for (int64_t i = 0; i < plan.num_sequences(); ++i) {
      for (const Piece& piece : plan.pieces_of(i))
        home[static_cast<size_t>(piece.token_begin / 5)] = i;
    }
    int64_t pairs = 0;
    for (size_t d = 0; d + 1 < home.size(); ++d) pairs += home[d] == home[d + 1];
    return pairs;
  };
  // By chance one pair in 50 sequences: 64 expected, deviation 8.
  for (int64_t epoch = 0; epoch < 3; ++epoch)
    EXPECT_NEAR(static_cast<double>(together(epoch)), 64, 40);
}

TEST(EpochPlanTest, LengthsDoNotFollowTheOrder) {
  // Best-fit decreasing emits long pieces first; the last shuffle must undo that.
  const std::vector<int64_t> begins = begins_of(Lengths::kMixed, 4, 4000, 256);
  const EpochPlan plan = plan_epoch(begins, {.sequence = 256, .seed = 4}, 0);
  const int64_t half = plan.num_sequences() / 2;
  const double first = static_cast<double>(plan.sequence_begin[static_cast<size_t>(half)]);
  const double all = static_cast<double>(plan.pieces.size());
  EXPECT_NEAR(first / all, 0.5, 0.06);
}

// A watcher would take the plan of a large dataset for a hang.
TEST(EpochPlanTest, PlanningIsHeard) {
  const std::vector<int64_t> begins = {0, 10, 25, 30};
  const uint64_t before = heartbeat().beats;
  plan_epoch(begins, {.sequence = 16}, 0);
  EXPECT_GT(heartbeat().beats, before);
}

TEST(EpochPlanTest, NothingToPlan) {
  EXPECT_EQ(plan_epoch(std::vector<int64_t>{0}, {.sequence = 8}, 0).num_sequences(), 0);
  EXPECT_EQ(plan_epoch(std::vector<int64_t>{0, 0, 1, 2}, {.sequence = 8}, 0).num_sequences(), 0);
  EXPECT_EQ(plan_epoch(std::vector<int64_t>{0, 0, 1, 3}, {.sequence = 8}, 0).num_sequences(), 1);
}

}  // namespace
}  // namespace moraine
