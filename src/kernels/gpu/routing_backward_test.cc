// Gradients of Gelu and ExpertDispatch on an emulated GPU, by way of dispatch: fails if a term is off, if a gradient is
// overwritten where it is added to, if a row beyond those in use is touched, if a token's bits depend on its company,
// or if a bit depends on the wave or on the order of threads.
#include <gtest/gtest.h>

#include "kernels/expert_dispatch.h"
#include "kernels/gelu.h"
#include "kernels/gpu/test_gpu_forward.h"

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

}  // namespace
}  // namespace moraine::gpu
