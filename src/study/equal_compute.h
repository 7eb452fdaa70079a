// EqualCompute: the configs of a study, with widths and lengths so that all of them ask for the same compute.
//
//   per token   training_flops (model/training_flops.h) of each variant is brought to the base's by one width,
//               in steps of 8: what a block costs more is taken from there
//   in all      what is left of a difference, below kMostOff, is made up by the number of tokens: flops per token
//               times tokens is the budget, up to half a batch
//
// Pure, but for what `read` does.
//
// Errors: kInvalidArgument: a config that is none, a base with phases or without held-out text, a width that cannot be
//         found; names the variant, the key and the remedy.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "study/variant.h"
#include "train/run_config.h"

namespace moraine {

constexpr double kMostOff = 0.03;  // of flops per token

enum class MatchedWidth : uint8_t { kExpertHidden, kHidden, kNone };

struct BudgetOptions {
  MatchedWidth match = MatchedWidth::kExpertHidden;
  double flops = 0;  // of each run; 0: what the base asks for
};

struct StudyConfig {
  Variant variant;
  RunConfig config;        // complete: as one of its runs prints it, but for the seed
  double token_flops = 0;  // per token
  double total_flops = 0;  // of a run
  int64_t steps = 0, tokens = 0;
};

// A table of settings as a config that could be run, vocabulary included.
using ReadConfig = std::function<RunConfig(const SettingsTable& settings)>;

// In the order of the variants. One that is the base in other words is left out.
std::vector<StudyConfig> equal_compute(const ReadConfig& read, const SettingsTable& base,
                                       const std::vector<Variant>& variants,
                                       const BudgetOptions& options);

}  // namespace moraine
