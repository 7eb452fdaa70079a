// Gelu: fails if the tails lose relative precision, if a special value is lost, if the last
// elements are skipped, or if the gradient is not that of the function.
#include "kernels/gelu.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/ref/element.h"
#include "testing/rig.h"

namespace moraine {
namespace {

using namespace testing;

struct GeluCase {
  int64_t T, R;
  DType dtype;
};

constexpr GeluCase kGeluCases[] = {
    {1, 1, DType::kF32},     {3, 127, DType::kF32},
    {5, 33, DType::kBF16},   {17, 256, DType::kF32},  // one row past a task of 4,096 elements
    {64, 256, DType::kBF16}, {0, 64, DType::kBF16},
};

// Terms: the rounding of exp (2 ulp), of the fit (about 4 steps) and of the products: as a sum
// of 36.
constexpr int64_t kTerms = 36;

TEST(Gelu, EveryIsaMatchesTheReference) {
  for (const GeluCase& c : kGeluCases) {
    Rig rig;
    const Tensor x = rig.normal({c.T, c.R}, c.dtype, 1, 2.0),
                 dy = rig.normal({c.T, c.R}, c.dtype, 2);
    const Tensor want_y = rig.copy(x), want_dx = rig.copy(x);
    ref::gelu_forward({.y = want_y, .x = x});
    ref::gelu_backward({.dx = want_dx, .dy = dy, .x = x});
    for_each_isa([&](Isa isa) {
      SCOPED_TRACE(isa_name(isa));
      const Tensor y = rig.zeros({c.T, c.R}, c.dtype), dx = rig.zeros({c.T, c.R}, c.dtype);
      gelu_forward(rig.ctx, {.y = y, .x = x});
      gelu_backward(rig.ctx, {.dx = dx, .dy = dy, .x = x});
      EXPECT_CLOSE(y, want_y, tolerance(c.dtype, kTerms));
      EXPECT_CLOSE(dx, want_dx, tolerance(c.dtype, kTerms));
      const Tensor y_in_place = rig.copy(x), dx_in_place = rig.copy(dy);
      gelu_forward(rig.ctx, {.y = y_in_place, .x = y_in_place});
      gelu_backward(rig.ctx, {.dx = dx_in_place, .dy = dx_in_place, .x = x});
      EXPECT_SAME_BITS(y_in_place, y);
      EXPECT_SAME_BITS(dx_in_place, dx);
    });
  }
}

// The header promises 1e-6 relative of y itself, far into the left tail.
TEST(Gelu, TailsKeepTheirRelativePrecision) {
  Rig rig;
  const int64_t n = 26001;
  const Tensor x = rig.zeros({n}, DType::kF32), y = rig.zeros({n}, DType::kF32);
  for (int64_t i = 0; i < n; ++i) ref::set(x, i, -13.0 + 0.001 * static_cast<double>(i));
  for_each_isa([&](Isa isa) {
    gelu_forward(rig.ctx, {.y = y, .x = x});
    double worst = 0, worst_x = 0;
    for (int64_t i = 0; i < n; ++i) {
      const double v = ref::get(x, i), want = v * 0.5 * std::erfc(-v * std::sqrt(0.5));
      if (std::abs(want) < 0x1p-126) continue;  // no f32 has that precision there
      const double error = std::abs(ref::get(y, i) - want) / std::abs(want);
      if (error > worst) worst = error, worst_x = v;
    }
    EXPECT_LE(worst, 1e-6) << isa_name(isa) << " at " << worst_x;
  });
}

TEST(Gelu, SpecialValues) {
  Rig rig;
  const float infinity = std::numeric_limits<float>::infinity();
  const Tensor x = rig.zeros({20}, DType::kF32), y = rig.zeros({20}, DType::kF32);
  const Tensor dx = rig.zeros({20}, DType::kF32), dy = rig.zeros({20}, DType::kF32);
  float* const in = x.as<float>();
  for (int64_t i = 0; i < 20; ++i) dy.as<float>()[i] = 1;
  in[0] = 0, in[1] = infinity, in[2] = std::nanf(""), in[3] = 1e30f, in[4] = -1e30f, in[19] = -50;
  for_each_isa([&](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    gelu_forward(rig.ctx, {.y = y, .x = x});
    gelu_backward(rig.ctx, {.dx = dx, .dy = dy, .x = x});
    const float *out = y.as<float>(), *slope = dx.as<float>();
    EXPECT_EQ(out[0], 0);
    EXPECT_EQ(out[1], infinity);
    EXPECT_TRUE(std::isnan(out[2]));
    EXPECT_EQ(out[3], 1e30f);
    EXPECT_EQ(out[4], 0);
    EXPECT_EQ(out[19], 0);
    EXPECT_FLOAT_EQ(slope[0], 0.5f);
    EXPECT_TRUE(std::isnan(slope[2]));
    EXPECT_EQ(slope[3], 1);
    EXPECT_EQ(slope[4], 0);
  });
}

TEST(Gelu, AnElementDoesNotDependOnTheBatchOrTheThreads) {
  Rig one(Backend::kCpu, 1), three(Backend::kCpu, 3);
  const Tensor x = one.normal({9001}, DType::kF32, 1, 2.0), dy = one.normal({9001}, DType::kF32, 2);
  const Tensor y = one.copy(x), dx = one.copy(x), y3 = one.copy(x), dx3 = one.copy(x);
  gelu_forward(one.ctx, {.y = y, .x = x});
  gelu_backward(one.ctx, {.dx = dx, .dy = dy, .x = x});
  gelu_forward(three.ctx, {.y = y3, .x = x});
  gelu_backward(three.ctx, {.dx = dx3, .dy = dy, .x = x});
  EXPECT_SAME_BITS(y3, y);
  EXPECT_SAME_BITS(dx3, dx);
  for (const int64_t i : {int64_t{0}, int64_t{7}, int64_t{4096}, int64_t{9000}}) {
    const Tensor alone = one.copy(x.rows(i, i + 1));
    gelu_forward(one.ctx, {.y = alone, .x = alone});
    EXPECT_SAME_BITS(alone, y.rows(i, i + 1));
  }
}

TEST(Gelu, ReferenceGradientMatchesFiniteDifferences) {
  Rig rig(Backend::kRef);
  const Tensor x = rig.normal({23}, DType::kF64, 1, 2.0), dy = rig.normal({23}, DType::kF64, 2);
  const Tensor y = rig.copy(x), dx = rig.copy(x);
  gelu_backward(rig.ctx, {.dx = dx, .dy = dy, .x = x});
  expect_gradient(
      x, dx,
      [&] {
        gelu_forward(rig.ctx, {.y = y, .x = x});
        double loss = 0;
        for (int64_t i = 0; i < 23; ++i) loss += ref::get(dy, i) * ref::get(y, i);
        return loss;
      },
      "x");
}

}  // namespace
}  // namespace moraine
