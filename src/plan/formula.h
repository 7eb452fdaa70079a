// Formula: a count as a factor of one.
#pragma once

#include <cstdint>

namespace moraine {

inline double as_factor(int64_t n) { return static_cast<double>(n); }

}  // namespace moraine
