// ConfigDifference: compares two texts line by line up to the first that differs.
#include "train/config_difference.h"

#include <fmt/format.h>

#include <algorithm>

namespace moraine {

std::pair<std::string, std::string> differing_lines(const std::string& a, const std::string& b) {
  size_t i = 0, j = 0;
  while (i < a.size() || j < b.size()) {
    const size_t ae = std::min(a.find('\n', i), a.size()), be = std::min(b.find('\n', j), b.size());
    const std::string x = i < a.size() ? a.substr(i, ae - i) : "",
                      y = j < b.size() ? b.substr(j, be - j) : "";
    if (x != y) return {x, y};
    i = ae + 1, j = be + 1;
  }
  return {};
}

std::string first_difference(const std::string& a, const std::string& b) {
  const auto [x, y] = differing_lines(a, b);
  return x == y ? "" : fmt::format("the run has `{}`, this config says `{}`", x, y);
}

}  // namespace moraine
