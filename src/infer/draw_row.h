// DrawRow: the tokens of a row whose random short is large enough to win.
//
// A row is divided into runs of kRunLength tokens. What a run needs is known from the largest of its logits, so most
// tokens are passed over for one comparison of 16 bits.
//
// Threads: any; on the caller's alone.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "base/random.h"
#include "kernels/random_row.h"
#include "kernels/run_max.h"

namespace moraine {

static_assert(kRunLength == 64, "a run is a word of RandomRow::reached");

// Of each kRunLength values the largest.
inline std::vector<float> largest_of_runs(std::span<const float> values) {
  std::vector<float> largest((values.size() + kRunLength - 1) / kRunLength);
  run_max({.largest = largest, .values = values});
  return largest;
}

// The first of the largest; 0 if none is above -inf.
inline int32_t first_largest(std::span<const float> values, std::span<const float> of_runs) {
  const auto run = std::max_element(of_runs.begin(), of_runs.end());
  if (*run == -INFINITY) return 0;
  const auto begin = (run - of_runs.begin()) * kRunLength;
  return static_cast<int32_t>(std::find(values.begin() + begin, values.end(), *run) -
                              values.begin());
}

// The draws of a row of tokens.
class DrawRow {
 public:
  DrawRow(uint64_t seed, int64_t position) : seed_(seed), position_(position) {}

  // Calls f(id, short) for the tokens below `size` whose short is as large as what their run of kRunLength needs:
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
    const size_t runs = (n + kRunLength - 1) / kRunLength;
    for (size_t r = 0; r < runs; ++r) least_[r] = least(begin / kRunLength + r);
    random_row({.shorts = {shorts_.data(), n},
                .reached = {reached_.data(), runs},
                .least = {least_.data(), runs},
                .seed = seed_,
                .stream = Stream::kSampleRow,
                .step = static_cast<uint64_t>(position_),
                .first = begin});
    for (size_t r = 0; r < runs; ++r) {
      for (uint64_t bits = reached_[r]; bits != 0; bits &= bits - 1) {
        const size_t i = r * kRunLength + static_cast<size_t>(std::countr_zero(bits));
        f(static_cast<int32_t>(begin + i), shorts_[i]);
      }
    }
  }

  // Multiples of kRunLength: tokens that are looked at together.
  static constexpr size_t kBlock = 1024, kFirst = 256;
  static constexpr uint16_t kLarge = 0xffff - 0xffff / 64;

  const uint64_t seed_;
  const int64_t position_;
  std::array<uint16_t, kBlock> shorts_;
  std::array<uint64_t, kBlock / kRunLength> reached_;
  std::array<uint16_t, kBlock / kRunLength> least_;
};

}  // namespace moraine
