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
#include "testing/rig.h"

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

// Every short, with the smallest and the largest word that begin with it.
TEST(Gumbel, AShortBoundsTheNoiseOfItsWords) {
  for (uint32_t i = 0; i < 0x10000; ++i) {
    const auto upper = static_cast<uint16_t>(i);
    const uint64_t first = uint64_t{i} << 48, last = first | (~uint64_t{0} >> 16);
    const double least = gumbel(first), most = gumbel(last);
    ASSERT_TRUE(std::isfinite(least) && std::isfinite(most)) << i;
    ASSERT_LE(most, most_gumbel(upper)) << i;
    if (i > 0x8000 && i < 0xffff) {
      ASSERT_GT(most + 1.1, most_gumbel(upper)) << i;
    }
    // No word of as much noise is left out, and of those with less few.
    ASSERT_LE(least_short(most), upper) << i;
    ASSERT_LE(least_short(std::nextafter(most, -INFINITY)), upper) << i;
    if (least < 1 || i > 0xff00) continue;
    ASSERT_GT(least_short(most + 0.35), upper) << i;
  }
  EXPECT_EQ(least_short(0), 0u);
  EXPECT_EQ(least_short(-INFINITY), 0u);
  EXPECT_EQ(least_short(NAN), 0u);
  EXPECT_EQ(least_short(50), 0xffffu);
  EXPECT_EQ(least_short(INFINITY), 0xffffu);
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

// The definition, id by id, over the logits that are numbers.
int32_t arg_max_of_all(const std::vector<float>& logits, double temperature, uint64_t seed,
                       int64_t position) {
  float top = -INFINITY;
  for (const float x : logits) top = x > top ? x : top;
  int32_t best = -1;
  double most = -INFINITY;
  for (size_t i = 0; i < logits.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    if (std::isnan(logits[i])) continue;
    const uint64_t word = draw_word(seed, position, id, draw_short(seed, position, id));
    const double ratio =
        logits[i] == top
            ? 0
            : (static_cast<double>(logits[i]) - static_cast<double>(top)) / temperature;
    const double score = ratio - std::log(-std::log(uniform_of_bits(word)));
    if (score > most) most = score, best = id;
  }
  return best;
}

// Logits of which the shortcut of the draw could go wrong.
std::vector<float> hard_logits(uint64_t kind, double temperature, uint64_t seed, int64_t position) {
  std::vector<float> logits(1 + 391 * (kind + static_cast<uint64_t>(position)) % 3000);
  for (size_t i = 0; i < logits.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    const double normal = random_normal(kind, Stream::kTest, static_cast<uint64_t>(position), i),
                 noise = gumbel(draw_word(seed, position, id, draw_short(seed, position, id)));
    const double values[] = {
        3 * normal,
        0,                                     // all equal
        100 * normal,                          // one far above the others
        std::round(normal),                    // many ties
        -temperature * noise,                  // all scores equal, but for rounding to f32
        -temperature * noise + 1e-6 * normal,  // nearly
        i % 3 == 0 ? normal : -INFINITY,       // masked
        i % 5 == 0 ? NAN : normal,             // of a model that diverged
        i / 64 % 2 == 0 ? normal - 40 * temperature
                        : normal,  // runs that are out of reach but for a word in 2^53
        -temperature * std::log(1 + static_cast<double>(i)),
    };
    logits[i] = static_cast<float>(values[kind]);
  }
  return logits;
}

// The shortcut of the draw skips no winner: every id scored, one by one, gives the same token.
TEST(Sampler, IsTheArgMaxOfAllScores) {
  testing::for_each_isa([](Isa) {
    for (uint64_t kind = 0; kind < 10; ++kind) {
      for (int64_t position = 0; position < 24; ++position) {
        const double temperature = std::vector<double>{1, 0.3, 100, 1e-3}[position % 4];
        const std::vector<float> logits = hard_logits(kind, temperature, 9, position);
        const int32_t want = arg_max_of_all(logits, temperature, 9, position);
        const SamplingOptions o = {.temperature = temperature, .seed = 9};
        if (want >= 0) {
          ASSERT_EQ(sample_token(logits, o, position), want) << kind << " at " << position;
        }
      }
    }
  });
}

}  // namespace
}  // namespace moraine
