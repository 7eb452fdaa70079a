// Fails if a draw over all logits gives a token that was left out, or another one than the draw among those that were
// kept, whatever the logits are within their intervals; or if far more is kept than could win.
#include "infer/candidates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/random.h"

namespace moraine {
namespace {

// Random numbers of one case.
class Dice {
 public:
  explicit Dice(uint64_t seed) : seed_(seed) {}
  uint64_t below(uint64_t n) { return random_below(n, seed_, Stream::kTest, 7, next_++); }
  double uniform() { return random_uniform(seed_, Stream::kTest, 7, next_++); }
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[below(values.size())];
  }

 private:
  const uint64_t seed_;
  uint64_t next_ = 0;
};

struct Intervals {
  std::vector<float> lower, upper;
};

// Around logits of any spread, some of them equal; widths that differ by token, sometimes none, sometimes one that
// is larger than all others.
Intervals make_intervals(Dice& dice, size_t V) {
  const double spread = dice.one_of({0.0, 1e-3, 1.0, 4.0, 30.0, 1e6}),
               width = dice.one_of({0.0, 1e-4, 0.1, 2.0});
  const bool rounded = dice.below(3) == 0;
  const size_t wide = dice.below(4) == 0 ? dice.below(V) : V;
  Intervals to;
  for (size_t v = 0; v < V; ++v) {
    double center = spread * (2 * dice.uniform() - 1);
    if (rounded) center = std::round(center);
    const double reach = v == wide ? 10 * spread : width * dice.uniform();
    to.lower.push_back(static_cast<float>(center - reach));
    to.upper.push_back(static_cast<float>(center + reach));
  }
  return to;
}

// Logits within them: one end, the other, either, or between.
std::vector<float> choose_within(Dice& dice, const Intervals& l) {
  const uint64_t kind = dice.below(5);
  std::vector<float> logits;
  for (size_t v = 0; v < l.lower.size(); ++v) {
    const double part = kind == 0   ? 0
                        : kind == 1 ? 1
                        : kind == 2 ? static_cast<double>(dice.below(2))
                                    : dice.uniform();
    const double value =
        static_cast<double>(l.lower[v]) * (1 - part) + static_cast<double>(l.upper[v]) * part;
    logits.push_back(std::clamp(static_cast<float>(value), l.lower[v], l.upper[v]));
  }
  return logits;
}

SamplingOptions make_options(Dice& dice, size_t V) {
  SamplingOptions o;
  o.temperature = dice.one_of({0.0, 0.0, 1e-300, 1e-6, 0.3, 1.0, 1.0, 2.0, 100.0});
  o.seed = dice.below(5);
  o.choice = static_cast<int64_t>(dice.below(3));
  if (dice.below(3) == 0) o.top_k = 1 + static_cast<int64_t>(dice.below(V - 1));
  if (o.top_k > 0 && dice.below(2) == 0) o.top_p = dice.one_of({1e-9, 0.5, 0.95});
  if (dice.below(3) == 0) o.min_p = dice.one_of({1e-6, 0.05, 0.5, 1.0});
  if (dice.below(3) == 0) o.repetition_penalty = dice.one_of({0.01, 0.5, 1.3, 100.0});
  if (dice.below(3) == 0) o.presence_penalty = dice.one_of({-100.0, 0.7, 3.0});
  if (dice.below(3) == 0) o.frequency_penalty = dice.one_of({-2.0, 0.1});
  while (dice.below(3) != 0)
    o.logit_bias.emplace_back(static_cast<int32_t>(dice.below(V)), 200 * dice.uniform() - 100);
  return o;
}

// What the engine does to logits before a draw.
struct Changes {
  SamplingOptions options;
  TokenCounts counts;
  std::vector<uint64_t> mask;

  void apply(std::vector<float>& logits) const {
    adjust_logits(logits, options, counts);
    if (!mask.empty()) mask_logits(logits, mask);
  }
};

Changes make_changes(Dice& dice, size_t V) {
  Changes c;
  c.options = make_options(dice, V);
  for (size_t i = 0; c.options.penalizes() && i < 12; ++i) {
    const auto id = static_cast<int32_t>(dice.below(V));
    dice.below(2) == 0 ? c.counts.add_prompt(id) : c.counts.add_answer(id);
  }
  if (dice.below(3) != 0) return c;
  c.mask.resize((V + 63) / 64);
  const uint64_t part = dice.one_of<uint64_t>({2, 10, V});  // one in so many may come
  for (size_t v = 0; v < V; ++v) {
    if (dice.below(part) == 0) c.mask[v / 64] |= uint64_t{1} << (v % 64);
  }
  return c;
}

TEST(Candidates, HoldTheDrawOfEveryLogitsWithinTheIntervals) {
  int64_t masked = 0, kept = 0, all = 0;
  for (uint64_t seed = 0; seed < 12000; ++seed) {
    SCOPED_TRACE(seed);
    Dice dice(seed);
    const size_t V = 2 + dice.below(300);
    const Intervals plain = make_intervals(dice, V);
    const Changes changes = make_changes(dice, V);
    ASSERT_TRUE(has_candidates(changes.options, static_cast<int64_t>(V)));
    Intervals changed = plain;
    changes.apply(changed.lower);
    changes.apply(changed.upper);
    const auto position = static_cast<int64_t>(dice.below(1000));
    const std::vector<int32_t> ids =
        find_candidates({changed.lower, changed.upper}, changes.options, position);
    ASSERT_TRUE(std::is_sorted(ids.begin(), ids.end()));
    masked += ids.empty();
    kept += static_cast<int64_t>(ids.size());
    all += static_cast<int64_t>(V);
    for (int i = 0; i < 3 && !ids.empty(); ++i) {
      std::vector<float> logits = choose_within(dice, plain);
      changes.apply(logits);
      const int32_t want = sample_token(logits, changes.options, position);
      for (size_t v = 0; v < V; ++v) {  // what was left out must not be read
        if (!std::binary_search(ids.begin(), ids.end(), static_cast<int32_t>(v)))
          logits[v] = std::numeric_limits<float>::infinity();
      }
      ASSERT_EQ(sample_among(ids, logits, changes.options, position), want)
          << "T=" << changes.options.temperature << " top_k=" << changes.options.top_k
          << " top_p=" << changes.options.top_p << " min_p=" << changes.options.min_p;
    }
  }
  EXPECT_GT(masked, 0);
  EXPECT_LT(kept, all / 2);
}

// Many tokens whose intervals touch the best: the lowest id of those that are equal wins, as over all logits.
TEST(Candidates, OfEqualLogitsTheLowestIdWins) {
  const std::vector<float> lower(100, -1.0f), upper(100, 1.0f);
  std::vector<float> logits(100, 0.0f);
  logits[0] = logits[1] = -1.0f;
  for (const double temperature : {0.0, 1e-300}) {
    const SamplingOptions o = {.temperature = temperature, .top_k = temperature > 0};
    const std::vector<int32_t> ids = find_candidates({lower, upper}, o, 3);
    EXPECT_EQ(ids.size(), 100u);
    EXPECT_EQ(sample_among(ids, logits, o, 3), 2);
    EXPECT_EQ(sample_token(logits, o, 3), 2);
  }
}

TEST(Candidates, NarrowIntervalsLeaveFew) {
  std::vector<float> lower, upper;
  for (size_t v = 0; v < 10000; ++v) {
    const auto logit = static_cast<float>(random_normal(1, Stream::kTest, 0, v));
    lower.push_back(logit - 0.01f);
    upper.push_back(logit + 0.01f);
  }
  const auto count = [&](const SamplingOptions& o) {
    return find_candidates({lower, upper}, o, 5).size();
  };
  EXPECT_LE(count({.temperature = 0}), 3u);
  EXPECT_LE(count({.temperature = 1}), 8u);
  EXPECT_LE(count({.temperature = 0.5, .top_k = 40}), 60u);
  EXPECT_GE(count({.temperature = 0.5, .top_k = 40}), 40u);
  EXPECT_LE(count({.temperature = 0.2, .min_p = 0.1}), 200u);
}

TEST(Candidates, WhatNeedsTheSumOverAllTokensHasNone) {
  EXPECT_TRUE(has_candidates({}, 100));
  EXPECT_TRUE(has_candidates({.temperature = 0, .top_p = 0.5}, 100));
  EXPECT_FALSE(has_candidates({.top_p = 0.5}, 100));
  EXPECT_FALSE(has_candidates({.top_p = 0.5, .min_p = 0.1}, 100));
  EXPECT_TRUE(has_candidates({.top_k = 99, .top_p = 0.5}, 100));
  EXPECT_FALSE(has_candidates({.top_k = 100}, 100));
  EXPECT_TRUE(has_candidates({.min_p = 1e-6}, 100));
  EXPECT_FALSE(has_candidates({.min_p = 1e-7}, 100));
}

TEST(Candidates, OfMaskedTokensThereAreNone) {
  const std::vector<float> none(70, -std::numeric_limits<float>::infinity());
  for (const SamplingOptions& o : {SamplingOptions{.temperature = 0}, SamplingOptions{},
                                   SamplingOptions{.top_k = 3}, SamplingOptions{.min_p = 0.5}}) {
    EXPECT_TRUE(find_candidates({none, none}, o, 1).empty());
  }
}

}  // namespace
}  // namespace moraine
