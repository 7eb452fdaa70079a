// Squares and transposes on an emulated GPU: fails if an element is left out or counted twice, if a sum leaves what a
// float holds, if an element that is not finite is passed over, or if a bit depends on the wave, on the order of
// threads or on where a range lies.
#include "kernels/gpu/squares.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/elementwise.h"
#include "kernels/gpu/optimizer_passes.h"
#include "kernels/gpu/test_gpu_rig.h"
#include "kernels/ref/element.h"

namespace moraine::gpu {
namespace {

using namespace testing;

std::vector<double> run(GpuRig& rig, const Tensor& x, std::span<const ElementRange> ranges) {
  std::vector<double> sums(ranges.size(), -1);
  squares_of_ranges(*rig.gpu, {.sums = sums, .x = rig.put(x), .ranges = ranges});
  return sums;
}

TEST(GpuSquares, MatchTheReferenceWithOneResult) {
  const std::vector<ElementRange> ranges = {{0, 0}, {3, 4}, {5, 905}, {905, 1000}, {0, 1000}};
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Rig host;
    const Tensor x = host.normal({1000}, dtype, 1, 1e25);  // squares past a float
    std::vector<double> want(ranges.size());
    ref::squares_of_ranges({.sums = want, .x = x, .ranges = ranges});
    GpuRig first({.wave = 32});
    const std::vector<double> got = run(first, x, ranges);
    for (size_t j = 0; j < want.size(); ++j) {
      const double terms = static_cast<double>(ranges[j].end - ranges[j].begin);
      EXPECT_NEAR(got[j], want[j], want[j] * terms * 0x1p-53) << j;
    }
    for (const Emulation& e : all_emulations()) {
      GpuRig rig(e);
      EXPECT_EQ(run(rig, x, ranges), got) << emulation_text(e);
    }
    const std::vector<ElementRange> moved = {{0, 900}};
    EXPECT_EQ(run(first, x.rows(5, 905), moved)[0], got[2]);
  }
}

// The first of a piece, the last of all, and one in the middle; numbers of any size are finite.
TEST(GpuSquares, OneElementThatIsNotFiniteIsSeen) {
  constexpr int64_t kCount = 40001;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int wave : {32, 64}) {
      Rig host;
      const Tensor x = host.normal({kCount}, dtype, 1);
      for (int64_t i = 0; i < kCount; i += 7) ref::set(x, i, i % 2 == 0 ? 3.3e38 : -3.3e38);
      GpuRig rig({.wave = wave});
      EXPECT_TRUE(all_finite(rig.ctx, rig.put(x)));
      for (const int64_t at : {int64_t{16384}, int64_t{20001}, kCount - 1}) {
        for (const double bad : {HUGE_VAL, -HUGE_VAL, std::nan("")}) {
          const double before = ref::get(x, at);
          ref::set(x, at, bad);
          EXPECT_FALSE(all_finite(rig.ctx, rig.put(x))) << at << " " << bad;
          ref::set(x, at, before);
        }
      }
    }
  }
}

TEST(GpuTranspose, IsExact) {
  for (const auto& [rows, cols] :
       {std::pair<int64_t, int64_t>{1, 1}, {3, 50}, {33, 32}, {65, 40}}) {
    Rig host;
    const Tensor in = host.normal({rows, cols}, DType::kF32, 1),
                 want = host.zeros({cols, rows}, DType::kF32);
    for (int64_t i = 0; i < rows * cols; ++i) {
      want.as<float>()[i % cols * rows + i / cols] = in.as<float>()[i];
    }
    for (const Emulation& e : all_emulations()) {
      GpuRig rig(e);
      const Tensor from = rig.put(in), out = rig.put(host.zeros({cols, rows}, DType::kF32));
      transpose_pass(
          *rig.gpu,
          {.out = out.as<float>(), .in = from.as<float>(), .rows = in.dims[0], .cols = in.dims[1]});
      EXPECT_SAME_BITS(rig.get(host, out), want);
    }
  }
}

}  // namespace
}  // namespace moraine::gpu
