// Swiglu: the fast kernel against the reference, the reference against finite differences; fails if
// a factor, the sigmoid's slope, the tail of a row or the limit `rows` is wrong.
#include "kernels/swiglu.h"

#include <gtest/gtest.h>

#include "kernels/ref/element.h"
#include "testing/rig.h"

namespace moraine {
namespace {

using namespace testing;

struct SwigluCase {
  int64_t T, F, rows;
  DType dtype;
};
constexpr SwigluCase kSwigluCases[] = {
    {1, 1, 1, DType::kF32},       {3, 127, 3, DType::kF32},    // no vector width divides F
    {257, 64, 257, DType::kBF16},                              // more rows than one task
    {70, 33, 65, DType::kBF16},                                // rows beyond `rows` stay
    {9, 512, 4, DType::kF32},     {5, 2048, 5, DType::kBF16},  // the width of the model
    {4, 16, 0, DType::kF32},      {0, 16, 0, DType::kBF16},
};

// exp (2 ulp), 1 + e, the quotient and up to five products: ten roundings in a chain.
constexpr int64_t kRoundings = 10;

TEST(Swiglu, MatchesReference) {
  for_each_isa([](Isa) {
    for (const SwigluCase& c : kSwigluCases) {
      Rig rig;
      const Tensor gate_up = rig.normal({c.T, 2 * c.F}, c.dtype, 1, 3),
                   dy = rig.normal({c.T, c.F}, c.dtype, 2);
      const Tensor y = rig.normal({c.T, c.F}, c.dtype, 3), want_y = rig.copy(y);
      swiglu_forward(rig.ctx, {.y = y, .gate_up = gate_up, .rows = c.rows});
      ref::swiglu_forward({.y = want_y, .gate_up = gate_up, .rows = c.rows});
      EXPECT_CLOSE(y, want_y, tolerance(c.dtype, kRoundings));
      EXPECT_SAME_BITS(y.rows(c.rows, c.T), want_y.rows(c.rows, c.T));

      const Tensor d = rig.normal({c.T, 2 * c.F}, c.dtype, 4), want = rig.copy(d);
      swiglu_backward(rig.ctx, {.dgate_up = d, .dy = dy, .gate_up = gate_up, .rows = c.rows});
      ref::swiglu_backward({.dgate_up = want, .dy = dy, .gate_up = gate_up, .rows = c.rows});
      EXPECT_CLOSE(d, want, tolerance(c.dtype, kRoundings));
      EXPECT_SAME_BITS(d.rows(c.rows, c.T), want.rows(c.rows, c.T));

      const Tensor in_place = rig.copy(gate_up);
      swiglu_backward(rig.ctx,
                      {.dgate_up = in_place, .dy = dy, .gate_up = in_place, .rows = c.rows});
      EXPECT_SAME_BITS(in_place.rows(0, c.rows), d.rows(0, c.rows));
    }
  });
}

// Where e^-g leaves the range of a float, the answers are g u, 0 and the limits of the slope.
TEST(Swiglu, FarGatesStayFinite) {
  for_each_isa([](Isa) {
    Rig rig;
    constexpr float kGates[] = {0, -0.0f, 88, -88, 89, -89, 104, -104, 1e4f, -1e4f, 1e37f, -1e37f};
    const int64_t F = std::size(kGates);
    const Tensor gate_up = rig.zeros({1, 2 * F}, DType::kF32), y = rig.zeros({1, F}, DType::kF32);
    for (int64_t f = 0; f < F; ++f)
      gate_up.as<float>()[f] = kGates[f], gate_up.as<float>()[F + f] = 0.5f;
    const Tensor d = rig.zeros({1, 2 * F}, DType::kF32), dy = rig.normal({1, F}, DType::kF32, 1);
    swiglu_forward(rig.ctx, {.y = y, .gate_up = gate_up, .rows = 1});
    swiglu_backward(rig.ctx, {.dgate_up = d, .dy = dy, .gate_up = gate_up, .rows = 1});
    for (int64_t f = 0; f < F; ++f) {
      const double g = kGates[f], s = g < -700 ? 0 : 1 / (1 + std::exp(-g)), u = 0.5,
                   dv = ref::get(dy, f);
      // 1e-36: below e^-87 the kernel has 0.
      EXPECT_NEAR(ref::get(y, f), g * s * u, 1e-6 * std::abs(g * s * u) + 1e-36);
      EXPECT_NEAR(ref::get(d, f), dv * u * s * (1 + g * (1 - s)),
                  1e-6 * std::abs(dv) * (1 + std::abs(s)));
      EXPECT_NEAR(ref::get(d, F + f), dv * g * s, 1e-6 * std::abs(dv * g * s) + 1e-36);
    }
  });
}

TEST(Swiglu, ReferenceMatchesFiniteDifferences) {
  Rig rig(Backend::kRef);
  const int64_t T = 3, F = 5;
  const Tensor gate_up = rig.normal({T, 2 * F}, DType::kF64, 1, 2),
               dy = rig.normal({T, F}, DType::kF64, 2);
  const Tensor y = rig.zeros({T, F}, DType::kF64), d = rig.zeros({T, 2 * F}, DType::kF64);
  const auto loss = [&] {
    swiglu_forward(rig.ctx, {.y = y, .gate_up = gate_up, .rows = T});
    double sum = 0;
    for (int64_t i = 0; i < y.count(); ++i) sum += ref::get(y, i) * ref::get(dy, i);
    return sum;
  };
  swiglu_backward(rig.ctx, {.dgate_up = d, .dy = dy, .gate_up = gate_up, .rows = T});
  expect_gradient(gate_up, d, loss, "dgate_up", 30);
}

TEST(Swiglu, RowsDoNotDependOnThreadsOrPlace) {
  for_each_isa([](Isa) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const int64_t T = 300, F = 77;
      Rig one(Backend::kCpu, 1), two(Backend::kCpu, 2);
      const Tensor gate_up = one.normal({T, 2 * F}, dtype, 1), dy = one.normal({T, F}, dtype, 2);
      const Tensor y1 = one.zeros({T, F}, dtype), y2 = one.zeros({T, F}, dtype),
                   row = one.zeros({1, F}, dtype);
      const Tensor d1 = one.zeros({T, 2 * F}, dtype), d2 = one.zeros({T, 2 * F}, dtype);
      swiglu_forward(one.ctx, {.y = y1, .gate_up = gate_up, .rows = T});
      swiglu_forward(two.ctx, {.y = y2, .gate_up = gate_up, .rows = T});
      swiglu_backward(one.ctx, {.dgate_up = d1, .dy = dy, .gate_up = gate_up, .rows = T});
      swiglu_backward(two.ctx, {.dgate_up = d2, .dy = dy, .gate_up = gate_up, .rows = T});
      EXPECT_SAME_BITS(y1, y2);
      EXPECT_SAME_BITS(d1, d2);
      swiglu_forward(two.ctx, {.y = row, .gate_up = gate_up.rows(201, 202), .rows = 1});
      EXPECT_SAME_BITS(row, y1.rows(201, 202));
    }
  });
}

}  // namespace
}  // namespace moraine
