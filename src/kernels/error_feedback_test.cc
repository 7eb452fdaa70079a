// Fails if a factor is not that of the shrunk moments, if a weight is not the integer nearest to itself and what the
// errors behind it leave to it, or if the products of such weights are no closer than those of weights rounded alone.
#include "kernels/error_feedback.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/ceil_div.h"
#include "kernels/quantised.h"
#include "testing/rig.h"

namespace moraine {
namespace {

using testing::for_each_isa;
using testing::Rig;

constexpr int64_t kWidths[] = {1, 2, 64, 127, 128, 129, 300, 512};

// Rows whose inputs go together: each is itself and half of the sum of three others.
Tensor correlated_rows(Rig& rig, int64_t rows, int64_t k, uint64_t seed) {
  const Tensor noise = rig.normal({rows, k}, DType::kF32, seed), x = rig.copy(noise);
  for (int64_t t = 0; t < rows; ++t)
    for (int64_t i = 0; i < k; ++i)
      for (const int64_t other : {i / 2, i / 3, (7 * i + 3) % k})
        x.as<float>()[t * k + i] += 0.5f * noise.as<float>()[t * k + other];
  return x;
}

Tensor moments_of(Rig& rig, const Tensor& x) {
  const int64_t k = x.dims[1];
  const Tensor moments = rig.zeros({k, k}, DType::kF32);
  linear_backward_weight(rig.ctx, {.dw = moments, .dbias = {}, .dy = x, .x = x});
  return moments;
}

struct Made {
  Tensor factor;
  double rho;
};
Made make_factor(Rig& rig, const Tensor& moments, int64_t rows) {
  Made made = {rig.zeros({feedback_factor_count(moments.dims[0])}, DType::kF32), 0};
  made.rho =
      make_feedback_factor(rig.ctx, {.factor = made.factor,
                                     .moments = moments,
                                     .rows = rows,
                                     .scratch = rig.zeros({feedback_scratch_bytes()}, DType::kU8)});
  return made;
}

// F[j,i], j > i, or D[i], j == i.
double factor_at(const Tensor& factor, int64_t k, int64_t j, int64_t i) {
  const float* block = factor.as<float>();
  int64_t begin = 0;
  for (; i - begin >= kQuantisedBlock; begin += kQuantisedBlock)
    block += (k - begin) * kQuantisedBlock;
  const int64_t width = std::min(kQuantisedBlock, k - begin);
  return static_cast<double>(block[(j - begin) * width + i - begin]);
}

struct Rounded {
  Tensor v, scales;
};
Rounded feed_back(Rig& rig, const Tensor& w, const Tensor& factor, WeightFormat format) {
  const int64_t n = w.dims[0], k = w.dims[1];
  Rounded rounded = {rig.copy(w), rig.zeros({n, ceil_div(k, kQuantisedBlock)}, DType::kF32)};
  feed_back_errors(rig.ctx, {.w = rounded.v,
                             .scales = rounded.scales,
                             .factor = factor,
                             .format = format,
                             .errors = rig.zeros({n * k}, DType::kF32),
                             .scratch = rig.zeros({feedback_scratch_bytes()}, DType::kU8)});
  return rounded;
}

PackedMatrix pack(Rig& rig, const Tensor& w, WeightFormat format, const Tensor& scales = {}) {
  PackedMatrix packed = {
      .dtype = DType::kBF16, .groups = 1, .n = w.dims[0], .k = w.dims[1], .format = format};
  packed.data = rig.zeros({packed_bytes(packed)}, DType::kU8).data;
  pack_matrix(rig.ctx, {.packed = packed, .w = w, .transpose = false, .scales = scales});
  return packed;
}

Tensor unpack(Rig& rig, const PackedMatrix& packed) {
  const Tensor w = rig.zeros({packed.n, packed.k}, DType::kF32);
  for (int64_t n = 0; n < packed.n; ++n)
    read_packed_row(packed, 0, n, w.as<float>() + n * packed.k);
  return w;
}

// The formula of the header, in double.
double rho_of(const Tensor& moments, int64_t rows) {
  const int64_t k = moments.dims[0];
  const double dk = static_cast<double>(k);
  const auto at = [&](int64_t i, int64_t j) {
    return static_cast<double>(moments.as<float>()[i * k + j]);
  };
  double trace = 0;
  for (int64_t i = 0; i < k; ++i)
    for (int64_t j = 0; j < k; ++j) trace += at(i, j) * at(i, j) / (at(i, i) * at(j, j));
  const double below = (static_cast<double>(rows) + 1 - 2 / dk) * (trace - dk);
  return k == 1 ? 1 : std::min(1.0, ((1 - 2 / dk) * trace + dk * dk) / below);
}

TEST(ErrorFeedback, TheFactorIsThatOfTheShrunkMoments) {
  for (const int64_t k : kWidths) {
    Rig rig;
    constexpr int64_t kRows = 700;
    const Tensor moments = moments_of(rig, correlated_rows(rig, kRows, k, 1));
    const Made made = make_factor(rig, moments, kRows);
    // Of k^2 products, each rounded three times.
    EXPECT_NEAR(made.rho, rho_of(moments, kRows), 1e-5 * made.rho) << k;
    EXPECT_LT(made.rho, k > 2 ? 0.8 : 1.1) << k;
    const auto moment = [&](int64_t i, int64_t j) {
      return static_cast<double>(moments.as<float>()[i * k + j]) / kRows;
    };
    for (int64_t i = 0; i < k; ++i) {
      for (int64_t j = i; j < k; ++j) {
        double product = 0;  // of rows i and j of L
        for (int64_t c = 0; c <= i; ++c) {
          const double pivot = factor_at(made.factor, k, c, c);
          const double left = c == i ? 1 : factor_at(made.factor, k, i, c);
          product += pivot * left * (c == j ? 1 : factor_at(made.factor, k, j, c));
        }
        const double want = i == j ? moment(i, i) : (1 - made.rho) * moment(i, j);
        // Cholesky's backward error (Higham 2002, theorem 10.3), and what was rounded before and behind it.
        const double unit = std::sqrt(moment(i, i) * moment(j, j)) * 0x1p-24;
        ASSERT_NEAR(product, want, static_cast<double>(k + 12) * unit)
            << k << ": " << i << ", " << j;
      }
    }
  }
}

// A row as it was given, beside what it was.
struct RoundedRow {
  const float *w, *v, *scales;
  int64_t k;
  int half;

  double scale(int64_t i) const { return static_cast<double>(scales[i / kQuantisedBlock]); }
  double integer(int64_t i) const { return static_cast<double>(v[i]) / scale(i); }
  double clamped(double value) const { return std::clamp(value, double(-half), double(half - 1)); }
};

// The header's u[i], and the sum of the sizes of its terms.
struct Left {
  double value, size;
};
Left left_to(const RoundedRow& row, const Tensor& factor, int64_t i) {
  Left left = {static_cast<double>(row.w[i]), std::abs(static_cast<double>(row.w[i]))};
  for (int64_t j = i + 1; j < row.k; ++j) {
    const double part = static_cast<double>(row.w[j] - row.v[j]) * factor_at(factor, row.k, j, i);
    left.value += part;
    left.size += std::abs(part);
  }
  return left;
}

// How many integers are not those that are nearest to the weights alone.
int64_t expect_nearest(const RoundedRow& row, const Tensor& factor) {
  int64_t moved = 0;
  for (int64_t i = 0; i < row.k; ++i) {
    EXPECT_NE(row.scale(i), 0);
    const double integer = row.integer(i);
    EXPECT_EQ(integer, std::round(integer));
    const Left left = left_to(row, factor, i);
    // A sum of k - i terms, each rounded twice at most, and a quotient.
    const double slack =
        static_cast<double>(row.k - i + 4) * 0x1p-24 * left.size / std::abs(row.scale(i));
    EXPECT_LE(std::abs(integer - row.clamped(left.value / row.scale(i))), 0.5 + slack) << i;
    const double alone = std::nearbyint(static_cast<double>(row.w[i]) / row.scale(i));
    moved += integer != row.clamped(alone);
  }
  return moved;
}

TEST(ErrorFeedback, EveryWeightIsTheNearestToWhatIsLeftToIt) {
  for (const WeightFormat format : {WeightFormat::kQ6, WeightFormat::kQ4}) {
    for (const int64_t k : kWidths) {
      Rig rig;
      constexpr int64_t kRows = 700, n = 35;
      const int64_t blocks = ceil_div(k, kQuantisedBlock);
      const Tensor moments = moments_of(rig, correlated_rows(rig, kRows, k, 2));
      const Tensor factor = make_factor(rig, moments, kRows).factor;
      const Tensor w = rig.normal({n, k}, DType::kF32, 3);
      const Rounded got = feed_back(rig, w, factor, format);
      int64_t moved = 0;
      for (int64_t row = 0; row < n; ++row)
        moved += expect_nearest({.w = w.as<float>() + row * k,
                                 .v = got.v.as<float>() + row * k,
                                 .scales = got.scales.as<float>() + row * blocks,
                                 .k = k,
                                 .half = format == WeightFormat::kQ6 ? 32 : 8},
                                factor);
      EXPECT_GE(moved, k > 2 ? n * k / 20 : 0) << k;
    }
  }
}

// Mean square of what the products of `rows` change.
double loss_of(const Tensor& rows, const Tensor& w, const Tensor& v) {
  double sum = 0;
  const int64_t k = w.dims[1];
  for (int64_t n = 0; n < w.dims[0]; ++n) {
    for (int64_t t = 0; t < rows.dims[0]; ++t) {
      double y = 0;
      for (int64_t i = 0; i < k; ++i)
        y += static_cast<double>(rows.as<float>()[t * k + i]) *
             static_cast<double>(w.as<float>()[n * k + i] - v.as<float>()[n * k + i]);
      sum += y * y;
    }
  }
  return sum;
}

// The same inputs, as if they did not go together: rounding to the nearest, errors weighted by mean squares.
Tensor diagonal_of(Rig& rig, const Tensor& moments) {
  const int64_t k = moments.dims[0];
  const Tensor diagonal = rig.zeros({k, k}, DType::kF32);
  for (int64_t i = 0; i < k; ++i) diagonal.as<float>()[i * k + i] = moments.as<float>()[i * k + i];
  return diagonal;
}

TEST(ErrorFeedback, ProductsOfRowsThatWereNotSeenAreCloser) {
  for (const WeightFormat format : {WeightFormat::kQ6, WeightFormat::kQ4}) {
    Rig rig;
    constexpr int64_t k = 300;
    const Tensor w = rig.normal({40, k}, DType::kF32, 4);
    const Tensor unseen = correlated_rows(rig, 64, k, 99);
    // Fewer rows than inputs say less, and do no harm.
    for (const int64_t rows : {int64_t{40}, int64_t{4000}}) {
      const Tensor moments = moments_of(rig, correlated_rows(rig, rows, k, 5));
      const Rounded got = feed_back(rig, w, make_factor(rig, moments, rows).factor, format);
      const Made alone = make_factor(rig, diagonal_of(rig, moments), rows);
      EXPECT_EQ(alone.rho, 1);
      const Tensor nearest = feed_back(rig, w, alone.factor, format).v;
      EXPECT_LT(loss_of(unseen, w, got.v), (rows == 40 ? 1 : 0.8) * loss_of(unseen, w, nearest))
          << rows;
    }
  }
}

TEST(ErrorFeedback, InputsThatAreAloneAreRoundedAlone) {
  for (const WeightFormat format : {WeightFormat::kQ6, WeightFormat::kQ4}) {
    Rig rig;
    constexpr int64_t k = 200;
    const Tensor moments = rig.zeros({k, k}, DType::kF32), w = rig.normal({33, k}, DType::kF32, 6);
    for (int64_t i = 0; i < k; ++i) moments.as<float>()[i * k + i] = 1;  // D is 1 in any rounding
    const Made made = make_factor(rig, moments, 1);
    EXPECT_EQ(made.rho, 1);
    const Rounded got = feed_back(rig, w, made.factor, format);
    EXPECT_SAME_BITS(got.v, unpack(rig, pack(rig, w, format)));
  }
}

TEST(ErrorFeedback, InputsThatAreLargerLoseLess) {
  Rig rig;
  constexpr int64_t k = kQuantisedBlock, n = 32;
  const Tensor moments = rig.zeros({k, k}, DType::kF32), w = rig.normal({n, k}, DType::kF32, 4);
  for (int64_t i = 0; i < k; ++i) moments.as<float>()[i * k + i] = i % 8 == 0 ? 1.0f : 0.01f;
  const auto error = [&](const Tensor& v) {
    double sum = 0;
    for (int64_t i = 0; i < n * k; i += 8)
      sum += std::pow(static_cast<double>(v.as<float>()[i] - w.as<float>()[i]), 2);
    return sum;
  };
  const Rounded got = feed_back(rig, w, make_factor(rig, moments, 1).factor, WeightFormat::kQ4);
  EXPECT_LT(error(got.v), 0.8 * error(unpack(rig, pack(rig, w, WeightFormat::kQ4))));
}

TEST(ErrorFeedback, APackWithTheScalesHoldsWhatWasMade) {
  for (const WeightFormat format : {WeightFormat::kQ6, WeightFormat::kQ4}) {
    Rig rig;
    const Tensor moments = moments_of(rig, correlated_rows(rig, 500, 300, 7));
    const Rounded got = feed_back(rig, rig.normal({70, 300}, DType::kF32, 8),
                                  make_factor(rig, moments, 500).factor, format);
    EXPECT_SAME_BITS(unpack(rig, pack(rig, got.v, format, got.scales)), got.v);
  }
}

TEST(ErrorFeedback, NeitherThreadsNorRowsNorInstructionsChangeABit) {
  constexpr int64_t k = 400, n = 70;
  Rig one(Backend::kCpu, 1);
  const Tensor moments = moments_of(one, correlated_rows(one, 600, k, 9));
  const Tensor w = one.normal({n, k}, DType::kF32, 10);
  const Tensor factor = make_factor(one, moments, 600).factor;
  const Rounded want = feed_back(one, w, factor, WeightFormat::kQ4);
  for_each_isa([&](Isa cap) {
    if (cap == Isa::kBaseline) return;  // no fma
    Rig rig(Backend::kCpu, 3);
    EXPECT_SAME_BITS(make_factor(rig, moments, 600).factor, factor);
    const Rounded got = feed_back(rig, w, factor, WeightFormat::kQ4);
    EXPECT_SAME_BITS(got.v, want.v);
    EXPECT_SAME_BITS(got.scales, want.scales);
    EXPECT_SAME_BITS(feed_back(rig, w.rows(33, 40), factor, WeightFormat::kQ4).v,
                     want.v.rows(33, 40));
  });
}

// 64 rows again and again: moments of rank 64, and rows enough to trust them.
TEST(ErrorFeedback, InputsThatDependOnEachOtherAskNoMoreOfF32ThanItHas) {
  Rig rig;
  constexpr int64_t k = 256, kTimes = 1 << 14;
  const Tensor x = rig.normal({64, k}, DType::kF32, 13), w = rig.normal({32, k}, DType::kF32, 14);
  for (int64_t i = 0; i < x.count(); ++i) x.as<float>()[i] += 4;
  const Tensor moments = moments_of(rig, x);
  for (int64_t i = 0; i < k * k; ++i) moments.as<float>()[i] *= kTimes;
  const Made made = make_factor(rig, moments, 64 * kTimes);
  EXPECT_EQ(made.rho, 0x1p-14);
  testing::expect_finite(made.factor, "factor");
  const Tensor fed_back = feed_back(rig, w, made.factor, WeightFormat::kQ4).v;
  const Tensor nearest = unpack(rig, pack(rig, w, WeightFormat::kQ4));
  EXPECT_LT(loss_of(x, w, fed_back), 0.1 * loss_of(x, w, nearest));
}

// The same row thousands of times: its moments are sums that have lost more than the least shrinkage. It was a factor
// of infinities and NaN.
TEST(ErrorFeedback, MomentsThatHaveLostMoreAreShrunkMore) {
  Rig rig;
  constexpr int64_t k = 400, kTimes = 1 << 14;
  const Tensor x = rig.normal({1, k}, DType::kF32, 21), w = rig.normal({32, k}, DType::kF32, 22);
  const Tensor moments = moments_of(rig, x), lost = rig.normal({k, k}, DType::kF32, 23, 0x1p-11);
  for (int64_t i = 0; i < k * k; ++i) moments.as<float>()[i] *= kTimes * (1 + lost.as<float>()[i]);
  const Made made = make_factor(rig, moments, kTimes);
  EXPECT_GT(made.rho, 0x1p-14);
  EXPECT_LT(made.rho, 0.5);
  testing::expect_finite(made.factor, "factor");
  const Tensor fed_back = feed_back(rig, w, made.factor, WeightFormat::kQ4).v;
  testing::expect_finite(fed_back, "v");
  EXPECT_LT(loss_of(x, w, fed_back), loss_of(x, w, unpack(rig, pack(rig, w, WeightFormat::kQ4))));
}

// Each input of the first block goes with one of the second, whose errors it takes as they are.
TEST(ErrorFeedback, AScaleIsChosenForWhatLaterBlocksLeave) {
  Rig rig;
  constexpr int64_t k = 2 * kQuantisedBlock, n = 32;
  const Tensor factor = rig.zeros({feedback_factor_count(k)}, DType::kF32);
  float* first = factor.as<float>();
  float* second = first + k * kQuantisedBlock;
  for (int64_t i = 0; i < kQuantisedBlock; ++i) {
    first[i * kQuantisedBlock + i] = static_cast<float>(1 + i % 3);
    first[(i + kQuantisedBlock) * kQuantisedBlock + i] = -1;
    second[i * kQuantisedBlock + i] = 1;
  }
  const Tensor w = rig.normal({n, k}, DType::kF32, 15);
  const Rounded got = feed_back(rig, w, factor, WeightFormat::kQ4);
  int64_t differ = 0;
  for (int64_t row = 0; row < n; ++row) {
    WeightBlock left, alone;
    for (int64_t i = 0; i < kQuantisedBlock; ++i) {
      const int64_t at = row * k + i, later = at + kQuantisedBlock;
      left.importance[i] = alone.importance[i] = static_cast<float>(1 + i % 3);
      alone.w[i] = w.as<float>()[at];
      left.w[i] = w.as<float>()[at] - (w.as<float>()[later] - got.v.as<float>()[later]);
    }
    const float scale = got.scales.as<float>()[2 * row];
    EXPECT_EQ(scale, choose_scale(WeightFormat::kQ4, left)) << row;
    differ += scale != choose_scale(WeightFormat::kQ4, alone);
  }
  EXPECT_GT(differ, n / 2);
}

TEST(ErrorFeedback, WhatWasNeverSeenAndWhatIsNothingHaveTheirPlace) {
  Rig rig;
  constexpr int64_t k = 260;
  const Tensor x = correlated_rows(rig, 300, k, 11);
  const std::vector<int64_t> unseen = {0, 5, 128, 259};
  for (int64_t t = 0; t < 300; ++t)
    for (const int64_t input : unseen) x.as<float>()[t * k + input] = 0;
  const Tensor w = rig.normal({3, k}, DType::kF32, 12);
  std::fill_n(w.as<float>() + k, k, 0.0f);
  for (const int64_t rows : {int64_t{300}, int64_t{0}}) {
    const Tensor moments = rows > 0 ? moments_of(rig, x) : rig.zeros({k, k}, DType::kF32);
    const Made made = make_factor(rig, moments, rows);
    testing::expect_finite(made.factor, "factor");
    double mean = 0;
    for (int64_t i = 0; i < k; ++i)
      mean += static_cast<double>(moments.as<float>()[i * k + i]) / (300.0 * k);
    for (const int64_t input : unseen) {
      const double want = rows > 0 ? 0x1p-20 * mean : 1;
      EXPECT_NEAR(factor_at(made.factor, k, input, input), want, 1e-5 * want) << input;
      for (int64_t i = 0; i < input; ++i) EXPECT_EQ(factor_at(made.factor, k, input, i), 0);
    }
    const Rounded got = feed_back(rig, w, made.factor, WeightFormat::kQ4);
    testing::expect_finite(got.v, "v");
    for (int64_t i = 0; i < k; ++i) EXPECT_EQ(got.v.as<float>()[k + i], 0);
  }
}

}  // namespace
}  // namespace moraine
