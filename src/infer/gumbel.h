// Gumbel: the noise of a draw, from the random word of a token, and bounds of it that cost no logarithm.
//
//   word(id) = short(id) << 48 | random_bits(seed, kSample, position, id) >> 16
//   short(id) = random_short(seed, kSampleRow, position, id)
//   gumbel(word) = -log(-log(uniform_of_bits(word)))
//
// A row of shorts costs an eighth of a row of words, and they tell of nearly all tokens that they can not win.
// Range: -3.7 to 36.8 (uniform_of_bits has 53 bits and is never 0 or 1).
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "base/random.h"
#include "infer/sampler.h"
#include "kernels/random_row.h"
#include "kernels/run_max.h"

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

// The draws of a row of tokens.
class DrawRow {
 public:
  DrawRow(uint64_t seed, int64_t position) : seed_(seed), position_(position) {}

  // Calls f(id, short) for the tokens below `size` whose short is as large as what their run of kMaxRun needs:
  // least(run), which may rise with every call of f, and is asked for some runs ahead. Some come twice.
  template <class Least, class F>
  void draw(size_t size, const Least& least, const F& f) {
    // A few whose noise is large, so that the others need much from the beginning on.
    look(
        0, std::min(kFirst, size), [](size_t) { return kLarge; }, f);
    for (size_t begin = 0; begin < size; begin += kBlock)
      look(begin, std::min(kBlock, size - begin), least, f);
  }

 private:
  template <class Least, class F>
  void look(size_t begin, size_t n, const Least& least, const F& f) {
    const size_t runs = (n + kMaxRun - 1) / kMaxRun;
    for (size_t r = 0; r < runs; ++r) least_[r] = least(begin / kMaxRun + r);
    random_row({.shorts = {shorts_.data(), n},
                .reached = {reached_.data(), runs},
                .least = {least_.data(), runs},
                .seed = seed_,
                .stream = Stream::kSampleRow,
                .step = static_cast<uint64_t>(position_),
                .first = begin});
    for (size_t r = 0; r < runs; ++r) {
      for (uint64_t bits = reached_[r]; bits != 0; bits &= bits - 1) {
        const size_t i = r * kMaxRun + static_cast<size_t>(std::countr_zero(bits));
        f(static_cast<int32_t>(begin + i), shorts_[i]);
      }
    }
  }

  // Multiples of kMaxRun: tokens that are looked at together.
  static constexpr size_t kBlock = 1024, kFirst = 256;
  static constexpr uint16_t kLarge = 0xffff - 0xffff / 64;

  const uint64_t seed_;
  const int64_t position_;
  std::array<uint16_t, kBlock> shorts_;
  std::array<uint64_t, kBlock / kMaxRun> reached_;
  std::array<uint16_t, kBlock / kMaxRun> least_;
};

// Of each kMaxRun values the largest.
inline std::vector<float> largest_of_runs(std::span<const float> values) {
  std::vector<float> largest((values.size() + kMaxRun - 1) / kMaxRun);
  run_max({.largest = largest, .values = values});
  return largest;
}

// The first of the largest; 0 if none is above -inf.
inline int32_t first_largest(std::span<const float> values, std::span<const float> of_runs) {
  const auto run = std::max_element(of_runs.begin(), of_runs.end());
  if (*run == -INFINITY) return 0;
  const auto begin = (run - of_runs.begin()) * kMaxRun;
  return static_cast<int32_t>(std::find(values.begin() + begin, values.end(), *run) -
                              values.begin());
}

}  // namespace moraine
