// Fails if a weight is not the nearest multiple of its block's scale, or if a product of integers differs from the
// formula of quantised.h, between instruction sets, or with the rows beside it.
#include "kernels/quantised.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "testing/rig.h"

namespace moraine {
namespace {

using testing::for_each_isa;
using testing::for_each_read;
using testing::Rig;
using testing::tolerance;

constexpr WeightFormat kFormats[] = {WeightFormat::kQ8, WeightFormat::kQ6, WeightFormat::kQ4};

struct QuantisedShape {
  int64_t rows, n, k;
};
// One, odd, one past a panel, a block, a tile or a block of the sum, the fullest tiles, and real widths.
constexpr QuantisedShape kQuantisedShapes[] = {
    {1, 1, 1},      {1, 33, 65},    {5, 64, 128},   {6, 32, 1024},  {7, 31, 1025},
    {16, 96, 64},   {17, 40, 2049}, {31, 64, 300},  {33, 65, 129},  {100, 160, 512},
    {5, 160, 2049}, {4, 150, 1100}, {14, 40, 1100}, {28, 64, 2049}, {70, 64, 2049}};

PackedMatrix shape_of(WeightFormat format, DType dtype, int64_t groups, int64_t n, int64_t k) {
  return {.dtype = dtype, .groups = groups, .n = n, .k = k, .format = format};
}

PackedMatrix pack(Rig& rig, const Tensor& w, PackedMatrix shape) {
  shape.data = rig.zeros({packed_bytes(shape) + 64}, DType::kU8).data;
  pack_matrix(rig.ctx, {.packed = shape, .w = w, .transpose = false});
  return shape;
}

std::vector<float> row_of(const PackedMatrix& w, int64_t group, int64_t n) {
  std::vector<float> row(static_cast<size_t>(w.k));
  read_packed_row(w, group, n, row.data());
  return row;
}

double squares_of_errors(const std::vector<float>& got, const float* want) {
  double sum = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double error = static_cast<double>(got[i]) - static_cast<double>(want[i]);
    sum += error * error;
  }
  return sum;
}

TEST(Quantised, BytesCountWholePanelsAndBlocks) {
  const auto bytes = [](WeightFormat format, int64_t groups, int64_t n, int64_t k) {
    return packed_bytes({.groups = groups, .n = n, .k = k, .format = format});
  };
  EXPECT_EQ(bytes(WeightFormat::kQ8, 1, 32, 128), 4096 + 64);
  EXPECT_EQ(bytes(WeightFormat::kQ6, 1, 32, 128), 3072 + 64);
  EXPECT_EQ(bytes(WeightFormat::kQ4, 1, 32, 128), 2048 + 64);
  EXPECT_EQ(bytes(WeightFormat::kQ8, 3, 33, 129), 3 * 2 * 2 * (4096 + 64));
  EXPECT_EQ(bytes(WeightFormat::kQ4, 3, 1, 257), 3 * 1 * 3 * (2048 + 64));
  EXPECT_EQ(bytes(WeightFormat::kQ8, 0, 32, 128), 0);
  EXPECT_EQ(bytes(WeightFormat::kPlain, 2, 33, 5), packed_bytes(DType::kF32, 2, 33, 5));
}

TEST(Quantised, RowsOfPlainPacksAreTheWeights) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Rig rig;
    const Tensor w = rig.normal({2 * 37, 41}, DType::kF32, 1);
    const PackedMatrix packed = pack(rig, w, shape_of(WeightFormat::kPlain, dtype, 2, 37, 41));
    const Tensor want = rig.copy_as(rig.copy_as(w, dtype), DType::kF32);
    for (int64_t n = 0; n < 2 * 37; ++n) {
      const std::vector<float> row = row_of(packed, n / 37, n % 37);
      EXPECT_TRUE(std::equal(row.begin(), row.end(), want.as<float>() + n * 41)) << n;
    }
  }
}

// Scales of bf16 are up to 2^-7 above largest / 127, errors up to half a scale.
TEST(Quantised, EightBitsAreWithinHalfAStepOfTheBlocksLargest) {
  Rig rig;
  const int64_t n = 65, k = 200;
  const Tensor w = rig.normal({2 * n, k}, DType::kF32, 2);
  const PackedMatrix packed = pack(rig, w, shape_of(WeightFormat::kQ8, DType::kBF16, 2, n, k));
  for (int64_t j = 0; j < 2 * n; ++j) {
    const std::vector<float> row = row_of(packed, j / n, j % n);
    const float* want = w.as<float>() + j * k;
    for (int64_t b = 0; b < k; b += kQuantisedBlock) {
      const int64_t end = std::min(b + kQuantisedBlock, k);
      float largest = 0;
      for (int64_t i = b; i < end; ++i) largest = std::max(largest, std::abs(want[i]));
      const float allowed = largest / 127 * (1 + 0x1p-7f) * 0.5001f;
      for (int64_t i = b; i < end; ++i)
        ASSERT_LE(std::abs(row[static_cast<size_t>(i)] - want[i]), allowed) << j << " " << i;
    }
  }
}

// Of one block: what rounding to [-half, half - 1] with a given scale would lose.
double loss_of_scale(const float* w, double scale, double half) {
  double sum = 0;
  for (int64_t i = 0; i < kQuantisedBlock; ++i) {
    const double q = std::clamp(std::nearbyint(static_cast<double>(w[i]) / scale), -half, half - 1);
    sum += std::pow(static_cast<double>(w[i]) - scale * q, 2);
  }
  return sum;
}

struct FewBits {
  WeightFormat format;
  double half, error;
};

TEST(Quantised, FewBitsLoseLessThanTheScaleOfTheLargest) {
  // A normal block's largest is about 2.5, a step of 4 bits a third: 0.3 / sqrt(12) of the weights' size; of 6 bits
  // a quarter of that.
  for (const FewBits& few :
       {FewBits{WeightFormat::kQ4, 8, 0.1}, FewBits{WeightFormat::kQ6, 32, 0.025}}) {
    Rig rig;
    const int64_t n = 64;
    const Tensor w = rig.normal({n, kQuantisedBlock}, DType::kF32, 3);
    const PackedMatrix packed =
        pack(rig, w, shape_of(few.format, DType::kBF16, 1, n, kQuantisedBlock));
    double lost = 0, plain = 0;
    for (int64_t j = 0; j < n; ++j) {
      const float* want = w.as<float>() + j * kQuantisedBlock;
      const float largest = *std::max_element(
          want, want + kQuantisedBlock, [](float a, float b) { return std::abs(a) < std::abs(b); });
      lost += squares_of_errors(row_of(packed, 0, j), want);
      plain += loss_of_scale(want, static_cast<double>(largest) / -few.half, few.half);
    }
    EXPECT_LT(lost, 0.95 * plain);
    EXPECT_LT(std::sqrt(lost / static_cast<double>(w.count())), few.error);
  }
}

TEST(Quantised, ScalesFollowWeightsOfAnySize) {
  Rig rig;
  const Tensor w = rig.normal({kQuantisedBlock}, DType::kF32, 4);
  const auto scale_of = [&](WeightFormat format, float size, float importance) {
    WeightBlock block;
    for (int64_t i = 0; i < kQuantisedBlock; ++i) {
      block.w[i] = size * w.as<float>()[i];
      block.importance[i] = importance * static_cast<float>(1 + i % 5);
    }
    return choose_scale(format, block);
  };
  for (const WeightFormat format : {WeightFormat::kQ6, WeightFormat::kQ4}) {
    const float scale = scale_of(format, 1, 1);
    for (const float size : {0x1p-90f, 0x1p-40f, 0x1p40f, 0x1p120f}) {
      EXPECT_EQ(scale_of(format, size, 1), size * scale) << size;
      EXPECT_EQ(scale_of(format, size, 0x1p-80f), size * scale) << size;
      EXPECT_EQ(scale_of(format, size, 0x1p80f), size * scale) << size;
    }
  }
}

TEST(Quantised, BlocksWithoutSizeAndBlocksThatAreNotFinite) {
  for (const WeightFormat format : kFormats) {
    Rig rig;
    const Tensor w = rig.normal({3, 2 * kQuantisedBlock}, DType::kF32, 5);
    float* row = w.as<float>();
    std::fill_n(row, kQuantisedBlock, 0.0f);
    std::fill_n(row + 2 * kQuantisedBlock, kQuantisedBlock, 0x1p-140f);
    row[5 * kQuantisedBlock + 3] = std::numeric_limits<float>::infinity();
    const PackedMatrix packed =
        pack(rig, w, shape_of(format, DType::kF32, 1, 3, 2 * kQuantisedBlock));
    EXPECT_EQ(row_of(packed, 0, 0)[0], 0);
    EXPECT_EQ(row_of(packed, 0, 1)[7], 0);
    EXPECT_TRUE(std::isfinite(row_of(packed, 0, 2)[0]));
    EXPECT_TRUE(std::isnan(row_of(packed, 0, 2)[kQuantisedBlock]));
  }
}

Tensor product(Rig& rig, const Tensor& x, const PackedMatrix& w, const Tensor& bias, DType output) {
  const Tensor y = rig.zeros({x.dims[0], w.n}, output);
  linear_forward(rig.ctx, {.y = y, .x = x, .w = w, .bias = bias});
  return y;
}

TEST(Quantised, ProductMatchesReference) {
  for_each_isa([](Isa cap) {
    for (const WeightFormat format : kFormats) {
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        for (const QuantisedShape& s : kQuantisedShapes) {
          SCOPED_TRACE(fmt::format("{} {} {} rows={} n={} k={}", isa_name(cap),
                                   weight_format_name(format), dtype_name(dtype), s.rows, s.n,
                                   s.k));
          Rig rig, slow(Backend::kRef);
          const Tensor x = rig.normal({s.rows, s.k}, dtype, 1),
                       w = rig.normal({s.n, s.k}, DType::kF32, 2);
          const Tensor bias = s.n % 2 == 1 ? rig.normal({s.n}, DType::kF32, 3) : Tensor();
          PackedMatrix packed = pack(rig, w, shape_of(format, dtype, 1, s.n, s.k));
          const Tensor y = product(rig, x, packed, bias, dtype);
          packed.dtype = DType::kF64;
          const Tensor want =
              product(slow, slow.copy_as(x, DType::kF64), packed,
                      bias.empty() ? bias : slow.copy_as(bias, DType::kF64), DType::kF64);
          EXPECT_CLOSE(y, want, tolerance(dtype, s.k / kQuantisedBlock + 1));
        }
      }
    }
  });
}

TEST(Quantised, WorkIsCountedAsThatOfIntegers) {
  Rig rig;
  Profile profile;
  rig.ctx.profile = &profile;
  const Tensor x = rig.zeros({3, 130}, DType::kF32), w = rig.zeros({40, 130}, DType::kF32);
  const PackedMatrix packed = pack(rig, w, shape_of(WeightFormat::kQ4, DType::kF32, 1, 40, 130));
  product(rig, x, packed, Tensor(), DType::kF32);
  double integers = 0;
  for (const Profile::Row& row : profile.rows()) integers += row.integer_ops;
  EXPECT_EQ(integers, 2.0 * 3 * 40 * 130);
  EXPECT_EQ(profile.flops(), integers);
}

// Sums as large as they get, of either sign: 128 * 127 * 127.
TEST(Quantised, LargestIntegersDoNotOverflow) {
  for_each_isa([](Isa cap) {
    for (const WeightFormat format : kFormats) {
      for (const int64_t rows : {1, 40}) {
        SCOPED_TRACE(fmt::format("{} {}", isa_name(cap), weight_format_name(format)));
        Rig rig, slow(Backend::kRef);
        constexpr int64_t k = 2 * kQuantisedBlock;
        const Tensor x = rig.zeros({rows, k}, DType::kF32), w = rig.zeros({4, k}, DType::kF32);
        for (int64_t i = 0; i < x.count(); ++i)
          x.as<float>()[i] = i % k < kQuantisedBlock ? 3.0f : -3.0f;
        for (int64_t i = 0; i < w.count(); ++i) w.as<float>()[i] = i / k % 2 == 0 ? 5.0f : -5.0f;
        for (int64_t i = 0; i < kQuantisedBlock; ++i) w.as<float>()[i] = -5.0f;
        PackedMatrix packed = pack(rig, w, shape_of(format, DType::kF32, 1, 4, k));
        const Tensor y = product(rig, x, packed, {}, DType::kF32);
        packed.dtype = DType::kF64;
        EXPECT_CLOSE(y, product(slow, slow.copy_as(x, DType::kF64), packed, {}, DType::kF64),
                     tolerance(DType::kF32, 2));
      }
    }
  });
}

// All bits of all weights set, or none, which no weights that are quantised reach together: of q4 7 and -8, of q6 31
// and -32. Rows of 127 and -127 whose sign changes after all, one, two or four inputs, which lanes of 16 bits add.
TEST(Quantised, IntegersOfAllBitsDoNotOverflow) {
  constexpr int64_t kInputs = 2 * kQuantisedBlock, kPeriods[] = {kInputs, 1, 2, 4};
  for_each_isa([&](Isa cap) {
    for (const WeightFormat format : kFormats) {
      for (const int fill : {format == WeightFormat::kQ8 ? 1 : 0, 255}) {
        SCOPED_TRACE(fmt::format("{} {} {}", isa_name(cap), weight_format_name(format), fill));
        Rig rig, slow(Backend::kRef);
        PackedMatrix packed = shape_of(format, DType::kF32, 1, kPackPanel, kInputs);
        const int64_t block = quantised_block_bytes(format);
        auto* bytes = rig.zeros({packed_bytes(packed) + 64}, DType::kU8).as<uint8_t>();
        packed.data = bytes;
        for (int64_t b = 0; b < 2; ++b) {
          uint8_t* const scales = bytes + (b + 1) * block - 2 * kPackPanel;
          std::fill(bytes + b * block, scales, static_cast<uint8_t>(fill));
          for (int64_t j = 0; j < kPackPanel; ++j) scales[2 * j] = 0x80, scales[2 * j + 1] = 0x3f;
        }
        for (const int64_t rows : {1, 2, 3, 4, 5, 8, 40}) {
          const Tensor x = rig.zeros({rows, kInputs}, DType::kF32);
          for (int64_t i = 0; i < x.count(); ++i) {
            const int64_t row = i / kInputs, period = kPeriods[row % 4];
            x.as<float>()[i] = (i % kInputs / period + row / 4) % 2 == 0 ? 1.0f : -1.0f;
          }
          packed.dtype = DType::kF32;
          const Tensor y = product(rig, x, packed, {}, DType::kF32);
          packed.dtype = DType::kF64;
          EXPECT_CLOSE(y, product(slow, slow.copy_as(x, DType::kF64), packed, {}, DType::kF64),
                       tolerance(DType::kF32, 2));
        }
      }
    }
  });
}

// Integers are exact: what differs between instruction sets elsewhere does not here. Baseline has no fma.
TEST(Quantised, SameBitsOnEveryInstructionSetAndForAnyRows) {
  if (isa() == Isa::kBaseline) GTEST_SKIP() << "no other instruction set to compare with";
  for (const WeightFormat format : kFormats) {
    for (const QuantisedShape& s : kQuantisedShapes) {
      SCOPED_TRACE(
          fmt::format("{} rows={} n={} k={}", weight_format_name(format), s.rows, s.n, s.k));
      Rig rig;
      const Tensor x = rig.normal({s.rows, s.k}, DType::kBF16, 1),
                   w = rig.normal({s.n, s.k}, DType::kF32, 2);
      const PackedMatrix packed = pack(rig, w, shape_of(format, DType::kBF16, 1, s.n, s.k));
      const Tensor want = product(rig, x, packed, {}, DType::kF32);
      for_each_isa([&](Isa cap) {
        if (cap == Isa::kBaseline) return;
        SCOPED_TRACE(isa_name(cap));
        EXPECT_SAME_BITS(product(rig, x, packed, {}, DType::kF32), want);
        for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 16, 17}) {
          if (rows > s.rows) continue;
          EXPECT_SAME_BITS(product(rig, x.rows(s.rows - rows, s.rows), packed, {}, DType::kF32),
                           want.rows(s.rows - rows, s.rows));
        }
      });
    }
  }
}

// Elements of y that are not those of `want`, whose columns repeat in y.
int64_t count_differing(const Tensor& y, const Tensor& want) {
  const int64_t wide = y.dims[1], n = want.dims[1];
  int64_t differ = 0;
  for (int64_t i = 0; i < y.count(); ++i)
    differ += y.as<float>()[i] != want.as<float>()[i / wide * n + i % wide % n];
  return differ;
}

// A pack that no cache holds is read panel by panel for all rows, the next panel asked for meanwhile. It has an odd
// number of panels: some are left over by tiles that take two or four.
TEST(Quantised, PacksThatComeFromMemoryGiveTheSameBits) {
  const int64_t k = 2100, n = 96;
  for (const WeightFormat format :
       {WeightFormat::kPlain, WeightFormat::kQ8, WeightFormat::kQ6, WeightFormat::kQ4}) {
    Rig rig;
    const Tensor x = rig.normal({129, k}, DType::kBF16, 1), w = rig.normal({n, k}, DType::kF32, 2);
    const PackedMatrix few = pack(rig, w, shape_of(format, DType::kBF16, 1, n, k));
    const int64_t bytes = packed_bytes(few), times = (int64_t{5} << 20) / bytes / 2 * 2 + 3;
    PackedMatrix many = shape_of(format, DType::kBF16, 1, n * times, k);
    many.data = rig.zeros({packed_bytes(many) + 64}, DType::kU8).data;
    for (int64_t i = 0; i < times; ++i)
      std::memcpy(static_cast<uint8_t*>(many.data) + i * bytes, few.data,
                  static_cast<size_t>(bytes));
    for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 16, 33, 100, 129}) {
      for_each_isa([&](Isa cap) {
        if (cap == Isa::kBaseline && supported_isas().size() > 1) return;  // slow
        const Tensor want = product(rig, x.rows(0, rows), few, {}, DType::kF32);
        for_each_read([&](bool into_l1) {
          SCOPED_TRACE(fmt::format("{} {} into L1: {} rows={}", isa_name(cap),
                                   weight_format_name(format), into_l1, rows));
          const Tensor got = product(rig, x.rows(0, rows), many, {}, DType::kF32);
          EXPECT_EQ(count_differing(got, want), 0);
        });
      });
    }
  }
}

TEST(Quantised, GroupsAreTheirOwnProducts) {
  for_each_isa([](Isa cap) {
    for (const WeightFormat format : kFormats) {
      SCOPED_TRACE(fmt::format("{} {}", isa_name(cap), weight_format_name(format)));
      Rig rig;
      const int64_t rows[] = {0, 3, 3, 40}, n = 48, k = 130;
      const Tensor x = rig.normal({40, k}, DType::kBF16, 1),
                   w = rig.normal({3 * n, k}, DType::kF32, 2), y = rig.zeros({40, n}, DType::kBF16);
      const PackedMatrix all = pack(rig, w, shape_of(format, DType::kBF16, 3, n, k));
      grouped_linear_forward(rig.ctx, {.y = y, .x = x, .w = all, .bias = {}, .rows = rows});
      for (int64_t g = 0; g < 3; ++g) {
        if (rows[g] == rows[g + 1]) continue;
        const PackedMatrix one =
            pack(rig, w.rows(g * n, (g + 1) * n), shape_of(format, DType::kBF16, 1, n, k));
        EXPECT_SAME_BITS(product(rig, x.rows(rows[g], rows[g + 1]), one, {}, DType::kBF16),
                         y.rows(rows[g], rows[g + 1]));
      }
    }
  });
}

TEST(Quantised, ARowThatIsNotFiniteSpoilsNoOther) {
  for_each_isa([](Isa cap) {
    SCOPED_TRACE(isa_name(cap));
    Rig rig;
    const Tensor x = rig.normal({20, 128}, DType::kF32, 1),
                 w = rig.normal({32, 128}, DType::kF32, 2);
    std::fill_n(x.as<float>(), 128, 0.0f);
    const PackedMatrix packed = pack(rig, w, shape_of(WeightFormat::kQ8, DType::kF32, 1, 32, 128));
    const Tensor want = product(rig, x, packed, {}, DType::kF32);
    x.as<float>()[7 * 128 + 5] = std::numeric_limits<float>::quiet_NaN();
    x.as<float>()[9 * 128 + 70] = -std::numeric_limits<float>::infinity();
    const Tensor y = product(rig, x, packed, {}, DType::kF32);
    for (int64_t t = 0; t < 20; ++t) {
      if (t == 7 || t == 9) {
        EXPECT_TRUE(std::isnan(y.as<float>()[t * 32])) << t;
      } else {
        EXPECT_SAME_BITS(y.rows(t, t + 1), want.rows(t, t + 1));
      }
    }
    EXPECT_EQ(y.as<float>()[0], 0);
  });
}

}  // namespace
}  // namespace moraine
