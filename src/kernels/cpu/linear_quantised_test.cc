// Fails if rows become other integers than kernels/quantised.h says, on any instruction set.
#include "kernels/cpu/linear_quantised.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "kernels/quantised.h"
#include "testing/rig.h"

namespace moraine::cpu {
namespace {

using moraine::testing::for_each_isa;
using moraine::testing::Rig;

constexpr float kInfinity = std::numeric_limits<float>::infinity(),
                kNan = std::numeric_limits<float>::quiet_NaN();

// Blocks take turns at being random, ties, too small to count, and not finite.
float value_at(int64_t block, int64_t at, float random) {
  switch (block % 7) {
    case 0:
      return random;
    case 1:
      return at == 3 ? -127.0f : static_cast<float>(at % 64) - 31.5f;  // a step of 1
    case 2:
      return at % 2 == 0 ? 0x1p-101f : -0.0f;
    case 3:
      return at == 100 ? -kInfinity : random;
    case 4:
      return random * 0x1p-95f;
    case 5:
      return at == 31 ? kNan : random;
    default:
      return at == 127 ? std::numeric_limits<float>::max() : random * 0x1p120f;
  }
}

// What a block of a row should be.
struct WantedBlock {
  QuantisedStep step = {};
  std::vector<int> r = {};
  int sum = 0;
};
WantedBlock wanted(std::span<const float> x) {
  float largest = 0;
  for (const float v : x)
    largest = std::isnan(v) || largest != largest ? kNan : std::max(largest, std::abs(v));
  WantedBlock w;
  w.step = quantised_step(largest);
  for (const float v : x) {
    w.r.push_back(w.step.inverse == 0 ? 0 : static_cast<int>(std::nearbyint(v * w.step.inverse)));
    w.sum += w.r.back();
  }
  return w;
}

void expect_row(const QuantisedRow& row, std::span<const float> x) {
  const auto sum = static_cast<int64_t>(x.size());
  for (int64_t b = 0; b * kQuantisedBlock < sum; ++b) {
    SCOPED_TRACE(fmt::format("block {}", b));
    const int64_t begin = b * kQuantisedBlock, end = std::min(begin + kQuantisedBlock, sum);
    const WantedBlock w =
        wanted(x.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
    if (std::isnan(w.step.step)) {
      EXPECT_TRUE(std::isnan(row.step[b]));
    } else {
      EXPECT_EQ(row.step[b], w.step.step);
    }
    EXPECT_EQ(row.minus[b], -kWeightOffset<8> * w.sum);
    int64_t differ = 0;
    for (int64_t i = 0; i < kQuantisedBlock; ++i)
      differ += row.r[begin + i] != (i < end - begin ? w.r[static_cast<size_t>(i)] : 0);
    EXPECT_EQ(differ, 0);
  }
}

TEST(LinearQuantised, RowsAreTheNearestIntegers) {
  constexpr int64_t kRowsHere = 9;
  for_each_isa([](Isa cap) {
    const LinearEngine engine = quantised_engine(WeightFormat::kQ8);
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const int64_t sum : {1, 64, 127, 128, 130, 700, 1024}) {
        Rig rig;
        const Tensor x = rig.normal({kRowsHere, sum}, DType::kF32, 1);
        for (int64_t i = 0; i < kRowsHere * sum; ++i) {
          const int64_t row = i / sum, at = i % sum, block = at / kQuantisedBlock;
          x.as<float>()[i] = value_at(row + block, at % kQuantisedBlock, x.as<float>()[i]);
        }
        const Tensor from = rig.copy_as(x, dtype), seen = rig.copy_as(from, DType::kF32);
        // Of exactly its size, and a panel that other rows were in.
        const auto* bytes = static_cast<const uint8_t*>(from.data);
        const std::vector<uint8_t> exact(bytes, bytes + from.bytes());
        std::vector<QuantisedRow> rows(kRowsHere);
        std::memset(static_cast<void*>(rows.data()), 0x55, sizeof(QuantisedRow) * kRowsHere);
        engine.copy_rows({.panel = rows.data(),
                          .from = exact.data(),
                          .dtype = dtype,
                          .stride = sum,
                          .rows = kRowsHere,
                          .sum = sum});
        for (int64_t i = 0; i < kRowsHere; ++i) {
          SCOPED_TRACE(
              fmt::format("{} {} sum={} row {}", isa_name(cap), dtype_name(dtype), sum, i));
          expect_row(rows[static_cast<size_t>(i)],
                     {seen.as<float>() + i * sum, static_cast<size_t>(sum)});
        }
      }
    }
  });
}

}  // namespace
}  // namespace moraine::cpu
