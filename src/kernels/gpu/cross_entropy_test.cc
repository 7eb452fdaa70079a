// CrossEntropy on an emulated GPU: fails if a loss, a log of a sum or a gradient is off, if a row without a target
// costs something, if a NaN is lost, or if a bit depends on the wave or on the order of threads.
#include "kernels/cross_entropy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/gpu/cross_entropy.h"
#include "kernels/gpu/test_gpu_forward.h"

namespace moraine::gpu {
namespace {

using namespace testing;

std::vector<GpuField> fields(CrossEntropy& c) {
  return {{&c.loss, "loss"},
          {&c.dlogits, "dlogits"},
          {&c.lse, "lse"},
          {&c.logits, nullptr},
          {&c.target, nullptr}};
}

CrossEntropy make_data(Rig& rig, int64_t V, DType gradient) {
  const int64_t T = 4;
  CrossEntropy c = {.loss = rig.normal({T}, DType::kF32, 1),
                    .dlogits = rig.normal({T, V}, gradient, 2),
                    .logits = rig.normal({T, V}, DType::kF32, 3, 4),
                    .target = rig.integers({T}, V, 4),
                    .lse = rig.zeros({T}, DType::kF64)};
  c.target.as<int32_t>()[2] = -1;
  return c;
}

TEST(GpuCrossEntropy, MatchesTheReferenceWithOneResult) {
  for (const int64_t V : {1, 255, 700}) {
    for (const DType gradient : {DType::kF32, DType::kBF16}) {
      SCOPED_TRACE(V);
      Rig host;
      const CrossEntropy all = make_data(host, V, gradient);
      const CrossEntropy got = expect_forward(
          host, all, GpuOperation{&fields, &gpu::cross_entropy, &ref::cross_entropy, V + 4});
      EXPECT_EQ(got.loss.as<float>()[2], 0);
      CrossEntropy loss_only = all;  // the same loss without the rest
      loss_only.dlogits = loss_only.lse = Tensor();
      GpuRig rig({.wave = 64});
      for (const GpuField& f : fields(loss_only)) *f.tensor = rig.put(*f.tensor);
      cross_entropy(*rig.gpu, loss_only);
      EXPECT_SAME_BITS(rig.get(host, loss_only.loss), got.loss);
    }
  }
}

TEST(GpuCrossEntropy, NaNAndInfinityStayWhatTheyAre) {
  Rig host;
  CrossEntropy c = make_data(host, 300, DType::kF32);
  constexpr float kInf = std::numeric_limits<float>::infinity();
  c.dlogits = Tensor();
  c.logits.as<float>()[17] = std::numeric_limits<float>::quiet_NaN();
  for (int64_t v = 0; v < 300; ++v) c.logits.as<float>()[300 + v] = v == 9 ? 2.0f : -kInf;
  c.target.as<int32_t>()[1] = 9;
  const CrossEntropy got =
      expect_forward(host, c, GpuOperation{&fields, &gpu::cross_entropy, &ref::cross_entropy, 304});
  EXPECT_TRUE(std::isnan(got.loss.as<float>()[0]));
  EXPECT_EQ(got.loss.as<float>()[1], 0);
  EXPECT_EQ(got.lse.as<double>()[1], 2);
}

}  // namespace
}  // namespace moraine::gpu
