// MatrixRules: fails if a rule rounds elsewhere, otherwise or in another order than its line in matrix_rules.h says.
// The wanted numbers were worked out by hand from those lines.
#include "kernels/gpu/matrix_rules.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "base/random.h"

namespace moraine::gpu {
namespace {

// Products x[k] * 1 for the first of sixteen, 0 for the others.
float sum_of(MatrixRule rule, const std::vector<float>& x, float c) {
  BF16 a[kMatrixDepth] = {}, b[kMatrixDepth] = {};
  for (size_t k = 0; k < x.size(); ++k) {
    a[k] = to_bf16(x[k]);
    b[k] = to_bf16(1.0f);
  }
  return matrix_dot(rule, a, b, c);
}

// In the order of kMatrixRules.
void expect_sums(const std::vector<float>& x, float c, const std::vector<float>& want) {
  for (size_t r = 0; r < std::size(kMatrixRules); ++r) {
    EXPECT_EQ(sum_of(kMatrixRules[r], x, c), want[r]) << matrix_rule_name(kMatrixRules[r]);
  }
}

TEST(MatrixRules, SmallWholeNumbersAreExact) {
  for (const MatrixRule rule : kMatrixRules) {
    for (uint64_t round = 0; round < 20; ++round) {
      BF16 a[kMatrixDepth], b[kMatrixDepth];
      double want = 77;
      for (uint64_t k = 0; k < kMatrixDepth; ++k) {
        const auto draw = [&](uint64_t i) {
          return static_cast<float>(random_below(31, round, Stream::kTest, i, k)) - 15;
        };
        a[k] = to_bf16(draw(0));
        b[k] = to_bf16(draw(1));
        want += static_cast<double>(draw(0)) * static_cast<double>(draw(1));
      }
      EXPECT_EQ(matrix_dot(rule, a, b, 77), want) << matrix_rule_name(rule);
    }
  }
}

TEST(MatrixRules, ASmallTermBesideLargeOnesThatCancel) {
  // Aligned to 2^24, the last of 24 bits is worth 1, of 25 one half.
  expect_sums({0x1p24f, -0x1p24f, 0.5f}, 0, {0.5f, 0.5f, 0, 0, 0.5f});
  // In the other eight (or four) it meets a sum that is 0 already.
  expect_sums({0x1p24f, -0x1p24f, 0, 0, 0, 0, 0, 0, 0.5f}, 0, {0.5f, 0.5f, 0.5f, 0.5f, 0.5f});
  // 2^24 + 1 is 2^24: once if added in order, twice if in pairs, never where all are aligned.
  expect_sums({0x1p24f, 1, -0x1p24f, -1}, 0, {-1, 0, 0, 0, 0});
  expect_sums({0x1p24f, 1, -0x1p24f, 0.5f}, 0, {0.5f, 0, 1, 1, 1.5f});
}

TEST(MatrixRules, TheLastRounding) {
  const float x = 0x1p-24f;
  // 1 + 3 2^-24: to even after each; the three first; exact, to even; cut off.
  expect_sums({x, x, x}, 1, {1, 1 + 0x1p-22f, 1 + 0x1p-22f, 1 + 0x1p-23f, 1 + 0x1p-23f});
  // Cutting off is towards 0, also below it.
  expect_sums({-x, -x, -x}, -1, {-1, -1 - 0x1p-22f, -1 - 0x1p-22f, -1 - 0x1p-23f, -1 - 0x1p-23f});
}

TEST(MatrixRules, Cdna3FloorsWhatIsJoined) {
  expect_sums({1024}, -0x1p-20f, {1024, 1024, 1024 - 0x1p-14f, 1024, 1024});
  expect_sums({1024}, 0x1p-20f, {1024, 1024, 1024, 1024, 1024});
}

TEST(MatrixRules, SubnormalNumbers) {
  expect_sums({0x1p-130f}, 0, {0x1p-130f, 0, 0x1p-130f, 0x1p-130f, 0x1p-130f});
  expect_sums({}, 0x1p-140f, {0x1p-140f, 0, 0x1p-140f, 0x1p-140f, 0x1p-140f});
  // A sum that becomes subnormal.
  expect_sums({0x1.8p-126f, -0x1p-126f}, 0, {0x1p-127f, 0, 0x1p-127f, 0x1p-127f, 0x1p-127f});
}

TEST(MatrixRules, WhatIsNotFinite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const MatrixRule rule : kMatrixRules) {
    EXPECT_EQ(sum_of(rule, {kInfinity, 1}, 0), kInfinity);
    EXPECT_TRUE(std::isnan(sum_of(rule, {kInfinity, -kInfinity}, 0)));
    EXPECT_TRUE(std::isnan(sum_of(rule, {1}, NAN)));
  }
  EXPECT_EQ(std::bit_cast<uint32_t>(sum_of(MatrixRule::kSm90, {1}, NAN)), 0x7fffffffu);
}

TEST(MatrixRules, ProductsOfZeroLeaveASumAsItIs) {
  for (const MatrixRule rule : kMatrixRules) {
    for (const float c : {1.0f, -0x1.fffffep-20f, 0x1.555556p+77f}) {
      EXPECT_EQ(sum_of(rule, {}, c), c) << matrix_rule_name(rule);
    }
  }
}

}  // namespace
}  // namespace moraine::gpu
