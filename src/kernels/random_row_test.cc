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

TEST(RandomRow, SaysWhichWordsReachALimit) {
  testing::for_each_isa([](Isa) {
    for (const uint64_t n : {0, 1, 7, 16, 63, 64, 65, 200, 256}) {
      std::vector<uint64_t> want(n), got(n);
      const auto row = [](std::vector<uint64_t>& bits) {
        return RandomRow{
            .bits = bits, .seed = 5, .stream = Stream::kSample, .step = 9, .first = 77};
      };
      random_row(row(want));
      std::vector<uint64_t> limits = {0, 1, uint64_t{1} << 63, UINT64_MAX - (UINT64_MAX >> 5),
                                      UINT64_MAX};
      if (n > 0) limits.insert(limits.end(), {want[n / 2], want[n / 2] + 1, want[n - 1]});
      for (const uint64_t least : limits) {
        std::vector<uint64_t> reached((n + 63) / 64, 0x5555555555555555u);
        random_row(row(got), least, reached);
        EXPECT_EQ(got, want);
        for (uint64_t i = 0; i < 64 * reached.size(); ++i)
          ASSERT_EQ(reached[i / 64] >> (i % 64) & 1, i < n && want[i] >= least ? 1 : 0) << i;
      }
    }
  });
}

}  // namespace
}  // namespace moraine
