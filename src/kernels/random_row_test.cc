// RandomRow: every number is random_short's own, for every length of the tail and on every instruction set.
#include "kernels/random_row.h"

#include <gtest/gtest.h>

#include <vector>

#include "testing/rig.h"

namespace moraine {
namespace {

// The definition: eighths of Philox's block, whose first half random_bits gives.
TEST(RandomRow, AShortIsAnEighthOfABlock) {
  const uint64_t seed = 0xfedcba9876543210u, step = 123456789012345, block = 77;
  const uint64_t half = random_bits(seed, Stream::kSampleRow, step, block);
  const auto part = [&](uint64_t i) {
    return uint64_t{random_short(seed, Stream::kSampleRow, step, 8 * block + i)};
  };
  EXPECT_EQ(part(0) | part(1) << 16, half >> 32);
  EXPECT_EQ(part(2) | part(3) << 16, half & 0xffffffffu);
  // The block of the paper's test of counter 0 and key 0: 6627e8d5 e169c58d bc57ac4c 9b00dbd8.
  const uint64_t no_key = -0x9E3779B97F4A7C15ull * static_cast<uint64_t>(Stream::kSampleRow);
  const uint16_t want[8] = {0xe8d5, 0x6627, 0xc58d, 0xe169, 0xac4c, 0xbc57, 0xdbd8, 0x9b00};
  for (uint64_t i = 0; i < 8; ++i)
    EXPECT_EQ(random_short(no_key, Stream::kSampleRow, 0, i), want[i]) << i;
}

TEST(RandomRow, IsRandomShortBitForBit) {
  testing::for_each_isa([](Isa) {
    for (const uint64_t n : {0, 1, 7, 8, 9, 63, 64, 65, 127, 128, 200, 256, 300}) {
      for (const uint64_t first : {uint64_t{0}, uint64_t{8}, (uint64_t{1} << 32) - 304}) {
        for (const uint64_t step : {uint64_t{0}, uint64_t{123456789012345}}) {
          const uint64_t seed = 0xfedcba9876543210u + n;
          std::vector<uint16_t> got(n);
          std::vector<uint64_t> reached((n + 63) / 64);
          const std::vector<uint16_t> least(reached.size(), 0);
          random_row({.shorts = got,
                      .reached = reached,
                      .least = least,
                      .seed = seed,
                      .stream = Stream::kSampleRow,
                      .step = step,
                      .first = first});
          for (uint64_t i = 0; i < n; ++i)
            ASSERT_EQ(got[i], random_short(seed, Stream::kSampleRow, step, first + i)) << i;
        }
      }
    }
  });
}

TEST(RandomRow, SaysWhichNumbersReachTheLimitOfTheirRun) {
  testing::for_each_isa([](Isa) {
    for (const uint64_t n : {1, 7, 16, 63, 64, 65, 200, 256}) {
      std::vector<uint16_t> got(n);
      std::vector<uint64_t> reached((n + 63) / 64);
      std::vector<uint16_t> least(reached.size(), 0);
      const RandomRow row = {.shorts = got,
                             .reached = reached,
                             .least = least,
                             .seed = 5,
                             .stream = Stream::kSampleRow,
                             .step = 9,
                             .first = 16};
      random_row(row);
      const std::vector<uint16_t> all = got;
      for (uint64_t kind = 0; kind < 8; ++kind) {
        for (uint64_t run = 0; run < least.size(); ++run) {
          const uint16_t one = all[std::min(64 * run + 13, n - 1)];
          const uint16_t limits[] = {0, 1, 0x8000, 0xfff0, 0xffff, one, uint16_t(one + 1), 0x7fff};
          least[run] = limits[(kind + run) % 8];
          reached[run] = 0x5555555555555555u;
        }
        random_row(row);
        EXPECT_EQ(got, all);
        for (uint64_t i = 0; i < 64 * reached.size(); ++i)
          ASSERT_EQ(reached[i / 64] >> (i % 64) & 1, i < n && all[i] >= least[i / 64] ? 1 : 0) << i;
      }
    }
  });
}

}  // namespace
}  // namespace moraine
