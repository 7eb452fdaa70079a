// Gumbel: the noise of a draw, from the random word of a token, and bounds of it that cost no logarithm.
//
// Range: -3.7 to 37.5 (uniform_of_bits has 53 bits and is never 0 or 1).
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>

#include "base/random.h"
#include "infer/sampler.h"

namespace moraine {

// Of the random words of a request's choice: random_bits(seed, kSample, position, id).
inline uint64_t draw_seed(const SamplingOptions& o) {
  return o.choice == 0 ? o.seed
                       : random_bits(o.seed, Stream::kChoice, 0, static_cast<uint64_t>(o.choice));
}

inline double gumbel(uint64_t bits) { return -std::log(-std::log(uniform_of_bits(bits))); }

// At least gumbel(bits): -log(u) >= 1 - u, and 1 - u = (m + 1/2) / 2^53 with m the 53 bits inverted, which is at
// least 2^(floor(log2(m)) - 53).
inline double most_gumbel(uint64_t bits) {
  constexpr double kLog2 = 0.6931471805599454, kRounding = 1e-9;
  const uint64_t m = ~bits >> 11;
  return static_cast<double>(54 - std::bit_width(m)) * kLog2 + kRounding;
}

// Where noise of at least `noise` is needed: a word whose 53 bits, inverted, are this or more has less. One bit more
// than most_gumbel says, for what is rounded here.
inline uint64_t words_below(double noise) {
  if (!(noise > 0)) return UINT64_MAX;
  constexpr double kLog2 = 0.6931471805599453;
  const double width = 55 - noise / kLog2;
  return width < 0 ? 0 : uint64_t{1} << static_cast<int>(width);
}

constexpr size_t kDrawBlock = 256;  // tokens that are looked at together

// The largest that is not NaN, or -inf; in sixteen lanes: a chain of comparisons would wait for each.
inline float largest_of(std::span<const float> values) {
  constexpr size_t kLanes = 16;
  float lanes[kLanes];
  std::fill_n(lanes, kLanes, -INFINITY);
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (size_t k = 0; k < kLanes; ++k)
      lanes[k] = lanes[k] < values[i + k] ? values[i + k] : lanes[k];
  }
  for (; i < values.size(); ++i) lanes[0] = std::max(lanes[0], values[i]);
  return *std::max_element(lanes, lanes + kLanes);
}

}  // namespace moraine
