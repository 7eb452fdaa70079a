// Quantile: the value that a share of measured values do not pass.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace moraine {

// Of `values`, the one at share p (0 to 1) of them in order, nearest rank; 0 if there are none.
inline double quantile_of(std::vector<double> values, double p) {
  if (values.empty()) return 0;
  const auto at = static_cast<size_t>(p * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

}  // namespace moraine
