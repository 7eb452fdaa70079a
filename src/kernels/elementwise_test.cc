// Elementwise: the fast kernels against the reference at lengths around a vector and a task; fails
// if a tail, a block of the sum, a rounding or a NaN is lost.
#include "kernels/elementwise.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <limits>

#include "kernels/ref/element.h"
#include "kernels/test_backends.h"
#include "testing/rig.h"

namespace moraine {
namespace {

using namespace testing;

constexpr int64_t kLengths[] = {0, 1, 15, 16, 127, 16384, 16385, 65536 + 7, 131073};
constexpr DType kElementwiseTypes[] = {DType::kF32, DType::kBF16};

TEST(Elementwise, MatchesReference) {
  for (const int64_t n : kLengths) {
    for (const DType type : kElementwiseTypes) {
      SCOPED_TRACE(::testing::Message() << n << " " << dtype_name(type));
      Rig rig;
      const Tensor x = rig.normal({n}, type, 1), before = rig.normal({n}, DType::kF32, 2);
      const Tensor want = rig.copy(before), want_s = rig.copy(x);
      ref::add_into(want, x);
      ref::scale(want_s, 0.3f);
      for_each_isa([&](Isa) {
        const Tensor y = rig.copy(before), s = rig.copy(x);
        add_into(rig.ctx, y, x);
        EXPECT_SAME_BITS(y, want);  // one rounding each
        scale(rig.ctx, s, 0.3f);
        EXPECT_CLOSE(s, want_s, tolerance(type, 1));
        // Double sums of exact squares: 2^-53 for each addition, far below 1e-13.
        double squares = -1, want_squares = -1;
        const ElementRange all{0, n};
        squares_of_ranges(rig.ctx, {.sums = {&squares, 1}, .x = x, .ranges = {&all, 1}});
        ref::squares_of_ranges({.sums = {&want_squares, 1}, .x = x, .ranges = {&all, 1}});
        EXPECT_NEAR(squares, want_squares, 1e-13 * want_squares);
        EXPECT_TRUE(all_finite(rig.ctx, x));
        zero(rig.ctx, s);
        for (int64_t i = 0; i < n; ++i) ASSERT_EQ(ref::get(s, i), 0) << i;
      });
    }
  }
}

TEST(Elementwise, CopiesRoundAsAsked) {
  for (const int64_t n : kLengths) {
    Rig rig;
    const Tensor numbers = rig.normal({n}, DType::kF32, 1);
    for (const DType from : kElementwiseTypes) {
      for (const DType to : kElementwiseTypes) {
        for (const DType precision : kElementwiseTypes) {
          const Tensor x = rig.copy_as(numbers, from), y = rig.zeros({n}, to),
                       want = rig.zeros({n}, to);
          ref::round_copy(want, x, precision);
          for_each_isa([&](Isa) {
            zero(rig.ctx, y);
            round_copy(rig.ctx, y, x, precision);
            EXPECT_SAME_BITS(y, want);
          });
        }
      }
    }
    for_each_isa([&](Isa) {
      const Tensor x = rig.copy(numbers), want = rig.copy(numbers);
      round_copy(rig.ctx, x, x, DType::kF32);
      EXPECT_SAME_BITS(x, numbers);
      round_copy(rig.ctx, x, x, DType::kBF16);
      ref::round_copy(want, want, DType::kBF16);
      EXPECT_SAME_BITS(x, want);
    });
  }
}

// Ties, overflow to infinity, subnormals, signed zeros, NaN whose payload is all ones.
TEST(Elementwise, RoundingOfEveryKindOfNumber) {
  for_each_isa([](Isa) {
    constexpr uint32_t kBits[] = {0x3f808000, 0x3f818000, 0x3f808001, 0x3f807fff, 0x7f7fffff,
                                  0xff7fffff, 0x00000001, 0x80018000, 0x80000000, 0x7f800000,
                                  0xff800000, 0x7fc00000, 0x7fffffff, 0xffffffff, 0x7f800001,
                                  0x7f80ffff, 0x007f8000};
    const int64_t n = std::size(kBits);
    Rig rig;
    const Tensor x = rig.zeros({n}, DType::kF32), wide = rig.zeros({n}, DType::kF32),
                 narrow = rig.zeros({n}, DType::kBF16);
    std::memcpy(x.data, kBits, sizeof kBits);
    round_copy(rig.ctx, wide, x, DType::kBF16);
    round_copy(rig.ctx, narrow, x, DType::kBF16);
    for (int64_t i = 0; i < n; ++i) {
      const BF16 want = to_bf16(std::bit_cast<float>(kBits[i]));
      EXPECT_EQ(narrow.as<BF16>()[i].bits, want.bits) << std::hex << kBits[i];
      EXPECT_EQ(std::bit_cast<uint32_t>(wide.as<float>()[i]), uint32_t{want.bits} << 16)
          << std::hex << kBits[i];
    }
  });
}

TEST(Elementwise, FindsOneBadNumberAnywhere) {
  for_each_isa([](Isa) {
    Rig rig;
    for (const DType type : kElementwiseTypes) {
      const Tensor x = rig.normal({70001}, type, 1);
      for (const int64_t at : {0, 17, 65535, 65536, 70000}) {
        for (const float bad : {kNaN, kInf, -kInf}) {
          const double before = ref::get(x, at);
          ref::set(x, at, bad);
          EXPECT_FALSE(all_finite(rig.ctx, x)) << at << " " << bad;
          ref::set(x, at, before);
        }
      }
      ref::set(x, 5, 3.3e38);
      ref::set(x, 6, -3.3e38);
      EXPECT_TRUE(all_finite(rig.ctx, x));
    }
  });
}

TEST(Elementwise, SquaresOfRangesDependOnTheRangeAlone) {
  for_each_isa([](Isa) {
    Rig one(Backend::kCpu, 1), four(Backend::kCpu, 4);
    const Tensor x = one.normal({200003}, DType::kF32, 1);
    const std::vector<ElementRange> ranges = {{0, 0},          {0, 1}, {1, 65537},
                                              {65537, 131073}, {7, 7}, {131073, 200003}};
    std::vector<double> a(ranges.size(), -1.0), b = a, want = a;
    squares_of_ranges(one.ctx, {.sums = a, .x = x, .ranges = ranges});
    squares_of_ranges(four.ctx, {.sums = b, .x = x, .ranges = ranges});
    ref::squares_of_ranges({.sums = want, .x = x, .ranges = ranges});
    for (size_t j = 0; j < ranges.size(); ++j) {
      EXPECT_EQ(a[j], b[j]);
      EXPECT_NEAR(a[j], want[j], 1e-12 * (1 + want[j])) << j;
      // The same elements elsewhere in memory.
      Tensor moved = one.zeros({ranges[j].end - ranges[j].begin + 3}, DType::kF32);
      for (int64_t i = ranges[j].begin; i < ranges[j].end; ++i)
        moved.as<float>()[3 + i - ranges[j].begin] = x.as<float>()[i];
      const std::vector<ElementRange> alone = {{3, moved.count()}};
      double sum = -1;
      squares_of_ranges(one.ctx, {.sums = {&sum, 1}, .x = moved, .ranges = alone});
      EXPECT_EQ(sum, a[j]) << j;
    }
    // Squares leave the range of a float.
    const Tensor big = one.normal({100}, DType::kF32, 2, 1e30);
    const std::vector<ElementRange> all = {{0, 100}};
    double sum = 0, want_sum = 0;
    squares_of_ranges(one.ctx, {.sums = {&sum, 1}, .x = big, .ranges = all});
    ref::squares_of_ranges({.sums = {&want_sum, 1}, .x = big, .ranges = all});
    EXPECT_NEAR(sum / want_sum, 1, 1e-13);
  });
}

// A slice of a flat buffer starts at any element.
TEST(Elementwise, SlicesNeedNoAlignment) {
  for_each_isa([](Isa) {
    Rig rig;
    const Tensor buffer = rig.normal({1003}, DType::kF32, 1),
                 y = rig.normal({1003}, DType::kF32, 2), want = rig.copy(y);
    for (const int64_t begin : {1, 3, 15}) {
      const Tensor x = buffer.rows(begin, begin + 900), to = y.rows(begin + 2, begin + 902),
                   expected = want.rows(begin + 2, begin + 902);
      add_into(rig.ctx, to, x);
      ref::add_into(expected, x);
      EXPECT_SAME_BITS(y, want);
      round_copy(rig.ctx, to, x, DType::kBF16);
      ref::round_copy(expected, x, DType::kBF16);
      EXPECT_SAME_BITS(y, want);
      zero(rig.ctx, to.rows(5, 800));
      ref::zero(expected.rows(5, 800));
      EXPECT_SAME_BITS(y, want);
    }
  });
}

// Past 32 MiB results are written around the caches; below an aligned start they are not.
TEST(Elementwise, LargeBuffersAreWrittenWhole) {
  for_each_isa([](Isa) {
    Rig rig;
    const int64_t n = (int64_t{32} << 20) / 2 + 77;  // bf16: just over the limit
    const Tensor f = rig.zeros({n + 1}, DType::kF32), g = rig.zeros({n + 1}, DType::kF32),
                 h = rig.zeros({n + 1}, DType::kBF16);
    uint32_t state = 1;
    for (int64_t i = 0; i <= n; ++i) {
      state = state * 1664525u + 1013904223u;
      f.as<float>()[i] = static_cast<float>(state >> 8) * 0x1p-24f;
    }
    // Every lane and every task's end, not every element: this must be fast under a sanitizer.
    const auto step = [](int64_t i) {
      return i < 1000 || i > n - 1000 || i % 65536 > 65400 ? 1 : 61;
    };
    for (const int64_t begin : {0, 1}) {
      const Tensor from = f.rows(begin, begin + n), to = g.rows(begin, begin + n),
                   narrow = h.rows(begin, begin + n);
      int64_t wrong = 0;
      round_copy(rig.ctx, to, from, DType::kF32);
      wrong += std::memcmp(to.data, from.data, static_cast<size_t>(n * 4)) != 0;
      round_copy(rig.ctx, narrow, from, DType::kF32);
      for (int64_t i = 0; i < n; i += step(i))
        wrong += narrow.as<BF16>()[i].bits != to_bf16(from.as<float>()[i]).bits;
      zero(rig.ctx, to);
      for (int64_t i = 0; i < n; i += step(i)) wrong += to.as<float>()[i] != 0;
      round_copy(rig.ctx, to, narrow, DType::kF32);
      for (int64_t i = 0; i < n; i += step(i))
        wrong += to.as<float>()[i] != to_float(narrow.as<BF16>()[i]);
      round_copy(rig.ctx, to, from, DType::kBF16);
      for (int64_t i = 0; i < n; i += step(i))
        wrong += to.as<float>()[i] != round_bf16(from.as<float>()[i]);
      EXPECT_EQ(wrong, 0) << begin;
    }
  });
}

TEST(Elementwise, ZeroClearsIntegersAndReferenceTakesF64) {
  Rig rig, reference(Backend::kRef);
  const Tensor ids = rig.integers({100}, 1000, 1), wide = rig.normal({50}, DType::kF64, 2),
               y = rig.normal({50}, DType::kF64, 3);
  zero(rig.ctx, ids);
  for (int64_t i = 0; i < 100; ++i) EXPECT_EQ(ids.as<int32_t>()[i], 0);
  zero(rig.ctx, y);
  add_into(reference.ctx, y, wide);
  EXPECT_SAME_BITS(y, wide);
}

}  // namespace
}  // namespace moraine
