// Fails if a draw from a head in two stages is not the draw from all logits, on any instruction set, alone or in
// company; if two stages are taken where all logits are wanted or nothing bounds them; or if they never are.
#include "infer/head_pass.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "base/error.h"
#include "base/random.h"
#include "base/test_folder.h"
#include "infer/engine.h"
#include "infer/test_wide_model.h"
#include "model/loaded_model.h"
#include "model/write_model.h"
#include "testing/places.h"
#include "testing/rig.h"

namespace moraine {
namespace {

using testing::for_each_isa;
using testing::Rig;
using testing::WideModel;

constexpr DType kTypes[] = {DType::kF32, DType::kBF16};

int64_t draw(uint64_t below, uint64_t seed, uint64_t index) {
  return static_cast<int64_t>(random_below(below, seed, Stream::kTest, 11, index));
}

// Options that two stages can serve.
SamplingOptions make_sampling(uint64_t seed, int64_t V) {
  SamplingOptions o;
  constexpr double kTemperatures[] = {0, 0, 0.7, 1, 1.5};
  o.temperature = kTemperatures[draw(5, seed, 0)];
  o.seed = static_cast<uint64_t>(draw(3, seed, 1));
  o.choice = draw(3, seed, 2);
  if (draw(4, seed, 3) == 0) o.top_k = 1 + draw(12, seed, 4);
  if (o.top_k > 0 && draw(2, seed, 5) == 0) o.top_p = 0.9;
  if (draw(5, seed, 6) == 0) o.min_p = 0.1;
  if (draw(4, seed, 7) == 0) o.repetition_penalty = 1.4;
  if (draw(4, seed, 8) == 0) o.presence_penalty = 0.9;
  if (draw(4, seed, 9) == 0)
    o.logit_bias.emplace_back(static_cast<int32_t>(draw(static_cast<uint64_t>(V), seed, 10)), 2.5);
  return o;
}

// Rows to draw from, with what the draws need.
struct Draws {
  Draws(Rig& rig, const WideModel& m, uint64_t seed) {
    const int64_t n = 1 + draw(5, seed, 20), V = m.config.vocab_size;
    const double size = 0.3 * std::pow(2.0, static_cast<double>(draw(6, seed, 21)));
    hidden = rig.normal({n, m.config.hidden}, m.model->options().compute, seed, size);
    for (int64_t i = 0; i < n; ++i) {
      const uint64_t row = seed * 100 + static_cast<uint64_t>(i);
      sampling.push_back(make_sampling(row, V));
      counts.emplace_back();
      for (uint64_t k = 0; k < 20; ++k)
        counts.back().add_answer(static_cast<int32_t>(draw(static_cast<uint64_t>(V), row, 30 + k)));
      mask.emplace_back();
      if (draw(4, row, 22) != 0) continue;
      for (int64_t word = 0; word < (V + 63) / 64; ++word)
        mask.back().push_back(random_bits(row, Stream::kTest, 1, static_cast<uint64_t>(word)));
    }
  }

  std::vector<HeadRow> rows() const {
    std::vector<HeadRow> all;
    for (size_t i = 0; i < sampling.size(); ++i)
      all.push_back({.all = false,
                     .position = static_cast<int64_t>(40 + i),
                     .sampling = &sampling[i],
                     .counts = &counts[i],
                     .mask = mask[i]});
    return all;
  }

  // As the engine draws.
  std::vector<int32_t> tokens(HeadPass& head) const {
    const Tensor logits = head.run(hidden, rows());
    const auto V = static_cast<size_t>(logits.dims[1]);
    std::vector<int32_t> tokens;
    for (size_t i = 0; i < sampling.size(); ++i) {
      std::vector<float> values(logits.as<float>() + i * V, logits.as<float>() + (i + 1) * V);
      adjust_logits(values, sampling[i], counts[i]);
      if (!mask[i].empty()) mask_logits(values, mask[i]);
      const auto position = static_cast<int64_t>(40 + i);
      const std::span<const int32_t> among = head.candidates(static_cast<int64_t>(i));
      tokens.push_back(among.empty() ? sample_token(values, sampling[i], position)
                                     : sample_among(among, values, sampling[i], position));
    }
    return tokens;
  }

  Tensor hidden;
  std::vector<SamplingOptions> sampling;
  std::vector<TokenCounts> counts;
  std::vector<std::vector<uint64_t>> mask;
};

// A head on a model, with the memory that it takes.
struct Head {
  explicit Head(WideModel& m) : pass(arena, m.ctx, *m.model) {}
  Arena arena{Arena::Mode::kReal};
  HeadPass pass;
};

TEST(HeadPass, DrawsAreThoseOfAllLogits) {
  for_each_isa([](Isa cap) {
    for (const DType dtype : kTypes) {
      WideModel two(dtype, true), one(dtype, false);
      int64_t staged = 0, panels = 0, panels_all = 0;
      for (uint64_t seed = 0; seed < 60; ++seed) {
        SCOPED_TRACE(::testing::Message()
                     << isa_name(cap) << " " << dtype_name(dtype) << " seed " << seed);
        Rig rig;
        Head stages(two), full(one);  // anew, so that none rests
        const Draws draws(rig, two, seed);
        EXPECT_EQ(draws.tokens(stages.pass), draws.tokens(full.pass));
        const HeadStats& s = stages.pass.stats();
        EXPECT_EQ(s.two_stage + s.full, 1);
        EXPECT_EQ(s.rows_full + s.rows_two_stage, full.pass.stats().rows_full);
        staged += s.two_stage;
        panels += s.panels;
        panels_all += s.panels_all;
      }
      EXPECT_GT(staged, 30);
      EXPECT_LT(panels, panels_all / 2);
    }
  });
}

int64_t arg_max(const Tensor& logits) {
  const float* l = logits.as<float>();
  return std::max_element(l, l + logits.count()) - l;
}

// `count` words from `begin` on become `base`, two of three with five weights moved by less than 8 bits hold, and
// as many words behind them become the same once more.
void make_alike(const WideModel& m, const Tensor& base, int64_t begin, int64_t count,
                uint64_t seed) {
  const int64_t D = m.config.hidden;
  for (int64_t v = begin; v < begin + count; ++v) {
    float* word = m.embedding.as<float>() + v * D;
    std::copy_n(base.as<float>(), D, word);
    const uint64_t at = seed + 100 * static_cast<uint64_t>(v);
    for (uint64_t i = 1; i <= 5 && draw(3, at, 0) > 0; ++i)
      word[draw(static_cast<uint64_t>(D), at, i)] *=
          1 + (draw(2, at, 9 + i) == 0 ? 0x1p-7f : -0x1p-7f);
    std::copy_n(word, D, word + count * D);
  }
}

// 200 words that hardly differ, half of them not at all, and a row that asks for them: their coarse logits say nothing
// of their order, and the exact ones decide it, the lowest of equal words first.
TEST(HeadPass, WordsThatRoundAlikeAreToldApart) {
  for_each_isa([](Isa cap) {
    for (const DType dtype : kTypes) {
      WideModel m(dtype, true);
      const auto V = static_cast<size_t>(m.config.vocab_size);
      int64_t misled = 0, equal = 0;
      for (uint64_t seed = 0; seed < 12; ++seed) {
        SCOPED_TRACE(::testing::Message()
                     << isa_name(cap) << " " << dtype_name(dtype) << " seed " << seed);
        Rig rig;
        const Tensor base = rig.normal({1, m.config.hidden}, DType::kF32, seed, 0.3),
                     hidden = rig.copy_as(base, dtype);
        make_alike(m, base, 1000, 100, seed);
        m.model->refresh(m.ctx);
        const Tensor logits = rig.copy(m.model->logits(m.ctx, hidden));
        const int64_t most = arg_max(logits);
        misled += arg_max(m.model->coarse_logits(m.ctx, hidden)) != most;
        equal +=
            std::count(logits.as<float>(), logits.as<float>() + V, logits.as<float>()[most]) > 1;
        const TokenCounts counts;
        for (const double temperature : {0.0, 1e-5, 0.01, 1.0}) {
          Head head(m);
          const SamplingOptions o = {.temperature = temperature, .seed = seed};
          const HeadRow rows[] = {{.all = false, .position = 3, .sampling = &o, .counts = &counts}};
          const Tensor some = head.pass.run(hidden, rows);
          ASSERT_EQ(head.pass.stats().two_stage, 1);
          EXPECT_EQ(sample_among(head.pass.candidates(0), {some.as<float>(), V}, o, 3),
                    sample_token({logits.as<float>(), V}, o, 3))
              << temperature;
        }
      }
      EXPECT_GT(misled, 3);
      EXPECT_EQ(equal, 12);
    }
  });
}

TEST(HeadPass, TakesAllLogitsWhereItMust) {
  WideModel m(DType::kF32, true);
  Head head(m);
  Rig rig;
  const Tensor hidden = rig.normal({2, m.config.hidden}, DType::kF32, 1);
  const TokenCounts counts;
  const SamplingOptions greedy = {.temperature = 0}, nucleus = {.top_p = 0.9};
  const std::vector<uint64_t> nothing(static_cast<size_t>((m.config.vocab_size + 63) / 64));
  const HeadRow plain = {.all = false, .position = 3, .sampling = &greedy, .counts = &counts};
  HeadRow all = plain, sums = plain, masked = plain;
  all.all = true;
  sums.sampling = &nucleus;
  masked.mask = nothing;
  const auto is_full = [&](const HeadRow& first, const HeadRow& second) {
    const int64_t before = head.pass.stats().full;
    const HeadRow rows[] = {first, second};
    const Tensor logits = head.pass.run(hidden, rows), want = rig.copy(logits);
    if (head.pass.stats().full == before) return false;
    EXPECT_TRUE(head.pass.candidates(0).empty() && head.pass.candidates(1).empty());
    EXPECT_SAME_BITS(m.model->logits(m.ctx, hidden), want);
    return true;
  };
  EXPECT_FALSE(is_full(plain, plain));
  EXPECT_TRUE(is_full(plain, all));
  EXPECT_TRUE(is_full(sums, plain));
  EXPECT_TRUE(is_full(plain, masked));
  EXPECT_FALSE(is_full(plain, plain));
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 1e20f}) {
    const float before = hidden.as<float>()[5];
    hidden.as<float>()[5] = bad;
    EXPECT_TRUE(is_full(plain, plain)) << bad;
    hidden.as<float>()[5] = before;
  }
  EXPECT_FALSE(is_full(plain, plain));
}

// A row without a direction has 5003 equal logits: the first stage decides nothing, and is not tried for a while.
TEST(HeadPass, RestsAfterAFirstStageThatDecidedNothing) {
  WideModel m(DType::kF32, true);
  Head head(m);
  Rig rig;
  const Tensor flat = rig.zeros({1, m.config.hidden}, DType::kF32),
               row = rig.normal({1, m.config.hidden}, DType::kF32, 1);
  const TokenCounts counts;
  const SamplingOptions greedy = {.temperature = 0};
  const HeadRow rows[] = {{.all = false, .position = 3, .sampling = &greedy, .counts = &counts}};
  head.pass.run(flat, rows);
  EXPECT_EQ(head.pass.stats().abandoned, 1);
  EXPECT_TRUE(head.pass.candidates(0).empty());
  for (int i = 0; i < 15; ++i) head.pass.run(row, rows);
  EXPECT_EQ(head.pass.stats().full, 16);
  head.pass.run(row, rows);
  EXPECT_EQ(head.pass.stats().two_stage, 1);
  EXPECT_EQ(head.pass.stats().abandoned, 1);
}

// An answer of an engine.
struct Heard {
  std::vector<int32_t> tokens;
  std::vector<double> logprobs;
  bool operator==(const Heard&) const = default;
};

Request make_request(uint64_t seed, int64_t V) {
  Request r;
  const int64_t length = 1 + draw(30, seed, 40);
  for (int64_t i = 0; i < length; ++i)
    r.prompt.push_back(
        static_cast<int32_t>(draw(static_cast<uint64_t>(V), seed, 50 + static_cast<uint64_t>(i))));
  r.max_tokens = 1 + draw(20, seed, 41);
  r.sampling = make_sampling(seed, V);
  if (draw(8, seed, 42) == 0) r.sampling.top_p = 0.8;
  r.logprobs = draw(8, seed, 43) == 0;
  return r;
}

// All at once, or one after the other.
std::map<uint64_t, Heard> answers(WideModel& m, uint64_t requests, bool together,
                                  HeadStats* stats) {
  Engine engine(m.ctx, *m.model, m.cache, nullptr, {.sequences = 16});
  std::map<uint64_t, Heard> heard;
  for (uint64_t seed = 0; seed < requests; ++seed) {
    Listener listener;
    listener.on_token = [&heard, seed](const TokenPiece& piece) {
      const double logprob = piece.score.chosen.logprob;
      heard[seed].tokens.push_back(piece.score.chosen.token);
      heard[seed].logprobs.push_back(std::isnan(logprob) ? 1 : logprob);  // 1: nobody asked
    };
    engine.submit(make_request(seed, m.config.vocab_size), listener);
    while (!together && engine.step()) continue;
  }
  while (engine.step()) continue;
  *stats = engine.stats().head;
  return heard;
}

TEST(HeadPass, AnswersOfAnEngineAreThoseOfAFullHeadAloneAndInCompany) {
  for_each_isa([](Isa cap) {
    for (const DType dtype : kTypes) {
      SCOPED_TRACE(::testing::Message() << isa_name(cap) << " " << dtype_name(dtype));
      WideModel two(dtype, true), one(dtype, false);
      HeadStats full, alone, company;
      const std::map<uint64_t, Heard> want = answers(one, 12, false, &full);
      EXPECT_EQ(want.size(), 12u);
      EXPECT_EQ(answers(two, 12, false, &alone), want);
      EXPECT_EQ(answers(two, 12, true, &company), want);
      EXPECT_EQ(full.two_stage, 0);
      EXPECT_GT(alone.two_stage, alone.full);
      EXPECT_GT(company.full, 0);
      EXPECT_EQ(alone.rows_two_stage + alone.rows_full, full.rows_full);
    }
  });
}

TEST(HeadPass, IsPlannedAndChosenByName) {
  const ModelDirectory tiny =
      ModelDirectory::open(posix_file_system(), testing::source_path("tests/golden/native-tiny"));
  const auto copies = [&](const char* head) {
    LoadOptions o;
    o.head = head;
    int64_t bytes = 0;
    for (const Arena::Entry& e : LoadedModel::plan(tiny, o)->arena().entries())
      bytes += e.name == "head.coarse" ? e.bytes : 0;
    return bytes;
  };
  EXPECT_EQ(copies("full"), 0);
  EXPECT_EQ(copies("auto"), 0);  // a head that any cache holds
  EXPECT_EQ(copies("two-stage"), 320 / 32 * (32 * 128 + 64));
  LoadOptions o;
  o.host_free = LoadedModel::plan(tiny, o)->arena().bytes();
  EXPECT_EQ(LoadedModel::check_memory(tiny, o), "full");
  o.head = "two-stage";  // the copy is counted
  EXPECT_THROW(LoadedModel::check_memory(tiny, o), Error);
  o.host_free = LoadedModel::plan(tiny, o)->arena().bytes();
  EXPECT_EQ(LoadedModel::check_memory(tiny, o), "two-stage");
  try {
    copies("half");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kInvalidArgument);
    EXPECT_NE(std::string(e.what()).find("head half"), std::string::npos) << e.what();
  }
}

TEST(HeadPass, AutoHasNoCopyThatThereIsNoRoomFor) {
  const testing::TestFolder folder;
  ModelConfig c;
  c.vocab_size = 1 << 18, c.hidden = 64, c.layers = 1, c.heads = 2, c.kv_heads = 2, c.head_dim = 16;
  c.experts = 2, c.expert_hidden = 32, c.router_hidden = 8;
  const auto zeros = [](int64_t, const Tensor& out) {
    std::memset(out.data, 0, static_cast<size_t>(out.bytes()));
  };
  write_model_directory(
      posix_file_system(), folder.file("m"),
      {.config = c, .weights = zeros, .dtype = DType::kBF16, .language_files = {}});
  const ModelDirectory directory = ModelDirectory::open(posix_file_system(), folder.file("m"));
  LoadOptions o;
  o.dtype = "f32";
  o.threads = 1;
  o.positions = 64;
  o.head = "auto";
  o.host_free = LoadedModel::plan(directory, o)->arena().bytes();
  EXPECT_EQ(LoadedModel::check_memory(directory, o), "two-stage");
  --o.host_free;
  EXPECT_EQ(LoadedModel::check_memory(directory, o), "full");
  EXPECT_TRUE(LoadedModel::open(directory, o)->model().coarse_head().empty());
}

}  // namespace
}  // namespace moraine
