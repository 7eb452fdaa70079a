// Fails if a quantised pack is counted without its rounding up or its scales.
#include "kernels/quantised.h"

#include <gtest/gtest.h>

namespace moraine {
namespace {

TEST(Quantised, BytesCountWholePanelsAndBlocks) {
  const auto bytes = [](WeightFormat format, int64_t groups, int64_t n, int64_t k) {
    return packed_bytes({.groups = groups, .n = n, .k = k, .format = format});
  };
  EXPECT_EQ(bytes(WeightFormat::kQ8, 1, 32, 64), 2048 + 64);
  EXPECT_EQ(bytes(WeightFormat::kQ4, 1, 32, 64), 1024 + 64);
  EXPECT_EQ(bytes(WeightFormat::kQ8, 3, 33, 65), 3 * 2 * 2 * (2048 + 64));
  EXPECT_EQ(bytes(WeightFormat::kQ4, 3, 1, 129), 3 * 1 * 3 * (1024 + 64));
  EXPECT_EQ(bytes(WeightFormat::kQ8, 0, 32, 64), 0);
  EXPECT_EQ(bytes(WeightFormat::kPlain, 2, 33, 5), packed_bytes(DType::kF32, 2, 33, 5));
}

}  // namespace
}  // namespace moraine
