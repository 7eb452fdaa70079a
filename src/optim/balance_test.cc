// Fails if an overloaded expert's bias does not fall, the skip entry moves, or centring is not
// exact.
#include "optim/balance.h"

#include <gtest/gtest.h>

#include <cmath>

#include "testing/rig.h"

namespace moraine {
namespace {

using namespace testing;

struct Layer {
  Rig rig;
  int64_t L, C;
  Tensor bias, m, v, load;
  Layer(int64_t layers, int64_t classes, const std::vector<int64_t>& counts)
      : L(layers),
        C(classes),
        bias(rig.zeros({L, C}, DType::kF32)),
        m(rig.zeros({L, C}, DType::kF32)),
        v(rig.zeros({L, C}, DType::kF32)),
        load(rig.int64s(counts).reshaped({L, C})) {}
  void step(int64_t t, const BalanceOptions& o) {
    balance_step({.bias = bias, .m = m, .v = v, .load = load, .lr = o.lr, .step = t, .options = o});
  }
  float b(int64_t i) const { return bias.as<float>()[i]; }
};

TEST(Balance, MovesAgainstTheLoadAndKeepsSkipFixed) {
  Layer layer(2, 5,
              {40, 20, 20, 0, 20,    // one heavy, one dead, 20 skipped
               25, 25, 25, 25, 0});  // balanced
  layer.bias.as<float>()[4] = layer.bias.as<float>()[9] = -1;
  const BalanceOptions options = {.lr = 0.01};
  layer.step(1, options);
  EXPECT_NEAR(layer.b(0), -0.01, 1e-6);  // Adam's first step has the size of the rate
  EXPECT_EQ(layer.b(1), 0);              // exactly the mean of the real experts
  EXPECT_EQ(layer.b(2), 0);
  EXPECT_NEAR(layer.b(3), 0.01, 1e-6);
  EXPECT_EQ(layer.b(4), -1);
  for (int64_t e = 5; e < 9; ++e) EXPECT_EQ(layer.b(e), 0);
  EXPECT_EQ(layer.b(9), -1);
  EXPECT_NEAR(layer.m.as<float>()[0], 0.1 * 0.2, 1e-8);  // f - mean = 40/100 - 20/100
  EXPECT_NEAR(layer.v.as<float>()[0], 0.05 * 0.2 * 0.2, 1e-8);
}

TEST(Balance, WarmsUpToTheWholeRate) {
  Layer layer(1, 4, {40, 20, 20, 0});
  const BalanceOptions options = {.lr = 0.01, .warmup_steps = 10, .skip = false};
  layer.step(1, options);
  EXPECT_NEAR(layer.b(0), -0.001, 1e-7);  // a tenth of the rate
  EXPECT_NEAR(layer.b(3), 0.001, 1e-7);
  for (int64_t t = 2; t <= 9; ++t) layer.step(t, options);
  const float before = layer.b(0);
  EXPECT_NEAR(before, -0.01 * (1 + 2 + 3 + 4 + 5 + 6 + 7 + 8 + 9) / 10, 1e-6);
  layer.step(10, options);
  EXPECT_NEAR(layer.b(0) - before, -0.01, 1e-6);
  layer.step(11, options);
  EXPECT_NEAR(layer.b(0) - before, -0.02, 1e-6);
}

TEST(Balance, FollowsAdamOverSteps) {
  Layer layer(1, 3, {10, 30, 0});
  const BalanceOptions o = {.lr = 0.02, .beta1 = 0.8, .beta2 = 0.9, .eps = 1e-8, .skip = false};
  double b = 0, m = 0, v = 0;
  for (int64_t t = 1; t <= 20; ++t) {
    const int64_t first = 10 + 3 * t % 7;
    layer.load.as<int64_t>()[0] = first;
    const double g = double(first) / double(first + 30) - 1.0 / 3;
    m = o.beta1 * m + (1 - o.beta1) * g;
    v = o.beta2 * v + (1 - o.beta2) * g * g;
    b -=
        o.lr * m / (1 - std::pow(o.beta1, t)) / (std::sqrt(v / (1 - std::pow(o.beta2, t))) + o.eps);
    layer.step(t, o);
  }
  EXPECT_NEAR(layer.b(0), b, 20 * 0x1p-24);
  EXPECT_GT(layer.b(2), 0.1);  // without a skip class the last entry is an expert, and it starves
}

TEST(Balance, NoTokensNoMove) {
  Layer layer(1, 4, {0, 0, 0, 0});
  layer.step(1, {});
  for (int64_t e = 0; e < 4; ++e) EXPECT_EQ(layer.b(e), 0);
  Layer skipped(1, 4, {0, 0, 0, 100});  // every token skipped: no expert is above another
  skipped.step(1, {});
  for (int64_t e = 0; e < 4; ++e) EXPECT_EQ(skipped.b(e), 0);
}

TEST(Balance, BringsASimulatedRouterToBalance) {
  constexpr int64_t kExperts = 8, kTokens = 1000;
  Layer layer(1, kExperts + 1, std::vector<int64_t>(kExperts + 1, 0));
  layer.bias.as<float>()[kExperts] = -1;
  double worst = 0;
  for (int64_t t = 1; t <= 300; ++t) {
    int64_t* load = layer.load.as<int64_t>();
    std::fill(load, load + kExperts + 1, 0);
    for (int64_t i = 0; i < kTokens; ++i) {
      double best = -10;
      int64_t expert = 0;
      for (int64_t e = 0; e < kExperts; ++e) {
        const double noise = std::fmod(std::sin(double(i * 37 + e * 101)) * 43758.5453, 1.0);
        // Favours high e.
        const double score = 0.05 * double(e) + 0.2 * std::abs(noise) + double(layer.b(e));
        if (score > best) best = score, expert = e;
      }
      ++load[expert];
    }
    worst = 0;
    for (int64_t e = 0; e < kExperts; ++e)
      worst = std::max(worst, double(load[e]) * kExperts / kTokens);
    if (t == 1) {
      EXPECT_GT(worst, 2);
    }
    layer.step(t, {.lr = 2e-3});
  }
  EXPECT_LT(worst, 1.25);
}

}  // namespace
}  // namespace moraine
