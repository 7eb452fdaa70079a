// Fails if variants do not ask for the base's flops, a width is not where a neighbour would be farther off, or what
// cannot be compared is.
#include "study/equal_compute.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "model/parameters.h"
#include "model/training_flops.h"

namespace moraine {
namespace {

const char* const kBase =
    "[model]\nvocab_size = 512\nhidden = 64\nlayers = 2\nheads = 4\nkv_heads = 2\nhead_dim = 16\n"
    "experts = 8\nexpert_hidden = 256\nrouter_hidden = 16\n[data]\ntrain = \"none\"\nvalid = "
    "\"none\"\n[train]\nslots = 2\nsequence = 64\nbatch_tokens = 256\nsteps = 100\n";

std::vector<StudyConfig> compute(const std::vector<std::string>& vary,
                                 const BudgetOptions& options = {},
                                 const std::string& text = kBase) {
  return equal_compute(read_run_config, SettingsTable::parse(text, "base.toml"),
                       read_variants(vary, {}), options);
}

TEST(TrainingFlops, CountWeightsAndVisibleKeys) {
  ModelConfig c;
  c.vocab_size = 512, c.hidden = 64, c.layers = 2, c.heads = 4, c.kv_heads = 2, c.head_dim = 16;
  const double weights = 6 * static_cast<double>(count_parameters(c).active);
  EXPECT_DOUBLE_EQ(training_flops(c, 1), weights + 12 * 64 * 2 * 1);
  EXPECT_DOUBLE_EQ(training_flops(c, 64), weights + 12 * 64 * 2 * 32.5);
  c.sliding_window = 8, c.sliding_layers = {1};
  EXPECT_DOUBLE_EQ(training_flops(c, 64), weights + 12 * 64 * (32.5 + (36 + 56 * 8) / 64.0));
  c.sliding_window = 100;
  EXPECT_DOUBLE_EQ(training_flops(c, 64), weights + 12 * 64 * 2 * 32.5);
}

TEST(EqualCompute, WidthsBringEveryVariantToTheBase) {
  const std::vector<StudyConfig> all =
      compute({"model.attention=cca,gqa", "model.router=linear", "model.experts_per_token=2",
               "model.experts=0", "model.residual=plain", "optimizer.matrices=adamw"});
  ASSERT_EQ(all.size(), 7u);  // attention=cca is the base
  const double wanted = all[0].token_flops;
  EXPECT_EQ(all[0].steps, 100);
  for (const StudyConfig& s : all) {
    EXPECT_NEAR(s.token_flops / wanted, 1, kMostOff) << s.variant.name;
    // What is left is made up by the number of tokens, to half a batch.
    EXPECT_LE(std::abs(s.total_flops - all[0].total_flops), 128.001 * s.token_flops);
    EXPECT_EQ(s.tokens, s.steps * 256);
    if (s.config.model.expert_hidden == 256) continue;
    for (const int64_t other : {-8, 8}) {
      ModelConfig next = s.config.model;
      next.expert_hidden += other;
      EXPECT_GE(std::abs(training_flops(next, 64) - wanted), std::abs(s.token_flops - wanted));
    }
  }
  EXPECT_EQ(all[3].config.model.expert_hidden, 128);  // two experts of half the width
  EXPECT_EQ(all[6].config.model.expert_hidden, 256);  // AdamW asks for no other shape
}

TEST(EqualCompute, TheBudgetAndTheWidthAreChoices) {
  const double flops = compute({"model.attention=gqa"})[0].total_flops;
  const auto twice = compute({"model.attention=gqa"}, {.flops = 2 * flops});
  EXPECT_EQ(twice[0].steps, 200);
  std::string wide = kBase;
  wide.replace(wide.find("hidden = 64"), 11, "hidden = 512");
  const auto hidden =
      compute({"model.experts_per_token=2"}, {.match = MatchedWidth::kHidden}, wide);
  EXPECT_EQ(hidden[1].config.model.expert_hidden, 256);
  EXPECT_LT(hidden[1].config.model.hidden, 512);
  const auto none = compute({"model.expert_hidden=128"}, {.match = MatchedWidth::kNone});
  EXPECT_GT(none[1].steps, 100);  // fewer flops a token, more tokens
  EXPECT_NEAR(none[1].total_flops / flops, 1, 0.01);
}

TEST(EqualCompute, WhatCannotBeComparedIsRefused) {
  EXPECT_THROW(compute({"model.expert_hidden=128"}), Error);  // it is the width that matches
  EXPECT_THROW(compute({"model.hidden=1024"}), Error);        // no width of experts makes up for it
  EXPECT_THROW(compute({"model.heads=3"}), Error);
  EXPECT_THROW(compute({"model.atention=gqa"}), Error);
  EXPECT_THROW(compute({"report.valid_every_steps=0"}), Error);
  std::string text = kBase;
  EXPECT_THROW(compute({"model.attention=gqa"}, {}, text.replace(text.find("valid"), 5, "#")),
               Error);
  EXPECT_THROW(
      compute({"model.attention=gqa"}, {}, std::string(kBase) + "[[phase]]\ntokens = 256\n"),
      Error);
  EXPECT_EQ(compute({"model.attention=cca"}).size(), 1u);
}

TEST(EqualCompute, ABudgetThatNoRunCanCountIsRefused) {
  EXPECT_EQ(compute({"model.experts_per_token=2"}, {.flops = 1e12}).size(), 2u);
  try {
    compute({"model.experts_per_token=2"}, {.flops = 1e29});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kInvalidArgument);
    EXPECT_NE(std::string(e.what()).find("tokens; the limit is 1e+18"), std::string::npos)
        << e.what();
  }
}

}  // namespace
}  // namespace moraine
