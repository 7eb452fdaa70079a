// Gumbel: the noise of a draw, from the random word of a token, and a bound of it that costs no logarithm.
//
// Range: -3.7 to 37.5 (uniform_of_bits has 53 bits and is never 0 or 1).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

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

}  // namespace moraine
