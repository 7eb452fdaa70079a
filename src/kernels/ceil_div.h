// CeilDiv: how many pieces of b make a, the last one perhaps smaller.
#pragma once

#include <cstdint>

namespace moraine {

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace moraine
