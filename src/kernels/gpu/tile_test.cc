// Tile: fails if the kernels' table of cells and the matrix unit's differ, if a wrong table or a missing sync_wave
// passes, or if our exp, sigmoid or log is off.
#include "kernels/gpu/tile.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <set>

#include "base/error.h"
#include "base/random.h"
#include "kernels/gpu/test_emulations.h"

namespace moraine::gpu {
namespace {

constexpr int kCells = kTile * kTile;

struct TileData {
  // Whole numbers: their products are exact in every rule; so are those of the first product, rounded to bf16.
  TileData() {
    for (int i = 0; i < kCells; ++i) {
      const auto index = static_cast<uint64_t>(i);
      a[i] = to_bf16(static_cast<float>(random_below(3, 1, Stream::kTest, 0, index)) - 1);
      b[i] = to_bf16(static_cast<float>(random_below(5, 1, Stream::kTest, 1, index)) - 2);
      c[i] = static_cast<float>(i - 100);
    }
  }
  // left b + c, or without c; left is a or what was computed
  void product(const BF16* left, const float* with, float* sum) const {
    for (int i = 0; i < kTile; ++i) {
      for (int j = 0; j < kTile; ++j) {
        float v = with == nullptr ? 0 : with[i * kTile + j];
        for (int k = 0; k < kTile; ++k)
          v += to_float(left[i * kTile + k]) * to_float(b[k * kTile + j]);
        sum[i * kTile + j] = v;
      }
    }
  }
  BF16 a[kCells], b[kCells];
  float c[kCells];
};

struct TileResult {
  float y[kCells] = {};
  std::string error;
};

TileResult run(const Emulation& e, const std::string& name, const TileData& d, bool fault) {
  TileResult r;
  const TileArgs args = {.y = r.y, .a = d.a, .b = d.b, .c = d.c, .fault = fault};
  try {
    emulate(e, test_kernel(e.wave, name), {.blocks_x = 1, .threads = 64}, &args);
  } catch (const Error& error) {
    r.error = error.what();
  }
  return r;
}

bool equal(const float* x, const float* y) { return std::memcmp(x, y, 4 * kCells) == 0; }

TEST(Tile, EveryRuleMultipliesInBothLayouts) {
  const TileData d;
  float want[kCells];
  d.product(d.a, d.c, want);
  for (const MatrixRule rule : kMatrixRules) {
    for (const Emulation& e : all_emulations(rule)) {
      const TileResult r = run(e, "tile_product", d, false);
      EXPECT_EQ(r.error, "") << emulation_text(e);
      EXPECT_TRUE(equal(r.y, want)) << emulation_text(e);
    }
  }
}

TEST(Tile, AWrongLayoutIsAWrongProduct) {
  const TileData d;
  float want[kCells], without[kCells];
  d.product(d.a, d.c, want);
  d.product(d.a, nullptr, without);
  for (const Emulation& e : all_emulations()) {
    EXPECT_TRUE(equal(run(e, "tile_sum_layout", d, false).y, want)) << emulation_text(e);
    EXPECT_FALSE(equal(run(e, "tile_sum_layout", d, true).y, want)) << emulation_text(e);
    EXPECT_TRUE(equal(run(e, "tile_right_layout", d, false).y, without)) << emulation_text(e);
    EXPECT_FALSE(equal(run(e, "tile_right_layout", d, true).y, without)) << emulation_text(e);
  }
}

// In waves of 32 a lane reads what it wrote itself, so nothing is missing there.
TEST(Tile, AMissingWaveBarrierBetweenProductsIsARaceInWavesOf64) {
  const TileData d;
  float weights[kCells], want[kCells];
  BF16 rounded[kCells];
  d.product(d.a, d.c, weights);
  for (int i = 0; i < kCells; ++i) rounded[i] = to_bf16(weights[i]);
  d.product(rounded, nullptr, want);
  for (const Emulation& e : all_emulations()) {
    SCOPED_TRACE(emulation_text(e));
    const TileResult right = run(e, "tile_chain", d, false), wrong = run(e, "tile_chain", d, true);
    EXPECT_EQ(right.error, "");
    EXPECT_TRUE(equal(right.y, want));
    EXPECT_EQ(wrong.error.find("race on shared p[") != std::string::npos, e.wave == 64)
        << wrong.error;
  }
}

TEST(Tile, RowsAreReducedByTheLanesThatHoldThem) {
  const TileData d;
  for (const Emulation& e : all_emulations()) {
    const TileResult r = run(e, "tile_rows", d, false);
    EXPECT_EQ(r.error, "");
    for (int i = 0; i < kTile; ++i) {
      float sum = 0;
      for (int j = 0; j < kTile; ++j) sum += d.c[i * kTile + j];
      EXPECT_EQ(r.y[i * kTile], sum) << emulation_text(e);
      EXPECT_EQ(r.y[i * kTile + 1], d.c[i * kTile + kTile - 1]) << emulation_text(e);
    }
  }
}

// The three numbers of own_exp, in double.
double truth(int i, float v) {
  const double wide = static_cast<double>(v);
  if (i % 3 == 0) return std::exp(-std::abs(wide));
  return i % 3 == 1 ? 1 / (1 + std::exp(-wide)) : std::log(std::abs(wide));
}

TEST(Tile, ExpSigmoidAndLogAreOurs) {
  TileData d;
  uint32_t first[kCells];
  for (uint64_t round = 0; round < 40; ++round) {
    for (int i = 0; i < kCells; ++i) {
      const double spread = 8.0 * (round % 8 + 1);
      d.c[i] = static_cast<float>(random_normal(round, Stream::kTest, 2, static_cast<uint64_t>(i)) *
                                  spread);
      if (std::fabs(d.c[i]) > 86) d.c[i] = 1;
    }
    for (const int wave : {32, 64}) {
      const TileResult r = run({.wave = wave}, "own_exp", d, false);
      for (int i = 0; i < kCells; ++i) {
        const double want = truth(i, d.c[i]), got = static_cast<double>(r.y[i]);
        // 0.9 ulp of exp, and of sigmoid two roundings more.
        const double allowed =
            i % 3 == 2 ? 1e-7 * (1 + std::abs(want)) : 0x1p-23 * (i % 3 == 0 ? 1 : 3) * want;
        EXPECT_LE(std::abs(got - want), allowed)
            << "number " << i % 3 << " of " << static_cast<double>(d.c[i]);
        const uint32_t bits = std::bit_cast<uint32_t>(r.y[i]);
        if (wave == 32) first[i] = bits;
        EXPECT_EQ(bits, first[i]);
      }
    }
  }
}

}  // namespace
}  // namespace moraine::gpu
