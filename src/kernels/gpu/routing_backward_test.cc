// Gradients of Gelu, ExpertDispatch, RouterChoice and RouterState on an emulated GPU, by way of dispatch: fails if a
// term is off, if a gradient is overwritten where it is added to, if a row beyond those in use is touched, if a row's
// bits depend on its company, or if a bit depends on the wave or on the order of threads.
#include <gtest/gtest.h>

#include "kernels/expert_dispatch.h"
#include "kernels/gelu.h"
#include "kernels/gpu/test_gpu_forward.h"
#include "kernels/router_choice.h"
#include "kernels/router_state.h"

namespace moraine::gpu {
namespace {

using namespace testing;

constexpr DType kTypes[] = {DType::kF32, DType::kBF16};

// As of the CPU's: the roundings of exp, of the fit and of the products (kernels/gelu_test.cc).
constexpr int64_t kGeluTerms = 36;

TEST(GpuGeluBackward, MatchesTheReferenceWithOneResult) {
  const auto fields = [](GeluBackward& f) -> std::vector<GpuField> {
    return {{&f.dx, "dx"}, {&f.dy, nullptr}, {&f.x, nullptr}};
  };
  for (const DType dtype : kTypes) {
    Rig host;
    const GeluBackward a = {.dx = host.normal({3, 97}, dtype, 1),
                            .dy = host.normal({3, 97}, dtype, 2),
                            .x = host.normal({3, 97}, dtype, 3, 3)};
    const GeluBackward got = expect_forward(
        host, a, GpuOperation{fields, &moraine::gelu_backward, &ref::gelu_backward, kGeluTerms});
    GpuRig rig({.wave = 64});
    const Tensor in_place = rig.put(a.dy);
    moraine::gelu_backward(rig.ctx, {.dx = in_place, .dy = in_place, .x = rig.put(a.x)});
    EXPECT_SAME_BITS(rig.get(host, in_place), got.dx);
  }
}

struct DispatchCase {
  int64_t T, n, E, D;
  DType dtype;
  bool identity;
};

constexpr DispatchCase kDispatchCases[] = {
    {1, 1, 1, 1, DType::kF32, false},
    {40, 2, 5, 3, DType::kBF16, true},
    {5, 3, 2, 270, DType::kF32,
     true},  // tokens that skip more than once; more channels than threads
    {9, 3, 4, 33, DType::kBF16, false},
};

Tensor row_of(Rig& rig, const DispatchCase& c) {
  const DispatchPlan plan = {.rows = rig.zeros({c.E + 1}, DType::kI64),
                             .choice_of = rig.zeros({c.T * c.n}, DType::kI32),
                             .row_of = rig.zeros({c.T, c.n}, DType::kI32),
                             .load = rig.zeros({c.E + 1}, DType::kI64),
                             .expert = rig.integers({c.T, c.n}, c.E + 1, 3)};
  ref::dispatch_plan(plan);
  return plan.row_of;
}

DispatchBackward dispatch_data(Rig& rig, const DispatchCase& c) {
  return {.dx = rig.normal({c.T, c.D}, DType::kF32, 1),
          .dxe = rig.normal({c.T * c.n, c.D}, c.dtype, 2),
          .row_of = row_of(rig, c)};
}

std::vector<GpuField> dispatch_fields(DispatchBackward& f) {
  return {{&f.dx, "dx"}, {&f.dxe, nullptr}, {&f.row_of, nullptr}};
}

CombineBackward combine_data(Rig& rig, const DispatchCase& c) {
  const int64_t Te = c.T * c.n;
  return {.dye = rig.normal({Te, c.D}, c.dtype, 1),
          .dgate = rig.normal({c.T, c.n}, DType::kF32, 2),
          .dx = c.identity ? rig.normal({c.T, c.D}, DType::kF32, 4) : Tensor(),
          .dh = rig.normal({c.T, c.D}, c.dtype, 5),
          .ye = rig.normal({Te, c.D}, c.dtype, 6),
          .gate = rig.normal({c.T, c.n}, DType::kF32, 7),
          .x = c.identity ? rig.normal({c.T, c.D}, c.dtype, 8) : Tensor(),
          .row_of = row_of(rig, c),
          .skip_identity = c.identity};
}

std::vector<GpuField> combine_fields(CombineBackward& f) {
  return {{&f.dye, "dye"},  {&f.dgate, "dgate"}, {&f.dx, "dx"},   {&f.dh, nullptr},
          {&f.ye, nullptr}, {&f.gate, nullptr},  {&f.x, nullptr}, {&f.row_of, nullptr}};
}

TEST(GpuExpertDispatchBackward, MatchesTheReferenceWithOneResult) {
  for (const DispatchCase& c : kDispatchCases) {
    SCOPED_TRACE("T=" + std::to_string(c.T));
    Rig host;
    expect_forward(host, dispatch_data(host, c),
                   GpuOperation{&dispatch_fields, &moraine::dispatch_backward,
                                &ref::dispatch_backward, c.n + 1});
    expect_forward(host, combine_data(host, c),
                   GpuOperation{&combine_fields, &moraine::combine_backward, &ref::combine_backward,
                                c.D + c.n});
  }
}

TEST(GpuExpertDispatchBackward, SumsOfChoicesHaveTheBitsOfTheCpu) {
  Rig host;
  const DispatchBackward a = dispatch_data(host, kDispatchCases[1]);
  GpuRig rig({.wave = 32});
  DispatchBackward there = a;
  for (const GpuField& f : dispatch_fields(there)) *f.tensor = rig.put(*f.tensor);
  moraine::dispatch_backward(rig.ctx, there);
  moraine::dispatch_backward(host.ctx, a);
  EXPECT_SAME_BITS(rig.get(host, there.dx), a.dx);
}

TEST(GpuExpertDispatchBackward, ATokenAloneIsTheTokenInCompany) {
  Rig host;
  const DispatchCase c = {6, 2, 3, 40, DType::kBF16, true};
  const CombineBackward all = combine_data(host, c);
  GpuRig rig({.wave = 32});
  const auto run = [&](CombineBackward a) {
    for (const GpuField& f : combine_fields(a)) *f.tensor = rig.put(*f.tensor);
    moraine::combine_backward(rig.ctx, a);
    return a;
  };
  const CombineBackward together = run(all);
  for (int64_t t = 0; t < c.T; ++t) {
    CombineBackward one = all;
    for (Tensor* of : {&one.dgate, &one.dx, &one.dh, &one.gate, &one.x, &one.row_of}) {
      *of = of->rows(t, t + 1);
    }
    // The token's rows come first, in the order of its choices.
    const int32_t* const rows = all.row_of.as<int32_t>() + t * c.n;
    one.dye = host.zeros({c.n, c.D}, c.dtype), one.ye = host.zeros({c.n, c.D}, c.dtype);
    std::vector<int32_t> places;
    for (int64_t j = 0, next = 0; j < c.n; ++j) {
      places.push_back(rows[j] < 0 ? -1 : static_cast<int32_t>(next++));
      if (rows[j] < 0) continue;
      std::copy_n(all.ye.as<BF16>() + rows[j] * c.D, c.D, one.ye.as<BF16>() + places.back() * c.D);
    }
    one.row_of = host.int32s(places).reshaped({1, c.n});
    const CombineBackward alone = run(one);
    EXPECT_SAME_BITS(rig.get(host, alone.dgate), rig.get(host, together.dgate).rows(t, t + 1));
    EXPECT_SAME_BITS(rig.get(host, alone.dx), rig.get(host, together.dx).rows(t, t + 1));
    const Tensor dye = rig.get(host, alone.dye), whole = rig.get(host, together.dye);
    for (size_t j = 0; j < places.size(); ++j) {
      const int64_t at = places[j], row = rows[j];
      if (at >= 0) EXPECT_SAME_BITS(dye.rows(at, at + 1), whole.rows(row, row + 1));
    }
  }
}

struct ChoiceCase {
  int64_t T, C, n;
  bool skip;
  DType dtype;
};

TEST(GpuRouterChoiceBackward, MatchesTheReferenceWithOneResult) {
  const auto fields = [](RouterChoiceBackward& f) -> std::vector<GpuField> {
    return {{&f.dlogits, "dlogits"}, {&f.dgate, nullptr}, {&f.prob, nullptr}, {&f.expert, nullptr}};
  };
  for (const ChoiceCase& c :
       {ChoiceCase{1, 1, 1, false, DType::kF32}, ChoiceCase{30, 3, 2, true, DType::kBF16},
        ChoiceCase{20, 17, 3, true, DType::kF32}, ChoiceCase{3, 130, 4, false, DType::kBF16}}) {
    SCOPED_TRACE("C=" + std::to_string(c.C));
    Rig host;
    const RouterChoiceForward forward = {.prob = host.zeros({c.T, c.C}, DType::kF32),
                                         .expert = host.integers({c.T, c.n}, 1000, 2),
                                         .gate = host.zeros({c.T, c.n}, DType::kF32),
                                         .logits = host.normal({c.T, c.C}, DType::kF32, 4, 2),
                                         .bias = host.zeros({c.C}, DType::kF32),
                                         .skip = c.skip ? static_cast<int32_t>(c.C - 1) : -1};
    ref::router_choice_forward(forward);
    const RouterChoiceBackward a = {.dlogits = host.normal({c.T, c.C}, c.dtype, 5),
                                    .dgate = host.normal({c.T, c.n}, DType::kF32, 6),
                                    .prob = forward.prob,
                                    .expert = forward.expert,
                                    .skip = forward.skip};
    expect_forward(host, a,
                   GpuOperation{fields, &moraine::router_choice_backward,
                                &ref::router_choice_backward, 2 * c.n + 2});
  }
}

struct StateCase {
  int64_t T, R;
  DType dtype;
  bool first, last;  // of the layers: without s_prev, without ds
};

// s and rstd are numbers of the right size: a gradient need not follow its forward to be compared.
RouterStateBackward state_data(Rig& rig, const StateCase& c) {
  const auto rows = [&](bool present, uint64_t seed) {
    return present ? rig.normal({c.T, c.R}, DType::kF32, seed) : Tensor();
  };
  const auto channels = [&](bool present, uint64_t seed) {
    return present ? rig.normal({c.R}, DType::kF32, seed) : Tensor();
  };
  return {.dy = rig.normal({c.T, c.R}, c.dtype, 1),
          .ds_prev = rows(!c.first, 2),
          .dgamma = channels(!c.first, 3),
          .dnorm = channels(true, 4),
          .dx = rig.normal({c.T, c.R}, c.dtype, 5),
          .ds = rows(!c.last, 6),
          .s = rows(true, 7),
          .rstd = rig.normal({c.T}, DType::kF32, 8),
          .s_prev = rows(!c.first, 9),
          .gamma = channels(!c.first, 10),
          .norm = channels(true, 11)};
}

std::vector<GpuField> state_fields(RouterStateBackward& f) {
  return {{&f.dy, "dy"},        {&f.ds_prev, "ds_prev"}, {&f.dgamma, "dgamma"}, {&f.dnorm, "dnorm"},
          {&f.dx, nullptr},     {&f.ds, nullptr},        {&f.s, nullptr},       {&f.rstd, nullptr},
          {&f.s_prev, nullptr}, {&f.gamma, nullptr},     {&f.norm, nullptr}};
}

constexpr StateCase kStateCases[] = {
    {1, 1, DType::kF32, false, false},     // smallest
    {65, 20, DType::kBF16, false, false},  // one past a block of rows
    {130, 17, DType::kF32, false, true},   // three blocks; the last layer
    {5, 257, DType::kBF16, true, false},   // the first layer; one past a block's threads
    {3, 127, DType::kF32, true, true},
};

TEST(GpuRouterStateBackward, MatchesTheReferenceWithOneResult) {
  for (const StateCase& c : kStateCases) {
    SCOPED_TRACE("T=" + std::to_string(c.T) + " R=" + std::to_string(c.R));
    Rig host;
    expect_forward(host, state_data(host, c),
                   GpuOperation{&state_fields, &moraine::router_state_backward,
                                &ref::router_state_backward, c.T + c.R});
  }
}

TEST(GpuRouterStateBackward, ARowAloneIsTheRowInCompanyAndTheStateMayBeInPlace) {
  Rig host;
  const RouterStateBackward all = state_data(host, {70, 30, DType::kBF16, false, false});
  GpuRig rig({.wave = 32});
  const auto run = [&](RouterStateBackward a) {
    for (const GpuField& f : state_fields(a)) *f.tensor = rig.put(*f.tensor);
    moraine::router_state_backward(rig.ctx, a);
    return a;
  };
  const RouterStateBackward together = run(all);
  const Tensor dy = rig.get(host, together.dy), ds_prev = rig.get(host, together.ds_prev);
  for (const int64_t t : {0, 63, 64, 69}) {
    RouterStateBackward one = all;
    for (Tensor* of : {&one.dy, &one.ds_prev, &one.dx, &one.ds, &one.s, &one.rstd, &one.s_prev}) {
      *of = of->rows(t, t + 1);
    }
    const RouterStateBackward alone = run(one);
    EXPECT_SAME_BITS(rig.get(host, alone.dy), dy.rows(t, t + 1));
    EXPECT_SAME_BITS(rig.get(host, alone.ds_prev), ds_prev.rows(t, t + 1));
  }
  RouterStateBackward shared = together;
  shared.ds_prev = shared.ds;
  moraine::router_state_backward(rig.ctx, shared);
  EXPECT_SAME_BITS(rig.get(host, shared.ds_prev), ds_prev);
}

}  // namespace
}  // namespace moraine::gpu
