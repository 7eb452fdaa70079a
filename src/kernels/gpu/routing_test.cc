// RouterState, Gelu, RouterChoice and ExpertDispatch on an emulated GPU: fails if a formula, a tie, a NaN, a forced
// skip or the order of a plan is off, or if a bit depends on the wave or on the order of threads.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/expert_dispatch.h"
#include "kernels/gelu.h"
#include "kernels/gpu/expert_dispatch.h"
#include "kernels/gpu/gelu.h"
#include "kernels/gpu/router_choice.h"
#include "kernels/gpu/router_state.h"
#include "kernels/gpu/test_gpu_forward.h"
#include "kernels/router_choice.h"
#include "kernels/router_state.h"

namespace moraine::gpu {
namespace {

using namespace testing;

constexpr DType kForwardTypes[] = {DType::kF32, DType::kBF16};

TEST(GpuRouterState, MatchesTheReferenceWithOneResult) {
  const auto fields = [](RouterStateForward& f) -> std::vector<GpuField> {
    return {{&f.s, "s"},          {&f.x, "x"},         {&f.rstd, "rstd"}, {&f.y, nullptr},
            {&f.s_prev, nullptr}, {&f.gamma, nullptr}, {&f.norm, nullptr}};
  };
  for (const DType dtype : kForwardTypes) {
    for (const bool first : {false, true}) {
      Rig host;
      const int64_t T = 3, R = dtype == DType::kF32 ? 261 : 40;
      const auto wide = [&](std::initializer_list<int64_t> dims, uint64_t seed) {
        return host.normal(dims, DType::kF32, seed);
      };
      const RouterStateForward a = {.s = wide({T, R}, 1),
                                    .x = host.normal({T, R}, dtype, 2),
                                    .rstd = wide({T}, 3),
                                    .y = wide({T, R}, 4),
                                    .s_prev = first ? Tensor() : wide({T, R}, 5),
                                    .gamma = first ? Tensor() : wide({R}, 6),
                                    .norm = wide({R}, 7),
                                    .eps = 1e-2f};
      expect_forward(
          host, a, GpuOperation{fields, &gpu::router_state_forward, &ref::router_state_forward, R});
    }
  }
}

// As of the CPU's: the roundings of exp, of the fit and of the products (kernels/gelu_test.cc).
constexpr int64_t kForwardGeluTerms = 36;

TEST(GpuGelu, MatchesTheReferenceWithOneResultAndFarIntoTheTail) {
  const auto fields = [](GeluForward& f) -> std::vector<GpuField> {
    return {{&f.y, "y"}, {&f.x, nullptr}};
  };
  for (const DType dtype : kForwardTypes) {
    Rig host;
    const GeluForward a = {.y = host.normal({3, 97}, dtype, 1),
                           .x = host.normal({3, 97}, dtype, 2, 3)};
    expect_forward(host, a,
                   GpuOperation{fields, &gpu::gelu_forward, &ref::gelu_forward, kForwardGeluTerms});
  }
  Rig host;
  const int64_t n = 1301;
  GeluForward a = {.y = host.zeros({n}, DType::kF32), .x = host.zeros({n}, DType::kF32)};
  for (int64_t i = 0; i < n; ++i) a.x.as<float>()[i] = static_cast<float>(-13 + 0.01 * double(i));
  GpuRig rig({.wave = 32});
  const GeluForward d = {.y = rig.put(a.y), .x = rig.put(a.x)};
  gelu_forward(*rig.gpu, d);
  const Tensor got = rig.get(host, d.y);
  ref::gelu_forward(a);
  for (int64_t i = 0; i < n - 1; ++i) {  // kernels/gelu.h: 1e-6 of y itself
    const double want = static_cast<double>(a.y.as<float>()[i]);
    EXPECT_NEAR(got.as<float>()[i], want, 1e-6 * std::abs(want)) << a.x.as<float>()[i];
  }
}

std::vector<GpuField> choice_fields(RouterChoiceForward& f) {
  return {{&f.prob, "prob"},
          {&f.expert, "expert"},
          {&f.gate, "gate"},
          {&f.logits, nullptr},
          {&f.bias, nullptr}};
}

RouterChoiceForward choice_data(Rig& rig, int64_t T, int64_t C, int64_t n, bool skip) {
  return {.prob = rig.normal({T, C}, DType::kF32, 1),
          .expert = rig.integers({T, n}, 1000, 2),
          .gate = rig.normal({T, n}, DType::kF32, 3),
          .logits = rig.normal({T, C}, DType::kF32, 4, 2),
          .bias = rig.normal({C}, DType::kF32, 5, 0.1),
          .skip = skip ? static_cast<int32_t>(C - 1) : -1};
}

struct ForwardChoiceCase {
  int64_t T, C, n;
  bool skip;
};

TEST(GpuRouterChoice, MatchesTheReferenceWithOneResult) {
  for (const ForwardChoiceCase& c :
       {ForwardChoiceCase{1, 1, 1, false}, ForwardChoiceCase{9, 3, 2, true},
        ForwardChoiceCase{20, 17, 3, true}, ForwardChoiceCase{3, 130, 4, false}}) {
    Rig host;
    const RouterChoiceForward a = choice_data(host, c.T, c.C, c.n, c.skip);
    expect_forward(host, a,
                   GpuOperation{&choice_fields, &gpu::router_choice_forward,
                                &ref::router_choice_forward, c.C + 4});
  }
}

TEST(GpuRouterChoice, TiesGoToTheLowerClassAndNaNIsBelowEveryNumber) {
  Rig host;
  const int64_t C = 70;
  RouterChoiceForward a = choice_data(host, 3, C, 4, true);
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  for (int64_t c = 0; c < C; ++c) {
    a.bias.as<float>()[c] = c == 66 || c == 2 ? 0.0f : -1.0f;    // one thread has both
    a.logits.as<float>()[c] = 0;                                 // a row of ties
    a.logits.as<float>()[C + c] = c == 5 ? kNaN : 1.0f;          // every prob is NaN
    a.logits.as<float>()[2 * C + c] = c == C - 1 ? 9.0f : 0.0f;  // the skip comes third
  }
  a.bias.as<float>()[C - 1] = -1.5f;
  const RouterChoiceForward got =
      expect_forward(host, a,
                     GpuOperation{&choice_fields, &gpu::router_choice_forward,
                                  &ref::router_choice_forward, C + 4});
  const std::vector<int32_t> want = {2, 66, 0, 1, 0, 1, 2, 3, 2, 66, 69, 69};
  for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(got.expert.as<int32_t>()[i], want[i]) << i;
  EXPECT_EQ(got.gate.as<float>()[11], 0);  // forced
}

struct ForwardDispatchCase {
  int64_t T, n, E, D;
  DType dtype;
  bool identity;
};

constexpr ForwardDispatchCase kForwardDispatchCases[] = {
    {1, 1, 1, 1, DType::kF32, false},
    {70, 2, 5, 3, DType::kBF16, true},   // pieces of three choices
    {21, 1, 16, 40, DType::kF32, true},  // experts without rows
    {9, 3, 4, 33, DType::kBF16, false},
};

TEST(GpuExpertDispatch, PlanDispatchAndCombineMatchTheReference) {
  for (const ForwardDispatchCase& c : kForwardDispatchCases) {
    SCOPED_TRACE("T=" + std::to_string(c.T));
    Rig host;
    const int64_t Te = c.T * c.n;
    const DispatchPlan plan = {.rows = host.zeros({c.E + 1}, DType::kI64),
                               .choice_of = host.integers({Te}, 9, 1),
                               .row_of = host.integers({c.T, c.n}, 9, 2),
                               .load = host.zeros({c.E + 1}, DType::kI64),
                               .expert = host.integers({c.T, c.n}, c.E + 1, 3)};
    const auto plan_fields = [](DispatchPlan& p) -> std::vector<GpuField> {
      return {{&p.rows, "rows"},
              {&p.choice_of, "choice_of"},
              {&p.row_of, "row_of"},
              {&p.load, "load"},
              {&p.expert, nullptr}};
    };
    const DispatchPlan made = expect_forward(
        host, plan, GpuOperation{plan_fields, &gpu::dispatch_plan, &ref::dispatch_plan, 0});
    const DispatchForward dispatch = {.xe = host.normal({Te, c.D}, c.dtype, 4),
                                      .x = host.normal({c.T, c.D}, c.dtype, 5),
                                      .choice_of = made.choice_of,
                                      .rows = made.rows};
    const auto dispatch_fields = [](DispatchForward& d) -> std::vector<GpuField> {
      return {{&d.xe, "xe"}, {&d.x, nullptr}, {&d.choice_of, nullptr}, {&d.rows, nullptr}};
    };
    expect_forward(
        host, dispatch,
        GpuOperation{dispatch_fields, &gpu::dispatch_forward, &ref::dispatch_forward, 0});
    const CombineForward combine = {.h = host.normal({c.T, c.D}, c.dtype, 6),
                                    .ye = host.normal({Te, c.D}, c.dtype, 7),
                                    .gate = host.normal({c.T, c.n}, DType::kF32, 8),
                                    .x = host.normal({c.T, c.D}, c.dtype, 9),
                                    .row_of = made.row_of,
                                    .skip_identity = c.identity};
    const auto combine_fields = [](CombineForward& f) -> std::vector<GpuField> {
      return {
          {&f.h, "h"}, {&f.ye, nullptr}, {&f.gate, nullptr}, {&f.x, nullptr}, {&f.row_of, nullptr}};
    };
    expect_forward(host, combine,
                   GpuOperation{combine_fields, &gpu::combine_forward, &ref::combine_forward, c.n});
  }
}

}  // namespace
}  // namespace moraine::gpu
