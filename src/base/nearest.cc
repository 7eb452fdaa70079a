// Nearest: the Levenshtein distance, computed with two rows of its table.
#include "base/nearest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace moraine {
namespace {

int64_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<int64_t> above(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) above[j] = static_cast<int64_t>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int64_t>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int64_t replace = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replace, above[j] + 1, row[j - 1] + 1});
    }
    std::swap(above, row);
  }
  return above[b.size()];
}

}  // namespace

std::string nearest_name(std::string_view name, std::span<const std::string> candidates) {
  std::string best;
  int64_t best_distance = INT64_MAX;
  for (const std::string& candidate : candidates) {
    const int64_t distance = edit_distance(name, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view name, std::span<const std::string> candidates,
                         const Suggestion& form) {
  std::vector<std::string> begun, near;
  for (const std::string& c : candidates) {
    if (c.starts_with(name)) begun.push_back(c);
    if (2 * edit_distance(name, c) < static_cast<int64_t>(std::max(name.size(), c.size())))
      near.push_back(c);
  }
  const std::string best = name.empty() ? "" : nearest_name(name, begun.empty() ? near : begun);
  std::string text;
  if (!best.empty()) text = fmt::format("; did you mean {}{}{}?", form.quote, best, form.quote);
  if (!form.then.empty()) text += fmt::format("{} {}", text.empty() ? ";" : "", form.then);
  return text;
}

}  // namespace moraine
