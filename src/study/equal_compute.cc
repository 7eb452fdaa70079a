// EqualCompute: a search over one width, then a division.
#include "study/equal_compute.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "model/training_flops.h"
#include "train/timeline.h"

namespace moraine {
namespace {

constexpr int64_t kWidthStep = 8, kWidthMost = 1 << 17;
constexpr double kMostTokens = 1e18;  // of a run: those of train.tokens

const char* key_of(MatchedWidth match) {
  return match == MatchedWidth::kHidden ? "model.hidden" : "model.expert_hidden";
}

int64_t& width_of(ModelConfig& config, MatchedWidth match) {
  return match == MatchedWidth::kHidden ? config.hidden : config.expert_hidden;
}

double token_flops(const RunConfig& config) {
  return training_flops(config.model, config.train.sequence);
}

RunConfig read_variant(const ReadConfig& read, SettingsTable settings, const Variant& variant) {
  for (const std::string& assignment : variant.assignments) settings.set(assignment);
  RunConfig config = read(settings);
  if (settings.tables("phase").size() > 0)
    throw_error(Code::kInvalidArgument,
                "study: the config has [[phase]]: a study compares runs of one phase; give "
                "train.tokens instead");
  if (config.data.valid.empty() || config.report.valid_every_steps == 0)
    throw_error(
        Code::kInvalidArgument,
        "study: variants are compared by their loss on held-out text: wanted data.valid, and "
        "report.valid_every_steps above 0");
  return config;
}

// The width, a multiple of kWidthStep, at which a token asks for the flops nearest to `wanted`.
void match_width(RunConfig& config, MatchedWidth match, double wanted, const std::string& name) {
  int64_t low = 1, high = kWidthMost / kWidthStep;  // flops grow with the width
  const auto at = [&](int64_t steps) {
    width_of(config.model, match) = steps * kWidthStep;
    return token_flops(config);
  };
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (at(middle) < wanted)
      low = middle + 1;
    else
      high = middle;
  }
  const bool is_below_nearer =
      low > 1 && std::abs(at(low - 1) - wanted) < std::abs(at(low) - wanted);
  const double found = at(is_below_nearer ? low - 1 : low);
  if (std::abs(found / wanted - 1) <= kMostOff) return;
  throw_error(Code::kInvalidArgument,
              "study: variant \"{}\": no {} brings it to the base's {:.4g} flops per token; the "
              "nearest, {}, has {:.4g}; match another width (--match) or none",
              name, key_of(match), wanted, width_of(config.model, match), found);
}

void set_tokens(StudyConfig& study, double flops) {
  RunConfig& config = study.config;
  const double batch = static_cast<double>(config.train.batch_tokens);
  const double steps = std::max(1.0, std::round(flops / study.token_flops / batch));
  if (steps * batch > kMostTokens)
    throw_error(Code::kInvalidArgument,
                "study: variant \"{}\": {:.3g} flops are {:.1e} tokens; the limit is {:.0e}",
                study.variant.name, flops, steps * batch, kMostTokens);
  config.train.steps = 0;
  config.train.tokens = static_cast<int64_t>(steps * batch);
  config.phases.front().steps = 0;
  config.phases.front().tokens = config.train.tokens;
  const Timeline timeline(config);
  study.steps = timeline.steps();
  study.tokens = timeline.tokens();
  study.total_flops = study.token_flops * static_cast<double>(study.tokens);
}

bool sets(const Variant& variant, const std::string& key) {
  return std::any_of(variant.assignments.begin(), variant.assignments.end(),
                     [&](const std::string& a) { return a.substr(0, a.find('=')) == key; });
}

}  // namespace

std::vector<StudyConfig> equal_compute(const ReadConfig& read, const SettingsTable& base,
                                       const std::vector<Variant>& variants,
                                       const BudgetOptions& options) {
  std::vector<StudyConfig> all;
  double wanted = 0, budget = options.flops;
  for (const Variant& variant : variants) {
    StudyConfig study{.variant = variant, .config = read_variant(read, base, variant)};
    RunConfig& config = study.config;
    if (all.empty()) {
      wanted = token_flops(config);
      if (budget <= 0) budget = wanted * static_cast<double>(Timeline(config).tokens());
    } else if (answer_text(config) == answer_text(read_variant(read, base, variants.front()))) {
      continue;
    } else if (options.match != MatchedWidth::kNone && token_flops(config) != wanted) {
      if (sets(variant, key_of(options.match)))
        throw_error(Code::kInvalidArgument,
                    "study: variant \"{}\" sets {}, which is what brings its flops to the base's; "
                    "match another width (--match) or none",
                    variant.name, key_of(options.match));
      match_width(config, options.match, wanted, variant.name);
      check_model_config(config.model, fmt::format("study: variant \"{}\"", variant.name));
    }
    study.token_flops = token_flops(config);
    set_tokens(study, budget);
    all.push_back(std::move(study));
  }
  return all;
}

}  // namespace moraine
