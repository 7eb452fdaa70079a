// Linear on an emulated GPU: fails if a product is off, if a group's rows meet another's weight, if a row's bits depend
// on its company or the size of blocks, or if a generation has more than one result.
#include "kernels/linear.h"

#include <gtest/gtest.h>

#include "kernels/gpu/linear.h"
#include "kernels/gpu/test_gpu_rig.h"

namespace moraine::gpu {
namespace {

using namespace testing;

struct LinearCase {
  std::vector<int64_t> rows;  // of each group
  int64_t n, k;
  DType dtype, y;
  bool bias;
};

struct LinearData {
  Tensor y, x, w, bias;  // w: [G*n, k], as a pack has it
  std::vector<int64_t> rows;
  int64_t n = 0, k = 0;
};

LinearData make_data(Rig& rig, const LinearCase& c) {
  LinearData data;
  data.rows = {0};
  data.n = c.n;
  data.k = c.k;
  for (const int64_t rows : c.rows) data.rows.push_back(data.rows.back() + rows);
  const int64_t T = data.rows.back() + 3,
                G = static_cast<int64_t>(c.rows.size());  // three rows of no group
  data.y = rig.normal({T, c.n}, c.y, 1);
  data.x = rig.normal({T, c.k}, c.dtype, 2);
  data.w = rig.normal({G * c.n, c.k}, c.dtype, 3);
  if (c.bias) data.bias = rig.normal({G, c.n}, DType::kF32, 4);
  return data;
}

GroupedLinearForward call(const LinearData& d) {
  const auto groups = static_cast<int64_t>(d.rows.size()) - 1;
  return {.y = d.y,
          .x = d.x,
          .w = {.data = d.w.data, .dtype = d.x.dtype, .groups = groups, .n = d.n, .k = d.k},
          .bias = d.bias,
          .rows = d.rows};
}

Tensor run(GpuRig& rig, LinearData d, const ProductSize* size = nullptr) {
  d.y = rig.put(d.y);
  d.x = rig.put(d.x);
  d.w = rig.put(d.w);
  d.bias = rig.put(d.bias);
  if (size == nullptr) {
    grouped_linear_forward(*rig.gpu, call(d));
  } else {
    grouped_linear_forward(*rig.gpu, call(d), *size);
  }
  return d.y;
}

const std::vector<LinearCase>& linear_cases() {
  static const std::vector<LinearCase> all = {
      {{1}, 1, 1, DType::kBF16, DType::kF32, false},  // smallest
      {{1}, 1, 1, DType::kF32, DType::kF32, true},
      {{70}, 40, 80, DType::kBF16, DType::kBF16, true},  // nothing is a multiple of a tile
      {{65}, 65, 33, DType::kBF16, DType::kF32, true},   // one past each
      {{33}, 70, 37, DType::kF32, DType::kF32, true},
      {{64}, 64, 64, DType::kBF16, DType::kF32, false},           // everything is
      {{3, 0, 66, 1}, 20, 50, DType::kBF16, DType::kBF16, true},  // groups, one of them empty
      {{0, 5, 0, 70}, 9, 20, DType::kF32, DType::kF32, false},
  };
  return all;
}

TEST(GpuLinear, MatchesTheReferenceInEveryWaveAndOrder) {
  for (const LinearCase& c : linear_cases()) {
    Rig host;
    const LinearData data = make_data(host, c);
    LinearData want = data;
    want.y = host.copy(data.y);
    ref::grouped_linear_forward(call(want));
    for (const Emulation& e : all_emulations()) {
      SCOPED_TRACE(emulation_text(e) + " n=" + std::to_string(c.n) + " k=" + std::to_string(c.k));
      GpuRig rig(e);
      EXPECT_CLOSE(rig.get(host, run(rig, data)), want.y, tolerance(c.y, c.k));
    }
  }
}

constexpr ProductSize kSizes[] = {ProductSize::kNarrow, ProductSize::kMiddle, ProductSize::kLarge};

// Blocks of a size are in no bit: several of each, ends within them, widths that are no multiple of a chunk.
TEST(GpuLinear, EverySizeOfBlocksHasTheSameBits) {
  for (const LinearCase& c : {LinearCase{{130, 0, 20}, 136, 72, DType::kBF16, DType::kBF16, true},
                              LinearCase{{17}, 33, 35, DType::kBF16, DType::kF32, false}}) {
    for (const MatrixRule rule : {MatrixRule::kSm90, MatrixRule::kCdna3}) {
      Rig host;
      const LinearData data = make_data(host, c);
      Tensor first;
      for (const ProductSize size : kSizes) {
        const auto run_sized = [&](GpuRig& r) { return run(r, data, &size); };
        expect_one_result(orders_of(rule), run_sized);
        GpuRig rig(orders_of(rule).front());
        const Tensor got = rig.get(host, run_sized(rig));
        if (size == kSizes[0]) first = got;
        EXPECT_SAME_BITS(got, first);
      }
    }
  }
}

TEST(GpuLinear, SizesAreChosenByRowsOfAGroupAndBlocks) {
  EXPECT_EQ(product_size(1, 1, 8192), ProductSize::kNarrow);
  EXPECT_EQ(product_size(16, 16 * 32, 8192), ProductSize::kNarrow);
  EXPECT_EQ(product_size(1, 33, 8192), ProductSize::kMiddle);
  EXPECT_EQ(product_size(1, 2048, 2047), ProductSize::kLarge);
  EXPECT_EQ(product_size(1, 2048, 1920), ProductSize::kMiddle);
  EXPECT_EQ(product_size(16, 16 * 64, 8192), ProductSize::kMiddle);
}

// Of the product below: one for each generation, no two the same.
constexpr StatedHashes kLinearHashes = {
    "ddc2cc2470b94074bcfb700f480ab26c", "b28f6787e5fea9c809d0ae03f9e189f6",
    "73b2ff2807e42a03c0a5d73fbee3ea2c", "028cc1ec64757a885dc6971f1c2fcbbb",
    "33d5467484bfbbc76f617d808479be04"};

// Matrix units of NVIDIA cut off: up to one ulp of the largest sum each step, always the same way.
TEST(GpuLinear, EveryGenerationIsNearTheReferenceAndHasOneResult) {
  Rig host;
  const LinearCase c = {{70}, 40, 80, DType::kBF16, DType::kF32, false};
  const LinearData data = make_data(host, c);
  LinearData want = data;
  want.y = host.copy(data.y);
  ref::grouped_linear_forward(call(want));
  for (const MatrixRule rule : kMatrixRules) {
    expect_one_result(orders_of(rule), [&](GpuRig& r) { return run(r, data); });
    GpuRig rig(orders_of(rule).front());
    const Tensor got = rig.get(host, run(rig, data));
    Tolerance allowed = tolerance(DType::kF32, c.k);
    allowed.relative += static_cast<double>(c.k) / 8 * 0x1p-23;
    expect_close(got, want.y, allowed, matrix_rule_name(rule));
    expect_stated_hash(got, kLinearHashes, rule);
  }
}

TEST(GpuLinear, ARowAloneIsTheRowInCompany) {
  for (const MatrixRule rule : kMatrixRules) {
    Rig host;
    const LinearData all = make_data(host, {{67}, 20, 70, DType::kBF16, DType::kF32, true});
    GpuRig rig(orders_of(rule).front());
    const Tensor together = rig.get(host, run(rig, all));
    for (const int64_t t : {0, 15, 63, 66}) {
      LinearData one = all;
      one.y = all.y.rows(t, t + 1);
      one.x = all.x.rows(t, t + 1);
      one.rows = {0, 1};
      EXPECT_SAME_BITS(rig.get(host, run(rig, one)), together.rows(t, t + 1));
    }
  }
}

TEST(GpuLinear, AGroupedRowIsThePlainRowAndF32IsTheSameInBothWaves) {
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    Rig host;
    const LinearData grouped = make_data(host, {{5, 66}, 20, 40, dtype, DType::kF32, false});
    LinearData second = grouped;
    second.x = grouped.x.rows(5, 71);
    second.y = grouped.y.rows(5, 71);
    second.w = grouped.w.rows(20, 40);
    second.rows = {0, 66};
    GpuRig rig({.wave = 64}), other({.wave = 32});
    const Tensor got = rig.get(host, run(rig, grouped));
    EXPECT_SAME_BITS(rig.get(host, run(rig, second)), got.rows(5, 71));
    if (dtype == DType::kF32) EXPECT_SAME_BITS(other.get(host, run(other, grouped)), got);
    // Rows of no group keep what they held.
    EXPECT_SAME_BITS(got.rows(71, 74), grouped.y.rows(71, 74));
  }
}

}  // namespace
}  // namespace moraine::gpu
