// Gradients of ResidualNorm and Swiglu on an emulated GPU: fails if a term is off, if a gradient is overwritten where
// it is added to, if a row's bits depend on the batch, or if a bit depends on the wave or on the order of threads.
#include <gtest/gtest.h>

#include "kernels/gpu/residual_norm_backward.h"
#include "kernels/gpu/swiglu.h"
#include "kernels/gpu/test_gpu_rig.h"
#include "kernels/residual_norm.h"
#include "kernels/swiglu.h"
#include "testing/two_ways.h"

namespace moraine::gpu {
namespace {

using namespace testing;

struct NormCase {
  int64_t T, D;
  DType dtype;
  bool merge, scale, later;  // r, the four vectors, dr_out are given
};

constexpr NormCase kNormCases[] = {
    {1, 1, DType::kF32, true, true, true},       // smallest
    {3, 127, DType::kF32, true, true, true},     // fewer channels than a block's threads
    {65, 20, DType::kBF16, true, true, false},   // one past a block of rows; the last layer
    {130, 17, DType::kF32, true, false, true},   // plain residual, three blocks
    {5, 257, DType::kBF16, false, true, true},   // embedding merge; one past a block's threads
    {66, 30, DType::kF32, false, false, false},  // RMSNorm alone
};

ResidualScale vectors(Rig& rig, const NormCase& c, uint64_t seed) {
  const auto channels = [&](bool present, uint64_t number) {
    return present ? rig.normal({c.D}, DType::kF32, seed + number) : Tensor();
  };
  return {.h_scale = channels(c.scale, 0),
          .h_bias = channels(c.scale, 1),
          .r_scale = channels(c.scale && c.merge, 2),
          .r_bias = channels(c.scale && c.merge, 3)};
}

// r_out and rstd are numbers of the right size: a gradient need not follow its forward to be compared.
ResidualNormBackward norm_data(Rig& rig, const NormCase& c) {
  const auto rows = [&](bool present, DType dtype, uint64_t seed) {
    return present ? rig.normal({c.T, c.D}, dtype, seed) : Tensor();
  };
  return {.dh = rows(true, c.dtype, 1),
          .dr = rows(c.merge, DType::kF32, 2),
          .dscale = vectors(rig, c, 10),
          .dnorm = rig.normal({c.D}, DType::kF32, 3),
          .dx = rows(true, DType::kF32, 4),
          .dr_out = rows(c.later, DType::kF32, 5),
          .r_out = rows(true, DType::kF32, 6),
          .rstd = rig.normal({c.T}, DType::kF32, 7),
          .h = rows(true, c.dtype, 8),
          .r = rows(c.merge, DType::kF32, 9),
          .scale = vectors(rig, c, 20),
          .norm = rig.normal({c.D}, DType::kF32, 30)};
}

std::vector<Output> outputs(ResidualNormBackward& a) {
  return present({{&a.dh, "dh"},
                  {&a.dr, "dr"},
                  {&a.dnorm, "dnorm"},
                  {&a.dscale.h_scale, "dh_scale"},
                  {&a.dscale.h_bias, "dh_bias"},
                  {&a.dscale.r_scale, "dr_scale"},
                  {&a.dscale.r_bias, "dr_bias"}});
}

ResidualNormBackward run(GpuRig& rig, ResidualNormBackward a) {
  for (Tensor* t :
       {&a.dh, &a.dr, &a.dnorm, &a.dx, &a.dr_out, &a.r_out, &a.rstd, &a.h, &a.r, &a.norm}) {
    *t = rig.put(*t);
  }
  for (ResidualScale* s : {&a.scale, &a.dscale}) {
    for (Tensor* t : {&s->h_scale, &s->h_bias, &s->r_scale, &s->r_bias}) *t = rig.put(*t);
  }
  moraine::residual_norm_backward(rig.ctx, a);
  return a;
}

TEST(GpuResidualNormBackward, MatchesTheReferenceWithOneResult) {
  for (const NormCase& c : kNormCases) {
    SCOPED_TRACE("T=" + std::to_string(c.T) + " D=" + std::to_string(c.D));
    Rig host;
    const ResidualNormBackward data = norm_data(host, c);
    ResidualNormBackward want = data;
    for (const Output& o : outputs(want)) *o.tensor = host.copy(*o.tensor);
    ref::residual_norm_backward(want);
    ResidualNormBackward first;
    for (const Emulation& e : all_emulations()) {
      SCOPED_TRACE(emulation_text(e));
      GpuRig rig(e);
      ResidualNormBackward got = run(rig, data);
      for (const Output& o : outputs(got)) *o.tensor = rig.get(host, *o.tensor);
      if (first.dh.empty()) first = got;
      const std::vector<Output> all = outputs(got), one = outputs(first), right = outputs(want);
      for (size_t i = 0; i < all.size(); ++i) {
        const Tolerance allowed = tolerance(all[i].tensor->dtype, c.T + c.D);
        expect_close(*all[i].tensor, *right[i].tensor, allowed, all[i].name);
        expect_same_bits(*all[i].tensor, *one[i].tensor, all[i].name);
      }
    }
  }
}

TEST(GpuResidualNormBackward, ARowAloneIsTheRowInCompanyAndTheResidualMayBeInPlace) {
  Rig host;
  ResidualNormBackward all = norm_data(host, {70, 30, DType::kBF16, true, true, true});
  GpuRig rig({.wave = 32});
  const ResidualNormBackward together = run(rig, all);
  const Tensor dh = rig.get(host, together.dh), dr = rig.get(host, together.dr);
  for (const int64_t t : {0, 63, 64, 69}) {
    ResidualNormBackward one = all;
    for (Tensor* tensor :
         {&one.dh, &one.dr, &one.dx, &one.dr_out, &one.r_out, &one.rstd, &one.h, &one.r}) {
      *tensor = tensor->rows(t, t + 1);
    }
    const ResidualNormBackward alone = run(rig, one);
    EXPECT_SAME_BITS(rig.get(host, alone.dh), dh.rows(t, t + 1));
    EXPECT_SAME_BITS(rig.get(host, alone.dr), dr.rows(t, t + 1));
  }
  ResidualNormBackward shared = together;
  shared.dr = shared.dr_out;
  moraine::residual_norm_backward(rig.ctx, shared);
  EXPECT_SAME_BITS(rig.get(host, shared.dr), dr);
}

TEST(GpuSwigluBackward, MatchesTheReferenceWithOneResult) {
  constexpr int64_t kRoundings = 10;  // exp, 1 + e, the quotient, and up to seven products and sums
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Rig host;
    const int64_t T = 5, F = 97, rows = 4;
    SwigluBackward a = {.dgate_up = host.normal({T, 2 * F}, dtype, 1),
                        .dy = host.normal({T, F}, dtype, 2),
                        .gate_up = host.normal({T, 2 * F}, dtype, 3, 3),
                        .rows = rows};
    const auto on = [&](GpuRig& rig) {
      const SwigluBackward d = {.dgate_up = rig.put(a.dgate_up),
                                .dy = rig.put(a.dy),
                                .gate_up = rig.put(a.gate_up),
                                .rows = rows};
      moraine::swiglu_backward(rig.ctx, d);
      return d.dgate_up;
    };
    const Tensor untouched = host.copy(a.dgate_up);
    GpuRig rig({.wave = 32});
    const Tensor got = rig.get(host, on(rig));
    expect_one_result(all_emulations(), on);
    const Tensor in_place = rig.put(a.gate_up);
    swiglu_backward(*rig.gpu,
                    {.dgate_up = in_place, .dy = rig.put(a.dy), .gate_up = in_place, .rows = rows});
    EXPECT_SAME_BITS(rig.get(host, in_place).rows(0, rows), got.rows(0, rows));
    ref::swiglu_backward(a);
    EXPECT_CLOSE(got, a.dgate_up, tolerance(dtype, kRoundings));
    EXPECT_SAME_BITS(got.rows(rows, T), untouched.rows(rows, T));
  }
}

}  // namespace
}  // namespace moraine::gpu
