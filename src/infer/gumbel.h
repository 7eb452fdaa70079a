// Gumbel: the noise of a draw, from the random word of a token, and bounds of it that cost no logarithm.
//
// Range: -3.7 to 36.8 (uniform_of_bits has 53 bits and is never 0 or 1).
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/random.h"
#include "infer/sampler.h"
#include "kernels/random_row.h"

namespace moraine {

// Of the random words of a request's choice: random_bits(seed, kSample, position, id).
inline uint64_t draw_seed(const SamplingOptions& o) {
  return o.choice == 0 ? o.seed
                       : random_bits(o.seed, Stream::kChoice, 0, static_cast<uint64_t>(o.choice));
}

inline double gumbel(uint64_t bits) { return -std::log(-std::log(uniform_of_bits(bits))); }

// At least gumbel(bits): -log(u) >= 1 - u, and 1 - u is (m + 1/2) / 2^53, or that rounded to a multiple of 2^-53, with
// m the 53 bits inverted: at least m / 2^53, so 2^(floor(log2(m)) - 53), and for m = 0 it is 2^-53.
inline double most_gumbel(uint64_t bits) {
  constexpr double kLog2 = 0.6931471805599454, kRounding = 1e-9;
  const uint64_t m = ~bits >> 11;
  return static_cast<double>(54 - std::bit_width(m)) * kLog2 + kRounding;
}

// Where noise of at least `noise` is needed: a word below this has less. By the same inequality, and 2^53 (1 - u) is
// at most 2^53 exp(-noise) where there is as much.
inline uint64_t least_word(double noise) {
  if (!(noise > 0)) return 0;
  constexpr double kRounding = 1e-9;
  const auto m = static_cast<uint64_t>(std::exp(-noise) * 0x1p53 * (1 + kRounding)) + 1;
  return m >= uint64_t{1} << 53 ? 0 : ~(m << 11);
}

constexpr size_t kDrawBlock = 256;  // tokens that are looked at together

// A block of a row's tokens, with their random words and which of these are large enough to look at.
class DrawBlock {
 public:
  DrawBlock(uint64_t seed, int64_t position)
      : seed_(seed), position_(static_cast<uint64_t>(position)) {}
  // The first ones are small: until there is a score to pass, every token is looked at. None crosses a multiple of
  // kDrawBlock.
  static size_t size_at(size_t begin, size_t end) {
    return std::min(std::clamp<size_t>(begin, 16, kDrawBlock), end - begin);
  }
  // Calls f(i, word), i rising, for tokens begin + i, i < size, whose word is `least` or more.
  template <class F>
  void draw(size_t begin, size_t size, uint64_t least, const F& f) {
    const std::span<uint64_t> words(words_.data(), size);
    const std::span<uint64_t> reached(reached_.data(), (size + 63) / 64);
    random_row({.bits = words,
                .seed = seed_,
                .stream = Stream::kSample,
                .step = position_,
                .first = begin},
               least, reached);
    for (size_t w = 0; w < reached.size(); ++w) {
      for (uint64_t bits = reached[w]; bits != 0; bits &= bits - 1) {
        const size_t i = w * 64 + static_cast<size_t>(std::countr_zero(bits));
        f(i, words[i]);
      }
    }
  }

 private:
  const uint64_t seed_, position_;
  std::array<uint64_t, kDrawBlock> words_;
  std::array<uint64_t, kDrawBlock / 64> reached_;
};

// The largest that is not NaN, or -inf; in sixteen lanes: a chain of comparisons would wait for each.
inline float largest_of(std::span<const float> values) {
  using Four = float __attribute__((vector_size(16)));
  constexpr size_t kLanes = 16;
  const Four none = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
  Four most[4] = {none, none, none, none}, next[4];
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    std::memcpy(next, values.data() + i, sizeof next);
    for (size_t k = 0; k < 4; ++k) most[k] = most[k] < next[k] ? next[k] : most[k];
  }
  float lanes[kLanes];
  std::memcpy(lanes, most, sizeof lanes);
  for (; i < values.size(); ++i) lanes[0] = std::max(lanes[0], values[i]);
  return *std::max_element(lanes, lanes + kLanes);
}

}  // namespace moraine
