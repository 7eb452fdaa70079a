// Fails if a filter keeps another set than its definition, the draw is not that of the kept probabilities, or it
// depends on anything but (seed, position).
#include "infer/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "infer/gumbel.h"

namespace moraine {
namespace {

std::vector<float> make_logits(uint64_t seed, size_t n) {
  std::vector<float> logits(n);
  for (size_t i = 0; i < n; ++i)
    logits[i] = static_cast<float>(8 * random_uniform(seed, Stream::kTest, 0, i) - 4);
  if (seed % 3 == 0) {  // many ties
    for (float& x : logits) x = std::round(x);
  }
  return logits;
}

// The definition, id by id.
std::set<int32_t> allowed(const std::vector<float>& logits, const SamplingOptions& o) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  if (o.top_k > 0 && o.top_k < static_cast<int64_t>(order.size()))
    order.resize(static_cast<size_t>(o.top_k));
  double total = 0, sum = 0;
  const auto weight = [&](int32_t id) {
    return std::exp((static_cast<double>(logits[static_cast<size_t>(id)]) -
                     logits[static_cast<size_t>(order[0])]) /
                    o.temperature);
  };
  for (const int32_t id : order) total += weight(id);
  std::set<int32_t> kept;
  for (const int32_t id : order) {
    if (!kept.empty() && (sum >= o.top_p * total || weight(id) < o.min_p)) break;
    kept.insert(id);
    sum += weight(id);
  }
  return kept;
}

TEST(Gumbel, ALeastWordLeavesOutNoWordOfEnoughNoiseAndFewOthers) {
  for (uint64_t i = 0; i < 2000; ++i) {
    // Words near all sizes of noise, the largest too.
    const uint64_t word = ~(random_bits(1, Stream::kTest, 0, i) >> (i % 64));
    const double noise = gumbel(word);
    EXPECT_LE(least_word(noise), word) << noise;
    EXPECT_LE(least_word(std::nextafter(noise, -INFINITY)), word) << noise;
    const double more = noise + 0.5;
    if (more < 3 || more > 34) continue;
    EXPECT_GT(least_word(more), word) << noise;
  }
  EXPECT_EQ(least_word(0), 0u);
  EXPECT_EQ(least_word(-INFINITY), 0u);
  EXPECT_EQ(least_word(NAN), 0u);
  EXPECT_GT(least_word(INFINITY), UINT64_MAX - (uint64_t{1} << 13));
}

// The last of all words would round to a uniform of 1, and noise without end.
TEST(Gumbel, EveryWordHasFiniteNoiseWithinItsBound) {
  for (int bit = 0; bit < 64; ++bit) {
    for (const uint64_t word :
         {uint64_t{1} << bit, ~(uint64_t{1} << bit), ~uint64_t{0} << bit, ~uint64_t{0} >> bit}) {
      EXPECT_TRUE(std::isfinite(gumbel(word))) << word;
      EXPECT_LE(gumbel(word), most_gumbel(word)) << word;
    }
  }
}

TEST(Sampler, GreedyIsTheFirstLargest) {
  EXPECT_EQ(sample_token(std::vector<float>{1, 3, 2, 3}, {.temperature = 0}, 0), 1);
  EXPECT_EQ(sample_token(std::vector<float>{5}, {.temperature = 1}, 9), 0);
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const std::vector<float> logits = make_logits(seed, 1 + seed % 97);
    const int32_t want =
        static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    const int64_t position = static_cast<int64_t>(seed);
    EXPECT_EQ(sample_token(logits, {.temperature = 0}, position), want);
    EXPECT_EQ(sample_token(logits, {.temperature = 1, .top_k = 1, .seed = seed}, position), want);
    EXPECT_EQ(sample_token(logits, {.temperature = 1, .top_p = 1e-12, .seed = seed}, position),
              want);
    // As cold as can be said: among equals any, but never a lesser one.
    for (const double cold : {1e-9, 1e-300, std::numeric_limits<double>::denorm_min()}) {
      const int32_t got = sample_token(logits, {.temperature = cold, .seed = seed}, position);
      EXPECT_EQ(logits[static_cast<size_t>(got)], logits[static_cast<size_t>(want)]) << cold;
    }
  }
}

TEST(Sampler, DrawsOnlyFromTheDefinedSetAndFromAllOfIt) {
  const std::vector<SamplingOptions> options = {
      {.top_k = 3},
      {.top_p = 0.5},
      {.min_p = 0.2},
      {.top_k = 5, .top_p = 0.9},
      {.top_k = 4, .min_p = 0.1},
      {.temperature = 0.5, .top_p = 0.8, .min_p = 0.05},
      {.temperature = 3, .top_k = 6, .top_p = 0.7, .min_p = 0.3},
      {.min_p = 1}};
  for (uint64_t seed = 0; seed < 24; ++seed) {
    const std::vector<float> logits = make_logits(seed, 12);
    for (SamplingOptions o : options) {
      o.seed = seed;
      const std::set<int32_t> want = allowed(logits, o);
      std::set<int32_t> seen;
      for (int64_t position = 0; position < 1500; ++position)
        seen.insert(sample_token(logits, o, position));
      EXPECT_TRUE(std::includes(want.begin(), want.end(), seen.begin(), seen.end())) << seed;
      double smallest = 1, total = 0;
      for (const int32_t id : want)
        total += std::exp(logits[static_cast<size_t>(id)] / o.temperature);
      for (const int32_t id : want)
        smallest =
            std::min(smallest, std::exp(logits[static_cast<size_t>(id)] / o.temperature) / total);
      if (smallest > 0.01) {
        EXPECT_EQ(seen, want) << seed;  // missed by chance: (1 - 0.01)^1500 < 1e-6
      }
    }
  }
}

TEST(Sampler, FrequenciesAreTheProbabilities) {
  const std::vector<float> logits = make_logits(1, 8);
  constexpr int64_t kDraws = 40000;
  const SamplingOptions o{.temperature = 1.7, .seed = 11};
  std::vector<double> count(logits.size());
  for (int64_t position = 0; position < kDraws; ++position)
    count[static_cast<size_t>(sample_token(logits, o, position))] += 1;
  double total = 0;
  for (const float x : logits) total += std::exp(x / o.temperature);
  for (size_t i = 0; i < logits.size(); ++i) {
    const double p = std::exp(logits[i] / o.temperature) / total,
                 deviation = std::sqrt(p * (1 - p) * kDraws);
    EXPECT_NEAR(count[i], p * kDraws, 5 * deviation) << i;
  }
}

TEST(Sampler, IsAFunctionOfSeedAndPosition) {
  const std::vector<float> logits = make_logits(1, 300);
  std::vector<int32_t> a, b, other_seed;
  for (int64_t position = 0; position < 64; ++position)
    a.push_back(sample_token(logits, {.seed = 1}, position));
  for (int64_t position = 63; position >= 0; --position)
    b.push_back(sample_token(logits, {.seed = 1}, position));
  for (int64_t position = 0; position < 64; ++position)
    other_seed.push_back(sample_token(logits, {.seed = 2}, position));
  std::reverse(b.begin(), b.end());
  EXPECT_EQ(a, b);
  EXPECT_NE(a, other_seed);
  EXPECT_GT(std::set<int32_t>(a.begin(), a.end()).size(), 20u);
  // A filter that keeps all changes nothing.
  for (int64_t position = 0; position < 64; ++position) {
    EXPECT_EQ(sample_token(logits, {.top_k = 300, .top_p = 1, .min_p = 1e-30, .seed = 1}, position),
              a[static_cast<size_t>(position)]);
  }
}

// A model that diverged: any id of the vocabulary, no crash, and not the one that is no number if others are.
TEST(Sampler, LogitsThatAreNoNumbers) {
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              inf = std::numeric_limits<float>::infinity();
  for (const SamplingOptions& o :
       {SamplingOptions{.temperature = 0}, SamplingOptions{}, SamplingOptions{.top_k = 5},
        SamplingOptions{.top_p = 0.5}, SamplingOptions{.min_p = 0.5}}) {
    std::vector<float> logits(1000, nan);
    int32_t got = sample_token(logits, o, 0);
    EXPECT_TRUE(got >= 0 && got < 1000);
    for (size_t i = 0; i < logits.size(); i += 3) logits[i] = static_cast<float>(i % 17);
    got = sample_token(logits, o, 0);
    EXPECT_EQ(got % 3, 0);
    std::fill(logits.begin(), logits.end(), -inf);
    got = sample_token(logits, o, 0);
    EXPECT_TRUE(got >= 0 && got < 1000);
    logits[7] = 0;
    EXPECT_EQ(sample_token(logits, o, 0), 7);
    logits[9] = inf;
    EXPECT_EQ(sample_token(logits, o, 0), 9);
  }
}

TEST(Sampler, OptionsOutOfRangeAreNamed) {
  const auto expect = [](const SamplingOptions& o, const char* name) {
    try {
      check_sampling(o, 10);
      ADD_FAILURE() << name;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::kInvalidArgument);
      EXPECT_EQ(std::string(e.what()).rfind(name, 0), 0u) << e.what();
      EXPECT_NE(std::string(e.what()).find("allowed is"), std::string::npos);
    }
  };
  check_sampling({}, 10);
  expect({.temperature = -1}, "temperature = -1");
  expect({.temperature = NAN}, "temperature = nan");
  expect({.temperature = 101}, "temperature = 101");
  expect({.top_k = -1}, "top_k = -1");
  expect({.top_p = 0}, "top_p = 0");
  expect({.top_p = 1.1}, "top_p = 1.1");
  expect({.top_p = NAN}, "top_p = nan");
  expect({.min_p = -0.1}, "min_p = -0.1");
  expect({.min_p = 2}, "min_p = 2");
  expect({.min_p = NAN}, "min_p = nan");
  expect({.choice = -1}, "choice = -1");
  expect({.repetition_penalty = 0}, "repetition_penalty = 0");
  expect({.repetition_penalty = NAN}, "repetition_penalty = nan");
  expect({.presence_penalty = 101}, "presence_penalty = 101");
  expect({.frequency_penalty = NAN}, "frequency_penalty = nan");
  expect({.logit_bias = {{3, 101}}}, "logit_bias = 101");
  const SamplingOptions outside = {.logit_bias = {{10, 1}}};
  EXPECT_THROW(check_sampling(outside, 10), Error);
  check_sampling(outside, 11);
}

TEST(Sampler, PenaltiesAndBiasesChangeLogitsAsWritten) {
  TokenCounts counts;
  counts.add_prompt(0);
  counts.add_prompt(1);
  for (const int32_t id : {1, 2, 2}) counts.add_answer(id);
  std::vector<float> logits = {2, -3, 4, 5, 6};
  adjust_logits(logits,
                {.repetition_penalty = 2,
                 .presence_penalty = 0.5,
                 .frequency_penalty = 0.25,
                 .logit_bias = {{4, -6}, {2, 1}}},
                counts);
  EXPECT_EQ(logits, (std::vector<float>{1, -6.75, 2, 5, 0}));
}

TEST(Sampler, AMaskedTokenIsNeverDrawn) {
  std::vector<float> logits(130, 0.0f);
  logits[7] = 50;
  std::vector<uint64_t> mask = {0, uint64_t{1} << 5, 2};
  mask_logits(logits, mask);
  int64_t seen[2] = {0, 0};
  for (int64_t position = 0; position < 200; ++position) {
    for (const double top_p : {1.0, 0.9}) {
      const int32_t id = sample_token(logits, {.top_p = top_p, .seed = 3}, position);
      ASSERT_TRUE(id == 69 || id == 129) << id;
      ++seen[id == 129];
    }
  }
  EXPECT_GT(seen[0], 100);
  EXPECT_GT(seen[1], 100);
}

TEST(Sampler, ChoicesOfOneSeedDiffer) {
  const std::vector<float> logits(1000, 0.0f);
  std::vector<int32_t> first;
  for (int64_t choice = 0; choice < 8; ++choice)
    first.push_back(sample_token(logits, {.seed = 11, .choice = choice}, 5));
  std::sort(first.begin(), first.end());
  EXPECT_EQ(std::unique(first.begin(), first.end()), first.end());
  EXPECT_EQ(sample_token(logits, {.seed = 11}, 5),
            sample_token(logits, {.seed = 11, .choice = 0}, 5));
}

// The shortcut of the draw skips no winner: every id scored, one by one, gives the same token.
TEST(Sampler, IsTheArgMaxOfAllScores) {
  std::vector<float> logits(3000);
  for (int64_t position = 0; position < 100; ++position) {
    for (size_t i = 0; i < logits.size(); ++i)
      logits[i] = static_cast<float>(
          3 * random_normal(1, Stream::kTest, static_cast<uint64_t>(position), i));
    const double temperature = position % 2 == 0 ? 1 : 0.3;
    const float top = *std::max_element(logits.begin(), logits.end());
    int32_t want = -1;
    double most = -INFINITY;
    for (size_t i = 0; i < logits.size(); ++i) {
      const double u = random_uniform(9, Stream::kSample, static_cast<uint64_t>(position), i);
      const double score =
          (static_cast<double>(logits[i]) - static_cast<double>(top)) / temperature -
          std::log(-std::log(u));
      if (score > most) most = score, want = static_cast<int32_t>(i);
    }
    EXPECT_EQ(sample_token(logits, {.temperature = temperature, .seed = 9}, position), want);
  }
}

}  // namespace
}  // namespace moraine
