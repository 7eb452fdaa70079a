// Gumbel: the noise of a draw, from the random word of a token.
//
//   word(id) = short(id) << 48 | random_bits(seed, kSample, position, id) >> 16
//   short(id) = random_short(seed, kSampleRow, position, id)
//   gumbel(word) = -log(-log(uniform_of_bits(word)))
//
// A row of shorts (draw_row.h) costs an eighth of a row of words, and the bounds that they give tell of nearly all
// tokens that they can not win, without a logarithm.
// Range: -3.7 to 36.8 (uniform_of_bits has 53 bits and is never 0 or 1).
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "base/random.h"
#include "infer/sampler.h"

namespace moraine {

// Of the random words of a request's choice.
inline uint64_t draw_seed(const SamplingOptions& o) {
  return o.choice == 0 ? o.seed
                       : random_bits(o.seed, Stream::kChoice, 0, static_cast<uint64_t>(o.choice));
}

inline uint16_t draw_short(uint64_t seed, int64_t position, int32_t id) {
  return random_short(seed, Stream::kSampleRow, static_cast<uint64_t>(position),
                      static_cast<uint64_t>(id));
}

inline uint64_t draw_word(uint64_t seed, int64_t position, int32_t id, uint16_t upper) {
  return uint64_t{upper} << 48 | random_bits(seed, Stream::kSample, static_cast<uint64_t>(position),
                                             static_cast<uint64_t>(id)) >>
                                     16;
}

inline double gumbel(uint64_t word) { return -std::log(-std::log(uniform_of_bits(word))); }

// At least the noise of every word with this short: -log(u) >= 1 - u, and 1 - u is at least m / 2^16, m the short
// inverted, so the noise is at most 16 log(2) - log(m), and that with 2^floor(log2(m)) for m. For m = 0 it is where the
// range ends.
inline double most_gumbel(uint16_t upper) {
  constexpr double kLog2 = 0.6931471805599454, kRounding = 1e-9, kEnd = 53 * kLog2 + kRounding;
  const auto m = static_cast<uint16_t>(~upper);
  return m == 0 ? kEnd : static_cast<double>(17 - std::bit_width(m)) * kLog2 + kRounding;
}

// Where noise of at least `noise` is needed: a word with a smaller short has less. By the same inequality m is at most
// 2^16 exp(-noise) where there is as much; the exponential is at most its chord between powers of two, which are the
// doubles between them.
inline uint16_t least_short(double noise) {
  constexpr double kLog2e = 1.442695040888964, kRounding = 1e-9, kBias = 1023, kAll = 0x10000;
  const double power = std::max(-1.0, std::min(16.0, 16 - noise * kLog2e)) + kRounding;  // NaN: 16
  const auto m = std::bit_cast<double>(static_cast<int64_t>((power + kBias) * 0x1p52));
  return static_cast<uint16_t>(0xffff - static_cast<int32_t>(std::min(kAll - 1, m)));
}

}  // namespace moraine
