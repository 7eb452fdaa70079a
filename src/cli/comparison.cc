// Comparison: windows in order, as many at a time as both models have rows for.
#include "cli/comparison.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "cli/progress.h"
#include "cli/text_windows.h"

namespace moraine {
namespace {

double mean(const std::vector<double>& values) {
  return values.empty() ? 0
                        : std::accumulate(values.begin(), values.end(), 0.0) /
                              static_cast<double>(values.size());
}

}  // namespace

Comparison compare_models(LoadedModel& reference, LoadedModel& other,
                          std::span<const std::vector<int32_t>> windows) {
  ModelComparison comparison({reference.ctx(), reference.model()}, {other.ctx(), other.model()});
  ProgressLine progress("compare");
  const int64_t total = predicted_tokens(windows);
  const int64_t rows = std::min(reference.model().options().tokens, other.model().options().tokens);
  int64_t done = 0;
  for (const auto& pass : divide_windows(windows, rows)) {
    comparison.add(pass);
    for (const std::span<const int32_t> ids : pass) done += static_cast<int64_t>(ids.size()) - 1;
    progress.update(done, total, "tokens");
  }
  return comparison.finish();
}

std::string comparison_text(const Comparison& c) {
  std::string text =
      fmt::format("tokens={} loss_reference={:.4f} loss={:.4f} kl={:.6f} top1_agreement={:.4f}",
                  c.tokens, c.loss_reference, c.loss, c.kl, c.agreement);
  if (c.flips.empty()) return text + "\n";
  text += fmt::format(" route_flips={:.4f}\nroute flips by layer, percent:", mean(c.flips));
  for (const double flips : c.flips) text += fmt::format(" {:.2f}", 100 * flips);
  return text + "\n";
}

std::string not_numbers(const Comparison& c) {
  const bool reference = std::isnan(c.loss_reference), other = std::isnan(c.loss);
  return fmt::format("predictions of {} are not numbers", reference && other ? "both models"
                                                          : reference
                                                              ? "the model that is compared with"
                                                              : "the model that is compared");
}

Json comparison_json(const Comparison& c) {
  return {{"tokens", c.tokens},
          {"loss_reference", c.loss_reference},
          {"loss", c.loss},
          {"kl", c.kl},
          {"top1_agreement", c.agreement},
          {"route_flips", mean(c.flips)},
          {"route_flips_by_layer", c.flips}};
}

}  // namespace moraine
