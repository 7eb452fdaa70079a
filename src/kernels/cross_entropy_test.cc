// CrossEntropy: the fast kernel against the reference, the reference against finite differences;
// fails if a large logit overflows, a chunk or tail is lost, a row without target counts, or a NaN
// is swallowed.
#include "kernels/cross_entropy.h"

#include <gtest/gtest.h>

#include <limits>

#include "kernels/ref/element.h"
#include "kernels/test_backends.h"
#include "testing/rig.h"

namespace moraine {
namespace {

using namespace testing;

struct LossCase {
  int64_t T, V;
  double gain;
};
constexpr LossCase kLossCases[] = {
    {1, 1, 1},    {3, 2, 1},    {5, 257, 1},    {7, 127, 3},    {3, 4096, 1},  // exactly one chunk
    {3, 4097, 2}, {9, 8192, 3}, {2, 8191, 300}, {2, 262272, 1}, {1, 262272, 20},
    {0, 257, 1},  {65, 31, 1},
};

// Every third row has no target.
Tensor make_targets(Rig& rig, int64_t T, int64_t V) {
  const Tensor target = rig.integers({T}, V, 7);
  for (int64_t t = 2; t < T; t += 3) target.as<int32_t>()[t] = -1;
  return target;
}

TEST(CrossEntropy, MatchesReference) {
  for_each_isa([](Isa) {
    for (const LossCase& c : kLossCases) {
      SCOPED_TRACE(::testing::Message() << "T " << c.T << " V " << c.V << " gain " << c.gain);
      Rig rig;
      const Tensor logits = rig.normal({c.T, c.V}, DType::kF32, 1, c.gain),
                   target = make_targets(rig, c.T, c.V);
      const Tensor want_loss = rig.normal({c.T}, DType::kF32, 2),
                   want = rig.zeros({c.T, c.V}, DType::kF32);
      ref::cross_entropy({.loss = want_loss, .dlogits = want, .logits = logits, .target = target});
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        const Tensor loss = rig.normal({c.T}, DType::kF32, 3), d = rig.normal({c.T, c.V}, dtype, 4);
        cross_entropy(rig.ctx, {.loss = loss, .dlogits = d, .logits = logits, .target = target});
        EXPECT_CLOSE(loss, want_loss, tolerance(DType::kF32, c.V));
        // The sum, one difference, exp and two products.
        EXPECT_CLOSE(d, want, tolerance(dtype, c.V + 4));
      }
      const Tensor alone = rig.normal({c.T}, DType::kF32, 5), both = rig.zeros({c.T}, DType::kF32);
      cross_entropy(rig.ctx, {.loss = alone, .dlogits = {}, .logits = logits, .target = target});
      cross_entropy(rig.ctx, {.loss = both,
                              .dlogits = rig.zeros({c.T, c.V}, DType::kF32),
                              .logits = logits,
                              .target = target});
      EXPECT_SAME_BITS(alone, both);
      // The normalizer gives the loss of every other target, to the bit.
      const Tensor lse = rig.zeros({c.T}, DType::kF64), with = rig.normal({c.T}, DType::kF32, 6);
      cross_entropy(rig.ctx,
                    {.loss = with, .dlogits = {}, .logits = logits, .target = target, .lse = lse});
      EXPECT_SAME_BITS(with, alone);
      for (int64_t t = 0; t < c.T; ++t) {
        const int32_t v = target.as<int32_t>()[t];
        if (v < 0) continue;
        const auto logit = static_cast<double>(logits.as<float>()[t * c.V + v]);
        EXPECT_EQ(static_cast<float>(lse.as<double>()[t] - logit), alone.as<float>()[t]) << t;
      }
    }
  });
}

TEST(CrossEntropy, ReferenceMatchesFiniteDifferences) {
  Rig rig(Backend::kRef);
  const int64_t T = 4, V = 7;
  const Tensor logits = rig.normal({T, V}, DType::kF64, 1, 2), target = make_targets(rig, T, V);
  const Tensor losses = rig.zeros({T}, DType::kF64), d = rig.zeros({T, V}, DType::kF64);
  const auto loss = [&] {
    cross_entropy(rig.ctx, {.loss = losses, .dlogits = {}, .logits = logits, .target = target});
    double sum = 0;
    for (int64_t t = 0; t < T; ++t) sum += ref::get(losses, t);
    return sum;
  };
  cross_entropy(rig.ctx, {.loss = losses, .dlogits = d, .logits = logits, .target = target});
  expect_gradient(logits, d, loss, "dlogits", 28);
}

// One row, and what its loss and gradient are.
struct Row {
  float loss;
  std::vector<float> d;
};

Row run_row(Rig& rig, const std::vector<float>& logits, int32_t target) {
  const int64_t V = static_cast<int64_t>(logits.size());
  const Tensor x = rig.zeros({1, V}, DType::kF32), d = rig.normal({1, V}, DType::kF32, 1),
               loss = rig.normal({1}, DType::kF32, 2);
  std::copy(logits.begin(), logits.end(), x.as<float>());
  cross_entropy(rig.ctx, {.loss = loss, .dlogits = d, .logits = x, .target = rig.int32s({target})});
  return {.loss = loss.as<float>()[0], .d = {d.as<float>(), d.as<float>() + V}};
}

TEST(CrossEntropy, LargeLogitsDoNotOverflow) {
  for_each_backend([](Rig& rig) {
    for (const float shift : {0.0f, 1e4f, -1e4f, 1e8f, -1e8f}) {
      const Row r = run_row(rig, std::vector<float>(257, shift), 200);
      EXPECT_NEAR(r.loss, std::log(257.0), 1e-6);
      EXPECT_NEAR(r.d[3], 1.0 / 257, 1e-8);
      EXPECT_NEAR(r.d[200], 1.0 / 257 - 1, 1e-6);
    }
    std::vector<float> far(5000, -3e38f);
    far[4500] = 3e38f;
    EXPECT_EQ(run_row(rig, far, 4500).loss, 0);
    EXPECT_EQ(run_row(rig, far, 4500).d[4500], 0);
    // A chunk of -inf before and after the only finite logit: probability zero, not NaN.
    std::vector<float> masked(9000, -kInf);
    masked[4500] = 1;
    const Row r = run_row(rig, masked, 4500);
    EXPECT_EQ(r.loss, 0);
    EXPECT_EQ(r.d[0], 0);
    EXPECT_EQ(r.d[8999], 0);
  });
}

TEST(CrossEntropy, NanShowsInLossAndGradient) {
  for_each_backend([](Rig& rig) {
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      for (const size_t at : {0, 17, 4095, 4096, 5000, 5002}) {
        std::vector<float> logits(5003, 0.5f);
        logits[at] = bad;
        const Row r = run_row(rig, logits, 3);
        EXPECT_FALSE(std::isfinite(r.loss)) << at;
        EXPECT_TRUE(std::isnan(r.d[at])) << at;
        EXPECT_EQ(run_row(rig, logits, -1).loss, 0);
      }
    }
  });
}

TEST(CrossEntropy, RowsDoNotDependOnThreadsOrPlace) {
  for_each_isa([](Isa) {
    const int64_t T = 37, V = 5001;
    Rig one(Backend::kCpu, 1), two(Backend::kCpu, 2);
    const Tensor logits = one.normal({T, V}, DType::kF32, 1, 2), target = make_targets(one, T, V);
    const Tensor l1 = one.zeros({T}, DType::kF32), l2 = one.zeros({T}, DType::kF32),
                 l3 = one.zeros({1}, DType::kF32);
    const Tensor d1 = one.zeros({T, V}, DType::kBF16), d2 = one.zeros({T, V}, DType::kBF16),
                 d3 = one.zeros({1, V}, DType::kBF16);
    cross_entropy(one.ctx, {.loss = l1, .dlogits = d1, .logits = logits, .target = target});
    cross_entropy(two.ctx, {.loss = l2, .dlogits = d2, .logits = logits, .target = target});
    cross_entropy(
        two.ctx,
        {.loss = l3, .dlogits = d3, .logits = logits.rows(31, 32), .target = target.rows(31, 32)});
    EXPECT_SAME_BITS(l1, l2);
    EXPECT_SAME_BITS(d1, d2);
    EXPECT_SAME_BITS(l3, l1.rows(31, 32));
    EXPECT_SAME_BITS(d3, d1.rows(31, 32));
  });
}

TEST(CrossEntropyDeathTest, TargetOutOfRangeStops) {
  Rig rig(Backend::kCpu, 1);
  const Tensor logits = rig.zeros({1, 5}, DType::kF32), loss = rig.zeros({1}, DType::kF32);
  EXPECT_DEATH(
      cross_entropy(rig.ctx,
                    {.loss = loss, .dlogits = {}, .logits = logits, .target = rig.int32s({5})}),
      "target");
}

}  // namespace
}  // namespace moraine
