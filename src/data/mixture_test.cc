// Mixture: shares are kept at every n, and look-up agrees with counting.
#include "data/mixture.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/random.h"

namespace moraine {
namespace {

std::vector<double> random_weights(uint64_t seed) {
  const uint64_t sources = 1 + random_below(12, seed, Stream::kTest, 0, 0);
  std::vector<double> weights;
  for (uint64_t i = 0; i < sources; ++i) {
    const double u = random_uniform(seed, Stream::kTest, 1, i);
    weights.push_back(seed % 2 == 0 ? u : std::exp(-12 * u));  // even, or over five decades
  }
  return weights;
}

TEST(MixtureTest, EveryPrefixIsInProportion) {
  double worst = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const Mixture mixture(random_weights(seed));
    const size_t sources = random_weights(seed).size();
    std::vector<int64_t> drawn(sources, 0);
    for (int64_t n = 0; n < 5000; ++n) {
      ASSERT_EQ(mixture.counts(n), drawn) << "seed " << seed << " n " << n;
      for (size_t i = 0; i < sources; ++i) {
        const int64_t s = static_cast<int64_t>(i);
        const double error =
            std::abs(static_cast<double>(drawn[i]) - static_cast<double>(n) * mixture.weight(s));
        ASSERT_LE(error, mixture.error_bound(s) + 1e-6)
            << "seed " << seed << " n " << n << " source " << i;
        worst = std::max(worst, error);
      }
      const Mixture::Draw draw = mixture.at(n);
      ASSERT_EQ(draw.index, drawn[static_cast<size_t>(draw.source)]++);
    }
  }
  EXPECT_LE(worst, 1.5);
  RecordProperty("worst_count_error", std::to_string(worst));
}

TEST(MixtureTest, EqualWeightsTakeTurns) {
  const Mixture mixture({1, 1, 1, 1});
  for (int64_t n = 0; n < 400; n += 4) EXPECT_EQ(mixture.counts(n), std::vector<int64_t>(4, n / 4));
}

TEST(MixtureTest, FarPlacesAreReachedAtOnce) {
  const Mixture mixture({0.7, 0.2, 0.1});
  const int64_t n = int64_t{1} << 52;
  const std::vector<int64_t> before = mixture.counts(n), after = mixture.counts(n + 1);
  const Mixture::Draw draw = mixture.at(n);
  EXPECT_EQ(draw.index, before[static_cast<size_t>(draw.source)]);
  EXPECT_EQ(after[static_cast<size_t>(draw.source)], draw.index + 1);
  EXPECT_EQ(before[0] + before[1] + before[2], n);
  EXPECT_NEAR(static_cast<double>(before[1]) / static_cast<double>(n), 0.2, 1e-12);
}

TEST(MixtureTest, BadWeightsAreRefused) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const std::vector<double>& weights : std::vector<std::vector<double>>{
           {}, {0}, {1, -1}, {std::nan("")}, {1, inf}, {1e308, 1e308}}) {
    EXPECT_THROW(Mixture{weights}, Error);
  }
  EXPECT_EQ(Mixture({1e-300, 1}).at(5).source, 1);
}

}  // namespace
}  // namespace moraine
