// Fails if an exact product lies outside the interval that its coarse copy gives, on any instruction set, of random or
// of hostile weights and rows; if the interval is much wider than it has to be; or if what can not be bounded is.
#include "kernels/coarse.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/random.h"
#include "kernels/quantised.h"
#include "testing/rig.h"

namespace moraine {
namespace {

using testing::for_each_isa;
using testing::Rig;

struct CoarseShape {
  int64_t rows, n, k;
};
// One, odd, one past a panel, a block or a block of the sum, and real widths.
constexpr CoarseShape kCoarseShapes[] = {{1, 1, 1},     {2, 33, 65},   {7, 31, 1025}, {3, 64, 128},
                                         {17, 40, 300}, {1, 96, 2048}, {33, 70, 4096}};
constexpr DType kCoarseTypes[] = {DType::kF32, DType::kBF16};

// A matrix, exact and coarse, of weights rounded to `dtype`.
struct Both {
  PackedMatrix exact;
  CoarseMatrix coarse;
};

class Memory {
 public:
  Both make(Rig& rig, const Tensor& w, DType dtype) {
    Both both;
    both.exact = take_packed(arena_, "exact", {.dtype = dtype, .n = w.dims[0], .k = w.dims[1]});
    both.coarse = take_coarse(arena_, "coarse", both.exact);
    pack_matrix(rig.ctx, {.packed = both.exact, .w = w, .transpose = false});
    make_coarse(rig.ctx, both.exact, both.coarse);
    return both;
  }

 private:
  Arena arena_{Arena::Mode::kReal};
};

Tensor product(Rig& rig, const Tensor& x, const PackedMatrix& w) {
  const Tensor y = rig.zeros({x.dims[0], w.n}, DType::kF32);
  linear_forward(rig.ctx, {.y = y, .x = x, .w = w, .bias = {}});
  return y;
}

// Every product lies in its interval: as the engine computes it, and in double. Returns the largest
// |exact - coarse| as a part of half the interval's width.
double check_intervals(Rig& rig, const Both& both, const Tensor& x) {
  const int64_t n = both.exact.n, k = both.exact.k;
  const Tensor exact = product(rig, x, both.exact), coarse = product(rig, x, both.coarse.pack),
               wide = rig.copy_as(x, DType::kF64);
  std::vector<float> lower(static_cast<size_t>(n)), upper = lower, w(static_cast<size_t>(k));
  double most = 0;
  for (int64_t t = 0; t < x.dims[0]; ++t) {
    const RowLengths lengths = row_lengths(x, t);
    EXPECT_TRUE(has_reach(both.coarse, lengths));
    coarse_interval(
        both.coarse, lengths,
        {.lower = lower.data(), .upper = upper.data(), .coarse = coarse.as<float>() + t * n});
    for (int64_t v = 0; v < n; ++v) {
      const size_t at = static_cast<size_t>(v);
      const float got = exact.as<float>()[t * n + v], center = coarse.as<float>()[t * n + v];
      EXPECT_LE(lower[at], got) << t << " " << v;
      EXPECT_GE(upper[at], got) << t << " " << v;
      read_packed_row(both.exact, 0, v, w.data());
      double sum = 0;
      for (int64_t i = 0; i < k; ++i)
        sum += static_cast<double>(w[static_cast<size_t>(i)]) * wide.as<double>()[t * k + i];
      EXPECT_LE(static_cast<double>(lower[at]), sum) << t << " " << v;
      EXPECT_GE(static_cast<double>(upper[at]), sum) << t << " " << v;
      const double width = static_cast<double>(upper[at]) - static_cast<double>(lower[at]);
      most = std::max(most,
                      2 * std::abs(static_cast<double>(got) - static_cast<double>(center)) / width);
    }
  }
  return most;
}

TEST(Coarse, RandomProductsLieInTheirIntervals) {
  for_each_isa([](Isa cap) {
    for (const DType dtype : kCoarseTypes) {
      for (const CoarseShape& s : kCoarseShapes) {
        SCOPED_TRACE(fmt::format("{} {} rows={} n={} k={}", isa_name(cap), dtype_name(dtype),
                                 s.rows, s.n, s.k));
        Rig rig;
        Memory memory;
        const Both both = memory.make(rig, rig.normal({s.n, s.k}, DType::kF32, 1, 0.02), dtype);
        check_intervals(rig, both, rig.normal({s.rows, s.k}, dtype, 2, 3));
      }
    }
  });
}

// Weights of which each but a block's largest loses half a step, and a row of the first word's signs.
struct Leaning {
  Tensor w, x;
};
Leaning lean_on_weights(Rig& rig, int64_t n, int64_t k, uint64_t seed) {
  const Tensor w = rig.normal({n, k}, DType::kF32, seed), x = rig.zeros({1, k}, DType::kF32);
  // Scales are 1: a block's largest is 127. The others lie just below a half between two integers.
  for (int64_t v = 0; v < n; ++v) {
    for (int64_t i = 0; i < k; ++i) {
      float& weight = w.as<float>()[v * k + i];
      const bool up = weight > 0;
      weight = i % kQuantisedBlock == 0 ? 127 : (up ? 3.5f - 0x1p-10f : -3.5f + 0x1p-10f);
    }
  }
  // The first word's errors: +1/2 where it is positive, -1/2 where not, and nothing at the largest.
  for (int64_t i = 0; i < k; ++i)
    x.as<float>()[i] = i % kQuantisedBlock == 0 ? 0 : w.as<float>()[i] > 0 ? 1.0f : -1.0f;
  return {w, x};
}

// Errors of weights that all point the same way as the row, whose own integers are exact: nothing wider would do.
TEST(Coarse, ErrorsOfWeightsThatLeanOnTheRowReachTheBound) {
  for_each_isa([](Isa cap) {
    for (const int64_t k : {64, 512, 2048}) {
      SCOPED_TRACE(fmt::format("{} k={}", isa_name(cap), k));
      Rig rig;
      Memory memory;
      const Leaning lean = lean_on_weights(rig, 33, k, 3);
      const Both both = memory.make(rig, lean.w, DType::kF32);
      EXPECT_GT(check_intervals(rig, both, lean.x), 0.97);
    }
  });
}

// Errors of the row that all point the same way as a word whose own integers are exact.
TEST(Coarse, ErrorsOfTheRowThatLeanOnAWordReachTheBound) {
  for_each_isa([](Isa cap) {
    for (const int64_t k : {64, 512, 2048}) {
      SCOPED_TRACE(fmt::format("{} k={}", isa_name(cap), k));
      Rig rig;
      Memory memory;
      const Leaning lean = lean_on_weights(rig, 1, k, 4);
      const Tensor w = rig.zeros({33, k}, DType::kF32);
      for (int64_t i = 0; i < 33 * k; ++i)
        w.as<float>()[i] = i % 64 == 0 ? 0 : (lean.w.as<float>()[i % k] > 0 ? 127.0f : -127.0f);
      const Both both = memory.make(rig, w, DType::kF32);
      EXPECT_GT(check_intervals(rig, both, lean.w), 0.97);
    }
  });
}

// Integers on both sides, so nothing is lost but what sums of more than 24 bits round; the row's second half takes
// away what its first half gave, so they are large beside what is left.
TEST(Coarse, RoundingsOfSumsAreCounted) {
  for_each_isa([](Isa cap) {
    SCOPED_TRACE(isa_name(cap));
    Rig rig;
    Memory memory;
    const int64_t n = 33, k = 16384;
    const auto integers = [&](int64_t rows, float second_half, uint64_t seed) {
      const Tensor t = rig.integers({rows, k}, 128, seed), to = rig.zeros({rows, k}, DType::kF32);
      for (int64_t i = 0; i < t.count(); ++i) {
        const float size = i % 64 == 0 ? 127 : static_cast<float>(t.as<int32_t>()[i]);
        to.as<float>()[i] = i % k < k / 2 ? size : second_half * size;
      }
      return to;
    };
    const Both both = memory.make(rig, integers(n, 1, 14), DType::kF32);
    EXPECT_GT(check_intervals(rig, both, integers(2, -1, 15)), 0) << "every sum was exact";
  });
}

// Halves, where the integer may be either neighbour: the one that is counted is the one that is used.
TEST(Coarse, TiesAreCountedAsTheyAreRounded) {
  for_each_isa([](Isa cap) {
    SCOPED_TRACE(isa_name(cap));
    Rig rig;
    Memory memory;
    const int64_t k = 256;
    const Tensor x = rig.zeros({8, k}, DType::kF32), w = rig.normal({64, k}, DType::kF32, 5);
    for (int64_t i = 0; i < x.count(); ++i)
      x.as<float>()[i] = i % 64 == 0 ? 127 : static_cast<float>(i % 97) - 48.5f;
    check_intervals(rig, memory.make(rig, w, DType::kF32), x);
  });
}

// One block of a word, and one element of a row, that dwarf all others.
TEST(Coarse, OutliersWidenTheirOwnIntervals) {
  for_each_isa([](Isa cap) {
    for (const DType dtype : kCoarseTypes) {
      SCOPED_TRACE(fmt::format("{} {}", isa_name(cap), dtype_name(dtype)));
      Rig rig;
      Memory memory;
      const int64_t n = 65, k = 320;
      const Tensor w = rig.normal({n, k}, DType::kF32, 6), x = rig.normal({5, k}, dtype, 7);
      w.as<float>()[40 * k + 70] = 1e6f;
      const Both both = memory.make(rig, w, dtype);
      EXPECT_GT(both.coarse.error.as<float>()[40], 100 * both.coarse.error.as<float>()[41]);
      check_intervals(rig, both, x);
      const Tensor spiked = rig.copy_as(x, DType::kF32);
      for (int64_t t = 0; t < 5; ++t) spiked.as<float>()[t * k + 100 + t] = 1e7f;
      check_intervals(rig, both, rig.copy_as(spiked, dtype));
    }
  });
}

TEST(Coarse, SizesFromDenormalToHugeLieInTheirIntervals) {
  for_each_isa([](Isa cap) {
    for (const DType dtype : kCoarseTypes) {
      for (const double w_size : {1e-42, 1e-38, 1e-20, 1.0, 1e12}) {
        for (const double x_size : {1e-42, 1e-38, 1e-20, 1.0, 1e12}) {
          SCOPED_TRACE(
              fmt::format("{} {} {} {}", isa_name(cap), dtype_name(dtype), w_size, x_size));
          Rig rig;
          Memory memory;
          const Both both = memory.make(rig, rig.normal({34, 130}, DType::kF32, 8, w_size), dtype);
          check_intervals(rig, both, rig.normal({2, 130}, dtype, 9, x_size));
        }
      }
    }
  });
}

// Seeded shapes, sizes by block, zeros and repeated values: what a table does not think of.
TEST(Coarse, ManySeededCasesLieInTheirIntervals) {
  for_each_isa([](Isa cap) {
    for (uint64_t seed = 0; seed < 60; ++seed) {
      SCOPED_TRACE(fmt::format("{} seed={}", isa_name(cap), seed));
      const auto draw = [&](uint64_t below, uint64_t index) {
        return static_cast<int64_t>(random_below(below, seed, Stream::kTest, 1, index));
      };
      const int64_t n = 1 + draw(70, 0), k = 1 + draw(400, 1), rows = 1 + draw(4, 2);
      const DType dtype = kCoarseTypes[draw(2, 3)];
      Rig rig;
      Memory memory;
      const Tensor w = rig.normal({n, k}, DType::kF32, seed),
                   x = rig.normal({rows, k}, DType::kF32, seed + 1);
      const auto shape_blocks = [&](const Tensor& t, uint64_t salt) {
        for (int64_t i = 0; i < t.count(); ++i) {
          const int64_t kind = draw(6, salt + static_cast<uint64_t>(i / 50));
          float& value = t.as<float>()[i];
          if (kind == 0) value = 0;
          if (kind == 1) value = std::ldexp(value, static_cast<int>(i / 50 % 40) - 20);
          if (kind == 2) value = std::round(4 * value);
        }
      };
      shape_blocks(w, 1000);
      shape_blocks(x, 2000);
      check_intervals(rig, memory.make(rig, w, dtype), rig.copy_as(x, dtype));
    }
  });
}

TEST(Coarse, WhatCanNotBeBoundedIsNot) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity(),
                  kNan = std::numeric_limits<float>::quiet_NaN();
  Rig rig;
  Memory memory;
  const Tensor w = rig.normal({40, 100}, DType::kF32, 10);
  const Both good = memory.make(rig, w, DType::kF32);
  for (const float bad : {kInfinity, -kInfinity, kNan, 1e30f}) {
    const Tensor x = rig.normal({2, 100}, DType::kF32, 11), spoiled = rig.copy(w);
    EXPECT_TRUE(has_reach(good.coarse, row_lengths(x, 1)));
    x.as<float>()[100 + 99] = bad;
    EXPECT_TRUE(has_reach(good.coarse, row_lengths(x, 0)));
    EXPECT_FALSE(has_reach(good.coarse, row_lengths(x, 1))) << bad;
    spoiled.as<float>()[39 * 100 + 70] = bad;
    EXPECT_FALSE(has_reach(memory.make(rig, spoiled, DType::kF32).coarse, row_lengths(x, 0)))
        << bad;
  }
}

TEST(Coarse, OnlyPlainMatricesHaveACopy) {
  PackedMatrix w = {.dtype = DType::kBF16, .groups = 1, .n = 64, .k = 64};
  EXPECT_TRUE(can_be_coarse(w));
  w.format = WeightFormat::kQ8;
  EXPECT_FALSE(can_be_coarse(w));
  w.format = WeightFormat::kPlain;
  w.dtype = DType::kF64;
  EXPECT_FALSE(can_be_coarse(w));
  w.dtype = DType::kF32;
  w.groups = 2;
  EXPECT_FALSE(can_be_coarse(w));
}

// Made again after the weights have changed, from any number of threads: the bytes are a function of the weights.
TEST(Coarse, ACopyIsAFunctionOfTheWeights) {
  Rig one(Backend::kCpu, 1), three(Backend::kCpu, 3);
  Memory memory;
  const Tensor w = one.normal({100, 130}, DType::kF32, 12),
               other = one.normal({100, 130}, DType::kF32, 13);
  const Both a = memory.make(one, w, DType::kBF16);
  Both b = memory.make(three, other, DType::kBF16);
  pack_matrix(three.ctx, {.packed = b.exact, .w = w, .transpose = false});
  make_coarse(three.ctx, b.exact, b.coarse);
  EXPECT_SAME_BITS(b.coarse.error, a.coarse.error);
  EXPECT_SAME_BITS(b.coarse.norm, a.coarse.norm);
  EXPECT_EQ(b.coarse.norm_most, a.coarse.norm_most);
  const int64_t bytes = packed_bytes(a.coarse.pack);
  EXPECT_SAME_BITS(make_tensor(b.coarse.pack.data, DType::kU8, {bytes}),
                   make_tensor(a.coarse.pack.data, DType::kU8, {bytes}));
}

}  // namespace
}  // namespace moraine
