// Fails if a rule speaks where the numbers do not support it, is silent where they do, or names a setting that
// docs/configuration.md does not have.
#include "train/what_binds.h"

#include <gtest/gtest.h>

#include "base/file_system.h"
#include "testing/places.h"
#include "train/test_time_rows.h"

namespace moraine {
namespace {

using namespace testing;

Profile::Row phase(const char* name, double seconds, double seconds_whole) {
  return other(Span::kPhase, name, seconds, seconds_whole);
}

Profile::Row waiting(const char* name, double seconds) {
  return other(Span::kRanks, name, seconds, seconds);
}

// One second in all: `rows`, and products near their floor.
BindingFacts facts(std::vector<Profile::Row> rows) {
  double left = 1;
  for (const Profile::Row& row : rows) left -= row.seconds;
  rows.push_back(operation("products", left, 0.9e9 * left, 0));
  return {.rows = std::move(rows),
          .limits = kLimits,
          .token_seconds = {1, 1.05, 1, 1.1, 1, 1, 1, 1.02},
          .bf16 = true,
          .bf16_faster = true};
}

struct Case {
  const char* what;
  BindingFacts facts;
  std::vector<std::string> says;
};

std::vector<Case> cases() {
  std::vector<Case> all = {
      {"nothing but products", facts({}), {"arithmetic", "90%"}},
      {"data", facts({phase("data", 0.11, 0.11)}), {"loading data, 11%", "data.train"}},
      {"little data", facts({phase("data", 0.09, 0.09)}), {"arithmetic"}},
      {"checkpoints",
       facts({phase("checkpoint", 0.3, 0.3)}),
       {"checkpoints, 30%", "checkpoint.every_steps"}},
      {"validation",
       facts({phase("validation", 0.2, 0.2)}),
       {"validation, 20%", "report.valid_every_steps", "report.valid_tokens"}},
      {"samples",
       facts({phase("sample", 0.2, 0.2)}),
       {"samples, 20%", "report.sample_every_steps", "report.sample_tokens"}},
      {"gradients",
       facts({waiting("ranks: gradients (wait)", 0.2), waiting("ranks: counts", 0.05)}),
       {"other ranks, 25%", "`ranks: gradients (wait)`", "train.batch_tokens",
        "parallel.reduce_dtype"}},
      {"weights",
       facts({waiting("ranks: weights (gather)", 0.3)}),
       {"other ranks, 30%", "train.batch_tokens"}},
      {"rows", facts({waiting("ranks: rows to experts", 0.3)}), {"placement", "parallel.expert"}},
      {"guests", facts({waiting("ranks: guests (wait)", 0.3)}), {"parallel.placement_gate"}},
      {"keys",
       facts({waiting("ranks: keys (ring)", 0.3)}),
       {"other ranks", "parallel.context", "parallel.attention"}},
      {"late ranks", facts({waiting("ranks: votes", 0.3)}), {"not equally fast", "train.threads"}},
      {"little waiting", facts({waiting("ranks: counts", 0.19)}), {"arithmetic"}},
      {"optimizer",
       facts({phase("optimizer", 0, 0.26)}),
       {"the optimizer, 26%", "train.batch_tokens"}},
      {"recomputation",
       facts({phase("recompute", 0, 0.2)}),
       {"computed again, 20%", "train.recompute"}},
      {"between operations",
       facts({phase("forward", 0.15, 0.5), phase("backward", 0.1, 0.5)}),
       {"between operations, 25%", "train.batch_tokens"}},
      {"bytes", facts({operation("copies", 0.7, 0, 0.5e8)}), {"memory", "50%", "no setting"}},
      {"far from floors",
       facts({operation("copies", 0.8, 0, 1e6)}),
       {"beyond their floors", "`copies`, 79%", "train.sequence"}},
      {"far from floors, once a step",
       facts({operation("muon", 0.8, 1e6, 0)}),
       {"beyond their floors", "`muon`, 80%", "train.batch_tokens"}},
  };
  // The probe happens once: it is no part of what shares are of.
  all.push_back({"probe",
                 facts({phase("data", 0.06, 0.06), phase("storage", 0.5, 0.5)}),
                 {"loading data, 12%"}});
  all.push_back({"shared", facts({phase("data", 0.5, 0.5)}), {"something else", "train.threads"}});
  all.back().facts.token_seconds = {1, 1, 1, 2, 1, 3, 3, 1};
  all.push_back({"too few steps to tell", facts({}), {"arithmetic"}});
  all.back().facts.token_seconds = {1, 3, 1, 3};
  all.push_back({"threads", facts({}), {"1 of the 2 cores", "train.threads"}});
  all.back().facts.cores = 2;
  all.push_back({"f32", facts({}), {"f32, where bf16 is faster", "train.dtype"}});
  all.back().facts.bf16 = false;
  all.push_back({"f32 is as fast", facts({}), {"arithmetic"}});
  all.back().facts.bf16 = all.back().facts.bf16_faster = false;
  all.push_back({"bytes of f32", facts({operation("copies", 0.7, 0, 0.5e8)}), {"train.dtype"}});
  all.back().facts.bf16 = all.back().facts.bf16_faster = false;
  all.push_back({"cut slots",
                 facts({operation("copies", 0.7, 0, 0.5e8)}),
                 {"train.micro_sequences (1 of a slot's 4 sequences"}});
  all.back().facts.slot_sequences = 4;
  all.push_back({"many slots", facts({operation("copies", 0.7, 0, 0.5e8)}), {"lower train.slots"}});
  all.back().facts.slots = 8;
  return all;
}

TEST(WhatBinds, SaysWhatTheNumbersSay) {
  for (const Case& c : cases()) {
    const std::string sentence = what_binds(c.facts);
    EXPECT_EQ(sentence.find("what binds: "), 0u) << c.what;
    EXPECT_EQ(sentence.find('.', sentence.size() - 1), sentence.size() - 1) << c.what;
    for (const std::string& part : c.says)
      EXPECT_NE(sentence.find(part), std::string::npos) << c.what << ": " << sentence;
  }
}

// `train.slots` is a row `slots` of the table under `### [train]`.
bool documented(const std::string& page, const std::string& key) {
  const size_t dot = key.find('.'), begin = page.find("### [" + key.substr(0, dot) + "]");
  if (begin == std::string::npos) return false;
  const std::string table = page.substr(begin, page.find("\n### ", begin) - begin);
  return table.find("\n| `" + key.substr(dot + 1) + "` |") != std::string::npos;
}

TEST(WhatBinds, NamesSettingsThatThereAre) {
  const std::string page = posix_file_system().read(testing::source_path("docs/configuration.md"));
  const std::string of_name = "abcdefghijklmnopqrstuvwxyz_";
  int named = 0;
  for (const Case& c : cases()) {
    const std::string text = what_binds(c.facts);
    for (const char* table : {"train.", "data.", "report.", "parallel.", "checkpoint."}) {
      for (size_t at = text.find(table); at != std::string::npos; at = text.find(table, at + 1)) {
        const size_t end = text.find_first_not_of(of_name, at + std::string(table).size());
        EXPECT_TRUE(documented(page, text.substr(at, end - at))) << c.what << ": " << text;
        ++named;
      }
    }
  }
  EXPECT_GT(named, 20);
  EXPECT_FALSE(documented(page, "train.no_such_key"));
}

}  // namespace
}  // namespace moraine
