// Saturate: sums of numbers from files of strangers, which end at the largest number and never wrap.
#pragma once

#include <cstdint>
#include <limits>

namespace moraine {

// a, b >= 0.
inline int64_t add_saturated(int64_t a, int64_t b) {
  int64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<int64_t>::max() : sum;
}

inline int64_t multiply_saturated(int64_t a, int64_t b) {
  int64_t product;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<int64_t>::max() : product;
}

}  // namespace moraine
