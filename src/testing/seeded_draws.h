// SeededDraws: random numbers of one seed, one after the other, for tests that try what is likely to go wrong.
#pragma once

#include <cstdint>

#include "base/random.h"

namespace moraine {

struct SeededDraws {
  uint64_t seed, next = 0;
  int64_t below(int64_t most) {
    return static_cast<int64_t>(
        random_below(static_cast<uint64_t>(most), seed, Stream::kTest, next++, 0));
  }
  bool one_in(int64_t n) { return below(n) == 0; }
  // From `least` to `most`, in thousandths of the way.
  double between(double least, double most) {
    return least + (most - least) * static_cast<double>(below(1001)) / 1000;
  }
};

}  // namespace moraine
