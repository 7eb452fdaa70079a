// RouterChoice: the fast kernel against the reference, the reference against finite differences;
// fails if a tie, a NaN, a forced skip or the order of the choices goes wrong.
#include "kernels/router_choice.h"

#include <gtest/gtest.h>

#include <limits>

#include "kernels/ref/element.h"
#include "kernels/test_backends.h"
#include "testing/rig.h"

namespace moraine {
namespace {

using namespace testing;

// Outputs of one call on `rows` of logits.
struct Routed {
  Tensor prob, expert, gate;
};

Routed make(Rig& rig, int64_t T, int64_t C, int64_t n, DType wide = DType::kF32) {
  return {.prob = rig.zeros({T, C}, wide),
          .expert = rig.integers({T, n}, 1000, 9),
          .gate = rig.normal({T, n}, wide, 9)};
}

Routed route(Rig& rig, const std::vector<float>& logits, const std::vector<float>& bias, int64_t n,
             int32_t skip) {
  const int64_t C = static_cast<int64_t>(bias.size()), T = static_cast<int64_t>(logits.size()) / C;
  const Tensor x = rig.zeros({T, C}, DType::kF32), b = rig.zeros({C}, DType::kF32);
  std::copy(logits.begin(), logits.end(), x.as<float>());
  std::copy(bias.begin(), bias.end(), b.as<float>());
  const Routed r = make(rig, T, C, n);
  router_choice_forward(
      rig.ctx,
      {.prob = r.prob, .expert = r.expert, .gate = r.gate, .logits = x, .bias = b, .skip = skip});
  return r;
}

std::vector<int32_t> experts(const Routed& r) {
  const int32_t* e = r.expert.as<int32_t>();
  return {e, e + r.expert.count()};
}

struct ChoiceCase {
  int64_t T, C, n;
  bool skip;
};
constexpr ChoiceCase kChoiceCases[] = {
    {1, 1, 1, false},  {5, 2, 2, true},   {257, 9, 1, true}, {64, 8, 2, false}, {33, 17, 1, true},
    {19, 17, 3, true}, {7, 31, 4, false}, {3, 65, 2, true},  {2, 257, 3, true}, {0, 17, 1, true},
};

TEST(RouterChoice, MatchesReference) {
  for_each_isa([](Isa) {
    for (const ChoiceCase& c : kChoiceCases) {
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        Rig rig;
        const int32_t skip = c.skip ? static_cast<int32_t>(c.C - 1) : -1;
        const Tensor logits = rig.normal({c.T, c.C}, DType::kF32, 1, 2),
                     bias = rig.normal({c.C}, DType::kF32, 2, 0.1);
        const Routed got = make(rig, c.T, c.C, c.n), want = make(rig, c.T, c.C, c.n);
        router_choice_forward(rig.ctx, {.prob = got.prob,
                                        .expert = got.expert,
                                        .gate = got.gate,
                                        .logits = logits,
                                        .bias = bias,
                                        .skip = skip});
        ref::router_choice_forward({.prob = want.prob,
                                    .expert = want.expert,
                                    .gate = want.gate,
                                    .logits = logits,
                                    .bias = bias,
                                    .skip = skip});
        EXPECT_SAME_BITS(got.expert, want.expert);  // no two scores of these rows are within 1e-6
        EXPECT_CLOSE(got.prob, want.prob, tolerance(DType::kF32, c.C + 4));
        EXPECT_CLOSE(got.gate, want.gate, tolerance(DType::kF32, c.C + 4));

        const Tensor dgate = rig.normal({c.T, c.n}, DType::kF32, 3);
        const Tensor d = rig.normal({c.T, c.C}, dtype, 4),
                     want_d = rig.normal({c.T, c.C}, dtype, 5);
        router_choice_backward(
            rig.ctx,
            {.dlogits = d, .dgate = dgate, .prob = want.prob, .expert = want.expert, .skip = skip});
        ref::router_choice_backward({.dlogits = want_d,
                                     .dgate = dgate,
                                     .prob = want.prob,
                                     .expert = want.expert,
                                     .skip = skip});
        EXPECT_CLOSE(d, want_d, tolerance(dtype, c.n + 4));
      }
    }
  });
}

TEST(RouterChoice, ReferenceMatchesFiniteDifferences) {
  Rig rig(Backend::kRef);
  const int64_t T = 5, C = 6, n = 3;
  const int32_t skip = 5;
  const Tensor logits = rig.normal({T, C}, DType::kF64, 1),
               bias = rig.normal({C}, DType::kF32, 2, 0.2);
  const Tensor dgate = rig.normal({T, n}, DType::kF64, 3), d = rig.zeros({T, C}, DType::kF64);
  bias.as<float>()[skip] = 0.1f;  // some rows skip, so that forced choices occur
  const Routed r = make(rig, T, C, n, DType::kF64);
  const auto loss = [&] {
    router_choice_forward(rig.ctx, {.prob = r.prob,
                                    .expert = r.expert,
                                    .gate = r.gate,
                                    .logits = logits,
                                    .bias = bias,
                                    .skip = skip});
    double sum = 0;
    for (int64_t i = 0; i < r.gate.count(); ++i) sum += ref::get(r.gate, i) * ref::get(dgate, i);
    return sum;
  };
  loss();
  const Routed base = {
      .prob = rig.copy(r.prob), .expert = rig.copy(r.expert), .gate = rig.copy(r.gate)};
  int64_t forced = 0;
  for (int64_t i = 0; i < r.gate.count(); ++i) forced += ref::get(r.gate, i) == 0;
  EXPECT_GT(forced, 0);
  router_choice_backward(
      rig.ctx,
      {.dlogits = d, .dgate = dgate, .prob = base.prob, .expert = base.expert, .skip = skip});
  expect_gradient(logits, d, loss, "dlogits", 30);
}

TEST(RouterChoice, TiesTakeTheLowerClass) {
  for_each_backend([](Rig& rig) {
    // Equal logits at many widths; then a tie of the two best, in one vector and across two.
    for (const int64_t C : {2, 9, 17, 40}) {
      const std::vector<float> flat(static_cast<size_t>(C), 0.25f), zero(static_cast<size_t>(C), 0);
      EXPECT_EQ(experts(route(rig, flat, zero, 2, -1)), (std::vector<int32_t>{0, 1}));
      std::vector<float> high = flat;
      high[static_cast<size_t>(C - 1)] = high[static_cast<size_t>(C / 2)] = 1;
      const std::vector<int32_t> want = {static_cast<int32_t>(C / 2),
                                         static_cast<int32_t>(C == 2 ? 0 : C - 1)};
      EXPECT_EQ(experts(route(rig, high, zero, 2, -1)), want) << C;
    }
  });
}

TEST(RouterChoice, BiasChoosesButDoesNotGate) {
  for_each_backend([](Rig& rig) {
    const Routed r = route(rig, {0, 0, 0, 0}, {0, -0.5f, 0.5f, -1}, 1, 3);
    EXPECT_EQ(experts(r), std::vector<int32_t>{2});
    EXPECT_FLOAT_EQ(r.gate.as<float>()[0], 0.25f);
    // Negative scores are ordered too.
    EXPECT_EQ(experts(route(rig, {0, 0, 0, 0}, {-3, -2, -5, -4}, 4, -1)),
              (std::vector<int32_t>{1, 0, 3, 2}));
  });
}

TEST(RouterChoice, AfterASkipAllChoicesAreForced) {
  for_each_backend([](Rig& rig) {
    const Routed r = route(rig, {3, 1, 0, 2, /**/ 0, 1, 2, 3, /**/ 3, 2, 1, 0}, {0, 0, 0, 0}, 3, 3);
    EXPECT_EQ(experts(r), (std::vector<int32_t>{0, 3, 3, /**/ 3, 3, 3, /**/ 0, 1, 2}));
    const float* gate = r.gate.as<float>();
    for (const int i : {2, 4, 5}) EXPECT_EQ(gate[i], 0) << i;
    for (const int i : {0, 1, 3, 6, 7, 8}) EXPECT_GT(gate[i], 0) << i;
    // Without a skip class the same rows take three different classes each.
    EXPECT_EQ(experts(route(rig, {0, 1, 2, 3}, {0, 0, 0, 0}, 3, -1)),
              (std::vector<int32_t>{3, 2, 1}));
  });
}

TEST(RouterChoice, NanIsChosenLast) {
  for_each_backend([](Rig& rig) {
    // A NaN in the bias spoils one class; a NaN or +inf in the logits spoils the row: class 0, and
    // it shows.
    EXPECT_EQ(experts(route(rig, {5, 1, 0}, {kNaN, 0, 0}, 3, -1)), (std::vector<int32_t>{1, 2, 0}));
    EXPECT_EQ(experts(route(rig, {5, 1, 0}, {kNaN, -kInf, 0}, 3, -1)),
              (std::vector<int32_t>{2, 1, 0}));
    for (const float bad : {kNaN, kInf}) {
      for (const size_t at : {0, 8, 16}) {
        std::vector<float> logits(17, 1);
        logits[at] = bad;
        const Routed r = route(rig, logits, std::vector<float>(17, 0), 2, 16);
        EXPECT_EQ(experts(r), (std::vector<int32_t>{0, 1}));
        EXPECT_TRUE(std::isnan(r.gate.as<float>()[0]));
      }
    }
    // -inf is a class of probability zero.
    const Routed r = route(rig, {-kInf, 0, -kInf}, {0, 0, 0}, 2, -1);
    EXPECT_EQ(experts(r), (std::vector<int32_t>{1, 0}));
    EXPECT_EQ(r.gate.as<float>()[0], 1);
    EXPECT_EQ(r.gate.as<float>()[1], 0);
  });
}

TEST(RouterChoice, RowsDoNotDependOnThreadsOrPlace) {
  for_each_isa([](Isa) {
    const int64_t T = 1000, C = 17, n = 2;
    Rig one(Backend::kCpu, 1), two(Backend::kCpu, 2);
    const Tensor logits = one.normal({T, C}, DType::kF32, 1), bias = one.zeros({C}, DType::kF32);
    const Tensor dgate = one.normal({T, n}, DType::kF32, 2);
    const Tensor d1 = one.zeros({T, C}, DType::kBF16), d2 = one.zeros({T, C}, DType::kBF16);
    const Routed a = make(one, T, C, n), b = make(one, T, C, n), row = make(one, 1, C, n);
    const auto run = [&](Rig& rig, const Routed& r, const Tensor& x) {
      router_choice_forward(rig.ctx, {.prob = r.prob,
                                      .expert = r.expert,
                                      .gate = r.gate,
                                      .logits = x,
                                      .bias = bias,
                                      .skip = 16});
    };
    run(one, a, logits);
    run(two, b, logits);
    run(two, row, logits.rows(777, 778));
    EXPECT_SAME_BITS(a.prob, b.prob);
    EXPECT_SAME_BITS(a.expert, b.expert);
    EXPECT_SAME_BITS(a.gate, b.gate);
    EXPECT_SAME_BITS(row.prob, a.prob.rows(777, 778));
    EXPECT_SAME_BITS(row.expert, a.expert.rows(777, 778));
    router_choice_backward(
        one.ctx, {.dlogits = d1, .dgate = dgate, .prob = a.prob, .expert = a.expert, .skip = 16});
    router_choice_backward(
        two.ctx, {.dlogits = d2, .dgate = dgate, .prob = a.prob, .expert = a.expert, .skip = 16});
    EXPECT_SAME_BITS(d1, d2);
  });
}

}  // namespace
}  // namespace moraine
