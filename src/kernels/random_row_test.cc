// RandomRow: every word is random_bits' own, for every length of the tail and on every instruction set.
#include "kernels/random_row.h"

#include <gtest/gtest.h>

#include <vector>

#include "testing/rig.h"

namespace moraine {
namespace {

TEST(RandomRow, IsRandomBitsWordForWord) {
  testing::for_each_isa([](Isa) {
    for (const uint64_t n : {0, 1, 2, 3, 7, 8, 9, 31, 100}) {
      for (const uint64_t first : {uint64_t{0}, uint64_t{5}, (uint64_t{1} << 32) - 100}) {
        for (const uint64_t step : {uint64_t{0}, uint64_t{123456789012345}}) {
          std::vector<uint64_t> got(n);
          const uint64_t seed = 0xfedcba9876543210u + n;
          random_row(
              {.bits = got, .seed = seed, .stream = Stream::kSample, .step = step, .first = first});
          for (uint64_t i = 0; i < n; ++i)
            ASSERT_EQ(got[i], random_bits(seed, Stream::kSample, step, first + i)) << i;
        }
      }
    }
  });
}

}  // namespace
}  // namespace moraine
